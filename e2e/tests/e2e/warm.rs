//! Warm session claims: an agent starts without waiting for a volume.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use serde_json::{Value, json};
use yoi_crds::condition::ConditionStatus;
use yoi_crds::name::{annotation, label};
use yoi_crds::warm::WarmClaim;
use yoi_crds::{YoiPod, YoiProject};
use yoi_e2e::test_namespace::{TestNamespace, uid};
use yoi_plan::yoipod::MADE_FOR;

/// The warm claims of the project, once so many stand ready and are bound.
async fn wait_warm(ns: &TestNamespace, count: usize, without: &str) -> Result<Vec<WarmClaim>> {
    let goal = format!("{count} warm session claims stand ready");
    ns.wait_for::<YoiProject, _>("p", &goal, |project| {
        let status = project?.status.as_ref()?;
        let told = yoi_crds::condition::find(&status.conditions, "SessionsWarm")?;
        let claims = status.warm.as_ref()?.claims.clone();
        let is_met = told.message.starts_with(&format!("{count} of {count} ")) && claims.iter().all(|claim| claim.uid != without);
        is_met.then_some(claims)
    })
    .await
}

/// Makes an agent and waits until it listens.
async fn time_to_ready(ns: &TestNamespace, name: &str, more: Value) -> Result<Duration> {
    let began = Instant::now();
    ns.create_agent(name, "p", more).await?;
    ns.wait_agent_ready(name).await?;
    Ok(began.elapsed())
}

#[tokio::test]
async fn an_agent_takes_a_warm_session_goes_to_its_node_and_another_follows() -> Result<()> {
    let ns = TestNamespace::create("warm").await?;
    ns.create_model("rules: [{ steps: [{ text: hello }] }]").await?;
    ns.create_empty_project("p").await?;
    // A user's claim that bears all that a warm one bears, and that the operator has not made.
    let project: YoiProject = ns.get("p").await?;
    let owner = json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "YoiProject", "name": "p", "uid": uid(&project), "controller": true });
    let forged = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "warm.forged-session",
        "labels": { (label::WARM): "p" }, "ownerReferences": [owner] }, "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } });
    ns.apply(&forged.to_string()).await?;
    let cold = time_to_ready(&ns, "cold", json!({})).await?;

    ns.merge_patch::<YoiProject>("p", &json!({ "spec": { "warm": { "sessions": 1 } } })).await?;
    let first = wait_warm(&ns, 1, "").await?.into_iter().next().context("a warm claim")?;
    let before: PersistentVolumeClaim = ns.get(&first.name).await?;
    ensure!(uid(&before) == first.uid && before.labels().get(label::WARM).map(String::as_str) == Some("p"), "{before:?}");
    ensure!(before.owner_references().iter().any(|owner| owner.uid == uid(&project)), "it goes with its project: {before:?}");

    let warm = time_to_ready(&ns, "a", json!({ "session": { "retain": "Delete" } })).await?;
    println!("apply to Ready: {} ms with a warm session claim, {} ms with one of its own", warm.as_millis(), cold.as_millis());
    let agent: YoiPod = ns.get("a").await?;
    let status = agent.status.clone().unwrap_or_default();
    ensure!(status.session_claim_name.as_deref() == Some(first.name.as_str()), "{status:?}");
    let pod: Pod = ns.get(&status.pod.context("a Pod")?.name).await?;
    let node = pod.spec.and_then(|spec| spec.node_name);
    ensure!(node.as_deref() == Some(first.node.as_str()), "the volume is on node {}, and the Pod on {node:?}", first.node);
    let taken: PersistentVolumeClaim = ns.get(&first.name).await?;
    ensure!(taken.labels().get(label::WARM).is_none() && taken.labels().get(label::YOIPOD).map(String::as_str) == Some("a"), "{taken:?}");
    ensure!(
        taken.annotations().get(MADE_FOR) == Some(&uid(&agent)) && taken.annotations().contains_key(annotation::SELECTED_NODE),
        "{taken:?}"
    );
    ensure!(taken.owner_references().iter().map(|owner| &owner.uid).eq([&uid(&agent)]), "it goes with its agent alone: {taken:?}");

    let second = wait_warm(&ns, 1, &first.uid).await?.into_iter().next().context("another warm claim")?;
    ensure!(second.uid != first.uid, "it is handed on");
    let sessions = ns.yoi(&["ls", "sessions"]).await?.exit_ok()?;
    ensure!(sessions.out.contains("1 warm session claim for its next agents"), "{}", sessions.out);

    // The first claim is the agent's own in all: it goes with it, because its spec says so, and never comes back.
    ns.delete::<YoiPod>("a").await?;
    ns.wait_gone::<PersistentVolumeClaim>(&first.name).await?;
    let forged: PersistentVolumeClaim = ns.get("warm.forged-session").await?;
    ensure!(forged.annotations().get(MADE_FOR).is_none() && forged.metadata.deletion_timestamp.is_none(), "{forged:?}");

    // Nothing stands ready any more once nobody asks for it.
    ns.merge_patch::<YoiProject>("p", &json!({ "spec": { "warm": { "sessions": 0 } } })).await?;
    ns.wait_gone::<PersistentVolumeClaim>(&second.name).await?;
    ns.wait_condition::<YoiProject>("p", "Ready", ConditionStatus::True).await?;
    ns.remove().await
}

#[tokio::test]
async fn a_warm_session_that_a_pod_wrote_into_is_used_by_no_agent_and_stays_as_it_is() -> Result<()> {
    let ns = TestNamespace::create("warm-written").await?;
    ns.create_model("rules: [{ steps: [{ text: hello }] }]").await?;
    ns.create_empty_project("p").await?;
    ns.merge_patch::<YoiProject>("p", &json!({ "spec": { "warm": { "sessions": 1 } } })).await?;
    let first = wait_warm(&ns, 1, "").await?.into_iter().next().context("a warm claim")?;
    let closed = json!({ "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } });
    let writer = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "writer" }, "spec": {
        "restartPolicy": "Never", "automountServiceAccountToken": false,
        "securityContext": { "runAsNonRoot": true, "runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000, "seccompProfile": { "type": "RuntimeDefault" } },
        "containers": [{ "name": "writer", "image": ns.image("agent")?, "imagePullPolicy": "Never", "command": ["sh", "-c", "echo mine > /session/notes.txt"],
            "securityContext": closed, "volumeMounts": [{ "name": "session", "mountPath": "/session" }] }],
        "volumes": [{ "name": "session", "persistentVolumeClaim": { "claimName": first.name } }] } });
    ns.apply(&writer.to_string()).await?;
    ns.wait_for::<Pod, ()>("writer", "ended well", |pod| (pod?.status.as_ref()?.phase.as_deref() == Some("Succeeded")).then_some(()))
        .await?;

    ns.create_agent("a", "p", json!({ "session": { "retain": "Delete" } })).await?;
    ns.wait_agent_ready("a").await?;
    let agent: YoiPod = ns.get("a").await?;
    let status = agent.status.clone().unwrap_or_default();
    ensure!(status.session_claim_name.as_deref() == Some("a-session"), "{status:?}");
    ensure!(ns.event_count("YoiPod", "a", "NoWarmSession").await? > 0, "nobody is told");
    let written: PersistentVolumeClaim = ns.get(&first.name).await?;
    ensure!(uid(&written) == first.uid && written.metadata.deletion_timestamp.is_none(), "{written:?}");
    wait_warm(&ns, 1, &first.uid).await?;
    ns.remove().await
}
