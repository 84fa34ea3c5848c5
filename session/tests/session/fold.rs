//! The state of a session, and that it is the same whether it was carried into a new segment or not.

use yoi_session::{LogState, fold};
use yoi_wire::{
    entry::{
        Abandoned, Answer, Assistant, Body, CallDecision, CallFrom, CarriedTask, CompactionEnded, CompactionOutcome, Entry, InputFrom,
        ModeSwitched, Paused, PeerMessage, ReadPosition, Requester, Resumed, Rewound, RolledBack, RunEnded, RunOutcome, RunStarted,
        TokenUsage, ToolAnswered, ToolAsked, ToolEnded, ToolOutcome, ToolRequested, ToolStarted, UsageWithoutAnswer,
    },
    hub::TaskState,
    mode::Mode,
};

use crate::fixture::*;

fn entries(bodies: Vec<Body>) -> Vec<Entry> {
    let entry = |(n, body): (usize, Body)| Entry { id: n.to_string(), seq: n as u64 + 1, run: 1, at: String::new(), body };
    bodies.into_iter().enumerate().map(entry).collect()
}

fn state(bodies: Vec<Body>) -> LogState {
    fold::fold(&entries(bodies))
}

fn by() -> Requester {
    Requester { user: "jane".into(), request_id: "q".into() }
}

fn run(id: &str, cause: &[&str]) -> Body {
    Body::RunStarted(RunStarted { run_id: id.into(), cause: cause.iter().map(|id| (*id).into()).collect() })
}

fn ended(id: &str, outcome: RunOutcome) -> Body {
    Body::RunEnded(RunEnded { run_id: id.into(), outcome, reason: None, message: None, by: None })
}

fn paused(id: &str) -> Body {
    Body::Paused(Paused { run_id: id.into(), by: by() })
}

fn usage(n: u64) -> TokenUsage {
    TokenUsage { input_tokens: n, output_tokens: 1, cached_tokens: n / 2, ..TokenUsage::default() }
}

fn tool_asked(id: &str, from: CallFrom) -> Body {
    let rules = vec!["Shell".into(), format!("Shell({id})")];
    Body::ToolAsked(ToolAsked { call_id: id.into(), tool: "shell".into(), from, rules, unreadable: false, seconds: 60 })
}

fn tool_answered(id: &str, asked: u64, approved: bool) -> Body {
    let answer = Answer { approved, always: approved, because: Some("b".into()), by: "jane".into() };
    Body::ToolAnswered(ToolAnswered { call_id: id.into(), asked, answer })
}

fn requested(id: &str) -> Body {
    Body::ToolRequested(ToolRequested { call_id: id.into(), tool: "shell".into(), args: serde_json::json!({ "command": id }), by: by() })
}

/// The same about a call that no model asked for.
fn of_engine(body: Body) -> Body {
    let decision = Some(CallDecision::allowed(CallFrom::Engine));
    match body {
        Body::ToolStarted(start) => Body::ToolStarted(ToolStarted { decision, ..start }),
        Body::ToolEnded(end) => Body::ToolEnded(ToolEnded { decision, ..end }),
        other => other,
    }
}

