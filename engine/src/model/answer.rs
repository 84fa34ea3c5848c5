//! One answer while it comes: what of it is shown, kept and counted. Does no I/O.

use std::collections::HashSet;

use serde_json::{Value, json};
use yoi_wire::entry::{AnswerPart, Assistant, StopReason, TokenUsage, ToolCall};

use super::deltas::{DeltaSink, ModelDelta};

/// Bytes of text, reasoning and tool arguments in one answer. As escaped JSON, an answer of this size still fits into one line of the log.
pub(super) const MAX_ANSWER_BYTES: usize = 2 << 20;
/// The most tool calls in one answer.
const MAX_CALLS: usize = 128;

/// Why a stream gives no answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum StreamError {
    /// The answer is longer than an answer may be.
    TooLong,
    /// An event cannot be read.
    Unreadable(String),
    /// The endpoint reports an error in its stream, with this body.
    Reported(Value),
    /// The endpoint says that what it made is of no use, for this reason.
    Useless(String),
}

/// A tool call whose arguments may not be complete.
#[derive(Debug, Default)]
struct GrowingCall {
    id: String,
    tool: String,
    args: String,
}

/// Collects an answer.
#[derive(Debug)]
pub(super) struct AnswerBuilder {
    text: String,
    calls: Vec<GrowingCall>,
    parts: Vec<AnswerPart>,
    usage: Option<TokenUsage>,
    /// Why the model stopped, once it is known.
    pub stop: Option<StopReason>,
    sink: DeltaSink,
    shown_bytes: usize,
    kept_bytes: usize,
}

impl AnswerBuilder {
    pub fn new(sink: DeltaSink) -> Self {
        let (text, calls, parts) = (String::new(), Vec::new(), Vec::new());
        Self { text, calls, parts, usage: None, stop: None, sink, shown_bytes: 0, kept_bytes: 0 }
    }

    /// Shows more of the text and keeps it. With `extra` it is a part of its own.
    pub fn text(&mut self, text: &str, extra: Option<Value>) -> Result<(), StreamError> {
        self.show(ModelDelta::Text(text.to_owned()))?;
        self.keep_text(text, extra)
    }

    /// Keeps text that was shown before.
    pub fn keep_text(&mut self, text: &str, extra: Option<Value>) -> Result<(), StreamError> {
        self.keep(text.len() + extra.as_ref().map_or(0, |extra| extra.to_string().len()))?;
        self.text.push_str(text);
        match self.parts.last_mut() {
            Some(AnswerPart::Text { bytes, extra: None }) if extra.is_none() => *bytes += text.len(),
            Some(_) | None if text.is_empty() && extra.is_none() => {}
            Some(_) | None => self.parts.push(AnswerPart::Text { bytes: text.len(), extra }),
        }
        Ok(())
    }

    /// Shows something and keeps nothing of it.
    pub fn show(&mut self, delta: ModelDelta) -> Result<(), StreamError> {
        let bytes = match &delta {
            ModelDelta::Text(text) | ModelDelta::Reasoning(text) => text.len(),
            ModelDelta::ToolCall { args, .. } => args.len(),
        };
        self.shown_bytes += bytes;
        if self.shown_bytes > MAX_ANSWER_BYTES {
            return Err(StreamError::TooLong);
        }
        let begins_call = matches!(&delta, ModelDelta::ToolCall { .. });
        if bytes > 0 || begins_call {
            self.sink.send(delta);
        }
        Ok(())
    }

    /// Keeps a block that only the endpoint understands.
    pub fn opaque(&mut self, value: Value) -> Result<(), StreamError> {
        self.keep(value.to_string().len())?;
        self.parts.push(AnswerPart::Opaque { value });
        Ok(())
    }

    /// Keeps a block that stands before everything else.
    pub fn opaque_first(&mut self, value: Value) -> Result<(), StreamError> {
        self.keep(value.to_string().len())?;
        self.parts.insert(0, AnswerPart::Opaque { value });
        Ok(())
    }

