//! Reads the lines of a segment, and tells a torn end from damage.
//!
//! An append is one write and one sync, so only the last append of a segment can be unacknowledged. A crash leaves of it nothing, a
//! beginning, or any of its sectors with zeros in place of the others. The first two end without a newline. The third may hold complete
//! lines with wrong checksums. It differs from damage in three ways: whole sectors are missing, they read as zeros, and no line of a later
//! append follows.

use std::{
    io,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use sha2::{Digest, Sha256};
use yoi_wire::entry::Entry;

use crate::{
    Damage, Error, Result,
    disk::{DiskFile, read_range},
    frame,
};

const SECTOR: u64 = 512;
const CHUNK: u64 = 256 << 10;

/// Splits a file at its newlines. The last line is what follows the last newline.
#[derive(Debug)]
struct RawLines {
    end: u64,
    /// Offset in the file of the first unread byte of the buffer.
    at: u64,
    buffer: Vec<u8>,
    /// How much of the buffer is read.
    read: usize,
    /// How much of the buffer is searched: it has no newline between `read` and here.
    searched: usize,
}

struct RawLine {
    /// Offset in the file.
    at: u64,
    /// Without the newline.
    bytes: Vec<u8>,
    /// Whether a newline ends it.
    complete: bool,
}

impl RawLines {
    fn new(at: u64, end: u64) -> Self {
        Self { end, at, buffer: Vec::new(), read: 0, searched: 0 }
    }

    /// Returns the next line, or `None` at the end of the file.
    fn next(&mut self, file: &dyn DiskFile) -> io::Result<Option<RawLine>> {
        loop {
            if let Some(found) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') {
                return Ok(Some(self.take(self.searched + found, true)));
            }
            self.searched = self.buffer.len();
            let from = self.at + (self.buffer.len() - self.read) as u64;
            let more = if from < self.end { read_range(file, from, self.end.min(from + CHUNK))? } else { Vec::new() };
            if more.is_empty() {
                return Ok((self.read < self.buffer.len()).then(|| self.take(self.buffer.len(), false)));
            }
            self.searched -= self.read;
            self.buffer.drain(..self.read);
            self.read = 0;
            self.buffer.extend_from_slice(&more);
        }
    }

    fn take(&mut self, until: usize, complete: bool) -> RawLine {
        let bytes = self.buffer[self.read..until].to_vec();
        let at = self.at;
        self.read = until + usize::from(complete);
        self.searched = self.read;
        self.at += bytes.len() as u64 + u64::from(complete);
        RawLine { at, bytes, complete }
    }
}

/// A line with a valid checksum, a known record and the right numbers.
pub(crate) struct Line {
    /// Offset at which it begins in the file.
    pub at: u64,
    /// Offset at which the next line begins.
    pub end: u64,
    pub batch: u64,
    pub entry: Entry,
    /// As it stands in the file, without the newline.
    bytes: Vec<u8>,
}

impl Line {
    /// Returns what a link to this entry has to hold.
    pub(crate) fn digest(&self) -> String {
        digest(&self.bytes)
    }
}

/// Hex SHA-256 of a line without its newline.
pub(crate) fn digest(line: &[u8]) -> String {
    hex::encode(Sha256::digest(line))
}

pub(crate) enum Scanned {
    Line(Box<Line>),
    /// There are no more lines.
    End {
        /// Bytes of an unfinished append that follow, without the zeros after it.
        torn: u64,
    },
}

/// The numbers that the next line has to have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    pub seq: u64,
    /// Its batch is this, or its own sequence number.
    pub batch: u64,
    /// Its run generation is at least this.
    pub run: u64,
}

impl Expected {
    /// For the first line of a session.
    pub(crate) const FIRST: Self = Self { seq: 1, batch: 1, run: 0 };

    /// For the first line of a segment that is linked to entry `seq` as the last one before it.
    pub(crate) fn after_link(seq: u64) -> Self {
        Self { seq: seq.saturating_add(1), batch: seq.saturating_add(1), run: 0 }
    }

    fn after(line: &Line) -> Self {
        Self { seq: line.entry.seq + 1, batch: line.batch, run: line.entry.run }
    }
}

/// Reads the lines of one segment in order.
pub(crate) struct Scanner<'a> {
    file: &'a dyn DiskFile,
    path: &'a Path,
    raw_lines: RawLines,
    /// Number of the next line, counted from 1.
    line: u64,
    expected: Expected,
}

#[derive(Deserialize)]
struct Batch {
    batch: u64,
}

