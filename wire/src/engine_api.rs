//! The engine's calls over the cluster: `yoipods/proxy/engine/...`.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::control::ControlAction;
use crate::entry::{OfferedTool, RefusalClass, ToolOutcome};
use crate::hub::{MAX_MESSAGE_TEXT, MessageTooLong};
use crate::mode::Mode;
use crate::signal::{DELTA_TYPE, TYPES};

/// The subresource. API servers do not end its requests after a minute.
pub const SUBRESOURCE: &str = "proxy";
/// What stands after the subresource, before the words of a call.
pub const PREFIX: &str = "engine";

/// The keys of projections that this version knows. An agent of a newer version may have more.
pub const PROJECTIONS: [&str; 6] = ["timeline", "llm_context", "diagnostics", "mode_runtime", "pending_tool_calls", "subagent_status"];

/// The subresource, with verb `create`, whose right lets a person run tools, beside that to [`SUBRESOURCE`].
pub const TOOLS_RIGHT: &str = "tools";
/// The subresource, with verb `create`, whose right lets a person give a conversation events, beside that to [`SUBRESOURCE`].
pub const EVENTS_RIGHT: &str = "events";
/// Bytes of the arguments of a call by this API.
pub const MAX_CALL_ARGS: usize = 64 << 10;
/// Bytes of a request that can hold such arguments.
pub const MAX_CALL_BODY: usize = MAX_CALL_ARGS + 4096;
/// Bytes of the name of a tool.
pub const MAX_TOOL_NAME: usize = 64;
/// Calls by this API in one conversation that have not ended. Further ones are refused.
pub const MAX_OPEN_CALLS: usize = 16;
/// The most seconds that a request waits for the end of its call.
pub const MAX_CALL_WAIT: u64 = 30;

/// Which conversation a call is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConversationQuery {
    /// Absent: `main`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<String>,
}

/// Which events are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventsQuery {
    /// Go on with what comes.
    #[serde(default)]
    pub follow: bool,
    /// Those after this [`crate::signal::CloudEvent::cursor`]. Absent: from the first one on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// The last so many of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<usize>,
    /// With `follow`: also the pieces of an answer while it comes ([`crate::signal::DELTA_TYPE`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deltas: bool,
}

/// The tools that an agent's model is offered: of a program, those of Yoi's that the program is offered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolList {
    /// In the order in which they are offered.
    pub tools: Vec<OfferedTool>,
}

/// `POST` of `tools/TOOL`: a call that no model asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunTool {
    /// A UUID. The same id is the same call, which runs once, however often it is sent: whoever sends it again gets its end.
    pub id: String,
    /// The arguments, by the tool's schema.
    pub args: Value,
    /// How many seconds the answer may wait for the end of the call; absent: [`MAX_CALL_WAIT`], which is also the most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_seconds: Option<u64>,
}

impl RunTool {
    /// How long the answer may wait for the end of the call.
    #[must_use]
    pub fn wait(&self) -> Duration {
        Duration::from_secs(self.wait_seconds.unwrap_or(MAX_CALL_WAIT).min(MAX_CALL_WAIT))
    }
}

/// How far a call is that no model asked for. The same in process and over the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolRun {
    /// Its id in the log.
    pub call_id: String,
    /// How it has ended; absent: it has not, and is asked for again under the same id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<ToolRunEnd>,
    /// It waits for a person, who answers it by this number ([`crate::approval`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<u64>,
}

/// The end of a call that no model asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolRunEnd {
    /// Sequence number of its entry in the log.
    pub seq: u64,
    /// How it ended.
    pub outcome: ToolOutcome,
    /// Why it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<RefusalClass>,
    /// What it returned, without secrets and within the limit of the agent's tools; absent: it is long ago, and its entry has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}

/// Why a call was not taken. Nothing of it is in the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunToolRefusal {
    /// It is no call.
    #[error("{0}")]
    Invalid(String),
    /// As many calls as there may be have not ended.
    #[error("the call was not taken: {MAX_OPEN_CALLS} calls by the engine's API have not ended in this conversation; wait for one of them")]
    Full,
}

/// Whether it can be the name of a tool. Anything else would change the path of a request.
#[must_use]
pub fn is_tool_name(name: &str) -> bool {
    (1..=MAX_TOOL_NAME).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
        && !name.starts_with('.')
}

/// The types of events that may come from outside. All others are the engine's own.
pub const OUTSIDE_TYPES: [&str; 4] = [MESSAGE, CANCEL, RESUME, SWITCH_MODE];
const MESSAGE: &str = "conversation.user.message";
const CANCEL: &str = "conversation.cancel";
const RESUME: &str = "conversation.resume";
const SWITCH_MODE: &str = "conversation.mode.switch.requested";

/// `POST` of `events`: something that happens to a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutsideEvent {
    /// A UUID. The same id is the same event, and has its effect once.
    pub id: String,
    /// One of [`OUTSIDE_TYPES`].
    #[serde(rename = "type")]
    pub kind: String,
    /// What it says: of a message `{"text": TEXT}`, of a switch of the mode `{"mode": MODE, "force"?: BOOLEAN}`, of the others `{}`.
    pub data: Value,
}

/// What an event from outside does.
#[derive(Clone, Debug, PartialEq)]
pub enum EventEffect {
    /// It is a text for the model, which the inbox takes.
    Message(String),
    /// It steers the run or the conversation.
    Control(ControlAction),
}

/// Answer to an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventTaken {
    /// Its id.
    pub id: String,
    /// It had been taken before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub duplicate: bool,
    /// What came of it, a sentence for people.
    pub message: String,
}

