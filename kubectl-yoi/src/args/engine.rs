//! The flags of the verbs that ask an agent's engine, and of the one that shows its scope.

use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::Value;
use yoi_wire::engine_api::is_tool_name;

use super::steering::ConversationChoice;
use super::values::{duration, message_id, object_name};

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
    /// Only the last so many.
    #[arg(long)]
    pub tail: Option<u64>,
    /// Only those after this cursor (from an earlier `-o json`).
    #[arg(long, value_name = "CURSOR", conflicts_with = "tail")]
    pub after: Option<String>,
    #[command(subcommand)]
    pub command: Option<EventsCommand>,
}

#[derive(Debug, Subcommand)]
pub enum EventsCommand {
    /// Give a conversation an event from outside.
    #[command(after_help = super::examples::EVENTS_SEND)]
    Send {
        /// conversation.user.message, conversation.cancel, conversation.resume or conversation.mode.switch.requested.
        #[arg(value_name = "TYPE")]
        kind: String,
        /// What it says, an object of JSON: of a message its text, of a switch of the mode the mode.
        #[arg(long, value_name = "JSON", default_value = "{}", value_parser = json)]
        data: Value,
        /// Id of the event, a UUID. Sent again under the same id it has its effect once.
        #[arg(long, value_name = "UUID", value_parser = message_id)]
        id: Option<String>,
        #[command(flatten)]
        of: ConversationChoice,
    },
}

#[derive(Debug, Args)]
pub struct ToolsOptions {
    /// The agent.
    #[arg(value_name = "AGENT", value_parser = object_name)]
    pub name: String,
    #[command(flatten)]
    pub of: ConversationChoice,
    #[command(subcommand)]
    pub command: Option<ToolsCommand>,
}

#[derive(Debug, Subcommand)]
pub enum ToolsCommand {
    /// Run a tool in the agent's tree, by its policy and mode, and print what it returns. No model reads it.
    #[command(after_help = super::examples::TOOLS_RUN)]
    Run(ToolRunOptions),
}

#[derive(Debug, Args)]
pub struct ToolRunOptions {
    /// The tool, of those that `tools` lists.
    #[arg(value_name = "TOOL", value_parser = tool_name)]
    pub tool: String,
    /// Its arguments, an object of JSON by the tool's schema.
    #[arg(long, value_name = "JSON", default_value = "{}", value_parser = json)]
    pub args: Value,
    /// Id of the call, a UUID. Run again under the same id it is the same call, and runs once.
    #[arg(long, value_name = "UUID", value_parser = message_id)]
    pub id: Option<String>,
    /// How long to wait until it has ended, also for a person who has to approve it.
    #[arg(long, default_value = "10m", value_parser = duration, value_name = "DURATION")]
    pub timeout: Duration,
    #[command(flatten)]
    pub of: ConversationChoice,
}

/// Accepts a word. Anything else would change the path of a request.
fn tool_name(text: &str) -> Result<String, String> {
    is_tool_name(text).then(|| text.to_owned()).ok_or_else(|| "the name of a tool has 1 to 64 letters, digits, `_`, `-` and `.`".to_owned())
}

fn json(text: &str) -> Result<Value, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| format!("it is no JSON: {error}"))?;
    if value.is_object() { Ok(value) } else { Err("it is no object of JSON, as {\"command\": \"ls\"}".to_owned()) }
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
    /// timeline, llm_context, diagnostics, mode_runtime, pending_tool_calls or subagent_status; an agent of a newer version may have more.
    #[arg(value_name = "KEY", value_parser = projection_key)]
    pub key: String,
}

/// Accepts a word. Anything else is no key, and would change the path of a request.
fn projection_key(text: &str) -> Result<String, String> {
    let is_word = (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    is_word.then(|| text.to_owned()).ok_or_else(|| "a key has 1 to 64 lower-case letters and _".to_owned())
}
