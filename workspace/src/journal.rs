//! What is intended and what is done, one small file per tree. The journal may be on any file system and in any process.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::error::StepContext as _;
use crate::faults::{self, FaultPoint, Faults};
use crate::plan::JournalStep;
use crate::{ProviderKind, Quota, SysError, TreeOrigin, Uid, atomic};

/// The state of a tree. The states in `-ing` are intents: the disk may be in the state before or after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RecordState {
    /// The tree is to be made.
    Creating,
    /// The tree is made and may be written.
    Ready,
    /// The tree is to be sealed.
    Sealing,
    /// The tree is sealed.
    Sealed,
    /// The tree is to be destroyed.
    Destroying,
}

/// What the changes of a tree are counted from. It is recorded when the tree is made, because the parent of a fork may be gone later.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChangeBase {
    /// Not known: an earlier version wrote its record or that of its parent, or the parent has no record.
    #[default]
    Unknown,
    /// An empty tree: this tree, or an ancestor that it was forked from, began empty.
    Nothing,
    /// The nearest ancestor that is sealed.
    Tree(Uid),
}

/// One tree in the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The UID of the tree.
    pub uid: Uid,
    /// The provider that makes the tree.
    pub provider: ProviderKind,
    /// What the tree is made from.
    #[serde(rename = "making")]
    pub origin: TreeOrigin,
    /// How far it is.
    pub state: RecordState,
    /// What its changes are counted from.
    #[serde(default)]
    pub since: ChangeBase,
    /// How much the tree may take on the disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<Quota>,
    /// The object that the tree was made for, in the caller's format. None if the caller gave none, and once the tree may have been
    /// written.
    #[serde(rename = "of", default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// What people call the tree, for as long as it has a record. None if an earlier version wrote the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<TreeLabel>,
}

/// What people call a tree. It outlives [`Record::object`], and nothing is ever decided by it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeLabel {
    /// The object that the tree was made for, in the caller's format.
    pub object: String,
    /// The generation that the tree is a base of. None if it is no base.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<String>,
}

/// What the record of a new tree says beside how the tree is made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordDetails {
    /// How much the tree may take on the disk.
    pub quota: Option<Quota>,
    /// See [`Record::object`].
    pub object: Option<String>,
    /// See [`Record::label`].
    pub label: Option<TreeLabel>,
}

/// Everything that the journal holds.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct JournalContents {
    /// Sorted by UID.
    pub records: Vec<Record>,
    /// Records that cannot be read, sorted by UID.
    pub damaged: Vec<DamagedRecord>,
}

/// A record that cannot be read or parsed. Nothing is known of its tree, so nothing is done to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedRecord {
    /// The UID in the file's name.
    pub uid: Uid,
    /// The path of the file and the error.
    pub why: String,
}

/// Why a call of the journal failed.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the message of a variant says what it is")]
pub enum JournalError {
    #[error("failed to open the journal {path}")]
    Open { path: PathBuf, source: SysError },
    #[error("failed to list the journal")]
    List(#[source] SysError),
    #[error("failed to read the record {path}")]
    Read { path: PathBuf, source: SysError },
    /// The file was written atomically, so it is damaged or of a newer version. A person must look at it.
    #[error("failed to understand the record {path}")]
    Parse { path: PathBuf, source: serde_json::Error },
    #[error("failed to write the record of {uid}")]
    Write { uid: Uid, source: SysError },
    #[error("failed to find a record of {uid}")]
    NotFound { uid: Uid },
    #[error("failed to move {uid} from {from:?} to {to:?}")]
    Transition { uid: Uid, from: RecordState, to: RecordState },
    #[error("failed to begin {uid}: its record has another provider or origin")]
    Conflict { uid: Uid },
}

impl JournalError {
    /// The text about a single damaged record; `None` for errors that do not concern one record only.
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
/// [`Journal::begin_create_for`], the provider's calls, [`Journal::record_created`]; the same for sealing and destroying. After a restart:
/// [`Journal::read_and_clean`], [`crate::plan::recover`], then its steps, those of the journal by [`Journal::apply`].
///
/// # Guarantees
/// When a call returns Ok, the record is on the device (two flushes). A record is the former or the new one, never a part.
///
/// # Assumptions
/// One writer per directory. Put it on ext4 or XFS and not on the Btrfs of the data root, where a flush waits for snapshots.
pub struct Journal {
    dir: OwnedFd,
    /// For error messages.
    path: PathBuf,
    faults: Arc<dyn Faults>,
}

impl Journal {
    /// Opens the directory `path`, and makes it (mode 0700) if it is missing. Its parent must exist.
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        Self::open_with_faults(path, faults::none())
    }

