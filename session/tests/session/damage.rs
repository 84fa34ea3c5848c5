//! Damages a log in every place: bytes are cut, changed, zeroed, inserted, lines and pieces are moved. The log loads the lines before the
//! damage or names the damaged line. It never returns an entry that was not written.
#![expect(clippy::disallowed_macros, reason = "figures are shown with `--nocapture`")]

use std::sync::Arc;

use yoi_session::{Damage, Error, Lock, Log, Preallocate, disk::MemoryDisk};
use yoi_test_support::Share;
use yoi_wire::entry::Entry;

use crate::{
    damage_harness::{Checker, Count, ExpectedLoad, LoadResult, SampleLog, trimmed_len},
    fixture::*,
};

/// A disk records each operation, so after this many loads the loader takes a new one.
const LOADS: usize = 500;

/// Loads bytes as a log. It also checks that a damaged file is left as it was, and that a torn one is cut where the replay says.
pub struct LogLoader {
    disk: MemoryDisk,
    lock: Arc<Lock>,
    loads: usize,
    /// Whether every fifth log gets one more entry and is opened again.
    appends: bool,
}

impl LogLoader {
    pub fn new(appends: bool) -> Self {
        let disk = disk();
        let lock = take(&disk, 1).unwrap();
        Self { disk, lock, loads: 0, appends }
    }

    pub fn load(&mut self, bytes: &[u8]) -> LoadResult {
        self.loads += 1;
        if self.loads.is_multiple_of(LOADS) {
            *self = Self { loads: self.loads, ..Self::new(self.appends) };
        }
        let path = segment_path();
        self.disk.set_bytes(&path, bytes);
        let preallocate = if self.loads.is_multiple_of(2) { Preallocate::Off } else { SMALL };
        match Log::open(&self.lock, SESSION, preallocate) {
            Ok((log, replay)) => {
                let cut = replay.cut_bytes();
                let left = self.disk.bytes(&path).unwrap();
                let kept = trimmed_len(bytes) - usize::try_from(cut).unwrap();
                if trimmed_len(&left) != kept || left[..kept] != bytes[..kept] || (cut > 0 && left.len() != kept) {
                    return LoadResult::BrokenPromise(format!("{} bytes are left, {kept} belong there", left.len()));
                }
                if self.appends && self.loads.is_multiple_of(5) {
                    self.append_and_reopen(log, replay.entries, cut)
                } else {
                    LoadResult::Loaded { entries: replay.entries, cut }
                }
            }
            Err(Error::Damaged { file, line, .. }) => {
                if file != path {
                    return LoadResult::BrokenPromise(format!("the damage is said to be in {}", file.display()));
                }
                if self.disk.bytes(&path).unwrap() != bytes {
                    return LoadResult::BrokenPromise("a damaged log was changed".to_owned());
                }
                LoadResult::Damaged { line }
            }
            Err(other) => LoadResult::BrokenPromise(other.to_string()),
        }
    }

    fn append_and_reopen(&mut self, mut log: Log, entries: Vec<Entry>, cut: u64) -> LoadResult {
        let new = match log.append(&[notice(99)], at(), &mut counter()) {
            Ok(new) => new,
            Err(error) => return LoadResult::BrokenPromise(format!("cannot be appended to: {error}")),
        };
        drop(log);
        match Log::open(&self.lock, SESSION, Preallocate::Off) {
            Ok((_, again)) if again.cut.is_none() && again.entries.strip_suffix(&*new) == Some(&entries) => {
                LoadResult::Loaded { entries, cut }
            }
            Ok((_, again)) => LoadResult::BrokenPromise(format!("after an append: {} entries, cut {:?}", again.entries.len(), again.cut)),
            Err(error) => LoadResult::BrokenPromise(format!("after an append: {error}")),
        }
    }
}

/// A loader under test.
type Loader<'a> = &'a mut dyn FnMut(&[u8]) -> LoadResult;

