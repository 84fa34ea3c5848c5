use yoi_wire::approval::{ApprovalRefusal, ApprovalRequest};
use yoi_wire::control::ControlAction;
use yoi_wire::entry::{Body, RunOutcome, ToolOutcome};
use yoi_wire::hub::{Activity, TaskState};

use super::super::*;
use super::simulation::{Simulation, answer, calls, message};

fn yes(call: u64) -> ApprovalRequest {
    ApprovalRequest { call, approve: true, always: false, because: None }
}

fn always(call: u64) -> ApprovalRequest {
    ApprovalRequest { always: true, ..yes(call) }
}

fn no(call: u64, because: &str) -> ApprovalRequest {
    ApprovalRequest { approve: false, because: Some(because.to_owned()), ..yes(call) }
}

/// At the question about the first of these calls; and its number.
fn at_question(ids: &[&str]) -> (Simulation, u64) {
    let mut simulation = Simulation::new(vec![calls(ids), answer("done")]);
    simulation.run_process();
    let question = simulation.waiting()[0];
    (simulation, question)
}

fn results(simulation: &Simulation) -> Vec<(ToolOutcome, String)> {
    let ends = simulation.log.iter().filter_map(|entry| match &entry.body {
        Body::ToolEnded(end) => Some((end.outcome, end.output.clone())),
        _ => None,
    });
    ends.collect()
}

#[test]
fn p69_nothing_runs_of_a_call_that_waits_for_a_person_and_what_comes_after_it_waits_too() {
    let (mut simulation, question) = at_question(&["one", "ask-a", "two"]);
    assert!(simulation.kinds().ends_with("Assistant ToolStarted ToolEnded ToolAsked"), "{}", simulation.kinds());
    assert_eq!((simulation.state.activity(), simulation.waits), (Activity::NeedsInput, true));
    assert_eq!(simulation.ran, ["one"]);
    let waiting = simulation.state.waiting_calls();
    assert_eq!(
        (waiting[0].tool.as_str(), &waiting[0].args["command"], &waiting[0].rules[0]),
        ("Shell", &"ask-a".into(), &"Shell(a)".to_owned())
    );
    let told = simulation.approve("jane", yes(question)).unwrap();
    assert_eq!((told.answer.by.as_str(), told.answer.approved, told.repeated), ("jane", true, false));
    assert!(simulation.kinds().ends_with("ToolAsked ToolAnswered ToolStarted ToolEnded ToolStarted ToolEnded Assistant RunEnded"));
    assert_eq!((simulation.ran.join(" "), simulation.waiting().len()), ("one ask-a two".to_owned(), 0));
    assert_eq!((simulation.task_state().0, simulation.state.activity()), (Some(TaskState::Succeeded), Activity::Idle));
}

#[test]
fn p70_the_first_answer_holds_and_everybody_is_told_whose_it_is() {
    let (mut simulation, question) = at_question(&["ask-a"]);
    let first = simulation.approve("jane", no(question, "not on a Friday")).unwrap();
    for request in [yes(question), no(question, "no")] {
        let second = simulation.approve("bob", request).unwrap();
        assert_eq!((&second.answer, second.repeated), (&first.answer, true));
    }
    assert_eq!(simulation.kinds().matches("ToolAnswered").count(), 1);
    let denied = "not_approved: the call did not run: jane denied it: not on a Friday".to_owned();
    assert_eq!(results(&simulation), [(ToolOutcome::Refused, denied)]);
    assert!(simulation.ran.is_empty());
    assert_eq!(simulation.outcomes(), [RunOutcome::Finished], "the model reads the denial and goes on");
    // The same after a restart, and in another segment.
    simulation.run_process();
    assert!(simulation.approve("bob", yes(question)).unwrap().repeated);
}

