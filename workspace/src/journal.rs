//! What was meant and what was done, one small file per tree, on any file system and by any process.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::error::StepContext as _;
use crate::faults::{self, Faults, Point};
use crate::plan::JournalStep;
use crate::{Making, ProviderKind, SysError, Uid, atomic};

/// How far the life of a tree has come. The `-ing` states are intents: the disk may be on either side of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RecordState {
    Creating,
    Ready,
    Sealing,
    Sealed,
    Destroying,
}

/// What the changes of a tree are counted from. Fixed when the tree is made, so that it is known when the parent of a fork is gone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Since {
    /// Its record, or its parent's, was written before this was kept, or the parent had none.
    #[default]
    Unknown,
    /// An empty tree: it, or the one it was forked from, began as nothing.
    Nothing,
    /// The nearest ancestor that is never written.
    Tree(Uid),
}

/// One tree in the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub uid: Uid,
    pub provider: ProviderKind,
    pub making: Making,
    pub state: RecordState,
    #[serde(default)]
    pub since: Since,
    /// Whose tree it is, in the words of whoever asked for it; nobody here understands them. None where none were given, and once somebody may
    /// have worked in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
}

/// Everything that the journal holds.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// In the order of UIDs.
    pub records: Vec<Record>,
    pub damaged: Vec<Damaged>,
}

/// A record that is there and cannot be understood: of this tree nothing is known, so nothing is done to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damaged {
    pub uid: Uid,
    /// Names the file.
    pub why: String,
}

/// Why the journal did not take a word.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("failed to open the journal {path}")]
    Open { path: PathBuf, source: SysError },
    #[error("failed to list the journal")]
    List(#[source] SysError),
    #[error("failed to read the record {path}")]
    Read { path: PathBuf, source: SysError },
    /// The file is whole (it was renamed into place), so this is damage or a newer version: a person must look.
    #[error("failed to understand the record {path}")]
    Parse { path: PathBuf, source: serde_json::Error },
    #[error("failed to write the record of {uid}")]
    Write { uid: Uid, source: SysError },
    #[error("failed to find a record of {uid}")]
    NotFound { uid: Uid },
    #[error("failed to move {uid} from {from:?} to {to:?}")]
    Transition { uid: Uid, from: RecordState, to: RecordState },
    #[error("failed to begin {uid}: its record says it is made otherwise")]
    Conflict { uid: Uid },
}

impl JournalError {
    /// What is said of one record that cannot be understood, which is no trouble of the others.
    pub fn damage(&self) -> Option<String> {
        match self {
            JournalError::Read { source, .. } => Some(format!("{self}: {source}: {}", source.source)),
            JournalError::Parse { source, .. } => Some(format!("{self}: {source}")),
            JournalError::Open { .. } | JournalError::List(_) | JournalError::Write { .. } => None,
            JournalError::NotFound { .. } | JournalError::Transition { .. } | JournalError::Conflict { .. } => None,
        }
    }
}

/// A directory of records.
///
/// # Flow
/// `begin_create`, the disk's verb, `created`; the same for `seal` and `destroy`. After a restart: [`Journal::all`],
/// [`crate::plan::recover`], then the steps, the journal's by [`Journal::apply`].
///
/// # Guarantees
/// When a call returns Ok, its word is on the device (two flushes). A word is there whole or not at all.
///
/// # Assumptions
/// One writer per directory. Put it on ext4 or XFS, not in the pool: a flush there waits for snapshots.
pub struct Journal {
    dir: OwnedFd,
    /// For people.
    path: PathBuf,
    faults: Arc<dyn Faults>,
}

