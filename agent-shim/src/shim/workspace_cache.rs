//! What the watch has told: this node's workspaces by UID, and subscribers for those who wait for a change of one.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher::Event;
use tokio::sync::watch;
use yoi_crds::AgentWorkspace;
use yoi_workspace::Uid;

/// The UID of an object, as disks spell it.
pub fn uid_of(ws: &AgentWorkspace) -> Option<Uid> {
    ws.metadata.uid.as_deref()?.parse().ok()
}

#[derive(Default)]
struct Inner {
    known: HashMap<Uid, Arc<AgentWorkspace>>,
    /// UIDs of the list that is being read.
    listed: Option<HashSet<Uid>>,
    synced: bool,
    subscribers: HashMap<Uid, watch::Sender<()>>,
}

#[derive(Default)]
pub struct WorkspaceCache(Mutex<Inner>);

impl WorkspaceCache {
    pub fn get(&self, uid: Uid) -> Option<Arc<AgentWorkspace>> {
        self.lock().known.get(&uid).cloned()
    }

    /// The workspace whose tree a YoiPod's Pod mounts.
    pub fn mounted_by(&self, pod: Uid) -> Option<Arc<AgentWorkspace>> {
        let pod = pod.to_string();
        let its = |ws: &&Arc<AgentWorkspace>| ws.status.as_ref().and_then(|s| s.pod_uid.as_deref()) == Some(&pod);
        self.lock().known.values().find(its).cloned()
    }

    pub fn reference(&self, uid: Uid) -> Option<ObjectRef<AgentWorkspace>> {
        self.get(uid).map(|ws| ObjectRef::from_obj(&*ws))
    }

    /// True once a whole list was read.
    pub fn is_synced(&self) -> bool {
        self.lock().synced
    }

    pub fn len(&self) -> usize {
        self.lock().known.len()
    }

    pub fn apply_event(&self, event: &Event<AgentWorkspace>) {
        let mut inner = self.lock();
        match event {
            Event::Init => inner.listed = Some(HashSet::new()),
            Event::InitApply(ws) => {
                if let (Some(uid), Some(listed)) = (uid_of(ws), inner.listed.as_mut()) {
                    listed.insert(uid);
                }
                inner.insert(ws);
            }
            Event::InitDone => {
                if let Some(listed) = inner.listed.take() {
                    inner.known.retain(|uid, _| listed.contains(uid));
                }
                inner.synced = true;
                inner.subscribers.values().for_each(|subscriber| _ = subscriber.send(()));
            }
            Event::Apply(ws) => inner.insert(ws),
            Event::Delete(ws) => {
                if let Some(uid) = uid_of(ws) {
                    inner.known.remove(&uid);
                    inner.notify(uid);
                }
            }
        }
    }

    /// What the API server answered to a write: newer than the watch, unless the watch says that the object is gone.
    pub fn wrote(&self, ws: AgentWorkspace) {
        let mut inner = self.lock();
        if uid_of(&ws).is_some_and(|uid| inner.known.contains_key(&uid)) {
            inner.insert(&ws);
        }
    }

    /// Rings whenever the workspace, or its tree, may have changed.
    pub fn subscribe(&self, uid: Uid) -> watch::Receiver<()> {
        self.lock().subscribers.entry(uid).or_insert_with(|| watch::channel(()).0).subscribe()
    }

    pub fn notify(&self, uid: Uid) {
        self.lock().notify(uid);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn insert(&mut self, ws: &AgentWorkspace) {
        let Some(uid) = uid_of(ws) else { return };
        // The answer to a write overtakes the watch; an older event that comes after it would hide what was just written.
        let version = |ws: &AgentWorkspace| ws.metadata.resource_version.as_deref().and_then(|v| v.parse::<u64>().ok());
        if self.known.get(&uid).is_some_and(|held| version(held) > version(ws)) {
            return;
        }
        self.known.insert(uid, Arc::new(ws.clone()));
        self.notify(uid);
    }

    fn notify(&mut self, uid: Uid) {
        if let Some(subscriber) = self.subscribers.get(&uid)
            && subscriber.send(()).is_err()
        {
            self.subscribers.remove(&uid);
        }
    }
}
