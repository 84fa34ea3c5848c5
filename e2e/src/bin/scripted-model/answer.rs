//! What is answered, before a format gives it its form.

use super::script::{ScriptedAnswer, Stop};
use super::tokens;

/// An answer with its figures.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Name of the model, as the request wrote it.
    pub model: String,
    pub scripted: ScriptedAnswer,
    pub usage: Usage,
    /// The request asked for what it may only have when it asks: thoughts (Anthropic, Gemini), sealed reasoning (Responses).
    pub shows_thoughts: bool,
    /// The stream ends with an event of the usage (chat completions).
    pub streams_usage: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// All tokens of the prompt.
    pub input: u64,
    pub cached: u64,
    pub cache_written: u64,
    /// All tokens that the model wrote, reasoning included.
    pub output: u64,
    pub reasoning: u64,
}

impl Answer {
    pub fn text(&self) -> &str {
        &self.scripted.step.text
    }

    pub fn reasoning(&self) -> &str {
        &self.scripted.step.reasoning
    }

    pub fn stop(&self) -> Option<Stop> {
        self.scripted.step.stop
    }

    /// A short name of the answer, the same for the same step of the same conversation. Ids are made of it.
    pub fn key(&self) -> String {
        self.scripted.short_key()
    }
}

/// Counts what the model writes in an answer: all, and of it the reasoning.
pub fn output_tokens(scripted: &ScriptedAnswer) -> (u64, u64) {
    let reasoning = tokens::of(&scripted.step.reasoning);
    let calls: u64 = scripted.calls.iter().map(|(_, call)| 8 + tokens::of(&call.arguments_text())).sum();
    (reasoning + tokens::of(&scripted.step.text) + calls, reasoning)
}
