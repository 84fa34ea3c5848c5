//! What is made once and kept in the user's cache, under the content that it was made from.

use crate::command::wait;
use crate::instance::cache;
use crate::progress;
use anyhow::Result;
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Sixteen hexadecimal digits of what something is made from.
pub fn key(parts: impl IntoIterator<Item = impl AsRef<[u8]>>) -> String {
    let hash = parts.into_iter().fold(Sha256::new(), |hash, part| hash.chain_update(part));
    hex::encode(&hash.finalize()[..8])
}

/// Where the folder of this name and key is, or will be.
pub fn path(name: &str, key: &str) -> PathBuf {
    cache().join(format!("{name}-{key}"))
}

/// The folder of this name and key. If there is none, `make` fills a new one, which gets its name only when it is whole. One process makes it; others
/// wait for it.
pub fn folder(name: &str, key: &str, about: &str, make: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let made = path(name, key);
    if made.exists() {
        return Ok(made);
    }
    let step = progress::start(about);
    fs::create_dir_all(cache())?;
    let lock = fs::File::create(cache().join(format!("{name}.lock")))?;
    wait("the same work in another process", Duration::from_secs(3600), || {
        Ok(rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).ok())
    })?;
    if made.exists() {
        step.done("made by another process");
        return Ok(made);
    }
    let fresh = tempfile::tempdir_in(cache())?;
    fs::set_permissions(fresh.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    make(fresh.path())?;
    fs::rename(fresh.keep(), &made)?;
    step.done("");
    Ok(made)
}
