//! The end of a segment to which the next one is linked.

use std::{io, path::Path};

use serde::Deserialize;
use yoi_wire::entry::SegmentLink;

use super::scan::digest;
use crate::{
    ChainDamage, Error, Result,
    disk::{DiskFile, read_range},
    frame,
};

const CHUNK: u64 = 64 << 10;

#[derive(Deserialize)]
struct Seq {
    seq: u64,
}

/// Returns what is wrong with the line that `link` names in the file; `None` when it is there as it was.
///
/// It is looked for from the end. After it there may be zeros and what another writer has appended.
pub(crate) fn check(file: &dyn DiskFile, path: &Path, link: &SegmentLink) -> Result<Option<ChainDamage>> {
    let mut damage = ChainDamage::LastEntry { seq: link.last_seq };
    let mut lines = LinesFromEnd::new(file).map_err(Error::disk("measure", path))?;
    while let Some(line) = lines.next().map_err(Error::disk("read", path))? {
        // A foreign line may follow zeros that this log had written ahead.
        let from = line.iter().position(|byte| *byte != 0).unwrap_or(line.len());
        let line = &line[from..];
        let names_it = frame::parse::<Seq>(line).is_ok_and(|found| found.seq == link.last_seq);
        if digest(line) == link.digest && names_it {
            return Ok(None);
        }
        if names_it {
            damage = ChainDamage::Digest { seq: link.last_seq };
        }
    }
    Ok(Some(damage))
}

/// The finished lines of a file, last one first, without their newlines.
struct LinesFromEnd<'a> {
    file: &'a dyn DiskFile,
    /// Offset of the first byte of `buffer`.
    at: u64,
    /// Unreturned bytes. Once the end of the last line is found, they end with a newline.
    buffer: Vec<u8>,
    trimmed: bool,
}

impl<'a> LinesFromEnd<'a> {
    fn new(file: &'a dyn DiskFile) -> io::Result<Self> {
        Ok(Self { file, at: file.len()?, buffer: Vec::new(), trimmed: false })
    }

    fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if !self.trimmed {
                // What follows the last newline is no line.
                let end = self.buffer.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
                self.trimmed = end > 0;
                self.buffer.truncate(end);
            }
            if let Some((_, before)) = self.buffer.split_last() {
                let start = before.iter().rposition(|byte| *byte == b'\n').map(|at| at + 1);
                if let Some(start) = start.or((self.at == 0).then_some(0)) {
                    let mut line = self.buffer.split_off(start);
                    line.pop();
                    return Ok(Some(line));
                }
            }
            if self.at == 0 {
                return Ok(None);
            }
            // Each step doubles what is read, so that a long line is searched about twice.
            let from = self.at.saturating_sub(CHUNK.max(self.buffer.len() as u64));
            let mut more = read_range(self.file, from, self.at)?;
            more.append(&mut self.buffer);
            (self.at, self.buffer) = (from, more);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::disk::{Disk, MemoryDisk, OpenMode, write_all};

    #[test]
    fn lines_come_from_the_end_whatever_their_length() {
        let disk = MemoryDisk::new(Path::new("/d"));
        let file = disk.open(Path::new("/d/f"), OpenMode::CreateNew).unwrap();
        let mut text = Vec::new();
        let mut lines: Vec<Vec<u8>> = Vec::new();
        for n in 0..40_usize {
            let line = vec![b'a' + u8::try_from(n % 26).unwrap(); n * n * 130];
            text.extend_from_slice(&line);
            text.push(b'\n');
            lines.push(line);
        }
        text.extend_from_slice(b"no line\0\0\0");
        text.resize(text.len() + 200_000, 0);
        write_all(&*file, &text, 0).unwrap();
        let mut from_end = LinesFromEnd::new(&*file).unwrap();
        while let Some(line) = from_end.next().unwrap() {
            assert!(Some(line) == lines.pop());
        }
        assert!(lines.is_empty());
    }
}
