//! An agent that rests whenever it has nothing to do, and is woken by messages while processes die. Nothing that was accepted waits in a Pod that goes, so
//! once it rests it has done all of it: what its log and its tree say is read once, at the end of the workload, by a reader.

use std::sync::Arc;

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::task::JoinSet;
use yoi_crds::condition::find;
use yoi_crds::{AgentWorkspace, YoiPod};
use yoi_e2e::poll_seen;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace, uid};

use crate::agent_client::AgentClient;
use crate::checks::{self, AgentHistory};
use crate::node::Node;
use crate::rng::SeededRng;

/// Its name.
pub const RESTING: &str = "rests";

pub struct RestingAgent {
    pub client: Arc<AgentClient>,
    /// UID of its tree.
    tree: String,
}

impl RestingAgent {
    /// Creates it, and waits until it rests.
    pub async fn create(ns: &TestNamespace) -> Result<RestingAgent> {
        ns.create_agent(RESTING, "p", json!({ "desiredState": "Suspended", "session": { "retain": "Delete" } })).await?;
        poll_seen(TIMEOUT, "the agent that rests does", async || {
            let (agent, pods) = (ns.api::<YoiPod>().get(RESTING).await?, ns.list::<Pod>("").await?);
            Ok(pending(&[agent], &pods).map_or(Ok(()), Err))
        })
        .await?;
        Ok(RestingAgent { client: AgentClient::new(&ns.name, RESTING), tree: uid(&ns.get::<AgentWorkspace>(RESTING).await?) })
    }

    /// Starts to wake it by messages in `tasks`.
    pub fn start(&self, client: &Client, tasks: &mut JoinSet<()>, rng: SeededRng) {
        self.client.start_with_pauses(client, tasks, rng);
    }

    /// Returns a sentence for each promise that its log and its tree show as broken. Ask once it rests.
    pub async fn violations(&self, client: &Client, node: &Node, model_inputs: &str) -> Result<Vec<String>> {
        let acknowledged = self.client.acknowledged_ids();
        // A reader has to start first.
        let (log, _) = poll_seen(TIMEOUT, "the log of the agent that rests is read", async || {
            Ok(self.client.log(client).await.map_err(|error| format!("{error:#}")))
        })
        .await?;
        let traces = node.file(&self.tree, "traces").await?;
        let history = AgentHistory { agent: RESTING, log: &log, read: &[], acknowledged: &acknowledged, traces: &traces };
        let mut found = checks::violations(&history);
        found.extend(checks::unlogged_model_input(RESTING, &log, model_inputs));
        let runtimes = log.iter().filter(|line| line.contains("\"kind\":\"RuntimeStarted\"")).count();
        println!("the agent that rests was sent {} messages, which woke it {} times", acknowledged.len(), runtimes.saturating_sub(1));
        if runtimes < 2 {
            found.push(format!("nothing has woken {RESTING}, so nothing was tried of it"));
        }
        Ok(found)
    }
}

/// What the agent still has to do until it rests: its object, and the namespace's Pods.
pub fn pending(yoipods: &[YoiPod], pods: &[Pod]) -> Option<String> {
    let status = yoipods.iter().find(|agent| agent.name_any() == RESTING).and_then(|agent| agent.status.as_ref());
    let ready = status.and_then(|status| find(&status.conditions, "Ready"));
    let pod = pods.iter().find(|pod| pod.labels().get("yoi.dev/yoipod").map(String::as_str) == Some(RESTING));
    match (ready, pod) {
        (Some(ready), None) if ready.reason == "Resting" => None,
        (ready, pod) => {
            let why = ready.map(|ready| format!("{}: {}", ready.reason, ready.message)).unwrap_or_default();
            let pod = pod.map(|pod| format!(", and its Pod {} is there", pod.name_any())).unwrap_or_default();
            Some(format!("YoiPod {RESTING} does not rest{pod}: {why}"))
        }
    }
}
