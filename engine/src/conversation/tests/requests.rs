use yoi_wire::control::{ControlAction, ControlReason};
use yoi_wire::entry::{Body, RunOutcome, ToolOutcome};
use yoi_wire::hub::{Activity, TaskState};

use super::super::*;
use super::simulation::{Simulation, answer, calls, failed, message};

fn run(text: &str) -> ControlAction {
    ControlAction::Run { text: text.to_owned() }
}

/// A task whose first model call is under way.
fn at_the_model(script: Vec<yoi_wire::entry::Assistant>) -> Simulation {
    let mut simulation = Simulation { hold: true, ..Simulation::new(script) };
    simulation.run_process();
    assert!(simulation.kinds().ends_with("RunStarted") && simulation.effects.len() == 1);
    simulation
}

/// A task whose first call runs, and whose second has not begun.
fn at_a_tool() -> Simulation {
    let mut simulation = at_the_model(vec![calls(&["one", "two"]), answer("done")]);
    simulation.end(0);
    simulation.settle();
    assert_eq!(simulation.ran, ["one"]);
    simulation
}

#[test]
fn e1_a_second_run_is_already_running_and_the_first_goes_on() {
    let mut simulation = at_the_model(vec![answer("done")]);
    let before = simulation.log.len();
    assert_eq!(simulation.refusal("r", run("more")), Some(ControlReason::AlreadyRunning));
    assert_eq!(simulation.log.len(), before, "nothing is logged");
    for action in [ControlAction::Resume {}, ControlAction::Compact {}, ControlAction::RewindTargets {}] {
        assert_eq!(simulation.refusal(&format!("{action:?}"), action), Some(ControlReason::AlreadyRunning));
    }
    simulation.end(0);
    simulation.settle();
    assert_eq!(simulation.outcomes(), [RunOutcome::Finished]);
}

#[test]
fn e2_p34_an_idle_agent_is_not_paused_and_not_running() {
    let mut simulation = Simulation::idle(vec![answer("done")]);
    simulation.run_process();
    assert_eq!(simulation.refusal("a", ControlAction::Resume {}), Some(ControlReason::NotPaused));
    assert_eq!(simulation.refusal("b", ControlAction::Cancel {}), Some(ControlReason::NotRunning));
    assert_eq!(simulation.refusal("c", ControlAction::Pause {}), Some(ControlReason::NotRunning));
    assert_eq!(simulation.kinds_from(2), "RuntimeStarted");
    let response = simulation.ask("d", run("hello")).unwrap();
    assert!(response.done.is_some());
    assert_eq!(simulation.kinds_from(3), "Input RunStarted Assistant RunEnded");
    assert_eq!(simulation.causes(), [["d"]]);
}

#[test]
fn e3_without_any_output_a_pause_or_cancel_takes_the_input_back_and_earlier_turns_stay() {
    for action in [ControlAction::Pause {}, ControlAction::Cancel {}] {
        let mut simulation = Simulation::new(vec![answer("first")]);
        simulation.run_process();
        simulation.hold = true;
        simulation.ask("r", run("second"));
        let response = simulation.ask("p", action.clone());
        let response = response.unwrap_or_else(|| {
            // The background processes end before a cancel is answered.
            simulation.end(0);
            simulation.settle();
            simulation.answers.last().unwrap().1.clone()
        });
        assert_eq!(response.done.unwrap().input.as_deref(), Some("second"), "it is handed back");
        assert!(simulation.kinds().ends_with("RolledBack RunEnded"), "{}", simulation.kinds());
        assert_eq!(simulation.outcomes(), [RunOutcome::Finished, RunOutcome::RolledBack]);
        assert_eq!((simulation.state.activity(), simulation.task_state().0), (Activity::Idle, Some(TaskState::Succeeded)));
        (simulation.hold, simulation.script) = (false, vec![Ok(answer("third"))].into());
        simulation.inbox.push(message("m"));
        simulation.wake();
        assert_eq!(simulation.causes().last().unwrap(), &["m"]);
        assert!(!simulation.last_request().contains(&"second".to_owned()) && simulation.last_request()[1] == "A:first");
    }
}

