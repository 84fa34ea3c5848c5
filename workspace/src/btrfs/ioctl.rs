//! The Btrfs ioctls of the kernel's `linux/btrfs.h`.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

const MAGIC: u32 = 0x94;
const SUPER_MAGIC: i64 = 0x9123_683E;
const SUBVOL_RDONLY: u64 = 1 << 1;
const SPEC_BY_ID: u64 = 1 << 4;
/// The inode number of every subvolume's root.
pub const ROOT_INODE: u64 = 256;
/// The id of the subvolume that every file system has, in which all others lie.
pub const TOP_LEVEL: u64 = 5;

pub(super) const fn request_code(direction: u32, number: u32, size: usize) -> u32 {
    direction << 30 | (size as u32) << 16 | MAGIC << 8 | number
}
pub(super) const WRITE: u32 = 1;
pub(super) const READ: u32 = 2;

/// `struct btrfs_ioctl_vol_args_v2`.
#[repr(C)]
struct VolArgs {
    fd: i64,
    transid: u64,
    flags: u64,
    unused: [u64; 4],
    /// A name, or the subvolume's id in the first eight bytes.
    name: [u8; 4040],
}

impl VolArgs {
    fn named(name: &CStr) -> io::Result<Box<Self>> {
        let mut args = Box::new(VolArgs { fd: 0, transid: 0, flags: 0, unused: [0; 4], name: [0; 4040] });
        let bytes = name.to_bytes_with_nul();
        if bytes.len() > 256 {
            return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
        }
        args.name[..bytes.len()].copy_from_slice(bytes);
        Ok(args)
    }
}

/// SAFETY: `arg` must be what ioctl `request` reads and writes.
pub(super) unsafe fn raw_ioctl<T>(fd: impl AsFd, request: u32, arg: *mut T) -> io::Result<()> {
    // SAFETY: the caller guarantees `arg`; the descriptor lives through the call.
    match unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), request as _, arg) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// True if the descriptor is on Btrfs.
pub fn is_btrfs(fd: impl AsFd) -> rustix::io::Result<bool> {
    #[allow(clippy::unnecessary_cast)] // The field's type differs by target.
    Ok(rustix::fs::fstatfs(fd)?.f_type as i64 == SUPER_MAGIC)
}

/// True if the descriptor is the root of a subvolume.
pub fn is_subvolume(fd: impl AsFd) -> bool {
    rustix::fs::fstat(&fd).is_ok_and(|s| s.st_ino == ROOT_INODE) && is_btrfs(fd).unwrap_or(false)
}

/// Makes an empty subvolume.
pub fn create(parent: impl AsFd, name: &CStr) -> io::Result<()> {
    let mut args = VolArgs::named(name)?;
    // SAFETY: SUBVOL_CREATE_V2 reads a vol_args_v2.
    unsafe { raw_ioctl(parent, request_code(WRITE, 24, size_of::<VolArgs>()), &mut *args) }
}

/// Makes a snapshot of the subvolume with the root `source`. Returns once it is committed.
pub fn snapshot(source: impl AsFd, parent: impl AsFd, name: &CStr, read_only: bool) -> io::Result<()> {
    let mut args = VolArgs::named(name)?;
    args.fd = i64::from(source.as_fd().as_raw_fd());
    args.flags = if read_only { SUBVOL_RDONLY } else { 0 };
    // SAFETY: SNAP_CREATE_V2 reads a vol_args_v2.
    unsafe { raw_ioctl(parent, request_code(WRITE, 23, size_of::<VolArgs>()), &mut *args) }
}

/// Deletes a subvolume that holds no other, by name.
pub fn delete(parent: impl AsFd, name: &CStr) -> io::Result<()> {
    let mut args = VolArgs::named(name)?;
    // SAFETY: SNAP_DESTROY_V2 reads a vol_args_v2.
    unsafe { raw_ioctl(parent, request_code(WRITE, 63, size_of::<VolArgs>()), &mut *args) }
}

