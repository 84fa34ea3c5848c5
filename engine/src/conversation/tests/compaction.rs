use yoi_wire::control::ControlAction;
use yoi_wire::entry::{Body, CompactionOutcome, PromptItem, RunOutcome, SegmentReason};

use super::super::*;
use super::simulation::{Simulation, answer, calls, failed, message, with_tokens};

fn long(text: &str) -> String {
    text.repeat(2000)
}

fn compacted(simulation: &Simulation) -> Vec<CompactionOutcome> {
    let ends = simulation.log.iter().filter_map(|entry| match &entry.body {
        Body::CompactionEnded(end) => Some(end.outcome),
        _ => None,
    });
    ends.collect()
}

/// An idle agent that has read and answered three long messages.
fn after_three_messages() -> Simulation {
    let mut simulation = Simulation::idle(vec![answer(&long("one ")), answer(&long("two ")), answer(&long("three "))]);
    for id in ["m1", "m2", "m3"] {
        simulation.inbox.push(message(id));
        if id == "m1" { simulation.run_process() } else { simulation.wake() }
    }
    simulation
}

#[test]
fn f10_a_compaction_carries_the_summary_and_the_latest_turns_into_a_new_segment() {
    let mut simulation = after_three_messages();
    simulation.settings.compaction.keep = Some(3200);
    simulation.run_process();
    simulation.script = vec![Ok(answer("what happened")), Ok(answer("read"))].into();
    let before = simulation.log.len();
    let response = simulation.ask("c", ControlAction::Compact {}).unwrap();
    assert!(response.done.unwrap().message.contains("was compacted"));
    assert_eq!(simulation.kinds_from(before), "CompactionStarted CompactionEnded SegmentStarted Carried Carried");
    let request = simulation.shown.last().unwrap().clone();
    assert!(!request.offer_tools);
    let Body::CompactionStarted(start) = &simulation.log[before].body else { panic!() };
    assert_eq!(request.items.last(), Some(&PromptItem::User(start.instruction.clone())));
    simulation.inbox.push(message("m4"));
    simulation.wake();
    let read = simulation.last_request();
    assert_eq!(read.len(), 4);
    assert!(read[0].ends_with("\nwhat happened") && read[1].ends_with("text of m3") && read[2].starts_with("A:three "));
    // The same after a restart, and the same request has the same answer.
    let items = simulation.state.prompt().clone();
    simulation.run_process();
    assert_eq!(simulation.state.prompt(), &items);
    assert_eq!(simulation.ask("c", ControlAction::Compact {}).unwrap().done.unwrap().message, "the conversation was compacted");
}

#[test]
fn a_compaction_begins_between_two_turns_when_the_next_would_be_over_the_threshold() {
    let mut simulation = Simulation::new(vec![
        with_tokens(answer(&long("first ")), 10),
        with_tokens(calls(&["one"]), 5000),
        answer("short"),
        answer("done"),
    ]);
    simulation.settings.compaction.at = Some(4000);
    simulation.settings.compaction.keep = Some(10);
    simulation.run_process();
    simulation.inbox.push(message("m"));
    simulation.wake();
    assert_eq!((compacted(&simulation), simulation.outcomes()), (vec![CompactionOutcome::Used], vec![RunOutcome::Finished; 2]));
    let read = simulation.last_request();
    assert!(read[0].ends_with("\nshort"), "{read:?}");
    assert!(!read.contains(&"R:1".to_owned()) || read.contains(&"A:".to_owned()), "no result without its call: {read:?}");
}

#[test]
fn a_summary_that_is_empty_or_longer_or_calls_tools_is_not_used() {
    for bad in [answer(" "), answer(&long("much longer than that ").repeat(4)), calls(&["one"])] {
        let mut simulation = after_three_messages();
        simulation.script = vec![Ok(bad)].into();
        let prompt = simulation.state.prompt().clone();
        let response = simulation.ask("c", ControlAction::Compact {}).unwrap();
        assert!(response.done.unwrap().message.contains("was not compacted"));
        assert_eq!(compacted(&simulation), [CompactionOutcome::Rejected]);
        assert_eq!(simulation.state.prompt(), &prompt);
        assert!(simulation.ran.is_empty());
    }
}