fn answer(n: u64, calls: &[&str]) -> Body {
    let Body::Assistant(answer) = asks(calls) else { unreachable!() };
    Body::Assistant(Assistant { usage: Some(usage(n)), ..answer })
}

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    /// Returns any body, likely or not at its place.
    fn body(&mut self, seq: u64) -> Body {
        let run_id = format!("r{}", self.below(2));
        let id = format!("m{}", self.below(6));
        let call = ["a", "b", "c"][usize::try_from(self.below(3)).unwrap()];
        let outcomes = [
            RunOutcome::Finished,
            RunOutcome::Failed,
            RunOutcome::LimitReached,
            RunOutcome::Interrupted,
            RunOutcome::Truncated,
            RunOutcome::Cancelled,
            RunOutcome::RolledBack,
        ];
        match self.below(23) {
            0 => input(&format!("m{seq}"), InputFrom::Task),
            1 => input(&id, InputFrom::Person),
            2 => Body::PeerMessage(PeerMessage { message_id: id, from: agent("bob"), text: "t".into(), prompt: None }),
            3 | 4 => run(&run_id, &[&id, "m1"]),
            5 => answer(seq, &["a", call]),
            6 => tool_started(call),
            7 => tool_ended(call),
            8 => ended(&run_id, outcomes[usize::try_from(self.below(7)).unwrap()]),
            9 => paused(&run_id),
            10 => Body::Resumed(Resumed { run_id, by: by() }),
            11 => Body::Abandoned(Abandoned { run_id, by: by() }),
            12 => Body::RolledBack(RolledBack { run_id, hidden: vec![self.below(seq), seq - 1], by: by() }),
            13 => Body::Rewound(Rewound { from_seq: self.below(seq) + 1, by: by() }),
            14 => Body::Usage(UsageWithoutAnswer { usage: usage(seq), reason: "Cancelled".into() }),
            15 => tool_asked(call, CallFrom::Model),
            16 => tool_answered(call, self.below(seq), self.below(2) == 0),
            18 => requested(call),
            19 => tool_asked(call, CallFrom::Engine),
            20 => of_engine(tool_started(call)),
            21 => of_engine(tool_ended(call)),
            17 => Body::ModeSwitched(ModeSwitched { mode: Mode::Planning, by: by() }),
            _ => Body::CompactionEnded(CompactionEnded {
                outcome: CompactionOutcome::Used,
                summary: "s".into(),
                usage: Some(usage(seq)),
                message: None,
            }),
        }
    }
}

#[test]
fn what_is_carried_gives_the_same_state_and_every_state_after_it() {
    let mut with_open_calls = 0;
    for seed in 0..1000 {
        let mut rng = Rng(seed);
        let all = entries((1..60).map(|seq| rng.body(seq)).collect());
        let cut = usize::try_from(rng.below(all.len() as u64)).unwrap();
        let before = fold::fold(&all[..cut]);
        let carried = Body::Carried(before.carried().remove(0));
        // As a line of a log.
        let line = serde_json::to_string(&carried).unwrap();
        let entry = Entry { id: "c".into(), seq: cut as u64, run: 1, at: String::new(), body: serde_json::from_str(&line).unwrap() };
        let mut restored = fold::apply(LogState::default(), &entry);
        let mut expected = LogState { last_seq: cut as u64, run_generation: 1, ..before };
        assert_eq!(restored, expected, "seed {seed}");
        assert_eq!(restored.recovery(), expected.recovery());
        for entry in &all[cut..] {
            (restored, expected) = (fold::apply(restored, entry), fold::apply(expected, entry));
            assert_eq!(restored, expected, "seed {seed}");
        }
        with_open_calls += usize::from(!expected.open_calls.is_empty());
    }
    assert!(with_open_calls > 100, "{with_open_calls}");
}

#[test]
fn d8_how_far_another_agent_was_read_is_in_the_log_and_carried_on() {
    let read = |agent: &str, uid: &str, token: &str| ReadPosition { agent: agent.into(), uid: uid.into(), token: token.into() };
    let ended = |position: &ReadPosition| {
        let Body::ToolEnded(end) = tool_ended("a") else { panic!("an end of a call") };
        Body::ToolEnded(ToolEnded { read: Some(position.clone()), ..end })
    };
    let (former, latest, other) = (read("b", "u", "t:1"), read("b", "u", "t:2"), read("c", "v", "t:9"));
    let state = state(vec![ended(&former), ended(&other), ended(&latest), tool_ended("a")]);
    assert_eq!(state.read.values().collect::<Vec<_>>(), [&latest, &other]);
    let carried = Entry { id: "c".into(), seq: 5, run: 1, at: String::new(), body: Body::Carried(state.carried().remove(0)) };
    assert_eq!(fold::apply(LogState::default(), &carried).read, state.read);
}

#[test]
fn a_paused_run_stays_paused_over_a_restart_and_its_calls_end() {
    let before = vec![input("m1", InputFrom::Person), run("r", &["m1"]), answer(10, &["a", "b"]), tool_started("a"), paused("r")];
    let state = state(before);
    let open = state.open_run.clone().unwrap();
    assert_eq!((open.paused, open.turns, open.tokens), (true, 1, usage(10)));
    let recovery = state.recovery();
    let outcomes: Vec<_> =
        recovery.iter().map(|body| if let Body::ToolEnded(end) = body { end.outcome } else { panic!("{body:?}") }).collect();
    assert_eq!(outcomes, [ToolOutcome::Unknown, ToolOutcome::Refused]);
    let recovered = entries(recovery).iter().fold(state, fold::apply);
    assert_eq!(recovered.recovery(), []);
    assert_eq!(recovered.open_run, Some(open));
}

