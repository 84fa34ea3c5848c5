//! Conversations of an agent beside `main`.

use http::StatusCode;
use serde_json::{Value, json};
use yoi_test_support::eventually;
use yoi_wire::approval::WaitingCalls;
use yoi_wire::conversation::{ConversationList, ConversationState};
use yoi_wire::entry::{Body, Entry};
use yoi_wire::hub::{Activity, DeliverRequest, runtime_api};
use yoi_wire::people::LogLine;

use crate::gateway::person;
use crate::harness::{Harness, outcomes};
use crate::readers::start_reader;

/// `main` waits in its command for what the other conversation does in the same tree.
const SCRIPT: &str = r#"
rules:
- when: {lastUserContains: wait for it}
  steps:
  - toolCalls:
    - {tool: Shell, args: {command: "until test -e made; do sleep 0.05; done"}}
  - text: it is there
- when: {lastUserContains: make it}
  steps:
  - toolCalls:
    - {tool: Shell, args: {command: touch made}}
  - text: made
"#;

async fn call(harness: &Harness, method: &str, path: &str, body: Value) -> (StatusCode, Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let look = async || {
        let (status, body) = harness.gateway.request_as("jane", method, path, body.clone()).await;
        // The line may be up before the session is replayed.
        (status != StatusCode::SERVICE_UNAVAILABLE).then_some((status, body))
    };
    let (status, body) = eventually("an open session", look).await;
    (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
}

fn path(of: &str) -> String {
    runtime_api::of_conversation(of, "review")
}

async fn states(harness: &Harness) -> Vec<(String, ConversationState)> {
    let (status, list) = call(harness, "GET", runtime_api::CONVERSATIONS, Value::Null).await;
    assert_eq!(status, StatusCode::OK, "{list}");
    let list: ConversationList = serde_json::from_value(list).unwrap();
    list.conversations.into_iter().map(|status| (status.name, status.state.known().unwrap())).collect()
}

async fn log(harness: &Harness) -> Vec<Entry> {
    let (status, body) = harness.gateway.request("GET", &format!("{}?follow=false", path(runtime_api::LOG)), "").await;
    assert_eq!(status, StatusCode::OK, "{body:?}");
    let lines = body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice::<LogLine>(line).unwrap().entry).collect()
}

fn both(states: ConversationState) -> Vec<(String, ConversationState)> {
    vec![("main".to_owned(), ConversationState::Running), ("review".to_owned(), states)]
}