#[test]
fn a_prompt_that_is_too_long_is_summed_up_with_its_texts_cut_and_if_that_does_not_help_the_context_is_full() {
    let too_long = || Err(failed(ModelFailureKind::TooLong));
    let mut simulation = after_three_messages();
    simulation.inbox.push(message("m4"));
    simulation.script = vec![too_long(), Ok(answer("what happened")), Ok(answer("done"))].into();
    simulation.wake();
    assert_eq!(
        (compacted(&simulation), simulation.outcomes().last().copied()),
        (vec![CompactionOutcome::Used], Some(RunOutcome::Finished))
    );

    let mut simulation = after_three_messages();
    simulation.inbox.push(message("m4"));
    simulation.script = vec![too_long(), too_long(), too_long(), Ok(answer("what happened")), too_long()].into();
    simulation.wake();
    let sizes: Vec<usize> = simulation.shown.iter().rev().skip(1).take(3).map(|request| format!("{:?}", request.items).len()).collect();
    assert!(sizes[0] < sizes[1] && sizes[1] < sizes[2], "each try cuts more: {sizes:?}");
    assert_eq!(simulation.ends().last(), Some(&(RunOutcome::Failed, Some("ContextFull".to_owned()))));

    let mut simulation = after_three_messages();
    simulation.inbox.push(message("m4"));
    simulation.script = vec![too_long(), too_long(), too_long(), too_long(), Ok(answer("never"))].into();
    simulation.wake();
    assert_eq!(simulation.ends().last(), Some(&(RunOutcome::Failed, Some("ContextFull".to_owned()))));
    assert_eq!(simulation.script.len(), 1);
}

#[test]
fn a_window_that_an_endpoint_has_named_is_kept_from_then_on() {
    let mut simulation = after_three_messages();
    simulation.inbox.push(message("m4"));
    let named = ModelFailed { window_tokens: Some(8192), ..failed(ModelFailureKind::TooLong) };
    simulation.script =
        vec![Err(named), Ok(answer("what happened")), Ok(with_tokens(answer("done"), 7000)), Ok(answer("again")), Ok(answer("read"))]
            .into();
    simulation.wake();
    // The last answer has used four fifths of the window: it is compacted before the endpoint refuses anything.
    assert_eq!((compacted(&simulation), simulation.outcomes().len()), (vec![CompactionOutcome::Used; 2], 4));
    simulation.inbox.push(message("m5"));
    simulation.wake();
    assert_eq!((simulation.outcomes().last(), simulation.script.len()), (Some(&RunOutcome::Finished), 0));
}

#[test]
fn a_compaction_that_a_restart_interrupts_has_failed_and_one_that_is_used_is_finished_by_the_next_process() {
    let mut simulation = after_three_messages();
    simulation.hold = true;
    simulation.script.clear();
    assert!(simulation.ask("c", ControlAction::Compact {}).is_none());
    simulation.run_process();
    assert_eq!(compacted(&simulation), [CompactionOutcome::Failed]);

    let mut simulation = after_three_messages();
    simulation.script = vec![Ok(answer("what happened"))].into();
    simulation.ask("c", ControlAction::Compact {});
    let end = simulation.log.iter().position(|entry| matches!(entry.body, Body::CompactionEnded(_))).unwrap();
    simulation.log.truncate(end + 1);
    simulation.run_process();
    let reasons: Vec<_> = simulation
        .log
        .iter()
        .filter_map(|entry| if let Body::SegmentStarted(start) = &entry.body { Some(start.reason) } else { None })
        .collect();
    assert_eq!(reasons, [SegmentReason::SessionStarted, SegmentReason::Compacted]);
    assert!(matches!(&simulation.state.prompt().items()[0], PromptItem::User(text) if text.ends_with("what happened")));
}

#[test]
fn a_full_segment_is_followed_by_one_that_carries_all_also_in_the_middle_of_calls() {
    let mut simulation = Simulation::new(vec![calls(&["read-1", "read-2"]), answer("done")]);
    simulation.hold = true;
    simulation.run_process();
    simulation.end(0);
    simulation.settle();
    assert_eq!(simulation.effects.len(), 2);
    simulation.send(ConversationEvent::SegmentFull);
    assert!(simulation.kinds().ends_with("SegmentStarted Carried Carried"));
    (simulation.hold, simulation.waits) = (false, false);
    simulation.settle();
    assert_eq!((simulation.outcomes(), simulation.ran.len()), (vec![RunOutcome::Finished], 2));
}
