//! `pause`, `resume`, `cancel`, `compact`, `rewind`, `top` and `export`.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use yoi_test_support::eventually;

use crate::api_server::{ApiServer, status};
use crate::plugin::{Plugin, agent};

fn done(message: &str) -> String {
    json!({ "id": "i", "done": { "message": message } }).to_string()
}

fn refused(reason: &str) -> String {
    json!({ "id": "i", "refused": { "reason": reason, "message": "not now\u{1b}[2J" } }).to_string()
}

#[tokio::test]
async fn each_verb_asks_for_its_action_and_says_what_came_of_it() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.answer_for("a", "control", 200, done("it is so"));
    for verb in ["pause", "resume", "cancel", "compact"] {
        let said = plugin.run(&[verb, "a"]).await?.expect_code(0)?;
        ensure!(said.out == "it is so\n", "{said:?}");
        let request = server.requests_for("a", "control").pop().map(|request| request.body).unwrap_or_default();
        ensure!(request["action"] == json!({ "type": verb }) && request["id"].as_str().is_some_and(|id| id.len() == 36), "{request}");
    }
    let answer = plugin.run(&["pause", "a", "-o", "json"]).await?.expect_code(0)?.json()?;
    ensure!(answer["done"]["message"] == "it is so");
    Ok(())
}

#[tokio::test]
async fn a_refusal_is_an_error_with_its_next_step() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    for (reason, next) in [
        ("AlreadyRunning", "kubectl yoi cancel a -n ns"),
        ("NotRunning", "kubectl yoi top a -n ns"),
        ("NotPaused", "kubectl yoi top a -n ns"),
        ("Paused", "kubectl yoi resume a -n ns"),
        ("HeadChanged", "kubectl yoi rewind a -n ns"),
        ("NotReady", "kubectl describe yoipod a -n ns"),
        ("Failed", "kubectl yoi doctor -n ns"),
        ("Tired", "kubectl yoi version"),
    ] {
        server.answer_for("a", "control", 200, refused(reason));
        let said = plugin.run(&["compact", "a"]).await?.expect_code(1)?;
        let words = "error: failed to compact the conversation of YoiPod ns/a: not now^[[2J\n  next: ";
        ensure!(said.err.starts_with(words) && said.err.contains(next), "{reason}: {said:?}");
    }
    let stopped = status(409, "Conflict", "YoiPod ns/a is Stopped: start it with kubectl yoi start a -n ns");
    server.answer_for("a", "control", 409, stopped);
    let said = plugin.run(&["pause", "a"]).await?.expect_code(5)?;
    ensure!(said.err.contains("start it with kubectl yoi start a -n ns"), "{said:?}");
    Ok(())
}

#[tokio::test]
async fn a_request_to_an_agent_that_learns_of_a_new_gateway_is_sent_again_until_it_is_taken() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    let not_yet = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 503, "reason": "ServiceUnavailable",
        "message": "YoiPod ns/a has no line to this gateway yet", "details": { "name": "a", "kind": "yoipods", "retryAfterSeconds": 1,
        "causes": [{ "reason": "LineStarting", "message": "it learns of a new gateway" }] } });
    let sent = json!({ "messageId": "m", "duplicate": false }).to_string();
    for (words, subresource, code, taken) in
        [(&["pause", "a"][..], "control", 200, done("it is so")), (&["send", "a", "hello"], "message", 201, sent)]
    {
        server.answer_for("a", subresource, 503, not_yet.to_string());
        let mut running = plugin.start(words)?;
        running.error_line("waiting for a: it learns of a new gateway").await?;
        let asked = async || (server.requests_for("a", subresource).len() >= 3).then_some(());
        eventually("three requests", asked).await;
        server.answer_for("a", subresource, code, taken);
        ensure!(running.end().await?.0 == Some(0));
        let ids = |body: &Value| (body["id"].clone(), body["messageId"].clone());
        let requests = server.requests_for("a", subresource);
        ensure!(requests.iter().all(|request| ids(&request.body) == ids(&requests[0].body)), "it was sent under another id");
    }
    Ok(())
}

#[tokio::test]
async fn a_request_whose_answer_was_lost_is_sent_again_under_its_id() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.answer_for("a", "control", 504, status(504, "Timeout", "YoiPod ns/a did not answer"));
    plugin.run(&["pause", "a"]).await?.expect_code(5)?;
    let ids: Vec<Value> = server.requests_for("a", "control").iter().map(|request| request.body["id"].clone()).collect();
    ensure!(ids.len() == 4 && ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    Ok(())
}

