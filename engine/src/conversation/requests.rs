//! What people ask of the run and of the conversation, and the answers.
//!
//! An answer whose effect is in the log is formed from the log's entries, live and at a replay alike, so the same request gets the same answer
//! after a restart. A refusal leaves nothing in the log and is remembered by this process only.

use std::collections::VecDeque;

use sha2::{Digest, Sha256};
use yoi_wire::control::{
    ControlAction, ControlDone, ControlReason, ControlRefusal, ControlRequest, ControlResponse, RewindTarget, RewindTargets,
};
use yoi_wire::entry::{
    Abandoned, AnsweredRequest, Body, CompactionOutcome, CompactionReason, Entry, Input, InputFrom, ModeSwitched, Paused, PromptItem,
    Requester, Resumed, Rewound, RolledBack, RunEnded, RunOutcome, SystemItem,
};
use yoi_wire::hub::MAX_MESSAGE_TEXT;

use super::ending::Ending;
use super::{AskId, ConversationEvent, ConversationState, Effect, Intent, RunPhase};

/// The most answers that are remembered.
const MAX_ANSWERS: usize = 256;
/// Bytes of answers that a segment carries on.
const MAX_CARRIED_ANSWERS: usize = 1 << 20;
/// Bytes of a request's id.
const MAX_ID: usize = 256;
/// Characters of an input in the list of what the conversation can be turned back to.
const TARGET_CHARS: usize = 200;
/// Characters of a call's arguments in the list of remaining effects.
const EFFECT_CHARS: usize = 160;

const INTERRUPTED: &str = "[The work was interrupted by a person, who goes on with new words. Calls that had not begun did not run.]";
const NEVER_BEGAN: &str = "A person paused the run before this tool began, and went on with other words. It did not run.";
/// Answers by id, and askers that wait for one.
#[derive(Clone, Debug, Default)]
pub(super) struct Requests {
    answered: VecDeque<Remembered>,
    waiting: Vec<HeldAsk>,
}

#[derive(Clone, Debug)]
struct Remembered {
    request: AnsweredRequest,
    /// Its effect is in the log.
    logged: bool,
}

/// An asker, and what it asked.
#[derive(Clone, Debug)]
pub(super) struct HeldAsk {
    pub ask: AskId,
    pub user: String,
    pub request: ControlRequest,
}

impl Requests {
    /// Remembers these answers to one request, unless its id has one.
    pub fn remember(&mut self, requests: Vec<AnsweredRequest>) {
        self.insert(requests, true);
    }

    /// Remembers these answers to one request in the place of others to it.
    pub fn replace(&mut self, requests: Vec<AnsweredRequest>) {
        let id = requests.first().map(|request| request.response.id.clone());
        self.answered.retain(|known| Some(&known.request.response.id) != id.as_ref());
        self.insert(requests, true);
    }

    fn insert(&mut self, requests: Vec<AnsweredRequest>, logged: bool) {
        let taken = |id: &str| self.answered.iter().any(|known| known.request.response.id == id);
        if requests.first().is_none_or(|request| taken(&request.response.id)) {
            return;
        }
        self.answered.extend(requests.into_iter().map(|request| Remembered { request, logged }));
        while self.answered.len() > MAX_ANSWERS {
            self.answered.pop_front();
        }
    }

    /// Takes over what the segments before carried on. Refusals of this process stay known.
    pub fn restore(&mut self, requests: &[AnsweredRequest]) {
        let refused = std::mem::take(&mut self.answered).into_iter().filter(|known| !known.logged);
        let logged = requests.iter().map(|request| Remembered { request: request.clone(), logged: true });
        self.answered = logged.chain(refused).collect();
    }

    /// The answers whose effect is in the log, the latest of them, oldest first.
    pub fn logged(&self) -> Vec<AnsweredRequest> {
        let mut bytes = 0;
        let mut latest: Vec<AnsweredRequest> = self
            .answered
            .iter()
            .rev()
            .filter(|known| known.logged)
            .map(|known| known.request.clone())
            .take_while(|request| {
                bytes += 200 + request.response.done.as_ref().and_then(|done| done.input.as_ref()).map_or(0, String::len);
                bytes <= MAX_CARRIED_ANSWERS
            })
            .collect();
        latest.reverse();
        latest
    }

