//! What is to be done with each path, decided from what both sides have of it. Nothing is read or written here.

use std::collections::{BTreeSet, HashMap};

use crate::names;

const LINK: u32 = 0o120_000;
const REPOSITORY: u32 = 0o160_000;

/// What a tree has at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// As git writes it: file, program, link or repository.
    pub mode: u32,
    /// The hash of its content.
    pub object: String,
}

/// A path that differs between the two commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub path: Vec<u8>,
    pub base: Option<Entry>,
    pub theirs: Option<Entry>,
}

/// What the disk has at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum There {
    Nothing,
    /// A file or a link.
    File,
    /// Something else that is no folder either.
    Special,
    /// A folder, with the files and the empty folders in it; `None` when they are too many to be only those that the other side deletes.
    Folder(Option<Vec<Vec<u8>>>),
    /// A file or link is at this path above it.
    Below(Vec<u8>),
    /// It is, or is in, a repository of its own, at this path.
    Inside(Vec<u8>),
}

/// A path as the person has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ours {
    pub there: There,
    /// What git would make of the file.
    pub entry: Option<Entry>,
    /// It is not on the disk on purpose, as in a sparse checkout.
    pub is_left_out: bool,
}

/// What the disk can hold, as git's settings say.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    /// `core.fileMode`.
    pub modes: bool,
    /// `core.symlinks`.
    pub links: bool,
    /// `core.ignoreCase`: names that differ only in case are one.
    pub ignores_case: bool,
    /// `core.protectNTFS` where it is set, or what the caller says: names that Windows cannot hold are refused.
    pub windows_names: bool,
}

/// Why a path was left as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// Both sides have changed it, each in its own way.
    BothChanged,
    /// Both sides have added it, each in its own way; or a file that git ignores is there.
    InTheWay,
    /// A folder is where the other side has a file, and holds what the other side does not have.
    Folder,
    /// A file of the person is where the other side has a folder.
    Below(String),
    /// It is a submodule or another repository, or is in one.
    Repository(String),
    /// It is not checked out on purpose.
    LeftOut,
    /// This disk holds no file of that name.
    Name(&'static str),
    /// This disk cannot tell it from another name.
    Case(String),
    /// This disk holds no links.
    Links,
    /// The person's file has changed meanwhile.
    Changing,
    /// It is on another disk than the repository, so that it cannot be replaced in one step.
    OtherDisk,
    /// The disk does not take it.
    Failed(String),
}

/// What is to be done with a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Add,
    Replace,
    Delete,
    /// It is as the other side has it.
    Same,
    Leave(Why),
}

/// Decides for every path. The order is that of `changes`.
pub(crate) fn decide(changes: &[(Change, Ours)], disk: &Disk, known: &[Vec<u8>]) -> Vec<Decision> {
    let mut decisions: Vec<Decision> = changes.iter().map(|(change, ours)| alone(change, ours, disk)).collect();
    if disk.ignores_case {
        leave_same_letters(changes, &mut decisions, known);
    }
    let deleted: BTreeSet<&[u8]> = changes
        .iter()
        .zip(&decisions)
        .filter(|(_, decision)| **decision == Decision::Delete)
        .map(|((change, _), _)| &change.path[..])
        .collect();
    for ((_, ours), decision) in changes.iter().zip(&mut decisions).filter(|(_, decision)| **decision == Decision::Add) {
        match &ours.there {
            There::Folder(Some(files)) if files.iter().all(|file| deleted.contains(&file[..])) => {}
            There::Folder(_) => *decision = Decision::Leave(Why::Folder),
            There::Below(above) if !deleted.contains(&above[..]) => *decision = Decision::Leave(Why::Below(text(above))),
            There::Below(_) | There::Nothing | There::File | There::Special | There::Inside(_) => {}
        }
    }
    decisions
}

