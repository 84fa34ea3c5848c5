//! What the tools of an agent have put out, read from its log.

use anyhow::Result;
use yoi_e2e::test_namespace::TestNamespace;
use yoi_wire::entry::{Body, RunOutcome, ToolOutcome};

pub async fn all(ns: &TestNamespace, agent: &str) -> Result<Vec<(ToolOutcome, String)>> {
    let ended = ns.log(agent).await?.into_iter().filter_map(|l| match l.entry.body {
        Body::ToolEnded(t) => Some((t.outcome, t.output)),
        _ => None,
    });
    Ok(ended.collect())
}

pub async fn last(ns: &TestNamespace, agent: &str) -> Result<String> {
    let last = all(ns, agent).await?.pop();
    last.map(|(_, output)| output).ok_or_else(|| anyhow::anyhow!("{agent} ran no tool"))
}

/// Sends a message to the agent, and returns the output of the first tool that it runs then.
pub async fn after(ns: &TestNamespace, agent: &str, message: &str) -> Result<String> {
    let before = ns.log(agent).await?.len();
    ns.yoi(&["send", agent, message]).await?.exit_ok()?;
    ns.wait_log(agent, message, |log| {
        log.iter().skip(before).find_map(|l| match &l.entry.body {
            Body::ToolEnded(t) => Some(t.output.clone()),
            _ => None,
        })
    })
    .await
}

/// Sends a message to the agent, and returns the output of every tool of its run once that has ended.
pub async fn of_run(ns: &TestNamespace, agent: &str, message: &str) -> Result<Vec<String>> {
    let before = ns.log(agent).await?.len();
    ns.yoi(&["send", agent, message]).await?.exit_ok()?;
    ns.wait_log(agent, message, |log| {
        let new = log.iter().skip(before).map(|line| &line.entry.body);
        let ended = new.clone().any(|body| matches!(body, Body::RunEnded(run) if run.outcome == RunOutcome::Finished));
        let outputs = new.filter_map(|body| if let Body::ToolEnded(end) = body { Some(end.output.clone()) } else { None });
        ended.then(|| outputs.collect())
    })
    .await
}
