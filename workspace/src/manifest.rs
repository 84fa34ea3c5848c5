//! Computes the manifest of a tree: counts, sizes and a digest.

use std::fs::File;
use std::io::Read;
use std::os::fd::BorrowedFd;
use std::path::{Component, Path};

use crate::set_digest::SetDigest;
use crate::{NodeKind, SysError, TreeManifest, dir};

/// Visits every entry of `tree`.
pub(crate) fn compute(tree: BorrowedFd) -> Result<TreeManifest, SysError> {
    let (mut files, mut dirs, mut bytes) = (0, 0, 0);
    let mut digest = SetDigest::default();
    dir::walk(tree, &mut |entry| {
        // The size of a directory depends on the file system.
        let size = if entry.kind == NodeKind::Dir { 0 } else { entry.stat.st_size as u64 };
        let letter = match entry.kind {
            NodeKind::File => b'f',
            NodeKind::Dir => b'd',
            NodeKind::Symlink => b'l',
            NodeKind::Special => b's',
        };
        match entry.kind {
            NodeKind::Dir => dirs += 1,
            NodeKind::File => (files, bytes) = (files + 1, bytes + size),
            NodeKind::Symlink | NodeKind::Special => files += 1,
        }
        let mut hash = blake3::Hasher::new();
        hash.update(entry.path);
        hash.update(&[0, letter]);
        hash.update(&size.to_le_bytes());
        let (seconds, nanos) = dir::mtime(&entry.stat);
        hash.update(&seconds.to_le_bytes());
        hash.update(&nanos.to_le_bytes());
        digest.add(hash.finalize());
        Ok(())
    })?;
    Ok(TreeManifest { files, dirs, bytes, git_head: git_head(tree), digest: digest.hash().to_hex().to_string() })
}

/// The commit of `.git/HEAD`; `None` for anything that git would not write. An agent may have written it, so it is only data.
fn git_head(tree: BorrowedFd) -> Option<String> {
    let head = read_text(tree, Path::new(".git/HEAD"))?;
    let Some(reference) = head.strip_prefix("ref: ") else { return parse_commit(&head) };
    let reference = Path::new(reference);
    if !reference.components().all(|c| matches!(c, Component::Normal(_))) {
        return None;
    }
    if let Some(loose) = read_text(tree, &Path::new(".git").join(reference)) {
        return parse_commit(&loose);
    }
    let packed = read_text(tree, Path::new(".git/packed-refs"))?;
    packed.lines().filter_map(|l| l.split_once(' ')).find(|(_, name)| Path::new(name) == reference).and_then(|(id, _)| parse_commit(id))
}

fn parse_commit(text: &str) -> Option<String> {
    let right = matches!(text.len(), 40 | 64) && text.bytes().all(|b| b.is_ascii_hexdigit());
    right.then(|| text.to_ascii_lowercase())
}

fn read_text(tree: BorrowedFd, path: &Path) -> Option<String> {
    const LIMIT: u64 = 16 << 20;
    let mut text = String::new();
    File::from(dir::open_file(tree, path).ok()?).take(LIMIT).read_to_string(&mut text).ok()?;
    Some(text.trim_end().to_owned())
}
