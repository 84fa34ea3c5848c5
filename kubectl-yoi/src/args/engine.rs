//! The flags of the verbs that ask an agent's engine, and of the one that shows its scope.

use clap::Args;

use super::steering::ConversationChoice;
use super::values::object_name;

#[derive(Debug, Args)]
pub struct EventsOptions {
    /// The agent.
    #[arg(value_name = "AGENT", value_parser = object_name)]
    pub name: String,
    #[command(flatten)]
    pub of: ConversationChoice,
    /// Go on showing what comes.
    #[arg(short, long)]
    pub follow: bool,
    /// Only those of the last so many entries of the log.
    #[arg(long)]
    pub tail: Option<u64>,
    /// Only those after this cursor (from an earlier `-o json`).
    #[arg(long, value_name = "CURSOR", conflicts_with = "tail")]
    pub after: Option<String>,
}

#[derive(Debug, Args)]
pub struct ToolsOptions {
    /// The agent.
    #[arg(value_name = "AGENT", value_parser = object_name)]
    pub name: String,
}

#[derive(Debug, Args)]
pub struct ScopeOptions {
    /// The agent.
    #[arg(value_name = "AGENT", value_parser = object_name)]
    pub name: String,
}

#[derive(Debug, Args)]
pub struct ProjectionOptions {
    /// The agent.
    #[arg(value_name = "AGENT", value_parser = object_name)]
    pub name: String,
    #[command(flatten)]
    pub of: ConversationChoice,
    /// timeline, llm_context, diagnostics or pending_tool_calls; an agent of a newer version may have more.
    #[arg(value_name = "KEY", value_parser = projection_key)]
    pub key: String,
}

/// Accepts a word. Anything else is no key, and would change the path of a request.
fn projection_key(text: &str) -> Result<String, String> {
    let is_word = (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    is_word.then(|| text.to_owned()).ok_or_else(|| "a key has 1 to 64 lower-case letters and _".to_owned())
}
