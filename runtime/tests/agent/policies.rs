//! The policy of a manifest, from the call of the model to the log.

use serde_json::json;
use yoi_wire::entry::{Body, CallDecision, CallFrom, RefusalClass, ToolOutcome};

use crate::harness::{Harness, tool_ends};

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_the_policy_denies_is_refused_to_the_model_and_the_log_has_each_decision() {
    let script = r#"
rules:
- steps:
  - toolCalls:
    - {tool: Shell, args: {command: echo one}}
    - {tool: Shell, args: {command: echo two && touch made}}
    - {tool: Write, args: {path: made, content: x}}
  - text: done
"#;
    let policy = json!({"deny": ["Shell(touch *)"], "allow": [["Shell", "Read"]]});
    let harness = Harness { manifest_settings: json!({"policy": policy}), ..Harness::new(script).await };
    let _runtime = harness.start(1, Some("go"));
    let entries = harness.wait_for_runs(1).await;
    let ends = tool_ends(&entries);
    let outcomes: Vec<ToolOutcome> = ends.iter().map(|end| end.outcome).collect();
    assert_eq!(outcomes, [ToolOutcome::Succeeded, ToolOutcome::Refused, ToolOutcome::Refused]);
    assert!(ends[1].output.starts_with("tool_denied: ") && ends[1].output.ends_with("Shell(touch *)"), "{}", ends[1].output);
    let decisions: Vec<CallDecision> = entries
        .iter()
        .filter_map(|entry| match &entry.body {
            Body::ToolStarted(start) => start.decision.clone(),
            Body::ToolEnded(end) => end.decision.clone(),
            _ => None,
        })
        .collect();
    let refused = |class, rule: Option<&str>| CallDecision { from: CallFrom::Model, refused: Some(class), rule: rule.map(str::to_owned) };
    let expected = [
        CallDecision::allowed(CallFrom::Model),
        refused(RefusalClass::ToolDenied, Some("Shell(touch *)")),
        refused(RefusalClass::ToolNotExposed, None),
    ];
    assert_eq!(decisions, expected);
    assert!(!harness.tree().join("made").exists());
    let offered = harness.requests.lock().unwrap()[0]["tools"].as_array().unwrap().len();
    assert_eq!(offered, 2, "the model is offered only what it may call");
}