/// What is to be done with a path as far as no other path counts.
fn alone(change: &Change, ours: &Ours, disk: &Disk) -> Decision {
    let is = |entry: &Option<Entry>, mode: u32| entry.as_ref().is_some_and(|entry| entry.mode == mode);
    if is(&change.base, REPOSITORY) || is(&change.theirs, REPOSITORY) {
        return Decision::Leave(Why::Repository(text(&change.path)));
    }
    if let There::Inside(repository) = &ours.there {
        return Decision::Leave(Why::Repository(text(repository)));
    }
    if ours.is_left_out {
        return Decision::Leave(Why::LeftOut);
    }
    if are_same(ours.entry.as_ref(), change.theirs.as_ref(), disk) && ours.there != There::Special {
        return match (&change.theirs, &ours.there) {
            // A file that git could not read is no file that is not there.
            (None, There::File) => Decision::Leave(Why::InTheWay),
            _ => Decision::Same,
        };
    }
    if !are_same(ours.entry.as_ref(), change.base.as_ref(), disk) {
        return Decision::Leave(if change.base.is_some() { Why::BothChanged } else { Why::InTheWay });
    }
    if change.theirs.is_some() {
        if let Some(why) = names::refused(&change.path, disk.windows_names) {
            return Decision::Leave(Why::Name(why));
        }
        if is(&change.theirs, LINK) && !disk.links {
            return Decision::Leave(Why::Links);
        }
    }
    match (&ours.entry, &change.theirs) {
        (None, Some(_)) if [There::File, There::Special].contains(&ours.there) => Decision::Leave(Why::InTheWay),
        (None, Some(_)) => Decision::Add,
        (Some(_), Some(_)) => Decision::Replace,
        (_, None) => Decision::Delete,
    }
}

fn are_same(one: Option<&Entry>, other: Option<&Entry>, disk: &Disk) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => one.object == other.object && (one.mode == other.mode || !disk.modes && is_file(one) && is_file(other)),
        _ => false,
    }
}

fn is_file(entry: &Entry) -> bool {
    entry.mode & 0o170_000 == 0o100_000
}

/// Leaves what such a disk would put in the place of something else, and what it would take away with it.
fn leave_same_letters(changes: &[(Change, Ours)], decisions: &mut [Decision], known: &[Vec<u8>]) {
    let mut spellings: HashMap<String, BTreeSet<&[u8]>> = HashMap::new();
    let written = changes.iter().zip(&*decisions).filter(|(_, decision)| **decision == Decision::Add).map(|((change, _), _)| &change.path);
    for path in known.iter().chain(written) {
        for end in (0..=path.len()).filter(|end| path.get(*end).is_none_or(|byte| *byte == b'/')) {
            let above = path.get(..end).unwrap_or_default();
            spellings.entry(folded(above)).or_default().insert(above);
        }
    }
    let other_spelling = |path: &[u8]| {
        (0..=path.len()).filter(|end| path.get(*end).is_none_or(|byte| *byte == b'/')).find_map(|end| {
            let above = path.get(..end).unwrap_or_default();
            spellings.get(&folded(above))?.iter().find(|other| **other != above).map(|other| text(other))
        })
    };
    for ((change, _), decision) in changes.iter().zip(decisions) {
        if [Decision::Add, Decision::Delete].contains(decision)
            && let Some(other) = other_spelling(&change.path)
        {
            *decision = Decision::Leave(Why::Case(other));
        }
    }
}

fn folded(path: &[u8]) -> String {
    String::from_utf8_lossy(path).to_lowercase()
}

