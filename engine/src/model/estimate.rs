//! Tokens of a call whose endpoint tells none, by its size. Does no I/O.

use yoi_wire::entry::PromptItem;

use super::ModelRequest;

/// Bytes of a token, roughly.
const BYTES_PER_TOKEN: usize = 4;
/// Tokens of a picture, roughly.
const IMAGE_TOKENS: u64 = 1500;

/// Tokens of a text of so many bytes, roughly.
pub(crate) fn tokens_of_bytes(bytes: usize) -> u64 {
    (bytes / BYTES_PER_TOKEN) as u64
}

/// Tokens of a request, roughly.
pub(crate) fn tokens_of_request(request: &ModelRequest) -> u64 {
    let config = &request.config;
    let system: usize = config.system.iter().map(String::len).sum();
    let tools: usize = config.tools.iter().map(|tool| tool.description.len() + tool.schema.to_string().len()).sum();
    tokens_of_bytes(system + tools) + request.items.iter().map(tokens_of_item).sum::<u64>()
}

fn tokens_of_item(item: &PromptItem) -> u64 {
    match item {
        PromptItem::User(text) => tokens_of_bytes(text.len()),
        PromptItem::Assistant(answer) => {
            let calls: usize = answer.tool_calls.iter().map(|call| call.tool.len() + call.args.to_string().len()).sum();
            tokens_of_bytes(answer.text.len() + calls)
        }
        PromptItem::Results(results) => {
            let images: usize = results.iter().map(|result| result.images.len()).sum();
            tokens_of_bytes(results.iter().map(|result| result.output.len()).sum()) + images as u64 * IMAGE_TOKENS
        }
    }
}
