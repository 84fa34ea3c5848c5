//! What the tools of an agent have put out, read from its log.

use anyhow::Result;
use yoi_e2e::test_namespace::TestNamespace;
use yoi_wire::entry::{Body, ToolOutcome};

pub async fn outputs(ns: &TestNamespace, agent: &str) -> Result<Vec<(ToolOutcome, String)>> {
    let ended = ns.log(agent).await?.into_iter().filter_map(|l| match l.entry.body {
        Body::ToolEnded(t) => Some((t.outcome, t.output)),
        _ => None,
    });
    Ok(ended.collect())
}

pub async fn last_output(ns: &TestNamespace, agent: &str) -> Result<String> {
    let last = outputs(ns, agent).await?.pop();
    last.map(|(_, output)| output).ok_or_else(|| anyhow::anyhow!("{agent} ran no tool"))
}

/// Sends a message to the agent, and returns the output of the first tool that it runs then.
pub async fn output_after(ns: &TestNamespace, agent: &str, message: &str) -> Result<String> {
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
