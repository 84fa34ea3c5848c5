//! Gemini's own format. <https://ai.google.dev/api/generate-content>, `.../gemini-api/docs/thought-signatures`

use serde_json::{Value, json};
use yoi_wire::entry::{Image, StopReason, TokenUsage};

use super::{Progress, RequestParts, budget, count, larger, text};
use crate::model::answer::{AnswerBuilder, StreamError};
use crate::model::deltas::ModelDelta;
use crate::model::turns::{AnswerTurn, ResultPart, Turn, TurnPart, turns};

/// Stands for the signature of a call that another model made: Gemini 3 refuses a call without one. The page on thought signatures names it.
pub(super) const NO_SIGNATURE: &str = "skip_thought_signature_validator";

pub(super) fn body(request: RequestParts<'_>) -> Value {
    let RequestParts { config, offer_tools, .. } = request;
    let model = &config.model;
    let mut body = json!({"contents": turns(request).iter().map(content).collect::<Vec<_>>()});
    let system: Vec<Value> = config.system.iter().filter(|block| !block.trim().is_empty()).map(|block| json!({"text": block})).collect();
    if !system.is_empty() {
        body["systemInstruction"] = json!({"parts": system});
    }
    if !config.tools.is_empty() {
        // `parameters` takes a part of OpenAPI's schema only, and refuses `additionalProperties` and `$defs`.
        let tool = |tool: &yoi_wire::entry::OfferedTool| json!({"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.schema});
        body["tools"] = json!([{"functionDeclarations": config.tools.iter().map(tool).collect::<Vec<_>>()}]);
        if !offer_tools {
            body["toolConfig"] = json!({"functionCallingConfig": {"mode": "NONE"}});
        }
    }
    if let Some(tokens) = model.max_output_tokens {
        body["generationConfig"]["maxOutputTokens"] = json!(tokens);
    }
    if let Some(effort) = &model.effort {
        // Gemini 2.5 takes a budget, Gemini 3 a level.
        body["generationConfig"]["thinkingConfig"] = match budget(effort) {
            Some(tokens) => json!({"thinkingBudget": tokens}),
            None => json!({"thinkingLevel": effort}),
        };
    }
    body
}

fn content(turn: &Turn<'_>) -> Value {
    match turn {
        Turn::User(user) => {
            let results = user.results.iter().map(result_part);
            // Models before Gemini 3 take pictures only beside the responses.
            let images = user.results.iter().flat_map(|result| result.images.iter().map(image_part));
            let texts = user.texts.iter().map(|text| json!({"text": text}));
            json!({"role": "user", "parts": results.chain(images).chain(texts).collect::<Vec<_>>()})
        }
        Turn::Assistant(answer) => json!({"role": "model", "parts": answer_parts(answer)}),
    }
}

fn result_part(result: &ResultPart<'_>) -> Value {
    let field = if result.failed { "error" } else { "output" };
    let mut response = json!({"name": result.tool, "response": {field: result.output}});
    add_id(&mut response, result.call_extra);
    json!({"functionResponse": response})
}

fn image_part(image: &Image) -> Value {
    json!({"inlineData": {"mimeType": image.media_type, "data": image.data}})
}

fn answer_parts(answer: &AnswerTurn<'_>) -> Vec<Value> {
    let mut unsigned_call = !answer.own;
    let part = |part: &TurnPart<'_>| match part {
        TurnPart::Text { text, extra } => signed(json!({"text": text}), *extra),
        TurnPart::Call { tool, args, extra, call_id: _ } => {
            let mut call = json!({"name": tool, "args": args});
            add_id(&mut call, *extra);
            let mut part = signed(json!({"functionCall": call}), *extra);
            // The first call of an answer has the signature, those beside it have none.
            if std::mem::take(&mut unsigned_call) {
                part["thoughtSignature"] = json!(NO_SIGNATURE);
            }
            part
        }
        TurnPart::Opaque(part) => (*part).clone(),
    };
    answer.parts.iter().map(part).collect()
}

/// Only ids that the endpoint gave are given back: not every server of this format knows the field.
fn add_id(call: &mut Value, extra: Option<&Value>) {
    if let Some(id) = extra.and_then(|extra| extra.get("id")) {
        call["id"] = id.clone();
    }
}

fn signed(mut part: Value, extra: Option<&Value>) -> Value {
    if let Some(signature) = extra.and_then(|extra| extra.get("thoughtSignature")) {
        part["thoughtSignature"] = signature.clone();
    }
    part
}

#[derive(Debug, Default)]
pub(crate) struct GeminiReader {
    complete: bool,
}

impl GeminiReader {
    pub(super) fn read(&mut self, event: &Value, answer: &mut AnswerBuilder) -> Result<Progress, StreamError> {
        if event.get("error").is_some() {
            return Err(StreamError::Reported(event.clone()));
        }
        if let Some(usage) = event.get("usageMetadata") {
            answer.count(larger(answer.usage(), read_usage(usage)));
        }
        if event.pointer("/promptFeedback/blockReason").is_some() {
            (self.complete, answer.stop) = (true, Some(StopReason::ContentFilter));
        }
        let candidate = &event["candidates"][0];
        for part in candidate["content"]["parts"].as_array().into_iter().flatten() {
            read_part(part, answer)?;
        }
        match text(candidate, "finishReason") {
            "" => {}
            reason @ ("MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" | "MALFORMED_RESPONSE" | "TOO_MANY_TOOL_CALLS") => {
                return Err(StreamError::Useless(reason.to_owned()));
            }
            reason => (self.complete, answer.stop) = (true, stop(reason)),
        }
        Ok(Progress::More)
    }

    /// The stream has no event that ends it.
    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }
}

fn read_part(part: &Value, answer: &mut AnswerBuilder) -> Result<(), StreamError> {
    let mut extra =
        part.get("thoughtSignature").filter(|signature| signature.is_string()).map(|signature| json!({"thoughtSignature": signature}));
    if let Some(call) = part.get("functionCall") {
        if !text(call, "id").is_empty() {
            extra.get_or_insert_with(|| json!({}))["id"] = call["id"].clone();
        }
        let index = answer.call(text(call, "id"), text(call, "name"), extra)?;
        let args = call.get("args").filter(|args| !args.is_null()).map(Value::to_string).unwrap_or_default();
        answer.args(index, &args)
    } else if part["thought"] == json!(true) {
        answer.show(ModelDelta::Reasoning(text(part, "text").to_owned()))?;
        // A summary of thoughts is not given back, unless it is signed.
        if extra.is_some() { answer.opaque(part.clone()) } else { Ok(()) }
    } else {
        answer.text(text(part, "text"), extra)
    }
}

pub(super) fn read_usage(usage: &Value) -> TokenUsage {
    let thoughts = count(usage, "/thoughtsTokenCount");
    TokenUsage {
        input_tokens: count(usage, "/promptTokenCount") + count(usage, "/toolUsePromptTokenCount"),
        output_tokens: count(usage, "/candidatesTokenCount") + thoughts,
        cached_tokens: count(usage, "/cachedContentTokenCount"),
        cache_write_tokens: 0,
        reasoning_tokens: thoughts,
    }
}

fn stop(reason: &str) -> Option<StopReason> {
    match reason {
        "STOP" => Some(StopReason::End),
        "MAX_TOKENS" => Some(StopReason::Length),
        "SAFETY" | "RECITATION" | "LANGUAGE" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII" => Some(StopReason::ContentFilter),
        _ => None,
    }
}
