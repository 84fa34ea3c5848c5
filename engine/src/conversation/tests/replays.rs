use yoi_test_support::Share;
use yoi_wire::approval::ApprovalRequest;
use yoi_wire::control::ControlAction;
use yoi_wire::entry::{Body, Entry, PromptItem, RunOutcome};
use yoi_wire::hub::TaskState;

use super::super::*;
use super::simulation::{Simulation, answer, calls, failed, message, stopped, with_tokens};

#[test]
fn f4_a_call_that_had_started_is_unknown_and_one_that_had_not_is_refused() {
    let mut simulation = Simulation::new(vec![calls(&["one", "two"]), answer("done")]);
    simulation.run_process();
    let begun = simulation.log.iter().position(|entry| matches!(entry.body, Body::ToolStarted(_))).unwrap();
    simulation.log.truncate(begun + 1);
    simulation.ran.clear();
    simulation.script = vec![Ok(answer("done"))].into();
    simulation.run_process();
    assert!(simulation.kinds().contains("ToolStarted ToolEnded ToolEnded RunEnded RuntimeStarted RunStarted Assistant RunEnded"));
    assert_eq!(simulation.outcomes(), [RunOutcome::Interrupted, RunOutcome::Finished]);
    assert_eq!((simulation.causes(), simulation.ran.len()), (vec![vec!["t".to_owned()]; 2], 0));
    let Some(PromptItem::Results(results)) = simulation.shown.last().unwrap().items.last().cloned() else { panic!() };
    assert!(results[0].output.contains("may or may not") && results[1].output.contains("did not run"));
}

#[test]
fn a_run_whose_final_answer_is_in_the_log_finishes_without_another_model_call() {
    let mut simulation = Simulation::new(vec![answer("done")]);
    simulation.run_process();
    assert!(matches!(simulation.log.pop().unwrap().body, Body::RunEnded(_)));
    simulation.shown.clear();
    simulation.run_process();
    assert_eq!((simulation.outcomes(), simulation.shown.len()), (vec![RunOutcome::Finished], 0));
    assert_eq!(simulation.task_state().0, Some(TaskState::Succeeded));
}

#[test]
fn a_stop_closes_call_and_run_and_the_next_start_goes_on() {
    let mut simulation = Simulation { hold: true, ..Simulation::new(vec![calls(&["one"]), answer("done")]) };
    simulation.run_process();
    simulation.end(0);
    simulation.settle();
    simulation.send(ConversationEvent::Stopping);
    assert!(simulation.kinds().ends_with("ToolStarted ToolEnded RunEnded"), "{}", simulation.kinds());
    assert_eq!(simulation.task_state().0, Some(TaskState::Running));
    (simulation.hold, simulation.ran) = (false, Vec::new());
    simulation.run_process();
    assert_eq!(simulation.outcomes(), [RunOutcome::Interrupted, RunOutcome::Finished]);
    assert!(simulation.ran.is_empty());
}

#[test]
fn f15_a_log_of_format_1_goes_on_in_a_segment_with_a_head_before_anything_else() {
    let mut simulation = Simulation::new(vec![calls(&["one"]), answer("done")]);
    simulation.run_process();
    // A session of format 1 has no head; its process was stopped in the middle of a run.
    simulation.log.retain(|entry| !matches!(entry.body, Body::SegmentStarted(_)));
    let end = simulation.log.iter().position(|entry| matches!(entry.body, Body::ToolEnded(_))).unwrap();
    simulation.log.truncate(end);
    for (at, entry) in simulation.log.iter_mut().enumerate() {
        entry.seq = at as u64 + 1;
    }
    simulation.script = vec![Ok(answer("done"))].into();
    simulation.run_process();
    let expected = "SegmentStarted Carried Carried ToolEnded RunEnded RuntimeStarted RunStarted Assistant RunEnded";
    assert_eq!(simulation.kinds_from(end), expected);
    assert_eq!(simulation.task_state().0, Some(TaskState::Succeeded));
}

