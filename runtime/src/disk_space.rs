//! Finds out when a full session volume has free space again. After a message could not be stored, it writes and removes a test file until
//! that works.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use yoi_line::{Backoff, BackoffPolicy};
use yoi_session::Error;
use yoi_session::inbox::MAX_TEXT;

use crate::rng::random_fraction;
use crate::status::{NotReady, RuntimeStatus};

/// The test file's name. No file of a session has it.
const TEST_FILE: &str = ".room.tmp";

/// Reports a full session volume, and when it has free space again.
#[derive(Debug)]
pub struct DiskSpaceProbe {
    root: PathBuf,
    status: RuntimeStatus,
    stop: CancellationToken,
    probing: AtomicBool,
}

impl DiskSpaceProbe {
    #[must_use]
    pub fn new(root: PathBuf, status: RuntimeStatus, stop: CancellationToken) -> Self {
        // A process that died in the middle of a test leaves the file.
        let _ = std::fs::remove_file(root.join(TEST_FILE));
        Self { root, status, stop, probing: AtomicBool::new(false) }
    }

    /// Reports `failure`, and tests the volume in the background until it could store a message of any size; then the report is taken back.
    pub fn start(self: &Arc<Self>, failure: NotReady) {
        tracing::error!(reason = failure.reason.as_str(), error = failure.message, "message not taken");
        self.status.set_inbox_failure(Some(failure));
        if !self.probing.swap(true, Ordering::SeqCst) {
            tokio::spawn(self.clone().probe());
        }
    }

    async fn probe(self: Arc<Self>) {
        let policy = BackoffPolicy { first: Duration::from_millis(500), cap: Duration::from_secs(10), settled: Duration::from_secs(60) };
        let mut backoff = Backoff::new(policy);
        loop {
            tokio::select! {
                () = tokio::time::sleep(backoff.after_failure(None, random_fraction())) => {}
                () = self.stop.cancelled() => return,
            }
            let root = self.root.clone();
            // Twice the longest text, because a stored text is escaped.
            let result = tokio::task::spawn_blocking(move || write_test_file(&root, 2 * MAX_TEXT)).await;
            match result {
                Ok(Ok(())) => break,
                Ok(Err(error)) => self.status.set_inbox_failure(Some(NotReady::from_session_error(&error))),
                Err(error) => tracing::error!(%error, "disk space not probed"),
            }
        }
        // In this order: a message that fails between the two lines starts the next probe.
        self.probing.store(false, Ordering::SeqCst);
        self.status.set_inbox_failure(None);
    }
}

/// Checks that the volume has enough free space for the log to go on: for its preallocation and more than one long entry.
///
/// # Errors
/// The disk's.
pub fn check_for_log(root: &Path) -> Result<(), Error> {
    write_test_file(root, 3 << 19)
}

fn write_test_file(root: &Path, bytes: usize) -> Result<(), Error> {
    let path = root.join(TEST_FILE);
    let result = (|| {
        let mut file = std::fs::File::create(&path)?;
        let block = vec![b'\n'; 64 << 10];
        let mut written = Ok(());
        for _ in 0..bytes.div_ceil(block.len()) {
            written = written.and_then(|()| file.write_all(&block));
        }
        let written = written.and_then(|()| file.sync_all());
        std::fs::remove_file(&path)?;
        written
    })();
    result.map_err(|source: io::Error| Error::Disk { operation: "write", path, source })
}
