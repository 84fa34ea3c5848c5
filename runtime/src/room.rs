//! Whether the session volume has room for a message: looked at again and again after one was refused, until there is.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use yoi_line::{Backoff, BackoffPolicy};
use yoi_session::Error;
use yoi_session::inbox::MAX_TEXT;

use crate::chance::chance;
use crate::status::{Status, Trouble};

/// A file of the longest message's size is written and removed; its name is that of no file of the session.
const TRIAL: &str = ".room.tmp";

#[derive(Debug)]
pub struct Room {
    root: PathBuf,
    status: Status,
    stop: CancellationToken,
    looking: AtomicBool,
}

impl Room {
    #[must_use]
    pub fn new(root: PathBuf, status: Status, stop: CancellationToken) -> Self {
        // Left by a process that died while it looked.
        let _ = std::fs::remove_file(root.join(TRIAL));
        Self { root, status, stop, looking: AtomicBool::new(false) }
    }

    /// A message could not be stored: says so, and takes it back once one of any size could be.
    pub fn missing(self: &Arc<Self>, trouble: Trouble) {
        tracing::error!(reason = trouble.reason, error = trouble.message, "message not taken");
        self.status.inbox_is(Some(trouble));
        if !self.looking.swap(true, Ordering::SeqCst) {
            tokio::spawn(self.clone().look());
        }
    }

    async fn look(self: Arc<Self>) {
        let policy = BackoffPolicy { first: Duration::from_millis(500), cap: Duration::from_secs(10), settled: Duration::from_secs(60) };
        let mut backoff = Backoff::new(policy);
        loop {
            tokio::select! {
                () = tokio::time::sleep(backoff.after_failure(None, chance())) => {}
                () = self.stop.cancelled() => return,
            }
            let root = self.root.clone();
            // More than the text, which is escaped.
            let tried = tokio::task::spawn_blocking(move || try_at(&root, 2 * MAX_TEXT)).await;
            match tried {
                Ok(Ok(())) => break,
                Ok(Err(error)) => self.status.inbox_is(Some(Trouble::of(&error))),
                Err(error) => tracing::error!(%error, "room not looked for"),
            }
        }
        // In this order: a message that is refused in between starts the next look.
        self.looking.store(false, Ordering::SeqCst);
        self.status.inbox_is(None);
    }
}

/// Whether there is room to go on: for what the log takes ahead, and for more than one long entry.
///
/// # Errors
/// The disk's.
pub fn for_a_log(root: &Path) -> Result<(), Error> {
    try_at(root, 3 << 19)
}

fn try_at(root: &Path, bytes: usize) -> Result<(), Error> {
    let path = root.join(TRIAL);
    let tried = (|| {
        let mut file = std::fs::File::create(&path)?;
        let piece = vec![b'\n'; 64 << 10];
        let mut written = Ok(());
        for _ in 0..bytes.div_ceil(piece.len()) {
            written = written.and_then(|()| file.write_all(&piece));
        }
        let written = written.and_then(|()| file.sync_all());
        std::fs::remove_file(&path)?;
        written
    })();
    tried.map_err(|source: io::Error| Error::Disk { operation: "write", path, source })
}
