//! The script's format, and the choice of the next step.
//!
//! ```yaml
//! models:                         # what is known of models, by name; the first entry without a name holds for all others
//! - name: gpt-5.6                 # see `script/models.rs` for all fields
//!   profile: openai
//!   windowTokens: 20000
//! textsApart: true                # a user message is read as several, parted at its blank lines, see below; default false
//! rules:
//! - name: greeting                # for error messages; default: its place in the list
//!   when:                         # all given fields must match; an empty `when` always matches
//!     model: small                # the exact name of the model in the request
//!     systemContains: reviewer    # in the system prompt
//!     lastUserContains: say hello # in a user message, see below
//!     turn: 0                     # the rule's first step is this turn; default 0
//!   steps:
//!   - text: I look first.         # `text`, `toolCalls` or both
//!     reasoning: Hm, a file.      # what the model thinks before it answers, in the form of the format that is called
//!     stop: length                # why the answer ends: length, refusal, contentFilter, pause
//!     toolCalls:
//!     - tool: Shell
//!       args: {command: ls}       # `{{user}}` is replaced by the user message, `{{call}}` by the call's id
//!       namespace: mcp__yoi       # Responses only: the namespace of tools that the request has the tool in
//!       id: call-1                # default: made from rule, step and position; with `{{user}}`, of the user message and the step instead
//!       rawArgs: '{"command": '   # in place of args: sent as it is, whether it is JSON or not
//!     expect: [README]            # answer 400 unless the conversation holds each of these
//!     delayMs: 100                # wait before the answer
//!     pingMs: 20                  # signs of life in a stream while it waits
//!     callsInOneDelta: true       # chat completions: all calls in one event
//!     chunkDelayMs: 5             # wait between the chunks of a stream
//!     fault: {status: 503, times: 2, retryAfterSeconds: 1}
//!   - text: Done.
//!   repeat: true                  # repeats the last step without end; default false
//! ```
//!
//! # Which step comes next
//! The conversation alone decides, so the model keeps no state and may be restarted. The model looks at user messages from the newest to
//! the oldest, and for each at the rules from the first to the last. The first match is the rule. The step's index is the number of
//! assistant turns after that user message, less `turn`. A rule without such a step is an error, because the test must notice a run that
//! its script does not cover. Peers' messages are user messages too. A user message is skipped that no rule matches, or one with `steps: []`.
//! An agent that has several messages to read puts them into one, with blank lines between; `textsApart` undoes that.
//!
//! # Faults
//! `fault` applies to the first `times` requests for this step of this user message. With `status` the answer is this HTTP status. With
//! `error` (rateLimit, quota, overloaded, server, invalidKey, modelNotFound) it is what the real endpoint answers then. With
//! `cut: true` the stream breaks off after its first chunk. With `body` the answer is this text, as JSON, with `status` or 200. With `events`
//! it is a stream of events that hold these texts, and nothing after them: so servers can be written down as they are reported. With `show` the answer is one of these broken responses:
//!
//! | `show` | Response |
//! |---|---|
//! | `hang` | nothing, the connection stays |
//! | `trickle` | the head of a response, and then one byte each second without end |
//! | `html` | 200 and an HTML page |
//! | `noise` | a stream whose events are not JSON |
//! | `endless` | the step's stream, a piece of text in it repeated without end |
//! | `endlessLine` | a stream of one event that does not end |
//! | `empty` | a complete stream without text and calls |
//! | `cutCall` | the step's stream up to the first piece of a call's arguments |
//! | `cutEnd` | the step's stream without its last event |
//! | `errorEvent` | the step's stream up to its middle, and then the event by which the endpoint says that it is overloaded |
//!
//! # Refusals
//! Every request is held to the rules of the format that it uses, before the script sees it: the tables `RULES` in `chat/rules.rs`,
//! `responses/rules.rs`, `messages/rules.rs` and `gemini/rules.rs`. A refused request is answered as the real endpoint answers it.
//! `GET /requests` returns all requests as they came, with the rule that refused them.
//!
//! A restart loses only these counts.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::conversation::{Conversation, Item};
use super::digest::Digest;
use super::errors::ErrorKind;

mod models;

