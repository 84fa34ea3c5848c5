//! Late writes. The leading operator is cut off from the API server while it has objects to delete, and its process is stopped, so that only its
//! kernel goes on sending. Another operator leads, the objects are deleted, and new ones get the same names. Then the old packets arrive, and must
//! not delete the new objects.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use tokio::time::sleep;
use yoi_crds::AgentWorkspace;
use yoi_crds::condition::is_true;
use yoi_e2e::test_namespace::uid;

use crate::churn::{create, delete, pod_ready, retry, workspace};
use crate::node::{Component, Node};
use crate::rng::SeededRng;
use crate::workload::Workload;

const NAMES: [&str; 4] = ["late-0", "late-1", "late-2", "late-3"];

pub async fn late_writes(workload: &Workload, rng: &mut SeededRng) -> Result<(String, Vec<String>)> {
    let client = &workload.ns.client;
    scale(workload, 2).await?;
    let leader = wait_for("a leader", Duration::from_secs(60), async || {
        let leader = lease_holder(workload).await?;
        Ok(workload.pods("yoi-system", "yoi-operator").await?.into_iter().find(|pod| leader.contains(&pod.name_any())))
    })
    .await?;
    for name in NAMES {
        create_workspace(workload, name).await?;
    }
    let old = wait_ready(workload).await?;
    let address = leader.status.as_ref().and_then(|s| s.pod_ip.clone()).context("the leader has no address")?;
    let api: Service = Api::namespaced(client.clone(), "default").get("kubernetes").await?;
    let api = api.spec.and_then(|s| s.cluster_ip).context("the API server has no Service")?;
    let process = operator_pid(&workload.node, &leader).await?;
    let rule = format!("PREROUTING -s {address} -d {api} -p tcp -j DROP");
    sleep(rng.millis(0, 1500)).await;
    workload.node.sh(&format!("iptables -w -t raw -I {rule}")).await?;
    let cut = Instant::now();
    let done = delete_and_recreate(workload, &leader, process, rng, &old).await;
    // The rule is removed even if the step failed.
    workload.node.sh(&format!("iptables -w -t raw -D {rule}")).await?;
    let new = done?;
    let cut_for = cut.elapsed();
    wait_sent(&workload.node, process).await?;
    workload.node.signal("CONT", &[process]).await?;
    sleep(Duration::from_secs(2)).await;
    let mut wrong = Vec::new();
    for (before, now) in new.iter().zip(workspace_states(workload).await?) {
        if *before != now || now.deleting {
            wrong.push(format!("a request that came late deleted what was made anew: {} is now {now:?}, was {before:?}", before.name));
        }
    }
    for name in NAMES {
        delete::<AgentWorkspace>(&workload.ns, name).await?;
    }
    scale(workload, 1).await?;
    Ok((format!("the leader cut off for {:.1} s", cut_for.as_secs_f32()), wrong))
}

/// Deletes the workspaces and creates them again while the leader is cut off. Returns the new ones.
async fn delete_and_recreate(
    workload: &Workload,
    leader: &Pod,
    process: u32,
    rng: &mut SeededRng,
    old: &[WorkspaceState],
) -> Result<Vec<WorkspaceState>> {
    for name in NAMES {
        delete::<AgentWorkspace>(&workload.ns, name).await?;
    }
    // Time for the leader to see the deletions and to begin its requests.
    sleep(rng.millis(600, 1500)).await;
    workload.node.signal("STOP", &[process]).await?;
    wait_for("another leader", Duration::from_secs(90), async || {
        let now = lease_holder(workload).await?;
        Ok((!now.is_empty() && !now.contains(&leader.name_any())).then_some(()))
    })
    .await?;
    wait_for("the end of the old objects", Duration::from_secs(90), async || {
        let left = workload.ns.api::<PersistentVolumeClaim>().list(&Default::default()).await?.items;
        let workspaces = workload.ns.api::<AgentWorkspace>().list(&Default::default()).await?.items;
        let old_left =
            left.iter().any(|c| old.iter().any(|o| o.claim == uid(c))) || workspaces.iter().any(|w| NAMES.contains(&w.name_any().as_str()));
        Ok((!old_left).then_some(()))
    })
    .await?;
    for name in NAMES {
        create_workspace(workload, name).await?;
    }
    wait_ready(workload).await
}