impl Journal {
    /// Opens, and makes if need be, the directory `path` (mode 0700); its parent must exist.
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        Self::open_with(path, faults::none())
    }

    /// The same, with a seam for tests.
    pub fn open_with(path: &Path, faults: Arc<dyn Faults>) -> Result<Self, JournalError> {
        let open = || -> Result<OwnedFd, SysError> {
            match rustix::fs::mkdir(path, Mode::from_raw_mode(0o700)) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(e) => return Err(e).step("make the directory"),
            }
            rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).step("open the directory")
        };
        let dir = open().map_err(|source| JournalError::Open { path: path.to_owned(), source })?;
        Ok(Self { dir, path: path.to_owned(), faults })
    }

    /// Everything that is here. Half-written files of a crash are removed, so nobody may be writing.
    pub fn all(&self) -> Result<Contents, JournalError> {
        self.read(true)
    }

    /// Everything that is here, while others write.
    pub fn contents(&self) -> Result<Contents, JournalError> {
        self.read(false)
    }

    fn read(&self, remove_temporary: bool) -> Result<Contents, JournalError> {
        let mut found = Contents::default();
        for entry in rustix::fs::Dir::read_from(&self.dir).step("read the directory").map_err(JournalError::List)? {
            let entry = entry.step("read the directory").map_err(JournalError::List)?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            if let Some(stem) = name.strip_suffix(".json.tmp") {
                if remove_temporary && stem.parse::<Uid>().is_ok() {
                    rustix::fs::unlinkat(&self.dir, name, AtFlags::empty()).step("remove a half record").map_err(JournalError::List)?;
                }
            } else if let Some(Ok(uid)) = name.strip_suffix(".json").map(str::parse::<Uid>) {
                match self.get(uid) {
                    Ok(record) => found.records.extend(record),
                    Err(error) => match error.damage() {
                        Some(why) => found.damaged.push(Damaged { uid, why }),
                        None => return Err(error),
                    },
                }
            }
        }
        found.records.sort_by_key(|r| r.uid);
        found.damaged.sort_by_key(|d| d.uid);
        Ok(found)
    }

    /// The record of one tree.
    pub fn get(&self, uid: Uid) -> Result<Option<Record>, JournalError> {
        let name = file_name(uid);
        let path = || self.path.join(&name);
        let read = |source| JournalError::Read { path: path(), source };
        let file = match rustix::fs::openat(&self.dir, &*name, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
            Ok(fd) => File::from(fd),
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(e) => return Err(e).step("open the file").map_err(read),
        };
        let text = io::read_to_string(file).step("read the file").map_err(read)?;
        let record: Record = serde_json::from_str(&text).map_err(|source| JournalError::Parse { path: path(), source })?;
        if record.uid != uid {
            let source = serde::de::Error::custom("it is the record of another UID");
            return Err(JournalError::Parse { path: path(), source });
        }
        Ok(Some(record))
    }

    /// The intent to make a tree. Answers `Creating`, or how far an earlier, equal intent has come.
    pub fn begin_create(&self, uid: Uid, provider: ProviderKind, making: Making) -> Result<RecordState, JournalError> {
        self.begin_create_of(uid, provider, making, None)
    }

    /// The same, with a word on whose tree it will be. An earlier intent keeps its own.
    pub fn begin_create_of(
        &self,
        uid: Uid,
        provider: ProviderKind,
        making: Making,
        of: Option<String>,
    ) -> Result<RecordState, JournalError> {
        match self.get(uid)? {
            Some(r) if r.provider != provider || r.making != making => Err(JournalError::Conflict { uid }),
            Some(Record { state: RecordState::Destroying, .. }) => {
                Err(JournalError::Transition { uid, from: RecordState::Destroying, to: RecordState::Creating })
            }
            Some(r) => Ok(r.state),
            None => {
                self.write(&Record { uid, provider, making, state: RecordState::Creating, since: self.change_base(making)?, of })?;
                Ok(RecordState::Creating)
            }
        }
    }

    /// What a tree that is made so will be compared with.
    fn change_base(&self, making: Making) -> Result<Since, JournalError> {
        let Making::Clone { from, .. } = making else { return Ok(Since::Nothing) };
        match self.get(from) {
            Ok(Some(parent)) if parent.state == RecordState::Sealed => Ok(Since::Tree(from)),
            Ok(Some(parent)) => Ok(parent.since),
            Ok(None) => Ok(Since::Unknown),
            Err(error) if error.damage().is_some() => Ok(Since::Unknown),
            Err(error) => Err(error),
        }
    }

    /// The tree stands.
    pub fn created(&self, uid: Uid) -> Result<(), JournalError> {
        self.set_state(uid, RecordState::Ready)
    }

    /// Somebody is about to work in the tree: from now on it is worth more than its object, and whose it was is forgotten.
    pub fn shown(&self, uid: Uid) -> Result<(), JournalError> {
        match self.get(uid) {
            Ok(Some(record)) if record.of.is_some() => self.write(&Record { of: None, ..record }),
            Ok(_) => Ok(()),
            Err(error) if error.damage().is_some() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The intent to seal a tree.
    pub fn begin_seal(&self, uid: Uid) -> Result<(), JournalError> {
        self.set_state(uid, RecordState::Sealing)
    }

    /// The tree is sealed; its digest stands in its marker, and `seal` tells it again.
    pub fn sealed(&self, uid: Uid) -> Result<(), JournalError> {
        self.set_state(uid, RecordState::Sealed)
    }

    /// The intent to destroy a tree. Without a record, or with a damaged one, there is nothing to write: gone is done, and the disk's verb
    /// may still be said.
    pub fn begin_destroy(&self, uid: Uid) -> Result<(), JournalError> {
        match self.get(uid) {
            Ok(None) => Ok(()),
            Ok(Some(_)) => self.set_state(uid, RecordState::Destroying),
            Err(error) if error.damage().is_some() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The tree is gone, and so is its record, damaged or not.
    pub fn destroyed(&self, uid: Uid) -> Result<(), JournalError> {
        match self.get(uid) {
            Ok(None) => Ok(()),
            Ok(Some(Record { state: RecordState::Destroying, .. })) => self.remove(uid),
            Ok(Some(r)) => Err(JournalError::Transition { uid, from: r.state, to: RecordState::Destroying }),
            Err(error) if error.damage().is_some() => self.remove(uid),
            Err(error) => Err(error),
        }
    }

    /// Does one step of a recovery.
    pub fn apply(&self, step: &JournalStep) -> Result<(), JournalError> {
        match *step {
            JournalStep::Ready { uid } => self.set_state(uid, RecordState::Ready),
            JournalStep::Sealed { uid } => self.set_state(uid, RecordState::Sealed),
            JournalStep::Forget { uid } => self.remove(uid),
        }
    }

    fn set_state(&self, uid: Uid, to: RecordState) -> Result<(), JournalError> {
        let record = self.get(uid)?.ok_or(JournalError::NotFound { uid })?;
        match (record.state, to) {
            (from, to) if from == to => Ok(()),
            // Said late by a caller that lost an answer: the tree has come further since.
            (RecordState::Sealing | RecordState::Sealed, RecordState::Ready) | (RecordState::Sealed, RecordState::Sealing) => Ok(()),
            (RecordState::Creating, RecordState::Ready)
            | (RecordState::Ready, RecordState::Sealing)
            | (RecordState::Sealing, RecordState::Sealed)
            | (_, RecordState::Destroying) => self.write(&Record { state: to, ..record }),
            (from, to) => Err(JournalError::Transition { uid, from, to }),
        }
    }

    fn write(&self, record: &Record) -> Result<(), JournalError> {
        let (uid, name) = (record.uid, file_name(record.uid));
        let write = || -> Result<(), SysError> {
            let text = serde_json::to_vec(record).map_err(io::Error::from).step("encode the record")?;
            atomic::write_with_faults(self.dir.as_fd(), name.as_ref(), 0o600, &*self.faults, |file| {
                file.write_all(&text).step("write the temporary file")
            })
        };
        write().map_err(|source| JournalError::Write { uid, source })
    }

    fn remove(&self, uid: Uid) -> Result<(), JournalError> {
        let unlink = || -> Result<(), SysError> {
            match rustix::fs::unlinkat(&self.dir, file_name(uid), AtFlags::empty()) {
                Ok(()) | Err(rustix::io::Errno::NOENT) => {}
                Err(e) => return Err(e).step("remove the file"),
            }
            self.faults.reached(Point::RecordUnlinked);
            rustix::fs::fsync(self.dir.as_fd()).step("flush the directory")
        };
        unlink().map_err(|source| JournalError::Write { uid, source })
    }
}

fn file_name(uid: Uid) -> String {
    format!("{uid}.json")
}

#[cfg(test)]
mod tests;
