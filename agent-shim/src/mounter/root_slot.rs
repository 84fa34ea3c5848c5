//! The data root of a mounter, which may be mounted anew while the mounter runs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use yoi_workspace::{DataRoot, ExpectedRoot, Uid};

use super::{DataRootConfig, MounterError};

/// The opened data root, or none before it is opened.
pub(super) struct RootSlot {
    config: DataRootConfig,
    root: RwLock<Option<Arc<DataRoot>>>,
    /// Held while the data root is opened or mounted anew.
    opening: Mutex<()>,
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
        RootSlot { config, root: RwLock::default(), opening: Mutex::default() }
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

    /// Mounts the data root anew if it is read-only. While Pods or requests use it, it stays as it is. If it cannot be mounted again, no
    /// data root is open: the next [`RootSlot::open`] tries again.
    pub fn mount_anew(&self) -> Result<MountedAnew, MounterError> {
        let _guard = self.lock();
        let Some(root) = self.root.write().unwrap_or_else(PoisonError::into_inner).take() else { return Ok(MountedAnew::Yes) };
        let (name, read_only) = (root.name(), root.is_read_only());
        if !matches!(read_only, Ok(true)) {
            self.set(Some(root));
            return read_only.map(|_| MountedAnew::Yes).map_err(MounterError::Disk);
        }
        let root = match Arc::try_unwrap(root) {
            Ok(root) => root,
            Err(used) => {
                self.set(Some(used));
                return Ok(MountedAnew::InUse);
            }
        };
        let released = self.config.release(root);
        // Also after a failure: trees can still be read, and nothing was unmounted.
        self.open_locked(ExpectedRoot::Named(name))?;
        released?;
        tracing::info!(root = %self.config.data_root.display(), %name, "the data root was read-only and is mounted anew");
        Ok(MountedAnew::Yes)
    }

    fn set(&self, root: Option<Arc<DataRoot>>) {
        *self.root.write().unwrap_or_else(PoisonError::into_inner) = root;
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.opening.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
