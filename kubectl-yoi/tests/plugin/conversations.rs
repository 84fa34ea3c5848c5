//! `conversation`, and `--conversation` on the verbs about one.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::api_server::{ApiServer, status};
use crate::plugin::Plugin;

fn conversation(name: &str, state: &str) -> Value {
    json!({ "name": name, "state": state })
}

#[tokio::test]
async fn conversations_are_started_listed_and_stopped() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    server.answer_for("a", "conversations/review", 200, conversation("review", "Running").to_string());
    let started = plugin.run(&["conversation", "start", "a", "review"]).await?.expect_code(0)?;
    let said = "conversation review of YoiPod ns/a is started; talk to it: kubectl yoi send a --conversation review TEXT -n ns\n";
    ensure!(started.out == said, "{started:?}");
    let stopped = plugin.run(&["conversation", "stop", "a", "review"]).await?.expect_code(0)?;
    ensure!(stopped.out.contains("is stopped; read it: kubectl yoi log a --conversation review -n ns"), "{stopped:?}");
    let path = "/apis/runtime.yoi.dev/v1alpha1/namespaces/ns/yoipods/a/conversations/review";
    ensure!(server.writes() == [format!("POST {path}"), format!("DELETE {path}")], "{:?}", server.writes());

    let mut main = conversation("main", "Running");
    main["activity"] = json!("Idle");
    main["mode"] = json!("planning");
    main["tokens"] = json!({ "inputTokens": 30, "outputTokens": 12 });
    let mut failed = conversation("lost", "Failed");
    failed["message"] = json!("failed to append\u{1b}[2J");
    server.answer_for("a", "conversations", 200, json!({ "conversations": [main, failed, conversation("new", "Folded")] }).to_string());
    let list = plugin.run(&["conversation", "ls", "a"]).await?.expect_code(0)?;
    let lines: Vec<Vec<&str>> = list.out.lines().map(|line| line.split_whitespace().collect()).collect();
    ensure!(lines[0] == ["CONVERSATION", "STATE", "ACTIVITY", "MODE", "TOKENS", "MESSAGE"], "{list:?}");
    ensure!(
        lines[1] == ["main", "Running", "Idle", "planning", "42", "-"] && lines[3] == ["new", "Folded", "-", "-", "-", "-"],
        "{list:?}"
    );
    ensure!(lines[2][..2] == ["lost", "Failed"] && list.out.contains("failed to append^[[2J"), "{list:?}");
    let json = plugin.run(&["conversation", "ls", "a", "-o", "json"]).await?.expect_code(0)?.json()?;
    ensure!(json["items"][1]["message"] == "failed to append\u{1b}[2J", "{json}");

    let words = "YoiPod ns/a: conversation review was not started: 16 run beside main, which is the most; stop one first";
    server.answer_for("a", "conversations/review", 409, status(409, "Conflict", words));
    let refused = plugin.run(&["conversation", "start", "a", "review"]).await?;
    ensure!(refused.code != 0 && refused.err.contains("16 run beside main"), "{refused:?}");
    Ok(())
}

#[tokio::test]
async fn a_verb_about_a_conversation_asks_for_that_one_alone() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    let done = json!({ "id": "i", "done": { "message": "it is so" } }).to_string();
    server.answer_for("a", "control/review", 200, done);
    for verb in ["pause", "resume", "cancel", "compact"] {
        plugin.run(&[verb, "a", "--conversation", "review"]).await?.expect_code(0)?;
    }
    plugin.run(&["mode", "a", "planning", "--conversation", "review", "--force"]).await?.expect_code(0)?;
    let request = server.requests_for("a", "control/review").pop().map(|request| request.body["action"].clone());
    ensure!(request == Some(json!({ "type": "setMode", "mode": "planning", "force": true })), "{request:?}");
    let unknown = plugin.run(&["mode", "a", "dreaming"]).await?.expect_code(2)?;
    ensure!(["coding", "planning", "engineering"].iter().all(|mode| unknown.err.contains(mode)), "p29: {unknown:?}");
    server.answer_for("a", "message/review", 201, json!({ "messageId": "m", "duplicate": false }).to_string());
    plugin.run(&["send", "a", "--conversation", "review", "hello"]).await?.expect_code(0)?;
    let answered = json!({ "call": 7, "answer": { "approved": true, "by": "jane" } }).to_string();
    server.answer_for("a", "approval/review", 200, answered);
    plugin.run(&["approve", "a", "7", "--conversation", "review"]).await?.expect_code(0)?;
    server.answer_for("a", "log/review", 200, "");
    plugin.run(&["log", "a", "--conversation", "review"]).await?.expect_code(0)?;
    let of_others = server.requests().into_iter().filter(|request| request.path.contains("/yoipods/a/"));
    let paths: Vec<String> = of_others.map(|request| request.path).collect();
    ensure!(!paths.is_empty() && paths.iter().all(|path| path.ends_with("/review")), "{paths:?}");
    Ok(())
}

#[tokio::test]
async fn a_conversation_that_is_not_there_is_named_with_the_command_that_lists_those_there_are() -> Result<()> {
    let server = ApiServer::start().await?;
    let plugin = Plugin::new(&server)?;
    let words = "YoiPod ns/a: there is no conversation review; there are main";
    for subresource in ["log/review", "message/review", "control/review", "conversations/review"] {
        server.answer_for("a", subresource, 404, status(404, "NotFound", words));
    }
    for line in [
        "log a --conversation review",
        "send a --conversation review hello",
        "cancel a --conversation review",
        "mode a planning --conversation review",
        "conversation stop a review",
    ] {
        let said = plugin.run(&line.split(' ').collect::<Vec<_>>()).await?.expect_code(3)?;
        let expected = "error: conversation review of YoiPod ns/a does not exist\n  next: kubectl yoi conversation ls a -n ns\n";
        ensure!(said.err == expected, "{line}: {said:?}");
    }
    Ok(())
}