/// Applies one kind of damage in every place, tries the share of the cases, and stops where the loader breaks a promise.
pub type Kind = fn(&SampleLog, &mut Share, Loader<'_>) -> Result<Count, String>;

/// Cuts the log at every byte, in a file that ends there and in one with zeros ahead.
pub fn cuts(sample: &SampleLog, share: &mut Share, loader: Loader<'_>) -> Result<Count, String> {
    let mut checker = Checker::new(sample, loader, share);
    for cut in sample.range().start..=sample.whole.len() {
        let bytes = &sample.whole[..cut];
        let expected = || {
            let expected = sample.expected(bytes);
            assert!(matches!(expected, ExpectedLoad::Prefix(_)), "what is only cut is not damaged");
            expected
        };
        checker.case(format_args!("cut at {cut}"), || (bytes.to_vec(), expected()))?;
        checker.case(format_args!("cut at {cut}, zeros ahead"), || {
            let mut longer = bytes.to_vec();
            longer.resize(sample.whole.len() + 600, 0);
            (longer, expected())
        })?;
    }
    Ok(checker.count)
}

/// Changes every byte in four ways: one bit, the case of a letter, the top bit, all bits.
pub fn flips(sample: &SampleLog, share: &mut Share, loader: Loader<'_>) -> Result<Count, String> {
    let mut checker = Checker::new(sample, loader, share);
    for at in sample.range() {
        for mask in [1 << (at % 8), 0x20, 0x80, 0xff] {
            checker.case(format_args!("byte {at} flipped by {mask:#04x}"), || {
                let mut bytes = sample.whole.clone();
                bytes[at] ^= mask;
                // A byte that becomes zero may look like the last byte of a missing sector.
                if bytes[at] == 0 { (bytes, sample.with_zeros(at, at + 1).1) } else { sample.with_expected(bytes) }
            })?;
        }
    }
    Ok(checker.count)
}

/// Overwrites with zeros from every byte on: one byte, some bytes, a sector's length, and up to the end of the sector.
pub fn zeros(sample: &SampleLog, share: &mut Share, loader: Loader<'_>) -> Result<Count, String> {
    let mut checker = Checker::new(sample, loader, share);
    for from in sample.range() {
        for to in [from + 1, from + 40, from + 512, (from + 1).next_multiple_of(512)] {
            checker.case(format_args!("zeros at {from}..{to}"), || sample.with_zeros(from, to))?;
        }
    }
    let overwritten = checker.count;
    Ok(overwritten.and(gaps(sample, share, loader)?))
}

/// Inserts zeros between lines.
pub fn gaps(sample: &SampleLog, share: &mut Share, loader: Loader<'_>) -> Result<Count, String> {
    let mut checker = Checker::new(sample, loader, share);
    for n in sample.first()..=sample.lines() {
        let at = sample.starts[n];
        for count in [1, 7, 512, 4096, (at + 1).next_multiple_of(512) - at] {
            checker.case(format_args!("{count} zeros before line {}", n + 1), || sample.with_zeros_inserted(at, count))?;
        }
    }
    Ok(checker.count)
}

/// Inserts one byte at every place.
pub fn inserts(sample: &SampleLog, share: &mut Share, loader: Loader<'_>) -> Result<Count, String> {
    let mut checker = Checker::new(sample, loader, share);
    for at in sample.range().start..=sample.whole.len() {
        for byte in [b'\n', b' '] {
            checker.case(format_args!("{:?} inserted at {at}", char::from(byte)), || {
                let mut bytes = sample.whole.clone();
                bytes.insert(at, byte);
                sample.with_expected(bytes)
            })?;
        }
        checker.case(format_args!("a zero inserted at {at}"), || sample.with_zeros_inserted(at, 1))?;
    }
    Ok(checker.count)
}

/// Returns the lines after a change, and what they have to load as.
fn moved<'a>(sample: &SampleLog, lines: &[&'a [u8]], change: impl FnOnce(&mut Vec<&'a [u8]>)) -> (Vec<u8>, ExpectedLoad) {
    let mut moved = lines.to_vec();
    change(&mut moved);
    sample.with_expected(moved.concat())
}

/// Drops, doubles, swaps and replaces lines, and joins the log up to one byte with the log from another byte on.
pub fn splices(sample: &SampleLog, share: &mut Share, loader: Loader<'_>) -> Result<Count, String> {
    let mut checker = Checker::new(sample, loader, share);
    let lines: Vec<&[u8]> = (0..sample.lines()).map(|n| sample.line(n)).collect();
    for a in sample.first()..lines.len() {
        checker.case(format_args!("line {a} dropped"), || moved(sample, &lines, |moved| _ = moved.remove(a)))?;
        for b in sample.first()..lines.len() {
            checker.case(format_args!("line {a} doubled at {b}"), || moved(sample, &lines, |moved| moved.insert(b, lines[a])))?;
            checker.case(format_args!("line {a} swapped with {b}"), || moved(sample, &lines, |moved| moved.swap(a, b)))?;
            checker.case(format_args!("line {a} in the place of {b}"), || moved(sample, &lines, |moved| moved[b] = lines[a]))?;
        }
    }
    let (range, mut place) = (sample.range(), 0_usize);
    for front in range.clone() {
        for _ in 0..2 {
            // The step has no divisor in common with the length of the range, so all places come, in a mixed order.
            place = (place + 7_368_787) % (range.len() + 1);
            let back = range.start + place;
            checker.case(format_args!("the file up to {front}, then from {back}"), || {
                sample.with_expected([&sample.whole[..front], &sample.whole[back..]].concat())
            })?;
        }
    }
    Ok(checker.count)
}

