//! The YoiPods and YoiPeers of the cluster, as the watches last showed them.
//!
//! # Flow
//! [`Watches`] fills the index, and requests read it. [`AgentIndex::learn`] takes in an object that a request itself read or wrote, so that
//! the next request does not read it again.
//!
//! # Guarantees
//! * An agent's record never goes back to an older resource version, except by a listing.
//! * A record that was read before the deletion of its object does not bring the agent back.
//! * A YoiPod claims no Pod of another namespace.

use std::sync::Arc;

use kube::runtime::watcher;
use kube::{Api, Client};
use tokio::sync::{mpsc, watch};
use yoi_crds::condition::{ConditionStatus, find};
use yoi_crds::pod::{
    DesiredState, LastReport, LiveHint, PushStatus, ReaderStatus, RequestedPush, RestStatus, SessionRef, SpawnedBy, TaskStatus,
};
use yoi_crds::reason::condition;
use yoi_crds::{YoiPeer, YoiPod};
use yoi_plan::visibility::{PeerLink, agent_ref};
use yoi_watch_cache::{CacheChange, CacheWriter, WatchCache};
use yoi_wire::entry::AgentRef;
use yoi_wire::hub::ReportReason;

/// The part of a YoiPod that the gateway reads.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentRecord {
    pub name: AgentRef,
    pub resource_version: String,
    pub desired: DesiredState,
    pub run_generation: i64,
    /// UID of the Pod that runs this agent now.
    pub pod_uid: Option<String>,
    pub gateway_status: GatewayStatus,
    /// Reason and message of the Ready condition. `None` when the agent is Ready, or has no such condition.
    pub unready: Option<(String, String)>,
    /// Nothing runs the agent, and nothing will until somebody changes its spec or wakes it.
    pub is_stopped: bool,
    /// It rests, and a request may wake it.
    pub may_be_woken: bool,
    /// `limits.lifetime` is over.
    pub lifetime_is_over: bool,
    /// UID of the Pod that reads the stopped agent.
    pub reader_pod_uid: Option<String>,
    /// UID of the Pod that pushes what the agent has committed.
    pub pusher_pod_uid: Option<String>,
    /// Id of the request for a push that ended last.
    pub ended_push: Option<String>,
    /// The agent that has started this one.
    pub spawned_by: Option<Box<SpawnedBy>>,
    /// Why it cannot be restored from its session.
    pub not_restorable: Option<String>,
    /// Reason and message of the ReaderReady condition. `None` when it is True, or when nobody asks for a reader.
    pub reader_unready: Option<(String, String)>,
}

/// The fields of a YoiPod's status that only the gateway writes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GatewayStatus {
    pub session: Option<SessionRef>,
    pub task: Option<TaskStatus>,
    pub live: Option<LiveHint>,
    pub report: Option<LastReport>,
    /// `status.reader.requestedAt`.
    pub reader_requested_at: Option<String>,
    /// `status.push.request`.
    pub push: Option<Box<RequestedPush>>,
    pub rest: Option<Box<RestStatus>>,
}

impl AgentRecord {
    /// `status.live`, if it is about the current Pod.
    pub fn current_live(&self) -> Option<&LiveHint> {
        self.gateway_status.live.as_ref().filter(|live| Some(&live.pod_uid) == self.pod_uid.as_ref())
    }

    /// Whether the runtime of the current Pod has gone to rest: it takes nothing any more.
    pub fn has_closed_inbox(&self) -> bool {
        self.current_report().is_some_and(|report| report.reason == ReportReason::Resting)
    }

    /// Whether it rested, and the run that it was woken for has not started yet.
    pub fn is_waking(&self) -> bool {
        let woken_from = self.gateway_status.rest.as_ref().filter(|rest| rest.wake.is_some()).map(|rest| rest.run_generation);
        woken_from.is_some_and(|rested| self.run_generation == rested || (self.run_generation == rested + 1 && !self.has_started()))
    }

    /// Whether the runtime of the current Pod has opened its session, or has said why it cannot.
    pub fn has_started(&self) -> bool {
        self.current_report().is_some_and(|report| report.reason != ReportReason::Starting)
    }

