//! The bytes of a file that no other tree shares, by FIEMAP.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::Stat;

use crate::error::StepContext;
use crate::{SysError, dir};

const FS_IOC_FIEMAP: u32 = 3 << 30 | (32 << 16) | (0x66 << 8) | 11;
const SYNC: u32 = 1;
const LAST: u32 = 0x1;
const UNKNOWN: u32 = 0x2;
const INLINE: u32 = 0x200;
const SHARED: u32 = 0x2000;
const BATCH: usize = 128;

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

/// `struct fiemap` with room for a batch.
#[repr(C)]
struct Fiemap {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [Extent; BATCH],
}

/// The sum of the extents that only this file uses, in bytes. Data that is stored inline in the metadata does not count.
pub fn exclusive_bytes(file: &OwnedFd) -> Result<u64, SysError> {
    let empty = Extent { logical: 0, physical: 0, length: 0, reserved64: [0; 2], flags: 0, reserved: [0; 3] };
    let mut sum = 0;
    let mut start = 0;
    loop {
        let mut map = Box::new(Fiemap {
            start,
            length: u64::MAX - start,
            flags: SYNC,
            mapped: 0,
            count: BATCH as u32,
            reserved: 0,
            extents: [empty; BATCH],
        });
        // SAFETY: FIEMAP reads the head and writes at most `count` extents behind it.
        if unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP as _, &mut *map) } < 0 {
            return Err(io::Error::last_os_error()).step("map the extents of a file");
        }
        let extents = &map.extents[..(map.mapped as usize).min(BATCH)];
        sum += extents.iter().filter(|e| e.flags & (SHARED | INLINE | UNKNOWN) == 0).map(|e| e.length).sum::<u64>();
        match extents.last() {
            Some(last) if last.flags & LAST == 0 => start = last.logical + last.length,
            _ => return Ok(sum),
        }
    }
}

/// The same for the file `name` in `parent`. 0 if it is gone.
pub fn exclusive_bytes_at(parent: BorrowedFd, name: &CStr, stat: &Stat) -> Result<u64, SysError> {
    if stat.st_blocks == 0 {
        return Ok(0);
    }
    match dir::open_file(parent, name) {
        Ok(file) => exclusive_bytes(&file),
        Err(rustix::io::Errno::NOENT) => Ok(0),
        Err(e) => Err(e).step("open a file"),
    }
}

const _: () = assert!(size_of::<Extent>() == 56 && std::mem::offset_of!(Fiemap, extents) == 32);
