//! Entries of a session log: what happened, in the order in which it happened.
//!
//! The log holds one entry a line. `yoi-session` frames and checks the line; this module says what an entry means.

mod answer;
mod asked;
mod control;
mod decision;
mod prompt;
mod raw_body;
mod requested;
mod segment;

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use answer::{AnswerPart, Assistant, Image, StopReason, TokenUsage, ToolCall, UsageWithoutAnswer};
pub use asked::{Answer, CallQuestion, PastQuestion, ToolAnswered, ToolAsked};
pub use control::{Abandoned, ModeSwitched, Paused, Requester, Resumed, Rewound, RolledBack};
pub use decision::{CallDecision, CallFrom, RefusalClass};
pub use prompt::{CompactionEnded, CompactionOutcome, CompactionReason, CompactionStarted, PromptItem, PromptToolResult, SystemItem};
use raw_body::RawBody;
pub use requested::{PastRequest, ToolRequested};
pub use segment::{
    AgentConfig, AnsweredRequest, Carried, CarriedCall, CarriedItem, CarriedMore, CarriedProgram, CarriedRequest, CarriedRun, CarriedState,
    CarriedTask, ConfigChanged, ModelConfig, OfferedTool, SegmentLink, SegmentReason, SegmentStarted,
};

/// The version of the entry kinds in this build. A higher one in a log is refused by a runtime and shown by a reader.
pub const FORMAT: u32 = 2;

/// Why runs end without having finished. `yoi_crds::reason` explains each.
pub const RUN_END_REASONS: [&str; 15] = [
    "Cancelled",
    "CommandInvalid",
    "ContentFilter",
    "ContextFull",
    "EmptyAnswer",
    "LimitReached",
    "ModelRefusedHistory",
    "ProgramFailed",
    "ProgramHomeFull",
    "ProgramLoginNeeded",
    "ProgramMissing",
    "ProgramSilent",
    "Refused",
    "Truncated",
    "WrittenCall",
];

/// Why notices stand in a log. `yoi_crds::reason` explains each.
pub const NOTICE_REASONS: [&str; 7] = [
    "HoldersEnded",
    "ModelRefused",
    "ModelRequestChanged",
    "ModelUnreachable",
    "ProgramSessionLost",
    "ProgramTaskStopped",
    "ProgramVersionUnknown",
];

/// One committed fact of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// UUIDv7, unique in the session.
    pub id: String,
    /// Position in the session, from 1, without gaps.
    pub seq: u64,
    /// Run generation of the Pod that wrote it.
    pub run: u64,
    /// Wall clock of the writer, RFC 3339, UTC, milliseconds. For people; order is `seq`.
    pub at: String,
    /// What happened.
    #[serde(flatten)]
    pub body: Body,
}

/// What happened. A reader keeps a kind that it does not know as [`Body::Unknown`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "RawBody", into = "RawBody")]
pub enum Body {
    /// First entry of every session.
    SessionStarted(SessionStarted),
    /// A runtime took the lock and replayed up to here.
    RuntimeStarted(RuntimeStarted),
    /// Text for the model: a task or a person's message. It starts a run, or the run under way reads it.
    Input(Input),
    /// A message from another agent, delivered once out of the inbox.
    PeerMessage(PeerMessage),
    /// A run begins: the model will be called.
    RunStarted(RunStarted),
    /// The model answered. No tool call in it has begun.
    Assistant(Assistant),
    /// Somebody asks for a call that no model asked for. Nothing of it has begun.
    ToolRequested(ToolRequested),
    /// A tool call waits for a person.
    ToolAsked(ToolAsked),
    /// A person has answered a call that waits.
    ToolAnswered(ToolAnswered),
    /// A tool call is about to begin. Durable before the tool starts.
    ToolStarted(ToolStarted),
    /// A tool call ended, or its outcome is unknown: its output says why.
    ToolEnded(ToolEnded),
    /// The run is over.
    RunEnded(RunEnded),
    /// The runtime could not do something that a person may want to know (model unreachable, and so on). Not shown to the model.
    Notice(Notice),
    /// Head of a segment.
    SegmentStarted(SegmentStarted),
    /// What of the segments before the head still counts. One or more follow the head at once.
    Carried(Carried),
    /// System prompt, tools or model are others from here on.
    ConfigChanged(ConfigChanged),
    /// Something that the runtime tells the model.
    SystemItem(SystemItem),
    /// The open run was paused.
    Paused(Paused),
    /// The paused run goes on.
    Resumed(Resumed),
    /// The paused run was cancelled.
    Abandoned(Abandoned),
    /// The run's input left the conversation, because nothing of an answer had come.
    RolledBack(RolledBack),
    /// A person turned the conversation back.
    Rewound(Rewound),
    /// A person has set the mode of the conversation.
    ModeSwitched(ModeSwitched),
    /// Tokens of a model call that brought no answer.
    Usage(UsageWithoutAnswer),
    /// A summary of the conversation is asked of the model.
    CompactionStarted(CompactionStarted),
    /// The summary came, or did not.
    CompactionEnded(CompactionEnded),
    /// Something that a version or a program adds. It is kept and shown, and a runtime that does not know it goes on without it: on its line
    /// stands `"optional":true`.
    Extension(Extension),
    /// A kind that this version does not know.
    Unknown {
        /// The kind in JSON.
        kind: String,
        /// Whether a runtime of this version may go on without it.
        optional: bool,
        /// The body in JSON.
        fields: Value,
    },
}