    /// Begins a call, shows it, and returns its index.
    pub fn call(&mut self, id: &str, tool: &str, extra: Option<Value>) -> Result<usize, StreamError> {
        let index = self.keep_call(id, tool, "", extra)?;
        self.show(ModelDelta::ToolCall { index, call_id: id.to_owned(), tool: tool.to_owned(), args: String::new() })?;
        Ok(index)
    }

    /// Adds to the arguments of a call, and shows it.
    pub fn args(&mut self, index: usize, more: &str) -> Result<(), StreamError> {
        let Some(call) = self.calls.get_mut(index) else { return Ok(()) };
        if more.is_empty() {
            return Ok(());
        }
        call.args.push_str(more);
        let delta = ModelDelta::ToolCall { index, call_id: call.id.clone(), tool: call.tool.clone(), args: more.to_owned() };
        self.keep(more.len())?;
        self.show(delta)
    }

    /// Keeps a call that was shown before, with its arguments as JSON text.
    pub fn keep_call(&mut self, id: &str, tool: &str, args: &str, extra: Option<Value>) -> Result<usize, StreamError> {
        self.keep(id.len() + tool.len() + args.len() + extra.as_ref().map_or(0, |extra| extra.to_string().len()))?;
        if self.calls.len() == MAX_CALLS {
            return Err(StreamError::TooLong);
        }
        self.calls.push(GrowingCall { id: id.to_owned(), tool: tool.to_owned(), args: args.to_owned() });
        self.parts.push(AnswerPart::Call { extra });
        Ok(self.calls.len() - 1)
    }

    /// Adds what came late to a call: its name, or what must be given back with it.
    pub fn complete_call(&mut self, index: usize, tool: &str, more: Option<Value>) -> Result<(), StreamError> {
        self.keep(tool.len() + more.as_ref().map_or(0, |more| more.to_string().len()))?;
        if let Some(call) = self.calls.get_mut(index) {
            // A name comes whole in one piece, in several ones, or again and again.
            if tool.starts_with(&call.tool) {
                tool.clone_into(&mut call.tool);
            } else if !tool.is_empty() && call.tool != tool {
                call.tool.push_str(tool);
            }
        }
        let mut calls = self.parts.iter_mut().filter_map(|part| match part {
            AnswerPart::Call { extra } => Some(extra),
            AnswerPart::Text { .. } | AnswerPart::Opaque { .. } => None,
        });
        if let (Some(extra), Some(more)) = (calls.nth(index), more) {
            *extra = Some(more);
        }
        Ok(())
    }

    /// Whether the call has arguments.
    pub fn has_args(&self, index: usize) -> bool {
        self.calls.get(index).is_some_and(|call| !call.args.is_empty())
    }

    /// Whether the arguments of a call have come, and are complete.
    pub fn has_whole_args(&self, index: usize) -> bool {
        self.calls.get(index).is_some_and(|call| !call.args.trim().is_empty() && is_json(&call.args))
    }

    /// Whether the arguments of no call are cut off.
    pub fn has_only_whole_calls(&self) -> bool {
        self.calls.iter().all(|call| call.args.trim().is_empty() || is_json(&call.args))
    }

    /// Whether nothing was kept.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Sets the tokens as the endpoint has counted them so far.
    pub fn count(&mut self, usage: TokenUsage) {
        self.usage = Some(usage);
        self.sink.set_usage(usage);
    }

    /// Tokens so far.
    pub fn usage(&self) -> TokenUsage {
        self.usage.unwrap_or_default()
    }

