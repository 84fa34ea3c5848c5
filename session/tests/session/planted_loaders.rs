//! Loaders with planted faults, which the harness of the damage tests has to find.
#![expect(clippy::disallowed_macros, reason = "figures are shown with `--nocapture`")]

use yoi_test_support::Share;

use crate::{
    damage::{Kind, LogLoader, cuts, flips, gaps, splices, zeros},
    damage_harness::{LoadResult, SampleLog, trimmed_len},
};

fn assert_found(word: &str, kind: Kind, loader: &mut dyn FnMut(&[u8]) -> LoadResult) {
    let error = kind(&SampleLog::new(), &mut Share::all(), loader).expect_err("a planted fault went unnoticed");
    println!("seen: {error}");
    assert!(error.contains(word), "{error}");
}

#[test]
fn planted_a_checksum_that_is_not_compared_is_found() {
    let mut log = LogLoader::new(false);
    assert_found("damage accepted", flips, &mut |bytes| {
        // Each line gets the checksum that fits its content, so every checksum is right.
        let lines = bytes.split_inclusive(|byte| *byte == b'\n').map(|line| match line.strip_prefix(b"{\"crc\":\"") {
            Some(rest) if rest.len() > 11 && rest.ends_with(b"\n") => {
                let sum = format!("{:08x}", crc32c::crc32c(&rest[10..rest.len() - 1]));
                [b"{\"crc\":\"", sum.as_bytes(), &rest[8..]].concat()
            }
            _ => line.to_vec(),
        });
        log.load(&lines.collect::<Vec<_>>().concat())
    });
}

#[test]
fn planted_a_torn_tail_cut_one_record_too_far_is_found() {
    let mut log = LogLoader::new(false);
    assert_found("lost", cuts, &mut |bytes| match log.load(bytes) {
        LoadResult::Loaded { mut entries, cut } if cut > 0 => {
            entries.pop();
            LoadResult::Loaded { entries, cut }
        }
        found => found,
    });
}

#[test]
fn planted_zeros_accepted_in_the_middle_are_found() {
    let mut log = LogLoader::new(false);
    // Zeros at the end stay: they are no damage.
    assert_found("damage accepted", gaps, &mut |bytes| {
        log.load(&bytes[..trimmed_len(bytes)].iter().copied().filter(|byte| *byte != 0).collect::<Vec<_>>())
    });
}

#[test]
fn planted_damage_taken_for_a_torn_end_is_found() {
    let mut log = LogLoader::new(false);
    let sample = SampleLog::new();
    for kind in [flips as Kind, zeros, splices] {
        assert_found("damage accepted", kind, &mut |bytes| match log.load(bytes) {
            LoadResult::Damaged { line } => {
                let n = usize::try_from(line).unwrap() - 1;
                LoadResult::Loaded { entries: sample.entries[..n].to_vec(), cut: (bytes.len() - sample.starts[n]) as u64 }
            }
            found => found,
        });
    }
}

#[test]
fn planted_a_panic_is_found() {
    let mut log = LogLoader::new(false);
    assert_found("panicked", cuts, &mut |bytes| {
        assert!(std::str::from_utf8(bytes).is_ok(), "half a character");
        log.load(bytes)
    });
}
