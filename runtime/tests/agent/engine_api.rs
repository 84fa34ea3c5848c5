//! The engine's calls over the line: events, projections and tools.

use http::StatusCode;
use serde_json::{Value, json};
use yoi_test_support::eventually;
use yoi_wire::engine_api::{PROJECTIONS, ToolList};
use yoi_wire::hub::runtime_api;
use yoi_wire::signal::CloudEvent;

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
