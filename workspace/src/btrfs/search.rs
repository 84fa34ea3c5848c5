//! The inodes of a subvolume that changed since a transaction, and their paths.

use std::io;
use std::os::fd::AsFd;

use super::ioctl::{self, READ, WRITE, raw_ioctl, request_code};

/// An inode that changed in or after the given transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangedInode {
    pub inode: u64,
    pub is_dir: bool,
}

const INODE_ITEM: u32 = 1;
const BUFFER: usize = 256 << 10;
const HEADER: usize = 32;

/// `struct btrfs_ioctl_search_args_v2` with its buffer.
#[repr(C)]
struct Search {
    tree: u64,
    min_object: u64,
    max_object: u64,
    min_offset: u64,
    max_offset: u64,
    min_transid: u64,
    max_transid: u64,
    min_type: u32,
    max_type: u32,
    items: u32,
    unused: u32,
    unused_more: [u64; 4],
    buffer_size: u64,
    buffer: [u8; BUFFER],
}

/// Lists all inodes of the subvolume that contains `tree` whose last change was in `first` or a later transaction. It sees only what is
/// committed, so sync before. `None` if there are more than `limit`.
pub fn changed_since(tree: impl AsFd, first: u64, limit: usize) -> io::Result<Option<Vec<ChangedInode>>> {
    let mut found = Vec::new();
    // SAFETY: all fields are plain numbers, for which zero is a value; zeroed on the heap, as it is too large for a stack.
    let mut search: Box<Search> = unsafe { Box::<Search>::new_zeroed().assume_init() };
    let mut next = (ioctl::ROOT_INODE, INODE_ITEM, 0);
    loop {
        (search.min_object, search.min_type, search.min_offset) = next;
        (search.max_object, search.max_type, search.max_offset) = (u64::MAX, u32::MAX, u64::MAX);
        (search.min_transid, search.max_transid) = (first, u64::MAX);
        (search.items, search.buffer_size) = (u32::MAX, BUFFER as u64);
        // SAFETY: TREE_SEARCH_V2 reads the head and writes at most `buffer_size` bytes behind it; its code is made with the head's size.
        unsafe { raw_ioctl(&tree, request_code(READ | WRITE, 17, std::mem::offset_of!(Search, buffer)), &mut *search)? };
        if search.items == 0 {
            return Ok(Some(found));
        }
        let mut at = 0;
        let mut last = next;
        for _ in 0..search.items {
            let field = |offset: usize| read_u64(&search.buffer, at + offset);
            let (object, offset, kind_and_length) = (field(8)?, field(16)?, field(24)?);
            let (kind, length) = (kind_and_length as u32, (kind_and_length >> 32) as usize);
            let item = at + HEADER;
            if kind == INODE_ITEM && read_u64(&search.buffer, item + 8)? >= first {
                let mode = read_u64(&search.buffer, item + 52)? as u32;
                found.push(ChangedInode { inode: object, is_dir: mode & libc::S_IFMT == libc::S_IFDIR });
            }
            last = (object, kind, offset);
            at = item + length;
        }
        if found.len() > limit {
            return Ok(None);
        }
        next = match last {
            (object, kind, offset) if offset < u64::MAX => (object, kind, offset + 1),
            (object, kind, _) if kind < u32::from(u8::MAX) => (object, kind + 1, 0),
            (object, ..) => (object + 1, 0, 0),
        };
    }
}

/// The kernel writes its own byte order in headers and little-endian in items; Yoi's targets are little-endian throughout.
fn read_u64(buffer: &[u8], at: usize) -> io::Result<u64> {
    let bytes = buffer.get(at..at + 8).and_then(|b| b.try_into().ok());
    bytes.map(u64::from_le_bytes).ok_or_else(|| io::Error::other("an item ends beyond the answer"))
}

const _: () = assert!(cfg!(target_endian = "little") && std::mem::offset_of!(Search, buffer) == 112);

/// `struct btrfs_ioctl_ino_lookup_args`.
#[repr(C)]
struct Lookup {
    tree: u64,
    object: u64,
    name: [u8; 4080],
}

/// The path of a directory from the root of its subvolume, empty for the root itself. `None` if it is gone.
pub fn path_of_dir(tree: impl AsFd, inode: u64) -> io::Result<Option<Vec<u8>>> {
    let mut args = Box::new(Lookup { tree: 0, object: inode, name: [0; 4080] });
    // SAFETY: INO_LOOKUP reads and writes an ino_lookup_args.
    match unsafe { raw_ioctl(tree, request_code(READ | WRITE, 18, size_of::<Lookup>()), &mut *args) } {
        Ok(()) => {}
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
        Err(e) => return Err(e),
    }
    let path = args.name.split(|b| *b == 0).next().unwrap_or_default();
    Ok(Some(path.strip_suffix(b"/").unwrap_or(path).to_vec()))
}

/// `struct btrfs_ioctl_ino_path_args`.
#[repr(C)]
struct InodePaths {
    inode: u64,
    size: u64,
    reserved: [u64; 4],
    answer: u64,
}

/// `struct btrfs_data_container` with room for the most that the kernel returns.
#[repr(C)]
struct Paths {
    bytes_left: u32,
    bytes_missing: u32,
    count: u32,
    missed: u32,
    values: [u64; 510],
}

/// Every path of a file from the root of its subvolume; none if it is gone. An error if they are too many for one call.
pub fn paths_of_file(tree: impl AsFd, inode: u64) -> io::Result<Vec<Vec<u8>>> {
    let mut paths = Box::new(Paths { bytes_left: 0, bytes_missing: 0, count: 0, missed: 0, values: [0; 510] });
    let answer = std::ptr::from_mut(&mut *paths) as u64;
    let mut args = InodePaths { inode, size: size_of::<Paths>() as u64, reserved: [0; 4], answer };
    // SAFETY: INO_PATHS reads an ino_path_args and writes at most `size` bytes at `answer`.
    match unsafe { raw_ioctl(tree, request_code(READ | WRITE, 35, size_of::<InodePaths>()), &mut args) } {
        Ok(()) => {}
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => return Ok(Vec::new()),
        Err(e) => return Err(e),
    }
    if paths.missed > 0 || paths.bytes_missing > 0 {
        return Err(io::Error::other("a file has more links than one answer holds"));
    }
    let bytes: Vec<u8> = paths.values.iter().flat_map(|v| v.to_ne_bytes()).collect();
    let path = |start: &u64| {
        let rest = usize::try_from(*start).ok().and_then(|start| bytes.get(start..));
        let rest = rest.ok_or_else(|| io::Error::other("a path lies beyond the answer"))?;
        Ok(rest.split(|b| *b == 0).next().unwrap_or_default().to_vec())
    };
    paths.values.iter().take(paths.count as usize).map(path).collect()
}
