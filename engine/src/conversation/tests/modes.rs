use yoi_wire::control::{ControlAction, ControlReason};
use yoi_wire::entry::{Body, RunOutcome};
use yoi_wire::mode::Mode;

use super::super::*;
use super::simulation::{Simulation, answer, calls, message};

fn set(mode: Mode) -> ControlAction {
    ControlAction::SetMode { mode, force: false }
}

fn forced(mode: Mode) -> ControlAction {
    ControlAction::SetMode { mode, force: true }
}

/// The tools of the last request to the model.
fn offered(simulation: &Simulation) -> Vec<String> {
    simulation.shown.last().unwrap().config.tools.iter().map(|tool| tool.name.clone()).collect()
}

/// A task whose first call runs.
fn at_a_tool() -> Simulation {
    let mut simulation = Simulation { hold: true, ..Simulation::new(vec![calls(&["one", "two"]), answer("done")]) };
    simulation.run_process();
    simulation.end(0);
    simulation.settle();
    assert_eq!(simulation.ran, ["one"]);
    simulation
}

#[test]
fn p29_in_planning_the_model_is_offered_what_only_reads_from_the_next_run_on_also_after_a_restart_and_in_another_segment() {
    let mut simulation = Simulation::idle(Vec::new());
    simulation.script = (0..4).map(|_| Ok(answer("done"))).collect();
    simulation.run_process();
    assert!(simulation.ask("m", set(Mode::Planning)).unwrap().done.is_some());
    assert!(simulation.kinds().ends_with("RuntimeStarted ModeSwitched SystemItem") && simulation.outcomes().is_empty());
    simulation.inbox.push(message("a"));
    simulation.wake();
    assert_eq!(offered(&simulation), ["Read"]);
    assert!(simulation.last_request()[0].contains("planning"), "{:?}", simulation.last_request());
    simulation.run_process();
    assert_eq!(simulation.state.mode(), Some(Mode::Planning));
    // The same request has the same answer, and another one for the same mode changes nothing.
    let before = simulation.log.len();
    assert!(simulation.ask("m", set(Mode::Planning)).unwrap().done.unwrap().message.contains("from the next run on"));
    assert!(simulation.ask("n", set(Mode::Planning)).unwrap().done.unwrap().message.contains("already"));
    assert_eq!(simulation.log.len(), before);
    simulation.queue.push_back(ConversationEvent::SegmentFull);
    simulation.settle();
    let head = simulation.log.iter().rposition(|entry| matches!(entry.body, Body::SegmentStarted(_))).unwrap();
    simulation.first_seq = simulation.log[head].seq;
    simulation.log = simulation.log.split_off(head);
    simulation.run_process();
    simulation.inbox.push(message("b"));
    simulation.wake();
    assert_eq!((simulation.state.mode(), offered(&simulation)), (Some(Mode::Planning), vec!["Read".to_owned()]));
    assert!(simulation.ask("o", set(Mode::Coding)).unwrap().done.is_some());
    simulation.inbox.push(message("c"));
    simulation.wake();
    assert_eq!(offered(&simulation), ["Shell", "Read"]);
}

#[test]
fn p35_a_switch_during_a_run_is_rejected_and_a_forced_one_ends_it_first_by_the_same_request() {
    let mut simulation = at_a_tool();
    let before = simulation.log.len();
    assert_eq!(simulation.refusal("a", set(Mode::Planning)), Some(ControlReason::AlreadyRunning));
    assert_eq!((simulation.log.len(), simulation.state.mode()), (before, None));
    let ask = simulation.ask_as("b", forced(Mode::Planning));
    assert!(simulation.answer_of(ask).is_none(), "the background processes are still there");
    simulation.end(0);
    simulation.settle();
    assert!(simulation.answer_of(ask).unwrap().done.unwrap().message.contains("planning"));
    assert!(simulation.kinds_from(before).ends_with("ToolEnded ToolEnded RunEnded ModeSwitched SystemItem"), "{}", simulation.kinds());
    assert_eq!(simulation.outcomes(), [RunOutcome::Cancelled]);
    let causes = simulation.log.iter().filter_map(|entry| match &entry.body {
        Body::RunEnded(end) => end.by.as_ref().map(|by| by.request_id.as_str()),
        Body::ModeSwitched(switch) => Some(switch.by.request_id.as_str()),
        _ => None,
    });
    let causes: Vec<&str> = causes.collect();
    assert_eq!(causes, ["b", "b"]);
    // The same request again, after a restart too.
    simulation.hold = false;
    simulation.run_process();
    assert!(simulation.ask("b", forced(Mode::Planning)).unwrap().done.unwrap().message.contains("planning"));
    assert_eq!(simulation.state.mode(), Some(Mode::Planning));

    let mut paused = at_a_tool();
    paused.ask("p", ControlAction::Pause {});
    assert_eq!(paused.refusal("a", set(Mode::Planning)), Some(ControlReason::Paused));
    paused.hold = false;
    paused.ask("b", forced(Mode::Planning));
    assert!(paused.kinds().ends_with("Abandoned RunEnded ModeSwitched SystemItem"), "{}", paused.kinds());
}

#[test]
fn p36_the_steps_of_a_mode_end_a_run_once_and_the_agents_own_limit_stays() {
    for (mode, limit, steps) in [(Mode::Planning, 50, 24), (Mode::Coding, 50, 32), (Mode::Engineering, 50, 40), (Mode::Planning, 5, 5)] {
        let mut simulation = Simulation::idle(Vec::new());
        simulation.settings.turns_per_run = limit;
        simulation.script = (0..60).map(|_| Ok(calls(&["read"]))).collect();
        simulation.run_process();
        simulation.ask("m", set(mode));
        simulation.inbox.push(message("a"));
        simulation.wake();
        assert_eq!(simulation.shown.len(), steps, "{mode} with {limit}");
        assert_eq!(simulation.ends(), [(RunOutcome::LimitReached, Some("LimitReached".to_owned()))], "{mode}");
    }
    let mut unset = Simulation::new(Vec::new());
    unset.settings.turns_per_run = 50;
    unset.script = (0..60).map(|_| Ok(calls(&["read"]))).collect();
    unset.run_process();
    assert_eq!(unset.shown.len(), 50);
}

#[test]
fn a_program_has_modes_of_its_own() {
    let role = program::ProgramRole { name: "claude".to_owned(), resumes: true, login_prompts: Vec::new() };
    let mut simulation = Simulation { program: Some(role), ..Simulation::idle(Vec::new()) };
    simulation.run_process();
    assert_eq!(simulation.refusal("a", set(Mode::Planning)), Some(ControlReason::NotSupported));
}