    fn find(&self, id: &str, digest: &str) -> Option<ControlResponse> {
        let mut known = self.answered.iter().filter(|known| known.request.response.id == id).peekable();
        known.peek()?;
        let same = known.find(|known| known.request.digest == digest).map(|known| known.request.response.clone());
        Some(same.unwrap_or_else(|| refused(id, ControlReason::Invalid, "this id was used for another request")))
    }

    /// Answers everyone whose request has an answer now.
    pub fn answer_pending(&mut self, intents: &mut Vec<Intent>) {
        for HeldAsk { ask, user, request } in std::mem::take(&mut self.waiting) {
            match self.find(&request.id, &digest(&user, &request.action)) {
                Some(response) => intents.push(Intent::Answer { ask, response }),
                None => self.waiting.push(HeldAsk { ask, user, request }),
            }
        }
    }
}

/// Hex SHA-256 of user and content. The segment of a rewind is left out: the sequence numbers say as much.
fn digest(user: &str, action: &ControlAction) -> String {
    let words = match action {
        ControlAction::Run { text } => format!("Run\0{text}"),
        ControlAction::Pause {} => "Pause".to_owned(),
        ControlAction::Resume {} => "Resume".to_owned(),
        ControlAction::Cancel {} => "Cancel".to_owned(),
        // The log does not say whether a run was to be cancelled for it.
        ControlAction::SetMode { mode, force: _ } => format!("SetMode\0{mode}"),
        ControlAction::Compact {} => "Compact".to_owned(),
        ControlAction::RegisterPeer { peer } => format!("RegisterPeer\0{peer}"),
        ControlAction::RewindTargets {} => "RewindTargets".to_owned(),
        ControlAction::RewindTo { segment: _, seq, head } => format!("RewindTo\0{seq}\0{head}"),
    };
    hex::encode(Sha256::digest(format!("{user}\0{words}")))
}

fn done(id: &str, message: &str) -> ControlResponse {
    let done = ControlDone { message: message.to_owned(), ..ControlDone::default() };
    ControlResponse { id: id.to_owned(), done: Some(done), refused: None }
}

fn refused(id: &str, reason: ControlReason, message: &str) -> ControlResponse {
    ControlResponse { id: id.to_owned(), done: None, refused: Some(ControlRefusal { reason, message: message.to_owned() }) }
}

/// The answers that an entry brings to the request that asked for it. `state` is the state before the entry.
pub(super) fn answered_by(state: &ConversationState, entry: &Entry) -> Option<Vec<AnsweredRequest>> {
    let to = |by: &Requester, action: ControlAction, message: &str| {
        Some(vec![AnsweredRequest { digest: digest(&by.user, &action), response: done(&by.request_id, message) }])
    };
    match &entry.body {
        Body::Input(Input { from: InputFrom::Person, message_id, user: Some(user), text }) => {
            let by = Requester { user: user.clone(), request_id: message_id.clone() };
            to(&by, ControlAction::Run { text: text.clone() }, "the agent works on it")
        }
        Body::Paused(Paused { by, .. }) => to(by, ControlAction::Pause {}, "the run is paused"),
        Body::Resumed(Resumed { by, .. }) => to(by, ControlAction::Resume {}, "the run goes on"),
        Body::Abandoned(Abandoned { by, .. }) => to(by, ControlAction::Cancel {}, "the paused run was cancelled"),
        Body::RunEnded(RunEnded { outcome: RunOutcome::Cancelled, by: Some(by), .. }) => {
            to(by, ControlAction::Cancel {}, "the run was cancelled")
        }
        Body::ModeSwitched(ModeSwitched { mode, by }) => {
            to(by, ControlAction::SetMode { mode: *mode, force: false }, &format!("the mode is {mode} from the next run on"))
        }
        Body::RolledBack(RolledBack { hidden, by, .. }) => {
            let input = state.texts_of(|seq| hidden.contains(&seq));
            let message = "nothing of an answer had come, so the input left the conversation";
            let done = ControlDone { message: message.to_owned(), input: Some(input), ..ControlDone::default() };
            let response = ControlResponse { id: by.request_id.clone(), done: Some(done), refused: None };
            // Either may have been asked; the log does not say which.
            let actions = [ControlAction::Pause {}, ControlAction::Cancel {}];
            let records = actions.iter().map(|action| AnsweredRequest { digest: digest(&by.user, action), response: response.clone() });
            Some(records.collect())
        }
        Body::Rewound(Rewound { from_seq, by }) => {
            let action = ControlAction::RewindTo { segment: String::new(), seq: *from_seq, head: entry.seq - 1 };
            let done = ControlDone {
                message: "the conversation was turned back; what tools did to the tree remains".to_owned(),
                input: Some(state.texts_of(|seq| seq == *from_seq)),
                remaining_effects: state.effects_from(*from_seq),
                rewind: None,
            };
            let response = ControlResponse { id: by.request_id.clone(), done: Some(done), refused: None };
            Some(vec![AnsweredRequest { digest: digest(&by.user, &action), response }])
        }
        Body::CompactionEnded(end) => {
            let by = state.facts.compaction.as_ref()?.by.as_ref()?;
            let message = match end.outcome {
                CompactionOutcome::Used => "the conversation was compacted".to_owned(),
                CompactionOutcome::Rejected | CompactionOutcome::Failed => {
                    format!("the conversation was not compacted: {}", end.message.as_deref().unwrap_or("no summary came"))
                }
            };
            to(by, ControlAction::Compact {}, &message)
        }
        Body::Input(_)
        | Body::SessionStarted(_)
        | Body::RuntimeStarted(_)
        | Body::PeerMessage(_)
        | Body::RunStarted(_)
        | Body::Assistant(_)
        | Body::ToolRequested(_)
        | Body::ToolAsked(_)
        | Body::ToolAnswered(_)
        | Body::ToolStarted(_)
        | Body::ToolEnded(_)
        | Body::RunEnded(_)
        | Body::Notice(_)
        | Body::SegmentStarted(_)
        | Body::Carried(_)
        | Body::ConfigChanged(_)
        | Body::SystemItem(_)
        | Body::Usage(_)
        | Body::CompactionStarted(_)
        | Body::Extension(_)
        | Body::Unknown { .. } => None,
    }
}