/// Why an event was not taken. Nothing of it is in the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventRefusal {
    /// It is none that may come from outside.
    #[error("{0}")]
    Invalid(String),
    /// The text is too long.
    #[error(transparent)]
    TooLong(#[from] MessageTooLong),
    /// As many messages wait as may.
    #[error("the event was not taken: {limit} messages wait to be read")]
    Full {
        /// How many.
        limit: usize,
    },
    /// The conversation is in no state for it.
    #[error("{0}")]
    Conflict(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MessageData {
    text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModeData {
    mode: Mode,
    #[serde(default)]
    force: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoData {}

impl OutsideEvent {
    /// Reads an event. Attributes of CloudEvents beside these are allowed, and say nothing here.
    ///
    /// # Errors
    /// It is none, by name.
    pub fn read(mut event: Value) -> Result<Self, EventRefusal> {
        let invalid = |why: String| Err(EventRefusal::Invalid(why));
        let Some(fields) = event.as_object_mut() else { return invalid("an event is an object of JSON".to_owned()) };
        for attribute in ["specversion", "source", "subject", "time", "datacontenttype"] {
            fields.remove(attribute);
        }
        if let Some(field) = fields.keys().find(|field| !["id", "type", "data"].contains(&field.as_str())) {
            return invalid(format!("an event has no field {field:?}: what it says stands in its data"));
        }
        serde_json::from_value(event)
            .or_else(|error| invalid(format!("an event is {{\"id\": UUID, \"type\": TYPE, \"data\": {{...}}}}: {error}")))
    }

    /// What it does.
    ///
    /// # Errors
    /// Its type is unknown or internal, or its data are none of that type.
    pub fn effect(&self) -> Result<EventEffect, EventRefusal> {
        let invalid = |why: String| EventRefusal::Invalid(why);
        fn data<T: serde::de::DeserializeOwned>(event: &OutsideEvent) -> Result<T, EventRefusal> {
            let read = serde_json::from_value(event.data.clone());
            read.map_err(|error| EventRefusal::Invalid(format!("the data of an event {} are not as they should be: {error}", event.kind)))
        }
        match self.kind.as_str() {
            MESSAGE => {
                let MessageData { text } = data(self)?;
                match text.len() {
                    0 => Err(invalid("a message has a text".to_owned())),
                    bytes if bytes > MAX_MESSAGE_TEXT => Err(MessageTooLong { bytes: Some(bytes) }.into()),
                    _ => Ok(EventEffect::Message(text)),
                }
            }
            CANCEL => data::<NoData>(self).map(|NoData {}| EventEffect::Control(ControlAction::Cancel {})),
            RESUME => data::<NoData>(self).map(|NoData {}| EventEffect::Control(ControlAction::Resume {})),
            SWITCH_MODE => data(self).map(|ModeData { mode, force }| EventEffect::Control(ControlAction::SetMode { mode, force })),
            kind if TYPES.contains(&kind) || kind == DELTA_TYPE => Err(invalid(format!(
                "{kind} is internal: the engine says it, and nobody else; from outside come {}",
                OUTSIDE_TYPES.join(", ")
            ))),
            kind => Err(invalid(format!("there is no event {kind:?} from outside; there are {}", OUTSIDE_TYPES.join(", ")))),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn effect(event: Value) -> Result<EventEffect, String> {
        OutsideEvent::read(event).and_then(|event| event.effect()).map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn p30_an_event_from_outside_has_a_type_of_the_list_and_says_in_its_data_what_it_says() {
        let event = |kind: &str, data: Value| json!({"id": "i", "type": kind, "data": data});
        assert_eq!(effect(event(MESSAGE, json!({"text": "go"}))), Ok(EventEffect::Message("go".to_owned())));
        assert_eq!(effect(event(CANCEL, json!({}))), Ok(EventEffect::Control(ControlAction::Cancel {})));
        let planning = EventEffect::Control(ControlAction::SetMode { mode: Mode::Planning, force: true });
        assert_eq!(effect(event(SWITCH_MODE, json!({"mode": "planning", "force": true}))), Ok(planning));
        let of_cloud_events = json!({"specversion": "1.0", "source": "/ci", "time": "t", "id": "i", "type": RESUME, "data": {}});
        assert_eq!(effect(of_cloud_events), Ok(EventEffect::Control(ControlAction::Resume {})));
        for (event, words) in [
            (json!({"id": "i", "type": MESSAGE, "text": "go"}), "no field \"text\": what it says stands in its data"),
            (json!({"id": "i", "type": MESSAGE}), "missing field `data`"),
            (json!("go"), "an event is an object"),
            (event(MESSAGE, json!("go")), "the data of an event conversation.user.message"),
            (event(MESSAGE, json!({"text": ""})), "a message has a text"),
            (event(MESSAGE, json!({"text": "go", "as": "root"})), "unknown field `as`"),
            (event(MESSAGE, json!({"text": "x".repeat(MAX_MESSAGE_TEXT + 1)})), "65536 bytes are allowed"),
            (event(CANCEL, json!({"all": true})), "unknown field `all`"),
            (event(SWITCH_MODE, json!({"mode": "dancing"})), "the data of an event conversation.mode.switch.requested"),
            (event("conversation.llm.completed", json!({})), "is internal"),
            (event("policy.allowed", json!({})), "is internal"),
            (event("conversation.dance", json!({})), "there is no event \"conversation.dance\""),
        ] {
            let refused = effect(event.clone()).unwrap_err();
            assert!(refused.contains(words), "{event}: {refused}");
        }
    }
}
