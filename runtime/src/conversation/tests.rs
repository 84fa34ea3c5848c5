use serde_json::json;
use yoi_session::inbox::Sender;
use yoi_wire::entry::{AgentRef, SessionStarted};

use super::*;

fn name(name: &str) -> AgentRef {
    AgentRef { namespace: "ns".to_owned(), name: name.to_owned(), uid: format!("uid-{name}") }
}

fn message(id: &str) -> InboxMessage {
    InboxMessage { id: id.to_owned(), from: Sender::Agent(name("b")), text: format!("text of {id}"), wake: Wake::Run }
}

fn says(text: &str) -> Assistant {
    Assistant { text: text.to_owned(), tool_calls: Vec::new(), usage: None }
}

fn calls(ids: &[&str]) -> Assistant {
    let call = |id: &&str| ToolCall { call_id: (*id).to_owned(), tool: "Shell".to_owned(), args: json!({"command": id}) };
    Assistant { tool_calls: ids.iter().map(call).collect(), ..says("") }
}

/// A world in which nothing fails: log, inbox, model, tools.
#[derive(Clone, Default)]
struct World {
    log: Vec<Entry>,
    inbox: Vec<InboxMessage>,
    /// What the model says, by the number of answers in the log.
    script: Vec<Result<Assistant, String>>,
    /// Messages that arrive while the model is called for the n-th time.
    arriving: Vec<(usize, InboxMessage)>,
    /// What was shown to the model, each time.
    shown: Vec<Vec<PromptItem>>,
    ran: Vec<String>,
    task: Option<Task>,
    limit: u32,
    may_run: bool,
}

impl World {
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

