//! The mount table of this container, as far as a look at its processes needs it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Statx, StatxFlags, statx};

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    /// `major:minor` of the file system.
    pub device: String,
    /// The folder of the file system that is mounted.
    pub root: PathBuf,
    /// Where.
    pub point: PathBuf,
    pub read_only: bool,
}

/// All mounts by their ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Mounts(BTreeMap<u64, Mount>);

impl Mounts {
    pub fn read() -> std::io::Result<Self> {
        Ok(Self::parse(&std::fs::read("/proc/self/mountinfo")?))
    }

    fn parse(table: &[u8]) -> Self {
        Self(table.split(|byte| *byte == b'\n').filter_map(line).collect())
    }

    pub fn get(&self, id: u64) -> Option<&Mount> {
        self.0.get(&id)
    }
}

/// `id parent device root mount-point options ...`.
fn line(line: &[u8]) -> Option<(u64, Mount)> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let device = String::from_utf8(fields.nth(1)?.to_vec()).ok()?;
    let (root, point) = (unescaped(fields.next()?), unescaped(fields.next()?));
    let read_only = fields.next()?.split(|byte| *byte == b',').any(|option| option == b"ro");
    Some((id, Mount { device, root, point, read_only }))
}

/// The kernel writes blanks, backslashes and such as a backslash and three octal digits.
pub(super) fn unescaped(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        match tail {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] if first == b'\\' => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// What is at a path, with the id of its mount. A link at its end is not followed, unless it is one of `/proc`.
pub(super) fn stat(path: &Path, follow: bool) -> rustix::io::Result<Statx> {
    let flags = if follow { AtFlags::NO_AUTOMOUNT } else { AtFlags::NO_AUTOMOUNT | AtFlags::SYMLINK_NOFOLLOW };
    statx(CWD, path, flags, StatxFlags::BASIC_STATS | StatxFlags::MNT_ID)
}

/// Device and inode.
pub(super) fn identity(stat: &Statx) -> (u32, u32, u64) {
    (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_with_its_escapes() {
        let table = b"30 20 0:40 /trees/u/tree /workspace rw,nosuid shared:7 - btrfs /dev/loop0 rw\n\
            31 30 0:40 /trees/u/tree/a\\040b /workspace/a\\040b ro,nosuid master:2 - btrfs /dev/loop0 rw\nnonsense\n";
        let mounts = Mounts::parse(table);
        let mount = |root: &str, point: &str, read_only| Mount { device: "0:40".into(), root: root.into(), point: point.into(), read_only };
        assert_eq!(mounts.get(30), Some(&mount("/trees/u/tree", "/workspace", false)));
        assert_eq!(mounts.get(31), Some(&mount("/trees/u/tree/a b", "/workspace/a b", true)));
        assert_eq!(mounts.0.len(), 2);
    }
}
