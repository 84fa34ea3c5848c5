//! Bases and agents on several nodes: nothing waits for a node while another one would do.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::json;
use yoi_crds::condition::{ConditionStatus, find};
use yoi_crds::{AgentWorkspace, YoiPod, YoiProject};
use yoi_e2e::local_cluster::LocalCluster;
use yoi_e2e::locks::{self, Lock};
use yoi_e2e::poll_until;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace};

use crate::pod_on;

/// Cordons or uncordons these nodes.
async fn cordon(client: &Client, nodes: &[String], cordoned: bool) -> Result<()> {
    for node in nodes {
        let patch = json!({ "spec": { "unschedulable": cordoned } });
        Api::<Node>::all(client.clone()).patch(node, &PatchParams::default(), &Patch::Merge(&patch)).await?;
    }
    Ok(())
}

/// Names of the nodes that hold or get a base in this namespace, sorted.
async fn base_nodes(ns: &TestNamespace) -> Result<Vec<String>> {
    let all = ns.api::<AgentWorkspace>().list(&ListParams::default()).await?.items;
    let mut nodes: Vec<String> = all.into_iter().filter_map(|w| Some(w.spec.base?.node)).collect();
    nodes.sort();
    Ok(nodes)
}

async fn wait_ready_with_reason(ns: &TestNamespace, project: &str, reason: &str) -> Result<String> {
    ns.wait_for::<YoiProject, String>(project, reason, |p| {
        let ready = find(&p?.status.as_ref()?.conditions, "Ready")?;
        (ready.reason == reason).then(|| ready.message.clone())
    })
    .await
}

/// The body of a test, and then every worker takes Pods again.
async fn with_cordons(body: impl AsyncFnOnce(&TestNamespace, &[String]) -> Result<()>, name: &str) -> Result<()> {
    let _alone = locks::exclusive(&[Lock::Nodes]).await?;
    let (ns, cluster) = (TestNamespace::create(name).await?, LocalCluster::from_environment()?);
    let workers = cluster.workers().await?;
    ensure!(workers.len() >= 2, "these tests need two workers, and there are {workers:?}");
    let outcome = body(&ns, &workers).await;
    cordon(&ns.client, &workers, false).await?;
    outcome?;
    ns.remove().await
}

#[tokio::test]
async fn the_first_base_goes_to_a_node_that_takes_pods_and_a_project_without_one_names_each_node() -> Result<()> {
    with_cordons(
        async |ns, workers| {
            ns.create_git_server().await?;
            let source = json!({ "git": { "url": format!("git://git.{}.svc:9418/project.git", ns.name) } });
            cordon(&ns.client, workers, true).await?;
            ns.create_project("p", source).await?;
            let message = wait_ready_with_reason(ns, "p", "NoEligibleNode").await?;
            for worker in workers {
                ensure!(message.contains(&format!("node {worker} is cordoned")), "{message}");
            }
            ensure!(message.contains("has the taint"), "the control plane is tainted: {message}");
            ensure!(base_nodes(ns).await?.is_empty(), "a base was made where its populator cannot start");

            let last = workers.last().context("no worker")?;
            cordon(&ns.client, std::slice::from_ref(last), false).await?;
            ns.wait_condition::<YoiProject>("p", "Ready", ConditionStatus::True).await?;
            ensure!(base_nodes(ns).await? == [last.clone()], "{:?}", base_nodes(ns).await?);
            Ok(())
        },
        "first-base",
    )
    .await
}

#[tokio::test]
async fn an_agent_that_fits_nowhere_waits_with_the_schedulers_words_and_clones_nothing() -> Result<()> {
    with_cordons(
        async |ns, _| {
            ns.create_git_project("p").await?;
            let before = base_nodes(ns).await?;
            let pod = json!({ "resources": { "requests": { "memory": "1000Gi" } } });
            ns.create_agent("big", "p", json!({ "pod": pod })).await?;
            // The second Pod may go anywhere.
            let waits = |y: Option<&YoiPod>| {
                let status = y?.status.as_ref()?;
                let ready = find(&status.conditions, "Ready")?;
                let second = status.run_generation == Some(2) && find(&status.conditions, "WorkspaceReady")?.reason == "NoRoom";
                (second && ready.reason == "Unschedulable" && ready.message.contains("Insufficient memory")).then_some(())
            };
            ns.wait_for::<YoiPod, ()>("big", "waits with the scheduler's words", waits).await?;
            // Long enough for a plan that would try another node, and for one that would make a third Pod.
            poll_until(TIMEOUT, "its second Pod has found no node for 15 s", async || {
                let pod = ns.get::<Pod>("big-2").await?;
                let since = pod.status.and_then(|s| s.conditions?.into_iter().find(|c| c.reason.as_deref() == Some("Unschedulable")));
                let since = since.and_then(|c| c.last_transition_time).context("no time")?.0;
                let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs();
                Ok((i64::try_from(now)? - since.as_second() >= 15).then_some(()))
            })
            .await?;
            let big = ns.get::<YoiPod>("big").await?;
            ensure!(waits(Some(&big)).is_some(), "{:?}", big.status);
            ensure!(base_nodes(ns).await? == before, "the source was spread for nothing: {:?}", base_nodes(ns).await?);
            Ok(())
        },
        "fits-nowhere",
    )
    .await
}

