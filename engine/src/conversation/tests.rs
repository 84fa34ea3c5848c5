use serde_json::json;
use yoi_session::inbox::Sender;
use yoi_wire::entry::{AgentRef, PromptItem, SessionStarted};

use super::*;

fn name(name: &str) -> AgentRef {
    AgentRef { namespace: "ns".to_owned(), name: name.to_owned(), uid: format!("uid-{name}") }
}

fn message(id: &str) -> InboxMessage {
    InboxMessage { id: id.to_owned(), from: Sender::Agent(name("b")), text: format!("text of {id}"), wake: Wake::Run }
}

fn answer(text: &str) -> Assistant {
    Assistant { text: text.to_owned(), tool_calls: Vec::new(), usage: None, ..Assistant::default() }
}

fn calls(ids: &[&str]) -> Assistant {
    let call = |id: &&str| ToolCall { call_id: (*id).to_owned(), tool: "Shell".to_owned(), args: json!({"command": id}) };
    Assistant { tool_calls: ids.iter().map(call).collect(), ..answer("") }
}

/// Log, inbox, model and tools in memory. None of them fails.
#[derive(Clone, Default)]
struct Simulation {
    log: Vec<Entry>,
    inbox: Vec<InboxMessage>,
    /// The model's answers, by the number of answers in the log.
    script: Vec<Result<Assistant, String>>,
    /// Messages that arrive during the n-th model call.
    arriving: Vec<(usize, InboxMessage)>,
    /// The requests to the model.
    shown: Vec<Vec<PromptItem>>,
    ran: Vec<String>,
    task: Option<Task>,
    limit: u32,
    may_run: bool,
}

impl Simulation {
    fn new(script: Vec<Result<Assistant, String>>) -> Self {
        let task = Some(Task { id: "t".to_owned(), text: "do it".to_owned() });
        Self { script, task, limit: 50, may_run: true, ..Self::default() }
    }

    fn write(&mut self, body: Body) -> Entry {
        if let Body::Input(Input { message_id, .. }) | Body::PeerMessage(yoi_wire::entry::PeerMessage { message_id, .. }) = &body {
            self.inbox.retain(|message| message.id != *message_id);
        }
        let seq = self.log.len() as u64 + 1;
        let entry = Entry { id: seq.to_string(), seq, run: 1, at: String::new(), body };
        self.log.push(entry.clone());
        entry
    }

    fn answers(&self) -> usize {
        self.log.iter().filter(|entry| matches!(entry.body, Body::Assistant(_))).count()
    }

    /// Runs a process from its start until it waits or exits, or until it has carried out `most` intents.
    fn run_process(&mut self, mut most: usize) -> ConversationState {
        if self.log.is_empty() {
            self.write(Body::SessionStarted(SessionStarted { session: "s".to_owned(), agent: name("a"), format: 1 }));
        }
        let mut state = ConversationState::default();
        for entry in self.log.clone() {
            let intents;
            (state, intents) = apply(state, ConversationEvent::Recorded(entry));
            assert!(intents.is_empty());
        }
        let runtime = RuntimeStarted { pod_uid: "p".to_owned(), manifest_digest: "d".to_owned(), cut_bytes: 0 };
        let start = StartInput { runtime, task: self.task.clone(), turns_per_run: self.limit, may_run: self.may_run };
        let (mut state, mut intents) = apply(state, ConversationEvent::Started(start));
        loop {
            assert!(intents.len() <= 1, "{intents:?}");
            let Some(intent) = intents.pop() else { panic!("nothing to do and nothing to wait for") };
            if most == 0 {
                return state;
            }
            most -= 1;
            let events = match intent {
                Intent::Append(bodies) => bodies.into_iter().map(|body| ConversationEvent::Logged(self.write(body))).collect(),
                Intent::ReadInbox => vec![ConversationEvent::InboxRead(self.inbox.clone())],
                Intent::CallModel => {
                    let turn = self.answers();
                    self.shown.push(project(state.entries()));
                    self.inbox.extend(self.arriving.extract_if(.., |(at, _)| *at == turn).map(|(_, message)| message));
                    vec![match self.script.get(turn).cloned().unwrap_or_else(|| Ok(answer("more"))) {
                        Ok(answer) => ConversationEvent::Answered(answer),
                        Err(message) => ConversationEvent::ModelFailed { message },
                    }]
                }
                Intent::Check(call) if call.call_id == "bad" => vec![ConversationEvent::Refused { output: "no".to_owned() }],
                Intent::Check(_) => vec![ConversationEvent::Allowed],
                Intent::Run(call) => {
                    self.ran.push(call.call_id.clone());
                    vec![ConversationEvent::Ended {
                        outcome: ToolOutcome::Succeeded,
                        output: format!("out of {}", call.call_id),
                        millis: 1,
                    }]
                }
                Intent::Wait | Intent::Exit => return state,
            };
            for event in events {
                (state, intents) = apply(state, event);
            }
        }
    }

