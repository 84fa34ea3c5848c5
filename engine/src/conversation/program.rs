//! Runs of a program that is the agent: when it starts, what it is given, which entries its words become, and how the run ends.
//!
//! The program keeps its own conversation. The log has what people and peers wrote, what the program said and did, and the id of its session.

use std::sync::Arc;

use serde_json::json;
use yoi_wire::entry::{
    Assistant, Body, CallFrom, CarriedProgram, Entry, Extension, Notice, PromptItem, RunOutcome, SystemItem, ToolCall, ToolOutcome,
};

use super::program_history;
use super::run::tool_ended;
use super::told_calls::{CallBudget, Latest, ToldCalls};
use super::{AskId, ConversationState, Effect, Intent};

/// Name of the extension that holds the program's own session id.
pub const SESSION_EXTENSION: &str = "program/session";
/// Name of the extension that holds a line that no parser knows.
pub const LINE_EXTENSION: &str = "program/line";
/// Name of the extension that holds lines of the output of a program whose output is no lines of JSON.
pub const OUTPUT_EXTENSION: &str = "program/output";
/// Name of the extension that holds the result of a call of which nothing else is known.
pub const RESULT_EXTENSION: &str = "program/result";

const GO_ON: &str = "[Your work was interrupted in the middle. A tool call that was under way may or may not have taken effect: look before \
    you repeat it. Go on with what you were asked.]";
const ENDED_BY_PERSON: &str = "A person ended the program while this tool ran. It may have taken effect in part.";
const ENDED_MEANWHILE: &str = "The program ended while this tool ran. It may or may not have taken effect.";
const NOT_BEGUN: &str = "The program ended before this tool began. It did not run.";
/// Topic of what a program is told that has lost its session.
const SESSION_LOST: &str = "SessionLost";
const OWN_CONVERSATION: &str = "the program keeps its own conversation, and Yoi cannot shorten it or turn it back";

/// The program that is the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramRole {
    /// Name of its preset, or `command`.
    pub name: String,
    /// It can go on in a session of its own.
    pub resumes: bool,
    /// Its words when its own login is not good, or no longer.
    pub login_prompts: Vec<String>,
}

/// How a program's process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramEnd {
    /// How.
    pub exit: ProgramExit,
    /// The end of what it wrote to standard error, or else to standard output.
    pub last_words: String,
    /// It says itself how a run ended: an end without that is a failure.
    pub expects_result: bool,
    /// The most model calls of a run, when the program wanted more.
    pub turns_used_up: Option<u32>,
}

impl ProgramEnd {
    /// The program could not be started. `message` says why, for people.
    #[must_use]
    pub fn not_started(message: String) -> Self {
        Self { exit: ProgramExit::NotStarted, last_words: message, expects_result: false, turns_used_up: None }
    }
}

/// The end of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramExit {
    /// It ended by itself.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
    /// A limit ended it.
    Limit,
    /// Its HOME has grown beyond what it may have. The run was ended, or not begun.
    HomeFull,
    /// It wrote nothing for as long as it may, and was ended.
    Silent,
    /// It is not in the image.
    Missing,
    /// It could not be started.
    NotStarted,
}

/// What is known of the program.
#[derive(Clone, Debug)]
pub(super) struct ProgramState {
    pub role: Arc<ProgramRole>,
    /// The id of the session that it has named last.
    pub(super) seen_session: Option<String>,
    carried: CarriedProgram,
    pub(super) run: ProgramRun,
    /// The session that was given up in the open run, and the entry that told the program what the log knows.
    lost: Option<(String, u64)>,
    /// Its model has answered in the open run, and the program has told of no answer since. A call may have begun that the log does not have.
    asked: bool,
    /// Who waits for a person's answer.
    pub(super) asking: Vec<AskingCall>,
    /// Who waits until the running append is durable.
    pub(super) unacknowledged: Vec<(AskId, Result<String, String>)>,
}

/// What this process knows of the run under way.
#[derive(Clone, Debug, Default)]
pub(super) struct ProgramRun {
    /// Calls that a hook told first and that no answer has named yet.
    pub hooked: ToldCalls,
    /// Calls that the log has, while they are open.
    pub told: ToldCalls,
    /// Ids of calls by other ids for the same call.
    pub aliases: Latest<String>,
    pub ended: Latest<()>,
    pub budget: CallBudget,
    /// As the program says it.
    pub result: Option<(bool, Option<String>)>,
    pub answered: bool,
    /// The program has named its session.
    pub named_session: bool,
    /// The program has asked its model.
    pub asked_model: bool,
    /// The run goes on in a session of the program's own.
    pub resumed: bool,
}

