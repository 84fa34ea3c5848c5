//! A conversation as endpoints take it: turns of user and model that alternate, without anything that an endpoint refuses. Does no I/O.
//!
//! What is changed here is not changed in the log:
//! - Blank texts and empty answers are left out. Anthropic refuses them, and with them every later request.
//! - Turns alternate, and the first and the last are the user's: neighbouring texts are one turn, and so are answers after a pause.
//! - Results come before texts, in the order of their calls. A result without a call is left out.
//! - What only the endpoint understands goes to the wire format and model that it came from. Of another's answer, text and calls remain.
//! - Names, ids and arguments that an endpoint refuses are rewritten.
//!
//! **Assumption**: every call has its result. The projection sees to that.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::{Value, json};
use yoi_wire::entry::{AnswerPart, Assistant, Image, PromptItem, PromptToolResult, ToolCall};

use super::format::{RequestParts, WireFormat};

/// OpenAI takes names and ids of at most 64 of these characters; the others take them too.
const MAX_NAME: usize = 64;
/// What the user is said to have written where a conversation begins or ends with an answer.
const GO_ON: &str = "[Go on.]";

/// One message.
#[derive(Debug)]
pub(super) enum Turn<'a> {
    User(UserTurn<'a>),
    /// An answer with a text or a call at least.
    Assistant(AnswerTurn<'a>),
}

/// Results of the calls before, then texts; one of them at least.
#[derive(Debug, Default)]
pub(super) struct UserTurn<'a> {
    pub results: Vec<ResultPart<'a>>,
    pub texts: Vec<&'a str>,
}

/// A result, for the call with the same id.
#[derive(Debug)]
pub(super) struct ResultPart<'a> {
    /// Place of the call in its answer.
    place: usize,
    pub call_id: String,
    pub tool: String,
    pub output: &'a str,
    pub failed: bool,
    pub images: &'a [Image],
    /// What the endpoint gave with the call, as in [`TurnPart::Call`].
    pub call_extra: Option<&'a Value>,
}

/// An answer.
#[derive(Debug)]
pub(super) struct AnswerTurn<'a> {
    /// The same model gave it in the same wire format.
    pub own: bool,
    pub parts: Vec<TurnPart<'a>>,
}

/// A part of an answer.
#[derive(Debug)]
pub(super) enum TurnPart<'a> {
    /// Text that is not blank, unless it has something to give back.
    Text {
        text: &'a str,
        extra: Option<&'a Value>,
    },
    Call {
        call_id: String,
        tool: String,
        args: Cow<'a, Value>,
        extra: Option<&'a Value>,
    },
    Opaque(&'a Value),
}

/// The call of an answer that waits for its result.
struct OpenCall<'a> {
    place: usize,
    logged_id: &'a str,
    call_id: String,
    tool: String,
    extra: Option<&'a Value>,
}

/// Returns the turns of a conversation, for a request to this model. The first and the last are the user's, and they alternate.
pub(super) fn turns(request: RequestParts<'_>) -> Vec<Turn<'_>> {
    let RequestParts { config, items, own_from, .. } = request;
    let model = &config.model;
    let (mut turns, mut user) = (Vec::new(), UserTurn::default());
    let (mut open, mut ids): (Vec<OpenCall<'_>>, HashSet<String>) = Default::default();
    for (at, item) in items.iter().enumerate() {
        match item {
            PromptItem::User(text) if text.trim().is_empty() => {}
            PromptItem::User(text) => user.texts.push(text),
            PromptItem::Results(results) => {
                for result in results {
                    let Some(at) = open.iter().position(|call| call.logged_id == result.call_id) else { continue };
                    user.results.push(result_part(open.remove(at), result));
                }
            }
            PromptItem::Assistant(answer) => {
                let own = at >= own_from && answer.api == model.api && answer.model == model.name;
                let (parts, calls) = answer_parts(answer, own, &mut ids);
                if parts.iter().any(|part| !matches!(part, TurnPart::Opaque(_))) {
                    turns.extend(end_user_turn(&mut user));
                    add_answer(&mut turns, AnswerTurn { own, parts });
                    open = calls;
                }
            }
        }
    }
    turns.extend(end_user_turn(&mut user));
    // An answer that paused goes on at its own endpoint only.
    if let Some(Turn::Assistant(answer)) = turns.last()
        && !(answer.own && model.api == WireFormat::Anthropic.name())
    {
        turns.push(Turn::User(UserTurn { texts: vec![GO_ON], ..UserTurn::default() }));
    }
    turns
}

/// Adds an answer, or joins it to the one before it, which paused.
fn add_answer<'a>(turns: &mut Vec<Turn<'a>>, answer: AnswerTurn<'a>) {
    match turns.last_mut() {
        Some(Turn::Assistant(before)) => {
            before.own &= answer.own;
            before.parts.extend(answer.parts);
        }
        Some(Turn::User(_)) => turns.push(Turn::Assistant(answer)),
        // What came before may have been turned back.
        None => turns.extend([Turn::User(UserTurn { texts: vec![GO_ON], ..UserTurn::default() }), Turn::Assistant(answer)]),
    }
}

/// The text of a system prompt, in one piece.
pub(super) fn system_text(blocks: &[String]) -> String {
    blocks.iter().map(|block| block.trim()).filter(|block| !block.is_empty()).collect::<Vec<_>>().join("\n\n")
}

fn end_user_turn<'a>(user: &mut UserTurn<'a>) -> Option<Turn<'a>> {
    let mut turn = std::mem::take(user);
    turn.results.sort_by_key(|result| result.place);
    (!turn.results.is_empty() || !turn.texts.is_empty()).then_some(Turn::User(turn))
}

