//! Reads the chunks of a chat completion.

use serde_json::{Map, Value, json};
use yoi_wire::entry::{StopReason, TokenUsage};

use super::super::{Progress, count, larger, text};
use crate::model::answer::{AnswerBuilder, MAX_ANSWER_BYTES, StreamError};
use crate::model::deltas::ModelDelta;

/// Fields that hold reasoning as text. A server has one of them; some have the same text in two.
const REASONING_FIELDS: [&str; 2] = ["reasoning_content", "reasoning"];

#[derive(Debug, Default)]
pub(crate) struct ChatReader {
    /// Index in the stream and id of each call.
    calls: Vec<(Option<u64>, String)>,
    /// Reasoning under the names of its fields, to be given back under the same.
    reasoning: Map<String, Value>,
    detail_bytes: usize,
    finished: bool,
    refused: bool,
}

impl ChatReader {
    pub(in super::super) fn read(&mut self, chunk: &Value, answer: &mut AnswerBuilder) -> Result<Progress, StreamError> {
        if chunk.get("error").is_some_and(|error| !error.is_null()) {
            return Err(StreamError::Reported(chunk.clone()));
        }
        if chunk["usage"].is_object() {
            answer.count(larger(answer.usage(), usage(&chunk["usage"])));
        }
        let choice = &chunk["choices"][0];
        // A server that does not stream although it was asked to sends a whole message.
        let delta = if choice["delta"].is_object() { &choice["delta"] } else { &choice["message"] };
        self.read_reasoning(delta, answer)?;
        let extra = delta.get("extra_content").filter(|extra| extra.is_object()).map(|extra| json!({"extra_content": extra}));
        let words = content_text(&delta["content"]);
        if !words.is_empty() || (extra.is_some() && delta["tool_calls"].is_null()) {
            answer.text(&words, extra)?;
        }
        if !text(delta, "refusal").is_empty() {
            self.refused = true;
            answer.text(text(delta, "refusal"), None)?;
        }
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            self.read_call(call, answer)?;
        }
        match text(choice, "finish_reason") {
            "" => {}
            "error" | "insufficient_system_resource" => return Err(StreamError::Reported(chunk.clone())),
            reason => {
                self.finished = true;
                answer.stop = stop(reason);
            }
        }
        Ok(Progress::More)
    }

    /// Tokens may come after the reason, and some servers send no `[DONE]`.
    pub(in super::super) fn is_complete(&self) -> bool {
        self.finished
    }

    pub(in super::super) fn finish(self, answer: &mut AnswerBuilder) -> Result<(), StreamError> {
        if self.refused {
            answer.stop = Some(StopReason::Refusal);
        }
        if self.reasoning.is_empty() || answer.is_empty() { Ok(()) } else { answer.opaque_first(Value::Object(self.reasoning)) }
    }

    fn read_reasoning(&mut self, delta: &Value, answer: &mut AnswerBuilder) -> Result<(), StreamError> {
        let mut shown = false;
        for field in REASONING_FIELDS {
            let Some(more) = delta[field].as_str() else { continue };
            if !std::mem::replace(&mut shown, true) {
                answer.show(ModelDelta::Reasoning(more.to_owned()))?;
            }
            push_text(&mut self.reasoning, field, more);
        }
        for detail in delta["reasoning_details"].as_array().into_iter().flatten() {
            if !shown {
                answer.show(ModelDelta::Reasoning(text(detail, "text").to_owned()))?;
            }
            self.push_detail(detail)?;
        }
        Ok(())
    }

    /// Joins the pieces of one block of reasoning: they have the same index and type.
    fn push_detail(&mut self, detail: &Value) -> Result<(), StreamError> {
        let list = self.reasoning.entry("reasoning_details").or_insert_with(|| json!([]));
        let Some(list) = list.as_array_mut() else { return Ok(()) };
        let same = list.last_mut().filter(|last| last["index"] == detail["index"] && last["type"] == detail["type"]);
        match (same.and_then(Value::as_object_mut), detail.as_object()) {
            (Some(last), Some(detail)) => {
                for (field, more) in detail {
                    match more {
                        Value::String(more) if matches!(field.as_str(), "text" | "summary" | "data") => push_text(last, field, more),
                        Value::Null => {}
                        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                            last.insert(field.clone(), more.clone());
                        }
                    }
                }
            }
            (None, _) | (_, None) => list.push(detail.clone()),
        }
        // Encrypted blocks are not shown, so nothing else bounds them while they grow.
        self.detail_bytes += detail.to_string().len();
        if self.detail_bytes > 4 * MAX_ANSWER_BYTES { Err(StreamError::TooLong) } else { Ok(()) }
    }

    fn read_call(&mut self, call: &Value, answer: &mut AnswerBuilder) -> Result<(), StreamError> {
        let (place, id) = (call["index"].as_u64(), text(call, "id"));
        let (name, args) = (text(&call["function"], "name"), &call["function"]["arguments"]);
        let extra = call.get("extra_content").filter(|extra| extra.is_object()).map(|extra| json!({"extra_content": extra}));
        let known = match place {
            // Some servers count no calls: every call is their first, with another id.
            Some(place) => self.calls.iter().rposition(|known| known.0 == Some(place)).filter(|at| {
                let known = &self.calls[*at].1;
                id.is_empty() || known.is_empty() || known == id || name.is_empty()
            }),
            None if id.is_empty() => self.calls.len().checked_sub(1).filter(|_| name.is_empty()),
            None => self.calls.iter().position(|known| known.1 == id),
        };
        // A name after whole arguments begins another call of a server that counts none.
        let known = known.filter(|index| name.is_empty() || !id.is_empty() || !answer.has_whole_args(*index));
        let index = match known {
            Some(index) => {
                answer.complete_call(index, name, extra)?;
                index
            }
            None => {
                self.calls.push((place, id.to_owned()));
                answer.call(id, name, extra)?
            }
        };
        match args {
            Value::String(more) => answer.args(index, more),
            Value::Object(_) => answer.args(index, &args.to_string()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => Ok(()),
        }
    }
}

/// Content is text, or a list of parts of which those of text count.
fn content_text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter(|part| text(part, "type") == "text").map(|part| text(part, "text")).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => String::new(),
    }
}

fn push_text(object: &mut Map<String, Value>, field: &str, more: &str) {
    match object.get_mut(field) {
        Some(Value::String(text)) => text.push_str(more),
        Some(_) | None => {
            object.insert(field.to_owned(), json!(more));
        }
    }
}

pub(in super::super) fn usage(usage: &Value) -> TokenUsage {
    TokenUsage {
        input_tokens: count(usage, "/prompt_tokens"),
        output_tokens: count(usage, "/completion_tokens"),
        // The second is DeepSeek's.
        cached_tokens: count(usage, "/prompt_tokens_details/cached_tokens").max(count(usage, "/prompt_cache_hit_tokens")),
        cache_write_tokens: 0,
        reasoning_tokens: count(usage, "/completion_tokens_details/reasoning_tokens"),
    }
}

fn stop(reason: &str) -> Option<StopReason> {
    match reason {
        "stop" | "eos" => Some(StopReason::End),
        "tool_calls" | "function_call" => Some(StopReason::ToolCalls),
        "length" => Some(StopReason::Length),
        "content_filter" => Some(StopReason::ContentFilter),
        _ => None,
    }
}
