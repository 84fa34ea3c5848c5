//! Chat completions: OpenAI's older format, which compatible servers have. <https://platform.openai.com/docs/api-reference/chat>
//!
//! A server gets no field that a plain one would refuse. What beside that one server needs back, its answers have shown:
//! - `reasoning_content`, `reasoning`, `reasoning_details`: <https://api-docs.deepseek.com/guides/thinking_mode>, and
//!   <https://openrouter.ai/docs/use-cases/reasoning-tokens>. DeepSeek wants the field in every answer of a conversation that has it in one.
//! - `extra_content` with thought signatures: <https://ai.google.dev/gemini-api/docs/thought-signatures>.

use serde_json::{Map, Value, json};
use yoi_wire::entry::Image;

use super::gemini::NO_SIGNATURE;
use super::{RequestParts, Server, ServerKind};
use crate::model::turns::{AnswerTurn, Turn, TurnPart, UserTurn, system_text, turns};

mod reader;

/// What the model is said to have answered between a tool's result and a message, where roles have to alternate.
const NOTED: &str = "Noted.";

pub(crate) use reader::ChatReader;
pub(super) use reader::usage;

pub(super) fn body(request: RequestParts<'_>, server: Server) -> Value {
    let RequestParts { config, offer_tools, .. } = request;
    let model = &config.model;
    let mut messages: Vec<Value> = Vec::new();
    let system = system_text(&config.system);
    if !system.is_empty() {
        messages.push(json!({"role": "system", "content": system}));
    }
    for turn in turns(request) {
        match turn {
            Turn::User(user) => messages.extend(user_messages(&user)),
            Turn::Assistant(answer) => messages.push(answer_message(&answer, server.kind)),
        }
    }
    if messages.iter().any(|message| message.get("reasoning_content").is_some()) {
        for message in messages.iter_mut().filter(|message| message["role"] == "assistant") {
            message.as_object_mut().map(|message| message.entry("reasoning_content").or_insert_with(|| json!("")));
        }
    }
    if server.strict_order {
        messages = strictly_ordered(messages);
    }
    let mut body = json!({"model": model.name, "stream": true, "stream_options": {"include_usage": true}, "messages": messages});
    if !config.tools.is_empty() {
        let tool = |tool: &yoi_wire::entry::OfferedTool| json!({"type": "function", "function": {"name": tool.name, "description": tool.description, "parameters": tool.schema}});
        body["tools"] = config.tools.iter().map(tool).collect();
        if !offer_tools {
            body["tool_choice"] = json!("none");
        }
    }
    if let Some(tokens) = model.max_output_tokens {
        // OpenAI's models that reason refuse the older name, and plain servers do not know the newer one.
        let field = if server.kind == ServerKind::OpenAi { "max_completion_tokens" } else { "max_tokens" };
        body[field] = json!(tokens);
    }
    if let Some(effort) = &model.effort {
        body["reasoning_effort"] = json!(effort);
    }
    body
}

fn user_messages(user: &UserTurn<'_>) -> Vec<Value> {
    let mut messages: Vec<Value> =
        user.results.iter().map(|result| json!({"role": "tool", "tool_call_id": result.call_id, "content": result.output})).collect();
    // A message of a tool takes text only. Texts are one message: many servers' templates refuse two of one role in a row.
    let images: Vec<Value> = user.results.iter().flat_map(|result| result.images.iter().map(image_part)).collect();
    let content = if images.is_empty() {
        json!(user.texts.join("\n\n"))
    } else {
        let texts = user.texts.iter().map(|text| json!({"type": "text", "text": text}));
        images.iter().cloned().chain(texts).collect()
    };
    if !images.is_empty() || !user.texts.is_empty() {
        messages.push(json!({"role": "user", "content": content}));
    }
    messages
}

/// Parts the messages of user and tool, which some templates refuse in a row: without the tools' messages and the calls, roles then alternate.
fn strictly_ordered(messages: Vec<Value>) -> Vec<Value> {
    let mut ordered: Vec<Value> = Vec::new();
    for message in messages {
        let after_tool = ordered.last().is_some_and(|last| last["role"] == "tool");
        if after_tool && message["role"] == "user" {
            ordered.push(json!({"role": "assistant", "content": NOTED}));
        }
        ordered.push(message);
    }
    ordered
}

fn image_part(image: &Image) -> Value {
    json!({"type": "image_url", "image_url": {"url": format!("data:{};base64,{}", image.media_type, image.data)}})
}

fn answer_message(answer: &AnswerTurn<'_>, server: ServerKind) -> Value {
    let (mut text, mut calls) = (String::new(), Vec::new());
    let mut message: Map<String, Value> = Map::new();
    let mut unsigned_call = !answer.own && server == ServerKind::Google;
    for part in &answer.parts {
        match part {
            TurnPart::Text { text: more, extra } => {
                text.push_str(more);
                message.extend(fields(*extra));
            }
            TurnPart::Call { call_id, tool, args, extra } => {
                let mut call = json!({"id": call_id, "type": "function", "function": {"name": tool, "arguments": args.to_string()}});
                if let Some(call) = call.as_object_mut() {
                    call.extend(fields(*extra));
                }
                if std::mem::take(&mut unsigned_call) {
                    call["extra_content"] = json!({"google": {"thought_signature": NO_SIGNATURE}});
                }
                calls.push(call);
            }
            TurnPart::Opaque(reasoning) => message.extend(fields(Some(reasoning))),
        }
    }
    message.insert("role".to_owned(), json!("assistant"));
    message.insert("content".to_owned(), json!(text));
    if !calls.is_empty() {
        message.insert("tool_calls".to_owned(), Value::Array(calls));
    }
    Value::Object(message)
}

fn fields(extra: Option<&Value>) -> Map<String, Value> {
    extra.and_then(Value::as_object).cloned().unwrap_or_default()
}