pub(crate) fn text(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: Disk = Disk { modes: true, links: true, ignores_case: false, windows_names: false };

    /// `-` for nothing; else the content, with `*` before it for a program, `>` for a link and `@` for a repository.
    fn entry(text: &str) -> Option<Entry> {
        let (mode, object) = match text.split_at(1) {
            ("-", _) => return None,
            ("*", rest) => (0o100_755, rest),
            (">", rest) => (LINK, rest),
            ("@", rest) => (REPOSITORY, rest),
            _ => (0o100_644, text),
        };
        Some(Entry { mode, object: object.to_owned() })
    }

    fn row(path: &str, base: &str, ours: &str, theirs: &str) -> (Change, Ours) {
        let entry_of_ours = entry(ours);
        let there = if entry_of_ours.is_some() { There::File } else { There::Nothing };
        let change = Change { path: path.as_bytes().to_vec(), base: entry(base), theirs: entry(theirs) };
        (change, Ours { there, entry: entry_of_ours, is_left_out: false })
    }

    fn with(mut row: (Change, Ours), there: There) -> (Change, Ours) {
        row.1.there = there;
        row
    }

    #[test]
    fn a_path_that_only_the_other_side_has_changed_is_taken_and_one_that_both_have_is_left() {
        let without_modes = Disk { modes: false, ..DISK };
        for (base, ours, theirs, wanted) in [
            ("a", "a", "b", Decision::Replace),
            ("a", "a", "-", Decision::Delete),
            ("-", "-", "b", Decision::Add),
            ("a", "b", "b", Decision::Same),
            ("a", "-", "-", Decision::Same),
            ("-", "b", "b", Decision::Same),
            ("a", "c", "b", Decision::Leave(Why::BothChanged)),
            ("a", "c", "-", Decision::Leave(Why::BothChanged)),
            ("a", "-", "b", Decision::Leave(Why::BothChanged)),
            ("-", "c", "b", Decision::Leave(Why::InTheWay)),
            ("a", "a", "*a", Decision::Replace),
            ("a", "*a", "b", Decision::Leave(Why::BothChanged)),
            ("a", "*a", "*a", Decision::Same),
            ("a", "a", ">a", Decision::Replace),
            (">a", ">b", ">c", Decision::Leave(Why::BothChanged)),
            ("@a", "-", "@b", Decision::Leave(Why::Repository("p".into()))),
            ("-", "-", "@b", Decision::Leave(Why::Repository("p".into()))),
        ] {
            assert_eq!(decide(&[row("p", base, ours, theirs)], &DISK, &[]), [wanted], "{base} {ours} {theirs}");
        }
        assert_eq!(decide(&[row("p", "a", "*a", "b")], &without_modes, &[]), [Decision::Replace]);
        assert_eq!(decide(&[row("p", "-", "b", "*b")], &without_modes, &[]), [Decision::Same]);
        assert_eq!(decide(&[row("p", "-", "-", ">b")], &Disk { links: false, ..DISK }, &[]), [Decision::Leave(Why::Links)]);
    }

    #[test]
    fn what_git_does_not_know_of_is_in_the_way_and_what_is_left_out_stays_out() {
        let path = |text: &str| text.as_bytes().to_vec();
        for (there, wanted) in [
            (There::File, Why::InTheWay),
            (There::Special, Why::InTheWay),
            (There::Folder(Some(vec![path("p/x")])), Why::Folder),
            (There::Folder(None), Why::Folder),
            (There::Below(path("q")), Why::Below("q".into())),
            (There::Inside(path("q")), Why::Repository("q".into())),
        ] {
            assert_eq!(decide(&[with(row("p", "-", "-", "b"), there)], &DISK, &[]), [Decision::Leave(wanted)]);
        }
        let mut left_out = row("p", "a", "a", "b");
        left_out.1 = Ours { there: There::Nothing, entry: None, is_left_out: true };
        assert_eq!(decide(&[left_out], &DISK, &[]), [Decision::Leave(Why::LeftOut)]);
    }

    #[test]
    fn a_folder_takes_the_place_of_a_file_only_when_that_goes_and_the_other_way_round() {
        let below = || with(row("a/b", "-", "-", "x"), There::Below(b"a".to_vec()));
        assert_eq!(decide(&[row("a", "1", "1", "-"), below()], &DISK, &[]), [Decision::Delete, Decision::Add]);
        assert_eq!(decide(&[row("a", "1", "2", "-"), below()], &DISK, &[])[1], Decision::Leave(Why::Below("a".into())));
        let folder = |files: &[&str]| {
            let files = files.iter().map(|file| file.as_bytes().to_vec()).collect();
            with(row("a", "-", "-", "x"), There::Folder(Some(files)))
        };
        let inner = row("a/b", "1", "1", "-");
        assert_eq!(decide(&[folder(&["a/b"]), inner.clone()], &DISK, &[]), [Decision::Add, Decision::Delete]);
        assert_eq!(decide(&[folder(&["a/b", "a/c"]), inner], &DISK, &[]), [Decision::Leave(Why::Folder), Decision::Delete]);
    }

    #[test]
    fn names_that_the_disk_cannot_hold_or_tell_apart_are_left_by_name() {
        let windows = Disk { windows_names: true, ..DISK };
        let device = decide(&[row("a/aux.c", "-", "-", "x")], &windows, &[]);
        assert_eq!(device, [Decision::Leave(Why::Name("it is a device of Windows"))]);
        let caseless = Disk { ignores_case: true, ..DISK };
        let known = [b"Read/me".to_vec()];
        let case = |other: &str| Decision::Leave(Why::Case(other.to_owned()));
        for (rows, wanted) in [
            (vec![row("read/other", "-", "-", "x")], vec![case("Read")]),
            (vec![row("x", "-", "-", "1"), row("X", "-", "-", "2")], vec![case("X"), case("x")]),
            (vec![row("Read/me", "1", "1", "-"), row("Read/ME", "-", "-", "1")], vec![case("Read/ME"), case("Read/me")]),
            (vec![row("Read/me", "1", "1", "2"), row("Read/new", "-", "-", "1")], vec![Decision::Replace, Decision::Add]),
        ] {
            assert_eq!(decide(&rows, &caseless, &known), wanted, "{rows:?}");
            assert!(decide(&rows, &DISK, &known).iter().all(|decision| !matches!(decision, Decision::Leave(_))));
        }
    }
}