/// Whoever waits in the program until a person has answered.
#[derive(Clone, Debug)]
pub(super) struct AskingCall {
    pub ask: AskId,
    /// By the id that it has in the log, with all its arguments: the log has the head of long ones.
    pub call: ToolCall,
    pub from: CallFrom,
    pub wait_seconds: u64,
}

impl ProgramRun {
    /// The program was to go on in its session, and has neither named it nor asked its model nor done anything.
    fn never_began(&self) -> bool {
        self.resumed && !self.answered && !self.named_session && !self.asked_model
    }
}

impl ProgramState {
    pub fn new(role: ProgramRole) -> Self {
        Self {
            role: Arc::new(role),
            seen_session: None,
            carried: CarriedProgram::default(),
            run: ProgramRun::default(),
            lost: None,
            asked: false,
            asking: Vec::new(),
            unacknowledged: Vec::new(),
        }
    }

    pub fn carried(&self) -> CarriedProgram {
        self.carried.clone()
    }

    /// What the log says of a call that waited: it has begun, or it has ended.
    pub(super) fn end_wait(&mut self, call_id: &str, result: &Result<String, String>) {
        let answered = self.asking.extract_if(.., |asking| asking.call.call_id == call_id);
        self.unacknowledged.extend(answered.map(|asking| (asking.ask, result.clone())));
    }

    /// The session in which the next run goes on.
    fn session(&self) -> Option<&String> {
        self.carried.session.as_ref().filter(|_| self.role.resumes)
    }
}

impl ConversationState {
    /// The agent is this program.
    #[must_use]
    pub fn for_program(mut self, role: Option<ProgramRole>) -> Self {
        self.program = role.map(ProgramState::new);
        self
    }

    /// Takes an entry into what the program was and was not given. False: no program is the agent.
    pub(super) fn record_for_program(&mut self, entry: &Entry) -> bool {
        let Some(program) = &mut self.program else { return false };
        if program.role.resumes {
            program_history::add(&mut program.carried.history, program_history::lines_of(&entry.body));
        }
        match &entry.body {
            Body::Assistant(_) => {
                program.carried.answered = entry.seq;
                program.asked = false;
                program.lost = None;
                if program.seen_session.is_some() {
                    program.carried.session.clone_from(&program.seen_session);
                }
            }
            Body::Extension(Extension { name, data }) if name == SESSION_EXTENSION => {
                program.seen_session = data["id"].as_str().map(str::to_owned);
                if let Some(lost) = data["lost"].as_str() {
                    program.lost = Some((lost.to_owned(), 0));
                    program.carried.session_lost_at = Some(entry.at.clone());
                }
                // Its files are removed, so the next run is a first one.
                if program.seen_session.is_none() {
                    program.carried.session = None;
                }
            }
            Body::Carried(carried) => {
                if let Some(state) = &carried.state {
                    program.carried = state.program.clone().unwrap_or_default();
                    program.seen_session.clone_from(&program.carried.session);
                }
                self.prompt.record(entry);
            }
            Body::Usage(_) => {
                program.asked = self.log.open_run.is_some();
                program.run.asked_model = true;
            }
            Body::RunEnded(end) => {
                program.asked &= end.outcome == RunOutcome::Interrupted;
                let answered = program.carried.answered;
                if end.outcome != RunOutcome::Interrupted
                    && let Some((session, told)) = program.lost.take()
                {
                    // The program has not begun without it either, so the cause was another.
                    program.seen_session = Some(session.clone());
                    program.carried.session = Some(session);
                    program.carried.session_lost_at = None;
                    self.prompt.retain(|seq| seq != told);
                }
                match end.outcome {
                    // The next run may have to be given all of it again.
                    RunOutcome::Interrupted => {}
                    RunOutcome::Cancelled | RunOutcome::RolledBack => self.prompt.retain(|_| false),
                    RunOutcome::Finished | RunOutcome::Failed | RunOutcome::LimitReached | RunOutcome::Truncated => {
                        self.prompt.retain(|seq| seq > answered);
                    }
                }
            }
            Body::SystemItem(item) => {
                program.asked = false;
                if item.topic == SESSION_LOST
                    && let Some((_, told)) = &mut program.lost
                {
                    *told = entry.seq;
                }
                self.prompt.record(entry);
            }
            Body::Input(_) | Body::PeerMessage(_) | Body::RolledBack(_) | Body::Rewound(_) => {
                self.prompt.record(entry);
            }
            // What the program's own output tells of a begin is no decision.
            Body::ToolStarted(start) if start.decision.is_some() => program.end_wait(&start.call_id, &Ok(start.call_id.clone())),
            Body::ToolEnded(end) => {
                program.run.ended.insert(end.call_id.clone(), ());
                program.run.told.take(|other| other.call_id == end.call_id);
                program.end_wait(&end.call_id, &Err(end.output.clone()));
            }
            Body::SessionStarted(_)
            | Body::RuntimeStarted(_)
            | Body::RunStarted(_)
            | Body::ToolRequested(_)
            | Body::ToolAsked(_)
            | Body::ToolAnswered(_)
            | Body::ToolStarted(_)
            | Body::Notice(_)
            | Body::SegmentStarted(_)
            | Body::ConfigChanged(_)
            | Body::Paused(_)
            | Body::Resumed(_)
            | Body::Abandoned(_)
            | Body::ModeSwitched(_)
            | Body::CompactionStarted(_)
            | Body::CompactionEnded(_)
            | Body::Extension(_)
            | Body::Unknown { .. } => {}
        }
        true
    }