#[tokio::test]
async fn e11_rewind_lists_the_inputs_and_goes_to_one_of_them_only() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    let inputs = json!([{ "seq": 3, "text": "one" }, { "seq": 12, "text": "two\nlines\u{1b}[2J" }]);
    let both = json!({ "id": "i", "done": { "message": "turned back", "input": "two\nlines", "remainingEffects": ["Write a.txt"],
        "rewind": { "segment": "g", "head": 20, "inputs": inputs } } });
    server.answer_for("a", "control", 200, both.to_string());
    let list = plugin.run(&["rewind", "a"]).await?.expect_code(0)?;
    ensure!(list.out == "SEQ  INPUT\n3    one\n12   two lines^[[2J\n", "{list:?}");
    let names = plugin.run(&["rewind", "a", "-o", "name"]).await?.expect_code(0)?;
    ensure!(names.out == "3\n12\n", "{names:?}");
    let wrong = plugin.run(&["rewind", "a", "4"]).await?.expect_code(1)?;
    ensure!(wrong.err.contains("entry 4 is no input") && wrong.err.contains("kubectl yoi rewind a -n ns"), "{wrong:?}");
    ensure!(server.requests_for("a", "control").iter().all(|request| request.body["action"]["type"] == "rewindTargets"));
    let turned = plugin.run(&["rewind", "a", "12"]).await?.expect_code(0)?;
    ensure!(turned.out == "turned back\n  its effect remains: Write a.txt\nthe input was:\ntwo\nlines\n", "{turned:?}");
    let request = server.requests_for("a", "control").pop().map(|request| request.body).unwrap_or_default();
    ensure!(request["action"] == json!({ "type": "rewindTo", "segment": "g", "seq": 12, "head": 20 }), "{request}");
    Ok(())
}

#[tokio::test]
async fn top_shows_tokens_of_each_agent_and_who_could_not_be_asked() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    let usage = json!({ "activity": "Running", "turns": 3, "limit": 2_000_000, "run": { "inputTokens": 900, "outputTokens": 80 },
        "total": { "inputTokens": 123_456, "outputTokens": 7890, "cachedTokens": 100_000, "reasoningTokens": 500 } });
    let mut stopped = agent("c", &[]);
    stopped["spec"]["desiredState"] = json!("Stopped");
    server.put(agent("a", &[])).put(agent("b", &[])).put(stopped);
    server.answer_for("a", "usage", 200, usage.to_string()).answer_for(
        "b",
        "usage",
        503,
        status(503, "ServiceUnavailable", "YoiPod ns/b has no line"),
    );
    let all = plugin.run(&["top"]).await?.expect_code(0)?;
    let lines: Vec<&str> = all.out.lines().collect();
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
    ensure!(words(lines[1]) == "a Running 3 900 80 123k 100k 7.8k 500 2.0M", "{all:?}");
    ensure!(words(lines[2]).starts_with("b ? - -") && words(lines[3]).starts_with("c Stopped - -"), "{all:?}");
    ensure!(lines[4].starts_with("b: failed to read the usage of YoiPod ns/b: has no line"), "{all:?}");
    ensure!(server.requests_for("c", "usage").is_empty(), "a stopped agent was asked");
    let everywhere = plugin.run(&["top", "-A"]).await?.expect_code(0)?;
    let line = everywhere.out.lines().nth(1).map(words);
    ensure!(line.as_deref() == Some("ns a Running 3 900 80 123k 100k 7.8k 500 2.0M"), "{everywhere:?}");
    plugin.run(&["top", "a", "-A"]).await?.expect_code(2)?;
    let mut busy: Value = serde_json::from_str(&usage.to_string())?;
    busy["activity"] = json!("Idle");
    busy["background"] = json!(2);
    server.answer_for("a", "usage", 200, busy.to_string());
    let table = plugin.run(&["top", "a"]).await?.expect_code(0)?;
    ensure!(words(table.out.lines().nth(1).unwrap_or_default()).starts_with("a Idle +2 in background 3 900"), "{table:?}");
    server.answer_for("a", "usage", 200, usage.to_string());
    let one = plugin.run(&["top", "a", "-o", "json"]).await?.expect_code(0)?.json()?;
    ensure!(
        one["items"][0]["name"] == "a"
            && one["items"][0]["namespace"] == "ns"
            && one["items"][0]["usage"]["total"]["cachedTokens"] == 100_000,
        "{one}"
    );
    plugin.run(&["top", "b"]).await?.expect_code(5)?;
    Ok(())
}

#[tokio::test]
async fn f16_an_export_is_written_whole_or_not_at_all() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    let file = plugin.folder.path().join("a.tar");
    let words = ["export", "a", "-f", file.to_str().unwrap_or_default()];
    let (head, end) = ("x".repeat(512), "\0".repeat(1024));
    server.answer_for("a", "log", 200, head.clone());
    let cut = plugin.run(&words).await?.expect_code(7)?;
    ensure!(cut.err.contains("broke off after 512 B") && std::fs::read_dir(plugin.folder.path())?.count() == 1, "{cut:?}");
    server.answer_for("a", "log", 200, head.clone() + &end);
    let whole = plugin.run(&words).await?.expect_code(0)?;
    ensure!(whole.out.contains("a.tar: 1.5 KiB") && std::fs::read_to_string(&file)? == head.clone() + &end, "{whole:?}");
    let out = plugin.run(&["export", "a"]).await?.expect_code(0)?;
    ensure!(out.out == head + &end);
    ensure!(server.requests_for("a", "log").iter().all(|request| request.query["export"] == "true"));
    let (code, shown) = plugin.run_in_terminal(&["export", "a"]).await?;
    ensure!(code == 1 && shown.contains("add `-f FILE`"), "{shown}");
    Ok(())
}
