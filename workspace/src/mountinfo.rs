//! The mount table of this process. Only this file reads `/proc/self/mountinfo`.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, StatxFlags};

use crate::error::StepContext;
use crate::{SysError, Uid, layout, overlay, zfs};

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// The mount id.
    pub id: u64,
    /// The id of the mount that it is mounted on.
    pub parent: u64,
    /// The device of the file system, `major:minor`. For Btrfs it is not the `st_dev` of a subvolume.
    pub device: String,
    /// The directory of the file system that is mounted.
    pub root: PathBuf,
    /// Where it is mounted, seen from this process's root.
    pub mount_point: PathBuf,
    /// Whether the options contain `ro`.
    pub read_only: bool,
    /// The options of this mount, separated by commas.
    pub options: String,
    /// Whether the mount propagates to a peer group.
    pub shared: bool,
    /// The type of the file system, `btrfs` for example.
    pub fs_type: String,
    /// The source as the file system reports it, often a device.
    pub source: PathBuf,
}

/// Reads all mounts, in the order of the table: of two on one mount point, the later is on top. Lines that cannot be parsed are left out.
pub fn read() -> Result<Vec<Mount>, SysError> {
    let text = std::fs::read("/proc/self/mountinfo").step("read the mount table")?;
    Ok(text.split(|b| *b == b'\n').filter_map(parse_line).collect())
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|b| *b == b' ');
    let mut number = || std::str::from_utf8(fields.next()?).ok()?.parse().ok();
    let (id, parent) = (number()?, number()?);
    let device = String::from_utf8(fields.next()?.to_vec()).ok()?;
    let root = unescape(fields.next()?);
    let mount_point = unescape(fields.next()?);
    let options = String::from_utf8_lossy(fields.next()?).into_owned();
    let mut shared = false;
    for tag in fields.by_ref().take_while(|f| *f != b"-") {
        shared |= tag.starts_with(b"shared:");
    }
    let fs_type = String::from_utf8_lossy(fields.next()?).into_owned();
    let source = unescape(fields.next()?);
    let read_only = options.split(',').any(|o| o == "ro");
    Some(Mount { id, parent, device, root, mount_point, read_only, options, shared, fs_type, source })
}

/// The kernel writes space, tab, newline, backslash and `#` as a backslash and three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        match tail {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] if first == b'\\' => {
                out.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => {
                out.push(first);
                rest = tail;
            }
        }
    }
    PathBuf::from(OsString::from_vec(out))
}

/// The file system and the directory in it that a descriptor refers to. Two mounts of one tree have both in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Location {
    pub device: String,
    pub root: PathBuf,
    /// The path of the descriptor, seen from this process's root.
    pub path: PathBuf,
}

/// The mount that a descriptor refers to.
pub(crate) fn mount_of(fd: impl AsFd, table: &[Mount]) -> Result<&Mount, SysError> {
    let found = rustix::fs::statx(&fd, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).step("find the mount of a directory")?;
    let mount = table.iter().find(|m| m.id == found.stx_mnt_id);
    mount.ok_or_else(|| std::io::Error::other("its mount is not in the table")).step("find the mount of a directory")
}

/// Finds the location of a descriptor by its mount in the table.
pub(crate) fn locate(fd: impl AsFd, table: &[Mount]) -> Result<Location, SysError> {
    let path = path_of(&fd)?;
    let mount = mount_of(&fd, table)?;
    let below = path.strip_prefix(&mount.mount_point).map_err(std::io::Error::other).step("place a directory below its mount")?;
    let root = if below.as_os_str().is_empty() { mount.root.clone() } else { mount.root.join(below) };
    Ok(Location { device: mount.device.clone(), root, path })
}

/// The location of a mount that is in no table and shows the folder `below` of a file system with one device.
pub(crate) fn locate_detached(mount: impl AsFd, below: &Path) -> Result<Location, SysError> {
    let stat = rustix::fs::statx(&mount, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS).step("stat a mount")?;
    let device = format!("{}:{}", stat.stx_dev_major, stat.stx_dev_minor);
    Ok(Location { device, root: Path::new("/").join(below), path: PathBuf::new() })
}

