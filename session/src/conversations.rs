//! The agent's conversations beside its first one, each with a folder of its own that is laid out as a volume.
//!
//! A conversation is there once its record is: `conversations/<name>/conversation.json`. What a crash leaves before that is not seen, and the next start of
//! that name goes on with it. The lock of the volume covers all folders.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use yoi_wire::conversation::is_other_name;

use crate::disk::{Disk, OpenMode};
use crate::{Error, Lock, Result, layout, record_file};

/// Name of the record in the folder of a conversation.
pub const RECORD: &str = "conversation.json";

/// What the volume records of a conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredConversation {
    /// Nobody has stopped it: it goes on when its agent starts again.
    pub running: bool,
    /// Tokens that it had used when it was stopped. Of one that runs its log says it.
    #[serde(default)]
    pub tokens: u64,
    /// It was started by a conversation, for one task. It is not started again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub subagent: bool,
}

/// The folder of a conversation, for [`crate::current`], [`crate::Reader`] and the like.
#[must_use]
pub fn folder(root: &Path, name: &str) -> PathBuf {
    layout::conversations(root).join(name)
}

/// Returns all conversations of the volume with their records, by name. A record that cannot be read is an error of that conversation alone.
///
/// # Errors
/// The disk's.
pub fn list(disk: &dyn Disk, root: &Path) -> Result<Vec<(String, Result<StoredConversation>)>> {
    let dir = layout::conversations(root);
    let names = match disk.list(&dir) {
        Ok(names) => names,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::disk("list", &dir)(error)),
    };
    let mut names: Vec<String> = names.into_iter().filter_map(|name| name.into_string().ok()).filter(|name| is_other_name(name)).collect();
    names.sort_unstable();
    Ok(names
        .into_iter()
        .filter_map(|name| Some((read(disk, root, &name).transpose()?, name)))
        .map(|(stored, name)| (name, stored))
        .collect())
}

/// Returns the record of a conversation; `None`: there is none of this name.
///
/// # Errors
/// The disk's, or [`Error::Damaged`].
pub fn read(disk: &dyn Disk, root: &Path, name: &str) -> Result<Option<StoredConversation>> {
    let path = folder(root, name).join(RECORD);
    match disk.open(&path, OpenMode::Read) {
        Ok(file) => record_file::read(&*file, &path).map(Some),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::disk("open", &path)(error)),
    }
}

/// Records a conversation durably, and makes its folder if it is not there.
///
/// # Errors
/// The disk's. The record is then the old one or the new one.
pub fn write(lock: &Lock, name: &str, record: StoredConversation) -> Result<()> {
    let (disk, root) = (lock.disk(), lock.root());
    let (all, dir) = (layout::conversations(root), folder(root, name));
    for (dir, parent) in [(&all, root), (&dir, &*all)] {
        disk.create_dir(dir).map_err(Error::disk("make", dir))?;
        disk.fsync_dir(parent).map_err(Error::disk("sync", parent))?;
    }
    record_file::write(&**disk, &dir, RECORD, &record)
}

/// The right to write to the folder of a conversation. The lock of the volume is held as long as it.
#[must_use]
pub fn lock(volume: &Arc<Lock>, name: &str) -> Arc<Lock> {
    volume.of_folder(folder(volume.root(), name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Holder;
    use crate::disk::RealDisk;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "makes by itself what the code has to find")]
    fn a_conversation_is_there_once_its_record_is_and_a_damaged_record_hides_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let volume = Lock::take(Arc::new(RealDisk), root, Holder { run_generation: 1, pod_uid: "pod".into() }).unwrap();
        assert!(list(&RealDisk, root).unwrap().is_empty());
        let (runs, stopped) = (
            StoredConversation { running: true, ..StoredConversation::default() },
            StoredConversation { tokens: 7, ..StoredConversation::default() },
        );
        write(&volume, "b", runs).unwrap();
        write(&volume, "a", runs).unwrap();
        write(&volume, "a", stopped).unwrap();
        std::fs::create_dir(folder(root, "unfinished")).unwrap();
        std::fs::create_dir(folder(root, "No name")).unwrap();
        let found = |name: &str| list(&RealDisk, root).unwrap().into_iter().find(|(found, _)| found == name).map(|(_, stored)| stored);
        assert_eq!(list(&RealDisk, root).unwrap().len(), 2);
        assert_eq!((found("a").unwrap().unwrap(), found("b").unwrap().unwrap()), (stopped, runs));
        std::fs::write(folder(root, "a").join(RECORD), "no record\n").unwrap();
        assert!(matches!(found("a"), Some(Err(Error::Damaged { .. }))) && matches!(found("b"), Some(Ok(_))));
    }

    #[test]
    fn whoever_writes_a_conversation_holds_the_volume() {
        let dir = tempfile::tempdir().unwrap();
        let holder = || Holder { run_generation: 1, pod_uid: "pod".into() };
        let volume = Lock::take(Arc::new(RealDisk), dir.path(), holder()).unwrap();
        let conversation = lock(&volume, "a");
        drop(volume);
        assert!(matches!(Lock::take(Arc::new(RealDisk), dir.path(), holder()), Err(Error::Locked { .. })));
        drop(conversation);
        assert!(Lock::take(Arc::new(RealDisk), dir.path(), holder()).is_ok());
    }
}