#[test]
fn p71_a_run_stays_open_for_a_call_that_waits_for_a_person_and_not_for_one_of_a_program() {
    let before = |from| {
        vec![input("m1", InputFrom::Person), run("r", &["m1"]), answer(10, &["a", "b", "c"]), tool_started("a"), tool_asked("b", from)]
    };
    let waiting = state(before(CallFrom::Model));
    let recovery = waiting.recovery();
    // What had begun is over; what waits, and what comes after it, is where it was.
    assert!(matches!(&recovery[..], [Body::ToolEnded(end)] if end.call_id == "a" && end.outcome == ToolOutcome::Unknown), "{recovery:?}");
    let recovered = entries(recovery).iter().fold(waiting, fold::apply);
    assert_eq!((recovered.recovery(), recovered.waiting().count(), recovered.open_calls.len()), (vec![], 1, 2));
    // So it is with the answer.
    for approved in [true, false] {
        let answered = state([before(CallFrom::Model), vec![tool_ended("a"), tool_answered("b", 5, approved)]].concat());
        assert_eq!((answered.recovery(), answered.waiting().count()), (vec![], 0));
    }
    let of_program = state(before(CallFrom::Hook)).recovery();
    assert!(matches!(of_program.last(), Some(Body::RunEnded(end)) if end.outcome == RunOutcome::Interrupted), "{of_program:?}");
    assert_eq!(of_program.len(), 4);
}

#[test]
fn a_call_that_no_model_asked_for_is_none_of_the_runs_ends_for_itself_and_goes_on_waiting_after_a_restart() {
    // The model has a call of the same id.
    let before =
        || vec![input("m1", InputFrom::Person), run("r", &["m1"]), answer(10, &["a"]), requested("a"), requested("b"), requested("c")];
    let begun = state([before(), vec![of_engine(tool_started("a")), tool_asked("b", CallFrom::Engine)]].concat());
    assert_eq!((begun.open_calls.len(), begun.open_calls[0].started, begun.requested[0].call.started), (1, None, Some(7)));
    let waiting: Vec<&str> = begun.waiting().map(|(call, _)| call.call_id.as_str()).collect();
    assert_eq!(waiting, ["b"]);
    let recovered = entries(begun.recovery()).iter().fold(begun, fold::apply);
    assert_eq!((recovered.requested.len(), recovered.waiting().count(), recovered.open_run.is_some()), (1, 1, false));
    let ends: Vec<_> = recovered.past_requested.iter().map(|past| (past.call_id.as_str(), past.outcome)).collect();
    assert_eq!(ends, [("a", ToolOutcome::Unknown), ("c", ToolOutcome::Refused)]);
    assert_eq!(recovered.recovery(), []);
    let ended = state([before(), vec![of_engine(tool_ended("a")), tool_ended("a")]].concat());
    assert_eq!((ended.open_calls.len(), ended.requested.len(), ended.past_requested.len()), (0, 2, 1));
    assert_eq!(ended.past_requested[0].output.as_deref(), Some("ok"));
    // What they returned is remembered up to a size, the latest first.
    let mut state = state(Vec::new());
    for n in 0..100 {
        let id = format!("c{n}");
        let Body::ToolEnded(end) = of_engine(tool_ended(&id)) else { unreachable!() };
        let end = Body::ToolEnded(ToolEnded { output: "x".repeat(100 << 10), ..end });
        state = entries(vec![requested(&id), end]).iter().fold(state, fold::apply);
    }
    let with_output: Vec<bool> = state.past_requested.iter().map(|past| past.output.is_some()).collect();
    assert!(with_output.len() == 64 && with_output.iter().filter(|has| **has).count() == 5 && with_output[59..].iter().all(|has| *has));
}

