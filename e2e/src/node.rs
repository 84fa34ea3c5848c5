//! What tests look at, and do, in the node itself.

use std::collections::BTreeSet;

use anyhow::Result;

use crate::program::{self, CommandOutput};

/// Runs a shell script in the node as root, which ends at its first command that fails.
///
/// # Errors
/// When it cannot be started. Another exit code than 0 is no error here.
pub async fn run_on_node(script: &str) -> Result<CommandOutput> {
    let words = std::env::var("YOI_NODE_EXEC")?;
    let mut words: Vec<&str> = words.split(' ').collect();
    words.extend(["sh", "-euc", script]);
    program::run(words[0], &words[1..], &[], None).await
}

/// Returns the UIDs of the trees on the node's disk.
///
/// # Errors
/// When the disk cannot be read.
pub async fn tree_uids() -> Result<BTreeSet<String>> {
    let root = std::env::var("YOI_DATA_ROOT")?;
    let script = format!("find {root} -mindepth 3 -maxdepth 5 -path '*/trees/*/*' -prune -printf '%f\\n'");
    Ok(run_on_node(&script).await?.exit_ok()?.out.lines().map(str::to_owned).collect())
}
