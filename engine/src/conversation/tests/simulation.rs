use std::collections::VecDeque;

use serde_json::json;
use yoi_session::inbox::{InboxMessage, Sender, Wake};
use yoi_wire::approval::ApprovalRequest;
use yoi_wire::control::{ControlAction, ControlReason, ControlRequest, ControlResponse};
use yoi_wire::entry::{
    AgentConfig, AgentRef, Assistant, Body, Entry, FORMAT, Input, PeerMessage, PromptItem, RefusalClass, RunOutcome, RuntimeStarted,
    SegmentReason, SegmentStarted, SessionStarted, StopReason, TokenUsage, ToolCall, ToolOutcome,
};
use yoi_wire::hub::TaskState;
use yoi_wire::manifest::Task;

use super::super::*;
use crate::assets::{AssetOffer, Expansion};
use crate::decision::{Decision, Question, Refusal};

pub fn name(name: &str) -> AgentRef {
    AgentRef { namespace: "ns".to_owned(), name: name.to_owned(), uid: format!("uid-{name}") }
}

pub fn message(id: &str) -> InboxMessage {
    InboxMessage { id: id.to_owned(), from: Sender::Agent(name("b")), text: format!("text of {id}"), wake: Wake::Run }
}

pub fn answer(text: &str) -> Assistant {
    Assistant { text: text.to_owned(), ..Assistant::default() }
}

pub fn stopped(text: &str, stop: StopReason) -> Assistant {
    Assistant { stop: Some(stop), ..answer(text) }
}

pub fn with_tokens(answer: Assistant, input_tokens: u64) -> Assistant {
    Assistant { usage: Some(TokenUsage { input_tokens, output_tokens: 1, ..TokenUsage::default() }), ..answer }
}

/// Calls of Shell, or of Read where the id begins with `read`.
pub fn calls(ids: &[&str]) -> Assistant {
    let tool = |id: &str| if id.starts_with("read") { "Read" } else { "Shell" }.to_owned();
    let call = |id: &&str| ToolCall { call_id: (*id).to_owned(), tool: tool(id), args: json!({"command": id}) };
    Assistant { tool_calls: ids.iter().map(call).collect(), ..answer("") }
}

/// What the gate knows a call by: its id, or of a call that no model asked for its command.
fn known_as(call: &ToolCall) -> &str {
    if call.call_id.starts_with("engine-") { call.args["command"].as_str().unwrap_or_default() } else { &call.call_id }
}

/// The gate refuses a call with the id `bad`, and has a person asked about one whose id has `ask` in it, or `unread`, by a rule for its last letter.
pub fn decision(call: &ToolCall) -> Decision {
    match known_as(call) {
        "bad" => Decision::Refuse(Refusal::with_message(RefusalClass::InvalidArgs, "no".to_owned())),
        id if id.contains("ask") || id.contains("unread") => Decision::Ask(Question {
            rules: vec![format!("Shell({})", &id[id.len() - 1..])],
            unreadable: id.contains("unread"),
            seconds: 60,
        }),
        _ => Decision::Allow,
    }
}

pub fn failed(kind: ModelFailureKind) -> ModelFailed {
    ModelFailed::new(kind, "no model")
}

#[derive(Clone, Debug)]
pub enum Held {
    Model,
    Tool(ToolCall),
    Background,
    Program,
}

/// Log, inbox, model and tools in memory, and a process that uses them. No append fails.
#[derive(Clone, Default)]
pub struct Simulation {
    pub log: Vec<Entry>,
    pub inbox: Vec<InboxMessage>,
    /// The model's answers, by the number of calls.
    pub script: VecDeque<Result<Assistant, ModelFailed>>,
    /// Messages that arrive during the n-th model call of all.
    pub arriving: Vec<(usize, InboxMessage)>,
    /// The requests to the model.
    pub shown: Vec<PromptRequest>,
    /// How many entries the log had at each of them.
    pub shown_at: Vec<usize>,
    pub ran: Vec<String>,
    pub task: Option<Task>,
    pub settings: RunSettings,
    pub may_run: bool,
    pub manifest: String,
    /// Effects end only by [`Simulation::end`].
    pub hold: bool,
    pub answers: Vec<(AskId, ControlResponse)>,
    pub approvals: Vec<(AskId, ApprovalResult)>,
    pub runs: Vec<(AskId, RunToolResult)>,
    /// Ids of calls that the policy has come to refuse.
    pub withdrawn: Vec<String>,
    pub retried: usize,
    pub program: Option<super::super::program::ProgramRole>,
    /// The tree: what a person's text stands for there, and what the model is offered of it.
    pub expand: Option<fn(&str) -> Expansion>,
    pub offer: AssetOffer,
    /// Inputs and sessions with which the program was started.
    pub programs: Vec<(String, Option<String>)>,
    pub acknowledged: Vec<(AskId, Result<String, String>)>,
    /// Sequence number of the first entry that the log still has; 0: of the first of all.
    pub first_seq: u64,
    // The process.
    pub state: ConversationState,
    pub queue: VecDeque<ConversationEvent>,
    pub effects: Vec<(EffectId, Held)>,
    pub waits: bool,
    pub asks: AskId,
}

