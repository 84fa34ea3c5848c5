//! What the cluster says of agents and peers, as last heard.
//!
//! # Flow
//! [`crate::follow`] puts and takes objects; requests read. What a request itself learned from the API server (its own write, a direct
//! read) goes in by [`World::learn`], so that it is not asked for again.
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
pub struct Key {
    pub namespace: String,
    pub name: String,
}

impl Key {
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Key { namespace: namespace.into(), name: name.into() }
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
    pub ours: Ours,
    /// Why it is not Ready: reason and message. `None` when it is, or when nobody has said.
    pub unready: Option<(String, String)>,
}

/// The part of a YoiPod's status that the gateway alone writes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ours {
    pub session: Option<SessionRef>,
    pub task: Option<TaskStatus>,
    pub live: Option<LiveHint>,
    pub report: Option<LastReport>,
}

impl AgentRecord {
    pub fn key(&self) -> Key {
        Key::new(&self.name.namespace, &self.name.name)
    }

    /// The hint says that the current Pod is up.
    pub fn hinted_live(&self) -> Option<&LiveHint> {
        self.ours.live.as_ref().filter(|live| Some(&live.pod_uid) == self.pod_uid.as_ref())
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
            ours: Ours { session: status.session, task: status.task, live: status.live, report: status.report },
            unready,
        }
    }
}

/// More deletions than can happen while one answer of the API server is on its way.
const REMEMBERED_GONE: usize = 256;

#[derive(Default)]
struct Tables {
    agents: HashMap<Key, Arc<AgentRecord>>,
    /// By namespace and Pod UID: a status in one namespace can claim no Pod of another.
    by_pod: HashMap<Key, Key>,
    /// UIDs that were deleted lately. A request's own read or write may come back after the deletion, and must not raise the dead.
    gone: VecDeque<String>,
    by_uid: HashMap<String, Key>,
    bonds: HashMap<Key, Arc<PeerLink>>,
    bonds_of: HashMap<Key, BTreeSet<String>>,
}

pub struct World {
    tables: RwLock<Tables>,
    /// Raised with each change of an agent: whoever waits for one looks again.
    version: watch::Sender<u64>,
    /// UIDs of agents that changed or went; one reader, the keeper of live hints.
    changed: mpsc::UnboundedSender<String>,
    agents_listed: watch::Sender<bool>,
    bonds_listed: watch::Sender<bool>,
}

impl World {
    /// The world, and the UIDs of the agents that change in it.
    pub fn new() -> (Arc<Self>, mpsc::UnboundedReceiver<String>) {
        let (changed, changes) = mpsc::unbounded_channel();
        let world = World {
            tables: RwLock::default(),
            version: watch::channel(0).0,
            changed,
            agents_listed: watch::channel(false).0,
            bonds_listed: watch::channel(false).0,
        };
        (Arc::new(world), changes)
    }

    pub fn agent(&self, key: &Key) -> Option<Arc<AgentRecord>> {
        self.read().agents.get(key).cloned()
    }

    pub fn agent_of_pod(&self, namespace: &str, pod_uid: &str) -> Option<Arc<AgentRecord>> {
        let tables = self.read();
        tables.by_pod.get(&Key::new(namespace, pod_uid)).and_then(|key| tables.agents.get(key)).cloned()
    }

    pub fn agent_by_uid(&self, uid: &str) -> Option<Arc<AgentRecord>> {
        let tables = self.read();
        tables.by_uid.get(uid).and_then(|key| tables.agents.get(key)).cloned()
    }

    pub fn agents(&self) -> Vec<Arc<AgentRecord>> {
        self.read().agents.values().cloned().collect()
    }

    pub fn bond(&self, key: &Key) -> Option<Arc<PeerLink>> {
        self.read().bonds.get(key).cloned()
    }

    /// The bonds whose spec names this agent.
    pub fn bonds_of(&self, member: &Key) -> Vec<Arc<PeerLink>> {
        let tables = self.read();
        let names = tables.bonds_of.get(member).into_iter().flatten();
        names.filter_map(|name| tables.bonds.get(&Key::new(&member.namespace, name)).cloned()).collect()
    }

