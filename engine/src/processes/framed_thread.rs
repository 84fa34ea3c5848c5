//! A thread in the frame, which starts all programs.

use std::fmt;
use std::io;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};

use tokio::runtime::Handle;

use crate::frame::{Frame, FrameError};

const STACK_BYTES: usize = 256 << 10;

/// Ends when it is dropped.
pub(super) struct FramedThread(Mutex<Sender<Box<dyn FnOnce() + Send>>>);

impl fmt::Debug for FramedThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FramedThread")
    }
}

impl FramedThread {
    pub fn start(frame: Frame) -> Result<Self, FrameError> {
        let (jobs, received) = channel::<Box<dyn FnOnce() + Send>>();
        let (entered, result) = channel();
        let run = move || {
            let entering = frame.enter().map(|status| tracing::info!(?status, "frame entered"));
            let may_go_on = entering.is_ok();
            let _ = entered.send(entering);
            if may_go_on {
                received.into_iter().for_each(|job| job());
            }
        };
        std::thread::Builder::new().name("framed".to_owned()).stack_size(STACK_BYTES).spawn(run).map_err(FrameError::Thread)?;
        result.recv().map_err(|_| FrameError::Thread(io::ErrorKind::BrokenPipe.into()))??;
        Ok(Self(Mutex::new(jobs)))
    }

    /// Runs `job` on the thread, in the caller's tokio runtime, and waits for it.
    pub fn run<T: Send + 'static>(&self, job: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
        let (done, result) = channel();
        let runtime = Handle::current();
        let job = move || {
            let _runtime = runtime.enter();
            let _ = done.send(job());
        };
        let gone = || io::Error::new(io::ErrorKind::BrokenPipe, "the thread that starts programs has ended");
        self.0.lock().unwrap_or_else(PoisonError::into_inner).send(Box::new(job)).map_err(|_| gone())?;
        result.recv().map_err(|_| gone())?
    }
}