    /// That the program has lost its own session and goes on in another one: a sentence for people, without the program's words.
    #[must_use]
    pub fn lost_program_session(&self) -> Option<String> {
        let program = self.program.as_ref()?;
        let at = program.carried.session_lost_at.as_ref()?;
        Some(format!(
            "program {} could not go on in its own session at {at}, and began a new one with what the agent's log knows",
            program.role.name
        ))
    }

    /// Starts the program for the open run.
    pub(super) fn go_on_with_program(&mut self, intents: &mut Vec<Intent>) {
        if self.go_on_with_answered_calls(intents) {
            return;
        }
        let Some(program) = &self.program else { return };
        if self.effects.values().any(|effect| matches!(effect, Effect::Program | Effect::ProgramCheck { .. } | Effect::Background)) {
            return;
        }
        if let Some(message) = self.token_limit_reached() {
            return self.end_run(RunOutcome::LimitReached, Some("LimitReached"), Some(message), intents);
        }
        if !self.inbox_read {
            intents.push(Intent::ReadInbox);
            return;
        }
        let answered = program.carried.answered;
        if program.asked || self.prompt.with_origins().all(|(seq, ..)| seq <= answered) {
            let item = SystemItem { topic: "Interrupted".to_owned(), data: json!({}), text: GO_ON.to_owned() };
            return self.append(vec![Body::SystemItem(item)], intents);
        }
        let session = program.session().cloned();
        // A program that begins anew has read nothing of the run so far.
        let from = if session.is_some() { answered } else { 0 };
        let texts = self.prompt.with_origins().filter_map(|(seq, _, item)| match item {
            PromptItem::User(text) if seq > from => Some(text.as_str()),
            PromptItem::User(_) | PromptItem::Assistant(_) | PromptItem::Results(_) => None,
        });
        let input = texts.collect::<Vec<_>>().join("\n\n");
        let effect = self.new_effect(Effect::Program);
        if let Some(program) = &mut self.program {
            program.run = ProgramRun { resumed: session.is_some(), ..ProgramRun::default() };
        }
        intents.push(Intent::RunProgram { effect, input, session });
    }

    /// What its answers name as their source.
    pub(super) fn api(&self) -> String {
        self.program.as_ref().map_or_else(String::new, |program| format!("program/{}", program.role.name))
    }

    /// The ends of all calls that the program leaves behind.
    fn abandoned_calls(&self, started: ToolOutcome, output: &str) -> Vec<Body> {
        let calls = self.log.open_calls.iter().map(|call| match call.started {
            Some(_) => tool_ended(&call.call_id, started, output),
            None => tool_ended(&call.call_id, ToolOutcome::Refused, NOT_BEGUN),
        });
        calls.collect()
    }

    /// A person ended the program's process.
    pub(super) fn program_is_gone(&mut self, intents: &mut Vec<Intent>) {
        let bodies = self.abandoned_calls(ToolOutcome::Failed, ENDED_BY_PERSON);
        if !bodies.is_empty() {
            self.append(bodies, intents);
        }
    }

