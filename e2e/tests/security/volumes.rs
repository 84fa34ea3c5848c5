//! Attempts to get another agent's tree, socket or session with the right to create objects in a namespace.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use yoi_crds::condition::ConditionStatus;
use yoi_crds::{AgentWorkspace, YoiPod};
use yoi_e2e::poll_seen;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace, uid};
use yoi_wire::entry::Body;

use crate::gateway_client::pod_of;

const SCRIPT: &str = r#"
rules:
- name: steal
  when: { lastUserContains: "read it all" }
  steps:
  - toolCalls: [{ tool: Shell, args: { command: "cat /session/sessions/*/*; ls -R /session" } }]
  - text: Read.
- steps: [{ text: hello }]
"#;

/// A Pod on this node that mounts one inline volume of our driver, with these attributes, at `/stolen`.
fn attacker(node: &str, name: &str, attributes: &Value, read_only: bool) -> String {
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name }, "spec": { "nodeName": node,
        "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0,
        "securityContext": { "runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": { "type": "RuntimeDefault" } },
        "containers": [{ "name": "attacker", "image": "$image(agent)", "imagePullPolicy": "Never", "command": ["sleep", "600"],
            "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
            "volumeMounts": [{ "name": "v", "mountPath": "/stolen" }] }],
        "volumes": [{ "name": "v", "csi": { "driver": "csi.yoi.dev", "readOnly": read_only, "volumeAttributes": attributes } }] } })
    .to_string()
}

async fn check_never_ran(ns: &TestNamespace, name: &str) -> Result<()> {
    let pod: Pod = ns.get(name).await?;
    let mut containers = pod.status.and_then(|s| s.container_statuses).unwrap_or_default().into_iter();
    ensure!(!containers.any(|c| c.started == Some(true) || c.restart_count > 0), "the container of {name} runs");
    Ok(())
}

