//! Workspaces with claims, for Pods that are not ours.

use anyhow::{Result, ensure};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{Api, ListParams};
use serde_json::json;
use yoi_crds::condition::ConditionStatus;
use yoi_crds::{AgentWorkspace, YoiPod};
use yoi_e2e::poll_seen;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace, uid};

/// A Job that runs `command` in the tree of the claim.
fn job(claim: &str, command: &str) -> String {
    format!(
        r#"
apiVersion: batch/v1
kind: Job
metadata: {{ name: {claim} }}
spec:
  backoffLimit: 0
  ttlSecondsAfterFinished: 5
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 1
      automountServiceAccountToken: false
      securityContext: {{ runAsNonRoot: true, runAsUser: 1000, runAsGroup: 1000, seccompProfile: {{ type: RuntimeDefault }} }}
      containers:
        - name: build
          image: $image(agent)
          imagePullPolicy: Never
          workingDir: /workspace/tree
          command: [/bin/sh, -euxc, {command:?}]
          securityContext: {{ allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {{ drop: [ALL] }} }}
          volumeMounts: [{{ name: tree, mountPath: /workspace/tree }}, {{ name: tmp, mountPath: /tmp }}]
      volumes:
        - {{ name: tree, persistentVolumeClaim: {{ claimName: {claim} }} }}
        - {{ name: tmp, emptyDir: {{}} }}
"#
    )
}

fn workspace(name: &str, more: serde_json::Value) -> String {
    let mut spec = json!({ "path": "/workspace/tree", "claim": true });
    if let (Some(spec), serde_json::Value::Object(more)) = (spec.as_object_mut(), more) {
        spec.extend(more);
    }
    json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "AgentWorkspace", "metadata": { "name": name }, "spec": spec }).to_string()
}

async fn wait_succeeded(ns: &TestNamespace, job: &str) -> Result<()> {
    ns.wait_for::<Job, ()>(job, "succeeded", |job| {
        let status = job?.status.as_ref()?;
        assert!(status.failed.unwrap_or(0) == 0, "the Job failed");
        (status.succeeded.unwrap_or(0) == 1).then_some(())
    })
    .await
}

async fn volumes(ns: &TestNamespace) -> Result<Vec<PersistentVolume>> {
    let all = Api::<PersistentVolume>::all(ns.client.clone()).list(&ListParams::default()).await?.items;
    Ok(all
        .into_iter()
        .filter(|v| {
            v.spec.as_ref().is_some_and(|s| {
                s.csi.as_ref().is_some_and(|c| c.driver == "csi.yoi.dev")
                    && s.claim_ref.as_ref().is_some_and(|c| c.namespace.as_deref() == Some(&ns.name))
            })
        })
        .collect())
}

#[tokio::test]
async fn a_ci_job_builds_in_a_workspace_of_its_own_which_goes_with_it() -> Result<()> {
    let ns = TestNamespace::create("ci").await?;
    ns.create_git_server().await?;
    ns.create_project("p", json!({ "git": { "url": format!("git://git.{}.svc:9418/project.git", ns.name) } })).await?;
    // Applied together, as a pipeline does, without waiting in between.
    ns.apply(&workspace("ci", json!({ "source": { "project": { "name": "p" } }, "ttlAfterRelease": "2s" }))).await?;
    ns.apply(&job("ci", "make CC=tcc && ./prog | grep fixture && git status --porcelain | tee /tmp/s && test ! -s /tmp/s")).await?;
    wait_succeeded(&ns, "ci").await?;
    ns.wait_gone::<AgentWorkspace>("ci").await?;
    ns.wait_gone::<PersistentVolumeClaim>("ci").await?;
    ensure!(volumes(&ns).await?.is_empty(), "a volume is left");
    ns.remove().await
}

#[tokio::test]
async fn an_immediate_claim_is_ready_before_any_pod_and_a_git_tag_is_its_source() -> Result<()> {
    let ns = TestNamespace::create("immediate").await?;
    ns.create_git_server().await?;
    let git = json!({ "git": { "url": format!("git://git.{}.svc:9418/project.git", ns.name), "ref": "v1" } });
    ns.apply(&workspace("w", json!({ "source": git, "binding": "Immediate" }))).await?;
    ns.wait_condition::<AgentWorkspace>("w", "Ready", ConditionStatus::True).await?;
    let claim: PersistentVolumeClaim = ns.get("w").await?;
    ensure!(claim.status.and_then(|s| s.phase).as_deref() == Some("Bound"), "the claim is not bound");
    ns.apply(&job("w", "test -f README.md && test ! -e SECOND.md && echo written > by-the-job")).await?;
    wait_succeeded(&ns, "w").await?;
    // The Job is gone and the tree stays, because it has no TTL.
    ns.wait_gone::<Job>("w").await?;
    ns.apply(&job("w", "grep written by-the-job")).await?;
    wait_succeeded(&ns, "w").await?;
    ns.wait_gone::<Job>("w").await?;
    // What the Job wrote is only there.
    ns.wait_condition::<AgentWorkspace>("w", "InUse", ConditionStatus::False).await?;
    let report = ns.yoi(&["workspace", "rm", "w"]).await?;
    ensure!(report.code == 1 && report.out.contains("would not delete"), "{report:?}");
    ns.yoi(&["workspace", "rm", "w", "--force"]).await?.exit_ok()?;
    ns.wait_gone::<AgentWorkspace>("w").await?;
    ensure!(volumes(&ns).await?.is_empty(), "a volume is left");
    ns.remove().await
}

