//! Change lists of bounded size, from comparisons that can be cancelled.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::error::StepContext;
use crate::model::path_bytes;
use crate::{Change, ChangeKind, Error, NodeKind, SysError};

/// How many names are visited between two looks at [`ChangeLimits::is_cancelled`].
const NAMES_PER_CHECK: u32 = 64;
/// How many directories that are too deep are named.
const MAX_TOO_DEEP: usize = 10;

/// What a caller wants of a change list, and whether it still wants it.
pub struct ChangeLimits<'a> {
    /// The most paths.
    pub paths: usize,
    /// The most bytes that all paths have together.
    pub bytes: usize,
    /// Called again and again while the trees are compared. True ends the comparison with the reason [`crate::ErrorReason::Cancelled`].
    pub is_cancelled: &'a dyn Fn() -> bool,
    /// Called as often. True ends the comparison with what it has found, as a list that is cut.
    pub is_late: &'a dyn Fn() -> bool,
}

/// The time for a comparison is over.
#[derive(Debug, thiserror::Error)]
#[error("it took too long")]
struct OutOfTime;

/// Whether a comparison ended because its time was over.
pub(crate) fn is_out_of_time(error: &SysError) -> bool {
    error.source.get_ref().is_some_and(|source| source.is::<OutOfTime>())
}

impl ChangeLimits<'_> {
    /// Everything, to the end.
    pub const NONE: ChangeLimits<'static> =
        ChangeLimits { paths: usize::MAX, bytes: usize::MAX, is_cancelled: &|| false, is_late: &|| false };

    pub(crate) fn check(&self) -> Result<(), SysError> {
        if (self.is_cancelled)() {
            return Err(io::Error::from_raw_os_error(libc::ECANCELED)).step("compare the trees");
        }
        if (self.is_late)() { Err(io::Error::other(OutOfTime)).step("compare the trees") } else { Ok(()) }
    }
}

/// What differs between two trees.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeList {
    /// Sorted by path, and at one path a deletion before an addition. If the list is cut, these are the first, or those that were found in time.
    pub changes: Vec<Change>,
    /// Whether the limits, or the time, left something out.
    pub cut: bool,
    /// Directories more than 256 levels deep, at most ten: they are listed themselves, and what is in them is not.
    #[serde(default, serialize_with = "path_bytes::serialize_all", deserialize_with = "path_bytes::deserialize_all")]
    pub too_deep: Vec<PathBuf>,
}

/// Bytes of the path, and the rank of the kind: a deletion comes before an addition at the same path.
type Key = (Vec<u8>, u8);

fn rank(kind: ChangeKind) -> u8 {
    match kind {
        ChangeKind::Deleted => 0,
        ChangeKind::Modified => 1,
        ChangeKind::Added => 2,
    }
}

/// Keeps the first changes, in the order of [`ChangeList::changes`], of any number that come in any order.
pub(crate) struct ChangeCollector<'a> {
    limits: &'a ChangeLimits<'a>,
    kept: BTreeMap<Key, (ChangeKind, NodeKind)>,
    /// Of all paths in `kept`.
    bytes: usize,
    /// The first change that was left out. Whatever comes after it is left out, too.
    first_dropped: Option<Key>,
    too_deep: Vec<PathBuf>,
    unchecked: Cell<u32>,
}

impl<'a> ChangeCollector<'a> {
    pub fn new(limits: &'a ChangeLimits<'a>) -> Self {
        let (kept, unchecked) = (BTreeMap::new(), Cell::new(NAMES_PER_CHECK));
        ChangeCollector { limits, kept, bytes: 0, first_dropped: None, too_deep: Vec::new(), unchecked }
    }

    /// Called for each name that is visited. Fails if the caller no longer wants the list.
    pub fn visit(&self) -> Result<(), SysError> {
        match self.unchecked.get() {
            NAMES_PER_CHECK.. => {
                self.unchecked.set(1);
                self.limits.check()
            }
            n => {
                self.unchecked.set(n + 1);
                Ok(())
            }
        }
    }

    pub fn push(&mut self, path: &[u8], kind: ChangeKind, node: NodeKind) {
        if self.first_dropped.as_ref().is_some_and(|(first, first_rank)| (path, rank(kind)) >= (first.as_slice(), *first_rank)) {
            return;
        }
        if self.kept.insert((path.to_vec(), rank(kind)), (kind, node)).is_none() {
            self.bytes += path.len();
        }
        while self.kept.len() > self.limits.paths || self.bytes > self.limits.bytes {
            let Some((last, _)) = self.kept.pop_last() else { return };
            self.bytes -= last.0.len();
            self.first_dropped = Some(last);
        }
    }

    pub fn push_too_deep(&mut self, path: &[u8]) {
        let path = PathBuf::from(OsString::from_vec(path.to_vec()));
        if self.too_deep.len() < MAX_TOO_DEEP && !self.too_deep.contains(&path) {
            self.too_deep.push(path);
        }
    }

    /// The list, whose comparison ended so.
    pub fn end(self, compared: Result<(), Error>) -> Result<ChangeList, Error> {
        match compared {
            Ok(()) => Ok(self.finish()),
            Err(Error::Compare { source, .. }) if is_out_of_time(&source) => Ok(ChangeList { cut: true, ..self.finish() }),
            Err(error) => Err(error),
        }
    }

    fn finish(self) -> ChangeList {
        let change = |((path, _), (kind, node))| Change { path: PathBuf::from(OsString::from_vec(path)), kind, node };
        let changes = self.kept.into_iter().map(change).collect();
        ChangeList { changes, cut: self.first_dropped.is_some(), too_deep: self.too_deep }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(limits: &ChangeLimits, paths: &[&str]) -> (Vec<String>, bool) {
        let mut collector = ChangeCollector::new(limits);
        paths.iter().for_each(|path| collector.push(path.as_bytes(), ChangeKind::Added, NodeKind::File));
        let list = collector.finish();
        (list.changes.into_iter().map(|c| c.path.display().to_string()).collect(), list.cut)
    }

    #[test]
    fn the_first_paths_are_kept_in_whatever_order_they_come() {
        let two = ChangeLimits { paths: 2, ..ChangeLimits::NONE };
        for order in [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"]] {
            assert_eq!(list(&two, &order), (vec!["a".to_owned(), "b".to_owned()], true), "{order:?}");
        }
        assert_eq!(list(&two, &["b", "a", "b"]), (vec!["a".to_owned(), "b".to_owned()], false), "the same path twice");
    }

    #[test]
    fn a_long_path_that_is_left_out_leaves_no_room_for_a_later_one() {
        let six = ChangeLimits { bytes: 6, ..ChangeLimits::NONE };
        assert_eq!(list(&six, &["aa", "bbbbbbbb", "cc"]), (vec!["aa".to_owned()], true));
        assert_eq!(list(&six, &["cc", "bbbbbbbb", "aa"]), (vec!["aa".to_owned()], true));
    }
}
