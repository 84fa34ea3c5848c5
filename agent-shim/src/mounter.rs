//! The privileged process: works on the disk and mounts, as requests of UIDs and enums ask. No async code, no network.

pub mod check;
pub mod client;
pub mod frame;
pub mod host_root;
pub mod listener;
pub mod log_context;
pub mod protocol;
mod read_aheads;
mod root_slot;
pub mod service;

use std::path::{Path, PathBuf};

use rustix::thread::UnshareFlags;
use yoi_workspace::{DataRoot, ExpectedRoot, RootOptions, SysError, ZfsOptions, loopback};

use crate::args::MounterArgs;
use service::MounterService;

/// How many requests of the shim are worked on at the same time.
pub const MAX_REQUESTS: usize = 64;
/// How many change lists of them. A caller that hangs up frees its place as soon as its comparison notices.
pub const MAX_CHANGE_LISTS: usize = 8;

/// The mounter could not start.
#[derive(Debug, thiserror::Error)]
pub enum MounterError {
    /// A network namespace of its own could not be made.
    #[error("failed to leave the network")]
    Network(#[source] std::io::Error),
    /// Signals could not be received.
    #[error("failed to listen for signals")]
    Signals(#[source] std::io::Error),
    /// The view of the host's root could not be made smaller.
    #[error("failed to detach what is mounted below {path}")]
    HostRoot {
        /// The host's root as this process sees it.
        path: PathBuf,
        /// Why.
        source: SysError,
    },
    /// The directory of the data root could not be made.
    #[error("failed to make the data root {path}")]
    MakeRoot {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The Btrfs file could not be attached.
    #[error(transparent)]
    Loop(#[from] loopback::LoopError),
    /// The data root is mounted for Pods, so it cannot be mounted anew.
    #[error("failed to release {path}: Pods have trees of it mounted, one at {}", .target.display())]
    Held {
        /// The data root.
        path: PathBuf,
        /// One of the mounts.
        target: PathBuf,
    },
    /// Somebody else has mounted the data root, so only they can mount it anew.
    #[error("failed to mount {path} anew: the mounter has not mounted it itself")]
    NotOurs {
        /// The data root.
        path: PathBuf,
    },
    /// The data root could not be opened.
    #[error(transparent)]
    Disk(#[from] yoi_workspace::Error),
    /// The kubelet's directory could not be opened.
    #[error(transparent)]
    Kubelet(#[from] yoi_workspace::mount::MountError),
    /// The socket could not be served.
    #[error("failed to serve {path}")]
    Serve {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// Serves until the process ends. Mounts stay.
pub fn run(args: &MounterArgs) -> Result<(), MounterError> {
    // Before other threads are started: a thread has the network namespace of the thread that started it.
    // SAFETY: no descriptor of this thread is shared in a way that a new network namespace changes.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.map_err(|e| MounterError::Network(e.into()))?;
    exit_on_signal().map_err(MounterError::Signals)?;
    raise_descriptor_limit();
    if let Some(path) = &args.host_root {
        host_root::detach_mounts(path).map_err(|source| MounterError::HostRoot { path: path.clone(), source })?;
    }
    let config = DataRootConfig {
        data_root: args.data_root.clone(),
        loop_size: args.loop_size,
        simple_quota: args.btrfs_simple_quota,
        zfs: args.zfs(),
    };
    let service = MounterService::new(args.node_name.clone(), config, &args.kubelet_dir)?
        .with_host_sources(args.host_sources.clone(), args.host_sources_dir.clone())
        .with_read_ahead(args.read_ahead_files);
    listener::run(&args.mounter_socket, service).map_err(|source| MounterError::Serve { path: args.mounter_socket.clone(), source })
}

/// A comparison of two trees holds three descriptors for each level. A limit that cannot be raised only makes deep comparisons fail.
fn raise_descriptor_limit() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = rustix::process::setrlimit(rustix::process::Resource::Nofile, raised) {
        tracing::warn!(%error, "the limit of open files was not raised");
    }
}

/// Exits on SIGTERM and SIGINT. The first process of a container gets only signals that it asks for. It exits at once, because each request can be
/// interrupted anywhere.
fn exit_on_signal() -> std::io::Result<()> {
    // SAFETY: an all-zero sigset_t is a place to write one to; only this thread runs, and later ones inherit the mask.
    let signals = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGTERM);
        libc::sigaddset(&raw mut set, libc::SIGINT);
        match libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) {
            0 => set,
            error => return Err(std::io::Error::from_raw_os_error(error)),
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let mut signal = 0;
        // SAFETY: both point to live values, and the set is blocked in every thread.
        while unsafe { libc::sigwait(&raw const signals, &raw mut signal) } != 0 {}
        tracing::info!(signal, "told to end");
        std::process::exit(0);
    })?;
    Ok(())
}

/// Trees work without quotas, so a failure is only logged.
fn set_up_quotas(root: &DataRoot) {
    match root.set_up_quotas() {
        Ok(state) => tracing::info!(?state, "quotas of trees"),
        Err(error) => tracing::warn!(error = yoi_wire::error_chain(&error), "quotas of trees could not be turned on"),
    }
}

/// Where the trees are.
pub struct DataRootConfig {
    /// The directory of the data root.
    pub data_root: PathBuf,
    /// Size in bytes of the Btrfs file in `data_root` that holds the trees. None: they are in `data_root` itself.
    pub loop_size: Option<u64>,
    /// Whether simple quotas may be turned on in a Btrfs that is not in such a file.
    pub simple_quota: bool,
    /// Where trees of provider Zfs are. None: nowhere.
    pub zfs: Option<ZfsOptions>,
}

impl DataRootConfig {
    /// Opens the data root. Where trees are expected it formats and makes nothing: an empty directory may be a file system that is not mounted.
    pub fn open(&self, expected: ExpectedRoot) -> Result<DataRoot, MounterError> {
        let make_dir =
            |path: &Path| std::fs::create_dir_all(path).map_err(|source| MounterError::MakeRoot { path: path.to_owned(), source });
        make_dir(&self.data_root)?;
        let Some(size) = self.loop_size else {
            let root = self.open_at(&self.data_root, expected)?;
            if self.simple_quota {
                set_up_quotas(&root);
            }
            return Ok(root);
        };
        let (image, pool) = self.image_and_pool();
        let ensured = match expected {
            ExpectedRoot::Any => loopback::ensure_loop_btrfs(&image, size, &pool)?,
            ExpectedRoot::Used | ExpectedRoot::Named(_) => loopback::attach_loop_btrfs(&image, &pool)?,
        };
        tracing::info!(?ensured, pool = %pool.display(), "the pool is mounted");
        let root = self.open_at(&pool, expected)?;
        set_up_quotas(&root);
        Ok(root)
    }

    fn open_at(&self, path: &Path, expected: ExpectedRoot) -> Result<DataRoot, yoi_workspace::Error> {
        DataRoot::open_with(path, RootOptions { expected, zfs: self.zfs.clone(), ..RootOptions::default() })
    }

    fn image_and_pool(&self) -> (PathBuf, PathBuf) {
        (self.data_root.join("pool.btrfs"), self.data_root.join("pool"))
    }

    /// Fails if the data root cannot be mounted anew: somebody else has mounted it, or Pods use it.
    fn check_unused(&self, root: &DataRoot) -> Result<(), MounterError> {
        if self.loop_size.is_none() {
            return Err(MounterError::NotOurs { path: self.data_root.clone() });
        }
        let (_, path) = self.image_and_pool();
        root.mounts_elsewhere()?.into_iter().next().map_or(Ok(()), |target| Err(MounterError::Held { path, target }))
    }

    /// Unmounts the Btrfs file. [`DataRootConfig::open`] mounts it again: after an error the kernel lets a file system be written only then.
    fn release(&self) -> Result<(), MounterError> {
        Ok(loopback::release(&self.image_and_pool().1)?)
    }
}
