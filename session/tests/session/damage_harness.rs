//! The harness of the damage tests: a sample log, what a damaged copy of it has to load as, and a check of what a loader makes of it.

use std::{
    fmt::Display,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
};

use yoi_test_support::Share;
use yoi_wire::entry::{Body, Entry, InputFrom, Notice};

use crate::fixture::*;

/// How many records are damaged, one at a time. Some more stand before them.
pub const RECORDS: usize = 64;
const SECTOR: usize = 512;
/// Records in each append. Only the last append may be torn, so single and joint ones also come near the end.
const APPENDS: [usize; 24] = [3, 1, 2, 1, 3, 10, 1, 1, 4, 1, 1, 1, 2, 3, 1, 5, 1, 1, 12, 1, 4, 1, 2, 6];

/// What a loader made of the bytes of a segment.
#[derive(Debug, PartialEq)]
pub enum LoadResult {
    /// It loaded these entries and cut so many bytes after them.
    Loaded { entries: Vec<Entry>, cut: u64 },
    /// It named this line as damaged, counted from 1.
    Damaged { line: u64 },
    /// It did what no loader may do.
    BrokenPromise(String),
}

/// What a loader has to make of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedLoad {
    /// It loads so many lines and cuts what follows.
    Prefix(usize),
    /// It names this line, counted from 1.
    Damaged(usize),
}

/// How many cases came out in which way.
#[derive(Clone, Copy, Debug, Default)]
pub struct Count {
    pub loaded: u64,
    pub damaged: u64,
}

impl Count {
    pub fn and(self, other: Self) -> Self {
        Self { loaded: self.loaded + other.loaded, damaged: self.damaged + other.damaged }
    }

    pub fn all(self) -> u64 {
        self.loaded + self.damaged
    }
}

/// An undamaged log.
pub struct SampleLog {
    pub whole: Vec<u8>,
    pub entries: Vec<Entry>,
    /// Offset at which each line begins, and that of the end.
    pub starts: Vec<usize>,
    /// Index of the first line of the last append.
    last_append: usize,
}

impl SampleLog {
    pub fn new() -> Self {
        let disk = disk();
        let (mut log, _) = open(&disk).unwrap();
        let (mut ids, mut entries, mut last_append) = (counter(), Vec::new(), 0);
        for size in APPENDS {
            last_append = entries.len();
            let bodies: Vec<Body> = (last_append..last_append + size).map(body).collect();
            entries.extend(log.append(&bodies, at(), &mut ids).unwrap());
        }
        log.close().unwrap();
        let whole = disk.bytes(&segment_path()).unwrap();
        let newlines = whole.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
        let starts: Vec<usize> = std::iter::once(0).chain(newlines).collect();
        assert!(entries.len() >= RECORDS && entries.len() + 1 == starts.len());
        Self { whole, entries, starts, last_append }
    }

    pub fn lines(&self) -> usize {
        self.entries.len()
    }

    /// Index of the first record that is damaged.
    pub fn first(&self) -> usize {
        self.lines() - RECORDS
    }

    /// The bytes of the records that are damaged.
    pub fn range(&self) -> Range<usize> {
        self.starts[self.first()]..self.whole.len()
    }

    pub fn line(&self, n: usize) -> &[u8] {
        &self.whole[self.starts[n]..self.starts[n + 1]]
    }

    fn line_of(&self, at: usize) -> usize {
        self.starts.partition_point(|start| *start <= at) - 1
    }

    /// Returns the bytes, and what they have to load as.
    pub fn with_expected(&self, bytes: Vec<u8>) -> (Vec<u8>, ExpectedLoad) {
        let expected = self.expected(&bytes);
        (bytes, expected)
    }

    /// Returns what bytes without zeros, except at their end, load as. Unchanged lines at the start load. The next line is damage when it is
    /// finished, and torn when it is not. A line that only lost its newline to another byte is damage too.
    pub fn expected(&self, bytes: &[u8]) -> ExpectedLoad {
        let bytes = &bytes[..trimmed_len(bytes)];
        let mut at = 0;
        for n in 0..=self.lines() {
            let rest = &bytes[at..];
            let original = if n < self.lines() { self.line(n) } else { &[] };
            if !original.is_empty() && rest.starts_with(original) {
                at += original.len();
                continue;
            }
            let only_the_newline = rest.len() == original.len() && rest.split_last().map(|l| l.1) == original.split_last().map(|l| l.1);
            let damaged = !rest.is_empty() && (rest.contains(&b'\n') || only_the_newline);
            return if damaged { ExpectedLoad::Damaged(n + 1) } else { ExpectedLoad::Prefix(n) };
        }
        unreachable!("a log that goes on after its end is one of the above")
    }

