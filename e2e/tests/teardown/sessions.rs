//! A session that outlived its namespace continues in another one, as the chart's README describes.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use yoi_crds::condition::ConditionStatus;
use yoi_crds::{AgentWorkspace, YoiPod};
use yoi_e2e::poll_until;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace};
use yoi_wire::entry::Body;

use crate::installation::finished_runs;

const SCRIPT: &str = r#"
rules:
- when: { lastUserContains: "what do you know" }
  steps: [{ text: I know what I knew., expect: ["remember the blue door"] }]
- steps: [{ text: Remembered. }]
"#;

/// Deletes a kept volume as the README says: its provisioner deletes the content.
pub async fn delete_volume(client: kube::Client, volume: &str) -> Result<()> {
    let api = Api::<PersistentVolume>::all(client);
    let policy = json!({ "spec": { "persistentVolumeReclaimPolicy": "Delete" } });
    match api.patch(volume, &PatchParams::default(), &Patch::Merge(policy)).await {
        // It had that policy already.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        patched => patched.map(drop).map_err(Into::into),
    }
}

#[tokio::test]
async fn a_session_that_outlived_its_namespace_goes_on_in_another() -> Result<()> {
    let first = TestNamespace::create("kept").await?;
    first.create_model(SCRIPT).await?;
    first.create_empty_project("p").await?;
    first.create_agent("a", "p", json!({ "task": "remember the blue door" })).await?;
    first.wait_task_complete("a").await?;
    let log = first.log("a").await?;
    let claim: PersistentVolumeClaim = first.get("a-session").await?;
    let volume = claim.spec.as_ref().and_then(|s| s.volume_name.clone()).context("no volume")?;
    let class = claim.spec.as_ref().and_then(|s| s.storage_class_name.clone()).context("no class")?;
    let session: YoiPod = first.get("a").await?;
    let session = session.status.and_then(|s| s.session).context("no session")?.id;
    let volumes = Api::<PersistentVolume>::all(first.client.clone());
    let second = TestNamespace::create("kept-next").await?;
    first.remove_and_wait().await?;
    let phase = |v: PersistentVolume| v.status.and_then(|s| s.phase).unwrap_or_default();
    poll_until(TIMEOUT, "the session's volume is kept", async || Ok((phase(volumes.get(&volume).await?) == "Released").then_some(())))
        .await?;

    // As documented: a claim names the volume, and an agent names the claim.
    let to = json!({ "spec": { "claimRef": { "namespace": second.name, "name": "old", "uid": null, "resourceVersion": null } } });
    volumes.patch(&volume, &PatchParams::default(), &Patch::Merge(to)).await?;
    let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "old" }, "spec": {
        "storageClassName": class, "volumeName": volume, "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } });
    second.apply(&claim.to_string()).await?;
    second.create_model(SCRIPT).await?;
    second.create_empty_project("p").await?;
    second.create_agent("b", "p", json!({ "session": { "claimName": "old" } })).await?;
    second.wait_agent_ready("b").await?;
    let now: YoiPod = second.get("b").await?;
    ensure!(now.status.and_then(|s| s.session).map(|s| s.id) == Some(session), "another session");
    second.yoi(&["send", "b", "what do you know"]).await?.exit_ok()?;
    let after = second.wait_log("b", "an answer", |log| (finished_runs(log) == 2).then(|| log.to_vec())).await?;
    ensure!(after[..log.len()] == log[..], "earlier entries changed");
    ensure!(after.iter().filter(|l| matches!(l.entry.body, Body::Input(_))).count() == 2, "the task was run again");
    second.wait_condition::<AgentWorkspace>("b", "Ready", ConditionStatus::True).await?;
    let client = second.client.clone();
    second.remove_and_wait().await?;
    delete_volume(client, &volume).await
}
