//! One sync of the file system for all who wait for one.

use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often a waiting caller looks whether it is cancelled.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Runs syncs one after another. A sync writes what the whole file system has to write, so a second one at the same time does nothing but wait.
#[derive(Default)]
pub(crate) struct SharedSync {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    started: u64,
    /// Equal to `started` while no sync runs.
    ended: u64,
    /// How the last one failed.
    error: Option<i32>,
}

impl SharedSync {
    /// Returns when a sync has ended that began after this call: one that runs already may miss what was written before the call. All callers
    /// that wait meanwhile share the next one. Errors: that of the sync, and ECANCELED for a caller that is cancelled while it waits.
    pub fn run(&self, is_cancelled: &dyn Fn() -> bool, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut state = self.lock();
        let mine = state.started + 1;
        while state.ended < mine {
            if state.started == state.ended {
                state.started += 1;
                drop(state);
                let done = sync();
                let mut state = self.lock();
                state.ended = state.started;
                state.error = done.as_ref().err().map(|e| e.raw_os_error().unwrap_or(libc::EIO));
                self.ended.notify_all();
                return done;
            }
            if is_cancelled() {
                return Err(io::Error::from_raw_os_error(libc::ECANCELED));
            }
            state = self.ended.wait_timeout(state, CHECK_INTERVAL).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.error.map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(errno)))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;

    #[test]
    fn callers_that_wait_at_the_same_time_share_the_next_sync_and_a_cancelled_one_leaves() {
        let (shared, syncs) = (SharedSync::default(), AtomicUsize::new(0));
        let (begun, has_begun) = channel();
        let (end, may_end) = channel::<()>();
        let count = || {
            syncs.fetch_add(1, Ordering::SeqCst);
            Ok(())
        };
        std::thread::scope(|scope| {
            let (shared, count) = (&shared, &count);
            scope.spawn(move || {
                let slow = || {
                    begun.send(()).unwrap();
                    may_end.recv().unwrap();
                    count()
                };
                shared.run(&|| false, slow).unwrap();
            });
            has_begun.recv().unwrap();
            let cancelled = shared.run(&|| true, count).unwrap_err();
            assert_eq!(cancelled.raw_os_error(), Some(libc::ECANCELED));
            let (waits, waiting) = channel();
            for _ in 0..20 {
                let waits = waits.clone();
                // The question whether it is cancelled shows that a caller waits.
                scope.spawn(move || shared.run(&|| waits.send(()).is_err(), count).unwrap());
            }
            (0..20).for_each(|_| waiting.recv().unwrap());
            // The receiver stays: without it the callers would be cancelled.
            end.send(()).unwrap();
            while syncs.load(Ordering::SeqCst) < 2 {
                std::thread::yield_now();
            }
            let _kept = waiting;
        });
        assert_eq!(syncs.into_inner(), 2);
    }
}
