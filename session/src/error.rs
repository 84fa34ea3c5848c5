//! Errors of the session volume, one variant for each operation that fails.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use uuid::Uuid;

use crate::lock::Holder;

mod damage;

pub use damage::{ChainDamage, Damage};

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation on the session volume failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error("failed to {operation} {}", path.display())]
    Disk {
        /// What the crate was doing, as a verb: `sync`.
        operation: &'static str,
        /// The file or folder that it was done to.
        path: PathBuf,
        /// The answer of the system.
        source: io::Error,
    },
    /// Another process has the lock of the volume.
    #[error("failed to take the lock {}: it is held by {}", path.display(), HolderText(holder))]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// Who holds it; `None` when the lock file does not say.
        holder: Option<Holder>,
    },
    /// A later Pod of this agent has written to the volume.
    #[error("failed to take the session volume for run generation {ours}: generation {seen} has already written to it")]
    LowerGeneration {
        /// Run generation of this process.
        ours: u64,
        /// Highest run generation on the volume.
        seen: u64,
    },
    /// A complete line is not what was written.
    #[error("failed to read {} line {line}: {what}", file.display())]
    Damaged {
        /// The damaged file. It is left as it is.
        file: PathBuf,
        /// The damaged line, counted from 1.
        line: u64,
        /// What is wrong with it.
        what: Damage,
    },
    /// The segments of a session are not one chain.
    #[error("failed to follow the segments of a session from {} to {}: {what}", file.display(), other.display())]
    ChainDamaged {
        /// The file that names the other one, or that is not of the chain. It is left as it is.
        file: PathBuf,
        /// The file that is named, or that the chain has in its place.
        other: PathBuf,
        /// What is wrong between them.
        what: ChainDamage,
    },
    /// Another writer has appended to the segment. What it wrote stays; [`crate::Log::rotate`] goes on from the last entry of this log.
    #[error("failed to append to {}: another writer has appended to it", file.display())]
    ForeignAppend {
        /// The segment.
        file: PathBuf,
    },
    /// A new segment would not have the state of those before it.
    #[error("failed to begin a segment after {}: what it carries does not begin with the state of the session", file.display())]
    StateNotCarried {
        /// The segment before.
        file: PathBuf,
    },
    /// A segment without an entry has none that the next one could link to.
    #[error("failed to begin a segment after {}: it has no entry", file.display())]
    EmptySegment {
        /// The segment.
        file: PathBuf,
    },
    /// The volume names another session as the agent's, and the end of a segment is recorded only for that one.
    #[error("failed to begin a segment of session {session}: the agent's session is {current}")]
    NotCurrent {
        /// The session of the log.
        session: Uuid,
        /// The session that the volume names.
        current: Uuid,
    },
    /// An entry was written by a newer version and does not call itself optional.
    #[error("failed to resume from {} line {line}: {kind} is newer than this version", file.display())]
    LogNewer {
        /// The segment that holds the entry.
        file: PathBuf,
        /// Its line, counted from 1.
        line: u64,
        /// What this version does not know, in words.
        kind: String,
    },
    /// An earlier append to this log failed; the caller has to open the session again.
    #[error("failed to append to {}: an earlier append failed, and the log has to be opened again", file.display())]
    Poisoned {
        /// The segment.
        file: PathBuf,
    },
    /// The volume has no such session.
    #[error("failed to open session {session}: the volume has no such session")]
    NoSession {
        /// The session that was asked for.
        session: Uuid,
    },
    /// The session has a segment already.
    #[error("failed to create session {session}: it is there already")]
    SessionExists {
        /// The session that was to be made.
        session: Uuid,
    },
    /// Another log of this process has the session open.
    #[error("failed to open session {session}: this process has it open")]
    AlreadyOpen {
        /// The session that was asked for.
        session: Uuid,
    },
    /// The line of an entry is longer than [`crate::MAX_LINE`].
    #[error("failed to append an entry of kind {kind}: its line has {bytes} bytes, of at most {limit}")]
    TooLarge {
        /// Kind of the entry.
        kind: String,
        /// Length of its line in bytes.
        bytes: usize,
        /// Longest line in bytes.
        limit: usize,
    },
    /// A line of a new segment would be longer than [`crate::MAX_LINE`]. Another try forms the same line.
    #[error("failed to begin a segment: its line of kind {kind} has {bytes} bytes, of at most {limit}")]
    SegmentTooLarge {
        /// Kind of the entry.
        kind: String,
        /// Length of its line in bytes.
        bytes: usize,
        /// Longest line in bytes.
        limit: usize,
    },
    /// The caller tried to append an entry of a kind that this version does not know.
    #[error("failed to append an entry of kind {kind}: this version does not know it, and no runtime would resume from it")]
    UnknownKind {
        /// The kind as the entry spells it.
        kind: String,
    },
    /// A record does not serialize.
    #[error("failed to encode a record for {}", file.display())]
    Encode {
        /// The file that the record was meant for.
        file: PathBuf,
        /// The serializer's error.
        source: serde_json::Error,
    },
    /// A reader's token names a segment that the session has not got.
    #[error("failed to read on from {token}: the session has no such segment")]
    UnknownToken {
        /// The token as text.
        token: String,
    },
    /// A text is not the token of a reader.
    #[error("failed to read {given:?} as the token of a reader")]
    BadToken {
        /// The text.
        given: String,
    },
}