impl<'a> Scanner<'a> {
    /// Returns a scanner from offset `at`, where line number `line` of the segment begins, up to offset `end`.
    pub(crate) fn new(file: &'a dyn DiskFile, path: &'a Path, (at, end): (u64, u64), line: u64, expected: Expected) -> Self {
        Self { file, path, raw_lines: RawLines::new(at, end), line, expected }
    }

    pub(crate) fn expected(&self) -> Expected {
        self.expected
    }

    /// Returns the number of the next line, counted from 1.
    pub(crate) fn line_number(&self) -> u64 {
        self.line
    }

    pub(crate) fn next(&mut self) -> Result<Scanned> {
        let Some(raw) = self.next_raw_line()? else { return Ok(Scanned::End { torn: 0 }) };
        if !raw.complete {
            return self.scan_tail(&raw);
        }
        match check(raw, self.expected) {
            Ok(line) => {
                self.expected = Expected::after(&line);
                self.line += 1;
                Ok(Scanned::Line(Box::new(line)))
            }
            Err((raw, what)) => match self.torn_bytes(&raw)? {
                Some(torn) => Ok(Scanned::End { torn }),
                None => Err(self.damage(what)),
            },
        }
    }

    fn next_raw_line(&mut self) -> Result<Option<RawLine>> {
        self.raw_lines.next(self.file).map_err(Error::disk("read", self.path))
    }

    fn damage(&self, what: Damage) -> Error {
        Error::Damaged { file: PathBuf::from(self.path), line: self.line, what }
    }

    /// Handles the bytes after the last newline. They are torn, with one exception: a whole valid line followed by one byte that is not zero
    /// was finished once, and its newline is damaged.
    fn scan_tail(&self, raw: &RawLine) -> Result<Scanned> {
        let torn = trimmed_len(&raw.bytes);
        let text = &raw.bytes[..torn];
        if let Some((_, line)) = text.split_last()
            && frame::verify(line).is_ok()
        {
            return Err(self.damage(Damage::Frame));
        }
        Ok(Scanned::End { torn: torn as u64 })
    }

    /// Returns how many bytes are torn, when an invalid complete line and all that follows it are an append that was not acknowledged.
    fn torn_bytes(&mut self, first: &RawLine) -> Result<Option<u64>> {
        if !only_sectors_are_missing(first.at, &first.bytes) {
            return Ok(None);
        }
        let mut end = first.at + first.bytes.len() as u64 + 1;
        while let Some(raw) = self.next_raw_line()? {
            if !raw.complete {
                end = raw.at + trimmed_len(&raw.bytes) as u64;
                break;
            }
            end = raw.at + raw.bytes.len() as u64 + 1;
            match frame::decode::<Batch>(&raw.bytes) {
                Ok(Batch { batch }) if batch > self.expected.seq => return Ok(None),
                Ok(_) => {}
                Err(_) if only_sectors_are_missing(raw.at, &raw.bytes) => {}
                Err(_) => return Ok(None),
            }
        }
        Ok(Some(end - first.at))
    }
}

fn check(raw: RawLine, expected: Expected) -> Result<Line, (RawLine, Damage)> {
    match parse(&raw.bytes, expected) {
        Ok((batch, entry)) => {
            let end = raw.at + raw.bytes.len() as u64 + 1;
            Ok(Line { at: raw.at, end, batch, entry, bytes: raw.bytes })
        }
        Err(what) => Err((raw, what)),
    }
}

fn parse(line: &[u8], expected: Expected) -> Result<(u64, Entry), Damage> {
    let Batch { batch } = frame::decode(line)?;
    let entry: Entry = frame::parse(line)?;
    let seq = expected.seq;
    if entry.seq != seq {
        return Err(Damage::Sequence { expected: seq, found: entry.seq });
    }
    if batch != seq && batch != expected.batch {
        return Err(Damage::Batch { seq, batch });
    }
    if entry.run < expected.run {
        return Err(Damage::Generation { before: expected.run, found: entry.run });
    }
    Ok((batch, entry))
}

/// Returns the length without the zeros at the end.
fn trimmed_len(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

/// Returns whether a line that begins at offset `start` holds zeros, and all of them could be missing sectors: each run of zeros begins at
/// the start of a sector or of the line, and ends at the end of a sector. A line has no zeros of its own.
pub(crate) fn only_sectors_are_missing(start: u64, line: &[u8]) -> bool {
    let mut holes = 0;
    let mut from = start;
    for run in line.chunk_by(|a, b| (*a == 0) == (*b == 0)) {
        let to = from + run.len() as u64;
        if run[0] == 0 {
            if (from != start && !from.is_multiple_of(SECTOR)) || !to.is_multiple_of(SECTOR) {
                return false;
            }
            holes += 1;
        }
        from = to;
    }
    holes > 0
}