    fn kinds(&self) -> String {
        self.log.iter().map(|entry| entry.body.kind()).collect::<Vec<_>>().join(" ")
    }

    fn outcomes(&self) -> Vec<RunOutcome> {
        let ends = self.log.iter().filter_map(|entry| match &entry.body {
            Body::RunEnded(end) => Some(end.outcome),
            _ => None,
        });
        ends.collect()
    }

    fn causes(&self) -> Vec<Vec<String>> {
        let runs = self.log.iter().filter_map(|entry| match &entry.body {
            Body::RunStarted(run) => Some(run.cause.clone()),
            _ => None,
        });
        runs.collect()
    }
}

#[test]
fn a_task_runs_to_its_end() {
    let mut simulation = Simulation::new(vec![Ok(calls(&["one", "bad", "two"])), Ok(answer("done"))]);
    let state = simulation.run_process(usize::MAX);
    assert_eq!(
        simulation.kinds(),
        "SessionStarted RuntimeStarted Input RunStarted Assistant ToolStarted ToolEnded ToolEnded ToolStarted ToolEnded Assistant RunEnded"
    );
    assert_eq!(simulation.ran, ["one", "two"]);
    assert_eq!(state.task("t"), Some(TaskState::Succeeded));
    assert_eq!(state.activity(), Activity::Idle);
    // At a second start the task is not submitted again, and nothing runs.
    let state = simulation.run_process(usize::MAX);
    assert!(simulation.kinds().ends_with("RunEnded RuntimeStarted"));
    assert_eq!(state.task("t"), Some(TaskState::Succeeded));
}

#[test]
fn g1_a_message_starts_a_run_of_an_idle_agent_and_is_in_request_and_log() {
    let mut simulation = Simulation { task: None, ..Simulation::new(vec![Ok(answer("read"))]) };
    simulation.inbox.push(message("m"));
    simulation.run_process(usize::MAX);
    assert_eq!(simulation.kinds(), "SessionStarted RuntimeStarted PeerMessage RunStarted Assistant RunEnded");
    assert_eq!(simulation.causes(), [["m"]]);
    assert_eq!(simulation.shown, [[PromptItem::User("[message from agent b]\ntext of m".to_owned())]]);
    assert!(matches!(&simulation.log[3].body, Body::RunStarted(run) if run.run_id == "run-4"));
}

#[test]
fn g2_a_weak_message_waits_for_the_next_run() {
    let mut simulation = Simulation { task: None, ..Simulation::new(vec![Ok(answer("read"))]) };
    simulation.inbox.push(InboxMessage { wake: Wake::Wait, ..message("weak") });
    simulation.run_process(usize::MAX);
    assert_eq!(simulation.kinds(), "SessionStarted RuntimeStarted");
    simulation.inbox.push(message("strong"));
    simulation.run_process(usize::MAX);
    assert_eq!(simulation.causes(), [["weak", "strong"]]);
}

