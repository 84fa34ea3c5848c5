//! A node whose link is cut for longer than its connections last.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::json;
use yoi_crds::condition::{ConditionStatus, find};
use yoi_crds::{AgentWorkspace, Condition, WorkspaceNode, YoiProject};
use yoi_e2e::local_cluster::{LocalCluster, tree_uids};
use yoi_e2e::locks::{self, Lock};
use yoi_e2e::poll_until;
use yoi_e2e::processes::wait_all_ready;
use yoi_e2e::program;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace, uid};

use crate::wait_ready;

/// Longer than the shim needs to notice a dead connection.
const CUT: Duration = Duration::from_secs(65);
/// How long a shim may take to go on after its link is back, on a quiet machine.
const BACK_WITHIN: Duration = Duration::from_secs(90);

/// The Pods of our own processes with this name.
async fn our_pods(client: &Client, name: &str) -> Result<Vec<Pod>> {
    let params = ListParams::default().labels(&format!("app.kubernetes.io/name={name}"));
    Ok(Api::<Pod>::all(client.clone()).list(&params).await?.items)
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

/// The condition Ready of the WorkspaceNode.
async fn offer_ready(client: &Client, node: &str) -> Result<Option<Condition>> {
    let offer = Api::<WorkspaceNode>::all(client.clone()).get(node).await?;
    Ok(offer.status.and_then(|status| find(&status.conditions, "Ready").cloned()))
}

async fn wait_offer(client: &Client, node: &str, wanted: ConditionStatus) -> Result<Condition> {
    let goal = format!("WorkspaceNode {node} is Ready={wanted:?}");
    let found = poll_until(TIMEOUT, &goal, async || Ok(offer_ready(client, node).await?.filter(|ready| ready.status == wanted))).await?;
    Ok(found.0)
}

/// Nodes of the bases in this namespace.
async fn base_nodes(ns: &TestNamespace) -> Result<Vec<String>> {
    let all = ns.api::<AgentWorkspace>().list(&ListParams::default()).await?.items;
    Ok(all.into_iter().filter_map(|w| Some(w.spec.base?.node)).collect())
}

async fn cordon(client: &Client, node: &str, cordoned: bool) -> Result<()> {
    let patch = json!({ "spec": { "unschedulable": cordoned } });
    Api::<Node>::all(client.clone()).patch(node, &PatchParams::default(), &Patch::Merge(&patch)).await?;
    Ok(())
}

/// A project whose only base is on this node.
async fn project_on(ns: &TestNamespace, name: &str, node: &str, workers: &[String]) -> Result<()> {
    let others: Vec<&String> = workers.iter().filter(|worker| *worker != node).collect();
    for other in &others {
        cordon(&ns.client, other, true).await?;
    }
    let created = ns.create_empty_project(name).await;
    for other in &others {
        cordon(&ns.client, other, false).await?;
    }
    created?;
    ensure!(base_nodes(ns).await? == [node], "the base is on {:?}", base_nodes(ns).await?);
    Ok(())
}

#[tokio::test]
async fn a_node_that_was_lost_destroys_soon_after_what_was_deleted_meanwhile_and_gets_nothing_new_until_then() -> Result<()> {
    let _alone = locks::exclusive(&[Lock::Nodes]).await?;
    let (ns, cluster) = (TestNamespace::create("cut").await?, LocalCluster::from_environment()?);
    let workers = cluster.workers().await?;
    // There is an operator on every worker. With the one that leads, the next would first have to wait for its Lease.
    let leases: Api<Lease> = Api::namespaced(ns.client.clone(), "yoi-system");
    let leader = leases.get("yoi-operator").await?.spec.and_then(|spec| spec.holder_identity);
    let operators = our_pods(&ns.client, "yoi-operator").await?;
    let leads = operators.iter().find(|pod| pod.metadata.name == leader).and_then(node_of).context("no operator leads")?;
    let lost = workers.iter().find(|worker| worker.as_str() != leads).context("no worker beside the one of the operator that leads")?;
    let shims = our_pods(&ns.client, "yoi-agent-shim").await?;
    let shim = shims.iter().find(|pod| node_of(pod) == Some(lost)).context("no shim there")?;
    let address = shim.status.as_ref().and_then(|status| status.pod_ip.clone()).context("a shim without an address")?;
    project_on(&ns, "p", lost, &workers).await?;
    let base = ns.api::<AgentWorkspace>().list(&ListParams::default()).await?.items.into_iter().next().context("no base")?;
    let tree = uid(&base);
    ensure!(tree_uids().await?.contains(&tree), "the base has no tree");

    cluster.node(&["lose", lost]).await?;
    let outcome = while_lost(&ns, &cluster, lost, &address).await;
    cluster.node(&["restore", lost]).await?;
    outcome?;
    let destroyed = async || Ok((!tree_uids().await?.contains(&tree)).then_some(()));
    poll_until(BACK_WITHIN, "the tree is destroyed soon after the link is back", destroyed).await?;
    wait_ready(&ns.client, lost, "True").await?;
    wait_offer(&ns.client, lost, ConditionStatus::True).await?;
    wait_all_ready(&ns.client).await?;
    ns.remove().await
}

async fn while_lost(ns: &TestNamespace, cluster: &LocalCluster, lost: &str, shim: &str) -> Result<()> {
    let cut = std::time::Instant::now();
    ns.delete::<YoiProject>("p").await?;
    // An API server that starts again, or gives a connection up, closes it on its side, and a lost node hears nothing of that.
    let first = format!("{}-node", cluster.name());
    cluster.run_on_node(&first, &format!("ss -K dst {shim}")).await?;

    let ready = wait_offer(&ns.client, lost, ConditionStatus::Unknown).await?;
    ensure!(ready.reason == "NodeStatusUnknown" && ready.message.contains("yoi-agent-shim"), "{ready:?}");
    let doctor = ns.yoi(&["doctor"]).await?;
    ensure!(doctor.code != 0 && doctor.out.contains(&format!("WorkspaceNode {lost}: NodeStatusUnknown")), "{}", doctor.out);
    ns.create_empty_project("meanwhile").await?;
    let bases = base_nodes(ns).await?;
    ensure!(bases.iter().filter(|node| *node == lost).count() <= 1 && bases.len() >= 2, "a base went to the lost node: {bases:?}");
    let left = CUT.saturating_sub(cut.elapsed());
    poll_until(left + TIMEOUT, "the link was cut long enough", async || Ok((cut.elapsed() >= CUT).then_some(()))).await?;
    Ok(())
}

#[tokio::test]
async fn a_node_without_a_shim_is_unknown_and_well_again_with_it() -> Result<()> {
    let _alone = locks::exclusive(&[Lock::Nodes]).await?;
    let (ns, cluster) = (TestNamespace::create("no-shim").await?, LocalCluster::from_environment()?);
    let workers = cluster.workers().await?;
    let node = workers.last().context("no worker")?;
    let shims = our_pods(&ns.client, "yoi-agent-shim").await?;
    let namespace = shims.first().and_then(|pod| pod.metadata.namespace.clone()).context("no shim")?;
    let kubectl = async |args: &[&str]| program::run(&std::env::var("YOI_KUBECTL")?, args, &[], None).await?.exit_ok();
    kubectl(&["label", "node", node, "e2e.yoi.dev/shim=none", "--overwrite"]).await?;
    let away = json!({ "spec": { "template": { "spec": { "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{ "matchExpressions": [{ "key": "e2e.yoi.dev/shim", "operator": "DoesNotExist" }] }] } } } } } } });
    let back = json!({ "spec": { "template": { "spec": { "affinity": null } } } });
    let patch = async |what: &serde_json::Value| {
        kubectl(&["-n", &namespace, "patch", "daemonset", "yoi-agent-shim", "-p", &what.to_string()]).await
    };
    patch(&away).await?;
    let unknown = wait_offer(&ns.client, node, ConditionStatus::Unknown).await;
    patch(&back).await?;
    kubectl(&["label", "node", node, "e2e.yoi.dev/shim-"]).await?;
    let unknown = unknown?;
    ensure!(unknown.message.contains("no yoi-agent-shim Pod is on the node"), "{unknown:?}");
    wait_offer(&ns.client, node, ConditionStatus::True).await?;
    wait_all_ready(&ns.client).await?;
    for worker in &workers {
        wait_offer(&ns.client, worker, ConditionStatus::True).await?;
    }
    ns.remove().await
}
