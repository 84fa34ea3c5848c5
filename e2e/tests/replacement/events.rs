//! Who follows an agent's events while the gateways are replaced.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use yoi_e2e::test_namespace::TestNamespace;
use yoi_wire::signal::CloudEvent;

fn events(out: &str) -> Result<Vec<CloudEvent>> {
    out.lines().map(|line| serde_json::from_str(line).with_context(|| format!("not an event: {line}"))).collect()
}

/// Follows the events of an agent until it has stopped, and compares what came with what it says afterwards. Returns how many there are.
pub async fn follow_and_compare(ns: &TestNamespace, agent: &str) -> Result<usize> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("events");
    let path = file.to_str().context("a path that is no text")?;
    ns.yoi_into(path, &["events", agent, "-f", "-o", "json"]).await?.exit_ok()?;
    let followed = events(&std::fs::read_to_string(&file)?)?;
    // What has stopped says the same of itself.
    let whole = events(&ns.yoi(&["events", agent, "-o", "json"]).await?.exit_ok()?.out)?;
    let differs = whole.iter().zip(&followed).find(|(whole, followed)| whole != followed);
    ensure!(differs.is_none(), "what was followed differs: {differs:?}");
    ensure!(whole.len() == followed.len(), "{} events are there, {} were followed", whole.len(), followed.len());
    let ids: BTreeSet<&str> = followed.iter().map(|event| event.id.as_str()).collect();
    ensure!(ids.len() == followed.len(), "an event came twice");
    ensure!(followed.iter().any(|event| event.kind == "conversation.tool.completed"), "{:?}", followed.first());

    let timeline = ns.yoi(&["projection", agent, "timeline", "-o", "json"]).await?.exit_ok()?.out;
    let timeline: Value = serde_json::from_str(&timeline)?;
    ensure!(timeline.as_array().is_some_and(|entries| !entries.is_empty()), "{timeline}");
    Ok(followed.len())
}
