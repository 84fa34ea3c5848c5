use yoi_wire::approval::ApprovalRequest;
use yoi_wire::control::ControlAction;
use yoi_wire::engine_api::{MAX_OPEN_CALLS, RunToolRefusal};
use yoi_wire::entry::{Body, CallFrom, RefusalClass, RunOutcome, ToolOutcome};
use yoi_wire::hub::Activity;

use super::super::*;
use super::simulation::{Simulation, answer, calls, message};

fn approval(call: u64, approve: bool) -> ApprovalRequest {
    ApprovalRequest { call, approve, always: false, because: None }
}

/// How the call of this asker has ended.
fn end_of(simulation: &Simulation, ask: AskId) -> (ToolOutcome, String) {
    let end = simulation.run_of(ask).unwrap().unwrap().end.unwrap();
    (end.outcome, end.output.unwrap())
}

/// Sequence numbers of the entries of this kind.
fn of_kind(simulation: &Simulation, kind: &str) -> Vec<u64> {
    simulation.log.iter().filter(|entry| entry.body.kind() == kind).map(|entry| entry.seq).collect()
}

fn idle() -> Simulation {
    let mut simulation = Simulation::idle(Vec::new());
    simulation.run_process();
    simulation
}

#[test]
fn p67_a_call_that_no_model_asked_for_has_its_decision_and_its_end_in_the_log_and_no_model_reads_it() {
    let mut simulation = idle();
    simulation.script = vec![Ok(calls(&["one"])), Ok(answer("done"))].into();
    let ask = simulation.run_tool(1, "by-api");
    assert!(simulation.kinds().ends_with("RuntimeStarted ToolRequested ToolStarted ToolEnded"), "{}", simulation.kinds());
    assert_eq!(end_of(&simulation, ask).0, ToolOutcome::Succeeded);
    let refused = simulation.run_tool(2, "bad");
    assert!(simulation.kinds().ends_with("ToolRequested ToolEnded"), "{}", simulation.kinds());
    assert_eq!(simulation.run_of(refused).unwrap().unwrap().end.unwrap().refused, Some(RefusalClass::InvalidArgs));
    for entry in &simulation.log {
        let decision = match &entry.body {
            Body::ToolStarted(start) => start.decision.clone(),
            Body::ToolEnded(end) => end.decision.clone(),
            _ => continue,
        };
        assert_eq!(decision.unwrap().from, CallFrom::Engine, "{entry:?}");
    }
    simulation.inbox.push(message("m"));
    simulation.wake();
    assert_eq!(simulation.outcomes(), [RunOutcome::Finished]);
    assert!(
        simulation.last_request().iter().all(|item| !item.contains("engine-") && !item.contains("by-api")),
        "{:?}",
        simulation.last_request()
    );
    assert_eq!(simulation.ran, ["by-api", "one"]);
}

#[test]
fn the_same_id_is_the_same_call_also_after_a_restart_and_in_another_segment_and_another_call_by_it_is_refused() {
    let mut simulation = Simulation { hold: true, ..idle() };
    let first = simulation.run_tool(1, "ls");
    let again = simulation.run_tool(1, "ls");
    assert!(simulation.run_of(first).is_none() && simulation.run_of(again).is_none() && simulation.ran == ["ls"]);
    assert_eq!(simulation.state.activity(), Activity::Running);
    simulation.end(0);
    simulation.settle();
    assert_eq!(end_of(&simulation, first), end_of(&simulation, again));
    assert_eq!(simulation.state.activity(), Activity::Idle);
    simulation.send(ConversationEvent::SegmentFull);
    let head = simulation.log.iter().rposition(|entry| matches!(entry.body, Body::SegmentStarted(_))).unwrap();
    simulation.first_seq = simulation.log[head].seq;
    simulation.log.drain(..head);
    simulation.run_process();
    let logged = simulation.log.len();
    let later = simulation.run_tool(1, "ls");
    assert_eq!(end_of(&simulation, later), end_of(&simulation, first));
    let other = simulation.run_tool(1, "rm");
    assert!(matches!(simulation.run_of(other), Some(Err(RunToolRefusal::Invalid(why))) if why.contains("another call")));
    assert_eq!((simulation.log.len(), simulation.ran.len()), (logged, 1));
}

