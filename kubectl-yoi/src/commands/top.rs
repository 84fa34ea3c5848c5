//! `top`: what agents do, and how many tokens they have used.

use futures::{StreamExt, stream};
use kube::ResourceExt;
use serde::Serialize;
use yoi_crds::YoiPod;
use yoi_wire::entry::TokenUsage;
use yoi_wire::people::UsageResponse;

use crate::args::{OutputFormat, TopOptions};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::show;

/// Agents that are asked at once.
const ASKED_AT_ONCE: usize = 16;

/// One agent. Exactly one of `usage` and `error` is set.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct AgentUsage {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<UsageResponse>,
    /// Why there are no figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

pub async fn top(cluster: &Cluster, output: Option<OutputFormat>, args: &TopOptions) -> Result<(), Error> {
    let agents = match &args.name {
        // A single one that cannot be asked is an error.
        Some(name) => vec![AgentUsage { name: name.clone(), usage: Some(cluster.fetch(name, "usage", "").await?), error: None }],
        None => {
            let pods: Vec<YoiPod> = cluster.list(false, None).await?;
            stream::iter(pods).map(|pod| usage_of(cluster, pod)).buffered(ASKED_AT_ONCE).collect().await
        }
    };
    show::objects(output, &agents, |agent| format!("yoipod.yoi.dev/{}", agent.name), || table(&agents, &cluster.namespace))
}

async fn usage_of(cluster: &Cluster, pod: YoiPod) -> AgentUsage {
    let name = pod.name_any();
    if yoi_plan::yoipod::is_stopped(&pod) {
        return AgentUsage { name, usage: None, error: Some("Stopped".to_owned()) };
    }
    match cluster.fetch(&name, "usage", "").await {
        Ok(usage) => AgentUsage { name, usage: Some(usage), error: None },
        Err(error) => AgentUsage { name, usage: None, error: Some(error.to_string()) },
    }
}

fn table(agents: &[AgentUsage], namespace: &str) -> String {
    if agents.is_empty() {
        return show::empty_list("agents", Some(namespace));
    }
    let header = ["agent", "activity", "turns", "run in", "run out", "in", "cached", "out", "reasoning", "limit"];
    let mut table = show::table(&header);
    let mut unknown = String::new();
    for AgentUsage { name, usage, error } in agents {
        let cells = match usage {
            Some(UsageResponse { activity, total, run, turns, limit }) => {
                let TokenUsage { input_tokens, output_tokens, cached_tokens, cache_write_tokens: _, reasoning_tokens } = *total;
                let figures = [run.input_tokens, run.output_tokens, input_tokens, cached_tokens, output_tokens, reasoning_tokens];
                let figures = figures.map(show::count);
                let limit = limit.map(show::count).unwrap_or_default();
                [name.clone(), activity.to_string(), turns.to_string()].into_iter().chain(figures).chain([limit]).collect::<Vec<_>>()
            }
            None => {
                let error = error.as_deref().unwrap_or_default();
                let is_stopped = error == "Stopped";
                if !is_stopped {
                    unknown.push_str(&format!("{name}: {}\n", show::one_line(error)));
                }
                let activity = if is_stopped { "Stopped" } else { "?" };
                [name.clone(), activity.to_owned()].into_iter().chain(std::iter::repeat_n(String::new(), header.len() - 2)).collect()
            }
        };
        table.add_row(cells.iter().map(show::cell).collect::<Vec<_>>());
    }
    show::lines(&table) + &unknown
}
