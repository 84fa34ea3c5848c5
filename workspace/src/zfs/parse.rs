//! Reads what `zfs` writes.
//!
//! Of its commands `get -Hp -o name,property,value,source` is read, which every version has, with sizes as whole numbers of bytes; and `diff -FH`. What a
//! refusal is about is told by its words, which differ by version; words that are not known are an error like any other, and are quoted.

use std::io;

use crate::SysError;
use crate::error::StepContext;

/// A dataset, a snapshot or a bookmark with the properties that were asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Dataset {
    pub name: String,
    pub kind: DatasetKind,
    properties: Vec<Property>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DatasetKind {
    Filesystem,
    Volume,
    Snapshot,
    Bookmark,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Property {
    name: String,
    value: String,
    /// Set on this dataset, not inherited, received or a default.
    is_local: bool,
}

impl Dataset {
    /// None if it is absent, which `zfs` writes as `-`.
    pub fn get(&self, property: &str) -> Option<&str> {
        self.properties.iter().find(|p| p.name == property).map(|p| &*p.value).filter(|value| *value != "-")
    }

    /// The value of a property that was set on this dataset itself.
    pub fn local(&self, property: &str) -> Option<&str> {
        self.properties.iter().find(|p| p.name == property && p.is_local).map(|p| &*p.value)
    }

    /// A property in bytes.
    pub fn bytes(&self, property: &str) -> Result<u64, SysError> {
        let value = self.get(property).unwrap_or_default();
        value.parse().map_err(|_| not_understood(&format!("{property} of {} is {value:?}", self.name))).step(READ)
    }
}

const READ: &str = "read what zfs says";

/// The answer to `get -Hp -o name,property,value,source type,...`, in the order of the answer.
pub(super) fn datasets(answer: &[u8]) -> Result<Vec<Dataset>, SysError> {
    let text = std::str::from_utf8(answer).map_err(|_| not_understood("it is not UTF-8")).step(READ)?;
    let mut found: Vec<Dataset> = Vec::new();
    for line in text.lines() {
        let [name, property, value, source] = line.split('\t').collect::<Vec<_>>()[..] else {
            return Err(not_understood(line)).step(READ);
        };
        if found.last().is_none_or(|last| last.name != name) {
            // It is asked for first.
            let kind = match (property, value) {
                ("type", "filesystem") => DatasetKind::Filesystem,
                ("type", "volume") => DatasetKind::Volume,
                ("type", "snapshot") => DatasetKind::Snapshot,
                ("type", "bookmark") => DatasetKind::Bookmark,
                _ => return Err(not_understood(line)).step(READ),
            };
            found.push(Dataset { name: name.to_owned(), kind, properties: Vec::new() });
            continue;
        }
        let is_local = match source {
            "local" => true,
            "-" | "default" | "temporary" | "received" | "none" => false,
            inherited if inherited.starts_with("inherited from ") => false,
            _ => return Err(not_understood(line)).step(READ),
        };
        if let Some(last) = found.last_mut() {
            last.properties.push(Property { name: property.to_owned(), value: value.to_owned(), is_local });
        }
    }
    Ok(found)
}

/// One line of `diff -FH`. Paths are those from the root of the dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Difference {
    pub is_dir: bool,
    /// The path that was there before or is there now.
    pub path: Vec<u8>,
    /// What it is called now, if it was renamed.
    pub renamed_to: Option<Vec<u8>>,
    /// Whether it got or lost a name, and only one of its names stands here.
    pub links_changed: bool,
}

/// A file that has no name any more and is still open.
const ON_DELETE_QUEUE: &[u8] = b"(on_delete_queue)";

/// The answer to `diff -FH`, of a dataset that is mounted at `mount_point`.
pub(super) fn differences(answer: &[u8], mount_point: &[u8]) -> Result<Vec<Difference>, SysError> {
    let unknown = |line: &[u8]| not_understood(&String::from_utf8_lossy(line));
    let path = |text: &[u8]| -> Option<Vec<u8>> {
        let path = unescape(text)?;
        match path.strip_prefix(mount_point)? {
            [b'/', rest @ ..] => Some(rest.to_vec()),
            _ => None,
        }
    };
    let mut found = Vec::new();
    for line in answer.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
        let fields: Vec<&[u8]> = line.split(|b| *b == b'\t').collect();
        let [change, [kind], first, rest @ ..] = &fields[..] else { return Err(unknown(line)).step(READ) };
        if first.strip_prefix(mount_point) == Some(ON_DELETE_QUEUE) {
            continue;
        }
        let is_dir = match kind {
            b'/' => true,
            b'F' | b'@' | b'|' | b'=' | b'B' | b'C' | b'>' | b'P' => false,
            _ => return Err(unknown(line)).step(READ),
        };
        let (renamed_to, links_changed) = match (*change, rest) {
            (b"M" | b"+" | b"-", []) => (None, false),
            (b"M", [links]) if links.starts_with(b"(") && links.ends_with(b")") => (None, true),
            (b"R", [to]) => (Some(path(to).ok_or_else(|| unknown(line)).step(READ)?), false),
            _ => return Err(unknown(line)).step(READ),
        };
        let path = path(first).ok_or_else(|| unknown(line)).step(READ)?;
        found.push(Difference { is_dir, path, renamed_to, links_changed });
    }
    Ok(found)
}