/// The kinds of [`Error`] that callers tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorReason {
    /// The volume has no space left, or its quota is used up.
    DiskFull,
    /// The disk failed in another way.
    DiskFailed,
    /// Another process, another log or a later Pod has the session.
    SessionLocked,
    /// The session cannot be replayed: it is damaged or missing; or it cannot be created, because it exists.
    ReplayFailed,
    /// A newer version wrote the entry.
    LogNewer,
    /// The log takes no entry as it stands: an earlier append failed, or another writer has appended.
    LogPoisoned,
    /// The entry cannot be stored: it is too long or does not serialize.
    EntryRefused,
    /// The session cannot go on in a new segment: what it has to carry does not fit.
    SegmentTooLarge,
    /// The reader's token is not one of this session.
    TokenUnknown,
}

impl ErrorReason {
    /// The name in logs, in CamelCase.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DiskFull => "DiskFull",
            Self::DiskFailed => "DiskFailed",
            Self::SessionLocked => "SessionLocked",
            Self::ReplayFailed => "ReplayFailed",
            Self::LogNewer => "LogNewer",
            Self::LogPoisoned => "LogPoisoned",
            Self::EntryRefused => "EntryRefused",
            Self::SegmentTooLarge => "SegmentTooLarge",
            Self::TokenUnknown => "TokenUnknown",
        }
    }
}

impl Error {
    pub(crate) fn disk(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Disk { operation, path: path.to_owned(), source }
    }

    /// Returns the reason, which groups the errors that callers treat alike.
    #[must_use]
    pub fn reason(&self) -> ErrorReason {
        match self {
            Self::Disk { source, .. } if is_full(source) => ErrorReason::DiskFull,
            Self::Disk { .. } => ErrorReason::DiskFailed,
            Self::Locked { .. } | Self::LowerGeneration { .. } | Self::AlreadyOpen { .. } => ErrorReason::SessionLocked,
            Self::Damaged { .. } | Self::ChainDamaged { .. } | Self::NoSession { .. } | Self::SessionExists { .. } => {
                ErrorReason::ReplayFailed
            }
            Self::LogNewer { .. } | Self::UnknownKind { .. } => ErrorReason::LogNewer,
            Self::Poisoned { .. } | Self::ForeignAppend { .. } => ErrorReason::LogPoisoned,
            Self::TooLarge { .. }
            | Self::Encode { .. }
            | Self::StateNotCarried { .. }
            | Self::EmptySegment { .. }
            | Self::NotCurrent { .. } => ErrorReason::EntryRefused,
            Self::SegmentTooLarge { .. } => ErrorReason::SegmentTooLarge,
            Self::UnknownToken { .. } | Self::BadToken { .. } => ErrorReason::TokenUnknown,
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

struct HolderText<'a>(&'a Option<Holder>);

impl fmt::Display for HolderText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(holder) => write!(f, "Pod {} of run generation {}", holder.pod_uid, holder.run_generation),
            None => f.write_str("a process that has not said who it is"),
        }
    }
}
