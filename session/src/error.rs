//! What can go wrong, named by the operation.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use uuid::Uuid;

use crate::lock::Holder;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to {operation} {}", path.display())]
    Disk { operation: &'static str, path: PathBuf, source: io::Error },
    #[error("failed to take the lock {}: it is held by {}", path.display(), HolderText(holder))]
    Locked { path: PathBuf, holder: Option<Holder> },
    #[error("failed to take the session volume for run generation {ours}: generation {seen} has already written to it")]
    LowerGeneration { ours: u64, seen: u64 },
    #[error("failed to read {} line {line}: {what}", file.display())]
    Damaged { file: PathBuf, line: u64, what: Damage },
    #[error("failed to resume from {} line {line}: {kind} is newer than this version", file.display())]
    LogNewer { file: PathBuf, line: u64, kind: String },
    #[error("failed to append to {}: an earlier append failed, and the log has to be opened again", file.display())]
    Poisoned { file: PathBuf },
    #[error("failed to open session {session}: the volume has no such session")]
    NoSession { session: Uuid },
    #[error("failed to create session {session}: it is there already")]
    SessionExists { session: Uuid },
    #[error("failed to open session {session}: this process has it open")]
    AlreadyOpen { session: Uuid },
    #[error("failed to append an entry of kind {kind}: its line has {bytes} bytes, of at most {limit}")]
    TooLarge { kind: String, bytes: usize, limit: usize },
    #[error("failed to append an entry of kind {kind}: this version does not know it, and no runtime would resume from it")]
    UnknownKind { kind: String },
    #[error("failed to encode a record for {}", file.display())]
    Encode { file: PathBuf, source: serde_json::Error },
    #[error("failed to read on from {token}: the session has no such segment")]
    UnknownToken { token: String },
    #[error("failed to read {given:?} as the token of a reader")]
    BadToken { given: String },
}

/// What is wrong with a complete line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Damage {
    /// It does not begin with its checksum.
    Frame,
    /// The checksum is not that of the rest of the line.
    Checksum,
    /// The checksum is right, but the rest is not what belongs there; the parser's words.
    Content(String),
    /// An entry is missing, doubled or out of place.
    Sequence { expected: u64, found: u64 },
    /// The entry names an append that it cannot be a part of.
    Batch { seq: u64, batch: u64 },
    /// The run generation went back.
    Generation { before: u64, found: u64 },
    /// A segment that is not the last one ends in an unfinished line.
    Unfinished,
    /// There is more than one line where one belongs.
    Trailing,
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
        }
    }
}

impl Error {
    pub(crate) fn disk(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Disk { operation, path: path.to_owned(), source }
    }

    /// The reason for conditions and notices: of the vocabulary that users see.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Disk { source, .. } if is_full(source) => "DiskFull",
            Self::Disk { .. } => "DiskFailed",
            Self::Locked { .. } | Self::LowerGeneration { .. } | Self::AlreadyOpen { .. } => "SessionLocked",
            Self::Damaged { .. } | Self::NoSession { .. } | Self::SessionExists { .. } => "ReplayFailed",
            Self::LogNewer { .. } | Self::UnknownKind { .. } => "LogNewer",
            Self::Poisoned { .. } => "LogPoisoned",
            Self::TooLarge { .. } | Self::Encode { .. } => "EntryRefused",
            Self::UnknownToken { .. } | Self::BadToken { .. } => "TokenUnknown",
        }
    }

    /// Whether the same operation may succeed later with nothing changed but the world: room on the disk, the other holder gone.
    #[must_use]
    pub fn retryable(&self) -> bool {
        match self {
            Self::Disk { .. } | Self::Locked { .. } => true,
            Self::LowerGeneration { .. }
            | Self::Damaged { .. }
            | Self::LogNewer { .. }
            | Self::Poisoned { .. }
            | Self::NoSession { .. }
            | Self::SessionExists { .. }
            | Self::AlreadyOpen { .. }
            | Self::TooLarge { .. }
            | Self::UnknownKind { .. }
            | Self::Encode { .. }
            | Self::UnknownToken { .. }
            | Self::BadToken { .. } => false,
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