#[tokio::test(flavor = "multi_thread")]
async fn p60_a_second_conversation_works_beside_main_asks_for_itself_outlives_a_kill_and_is_read_after_its_stop() {
    let policy = json!({"ask": ["Shell(touch *)"], "approvalSeconds": 3600});
    let harness = Harness { manifest_settings: json!({"policy": policy}), ..Harness::new(SCRIPT).await };
    let mut runtime = harness.start(1, Some("wait for it"));
    assert_eq!(call(&harness, "POST", &path(""), Value::Null).await.0, StatusCode::OK);
    assert_eq!(call(&harness, "POST", &path(""), Value::Null).await.0, StatusCode::CONFLICT);
    assert_eq!(call(&harness, "POST", &runtime_api::of_conversation("", "No"), Value::Null).await.0, StatusCode::BAD_REQUEST);
    let message =
        DeliverRequest { message_id: "m".to_owned(), from: person(), text: "make it".to_owned(), only_when_idle: false, weak: false };
    let sent = call(&harness, "POST", &path(runtime_api::INBOX), serde_json::to_value(message).unwrap()).await;
    assert_eq!(sent.0, StatusCode::OK, "{}", sent.1);
    harness.gateway.wait_for_report(|report| report.activity == Activity::NeedsInput).await;
    // It goes on by itself, as `main` does.
    runtime.kill();
    harness.gateway.forget_line();
    let mut runtime = harness.start(2, Some("wait for it"));
    eventually("both run again", async || (states(&harness).await == both(ConversationState::Running)).then_some(())).await;

    let look = async || {
        let (_, calls) = call(&harness, "GET", runtime_api::APPROVAL, Value::Null).await;
        let calls: WaitingCalls = serde_json::from_value(calls).unwrap();
        calls.calls.into_iter().next()
    };
    let waiting = eventually("the question of the other conversation", look).await;
    assert_eq!(waiting.conversation.as_deref(), Some("review"));
    let yes = json!({"call": waiting.call, "approve": true});
    assert_eq!(call(&harness, "POST", runtime_api::APPROVAL, yes.clone()).await.0, StatusCode::NOT_FOUND, "`main` asks nothing");
    assert_eq!(call(&harness, "POST", &path(runtime_api::APPROVAL), yes).await.0, StatusCode::OK);
    harness.wait_until("the end of main's run", |entries| entries.iter().any(|entry| matches!(entry.body, Body::RunEnded(_)))).await;
    let ended = eventually("the end of the other run", async || Some(log(&harness).await).filter(|log| !outcomes(log).is_empty())).await;
    let text = |entries: &[Entry]| serde_json::to_string(entries).unwrap();
    assert!(text(&ended).contains("make it") && !text(&ended).contains("wait for it"), "{}", text(&ended));
    assert!(!text(&harness.entries()).contains("make it"), "{}", text(&harness.entries()));

    assert_eq!(call(&harness, "DELETE", &path(""), Value::Null).await.0, StatusCode::OK);
    assert_eq!(states(&harness).await, both(ConversationState::Stopped));
    let (status, refusal) = call(&harness, "POST", &path(runtime_api::CONTROL), json!({"id": "i", "action": {"type": "pause"}})).await;
    assert_eq!(status, StatusCode::CONFLICT, "{refusal}");
    assert_eq!(text(&log(&harness).await), text(&ended));
    assert_eq!(call(&harness, "DELETE", &runtime_api::of_conversation("", "main"), Value::Null).await.0, StatusCode::CONFLICT);
    let (status, refusal) = call(&harness, "DELETE", &runtime_api::of_conversation("", "other"), Value::Null).await;
    assert_eq!((status, &refusal["message"]), (StatusCode::NOT_FOUND, &json!("there is no conversation other; there are main, review")));
    harness.stop(&mut runtime).await;
    harness.gateway.forget_line();

    // Of an agent that has stopped, the reader reads them, too.
    let _reader = start_reader(&harness, Some(harness.tree()));
    let names: Vec<String> = states(&harness).await.into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["main", "review"]);
    assert_eq!(text(&log(&harness).await), text(&ended));
    assert_eq!(harness.gateway.request("GET", &path(runtime_api::EXPORT), "").await.0, StatusCode::OK);
    let unknown = runtime_api::of_conversation(runtime_api::LOG, "other");
    assert_eq!(harness.gateway.request("GET", &unknown, "").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn as_many_conversations_run_as_the_limit_says_and_the_report_names_them() {
    let limits = json!({"turnsPerRun": 20, "toolSeconds": 30, "toolOutputBytes": 4096, "conversations": 1});
    let harness = Harness { limits, ..Harness::new(SCRIPT).await };
    let mut runtime = harness.start(1, None);
    assert_eq!(call(&harness, "POST", &path(""), Value::Null).await.0, StatusCode::OK);
    harness.gateway.wait_for_report(|report| report.conversations == ["review"]).await;
    let second = runtime_api::of_conversation("", "second");
    let (status, refused) = call(&harness, "POST", &second, Value::Null).await;
    assert!(status == StatusCode::CONFLICT && refused["message"].as_str().unwrap().contains("1 run beside main"), "{status} {refused}");
    assert_eq!(call(&harness, "DELETE", &path(""), Value::Null).await.0, StatusCode::OK);
    assert_eq!(call(&harness, "POST", &second, Value::Null).await.0, StatusCode::OK);
    harness.gateway.wait_for_report(|report| report.conversations == ["second"]).await;
    harness.stop(&mut runtime).await;
}
