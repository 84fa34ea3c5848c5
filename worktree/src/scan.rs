//! Which paths of a working tree are not as its index has them. git looks at all of them, so its looks go on side by side.

use std::collections::BTreeSet;

use crate::capture::{CaptureError, Limits, Place, args, path_of, records};
use crate::git::GitError;

/// Paths that an error names.
const NAMED: usize = 5;
/// Paths that git is told by name. With more it looks at the whole tree, which is quicker then.
const MAX_PATHS: usize = 200;

/// What the index has, with its flags; and what it does not have, in one look.
const LISTED: [&str; 4] = ["ls-files", "-z", "-v", "--stage"];
const LISTED_AND_UNTRACKED: [&str; 7] = ["ls-files", "-z", "-v", "--stage", "--cached", "--others", "--exclude-standard"];
const CHANGED: [&str; 4] = ["diff-files", "-z", "--name-only", "--ignore-submodules=dirty"];

/// What a look has found, as git prints it.
pub(crate) struct Scan {
    untracked: Vec<u8>,
    changed: Vec<u8>,
    /// The person has told git to leave paths out of its looks.
    has_flags: bool,
    /// There may be repositories in the tree.
    pub has_repositories: bool,
}

/// Looks at every path. From then on the private index believes nothing that the person has told git to believe.
pub(crate) fn scan(place: &Place) -> Result<Scan, GitError> {
    let look = |words: &[&str]| place.git.run(&args(words), &[]);
    let (listed, changed) = both(|| look(&LISTED_AND_UNTRACKED), || look(&CHANGED));
    let listed = listed?;
    let mut untracked = Vec::new();
    for path in records(&listed).filter_map(|record| record.strip_prefix(b"? ")) {
        untracked.extend_from_slice(path);
        untracked.push(0);
    }
    let has_flags = unflag(place, &listed)?;
    let changed = if has_flags { look(&CHANGED)? } else { changed? };
    // A repository that the index has, one that it does not have, and one in the place of a file.
    let is_folder = |path: &[u8]| std::fs::symlink_metadata(place.root.join(path_of(path))).is_ok_and(|found| found.is_dir());
    let is_link = |record: &[u8]| record.get(2..).is_some_and(|entry| entry.starts_with(b"160000 "));
    let has_repositories = records(&listed).any(is_link) || has_folder(&untracked) || records(&changed).any(is_folder);
    Ok(Scan { untracked, changed, has_flags, has_repositories })
}

/// Whether git has listed a folder: a repository that it does not look into.
pub(crate) fn has_folder(paths: &[u8]) -> bool {
    records(paths).any(|path| path.ends_with(b"/"))
}

/// Runs two things side by side.
pub(crate) fn both<A: Send, B>(one: impl FnOnce() -> A + Send, other: impl FnOnce() -> B) -> (A, B) {
    std::thread::scope(|scope| {
        let one = scope.spawn(one);
        let other = other();
        (one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), other)
    })
}

impl Scan {
    /// Refuses what nobody wants to send by mistake, before a byte of it is read.
    pub(crate) fn check(&self, place: &Place, limits: Limits) -> Result<(), CaptureError> {
        let untracked: BTreeSet<&[u8]> = records(&self.untracked).collect();
        let size = |path: &[u8]| {
            let found = std::fs::symlink_metadata(place.root.join(path_of(path)));
            found.map(|found| if found.is_file() { found.len() } else { 0 }).unwrap_or_default()
        };
        let paths: BTreeSet<&[u8]> = records(&self.changed).chain(untracked.iter().copied()).collect();
        let sizes: Vec<(u64, &[u8])> = paths.into_iter().map(|path| (size(path), path)).collect();
        let bytes = total(&sizes);
        if bytes > limits.bytes {
            return Err(CaptureError::TooLarge { bytes, most: limits.bytes, largest: largest(sizes) });
        }
        let sizes: Vec<_> = sizes.into_iter().filter(|(_, path)| untracked.contains(path)).collect();
        let bytes = total(&sizes);
        if bytes > limits.untracked { Err(CaptureError::Untracked { bytes, largest: largest(sizes) }) } else { Ok(()) }
    }

    /// Takes what was found into the private index. Returns whether that is all; otherwise the whole tree must be taken.
    pub(crate) fn add(&self, place: &Place) -> Result<bool, GitError> {
        let paths = [&self.changed[..], &self.untracked[..]].concat();
        match records(&paths).count() {
            0 => return Ok(!self.has_flags),
            count if count > MAX_PATHS || self.has_flags => return Ok(false),
            _ => {}
        }
        let words = args(&["--literal-pathspecs", "add", "--all", "--pathspec-from-file=-", "--pathspec-file-nul"]);
        // By name it refuses some paths that it takes with all others, such as what a link to a folder has replaced.
        Ok(place.git.try_run(&words, &paths)?.status.success())
    }
}

fn total(sizes: &[(u64, &[u8])]) -> u64 {
    sizes.iter().map(|(size, _)| size).sum()
}

fn largest(mut sizes: Vec<(u64, &[u8])>) -> Vec<String> {
    sizes.sort_by(|a, b| b.cmp(a));
    sizes.into_iter().take(NAMED).map(|(size, path)| format!("{} ({size})", String::from_utf8_lossy(path))).collect()
}

/// Lets git look at paths that the person has told it to believe unchanged, or left out: they said so for their own status. What is left out and not there
/// stays as the index has it.
pub(crate) fn believe_nothing(place: &Place) -> Result<(), GitError> {
    unflag(place, &place.git.run(&args(&LISTED), &[])?).map(drop)
}

/// Returns whether there was such a path among `FLAG MODE HASH STAGE<tab>PATH`.
fn unflag(place: &Place, listed: &[u8]) -> Result<bool, GitError> {
    let (mut assumed, mut left_out) = (Vec::new(), Vec::new());
    let mut found = false;
    for record in records(listed).filter(|record| !record.starts_with(b"? ")) {
        let tab = record.iter().position(|byte| *byte == b'\t');
        let (Some(flag), Some(path)) = (record.first(), tab.and_then(|tab| record.get(tab + 1..))) else { continue };
        let is_left_out = flag.eq_ignore_ascii_case(&b's');
        found |= flag.is_ascii_lowercase() || is_left_out;
        if flag.is_ascii_lowercase() {
            assumed.extend(path);
            assumed.push(0);
        }
        if is_left_out && std::fs::symlink_metadata(place.root.join(path_of(path))).is_ok() {
            left_out.extend(path);
            left_out.push(0);
        }
    }
    for (flag, paths) in [("--no-assume-unchanged", assumed), ("--no-skip-worktree", left_out)] {
        if !paths.is_empty() {
            place.git.run(&args(&["update-index", "-z", flag, "--stdin"]), &paths)?;
        }
    }
    Ok(found)
}

/// Paths that are not as they were when they were read.
pub(crate) fn changed_since(place: &Place) -> Result<Vec<String>, GitError> {
    let look = || place.git.run(&args(&CHANGED), &[]);
    let mut changed = look()?;
    if !changed.is_empty() {
        // A file with another time and the same bytes is none.
        place.git.try_run(&args(&["update-index", "-q", "--refresh"]), &[])?;
        changed = look()?;
    }
    Ok(records(&changed).map(|record| String::from_utf8_lossy(record).into_owned()).collect())
}