#[test]
fn what_is_no_call_and_what_is_one_too_many_is_refused_by_name_and_leaves_nothing_in_the_log() {
    let mut simulation = Simulation { hold: true, ..idle() };
    let logged = simulation.log.len();
    let call = |id: &str, tool: &str, args: serde_json::Value| CallRequest { id: id.to_owned(), tool: tool.to_owned(), args };
    let id = uuid::Uuid::from_u128(1).to_string();
    for (request, word) in [
        (call("x", "Shell", serde_json::json!({})), "UUID"),
        (call(&id, "../log", serde_json::json!({})), "name of a tool"),
        (call(&id, "Shell", serde_json::json!({"command": "x".repeat(65 << 10)})), "bytes"),
    ] {
        simulation.asks += 1;
        simulation.send(ConversationEvent::CallRequested { ask: simulation.asks, user: "jane".to_owned(), request });
        let told = simulation.run_of(simulation.asks);
        assert!(matches!(&told, Some(Err(RunToolRefusal::Invalid(why))) if why.contains(word)), "{told:?}");
    }
    assert_eq!(simulation.log.len(), logged);
    for n in 0..MAX_OPEN_CALLS as u128 {
        simulation.run_tool(n, "ls");
    }
    let logged = simulation.log.len();
    let one_more = simulation.run_tool(99, "ls");
    assert_eq!((simulation.run_of(one_more), simulation.log.len()), (Some(Err(RunToolRefusal::Full)), logged));
    simulation.end(0);
    simulation.settle();
    let now = simulation.run_tool(99, "ls");
    assert!(simulation.run_of(now).is_none() && simulation.log.len() > logged);
}

#[test]
fn p71_a_call_by_the_api_that_waits_for_a_person_waits_over_a_restart_and_another_segment_and_runs_once() {
    let mut simulation = idle();
    let ask = simulation.run_tool(1, "ask-a");
    let question = simulation.waiting()[0];
    assert_eq!(simulation.run_of(ask).unwrap().unwrap().asked, Some(question));
    assert_eq!(simulation.state.activity(), Activity::NeedsInput);
    simulation.run_process();
    simulation.send(ConversationEvent::SegmentFull);
    let head = simulation.log.iter().rposition(|entry| matches!(entry.body, Body::SegmentStarted(_))).unwrap();
    simulation.first_seq = simulation.log[head].seq;
    simulation.log.drain(..head);
    simulation.run_process();
    assert_eq!((simulation.waiting(), simulation.ran.len()), (vec![question], 0));
    let again = simulation.run_tool(1, "ask-a");
    assert_eq!(simulation.run_of(again).unwrap().unwrap().asked, Some(question));
    simulation.approve("bob", approval(question, true)).unwrap();
    let end = simulation.run_tool(1, "ask-a");
    assert_eq!((end_of(&simulation, end).0, simulation.ran.clone()), (ToolOutcome::Succeeded, vec!["ask-a".to_owned()]));
    assert!(simulation.approve("bob", approval(question, true)).unwrap().repeated);
    let denied = simulation.run_tool(2, "ask-b");
    let question = simulation.run_of(denied).unwrap().unwrap().asked.unwrap();
    simulation.approve("bob", approval(question, false)).unwrap();
    let denied = simulation.run_tool(2, "ask-b");
    assert_eq!(end_of(&simulation, denied), (ToolOutcome::Refused, "not_approved: the call did not run: bob denied it".to_owned()));
    // Its time passes.
    let late = simulation.run_tool(3, "ask-c");
    let question = simulation.run_of(late).unwrap().unwrap().asked.unwrap();
    simulation.send(ConversationEvent::ApprovalExpired { question });
    let late = simulation.run_tool(3, "ask-c");
    assert!(end_of(&simulation, late).1.contains("nobody answered within 60 s"));
    // It is withdrawn.
    let withdrawn = simulation.run_tool(4, "ask-d");
    let question = simulation.run_of(withdrawn).unwrap().unwrap().asked.unwrap();
    simulation.withdrawn.push("ask-d".to_owned());
    simulation.approve("bob", approval(question, true)).unwrap();
    let withdrawn = simulation.run_tool(4, "ask-d");
    assert_eq!(end_of(&simulation, withdrawn), (ToolOutcome::Refused, "withdrawn".to_owned()));
    assert_eq!((simulation.ran.len(), simulation.state.activity()), (1, Activity::Idle));
}