/// The current path of a descriptor.
pub(crate) fn path_of(fd: impl AsFd) -> Result<PathBuf, SysError> {
    std::fs::read_link(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())).step("find the path of a descriptor")
}

/// The mount points outside of the data root where this tree, or a part of it, is mounted.
pub(crate) fn mounts_elsewhere(location: &Location, data_root: &Path, table: &[Mount]) -> Vec<PathBuf> {
    let of_tree = |m: &&Mount| m.device == location.device && m.root.starts_with(&location.root);
    table.iter().filter(of_tree).filter(|m| !m.mount_point.starts_with(data_root)).map(|m| m.mount_point.clone()).collect()
}

/// The mount points outside of the data root of mounts with one of these types and this source.
pub(crate) fn mounts_of_source(types: &[&str], source: &str, data_root: &Path, table: &[Mount]) -> Vec<PathBuf> {
    let of_tree = |m: &&Mount| types.contains(&&*m.fs_type) && m.source == Path::new(source) && !m.mount_point.starts_with(data_root);
    table.iter().filter(of_tree).map(|m| m.mount_point.clone()).collect()
}

/// True if the mount shows the root of the file system that was made with this source.
pub(crate) fn is_whole_mount_of(mount: &Mount, source: &str) -> bool {
    mount.source == Path::new(source) && mount.root == Path::new("/")
}

/// The tree of the data root at `data_root` whose folder or subvolume, or a folder in it, is the root of this mount; and the path of that
/// folder in it.
pub(crate) fn tree_below(data_root: &Location, mount: &Mount) -> Option<(Uid, PathBuf)> {
    if mount.device != data_root.device {
        return None;
    }
    tree_at_front(without_deleted(mount.root.strip_prefix(&data_root.root).ok()?)).map(|(uid, below)| (uid, below.to_owned()))
}

/// The tree that a mount says it shows: by the path of its root, by the source of its overlay, or by its dataset. It may be a tree of another data root, one that
/// is gone, or a part of a tree: which folder is the root of a tree, only its marker says. This is for a process that has no data root open:
/// [`crate::DataRoot::shown_tree`] knows which trees are its own.
pub fn named_tree(mount: &Mount) -> Option<Uid> {
    if mount.fs_type == "overlay" {
        let (data_root, tree) = mount.source.to_str()?.strip_prefix(overlay::SOURCE_PREFIX)?.split_once(':')?;
        return data_root.parse::<Uid>().ok().filter(|_| mount.root == Path::new("/")).and_then(|_| tree.parse().ok());
    }
    if zfs::MOUNT_TYPES.contains(&&*mount.fs_type) {
        // It may be a clone of a dataset, of which the tree is one folder.
        return mount.source.file_name()?.to_str()?.parse().ok();
    }
    let mut rest = without_deleted(&mount.root).components();
    loop {
        match tree_at_front(rest.as_path()) {
            Some((uid, _)) => return Some(uid),
            None => _ = rest.next()?,
        }
    }
}

/// The kernel marks a directory that was removed while it was mounted.
fn without_deleted(root: &Path) -> &Path {
    let text = root.as_os_str().as_bytes();
    Path::new(OsStr::from_bytes(text.strip_suffix(b"//deleted").unwrap_or(text)))
}

