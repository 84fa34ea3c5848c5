//! `restore`, `fork` and `stop --tree`.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::api_server::ApiServer;
use crate::plugin::{Plugin, agent};

fn stopped(name: &str) -> Value {
    let mut agent = agent(name, &[]);
    agent["spec"]["desiredState"] = json!("Stopped");
    agent["status"]["session"] = json!({ "id": "s", "segment": "g" });
    agent["status"]["workspace"] = json!({ "name": name });
    agent
}

#[tokio::test]
async fn b7_b9_people_restore_what_has_stopped_and_are_told_why_another_agent_is_not() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    let mut empty = stopped("empty");
    empty["status"]["session"] = Value::Null;
    let mut live = stopped("live");
    live["spec"]["desiredState"] = json!("Running");
    live["status"]["pod"] = json!({ "name": "live-1", "uid": "p" });
    live["status"]["live"] = json!({ "podUID": "p", "activity": "Running", "observedAt": "2026-01-01T00:00:00Z" });
    server.put(stopped("a")).put(empty).put(live);
    let done = plugin.run(&["restore", "live", "empty", "a"]).await?.expect_code(1)?;
    ensure!(done.out.contains("yoipod.yoi.dev/a being restored") && done.err.contains("is live, Running"), "{done:?}");
    let refused = plugin.run(&["restore", "empty"]).await?.expect_code(1)?;
    ensure!(refused.err.contains("no session"), "{refused:?}");
    let list = plugin.run(&["ls", "agents", "-o", "json"]).await?.expect_code(0)?.json()?;
    let items = list["items"].as_array().context("no items")?;
    let state = |name: &str| items.iter().find(|item| item["metadata"]["name"] == name).map(|item| item["spec"]["desiredState"].clone());
    ensure!(state("a") == Some(json!("Running")) && state("empty") == Some(json!("Stopped")), "{list}");
    Ok(())
}

#[tokio::test]
async fn a_fork_is_made_of_an_agents_tree_and_a_stop_of_a_tree_stops_all_that_one_has_started() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    let mut child = agent("child", &[]);
    let lead = stopped("lead");
    let uid = lead["metadata"]["uid"].clone();
    child["spec"]["spawnedBy"] = json!({ "name": "lead", "uid": uid, "requestId": "r" });
    server.put(lead).put(child).put(agent("other", &[]));
    let printed =
        plugin.run(&["fork", "lead", "second", "--task", "the other way", "--dry-run=client", "-o", "json"]).await?.expect_code(0)?;
    let fork = printed.json()?;
    ensure!(fork["spec"]["task"] == "the other way" && fork["spec"]["desiredState"] == "Running", "{fork}");
    ensure!(fork["spec"]["workspace"]["template"]["source"] == json!({ "workspace": { "name": "lead" } }), "{fork}");
    let no_tree = plugin.run(&["fork", "other", "third"]).await?.expect_code(1)?;
    ensure!(no_tree.err.contains("has no tree yet"), "{no_tree:?}");

    let done = plugin.run(&["stop", "lead", "--tree"]).await?.expect_code(0)?;
    ensure!(done.out.contains("/lead stopping") && done.out.contains("/child stopping") && !done.out.contains("other"), "{done:?}");
    Ok(())
}