/// Deletes a subvolume that holds no other, by id, wherever it is in the file system of `any`.
pub fn delete_by_id(any: impl AsFd, id: u64) -> io::Result<()> {
    let mut args = VolArgs::named(c"")?;
    args.flags = SPEC_BY_ID;
    args.name[..8].copy_from_slice(&id.to_ne_bytes());
    // SAFETY: SNAP_DESTROY_V2 reads a vol_args_v2.
    unsafe { raw_ioctl(any, request_code(WRITE, 63, size_of::<VolArgs>()), &mut *args) }
}

/// Sets or clears the read-only flag of the subvolume with this root. Returns once it is committed.
pub fn set_read_only(subvolume: impl AsFd, read_only: bool) -> io::Result<()> {
    let mut flags = 0u64;
    // SAFETY: SUBVOL_GETFLAGS writes a u64.
    unsafe { raw_ioctl(&subvolume, request_code(READ, 25, size_of::<u64>()), &mut flags)? };
    let wanted = if read_only { flags | SUBVOL_RDONLY } else { flags & !SUBVOL_RDONLY };
    if wanted == flags {
        return Ok(());
    }
    let mut wanted = wanted;
    // SAFETY: SUBVOL_SETFLAGS reads a u64.
    unsafe { raw_ioctl(subvolume, request_code(WRITE, 26, size_of::<u64>()), &mut wanted) }
}

/// Writes all dirty data of the file system, commits, and wakes the cleaner of deleted subvolumes.
pub fn sync(any: impl AsFd) -> io::Result<()> {
    // SAFETY: IOC_SYNC takes no argument.
    unsafe { raw_ioctl(any, request_code(0, 8, 0), std::ptr::null_mut::<u8>()) }
}

/// Asks the kernel's thread to commit the current transaction, and returns its number. Returns once the commit has begun, which may be
/// late: see [`super::commit`].
pub(super) fn start_sync(any: impl AsFd) -> io::Result<u64> {
    let mut transid = 0u64;
    // SAFETY: START_SYNC writes a u64.
    unsafe { raw_ioctl(any, request_code(READ, 24, size_of::<u64>()), &mut transid)? };
    Ok(transid)
}

/// Waits until a transaction is committed.
pub(super) fn wait_sync(any: impl AsFd, mut transid: u64) -> io::Result<()> {
    // SAFETY: WAIT_SYNC reads a u64.
    unsafe { raw_ioctl(any, request_code(WRITE, 22, size_of::<u64>()), &mut transid) }
}

/// What the kernel knows of a subvolume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subvolume {
    pub id: u64,
    /// The transaction that last changed it. Being cloned is a change.
    pub generation: u64,
    /// The transaction that made it.
    pub created_transid: u64,
    pub uuid: [u8; 16],
    /// The subvolume it is a snapshot of, or zeros.
    pub parent_uuid: [u8; 16],
}

/// `struct btrfs_ioctl_get_subvol_info_args`.
#[repr(C)]
struct SubvolInfo {
    treeid: u64,
    name: [u8; 256],
    parent_id: u64,
    dirid: u64,
    generation: u64,
    flags: u64,
    uuid: [u8; 16],
    parent_uuid: [u8; 16],
    received_uuid: [u8; 16],
    ctransid: u64,
    otransid: u64,
    stransid: u64,
    rtransid: u64,
    times: [[u64; 2]; 4],
    reserved: [u64; 8],
}

/// Reads the facts of the subvolume that contains `fd`.
pub fn subvolume(fd: impl AsFd) -> io::Result<Subvolume> {
    // SAFETY: all fields are plain numbers, for which zero is a value.
    let mut info: Box<SubvolInfo> = Box::new(unsafe { std::mem::zeroed() });
    // SAFETY: GET_SUBVOL_INFO writes a get_subvol_info_args.
    unsafe { raw_ioctl(fd, request_code(READ, 60, size_of::<SubvolInfo>()), &mut *info)? };
    let SubvolInfo { treeid: id, generation, otransid: created_transid, uuid, parent_uuid, .. } = *info;
    Ok(Subvolume { id, generation, created_transid, uuid, parent_uuid })
}