    /// The program's process has ended.
    pub(super) fn take_program_end(&mut self, end: &ProgramEnd, intents: &mut Vec<Intent>) {
        if self.ending.is_some() {
            return self.program_is_gone(intents);
        }
        let Some(program) = &self.program else { return };
        let mut bodies = self.abandoned_calls(ToolOutcome::Unknown, ENDED_MEANWHILE);
        let (outcome, reason, message) = self.outcome(program, end);
        let has_ended = matches!(end.exit, ProgramExit::Code(_) | ProgramExit::Signal(_));
        if let Some(session) =
            program.carried.session.as_ref().filter(|_| has_ended && reason == Some("ProgramFailed") && program.run.never_began())
        {
            let words = message.unwrap_or_default();
            let message = format!(
                "{} could not go on in its session {session}, so it begins a new one with what the log knows: {words}",
                program.role.name
            );
            let text = self.history_text(&program.carried.history);
            bodies.push(Body::Extension(Extension { name: SESSION_EXTENSION.to_owned(), data: json!({ "id": null, "lost": session }) }));
            bodies.push(Body::Notice(Notice { reason: "ProgramSessionLost".to_owned(), message }));
            bodies.push(Body::SystemItem(SystemItem { topic: SESSION_LOST.to_owned(), data: json!({}), text }));
            return self.append(bodies, intents);
        }
        if outcome == RunOutcome::Finished && !program.run.answered {
            // It has nothing to say, and is not given its input again.
            bodies.push(Body::Assistant(Assistant { api: self.api(), ..Assistant::default() }));
        }
        if end.exit == ProgramExit::HomeFull {
            bodies.push(Body::Extension(Extension { name: SESSION_EXTENSION.to_owned(), data: json!({ "id": null }) }));
        }
        bodies.extend(self.run_ended(outcome, reason, message));
        self.append(bodies, intents);
    }

    fn outcome(&self, program: &ProgramState, end: &ProgramEnd) -> (RunOutcome, Option<&'static str>, Option<String>) {
        let name = &program.role.name;
        let asks_for_login = |message: &str| program.role.login_prompts.iter().any(|prompt| message.contains(prompt.as_str()));
        let failed = |reason, message: String| {
            let reason = if reason == "ProgramFailed" && asks_for_login(&message) { "ProgramLoginNeeded" } else { reason };
            (RunOutcome::Failed, Some(reason), Some(message))
        };
        let turns = || end.turns_used_up.map(|turns| format!("the limit of {turns} model calls in one run was reached"));
        let limit = |otherwise: (RunOutcome, Option<&'static str>, Option<String>)| match self.token_limit_reached().or_else(turns) {
            Some(message) => (RunOutcome::LimitReached, Some("LimitReached"), Some(message)),
            None => otherwise,
        };
        let last_words = match end.last_words.trim() {
            "" => "it wrote nothing".to_owned(),
            words => format!("its last words: {words}"),
        };
        match (&program.run.result, &end.exit) {
            (_, ProgramExit::Missing) => failed("ProgramMissing", end.last_words.clone()),
            (_, ProgramExit::HomeFull) => failed("ProgramHomeFull", end.last_words.clone()),
            (_, ProgramExit::NotStarted) => failed("ProgramFailed", end.last_words.clone()),
            (Some((true, _)), _) => (RunOutcome::Finished, None, None),
            (Some((false, message)), _) => {
                let said = message.clone().unwrap_or(last_words);
                limit(failed("ProgramFailed", format!("{name} says that it failed: {said}")))
            }
            (None, ProgramExit::Code(0)) if !end.expects_result => (RunOutcome::Finished, None, None),
            (None, ProgramExit::Code(0)) => limit(failed("ProgramFailed", format!("{name} ended without a result; {last_words}"))),
            (None, ProgramExit::Code(code)) => limit(failed("ProgramFailed", format!("{name} ended with exit code {code}; {last_words}"))),
            (None, ProgramExit::Signal(signal)) => {
                limit(failed("ProgramFailed", format!("{name} was ended by signal {signal}; {last_words}")))
            }
            (None, ProgramExit::Silent) => failed("ProgramSilent", end.last_words.clone()),
            (None, ProgramExit::Limit) => limit(failed("LimitReached", format!("{name} was ended, because a limit was used up"))),
        }
    }

    /// Why a request about the conversation is refused.
    pub(super) fn own_conversation(&self) -> Option<&'static str> {
        self.program.as_ref().map(|_| OWN_CONVERSATION)
    }
}
