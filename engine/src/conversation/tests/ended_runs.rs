use serde_json::json;
use yoi_wire::entry::{Assistant, Body, RunOutcome, StopReason, ToolCall, ToolOutcome};
use yoi_wire::hub::TaskState;

use super::super::*;
use super::simulation::{Simulation, answer, calls, failed, message, stopped, with_tokens};

#[test]
fn p36_the_turn_limit_ends_the_run_without_another_model_call() {
    let mut simulation = Simulation::new(vec![calls(&["one"]), calls(&["two"]), answer("never")]);
    simulation.settings.turns_per_run = 2;
    simulation.run_process();
    assert_eq!((simulation.outcomes(), simulation.shown.len()), (vec![RunOutcome::LimitReached], 2));
    assert_eq!(simulation.task_state(), (Some(TaskState::Failed), Some("LimitReached".to_owned())));
}

#[test]
fn the_token_limit_ends_runs_also_after_a_restart_and_a_higher_one_lets_them_go_on() {
    let mut simulation = Simulation::new(vec![with_tokens(calls(&["one"]), 99), answer("read")]);
    simulation.settings.tokens = Some(100);
    simulation.run_process();
    assert_eq!(simulation.ends(), [(RunOutcome::LimitReached, Some("LimitReached".to_owned()))]);
    simulation.inbox.push(message("m"));
    simulation.run_process();
    assert_eq!((simulation.outcomes().len(), simulation.shown.len()), (2, 1), "no model call after the restart");
    simulation.settings.tokens = Some(1000);
    simulation.inbox.push(message("n"));
    simulation.run_process();
    assert_eq!(simulation.outcomes().last(), Some(&RunOutcome::Finished));
}

#[test]
fn tries_that_use_up_the_tokens_end_the_run_as_the_limit_does() {
    let mut simulation = Simulation::new(Vec::new());
    simulation.script = vec![Err(failed(ModelFailureKind::LimitReached)), Ok(answer("never"))].into();
    simulation.run_process();
    assert_eq!(simulation.ends(), [(RunOutcome::LimitReached, Some("LimitReached".to_owned()))]);
    assert_eq!(simulation.task_state(), (Some(TaskState::Failed), Some("LimitReached".to_owned())));
}

#[test]
fn a_task_that_failed_stays_failed_and_no_later_run_names_it_again() {
    let mut simulation = Simulation::new(Vec::new());
    simulation.script = vec![Err(failed(ModelFailureKind::Unreachable)), Ok(answer("both"))].into();
    simulation.run_process();
    assert_eq!((simulation.outcomes(), simulation.task_state().0), (vec![RunOutcome::Failed], Some(TaskState::Failed)));
    simulation.run_process();
    assert_eq!(simulation.outcomes().len(), 1, "a restart does not start it again");
    simulation.inbox.push(message("m"));
    simulation.wake();
    assert_eq!(simulation.outcomes(), [RunOutcome::Failed, RunOutcome::Finished]);
    assert_eq!(simulation.causes(), [["t"], ["m"]]);
    assert_eq!(simulation.task_state().0, Some(TaskState::Failed));
    assert_eq!(simulation.last_request()[0], "do it", "the model still reads it");
}

#[test]
fn an_answer_that_is_cut_off_is_gone_on_with_three_times_and_is_then_no_success() {
    let cut = || stopped("so far", StopReason::Length);
    let mut simulation = Simulation::new(vec![cut(), cut(), cut(), answer("the end")]);
    simulation.run_process();
    assert_eq!((simulation.outcomes(), simulation.task_state().0), (vec![RunOutcome::Finished], Some(TaskState::Succeeded)));
    assert_eq!(simulation.kinds().matches("Assistant SystemItem").count(), 3, "continuations of an answer that was cut off");
    assert!(simulation.last_request().last().unwrap().contains("Go on exactly"));

    let mut simulation = Simulation::new(vec![cut(), cut(), cut(), cut(), answer("never")]);
    simulation.run_process();
    assert_eq!(simulation.ends(), [(RunOutcome::Truncated, Some("Truncated".to_owned()))]);
    assert_eq!(simulation.task_state(), (Some(TaskState::Failed), Some("Truncated".to_owned())));
    simulation.run_process();
    assert_eq!(simulation.outcomes().len(), 1, "nor after a restart");
}