#[test]
fn a_run_that_a_person_ended_ends_as_they_said_when_its_end_was_cut() {
    let before = || vec![input("t", InputFrom::Task), run("r", &["t"])];
    let by_person = [
        (Body::Abandoned(Abandoned { run_id: "r".into(), by: by() }), RunOutcome::Cancelled),
        (Body::RolledBack(RolledBack { run_id: "r".into(), hidden: vec![1], by: by() }), RunOutcome::RolledBack),
    ];
    for (body, outcome) in by_person {
        let state = state([before(), vec![body]].concat());
        let recovery = state.recovery();
        assert!(matches!(&recovery[..], [Body::RunEnded(end)] if end.outcome == outcome), "{recovery:?}");
        let recovered = entries(recovery).iter().fold(state, fold::apply);
        assert_eq!(recovered.tasks["t"], CarriedTask { state: TaskState::Failed, reason: Some("Cancelled".into()) });
        assert_eq!((recovered.interrupted, recovered.open_run), (None, None));
    }
}

#[test]
fn what_was_rolled_back_or_rewound_waits_for_no_answer_and_is_not_taken_again() {
    let inputs = || vec![input("m1", InputFrom::Person), input("m2", InputFrom::Person), run("r", &["m1", "m2"])];
    let rolled_back = Body::RolledBack(RolledBack { run_id: "r".into(), hidden: vec![2], by: by() });
    let after = state([inputs(), vec![rolled_back, ended("r", RunOutcome::RolledBack)]].concat());
    assert_eq!((after.unanswered.as_slice(), after.delivered.len()), (["m1".to_owned()].as_slice(), 2));

    let task =
        vec![input("m1", InputFrom::Person), input("t", InputFrom::Task), run("r", &["m1", "t"]), ended("r", RunOutcome::Interrupted)];
    let interrupted = state(task.clone());
    assert_eq!(interrupted.interrupted, Some(vec!["m1".to_owned(), "t".to_owned()]));
    let rewound = state([task, vec![Body::Rewound(Rewound { from_seq: 2, by: by() })]].concat());
    assert_eq!((rewound.interrupted, rewound.unanswered), (Some(vec!["m1".to_owned()]), vec!["m1".to_owned()]));
    assert_eq!(rewound.tasks["t"], CarriedTask { state: TaskState::Failed, reason: Some("Cancelled".into()) });
    assert_eq!(rewound.delivered.len(), 2);
}

#[test]
fn a_task_has_the_state_and_the_reason_of_its_run() {
    let task = |end: Option<RunEnded>| {
        let end = end.map(Body::RunEnded);
        state([vec![input("t", InputFrom::Task), run("r", &["t"])], end.into_iter().collect()].concat()).tasks["t"].clone()
    };
    let end = |outcome, reason: Option<&str>| {
        task(Some(RunEnded { run_id: "r".into(), outcome, reason: reason.map(Into::into), message: None, by: None }))
    };
    let is = |state, reason: Option<&str>| CarriedTask { state, reason: reason.map(Into::into) };
    assert_eq!(task(None), is(TaskState::Running, None));
    assert_eq!(end(RunOutcome::Finished, None), is(TaskState::Succeeded, None));
    assert_eq!(end(RunOutcome::Interrupted, None), is(TaskState::Running, None));
    assert_eq!(end(RunOutcome::Failed, Some("ContextFull")), is(TaskState::Failed, Some("ContextFull")));
    assert_eq!(end(RunOutcome::Failed, None), is(TaskState::Failed, None));
    assert_eq!(end(RunOutcome::LimitReached, None), is(TaskState::Failed, Some("LimitReached")));
    assert_eq!(end(RunOutcome::Truncated, None), is(TaskState::Failed, Some("Truncated")));
    assert_eq!(end(RunOutcome::Cancelled, None), is(TaskState::Failed, Some("Cancelled")));
}

#[test]
fn tokens_are_the_sum_of_all_calls_and_of_those_of_the_run() {
    let usage_only = |n| Body::Usage(UsageWithoutAnswer { usage: usage(n), reason: "Cancelled".into() });
    let state = state(vec![usage_only(1), run("r", &[]), answer(2, &[]), usage_only(4)]);
    assert_eq!(state.tokens, usage(1).plus(usage(2)).plus(usage(4)));
    assert_eq!(state.open_run.unwrap().tokens, usage(2).plus(usage(4)));
}