#[test]
fn g3_a_message_during_a_run_is_read_before_the_next_model_call() {
    let mut simulation = Simulation::new(vec![Ok(calls(&["one"])), Ok(answer("done"))]);
    simulation.arriving.push((0, message("m")));
    simulation.run_process(usize::MAX);
    assert_eq!(simulation.causes().len(), 1);
    assert!(simulation.kinds().ends_with("Assistant ToolStarted ToolEnded PeerMessage Assistant RunEnded"));
    assert!(matches!(simulation.shown[1].last(), Some(PromptItem::User(text)) if text.ends_with("text of m")));
}

#[test]
fn g7_a_message_after_the_last_read_of_the_inbox_starts_another_run() {
    let mut simulation = Simulation::new(vec![Ok(answer("done")), Ok(answer("read"))]);
    simulation.arriving.push((0, message("m")));
    simulation.run_process(usize::MAX);
    assert_eq!(simulation.causes(), [["t"], ["m"]]);
    assert_eq!(simulation.outcomes(), [RunOutcome::Finished, RunOutcome::Finished]);
}

#[test]
fn p36_the_turn_limit_ends_the_run_without_another_model_call() {
    let mut simulation = Simulation { limit: 2, ..Simulation::new(vec![Ok(calls(&["one"])), Ok(calls(&["two"])), Ok(answer("never"))]) };
    let state = simulation.run_process(usize::MAX);
    assert_eq!((simulation.outcomes(), simulation.shown.len()), (vec![RunOutcome::LimitReached], 2));
    assert_eq!(state.task("t"), Some(TaskState::Failed));
}

#[test]
fn a_failed_run_waits_and_its_input_is_answered_with_the_next() {
    let mut simulation = Simulation::new(vec![Err("no model".to_owned())]);
    let state = simulation.run_process(usize::MAX);
    assert_eq!((simulation.outcomes(), state.task("t")), (vec![RunOutcome::Failed], Some(TaskState::Failed)));
    simulation.script = vec![Ok(answer("both"))];
    simulation.inbox.push(message("m"));
    let state = simulation.run_process(usize::MAX);
    assert_eq!(simulation.outcomes(), [RunOutcome::Failed, RunOutcome::Finished]);
    assert_eq!(state.task("t"), Some(TaskState::Succeeded));
}

#[test]
fn without_a_key_the_task_is_kept_and_nothing_runs() {
    let mut simulation = Simulation { may_run: false, ..Simulation::new(vec![Ok(answer("done"))]) };
    let state = simulation.run_process(usize::MAX);
    assert_eq!((simulation.kinds().as_str(), state.task("t")), ("SessionStarted RuntimeStarted Input", Some(TaskState::Submitted)));
    simulation.may_run = true;
    let state = simulation.run_process(usize::MAX);
    assert_eq!(state.task("t"), Some(TaskState::Succeeded));
}

#[test]
fn f4_a_call_that_had_started_is_unknown_and_one_that_had_not_is_refused() {
    let mut simulation = Simulation::new(vec![Ok(calls(&["one", "two"])), Ok(answer("done"))]);
    simulation.run_process(usize::MAX);
    let begun = simulation.log.iter().position(|entry| matches!(entry.body, Body::ToolStarted(_))).unwrap();
    simulation.log.truncate(begun + 1);
    (simulation.ran, simulation.shown) = (Vec::new(), Vec::new());
    let state = simulation.run_process(usize::MAX);
    assert!(simulation.kinds().contains("ToolStarted ToolEnded ToolEnded RunEnded RuntimeStarted RunStarted Assistant RunEnded"));
    assert_eq!(simulation.outcomes(), [RunOutcome::Interrupted, RunOutcome::Finished]);
    assert_eq!((simulation.causes(), simulation.ran.len()), (vec![vec!["t".to_owned()]; 2], 0));
    assert_eq!(state.task("t"), Some(TaskState::Succeeded));
    let Some(PromptItem::Results(results)) = simulation.shown[0].last() else { panic!("{:?}", simulation.shown) };
    assert!(results[0].output.contains("may or may not") && results[1].output.contains("did not run"));
}

