//! The flags of the verbs about what an agent is doing now.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use yoi_wire::mode::Mode;

use super::values::{mode, object_name};

/// Which conversation of an agent a verb is about.
#[derive(Clone, Debug, Args)]
pub struct ConversationChoice {
    /// The conversation, of those that `conversation ls` lists; `main` when absent.
    #[arg(long, value_name = "CONVERSATION", value_parser = object_name)]
    pub conversation: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum ConversationCommand {
    /// Start a conversation, or one that was stopped again. It works in the same tree as the agent's others.
    #[command(after_help = super::examples::CONVERSATION_START)]
    Start(ConversationOptions),
    /// List an agent's conversations.
    #[command(after_help = super::examples::CONVERSATION_LS)]
    Ls(ConversationListOptions),
    /// Stop a conversation. It can still be read, and started again.
    #[command(after_help = super::examples::CONVERSATION_STOP)]
    Stop(ConversationOptions),
}

#[derive(Debug, Args)]
pub struct ConversationListOptions {
    /// The agent.
    #[arg(value_name = "AGENT", value_parser = object_name)]
    pub name: String,
}

#[derive(Debug, Args)]
pub struct ConversationOptions {
    /// The agent.
    #[arg(value_name = "AGENT", value_parser = object_name)]
    pub name: String,
    /// Name of the conversation.
    #[arg(value_name = "CONVERSATION", value_parser = object_name)]
    pub conversation: String,
}

#[derive(Debug, Args)]
pub struct AttachOptions {
    /// The agent.
    #[arg(value_name = "AGENT", value_parser = object_name)]
    pub name: String,
    #[command(flatten)]
    pub of: ConversationChoice,
    /// Begin with the last so many entries of its log.
    #[arg(long, default_value_t = 50)]
    pub tail: u64,
    /// Begin with what comes after this token (from an earlier `-o json`).
    #[arg(long, conflicts_with = "tail")]
    pub after: Option<String>,
}

/// A verb about the run under way.
#[derive(Debug, Args)]
pub struct SteerOptions {
    /// The agent.
    #[arg(value_name = "AGENT", value_parser = object_name)]
    pub name: String,
    #[command(flatten)]
    pub of: ConversationChoice,
}

#[derive(Debug, Args)]
pub struct ApprovalsOptions {
    /// Only this agent.
    #[arg(value_name = "AGENT", value_parser = object_name)]
    pub name: Option<String>,
    /// Agents of every namespace, not only of one.
    #[arg(short = 'A', long, conflicts_with = "name")]
    pub all_namespaces: bool,
}

#[derive(Debug, Args)]
pub struct ApproveOptions {
    /// The agent.
    #[arg(value_name = "AGENT", value_parser = object_name)]
    pub name: String,
    #[command(flatten)]
    pub of: ConversationChoice,
    /// Number of the call, as `approvals` lists it.
    #[arg(value_name = "CALL")]
    pub call: u64,
    /// Approve also every other call of this conversation that the same rules of the policy ask about.
    #[arg(long)]
    pub always: bool,
}

#[derive(Debug, Args)]
pub struct DenyOptions {
    /// The agent.
    #[arg(value_name = "AGENT", value_parser = object_name)]
    pub name: String,
    #[command(flatten)]
    pub of: ConversationChoice,
    /// Number of the call, as `approvals` lists it.
    #[arg(value_name = "CALL")]
    pub call: u64,
    /// Why; the agent reads it.
    #[arg(long, value_name = "TEXT")]
    pub because: String,
}

#[derive(Debug, Args)]
pub struct ModeOptions {
    /// The agent.
    #[arg(value_name = "AGENT", value_parser = object_name)]
    pub name: String,
    #[command(flatten)]
    pub of: ConversationChoice,
    /// The mode: coding (all tools), planning (tools that change nothing) or engineering (all tools, the most steps).
    #[arg(value_name = "MODE", value_parser = mode())]
    pub mode: Mode,
    /// Cancel a run that is under way or paused for it.
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, Args)]
pub struct RewindOptions {
    /// The agent.
    #[arg(value_name = "AGENT", value_parser = object_name)]
    pub name: String,
    #[command(flatten)]
    pub of: ConversationChoice,
    /// Number of the input from which on everything leaves the conversation. Without it, the inputs are listed.
    #[arg(value_name = "SEQ")]
    pub seq: Option<u64>,
}

#[derive(Debug, Args)]
pub struct TopOptions {
    /// Only this agent.
    #[arg(value_name = "AGENT", value_parser = object_name)]
    pub name: Option<String>,
    /// Agents of every namespace, not only of one.
    #[arg(short = 'A', long, conflicts_with = "name")]
    pub all_namespaces: bool,
}

#[derive(Debug, Args)]
pub struct AssetsOptions {
    /// The agent.
    #[arg(value_name = "AGENT", value_parser = object_name)]
    pub name: String,
    #[command(subcommand)]
    pub command: Option<AssetsCommand>,
}

#[derive(Debug, Subcommand)]
pub enum AssetsCommand {
    /// Show all that is known of one, and of others of its name.
    #[command(after_help = super::examples::ASSETS)]
    Show {
        /// Its name.
        #[arg(value_name = "NAME")]
        asset: String,
    },
    /// Find those that have these words in their name, path, description or text, nodes of the skill graph among them.
    #[command(after_help = super::examples::ASSETS)]
    Search {
        /// One text, in any case.
        #[arg(value_name = "WORDS", required = true)]
        words: Vec<String>,
    },
    /// Have a running agent read its tree's files again. It also looks at each begin of a run.
    #[command(after_help = super::examples::ASSETS)]
    Reload {
        /// Load nothing when one of them is not as its format has it: what was loaded before counts on.
        #[arg(long)]
        strict: bool,
    },
}

#[derive(Debug, Args)]
pub struct ExportOptions {
    /// The agent.
    #[arg(value_name = "AGENT", value_parser = object_name)]
    pub name: String,
    #[command(flatten)]
    pub of: ConversationChoice,
    /// The archive to write; standard output when absent.
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
}