impl Simulation {
    pub fn new(script: Vec<Assistant>) -> Self {
        let task = Some(Task { id: "t".to_owned(), text: "do it".to_owned() });
        let script = script.into_iter().map(Ok).collect();
        Self { script, task, may_run: true, manifest: "d".to_owned(), ..Self::default() }
    }

    pub fn idle(script: Vec<Assistant>) -> Self {
        Self { task: None, ..Self::new(script) }
    }

    pub fn config(&self) -> AgentConfig {
        let tool = |name: &str| yoi_wire::entry::OfferedTool { name: name.to_owned(), description: String::new(), schema: json!({}) };
        let tools = vec![tool("Shell"), tool("Read")];
        AgentConfig { system: vec!["system".to_owned()], tools, manifest_digest: self.manifest.clone(), ..AgentConfig::default() }
    }

    pub fn write(&mut self, body: Body) -> Entry {
        if let Body::Input(Input { message_id, .. }) | Body::PeerMessage(PeerMessage { message_id, .. }) = &body {
            self.inbox.retain(|message| message.id != *message_id);
        }
        let seq = self.log.len() as u64 + self.first_seq.max(1);
        let entry = Entry { id: seq.to_string(), seq, run: 1, at: String::new(), body };
        self.log.push(entry.clone());
        entry
    }

    /// A new process: what the last one had in memory is gone.
    pub fn start(&mut self) {
        if self.log.is_empty() {
            self.write(Body::SessionStarted(SessionStarted { session: "s".to_owned(), agent: name("a"), format: FORMAT }));
            let reason = SegmentReason::SessionStarted;
            self.write(Body::SegmentStarted(SegmentStarted { number: 1, format: FORMAT, previous: None, reason, config: self.config() }));
        }
        self.resume_process();
    }

    fn resume_process(&mut self) {
        self.state = ConversationState::new(["Read".to_owned()].into()).for_program(self.program.clone());
        if self.expand.is_some() {
            self.state = std::mem::take(&mut self.state).prepared_from_tree();
        }
        (self.queue, self.effects, self.waits) = (VecDeque::new(), Vec::new(), false);
        for entry in self.log.clone() {
            let (state, intents) = apply(std::mem::take(&mut self.state), ConversationEvent::Recorded(entry));
            assert!(intents.is_empty());
            self.state = state;
        }
        let runtime = RuntimeStarted { pod_uid: "p".to_owned(), manifest_digest: self.manifest.clone(), cut_bytes: 0 };
        let same = self.state.config().is_some_and(|config| config.manifest_digest == self.manifest);
        let config = (!same).then(|| self.config());
        let (task, settings, may_run) = (self.task.clone(), self.settings, self.may_run);
        let start = StartInput { runtime, task, settings, may_run, config, policy: None, segment: self.segment() };
        self.queue.push_back(ConversationEvent::Started(Box::new(start)));
    }

    fn segment(&self) -> String {
        format!("segment-{}", self.log.iter().filter(|entry| matches!(entry.body, Body::SegmentStarted(_))).count())
    }

    /// Carries out one event, or ends one effect. False when there is nothing to do.
    pub fn step(&mut self) -> bool {
        let Some(event) = self.queue.pop_front() else {
            if self.hold || self.effects.is_empty() {
                return false;
            }
            self.end(0);
            return true;
        };
        let (state, intents) = apply(std::mem::take(&mut self.state), event);
        self.state = state;
        self.waits = false;
        for intent in intents {
            self.carry_out(intent);
        }
        true
    }