    /// A process from its start until it rests, or until it has carried out so many intents.
    fn live(&mut self, mut most: usize) -> ConversationState {
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
                    vec![match self.script.get(turn).cloned().unwrap_or_else(|| Ok(says("more"))) {
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
    let mut world = World::new(vec![Ok(calls(&["one", "bad", "two"])), Ok(says("done"))]);
    let state = world.live(usize::MAX);
    assert_eq!(
        world.kinds(),
        "SessionStarted RuntimeStarted Input RunStarted Assistant ToolStarted ToolEnded ToolEnded ToolStarted ToolEnded Assistant RunEnded"
    );
    assert_eq!(world.ran, ["one", "two"]);
    assert_eq!(state.task("t"), Some(TaskState::Succeeded));
    assert_eq!(state.activity(), Activity::Idle);
    // Once more: the task is not submitted again, and nothing runs.
    let state = world.live(usize::MAX);
    assert!(world.kinds().ends_with("RunEnded RuntimeStarted"));
    assert_eq!(state.task("t"), Some(TaskState::Succeeded));
}

#[test]
fn g1_a_message_wakes_an_idle_agent_and_is_in_request_and_log() {
    let mut world = World { task: None, ..World::new(vec![Ok(says("read"))]) };
    world.inbox.push(message("m"));
    world.live(usize::MAX);
    assert_eq!(world.kinds(), "SessionStarted RuntimeStarted PeerMessage RunStarted Assistant RunEnded");
    assert_eq!(world.causes(), [["m"]]);
    assert_eq!(world.shown, [[PromptItem::User("[message from agent b]\ntext of m".to_owned())]]);
    assert!(matches!(&world.log[3].body, Body::RunStarted(run) if run.run_id == "run-4"));
}

#[test]
fn g2_a_weak_message_waits_for_the_next_run() {
    let mut world = World { task: None, ..World::new(vec![Ok(says("read"))]) };
    world.inbox.push(InboxMessage { wake: Wake::Wait, ..message("weak") });
    world.live(usize::MAX);
    assert_eq!(world.kinds(), "SessionStarted RuntimeStarted");
    world.inbox.push(message("strong"));
    world.live(usize::MAX);
    assert_eq!(world.causes(), [["weak", "strong"]]);
}

#[test]
fn g3_a_message_during_a_run_is_read_before_the_next_model_call() {
    let mut world = World::new(vec![Ok(calls(&["one"])), Ok(says("done"))]);
    world.arriving.push((0, message("m")));
    world.live(usize::MAX);
    assert_eq!(world.causes().len(), 1);
    assert!(world.kinds().ends_with("Assistant ToolStarted ToolEnded PeerMessage Assistant RunEnded"));
    assert!(matches!(world.shown[1].last(), Some(PromptItem::User(text)) if text.ends_with("text of m")));
}

#[test]
fn g7_a_message_after_the_last_look_starts_another_run() {
    let mut world = World::new(vec![Ok(says("done")), Ok(says("read"))]);
    world.arriving.push((0, message("m")));
    world.live(usize::MAX);
    assert_eq!(world.causes(), [["t"], ["m"]]);
    assert_eq!(world.outcomes(), [RunOutcome::Finished, RunOutcome::Finished]);
}

#[test]
fn p36_the_turn_limit_ends_the_run_without_another_model_call() {
    let mut world = World { limit: 2, ..World::new(vec![Ok(calls(&["one"])), Ok(calls(&["two"])), Ok(says("never"))]) };
    let state = world.live(usize::MAX);
    assert_eq!((world.outcomes(), world.shown.len()), (vec![RunOutcome::LimitReached], 2));
    assert_eq!(state.task("t"), Some(TaskState::Failed));
}

#[test]
fn a_failed_run_rests_and_its_input_is_answered_with_the_next() {
    let mut world = World::new(vec![Err("no model".to_owned())]);
    let state = world.live(usize::MAX);
    assert_eq!((world.outcomes(), state.task("t")), (vec![RunOutcome::Failed], Some(TaskState::Failed)));
    world.script = vec![Ok(says("both"))];
    world.inbox.push(message("m"));
    let state = world.live(usize::MAX);
    assert_eq!(world.outcomes(), [RunOutcome::Failed, RunOutcome::Finished]);
    assert_eq!(state.task("t"), Some(TaskState::Succeeded));
}

#[test]
fn without_a_key_the_task_is_kept_and_nothing_runs() {
    let mut world = World { may_run: false, ..World::new(vec![Ok(says("done"))]) };
    let state = world.live(usize::MAX);
    assert_eq!((world.kinds().as_str(), state.task("t")), ("SessionStarted RuntimeStarted Input", Some(TaskState::Submitted)));
    world.may_run = true;
    let state = world.live(usize::MAX);
    assert_eq!(state.task("t"), Some(TaskState::Succeeded));
}

#[test]
fn f4_a_call_that_had_begun_is_unknown_and_one_that_had_not_is_refused() {
    let mut world = World::new(vec![Ok(calls(&["one", "two"])), Ok(says("done"))]);
    world.live(usize::MAX);
    let begun = world.log.iter().position(|entry| matches!(entry.body, Body::ToolStarted(_))).unwrap();
    world.log.truncate(begun + 1);
    (world.ran, world.shown) = (Vec::new(), Vec::new());
    let state = world.live(usize::MAX);
    assert!(world.kinds().contains("ToolStarted ToolEnded ToolEnded RunEnded RuntimeStarted RunStarted Assistant RunEnded"));
    assert_eq!(world.outcomes(), [RunOutcome::Interrupted, RunOutcome::Finished]);
    assert_eq!((world.causes(), world.ran.len()), (vec![vec!["t".to_owned()]; 2], 0));
    assert_eq!(state.task("t"), Some(TaskState::Succeeded));
    let Some(PromptItem::Results(results)) = world.shown[0].last() else { panic!("{:?}", world.shown) };
    assert!(results[0].output.contains("may or may not") && results[1].output.contains("did not run"));
}

#[test]
fn a_run_whose_last_word_is_in_the_log_is_finished_without_asking_again() {
    let mut world = World::new(vec![Ok(says("done"))]);
    world.live(usize::MAX);
    assert!(matches!(world.log.pop().unwrap().body, Body::RunEnded(_)));
    world.shown.clear();
    let state = world.live(usize::MAX);
    assert_eq!((world.outcomes(), world.shown.len()), (vec![RunOutcome::Finished], 0));
    assert_eq!(state.task("t"), Some(TaskState::Succeeded));
}

#[test]
fn a_stop_closes_what_is_under_way_and_the_next_start_goes_on() {
    let mut world = World::new(vec![Ok(calls(&["one"])), Ok(says("done"))]);
    let mut state = world.live(7);
    assert!(world.kinds().ends_with("Assistant ToolStarted"), "{}", world.kinds());
    let (next, intents) = apply(state, ConversationEvent::Stopping);
    state = next;
    let [Intent::Append(bodies)] = &intents[..] else { panic!("{intents:?}") };
    let mut last = Vec::new();
    for body in bodies.clone() {
        (state, last) = apply(state, ConversationEvent::Logged(world.write(body)));
    }
    assert_eq!(last, [Intent::Exit]);
    assert_eq!(state.task("t"), Some(TaskState::Running));
    world.live(usize::MAX);
    assert_eq!(world.outcomes(), [RunOutcome::Interrupted, RunOutcome::Finished]);
    assert!(world.ran.is_empty());
}

/// After a crash at any entry, and another one at any step of the recovery: everything is delivered once, no call runs twice, the task is done.
#[test]
fn whatever_crashes_every_input_is_answered_and_no_call_runs_twice() {
    let fresh = || {
        let script =
            [calls(&["c0", "bad"]), calls(&["c1"]), says("done"), calls(&["c3"]), says("read"), calls(&["c5"]), says("end"), says("end")];
        let mut world = World::new(script.into_iter().map(Ok).collect());
        world.arriving = vec![(0, message("m0")), (2, message("m1"))];
        world
    };
    let mut whole = fresh();
    whole.live(usize::MAX);
    for first in 0..60 {
        for second in [0, 1, 2, 3, 5, 8, usize::MAX] {
            let mut world = fresh();
            world.live(first);
            let begun: Vec<String> = started(&world.log);
            world.live(second);
            world.live(usize::MAX);
            let state = yoi_session::fold::fold(&world.log);
            assert!(state.unanswered.is_empty() && state.open_run.is_none() && state.open_calls.is_empty(), "{first} {second}");
            assert!(begun.iter().all(|call| started(&world.log).iter().filter(|other| *other == call).count() == 1), "{first} {second}");
            let ids = world.log.iter().filter(|entry| matches!(entry.body, Body::Input(_) | Body::PeerMessage(_))).count();
            assert_eq!(ids, state.delivered.len(), "{first} {second}");
            assert!(world.inbox.is_empty());
            assert_eq!(world.live(usize::MAX).task("t"), Some(TaskState::Succeeded), "{first} {second}");
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