    fn current_report(&self) -> Option<&LastReport> {
        self.gateway_status.report.as_ref().filter(|report| Some(&report.pod_uid) == self.pod_uid.as_ref())
    }

    /// The push that was asked for and has not ended.
    pub fn push_under_way(&self) -> Option<&RequestedPush> {
        self.gateway_status.push.as_deref().filter(|push| self.ended_push.as_ref() != Some(&push.id))
    }
}

impl From<YoiPod> for AgentRecord {
    fn from(pod: YoiPod) -> Self {
        let name = agent_ref(&pod);
        let (is_stopped, may_be_woken) = (yoi_plan::yoipod::is_stopped(&pod), yoi_plan::yoipod::may_be_woken(&pod));
        let lifetime_is_over = yoi_plan::yoipod::lifetime_is_over(&pod);
        let not_restorable = yoi_plan::restore::not_restorable(&pod);
        let status = pod.status.unwrap_or_default();
        let unmet = |type_| {
            let condition = find(&status.conditions, type_).filter(|condition| condition.status != ConditionStatus::True);
            condition.map(|condition| (condition.reason.clone(), condition.message.clone()))
        };
        let (unready, reader_unready) = (unmet(condition::READY), unmet(condition::READER_READY));
        let ReaderStatus { requested_at: reader_requested_at, pod: reader } = status.reader.unwrap_or_default();
        let push = status.push.map(|push| *push).unwrap_or_default();
        let ended_push = push.last_ended().map(str::to_owned);
        let PushStatus { request: push, pod: pusher, .. } = push;
        AgentRecord {
            name,
            resource_version: pod.metadata.resource_version.unwrap_or_default(),
            desired: pod.spec.desired_state,
            run_generation: status.run_generation.unwrap_or_default(),
            pod_uid: status.pod.map(|pod| pod.uid),
            gateway_status: GatewayStatus {
                session: status.session,
                task: status.task,
                live: status.live,
                report: status.report,
                reader_requested_at,
                push: push.map(Box::new),
                rest: status.rest,
            },
            unready,
            is_stopped,
            may_be_woken,
            lifetime_is_over,
            reader_pod_uid: reader.map(|reader| reader.uid),
            pusher_pod_uid: pusher.map(|pusher| pusher.uid),
            ended_push,
            spawned_by: pod.spec.spawned_by,
            not_restorable,
            reader_unready,
        }
    }
}

/// A key that a record is found by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum AgentKey {
    /// UID of the YoiPod.
    Uid(String),
    /// The Pod that runs the agent.
    Pod { namespace: String, uid: String },
    /// The Pod that reads the stopped agent.
    Reader { namespace: String, uid: String },
    /// The Pod that pushes what the agent has committed.
    Pusher { namespace: String, uid: String },
    /// UID of the agent that has started it.
    SpawnedBy(String),
}

fn agent_keys(record: &AgentRecord) -> Vec<AgentKey> {
    let uid = AgentKey::Uid(record.name.uid.clone());
    let namespace = || record.name.namespace.clone();
    let pod = record.pod_uid.as_ref().map(|pod| AgentKey::Pod { namespace: namespace(), uid: pod.clone() });
    let reader = record.reader_pod_uid.as_ref().map(|pod| AgentKey::Reader { namespace: namespace(), uid: pod.clone() });
    let pusher = record.pusher_pod_uid.as_ref().map(|pod| AgentKey::Pusher { namespace: namespace(), uid: pod.clone() });
    let parent = record.spawned_by.as_ref().map(|by| AgentKey::SpawnedBy(by.uid.clone()));
    [Some(uid), pod, reader, pusher, parent].into_iter().flatten().collect()
}

/// Namespace and name of an agent that a YoiPeer's spec names.
type Member = (String, String);

fn member_keys(link: &PeerLink) -> Vec<Member> {
    link.members.iter().map(|member| (link.namespace.clone(), member.clone())).collect()
}

/// Agents by name, UID and Pod, and the links between them.
pub struct AgentIndex {
    agents: WatchCache<AgentRecord, AgentKey>,
    peer_links: WatchCache<PeerLink, Member>,
    /// Raised after each change of an agent. A request that waits for an agent then looks again.
    version: watch::Sender<u64>,
    /// UIDs of agents that changed or were deleted, for the liveness reconciler.
    changed: mpsc::UnboundedSender<String>,
}

