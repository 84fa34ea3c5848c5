//! The engine's calls over the line: events, projections and tools.

use http::StatusCode;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use yoi_test_support::{eventually, in_time};
use yoi_wire::engine_api::{PROJECTIONS, ToolList};
use yoi_wire::hub::runtime_api;
use yoi_wire::signal::{CloudEvent, DELTA_TYPE};

use crate::gateway::person;
use crate::harness::Harness;
use crate::readers::start_reader;

const SCRIPT: &str = r#"
rules:
- when: {lastUserContains: read the secret}
  steps:
  - toolCalls:
    - {tool: Read, args: {path: .env}}
    - {tool: Shell, args: {command: echo done}}
  - text: I may not.
"#;

async fn get(harness: &Harness, path: &str) -> (StatusCode, String) {
    let look = async || {
        let (status, body) = harness.gateway.request("GET", path, "").await;
        // The line may be up before the session is replayed.
        (status != StatusCode::SERVICE_UNAVAILABLE).then(|| (status, String::from_utf8_lossy(&body).into_owned()))
    };
    eventually("an answer", look).await
}

async fn events(harness: &Harness, query: &str) -> Vec<CloudEvent> {
    let (status, body) = get(harness, &format!("{}?{query}", runtime_api::EVENTS)).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let frames = body.split_terminator("\n\n").map(|frame| {
        let (id, data) = frame.split_once('\n').unwrap();
        let event: CloudEvent = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(id, format!("id: {}", event.cursor));
        event
    });
    frames.collect()
}

