//! What is wrong with a file of a session.

use std::fmt;

/// What is wrong with a complete line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    /// It does not begin with its checksum.
    Frame,
    /// The checksum is not that of the rest of the line.
    Checksum,
    /// The checksum is right, but the rest is not the record that belongs there. Holds the parser's message.
    Content(String),
    /// An entry is missing, doubled or out of place.
    Sequence {
        /// Sequence number that belongs there.
        expected: u64,
        /// Sequence number of the line.
        found: u64,
    },
    /// The entry names an append that it cannot be a part of.
    Batch {
        /// Sequence number of the entry.
        seq: u64,
        /// First sequence number of the append that the line names.
        batch: u64,
    },
    /// The run generation is lower than that of the entry before.
    Generation {
        /// Run generation of the entry before.
        before: u64,
        /// Run generation of the line.
        found: u64,
    },
    /// A segment that is not the last one ends in an unfinished line.
    Unfinished,
    /// The file has more than the one line that belongs there.
    Trailing,
    /// It is the head of a segment, but not one that could stand there.
    Head,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame => f.write_str("it does not begin with its checksum"),
            Self::Checksum => f.write_str("its checksum is wrong"),
            Self::Content(words) => write!(f, "its checksum is right but its content is not: {words}"),
            Self::Sequence { expected, found } => write!(f, "it is entry {found} where entry {expected} belongs"),
            Self::Batch { seq, batch } => write!(f, "entry {seq} cannot be of the append that began with {batch}"),
            Self::Generation { before, found } => write!(f, "its run generation is {found} after {before}"),
            Self::Unfinished => f.write_str("it is not finished, and a later segment follows"),
            Self::Trailing => f.write_str("there is more after it"),
            Self::Head => f.write_str("it is a segment's head that does not belong there"),
        }
    }
}

/// What is wrong between two files of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChainDamage {
    /// The other file is not there.
    Missing,
    /// The other file does not begin as a segment does, or the head of the first contradicts its link.
    Head(Damage),
    /// The other segment is not the one before.
    Number {
        /// Number that the other segment should have.
        expected: u64,
        /// Number that it has.
        found: u64,
    },
    /// The other file has no line that the link could mean: the entry that it names is missing.
    LastEntry {
        /// Sequence number that the link names.
        seq: u64,
    },
    /// The entry that the link names is not what it was when the link was made.
    Digest {
        /// Sequence number that the link names.
        seq: u64,
    },
    /// Both are the segment of this number.
    Doubled {
        /// The number.
        number: u64,
    },
    /// The other segment ends the chain, and this file is not in it.
    Unlinked,
}

impl fmt::Display for ChainDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("the second is missing"),
            Self::Head(what) => write!(f, "a segment does not begin as it must: {what}"),
            Self::Number { expected, found } => write!(f, "the second is segment {found} where segment {expected} belongs"),
            Self::LastEntry { seq } => write!(f, "the second does not hold entry {seq}, to which the first is linked"),
            Self::Digest { seq } => write!(f, "entry {seq} of the second is not the one to which the first is linked"),
            Self::Doubled { number } => write!(f, "both are segment {number}"),
            Self::Unlinked => f.write_str("the first is not among the segments that end with the second"),
        }
    }
}