/// The watches that fill an [`AgentIndex`].
pub struct Watches {
    agents: CacheWriter<YoiPod, AgentRecord, AgentKey>,
    peer_links: CacheWriter<YoiPeer, PeerLink, Member>,
}

impl Watches {
    /// Watches both kinds until dropped.
    pub async fn run(self, client: Client, index: Arc<AgentIndex>) {
        let config = watcher::Config::default();
        let agents = self.agents.run(Api::all(client.clone()), config.clone(), move |change| index.on_change(change));
        let peer_links = self.peer_links.run(Api::all(client), config, |_| {});
        futures::join!(agents, peer_links);
    }
}

impl AgentIndex {
    /// Returns an empty index, the watches that fill it, and a channel with the UID of each agent that changed.
    pub fn new() -> (Arc<Self>, Watches, mpsc::UnboundedReceiver<String>) {
        let (changed, changes) = mpsc::unbounded_channel();
        let (agents, agent_writer) = WatchCache::new(AgentRecord::from, agent_keys);
        let (peer_links, peer_writer) = WatchCache::new(PeerLink::from, member_keys);
        let index = AgentIndex { agents, peer_links, version: watch::channel(0).0, changed };
        (Arc::new(index), Watches { agents: agent_writer, peer_links: peer_writer }, changes)
    }

    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<AgentRecord>> {
        self.agents.get(namespace, name)
    }

    /// The agent that runs in this Pod.
    pub fn by_pod(&self, namespace: &str, pod_uid: &str) -> Option<Arc<AgentRecord>> {
        self.agents.first_by_key(&AgentKey::Pod { namespace: namespace.to_owned(), uid: pod_uid.to_owned() })
    }

    /// The stopped agent that this Pod reads.
    pub fn by_reader(&self, namespace: &str, pod_uid: &str) -> Option<Arc<AgentRecord>> {
        self.agents.first_by_key(&AgentKey::Reader { namespace: namespace.to_owned(), uid: pod_uid.to_owned() })
    }

    /// The agent whose commits this Pod pushes.
    pub fn by_pusher(&self, namespace: &str, pod_uid: &str) -> Option<Arc<AgentRecord>> {
        self.agents.first_by_key(&AgentKey::Pusher { namespace: namespace.to_owned(), uid: pod_uid.to_owned() })
    }

    pub fn by_uid(&self, uid: &str) -> Option<Arc<AgentRecord>> {
        self.agents.first_by_key(&AgentKey::Uid(uid.to_owned()))
    }

    /// The agents that this one has started.
    pub fn children_of(&self, uid: &str) -> Vec<Arc<AgentRecord>> {
        self.agents.by_key(&AgentKey::SpawnedBy(uid.to_owned()))
    }

    pub fn all(&self) -> Vec<Arc<AgentRecord>> {
        self.agents.all()
    }

    /// The YoiPeer of this name.
    pub fn peer_link(&self, namespace: &str, name: &str) -> Option<Arc<PeerLink>> {
        self.peer_links.get(namespace, name)
    }

    /// The YoiPeers whose spec names this agent, sorted by name.
    pub fn peer_links_of(&self, namespace: &str, member: &str) -> Vec<Arc<PeerLink>> {
        self.peer_links.by_key(&(namespace.to_owned(), member.to_owned()))
    }

