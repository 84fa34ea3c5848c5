//! The flags of `session`: sessions as claims, also of agents that are gone.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::agents::PlainDryRunOption;
use super::steering::ConversationChoice;
use super::values::{duration, subdomain};

#[derive(Debug, Subcommand)]
pub enum SessionCommand {
    /// List the claims that hold sessions: which agent names each, and which are left of agents that are gone.
    #[command(after_help = super::examples::SESSION_LS)]
    Ls(SessionListOptions),
    /// Show the session on a claim, also of an agent that is gone. Nothing of it changes.
    #[command(after_help = super::examples::SESSION_LOG)]
    Log(SessionLogOptions),
    /// Copy the session on a claim as it stands: its segments as a tar archive. Nothing of it changes.
    #[command(after_help = super::examples::SESSION_EXPORT)]
    Export(SessionExportOptions),
    /// Delete sessions that no agent names, with their volumes and data. Only tells what it would do without --force.
    #[command(after_help = super::examples::SESSION_RM)]
    Rm(SessionRmOptions),
    /// Delete the sessions that were left by agents that are gone, and are as old as --older-than says. Only tells what it would do without --force.
    #[command(after_help = super::examples::SESSION_PRUNE)]
    Prune(SessionPruneOptions),
}

#[derive(Debug, Args)]
pub struct SessionListOptions {
    /// Of every namespace.
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
}

#[derive(Debug, Args)]
pub struct SessionLogOptions {
    /// The claim, as `kubectl yoi session ls` lists it.
    #[arg(value_name = "CLAIM", value_parser = subdomain)]
    pub claim: String,
    #[command(flatten)]
    pub of: ConversationChoice,
    /// Only the last so many entries.
    #[arg(long)]
    pub tail: Option<u64>,
    /// Only what is not older than this, e.g. 10m.
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub since: Option<Duration>,
}

#[derive(Debug, Args)]
pub struct SessionExportOptions {
    /// The claim, as `kubectl yoi session ls` lists it.
    #[arg(value_name = "CLAIM", value_parser = subdomain)]
    pub claim: String,
    #[command(flatten)]
    pub of: ConversationChoice,
    /// Where to; without it to standard output, which must not be a terminal then.
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<std::path::PathBuf>,
}

#[derive(Debug, Args)]
pub struct SessionRmOptions {
    /// The claims, as `kubectl yoi session ls` lists them.
    #[arg(value_name = "CLAIM", value_parser = subdomain, required = true)]
    pub claims: Vec<String>,
    #[command(flatten)]
    pub deletion: SessionDeletionOptions,
}

#[derive(Debug, Args)]
pub struct SessionPruneOptions {
    /// Only sessions whose claim was made so long ago, as 30d.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub older_than: Duration,
    #[command(flatten)]
    pub deletion: SessionDeletionOptions,
}

#[derive(Debug, Args)]
pub struct SessionDeletionOptions {
    /// Really delete. A session that an agent names or a Pod uses is refused all the same.
    #[arg(short, long)]
    pub force: bool,
    /// How long to wait until the data of one is gone.
    #[arg(long, default_value = "3m", value_parser = duration, value_name = "DURATION")]
    pub timeout: Duration,
    #[command(flatten)]
    pub dry_run: PlainDryRunOption,
}
