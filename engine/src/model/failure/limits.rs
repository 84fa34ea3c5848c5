//! The numbers in an endpoint's words: the model's window, and how long an answer may be. Does no I/O.

/// Smaller numbers are no window of a model that calls tools.
const MIN_WINDOW: u64 = 1024;

/// Words that stand before the size of the window, in lower case.
const BEFORE_WINDOW: [&str; 17] = [
    "maximum context length is ",
    "maximum context length of ",
    "maximum context length: ",
    "maximum prompt length is ",
    "context length of only ",
    "model's context length (",
    "maximum model length of ",
    "exceeded model token limit: ",
    "maximum number of tokens allowed (",
    "exceeds the limit of ",
    "while limit is ",
    "available context size (",
    "the prompt cannot exceed ",
    "should be [1, ",
    "must be <= ",
    "must have less than ",
    "\"n_ctx\":",
];

/// Words that stand before the most tokens of an answer.
const BEFORE_OUTPUT_LIMIT: [&str; 6] = [
    // OpenAI.
    "supports at most ",
    // Bedrock.
    "exceeds the model limit of ",
    // Groq and others.
    "less than or equal to ",
    "max_tokens must be at most ",
    // DeepSeek and Alibaba's Model Studio.
    "valid range of max_tokens is [1, ",
    "range of max_tokens should be [1, ",
];

/// Fields and words that mean the most tokens of an answer.
const OUTPUT_LIMIT: [&str; 5] =
    ["max_tokens", "max_completion_tokens", "max_output_tokens", "in the completion", "maximum tokens you requested"];

/// How long an answer may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::model) enum OutputLimit {
    /// Each answer of this model.
    Model(u32),
    /// The answer to this request: so much of the window is left.
    Room(u32),
}

/// The model's window, where words in lower case name it.
pub(super) fn window(words: &str) -> Option<u64> {
    let named = || BEFORE_WINDOW.iter().find_map(|before| number_after(words, before));
    // `345320 tokens > 199999 maximum`, `190000 + 32000 > 200000`, `too large for model with 32768 maximum context length`.
    let compared = || number_after(words, " > ");
    let before = || words.split_once(" maximum context length").and_then(|(before, _)| number_at_end(before));
    named().or_else(compared).or_else(before).filter(|tokens| *tokens >= MIN_WINDOW)
}

/// The limit with which the request can be asked again, where words in lower case refuse the one that was asked for; `None`: they do not, or the
/// conversation leaves no room for an answer.
pub(in crate::model) fn lower_output_limit(words: &str, asked: u32) -> Option<OutputLimit> {
    if !OUTPUT_LIMIT.iter().any(|field| words.contains(field)) {
        return None;
    }
    let lower = |tokens: u64| u32::try_from(tokens).ok().filter(|tokens| (1..asked).contains(tokens));
    let of_model = BEFORE_OUTPUT_LIMIT.iter().find_map(|before| number_after(words, before));
    // Anthropic: `max_tokens: 64000 > 8192, which is the maximum allowed number of output tokens`.
    let compared = || words.contains("number of output tokens").then(|| number_after(words, " > ")).flatten();
    if let Some(limit) = of_model.or_else(compared).and_then(lower) {
        return Some(OutputLimit::Model(limit));
    }
    let window = window(words)?;
    let prompt = number_before(words, " input tokens")
        .or_else(|| number_before(words, " in the messages"))
        .or_else(|| number_before(words, " + "))
        .or_else(|| number_before(words, " tokens from the input messages"))?;
    // An eighth is left for the answer at least: with less the conversation has to become shorter.
    let room = window.saturating_sub(prompt).saturating_sub(window / 256);
    lower(room).filter(|_| room >= window / 8).map(OutputLimit::Room)
}

fn number_after(words: &str, before: &str) -> Option<u64> {
    // The first place may be followed by something else.
    words.match_indices(before).find_map(|(at, _)| {
        let digits: String = words[at + before.len()..].trim_start().chars().take_while(|c| c.is_ascii_digit() || *c == ',').collect();
        digits.replace(',', "").parse().ok()
    })
}

fn number_before(words: &str, after: &str) -> Option<u64> {
    words.match_indices(after).find_map(|(at, _)| number_at_end(&words[..at]))
}

fn number_at_end(text: &str) -> Option<u64> {
    let start = text.rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + text[at..].chars().next().map_or(1, char::len_utf8));
    text[start..].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_an_answer_that_is_too_large_is_lowered_to_what_the_endpoint_names() {
        use OutputLimit::{Model, Room};
        for (words, asked, limit) in [
            (
                "'max_tokens' is too large: 32000. this model's maximum context length is 32768 tokens and your request has 900 input tokens.",
                32_000,
                Some(Room(31_740)),
            ),
            (
                "this model's maximum context length is 8192 tokens. however, you requested 8500 tokens (500 in the messages, 8000 in the completion). \
                 please reduce the length of the messages or completion.",
                8000,
                Some(Room(7660)),
            ),
            (
                "this model's maximum context length is 8192 tokens. however, you requested 16500 tokens (8000 in the messages, 8500 in the completion).",
                8500,
                None,
            ),
            (
                "input length and `max_tokens` exceed context limit: 150000 + 64000 > 200000, decrease input length",
                64_000,
                Some(Room(49_219)),
            ),
            ("input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000, decrease input length", 32_000, None),
            (
                "max_tokens: 64000 > 8192, which is the maximum allowed number of output tokens for claude-3-5-haiku",
                64_000,
                Some(Model(8192)),
            ),
            (
                "max_tokens is too large: 100000. this model supports at most 16384 completion tokens, whereas you provided 100000.",
                100_000,
                Some(Model(16_384)),
            ),
            ("the maximum tokens you requested exceeds the model limit of 4096.", 32_000, Some(Model(4096))),
            ("invalid max_tokens value, the valid range of max_tokens is [1, 8192]", 32_000, Some(Model(8192))),
            ("max_tokens must be less than or equal to 8192", 8192, None),
            ("prompt is too long: 345320 tokens > 199999 maximum", 32_000, None),
            ("unsupported parameter: 'max_tokens' is not supported with this model.", 32_000, None),
        ] {
            assert_eq!(lower_output_limit(words, asked), limit, "{words}");
        }
    }
}
