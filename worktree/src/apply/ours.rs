//! What the other side has changed, and what the person has at those paths: as git would store it, in an index of ours.

use std::collections::{BTreeMap, BTreeSet};

use super::disk::look;
use super::plan::{Change, Disk, Entry, Ours, There};
use crate::CaptureError;
use crate::capture::{Place, args, path_of, records};
use crate::git::{Git, GitError};
use crate::scan::believe_nothing;

/// The lines of `git diff-tree -r -z --raw --no-abbrev`: `:MODE MODE HASH HASH STATUS`, and the path behind a zero byte.
pub(super) fn changes(output: &[u8]) -> Vec<Change> {
    let mut found = Vec::new();
    let mut records = records(output);
    while let (Some(line), Some(path)) = (records.next(), records.next()) {
        let line = String::from_utf8_lossy(line);
        let words: Vec<&str> = line.trim_start_matches(':').split(' ').collect();
        let [base_mode, mode, base_object, object, _] = words[..] else { continue };
        found.push(Change { path: path.to_vec(), base: entry(base_mode, base_object), theirs: entry(mode, object) });
    }
    found
}

fn entry(mode: &str, object: &str) -> Option<Entry> {
    let mode = u32::from_str_radix(mode, 8).ok().filter(|mode| *mode != 0)?;
    Some(Entry { mode, object: object.to_owned() })
}

/// What git's settings say of this disk.
pub(super) fn settings(git: &Git, windows_names: bool) -> Result<Disk, GitError> {
    Ok(Disk {
        modes: git.bool_setting("core.fileMode", true)?,
        links: git.bool_setting("core.symlinks", true)?,
        ignores_case: git.bool_setting("core.ignoreCase", false)?,
        windows_names: windows_names || git.bool_setting("core.protectNTFS", false)?,
    })
}

/// What the person has at the changed paths, in their order; and all paths that git knows, where `all` says that they count.
pub(super) fn ours(place: &Place, changes: &[Change], all: bool) -> Result<(Vec<Ours>, Vec<Vec<u8>>), CaptureError> {
    let mut there = Vec::new();
    for change in changes {
        let full = place.root.join(path_of(&change.path));
        there.push(look(&place.root, &change.path).map_err(|error| GitError::File(full, error))?);
    }
    believe_nothing(place)?;
    let mut files = Vec::new();
    for (change, _) in changes.iter().zip(&there).filter(|(_, there)| **there == There::File) {
        files.extend_from_slice(&change.path);
        files.push(0);
    }
    if !files.is_empty() {
        place.git.run(&args(&["update-index", "-z", "--add", "--replace", "--stdin"]), &files)?;
    }
    let wanted: BTreeSet<&[u8]> = changes.iter().map(|change| &change.path[..]).collect();
    let (mut entries, mut left_out, mut known) = (BTreeMap::new(), BTreeSet::new(), Vec::new());
    let listed = place.git.run(&args(&["ls-files", "-z", "-t", "--stage"]), &[])?;
    for record in records(&listed) {
        let Some((flag, path, found)) = listed_entry(record) else { continue };
        if all {
            known.push(path.to_vec());
        }
        if wanted.contains(path) {
            if flag == b'S' {
                left_out.insert(path.to_vec());
            }
            entries.insert(path.to_vec(), found);
        }
    }
    let ours = changes.iter().zip(there).map(|(change, there)| Ours {
        entry: entries.remove(&change.path).filter(|_| there == There::File),
        is_left_out: there == There::Nothing && left_out.contains(&change.path),
        there,
    });
    Ok((ours.collect(), known))
}

/// `FLAG MODE HASH STAGE<tab>PATH`.
fn listed_entry(record: &[u8]) -> Option<(u8, &[u8], Entry)> {
    let tab = record.iter().position(|byte| *byte == b'\t')?;
    let (before, path) = (record.get(..tab)?, record.get(tab + 1..)?);
    let before = String::from_utf8_lossy(before);
    let words: Vec<&str> = before.split(' ').collect();
    let [flag, mode, object, _] = words[..] else { return None };
    Some((flag.bytes().next()?, path, entry(mode, object)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_git_lists_is_read_with_whatever_a_path_holds() {
        let (zero, one) = ("0".repeat(40), "1".repeat(40));
        let listed = format!(":000000 100755 {zero} {one} A\0new\n:x\0:120000 000000 {one} {zero} D\0a b\0");
        let found = changes(listed.as_bytes());
        let program = Entry { mode: 0o100_755, object: one.clone() };
        assert_eq!(found[0], Change { path: b"new\n:x".to_vec(), base: None, theirs: Some(program.clone()) });
        let link = Entry { mode: 0o120_000, object: one.clone() };
        assert_eq!(found[1], Change { path: b"a b".to_vec(), base: Some(link), theirs: None });
        let record = format!("S 100755 {one} 0\ta\tb");
        assert_eq!(listed_entry(record.as_bytes()), Some((b'S', &b"a\tb"[..], program)));
    }
}
