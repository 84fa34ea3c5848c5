//! Anthropic's messages. <https://platform.claude.com/docs/en/api/messages>, `.../build-with-claude/extended-thinking`, `.../prompt-caching`

use serde_json::{Map, Value, json};
use yoi_wire::entry::{Image, StopReason, TokenUsage};

use super::{Progress, RequestParts, budget, count, larger, text};
use crate::model::answer::{AnswerBuilder, MAX_ANSWER_BYTES, StreamError};
use crate::model::deltas::ModelDelta;
use crate::model::turns::{ResultPart, Turn, TurnPart, turns};

/// The format demands a limit. No current model has a lower one.
pub(super) const DEFAULT_MAX_TOKENS: u32 = 32_000;

pub(super) fn body(request: RequestParts<'_>) -> Value {
    let RequestParts { config, offer_tools, .. } = request;
    let model = &config.model;
    let turns = turns(request);
    let mut body = json!({
        "model": model.name,
        "max_tokens": model.max_output_tokens.unwrap_or(DEFAULT_MAX_TOKENS),
        "stream": true,
        "messages": messages(&turns),
    });
    let mut system: Vec<Value> =
        config.system.iter().filter(|block| !block.trim().is_empty()).map(|block| json!({"type": "text", "text": block})).collect();
    let mut tools: Vec<Value> =
        config.tools.iter().map(|tool| json!({"name": tool.name, "description": tool.description, "input_schema": tool.schema})).collect();
    for (field, blocks) in [("system", &mut system), ("tools", &mut tools)] {
        if !blocks.is_empty() {
            cache_up_to(blocks.last_mut());
            body[field] = Value::Array(std::mem::take(blocks));
        }
    }
    // The tools are named also when none may be called: results without tools are refused, and the cache begins with the tools.
    if !offer_tools && !config.tools.is_empty() {
        body["tool_choice"] = json!({"type": "none"});
    }
    match model.effort.as_deref().map(|effort| (effort, budget(effort))) {
        // Models before 4.6 take a budget and no effort; those after it an effort and no budget.
        Some((_, Some(_))) if continues_without_thinking(&turns) => {}
        Some((_, Some(tokens))) => body["thinking"] = json!({"type": "enabled", "budget_tokens": tokens}),
        Some((effort, None)) => {
            body["thinking"] = json!({"type": "adaptive"});
            body["output_config"] = json!({"effort": effort});
        }
        None => {}
    }
    body
}