/// Every eighth damage at each landing.
fn assert_kept(what: &str, kind: Kind, log: &mut LogLoader, at_least: u64) {
    let mut share = Share::one_in(8);
    let count = kind(&SampleLog::new(), &mut share, &mut |bytes| log.load(bytes)).unwrap_or_else(|error| panic!("{error}\n{share}"));
    println!("damage to the log: {what}: {share}: {} loaded a prefix, {} named a line", count.loaded, count.damaged);
    assert!(share.seen() >= at_least, "{what}: {share}, of at least {at_least}");
    assert_eq!(count.all(), share.tried(), "{what}: a case that is tried is counted");
}

#[test]
fn the_last_64_records_may_be_cut_at_every_byte_and_the_log_goes_on() {
    assert_kept("cuts", cuts, &mut LogLoader::new(true), 28_000);
}

#[test]
fn every_flipped_byte_is_found_in_its_line() {
    assert_kept("flips", flips, &mut LogLoader::new(false), 56_000);
}

#[test]
fn zeros_are_damage_but_for_sectors_of_the_last_append() {
    assert_kept("zeros", zeros, &mut LogLoader::new(false), 56_000);
}

#[test]
fn an_inserted_byte_is_found_in_its_line() {
    assert_kept("inserts", inserts, &mut LogLoader::new(false), 42_000);
}

#[test]
fn lines_and_pieces_cannot_be_moved_doubled_dropped_or_joined() {
    assert_kept("splices", splices, &mut LogLoader::new(false), 40_000);
}

#[test]
fn a_complete_line_that_no_log_wrote_is_damage() {
    let (sample, mut log) = (SampleLog::new(), LogLoader::new(false));
    for foreign in [b"\n".as_slice(), b"{}\n", b"\0\n", b"\xff\xfe\n", b"{\"crc\":\"00000000\",}\n"] {
        let bytes = [&sample.whole, foreign].concat();
        assert_eq!(log.load(&bytes), LoadResult::Damaged { line: sample.lines() as u64 + 1 }, "{foreign:?}");
    }
}

#[test]
fn a_run_generation_never_goes_back() {
    let disk = disk();
    let bytes = [line(1, 1, "Notice", false), line(2, 1, "Notice", false), line(3, 0, "Notice", false)].concat();
    disk.set_bytes(&segment_path(), &bytes);
    assert!(matches!(open(&disk), Err(Error::Damaged { line: 3, what: Damage::Generation { before: 1, found: 0 }, .. })));
    let bytes = [line(1, 1, "Notice", false), line(2, 7, "Notice", false)].concat();
    disk.set_bytes(&segment_path(), &bytes);
    assert!(matches!(open(&disk), Err(Error::LowerGeneration { ours: 1, seen: 7 })));
    assert_eq!(disk.bytes(&segment_path()).unwrap(), bytes);
}

#[test]
fn sectors_missing_from_the_last_append_are_torn_and_from_an_earlier_one_damage() {
    let (disk, entries) = crate::fixture::written(&[2, 20, 2, 20]);
    let whole = disk.bytes(&segment_path()).unwrap();
    let starts: Vec<usize> =
        std::iter::once(0).chain(whole.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(at, _)| at + 1)).collect();
    let (early, last) = (starts[2]..starts[22], starts[24]..whole.len());
    for sector in 0..=whole.len() / 512 {
        for (reach, of) in [(512, &last), (4096, &last), (512, &early), (4096, &early)] {
            let (from, to) = ((sector * 512).max(of.start), (sector * 512 + reach).min(of.end));
            if from >= to {
                continue;
            }
            let mut bytes = whole.clone();
            bytes[from..to].fill(0);
            let first = starts.iter().rposition(|start| *start <= from).unwrap();
            disk.set_bytes(&segment_path(), &bytes);
            match open(&disk) {
                Ok((_, replay)) => {
                    assert_eq!(of, &last, "an acknowledged append was dropped: {from}..{to}");
                    assert_eq!(replay.entries, entries[..first]);
                }
                Err(Error::Damaged { line, .. }) => {
                    assert_eq!(of, &early, "an unfinished append kept the log from opening: {from}..{to}");
                    assert_eq!(line, first as u64 + 1);
                }
                Err(other) => panic!("{other}"),
            }
        }
    }
}
