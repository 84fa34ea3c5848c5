//! What an attached terminal knows, and what follows from what comes: a function without a clock, a socket or a screen.

mod keys;
mod questions;

use ratatui::crossterm::event::KeyEvent;
use yoi_wire::approval::{ApprovalRequest, ApprovalResponse};
use yoi_wire::control::{AttachLine, ControlAction, ControlDone, ControlReason, ControlResponse, RewindTargets};
use yoi_wire::entry::{Body, Entry, TokenUsage};
use yoi_wire::hub::Activity;

use questions::Question;

use super::blocks::LiveBlocks;
use super::input_line::InputLine;
use super::seen::{Place, SeenEntries};
use super::transcript::Transcript;

/// What comes.
#[derive(Debug)]
pub enum Event {
    /// A line of the stream.
    Line(Box<AttachLine>),
    /// The stream broke, for this reason, and is opened again.
    Broken(String),
    /// The agent has stopped, and its last entry has come.
    Stopped,
    Key(KeyEvent),
    /// Text that was pasted.
    Paste(String),
    /// The terminal has another size.
    Resized,
    /// What came of [`Effect::Control`]: an error is a sentence.
    Answered {
        action: ControlAction,
        answer: Result<ControlResponse, String>,
    },
    /// What came of [`Effect::Send`].
    Sent {
        text: String,
        answer: Result<(), String>,
    },
    /// What came of [`Effect::Answer`].
    CallAnswered {
        answer: Result<ApprovalResponse, String>,
    },
    /// Somebody ends this program.
    Terminated,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Ask the agent.
    Control(ControlAction),
    /// Send the agent a message.
    Send(String),
    /// Answer a call that waits for a person.
    Answer(ApprovalRequest),
    /// Give the terminal back. The agent goes on.
    Leave,
}

/// How the stream is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Connection {
    Opening,
    Attached,
    Broken(String),
    /// The agent has stopped. It is attached to again when somebody starts it.
    Stopped,
}

/// A sentence below the transcript.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    pub text: String,
    pub is_warning: bool,
}

/// What stands over the transcript.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Panel {
    Help,
    /// The inputs to turn back to, and the chosen one.
    Rewind {
        targets: RewindTargets,
        chosen: usize,
    },
}

/// The state of one attached terminal.
#[derive(Clone, Debug)]
pub struct AttachState {
    pub agent: String,
    pub connection: Connection,
    /// `None` until the first greeting.
    pub activity: Option<Activity>,
    pub tokens: TokenUsage,
    pub transcript: Transcript,
    pub blocks: LiveBlocks,
    pub input: InputLine,
    pub notice: Option<Notice>,
    pub panel: Option<Panel>,
    /// Whether what tools did is shown.
    pub tools_open: bool,
    /// Lines between the end of the transcript and that of the screen.
    pub scroll: usize,
    /// The calls that wait for a person, as far as their questions have come.
    questions: Vec<Question>,
    seen: SeenEntries,
    /// The input to turn back to once the list is there.
    rewind_to: Option<u64>,
}

impl AttachState {
    pub fn new(agent: &str) -> Self {
        AttachState {
            agent: agent.to_owned(),
            connection: Connection::Opening,
            activity: None,
            tokens: TokenUsage::default(),
            transcript: Transcript::default(),
            blocks: LiveBlocks::default(),
            input: InputLine::default(),
            notice: None,
            panel: None,
            tools_open: false,
            scroll: 0,
            questions: Vec::new(),
            seen: SeenEntries::default(),
            rewind_to: None,
        }
    }

    /// Takes what came, and returns what is to be done.
    pub fn apply(&mut self, event: Event) -> Vec<Effect> {
        match event {
            Event::Line(line) => {
                self.line(*line);
                Vec::new()
            }
            Event::Broken(why) => {
                self.connection = Connection::Broken(why);
                Vec::new()
            }
            Event::Stopped => {
                self.connection = Connection::Stopped;
                self.activity = None;
                self.blocks.clear();
                Vec::new()
            }
            Event::Key(key) => self.key(key),
            Event::Paste(text) => {
                self.input.insert(&text.replace("\r\n", "\n").replace('\r', "\n"));
                Vec::new()
            }
            Event::Resized => Vec::new(),
            Event::Answered { action, answer } => self.answered(action, answer),
            Event::Sent { text, answer } => {
                match answer {
                    Ok(()) => self.say(format!("{} reads it before its next step", self.agent)),
                    Err(why) => {
                        self.input.put_back(&text);
                        self.warn(why);
                    }
                }
                Vec::new()
            }
            Event::CallAnswered { answer } => {
                self.call_answered(answer);
                Vec::new()
            }
            Event::Terminated => vec![Effect::Leave],
        }
    }

