//! `yoi-runtime hook`: a program calls it before and after each of its tools, so that a call is in the log before it runs.

use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use tokio::time::timeout;
use yoi_engine::error_text::error_text;

use crate::args::{HookArgs, HookMoment};
use crate::program_socket::{Answer, AskError, Method, Request, ask};

mod input;

use input::HookInput;

/// Shorter than the time after which programs go on without their hook. What the hook may wait for a person comes on top of it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// Bytes of what a program tells its hook: the arguments and the output of a call.
const MAX_INPUT_BYTES: u64 = 64 << 20;

/// The exit code by which Claude Code and Gemini CLI do not run a call.
pub const BLOCKED: u8 = 2;

/// Why a call must not run, or why its end is not in the log.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    #[error("failed to start the hook")]
    Start(#[source] std::io::Error),
    #[error("failed to read what the program tells of the call")]
    Stdin(#[source] std::io::Error),
    #[error("failed to read what the program tells of the call: it has more than {MAX_INPUT_BYTES} bytes")]
    TooLong,
    #[error("failed to understand what the program tells of the call: {0}")]
    Input(String),
    #[error(transparent)]
    Ask(#[from] AskError),
    #[error("failed to get an answer of the agent's runtime at {} within {} s", path.display(), limit.as_secs())]
    TimedOut { path: PathBuf, limit: Duration },
    #[error("{0}")]
    Refused(String),
}

/// Tells the runtime of a call. On return, its begin is durable, and a person has approved it where the policy wants one asked.
///
/// # Errors
/// The call must not run, or its end is not in the log.
pub async fn run(args: &HookArgs, stdin: impl Read) -> Result<(), HookError> {
    let HookArgs { moment, wait: wait_seconds, end } = args;
    let mut text = Vec::new();
    stdin.take(MAX_INPUT_BYTES + 1).read_to_end(&mut text).map_err(HookError::Stdin)?;
    if text.len() as u64 > MAX_INPUT_BYTES {
        return Err(HookError::TooLong);
    }
    let input = HookInput::read(&text).map_err(HookError::Input)?;
    let method = match *moment {
        HookMoment::Before => Method::HookBefore { call: input.call, wait_seconds: *wait_seconds },
        HookMoment::After => Method::HookAfter { call: input.call, outcome: input.outcome, output: input.output },
    };
    let request = Request { token: end.token.clone(), method };
    let limit = ANSWER_TIMEOUT.saturating_add(Duration::from_secs(*wait_seconds));
    let answer = timeout(limit, ask(&end.socket, &request)).await;
    match answer.map_err(|_| HookError::TimedOut { path: end.socket.clone(), limit })?? {
        Answer::Done => Ok(()),
        Answer::Refused { message } => Err(HookError::Refused(message)),
        Answer::Tools { .. } | Answer::Ended { .. } => Err(HookError::Refused("the runtime answered another question".to_owned())),
    }
}

/// The sentence for the program's model.
#[must_use]
pub fn sentence(moment: HookMoment, error: &HookError) -> String {
    let consequence = match moment {
        HookMoment::Before if matches!(error, HookError::Refused(_)) => "The call was not run",
        HookMoment::Before => "The call was not run, because it must be in the agent's log first",
        HookMoment::After => "The end of the call is not in the agent's log",
    };
    format!("{consequence}: {}.", error_text(error))
}
