//! Merges another agent's work into the tree: by a process of its own, because git of the tree is the agent's.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Mutex;
use yoi_engine::processes::ProcessSupervisor;
use yoi_wire::hub::{Refusal, RefusalReason};
use yoi_wire::merge::MergeOutcome;

use crate::merge_process::MergeAnswer;

/// How long a merge may take, in seconds, its download included.
pub const MERGE_SECONDS: u64 = 240;
/// Bytes of an answer: [`yoi_wire::merge::MAX_MERGE_PATHS`] long paths twice.
const MAX_ANSWER: u64 = 8 << 20;
/// Whoever owns the files of the tree, it is the agent's.
const ENV: [(&str, &str); 5] = [
    ("GIT_CONFIG_COUNT", "1"),
    ("GIT_CONFIG_KEY_0", "safe.directory"),
    ("GIT_CONFIG_VALUE_0", "*"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_EDITOR", "false"),
];

/// Merges into the tree of this agent, one work after the other.
#[derive(Debug)]
pub struct Merger {
    processes: Arc<ProcessSupervisor>,
    program: PathBuf,
    one_at_a_time: Mutex<()>,
}

impl Merger {
    /// Merges by processes of this supervisor, which start in the tree.
    #[must_use]
    pub fn new(processes: Arc<ProcessSupervisor>) -> Self {
        let program = std::env::current_exe().unwrap_or_else(|_| Path::new("yoi-runtime").to_owned());
        Self { processes, program, one_at_a_time: Mutex::default() }
    }

    /// Merges what the stream brings: a line with a [`yoi_wire::merge::MergeOrder`], and the other agent's work.
    ///
    /// # Errors
    /// Nothing was merged; or the merge was ended in its middle, and goes on where it was when it is asked for again.
    pub async fn merge<E: std::fmt::Display>(&self, work: impl Stream<Item = Result<Bytes, E>> + Send) -> Result<MergeOutcome, Refusal> {
        let _one = self.one_at_a_time.lock().await;
        let refused = |reason, message: String| Err(Refusal { reason, message });
        match tokio::time::timeout(Duration::from_secs(MERGE_SECONDS), self.run(work)).await {
            Ok(Ok(Ok(MergeAnswer::Outcome(outcome)))) => Ok(outcome),
            Ok(Ok(Ok(MergeAnswer::Refused(refusal)))) => Err(refusal),
            Ok(Ok(Err(why))) => refused(RefusalReason::Unreachable, format!("nothing was merged: the other agent's work broke off: {why}")),
            Ok(Err(error)) => refused(RefusalReason::ReceiverFailed, format!("it is not known what was merged, so merge again: {error}")),
            Err(_) => {
                let message = format!("the merge was ended after {MERGE_SECONDS} s; merge again, and it goes on where it was");
                refused(RefusalReason::ReceiverFailed, message)
            }
        }
    }

    /// The inner error is that of the stream.
    async fn run<E: std::fmt::Display>(
        &self,
        work: impl Stream<Item = Result<Bytes, E>> + Send,
    ) -> io::Result<Result<MergeAnswer, String>> {
        let mut process = self.processes.start(&self.program, |command| {
            command.arg("merge").envs(ENV.map(|(name, value)| (name, OsStr::new(value))));
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        })?;
        let (Some(mut stdin), Some(stdout), _) = process.take_pipes() else { return Err(io::ErrorKind::BrokenPipe.into()) };
        let send = async move {
            let mut work = std::pin::pin!(work);
            while let Some(chunk) = work.next().await {
                let chunk = chunk.map_err(|error| error.to_string())?;
                if stdin.write_all(&chunk).await.is_err() {
                    // It has ended, and says why.
                    return Ok(());
                }
            }
            Ok::<(), String>(())
        };
        let receive = async {
            let mut answer = Vec::new();
            stdout.take(MAX_ANSWER).read_to_end(&mut answer).await.map(|_| answer)
        };
        let mut send = std::pin::pin!(send);
        let mut receive = std::pin::pin!(receive);
        let answer = tokio::select! {
            answer = &mut receive => answer?,
            sent = &mut send => match sent {
                Ok(()) => receive.await?,
                // The process is killed with this, and refuses a bundle that is not whole.
                Err(why) => return Ok(Err(why)),
            },
        };
        process.wait().await?;
        serde_json::from_slice(&answer).map(Ok).map_err(|error| io::Error::other(format!("the merge gave no answer: {error}")))
    }
}