#[tokio::test]
async fn an_agent_goes_where_there_is_room_and_the_base_follows_it() -> Result<()> {
    with_cordons(
        async |ns, workers| {
            ns.create_git_project("p").await?;
            let first = base_nodes(ns).await?;
            cordon(&ns.client, &first, true).await?;
            ns.create_agent("a", "p", json!({})).await?;
            ns.wait_agent_ready("a").await?;
            let node = ns.get::<YoiPod>("a").await?.status.and_then(|s| s.workspace?.node_name).context("no node")?;
            ensure!(!first.contains(&node) && workers.contains(&node), "{node} beside {first:?}");
            ensure!(base_nodes(ns).await?.contains(&node), "{:?}", base_nodes(ns).await?);
            Ok(())
        },
        "follows",
    )
    .await
}

#[tokio::test]
async fn the_base_goes_to_the_node_of_the_session_volume_and_the_agent_starts_there() -> Result<()> {
    with_cordons(
        async |ns, workers| {
            let (with_base, with_session) = (&workers[0], &workers[1]);
            cordon(&ns.client, &workers[1..], true).await?;
            ns.create_empty_project("p").await?;
            cordon(&ns.client, workers, false).await?;
            ensure!(base_nodes(ns).await? == [with_base.clone()], "{:?}", base_nodes(ns).await?);
            // The volume is made where its first Pod is.
            let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "kept" },
                "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "16Mi" } } } });
            ns.apply(&claim.to_string()).await?;
            let volumes = json!({ "volumes": [{ "name": "own", "persistentVolumeClaim": { "claimName": "kept" } }] });
            let mut pod = pod_on("", "first", volumes);
            pod["spec"]["nodeName"].take();
            pod["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": with_session });
            ns.apply(&pod.to_string()).await?;
            ns.wait_pod_ready("first").await?;
            ns.delete::<Pod>("first").await?;
            ns.wait_gone::<Pod>("first").await?;

            ns.create_agent("a", "p", json!({ "session": { "claimName": "kept" } })).await?;
            let ready = ns.wait_for::<YoiPod, Result<(), String>>("a", "ready, and never a conflict", |y| {
                let ready = find(&y?.status.as_ref()?.conditions, "Ready")?;
                match ready.status {
                    ConditionStatus::True => Some(Ok(())),
                    _ => (ready.reason == "SessionTopologyConflict").then(|| Err(ready.message.clone())),
                }
            });
            if let Err(conflict) = ready.await? {
                anyhow::bail!("a conflict, though the base can go there: {conflict}");
            }
            let node = ns.get::<YoiPod>("a").await?.status.and_then(|s| s.workspace?.node_name).context("no node")?;
            ensure!(node == *with_session, "the agent is on {node}");
            Ok(())
        },
        "session-node",
    )
    .await
}

#[tokio::test]
async fn a_namespace_with_a_quota_takes_the_populator_and_a_quota_without_room_is_named() -> Result<()> {
    let ns = TestNamespace::create("quota").await?;
    ns.create_git_server().await?;
    let source = json!({ "git": { "url": format!("git://git.{}.svc:9418/project.git", ns.name) } });
    let quota = |memory: &str| {
        json!({ "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "q" },
        "spec": { "hard": { "limits.memory": memory, "limits.cpu": "64", "requests.memory": memory, "requests.cpu": "64" } } })
    };
    ns.apply(&quota("1Mi").to_string()).await?;
    poll_until(TIMEOUT, "the quota is counted", async || {
        let quota = ns.get::<k8s_openapi::api::core::v1::ResourceQuota>("q").await?;
        Ok(quota.status.and_then(|status| status.hard).filter(|hard| hard.len() == 4).map(drop))
    })
    .await?;
    ns.create_project("p", source).await?;
    let message = wait_ready_with_reason(&ns, "p", "ApplyFailed").await?;
    ensure!(message.contains("exceeded quota"), "{message}");
    ns.apply(&quota("64Gi").to_string()).await?;
    ns.wait_condition::<YoiProject>("p", "Ready", ConditionStatus::True).await?;
    ns.remove().await
}