    /// Raised with each change of an agent.
    pub fn version(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    pub fn is_listed(&self) -> bool {
        *self.agents_listed.borrow() && *self.bonds_listed.borrow()
    }

    /// Resolves when both kinds were listed once.
    pub async fn listed(&self) {
        for table in [&self.agents_listed, &self.bonds_listed] {
            // The sender is `self`, so the channel cannot close under us.
            let _ = table.subscribe().wait_for(|listed| *listed).await;
        }
    }

    /// Takes in a record that a request read or wrote itself, unless a newer one is known.
    pub fn learn(&self, record: AgentRecord) -> Arc<AgentRecord> {
        let record = Arc::new(record);
        self.write().put_agent(record.clone());
        self.told([record.name.uid.clone()]);
        record
    }

    pub(crate) fn forget_agent(&self, key: &Key, uid: &str) {
        let mut tables = self.write();
        if tables.agents.get(key).is_some_and(|known| known.name.uid == uid) {
            tables.take_agent(key);
        }
        tables.gone.push_back(uid.to_owned());
        if tables.gone.len() > REMEMBERED_GONE {
            tables.gone.pop_front();
        }
        drop(tables);
        self.told([uid.to_owned()]);
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
        self.told(uids);
    }

    pub(crate) fn put_bond(&self, bond: PeerLink) {
        self.write().put_bond(bond);
    }

    pub(crate) fn forget_bond(&self, key: &Key) {
        self.write().take_bond(key);
    }

    pub(crate) fn replace_bonds(&self, bonds: Vec<PeerLink>) {
        let mut tables = self.write();
        (tables.bonds, tables.bonds_of) = Default::default();
        for bond in bonds {
            tables.put_bond(bond);
        }
        drop(tables);
        self.bonds_listed.send_replace(true);
    }

    fn told(&self, uids: impl IntoIterator<Item = String>) {
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
        if self.gone.contains(&record.name.uid) {
            return;
        }
        if self.agents.get(&key).is_some_and(|known| is_newer(&known.resource_version, &record.resource_version)) {
            return;
        }
        self.take_agent(&key);
        if let Some(pod) = &record.pod_uid {
            self.by_pod.insert(Key::new(&key.namespace, pod), key.clone());
        }
        self.by_uid.insert(record.name.uid.clone(), key.clone());
        self.agents.insert(key, record);
    }

    fn take_agent(&mut self, key: &Key) {
        let Some(known) = self.agents.remove(key) else { return };
        self.by_uid.remove(&known.name.uid);
        if let Some(pod) = &known.pod_uid {
            self.by_pod.remove(&Key::new(&key.namespace, pod));
        }
    }

    fn put_bond(&mut self, bond: PeerLink) {
        let key = Key::new(&bond.namespace, &bond.name);
        for member in &bond.members {
            self.bonds_of.entry(Key::new(&bond.namespace, member)).or_default().insert(bond.name.clone());
        }
        self.bonds.insert(key, Arc::new(bond));
    }

    fn take_bond(&mut self, key: &Key) {
        let Some(bond) = self.bonds.remove(key) else { return };
        for member in &bond.members {
            let member = Key::new(&key.namespace, member);
            if let Some(names) = self.bonds_of.get_mut(&member) {
                names.remove(&key.name);
                if names.is_empty() {
                    self.bonds_of.remove(&member);
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
            ours: Ours::default(),
            unready: None,
        }
    }

    #[test]
    fn an_older_version_does_not_replace_a_newer_one() {
        let (world, _changes) = World::new();
        world.learn(record("a", "u1", Some("p2"), "10"));
        world.learn(record("a", "u1", Some("p1"), "9"));
        assert_eq!(world.agent(&Key::new("ns", "a")).unwrap().pod_uid.as_deref(), Some("p2"));
        assert!(world.agent_of_pod("ns", "p1").is_none());
    }

    #[test]
    fn a_pod_that_was_replaced_is_nobody() {
        let (world, _changes) = World::new();
        world.learn(record("a", "u1", Some("p1"), "1"));
        world.learn(record("a", "u1", Some("p2"), "2"));
        assert!(world.agent_of_pod("ns", "p1").is_none());
        assert_eq!(world.agent_of_pod("ns", "p2").unwrap().name.uid, "u1");
    }

    #[test]
    fn deleting_a_former_object_leaves_its_namesake() {
        let (world, _changes) = World::new();
        world.learn(record("a", "u2", None, "5"));
        world.forget_agent(&Key::new("ns", "a"), "u1");
        assert!(world.agent_by_uid("u2").is_some());
    }

    #[test]
    fn what_was_read_before_a_deletion_does_not_raise_the_dead() {
        let (world, _changes) = World::new();
        world.learn(record("a", "u1", Some("p1"), "1"));
        world.forget_agent(&Key::new("ns", "a"), "u1");
        world.learn(record("a", "u1", Some("p1"), "2"));
        assert!(world.agent(&Key::new("ns", "a")).is_none());
    }

    #[test]
    fn a_status_elsewhere_claims_no_pod_here() {
        let (world, _changes) = World::new();
        world.learn(record("a", "u1", Some("p1"), "1"));
        let mut thief = record("thief", "u2", Some("p1"), "2");
        thief.name.namespace = "other".into();
        world.learn(thief);
        assert_eq!(world.agent_of_pod("ns", "p1").unwrap().name.uid, "u1");
    }
}
