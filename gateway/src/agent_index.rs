//! What the cluster says of agents and peers, as last heard.
//!
//! # Flow
//! [`crate::follow`] puts and takes objects; requests read. What a request itself learned from the API server (its own write, a direct
//! read) goes in by [`AgentIndex::learn`], so that it is not asked for again.
//!
//! # Guarantees
//! An agent's record never goes back to an older resource version, except when the whole list is read anew.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use tokio::sync::{mpsc, watch};
use yoi_crds::YoiPod;
use yoi_crds::condition::{ConditionStatus, find};
use yoi_crds::pod::{DesiredState, LastReport, LiveHint, SessionRef, TaskStatus};
use yoi_crds::reason::condition;
use yoi_plan::visibility::{PeerLink, agent_ref};
use yoi_wire::entry::AgentRef;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectKey {
    pub namespace: String,
    pub name: String,
}

impl ObjectKey {
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        ObjectKey { namespace: namespace.into(), name: name.into() }
    }
}

/// The part of a YoiPod that the gateway reads.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentRecord {
    pub name: AgentRef,
    pub resource_version: String,
    pub desired: DesiredState,
    pub run_generation: i64,
    /// UID of the Pod that is this agent now.
    pub pod_uid: Option<String>,
    pub gateway_status: GatewayStatus,
    /// Why it is not Ready: reason and message. `None` when it is, or when nobody has said.
    pub unready: Option<(String, String)>,
}

/// The part of a YoiPod's status that the gateway alone writes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GatewayStatus {
    pub session: Option<SessionRef>,
    pub task: Option<TaskStatus>,
    pub live: Option<LiveHint>,
    pub report: Option<LastReport>,
}

impl AgentRecord {
    pub fn key(&self) -> ObjectKey {
        ObjectKey::new(&self.name.namespace, &self.name.name)
    }

    /// The hint says that the current Pod is up.
    pub fn current_live(&self) -> Option<&LiveHint> {
        self.gateway_status.live.as_ref().filter(|live| Some(&live.pod_uid) == self.pod_uid.as_ref())
    }
}

impl From<YoiPod> for AgentRecord {
    fn from(pod: YoiPod) -> Self {
        let name = agent_ref(&pod);
        let status = pod.status.unwrap_or_default();
        let unready = find(&status.conditions, condition::READY)
            .filter(|ready| ready.status != ConditionStatus::True)
            .map(|ready| (ready.reason.clone(), ready.message.clone()));
        AgentRecord {
            name,
            resource_version: pod.metadata.resource_version.unwrap_or_default(),
            desired: pod.spec.desired_state,
            run_generation: status.run_generation.unwrap_or_default(),
            pod_uid: status.pod.map(|pod| pod.uid),
            gateway_status: GatewayStatus { session: status.session, task: status.task, live: status.live, report: status.report },
            unready,
        }
    }
}

/// More deletions than can happen while one answer of the API server is on its way.
const DELETED_UIDS_KEPT: usize = 256;

#[derive(Default)]
struct Tables {
    agents: HashMap<ObjectKey, Arc<AgentRecord>>,
    /// By namespace and Pod UID: a status in one namespace can claim no Pod of another.
    by_pod: HashMap<ObjectKey, ObjectKey>,
    /// UIDs that were deleted lately. A request's own read or write may come back after the deletion, and must not raise the dead.
    deleted: VecDeque<String>,
    by_uid: HashMap<String, ObjectKey>,
    peer_links: HashMap<ObjectKey, Arc<PeerLink>>,
    peer_links_of: HashMap<ObjectKey, BTreeSet<String>>,
}

pub struct AgentIndex {
    tables: RwLock<Tables>,
    /// Raised with each change of an agent: whoever waits for one looks again.
    version: watch::Sender<u64>,
    /// UIDs of agents that changed or went; one reader, the keeper of live hints.
    changed: mpsc::UnboundedSender<String>,
    agents_listed: watch::Sender<bool>,
    peer_links_listed: watch::Sender<bool>,
}

impl AgentIndex {
    /// The index, and the UIDs of the agents that change in it.
    pub fn new() -> (Arc<Self>, mpsc::UnboundedReceiver<String>) {
        let (changed, changes) = mpsc::unbounded_channel();
        let index = AgentIndex {
            tables: RwLock::default(),
            version: watch::channel(0).0,
            changed,
            agents_listed: watch::channel(false).0,
            peer_links_listed: watch::channel(false).0,
        };
        (Arc::new(index), changes)
    }