    /// Raised after each change of an agent.
    pub fn version(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Whether the first listings of both kinds are complete.
    pub fn is_listed(&self) -> bool {
        self.agents.is_ready() && self.peer_links.is_ready()
    }

    /// Waits until the first listings of both kinds are complete.
    pub async fn wait_until_listed(&self) {
        self.agents.wait_until_ready().await;
        self.peer_links.wait_until_ready().await;
    }

    /// Takes in an object that a request read or wrote, unless a newer one is known. Returns the record of that object.
    pub fn learn(&self, pod: YoiPod) -> Arc<AgentRecord> {
        let metadata = pod.metadata.clone();
        let record = AgentRecord::from(pod);
        let keys = self.agents.learn(&metadata, record.clone());
        if !keys.is_empty() {
            self.on_change(&CacheChange { keys, listed: false });
        }
        Arc::new(record)
    }

    /// Takes in a YoiPeer that a request read, unless a newer one is known.
    pub fn learn_peer(&self, peer: YoiPeer) {
        let metadata = peer.metadata.clone();
        self.peer_links.learn(&metadata, PeerLink::from(peer));
    }

    fn on_change(&self, change: &CacheChange<AgentKey>) {
        for key in &change.keys {
            if let AgentKey::Uid(uid) = key {
                // The receiver is gone only in tests and while the process stops.
                let _ = self.changed.send(uid.clone());
            }
        }
        self.version.send_modify(|version| *version += 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::runtime::watcher::Event;
    use serde_json::json;

    fn pod(name: &str, uid: &str, pod_uid: Option<&str>, version: &str) -> YoiPod {
        let pod = pod_uid.map(|uid| json!({"name": format!("{name}-1"), "uid": uid}));
        let object = json!({
            "apiVersion": "yoi.dev/v1alpha1",
            "kind": "YoiPod",
            "metadata": {"namespace": "ns", "name": name, "uid": uid, "resourceVersion": version},
            "spec": {"projectRef": {"name": "p"}, "agent": {"builtin": {}}},
            "status": {"runGeneration": 1, "pod": pod, "conditions": []},
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn an_older_version_does_not_replace_a_newer_one() {
        let (agents, _watches, _changes) = AgentIndex::new();
        agents.learn(pod("a", "u1", Some("p2"), "10"));
        agents.learn(pod("a", "u1", Some("p1"), "9"));
        assert_eq!(agents.get("ns", "a").unwrap().pod_uid.as_deref(), Some("p2"));
        assert!(agents.by_pod("ns", "p1").is_none());
    }

    #[test]
    fn a_pod_that_was_replaced_belongs_to_no_agent() {
        let (agents, _watches, _changes) = AgentIndex::new();
        agents.learn(pod("a", "u1", Some("p1"), "1"));
        agents.learn(pod("a", "u1", Some("p2"), "2"));
        assert!(agents.by_pod("ns", "p1").is_none());
        assert_eq!(agents.by_pod("ns", "p2").unwrap().name.uid, "u1");
    }

    #[test]
    fn deleting_a_former_object_leaves_its_namesake() {
        let (agents, watches, _changes) = AgentIndex::new();
        agents.learn(pod("a", "u2", None, "5"));
        watches.agents.apply(Event::Delete(pod("a", "u1", None, "4")), |change| agents.on_change(change));
        assert!(agents.by_uid("u2").is_some());
    }

    #[test]
    fn a_record_that_was_read_before_the_deletion_does_not_bring_the_agent_back() {
        let (agents, watches, _changes) = AgentIndex::new();
        agents.learn(pod("a", "u1", Some("p1"), "1"));
        watches.agents.apply(Event::Delete(pod("a", "u1", Some("p1"), "3")), |change| agents.on_change(change));
        agents.learn(pod("a", "u1", Some("p1"), "2"));
        assert!(agents.get("ns", "a").is_none());
    }

    #[test]
    fn a_status_in_one_namespace_claims_no_pod_of_another() {
        let (agents, _watches, _changes) = AgentIndex::new();
        agents.learn(pod("a", "u1", Some("p1"), "1"));
        let mut other = pod("other", "u2", Some("p1"), "2");
        other.metadata.namespace = Some("other".into());
        agents.learn(other);
        assert_eq!(agents.by_pod("ns", "p1").unwrap().name.uid, "u1");
    }

    #[test]
    fn a_change_and_a_deletion_report_the_uid() {
        let (agents, watches, mut changes) = AgentIndex::new();
        agents.learn(pod("a", "u1", None, "1"));
        assert_eq!(changes.try_recv().as_deref(), Ok("u1"));
        watches.agents.apply(Event::Delete(pod("a", "u1", None, "2")), |change| agents.on_change(change));
        assert_eq!(changes.try_recv().as_deref(), Ok("u1"));
        assert!(changes.try_recv().is_err());
    }
}