    /// Like [`Journal::open`], and calls `faults` at each step.
    pub fn open_with_faults(path: &Path, faults: Arc<dyn Faults>) -> Result<Self, JournalError> {
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

    /// Reads everything and removes the temporary files that a crash left. Nobody may write at the same time.
    pub fn read_and_clean(&self) -> Result<JournalContents, JournalError> {
        self.read_files(true)
    }

    /// Reads everything, while others may write.
    pub fn read(&self) -> Result<JournalContents, JournalError> {
        self.read_files(false)
    }

    fn read_files(&self, remove_temporary: bool) -> Result<JournalContents, JournalError> {
        let mut found = JournalContents::default();
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
                        Some(why) => found.damaged.push(DamagedRecord { uid, why }),
                        None => return Err(error),
                    },
                }
            }
        }
        found.records.sort_by_key(|r| r.uid);
        found.damaged.sort_by_key(|d| d.uid);
        Ok(found)
    }

    /// Reads the record of one tree. Errors: `Read`, `Parse`.
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

    /// Records the intent to make a tree. Returns `Creating`, or the state of an equal record that is there already.
    /// Errors: `Conflict` if the record there is not equal, `Transition` if the tree is to be destroyed.
    pub fn begin_create(&self, uid: Uid, provider: ProviderKind, origin: TreeOrigin) -> Result<RecordState, JournalError> {
        self.begin_create_for(uid, provider, origin, RecordDetails::default())
    }

    /// Like [`Journal::begin_create`], with the quota of the tree and the object that it is made for. A record that is there already keeps
    /// its own.
    pub fn begin_create_for(
        &self,
        uid: Uid,
        provider: ProviderKind,
        origin: TreeOrigin,
        details: RecordDetails,
    ) -> Result<RecordState, JournalError> {
        match self.get(uid)? {
            Some(r) if r.provider != provider || r.origin != origin => Err(JournalError::Conflict { uid }),
            Some(Record { state: RecordState::Destroying, .. }) => {
                Err(JournalError::Transition { uid, from: RecordState::Destroying, to: RecordState::Creating })
            }
            Some(r) => Ok(r.state),
            None => {
                let since = self.change_base(origin)?;
                let RecordDetails { quota, object, label } = details;
                self.write(&Record { uid, provider, origin, state: RecordState::Creating, since, quota, object, label })?;
                Ok(RecordState::Creating)
            }
        }
    }

    /// What the changes of such a tree are counted from.
    fn change_base(&self, origin: TreeOrigin) -> Result<ChangeBase, JournalError> {
        let TreeOrigin::Clone { from, .. } = origin else { return Ok(ChangeBase::Nothing) };
        match self.get(from) {
            Ok(Some(parent)) if parent.state == RecordState::Sealed => Ok(ChangeBase::Tree(from)),
            Ok(Some(parent)) => Ok(parent.since),
            Ok(None) => Ok(ChangeBase::Unknown),
            Err(error) if error.damage().is_some() => Ok(ChangeBase::Unknown),
            Err(error) => Err(error),
        }
    }

    /// Records the intent to change the quota of a tree. Does nothing if it is the one that is recorded. Errors: `NotFound`.
    pub fn begin_set_quota(&self, uid: Uid, quota: Option<Quota>) -> Result<(), JournalError> {
        match self.get(uid)?.ok_or(JournalError::NotFound { uid })? {
            record if record.quota == quota => Ok(()),
            record => self.write(&Record { quota, ..record }),
        }
    }

    /// Records that the tree is made, and that its quota is set.
    pub fn record_created(&self, uid: Uid) -> Result<(), JournalError> {
        self.set_state(uid, RecordState::Ready)
    }

    /// Records that the tree may be written from now on: the object that it was made for is removed from the record.
    pub fn forget_object(&self, uid: Uid) -> Result<(), JournalError> {
        match self.get(uid) {
            Ok(Some(record)) if record.object.is_some() => self.write(&Record { object: None, ..record }),
            Ok(_) => Ok(()),
            Err(error) if error.damage().is_some() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Records the intent to seal a tree.
    pub fn begin_seal(&self, uid: Uid) -> Result<(), JournalError> {
        self.set_state(uid, RecordState::Sealing)
    }

    /// Records that the tree is sealed. Its manifest is in its marker, and `seal` returns it again.
    pub fn record_sealed(&self, uid: Uid) -> Result<(), JournalError> {
        self.set_state(uid, RecordState::Sealed)
    }

    /// Records the intent to destroy a tree. Does nothing if there is no record or a damaged one; the provider's `destroy` may be called
    /// all the same.
    pub fn begin_destroy(&self, uid: Uid) -> Result<(), JournalError> {
        match self.get(uid) {
            Ok(None) => Ok(()),
            Ok(Some(_)) => self.set_state(uid, RecordState::Destroying),
            Err(error) if error.damage().is_some() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The tree is gone: removes its record, damaged or not. Errors: `Transition` if the record does not say Destroying.
    pub fn record_destroyed(&self, uid: Uid) -> Result<(), JournalError> {
        match self.get(uid) {
            Ok(None) => Ok(()),
            Ok(Some(Record { state: RecordState::Destroying, .. })) => self.remove(uid),
            Ok(Some(r)) => Err(JournalError::Transition { uid, from: r.state, to: RecordState::Destroying }),
            Err(error) if error.damage().is_some() => self.remove(uid),
            Err(error) => Err(error),
        }
    }

    /// Does one step of a recovery. Can be repeated.
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
            // A caller that lost an answer repeats the call; the tree is further already.
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
            self.faults.on_point(FaultPoint::RecordUnlinked);
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
