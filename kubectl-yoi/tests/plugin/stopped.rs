//! Agents that have stopped: reading them, and starting them again.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::api_server::ApiServer;
use crate::plugin::{Plugin, agent};
use crate::terminal::Terminal;

/// The agent `a`, which has done its task and stops then.
fn finished() -> Value {
    let mut a = agent("a", &[("Ready", "False", "Stopped", "the task is done and completion is Stop")]);
    a["spec"]["task"] = json!("do");
    a["spec"]["completion"] = json!("Stop");
    a["status"]["task"] = json!({ "id": yoi_plan::names::task("uid-a", "do"), "state": "Succeeded" });
    a
}

/// The gateway's answer while a reader of `a` starts.
fn starting() -> String {
    let message = "YoiPod ns/a has stopped, and the Pod that reads its session is not there yet: PodPending: no room\u{1b}[2J; try again, or see \
                   kubectl describe yoipod a -n ns";
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 503, "reason": "ServiceUnavailable",
        "message": message, "details": { "name": "a", "kind": "yoipods", "retryAfterSeconds": 1, "causes": [{ "message": "PodPending: no room\u{1b}[2J" }] } })
    .to_string()
}

#[tokio::test]
async fn a_stopped_agent_is_read_once_its_reader_is_there_and_the_terminal_shows_what_it_waits_for() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.put(finished());
    for (words, answer) in [
        (&["diff", "a"][..], json!({ "text": "+what it did\n", "paths": [] }).to_string()),
        (&["diff", "a", "-o", "json"], json!({ "text": "+what it did\n", "paths": [] }).to_string()),
        (&["patch", "a"], "Subject: what it did\n".to_owned()),
        (
            &["log", "a"],
            json!({ "token": "t:1", "entry": { "id": "e", "seq": 1, "run": 1, "at": "2026-01-01T10:20:30.000Z", "kind": "Assistant",
            "body": { "text": "what it did" } } })
            .to_string()
                + "\n",
        ),
    ] {
        server.answer_for("a", words[0], 503, starting());
        let mut terminal = Terminal::start(&plugin, words)?;
        let waits = "starting a reader of a's session: PodPending: no room";
        terminal.wait_until("what it waits for", |screen| screen.contains(waits)).await?;
        server.answer_for("a", words[0], 200, answer);
        let (code, shown) = terminal.end_with_all().await?;
        ensure!(code == 0 && shown.contains("what it did"), "{words:?}: {code} {shown:?}");
        ensure!(!shown.contains("\u{1b}[2J;"), "the operator's words reach the terminal as they are: {shown:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_followed_log_of_a_stopped_agent_ends_with_its_last_entry() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.put(finished());
    server.answer_for("a", "log", 200, "");
    plugin.run(&["log", "a", "-f"]).await?.expect_code(0)?;
    // It is not opened again, as a log that breaks is.
    ensure!(server.requests_for("a", "log").len() == 1, "{:?}", server.requests_for("a", "log"));
    Ok(())
}

#[tokio::test]
async fn start_of_an_agent_that_has_done_its_task_says_so_at_once_and_how_to_go_on() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.put(finished());
    server.put(agent("b", &[("Ready", "False", "Stopped", "desiredState is Stopped")]));
    for words in [&["start", "a"][..], &["start", "a", "--wait"], &["restart", "a"]] {
        let refused = plugin.run(words).await?.expect_code(1)?;
        let waits = server.requests().iter().any(|request| request.query.contains_key("watch"));
        ensure!(!waits, "{words:?} waits: {:?}", server.requests());
        for part in
            ["it has done its task", r#"kubectl patch yoipod a -n ns --type merge -p '{"spec":{"completion":"Keep","#, "kubectl yoi send a"]
        {
            ensure!(refused.err.contains(part), "{words:?} does not say {part}: {}", refused.err);
        }
        ensure!(server.writes().is_empty(), "{words:?}: {:?}", server.writes());
    }
    // The others of a list start all the same.
    plugin.run(&["start", "a", "b"]).await?.expect_code(1)?;
    ensure!(server.object("YoiPod", "b").context("no b")?["spec"]["desiredState"] == "Running");
    Ok(())
}
