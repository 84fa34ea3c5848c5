//! What a script says of its models.

use serde::Deserialize;

/// Whose rules an endpoint follows. Absent in the script: those of the format's maker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    OpenAI,
    Anthropic,
    /// Gemini; over chat completions, Gemini's endpoint that is compatible with OpenAI.
    Gemini,
    /// DeepSeek's chat completions.
    DeepSeek,
    /// A strict server that is compatible with OpenAI: what any of Mistral, Groq and llama.cpp refuses.
    Plain,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ModelSettings {
    /// The exact name of the model; absent: all models that no other entry names.
    #[serde(default)]
    pub name: Option<String>,
    #[serde(default)]
    pub profile: Option<Profile>,
    /// Whether it reasons. Absent: by its name, or else as [`ModelSettings::reasons`] says.
    #[serde(default)]
    pub reasons: Option<bool>,
    /// The effort of OpenAI's models when the request names none. Absent: by its name.
    #[serde(default)]
    pub default_effort: Option<String>,
    /// Whether an Anthropic model goes on with an assistant message at the end. Absent: it does not, as Claude 4.6 and later.
    #[serde(default)]
    pub prefill: bool,
    /// The context window. Absent: without end.
    #[serde(default)]
    pub window_tokens: Option<u64>,
    #[serde(default)]
    pub max_output_tokens: Option<u64>,
    /// The largest request. Absent: the format's own limit.
    #[serde(default)]
    pub max_body_bytes: Option<usize>,
    /// The status with which a chat is refused whose roles do not alternate, tools' messages and calls aside. Absent: any order is taken.
    #[serde(default)]
    pub order_status: Option<u16>,
    /// Pictures are refused.
    #[serde(default)]
    pub text_only: bool,
    /// The shortest beginning of a prompt that is cached. Absent: as the format's maker documents.
    #[serde(default)]
    pub min_cache_tokens: Option<u64>,
}

impl ModelSettings {
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// Reports whether the model reasons; `by_default` where neither the script nor the name says.
    pub fn reasons(&self, by_default: bool) -> bool {
        let name = self.name();
        let by_name = match name {
            _ if name.starts_with("gpt-3") || name.starts_with("gpt-4") => Some(false),
            _ if openai_minor(name).is_some() || ["o1", "o3", "o4"].iter().any(|series| name.starts_with(series)) => Some(true),
            _ => None,
        };
        self.reasons.or(by_name).unwrap_or(by_default)
    }

    /// Returns OpenAI's effort for a request that names none.
    pub fn default_effort(&self) -> &str {
        // Sources: https://github.com/BerriAI/litellm/pull/34569 (gpt-5.6 has one), https://github.com/openai/openai-openapi/issues/541
        // (gpt-5.4 is refused only with an effort in the request).
        let by_name = if openai_minor(self.name()).is_some_and(|minor| minor < 6 && minor > 0) { "none" } else { "medium" };
        self.default_effort.as_deref().unwrap_or(by_name)
    }

    /// Reports whether OpenAI refuses function tools with an effort over chat completions for this model.
    pub fn refuses_tools_with_effort(&self) -> bool {
        // Sources: https://github.com/livekit/agents/pull/5088 (gpt-5.2 and gpt-5.4), and those at the rule.
        openai_minor(self.name()).is_none_or(|minor| minor >= 2)
    }
}

/// Returns the `6` of `gpt-5.6-terra`, and 0 for `gpt-5`.
fn openai_minor(name: &str) -> Option<u32> {
    let rest = name.strip_prefix("gpt-5")?;
    match rest.strip_prefix('.') {
        Some(minor) => minor.split('-').next()?.parse().ok(),
        None => Some(0),
    }
}
