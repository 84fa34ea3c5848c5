//! Tokens by size, where no endpoint has counted them. Does no I/O.

use yoi_wire::entry::{AgentConfig, PromptItem};

/// Bytes of a token, roughly.
const BYTES_PER_TOKEN: usize = 4;
/// Tokens of a picture, roughly.
const IMAGE_TOKENS: u64 = 1500;

/// Tokens of a text of so many bytes, roughly.
pub(crate) fn tokens_of_bytes(bytes: usize) -> u64 {
    (bytes / BYTES_PER_TOKEN) as u64
}

/// Tokens of the system prompt and the tools, roughly.
pub(crate) fn tokens_of_config(config: &AgentConfig) -> u64 {
    let tools: usize = config.tools.iter().map(|tool| tool.description.len() + tool.schema.to_string().len()).sum();
    tokens_of_bytes(config.system.iter().map(String::len).sum::<usize>() + tools)
}

/// Tokens of what an item holds, roughly.
pub(crate) fn tokens_of_item(item: &PromptItem) -> u64 {
    let images = match item {
        PromptItem::Results(results) => results.iter().map(|result| result.images.len()).sum(),
        PromptItem::User(_) | PromptItem::Assistant(_) => 0,
    };
    tokens_of_bytes(text_bytes(item)) + images as u64 * IMAGE_TOKENS
}

/// Bytes of an item's texts and calls.
pub(crate) fn text_bytes(item: &PromptItem) -> usize {
    match item {
        PromptItem::User(text) => text.len(),
        PromptItem::Assistant(answer) => {
            answer.text.len() + answer.tool_calls.iter().map(|call| call.tool.len() + call.args.to_string().len()).sum::<usize>()
        }
        PromptItem::Results(results) => results.iter().map(|result| result.output.len()).sum(),
    }
}
