//! The log of all that a disk was told, in the format of dm-log-writes, which QEMU's blklogwrites writes: a sector about the log, and for each write one
//! sector about it and its data.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

const SECTOR: u64 = 512;
const MAGIC: u64 = 0x006a_7366_7773_6872;

const FLUSH: u64 = 1;
const FUA: u64 = 2;

/// What a disk was told.
pub enum Entry {
    Write {
        at: u64,
        data: Vec<u8>,
    },
    /// All writes that were answered before are durable.
    Flush,
}

/// Reads a whole log.
pub fn read(path: &Path) -> Vec<Entry> {
    let mut log = BufReader::new(File::open(path).unwrap());
    let [magic, version, entries, size] = words(&mut log);
    assert_eq!((magic, version, size & 0xffff_ffff), (MAGIC, 1, SECTOR), "{} is no such log", path.display());
    let mut found = Vec::new();
    for _ in 0..entries {
        let [at, sectors, flags, _] = words(&mut log);
        assert_eq!(flags & !(FLUSH | FUA), 0, "the disk was to take no discards");
        if flags & FLUSH != 0 {
            found.push(Entry::Flush);
        }
        if sectors > 0 {
            let mut data = vec![0; (sectors * SECTOR) as usize];
            log.read_exact(&mut data).unwrap();
            found.push(Entry::Write { at: at * SECTOR, data });
        }
        if flags & FUA != 0 {
            found.push(Entry::Flush);
        }
    }
    found
}

/// Reads one sector that is about others: the numbers that it begins with.
fn words(log: &mut impl Read) -> [u64; 4] {
    let mut bytes = [0; SECTOR as usize];
    log.read_exact(&mut bytes).unwrap();
    [0, 8, 16, 24].map(|at| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()))
}