/// `zfs diff` writes a blank, a backslash and whatever is not printable ASCII as a backslash and four octal digits. None for another escape.
fn unescape(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, tail)) = rest.split_first() {
        rest = match (first, tail) {
            (b'\\', [b'0', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                out.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                after
            }
            (b'\\', _) => return None,
            _ => {
                out.push(first);
                tail
            }
        };
    }
    Some(out)
}

fn not_understood(what: &str) -> io::Error {
    let what: String = what.chars().take(200).collect();
    io::Error::new(io::ErrorKind::InvalidData, format!("zfs says what is not understood: {what:?}"))
}

/// What a refusal of `zfs` is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// There is no such dataset, snapshot or pool.
    Missing,
    Exists,
    Busy,
    /// It has clones, snapshots or child datasets.
    HasDependents,
    AlreadyMounted,
    OutOfSpace,
    /// A limit below what is used.
    BelowUsed,
    /// Anything else.
    Other,
}

/// Of each refusal, words that are in no other. The first that fits counts.
const WORDS: [(&str, Refusal); 15] = [
    ("has dependent clones", Refusal::HasDependents),
    ("has children", Refusal::HasDependents),
    ("filesystem already mounted", Refusal::AlreadyMounted),
    ("already exists", Refusal::Exists),
    ("dataset does not exist", Refusal::Missing),
    ("snapshot does not exist", Refusal::Missing),
    ("no such pool", Refusal::Missing),
    ("could not find any snapshots to destroy", Refusal::Missing),
    ("dataset is busy", Refusal::Busy),
    ("target is busy", Refusal::Busy),
    ("being held", Refusal::Busy),
    ("umount failed", Refusal::Busy),
    ("out of space", Refusal::OutOfSpace),
    ("No space left on device", Refusal::OutOfSpace),
    ("less than current used", Refusal::BelowUsed),
];