/// The session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionStarted {
    /// UUID of the session.
    pub session: String,
    /// The agent that it belongs to.
    pub agent: AgentRef,
    /// [`FORMAT`] of the runtime that began it.
    pub format: u32,
}

/// A YoiPod's name together with the identity it had.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AgentRef {
    /// Namespace of the YoiPod.
    pub namespace: String,
    /// Name of the YoiPod.
    pub name: String,
    /// UID of the YoiPod.
    pub uid: String,
}

/// `namespace/name`: the field `object` of a log line.
impl fmt::Display for AgentRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A start of the runtime.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeStarted {
    /// UID of the Pod that runs it.
    pub pod_uid: String,
    /// Hex SHA-256 of the manifest that it reads.
    pub manifest_digest: String,
    /// Bytes of a torn last line that were cut when the log was opened; 0 when it ended cleanly.
    #[serde(default)]
    pub cut_bytes: u64,
}

/// Who gave an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum InputFrom {
    /// `spec.task`; its entry carries the task's id, so that it is submitted once.
    Task,
    /// A person, through `kubectl yoi send`.
    Person,
}

/// Text for the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Input {
    /// Who gave it.
    pub from: InputFrom,
    /// The sender's id for it. An id already in the log is not taken twice.
    pub message_id: String,
    /// The authenticated user name of the person; absent for a task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// What the model reads.
    pub text: String,
}

/// A message of another agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PeerMessage {
    /// The sender's id for it. An id already in the log is not taken twice.
    pub message_id: String,
    /// The sender, as the gateway authenticated it.
    pub from: AgentRef,
    /// The message as its sender wrote it.
    pub text: String,
    /// The very text that the model reads; absent in format 1, where it was formed from sender and text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
}

/// The begin of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunStarted {
    /// Id of the run; entries up to its `RunEnded` belong to it.
    pub run_id: String,
    /// Ids of the inputs and messages that started it.
    pub cause: Vec<String>,
}

/// The begin of a tool call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolStarted {
    /// As in the [`ToolCall`].
    pub call_id: String,
    /// Name of the tool.
    pub tool: String,
    /// That it may begin; absent in logs of earlier versions, and when a program did not ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<CallDecision>,
}

/// How a tool call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ToolOutcome {
    /// The tool did what it was asked.
    Succeeded,
    /// The tool ran, and reports an error.
    Failed,
    /// Refused before it began: unknown tool, bad arguments, policy.
    Refused,
    /// It took longer than the limit, and was killed.
    TimedOut,
    /// What it did is not known: the runtime or the program stopped while it ran, as its output says. It is not run again.
    Unknown,
}

/// The end of a tool call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolEnded {
    /// As in the [`ToolCall`].
    pub call_id: String,
    /// How it ended.
    pub outcome: ToolOutcome,
    /// What the model reads.
    pub output: String,
    /// Pictures that the model sees beside the output.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
    /// Milliseconds between start and end, by the monotonic clock; absent when unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub millis: Option<u64>,
    /// Of a call that was refused: who asked, and why not; absent in logs of earlier versions. Of a call by the engine's API always: who asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<CallDecision>,
    /// Of a call that read what another agent has said: how far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<ReadPosition>,
}

