//! The four wire formats.

use serde_json::Value;

use super::answer::Answer;
use super::conversation::Conversation;
use super::prefix_cache::{CachePolicy, PromptPart};
use super::rule::Rule;
use super::script::{ModelSettings, Profile};
use super::{chat, gemini, messages, responses};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// OpenAI's chat completions.
    Chat,
    /// OpenAI's Responses API.
    Responses,
    /// Anthropic's messages.
    Messages,
    /// Gemini's `generateContent` and `streamGenerateContent`.
    Gemini,
}

impl Wire {
    /// Whose rules hold when the script does not say.
    pub fn profile(self, model: &ModelSettings) -> Profile {
        model.profile.unwrap_or(match self {
            Self::Chat | Self::Responses => Profile::OpenAI,
            Self::Messages => Profile::Anthropic,
            Self::Gemini => Profile::Gemini,
        })
    }

    pub fn rules(self, profile: Profile) -> Vec<&'static Rule> {
        match self {
            Self::Chat => chat::rules(profile).collect(),
            Self::Responses => responses::RULES.iter().collect(),
            Self::Messages => messages::rules().collect(),
            Self::Gemini => gemini::rules().collect(),
        }
    }

    /// Returns the prompt's parts, in the order in which the endpoint reads them.
    pub fn prompt(self, body: &Value) -> Vec<PromptPart> {
        match self {
            Self::Chat => chat::prompt(body),
            Self::Responses => responses::prompt(body),
            Self::Messages => messages::prompt(body),
            Self::Gemini => gemini::prompt(body),
        }
    }

    pub fn conversation(self, body: &Value) -> Conversation {
        match self {
            Self::Chat => chat::conversation(body),
            Self::Responses => responses::conversation(body),
            Self::Messages => messages::conversation(body),
            Self::Gemini => gemini::conversation(body),
        }
    }

    pub fn shows_thoughts(self, body: &Value) -> bool {
        match self {
            Self::Chat => true,
            Self::Responses => responses::wants_sealed(body),
            Self::Messages => messages::thinks(body),
            Self::Gemini => gemini::wants_thoughts(body),
        }
    }

    pub fn response(self, answer: &Answer, profile: Profile) -> Value {
        match self {
            Self::Chat => chat::response(answer, profile),
            Self::Responses => responses::response(answer),
            Self::Messages => messages::response(answer),
            Self::Gemini => gemini::response(answer),
        }
    }

    /// Returns the events of a stream. Each ends with its blank line.
    pub fn stream(self, answer: &Answer, profile: Profile) -> Vec<String> {
        match self {
            Self::Chat => chat::stream(answer, profile),
            Self::Responses => responses::stream(answer),
            Self::Messages => messages::stream(answer),
            Self::Gemini => gemini::stream(answer),
        }
    }

    /// The event that says within a stream that the endpoint fails.
    pub fn error_event(self, error: &Value) -> String {
        use super::sse;
        match self {
            // https://platform.claude.com/docs/en/build-with-claude/streaming ("Error events")
            Self::Messages => sse::named(error),
            // https://platform.openai.com/docs/api-reference/responses-streaming/error
            Self::Responses => {
                let inner = &error["error"];
                sse::named(
                    &serde_json::json!({"type": "error", "sequence_number": 99, "code": inner["code"], "message": inner["message"], "param": inner["param"]}),
                )
            }
            Self::Chat | Self::Gemini => sse::data(error),
        }
    }

    /// A sign of life while a stream waits. Anthropic has an event for it
    /// (https://platform.claude.com/docs/en/build-with-claude/streaming), DeepSeek a comment
    /// (https://api-docs.deepseek.com/quick_start/rate_limit); the others get the comment too, which every reader of events must skip
    /// (https://html.spec.whatwg.org/multipage/server-sent-events.html).
    pub fn ping(self) -> String {
        match self {
            Self::Messages => "event: ping\ndata: {\"type\": \"ping\"}\n\n".to_owned(),
            Self::Chat | Self::Responses | Self::Gemini => ": keep-alive\n\n".to_owned(),
        }
    }

    /// How the endpoint caches, and from how many tokens on.
    pub fn cache(self, profile: Profile, body: &Value) -> (CachePolicy, u64) {
        let explicit = body["prompt_cache_options"]["mode"] == "explicit";
        match (self, profile) {
            // https://platform.claude.com/docs/en/build-with-claude/prompt-caching ("20 block lookback")
            (Self::Messages, _) => (CachePolicy::Breakpoints { lookback: 20 }, 1024),
            // https://api-docs.deepseek.com/guides/kv_cache
            (Self::Chat, Profile::DeepSeek) => (CachePolicy::Automatic { unit: 64 }, 64),
            // https://ai.google.dev/gemini-api/docs/caching (implicit caching)
            (Self::Gemini, _) | (Self::Chat, Profile::Gemini) => (CachePolicy::Automatic { unit: 128 }, 1024),
            // https://developers.openai.com/api/docs/guides/prompt-caching: without the implicit breakpoint only the request's own ones.
            (Self::Chat | Self::Responses, Profile::OpenAI) if explicit => (CachePolicy::Breakpoints { lookback: usize::MAX }, 1024),
            (Self::Chat | Self::Responses, Profile::OpenAI | Profile::Anthropic | Profile::Gemini | Profile::DeepSeek | Profile::Plain) => {
                (CachePolicy::Automatic { unit: 128 }, 1024)
            }
        }
    }

    /// The largest request, where the maker documents it.
    pub fn max_body_bytes(self) -> usize {
        match self {
            // https://platform.claude.com/docs/en/api/errors ("Request size limits")
            Self::Messages => 32 << 20,
            // https://ai.google.dev/gemini-api/docs/file-input-methods: 20 MB for a request with inline data.
            Self::Gemini => 20 << 20,
            // OpenAI documents none for the whole request; this keeps the server's memory bounded.
            Self::Chat | Self::Responses => 64 << 20,
        }
    }
}