#[test]
fn a_task_that_was_rolled_back_or_cancelled_has_failed_as_cancelled_and_does_not_start_again() {
    let mut simulation = at_the_model(Vec::new());
    simulation.ask("p", ControlAction::Pause {});
    assert_eq!(simulation.task_state(), (Some(TaskState::Failed), Some("Cancelled".to_owned())));
    let mut cancelled = at_a_tool();
    cancelled.hold = false;
    cancelled.ask("c", ControlAction::Cancel {});
    assert_eq!(cancelled.task_state(), (Some(TaskState::Failed), Some("Cancelled".to_owned())));
    for mut simulation in [simulation, cancelled] {
        simulation.hold = false;
        simulation.run_process();
        assert_eq!((simulation.outcomes().len(), simulation.causes().len()), (1, 1));
        assert_eq!(simulation.task_state(), (Some(TaskState::Failed), Some("Cancelled".to_owned())));
    }
}

#[test]
fn e4_g3_with_some_output_a_pause_keeps_the_input_and_resume_goes_on() {
    let mut simulation = at_the_model(vec![answer("done")]);
    let effect = simulation.effects[0].0;
    simulation.send(ConversationEvent::OutputBegan { effect });
    assert!(simulation.ask("p", ControlAction::Pause {}).unwrap().done.unwrap().input.is_none());
    assert!(simulation.kinds().ends_with("RunStarted Paused") && simulation.state.activity() == Activity::Paused);
    // The answer that comes all the same changes nothing.
    let before = simulation.log.len();
    simulation.send(ConversationEvent::Answered { effect, answer: answer("late") });
    assert_eq!(simulation.log.len(), before);
    // Also over a restart.
    simulation.hold = false;
    simulation.run_process();
    assert!(simulation.state.activity() == Activity::Paused && simulation.shown.len() == 1);
    simulation.inbox.push(message("m"));
    simulation.wake();
    assert_eq!(simulation.inbox.len(), 1, "g3: it is queued");
    assert!(simulation.ask("r", ControlAction::Resume {}).unwrap().done.is_some());
    assert_eq!(simulation.outcomes(), [RunOutcome::Finished]);
    assert_eq!(simulation.last_request(), ["do it", "[message from agent b]\ntext of m"]);
}

#[test]
fn e4_a_pause_ends_running_tools_and_calls_that_have_not_begun_go_on_with_resume() {
    let mut simulation = at_a_tool();
    assert!(simulation.ask("p", ControlAction::Pause {}).is_some());
    assert!(simulation.kinds().ends_with("ToolStarted ToolEnded Paused"), "{}", simulation.kinds());
    simulation.hold = false;
    simulation.ask("r", ControlAction::Resume {});
    assert_eq!((simulation.ran.clone(), simulation.outcomes()), (vec!["one".to_owned(), "two".to_owned()], vec![RunOutcome::Finished]));
}

#[test]
fn e5_a_run_while_paused_answers_open_calls_notes_the_interruption_and_takes_the_input() {
    let mut simulation = at_a_tool();
    simulation.ask("p", ControlAction::Pause {});
    let before = simulation.log.len();
    simulation.hold = false;
    assert!(simulation.ask("r", run("something else")).unwrap().done.is_some());
    assert!(simulation.kinds_from(before).starts_with("ToolEnded SystemItem Input Resumed Assistant RunEnded"));
    let Body::ToolEnded(end) = &simulation.log[before].body else { panic!() };
    assert_eq!((end.call_id.as_str(), end.outcome), ("two", ToolOutcome::Refused));
    assert_eq!(simulation.ran, ["one"]);
    let read = simulation.last_request();
    assert!(read[2] == "R:2" && read[3].contains("interrupted") && read[4] == "something else", "{read:?}");
    assert_eq!(simulation.task_state().0, Some(TaskState::Succeeded));
}

#[test]
fn e6_p34_a_cancel_while_paused_is_logged_without_a_model_call_and_resume_is_not_paused() {
    let mut simulation = at_a_tool();
    simulation.ask("p", ControlAction::Pause {});
    let calls = simulation.shown.len();
    simulation.hold = false;
    let response = simulation.ask("c", ControlAction::Cancel {}).or_else(|| simulation.answers.last().map(|(_, answer)| answer.clone()));
    assert!(response.unwrap().done.unwrap().message.contains("cancelled"));
    assert!(simulation.kinds().ends_with("Paused ToolEnded Abandoned RunEnded"), "{}", simulation.kinds());
    assert_eq!((simulation.shown.len(), simulation.state.activity()), (calls, Activity::Idle));
    assert_eq!(simulation.refusal("r", ControlAction::Resume {}), Some(ControlReason::NotPaused));
}

