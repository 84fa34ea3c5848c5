//! What Gemini demands of a request as a whole.

use crate::endpoint::json::{list, text, unknown_field};
use crate::endpoint::rule::{Refusal, Rule, demand};

/// Fields of a request. Source: https://ai.google.dev/api/generate-content, in both spellings that the API takes. `model` is set by this
/// server, from the path.
const FIELDS: &[&str] = &[
    "model",
    "contents",
    "tools",
    "toolConfig",
    "tool_config",
    "safetySettings",
    "safety_settings",
    "systemInstruction",
    "system_instruction",
    "generationConfig",
    "generation_config",
    "cachedContent",
    "cached_content",
    "store",
    "serviceTier",
    "service_tier",
];

/// Fields of a part. Source: https://ai.google.dev/api/caching#Part
const PART_FIELDS: &[&str] = &[
    "text",
    "thought",
    "thoughtSignature",
    "thought_signature",
    "partMetadata",
    "part_metadata",
    "videoMetadata",
    "video_metadata",
    "mediaResolution",
    "media_resolution",
    "inlineData",
    "inline_data",
    "functionCall",
    "function_call",
    "functionResponse",
    "function_response",
    "fileData",
    "file_data",
    "executableCode",
    "executable_code",
    "codeExecutionResult",
    "code_execution_result",
    "toolCall",
    "tool_call",
    "toolResponse",
    "tool_response",
];

/// Fields that say something about a part, beside its data.
const ABOUT_PART: &[&str] = &[
    "thought",
    "thoughtSignature",
    "thought_signature",
    "partMetadata",
    "part_metadata",
    "videoMetadata",
    "video_metadata",
    "mediaResolution",
    "media_resolution",
];

pub const RULES: &[Rule] = &[
    Rule {
        name: "a request has only fields of the API",
        source: "https://github.com/gera2ld/ai.nvim/issues/13 (Unknown name)",
        check: |request| {
            if let Some(field) = unknown_field(request.body, FIELDS) {
                return Err(unknown(field, ""));
            }
            list(&request.body["contents"]).iter().enumerate().try_for_each(|(at, content)| {
                list(&content["parts"]).iter().enumerate().try_for_each(|(n, part)| match unknown_field(part, PART_FIELDS) {
                    Some(field) => Err(unknown(field, &format!("contents[{at}].parts[{n}]"))),
                    None => Ok(()),
                })
            })
        },
    },
    Rule {
        name: "contents are given",
        source: "https://ai.google.dev/api/generate-content (contents: Required)",
        check: |request| {
            demand(!list(&request.body["contents"]).is_empty(), || {
                Refusal::invalid("* GenerateContentRequest.contents: contents is not specified\n")
            })
        },
    },
    Rule {
        name: "a content's role is user or model",
        source: "https://github.com/the-open-agent/openagent/issues/1666",
        check: |request| {
            let strange = list(&request.body["contents"])
                .iter()
                .any(|content| !content["role"].is_null() && !["user", "model", "function"].contains(&text(&content["role"])));
            demand(!strange, || Refusal::invalid("Please use a valid role: user, model."))
        },
    },
    Rule {
        name: "a content has parts",
        source: "https://github.com/coze-dev/coze-studio/issues/46",
        check: |request| {
            list(&request.body["contents"]).iter().enumerate().try_for_each(|(at, content)| {
                demand(!list(&content["parts"]).is_empty(), || {
                    Refusal::invalid(format!("* GenerateContentRequest.contents[{at}].parts: contents.parts must not be empty.\n"))
                })
            })
        },
    },
    Rule {
        name: "a part has data",
        source: "https://github.com/router-for-me/CLIProxyAPI/issues/1292 and https://github.com/songquanpeng/one-api/issues/2243",
        check: |request| {
            let system = super::field(request.body, "systemInstruction", "system_instruction");
            let contents = list(&request.body["contents"]).iter().enumerate().map(|(at, content)| (format!("contents[{at}]"), content));
            contents.chain([("system_instruction".to_owned(), system)]).try_for_each(|(path, content)| {
                list(&content["parts"]).iter().enumerate().try_for_each(|(n, part)| {
                    demand(unknown_field(part, ABOUT_PART).is_some(), || {
                        let sentence = "required oneof field 'data' must have one initialized field";
                        Refusal::invalid(format!("* GenerateContentRequest.{path}.parts[{n}].data: {sentence}\n"))
                    })
                })
            })
        },
    },
    Rule {
        name: "the prompt fits the window",
        source: "https://github.com/google-gemini/gemini-cli/issues/6678",
        check: |request| {
            let (tokens, window) = (request.tokens, request.model.window_tokens.unwrap_or(u64::MAX));
            demand(tokens <= window, || {
                Refusal::invalid(format!("The input token count ({tokens}) exceeds the maximum number of tokens allowed ({window})."))
            })
        },
    },
];

/// Gemini's refusal of a field that the API does not have; `path` is empty for a field of the request itself.
pub fn unknown(field: &str, path: &str) -> Refusal {
    let at = if path.is_empty() { String::new() } else { format!(" at '{path}'") };
    Refusal::invalid(format!("Invalid JSON payload received. Unknown name \"{field}\"{at}: Cannot find field.")).param(path)
}
