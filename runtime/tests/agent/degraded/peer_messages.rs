//! Messages to peers that may or may not have arrived.

use std::collections::BTreeSet;

use serde_json::json;
use yoi_wire::entry::ToolOutcome;

use super::invariants::assert_invariants;
use crate::gateway::SendFate;
use crate::gateway::person;
use crate::harness::{Harness, tool_ends};

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_may_have_arrived_keeps_its_id_for_the_run_and_is_delivered_once() {
    let script = r#"
rules:
- steps:
  - toolCalls: [{tool: SendToPeerPod, args: {to: c, message: hi}}]
  - toolCalls: [{tool: SendToPeerPod, args: {to: c, message: hi}}]
  - toolCalls: [{tool: SendToPeerPod, args: {to: c, message: other}}]
  - toolCalls: [{tool: SendToPeerPod, args: {to: c, message: hi}}]
  - toolCalls: [{tool: SendToPeerPod, args: {to: c, message: hi}}]
  - text: done
"#;
    let harness = Harness { limits: json!({"turnsPerRun": 20, "toolSeconds": 2, "toolOutputBytes": 4096}), ..Harness::new(script).await };
    harness.gateway.set_fates([SendFate::Lost, SendFate::Unacknowledged, SendFate::Delivered, SendFate::Delivered, SendFate::Lost]);
    let _runtime = harness.start(1, Some("go"));
    let entries = harness.wait_for_runs(1).await;
    let ends = tool_ends(&entries);
    let outcomes: Vec<ToolOutcome> = ends.iter().map(|end| end.outcome).collect();
    use ToolOutcome::{Succeeded, Unknown};
    assert_eq!(outcomes, [Unknown, Unknown, Succeeded, Succeeded, Unknown], "{ends:?}");
    assert!(
        ends[0].output.contains("It is not known whether the message reached \"c\": there was no answer within 2 s"),
        "{}",
        ends[0].output
    );
    let ids: Vec<String> = harness.gateway.sends().into_iter().map(|send| send.message_id).collect();
    // The same text keeps its id until it is known to have arrived.
    assert_eq!((&ids[0], &ids[0]), (&ids[1], &ids[3]));
    assert!(ids[..2].iter().zip(&ends).all(|(id, end)| end.output.contains(id)), "{ends:?}");
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 3, "{ids:?}");

    // In a later run, the same text is another message.
    harness.gateway.set_fates([SendFate::Delivered]);
    harness.gateway.deliver("again", person(), "go on").await;
    harness.wait_for_runs(2).await;
    let later = harness.gateway.sends()[5].message_id.clone();
    assert!(!ids.contains(&later));
    assert_invariants(&harness);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_after_a_try_without_an_answer_keeps_the_id_and_is_no_failure() {
    let script = r#"
rules:
- steps:
  - toolCalls: [{tool: SendToPeerPod, args: {to: b, message: hi}}]
  - toolCalls: [{tool: SendToPeerPod, args: {to: b, message: hi}}]
  - toolCalls: [{tool: SendToPeerPod, args: {to: b, message: hi}}]
  - text: done
"#;
    let harness = Harness { limits: json!({"turnsPerRun": 20, "toolSeconds": 2, "toolOutputBytes": 4096}), ..Harness::new(script).await };
    // It arrives without an answer; then the inbox is full.
    harness.gateway.set_fates([SendFate::Lost]);
    let _runtime = harness.start(1, Some("go"));
    let entries = harness.wait_for_runs(1).await;
    let ends = tool_ends(&entries);
    assert!(ends.iter().all(|end| end.outcome == ToolOutcome::Unknown), "{ends:?}");
    assert!(ends[1].output.contains("an earlier try had no answer, and the last one failed (no)"), "{}", ends[1].output);
    let ids: BTreeSet<String> = harness.gateway.sends().into_iter().map(|send| send.message_id).collect();
    assert_eq!(ids.len(), 1, "the receiver would take it twice: {ids:?}");
    assert_invariants(&harness);
}