#[test]
fn a_run_whose_final_answer_is_in_the_log_finishes_without_another_model_call() {
    let mut simulation = Simulation::new(vec![Ok(answer("done"))]);
    simulation.run_process(usize::MAX);
    assert!(matches!(simulation.log.pop().unwrap().body, Body::RunEnded(_)));
    simulation.shown.clear();
    let state = simulation.run_process(usize::MAX);
    assert_eq!((simulation.outcomes(), simulation.shown.len()), (vec![RunOutcome::Finished], 0));
    assert_eq!(state.task("t"), Some(TaskState::Succeeded));
}

#[test]
fn a_stop_closes_call_and_run_and_the_next_start_goes_on() {
    let mut simulation = Simulation::new(vec![Ok(calls(&["one"])), Ok(answer("done"))]);
    let mut state = simulation.run_process(7);
    assert!(simulation.kinds().ends_with("Assistant ToolStarted"), "{}", simulation.kinds());
    let (next, intents) = apply(state, ConversationEvent::Stopping);
    state = next;
    let [Intent::Append(bodies)] = &intents[..] else { panic!("{intents:?}") };
    let mut last = Vec::new();
    for body in bodies.clone() {
        (state, last) = apply(state, ConversationEvent::Logged(simulation.write(body)));
    }
    assert_eq!(last, [Intent::Exit]);
    assert_eq!(state.task("t"), Some(TaskState::Running));
    simulation.run_process(usize::MAX);
    assert_eq!(simulation.outcomes(), [RunOutcome::Interrupted, RunOutcome::Finished]);
    assert!(simulation.ran.is_empty());
}

/// Crashes after any number of intents, and again during recovery: every message is delivered once, no call runs twice, the task succeeds.
#[test]
fn after_any_crash_every_input_is_answered_and_no_call_runs_twice() {
    let fresh = || {
        let script = [
            calls(&["c0", "bad"]),
            calls(&["c1"]),
            answer("done"),
            calls(&["c3"]),
            answer("read"),
            calls(&["c5"]),
            answer("end"),
            answer("end"),
        ];
        let mut simulation = Simulation::new(script.into_iter().map(Ok).collect());
        simulation.arriving = vec![(0, message("m0")), (2, message("m1"))];
        simulation
    };
    let mut whole = fresh();
    whole.run_process(usize::MAX);
    for first in 0..60 {
        for second in [0, 1, 2, 3, 5, 8, usize::MAX] {
            let mut simulation = fresh();
            simulation.run_process(first);
            let begun: Vec<String> = started(&simulation.log);
            simulation.run_process(second);
            simulation.run_process(usize::MAX);
            let state = yoi_session::fold::fold(&simulation.log);
            assert!(state.unanswered.is_empty() && state.open_run.is_none() && state.open_calls.is_empty(), "{first} {second}");
            assert!(
                begun.iter().all(|call| started(&simulation.log).iter().filter(|other| *other == call).count() == 1),
                "{first} {second}"
            );
            let ids = simulation.log.iter().filter(|entry| matches!(entry.body, Body::Input(_) | Body::PeerMessage(_))).count();
            assert_eq!(ids, state.delivered.len(), "{first} {second}");
            assert!(simulation.inbox.is_empty());
            assert_eq!(simulation.run_process(usize::MAX).task("t"), Some(TaskState::Succeeded), "{first} {second}");
        }
    }
}

fn started(log: &[Entry]) -> Vec<String> {
    let starts = log.iter().filter_map(|entry| match &entry.body {
        Body::ToolStarted(start) => Some(start.call_id.clone()),
        _ => None,
    });
    starts.collect()
}
