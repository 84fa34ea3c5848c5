//! `approvals`, `approve` and `deny`.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::api_server::{ApiServer, status};
use crate::plugin::{Plugin, agent};

/// An agent one call of which waits, as its object says.
fn waiting(name: &str) -> Value {
    let mut waiting = agent(name, &[]);
    waiting["status"]["pod"] = json!({ "name": format!("{name}-1"), "uid": "p" });
    waiting["status"]["live"] = json!({ "podUID": "p", "activity": "NeedsInput", "observedAt": "2026-01-01T00:00:00Z" });
    waiting
}

fn calls() -> String {
    let call = |call: u64, tool: &str, args: Value| {
        json!({ "call": call, "tool": tool, "args": args, "from": "model", "rules": [tool], "canBeRemembered": true,
            "since": "2026-01-01T00:00:00.000Z", "seconds": 3600 })
    };
    json!({ "calls": [call(7, "Shell", json!({ "command": "rm -r build\u{1b}[2J" })), call(9, "Write", json!({ "path": "a.txt" }))] })
        .to_string()
}

fn answered(call: u64, approved: bool, by: &str, repeated: bool) -> String {
    json!({ "call": call, "answer": { "approved": approved, "by": by }, "repeated": repeated }).to_string()
}

#[tokio::test]
async fn p69_what_waits_is_listed_with_the_command_that_answers_and_its_agents_stand_first() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.put(agent("a", &[])).put(waiting("b"));
    server.answer_for("b", "approval", 200, calls());
    let list = plugin.run(&["approvals"]).await?.expect_code(0)?;
    let lines: Vec<&str> = list.out.lines().collect();
    ensure!(lines[0].split_whitespace().collect::<Vec<_>>() == ["AGENT", "CALL", "TOOL", "WHAT", "RULE", "SINCE"], "{list:?}");
    ensure!(lines[1].starts_with("b      7     Shell  rm -r build^[[2J") && lines[2].contains("9     Write  a.txt"), "{list:?}");
    ensure!(lines[3] == "answer one: kubectl yoi approve b 7 -n ns or kubectl yoi deny b 7 --because TEXT -n ns", "{list:?}");
    ensure!(server.requests_for("a", "approval").is_empty(), "an agent that waits for nobody was asked");
    let json = plugin.run(&["approvals", "-A", "-o", "json"]).await?.expect_code(0)?.json()?;
    ensure!(json["items"][1]["agent"] == "b" && json["items"][1]["call"] == 9 && json["items"][1]["args"]["path"] == "a.txt", "{json}");
    let agents = plugin.run(&["ls", "agents"]).await?.expect_code(0)?;
    ensure!(agents.out.lines().nth(1).is_some_and(|line| line.starts_with("b ") && line.contains("NeedsInput")), "{agents:?}");
    ensure!(agents.out.contains("a call waits for a person: kubectl yoi approvals b"), "{agents:?}");
    let meaning = plugin.run(&["explain", "needsinput"]).await?.expect_code(0)?;
    ensure!(meaning.out.starts_with("NeedsInput: A call") && meaning.out.ends_with("  $ kubectl yoi approvals NAME\n"), "{meaning:?}");
    server.answer_for("a", "approval", 200, json!({ "calls": [] }).to_string());
    let none = plugin.run(&["approvals", "a"]).await?.expect_code(0)?;
    ensure!(none.out == "no calls of a that wait for a person in namespace ns\n", "{none:?}");
    Ok(())
}

#[tokio::test]
async fn agents_that_were_stopped_before_their_task_ended_are_named_because_a_call_of_theirs_may_wait() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    for (name, state, task) in [("open", "Stopped", "Running"), ("done", "Stopped", "Succeeded"), ("runs", "Running", "Running")] {
        let mut agent = agent(name, &[]);
        agent["spec"]["desiredState"] = json!(state);
        agent["status"]["task"] = json!({ "id": "t", "state": task });
        server.put(agent);
    }
    let list = plugin.run(&["approvals"]).await?.expect_code(0)?;
    ensure!(list.err.contains("stopped before their task ended: open. ") && list.err.contains("kubectl yoi start NAME -n ns"), "{list:?}");
    Ok(())
}

#[tokio::test]
async fn p70_yes_and_no_are_sent_as_they_are_and_whose_answer_counts_is_told() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    let sent = || server.requests_for("a", "approval").pop().map(|request| request.body).unwrap_or_default();
    server.answer_for("a", "approval", 200, answered(7, true, "jane", false));
    let yes = plugin.run(&["approve", "a", "7"]).await?.expect_code(0)?;
    ensure!(yes.out == "call 7 of a is approved\n" && sent() == json!({ "call": 7, "approve": true }), "{yes:?} {}", sent());
    plugin.run(&["approve", "a", "7", "--always"]).await?.expect_code(0)?;
    ensure!(sent() == json!({ "call": 7, "approve": true, "always": true }), "{}", sent());
    server.answer_for("a", "approval", 200, answered(7, false, "jane", false));
    let no = plugin.run(&["deny", "a", "7", "--because", "not today"]).await?.expect_code(0)?;
    ensure!(no.out == "call 7 of a is denied\n" && sent() == json!({ "call": 7, "approve": false, "because": "not today" }), "{no:?}");
    plugin.run(&["deny", "a", "7"]).await?.expect_code(2)?;

    server.answer_for("a", "approval", 200, answered(7, true, "bob", true));
    let again = plugin.run(&["approve", "a", "7"]).await?.expect_code(0)?;
    ensure!(again.out == "bob approved call 7 of a before\n", "{again:?}");
    let late = plugin.run(&["deny", "a", "7", "--because", "no"]).await?.expect_code(1)?;
    ensure!(late.err.contains("bob approved call 7 of a before, and the first answer counts"), "{late:?}");
    Ok(())
}

#[tokio::test]
async fn p72_a_call_that_is_over_or_unknown_and_a_missing_right_are_errors_with_their_next_step() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    for (code, reason, words) in [(404, "NotFound", "no call 7 waits"), (410, "Gone", "call 7 is over")] {
        server.answer_for("a", "approval", code, status(code, reason, &format!("YoiPod ns/a: {words}")));
        let said = plugin.run(&["approve", "a", "7"]).await?.expect_code(1)?;
        let wanted =
            format!("error: failed to approve a call of YoiPod ns/a: {words}\n  next: see what waits: kubectl yoi approvals a -n ns");
        ensure!(said.err.starts_with(&wanted), "{said:?}");
    }
    server.answer_for("a", "approval", 404, status(404, "NotFound", "YoiPod ns/a not found; see kubectl get yoipods -n ns"));
    plugin.run(&["approve", "a", "7"]).await?.expect_code(3)?;
    server.answer_for("a", "approval", 403, status(403, "Forbidden", "yoipods.runtime.yoi.dev \"a\" is forbidden"));
    plugin.run(&["deny", "a", "7", "--because", "no"]).await?.expect_code(4)?;
    Ok(())
}
