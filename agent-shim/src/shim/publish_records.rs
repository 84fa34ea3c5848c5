//! The store of publish records. A record is written before the mount and removed after the unmount.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use yoi_workspace::{Uid, write_atomically};

use crate::volume::{PodVolume, PublishRecord, PublishedVolume};

/// A publish record could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum PublishRecordError {
    /// The directory of all records.
    #[error("failed to open the publish records in {path}")]
    Open {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// One record.
    #[error("failed to write the publish record of {volume}")]
    Write {
        /// The volume that it is for.
        volume: PodVolume,
        /// Why.
        source: io::Error,
    },
}

/// The extension of a record that could not be read.
const DAMAGED: &str = "damaged";

/// All records of this node.
///
/// # Guarantees
/// When `put` or `remove` returns Ok, the change is on the device.
pub struct PublishRecords {
    dir: PathBuf,
    known: Mutex<BTreeMap<PodVolume, PublishRecord>>,
}

impl PublishRecords {
    /// Opens the directory and makes it if it is missing. Its parent must exist. A record that cannot be read is renamed to `*.damaged`.
    pub fn open(dir: PathBuf) -> Result<Self, PublishRecordError> {
        let opened = |source| PublishRecordError::Open { path: dir.clone(), source };
        fs::create_dir_all(&dir).map_err(opened)?;
        let mut known = BTreeMap::new();
        for entry in fs::read_dir(&dir).map_err(opened)? {
            let path = entry.map_err(opened)?.path();
            match path.extension().and_then(|e| e.to_str()) {
                Some("json") => {
                    match fs::read(&path).and_then(|text| Ok(serde_json::from_slice::<PublishRecord>(&text)?)) {
                        Ok(record) => _ = known.insert(record.volume.clone(), record),
                        // It is written again from the mount table. Until then no Pod may mount more than with it.
                        Err(error) => {
                            tracing::error!(path = %path.display(), %error, "a publish record cannot be read; it is put aside");
                            fs::rename(&path, path.with_extension(DAMAGED)).map_err(opened)?;
                        }
                    }
                }
                // A crash interrupted the write of this file.
                Some("tmp") => fs::remove_file(&path).map_err(opened)?,
                Some(_) | None => {}
            }
        }
        Ok(PublishRecords { dir, known: Mutex::new(known) })
    }

    /// One sentence for each file `*.damaged`, until a person removes the file.
    pub fn damage_messages(&self) -> Vec<String> {
        let aside = |e: io::Result<fs::DirEntry>| Some(e.ok()?.path()).filter(|p| p.extension().is_some_and(|e| e == DAMAGED));
        let paths = fs::read_dir(&self.dir).into_iter().flatten().filter_map(aside);
        paths.map(|p| format!("{} is a publish record that could not be read: remove it once it was looked at", p.display())).collect()
    }

    /// All records, sorted by volume.
    pub fn all(&self) -> Vec<PublishRecord> {
        self.lock().values().cloned().collect()
    }

    /// The record of a volume.
    pub fn get(&self, volume: &PodVolume) -> Option<PublishRecord> {
        self.lock().get(volume).cloned()
    }

    /// The records of a Pod's volumes.
    pub fn of_pod(&self, pod: Uid) -> Vec<PublishRecord> {
        self.lock().values().filter(|p| p.volume.pod == pod).cloned().collect()
    }

    /// Returns how many volumes show this tree.
    pub fn count_for_tree(&self, uid: Uid) -> usize {
        self.lock().values().filter(|p| matches!(p.shows, PublishedVolume::Tree { tree, .. } if tree == uid)).count()
    }

    /// The records of the volumes that show this tree, sorted by volume.
    pub fn of_tree(&self, uid: Uid) -> Vec<PublishRecord> {
        self.lock().values().filter(|p| p.shows.tree() == Some(uid)).cloned().collect()
    }

    /// The most covers with which a volume shows this tree.
    pub fn covers_of_tree(&self, uid: Uid) -> usize {
        let of_tree = |record: &PublishRecord| match record.shows {
            PublishedVolume::Tree { tree, covers, .. } if tree == uid => Some(covers),
            PublishedVolume::Tree { .. } | PublishedVolume::Runtime { .. } => None,
        };
        self.lock().values().filter_map(of_tree).max().unwrap_or_default()
    }