    fn carry_out(&mut self, intent: Intent) {
        match intent {
            Intent::Append(bodies) => {
                let entries: Vec<Entry> = bodies.into_iter().map(|body| self.write(body)).collect();
                for entry in entries.into_iter().rev() {
                    self.queue.push_front(ConversationEvent::Logged(entry));
                }
            }
            Intent::Rotate { reason, config, carried } => {
                let head = SegmentStarted { number: 2, format: FORMAT, previous: None, reason, config: *config };
                let bodies = std::iter::once(Body::SegmentStarted(head)).chain(carried.into_iter().map(Body::Carried));
                let entries = bodies.map(|body| self.write(body)).collect();
                self.queue.push_front(ConversationEvent::Rotated { segment: self.segment(), entries });
            }
            Intent::ReadInbox => self.queue.push_back(ConversationEvent::InboxRead(self.inbox.clone())),
            Intent::CallModel { effect, request, .. } => {
                let turn = self.shown.len();
                self.shown.push(request);
                self.shown_at.push(self.log.len());
                self.inbox.extend(self.arriving.extract_if(.., |(at, _)| *at == turn).map(|(_, message)| message));
                self.effects.push((effect, Held::Model));
            }
            Intent::RunProgram { effect, input, session } => {
                self.programs.push((input, session));
                self.effects.push((effect, Held::Program));
            }
            Intent::Acknowledge { ask, result } => self.acknowledged.push((ask, result)),
            Intent::RetryModel { .. } => self.retried += 1,
            Intent::Check { effect, calls, from: _ } => {
                let withdrawn = |call: &ToolCall| self.withdrawn.iter().any(|id| id == known_as(call));
                let refusal = || Decision::Refuse(Refusal::with_message(RefusalClass::ToolDenied, "withdrawn".to_owned()));
                let decisions = calls.iter().map(|call| if withdrawn(call) { refusal() } else { decision(call) }).collect();
                self.queue.push_back(ConversationEvent::Checked { effect, decisions });
            }
            Intent::Prepare { effect, wanted: ToPrepare { inputs, folders, begins: _, loans: _ } } => {
                let expand = self.expand.expect("there is a tree to prepare a run from");
                let expansion = |input: CommandInput| (input.clone(), expand(&input.text));
                let expansions = inputs.into_iter().map(expansion).collect();
                // Each folder has a file.
                let of_folder =
                    |folder: String| FolderInstructions { text: format!("Rules of {folder}."), path: format!("{folder}/AGENTS.md") };
                let instructions = folders.into_iter().map(of_folder).collect();
                let prepared = Prepared { offer: self.offer.clone(), generation: 1, expansions, instructions, loans: None };
                self.queue.push_back(ConversationEvent::Prepared { effect, prepared });
            }
            Intent::Run { effect, call, from: _ } => {
                self.ran.push(known_as(&call).to_owned());
                self.effects.push((effect, Held::Tool(call)));
            }
            Intent::End { effect } => {
                self.effects.retain(|(id, _)| *id != effect);
                self.queue.push_back(ConversationEvent::Gone { effect });
            }
            Intent::EndBackground { effect } => self.effects.push((effect, Held::Background)),
            Intent::Answer { ask, response } => self.answers.push((ask, response)),
            Intent::AnswerApproval { ask, result } => self.approvals.push((ask, result)),
            Intent::AnswerCall { ask, result } => self.runs.push((ask, result)),
            Intent::Wait => self.waits = true,
            Intent::Exit => {}
        }
    }

    /// The event with which the effect at this place ends.
    pub fn end_event(&mut self, at: usize) -> ConversationEvent {
        let (effect, held) = self.effects.remove(at);
        match held {
            Held::Model => match self.script.pop_front().unwrap_or_else(|| Ok(answer("more"))) {
                Ok(answer) => ConversationEvent::Answered { effect, answer },
                Err(failure) => ConversationEvent::ModelFailed { effect, failure },
            },
            Held::Tool(call) => {
                let output = format!("out of {}", call.call_id);
                let end = CallEnd { outcome: ToolOutcome::Succeeded, output, images: Vec::new(), refused: None, read: None, millis: 1 };
                ConversationEvent::Ended { effect, end }
            }
            Held::Background | Held::Program => ConversationEvent::Gone { effect },
        }
    }

    pub fn end(&mut self, at: usize) {
        let event = self.end_event(at);
        self.queue.push_back(event);
    }

    /// Goes on until there is nothing to do, or for so many steps.
    pub fn run(&mut self, most: usize) {
        for _ in 0..most {
            if !self.step() {
                return;
            }
        }
    }

    pub fn settle(&mut self) {
        for _ in 0..100_000 {
            if !self.step() {
                return;
            }
        }
        panic!("it never ends: {}", self.kinds());
    }

