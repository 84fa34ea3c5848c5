//! What the parts of the shim share: the lowest layer, which knows none of them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use kube::runtime::reflector::ObjectRef;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use yoi_crds::AgentWorkspace;
use yoi_watch_cache::Queued;
use yoi_workspace::journal::DamagedRecord;
use yoi_workspace::{ErrorReason, Journal, JournalError, ProviderOffer, Record, Uid};

use super::error::Error;
use super::keyed_locks::KeyedLocks;
use super::metrics::ShimMetrics;
use super::pauses::Pauses;
use super::pod_sockets::PodSockets;
use super::publish_records::PublishRecords;
use super::runtime_store::RuntimeStore;
use super::unclaimed::Unclaimed;
use super::usage::TreeUsages;
use super::views::Views;
use super::workspaces::{WorkspaceWriter, Workspaces};
use crate::args::driver_dir;
use crate::decide::node_status::DataRootFailure;
use crate::host_sources::HostSources;
use crate::mounter::client::Mounter;
use crate::mounter::protocol::MounterRefusal;
use crate::runtime_digest::RuntimeDigest;
use crate::volume::{PodVolume, PublishedVolume};

/// Change lists that are made at the same time for all Pods together. The mounter's other permits are for mounts.
pub const MAX_CHANGE_LISTS: usize = 4;

/// Name of a workspace in the queue of the provision controller.
pub type QueuedWorkspace = ObjectRef<Queued<AgentWorkspace>>;

/// The state of one shim process.
pub struct ShimState {
    /// Name of this node.
    pub node: String,
    /// The kubelet's root directory.
    pub kubelet_dir: PathBuf,
    /// The privileged process.
    pub mounter: Arc<dyn Mounter>,
    /// Intents and results of all work on trees.
    pub journal: Arc<Journal>,
    /// What is mounted in each Pod's volume.
    pub publish_records: Arc<PublishRecords>,
    /// The runtime binaries of this node and the directories of Pods that run one.
    pub runtimes: RuntimeStore,
    /// The AgentWorkspaces of this node, as the watch shows them.
    pub workspaces: Workspaces,
    /// The folders of the host that trees may be made from.
    pub host_sources: HostSources,
    /// The providers of this node, as last probed.
    pub offers: RwLock<Vec<ProviderOffer>>,
    /// Why the data root does not work, as last probed. None: it works.
    pub data_root_failure: RwLock<Option<DataRootFailure>>,
    /// Notified when the node should be probed and reported before its time.
    pub report_node: Notify,
    /// What recovery found damaged when this process started.
    pub damage: StartupDamage,
    /// Held while a tree is made, sealed, published or destroyed.
    pub tree_locks: KeyedLocks<Uid>,
    /// Held while a volume is mounted or unmounted. It is taken before the tree's lock.
    pub volume_locks: KeyedLocks<PodVolume>,
    /// Held while the loans of a tree change what its Pods see, and while a Pod gets the tree. It is taken after the volume's lock and before the tree's.
    pub loan_locks: KeyedLocks<Uid>,
    /// What each volume shows whose agent may lend, as this process has had it laid last.
    pub views: Views,
    /// Makes the provision controller reconcile a workspace.
    pub requeue: UnboundedSender<QueuedWorkspace>,
    /// Counters and histograms of `/metrics`.
    pub metrics: ShimMetrics,
    /// Cancelled when the process ends. Nothing waits any longer then.
    pub stop: CancellationToken,
    /// The sockets of Pods that run our runtime.
    pub sockets: PodSockets,
    /// One permit for each change list that is being made.
    pub change_lists: Semaphore,
    /// Held while a change list is made for a Pod, and in the pause after it. It is taken before the one of the namespace.
    pub change_list_locks: KeyedLocks<Uid>,
    /// Held while a change list is made for a Pod of a namespace. It is taken before the permit.
    pub namespace_locks: KeyedLocks<String>,
    /// When a Pod may have its next change list.
    pub change_list_pauses: Pauses,
    /// True while the CSI socket is served.
    pub serving: AtomicBool,
    /// What the trees of this node take, as last measured.
    pub usages: TreeUsages,
    /// The trees of this node that no object claims.
    pub unclaimed: Unclaimed,
    /// When this node was last reported, or this process started.
    pub reported_at: Mutex<Instant>,
    /// Why the last mount of a tree was refused for its covers.
    pub refused_covers: Mutex<HashMap<Uid, String>>,
}

/// The sending ends of what [`ShimState`] only reads. The provision controller owns them.
pub struct StateInputs {
    /// Fills [`ShimState::workspaces`].
    pub writer: WorkspaceWriter,
    /// What is sent to [`ShimState::requeue`].
    pub requeued: UnboundedReceiver<QueuedWorkspace>,
}

/// Trees that recovery could not bring to a known state. None of them keeps another from being served.
#[derive(Debug, Default)]
pub struct StartupDamage {
    /// Trees that the journal lists as made and that are missing on disk.
    pub lost: HashSet<Uid>,
    /// Trees whose entry on disk could not be read, and why.
    pub unreadable: BTreeMap<Uid, String>,
    /// Trees whose journal record could not be understood, and why.
    pub damaged: Vec<DamagedRecord>,
}

