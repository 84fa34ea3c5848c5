//! Directories opened by subvolume and inode, without a path that an agent could change.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::search;

/// `struct file_handle` with the content that Btrfs gives it.
#[repr(C, packed)]
struct Handle {
    bytes: u32,
    kind: i32,
    inode: u64,
    subvolume: u64,
    generation: u32,
}

/// Opens a directory. Fails with ESTALE if there is none.
pub fn open_inode(any: BorrowedFd, subvolume: u64, inode: u64) -> io::Result<OwnedFd> {
    // Generation 0 asks for no check: a subvolume's ids are never used again.
    match open(any, subvolume, inode, 0) {
        // Linux before 6.2 checks the generation whatever it is.
        Err(e) if e.raw_os_error() == Some(libc::ESTALE) => match search::generation(any, subvolume, inode) {
            Ok(Some(generation)) => open(any, subvolume, inode, generation),
            Ok(None) | Err(_) => Err(e),
        },
        other => other,
    }
}

fn open(any: BorrowedFd, subvolume: u64, inode: u64, generation: u32) -> io::Result<OwnedFd> {
    /// `FILEID_BTRFS_WITHOUT_PARENT`.
    const KIND: i32 = 0x4d;
    let mut handle = Handle { bytes: 20, kind: KIND, inode, subvolume, generation };
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: the handle is laid out as the kernel reads it and lives through the call.
    let fd = unsafe { libc::syscall(libc::SYS_open_by_handle_at, any.as_raw_fd(), &raw mut handle, flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just gave us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

const _: () = assert!(size_of::<Handle>() == 28);