impl ConversationState {
    /// What waits until the running append, or the ending of the run, is over.
    pub(super) fn next_held(&mut self) -> Option<ConversationEvent> {
        if let Some(event) = self.deferred.pop_front() {
            return Some(event);
        }
        if self.ending.is_some() {
            return None;
        }
        let HeldAsk { ask, user, request } = self.held.pop_front()?;
        Some(ConversationEvent::Asked { ask, user, request })
    }

    fn texts_of(&self, wanted: impl Fn(u64) -> bool) -> String {
        let texts = self.prompt.with_origins().filter_map(|(seq, rewindable, item)| match item {
            PromptItem::User(text) if rewindable && wanted(seq) => Some(text.as_str()),
            PromptItem::User(_) | PromptItem::Assistant(_) | PromptItem::Results(_) => None,
        });
        texts.collect::<Vec<_>>().join("\n\n")
    }

    /// Calls from this entry on that may have changed the tree.
    fn effects_from(&self, from_seq: u64) -> Vec<String> {
        let offered = self.config_or_default();
        let answers = self.prompt.with_origins().filter_map(|(seq, _, item)| match item {
            PromptItem::Assistant(answer) if seq >= from_seq => Some(&answer.tool_calls),
            PromptItem::User(_) | PromptItem::Assistant(_) | PromptItem::Results(_) => None,
        });
        let calls = answers.flatten().filter(|call| !self.read_only_tools.contains(&call.tool));
        // A call of a tool that was never offered did not run.
        let calls = calls.filter(|call| offered.tools.is_empty() || offered.tools.iter().any(|tool| tool.name == call.tool));
        calls.map(|call| format!("{} {}", call.tool, call.args.to_string().chars().take(EFFECT_CHARS).collect::<String>())).collect()
    }

