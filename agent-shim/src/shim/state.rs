//! What both doors stand on.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, RwLock};

use kube::runtime::reflector::ObjectRef;
use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;
use yoi_crds::AgentWorkspace;
use yoi_workspace::{Journal, JournalError, ProviderOffer, Record, Uid};

use super::health::ShimMetrics;
use super::keyed_locks::KeyedLocks;
use super::pod_sockets::PodSockets;
use super::publish_records::{PublishRecordError, PublishRecords};
use super::recovery::StartupDamage;
use super::runtime_store::{RuntimeError, RuntimeStore};
use super::workspace_cache::WorkspaceCache;
use crate::decide::record_diff;
use crate::mounter::client::{Mounter, MounterFailure};
use crate::volume::PodVolume;

pub struct ShimState {
    pub node: String,
    pub kubelet_dir: PathBuf,
    pub mounter: Arc<dyn Mounter>,
    pub journal: Arc<Journal>,
    pub publish_records: Arc<PublishRecords>,
    pub runtimes: RuntimeStore,
    pub cache: WorkspaceCache,
    pub offers: RwLock<Vec<ProviderOffer>>,
    /// What was in trouble at start.
    pub damage: StartupDamage,
    /// Held while a tree is made, sealed, shown or destroyed.
    pub tree_locks: KeyedLocks<Uid>,
    /// Held while a volume is mounted or unmounted; taken before the tree's.
    pub volume_locks: KeyedLocks<PodVolume>,
    /// Asks the making door to look at a workspace.
    pub requeue: UnboundedSender<ObjectRef<AgentWorkspace>>,
    pub metrics: ShimMetrics,
    /// The process ends: nobody waits any longer.
    pub stop: CancellationToken,
    pub sockets: PodSockets,
    /// The mounting door is open.
    pub serving: AtomicBool,
}

/// What may fail at either door.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    PublishRecord(#[from] PublishRecordError),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Mounter(#[from] MounterFailure),
    #[error("failed to remember the name of the data root")]
    DataRootName(#[source] io::Error),
    #[error("failed to finish a blocking task")]
    Task(#[source] io::Error),
}

impl ShimState {
    pub fn offers(&self) -> Vec<ProviderOffer> {
        self.offers.read().map(|o| o.clone()).unwrap_or_default()
    }

    /// Speaks to the journal, whose flushes block.
    pub async fn journal<T: Send + 'static>(
        &self,
        speak: impl FnOnce(&Journal) -> Result<T, JournalError> + Send + 'static,
    ) -> Result<T, Error> {
        let journal = self.journal.clone();
        Ok(tokio::task::spawn_blocking(move || speak(&journal)).await.map_err(|e| Error::Task(io::Error::other(e)))??)
    }

    /// What cannot be read of all that this node has written down; each names its file.
    pub async fn damage_messages(&self) -> Result<Vec<String>, Error> {
        let suspects: Vec<_> = self.damage.damaged.iter().map(|d| d.uid).collect();
        let still = move |journal: &Journal| Ok(suspects.iter().filter_map(|uid| journal.get(*uid).err()?.damage()).collect::<Vec<_>>());
        let mut damaged = self.journal(still).await?;
        damaged.extend(self.damage.unreadable.values().cloned());
        damaged.extend(self.publish_records.damage_messages());
        Ok(damaged)
    }

    pub async fn record(&self, uid: Uid) -> Result<Option<Record>, Error> {
        self.journal(move |j| j.get(uid)).await
    }

    /// Both doors may wait for news of this workspace.
    pub fn notify(&self, uid: Uid) {
        self.cache.notify(uid);
        if let Some(reference) = self.cache.reference(uid) {
            // The making door is gone only when the process ends.
            _ = self.requeue.send(reference);
        }
    }

    /// Before the doors open: a record for every mount that has none.
    pub async fn adopt(&self) -> Result<(), Error> {
        let found = self.mounter.mounts().await?;
        for record in record_diff::missing_records(&self.publish_records.all(), &found) {
            let uid = record.shows.tree().map(tracing::field::display);
            tracing::warn!(uid, volume = %record.volume, "found a mount without a record");
            self.publish_records.put(record).await?;
        }
        Ok(())
    }

    /// Takes down the records of Pods that are gone.
    pub async fn sweep(&self) -> Result<(), Error> {
        let records = self.publish_records.all();
        for record in record_diff::stale_records(&records, &self.mounter.mounts().await?) {
            let uid = record.shows.tree().map(tracing::field::display);
            tracing::warn!(uid, volume = %record.volume, "forgot the record of a Pod that is gone");
            super::publishing::unpublish(self, &record.volume).await?;
        }
        Ok(())
    }
}