    /// Returns the answer. Without a stop reason it is `End` or `ToolCalls`.
    pub fn finish(self, api: &str, model: &str) -> Assistant {
        let mut taken: HashSet<String> = HashSet::new();
        let tool_calls: Vec<ToolCall> = self
            .calls
            .into_iter()
            .enumerate()
            .map(|(index, call)| {
                // Some endpoints give no id, or the same one twice. A result needs the id of exactly one call.
                let free = !call.id.is_empty() && !taken.contains(&call.id);
                let call_id = if free { call.id } else { format!("call_{}_{index}", call.id) };
                taken.insert(call_id.clone());
                ToolCall { call_id, tool: call.tool, args: read_args(call.args) }
            })
            .collect();
        let natural = if tool_calls.is_empty() { StopReason::End } else { StopReason::ToolCalls };
        let stop = match self.stop {
            None | Some(StopReason::End | StopReason::ToolCalls) => natural,
            Some(stop @ (StopReason::Length | StopReason::Refusal | StopReason::ContentFilter | StopReason::Pause)) => stop,
        };
        let parts = if is_plain(&self.parts) { Vec::new() } else { self.parts };
        Assistant { text: self.text, tool_calls, usage: self.usage, stop: Some(stop), api: api.to_owned(), model: model.to_owned(), parts }
    }

    fn keep(&mut self, bytes: usize) -> Result<(), StreamError> {
        self.kept_bytes += bytes;
        if self.kept_bytes > MAX_ANSWER_BYTES { Err(StreamError::TooLong) } else { Ok(()) }
    }
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

/// Arguments that are no JSON stay text: the check of the call refuses them with a reason.
fn read_args(text: String) -> Value {
    if text.trim().is_empty() {
        return json!({});
    }
    crate::foreign_json::from_str(&text).unwrap_or(Value::String(text))
}

/// Whether the parts say no more than the text and then the calls.
fn is_plain(parts: &[AnswerPart]) -> bool {
    let calls = match parts {
        [AnswerPart::Text { extra: None, .. }, calls @ ..] => calls,
        _ => parts,
    };
    calls.iter().all(|part| matches!(part, AnswerPart::Call { extra: None }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_reasoning_and_arguments_count_together() {
        let half = "x".repeat(MAX_ANSWER_BYTES / 2);
        let mut answer = AnswerBuilder::new(DeltaSink::none());
        answer.text(&half, None).unwrap();
        answer.call("a", "Write", None).unwrap();
        answer.args(0, &half[..1000]).unwrap();
        assert_eq!(answer.args(0, &half), Err(StreamError::TooLong));
        let mut answer = AnswerBuilder::new(DeltaSink::none());
        answer.show(ModelDelta::Reasoning(half.clone())).unwrap();
        answer.text(&half, None).unwrap();
        assert_eq!(answer.show(ModelDelta::Reasoning("x".to_owned())), Err(StreamError::TooLong));
    }

    #[test]
    fn an_answer_has_at_most_128_calls() {
        let mut answer = AnswerBuilder::new(DeltaSink::none());
        let taken = (0..200).take_while(|n| answer.call(&n.to_string(), "Read", None).is_ok()).count();
        assert_eq!(taken, 128);
    }

    #[test]
    fn calls_without_an_id_of_their_own_get_one_and_broken_arguments_stay_text() {
        let mut answer = AnswerBuilder::new(DeltaSink::none());
        for (id, args) in [("a", "{\"x\":1}"), ("a", "{\"x\":"), ("", "")] {
            answer.keep_call(id, "Read", args, None).unwrap();
        }
        let answer = answer.finish("gemini", "m");
        let calls: Vec<_> = answer.tool_calls.iter().map(|call| (call.call_id.as_str(), call.args.clone())).collect();
        assert_eq!(calls, [("a", json!({"x": 1})), ("call_a_1", json!("{\"x\":")), ("call__2", json!({}))]);
        assert_eq!((answer.stop, answer.parts), (Some(StopReason::ToolCalls), Vec::new()));
    }

    #[test]
    fn the_caller_sees_the_tokens_even_when_it_gives_the_call_up() {
        let sink = DeltaSink::none();
        let mut answer = AnswerBuilder::new(sink.clone());
        answer.count(TokenUsage { input_tokens: 7, ..TokenUsage::default() });
        drop(answer);
        assert_eq!(sink.usage().map(|usage| usage.input_tokens), Some(7));
    }
}
