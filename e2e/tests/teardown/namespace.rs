//! A namespace is deleted while everything in it runs.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Namespace, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::json;
use yoi_crds::condition::ConditionStatus;
use yoi_crds::{AgentWorkspace, YoiPeer};
use yoi_e2e::poll_until;
use yoi_e2e::test_namespace::TestNamespace;
use yoi_wire::entry::Body;

use crate::installation::{deletion_blockers, mounts_with, pod_of};
use yoi_e2e::local_cluster::tree_uids;

const SCRIPT: &str = r#"
rules:
- name: long
  when: { lastUserContains: "work for long" }
  steps:
  - toolCalls: [{ tool: Shell, args: { command: "i=0; while [ $i -lt 600 ]; do echo $i >> counting; sleep 1; i=$((i+1)); done" } }]
  - text: Done.
- steps: [{ text: heard }]
"#;
/// A Pod has 30 s to end, and a node with two cores has many Pods to end.
const WITHIN: Duration = Duration::from_secs(120);

fn pod_with_claim(claim: &str) -> String {
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "user" }, "spec": {
        "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 5,
        "securityContext": { "runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": { "type": "RuntimeDefault" } },
        "containers": [{ "name": "c", "image": "$image(agent)", "imagePullPolicy": "Never", "workingDir": "/workspace/tree",
            "command": ["/bin/sh", "-c", "while true; do date >> file; sleep 1; done"],
            "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
            "volumeMounts": [{ "name": "tree", "mountPath": "/workspace/tree" }] }],
        "volumes": [{ "name": "tree", "persistentVolumeClaim": { "claimName": claim } }] } })
    .to_string()
}

async fn volumes(ns: &TestNamespace) -> Result<Vec<PersistentVolume>> {
    let all = Api::<PersistentVolume>::all(ns.client.clone()).list(&ListParams::default()).await?.items;
    let here = |v: &PersistentVolume| {
        v.spec.as_ref().and_then(|s| s.claim_ref.as_ref()).and_then(|c| c.namespace.as_deref()) == Some(ns.name.as_str())
    };
    Ok(all.into_iter().filter(here).collect())
}

#[tokio::test]
async fn a_namespace_ends_with_agents_at_work_and_leaves_only_the_sessions_that_are_kept() -> Result<()> {
    let ns = TestNamespace::create("ends").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_git_project("p").await?;
    let short = json!({ "session": { "retain": "Delete" } });
    for (name, more) in [("a", json!({})), ("busy", json!({ "task": "work for long", "limits": { "toolSeconds": 900 } })), ("short", short)]
    {
        ns.create_agent(name, "p", more).await?;
    }
    ns.yoi(&["workspace", "create", "w", "--project", "p", "--claim", "--immediate", "--path", "/workspace/tree", "--wait"])
        .await?
        .exit_ok()?;
    ns.apply(&pod_with_claim("w")).await?;
    for name in ["a", "busy", "short"] {
        ns.wait_agent_ready(name).await?;
    }
    ns.create_agent("fork", "p", json!({ "workspace": { "template": { "source": { "workspace": { "name": "a" } } } } })).await?;
    ns.wait_agent_ready("fork").await?;
    ns.yoi(&["peer", "a", "busy"]).await?.exit_ok()?;
    ns.wait_condition::<YoiPeer>("a.busy", "Ready", ConditionStatus::True).await?;
    ns.wait_pod_ready("user").await?;
    ns.wait_log("busy", "a tool at work", |log| log.iter().any(|l| matches!(l.entry.body, Body::ToolStarted(_))).then_some(())).await?;

    // Every tree, base and mount must go. The volumes of the kept sessions must stay.
    let workspaces: Vec<AgentWorkspace> = ns.list("").await?;
    ensure!(workspaces.iter().any(|w| w.spec.base.is_some()) && workspaces.len() >= 6, "{} workspaces", workspaces.len());
    let mut uids: BTreeSet<String> = workspaces.into_iter().filter_map(|w| w.metadata.uid).collect();
    ensure!(uids.is_subset(&tree_uids().await?), "the node does not show the trees");
    let pods: Vec<Pod> = ns.list("").await?;
    uids.extend(pods.into_iter().filter_map(|p| p.metadata.uid));
    ensure!(mounts_with(&uids).await?.len() >= 8, "the node does not show the mounts");
    let volume_of = async |name: &str| -> Result<String> {
        let claim: PersistentVolumeClaim = ns.get(&format!("{name}-session")).await?;
        claim.spec.and_then(|s| s.volume_name).context("a session without a volume")
    };
    let short = volume_of("short").await?;
    let mut kept = BTreeSet::new();
    for name in ["a", "busy", "fork"] {
        kept.insert(volume_of(name).await?);
    }
    poll_until(WITHIN, "the kept sessions' volumes are set to Retain", async || {
        let policy = |v: &PersistentVolume| v.spec.as_ref().and_then(|s| s.persistent_volume_reclaim_policy.clone());
        let retained = volumes(&ns).await?.into_iter().filter(|v| policy(v).as_deref() == Some("Retain"));
        let names: BTreeSet<String> = retained.filter_map(|v| v.metadata.name).collect();
        Ok(kept.is_subset(&names).then_some(()))
    })
    .await?;
    pod_of(&ns, "a").await?;

    // The deletion comes while messages are sent and an agent starts.
    let talk = async {
        loop {
            let _ = ns.yoi(&["send", "a", "are you there"]).await;
        }
    };
    let end = async {
        ns.create_agent("late", "p", json!({ "task": "work for long" })).await?;
        ns.yoi(&["workspace", "create", "late-w", "--project", "p"]).await?.exit_ok()?;
        Api::<Namespace>::all(ns.client.clone()).delete(&ns.name, &DeleteParams::default()).await?;
        let mut last = String::new();
        let gone = poll_until(WITHIN, "the namespace is gone", async || {
            let Some(words) = deletion_blockers(&ns).await? else { return Ok(Some(())) };
            last = words;
            Ok(None)
        })
        .await;
        gone.with_context(|| last).map(|((), took)| took)
    };
    let took = tokio::select! { took = end => took?, () = talk => unreachable!() };
    println!("the namespace ended in {took:?}");
    let (_, took) = poll_until(Duration::from_secs(60), "no tree and no mount is left", async || {
        let trees: Vec<_> = tree_uids().await?.intersection(&uids).cloned().collect();
        Ok((trees.is_empty() && mounts_with(&uids).await?.is_empty()).then_some(()))
    })
    .await?;
    println!("and its trees and mounts {took:?} later");
    let (left, _) = poll_until(Duration::from_secs(60), "only the kept sessions' volumes are left", async || {
        let left: BTreeSet<String> = volumes(&ns).await?.into_iter().filter_map(|v| v.metadata.name).collect();
        ensure!(kept.is_subset(&left), "a kept session's volume is gone: {left:?} of {kept:?}");
        // The volume of the late agent's session may have been made just before, and is kept too.
        Ok((!left.contains(&short) && left.len() <= kept.len() + 1).then_some(left))
    })
    .await?;
    for volume in volumes(&ns).await? {
        let driver = volume.spec.as_ref().and_then(|s| s.csi.as_ref()).map(|c| c.driver.clone());
        ensure!(driver.as_deref() != Some("csi.yoi.dev"), "a tree's volume is left: {:?}", volume.metadata.name);
    }
    for name in &left {
        crate::sessions::delete_volume(ns.client.clone(), name).await?;
    }
    Ok(())
}
