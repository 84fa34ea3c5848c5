//! The capture, and the question before files are sent that nobody has said to belong to the tree.

use std::io::{BufRead, IsTerminal, Write};

use yoi_worktree::{Asked, CaptureError, Captured, Limits};

use super::LEAVE_OUT;
use super::clone::SyncedClone;
use crate::args::SyncOptions;
use crate::git::{CloneRefusal, refusal};
use crate::progress::{self, Progress};
use crate::show;

/// Bytes of files that HEAD does not hold as they are. More than that is nothing that a bundle could hold, and takes long to find out.
const MAX_CHANGED_BYTES: u64 = 256 << 20;
/// Bytes of untracked files, more than the person has agreed to before, that are sent without a question.
const ASK_ABOVE: u64 = 2 << 20;

/// Captures the working tree. What the person has agreed to once is not asked about again in this clone.
pub fn capture(clone: &SyncedClone, args: &SyncOptions, now: jiff::Timestamp, progress: &mut Progress) -> Result<Captured, CloneRefusal> {
    // Nothing is sent then.
    let untracked = if args.dry_run { u64::MAX } else { clone.agreed().saturating_add(ASK_ABOVE) };
    let source = clone.source();
    let with = |untracked| {
        let limits = Limits { bytes: MAX_CHANGED_BYTES, untracked };
        let asked = Asked { private: clone.private(), include: &args.include, seconds: now.as_second(), limits };
        yoi_worktree::capture(source, &asked)
    };
    let captured = match with(untracked) {
        Err(CaptureError::Untracked { bytes, largest }) => {
            let what = what(bytes, &largest);
            if !args.yes {
                progress.set("waiting for an answer");
                progress::beside(|| ask(&what))?;
            }
            clone.agree(bytes)?;
            with(u64::MAX).map_err(why_not)
        }
        captured => captured.map_err(why_not),
    }?;
    if !args.dry_run {
        yoi_worktree::remember(source, clone.private()).map_err(|error| why_not(error.into()))?;
    }
    Ok(captured)
}

fn what(bytes: u64, largest: &[String]) -> String {
    format!("{} of untracked files would be sent; the largest, in bytes: {}", show::bytes(bytes), show::one_line(&largest.join(", ")))
}

/// Asks in a terminal.
///
/// # Errors
/// There is none, or the answer is no.
fn ask(what: &str) -> Result<(), CloneRefusal> {
    let next = format!("send them: add --yes to kubectl yoi sync; or not: {LEAVE_OUT}");
    if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        return Err(refusal(format!("{what}; there is no terminal to ask in"), next));
    }
    eprint!("{what}\nSend them? [y/N] ");
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    let is_yes = read.is_ok() && ["y", "yes"].contains(&answer.trim().to_lowercase().as_str());
    if is_yes { Ok(()) } else { Err(refusal(format!("{what}; the answer was no"), next)) }
}

pub fn why_not(error: CaptureError) -> CloneRefusal {
    match error {
        CaptureError::TooLarge { bytes, most, largest } => refusal(
            format!(
                "what has changed is {}, and at most {} are read; the largest, in bytes: {}",
                show::bytes(bytes),
                show::bytes(most),
                show::one_line(&largest.join(", "))
            ),
            LEAVE_OUT,
        ),
        CaptureError::Untracked { bytes, largest } => refusal(what(bytes, &largest), LEAVE_OUT),
        CaptureError::Changing(_) => refusal(show::one_line(&error.to_string()), "say it again when nothing writes there"),
        CaptureError::NothingIncluded(_) => refusal(show::one_line(&error.to_string()), "see what is ignored: git status --ignored"),
        CaptureError::Git(_) | CaptureError::NoWorkTree { .. } => {
            refusal(show::one_line(&yoi_wire::error_chain(&error)), "do what git says, and say it again")
        }
    }
}