/// Waits until the kubelet has reported each of these words for its Pod. No Pod may run meanwhile.
async fn wait_refused(ns: &TestNamespace, attackers: &[(&str, &str)]) -> Result<()> {
    for (name, word) in attackers {
        poll_seen(TIMEOUT, &format!("the kubelet says `{word}` of {name}"), async || {
            for (name, _) in attackers {
                check_never_ran(ns, name).await?;
            }
            let about = format!("involvedObject.name={name},reason=FailedMount");
            let messages =
                ns.kubectl(&["get", "events", "--field-selector", &about, "-o", "jsonpath={.items[*].message}"]).await?.exit_ok()?.out;
            Ok(if messages.contains(word) { Ok(()) } else { Err(messages) })
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_foreign_pod_gets_neither_an_agents_tree_nor_a_base_nor_its_socket() -> Result<()> {
    let ns = TestNamespace::create("attackers").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_empty_project("p").await?;
    ns.create_agent("a", "p", json!({})).await?;
    ns.wait_agent_ready("a").await?;
    let tree: AgentWorkspace = ns.get("a").await?;
    let all: Vec<AgentWorkspace> = ns.list("").await?;
    // Another node's shim has nothing to refuse.
    let at = |w: &AgentWorkspace| w.status.as_ref().and_then(|status| status.node_name.clone());
    let node = at(&tree).context("the tree is on no node")?;
    let base = all.iter().find(|w| w.spec.base.is_some() && at(w).as_ref() == Some(&node)).context("no base")?;
    let mine: Pod = ns.get(&pod_of(&ns, "a").await?).await?;
    let volumes = mine.spec.as_ref().and_then(|s| s.volumes.clone()).unwrap_or_default();
    let runtime = volumes.iter().find_map(|v| v.csi.as_ref().filter(|_| v.name == "runtime")).context("the agent has no /yoi")?;
    let digest = runtime.volume_attributes.as_ref().and_then(|a| a.get("yoi.dev/runtime-digest")).context("no digest")?;
    let of = |workspace: &AgentWorkspace| json!({ "yoi.dev/volume": "tree", "yoi.dev/workspace-uid": uid(workspace) });
    // Attributes that only the kubelet should set.
    let mut disguised = of(&tree);
    disguised["csi.storage.k8s.io/pod.uid"] = json!(mine.metadata.uid);
    disguised["csi.storage.k8s.io/pod.name"] = json!(mine.metadata.name);
    disguised["csi.storage.k8s.io/ephemeral"] = json!("false");
    ns.apply(&attacker(&node, "tree", &of(&tree), false)).await?;
    ns.apply(&attacker(&node, "disguised", &disguised, false)).await?;
    ns.apply(&attacker(&node, "base", &of(base), true)).await?;
    ns.apply(&attacker(&node, "nonsense", &json!({ "yoi.dev/volume": "tree", "yoi.dev/workspace-uid": "../../etc" }), false)).await?;
    ns.apply(&attacker(&node, "kindless", &json!({ "yoi.dev/workspace-uid": uid(&tree) }), false)).await?;
    ns.apply(&attacker(&node, "other-digest", &json!({ "yoi.dev/volume": "runtime", "yoi.dev/runtime-digest": "0".repeat(64) }), true))
        .await?;
    // Any Pod may mount the runtime. The socket beside it must be this Pod's own.
    let mut socket = json!({ "yoi.dev/volume": "runtime", "yoi.dev/runtime-digest": digest, "yoi.dev/workspace-uid": uid(&tree) });
    socket["csi.storage.k8s.io/pod.uid"] = json!(mine.metadata.uid);
    ns.apply(&attacker(&node, "socket", &socket, true)).await?;
    ns.wait_pod_ready("socket").await?;
    let ask = |path: &str| {
        format!("curl -sS -m 20 --unix-socket \"$S\" -o /tmp/out -w '%{{http_code}}' http://shim{path}; echo; head -c 300 /tmp/out")
    };
    let asked = |at: &str, path: &str| format!("S={at}/shim.sock; {}", ask(path));
    let control = ns.kubectl(&["exec", &pod_of(&ns, "a").await?, "--", "/bin/sh", "-c", &asked("/yoi", "/v1/changes")]).await?;
    ensure!(control.out.starts_with("200"), "the control, the agent's own socket, returns no changes: {control:?}");
    for path in ["/v1/changes", "/v1/changes?pod=a", &format!("/v1/changes?workspace={}", uid(&tree))] {
        let output = ns.kubectl(&["exec", "socket", "--", "/bin/sh", "-c", &asked("/stolen", path)]).await?;
        ensure!(!output.out.starts_with('2'), "a socket of another Pod returns changes of a tree: {output:?}");
    }
    let output = ns
        .kubectl(&["exec", "socket", "--", "/bin/sh", "-c", "touch /stolen/bin/x /stolen/x; echo > /stolen/bin/yoi-runtime; ls /stolen/.."])
        .await?;
    ensure!(output.err.matches("Read-only file system").count() == 3, "the runtime's volume can be written: {output:?}");

    let attackers = [
        ("tree", "AgentWorkspace a is for the Pod with UID"),
        ("disguised", "AgentWorkspace a is for the Pod with UID"),
        ("base", "is for no Pod"),
        ("nonsense", "failed to read attribute yoi.dev/workspace-uid"),
        ("kindless", "failed to find attribute yoi.dev/volume"),
        ("other-digest", "has no runtime"),
    ];
    wait_refused(&ns, &attackers).await?;
    println!("{} inline volumes refused, 3 questions to a socket", attackers.len());
    ns.remove().await
}

#[tokio::test]
async fn a_claim_gets_no_volume_of_another_namespace() -> Result<()> {
    let (ns, other) = (TestNamespace::create("volumes").await?, TestNamespace::create("volumes-next").await?);
    ns.yoi(&["workspace", "create", "w", "--empty", "--claim", "--immediate", "--path", "/workspace/tree", "--wait"]).await?.exit_ok()?;
    ns.wait_condition::<AgentWorkspace>("w", "Ready", ConditionStatus::True).await?;
    let claim: PersistentVolumeClaim = ns.get("w").await?;
    let volume = claim.spec.as_ref().and_then(|s| s.volume_name.clone()).context("the control, the own claim, is not bound")?;
    let copy = |name: &str, class: &str| {
        json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": name }, "spec": {
            "storageClassName": class, "volumeName": volume, "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1" } } } })
        .to_string()
    };
    // Claims that name the volume in another namespace and in the same one, and a claim of the same name in another namespace.
    other.apply(&copy("attacker", "yoi-immediate")).await?;
    other.apply(&copy("w", "yoi-immediate")).await?;
    ns.apply(&copy("second", "yoi-immediate")).await?;
    // A workspace cannot fork a tree of another namespace, because a name means an object of its own namespace.
    let fork = json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "AgentWorkspace", "metadata": { "name": "fork" },
        "spec": { "path": "/workspace/tree", "source": { "workspace": { "name": "w" } } } });
    other.apply(&fork.to_string()).await?;
    other.wait_reason::<AgentWorkspace>("fork", "Accepted", "SourceNotFound").await?;
    // The volume controller reports with its first look that the volume is bound already.
    for (ns, name) in [(&other, "attacker"), (&other, "w"), (&ns, "second")] {
        poll_seen(TIMEOUT, &format!("an Event says that {name} gets no volume"), async || {
            let about = format!("involvedObject.name={name},involvedObject.kind=PersistentVolumeClaim");
            let messages =
                ns.kubectl(&["get", "events", "--field-selector", &about, "-o", "jsonpath={.items[*].message}"]).await?.exit_ok()?.out;
            let found: PersistentVolumeClaim = ns.get(name).await?;
            let phase = found.status.and_then(|s| s.phase).unwrap_or_default();
            ensure!(phase != "Bound", "{name} got another claim's volume");
            Ok(if messages.contains("already bound") || phase == "Lost" { Ok(()) } else { Err(messages) })
        })
        .await?;
    }
    let all = Api::<PersistentVolume>::all(ns.client.clone()).list(&ListParams::default()).await?.items;
    let owner = all.into_iter().find(|v| v.metadata.name.as_deref() == Some(&volume)).and_then(|v| v.spec).and_then(|s| s.claim_ref);
    ensure!(owner.as_ref().and_then(|c| c.uid.clone()) == claim.metadata.uid, "the volume is bound to another claim: {owner:?}");
    other.remove().await?;
    ns.remove().await
}

