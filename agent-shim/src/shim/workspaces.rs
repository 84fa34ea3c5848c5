//! The AgentWorkspaces of this node, and notifications for who waits for a change of one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;
use yoi_crds::AgentWorkspace;
use yoi_watch_cache::{CacheChange, CacheWriter, WatchCache};
use yoi_workspace::Uid;

/// What a workspace is found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorkspaceKey {
    /// Its own UID.
    Uid(Uid),
    /// The UID of a YoiPod's Pod that may mount its tree.
    Pod(Uid),
}

/// Fills [`Workspaces`] from a watch.
pub type WorkspaceWriter = CacheWriter<AgentWorkspace, AgentWorkspace, WorkspaceKey>;

/// The UID of a workspace, or None if it is not a UUID.
pub fn uid_of(ws: &AgentWorkspace) -> Option<Uid> {
    ws.metadata.uid.as_deref()?.parse().ok()
}

/// Namespace and name, as in `team/a`.
pub fn object_name(ws: &AgentWorkspace) -> String {
    let meta = &ws.metadata;
    format!("{}/{}", meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}

fn keys(ws: &AgentWorkspace) -> Vec<WorkspaceKey> {
    let status = ws.status.as_ref();
    let holders = status.into_iter().flat_map(|s| &s.claims).filter_map(|claim| claim.holder.pod_uid.as_deref());
    let pods = status.and_then(|s| s.pod_uid.as_deref()).into_iter().chain(holders).filter_map(|pod| pod.parse().ok());
    uid_of(ws).map(WorkspaceKey::Uid).into_iter().chain(pods.map(WorkspaceKey::Pod)).collect()
}

/// The workspaces that the watch shows.
pub struct Workspaces {
    cache: WatchCache<AgentWorkspace, WorkspaceKey>,
    /// Set before the notifications of the first listing, so that who is notified of it sees it.
    listed: AtomicBool,
    subscribers: Mutex<HashMap<Uid, watch::Sender<()>>>,
}

impl Workspaces {
    /// Without a workspace, and what fills it. The caller passes each change of the writer to [`Self::apply_change`].
    pub fn new() -> (Self, WorkspaceWriter) {
        let (cache, writer) = WatchCache::new(|ws: AgentWorkspace| ws, keys);
        (Workspaces { cache, listed: AtomicBool::new(false), subscribers: Mutex::default() }, writer)
    }

    /// The workspace with this UID.
    pub fn get(&self, uid: Uid) -> Option<Arc<AgentWorkspace>> {
        self.cache.first_by_key(&WorkspaceKey::Uid(uid))
    }

    /// The workspace of this name.
    pub fn by_name(&self, namespace: &str, name: &str) -> Option<Arc<AgentWorkspace>> {
        self.cache.get(namespace, name)
    }

    /// The workspace whose tree a YoiPod's Pod mounts.
    pub fn mounted_by(&self, pod: Uid) -> Option<Arc<AgentWorkspace>> {
        self.cache.first_by_key(&WorkspaceKey::Pod(pod))
    }

    /// All of them, in no order.
    pub fn all(&self) -> Vec<Arc<AgentWorkspace>> {
        self.cache.all()
    }

    /// True once all workspaces of this node have been listed.
    pub fn is_synced(&self) -> bool {
        self.listed.load(Ordering::SeqCst)
    }

    /// How many workspaces this node has.
    pub fn count(&self) -> usize {
        self.cache.len()
    }

    /// Takes in the answer to a write, which is newer than what the watch has shown. A workspace that the watch showed as deleted stays deleted.
    pub fn learn(&self, ws: AgentWorkspace) {
        let metadata = ws.metadata.clone();
        self.notify_keys(&self.cache.learn(&metadata, ws));
    }

    /// Notifies the subscribers of what changed. A completed listing concerns all of them.
    pub fn apply_change(&self, change: &CacheChange<WorkspaceKey>) {
        if change.listed {
            self.listed.store(true, Ordering::SeqCst);
            self.subscribers.lock().unwrap_or_else(PoisonError::into_inner).values().for_each(|subscriber| _ = subscriber.send(()));
        }
        self.notify_keys(&change.keys);
    }

    /// Changes whenever the workspace, or its tree, may have changed.
    pub fn subscribe(&self, uid: Uid) -> watch::Receiver<()> {
        let mut subscribers = self.subscribers.lock().unwrap_or_else(PoisonError::into_inner);
        subscribers.entry(uid).or_insert_with(|| watch::channel(()).0).subscribe()
    }

    /// Notifies the subscribers of one workspace. A subscription that nobody holds any longer is dropped.
    pub fn notify(&self, uid: Uid) {
        let mut subscribers = self.subscribers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(subscriber) = subscribers.get(&uid)
            && subscriber.send(()).is_err()
        {
            subscribers.remove(&uid);
        }
    }

    fn notify_keys(&self, keys: &[WorkspaceKey]) {
        for key in keys {
            match key {
                WorkspaceKey::Uid(uid) => self.notify(*uid),
                WorkspaceKey::Pod(_) => {}
            }
        }
    }
}