fn result_part<'a>(call: OpenCall<'a>, result: &'a PromptToolResult) -> ResultPart<'a> {
    let OpenCall { place, call_id, tool, extra: call_extra, logged_id: _ } = call;
    ResultPart { place, call_id, tool, output: &result.output, failed: result.failed, images: &result.images, call_extra }
}

fn answer_parts<'a>(answer: &'a Assistant, own: bool, ids: &mut HashSet<String>) -> (Vec<TurnPart<'a>>, Vec<OpenCall<'a>>) {
    let (mut parts, mut open) = (Vec::new(), Vec::new());
    let mut text = answer.text.as_str();
    let mut calls = answer.tool_calls.iter().enumerate();
    let mut add_call = |parts: &mut Vec<TurnPart<'a>>, (place, call): (usize, &'a ToolCall), extra| {
        let (call_id, tool) = (unique_id(&call.call_id, ids), tool_name(&call.tool));
        open.push(OpenCall { place, logged_id: &call.call_id, call_id: call_id.clone(), tool: tool.clone(), extra });
        parts.push(TurnPart::Call { call_id, tool, args: object_args(&call.args), extra });
    };
    for part in &answer.parts {
        match part {
            AnswerPart::Text { bytes, extra } => {
                let (now, rest) = text.split_at_checked(*bytes).unwrap_or((text, ""));
                text = rest;
                add_text(&mut parts, now, extra.as_ref().filter(|_| own));
            }
            AnswerPart::Call { extra } => {
                if let Some(call) = calls.next() {
                    add_call(&mut parts, call, extra.as_ref().filter(|_| own));
                }
            }
            AnswerPart::Opaque { value } if own => parts.push(TurnPart::Opaque(value)),
            AnswerPart::Opaque { .. } => {}
        }
    }
    add_text(&mut parts, text, None);
    for call in calls {
        add_call(&mut parts, call, None);
    }
    (parts, open)
}

fn add_text<'a>(parts: &mut Vec<TurnPart<'a>>, text: &'a str, extra: Option<&'a Value>) {
    if !text.trim().is_empty() || extra.is_some() {
        parts.push(TurnPart::Text { text, extra });
    }
}

/// A model that calls a tool that is not there may use any name. OpenAI and Anthropic refuse others than these in every later request.
fn tool_name(name: &str) -> String {
    let name: String = name.chars().map(|c| if is_plain(c) { c } else { '_' }).take(MAX_NAME).collect();
    // Gemini's names begin with a letter or an underscore.
    match name.chars().next() {
        Some(first) if first.is_ascii_alphabetic() || first == '_' => name,
        Some(_) | None => format!("_{}", &name[..name.len().min(MAX_NAME - 1)]),
    }
}

/// The id of a call, unless an endpoint refuses it or an earlier call has it: Anthropic takes each id once in a conversation.
fn unique_id(id: &str, taken: &mut HashSet<String>) -> String {
    let plain = !id.is_empty() && id.len() <= MAX_NAME && id.chars().all(is_plain);
    let mut unique = id.to_owned();
    let mut number = taken.len();
    while !plain && unique == id || taken.contains(&unique) {
        unique = format!("yoi_call_{number}");
        number += 1;
    }
    taken.insert(unique.clone());
    unique
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// Endpoints take nothing else than an object. Arguments that the model broke off are text.
fn object_args(args: &Value) -> Cow<'_, Value> {
    match args {
        Value::Object(_) => Cow::Borrowed(args),
        Value::Null => Cow::Owned(json!({})),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Cow::Owned(json!({ "unreadable": args })),
    }
}

#[cfg(test)]
mod tests;
