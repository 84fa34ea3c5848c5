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

use super::cache::Cache;
use super::health::Counts;
use super::locks::Locks;
use super::publish::{PublicationError, Publications};
use super::recover::Troubled;
use super::runtimes::{RuntimeError, Runtimes};
use super::sockets::Sockets;
use crate::decide::sweep;
use crate::mounter::client::{Failure, Mounter};
use crate::volume::PodVolume;

pub struct World {
    pub node: String,
    pub kubelet_dir: PathBuf,
    pub mounter: Arc<dyn Mounter>,
    pub journal: Arc<Journal>,
    pub publications: Arc<Publications>,
    pub runtimes: Runtimes,
    pub cache: Cache,
    pub offers: RwLock<Vec<ProviderOffer>>,
    /// What was in trouble at start.
    pub troubled: Troubled,
    /// Held while a tree is made, sealed, shown or destroyed.
    pub trees: Locks<Uid>,
    /// Held while a volume is mounted or unmounted; taken before the tree's.
    pub volumes: Locks<PodVolume>,
    /// Asks the making door to look at a workspace.
    pub nudge: UnboundedSender<ObjectRef<AgentWorkspace>>,
    pub counts: Counts,
    /// The process ends: nobody waits any longer.
    pub stop: CancellationToken,
    pub sockets: Sockets,
    /// The mounting door is open.
    pub open: AtomicBool,
}

/// What may fail at either door.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Publication(#[from] PublicationError),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Disk(#[from] Failure),
    #[error("failed to remember the name of the data root")]
    Root(#[source] io::Error),
    #[error("failed to finish a blocking task")]
    Task(#[source] io::Error),
}

impl World {
    pub fn offers(&self) -> Vec<ProviderOffer> {
        self.offers.read().map(|o| o.clone()).unwrap_or_default()
    }

    /// Speaks to the journal, whose flushes block.
    pub async fn journal<T: Send + 'static>(
        &self,
        speak: impl FnOnce(&Journal) -> Result<T, JournalError> + Send + 'static,
    ) -> Result<T, Trouble> {
        let journal = self.journal.clone();
        Ok(tokio::task::spawn_blocking(move || speak(&journal)).await.map_err(|e| Trouble::Task(io::Error::other(e)))??)
    }

    /// What cannot be read of all that this node has written down; each names its file.
    pub async fn damaged(&self) -> Result<Vec<String>, Trouble> {
        let suspects: Vec<_> = self.troubled.damaged.iter().map(|d| d.uid).collect();
        let still = move |journal: &Journal| Ok(suspects.iter().filter_map(|uid| journal.get(*uid).err()?.damage()).collect::<Vec<_>>());
        let mut damaged = self.journal(still).await?;
        damaged.extend(self.troubled.unreadable.values().cloned());
        damaged.extend(self.publications.damaged());
        Ok(damaged)
    }

    pub async fn record(&self, uid: Uid) -> Result<Option<Record>, Trouble> {
        self.journal(move |j| j.get(uid)).await
    }

    /// Both doors may wait for news of this workspace.
    pub fn stir(&self, uid: Uid) {
        self.cache.ring(uid);
        if let Some(reference) = self.cache.reference(uid) {
            // The making door is gone only when the process ends.
            _ = self.nudge.send(reference);
        }
    }

    /// Before the doors open: a record for every mount that has none.
    pub async fn adopt(&self) -> Result<(), Trouble> {
        let found = self.mounter.mounts().await?;
        for record in sweep::unrecorded(&self.publications.all(), &found) {
            let uid = record.shows.tree().map(tracing::field::display);
            tracing::warn!(uid, volume = %record.volume, "found a mount without a record");
            self.publications.put(record).await?;
        }
        Ok(())
    }

    /// Takes down the records of Pods that are gone.
    pub async fn sweep(&self) -> Result<(), Trouble> {
        let records = self.publications.all();
        for record in sweep::stale(&records, &self.mounter.mounts().await?) {
            let uid = record.shows.tree().map(tracing::field::display);
            tracing::warn!(uid, volume = %record.volume, "forgot the record of a Pod that is gone");
            super::mounting::unpublish(self, &record.volume).await?;
        }
        Ok(())
    }
}