fn busy() -> Simulation {
    let mut simulation = Simulation::new(vec![
        calls(&["c0", "bad"]),
        calls(&["c1"]),
        answer("done"),
        calls(&["read-1", "read-2"]),
        answer("read"),
        calls(&["c5"]),
        answer("end"),
        answer("end"),
    ]);
    simulation.arriving = vec![(0, message("m0")), (2, message("m1"))];
    simulation
}

/// Crashes after any number of steps, and again during recovery: every message is delivered once, no call runs twice, the task succeeds.
#[test]
fn b15_after_any_crash_every_input_is_answered_and_no_call_runs_twice() {
    for first in 0..90 {
        for second in [0, 1, 2, 3, 5, 8, 100_000] {
            let mut simulation = busy();
            simulation.start();
            simulation.run(first);
            let begun = simulation.started();
            simulation.start();
            simulation.run(second);
            simulation.run_process();
            let state = yoi_session::fold::fold(&simulation.log);
            assert!(state.unanswered.is_empty() && state.open_run.is_none() && state.open_calls.is_empty(), "{first} {second}");
            let started = simulation.started();
            assert!(begun.iter().all(|call| started.iter().filter(|other| *other == call).count() == 1), "{first} {second}");
            let ids = simulation.log.iter().filter(|entry| matches!(entry.body, Body::Input(_) | Body::PeerMessage(_))).count();
            assert_eq!(ids, state.delivered.len(), "{first} {second}");
            assert!(simulation.inbox.is_empty());
            assert_eq!(simulation.task_state().0, Some(TaskState::Succeeded), "{first} {second}");
        }
    }
}

/// A generator of numbers: the same seed gives the same ones.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

/// The life of one conversation, with people, peers, restarts and every kind of answer at random.
struct Life {
    seed: u64,
    numbers: Numbers,
    simulation: Simulation,
    /// Ends that have come, and come once more.
    late: Vec<ConversationEvent>,
}

impl Life {
    const STEPS: u128 = 120;

    fn new(seed: u64) -> Self {
        let mut simulation = Simulation { hold: true, ..Simulation::new(Vec::new()) };
        simulation.settings.compaction.keep = Some(30);
        simulation.start();
        simulation.settle();
        Self { seed, numbers: Numbers(seed), simulation, late: Vec::new() }
    }