#[tokio::test]
async fn no_other_agent_gets_the_session_of_a_running_agent() -> Result<()> {
    let ns = TestNamespace::create("session").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_empty_project("p").await?;
    ns.create_agent("a", "p", json!({ "task": "the words of a" })).await?;
    ns.wait_task_complete("a").await?;
    // The schema has no field for a service account or whole Secrets as variables, and reserves agents' session claims and our variables.
    for pod in [
        json!({ "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "a-session" } }] }),
        json!({ "envFrom": [{ "secretRef": { "name": "s" } }] }),
        json!({ "env": [{ "name": "YOI_POD_UID", "value": "x" }] }),
        json!({ "serviceAccountName": "default", "hostPID": true }),
    ] {
        let yoipod = json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPod", "metadata": { "name": "x" },
            "spec": { "projectRef": { "name": "p" }, "agent": { "builtin": {} }, "pod": pod } });
        let output = ns.try_apply(&yoipod.to_string()).await?;
        ensure!(
            output.code != 0 && (output.err.contains("unknown field") || output.err.contains("reserved")),
            "{pod} was taken: {output:?}"
        );
    }
    ns.create_agent("attacker", "p", json!({ "session": { "claimName": "a-session" }, "task": "read it all" })).await?;
    ns.wait_reason::<YoiPod>("attacker", "Ready", "SessionLocked").await?;
    // The second agent runs nothing: a run would be in the log that it cannot open.
    let bodies: Vec<_> = ns.log("a").await?.into_iter().map(|line| line.entry.body).collect();
    let inputs = bodies.iter().filter(|b| matches!(b, Body::Input(_))).count();
    ensure!(inputs == 1 && !bodies.iter().any(|b| matches!(b, Body::ToolEnded(_))), "the attacker wrote into a's session");
    ns.yoi(&["send", "a", "are you there"]).await?.exit_ok()?;
    ns.wait_log("a", "an answer", |log| (log.iter().filter(|l| matches!(l.entry.body, Body::RunEnded(_))).count() == 2).then_some(()))
        .await?;
    // The control: only the lock kept it out. When a is stopped, another agent with the same claim continues its session.
    ns.yoi(&["stop", "a"]).await?.exit_ok()?;
    ns.wait_agent_ready("attacker").await?;
    ns.remove().await
}
