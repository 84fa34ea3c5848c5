//! The runtime binaries of this node by digest, and the directory of each Pod that runs one.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use sha2::{Digest as _, Sha256};
use yoi_wire::identity::RUNTIME_BINARY;
use yoi_workspace::{SysError, Uid, write_atomically_with};

use crate::runtime_digest::RuntimeDigest;

const FILE: &str = "yoi-runtime";
/// How many runtimes of other versions stay installed for Pods whose volumes name their digest.
const KEPT: usize = 3;

/// A runtime binary, or the directory of a Pod that runs one.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The binary could not be installed.
    #[error("failed to install the runtime {path}")]
    Install {
        /// The binary to install.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The Pod's directory, the runtime in it or its socket could not be made.
    #[error("failed to prepare the folder of Pod {pod}")]
    Prepare {
        /// UID of the Pod.
        pod: Uid,
        /// Why.
        source: io::Error,
    },
    /// The Pod's directory could not be removed.
    #[error("failed to remove the folder of Pod {pod}")]
    Remove {
        /// UID of the Pod.
        pod: Uid,
        /// Why.
        source: io::Error,
    },
}

/// The installed runtimes.
pub struct RuntimeStore {
    /// The CSI driver's directory below the kubelet's root directory.
    driver_dir: PathBuf,
    digests: Vec<RuntimeDigest>,
}

impl RuntimeStore {
    /// Installs `binary` below `driver_dir`. Keeps the runtimes in `wanted` and the newest few others, and removes the rest.
    pub fn install(driver_dir: &Path, binary: &Path, wanted: &[RuntimeDigest]) -> Result<Self, RuntimeError> {
        let failed = |source| RuntimeError::Install { path: binary.to_owned(), source };
        let digest = install(driver_dir, binary).map_err(failed)?;
        let mut others = others(driver_dir, &digest).map_err(failed)?;
        others.sort_by_key(|(_, at)| std::cmp::Reverse(*at));
        let mut digests = vec![digest];
        for (n, (other, _)) in others.into_iter().enumerate() {
            if n < KEPT || wanted.contains(&other) {
                digests.push(other);
            } else {
                fs::remove_dir_all(folder(driver_dir, &other)).map_err(failed)?;
            }
        }
        Ok(RuntimeStore { driver_dir: driver_dir.to_owned(), digests })
    }

    /// The digests of all installed runtimes. The one that [`Self::install`] installed is the first.
    pub fn digests(&self) -> &[RuntimeDigest] {
        &self.digests
    }

    /// Whether this runtime is installed.
    pub fn has(&self, digest: &RuntimeDigest) -> bool {
        self.digests.contains(digest)
    }

    /// The directory that a Pod sees at `/yoi`.
    pub fn pod_dir(&self, pod: Uid) -> PathBuf {
        self.driver_dir.join("pods").join(pod.to_string())
    }

    /// Makes the Pod's directory with the runtime in it. Can be repeated.
    pub fn prepare(&self, pod: Uid, digest: &RuntimeDigest) -> Result<(), RuntimeError> {
        let link = || -> io::Result<()> {
            let binary = self.pod_dir(pod).join(RUNTIME_BINARY);
            let bin = binary.parent().ok_or(io::ErrorKind::InvalidInput)?;
            fs::create_dir_all(bin)?;
            for dir in [self.pod_dir(pod).as_path(), bin] {
                fs::set_permissions(dir, Permissions::from_mode(0o755))?;
            }
            let source = folder(&self.driver_dir, digest).join(FILE);
            let fresh = bin.join(".yoi-runtime.new");
            remove_file(&fresh)?;
            // A hard link and not a copy: all Pods of a digest share its pages in memory.
            fs::hard_link(source, &fresh)?;
            fs::rename(&fresh, &binary)?;
            // To rename one link of a file over another does nothing.
            remove_file(&fresh)
        };
        link().map_err(|source| RuntimeError::Prepare { pod, source })
    }

    /// Removes the Pod's directory. Succeeds if there is none.
    pub fn remove(&self, pod: Uid) -> Result<(), RuntimeError> {
        match fs::remove_dir_all(self.pod_dir(pod)) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(RuntimeError::Remove { pod, source }),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// The Pods that have a directory.
    pub fn pods(&self) -> io::Result<Vec<Uid>> {
        match fs::read_dir(self.driver_dir.join("pods")) {
            Ok(entries) => Ok(entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(e) => Err(e),
        }
    }
}

fn folder(driver_dir: &Path, digest: &RuntimeDigest) -> PathBuf {
    driver_dir.join("runtime").join(digest.as_str())
}

fn install(driver_dir: &Path, binary: &Path) -> io::Result<RuntimeDigest> {
    let mut hash = Sha256::new();
    io::copy(&mut File::open(binary)?, &mut hash)?;
    let digest = RuntimeDigest::try_from(hex::encode(hash.finalize())).map_err(io::Error::other)?;
    let dir = folder(driver_dir, &digest);
    let installed = dir.join(FILE);
    if !installed.exists() {
        fs::create_dir_all(&dir)?;
        let copy = |file: &mut File| {
            let copied = File::open(binary).and_then(|mut from| io::copy(&mut from, file));
            copied
                .and_then(|_| file.set_permissions(Permissions::from_mode(0o755)))
                .map_err(|source| SysError { step: "copy the binary", source })
        };
        write_atomically_with(File::open(&dir)?, FILE, 0o755, copy).map_err(|e| e.source)?;
    }
    Ok(digest)
}

/// The installed runtimes but `own`, with the time of their installation.
fn others(driver_dir: &Path, own: &RuntimeDigest) -> io::Result<Vec<(RuntimeDigest, SystemTime)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(driver_dir.join("runtime"))? {
        let entry = entry?;
        let digest = entry.file_name().into_string().ok().and_then(|n| RuntimeDigest::try_from(n).ok());
        // A crash during an installation leaves a directory without the file.
        if let (Some(digest), Ok(file)) = (digest, entry.path().join(FILE).metadata())
            && digest != *own
        {
            found.push((digest, file.modified()?));
        }
    }
    Ok(found)
}

fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_gets_the_binary_of_its_digest() {
        let dir = tempfile::tempdir().unwrap();
        let driver = dir.path().join("driver");
        let mut digests = Vec::new();
        for content in ["one", "two"] {
            fs::write(dir.path().join("bin"), content).unwrap();
            digests.insert(0, RuntimeStore::install(&driver, &dir.path().join("bin"), &[]).unwrap().digests()[0].clone());
        }
        let runtimes = RuntimeStore::install(&driver, &dir.path().join("bin"), &[]).unwrap();
        assert_eq!(runtimes.digests(), digests);
        let pod = Uid::from_bytes([7; 16]);
        for _ in 0..2 {
            runtimes.prepare(pod, &digests[1]).unwrap();
        }
        assert_eq!(fs::read_to_string(runtimes.pod_dir(pod).join(RUNTIME_BINARY)).unwrap(), "one");
        assert_eq!(runtimes.pods().unwrap(), [pod]);
        for _ in 0..2 {
            runtimes.remove(pod).unwrap();
        }
        assert!(!runtimes.pod_dir(pod).exists());
    }
}