#[test]
fn p33_a_cancel_is_answered_once_every_tool_and_its_background_processes_are_gone_and_late_ends_change_nothing() {
    let mut simulation = at_a_tool();
    let late = simulation.effects[0].0;
    let ask = simulation.ask_as("c", ControlAction::Cancel {});
    assert!(simulation.answer_of(ask).is_none() && simulation.effects.len() == 1, "the background processes are still there");
    assert!(simulation.kinds().ends_with("ToolStarted ToolEnded"), "{}", simulation.kinds());
    simulation.end(0);
    simulation.settle();
    assert!(simulation.answer_of(ask).unwrap().done.is_some());
    assert!(simulation.kinds().ends_with("ToolEnded ToolEnded RunEnded"));
    assert_eq!(simulation.ends(), [(RunOutcome::Cancelled, Some("Cancelled".to_owned()))]);
    let before = simulation.log.len();
    let end =
        CallEnd { outcome: ToolOutcome::Succeeded, output: "late".to_owned(), images: Vec::new(), refused: None, read: None, millis: 1 };
    simulation.send(ConversationEvent::Ended { effect: late, end });
    assert_eq!(simulation.log.len(), before);
}

#[test]
fn e10_compact_is_refused_while_running_or_paused() {
    let mut simulation = at_a_tool();
    assert_eq!(simulation.refusal("a", ControlAction::Compact {}), Some(ControlReason::AlreadyRunning));
    simulation.ask("p", ControlAction::Pause {});
    assert_eq!(simulation.refusal("b", ControlAction::Compact {}), Some(ControlReason::Paused));
    assert!(!simulation.kinds().contains("Compaction"));
}

#[test]
fn a11_registering_a_peer_is_refused_while_running_and_allowed_idle_and_paused() {
    let peer = || ControlAction::RegisterPeer { peer: "b".to_owned() };
    let mut simulation = at_a_tool();
    assert_eq!(simulation.refusal("a", peer()), Some(ControlReason::AlreadyRunning));
    simulation.ask("p", ControlAction::Pause {});
    assert!(simulation.ask("b", peer()).unwrap().done.is_some());
    simulation.ask("c", ControlAction::Cancel {});
    simulation.hold = false;
    simulation.end(0);
    simulation.settle();
    assert!(simulation.ask("d", peer()).unwrap().done.is_some());
}

#[test]
fn e11_a_rewind_hides_from_an_input_on_hands_it_back_and_says_what_remains() {
    let mut simulation = Simulation::idle(vec![answer("one"), calls(&["write", "read-x"]), answer("two"), answer("three")]);
    simulation.run_process();
    simulation.ask("r1", run("first"));
    simulation.ask("r2", run("second"));
    let targets = simulation.ask("l", ControlAction::RewindTargets {}).unwrap().done.unwrap().rewind.unwrap();
    assert_eq!(targets.inputs.iter().map(|target| target.text.as_str()).collect::<Vec<_>>(), ["first", "second"]);
    let to = |head: u64, segment: &str, seq: u64| ControlAction::RewindTo { segment: segment.to_owned(), seq, head };
    let (head, segment, seq) = (targets.head, targets.segment.as_str(), targets.inputs[1].seq);
    let before = simulation.log.len();
    assert_eq!(simulation.refusal("x", to(head - 1, segment, seq)), Some(ControlReason::HeadChanged));
    assert_eq!(simulation.refusal("y", to(head, "other", seq)), Some(ControlReason::HeadChanged));
    assert_eq!(simulation.refusal("z", to(head, segment, seq + 1)), Some(ControlReason::Invalid));
    assert_eq!(simulation.log.len(), before, "nothing is logged");
    let done = simulation.ask("w", to(head, segment, seq)).unwrap().done.unwrap();
    assert_eq!(done.input.as_deref(), Some("second"));
    assert!(done.remaining_effects.len() == 1 && done.remaining_effects[0].starts_with("Shell "), "{:?}", done.remaining_effects);
    assert_eq!(simulation.kinds_from(before), "Rewound");
    // The same id gets the same answer, also after a restart, and has its effect once.
    simulation.run_process();
    assert_eq!(simulation.ask("w", to(head, segment, seq)).unwrap().done.unwrap(), done);
    simulation.ask("r3", run("third"));
    assert_eq!(simulation.last_request(), ["first", "A:one", "third"]);
}

