//! Who follows an agent's events while the gateways are replaced.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use yoi_e2e::locks::{self, Lock};
use yoi_e2e::processes::wait_all_ready;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace};
use yoi_e2e::{poll_seen, poll_until};
use yoi_wire::signal::CloudEvent;

const GATEWAY: &str = "deployment/yoi-gateway";

/// Each turn has a call, so that events come all the while.
fn script() -> String {
    let turns: String = (0..900)
        .map(|turn| format!("  - {{ toolCalls: [{{ tool: Shell, args: {{ command: \"sleep 0.5; echo {turn}\" }} }}] }}\n"))
        .collect();
    format!("rules:\n- steps:\n{turns}  - text: Done.\n")
}

fn events(out: &str) -> Result<Vec<CloudEvent>> {
    out.lines().map(|line| serde_json::from_str(line).with_context(|| format!("not an event: {line}"))).collect()
}

#[tokio::test]
async fn p63_events_that_are_followed_while_the_gateways_are_replaced_come_once_each() -> Result<()> {
    let _alone = locks::exclusive(&[Lock::Gateways]).await?;
    let ns = TestNamespace::create("events").await?;
    ns.create_model(&script()).await?;
    ns.create_empty_project("p").await?;
    ns.create_agent("a", "p", json!({ "task": "be busy", "limits": { "turnsPerRun": 1000 } })).await?;
    ns.wait_agent_ready("a").await?;

    let folder = tempfile::tempdir()?;
    let file = folder.path().join("events");
    let path = file.to_str().context("a path that is no text")?;
    let seen = || std::fs::read_to_string(&file).map_or(0, |lines| lines.lines().count());
    let more_than = async |count: usize, what: &str| poll_until(TIMEOUT, what, async || Ok((seen() > count).then_some(()))).await;
    let follow = async { ns.yoi_into(path, &["events", "a", "-f", "-o", "json"]).await?.exit_ok() };
    let replace = async {
        more_than(0, "the first event").await?;
        ns.kubectl(&["-n", "yoi-system", "rollout", "restart", GATEWAY]).await?.exit_ok()?;
        poll_seen(2 * TIMEOUT, "the gateways are replaced", async || {
            let waited = ns.kubectl(&["-n", "yoi-system", "rollout", "status", GATEWAY, "--timeout=60s"]).await?;
            Ok(if waited.code == 0 { Ok(()) } else { Err(waited.err) })
        })
        .await?;
        // The gateway that was followed through is gone, or goes: further events come through another one.
        more_than(seen(), "events after the gateways were replaced").await?;
        ns.yoi(&["stop", "a", "--wait"]).await?.exit_ok()
    };
    tokio::try_join!(follow, replace)?;
    let followed = events(&std::fs::read_to_string(&file)?)?;
    // What has stopped says the same of itself.
    let whole = events(&ns.yoi(&["events", "a", "-o", "json"]).await?.exit_ok()?.out)?;
    let differs = whole.iter().zip(&followed).find(|(whole, followed)| whole != followed);
    ensure!(differs.is_none(), "what was followed differs: {differs:?}");
    ensure!(whole.len() == followed.len(), "{} events are there, {} were followed", whole.len(), followed.len());
    let ids: BTreeSet<&str> = followed.iter().map(|event| event.id.as_str()).collect();
    ensure!(ids.len() == followed.len(), "an event came twice");
    ensure!(followed.iter().any(|event| event.kind == "conversation.tool.completed"), "{:?}", followed.first());

    let timeline = ns.yoi(&["projection", "a", "timeline", "-o", "json"]).await?.exit_ok()?.out;
    let timeline: Value = serde_json::from_str(&timeline)?;
    ensure!(timeline.as_array().is_some_and(|entries| !entries.is_empty()), "{timeline}");
    wait_all_ready(&ns.client).await?;
    ns.remove().await
}