#[test]
fn p39_a_call_that_had_begun_when_the_process_died_is_outcome_unknown_and_not_run_again() {
    let mut simulation = Simulation { hold: true, ..idle() };
    simulation.run_tool(1, "ls");
    simulation.run_process();
    assert_eq!(simulation.ran, ["ls"]);
    let ask = simulation.run_tool(1, "ls");
    assert_eq!(end_of(&simulation, ask).0, ToolOutcome::Unknown);
    // A stop tells whoever waits.
    let ask = simulation.run_tool(2, "ls");
    simulation.send(ConversationEvent::Stopping);
    assert_eq!(end_of(&simulation, ask).0, ToolOutcome::Unknown);
    // What was cut before it was decided about did not run.
    let mut simulation = idle();
    simulation.run_tool(1, "ls");
    let at = simulation.log.iter().position(|entry| entry.body.kind() == "ToolRequested").unwrap();
    simulation.log.truncate(at + 1);
    simulation.ran.clear();
    simulation.run_process();
    let ask = simulation.run_tool(1, "ls");
    assert_eq!((end_of(&simulation, ask).0, simulation.ran.len()), (ToolOutcome::Refused, 0));
}

#[test]
fn p33_a_run_and_a_call_by_the_api_leave_each_other_alone() {
    let mut simulation = Simulation { hold: true, ..Simulation::new(vec![calls(&["one"]), answer("done")]) };
    simulation.run_process();
    simulation.end(0);
    simulation.settle();
    let ask = simulation.run_tool(1, "ls");
    assert_eq!(simulation.ran, ["one", "ls"]);
    // The run waits for its own call only, and a cancel ends its own call only.
    simulation.ask("c", ControlAction::Cancel {});
    simulation.hold = false;
    simulation.settle();
    assert_eq!(simulation.outcomes(), [RunOutcome::Cancelled]);
    assert_eq!(end_of(&simulation, ask).0, ToolOutcome::Succeeded);
    // A run that is paused holds no call back.
    let mut simulation = Simulation { hold: true, ..Simulation::new(vec![calls(&["one"]), answer("done")]) };
    simulation.run_process();
    simulation.end(0);
    simulation.settle();
    simulation.ask("p", ControlAction::Pause {});
    simulation.hold = false;
    simulation.settle();
    let ask = simulation.run_tool(1, "ls");
    assert_eq!((end_of(&simulation, ask).0, simulation.state.activity()), (ToolOutcome::Succeeded, Activity::Paused));
    // A question about a call of the run does not hold it back either, nor the other way round.
    let mut simulation = Simulation::new(vec![calls(&["ask-a"]), answer("done")]);
    simulation.run_process();
    simulation.run_tool(1, "ask-b");
    let ask = simulation.run_tool(2, "ls");
    assert_eq!((end_of(&simulation, ask).0, simulation.waiting().len()), (ToolOutcome::Succeeded, 2));
    simulation.approve("jane", approval(simulation.waiting()[0], true)).unwrap();
    assert_eq!((simulation.outcomes(), simulation.waiting().len()), (vec![RunOutcome::Finished], 1));
    assert_eq!(of_kind(&simulation, "RunEnded").len(), 1);
}