#[test]
fn p71_a_call_that_waits_waits_over_a_kill_a_stop_another_segment_and_a_message_and_runs_once() {
    for stop in [false, true] {
        let (mut simulation, question) = at_question(&["ask-a", "two"]);
        if stop {
            simulation.send(ConversationEvent::Stopping);
        }
        simulation.inbox.push(message("m"));
        simulation.run_process();
        simulation.send(ConversationEvent::SegmentFull);
        simulation.wake();
        assert_eq!((simulation.waiting(), simulation.state.activity()), (vec![question], Activity::NeedsInput));
        assert!(simulation.ran.is_empty() && simulation.outcomes().is_empty() && simulation.inbox.len() == 1, "{}", simulation.kinds());
        // The process after it knows only the last segment.
        let head = simulation.log.iter().rposition(|entry| matches!(entry.body, Body::SegmentStarted(_))).unwrap();
        simulation.first_seq = simulation.log[head].seq;
        simulation.log.drain(..head);
        simulation.run_process();
        assert_eq!(simulation.waiting(), [question]);
        simulation.approve("jane", yes(question)).unwrap();
        assert_eq!(simulation.ran, ["ask-a", "two"]);
        assert_eq!((simulation.outcomes(), simulation.inbox.len()), (vec![RunOutcome::Finished], 0));
        assert_eq!(simulation.kinds().matches("ToolAsked").count(), 0, "it was asked once");
    }
}

#[test]
fn p71_an_answer_in_the_log_is_carried_out_by_the_next_process_and_a_call_that_had_begun_is_not_run_again() {
    for (last, ran, outcome) in [("ToolAnswered", vec!["ask-a"], ToolOutcome::Succeeded), ("ToolStarted", vec![], ToolOutcome::Unknown)] {
        let (mut simulation, question) = at_question(&["ask-a"]);
        simulation.approve("jane", yes(question)).unwrap();
        let at = simulation.log.iter().position(|entry| entry.body.kind() == last).unwrap();
        simulation.log.truncate(at + 1);
        simulation.ran.clear();
        simulation.script = vec![Ok(answer("done"))].into();
        simulation.run_process();
        assert_eq!(
            (simulation.ran.clone(), results(&simulation)[0].0),
            (ran.iter().map(|id| (*id).to_owned()).collect(), outcome),
            "{last}"
        );
        assert_eq!(simulation.outcomes().last(), Some(&RunOutcome::Finished));
    }
    let (mut simulation, question) = at_question(&["ask-a"]);
    simulation.approve("jane", no(question, "why")).unwrap();
    let at = simulation.log.iter().position(|entry| entry.body.kind() == "ToolAnswered").unwrap();
    simulation.log.truncate(at + 1);
    simulation.run_process();
    assert!(simulation.ran.is_empty() && results(&simulation)[0].1.contains("jane denied it: why"));
}

#[test]
fn p72_a_cancel_and_the_end_of_its_time_refuse_the_call_and_a_late_answer_is_over() {
    let (mut cancelled, question) = at_question(&["ask-a"]);
    assert!(cancelled.ask("c", ControlAction::Cancel {}).is_some_and(|response| response.done.is_some()) || !cancelled.answers.is_empty());
    assert_eq!((cancelled.outcomes(), cancelled.ran.len()), (vec![RunOutcome::Cancelled], 0));
    assert_eq!(results(&cancelled)[0].0, ToolOutcome::Refused);
    let refused = cancelled.approve("jane", yes(question)).unwrap_err();
    assert!(matches!(&refused, ApprovalRefusal::Over(why) if why.contains("A person ended the run")), "{refused:?}");

    let (mut late, question) = at_question(&["ask-a"]);
    late.send(ConversationEvent::ApprovalExpired { question });
    assert_eq!(results(&late)[0].1, "not_approved: the call did not run: nobody answered within 60 s whether it may");
    assert_eq!((late.outcomes(), late.ran.len()), (vec![RunOutcome::Finished], 0));
    assert!(matches!(late.approve("jane", yes(question)), Err(ApprovalRefusal::Over(_))));
    late.run_process();
    assert!(matches!(late.approve("jane", yes(question)), Err(ApprovalRefusal::Over(_))), "over after a restart, too");
    // The time of a call that was answered does not end.
    let (mut answered, question) = at_question(&["ask-a"]);
    answered.approve("jane", yes(question)).unwrap();
    let entries = answered.log.len();
    answered.send(ConversationEvent::ApprovalExpired { question });
    assert_eq!(answered.log.len(), entries);
}