/// The name of the subvolume that contains `fd`, in the directory that holds it.
pub fn subvolume_name(fd: impl AsFd) -> io::Result<Vec<u8>> {
    // SAFETY: all fields are plain numbers, for which zero is a value.
    let mut info: Box<SubvolInfo> = Box::new(unsafe { std::mem::zeroed() });
    // SAFETY: GET_SUBVOL_INFO writes a get_subvol_info_args.
    unsafe { raw_ioctl(fd, request_code(READ, 60, size_of::<SubvolInfo>()), &mut *info)? };
    Ok(info.name.split(|b| *b == 0).next().unwrap_or_default().to_vec())
}

/// `struct btrfs_ioctl_fs_info_args`: two numbers, the id, and more.
#[repr(C)]
struct FsInfo {
    max_id: u64,
    devices: u64,
    fsid: [u8; 16],
    rest: [u64; 124],
}

/// The id of the file system that contains `fd`.
pub fn fsid(fd: impl AsFd) -> io::Result<[u8; 16]> {
    let mut info = Box::new(FsInfo { max_id: 0, devices: 0, fsid: [0; 16], rest: [0; 124] });
    // SAFETY: FS_INFO reads and writes an fs_info_args.
    unsafe { raw_ioctl(fd, request_code(READ, 31, size_of::<FsInfo>()), &mut *info)? };
    Ok(info.fsid)
}

/// A subvolume inside another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChildSubvolume {
    pub id: u64,
    /// The inode of the directory that contains it, in the parent.
    pub dir: u64,
}

/// `struct btrfs_ioctl_get_subvol_rootref_args`.
#[repr(C)]
struct RootRefs {
    min_treeid: u64,
    refs: [[u64; 2]; 255],
    num_items: u8,
    align: [u8; 7],
}

/// Lists the subvolumes directly inside the one that contains `fd`: at most 255 of them, so call it again after removing some.
pub fn children(fd: impl AsFd) -> io::Result<Vec<ChildSubvolume>> {
    children_from(fd, 0).map(|(children, _)| children)
}

/// Lists all subvolumes directly inside the one that contains `fd`.
pub fn all_children(fd: impl AsFd) -> io::Result<Vec<ChildSubvolume>> {
    let mut all = Vec::new();
    loop {
        let (children, more) = children_from(&fd, all.last().map_or(0, |last: &ChildSubvolume| last.id + 1))?;
        all.extend(children);
        if !more {
            return Ok(all);
        }
    }
}

/// Lists those whose id is `first` or higher, and says whether there are more.
fn children_from(fd: impl AsFd, first: u64) -> io::Result<(Vec<ChildSubvolume>, bool)> {
    let mut args = Box::new(RootRefs { min_treeid: first, refs: [[0; 2]; 255], num_items: 0, align: [0; 7] });
    // SAFETY: GET_SUBVOL_ROOTREF reads and writes a get_subvol_rootref_args.
    let more = match unsafe { raw_ioctl(fd, request_code(READ | WRITE, 61, size_of::<RootRefs>()), &mut *args) } {
        Ok(()) => false,
        // There are more; the first 255 are in the buffer.
        Err(e) if e.raw_os_error() == Some(libc::EOVERFLOW) => true,
        Err(e) => return Err(e),
    };
    Ok((args.refs.iter().take(usize::from(args.num_items)).map(|&[id, dir]| ChildSubvolume { id, dir }).collect(), more))
}

const _: () = assert!(size_of::<VolArgs>() == 4096 && size_of::<RootRefs>() == 4096 && size_of::<SubvolInfo>() == 504);
const _: () = assert!(size_of::<FsInfo>() == 1024);
