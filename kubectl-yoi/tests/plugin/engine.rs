//! `events`, `tools` and `projection`.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::api_server::{ApiServer, status};
use crate::plugin::{Plugin, agent};

const EVENTS: &str = "proxy/engine/events";

fn event(n: u64, kind: &str, data: Value) -> String {
    let event = json!({ "specversion": "1.0", "id": format!("s/{n}"), "source": "/namespaces/ns/yoipods/a", "type": kind, "subject": "main",
        "time": "2026-01-01T10:20:30.000Z", "datacontenttype": "application/json", "data": data, "session": "s", "cursor": format!("g.{n}"),
        "ofANewerVersion": true });
    format!("id: g.{n}\ndata: {event}\n\n")
}

#[tokio::test]
async fn events_are_a_line_each_for_people_and_whole_for_programs() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.put(agent("a", &[]));
    let requested = event(8, "conversation.tool.requested", json!({ "tool": "Shell", "args": { "command": "echo \u{1b}[2J" } }));
    let denied = event(9, "policy.denied", json!({ "class": "ToolDenied", "rule": "Shell(rm *)" }));
    server.answer_for("a", EVENTS, 200, format!("{requested}: a comment\n\n{denied}"));
    let list = plugin.run(&["events", "a", "--tail", "7", "--conversation", "review"]).await?.expect_code(0)?;
    let lines: Vec<Vec<&str>> = list.out.lines().map(|line| line.split_whitespace().collect()).collect();
    ensure!(lines.len() == 3 && lines[0] == ["TIME", "TYPE", "ABOUT"], "{list:?}");
    ensure!(lines[1][..3] == ["2026-01-01T10:20:30Z", "conversation.tool.requested", "Shell"], "{list:?}");
    ensure!(lines[2][1..] == ["policy.denied", "ToolDenied", "Shell(rm", "*)"] && !list.out.contains('\u{1b}'), "{list:?}");
    let asked = server.requests_for("a", EVENTS).pop().map(|request| request.query).unwrap_or_default();
    let of = |name: &str| asked.get(name).map(String::as_str);
    ensure!((of("tail"), of("follow"), of("conversation")) == (Some("7"), Some("false"), Some("review")), "{asked:?}");
    let whole = plugin.run(&["events", "a", "-o", "json"]).await?.expect_code(0)?;
    let events: Vec<Value> = whole.out.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    ensure!(events.len() == 2 && events[0]["data"]["tool"] == "Shell" && events[1]["ofANewerVersion"] == true, "{whole:?}");

    server.answer_for("a", EVENTS, 400, status(400, "BadRequest", "YoiPod ns/a: there is no conversation review; there are main"));
    let refused = plugin.run(&["events", "a", "--conversation", "review"]).await?.expect_code(1)?;
    ensure!(refused.err.contains("failed to read the events of YoiPod ns/a: there is no conversation review"), "{refused:?}");
    Ok(())
}

#[tokio::test]
async fn events_that_are_followed_go_on_after_the_last_cursor_when_the_stream_breaks() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.put(agent("a", &[]));
    let (first, second) = (server.stream_for("a", EVENTS), server.stream_for("a", EVENTS));
    first.send(event(1, "project.started", json!({})))?;
    // The cut of a stream in the middle of an event.
    first.send("id: g.2\ndata: {\"specv".to_owned())?;
    drop(first);
    second.send(event(2, "conversation.run.opened", json!({})))?;
    second.send(event(3, "conversation.run.closed", json!({ "outcome": "finished" })))?;
    drop(second);
    server.answer_for("a", EVENTS, 403, status(403, "Forbidden", "no"));
    let followed = plugin.run(&["events", "a", "-f", "-o", "name"]).await?.expect_code(4)?;
    ensure!(followed.out == "s/1\ns/2\ns/3\n", "{followed:?}");
    let after: Vec<Option<String>> =
        server.requests_for("a", EVENTS).into_iter().map(|mut request| request.query.remove("after")).collect();
    ensure!(after == [None, Some("g.1".to_owned()), Some("g.3".to_owned())], "{after:?}");
    Ok(())
}

#[tokio::test]
async fn tools_and_projections_are_tables_for_people_and_whole_for_programs() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.put(agent("a", &[]));
    let tool = json!({ "name": "Shell", "description": "Runs a\ncommand\u{1b}[2J.", "schema": { "type": "object" } });
    server.answer_for("a", "proxy/engine/tools", 200, json!({ "tools": [tool] }).to_string());
    let list = plugin.run(&["tools", "a"]).await?.expect_code(0)?;
    ensure!(list.out.starts_with("NAME   DESCRIPTION\nShell  Runs a command") && !list.out.contains('\u{1b}'), "{list:?}");
    let whole = plugin.run(&["tools", "a", "-o", "json"]).await?.expect_code(0)?.json()?;
    ensure!(whole["items"][0]["schema"]["type"] == "object", "{whole}");

    let projection = async |key: &str, answer: Value| {
        server.answer_for("a", &format!("proxy/engine/projection/{key}"), 200, answer.to_string());
        anyhow::Ok(plugin.run(&["projection", "a", key]).await?.expect_code(0)?.out)
    };
    let entry =
        json!({ "id": "i", "seq": 3, "run": 1, "at": "2026-01-01T10:20:30.000Z", "kind": "Assistant", "body": { "text": "hello" } });
    ensure!(projection("timeline", json!([entry])).await? == "2026-01-01T10:20:30Z    agent hello\n");
    let call = json!({ "callId": "c", "tool": "Shell", "args": { "command": "ls" }, "phase": "asked" });
    let pending = projection("pending_tool_calls", json!([call])).await?;
    ensure!(pending.lines().nth(1).is_some_and(|line| line.split_whitespace().take(3).eq(["c", "Shell", "asked"])), "{pending}");
    ensure!(projection("pending_tool_calls", json!([])).await? == "nothing is in it\n");
    let answer = json!({ "assistant": { "text": "I look.", "toolCalls": [{ "callId": "c", "tool": "Shell", "args": {} }] } });
    let results = json!({ "results": [{ "callId": "c", "tool": "Shell", "output": "done", "failed": false }] });
    let context = projection("llm_context", json!([{ "user": "go" }, answer, results])).await?;
    let kinds: Vec<&str> = context.lines().filter_map(|line| line.split_whitespace().next()).collect();
    ensure!(kinds == ["KIND", "input", "answer", "call", "result"], "{context}");
    let diagnostics = projection("diagnostics", json!({ "entries": 7, "openRun": null, "runs": { "finished": 2 } })).await?;
    let rows: Vec<Vec<&str>> = diagnostics.lines().map(|line| line.split_whitespace().collect()).collect();
    ensure!(rows == [["entries", "7"], ["runs.finished", "2"]], "{diagnostics}");
    // One of a newer version.
    ensure!(projection("mode_runtime", json!({ "mode": "planning" })).await?.split_whitespace().eq(["mode", "planning"]));
    ensure!(projection("of_a_newer_one", json!({ "mode": "planning" })).await? == "---\nmode: planning\n");

    let no_key = plugin.run(&["projection", "a", "../log"]).await?.expect_code(2)?;
    ensure!(no_key.err.contains("lower-case letters"), "{no_key:?}");
    Ok(())
}