    fn step(&mut self, step: u128) {
        let Self { seed, numbers, simulation, late } = self;
        let id = format!("id-{step}");
        match numbers.below(20) {
            0..6 if !simulation.effects.is_empty() => {
                simulation.script = std::collections::VecDeque::from([match numbers.below(13) {
                    0..4 => Ok(calls(&[&format!("read-{step}"), &format!("read-x-{step}"), &format!("c-{step}")])),
                    4 => Ok(stopped("cut", yoi_wire::entry::StopReason::Length)),
                    5 => Ok(stopped("no", yoi_wire::entry::StopReason::Refusal)),
                    6 => Err(failed(ModelFailureKind::TooLong)),
                    7 => Err(failed(ModelFailureKind::HistoryRefused)),
                    8 => Ok(calls(&[&format!("read-ask-{step}"), &format!("ask-{step}"), &format!("d-{step}")])),
                    _ => Ok(with_tokens(answer("an answer"), 50)),
                }]);
                let at = numbers.below(simulation.effects.len() as u64) as usize;
                let event = simulation.end_event(at);
                late.push(event.clone());
                simulation.send(event);
            }
            6 => {
                simulation.inbox.push(message(&id));
                simulation.wake();
            }
            7 => drop(simulation.ask(&id, ControlAction::Pause {})),
            8 => drop(simulation.ask(&id, ControlAction::Resume {})),
            9 => drop(simulation.ask(&id, ControlAction::Cancel {})),
            10 => drop(simulation.ask(&id, ControlAction::Run { text: format!("text {step} {}", "long ".repeat(20)) })),
            11 => drop(simulation.ask(&id, ControlAction::Compact {})),
            12 => {
                let targets = simulation.ask(&id, ControlAction::RewindTargets {}).and_then(|response| response.done?.rewind);
                if let Some(targets) = targets.filter(|targets| !targets.inputs.is_empty()) {
                    let seq = targets.inputs[numbers.below(targets.inputs.len() as u64) as usize].seq;
                    let action = ControlAction::RewindTo { segment: targets.segment, seq, head: targets.head };
                    simulation.ask(&format!("{id}-to"), action);
                }
            }
            13 => simulation.send(ConversationEvent::SegmentFull),
            18 => {
                let mode = [Mode::Coding, Mode::Planning, Mode::Engineering][numbers.below(3) as usize];
                drop(simulation.ask(&id, ControlAction::SetMode { mode, force: numbers.below(3) == 0 }));
            }
            19 => {
                let command = ["ls", "ask-a", "bad"][numbers.below(3) as usize];
                simulation.run_tool(step, command);
            }
            15 | 16 => {
                if let Some(call) = simulation.waiting().first().copied() {
                    let approve = numbers.below(3) > 0;
                    let request = ApprovalRequest { call, approve, always: approve && numbers.below(4) == 0, because: None };
                    // While the run is being cancelled it is over.
                    let _ = simulation.approve("jane", request);
                }
            }
            17 if numbers.below(3) == 0 => {
                if let Some(question) = simulation.waiting().first().copied() {
                    simulation.send(ConversationEvent::ApprovalExpired { question });
                }
            }
            14 if numbers.below(3) == 0 => {
                simulation.start();
                simulation.settle();
                late.clear();
            }
            _ => {
                // An end comes once more, long after.
                if !late.is_empty() {
                    let before = simulation.log.len();
                    let at = numbers.below(late.len() as u64) as usize;
                    simulation.send(late[at].clone());
                    assert_eq!(simulation.log.len(), before, "seed {seed}: a late end changes nothing");
                }
            }
        }
    }
}

/// A life of one conversation alone.
fn random_life(seed: u64, check: bool) -> Simulation {
    let mut life = Life::new(seed);
    for step in 0..Life::STEPS {
        life.step(step);
        // A replay reads the whole log, so it is tried now and then.
        if check && (step % 15 == 14 || life.numbers.below(20) == 0) {
            check_replay(&life.simulation, seed);
        }
    }
    life.simulation
}

/// P31: a fresh process that has read the same lines has the same prompt, byte for byte.
fn check_replay(simulation: &Simulation, seed: u64) {
    let lines: Vec<String> = simulation.log.iter().map(|entry| serde_json::to_string(entry).unwrap()).collect();
    let mut fresh = ConversationState::new(["Read".to_owned()].into());
    for line in &lines {
        let entry: Entry = serde_json::from_str(line).unwrap();
        fresh = apply(fresh, ConversationEvent::Recorded(entry)).0;
    }
    let bytes = |state: &ConversationState| serde_json::to_string(&**state.prompt().items()).unwrap();
    assert_eq!(bytes(&fresh), bytes(&simulation.state), "seed {seed}");
    assert_eq!(fresh.facts, simulation.state.facts, "seed {seed}");
    assert_eq!(fresh.requests.logged(), simulation.state.requests.logged(), "seed {seed}");
    assert_eq!(fresh.prompt, simulation.state.prompt, "seed {seed}");
}

/// F14: the log up to a request gives the very request, also one for a summary.
fn check_requests(simulation: &Simulation, seed: u64) {
    let mut state = ConversationState::new(["Read".to_owned()].into());
    let mut requests = simulation.shown_at.iter().zip(&simulation.shown).peekable();
    for (at, entry) in simulation.log.iter().enumerate() {
        state = apply(state, ConversationEvent::Recorded(entry.clone())).0;
        while let Some((_, request)) = requests.next_if(|(length, _)| **length == at + 1) {
            let mut fresh = state.clone();
            let mut intents = Vec::new();
            if request.offer_tools {
                fresh.call_model(&mut intents)
            } else {
                fresh.go_on_compacting(&mut intents)
            }
            let Some(Intent::CallModel { request: replayed, .. }) = intents.pop() else { panic!("seed {seed}: no request at {at}") };
            assert_eq!(&replayed, request, "seed {seed}: the request at {at}");
        }
    }
    assert!(requests.next().is_none());
}