    /// Writes the record. Writes nothing if it is there already.
    pub async fn put(self: &Arc<Self>, record: PublishRecord) -> Result<(), PublishRecordError> {
        if self.get(&record.volume).as_ref() == Some(&record) {
            return Ok(());
        }
        let (records, volume) = (self.clone(), record.volume.clone());
        let written =
            tokio::task::spawn_blocking(move || records.write(&record).map(|()| records.lock().insert(record.volume.clone(), record)));
        written.await.map_err(io::Error::other).and_then(|w| w).map(drop).map_err(|source| PublishRecordError::Write { volume, source })
    }

    /// Removes the record of a volume. Succeeds if there is none.
    pub async fn remove(self: &Arc<Self>, volume: &PodVolume) -> Result<(), PublishRecordError> {
        if self.get(volume).is_none() {
            return Ok(());
        }
        let (records, removed) = (self.clone(), volume.clone());
        let result = tokio::task::spawn_blocking(move || {
            match fs::remove_file(records.path(&removed)) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                Ok(()) | Err(_) => File::open(&records.dir)?.sync_all()?,
            }
            records.lock().remove(&removed);
            Ok(())
        });
        let volume = volume.clone();
        result.await.map_err(io::Error::other).and_then(|r| r).map_err(|source| PublishRecordError::Write { volume, source })
    }

    fn write(&self, record: &PublishRecord) -> io::Result<()> {
        let name = Self::file_name(&record.volume);
        write_atomically(File::open(&self.dir)?, name, 0o644, &serde_json::to_vec(record)?).map_err(|e| e.source)
    }

    /// Dots of the volume's name become underscores, which no volume name holds: a dot would begin an extension.
    fn file_name(volume: &PodVolume) -> String {
        format!("{}_{}.json", volume.pod, volume.name.as_str().replace('.', "_"))
    }

    fn path(&self, volume: &PodVolume) -> PathBuf {
        self.dir.join(Self::file_name(volume))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PodVolume, PublishRecord>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(pod: u8, name: &str) -> PublishRecord {
        let volume = PodVolume { pod: Uid::from_bytes([pod; 16]), name: name.parse().unwrap() };
        PublishRecord { volume, shows: PublishedVolume::Tree { tree: Uid::from_bytes([9; 16]), read_only: true, covers: 0, lending: None } }
    }

    #[tokio::test]
    async fn records_survive_a_restart_and_a_half_written_one_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let records = Arc::new(PublishRecords::open(dir.path().join("publish")).unwrap());
        for r in [record(1, "tree"), record(1, "pv.dots"), record(2, "tree")] {
            records.put(r.clone()).await.unwrap();
            records.put(r).await.unwrap();
        }
        records.remove(&record(2, "tree").volume).await.unwrap();
        records.remove(&record(2, "tree").volume).await.unwrap();
        fs::write(dir.path().join("publish/x.tmp"), "{").unwrap();
        let again = PublishRecords::open(dir.path().join("publish")).unwrap();
        assert_eq!(again.all(), [record(1, "pv.dots"), record(1, "tree")]);
        assert_eq!(again.count_for_tree(Uid::from_bytes([9; 16])), 2);
        assert!(!dir.path().join("publish/x.tmp").exists());
    }

    #[tokio::test]
    async fn a_damaged_record_is_put_aside_and_reported_and_hides_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("publish");
        let records = Arc::new(PublishRecords::open(at.clone()).unwrap());
        for r in [record(1, "tree"), record(2, "tree")] {
            records.put(r).await.unwrap();
        }
        let path = records.path(&record(1, "tree").volume);
        fs::write(&path, "{\"volume\":").unwrap();
        for _ in 0..2 {
            let again = PublishRecords::open(at.clone()).unwrap();
            assert_eq!(again.all(), [record(2, "tree")]);
            let messages = again.damage_messages();
            assert!(messages.len() == 1 && messages[0].contains(path.with_extension(DAMAGED).to_str().unwrap()), "{messages:?}");
        }
        fs::remove_file(path.with_extension(DAMAGED)).unwrap();
        assert_eq!(PublishRecords::open(at).unwrap().damage_messages(), Vec::<String>::new());
    }
}