#[tokio::test]
async fn a_late_claim_waits_for_its_first_pod_and_says_so() -> Result<()> {
    let ns = TestNamespace::create("late").await?;
    ns.yoi(&["workspace", "create", "w", "--empty", "--claim", "--path", "/workspace/tree", "--wait"]).await?.exit_ok()?;
    ns.wait_reason::<AgentWorkspace>("w", "Scheduled", "WaitingForConsumer").await?;
    ns.apply(&job("w", "echo hello > file && cat file && test \"$(stat -c %u .)\" = 1000")).await?;
    wait_succeeded(&ns, "w").await?;
    ns.wait_condition::<AgentWorkspace>("w", "Ready", ConditionStatus::True).await?;
    ns.remove().await
}

/// A Pod on the node of `victim` that requests its tree as an agent's own Pod does.
fn attacker(name: &str, victim: &AgentWorkspace) -> String {
    let node = victim.status.as_ref().and_then(|status| status.node_name.clone());
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name }, "spec": { "nodeName": node,
        "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 1,
        "securityContext": { "runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": { "type": "RuntimeDefault" } },
        "containers": [{ "name": "attacker", "image": "$image(agent)", "imagePullPolicy": "Never", "command": ["sleep", "60"],
            "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
            "volumeMounts": [{ "name": "tree", "mountPath": "/stolen" }] }],
        "volumes": [{ "name": "tree", "csi": { "driver": "csi.yoi.dev",
            "volumeAttributes": { "yoi.dev/volume": "tree", "yoi.dev/workspace-uid": uid(victim) } } }] } })
    .to_string()
}

#[tokio::test]
async fn a_foreign_pod_cannot_mount_a_workspace_inline() -> Result<()> {
    let ns = TestNamespace::create("attacker").await?;
    // One tree that no Pod may mount inline, and one that only an agent's Pod may mount.
    ns.apply(&workspace("w", json!({ "source": { "empty": {} }, "binding": "Immediate" }))).await?;
    ns.create_model("rules: [{ steps: [{ text: hello }] }]").await?;
    ns.create_empty_project("p").await?;
    ns.create_agent("a", "p", json!({})).await?;
    ns.wait_condition::<AgentWorkspace>("w", "Ready", ConditionStatus::True).await?;
    ns.wait_agent_ready("a").await?;
    for victim in ["w", "a"] {
        ns.apply(&attacker(&format!("attacker-of-{victim}"), &ns.get(victim).await?)).await?;
    }
    // The kubelet reports the shim's reason, and neither container ever starts.
    for (next, word) in
        [("attacker-of-w", "AgentWorkspace w is for no Pod yet"), ("attacker-of-a", "AgentWorkspace a is for the Pod with UID")]
    {
        poll_seen(TIMEOUT, &format!("the kubelet says `{word}` of {next}"), async || {
            for attacker in ["attacker-of-w", "attacker-of-a"] {
                let pod: Pod = ns.get(attacker).await?;
                let mut containers = pod.status.and_then(|s| s.container_statuses).unwrap_or_default().into_iter();
                ensure!(!containers.any(|c| c.started == Some(true) || c.restart_count > 0), "the container of {attacker} runs");
            }
            let about = format!("involvedObject.name={next},reason=FailedMount");
            let messages =
                ns.kubectl(&["get", "events", "--field-selector", &about, "-o", "jsonpath={.items[*].message}"]).await?.exit_ok()?.out;
            Ok(if messages.contains(word) { Ok(()) } else { Err(messages) })
        })
        .await?;
    }
    ns.remove().await
}

/// Waits until the operator has touched the claim, by its annotation.
async fn wait_reminded(ns: &TestNamespace, claim: &str) -> Result<()> {
    ns.wait_for::<PersistentVolumeClaim, ()>(claim, "Kubernetes is reminded of it", |claim| {
        claim.expect("held by its Pod").metadata.annotations.as_ref()?.get("yoi.dev/reminded").map(drop)
    })
    .await
}

/// Kubernetes can miss the end of a claim's last Pod. Then only a change of the claim makes it look again.
#[tokio::test]
async fn claims_that_stay_in_deletion_are_nudged_and_go_with_their_pods() -> Result<()> {
    let ns = TestNamespace::create("reminded").await?;
    ns.create_model("rules: [{ steps: [{ text: hello }] }]").await?;
    ns.create_empty_project("p").await?;
    ns.create_agent("a", "p", json!({})).await?;
    ns.apply(&workspace("w", json!({ "source": { "empty": {} } }))).await?;
    ns.apply(&job("w", "sleep 600")).await?;
    ns.wait_condition::<AgentWorkspace>("w", "Ready", ConditionStatus::True).await?;
    ns.wait_agent_ready("a").await?;
    ns.wait_for::<Job, ()>("w", "its Pod runs", |job| (job?.status.as_ref()?.ready == Some(1)).then_some(())).await?;
    ns.delete::<AgentWorkspace>("w").await?;
    ns.delete::<PersistentVolumeClaim>("a-session").await?;
    // Both claims are in use, so they stay.
    tokio::try_join!(wait_reminded(&ns, "w"), wait_reminded(&ns, "a-session"))?;
    ns.kubectl(&["delete", "job", "w", "--wait=false", "--cascade=foreground"]).await?.exit_ok()?;
    ns.delete::<YoiPod>("a").await?;
    ns.wait_gone::<AgentWorkspace>("w").await?;
    ns.wait_gone::<PersistentVolumeClaim>("a-session").await?;
    ns.remove().await
}