#[derive(Clone, Debug, PartialEq)]
struct WorkspaceState {
    name: &'static str,
    workspace: String,
    claim: String,
    deleting: bool,
}

async fn create_workspace(workload: &Workload, name: &str) -> Result<()> {
    let spec = json!({ "path": "/workspace/tree", "claim": true, "binding": "Immediate", "source": { "project": { "name": "p" } } });
    create::<AgentWorkspace>(&workload.ns, workspace(name, &spec)).await
}

async fn workspace_states(workload: &Workload) -> Result<Vec<WorkspaceState>> {
    let mut found = Vec::new();
    for name in NAMES {
        let claim = workload.ns.api::<PersistentVolumeClaim>().get_opt(name).await?;
        let workspace = workload.ns.api::<AgentWorkspace>().get_opt(name).await?;
        let deleting = claim.as_ref().is_none_or(|c| c.metadata.deletion_timestamp.is_some())
            || workspace.as_ref().is_none_or(|w| w.metadata.deletion_timestamp.is_some());
        let (workspace, claim) = (workspace.as_ref().map(uid).unwrap_or_default(), claim.as_ref().map(uid).unwrap_or_default());
        found.push(WorkspaceState { name, workspace, claim, deleting });
    }
    Ok(found)
}

async fn wait_ready(workload: &Workload) -> Result<Vec<WorkspaceState>> {
    wait_for("workspaces with their claims", Duration::from_secs(90), async || {
        let all = workload.ns.api::<AgentWorkspace>().list(&Default::default()).await?.items;
        let ready = |name: &&str| {
            let found = all.iter().find(|w| w.name_any() == **name).and_then(|w| w.status.as_ref());
            found.is_some_and(|s| is_true(&s.conditions, "Ready"))
        };
        Ok(NAMES.iter().all(ready).then_some(()))
    })
    .await?;
    workspace_states(workload).await
}

async fn lease_holder(workload: &Workload) -> Result<String> {
    let leases: Api<Lease> = Api::namespaced(workload.ns.client.clone(), "yoi-system");
    Ok(leases.get("yoi-operator").await?.spec.and_then(|s| s.holder_identity).unwrap_or_default())
}

/// Returns the operator's process in this Pod, found by the Pod's UID in its cgroup.
async fn operator_pid(node: &Node, pod: &Pod) -> Result<u32> {
    let uid = uid(pod);
    for pid in node.pids(Component::Operator).await? {
        if node.sh(&format!("cat /proc/{pid}/cgroup")).await?.contains(&uid) {
            return Ok(pid);
        }
    }
    bail!("no process of Pod {} is found", pod.name_any())
}

/// Waits until the kernel has delivered, or given up, everything that the process had sent.
async fn wait_sent(node: &Node, process: u32) -> Result<()> {
    let waiting = async || -> Result<Option<()>> {
        // Field 5 holds the size of the send queue; 01BB is port 443.
        let unsent = node.sh(&format!("awk '$3 ~ /:01BB$/ && substr($5, 1, 8) != \"00000000\"' /proc/{process}/net/tcp")).await?;
        Ok(unsent.trim().is_empty().then_some(()))
    };
    wait_for("the arrival of what was sent", Duration::from_secs(100), waiting).await
}

async fn scale(workload: &Workload, replicas: i32) -> Result<()> {
    let api: Api<Deployment> = Api::namespaced(workload.ns.client.clone(), "yoi-system");
    let (how, patch) = (PatchParams::default(), Patch::Merge(json!({ "spec": { "replicas": replicas } })));
    retry(|| api.patch("yoi-operator", &how, &patch)).await?;
    wait_for("so many operators", Duration::from_secs(90), async || {
        let pods = workload.pods("yoi-system", "yoi-operator").await?;
        Ok((pods.len() == usize::try_from(replicas)? && pods.iter().all(pod_ready)).then_some(()))
    })
    .await
}

async fn wait_for<T>(what: &str, usual: Duration, mut look: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
    let (started, limit) = (Instant::now(), yoi_test_support::limit(usual));
    loop {
        let seen = look().await;
        if let Ok(Some(found)) = seen {
            return Ok(found);
        }
        ensure!(started.elapsed() < limit, "{what} did not come within {limit:?}: {:?}", seen.map(drop));
        sleep(Duration::from_millis(300)).await;
    }
}
