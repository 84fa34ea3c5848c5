//! The privileged half: does disk work and mounts that it is asked for in UIDs and enums, and nothing else. No async, no network.

pub mod client;
pub mod desk;
pub mod frame;
pub mod serve;
pub mod verb;
pub mod whose;

use std::path::{Path, PathBuf};

use rustix::thread::UnshareFlags;
use yoi_workspace::{DataRoot, ExpectedRoot, loopback};

use crate::args::MounterArgs;
use desk::Desk;

/// Questions that are worked on, or wait, at the same time.
pub const AT_ONCE: usize = 64;

#[derive(Debug, thiserror::Error)]
pub enum MounterError {
    #[error("failed to leave the network")]
    Network(#[source] std::io::Error),
    #[error("failed to listen for signals")]
    Signals(#[source] std::io::Error),
    #[error("failed to make the data root {path}")]
    MakeRoot { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Loop(#[from] loopback::LoopError),
    #[error(transparent)]
    Disk(#[from] yoi_workspace::Error),
    #[error(transparent)]
    Kubelet(#[from] yoi_workspace::mount::MountError),
    #[error("failed to serve {path}")]
    Serve { path: PathBuf, source: std::io::Error },
}

/// Serves until the process ends. Mounts stay.
pub fn run(args: &MounterArgs) -> Result<(), MounterError> {
    // Before any other thread is there: each one has the network of the one that made it.
    // SAFETY: no descriptor of this thread is shared in a way that a new network namespace changes.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.map_err(|e| MounterError::Network(e.into()))?;
    end_when_told().map_err(MounterError::Signals)?;
    let ground = Ground { data_root: args.data_root.clone(), loop_size: args.loop_size };
    let desk = Desk::new(args.node_name.clone(), ground, &args.kubelet_dir)?;
    serve::run(&args.mounter_socket, desk).map_err(|source| MounterError::Serve { path: args.mounter_socket.clone(), source })
}

/// The first process of a container gets no signal that it does not ask for. Every verb may be cut off anywhere, so the end is sudden.
fn end_when_told() -> std::io::Result<()> {
    // SAFETY: an all-zero sigset_t is a place to write one to; only this thread runs, and later ones inherit the mask.
    let told = unsafe {
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
        while unsafe { libc::sigwait(&raw const told, &raw mut signal) } != 0 {}
        tracing::info!(signal, "told to end");
        std::process::exit(0);
    })?;
    Ok(())
}

/// Where the trees are, or are to be.
pub struct Ground {
    pub data_root: PathBuf,
    /// They lie in a Btrfs file of this size in the data root.
    pub loop_size: Option<u64>,
}

impl Ground {
    /// Opens the data root. Formats and makes nothing where trees are expected: an empty folder may be a file system that is not mounted.
    pub fn open(&self, expected: ExpectedRoot) -> Result<DataRoot, MounterError> {
        let made = |path: &Path| std::fs::create_dir_all(path).map_err(|source| MounterError::MakeRoot { path: path.to_owned(), source });
        made(&self.data_root)?;
        let Some(size) = self.loop_size else { return Ok(DataRoot::open_expected(&self.data_root, expected)?) };
        let (image, pool) = (self.data_root.join("pool.btrfs"), self.data_root.join("pool"));
        let ensured = match expected {
            ExpectedRoot::Any => loopback::ensure_loop_btrfs(&image, size, &pool)?,
            ExpectedRoot::Used | ExpectedRoot::Named(_) => loopback::attach_loop_btrfs(&image, &pool)?,
        };
        tracing::info!(?ensured, pool = %pool.display(), "the pool is mounted");
        Ok(DataRoot::open_expected(&pool, expected)?)
    }
}