impl ShimState {
    /// Opens the publish records and installs `runtime_binary` in the driver's directory below `kubelet_dir`, which must exist.
    pub fn open(
        node: String,
        kubelet_dir: PathBuf,
        runtime_binary: &Path,
        mounter: Arc<dyn Mounter>,
        journal: Arc<Journal>,
    ) -> Result<(Self, StateInputs), Error> {
        let folder = driver_dir(&kubelet_dir);
        let publish_records = Arc::new(PublishRecords::open(folder.join("publish"))?);
        let runtimes = RuntimeStore::install(&folder, runtime_binary, &published_digests(&publish_records))?;
        let (workspaces, writer) = Workspaces::new();
        let (requeue, requeued) = unbounded_channel();
        let state = ShimState {
            node,
            kubelet_dir,
            mounter,
            journal,
            publish_records,
            runtimes,
            workspaces,
            host_sources: HostSources::default(),
            offers: RwLock::default(),
            data_root_failure: RwLock::default(),
            report_node: Notify::new(),
            damage: StartupDamage::default(),
            tree_locks: KeyedLocks::default(),
            volume_locks: KeyedLocks::default(),
            loan_locks: KeyedLocks::default(),
            views: Views::default(),
            requeue,
            metrics: ShimMetrics::default(),
            stop: CancellationToken::new(),
            sockets: PodSockets::default(),
            change_lists: Semaphore::new(MAX_CHANGE_LISTS),
            change_list_locks: KeyedLocks::default(),
            namespace_locks: KeyedLocks::default(),
            change_list_pauses: Pauses::default(),
            serving: AtomicBool::new(false),
            usages: TreeUsages::default(),
            unclaimed: Unclaimed::default(),
            reported_at: Mutex::new(Instant::now()),
            refused_covers: Mutex::default(),
        };
        Ok((state, StateInputs { writer, requeued }))
    }

    /// The providers of this node, as last probed.
    pub fn offers(&self) -> Vec<ProviderOffer> {
        self.offers.read().map(|o| o.clone()).unwrap_or_default()
    }

    /// Why the data root does not work, as last probed.
    pub fn data_root_failure(&self) -> Option<DataRootFailure> {
        self.data_root_failure.read().map(|failure| failure.clone()).unwrap_or_default()
    }

    /// When this node was last reported, or when this process started.
    pub fn reported_at(&self) -> Instant {
        *self.reported_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that this node was reported.
    pub fn set_reported(&self, at: Instant) {
        *self.reported_at.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }

    /// Why the last mount of this tree was refused for its covers; `None` if it was not.
    pub fn refused_cover(&self, tree: Uid) -> Option<String> {
        self.refused_covers.lock().unwrap_or_else(PoisonError::into_inner).get(&tree).cloned()
    }

    /// Notes how the last mount of this tree went.
    pub fn set_refused_cover(&self, tree: Uid, why: Option<String>) {
        let mut all = self.refused_covers.lock().unwrap_or_else(PoisonError::into_inner);
        match why {
            Some(why) => _ = all.insert(tree, why),
            None => _ = all.remove(&tree),
        }
    }

    /// Has the node probed soon if the mounter may have refused because of the whole data root.
    pub fn note_refusal(&self, refused: &MounterRefusal) {
        if matches!(refused.reason, ErrorReason::ReadOnlyFilesystem | ErrorReason::BackendError) {
            self.report_node.notify_one();
        }
    }

    /// Runs `work` with the journal on a blocking thread, because each write flushes to the device.
    pub async fn journal<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Journal) -> Result<T, JournalError> + Send + 'static,
    ) -> Result<T, Error> {
        let journal = self.journal.clone();
        Ok(tokio::task::spawn_blocking(move || work(&journal)).await.map_err(|e| Error::Task(io::Error::other(e)))??)
    }

    /// The journal's record of a tree.
    pub async fn record(&self, uid: Uid) -> Result<Option<Record>, Error> {
        self.journal(move |j| j.get(uid)).await
    }

    /// One sentence for each record of this node that cannot be read. Each names its file.
    pub async fn damage_messages(&self) -> Result<Vec<String>, Error> {
        let suspects: Vec<_> = self.damage.damaged.iter().map(|d| d.uid).collect();
        let read_again =
            move |journal: &Journal| Ok(suspects.iter().filter_map(|uid| journal.get(*uid).err()?.damage()).collect::<Vec<_>>());
        let mut damaged = self.journal(read_again).await?;
        damaged.extend(self.damage.unreadable.values().cloned());
        damaged.extend(self.publish_records.damage_messages());
        Ok(damaged)
    }

    /// Wakes mounts that wait for this tree, and makes the provision controller reconcile its workspace.
    pub fn notify(&self, uid: Uid) {
        self.workspaces.notify(uid);
        if let Some(ws) = self.workspaces.get(uid) {
            self.requeue(&ws);
        }
    }

    /// Makes the provision controller reconcile this workspace.
    pub fn requeue(&self, ws: &AgentWorkspace) {
        let name = ObjectRef::new(ws.metadata.name.as_deref().unwrap_or_default());
        // The receiver is dropped only when the process ends.
        _ = self.requeue.send(name.within(ws.metadata.namespace.as_deref().unwrap_or_default()));
    }
}

/// The runtime binaries that are mounted into Pods.
fn published_digests(publish_records: &PublishRecords) -> Vec<RuntimeDigest> {
    let digests = publish_records.all().into_iter().filter_map(|p| match p.shows {
        PublishedVolume::Runtime { digest } => Some(digest),
        PublishedVolume::Tree { .. } => None,
    });
    digests.collect::<HashSet<_>>().into_iter().collect()
}