#[test]
fn p31_f14_random_lives_replay_to_the_same_prompt_and_late_ends_change_nothing() {
    let (mut seen, mut share) = (std::collections::BTreeSet::new(), Share::one_in(5));
    for seed in 0..1000 {
        if share.takes_next() {
            let simulation = random_life(seed, true);
            check_requests(&simulation, seed);
            seen.extend(simulation.log.iter().map(|entry| entry.body.kind().to_owned()));
        }
    }
    println!("random lives: {share}");
    // In fewer lives what is rare may not happen.
    if !share.is_all() {
        return;
    }
    for kind in ["RolledBack", "Rewound", "Paused", "Resumed", "Abandoned", "CompactionEnded", "Carried", "SystemItem", "ToolEnded"] {
        assert!(seen.contains(kind), "no life had a {kind}: {seen:?}");
    }
}

/// Each request's items answer every call once, whatever people did.
#[test]
fn every_call_that_the_model_sees_has_one_result_before_the_next_answer() {
    for seed in 0..200 {
        for request in random_life(seed, false).shown {
            let mut open: Vec<String> = Vec::new();
            for item in request.items.iter() {
                match item {
                    PromptItem::Assistant(answer) => {
                        assert!(open.is_empty(), "seed {seed}: {open:?}");
                        open = answer.tool_calls.iter().map(|call| call.call_id.clone()).collect();
                    }
                    PromptItem::Results(results) => {
                        for result in results {
                            let at = open.iter().position(|id| *id == result.call_id);
                            open.remove(at.unwrap_or_else(|| panic!("seed {seed}: a result without its call")));
                        }
                    }
                    PromptItem::User(_) => assert!(open.is_empty(), "seed {seed}: {open:?}"),
                }
            }
        }
    }
}

/// Conversations take turns, each with people, asks, modes and restarts of its own. What each has in its log, what it asks the model and what people are
/// told is what it would be alone, although ids of messages and numbers of calls are the same in all of them.
#[test]
fn p40_conversations_side_by_side_have_the_lives_that_they_would_have_alone() {
    let (mut share, mut together) = (Share::one_in(5), std::collections::BTreeSet::new());
    for seed in (0..100).filter(|_| share.takes_next()) {
        let seeds = [seed, seed + 10_000, seed + 20_000, seed];
        let mut lives = seeds.map(Life::new);
        let (mut at, mut order) = ([0; 4], Numbers(seed + 7));
        while at.iter().any(|at| *at < Life::STEPS) {
            let turn = order.below(4) as usize;
            if at[turn] < Life::STEPS {
                lives[turn].step(at[turn]);
                at[turn] += 1;
            }
            let asking = lives.iter().filter(|life| !life.simulation.waiting().is_empty()).count();
            let modes: std::collections::BTreeSet<_> = lives.iter().map(|life| format!("{:?}", life.simulation.state.mode())).collect();
            together.extend([(asking > 1).then_some("asks"), (modes.len() > 1).then_some("modes")].into_iter().flatten());
        }
        for (life, seed) in lives.into_iter().zip(seeds) {
            let (alone, with) = (random_life(seed, false), life.simulation);
            assert!(with.log == alone.log, "seed {seed}: the log has what another conversation did");
            assert!(
                with.shown == alone.shown && with.ran == alone.ran,
                "seed {seed}: the model was asked something else, or another call ran"
            );
            let told = |simulation: &Simulation| format!("{:?} {:?} {:?}", simulation.answers, simulation.approvals, simulation.runs);
            assert_eq!(told(&with), told(&alone), "seed {seed}: somebody was told something else");
            check_replay(&alone, seed);
        }
    }
    println!("lives side by side: {share}");
    assert_eq!(together.len(), 2, "two never waited for a person, or had different modes, at once: {together:?}");
}
