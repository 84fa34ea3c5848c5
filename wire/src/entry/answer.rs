//! What the model answers.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The model's answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Assistant {
    /// What the model wrote beside its tool calls.
    pub text: String,
    /// Tool calls that the model asks for, in its order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// Tokens as the endpoint counted them; absent when it did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<TokenUsage>,
    /// Why the model stopped; absent in format 1, where nothing read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<StopReason>,
    /// The wire format that the answer came in, and whose parts these are: `anthropic`, `responses`, `chatCompletions` or `gemini`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub api: String,
    /// The model's name as the request had it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// The answer's parts in the endpoint's order, with what a later request must give back. Empty: the text, then the calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<AnswerPart>,
}

/// One part of an answer. Text and calls stand in the answer's own fields; a part says where they belong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "type")]
pub enum AnswerPart {
    /// The next bytes of the answer's text.
    #[serde(rename_all = "camelCase")]
    Text {
        /// How many bytes.
        bytes: usize,
        /// What the next request has to carry beside the text, such as a signature.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        extra: Option<Value>,
    },
    /// The next tool call.
    #[serde(rename_all = "camelCase")]
    Call {
        /// What the next request has to carry beside the call, such as a signature or an item's id.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        extra: Option<Value>,
    },
    /// Something that only the endpoint understands, such as a block of reasoning. It is given back as it came, to the same wire format only.
    #[serde(rename_all = "camelCase")]
    Opaque {
        /// As the endpoint wrote it.
        value: Value,
    },
}

/// A tool call that the model asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolCall {
    /// The model's id for it.
    pub call_id: String,
    /// Name of the tool.
    pub tool: String,
    /// Arguments by the tool's schema.
    pub args: Value,
}

/// Why the model stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StopReason {
    /// It had said all.
    End,
    /// It waits for the results of its tool calls.
    ToolCalls,
    /// The output limit was reached: the answer is cut off.
    Length,
    /// It refused.
    Refusal,
    /// The provider's filter withheld the answer.
    ContentFilter,
    /// The endpoint paused a long turn and wants to be asked again.
    Pause,
}

/// Tokens of one model call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenUsage {
    /// Tokens that the model read, cached ones included.
    pub input_tokens: u64,
    /// Tokens that the model wrote, reasoning included.
    pub output_tokens: u64,
    /// Those of `input_tokens` that came from the endpoint's cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cached_tokens: u64,
    /// Those of `input_tokens` that the endpoint wrote to its cache.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_write_tokens: u64,
    /// Those of `output_tokens` that were reasoning.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reasoning_tokens: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl TokenUsage {
    /// The sum of two counts.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            cached_tokens: self.cached_tokens.saturating_add(other.cached_tokens),
            cache_write_tokens: self.cache_write_tokens.saturating_add(other.cache_write_tokens),
            reasoning_tokens: self.reasoning_tokens.saturating_add(other.reasoning_tokens),
        }
    }
}

/// Tokens of a model call that brought no answer: it was cancelled, or failed after the endpoint had counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageWithoutAnswer {
    /// As the endpoint counted them.
    pub usage: TokenUsage,
    /// Why there was no answer, in one CamelCase word.
    pub reason: String,
}

/// A picture for the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// `image/png`, `image/jpeg`, `image/gif` or `image/webp`.
    pub media_type: String,
    /// The file's bytes in Base64.
    pub data: String,
}
