//! Reads trees ahead, each on a thread of its own, from the moment it is published: the Pod takes longer to start than that.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use yoi_workspace::{Uid, read_ahead};

use crate::volume::PodVolume;

/// How many trees are read at the same time. A tree that is published meanwhile is left out: its agent reads it at its own cost, and the node is busy.
const MAX_THREADS: usize = 2;
/// Behind all else that wants a processor. Not the idle class: a thread that never runs could keep the lock of a folder.
const NICE: i32 = 19;

/// The threads of a mounter.
pub(super) struct ReadAheads {
    /// Files of a tree that are read at most; 0 for none.
    files: usize,
    running: Mutex<HashMap<PodVolume, Reading>>,
}

struct Reading {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl ReadAheads {
    pub fn new(files: usize) -> Self {
        ReadAheads { files, running: Mutex::default() }
    }

    pub fn is_on(&self) -> bool {
        self.files > 0
    }

    /// Begins to read `tree`, the root of what `volume` shows.
    pub fn begin(&self, uid: Uid, volume: &PodVolume, tree: OwnedFd) {
        let mut running = self.lock();
        running.retain(|_, reading| !reading.thread.is_finished());
        if running.len() >= MAX_THREADS || running.contains_key(volume) {
            return;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (files, stopped) = (self.files, stop.clone());
        let read = move || {
            if let Err(error) = rustix::process::setpriority_process(None, NICE) {
                tracing::debug!(%error, "a thread has the priority of the others");
            }
            let began = Instant::now();
            let count = read_ahead(tree.as_fd(), files, &|| stopped.load(Ordering::Relaxed));
            tracing::debug!(tree = %uid, files = count, milliseconds = began.elapsed().as_millis(), "a tree was read ahead");
        };
        match std::thread::Builder::new().name("read-ahead".to_owned()).spawn(read) {
            Ok(thread) => _ = running.insert(volume.clone(), Reading { stop, thread }),
            Err(error) => tracing::debug!(%error, tree = %uid, "a tree was not read ahead"),
        }
    }

    /// Ends the reading of what `volume` shows, and waits for that: an open folder keeps the volume from being unmounted.
    pub fn end(&self, volume: &PodVolume) {
        let reading = self.lock().remove(volume);
        if let Some(Reading { stop, thread }) = reading {
            stop.store(true, Ordering::Relaxed);
            if thread.join().is_err() {
                tracing::error!(?volume, "the thread that read a tree ahead has panicked");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PodVolume, Reading>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