pub use models::{ModelSettings, Profile};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Script {
    #[serde(default)]
    pub models: Vec<ModelSettings>,
    #[serde(default)]
    pub texts_apart: bool,
    pub rules: Vec<Rule>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rule {
    #[serde(default)]
    pub name: Option<String>,
    #[serde(default)]
    pub when: When,
    pub steps: Vec<Step>,
    #[serde(default)]
    pub repeat: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct When {
    #[serde(default)]
    pub model: Option<String>,
    #[serde(default)]
    pub system_contains: Option<String>,
    #[serde(default)]
    pub last_user_contains: Option<String>,
    #[serde(default)]
    pub turn: usize,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Step {
    #[serde(default)]
    pub text: String,
    #[serde(default)]
    pub tool_calls: Vec<Call>,
    #[serde(default)]
    pub reasoning: String,
    #[serde(default)]
    pub stop: Option<Stop>,
    #[serde(default)]
    pub calls_in_one_delta: bool,
    #[serde(default)]
    pub expect: Vec<String>,
    #[serde(default)]
    pub delay_ms: u64,
    #[serde(default)]
    pub ping_ms: u64,
    #[serde(default)]
    pub chunk_delay_ms: u64,
    #[serde(default)]
    pub fault: Option<Fault>,
}

/// Why an answer ends, other than by itself or with calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Stop {
    Length,
    Refusal,
    ContentFilter,
    Pause,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Call {
    #[serde(default)]
    pub id: Option<String>,
    pub tool: String,
    #[serde(default)]
    pub namespace: Option<String>,
    #[serde(default)]
    pub args: Map<String, Value>,
    #[serde(default)]
    pub raw_args: Option<String>,
}

impl Call {
    /// Returns the arguments as the text that a model writes.
    pub fn arguments_text(&self) -> String {
        self.raw_args.clone().unwrap_or_else(|| Value::Object(self.args.clone()).to_string())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BrokenResponse {
    Hang,
    Trickle,
    Html,
    Noise,
    Endless,
    EndlessLine,
    CutCall,
    CutEnd,
    Empty,
    ErrorEvent,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fault {
    #[serde(default)]
    pub status: Option<u16>,
    #[serde(default)]
    pub error: Option<ErrorKind>,
    #[serde(default)]
    pub cut: bool,
    #[serde(default)]
    pub show: Option<BrokenResponse>,
    #[serde(default)]
    pub body: Option<String>,
    #[serde(default)]
    pub events: Option<Vec<String>>,
    #[serde(default = "one")]
    pub times: u32,
    #[serde(default)]
    pub retry_after_seconds: Option<u64>,
}

fn one() -> u32 {
    1
}

/// The step that answers a request, with the ids of its calls filled in.
#[derive(Clone, Debug)]
pub struct ScriptedAnswer {
    pub step: Step,
    pub calls: Vec<(String, Call)>,
    /// Identifies this step of this user message: equal for every request of it.
    pub key: String,
}

impl ScriptedAnswer {
    /// Returns a short name of this step of this user message, of letters and digits.
    pub fn short_key(&self) -> String {
        Digest::of(&self.key).hex()
    }
}

impl Script {
    /// Returns what the script says of this model. `None`: the script names its models, and this is none of them.
    pub fn model(&self, name: &str) -> Option<ModelSettings> {
        let named = self.models.iter().find(|model| model.name.as_deref() == Some(name));
        let found = named.or_else(|| self.models.iter().find(|model| model.name.is_none()));
        let known = found.cloned().or_else(|| self.models.is_empty().then(ModelSettings::default));
        known.map(|model| ModelSettings { name: Some(name.to_owned()), ..model })
    }

    /// Returns the next step of this conversation, or a sentence that says why there is none.
    pub fn next(&self, conversation: &Conversation) -> Result<ScriptedAnswer, String> {
        for (place, user) in conversation.items.iter().enumerate().rev().filter_map(|(place, item)| match item {
            Item::User(text) => Some((place, text)),
            Item::Assistant(_) | Item::Result(_) => None,
        }) {
            let turns = conversation.items[place..].iter().filter(|item| matches!(item, Item::Assistant(_))).count();
            let matching = self.rules.iter().enumerate().find(|(_, rule)| rule.when.matches(conversation, user, turns));
            let Some((number, rule)) = matching.filter(|(_, rule)| !rule.steps.is_empty()) else { continue };
            let name = rule.name.clone().unwrap_or_else(|| format!("rule-{number}"));
            let at = turns - rule.when.turn;
            let last = rule.steps.last().filter(|_| rule.repeat);
            let Some(step) = rule.steps.get(at).or(last) else {
                return Err(format!("rule {name:?} has {} steps, and the conversation is at step {at}", rule.steps.len()));
            };
            let all_text = conversation.all_text();
            if let Some(missing) = step.expect.iter().find(|wanted| !all_text.contains(*wanted)) {
                return Err(format!("rule {name:?} step {at} expects {missing:?} in the conversation, and it is not there"));
            }
            let calls = step.tool_calls.iter().enumerate();
            let calls = calls
                .map(|(n, call)| {
                    let id = match &call.id {
                        // A conversation that was turned back has another message in the same place.
                        Some(id) if id.contains("{{user}}") => call_id(&format!("{}-{turns}", id.replace("{{user}}", user))),
                        Some(id) => id.clone(),
                        None => call_id(&format!("call-{name}-{place}-{turns}-{n}")),
                    };
                    let args = call.args.iter().map(|(name, value)| (name.clone(), substitute(value, user, &id))).collect();
                    (id, Call { args, ..call.clone() })
                })
                .collect();
            return Ok(ScriptedAnswer { step: step.clone(), calls, key: format!("{name}/{at}/{place}/{user}") });
        }
        let newest = conversation.items.iter().rev().find_map(|item| match item {
            Item::User(text) => Some(text.as_str()),
            Item::Assistant(_) | Item::Result(_) => None,
        });
        Err(match newest {
            Some(text) => format!("no rule of the script matches; the newest user message is {text:?}"),
            None => "no rule of the script matches: there is no user message".to_owned(),
        })
    }
}

/// Returns an id that every format takes: OpenAI's chat completions allow 40 characters, and Anthropic letters, digits, `_` and `-`.
fn call_id(readable: &str) -> String {
    if super::json::is_plain_name(readable, 40) { readable.to_owned() } else { format!("call-{}", Digest::of(readable).hex()) }
}

/// Replaces `{{user}}` and `{{call}}` in all texts of `value`.
fn substitute(value: &Value, user: &str, call: &str) -> Value {
    match value {
        Value::String(text) => Value::String(text.replace("{{user}}", user).replace("{{call}}", call)),
        Value::Array(list) => Value::Array(list.iter().map(|value| substitute(value, user, call)).collect()),
        Value::Object(map) => Value::Object(map.iter().map(|(name, value)| (name.clone(), substitute(value, user, call))).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

impl When {
    fn matches(&self, conversation: &Conversation, user: &str, turns: usize) -> bool {
        self.model.as_ref().is_none_or(|wanted| conversation.model == *wanted)
            && self.system_contains.as_ref().is_none_or(|wanted| conversation.system.contains(wanted))
            && self.last_user_contains.as_ref().is_none_or(|wanted| user.contains(wanted))
            && turns >= self.turn
    }
}

/// The script's file, parsed again when its text has changed, and how often each fault was sent.
#[derive(Debug)]
pub struct ScriptFile {
    path: PathBuf,
    parsed: Mutex<Option<(String, Arc<Script>)>>,
    faults: Mutex<HashMap<String, u32>>,
}

impl ScriptFile {
    pub fn new(path: PathBuf) -> Self {
        Self { path, parsed: Mutex::default(), faults: Mutex::default() }
    }

    pub fn script(&self) -> anyhow::Result<Arc<Script>> {
        let text = std::fs::read_to_string(&self.path)?;
        let mut parsed = self.parsed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, script)) = parsed.as_ref().filter(|(seen, _)| *seen == text) {
            return Ok(script.clone());
        }
        let script: Script = serde_yaml::from_str(&text).context("failed to parse the script")?;
        let script = Arc::new(script);
        *parsed = Some((text, script.clone()));
        Ok(script)
    }

    /// Returns the fault of this step if it is due once more, and counts it.
    pub fn fault(&self, answer: &ScriptedAnswer) -> Option<Fault> {
        let fault = answer.step.fault.clone()?;
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = faults.entry(answer.key.clone()).or_default();
        *shown += 1;
        (*shown <= fault.times).then_some(fault)
    }
}

#[cfg(test)]
mod tests;
