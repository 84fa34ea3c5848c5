//! `top`: what agents do, and how many tokens they have used.

use futures::{StreamExt, stream};
use kube::ResourceExt;
use serde::Serialize;
use yoi_crds::YoiPod;
use yoi_wire::entry::TokenUsage;
use yoi_wire::people::UsageResponse;

use crate::args::{OutputFormat, TopOptions};
use crate::cluster::{Cluster, UnreadableObject};
use crate::error::Error;
use crate::show;

/// Agents that are asked at once.
const ASKED_AT_ONCE: usize = 16;

/// One agent. Exactly one of `usage` and `error` is set.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct AgentUsage {
    namespace: String,
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
        Some(name) => {
            let usage = cluster.fetch(name, "usage", "").await?;
            vec![AgentUsage { namespace: cluster.namespace.clone(), name: name.clone(), usage: Some(usage), error: None }]
        }
        None => {
            let listed = cluster.list_each::<YoiPod>(args.all_namespaces, None).await?;
            let asked = stream::iter(listed.objects).map(|pod| usage_of(cluster, pod)).buffered(ASKED_AT_ONCE);
            let unreadable = listed.unreadable.into_iter().map(|UnreadableObject { namespace, name, error, object: _ }| {
                let error = Some(format!("its object cannot be read: {error}"));
                AgentUsage { namespace, name, usage: None, error }
            });
            asked.collect::<Vec<_>>().await.into_iter().chain(unreadable).collect()
        }
    };
    let namespace = (!args.all_namespaces).then_some(cluster.namespace.as_str());
    show::objects(output, &agents, |agent| format!("yoipod.yoi.dev/{}", agent.name), || table(&agents, namespace))
}

/// Activity of an agent that nothing runs.
const STOPPED: &str = "Stopped";
/// Activity of one that something may wake.
const RESTING: &str = "Resting";

async fn usage_of(cluster: &Cluster, pod: YoiPod) -> AgentUsage {
    let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
    if yoi_plan::yoipod::is_stopped(&pod) {
        let state = if yoi_plan::yoipod::may_be_woken(&pod) { RESTING } else { STOPPED };
        return AgentUsage { namespace, name, usage: None, error: Some(state.to_owned()) };
    }
    match cluster.in_namespace(namespace.clone()).fetch_now(&name, "usage").await {
        Ok(usage) => AgentUsage { namespace, name, usage: Some(usage), error: None },
        Err(error) => AgentUsage { namespace, name, usage: None, error: Some(error.to_string()) },
    }
}

/// The table of one namespace, or with a column for it.
fn table(agents: &[AgentUsage], of_namespace: Option<&str>) -> String {
    if agents.is_empty() {
        return show::empty_list("agents", of_namespace);
    }
    let first = if of_namespace.is_none() { ["namespace"].as_slice() } else { &[] };
    let header = ["agent", "activity", "turns", "run in", "run out", "in", "cached", "out", "reasoning", "limit"];
    let mut table = show::table(&[first, &header].concat());
    let (mut unknown, mut any_stopped) = (String::new(), false);
    for AgentUsage { namespace, name, usage, error } in agents {
        let cells = match usage {
            Some(UsageResponse { activity, total, run, turns, limit, background }) => {
                let TokenUsage { input_tokens, output_tokens, cached_tokens, cache_write_tokens: _, reasoning_tokens } = *total;
                let figures = [run.input_tokens, run.output_tokens, input_tokens, cached_tokens, output_tokens, reasoning_tokens];
                let figures = figures.map(show::count);
                let limit = limit.map(show::count).unwrap_or_default();
                [name.clone(), show::activity(activity.as_str(), *background), turns.to_string()]
                    .into_iter()
                    .chain(figures)
                    .chain([limit])
                    .collect::<Vec<_>>()
            }
            None => {
                let error = error.as_deref().unwrap_or_default();
                let is_stopped = [STOPPED, RESTING].contains(&error);
                any_stopped |= is_stopped;
                if !is_stopped {
                    unknown.push_str(&format!("{name}: {}\n", show::one_line(error)));
                }
                let activity = if is_stopped { error } else { "?" };
                [name.clone(), activity.to_owned()].into_iter().chain(std::iter::repeat_n(String::new(), header.len() - 2)).collect()
            }
        };
        let cells = of_namespace.is_none().then_some(namespace).into_iter().chain(&cells);
        table.add_row(cells.map(show::cell).collect::<Vec<_>>());
    }
    if any_stopped {
        unknown.push_str(
            "a stopped or resting agent is asked only by its name, which starts a Pod that reads its log: kubectl yoi top NAME\n",
        );
    }
    show::lines(&table) + &unknown
}
