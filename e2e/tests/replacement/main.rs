//! Promise: gateways and operator can be replaced while agents run, and deleted workspaces leave no tree on any node.

mod attached;
mod events;

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams};
use yoi_crds::AgentWorkspace;
use yoi_e2e::local_cluster::tree_uids;
use yoi_e2e::locks::{self, Lock};
use yoi_e2e::processes::wait_all_ready;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace};
use yoi_e2e::{poll_seen, poll_until};

#[tokio::test]
async fn w44_no_tree_is_left_of_a_workspace_that_is_gone() -> Result<()> {
    let ns = TestNamespace::create("leaks").await?;
    ns.create_empty_project("there").await?;
    let uids = async || -> Result<BTreeSet<String>> {
        let all = Api::<AgentWorkspace>::all(ns.client.clone()).list(&Default::default()).await?.items;
        Ok(all.into_iter().filter_map(|w| w.metadata.uid).collect())
    };
    // The project's base has a tree, so an empty list would mean that the search is wrong. Bases of other tests may still be in the making.
    let base: BTreeSet<String> = ns.list::<AgentWorkspace>("").await?.into_iter().filter_map(|w| w.metadata.uid).collect();
    ensure!(!base.is_empty() && base.is_subset(&tree_uids().await?), "no node shows the tree of a base");
    for round in 0..if yoi_e2e::thorough() { 10 } else { 3 } {
        let name = format!("w{round}");
        ns.yoi(&["workspace", "create", &name, "--project", "there", "--claim", "--immediate", "--wait"]).await?.exit_ok()?;
        ns.yoi(&["workspace", "rm", &name, "--force"]).await?.exit_ok()?;
        ns.wait_gone::<AgentWorkspace>(&name).await?;
    }
    poll_seen(Duration::from_secs(60), "no tree is without an object", async || {
        let (there, known) = (tree_uids().await?, uids().await?);
        let left: Vec<_> = there.difference(&known).collect();
        Ok(if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) })
    })
    .await?;
    ns.remove().await
}

#[tokio::test]
async fn agents_come_back_to_gateways_that_were_replaced_and_another_operator_leads() -> Result<()> {
    let _alone = locks::exclusive(&[Lock::Gateways, Lock::Operator]).await?;
    let ns = TestNamespace::create("replaced").await?;
    ns.create_model("rules: [{ steps: [{ text: hello }] }]").await?;
    ns.create_empty_project("p").await?;
    ns.create_agent("a", "p", serde_json::json!({})).await?;
    ns.wait_agent_ready("a").await?;
    let holder = async || -> Result<String> {
        let leases: Api<Lease> = Api::namespaced(ns.client.clone(), "yoi-system");
        Ok(leases.get("yoi-operator").await?.spec.and_then(|s| s.holder_identity).unwrap_or_default())
    };
    let before = holder().await?;
    let operators = pods(&ns, "yoi-operator").await?;
    ensure!(operators.iter().any(|p| before.contains(&p.name_any())), "{before} leads and is no operator Pod");
    let api: Api<Pod> = Api::namespaced(ns.client.clone(), "yoi-system");
    for pod in operators.iter().chain(&pods(&ns, "yoi-gateway").await?) {
        api.delete(&pod.name_any(), &DeleteParams::default()).await?;
    }
    // A message is delivered again, and the new leader reconciles a new agent.
    poll_until(TIMEOUT, "the agent comes back to the new gateways", async || {
        Ok((ns.yoi(&["send", "a", "are you there"]).await?.code == 0).then_some(()))
    })
    .await?;
    ns.create_agent("b", "p", serde_json::json!({})).await?;
    ns.wait_agent_ready("b").await?;
    poll_until(TIMEOUT, "another operator leads", async || Ok((holder().await? != before).then_some(()))).await?;
    wait_all_ready(&ns.client).await?;
    ns.remove().await
}

async fn pods(ns: &TestNamespace, app: &str) -> Result<Vec<Pod>> {
    let api: Api<Pod> = Api::namespaced(ns.client.clone(), "yoi-system");
    Ok(api.list(&ListParams::default().labels(&format!("app.kubernetes.io/name={app}"))).await?.items)
}
