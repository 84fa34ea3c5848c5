//! A commit that nobody's data has to be written for.
//!
//! START_SYNC leaves the commit to a thread of the kernel and wakes it. A thread that is just ending the commit before misses that, and sleeps on
//! until the file system's own commit is due: two trees destroyed at once took 30.7 s (Linux 6.18). The next call wakes it, as it sleeps by then.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use super::ioctl;

/// Longer than a commit takes to begin where nothing stands in its way.
const FIRST_WAIT: Duration = Duration::from_millis(20);

/// Waits until the transaction that runs now is committed, and hurries it. Unlike [`ioctl::sync`], writes nobody's data; calls made at the same
/// time share a commit.
pub(crate) fn commit(any: impl AsFd) -> io::Result<()> {
    let transid = start_commit(any.as_fd(), FIRST_WAIT)?;
    ioctl::wait_sync(any, transid)
}

/// Asks again, ever more rarely, until the commit has begun. Each call is seen to its end: one that came to the next transaction may be missed too.
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