    pub fn get(&self, key: &ObjectKey) -> Option<Arc<AgentRecord>> {
        self.read().agents.get(key).cloned()
    }

    pub fn by_pod(&self, namespace: &str, pod_uid: &str) -> Option<Arc<AgentRecord>> {
        let tables = self.read();
        tables.by_pod.get(&ObjectKey::new(namespace, pod_uid)).and_then(|key| tables.agents.get(key)).cloned()
    }

    pub fn by_uid(&self, uid: &str) -> Option<Arc<AgentRecord>> {
        let tables = self.read();
        tables.by_uid.get(uid).and_then(|key| tables.agents.get(key)).cloned()
    }

    pub fn all(&self) -> Vec<Arc<AgentRecord>> {
        self.read().agents.values().cloned().collect()
    }

    pub fn peer_link(&self, key: &ObjectKey) -> Option<Arc<PeerLink>> {
        self.read().peer_links.get(key).cloned()
    }

    /// The peer_links whose spec names this agent.
    pub fn peer_links_of(&self, member: &ObjectKey) -> Vec<Arc<PeerLink>> {
        let tables = self.read();
        let names = tables.peer_links_of.get(member).into_iter().flatten();
        names.filter_map(|name| tables.peer_links.get(&ObjectKey::new(&member.namespace, name)).cloned()).collect()
    }