#[tokio::test]
async fn a_tool_that_is_run_prints_what_it_returns_and_fails_as_the_tool_does() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.put(agent("a", &[]));
    let path = "proxy/engine/tools/Shell";
    let end = |outcome: &str, output: &str| {
        json!({ "callId": "engine-i", "end": { "seq": 9, "outcome": outcome, "output": output } }).to_string()
    };
    // It is asked again under its id until it has ended.
    let once = server.stream_for("a", path);
    once.send(json!({ "callId": "engine-i" }).to_string())?;
    drop(once);
    server.answer_for("a", path, 200, end("succeeded", "one\u{1b}[2J\n[exit code 0]"));
    let words = ["tools", "a", "run", "Shell", "--args", "{\"command\": \"echo one\"}", "--conversation", "review"];
    let ran = plugin.run(&words).await?.expect_code(0)?;
    ensure!(ran.out.starts_with("one") && ran.out.ends_with("[exit code 0]\n") && !ran.out.contains('\u{1b}'), "{ran:?}");
    let requests = server.requests_for("a", path);
    let ids: Vec<&Value> = requests.iter().map(|request| &request.body["id"]).collect();
    ensure!(ids.len() == 2 && ids[0] == ids[1] && requests[0].body["args"]["command"] == "echo one", "{requests:?}");
    ensure!(requests[0].query.get("conversation").is_some_and(|name| name == "review"), "{requests:?}");

    server.answer_for("a", path, 200, end("failed", "no\n[exit code 1]"));
    let failed = plugin.run(&["tools", "a", "run", "Shell"]).await?.expect_code(6)?;
    ensure!(failed.out.contains("[exit code 1]") && failed.err.contains("the call of Shell by YoiPod ns/a failed"), "{failed:?}");
    let refused = json!({ "callId": "c", "end": { "seq": 9, "outcome": "refused", "refused": "ToolDenied", "output": "tool_denied: no" } });
    server.answer_for("a", path, 200, refused.to_string());
    let refused = plugin.run(&["tools", "a", "run", "Shell"]).await?.expect_code(6)?;
    ensure!(refused.out.is_empty() && refused.err.contains("was refused: tool_denied: no"), "{refused:?}");
    server.answer_for("a", path, 200, json!({ "callId": "c", "asked": 7 }).to_string());
    let waits = plugin.run(&["tools", "a", "run", "Shell", "--timeout", "1s"]).await?.expect_code(5)?;
    ensure!(waits.err.contains("kubectl yoi approve a 7 -n ns") && waits.err.contains("--id "), "{waits:?}");
    for args in ["x", "[]", "\"ls\""] {
        plugin.run(&["tools", "a", "run", "Shell", "--args", args]).await?.expect_code(2)?;
    }
    plugin.run(&["tools", "a", "run", "../log"]).await?.expect_code(2)?;
    Ok(())
}

#[tokio::test]
async fn an_event_that_is_sent_has_an_id_of_its_own_and_a_refusal_is_told_as_it_is() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.put(agent("a", &[]));
    server.answer_for("a", EVENTS, 200, json!({ "id": "i", "message": "the conversation reads it" }).to_string());
    let words = ["events", "a", "send", "conversation.user.message", "--data", "{\"text\": \"go\"}"];
    let sent = plugin.run(&words).await?.expect_code(0)?;
    ensure!(sent.out == "YoiPod ns/a: the conversation reads it\n", "{sent:?}");
    let body = server.requests_for("a", EVENTS).pop().map(|request| request.body).unwrap_or_default();
    ensure!(
        body["type"] == "conversation.user.message" && body["data"]["text"] == "go" && body["id"].as_str().is_some_and(|id| id.len() == 36),
        "{body}"
    );
    server.answer_for(
        "a",
        EVENTS,
        429,
        status(429, "TooManyRequests", "YoiPod ns/a: the event was not taken: 1000 messages wait to be read"),
    );
    let full = plugin.run(&words).await?.expect_code(5)?;
    ensure!(full.err.contains("1000 messages wait"), "{full:?}");
    plugin.run(&["events", "a", "send", "conversation.cancel", "--data", "now"]).await?.expect_code(2)?;
    Ok(())
}