/// The tree whose folder or subvolume is at the front of a path, and the rest of the path.
fn tree_at_front(path: &Path) -> Option<(Uid, &Path)> {
    let mut parts = path.components();
    let mut next = || parts.next()?.as_os_str().to_str();
    let (trees, shard, uid, tree) = (next()?, next()?, next()?.parse::<Uid>().ok()?, next()?);
    (trees == "trees" && uid.shard() == shard && tree == layout::TREE).then_some((uid, parts.as_path()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_escapes_and_optional_fields() {
        let line = br"98 36 0:42 /trees/0a\040b /mnt/a\134b\011c ro,nosuid,nodev shared:7 master:2 - btrfs /dev/loop0 rw,subvolid=5";
        let mount = parse_line(line).unwrap();
        assert_eq!(mount.root, Path::new("/trees/0a b"));
        assert_eq!(mount.mount_point, Path::new("/mnt/a\\b\tc"));
        assert_eq!((mount.id, mount.parent, &*mount.device, &*mount.fs_type), (98, 36, "0:42", "btrfs"));
        assert!(mount.read_only && mount.shared);
    }

    #[test]
    fn a_line_without_optional_fields() {
        let mount = parse_line(b"22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw").unwrap();
        assert!(!mount.shared && !mount.read_only);
        assert_eq!(mount.source, Path::new("/dev/sda1"));
    }

    #[test]
    fn a_line_that_cannot_be_parsed_is_no_mount() {
        assert_eq!(parse_line(b""), None);
        assert_eq!(parse_line(b"22 1 8:1 /"), None);
    }

    fn mount(fs_type: &str, source: &str, root: &str) -> Mount {
        Mount {
            id: 1,
            parent: 0,
            device: "0:42".into(),
            root: root.into(),
            mount_point: "/pods/x".into(),
            read_only: false,
            options: "rw".into(),
            shared: false,
            fs_type: fs_type.into(),
            source: source.into(),
        }
    }

    #[test]
    fn a_mount_names_its_tree_by_its_folder_or_one_in_it_or_by_the_source_of_its_overlay_or_by_its_dataset() {
        let uid = Uid::from_bytes([7; 16]);
        let folder = format!("/var/lib/yoi/trees/{}/{uid}/tree", uid.shard());
        let (overlay, dataset) = (format!("yoi:{}:{uid}", Uid::from_bytes([9; 16])), format!("tank/yoi/{uid}"));
        for (is_named, mount) in [
            (true, mount("ext4", "/dev/vda", &folder)),
            (true, mount("ext4", "/dev/vda", &format!("{folder}//deleted"))),
            (true, mount("overlay", &overlay, "/")),
            (true, mount("zfs", &dataset, "/")),
            (true, mount("fuse.zfs", &dataset, "/")),
            (true, mount("zfs", &dataset, "/src")),
            (false, mount("zfs", "tank/home", "/")),
            (false, mount("ext4", &dataset, "/")),
            (false, mount("overlay", &overlay, "/src")),
            (false, mount("ext4", &overlay, "/")),
            (false, mount("overlay", "overlay", "/")),
            (false, mount("overlay", &format!("yoi:other:{uid}"), "/")),
            // It may be a snapshot of a volume, of which the tree is one folder.
            (true, mount("btrfs", "/dev/vda", &format!("{folder}/src/a"))),
            (true, mount("btrfs", "/dev/vda", &format!("{folder}/src//deleted"))),
            (false, mount("ext4", "/dev/vda", &format!("/trees/zz/{uid}/tree"))),
            (false, mount("ext4", "/dev/vda", "/tree")),
        ] {
            assert_eq!(named_tree(&mount), is_named.then_some(uid), "{mount:?}");
        }
    }

    #[test]
    fn only_mounts_outside_of_the_data_root_keep_a_tree_busy() {
        let mount = |root: &str, at: &str| Mount { mount_point: at.into(), ..mount("btrfs", "/dev/loop0", root) };
        let table = [
            mount("/", "/data"),
            mount("/trees/00/u/tree/src", "/data/trees/00/u/tree/other"),
            mount("/trees/00/u/tree/src", "/pods/x"),
            mount("/trees/00/u2/tree", "/pods/y"),
        ];
        let location = Location { device: "0:42".into(), root: "/trees/00/u".into(), path: "/data/trees/00/u".into() };
        assert_eq!(mounts_elsewhere(&location, Path::new("/data"), &table), [PathBuf::from("/pods/x")]);
    }
}
