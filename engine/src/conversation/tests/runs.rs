use yoi_session::inbox::{InboxMessage, Wake};
use yoi_wire::entry::{Body, PromptItem, RunOutcome};
use yoi_wire::hub::{Activity, TaskState};

use super::simulation::{Simulation, answer, calls, message};

#[test]
fn a_task_runs_to_its_end() {
    let mut simulation = Simulation::new(vec![calls(&["one", "bad", "two"]), answer("done")]);
    simulation.run_process();
    assert_eq!(
        simulation.kinds(),
        "SessionStarted SegmentStarted RuntimeStarted Input RunStarted Assistant ToolStarted ToolEnded ToolEnded ToolStarted ToolEnded Assistant RunEnded"
    );
    assert_eq!(simulation.ran, ["one", "two"]);
    assert_eq!(simulation.task_state(), (Some(TaskState::Succeeded), None));
    assert_eq!(simulation.state.activity(), Activity::Idle);
    // At a second start the task is not submitted again, and nothing runs.
    simulation.run_process();
    assert!(simulation.kinds().ends_with("RunEnded RuntimeStarted"));
    assert_eq!(simulation.task_state().0, Some(TaskState::Succeeded));
}

#[test]
fn a17_g1_a_message_starts_a_run_of_an_idle_agent_and_is_in_request_and_log() {
    let mut simulation = Simulation::idle(vec![answer("read")]);
    simulation.inbox.push(message("m"));
    simulation.run_process();
    assert_eq!(simulation.kinds_from(2), "RuntimeStarted PeerMessage RunStarted Assistant RunEnded");
    assert_eq!(simulation.causes(), [["m"]]);
    assert_eq!(simulation.last_request(), ["[message from agent b]\ntext of m"]);
    assert!(matches!(&simulation.log[4].body, Body::RunStarted(run) if run.run_id == "run-5"));
}

#[test]
fn g2_a_weak_message_waits_for_the_next_run() {
    let mut simulation = Simulation::idle(vec![answer("read")]);
    simulation.inbox.push(InboxMessage { wake: Wake::Wait, ..message("weak") });
    simulation.run_process();
    assert!(simulation.waits && simulation.causes().is_empty());
    simulation.inbox.push(message("strong"));
    simulation.wake();
    assert_eq!(simulation.causes(), [["weak", "strong"]]);
}

#[test]
fn g3_a_message_during_a_run_is_read_before_the_next_model_call() {
    let mut simulation = Simulation::new(vec![calls(&["one"]), answer("done")]);
    simulation.arriving.push((0, message("m")));
    simulation.run_process();
    assert_eq!(simulation.causes().len(), 1);
    assert!(simulation.kinds().ends_with("Assistant ToolStarted ToolEnded PeerMessage Assistant RunEnded"));
    assert!(simulation.last_request().last().unwrap().ends_with("text of m"));
}

#[test]
fn g9_a_message_that_is_read_twice_from_the_inbox_is_in_the_log_once() {
    let mut simulation = Simulation::idle(vec![answer("read")]);
    simulation.inbox.push(message("m"));
    simulation.run_process();
    // Its file came back after a crash.
    simulation.inbox.push(message("m"));
    simulation.wake();
    assert_eq!(simulation.kinds().matches("PeerMessage").count(), 1);
    assert_eq!(simulation.outcomes().len(), 1);
}

#[test]
fn g7_a_message_after_the_last_read_of_the_inbox_starts_another_run() {
    let mut simulation = Simulation::new(vec![answer("done"), answer("read")]);
    simulation.arriving.push((0, message("m")));
    simulation.run_process();
    assert_eq!(simulation.causes(), [["t"], ["m"]]);
    assert_eq!(simulation.outcomes(), [RunOutcome::Finished, RunOutcome::Finished]);
}

#[test]
fn p32_calls_that_only_read_run_side_by_side_and_others_one_after_another_in_the_models_order() {
    let mut simulation = Simulation::new(vec![calls(&["read-1", "bad", "write", "read-2", "read-3", "read-4"]), answer("done")]);
    simulation.hold = true;
    simulation.run_process();
    simulation.end(0);
    simulation.settle();
    // The refused one is not of a tool that only reads, so the first group is one call.
    assert_eq!(simulation.ran, ["read-1"]);
    simulation.end(0);
    simulation.settle();
    assert_eq!(simulation.ran, ["read-1", "write"], "one after another");
    simulation.end(0);
    simulation.settle();
    assert_eq!(simulation.ran[2..], ["read-2", "read-3", "read-4"]);
    assert!(simulation.kinds().ends_with("ToolStarted ToolStarted ToolStarted"));
    // They end as they come.
    for at in [2, 0, 0] {
        assert_eq!(simulation.shown.len(), 1, "p32: the model is called once, after all");
        simulation.end(at);
        simulation.settle();
    }
    assert_eq!(simulation.shown.len(), 2);
    let Some(PromptItem::Results(results)) = simulation.shown[1].items.last().cloned() else { panic!() };
    let ids: Vec<_> = results.iter().map(|result| (result.call_id.as_str(), result.failed)).collect();
    let expected = [("read-1", false), ("bad", true), ("write", false), ("read-4", false), ("read-2", false), ("read-3", false)];
    assert_eq!(ids, expected);
}

#[test]
fn without_a_key_the_task_is_kept_and_nothing_runs() {
    let mut simulation = Simulation { may_run: false, ..Simulation::new(vec![answer("done")]) };
    simulation.run_process();
    assert_eq!((simulation.kinds_from(2).as_str(), simulation.task_state().0), ("RuntimeStarted Input", Some(TaskState::Submitted)));
    simulation.may_run = true;
    simulation.run_process();
    assert_eq!(simulation.task_state().0, Some(TaskState::Succeeded));
}

#[test]
fn b13_f14_another_manifest_is_a_config_entry_and_requests_follow_the_log() {
    let mut simulation = Simulation::new(vec![answer("done"), answer("read")]);
    simulation.run_process();
    assert_eq!(simulation.shown[0].config.manifest_digest, "d");
    simulation.run_process();
    assert!(!simulation.kinds().contains("ConfigChanged"), "the same manifest: the log's configuration goes on");
    simulation.manifest = "e".to_owned();
    simulation.inbox.push(message("m"));
    simulation.run_process();
    assert!(simulation.kinds().contains("RuntimeStarted ConfigChanged"));
    assert_eq!(simulation.shown[1].config.manifest_digest, "e");
}
