//! A commit that does not write file data first.
//!
//! START_SYNC leaves the commit to a kernel thread and wakes it. If that thread is just ending the previous commit, it misses the wake-up and
//! sleeps until the periodic commit is due: two trees destroyed at once took 30.7 s (Linux 6.18). A second call wakes it, because it sleeps by then.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use super::ioctl;

/// A commit that is not blocked begins sooner than this.
const FIRST_WAIT: Duration = Duration::from_millis(20);

/// Starts the commit of the current transaction and waits until it is done. Unlike [`ioctl::sync`], it writes no file data. Calls made at the
/// same time share a commit.
pub(crate) fn commit(any: impl AsFd) -> io::Result<()> {
    let transid = start_commit(any.as_fd(), FIRST_WAIT)?;
    ioctl::wait_sync(any, transid)
}

/// Calls START_SYNC until the commit has begun, each time after a longer wait. Waits for every call to end: one that came to the next
/// transaction may be missed, too.
fn start_commit(any: BorrowedFd, wait: Duration) -> io::Result<u64> {
    let (sender, receiver) = channel();
    thread::scope(|scope| {
        thread::Builder::new().name("commit".to_owned()).spawn_scoped(scope, move || sender.send(ioctl::start_sync(any)))?;
        match receiver.recv_timeout(wait) {
            Err(RecvTimeoutError::Timeout) => {
                start_commit(any, wait * 2)?;
                receiver.recv().map_err(io::Error::other)?
            }
            done => done.map_err(io::Error::other)?,
        }
    })
}
