//! Shared mappings of files, through which a process writes without a descriptor.
//!
//! A private mapping writes no file, and without a capability none is opened again by a mapping. So only shared ones count, and of them those that the kernel lets
//! be written: what was opened through a cover it never does.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::lent_paths::View;
use super::mounts::{stat, unescaped};

/// A file that is mapped shared.
#[derive(Debug, PartialEq, Eq)]
struct Mapping {
    /// `start-end`.
    range: String,
    device: (u32, u32),
    inode: u64,
    path: PathBuf,
}

/// The path of a mapping that counts.
pub(super) fn held(task: &Path, view: &View) -> io::Result<Option<String>> {
    let maps = std::fs::read(task.join("maps"))?;
    let shared: Vec<Mapping> = maps.split(|byte| *byte == b'\n').filter_map(parse).filter(|mapping| counts(mapping, view)).collect();
    if shared.is_empty() {
        return Ok(None);
    }
    let flags = std::fs::read(task.join("smaps"))?;
    let found = shared.into_iter().find(|mapping| may_be_written(&flags, &mapping.range));
    Ok(found.map(|mapping| mapping.path.display().to_string()))
}

/// `start-end perms offset device inode path`.
fn parse(line: &[u8]) -> Option<Mapping> {
    let mut rest = line;
    let mut field = || {
        let end = rest.iter().position(|byte| *byte == b' ')?;
        let (field, after) = rest.split_at(end);
        rest = after.trim_ascii_start();
        std::str::from_utf8(field).ok()
    };
    let (range, permissions, _, device, inode) = (field()?, field()?, field()?, field()?, field()?);
    let (major, minor) = device.split_once(':')?;
    let device = (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
    let inode: u64 = inode.parse().ok()?;
    let is_shared_file = permissions.ends_with('s') && inode != 0 && rest.starts_with(b"/");
    is_shared_file.then(|| Mapping { range: range.to_owned(), device, inode, path: unescaped(rest) })
}

/// Whether the mapping may be of something in the tree that could not be opened so now. Its device says little: Btrfs and overlays tell another one than of a file.
fn counts(mapping: &Mapping, view: &View) -> bool {
    if Some(mapping.device) == view.memory_device || mapping.path.as_os_str().as_bytes().starts_with(b"/anon_hugepage") {
        return false;
    }
    let Ok(now) = stat(&mapping.path, false) else { return true };
    if now.stx_ino != mapping.inode {
        return true;
    }
    // What can be opened to be written is not covered.
    view.mount_of(&now).is_none_or(|mount| view.is_of_tree(mount) && mount.read_only)
}

/// Whether the flags of a mapping allow writing, now or later. One that is not found may have gone, or not.
fn may_be_written(smaps: &[u8], range: &str) -> bool {
    let mut lines = smaps.split(|byte| *byte == b'\n').skip_while(|line| !line.starts_with(range.as_bytes()));
    let flags = lines.find_map(|line| line.strip_prefix(b"VmFlags:"));
    flags.is_none_or(|flags| flags.split(|byte| *byte == b' ').any(|flag| flag == b"mw"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_shared_mappings_of_files_are_read() {
        let line = b"7f1c2d000000-7f1c2d001000 rw-s 00000000 00:2a 261                        /workspace/src/a b (deleted)";
        let expected =
            Mapping { range: "7f1c2d000000-7f1c2d001000".into(), device: (0, 42), inode: 261, path: "/workspace/src/a b (deleted)".into() };
        assert_eq!(parse(line), Some(expected));
        for other in [
            &b"7f1c2d000000-7f1c2d001000 r--p 00000000 00:2a 261 /workspace/src/a"[..],
            b"7f1c2d000000-7f1c2d001000 rw-s 00000000 00:00 0 ",
            b"7ffd0000-7ffe0000 rw-p 00000000 00:00 0 [stack]",
            b"",
        ] {
            assert_eq!(parse(other), None);
        }
    }

    #[test]
    fn what_was_opened_for_reading_alone_is_never_written() {
        let smaps = b"1000-2000 r--s 0 00:2a 1 /a\nSize: 4 kB\nVmFlags: rd mr me ms sd\n2000-3000 rw-s 0 00:2a 2 /b\nSize: 4 kB\nVmFlags: rd wr sh mr mw me ms\n";
        assert!(!may_be_written(smaps, "1000-2000") && may_be_written(smaps, "2000-3000") && may_be_written(smaps, "5000-6000"));
    }
}
