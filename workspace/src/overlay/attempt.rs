//! Finds out by trying whether a data root can hold overlays.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, Mode, OFlags};

use super::layer_mounts::Layers;
use super::{Overlay, root_of, source_of};
use crate::error::StepContext;
use crate::layout::WORK;
use crate::tree_copy::is_whiteout;
use crate::{ErrorReason, SysError, dir, remove};

const PROBE: &std::ffi::CStr = c".probe.overlay";

/// Makes an overlay, deletes a file and renames a directory of its lower layer in it, and removes everything again.
pub(crate) fn try_here(root: BorrowedFd, overlay: &Overlay) -> Result<(), SysError> {
    remove::remove_tree(root, PROBE)?;
    let tried = attempt(root, overlay);
    remove::remove_tree(root, PROBE)?;
    tried
}

fn attempt(root: BorrowedFd, overlay: &Overlay) -> Result<(), SysError> {
    let make = |at: BorrowedFd, name: &str| rustix::fs::mkdirat(at, name, Mode::RWXU).step("make a directory");
    rustix::fs::mkdirat(root, PROBE, Mode::RWXU).step("make a directory")?;
    let entry = dir::open(root, PROBE).step("open a directory")?;
    for name in ["lower", "upper", "work", "lower/folder"] {
        make(entry.as_fd(), name)?;
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(&entry, "lower/file", flags, Mode::RUSR).step("make a file")?;

    let name = PROBE.to_string_lossy();
    let (source, lower) = (source_of(overlay.layout.name, "probe"), format!("{name}/lower"));
    // What is removed at once need not be flushed.
    let layers = Layers { source: &source, lower: &lower, entry: &name, work: WORK, is_volatile: true, is_only: true };
    let mounts = overlay.layers()?;
    let mount = match mounts.mount(&layers) {
        Ok(mount) => Arc::new(mount),
        // All that the kernel says.
        Err(e) if e.source.raw_os_error() == Some(libc::EINVAL) => {
            let kind = rustix::fs::fstatfs(root).step("ask for the file system")?.f_type;
            return Err(cannot(&format!("a file system of type {kind:#x} can hold no upper layer")));
        }
        Err(e) => return Err(e),
    };
    match mounts.mount(&layers) {
        Err(e) if e.reason() == ErrorReason::Busy => {}
        Ok(_) => return Err(cannot("the kernel would mount one upper layer twice")),
        Err(e) => return Err(e),
    }
    let tree = root_of(mount)?;
    rustix::fs::unlinkat(&tree, "file", AtFlags::empty()).step("delete a file of the lower layer")?;
    rustix::fs::renameat(&tree, "folder", &tree, "renamed").step("rename a folder of the lower layer")?;
    drop(tree);
    check(&entry)
}

/// Looks into the upper layer, which forks and change lists read.
fn check(entry: &OwnedFd) -> Result<(), SysError> {
    let upper = dir::open(entry, "upper").step("open the upper layer")?;
    if !is_whiteout(&dir::stat(&upper, c"file").step("look for a whiteout")?) {
        return Err(cannot("a deletion leaves no whiteout"));
    }
    let renamed = dir::open(&upper, "renamed").step("open a renamed folder")?;
    let mut value = [0; 256];
    rustix::fs::fgetxattr(&renamed, "trusted.overlay.redirect", &mut value).step("look for a redirect").map(drop)
}

fn cannot(why: &str) -> SysError {
    SysError { step: "try an overlay", source: std::io::Error::new(std::io::ErrorKind::Unsupported, why) }
}