#[test]
fn p72_a_tool_that_is_withdrawn_while_its_call_waits_does_not_run_although_a_person_approves() {
    let (mut simulation, question) = at_question(&["ask-a"]);
    simulation.withdrawn.push("ask-a".to_owned());
    simulation.approve("jane", yes(question)).unwrap();
    assert_eq!((results(&simulation), simulation.ran.len()), (vec![(ToolOutcome::Refused, "withdrawn".to_owned())], 0));
}

#[test]
fn an_answer_to_no_call_of_this_number_and_one_that_is_none_change_nothing() {
    let (mut simulation, question) = at_question(&["unread-a"]);
    let entries = simulation.log.len();
    for number in [0, 1, question + 1, u64::MAX] {
        assert!(matches!(simulation.approve("jane", yes(number)), Err(ApprovalRefusal::Unknown(_))), "{number}");
    }
    let denied_for_good = ApprovalRequest { always: true, ..no(question, "x") };
    // A command that nobody can read has no rule that an answer could be remembered for.
    for request in [denied_for_good, no(question, &"x".repeat(5000)), always(question)] {
        assert!(matches!(simulation.approve("jane", request), Err(ApprovalRefusal::Invalid(_))));
    }
    assert_eq!((simulation.log.len(), simulation.waiting()), (entries, vec![question]));
    simulation.approve("jane", yes(question)).unwrap();
    assert_eq!(simulation.ran, ["unread-a"]);
}

#[test]
fn an_answer_for_all_calls_is_for_its_rule_alone_and_lasts_as_long_as_the_conversation() {
    let script = vec![calls(&["ask-a", "ask-two-a", "unread-a", "ask-b"]), answer("done"), calls(&["ask-three-a"]), answer("done")];
    let mut simulation = Simulation::new(script);
    simulation.run_process();
    simulation.approve("jane", always(simulation.waiting()[0])).unwrap();
    assert_eq!(simulation.ran, ["ask-a", "ask-two-a"]);
    simulation.approve("jane", yes(simulation.waiting()[0])).unwrap();
    assert_eq!(simulation.ran.last().unwrap(), "unread-a", "it was asked about all the same");
    simulation.approve("jane", yes(simulation.waiting()[0])).unwrap();
    // In another process, which knows only another segment.
    simulation.send(ConversationEvent::SegmentFull);
    let head = simulation.log.iter().rposition(|entry| matches!(entry.body, Body::SegmentStarted(_))).unwrap();
    simulation.first_seq = simulation.log[head].seq;
    simulation.log.drain(..head);
    simulation.inbox.push(message("m"));
    simulation.run_process();
    assert_eq!((simulation.ran.last().unwrap().as_str(), simulation.waiting().len()), ("ask-three-a", 0));
}

#[test]
fn calls_that_only_read_wait_each_for_their_own_answer_and_a_pause_keeps_the_question() {
    let (mut simulation, first) = at_question(&["read-1", "read-ask-a", "read-2", "read-ask-b"]);
    assert_eq!(simulation.ran, ["read-1", "read-2"]);
    let second = simulation.waiting()[1];
    simulation.approve("jane", no(second, "no")).unwrap();
    assert_eq!(simulation.waiting(), [first]);
    assert!(simulation.ask("p", ControlAction::Pause {}).is_some());
    assert_eq!((simulation.state.activity(), simulation.waiting()), (Activity::Paused, vec![first]));
    simulation.approve("jane", yes(first)).unwrap();
    assert_eq!(simulation.ran.len(), 2, "a paused run begins nothing");
    simulation.run_process();
    simulation.ask("r", ControlAction::Resume {});
    assert_eq!(simulation.ran.last().unwrap(), "read-ask-a");
    assert_eq!(simulation.outcomes(), [RunOutcome::Finished]);
}
