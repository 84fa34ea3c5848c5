//! The plugin as a process, by its lines.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;
use yoi_e2e::test_namespace::TestNamespace;

/// No line takes longer.
const LONGEST: Duration = Duration::from_secs(60);

/// It ends when it is dropped.
pub struct Plugin {
    _child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Plugin {
    pub fn start(ns: &TestNamespace, words: &[&str]) -> Result<Self> {
        let mut command = Command::new(std::env::var("YOI_KUBECTL_YOI").context("YOI_KUBECTL_YOI is not set")?);
        command.args(["-n", &ns.name]).args(words).stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().context("failed to start the plugin")?;
        let lines = BufReader::new(child.stdout.take().context("the plugin has no output")?).lines();
        Ok(Plugin { _child: child, lines })
    }

    pub async fn line(&mut self) -> Result<String> {
        let line = timeout(LONGEST, self.lines.next_line()).await.context("the plugin prints nothing")??;
        line.context("the plugin has ended")
    }
}