#[test]
fn an_answer_with_neither_word_nor_call_is_asked_to_go_on_twice_and_is_then_no_success() {
    let reasoned = || Assistant {
        parts: vec![yoi_wire::entry::AnswerPart::Opaque { value: json!({"reasoning_content": "I now write the file"}) }],
        ..answer(" \n")
    };
    let mut simulation = Simulation::new(vec![calls(&["one"]), answer(""), reasoned(), calls(&["two"]), reasoned(), answer("done")]);
    simulation.run_process();
    assert_eq!((simulation.outcomes(), simulation.ran.len()), (vec![RunOutcome::Finished], 2));
    assert!(simulation.last_request().last().unwrap().contains("neither a word nor a call"));

    let mut simulation = Simulation::new(vec![calls(&["one"]), answer(""), answer(""), answer(""), answer("never")]);
    simulation.run_process();
    assert_eq!(simulation.ends(), [(RunOutcome::Failed, Some("EmptyAnswer".to_owned()))]);
    assert_eq!(simulation.task_state(), (Some(TaskState::Failed), Some("EmptyAnswer".to_owned())));
    simulation.run_process();
    assert_eq!(simulation.outcomes().len(), 1, "nor after a restart");
}

#[test]
fn a_call_that_is_written_as_text_is_told_once_and_is_then_no_success() {
    let written = || answer("<tool_call>{\"name\": \"Shell\", \"arguments\": {\"command\": \"ls\"}}</tool_call>");
    let mut simulation = Simulation::new(vec![written(), calls(&["one"]), written(), answer("done")]);
    simulation.run_process();
    assert_eq!((simulation.outcomes(), simulation.ran.len()), (vec![RunOutcome::Finished], 1));
    assert!(simulation.last_request().last().unwrap().contains("You wrote a call of Shell as text. Nothing ran."));

    let mut simulation = Simulation::new(vec![written(), written(), answer("never")]);
    simulation.run_process();
    assert_eq!(simulation.ends(), [(RunOutcome::Failed, Some("WrittenCall".to_owned()))]);
}

#[test]
fn a_call_whose_arguments_were_cut_off_does_not_run_and_whole_ones_before_it_do() {
    let mut cut = Assistant { stop: Some(StopReason::Length), ..calls(&["whole", "cut"]) };
    cut.tool_calls[1] = ToolCall { args: json!("{\"command\": \"rm -rf /tm"), ..cut.tool_calls[1].clone() };
    let mut simulation = Simulation::new(vec![cut, answer("done")]);
    simulation.run_process();
    assert_eq!((simulation.ran.clone(), simulation.outcomes()), (vec!["whole".to_owned()], vec![RunOutcome::Finished]));
    let refused = simulation.log.iter().find_map(|entry| match &entry.body {
        Body::ToolEnded(end) if end.call_id == "cut" => Some((end.outcome, end.output.clone())),
        _ => None,
    });
    assert!(matches!(refused, Some((ToolOutcome::Refused, output)) if output.contains("cut off at the output limit")));
}

#[test]
fn a_refusal_and_a_withheld_answer_fail_the_run_with_their_reason_and_a_pause_is_asked_again() {
    for (stop, reason) in [(StopReason::Refusal, "Refused"), (StopReason::ContentFilter, "ContentFilter")] {
        let mut simulation = Simulation::new(vec![Assistant { stop: Some(stop), ..calls(&["never"]) }]);
        simulation.run_process();
        assert_eq!(simulation.ends(), [(RunOutcome::Failed, Some(reason.to_owned()))]);
        assert_eq!(simulation.task_state(), (Some(TaskState::Failed), Some(reason.to_owned())));
        assert!(simulation.ran.is_empty() && simulation.kinds().ends_with("Assistant ToolEnded RunEnded"));
    }
    let mut simulation = Simulation::new(vec![stopped("thinking", StopReason::Pause), stopped("done", StopReason::End)]);
    simulation.run_process();
    assert_eq!((simulation.outcomes(), simulation.shown.len()), (vec![RunOutcome::Finished], 2));
}

#[test]
fn a_refused_history_names_the_entry_and_rewind() {
    let mut simulation = Simulation::new(Vec::new());
    simulation.script = vec![Err(failed(ModelFailureKind::HistoryRefused))].into();
    simulation.run_process();
    let Some(Body::RunEnded(end)) = simulation.log.last().map(|entry| &entry.body) else { panic!() };
    let words = end.message.clone().unwrap();
    assert!(end.reason.as_deref() == Some("ModelRefusedHistory") && words.contains("entry 4;") && words.contains(":rewind"), "{words}");
}

#[test]
fn troubles_are_noticed_once_each_and_the_run_stays_open() {
    let mut simulation = Simulation { hold: true, ..Simulation::new(vec![answer("done")]) };
    simulation.run_process();
    let effect = simulation.effects[0].0;
    for message in ["a", "a", "b", "b", "b"] {
        let (reason, message) = ("ModelUnreachable".to_owned(), message.to_owned());
        simulation.send(ConversationEvent::ModelTrouble { effect, reason, message, waits_for_person: false });
    }
    assert!(simulation.kinds().ends_with("RunStarted Notice Notice"));
    simulation.end(0);
    simulation.settle();
    assert_eq!(simulation.outcomes(), [RunOutcome::Finished]);
}