/// What the text on stderr is about.
pub(super) fn refusal(stderr: &str) -> Refusal {
    WORDS.iter().find(|(words, _)| stderr.contains(words)).map_or(Refusal::Other, |(_, refusal)| *refusal)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of OpenZFS 2.1.11. zfs-fuse 0.7.0 (pool version 28) writes the same lines.
    const TREE: &str = "tank/yoi/a\ttype\tfilesystem\t-\n\
        tank/yoi/a\torigin\ttank/yoi/base@a\t-\n\
        tank/yoi/a\tusedbydataset\t9216\t-\n\
        tank/yoi/a\tdev.yoi:uid\ta\tlocal\n\
        tank/yoi/a@b\ttype\tsnapshot\t-\n\
        tank/yoi/a@b\torigin\t-\t-\n\
        tank/yoi/a@b\tusedbydataset\t-\t-\n\
        tank/yoi/a@b\tdev.yoi:uid\ta\tinherited from tank/yoi/a\n";

    #[test]
    fn a_dataset_and_its_snapshot_are_read_with_their_properties() {
        let found = datasets(TREE.as_bytes()).unwrap();
        assert_eq!(
            found.iter().map(|d| (&*d.name, d.kind)).collect::<Vec<_>>(),
            [("tank/yoi/a", DatasetKind::Filesystem), ("tank/yoi/a@b", DatasetKind::Snapshot)]
        );
        assert_eq!((found[0].get("origin"), found[1].get("origin")), (Some("tank/yoi/base@a"), None));
        assert_eq!(found[0].bytes("usedbydataset").unwrap(), 9216);
        assert!(found[1].bytes("usedbydataset").is_err());
    }

    #[test]
    fn a_property_that_is_inherited_is_not_the_datasets_own() {
        let found = datasets(TREE.as_bytes()).unwrap();
        assert_eq!((found[0].local("dev.yoi:uid"), found[1].local("dev.yoi:uid")), (Some("a"), None));
        assert_eq!(found[1].get("dev.yoi:uid"), Some("a"));
    }

    #[test]
    fn no_answer_is_no_dataset() {
        assert_eq!(datasets(b"").unwrap(), []);
    }

    #[test]
    fn words_that_are_not_known_are_an_error_that_quotes_them() {
        let bad: [&[u8]; 6] = [
            b"NAME  PROPERTY  VALUE  SOURCE\n",
            b"tank\ttype\twormhole\t-\n",
            b"tank\torigin\t-\t-\n",
            b"tank\ttype\tfilesystem\n",
            b"tank\ttype\tfilesystem\t-\ntank\torigin\t-\tconjured\n",
            b"tank\xff\ttype\tfilesystem\t-\n",
        ];
        for answer in bad {
            let error = datasets(answer).unwrap_err();
            assert_eq!(error.step, "read what zfs says");
            assert!(error.source.to_string().starts_with("zfs says what is not understood: "), "{error:?}");
        }
        assert!(datasets(bad[1]).unwrap_err().source.to_string().contains("wormhole"));
    }

    /// What `zfs diff -FH` of OpenZFS 2.1.11 answered about a clone of that content: names with a blank, a backslash, a tab and a newline, a folder and a
    /// file renamed, another link, a link made anew, a pipe, and a file without a name that is still open.
    const DIFF: &str = "R\t/\t/mnt/c/d\t/mnt/c/e\n\
        -\t@\t/mnt/c/s\n\
        M\tF\t/mnt/c/keep\t(+1)\n\
        +\t/\t/mnt/c/new\n\
        +\t@\t/mnt/c/s\n\
        +\t|\t/mnt/c/q2\n\
        M\t/\t/mnt/c/\n\
        M\tF\t/mnt/c/f\n\
        R\tF\t/mnt/c/g\t/mnt/c/e/g2\n\
        -\tF\t/mnt/c/h\n\
        M\tF\t/mnt/c/a\\0040b\\0134c\n\
        M\tF\t/mnt/c/n\\0303\\0251\\0011t\\0012n\n\
        +\tF\t/mnt/c(on_delete_queue)\n";

    #[test]
    fn every_kind_of_difference_is_read_with_whatever_is_in_a_name() {
        let found = differences(DIFF.as_bytes(), b"/mnt/c").unwrap();
        let of = |is_dir, path: &[u8]| Difference { is_dir, path: path.to_vec(), renamed_to: None, links_changed: false };
        let expected = [
            Difference { renamed_to: Some(b"e".to_vec()), ..of(true, b"d") },
            of(false, b"s"),
            Difference { links_changed: true, ..of(false, b"keep") },
            of(true, b"new"),
            of(false, b"s"),
            of(false, b"q2"),
            of(true, b""),
            of(false, b"f"),
            Difference { renamed_to: Some(b"e/g2".to_vec()), ..of(false, b"g") },
            of(false, b"h"),
            of(false, b"a b\\c"),
            of(false, "n\u{e9}\tt\nn".as_bytes()),
        ];
        assert_eq!(found, expected);
        assert_eq!(differences(b"", b"/tmp/tree").unwrap(), []);
        assert_eq!(differences(b"-\tF\t/tmp/tree(on_delete_queue)\n", b"/tmp/tree").unwrap(), []);
    }

    #[test]
    fn a_difference_in_other_words_is_an_error_that_quotes_it() {
        let bad: [&[u8]; 9] = [
            b"M\tF\n",
            b"X\tF\t/tmp/tree/a\n",
            b"M\t?\t/tmp/tree/a\n",
            b"M\tF\t/elsewhere/a\n",
            b"M\tF\t/tmp/treeless\n",
            b"M\tF\t/tmp/tree/a\t/tmp/tree/b\n",
            b"R\tF\t/tmp/tree/a\n",
            b"+\tF\t/tmp/tree/a\\x20\n",
            b"+\tF\t/tmp/tree/a\\004\n",
        ];
        for answer in bad {
            let error = differences(answer, b"/tmp/tree").unwrap_err();
            assert!(error.source.to_string().starts_with("zfs says what is not understood: "), "{error:?}");
        }
    }

    #[test]
    fn refusals_are_told_apart_by_their_words() {
        let said = [
            ("cannot open 'tank/nope': dataset does not exist", Refusal::Missing),
            ("could not find any snapshots to destroy; check snapshot names.", Refusal::Missing),
            ("cannot create 'tank/x': dataset already exists", Refusal::Exists),
            ("cannot create snapshot 'tank/x@s': dataset already exists", Refusal::Exists),
            ("cannot mount 'tank/x': filesystem already mounted", Refusal::AlreadyMounted),
            ("cannot destroy 'tank/c': dataset is busy", Refusal::Busy),
            ("cannot unmount '/mnt/c': pool or dataset is busy", Refusal::Busy),
            ("umount: /m: target is busy.\ncannot unmount '/m': umount failed: umount child process failed", Refusal::Busy),
            ("cannot destroy snapshot tank/x@s: it's being held. Run 'zfs holds -r tank/x@s' to see holders.", Refusal::Busy),
            (
                "cannot destroy 'tank/x@s': snapshot has dependent clones\nuse '-R' to destroy the following datasets:\nt/c",
                Refusal::HasDependents,
            ),
            (
                "cannot destroy 'tank/x': filesystem has children\nuse '-r' to destroy the following datasets:\ntank/x@s",
                Refusal::HasDependents,
            ),
            ("cannot create 'tank/x': out of space", Refusal::OutOfSpace),
            ("The ZFS modules are not loaded.\nTry running '/sbin/modprobe zfs' as root to load them.", Refusal::Other),
            ("unrecognized command 'diff'", Refusal::Other),
        ];
        for (stderr, expected) in said {
            assert_eq!(refusal(stderr), expected, "{stderr}");
        }
    }
}