async fn projections(harness: &Harness) -> Vec<String> {
    let mut found = Vec::new();
    for key in PROJECTIONS {
        let (status, body) = get(harness, &format!("{}/{key}", runtime_api::PROJECTION)).await;
        assert_eq!(status, StatusCode::OK, "{key}: {body}");
        found.push(body);
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn p63_p67_a_run_is_followed_by_its_events_and_what_a_stopped_agent_says_of_itself_is_the_same() {
    let harness = Harness::new(SCRIPT).await;
    let mut runtime = harness.start(1, Some("read the secret"));
    harness.wait_for_runs(1).await;
    let whole = events(&harness, "").await;
    let kinds: Vec<&str> = whole.iter().map(|event| event.kind.as_str()).collect();
    for kinds_in_order in [
        ["conversation.user.message", "conversation.run.opened", "conversation.llm.completed", "conversation.tool.requested"],
        ["conversation.tool.requested", "security.sensitive_path_denied", "policy.denied", "conversation.tool.failed"],
        ["policy.allowed", "conversation.execution.started", "conversation.tool.completed", "conversation.run.closed"],
    ] {
        let mut rest = kinds.iter();
        assert!(kinds_in_order.iter().all(|wanted| rest.any(|kind| kind == wanted)), "{kinds_in_order:?} in {kinds:?}");
    }
    // Whoever subscribes again gets the same, and after a cursor the rest.
    assert_eq!(events(&harness, "").await, whole);
    let middle = whole.iter().position(|event| event.kind == "policy.denied").unwrap();
    assert!(whole[middle].cursor.contains('~'), "the entry has more events: {}", whole[middle].cursor);
    assert_eq!(events(&harness, &format!("after={}", whole[middle].cursor)).await, whole[middle + 1..]);

    let tools: ToolList = serde_json::from_str(&get(&harness, runtime_api::TOOLS).await.1).unwrap();
    assert!(tools.tools.iter().any(|tool| tool.name == "Shell" && tool.schema["type"] == "object"), "{tools:?}");
    let timeline: Value = serde_json::from_str(&projections(&harness).await[0]).unwrap();
    assert_eq!(timeline.as_array().unwrap().last().unwrap()["kind"], "RunEnded");

    let before = harness.entries().len();
    let message = |body: &str| serde_json::from_str::<Value>(body).unwrap()["message"].as_str().unwrap().to_owned();
    let other = runtime_api::of_conversation(runtime_api::EVENTS, "other");
    let unknown = "0197c0de-0000-7000-8000-000000000001.3";
    for (path, status, words) in [
        (format!("{}/state", runtime_api::PROJECTION), StatusCode::NOT_FOUND, "there is no projection \"state\"; there are timeline"),
        (other.clone(), StatusCode::NOT_FOUND, "there is no conversation other"),
        (format!("{}?after=x", runtime_api::EVENTS), StatusCode::BAD_REQUEST, "x"),
        (format!("{}?after={unknown}", runtime_api::EVENTS), StatusCode::GONE, unknown),
    ] {
        let (code, body) = get(&harness, &path).await;
        assert!(code == status && message(&body).contains(words), "{path}: {code} {body}");
    }
    assert_eq!(harness.entries().len(), before, "nothing is logged of what was asked");
    harness.stop(&mut runtime).await;
    harness.gateway.forget_line();

    let _reader = start_reader(&harness, Some(harness.tree()));
    let stopped = events(&harness, "follow=true").await;
    assert_eq!(stopped[..whole.len()], whole);
    let timeline: Value = serde_json::from_str(&projections(&harness).await[0]).unwrap();
    assert!(timeline.as_array().unwrap().iter().any(|entry| entry["kind"] == json!("RunEnded")));
    assert_eq!(get(&harness, &other).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn pieces_of_an_answer_are_events_over_the_line_for_whoever_asks_for_them() {
    let harness = Harness::new(SCRIPT).await;
    let _runtime = harness.start(1, None);
    harness.gateway.wait_for_report(|report| report.ready).await;
    let mut body = harness.gateway.events("follow=true&deltas=true").await;
    harness.gateway.deliver("m", person(), "read the secret").await;
    let mut seen = String::new();
    while !(seen.contains("conversation.run.closed") && seen.ends_with("\n\n")) {
        let frame = in_time("more events", body.frame()).await.unwrap().unwrap();
        seen.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
    }
    let events = seen.split("\n\n").filter_map(|frame| serde_json::from_str::<CloudEvent>(frame.split_once("data: ")?.1).ok());
    let pieces: Vec<CloudEvent> = events.filter(|event| event.kind == DELTA_TYPE).collect();
    assert_eq!(pieces.iter().filter_map(|event| event.data["text"].as_str()).collect::<String>(), "I may not.");
}

async fn post(harness: &Harness, path: &str, body: Value) -> (StatusCode, Value) {
    let send = async || {
        let (status, body) = harness.gateway.request_as("jane", "POST", path, body.to_string()).await;
        (status != StatusCode::SERVICE_UNAVAILABLE).then(|| (status, serde_json::from_slice(&body).unwrap_or_default()))
    };
    eventually("an answer", send).await
}

fn id(n: u128) -> String {
    uuid::Uuid::from_u128(n).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn p67_a_tool_is_run_over_the_line_once_by_an_id_and_waits_for_a_person_where_the_policy_says_so() {
    let policy = json!({"ask": ["Shell(echo two*)"], "deny": ["Write"]});
    let harness = Harness { manifest_settings: json!({"policy": policy}), ..Harness::new(SCRIPT).await };
    let mut runtime = harness.start(1, None);
    let shell = format!("{}/Shell", runtime_api::TOOLS);
    let one = json!({"id": id(1), "args": {"command": "echo one >> made; cat made"}});
    let (status, first) = post(&harness, &shell, one.clone()).await;
    assert_eq!((status, &first["end"]["outcome"]), (StatusCode::OK, &json!("succeeded")), "{first}");
    assert!(first["end"]["output"].as_str().unwrap().starts_with("one\n"), "{first}");
    assert_eq!(post(&harness, &shell, one.clone()).await, (StatusCode::OK, first.clone()));
    let (_, denied) =
        post(&harness, &format!("{}/Write", runtime_api::TOOLS), json!({"id": id(2), "args": {"path": "x", "content": "x"}})).await;
    assert_eq!((&denied["end"]["outcome"], &denied["end"]["refused"]), (&json!("refused"), &json!("ToolDenied")), "{denied}");
    let two = json!({"id": id(3), "args": {"command": "echo two"}});
    let (_, asked) = post(&harness, &shell, two.clone()).await;
    let number = asked["asked"].as_u64().unwrap();
    harness.gateway.wait_for_report(|report| report.activity == yoi_wire::hub::Activity::NeedsInput).await;
    // It waits over a restart, and what had ended is known.
    harness.stop(&mut runtime).await;
    harness.gateway.forget_line();
    let mut runtime = harness.start(2, None);
    assert_eq!(post(&harness, &shell, one).await, (StatusCode::OK, first));
    assert_eq!(post(&harness, &shell, two.clone()).await.1["asked"], json!(number));
    assert_eq!(post(&harness, runtime_api::APPROVAL, json!({"call": number, "approve": true})).await.0, StatusCode::OK);
    let (_, ended) = post(&harness, &shell, two).await;
    assert_eq!(ended["end"]["outcome"], "succeeded", "{ended}");
    assert_eq!(std::fs::read_to_string(harness.tree().join("made")).unwrap(), "one\n");
    harness.gateway.wait_for_report(|report| report.activity == yoi_wire::hub::Activity::Idle).await;

    let before = harness.entries().len();
    let other = runtime_api::of_conversation(&shell, "other");
    for (path, body, status, words) in [
        (&shell, json!({"id": "x", "args": {}}), StatusCode::BAD_REQUEST, "UUID"),
        (&shell, json!({"id": id(3), "args": {"command": "rm"}}), StatusCode::BAD_REQUEST, "another call"),
        (&shell, json!({"id": id(4)}), StatusCode::UNPROCESSABLE_ENTITY, "missing field"),
        (&other, json!({"id": id(4), "args": {}}), StatusCode::NOT_FOUND, "there is no conversation other"),
    ] {
        let (code, refused) = post(&harness, path, body).await;
        assert!(code == status && refused["message"].as_str().unwrap().contains(words), "{path}: {code} {refused}");
    }
    assert_eq!(harness.entries().len(), before);
    harness.stop(&mut runtime).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p30_an_event_from_outside_has_its_effect_once_and_the_offer_of_tools_follows_the_mode_that_it_sets() {
    let harness = Harness::new(SCRIPT).await;
    let mut runtime = harness.start(1, None);
    let event = |n: u128, kind: &str, data: Value| json!({"id": id(n), "type": kind, "data": data});
    let message = json!({"id": uuid::Uuid::now_v7().to_string(), "type": "conversation.user.message", "data": {"text": "read the secret"}});
    assert_eq!(post(&harness, runtime_api::EVENTS, message.clone()).await.0, StatusCode::OK);
    harness.wait_for_runs(1).await;
    let (_, again) = post(&harness, runtime_api::EVENTS, message).await;
    assert_eq!(again["duplicate"], true, "{again}");
    let offers_write = async || get(&harness, runtime_api::TOOLS).await.1.contains("\"Write\"");
    assert!(offers_write().await);
    let planning = event(1, "conversation.mode.switch.requested", json!({"mode": "planning"}));
    assert_eq!(post(&harness, runtime_api::EVENTS, planning).await.0, StatusCode::OK);
    assert!(!offers_write().await);
    let before = harness.entries().len();
    for (event, status, words) in [
        (event(2, "conversation.run.opened", json!({})), StatusCode::BAD_REQUEST, "is internal"),
        (event(2, "conversation.dance", json!({})), StatusCode::BAD_REQUEST, "there is no event"),
        (json!({"id": id(2), "type": "conversation.user.message", "text": "flat"}), StatusCode::BAD_REQUEST, "stands in its data"),
        (event(2, "conversation.resume", json!({})), StatusCode::CONFLICT, "no run is paused"),
        (
            event(3, "conversation.user.message", json!({"text": "x".repeat(65537)})),
            StatusCode::PAYLOAD_TOO_LARGE,
            "65536 bytes are allowed",
        ),
    ] {
        let (code, refused) = post(&harness, runtime_api::EVENTS, event.clone()).await;
        assert!(code == status && refused["message"].as_str().unwrap().contains(words), "{event}: {code} {refused}");
    }
    assert_eq!(harness.entries().len(), before);
    harness.stop(&mut runtime).await;
}