    /// Returns what a log with zeros at `from..to` loads as: missing sectors are torn in an append that nothing proves acknowledged. `end` is
    /// the offset in the sample log at which the last line ends that the zeros touch.
    pub fn expected_with_zeros(&self, from: usize, to: usize, end: usize) -> ExpectedLoad {
        let line = self.line_of(from);
        let sectors = (from.is_multiple_of(SECTOR) || from == self.starts[line]) && to.is_multiple_of(SECTOR);
        let later_append_follows = end < self.whole.len() && self.last_append > line;
        if sectors && !later_append_follows { ExpectedLoad::Prefix(line) } else { ExpectedLoad::Damaged(line + 1) }
    }

    /// Returns the log with zeros in place of `from..to`, and what it has to load as.
    pub fn with_zeros(&self, from: usize, to: usize) -> (Vec<u8>, ExpectedLoad) {
        let to = to.min(self.whole.len());
        let mut bytes = self.whole.clone();
        bytes[from..to].fill(0);
        let expected = if to == self.whole.len() {
            // Zeros up to the end are as if nothing was written there.
            self.expected(&bytes[..from])
        } else {
            // A line without its newline reaches into the next.
            self.expected_with_zeros(from, to, self.starts[self.line_of(to) + 1])
        };
        (bytes, expected)
    }

    /// Returns the log with `count` zeros inserted at `at`, and what it has to load as.
    pub fn with_zeros_inserted(&self, at: usize, count: usize) -> (Vec<u8>, ExpectedLoad) {
        let bytes = [&self.whole[..at], &vec![0; count], &self.whole[at..]].concat();
        let expected = if at == self.whole.len() {
            ExpectedLoad::Prefix(self.lines())
        } else {
            self.expected_with_zeros(at, at + count, self.starts[self.line_of(at) + 1])
        };
        (bytes, expected)
    }
}

fn body(n: usize) -> Body {
    match n % 7 {
        0 => input(&format!("t{n}"), InputFrom::Person),
        1 => run_started(&format!("r{n}")),
        2 => asks(&["a", "b"]),
        3 => tool_started("a"),
        4 => tool_ended("a"),
        // A few are longer than a sector.
        5 if n.is_multiple_of(4) => Body::Notice(Notice { reason: "Long".into(), message: "長い x".repeat(90) }),
        _ => notice(n),
    }
}

pub fn trimmed_len(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

/// Compares what a loader returns with what it has to return, in the cases that are tried.
pub struct Checker<'a> {
    sample: &'a SampleLog,
    loader: &'a mut dyn FnMut(&[u8]) -> LoadResult,
    share: &'a mut Share,
    pub count: Count,
}

impl<'a> Checker<'a> {
    pub fn new(sample: &'a SampleLog, loader: &'a mut dyn FnMut(&[u8]) -> LoadResult, share: &'a mut Share) -> Self {
        Self { sample, loader, share, count: Count::default() }
    }

    /// Loads what `damaged` returns, the bytes and what they have to load as, when this case is tried.
    ///
    /// # Errors
    /// Which promise the loader breaks.
    pub fn case(&mut self, what: impl Display, damaged: impl FnOnce() -> (Vec<u8>, ExpectedLoad)) -> Result<(), String> {
        if !self.share.takes_next() {
            return Ok(());
        }
        let (bytes, expected) = damaged();
        let found = catch_unwind(AssertUnwindSafe(|| (self.loader)(&bytes)));
        let entries = &self.sample.entries;
        let wrong = match (found, expected) {
            (Err(_), _) => "panicked".to_owned(),
            (Ok(LoadResult::BrokenPromise(why)), _) => why,
            (Ok(LoadResult::Loaded { entries: found, cut }), ExpectedLoad::Prefix(n)) if found == entries[..n] => {
                self.count.loaded += 1;
                let expected_cut = (trimmed_len(&bytes).saturating_sub(self.sample.starts[n])) as u64;
                if cut == expected_cut {
                    return Ok(());
                }
                format!("{cut} bytes were cut, not {expected_cut}")
            }
            (Ok(LoadResult::Damaged { line }), ExpectedLoad::Damaged(n)) if line == n as u64 => {
                self.count.damaged += 1;
                return Ok(());
            }
            (Ok(LoadResult::Loaded { entries: found, .. }), ExpectedLoad::Damaged(_)) => {
                format!("damage accepted: {} entries loaded", found.len())
            }
            (Ok(LoadResult::Loaded { entries: found, .. }), ExpectedLoad::Prefix(_)) => {
                match found.iter().zip(entries).position(|(a, b)| a != b) {
                    Some(at) => format!("damage accepted: entry {} is not what was written", at + 1),
                    None => format!("lost: {} entries loaded", found.len()),
                }
            }
            (Ok(LoadResult::Damaged { line }), _) => format!("line {line} is named"),
        };
        Err(format!("{what}: {wrong}; expected {expected:?}"))
    }
}
