//! A command to its end or its time limit.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::time::{Instant, sleep};
use yoi_wire::entry::ToolOutcome;

use super::memory_kills::MemoryKills;
use super::script::Script;
use super::terminal_text::TerminalText;
use super::{PIPE_DRAIN_TIMEOUT, StartedCommand, describe_end, end_line, read_rest};
use crate::tools::output_limit::BoundedOutput;
use crate::tools::result::{CallResult, LiveOutput};

/// The longest path of a directory, with its newline.
const MAX_REPORT_BYTES: usize = 4097;

/// The end of a command.
pub struct Ended {
    pub result: CallResult,
    /// The directory in which it ended, when that is not the one in which it started.
    pub moved_to: Option<PathBuf>,
}

/// Waits for the command. It ends all its processes when the command ends, when the time is over, and when the future is dropped.
pub async fn finish(started: StartedCommand, limit: Duration, bytes: usize, live: &LiveOutput, kills: &MemoryKills) -> Ended {
    let StartedCommand { mut process, output: mut pipe, last_directory, directory, kills_before, note } = started;
    let mut collected =
        Collected { terminal: TerminalText::default(), bounded: BoundedOutput::new(bytes.saturating_sub(note.len())), live };
    let mut buffer = vec![0; 16 << 10];
    let (mut open, mut status, mut timed_out) = (true, None, false);
    let mut left = 0;
    let mut deadline = std::pin::pin!(sleep(limit));
    while open || status.is_none() {
        tokio::select! {
            read = pipe.read(&mut buffer), if open => match read {
                Ok(0) | Err(_) => open = false,
                Ok(read) => collected.push(&buffer[..read]),
            },
            ended = process.wait(), if status.is_none() => {
                status = Some(ended.ok());
                // Processes that the command left behind would keep the pipe open, and write to the tree between calls.
                left = process.kill_tree();
                deadline.as_mut().reset(Instant::now() + PIPE_DRAIN_TIMEOUT);
            }
            () = &mut deadline => {
                if status.is_some() || timed_out {
                    read_rest(&pipe, &mut buffer, |bytes| collected.push(bytes));
                    break;
                }
                timed_out = true;
                process.kill_tree();
                deadline.as_mut().reset(Instant::now() + PIPE_DRAIN_TIMEOUT);
            }
        }
    }
    let mut output = note + &collected.finish();
    let moved_to = if timed_out { None } else { reported_directory(&last_directory).filter(|last| *last != directory) };
    // The root may be reached by links.
    let moved_to = moved_to.filter(|last| directory.canonicalize().ok().as_ref() != Some(last));
    if let Some(directory) = &moved_to {
        output.push_str(&format!("[the working directory is now {}]\n", directory.display()));
    }
    if left > 0 && !timed_out {
        let processes = if left == 1 { "1 process".to_owned() } else { format!("{left} processes") };
        output.push_str(&format!("[{processes} that the command left running ended with it; set background for what shall go on]\n"));
    }
    let result = if timed_out {
        output.push_str(&format!("[the time limit of {} s was reached; all its processes were ended]", limit.as_secs()));
        CallResult::new(ToolOutcome::TimedOut, output)
    } else {
        let (outcome, end) = describe_end(status.flatten(), kills_before, kills.count());
        CallResult::new(outcome, output + &end)
    };
    Ended { result, moved_to }
}

struct Collected<'a> {
    terminal: TerminalText,
    bounded: BoundedOutput,
    live: &'a LiveOutput,
}

impl Collected<'_> {
    fn push(&mut self, bytes: &[u8]) {
        let mut text = String::new();
        self.terminal.push(bytes, &mut text);
        self.add(&text);
    }

    fn add(&mut self, text: &str) {
        self.bounded.push(text);
        self.live.send(text);
    }

    /// The output, ending in a newline unless it is empty.
    fn finish(mut self) -> String {
        let mut rest = String::new();
        self.terminal.finish(&mut rest);
        self.add(&rest);
        let mut output = self.bounded.into_text();
        end_line(&mut output);
        if self.terminal.saw_other_than_utf8() {
            output.push_str("[some of it is not UTF-8 and stands here as \u{fffd}]\n");
        }
        output
    }
}

/// What the shell wrote at its end. Nothing when it was killed, was replaced by another program, or has another trap.
fn reported_directory(report: &OwnedFd) -> Option<PathBuf> {
    let mut buffer = [0; MAX_REPORT_BYTES];
    // The pipe does not block, and the shell has ended.
    let read = rustix::io::read(report, &mut buffer).ok()?;
    Script::parse_report(&buffer[..read])
}