    fn line(&mut self, line: AttachLine) {
        match line {
            AttachLine::Greeting { session, segment: _, activity, tokens } => {
                if self.seen.greet(&session) {
                    self.transcript.note(format!("another session begins: {session}"));
                }
                self.connection = Connection::Attached;
                self.blocks.greet();
                self.set_activity(activity, tokens);
            }
            AttachLine::Entry { token: _, entry } => self.entry(&entry),
            AttachLine::Delta(delta) => self.blocks.apply(&delta),
            AttachLine::Activity { activity, tokens } => self.set_activity(activity, tokens),
            // The head of the segment is an entry, and says it.
            AttachLine::Rotated { segment: _ } => {}
            AttachLine::Behind {} => self.connection = Connection::Broken("this terminal read too slowly".to_owned()),
            AttachLine::Ended {} => self.connection = Connection::Broken("the agent stops or restarts".to_owned()),
            AttachLine::Unknown => {}
        }
    }

    fn set_activity(&mut self, activity: Activity, tokens: TokenUsage) {
        (self.activity, self.tokens) = (Some(activity), tokens);
        match activity {
            Activity::Idle => self.blocks.clear(),
            Activity::Running | Activity::Paused | Activity::NeedsInput => {}
        }
    }

    fn entry(&mut self, entry: &Entry) {
        match self.seen.place(entry.seq) {
            Place::Again => return,
            Place::After(lost) => self.transcript.note(format!("{lost} entries before entry {} did not come; the log has them", entry.seq)),
            Place::Next => {}
        }
        match &entry.body {
            Body::Assistant(_) => self.blocks.end_answer(),
            Body::ToolEnded(ended) => self.blocks.end_call(&ended.call_id),
            Body::RuntimeStarted(_) | Body::RunEnded(_) | Body::Paused(_) => self.blocks.clear(),
            Body::ToolRequested(_) | Body::ToolAsked(_) | Body::ToolAnswered(_) => {}
            Body::SessionStarted(_) | Body::Input(_) | Body::PeerMessage(_) | Body::RunStarted(_) | Body::ToolStarted(_) => {}
            Body::Notice(_) | Body::SegmentStarted(_) | Body::Carried(_) | Body::ConfigChanged(_) | Body::SystemItem(_) => {}
            Body::Resumed(_) | Body::Abandoned(_) | Body::RolledBack(_) | Body::Rewound(_) | Body::Usage(_) => {}
            Body::ModeSwitched(_) | Body::CompactionStarted(_) | Body::CompactionEnded(_) | Body::Extension(_) => {}
            Body::Unknown { .. } => {}
        }
        self.record_question(entry);
        self.transcript.record(entry);
    }

    fn answered(&mut self, action: ControlAction, answer: Result<ControlResponse, String>) -> Vec<Effect> {
        let response = match answer {
            Ok(response) => response,
            Err(why) => {
                self.not_done(action);
                self.warn(why);
                return Vec::new();
            }
        };
        match (response.refused, response.done) {
            (Some(refusal), _) => {
                // It was idle when the text was written. What is said to a run under way is a message.
                if let (ControlReason::AlreadyRunning, ControlAction::Run { text }) = (refusal.reason, &action) {
                    return vec![Effect::Send(text.clone())];
                }
                self.not_done(action);
                self.warn(refusal.message);
                Vec::new()
            }
            (None, Some(done)) => self.done(done),
            (None, None) => {
                self.warn("the answer says nothing: take the plugin and the charts of the same version".to_owned());
                Vec::new()
            }
        }
    }

    /// Gives a text back that was not taken.
    fn not_done(&mut self, action: ControlAction) {
        match action {
            ControlAction::Run { text } => self.input.put_back(&text),
            ControlAction::RewindTargets {} => self.rewind_to = None,
            ControlAction::Pause {} | ControlAction::Resume {} | ControlAction::Cancel {} | ControlAction::Compact {} => {}
            ControlAction::RegisterPeer { .. } | ControlAction::RewindTo { .. } | ControlAction::SetMode { .. } => {}
        }
    }

    fn done(&mut self, done: ControlDone) -> Vec<Effect> {
        let ControlDone { message, input, remaining_effects, rewind } = done;
        if let Some(targets) = rewind {
            return self.rewind_targets(targets);
        }
        for effect in remaining_effects {
            self.transcript.note(format!("its effect remains: {effect}"));
        }
        if let Some(input) = input {
            self.input.put_back(&input);
        }
        self.say(message);
        Vec::new()
    }

    fn rewind_targets(&mut self, targets: RewindTargets) -> Vec<Effect> {
        match self.rewind_to.take() {
            Some(seq) if targets.inputs.iter().any(|input| input.seq == seq) => {
                let RewindTargets { segment, head, inputs: _ } = targets;
                return vec![Effect::Control(ControlAction::RewindTo { segment, seq, head })];
            }
            Some(seq) => self.warn(format!("entry {seq} is no input that the conversation can be turned back to; :rewind lists them")),
            None if targets.inputs.is_empty() => self.warn("there is no input to turn back to".to_owned()),
            None => {
                let chosen = targets.inputs.len() - 1;
                self.panel = Some(Panel::Rewind { targets, chosen });
            }
        }
        Vec::new()
    }

    fn say(&mut self, text: String) {
        self.notice = Some(Notice { text, is_warning: false });
    }

    fn warn(&mut self, text: String) {
        self.notice = Some(Notice { text, is_warning: true });
    }
}

#[cfg(test)]
mod tests;