    /// Raised with each change of an agent.
    pub fn version(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    pub fn is_listed(&self) -> bool {
        *self.agents_listed.borrow() && *self.peer_links_listed.borrow()
    }

    /// Resolves when both kinds were listed once.
    pub async fn wait_until_listed(&self) {
        for table in [&self.agents_listed, &self.peer_links_listed] {
            // The sender is `self`, so the channel cannot close under us.
            let _ = table.subscribe().wait_for(|listed| *listed).await;
        }
    }

    /// Takes in a record that a request read or wrote itself, unless a newer one is known.
    pub fn insert(&self, record: AgentRecord) -> Arc<AgentRecord> {
        let record = Arc::new(record);
        self.write().put_agent(record.clone());
        self.notify([record.name.uid.clone()]);
        record
    }

    pub(crate) fn remove_agent(&self, key: &ObjectKey, uid: &str) {
        let mut tables = self.write();
        if tables.agents.get(key).is_some_and(|known| known.name.uid == uid) {
            tables.remove_agent(key);
        }
        tables.deleted.push_back(uid.to_owned());
        if tables.deleted.len() > DELETED_UIDS_KEPT {
            tables.deleted.pop_front();
        }
        drop(tables);
        self.notify([uid.to_owned()]);
    }

    pub(crate) fn replace_agents(&self, records: Vec<AgentRecord>) {
        let mut tables = self.write();
        let mut uids: BTreeSet<String> = tables.by_uid.keys().cloned().collect();
        (tables.agents, tables.by_pod, tables.by_uid) = Default::default();
        for record in records {
            uids.insert(record.name.uid.clone());
            tables.put_agent(Arc::new(record));
        }
        drop(tables);
        self.agents_listed.send_replace(true);
        self.notify(uids);
    }

    pub(crate) fn put_peer_link(&self, link: PeerLink) {
        self.write().put_peer_link(link);
    }

    pub(crate) fn remove_peer_link(&self, key: &ObjectKey) {
        self.write().remove_peer_link(key);
    }

    pub(crate) fn replace_peer_links(&self, peer_links: Vec<PeerLink>) {
        let mut tables = self.write();
        (tables.peer_links, tables.peer_links_of) = Default::default();
        for link in peer_links {
            tables.put_peer_link(link);
        }
        drop(tables);
        self.peer_links_listed.send_replace(true);
    }

    fn notify(&self, uids: impl IntoIterator<Item = String>) {
        for uid in uids {
            // Nobody reads in tests of the tables alone.
            let _ = self.changed.send(uid);
        }
        self.version.send_modify(|version| *version += 1);
    }

    fn read(&self) -> RwLockReadGuard<'_, Tables> {
        self.tables.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Tables> {
        self.tables.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tables {
    fn put_agent(&mut self, record: Arc<AgentRecord>) {
        let key = record.key();
        if self.deleted.contains(&record.name.uid) {
            return;
        }
        if self.agents.get(&key).is_some_and(|known| is_newer(&known.resource_version, &record.resource_version)) {
            return;
        }
        self.remove_agent(&key);
        if let Some(pod) = &record.pod_uid {
            self.by_pod.insert(ObjectKey::new(&key.namespace, pod), key.clone());
        }
        self.by_uid.insert(record.name.uid.clone(), key.clone());
        self.agents.insert(key, record);
    }

    fn remove_agent(&mut self, key: &ObjectKey) {
        let Some(known) = self.agents.remove(key) else { return };
        self.by_uid.remove(&known.name.uid);
        if let Some(pod) = &known.pod_uid {
            self.by_pod.remove(&ObjectKey::new(&key.namespace, pod));
        }
    }

    fn put_peer_link(&mut self, link: PeerLink) {
        let key = ObjectKey::new(&link.namespace, &link.name);
        for member in &link.members {
            self.peer_links_of.entry(ObjectKey::new(&link.namespace, member)).or_default().insert(link.name.clone());
        }
        self.peer_links.insert(key, Arc::new(link));
    }

    fn remove_peer_link(&mut self, key: &ObjectKey) {
        let Some(link) = self.peer_links.remove(key) else { return };
        for member in &link.members {
            let member = ObjectKey::new(&key.namespace, member);
            if let Some(names) = self.peer_links_of.get_mut(&member) {
                names.remove(&key.name);
                if names.is_empty() {
                    self.peer_links_of.remove(&member);
                }
            }
        }
    }
}

/// Resource versions of one resource are comparable numbers; what is not a number is not compared.
fn is_newer(known: &str, other: &str) -> bool {
    matches!((known.parse::<u128>(), other.parse::<u128>()), (Ok(known), Ok(other)) if known > other)
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn record(name: &str, uid: &str, pod: Option<&str>, version: &str) -> AgentRecord {
        AgentRecord {
            name: AgentRef { namespace: "ns".into(), name: name.into(), uid: uid.into() },
            resource_version: version.into(),
            desired: DesiredState::Running,
            run_generation: 1,
            pod_uid: pod.map(Into::into),
            gateway_status: GatewayStatus::default(),
            unready: None,
        }
    }

    #[test]
    fn an_older_version_does_not_replace_a_newer_one() {
        let (agents, _changes) = AgentIndex::new();
        agents.insert(record("a", "u1", Some("p2"), "10"));
        agents.insert(record("a", "u1", Some("p1"), "9"));
        assert_eq!(agents.get(&ObjectKey::new("ns", "a")).unwrap().pod_uid.as_deref(), Some("p2"));
        assert!(agents.by_pod("ns", "p1").is_none());
    }

    #[test]
    fn a_pod_that_was_replaced_is_nobody() {
        let (agents, _changes) = AgentIndex::new();
        agents.insert(record("a", "u1", Some("p1"), "1"));
        agents.insert(record("a", "u1", Some("p2"), "2"));
        assert!(agents.by_pod("ns", "p1").is_none());
        assert_eq!(agents.by_pod("ns", "p2").unwrap().name.uid, "u1");
    }

    #[test]
    fn deleting_a_former_object_leaves_its_namesake() {
        let (agents, _changes) = AgentIndex::new();
        agents.insert(record("a", "u2", None, "5"));
        agents.remove_agent(&ObjectKey::new("ns", "a"), "u1");
        assert!(agents.by_uid("u2").is_some());
    }

    #[test]
    fn what_was_read_before_a_deletion_does_not_raise_the_dead() {
        let (agents, _changes) = AgentIndex::new();
        agents.insert(record("a", "u1", Some("p1"), "1"));
        agents.remove_agent(&ObjectKey::new("ns", "a"), "u1");
        agents.insert(record("a", "u1", Some("p1"), "2"));
        assert!(agents.get(&ObjectKey::new("ns", "a")).is_none());
    }

    #[test]
    fn a_status_elsewhere_claims_no_pod_here() {
        let (agents, _changes) = AgentIndex::new();
        agents.insert(record("a", "u1", Some("p1"), "1"));
        let mut other = record("other", "u2", Some("p1"), "2");
        other.name.namespace = "other".into();
        agents.insert(other);
        assert_eq!(agents.by_pod("ns", "p1").unwrap().name.uid, "u1");
    }
}