/// Whether the answer whose calls have just ended has no thinking: another model gave it, or the effort was set after it. With a budget, the
/// format then refuses thinking until the next answer.
fn continues_without_thinking(turns: &[Turn<'_>]) -> bool {
    match turns {
        [.., Turn::Assistant(answer), Turn::User(user)] if !user.results.is_empty() => {
            !matches!(answer.parts.first(), Some(TurnPart::Opaque(_)))
        }
        _ => false,
    }
}

/// Asks the endpoint to keep everything up to this block in its cache. A request takes four of these.
fn cache_up_to(block: Option<&mut Value>) {
    if let Some(block) = block {
        block["cache_control"] = json!({"type": "ephemeral"});
    }
}

fn messages(turns: &[Turn<'_>]) -> Vec<Value> {
    let mut messages: Vec<Value> = turns
        .iter()
        .map(|turn| match turn {
            Turn::User(user) => {
                // The format demands results before texts.
                let results = user.results.iter().map(result_block);
                let texts = user.texts.iter().map(|text| json!({"type": "text", "text": text}));
                json!({"role": "user", "content": results.chain(texts).collect::<Vec<_>>()})
            }
            Turn::Assistant(answer) => json!({"role": "assistant", "content": answer.parts.iter().map(answer_block).collect::<Vec<_>>()}),
        })
        .collect();
    for message in messages.iter_mut().filter(|message| message["role"] == "user").rev().take(2) {
        cache_up_to(message["content"].as_array_mut().and_then(|blocks| blocks.last_mut()));
    }
    messages
}

fn result_block(result: &ResultPart<'_>) -> Value {
    let mut block = json!({"type": "tool_result", "tool_use_id": result.call_id});
    let text = (!result.output.trim().is_empty()).then_some(result.output);
    if result.images.is_empty() {
        // A blank text block is refused, a result without content is not.
        if let Some(text) = text {
            block["content"] = json!(text);
        }
    } else {
        let text = text.map(|text| json!({"type": "text", "text": text}));
        block["content"] = text.into_iter().chain(result.images.iter().map(image_block)).collect();
    }
    // An error without content is refused.
    if result.failed && block.get("content").is_some() {
        block["is_error"] = json!(true);
    }
    block
}

fn image_block(image: &Image) -> Value {
    json!({"type": "image", "source": {"type": "base64", "media_type": image.media_type, "data": image.data}})
}

fn answer_block(part: &TurnPart<'_>) -> Value {
    match part {
        TurnPart::Text { text, .. } => json!({"type": "text", "text": text}),
        TurnPart::Call { call_id, tool, args, .. } => json!({"type": "tool_use", "id": call_id, "name": tool, "input": args}),
        TurnPart::Opaque(block) => (*block).clone(),
    }
}

/// The block that grows.
#[derive(Debug, Default)]
enum Block {
    #[default]
    None,
    Text,
    /// A block of reasoning. It is kept when it is complete.
    Thinking(Map<String, Value>),
    /// A call, and the arguments that stand in its first event.
    Call {
        index: usize,
        input: Value,
    },
}

#[derive(Debug, Default)]
pub(crate) struct AnthropicReader {
    block: Block,
    /// Why the model stopped is known.
    stopped: bool,
}

impl AnthropicReader {
    pub(super) fn read(&mut self, event: &Value, answer: &mut AnswerBuilder) -> Result<Progress, StreamError> {
        match text(event, "type") {
            "message_start" => answer.count(larger(answer.usage(), usage(&event["message"]["usage"]))),
            "content_block_start" => {
                // Some compatible servers do not say when a block ends.
                self.end_block(answer)?;
                self.start_block(&event["content_block"], answer)?;
            }
            "content_block_delta" => self.grow(&event["delta"], answer)?,
            "content_block_stop" => self.end_block(answer)?,
            "message_delta" => {
                answer.count(larger(answer.usage(), usage(&event["usage"])));
                let reason = text(&event["delta"], "stop_reason");
                self.stopped |= !reason.is_empty();
                answer.stop = stop(reason).or(answer.stop);
            }
            "message_stop" => {
                self.end_block(answer)?;
                return Ok(Progress::Done);
            }
            "error" => return Err(StreamError::Reported(event.clone())),
            // Pings, and events of a newer version: the format asks clients to pass over them.
            _ => {}
        }
        Ok(Progress::More)
    }

    /// Some servers end without the last event.
    pub(super) fn is_complete(&self) -> bool {
        self.stopped
    }

    pub(super) fn finish(mut self, answer: &mut AnswerBuilder) -> Result<(), StreamError> {
        self.end_block(answer)
    }

    fn start_block(&mut self, block: &Value, answer: &mut AnswerBuilder) -> Result<(), StreamError> {
        self.block = match text(block, "type") {
            "text" => {
                answer.text(text(block, "text"), None)?;
                Block::Text
            }
            "thinking" => {
                answer.show(ModelDelta::Reasoning(text(block, "thinking").to_owned()))?;
                Block::Thinking(block.as_object().cloned().unwrap_or_default())
            }
            "redacted_thinking" => {
                answer.opaque(block.clone())?;
                Block::None
            }
            "tool_use" => Block::Call { index: answer.call(text(block, "id"), text(block, "name"), None)?, input: block["input"].clone() },
            _ => Block::None,
        };
        Ok(())
    }

    fn grow(&mut self, delta: &Value, answer: &mut AnswerBuilder) -> Result<(), StreamError> {
        match (&mut self.block, text(delta, "type")) {
            (Block::Text, "text_delta") => answer.text(text(delta, "text"), None),
            (Block::Thinking(block), "thinking_delta") => {
                push(block, "thinking", text(delta, "thinking"));
                answer.show(ModelDelta::Reasoning(text(delta, "thinking").to_owned()))
            }
            (Block::Thinking(block), "signature_delta") => {
                push(block, "signature", text(delta, "signature"));
                bounded(block)
            }
            (Block::Call { index, .. }, "input_json_delta") => answer.args(*index, text(delta, "partial_json")),
            _ => Ok(()),
        }
    }

    fn end_block(&mut self, answer: &mut AnswerBuilder) -> Result<(), StreamError> {
        match std::mem::take(&mut self.block) {
            // Without its signature the endpoint refuses it.
            Block::Thinking(block) if block.get("signature").and_then(Value::as_str).is_some_and(|signature| !signature.is_empty()) => {
                answer.opaque(Value::Object(block))
            }
            Block::Call { index, input } if !answer.has_args(index) && input.as_object().is_some_and(|input| !input.is_empty()) => {
                answer.args(index, &input.to_string())
            }
            Block::Thinking(_) | Block::Call { .. } | Block::Text | Block::None => Ok(()),
        }
    }
}

fn push(block: &mut Map<String, Value>, field: &str, more: &str) {
    match block.get_mut(field) {
        Some(Value::String(text)) => text.push_str(more),
        Some(_) | None => {
            block.insert(field.to_owned(), json!(more));
        }
    }
}

/// Signatures are not shown, so nothing else bounds them while they grow.
fn bounded(block: &Map<String, Value>) -> Result<(), StreamError> {
    let long = block.get("signature").and_then(Value::as_str).is_some_and(|text| text.len() > MAX_ANSWER_BYTES);
    if long { Err(StreamError::TooLong) } else { Ok(()) }
}

/// What was read from or written to the cache stands beside `input_tokens` here, and is part of them in the log.
pub(super) fn usage(usage: &Value) -> TokenUsage {
    let (cached, written) = (count(usage, "/cache_read_input_tokens"), count(usage, "/cache_creation_input_tokens"));
    TokenUsage {
        input_tokens: count(usage, "/input_tokens") + cached + written,
        output_tokens: count(usage, "/output_tokens"),
        cached_tokens: cached,
        cache_write_tokens: written,
        reasoning_tokens: 0,
    }
}

fn stop(reason: &str) -> Option<StopReason> {
    match reason {
        "end_turn" | "stop_sequence" => Some(StopReason::End),
        "tool_use" => Some(StopReason::ToolCalls),
        "max_tokens" | "model_context_window_exceeded" => Some(StopReason::Length),
        "refusal" => Some(StopReason::Refusal),
        "pause_turn" => Some(StopReason::Pause),
        _ => None,
    }
}
