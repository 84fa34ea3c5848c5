//! A folder for the copy of git's index and for new objects.
//!
//! It stands where processes of the agent write, too. So each step opens by a descriptor and follows no link: what the agent moves or puts there meanwhile
//! leads this process nowhere else.

use std::fs::{File, FileTimes};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, mkdirat, openat};
use tokio::runtime::Handle;
use uuid::Uuid;

/// Bytes of the largest index that is copied: that of some 600,000 files.
pub const MAX_INDEX_BYTES: u64 = 64 << 20;
const INDEX: &str = "index";

/// Removed when it is dropped.
#[derive(Debug)]
pub struct PrivateFolder {
    parent: Arc<OwnedFd>,
    name: String,
    path: PathBuf,
}

impl PrivateFolder {
    /// Makes one in `temp`, with a copy of `index` in it if there is one.
    ///
    /// # Errors
    /// The system's, or the index is too large.
    pub fn create(temp: &Path, index: Option<File>) -> io::Result<Self> {
        let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = rustix::fs::open(temp, directory, Mode::empty())?;
        let name = format!("yoi-git-{}", Uuid::new_v4());
        mkdirat(&parent, &name, Mode::RWXU)?;
        let folder = Self { parent: Arc::new(parent), path: temp.join(&name), name };
        if let Some(index) = index {
            let opened = openat(&*folder.parent, &folder.name, directory | OFlags::NOFOLLOW, Mode::empty())?;
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            copy_index(index, File::from(openat(&opened, INDEX, flags, Mode::RUSR | Mode::WUSR)?))?;
        }
        Ok(folder)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn index(&self) -> PathBuf {
        self.path.join(INDEX)
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        let (parent, name) = (self.parent.clone(), std::mem::take(&mut self.name));
        // The agent may have put many files there.
        let remove = move || {
            let _ = std::fs::remove_dir_all(format!("/proc/self/fd/{}/{name}", parent.as_raw_fd()));
        };
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(remove)),
            Err(_) => remove(),
        }
    }
}

fn copy_index(from: File, mut to: File) -> io::Result<()> {
    let metadata = from.metadata()?;
    let too_large = || io::Error::new(io::ErrorKind::FileTooLarge, format!("git's index is larger than {} MiB", MAX_INDEX_BYTES >> 20));
    // A file with holes has its length at once, and would take long to copy.
    if metadata.len() > MAX_INDEX_BYTES || io::copy(&mut from.take(MAX_INDEX_BYTES + 1), &mut to)? > MAX_INDEX_BYTES {
        return Err(too_large());
    }
    // git compares the content of files that are not older than the index. A copy with a later time would hide a change of equal length.
    to.set_times(FileTimes::new().set_modified(metadata.modified()?))
}