    /// Runs a new process until it waits.
    pub fn run_process(&mut self) {
        self.start();
        self.settle();
    }

    pub fn wake(&mut self) {
        self.queue.push_back(ConversationEvent::InboxChanged);
        self.settle();
    }

    pub fn send(&mut self, event: ConversationEvent) {
        self.queue.push_back(event);
        self.settle();
    }

    pub fn ask_as(&mut self, id: &str, action: ControlAction) -> AskId {
        self.asks += 1;
        let request = ControlRequest { id: id.to_owned(), action };
        self.send(ConversationEvent::Asked { ask: self.asks, user: "jane".to_owned(), request });
        self.asks
    }

    /// Asks, and returns the answer if it is there.
    pub fn ask(&mut self, id: &str, action: ControlAction) -> Option<ControlResponse> {
        let ask = self.ask_as(id, action);
        self.answer_of(ask)
    }

    /// Answers the call that waits first, or one of this number, and returns what the person is told.
    pub fn approve(&mut self, user: &str, request: ApprovalRequest) -> ApprovalResult {
        self.asks += 1;
        self.send(ConversationEvent::ApprovalGiven { ask: self.asks, user: user.to_owned(), request });
        let (ask, result) = self.approvals.pop().unwrap();
        assert_eq!(ask, self.asks);
        result
    }

    /// Asks for a call of a tool, and returns the asker. The id names the call.
    pub fn run_tool(&mut self, id: u128, command: &str) -> AskId {
        self.asks += 1;
        let request =
            CallRequest { id: uuid::Uuid::from_u128(id).to_string(), tool: "Shell".to_owned(), args: json!({ "command": command }) };
        self.send(ConversationEvent::CallRequested { ask: self.asks, user: "jane".to_owned(), request });
        self.asks
    }

    /// What this asker of a call was told.
    pub fn run_of(&self, ask: AskId) -> Option<RunToolResult> {
        self.runs.iter().find(|(other, _)| *other == ask).map(|(_, result)| result.clone())
    }

    /// The numbers of the calls that wait.
    pub fn waiting(&self) -> Vec<u64> {
        self.state.waiting_calls().iter().map(|call| call.call).collect()
    }

    pub fn answer_of(&self, ask: AskId) -> Option<ControlResponse> {
        self.answers.iter().find(|(other, _)| *other == ask).map(|(_, response)| response.clone())
    }

    pub fn refusal(&mut self, id: &str, action: ControlAction) -> Option<ControlReason> {
        self.ask(id, action).and_then(|response| response.refused).map(|refused| refused.reason)
    }

    pub fn kinds(&self) -> String {
        self.kinds_from(0)
    }

    pub fn kinds_from(&self, from: usize) -> String {
        self.log[from..].iter().map(|entry| entry.body.kind()).collect::<Vec<_>>().join(" ")
    }

    pub fn outcomes(&self) -> Vec<RunOutcome> {
        self.ends().into_iter().map(|(outcome, _)| outcome).collect()
    }

    pub fn ends(&self) -> Vec<(RunOutcome, Option<String>)> {
        let ends = self.log.iter().filter_map(|entry| match &entry.body {
            Body::RunEnded(end) => Some((end.outcome, end.reason.clone())),
            _ => None,
        });
        ends.collect()
    }

    pub fn causes(&self) -> Vec<Vec<String>> {
        let runs = self.log.iter().filter_map(|entry| match &entry.body {
            Body::RunStarted(run) => Some(run.cause.clone()),
            _ => None,
        });
        runs.collect()
    }

    pub fn started(&self) -> Vec<String> {
        let starts = self.log.iter().filter_map(|entry| match &entry.body {
            Body::ToolStarted(start) => Some(start.call_id.clone()),
            _ => None,
        });
        starts.collect()
    }

    pub fn task_state(&self) -> (Option<TaskState>, Option<String>) {
        let task = self.state.task("t");
        (task.map(|task| task.state), task.and_then(|task| task.reason.clone()))
    }

    /// The texts of the last request to the model.
    pub fn last_request(&self) -> Vec<String> {
        let items = self.shown.last().map(|request| request.items.to_vec()).unwrap_or_default();
        items
            .iter()
            .map(|item| match item {
                PromptItem::User(text) => text.clone(),
                PromptItem::Assistant(answer) => format!("A:{}", answer.text),
                PromptItem::Results(results) => format!("R:{}", results.len()),
            })
            .collect()
    }
}
