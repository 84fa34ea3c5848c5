//! The items of a subvolume, the inodes that changed since a transaction, and their paths.

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
const DIR_INDEX: u32 = 96;
const BUFFER: usize = 256 << 10;
const HEADER: usize = 32;

/// `struct btrfs_ioctl_search_args_v2` with its buffer.
#[repr(C)]
struct Search<const ROOM: usize> {
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
    buffer: [u8; ROOM],
}

/// Which items of a tree are wanted: those whose key is between `first` and `last` and that lie in a block written in `min_transid` or later.
/// Tree 0 is the subvolume of the descriptor.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keys {
    pub tree: u64,
    pub first: Key,
    pub last: Key,
    pub min_transid: u64,
}

/// Object, type, offset.
pub(super) type Key = (u64, u32, u64);

/// An item of a tree.
pub(super) struct Item<'a> {
    pub object: u64,
    pub kind: u32,
    pub offset: u64,
    content: &'a [u8],
}

impl Item<'_> {
    /// A number in the content of the item.
    pub fn u64_at(&self, at: usize) -> io::Result<u64> {
        read_u64(self.content, at)
    }
}

/// Gives all wanted items to `visit`, in the order of their keys, until it returns false. It sees only what is committed.
pub(super) fn search(any: impl AsFd, keys: Keys, visit: impl FnMut(&Item) -> io::Result<bool>) -> io::Result<()> {
    search_by::<BUFFER>(any, keys, visit)
}

/// [`search`], `ROOM` bytes at a time.
fn search_by<const ROOM: usize>(any: impl AsFd, keys: Keys, mut visit: impl FnMut(&Item) -> io::Result<bool>) -> io::Result<()> {
    // SAFETY: all fields are plain numbers, for which zero is a value; zeroed on the heap, as it may be too large for a stack.
    let mut search: Box<Search<ROOM>> = unsafe { Box::<Search<ROOM>>::new_zeroed().assume_init() };
    let mut next = keys.first;
    while next <= keys.last {
        (search.tree, search.min_transid, search.max_transid) = (keys.tree, keys.min_transid, u64::MAX);
        (search.min_object, search.min_type, search.min_offset) = next;
        (search.max_object, search.max_type, search.max_offset) = keys.last;
        (search.items, search.buffer_size) = (u32::MAX, ROOM as u64);
        // SAFETY: TREE_SEARCH_V2 reads the head and writes at most `buffer_size` bytes behind it; its code is made with the head's size.
        unsafe { raw_ioctl(&any, request_code(READ | WRITE, 17, std::mem::offset_of!(Search<ROOM>, buffer)), &mut *search)? };
        if search.items == 0 {
            return Ok(());
        }
        let (mut at, mut last) = (0, next);
        for _ in 0..search.items {
            let field = |offset: usize| read_u64(&search.buffer, at + offset);
            let (object, offset, kind_and_length) = (field(8)?, field(16)?, field(24)?);
            let (kind, length) = (kind_and_length as u32, (kind_and_length >> 32) as usize);
            let start = at + HEADER;
            let content = search.buffer.get(start..start + length).ok_or_else(beyond)?;
            if !visit(&Item { object, kind, offset, content })? {
                return Ok(());
            }
            last = (object, kind, offset);
            at = start + length;
        }
        next = match last {
            (object, kind, offset) if offset < u64::MAX => (object, kind, offset + 1),
            (object, kind, _) if kind < u32::from(u8::MAX) => (object, kind + 1, 0),
            (object, ..) if object < u64::MAX => (object + 1, 0, 0),
            _ => return Ok(()),
        };
    }
    Ok(())
}

/// What the kernel keeps of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Inode {
    pub number: u64,
    /// The transaction that made it.
    pub created_transid: u64,
    /// The transaction that last changed it.
    pub transid: u64,
    pub size: u64,
    pub links: u32,
    pub mode: u32,
}

