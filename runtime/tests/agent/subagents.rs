//! Sub-agents of an agent, by the templates of its manifest.

use serde_json::{Value, json};
use yoi_test_support::eventually;
use yoi_wire::engine_api::ToolList;
use yoi_wire::entry::Body;
use yoi_wire::hub::runtime_api;

use crate::harness::Harness;

/// The sub-agent writes what `main` reads.
const SCRIPT: &str = r#"
rules:
- when: {lastUserContains: have it written}
  steps:
  - toolCalls:
    - {tool: SpawnSubagent, args: {template: writer, task: write the note}}
  - toolCalls:
    - {tool: WaitSubagents, args: {all: true}}
  - toolCalls:
    - {tool: Read, args: {path: note}}
  - text: read
- when: {lastUserContains: write the note}
  steps:
  - toolCalls:
    - {tool: Write, args: {path: note, content: by the other}}
  - toolCalls:
    - {tool: Shell, args: {command: touch more}}
  - text: the note is written
"#;

async fn get(harness: &Harness, path: &str) -> Value {
    let (_, body) = harness.gateway.request("GET", path, "").await;
    serde_json::from_slice(&body).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn p38_an_agent_starts_a_sub_agent_of_its_manifest_which_has_the_tools_of_its_template_alone() {
    let writer = json!({"name": "writer", "description": "Writes.", "tools": ["Write", "Read"], "seconds": 60});
    let harness = Harness { manifest_settings: json!({"subagents": [writer]}), ..Harness::new(SCRIPT).await };
    let mut runtime = harness.start(1, Some("have it written"));
    harness.wait_for_runs(1).await;
    let entries = harness.entries();
    let outputs: Vec<&str> =
        entries.iter().filter_map(|entry| if let Body::ToolEnded(end) = &entry.body { Some(end.output.as_str()) } else { None }).collect();
    assert!(
        matches!(outputs.as_slice(), [begun, answer, note] if begun.starts_with("sub-1 has begun") && answer.contains("the note is written") && note.contains("by the other")),
        "{outputs:?}"
    );
    assert!(!harness.tree().join("more").exists(), "it has no Shell");
    let status = get(&harness, &format!("{}/subagent_status", runtime_api::PROJECTION)).await;
    assert_eq!(
        (&status[0]["name"], &status[0]["state"], &status[0]["template"]),
        (&json!("sub-1"), &json!("completed"), &json!("writer")),
        "{status}"
    );
    let tools: ToolList = serde_json::from_value(get(&harness, runtime_api::TOOLS).await).unwrap();
    assert!(tools.tools.iter().any(|tool| tool.name == "SpawnSubagent" && tool.description.contains("writer")), "{tools:?}");
    // Its own log is that of a conversation.
    let log = eventually("its log", async || {
        let (status, body) =
            harness.gateway.request("GET", &format!("{}?follow=false", runtime_api::of_conversation(runtime_api::LOG, "sub-1")), "").await;
        status.is_success().then(|| String::from_utf8_lossy(&body).into_owned())
    })
    .await;
    assert!(log.contains("the note is written") && !log.contains("have it written"), "{log}");
    harness.stop(&mut runtime).await;
}