    pub(super) fn take_request(&mut self, ask: AskId, user: String, request: ControlRequest, intents: &mut Vec<Intent>) {
        let digest_now = digest(&user, &request.action);
        if let Some(response) = self.requests.find(&request.id, &digest_now) {
            intents.push(Intent::Answer { ask, response });
            return;
        }
        if let Some(other) = self.requests.waiting.iter().find(|other| other.request.id == request.id) {
            if digest(&other.user, &other.request.action) == digest_now {
                self.requests.waiting.push(HeldAsk { ask, user, request });
            } else {
                let response = refused(&request.id, ControlReason::Invalid, "this id was used for another request");
                intents.push(Intent::Answer { ask, response });
            }
            return;
        }
        if self.ending.is_some() {
            self.held.push_back(HeldAsk { ask, user, request });
            return;
        }
        let by = Requester { user: user.clone(), request_id: request.id.clone() };
        match self.carry_out(&request.action, by, intents) {
            // The answer comes with the entry.
            Ok(None) => self.requests.waiting.push(HeldAsk { ask, user, request }),
            Ok(Some(done)) => {
                let response = ControlResponse { id: request.id.clone(), done: Some(done), refused: None };
                // A list holds for the moment only, so its answer is not kept.
                if request.action != (ControlAction::RewindTargets {}) {
                    self.requests.insert(vec![AnsweredRequest { digest: digest_now, response: response.clone() }], false);
                }
                intents.push(Intent::Answer { ask, response });
            }
            Err((reason, message)) => {
                let response = refused(&request.id, reason, &message);
                if request.action != (ControlAction::RewindTargets {}) && !request.id.is_empty() {
                    self.requests.insert(vec![AnsweredRequest { digest: digest_now, response: response.clone() }], false);
                }
                intents.push(Intent::Answer { ask, response });
            }
        }
    }