impl Inode {
    /// None if the item is of another kind.
    fn of(item: &Item) -> io::Result<Option<Self>> {
        if item.kind != INODE_ITEM {
            return Ok(None);
        }
        Ok(Some(Inode {
            number: item.object,
            created_transid: item.u64_at(0)?,
            transid: item.u64_at(8)?,
            size: item.u64_at(16)?,
            links: item.u64_at(40)? as u32,
            mode: item.u64_at(52)? as u32,
        }))
    }

    pub fn is_dir(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFDIR
    }

    pub fn is_file(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFREG
    }
}

/// Gives every inode of the subvolume that contains `tree` and whose last change was in `first` or a later transaction to `visit`, until
/// it returns false.
pub(super) fn inodes_since(tree: impl AsFd, first: u64, mut visit: impl FnMut(Inode) -> bool) -> io::Result<()> {
    let all = Keys { tree: 0, first: (ioctl::ROOT_INODE, INODE_ITEM, 0), last: (u64::MAX, u32::MAX, u64::MAX), min_transid: first };
    search(tree, all, |item| match Inode::of(item)? {
        Some(inode) if inode.transid >= first => Ok(visit(inode)),
        _ => Ok(true),
    })
}

/// An inode of the subvolume that contains `tree`. None if there is none of this number.
pub(super) fn inode(tree: impl AsFd, number: u64) -> io::Result<Option<Inode>> {
    const ONE_ITEM: usize = 256;
    let key = (number, INODE_ITEM, 0);
    let mut found = None;
    search_by::<ONE_ITEM>(tree, Keys { tree: 0, first: key, last: key, min_transid: 0 }, |item| {
        found = Inode::of(item)?;
        Ok(false)
    })?;
    Ok(found)
}

/// Gives the inode of each name in a directory of the subvolume that contains `tree` to `visit`, until it returns false: none if the directory is
/// gone. A nested subvolume is no inode of this one.
pub(super) fn names_in(tree: impl AsFd, dir: u64, mut visit: impl FnMut(u64) -> bool) -> io::Result<()> {
    let names = Keys { tree: 0, first: (dir, DIR_INDEX, 0), last: (dir, DIR_INDEX, u64::MAX), min_transid: 0 };
    search(tree, names, |item| {
        let (object, kind) = (item.u64_at(0)?, item.u64_at(8)? as u8);
        if u32::from(kind) == INODE_ITEM {
            return Ok(visit(object));
        }
        Ok(true)
    })
}

/// Lists all inodes of the subvolume that contains `tree` whose last change was in `first` or a later transaction. It sees only what is
/// committed, so sync before. `None` if there are more than `limit`.
pub fn changed_since(tree: impl AsFd, first: u64, limit: usize) -> io::Result<Option<Vec<ChangedInode>>> {
    let mut found = Vec::new();
    inodes_since(tree, first, |inode| {
        found.push(ChangedInode { inode: inode.number, is_dir: inode.is_dir() });
        found.len() <= limit
    })?;
    Ok((found.len() <= limit).then_some(found))
}

/// The generation of an inode, with which its handles are checked. None if there is no such inode.
pub(super) fn generation(any: impl AsFd, subvolume: u64, inode: u64) -> io::Result<Option<u32>> {
    let key = (inode, INODE_ITEM, 0);
    let mut found = None;
    search(any, Keys { tree: subvolume, first: key, last: key, min_transid: 0 }, |item| {
        // A handle has room for the lower half.
        found = Some(item.u64_at(0)? as u32);
        Ok(false)
    })?;
    Ok(found)
}

/// The kernel writes its own byte order in headers and little-endian in items; Yoi's targets are little-endian throughout.
fn read_u64(buffer: &[u8], at: usize) -> io::Result<u64> {
    let bytes = buffer.get(at..at + 8).and_then(|b| b.try_into().ok());
    bytes.map(u64::from_le_bytes).ok_or_else(beyond)
}

fn beyond() -> io::Error {
    io::Error::other("an item ends beyond the answer")
}

const _: () = assert!(cfg!(target_endian = "little") && std::mem::offset_of!(Search<BUFFER>, buffer) == 112);

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
