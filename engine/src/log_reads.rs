//! Bounds what reads of the log hold in memory, however many people read.

use std::sync::Arc;

use tokio::sync::Semaphore;
use yoi_session::{Error, Reader};

/// Entries in one read of the log.
pub const ENTRIES_PER_READ: usize = 64;
/// Bytes of entries in one read of the log, unless one alone is longer.
pub const BYTES_PER_READ: u64 = 1 << 20;
/// Reads of the log at the same time. Further ones take turns.
const READS_AT_ONCE: usize = 4;

/// Takes turns at reading the log.
#[derive(Clone, Debug)]
pub struct LogReads(Arc<Semaphore>);

impl Default for LogReads {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(READS_AT_ONCE)))
    }
}

impl LogReads {
    /// Reads with what is in `reader`, when it is its turn, and puts it back. `None`: there is no reader, as another read was given up.
    ///
    /// # Errors
    /// Those of `read`.
    pub async fn with<T: Send + 'static>(
        &self,
        reader: &mut Option<Reader>,
        read: impl FnOnce(&mut Reader) -> Result<T, Error> + Send + 'static,
    ) -> Result<Option<T>, Error> {
        let Some(mut taken) = reader.take() else { return Ok(None) };
        let (taken, read) = self
            .run(move || {
                let read = read(&mut taken);
                (taken, read)
            })
            .await;
        *reader = Some(taken);
        read.map(Some)
    }

    /// Runs an operation that reads the log, when it is its turn.
    pub async fn run<T: Send + 'static>(&self, operation: impl FnOnce() -> T + Send + 'static) -> T {
        // The semaphore is never closed.
        let permit = self.0.clone().acquire_owned().await;
        // The permit goes with the operation, which goes on when nobody waits for it any more.
        blocking(move || {
            let result = operation();
            drop(permit);
            result
        })
        .await
    }
}

/// Runs an operation that blocks on a thread for such, and goes on as it ends: with its result or its panic.
pub async fn blocking<T: Send + 'static>(operation: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(operation).await {
        Ok(result) => result,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
