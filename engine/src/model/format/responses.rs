//! OpenAI's Responses. <https://platform.openai.com/docs/api-reference/responses>, `.../responses-streaming`, `.../guides/reasoning`
//!
//! Nothing is stored at the provider. Items are given back without their ids: an id without storage is looked up and not found
//! (vercel/ai#7543), and Azure refuses it (vercel/ai#12689).

use serde_json::{Value, json};
use uuid::Uuid;
use yoi_wire::entry::{AgentConfig, Image, PromptItem, StopReason, TokenUsage};

use super::{Progress, RequestParts, Server, count, text};
use crate::model::answer::{AnswerBuilder, StreamError};
use crate::model::deltas::ModelDelta;
use crate::model::turns::{AnswerTurn, ResultPart, Turn, TurnPart, system_text, turns};

pub(super) fn body(request: RequestParts<'_>, server: Server) -> Value {
    let RequestParts { config, items, offer_tools, .. } = request;
    let model = &config.model;
    let mut body = json!({
        "model": model.name,
        "stream": true,
        "store": false,
        "prompt_cache_key": cache_key(config, items),
        "input": turns(request).iter().flat_map(input_items).collect::<Vec<_>>(),
    });
    if server.takes_encrypted_reasoning {
        body["include"] = json!(["reasoning.encrypted_content"]);
    }
    let system = system_text(&config.system);
    if !system.is_empty() {
        body["instructions"] = json!(system);
    }
    if !config.tools.is_empty() {
        // Without `strict` the endpoint demands schemas in which every argument is required.
        let tool = |tool: &yoi_wire::entry::OfferedTool| json!({"type": "function", "name": tool.name, "description": tool.description, "parameters": tool.schema, "strict": false});
        body["tools"] = config.tools.iter().map(tool).collect();
        if !offer_tools {
            body["tool_choice"] = json!("none");
        }
    }
    if let Some(tokens) = model.max_output_tokens {
        body["max_output_tokens"] = json!(tokens);
    }
    if let Some(effort) = &model.effort {
        body["reasoning"] = json!({"effort": effort});
    }
    body
}

/// Requests with one key reach one cache. It is made of what all requests of a conversation begin with.
fn cache_key(config: &AgentConfig, items: &[PromptItem]) -> String {
    let mut start = config.system.join("\n");
    if let Some(PromptItem::User(text)) = items.first() {
        start.push_str(text);
    }
    Uuid::new_v5(&Uuid::NAMESPACE_OID, start.as_bytes()).to_string()
}

fn input_items(turn: &Turn<'_>) -> Vec<Value> {
    match turn {
        Turn::User(user) => {
            let results = user.results.iter().map(result_item);
            let texts: Vec<Value> = user.texts.iter().map(|text| json!({"type": "input_text", "text": text})).collect();
            let message = (!texts.is_empty()).then(|| json!({"type": "message", "role": "user", "content": texts}));
            results.chain(message).collect()
        }
        Turn::Assistant(answer) => answer_items(answer),
    }
}

fn answer_items(answer: &AnswerTurn<'_>) -> Vec<Value> {
    // A reasoning item without the item that followed it is refused.
    let last = answer.parts.iter().rposition(|part| !matches!(part, TurnPart::Opaque(_))).map_or(0, |last| last + 1);
    let item = |part: &TurnPart<'_>| match part {
        TurnPart::Text { text, extra } => {
            let mut item = json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]});
            add_fields(&mut item, *extra);
            item
        }
        TurnPart::Call { call_id, tool, args, .. } => {
            json!({"type": "function_call", "call_id": call_id, "name": tool, "arguments": args.to_string()})
        }
        TurnPart::Opaque(item) => (*item).clone(),
    };
    answer.parts[..last].iter().map(item).collect()
}

fn add_fields(item: &mut Value, extra: Option<&Value>) {
    if let (Some(item), Some(extra)) = (item.as_object_mut(), extra.and_then(Value::as_object)) {
        item.extend(extra.clone());
    }
}

fn result_item(result: &ResultPart<'_>) -> Value {
    let output = if result.images.is_empty() {
        json!(result.output)
    } else {
        let text = (!result.output.is_empty()).then(|| json!({"type": "input_text", "text": result.output}));
        text.into_iter().chain(result.images.iter().map(image_part)).collect()
    };
    json!({"type": "function_call_output", "call_id": result.call_id, "output": output})
}

fn image_part(image: &Image) -> Value {
    json!({"type": "input_image", "image_url": format!("data:{};base64,{}", image.media_type, image.data)})
}

