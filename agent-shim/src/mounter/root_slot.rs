//! The data root of a mounter, which may be mounted anew while the mounter runs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use yoi_workspace::{DataRoot, ErrorReason, ExpectedRoot, Probe, Uid};

use super::{DataRootConfig, MounterError};

/// The opened data root, or none before it is opened.
pub(super) struct RootSlot {
    config: DataRootConfig,
    root: RwLock<Option<Arc<DataRoot>>>,
    /// Held while the data root is opened or mounted anew.
    opening: Mutex<()>,
    failed: AtomicBool,
}

fn has_failed(probe: &Probe) -> bool {
    probe.failure.as_ref().is_some_and(|failure| failure.reason == ErrorReason::ReadOnlyFilesystem)
}

/// How an attempt to mount the data root anew ended.
pub(super) enum MountedAnew {
    /// It is mounted anew, or needed not be.
    Yes,
    /// Requests are worked on that use it.
    InUse,
}

impl RootSlot {
    pub fn new(config: DataRootConfig) -> Self {
        RootSlot { config, root: RwLock::default(), opening: Mutex::default(), failed: AtomicBool::new(false) }
    }

    /// The data root. Whoever holds it keeps it from being mounted anew.
    pub fn get(&self) -> Option<Arc<DataRoot>> {
        self.root.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Opens the data root if it is the expected one, and returns its name.
    pub fn open(&self, expected: ExpectedRoot) -> Result<Uid, MounterError> {
        let _guard = self.lock();
        if let Some(root) = self.get() {
            let (path, found) = (self.config.data_root.clone(), root.name());
            return match expected {
                ExpectedRoot::Named(wanted) if wanted != found => {
                    Err(yoi_workspace::Error::OtherRoot { path, found: Some(found), wanted: Some(wanted) }.into())
                }
                ExpectedRoot::Any | ExpectedRoot::Used | ExpectedRoot::Named(_) => Ok(found),
            };
        }
        let name = self.open_locked(expected)?;
        tracing::info!(root = %self.config.data_root.display(), %name, "opened the data root");
        Ok(name)
    }

    fn open_locked(&self, expected: ExpectedRoot) -> Result<Uid, MounterError> {
        let root = self.config.open(expected)?;
        let name = root.name();
        self.set(Some(Arc::new(root)));
        Ok(name)
    }

    /// Tries out what the data root offers, and remembers whether it can be written. None if it is not open.
    pub fn probe(&self) -> Option<Result<Probe, yoi_workspace::Error>> {
        let probe = self.get()?.probe();
        if let Ok(probe) = &probe {
            self.failed.store(has_failed(probe), Ordering::Relaxed);
        }
        Some(probe)
    }

    /// Whether the last probe found that nothing can be written until the data root is mounted anew.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Mounts the data root anew if nothing can be written to it. While Pods or requests use it, it stays as it is. If it cannot be mounted
    /// again, no data root is open: the next [`RootSlot::open`] tries again.
    pub fn mount_anew(&self) -> Result<MountedAnew, MounterError> {
        let _guard = self.lock();
        let Some(root) = self.root.write().unwrap_or_else(PoisonError::into_inner).take() else { return Ok(MountedAnew::Yes) };
        let name = root.name();
        let needed = root.probe().map_err(MounterError::Disk).and_then(|probe| match has_failed(&probe) {
            true => self.config.check_unused(&root).map(|()| true),
            false => Ok(false),
        });
        let root = match (needed, Arc::try_unwrap(root)) {
            (Ok(true), Ok(root)) => root,
            (needed, root) => {
                self.set(Some(root.map_or_else(|used| used, Arc::new)));
                return needed.map(|needed| if needed { MountedAnew::InUse } else { MountedAnew::Yes });
            }
        };
        drop(root);
        let released = self.config.release();
        // Also if it is not released: its trees can perhaps still be read.
        let opened = self.open_locked(ExpectedRoot::Named(name));
        released?;
        opened?;
        self.failed.store(false, Ordering::Relaxed);
        tracing::info!(root = %self.config.data_root.display(), %name, "the data root could not be written and is mounted anew");
        Ok(MountedAnew::Yes)
    }

    fn set(&self, root: Option<Arc<DataRoot>>) {
        *self.root.write().unwrap_or_else(PoisonError::into_inner) = root;
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.opening.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
