//! Finds a line of a segment from its end, without reading what stands before it.

use std::io;

use serde::Deserialize;

use crate::{
    disk::{DiskFile, read_range},
    frame,
};

const CHUNK: u64 = 64 << 10;

/// The numbers of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Numbers {
    pub seq: u64,
    pub batch: u64,
    pub run: u64,
}

/// Returns the last complete line before `end`, and the offset after it; `None` when there is none, or it is not what was written.
pub(crate) fn last_line(file: &dyn DiskFile, end: u64) -> io::Result<Option<(Numbers, u64)>> {
    find(file, end, |_| Some(0))
}

/// Returns the line with this sequence number, and the offset after it. `None` does not mean that it is not there: lines of another writer or
/// a torn end may stand in the way.
pub(crate) fn line_of_seq(file: &dyn DiskFile, end: u64, seq: u64) -> io::Result<Option<(Numbers, u64)>> {
    Ok(find(file, end, |last| last.seq.checked_sub(seq))?.filter(|(numbers, _)| numbers.seq == seq))
}

/// Returns the line that stands so many lines before the last one, as `before` says when it sees the last one.
fn find(file: &dyn DiskFile, end: u64, before: impl FnOnce(Numbers) -> Option<u64>) -> io::Result<Option<(Numbers, u64)>> {
    let mut newlines = Newlines { file, at: end, chunk: Vec::new() };
    let Some(mut line_end) = newlines.previous()? else { return Ok(None) };
    let (mut before, mut left) = (Some(before), 0);
    loop {
        let newline = newlines.previous()?;
        let numbers = || Ok::<_, io::Error>(frame::decode(&read_range(file, newline.map_or(0, |at| at + 1), line_end)?).ok());
        if let Some(before) = before.take() {
            match numbers()?.and_then(before) {
                Some(lines) => left = lines,
                None => return Ok(None),
            }
        }
        if left == 0 {
            return Ok(numbers()?.map(|numbers| (numbers, line_end + 1)));
        }
        left -= 1;
        match newline {
            Some(newline) => line_end = newline,
            None => return Ok(None),
        }
    }
}

/// The newlines of a file, from the last one to the first.
struct Newlines<'a> {
    file: &'a dyn DiskFile,
    /// Offset of the first byte of the chunk.
    at: u64,
    /// What of the chunk is not searched yet.
    chunk: Vec<u8>,
}

impl Newlines<'_> {
    /// Returns the offset of the next one.
    fn previous(&mut self) -> io::Result<Option<u64>> {
        loop {
            if let Some(found) = self.chunk.iter().rposition(|byte| *byte == b'\n') {
                self.chunk.truncate(found);
                return Ok(Some(self.at + found as u64));
            }
            if self.at == 0 {
                return Ok(None);
            }
            let to = self.at;
            self.at = to.saturating_sub(CHUNK);
            self.chunk = read_range(self.file, self.at, to)?;
        }
    }
}