#[derive(Debug, Default)]
pub(crate) struct ResponsesReader {
    /// Calls that have begun: place in the output, id and name.
    calls: Vec<(u64, String, String)>,
    refused: bool,
}

impl ResponsesReader {
    pub(super) fn read(&mut self, event: &Value, answer: &mut AnswerBuilder) -> Result<Progress, StreamError> {
        match text(event, "type") {
            "response.output_item.added" if text(&event["item"], "type") == "function_call" => {
                let (id, name) = (text(&event["item"], "call_id").to_owned(), text(&event["item"], "name").to_owned());
                self.calls.push((count(event, "/output_index"), id, name));
                self.show_args(event, "", answer)?;
            }
            "response.output_text.delta" | "response.refusal.delta" => answer.show(ModelDelta::Text(text(event, "delta").to_owned()))?,
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                answer.show(ModelDelta::Reasoning(text(event, "delta").to_owned()))?;
            }
            "response.function_call_arguments.delta" => self.show_args(event, text(event, "delta"), answer)?,
            "response.output_item.done" => self.keep_item(&event["item"], answer)?,
            "response.completed" | "response.incomplete" => {
                let response = &event["response"];
                answer.count(usage(&response["usage"]));
                if answer.is_empty() {
                    for item in response["output"].as_array().into_iter().flatten() {
                        self.keep_item(item, answer)?;
                    }
                }
                answer.stop = match text(&response["incomplete_details"], "reason") {
                    "max_output_tokens" => Some(StopReason::Length),
                    "content_filter" => Some(StopReason::ContentFilter),
                    _ if text(response, "status") == "incomplete" => Some(StopReason::Length),
                    _ if self.refused => Some(StopReason::Refusal),
                    _ => None,
                };
                return Ok(Progress::Done);
            }
            "response.failed" => {
                answer.count(usage(&event["response"]["usage"]));
                return Err(StreamError::Reported(event["response"].clone()));
            }
            "error" => return Err(StreamError::Reported(event.clone())),
            // What has begun, is in progress or was part of an item; events of other tools.
            _ => {}
        }
        Ok(Progress::More)
    }

    fn show_args(&self, event: &Value, more: &str, answer: &mut AnswerBuilder) -> Result<(), StreamError> {
        let place = count(event, "/output_index");
        match self.calls.iter().enumerate().rev().find(|(_, call)| call.0 == place) {
            Some((index, (_, id, tool))) => {
                answer.show(ModelDelta::ToolCall { index, call_id: id.clone(), tool: tool.clone(), args: more.to_owned() })
            }
            None => Ok(()),
        }
    }

    fn keep_item(&mut self, item: &Value, answer: &mut AnswerBuilder) -> Result<(), StreamError> {
        match text(item, "type") {
            "message" => {
                // Newer models want to know again which message was a comment and which the answer.
                let extra = item.get("phase").filter(|phase| phase.is_string()).map(|phase| json!({"phase": phase}));
                let parts = || item["content"].as_array().into_iter().flatten();
                self.refused |= parts().any(|part| text(part, "type") == "refusal");
                let words: String = parts().map(|part| text(part, "text").to_owned() + text(part, "refusal")).collect();
                answer.keep_text(&words, extra)
            }
            "function_call" => answer.keep_call(text(item, "call_id"), text(item, "name"), text(item, "arguments"), None).map(|_| ()),
            "reasoning" => reasoning_to_give_back(item).map_or(Ok(()), |item| answer.opaque(item)),
            _ => Ok(()),
        }
    }
}

/// A reasoning item as the next request takes it; `None` when there is nothing in it that an endpoint without storage could use.
fn reasoning_to_give_back(item: &Value) -> Option<Value> {
    let mut kept = json!({"type": "reasoning", "summary": item.get("summary").filter(|list| list.is_array()).unwrap_or(&json!([]))});
    for field in ["encrypted_content", "content"] {
        let empty = |value: &Value| value.as_str().is_some_and(str::is_empty) || value.as_array().is_some_and(Vec::is_empty);
        if let Some(value) = item.get(field).filter(|value| !value.is_null() && !empty(value)) {
            kept[field] = value.clone();
        }
    }
    (kept.get("encrypted_content").is_some() || kept.get("content").is_some()).then_some(kept)
}

pub(super) fn usage(usage: &Value) -> TokenUsage {
    TokenUsage {
        input_tokens: count(usage, "/input_tokens"),
        output_tokens: count(usage, "/output_tokens"),
        cached_tokens: count(usage, "/input_tokens_details/cached_tokens"),
        cache_write_tokens: 0,
        reasoning_tokens: count(usage, "/output_tokens_details/reasoning_tokens"),
    }
}
