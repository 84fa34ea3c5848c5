//! The policy of a manifest, from the call of the model to the log.

use serde_json::json;
use yoi_engine::conversation::policy_of;
use yoi_wire::entry::{Body, CallDecision, CallFrom, Entry, RefusalClass, ToolOutcome};
use yoi_wire::identity::POLICY_FILE;

use crate::gateway::person;
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

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_changes_in_the_pod_takes_effect_without_a_restart_and_stays_in_force_over_one() {
    let script =
        "rules:\n- when: {lastUserContains: go}\n  steps:\n  - toolCalls: [{tool: Shell, args: {command: 'true'}}]\n  - text: done\n";
    let harness = Harness::new(script).await;
    let file = harness.dir.path().join(POLICY_FILE);
    std::fs::write(&file, "{}").unwrap();
    let changes = |entries: &[Entry]| entries.iter().filter(|entry| policy_of(&entry.body).is_some()).count();
    let mut runtime = harness.start(1, Some("go"));
    let entries = harness.wait_for_runs(1).await;
    assert_eq!(changes(&entries), 0, "the manifest names no policy either");
    std::fs::write(&file, r#"{"deny":["Wriet"]}"#).unwrap();
    harness.wait_until("a policy that is none is told", |_| harness.stderr().contains("the last one stays in force")).await;
    std::fs::write(&file, r#"{"deny":["Shell"]}"#).unwrap();
    harness.wait_until("the policy is in the log", |entries| changes(entries) == 1).await;
    harness.gateway.deliver("m1", person(), "go on").await;
    harness.wait_for_runs(2).await;
    harness.stop(&mut runtime).await;
    harness.gateway.forget_line();
    // Its manifest is still the one without a policy.
    let _next = harness.start(2, Some("go"));
    harness.wait_until("the next process says it, too", |entries| changes(entries) == 2).await;
    harness.gateway.wait_for_report(|report| report.run_generation == 2 && report.ready).await;
    harness.gateway.deliver("m2", person(), "go on again").await;
    let entries = harness.wait_for_runs(3).await;
    let outcomes: Vec<ToolOutcome> = tool_ends(&entries).iter().map(|end| end.outcome).collect();
    assert_eq!(outcomes, [ToolOutcome::Succeeded, ToolOutcome::Refused, ToolOutcome::Refused]);
}