    fn carry_out(&mut self, action: &ControlAction, by: Requester, intents: &mut Vec<Intent>) -> Result<Option<ControlDone>, Refused> {
        if by.request_id.is_empty() || by.request_id.len() > MAX_ID {
            return refuse(ControlReason::Invalid, "a request has an id of at most 256 bytes");
        }
        let run_id = self.log.open_run.as_ref().map(|run| run.run_id.clone());
        let phase = self.phase();
        let sentence = |message: &str| ControlDone { message: message.to_owned(), ..ControlDone::default() };
        match (action, phase, run_id) {
            (ControlAction::Run { text }, ..) if text.trim().is_empty() || text.len() > MAX_MESSAGE_TEXT => {
                refuse(ControlReason::Invalid, "the text of an input has at least one word, and at most 65536 bytes")
            }
            (ControlAction::Run { .. }, ..) if self.log.delivered.contains(&by.request_id) => Ok(Some(sentence("the agent works on it"))),
            (ControlAction::Run { .. } | ControlAction::Compact {}, ..) if !self.may_run => {
                refuse(ControlReason::NotReady, "the agent cannot run: its model cannot be used")
            }
            (ControlAction::Compact {} | ControlAction::RewindTargets {} | ControlAction::RewindTo { .. }, ..)
                if self.own_conversation().is_some() =>
            {
                refuse(ControlReason::NotSupported, self.own_conversation().unwrap_or_default())
            }
            (ControlAction::SetMode { mode, force }, ..) => self.set_mode(*mode, *force, by, intents),
            (ControlAction::Run { text }, RunPhase::Idle, _) => {
                let seq = self.log.last_seq + 2;
                let run = self.run_started(seq, [by.request_id.clone()]);
                self.append(vec![input(text, by), run], intents);
                Ok(None)
            }
            (ControlAction::Run { text }, RunPhase::Paused, Some(run_id)) => {
                let mut bodies = self.unbegun_calls_end(NEVER_BEGAN);
                let data = serde_json::json!({ "by": by.user });
                bodies.push(Body::SystemItem(SystemItem { topic: "Interrupted".to_owned(), data, text: INTERRUPTED.to_owned() }));
                bodies.extend([input(text, by.clone()), Body::Resumed(Resumed { run_id, by })]);
                self.append(bodies, intents);
                Ok(None)
            }
            (ControlAction::Pause {}, RunPhase::Running, Some(_)) => {
                self.begin_ending(false, by, intents);
                Ok(None)
            }
            (ControlAction::Cancel {}, RunPhase::Running, Some(_)) => {
                self.begin_ending(true, by, intents);
                Ok(None)
            }
            (ControlAction::Cancel {}, RunPhase::Running, None) => {
                self.end_effects(intents);
                self.append(vec![super::compaction_failed("a person cancelled it")], intents);
                Ok(Some(sentence("the compaction was cancelled")))
            }
            (ControlAction::Pause {}, RunPhase::Paused, _) => Ok(Some(sentence("the run is paused"))),
            (ControlAction::Resume {}, RunPhase::Paused, Some(run_id)) => {
                self.append(vec![Body::Resumed(Resumed { run_id, by })], intents);
                Ok(None)
            }
            (ControlAction::Resume {}, RunPhase::Running, Some(_)) if self.model_waits().is_some() => {
                intents.extend(self.model_waits().map(|effect| Intent::RetryModel { effect }));
                Ok(Some(sentence("the model is called again")))
            }
            (ControlAction::Cancel {}, RunPhase::Paused, Some(_)) => {
                self.ending = Some(Ending { cancel: true, roll_back: false, background_ended: false, mode: None, by });
                Ok(None)
            }
            (ControlAction::Compact {}, RunPhase::Idle, _) => match self.start_compaction(CompactionReason::Requested, Some(by)) {
                Some(start) => {
                    self.append(vec![start], intents);
                    Ok(None)
                }
                None => Ok(Some(sentence("there is nothing to compact"))),
            },
            (ControlAction::RegisterPeer { .. }, RunPhase::Idle | RunPhase::Paused, _) => Ok(Some(sentence("the agent is not running"))),
            (ControlAction::RewindTargets {}, RunPhase::Idle | RunPhase::Paused, _) => {
                let rewind = Some(self.rewind_targets());
                Ok(Some(ControlDone { rewind, ..sentence("what the conversation can be turned back to") }))
            }
            (ControlAction::RewindTo { segment, seq, head }, RunPhase::Idle, _) => {
                let targets = self.rewind_targets();
                if *segment != targets.segment || *head != targets.head {
                    return refuse(ControlReason::HeadChanged, "the conversation has gone on since the list was made; list again");
                }
                if !targets.inputs.iter().any(|target| target.seq == *seq) {
                    return refuse(ControlReason::Invalid, "the conversation cannot be turned back to this entry");
                }
                self.append(vec![Body::Rewound(Rewound { from_seq: *seq, by })], intents);
                Ok(None)
            }
            (ControlAction::Run { .. } | ControlAction::Compact {} | ControlAction::RewindTargets {}, RunPhase::Running, _)
            | (ControlAction::RewindTo { .. } | ControlAction::RegisterPeer { .. } | ControlAction::Resume {}, RunPhase::Running, _)
            | (ControlAction::Pause {}, RunPhase::Running, None) => refuse(ControlReason::AlreadyRunning, "a run is under way"),
            (ControlAction::Pause {} | ControlAction::Cancel {}, RunPhase::Idle, _) => {
                refuse(ControlReason::NotRunning, "no run is under way")
            }
            (ControlAction::Resume {}, RunPhase::Idle, _) => refuse(ControlReason::NotPaused, "no run is paused"),
            (ControlAction::Compact {} | ControlAction::RewindTo { .. }, RunPhase::Paused, _) => {
                refuse(ControlReason::Paused, "a run is paused: let it go on or cancel it first")
            }
            // A paused run is an open one.
            (ControlAction::Run { .. } | ControlAction::Resume {} | ControlAction::Cancel {}, RunPhase::Paused, None) => {
                refuse(ControlReason::NotPaused, "no run is paused")
            }
        }
    }

    fn model_waits(&self) -> Option<super::EffectId> {
        let waits = |effect: &Effect| matches!(effect, Effect::Model(call) if call.waits_for_person);
        self.effects.iter().find(|(_, effect)| waits(effect)).map(|(id, _)| *id)
    }

    fn rewind_targets(&self) -> RewindTargets {
        let inputs = self.prompt.with_origins().filter_map(|(seq, rewindable, item)| match item {
            PromptItem::User(text) if rewindable => Some(RewindTarget { seq, text: text.chars().take(TARGET_CHARS).collect() }),
            PromptItem::User(_) | PromptItem::Assistant(_) | PromptItem::Results(_) => None,
        });
        RewindTargets { segment: self.segment.clone(), head: self.log.last_seq, inputs: inputs.collect() }
    }
}

pub(super) type Refused = (ControlReason, String);

pub(super) fn refuse<T>(reason: ControlReason, message: &str) -> Result<T, Refused> {
    Err((reason, message.to_owned()))
}

fn input(text: &str, by: Requester) -> Body {
    Body::Input(Input { from: InputFrom::Person, message_id: by.request_id, user: Some(by.user), text: text.to_owned() })
}