#[test]
fn p30_the_same_request_gets_the_same_answer_also_after_a_restart_and_an_id_is_for_one_request() {
    let mut simulation = Simulation::idle(vec![answer("one"), answer("two")]);
    simulation.run_process();
    let first = simulation.ask("r", run("hello")).unwrap();
    let refused = simulation.ask("p", ControlAction::Pause {}).unwrap();
    for restart in [false, true] {
        if restart {
            simulation.run_process();
        }
        assert_eq!(simulation.ask("r", run("hello")).unwrap(), first);
        assert_eq!(simulation.refusal("r", run("other")), Some(ControlReason::Invalid));
        assert_eq!(simulation.refusal("r", ControlAction::Cancel {}), Some(ControlReason::Invalid));
        assert_eq!(simulation.ask("p", ControlAction::Pause {}).unwrap(), refused);
    }
    assert_eq!(simulation.causes().len(), 1);
    for bad in [run(" "), run(&"x".repeat(65_537))] {
        assert_eq!(simulation.refusal(&format!("{}", bad == run(" ")), bad), Some(ControlReason::Invalid));
    }
    assert_eq!(simulation.refusal("", run("x")), Some(ControlReason::Invalid));
}

#[test]
fn two_askers_of_one_request_get_one_effect_and_both_get_the_answer() {
    let mut simulation = at_a_tool();
    let (first, second) = (simulation.ask_as("c", ControlAction::Cancel {}), simulation.ask_as("c", ControlAction::Cancel {}));
    assert_eq!(simulation.refusal("c", ControlAction::Pause {}), Some(ControlReason::Invalid));
    let held = simulation.ask_as("later", ControlAction::Resume {});
    assert!(simulation.answer_of(held).is_none(), "it takes turns");
    simulation.end(0);
    simulation.settle();
    assert_eq!(simulation.answer_of(first), simulation.answer_of(second));
    assert!(simulation.answer_of(first).is_some());
    assert_eq!(simulation.answer_of(held).unwrap().refused.unwrap().reason, ControlReason::NotPaused);
    assert_eq!(simulation.outcomes(), [RunOutcome::Cancelled]);
}

#[test]
fn resume_calls_a_model_again_that_waits_for_a_person_and_the_task_is_not_lost() {
    let mut simulation = at_the_model(vec![answer("done")]);
    let effect = simulation.effects[0].0;
    let trouble = || ConversationEvent::ModelTrouble {
        effect,
        reason: "ModelRefused".to_owned(),
        message: "no credit".to_owned(),
        waits_for_person: true,
    };
    simulation.send(trouble());
    assert!(simulation.ask("r", ControlAction::Resume {}).unwrap().done.is_some());
    assert_eq!(simulation.retried, 1);
    simulation.hold = false;
    simulation.run_process();
    assert_eq!(
        (simulation.outcomes(), simulation.task_state().0),
        (vec![RunOutcome::Interrupted, RunOutcome::Finished], Some(TaskState::Succeeded))
    );
    let _ = failed(ModelFailureKind::Unreachable);
}

#[test]
fn p37_a_full_inbox_is_in_the_log_once_until_messages_were_read() {
    let mut simulation = Simulation { hold: true, ..Simulation::new(vec![answer("done"), answer("read")]) };
    simulation.run_process();
    let overflows = |simulation: &Simulation| {
        let is_one = |entry: &&Entry| matches!(&entry.body, Body::Extension(extension) if extension.name == QUEUE_OVERFLOW);
        simulation.log.iter().filter(is_one).count()
    };
    simulation.inbox.push(message("m"));
    simulation.wake();
    for _ in 0..3 {
        simulation.send(ConversationEvent::QueueFull { waiting: 256 });
    }
    assert_eq!(overflows(&simulation), 1, "{}", simulation.kinds());
    simulation.end(0);
    simulation.settle();
    assert!(simulation.inbox.is_empty(), "{}", simulation.kinds());
    simulation.send(ConversationEvent::QueueFull { waiting: 256 });
    assert_eq!(overflows(&simulation), 2, "it is full once more");
}
