//! The head of a segment, as far as the order of segments needs it.

use std::{io::ErrorKind, path::Path};

use serde::Deserialize;
use yoi_wire::entry::{SegmentLink, SegmentStarted};

use super::scan::only_sectors_are_missing;
use crate::{
    Damage, Error, Result,
    disk::{Disk, DiskFile, OpenMode, read_range},
    frame,
};

/// Bytes that are read first. Most heads are shorter.
const CHUNK: u64 = 16 << 10;

/// How a file begins.
#[derive(Clone, Debug)]
pub(crate) enum Head {
    /// It has no finished line: its writer died before the first append was durable.
    Unwritten,
    /// It begins a session. A segment of format 1 has no head and is of this kind too, whatever its place.
    First,
    /// It follows another segment.
    Linked {
        number: u64,
        link: SegmentLink,
        /// Sequence number of the head itself.
        seq: u64,
    },
    /// Its first line is not what was written.
    Damaged(Damage),
    /// Its first line is a head in a shape of a newer version.
    Newer,
}

impl Head {
    /// Returns how the file begins, or `None` when it is not there.
    pub(crate) fn read(disk: &dyn Disk, path: &Path) -> Result<Option<Self>> {
        let file = match disk.open(path, OpenMode::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::disk("open", path)(error)),
        };
        let line = first_line(&*file).map_err(Error::disk("read", path))?;
        Ok(Some(line.map_or(Self::Unwritten, |line| Self::parse(&line))))
    }

    fn parse(line: &[u8]) -> Self {
        let kind = match frame::decode::<Kind>(line) {
            Ok(line) => line.kind,
            // An append that was not finished may have a hole where its first sector belongs.
            Err(_) if only_sectors_are_missing(0, line) => return Self::Unwritten,
            Err(what) => return Self::Damaged(what),
        };
        if kind != KIND {
            return Self::First;
        }
        let Ok(HeadLine { seq, body: head }) = frame::parse(line) else { return Self::Newer };
        match head.previous {
            Some(link) => Self::Linked { number: head.number, link, seq },
            None => Self::Damaged(Damage::Head),
        }
    }
}

const KIND: &str = "SegmentStarted";

#[derive(Deserialize)]
struct Kind {
    kind: String,
}

#[derive(Deserialize)]
struct HeadLine {
    seq: u64,
    body: SegmentStarted,
}

/// Returns the bytes before the first newline, or `None` when there is none.
fn first_line(file: &dyn DiskFile) -> std::io::Result<Option<Vec<u8>>> {
    let (mut bytes, len) = (Vec::new(), file.len()?);
    loop {
        let from = bytes.len() as u64;
        // Each step doubles what is read.
        let more = read_range(file, from, len.min(from + from.max(CHUNK)))?;
        if let Some(end) = more.iter().position(|byte| *byte == b'\n') {
            bytes.extend_from_slice(&more[..end]);
            return Ok(Some(bytes));
        }
        if more.is_empty() {
            return Ok(None);
        }
        bytes.extend_from_slice(&more);
    }
}
