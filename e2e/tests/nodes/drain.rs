//! `kubectl drain`, as before an upgrade of a node.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::json;
use yoi_crds::condition::{ConditionStatus, find};
use yoi_crds::{AgentWorkspace, YoiPod};
use yoi_e2e::local_cluster::LocalCluster;
use yoi_e2e::locks::{self, Lock};
use yoi_e2e::processes::wait_all_ready;
use yoi_e2e::test_namespace::{TestNamespace, uid};
use yoi_wire::entry::Body;

use crate::wait_ready;

/// Node and UID of the agent's tree, and its session.
async fn belongings(ns: &TestNamespace, agent: &str) -> Result<(String, String, String)> {
    let workspace: AgentWorkspace = ns.get(agent).await?;
    let node = workspace.status.as_ref().and_then(|status| status.node_name.clone()).context("no node")?;
    let yoipod: YoiPod = ns.get(agent).await?;
    let session = yoipod.status.and_then(|status| status.session).context("no session")?;
    Ok((node, uid(&workspace), session.id))
}

#[tokio::test]
async fn an_agent_whose_node_is_drained_waits_for_its_tree_and_goes_on_there_while_others_start_elsewhere() -> Result<()> {
    let _alone = locks::exclusive(&[Lock::Nodes]).await?;
    let (ns, cluster) = (TestNamespace::create("drain").await?, LocalCluster::from_environment()?);
    let workers = cluster.workers().await?;
    ensure!(workers.len() >= 2, "this test needs two workers, and there are {workers:?}");
    ns.create_empty_project("p").await?;
    ns.create_agent("a", "p", json!({})).await?;
    ns.wait_agent_ready("a").await?;
    let before = belongings(&ns, "a").await?;
    let node = before.0.clone();

    let drained = ns.kubectl(&["drain", &node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=110s"]).await;
    let outcome = match drained.and_then(yoi_e2e::program::CommandOutput::exit_ok) {
        Ok(_) => while_drained(&ns, &node).await,
        Err(error) => Err(error),
    };
    ns.kubectl(&["uncordon", &node]).await?.exit_ok()?;
    outcome?;
    wait_ready(&ns.client, &node, "True").await?;
    wait_all_ready(&ns.client).await?;
    ns.wait_agent_ready("a").await?;
    ensure!(belongings(&ns, "a").await? == before, "it is not the same tree and session: {:?} and {before:?}", belongings(&ns, "a").await?);
    let pods = agent_pods(&ns, "a").await?;
    ensure!(pods.iter().map(ResourceExt::name_any).eq(["a-2"]), "one Pod follows the one that was evicted: {pods:?}");
    ns.remove().await
}

async fn agent_pods(ns: &TestNamespace, agent: &str) -> Result<Vec<Pod>> {
    ns.list::<Pod>(&format!("yoi.dev/yoipod={agent}")).await
}

async fn while_drained(ns: &TestNamespace, node: &str) -> Result<()> {
    let message = ns
        .wait_for::<YoiPod, String>("a", "waits for its node", |yoipod| {
            let status = yoipod?.status.as_ref()?;
            let ready = find(&status.conditions, "Ready").filter(|ready| ready.status == ConditionStatus::False)?;
            (status.run_generation == Some(2) && ready.reason == "Unschedulable").then(|| ready.message.clone())
        })
        .await?;
    ensure!(message.contains(&format!("node {node} is cordoned")), "the message does not say what it waits for: {message}");
    let pods = agent_pods(ns, "a").await?;
    let is_elsewhere = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    ensure!(pods.len() == 1 && !pods.iter().any(is_elsewhere), "its tree is on {node}, and a Pod of it is on a node: {pods:?}");
    // An agent without a tree starts where there is room.
    ns.create_agent("b", "p", json!({})).await?;
    ns.wait_agent_ready("b").await?;
    let (other, ..) = belongings(ns, "b").await?;
    ensure!(other != node, "an agent started on the drained node");
    Ok(())
}

#[tokio::test]
async fn r8_an_agent_that_rests_on_a_cordoned_node_says_why_it_cannot_start_and_gets_the_message_once_it_can() -> Result<()> {
    let _alone = locks::exclusive(&[Lock::Nodes]).await?;
    let ns = TestNamespace::create("rest-cordoned").await?;
    ns.create_model("rules: [{ steps: [{ text: hello }] }]").await?;
    ns.create_empty_project("p").await?;
    ns.create_agent("a", "p", json!({})).await?;
    ns.wait_agent_ready("a").await?;
    let before = belongings(&ns, "a").await?;
    ns.yoi(&["suspend", "a", "--wait"]).await?.exit_ok()?;
    ns.kubectl(&["cordon", &before.0]).await?.exit_ok()?;
    let outcome = while_cordoned(&ns, &before.0).await;
    ns.kubectl(&["uncordon", &before.0]).await?.exit_ok()?;
    outcome?;
    wait_ready(&ns.client, &before.0, "True").await?;
    ns.yoi(&["send", "a", "are you there", "--id", MESSAGE, "--wait"]).await?.exit_ok()?;
    let inputs = ns.log("a").await?.iter().filter(|line| matches!(line.entry.body, Body::Input(_))).count();
    ensure!(inputs == 1, "the message is {inputs} times in the log");
    ensure!(belongings(&ns, "a").await? == before, "it is not the same tree and session: {:?} and {before:?}", belongings(&ns, "a").await?);
    ns.remove().await
}

const MESSAGE: &str = "0198c0de-0000-7000-8000-000000000001";

/// A message wakes the agent, which waits for its node, and so does the message, with its sender told.
async fn while_cordoned(ns: &TestNamespace, node: &str) -> Result<()> {
    let sending = async { ns.yoi(&["send", "a", "are you there", "--id", MESSAGE]).await };
    let waiting = ns.wait_for::<YoiPod, ()>("a", "says which node it waits for", |yoipod| {
        let ready = find(&yoipod?.status.as_ref()?.conditions, "Ready")?;
        (ready.reason == "Unschedulable" && ready.message.contains(&format!("node {node} is cordoned"))).then_some(())
    });
    let (sent, waited) = tokio::join!(sending, waiting);
    waited?;
    let sent = sent?;
    ensure!(sent.code != 0 && sent.err.contains("cordoned") && sent.err.contains("--id"), "the sender is not told: {sent:?}");
    Ok(())
}
