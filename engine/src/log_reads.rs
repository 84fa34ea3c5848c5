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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn however_many_people_read_few_reads_run_at_once_and_one_that_was_given_up_counts_until_it_ends() {
        let reads = LogReads::default();
        let (begun, began) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let ended = Arc::new(std::sync::Mutex::new(ended));
        let start = |count: usize| -> Vec<_> {
            let one = || {
                let (reads, begun, ended) = (reads.clone(), begun.clone(), ended.clone());
                let wait = move || {
                    let _ = begun.send(());
                    let _ = ended.lock().unwrap_or_else(std::sync::PoisonError::into_inner).recv();
                };
                tokio::spawn(async move { reads.run(wait).await })
            };
            (0..count).map(|_| one()).collect()
        };
        let first = start(READS_AT_ONCE);
        let began = tokio::task::spawn_blocking(move || {
            (0..READS_AT_ONCE).for_each(|_| began.recv().expect("a read begins"));
            began
        });
        let began = began.await.expect("each read has its turn");
        first.iter().for_each(tokio::task::JoinHandle::abort);
        let more = start(3);
        tokio::task::yield_now().await;
        assert_eq!((reads.0.available_permits(), began.try_recv().is_ok()), (0, false));
        // Each that ends makes room for one more.
        (0..READS_AT_ONCE + 3).for_each(|_| end.send(()).expect("a read waits"));
        for read in more {
            read.await.expect("a read");
        }
        assert_eq!(began.try_iter().count(), 3);
    }
}