/// How far the words of another agent were read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadPosition {
    /// Name of the YoiPod.
    pub agent: String,
    /// UID of the YoiPod. Another one of the name is read from its beginning.
    pub uid: String,
    /// Token of the last entry that was read.
    pub token: String,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RunOutcome {
    /// The model had nothing more to do.
    Finished,
    /// The model could not be reached or refused, after all retries; or the program that is the agent failed.
    Failed,
    /// The turn limit was reached.
    LimitReached,
    /// The runtime died or was stopped in the middle of it.
    Interrupted,
    /// The model's last answer was cut off at its output limit.
    Truncated,
    /// A person cancelled it.
    Cancelled,
    /// A person paused or cancelled it before anything of an answer had come; its input left the conversation.
    RolledBack,
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunEnded {
    /// As in the [`RunStarted`].
    pub run_id: String,
    /// How it ended.
    pub outcome: RunOutcome,
    /// Why it did not finish, in one CamelCase word, one of [`RUN_END_REASONS`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Who asked for the end; absent when nobody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Requester>,
}

/// Something that a version or a program adds to the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Extension {
    /// Who adds it and what it is, as `owner/kind`.
    pub name: String,
    /// Its content.
    pub data: Value,
}

/// Something that a person may want to know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Notice {
    /// CamelCase, of the same vocabulary as condition reasons.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry(body: Body) -> Entry {
        Entry { id: "01a1ff01-550d-7789-8e0d-ecf23596a350".into(), seq: 7, run: 2, at: "2026-02-28T23:59:59.999Z".into(), body }
    }

    fn agent() -> AgentRef {
        AgentRef { namespace: "ns".into(), name: "a".into(), uid: "u".into() }
    }

    fn every_kind() -> Vec<Body> {
        let call = ToolCall { call_id: "c".into(), tool: "Shell".into(), args: json!({ "command": "ls", "deep": [1, null] }) };
        let usage = Some(TokenUsage { input_tokens: u64::MAX, output_tokens: 0, ..TokenUsage::default() });
        let bodies = vec![
            Body::SessionStarted(SessionStarted { session: "s".into(), agent: agent(), format: FORMAT }),
            Body::RuntimeStarted(RuntimeStarted { pod_uid: "p".into(), manifest_digest: "d".into(), cut_bytes: 3 }),
            Body::Input(Input { from: InputFrom::Task, message_id: "m".into(), user: None, text: "line\nline \u{1F600} \0".into() }),
            Body::Input(Input { from: InputFrom::Person, message_id: "m".into(), user: Some("jane".into()), text: String::new() }),
            Body::PeerMessage(PeerMessage { message_id: "m".into(), from: agent(), text: "t".into(), prompt: None }),
            Body::RunStarted(RunStarted { run_id: "run-7".into(), cause: vec!["m".into()] }),
            Body::Assistant(Assistant { text: "t".into(), tool_calls: vec![call], usage, ..Assistant::default() }),
            Body::Assistant(Assistant { text: String::new(), tool_calls: Vec::new(), usage: None, ..Assistant::default() }),
            Body::ToolRequested(ToolRequested {
                call_id: "engine-i".into(),
                tool: "Shell".into(),
                args: json!({ "command": "ls" }),
                by: Requester { user: "jane".into(), request_id: "i".into() },
            }),
            Body::ToolAsked(ToolAsked {
                call_id: "c".into(),
                tool: "Shell".into(),
                from: CallFrom::Model,
                rules: vec!["Shell".into()],
                unreadable: false,
                seconds: 3600,
            }),
            Body::ToolAnswered(ToolAnswered {
                call_id: "c".into(),
                asked: 7,
                answer: Answer { approved: false, always: false, because: Some("no".into()), by: "jane".into() },
            }),
            Body::ModeSwitched(ModeSwitched {
                mode: crate::mode::Mode::Planning,
                by: Requester { user: "jane".into(), request_id: "r".into() },
            }),
            Body::ToolStarted(ToolStarted { call_id: "c".into(), tool: "Shell".into(), decision: None }),
            Body::ToolStarted(ToolStarted {
                call_id: "c".into(),
                tool: "Shell".into(),
                decision: Some(CallDecision::allowed(CallFrom::Model)),
            }),
            Body::ToolEnded(ToolEnded {
                call_id: "c".into(),
                outcome: ToolOutcome::TimedOut,
                output: "o".into(),
                images: Vec::new(),
                millis: Some(1),
                decision: None,
                read: None,
            }),
            Body::ToolEnded(ToolEnded {
                call_id: "c".into(),
                outcome: ToolOutcome::Refused,
                output: "o".into(),
                images: Vec::new(),
                millis: None,
                decision: Some(CallDecision {
                    from: CallFrom::Hook,
                    refused: Some(RefusalClass::SandboxViolation),
                    rule: Some("r".into()),
                }),
                read: None,
            }),
            Body::RunEnded(RunEnded {
                run_id: "run-7".into(),
                outcome: RunOutcome::LimitReached,
                message: Some("m".into()),
                reason: None,
                by: None,
            }),
            Body::Notice(Notice { reason: "ModelUnreachable".into(), message: "m".into() }),
            Body::Unknown { kind: "Teleported".into(), optional: true, fields: json!({ "to": "mars" }) },
        ];
        // A new kind has to be tried here too.
        for body in &bodies {
            match body {
                Body::SessionStarted(_)
                | Body::RuntimeStarted(_)
                | Body::Input(_)
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
                | Body::Paused(_)
                | Body::Resumed(_)
                | Body::Abandoned(_)
                | Body::RolledBack(_)
                | Body::Rewound(_)
                | Body::Usage(_)
                | Body::ModeSwitched(_)
                | Body::CompactionStarted(_)
                | Body::CompactionEnded(_)
                | Body::Extension(_)
                | Body::Unknown { .. } => {}
            }
        }
        bodies
    }

    #[test]
    fn every_kind_comes_back_as_it_was_written_on_one_line() {
        for body in every_kind() {
            let entry = entry(body);
            let line = serde_json::to_string(&entry).unwrap();
            assert!(!line.contains('\n') && !line.contains('\0'), "{line}");
            assert_eq!(serde_json::from_str::<Entry>(&line).unwrap(), entry, "{line}");
        }
    }

    #[test]
    fn a_line_reads_as_the_format_says() {
        let started = entry(Body::ToolStarted(ToolStarted { call_id: "c".into(), tool: "Shell".into(), decision: None }));
        let shape = json!({ "id": "01a1ff01-550d-7789-8e0d-ecf23596a350", "seq": 7, "run": 2, "at": "2026-02-28T23:59:59.999Z",
            "kind": "ToolStarted", "body": { "callId": "c", "tool": "Shell" } });
        assert_eq!(serde_json::to_value(&started).unwrap(), shape);
    }

    #[test]
    fn a_decision_of_an_earlier_version_is_absent_and_one_of_a_newer_version_is_read() {
        let ended: ToolEnded = serde_json::from_value(json!({ "callId": "c", "outcome": "refused", "output": "" })).unwrap();
        assert_eq!(ended.decision, None);
        let body =
            json!({ "callId": "c", "tool": "Shell", "decision": { "from": "carrierPigeon", "refused": "FeathersMissing", "by": "x" } });
        let started: ToolStarted = serde_json::from_value(body).unwrap();
        assert_eq!(started.decision, Some(CallDecision { from: CallFrom::Unknown, refused: Some(RefusalClass::Unknown), rule: None }));
        let allowed = serde_json::to_value(CallDecision::allowed(CallFrom::Mcp)).unwrap();
        assert_eq!(allowed, json!({ "from": "mcp" }));
    }

    #[test]
    fn what_a_newer_version_wrote_is_kept_whole() {
        for line in [
            r#"{"id":"i","seq":1,"run":1,"at":"t","kind":"Teleported","body":{"to":["mars",{"by":7}]}}"#,
            r#"{"id":"i","seq":1,"run":1,"at":"t","kind":"Teleported","optional":true,"body":"mars"}"#,
            r#"{"id":"i","seq":1,"run":1,"at":"t","kind":"Teleported","body":null}"#,
            // A known kind in a shape that this version cannot read is not half understood.
            r#"{"id":"i","seq":1,"run":1,"at":"t","kind":"ToolEnded","body":{"callId":"c","outcome":"evaporated","output":""}}"#,
        ] {
            let entry: Entry = serde_json::from_str(line).unwrap();
            assert!(matches!(entry.body, Body::Unknown { .. }), "{line}");
            let back: Value = serde_json::to_value(&entry).unwrap();
            assert_eq!(back, serde_json::from_str::<Value>(line).unwrap());
        }
    }

    #[test]
    fn a_field_of_a_newer_version_does_not_hide_a_known_kind() {
        let line = r#"{"id":"i","seq":1,"run":1,"at":"t","kind":"Notice","body":{"reason":"R","message":"m","since":"t"},"crc":"x"}"#;
        let entry: Entry = serde_json::from_str(line).unwrap();
        assert_eq!(entry.body, Body::Notice(Notice { reason: "R".into(), message: "m".into() }));
    }

    #[test]
    fn the_kind_is_the_word_on_the_line() {
        for body in every_kind() {
            let line = serde_json::to_value(entry(body.clone())).unwrap();
            assert_eq!(line["kind"], body.kind());
        }
    }
}
