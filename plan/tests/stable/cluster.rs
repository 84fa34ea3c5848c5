//! A simulated cluster: objects with UIDs, generations and resource versions, and an API server that refuses what the real one refuses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use yoi_crds::name::annotation::{GIVEN_BACK, LEFT_OUT, POLICY, REMINDED, REST, SELECTED_NODE, TOKENS};
use yoi_crds::name::label::{WARM, YOIPOD};
use yoi_crds::{AgentWorkspace, WorkspaceNode, YoiPeer, YoiPod, YoiProject};
use yoi_plan::meta::{annotation, controlled_by, controller, deleting, uid};
use yoi_plan::step::{Kind, Step, Target};
use yoi_plan::workspace::claim::tree_behind;
use yoi_plan::yoipod::MADE_FOR;

use crate::coverage::Coverage;
use crate::host_sources::Folder;
use crate::loans::Lending;
use crate::prepared::BaseContent;
use crate::pushes::GitServers;

/// How often the choice of node was taken from a claim: counted here, whatever the operator counts.
pub const TAKEN_BACK: &str = "test/taken-back";
pub const NS: &str = "n";

/// A guarantee that did not hold, in a sentence.
#[derive(Debug)]
pub struct Violation(pub String);

/// A Node and its machine.
#[derive(Clone, Default)]
pub struct Machine {
    pub metadata: ObjectMeta,
    /// Its kubelet and shim answer.
    pub alive: bool,
    /// It has no room for more agents.
    pub full: bool,
    /// It has no room for any Pod.
    pub packed: bool,
    pub cordoned: bool,
    pub tainted: bool,
    /// The populator's image cannot be pulled there.
    pub unpullable: bool,
    pub folder: Folder,
    /// When it stopped answering.
    pub not_ready_since: Option<i64>,
}

type Map<K> = BTreeMap<String, Arc<K>>;

#[derive(Clone, Default)]
pub struct Objects {
    pub projects: Map<YoiProject>,
    pub workspaces: Map<AgentWorkspace>,
    pub yoipods: Map<YoiPod>,
    pub peers: Map<YoiPeer>,
    pub pods: Map<Pod>,
    pub claims: Map<PersistentVolumeClaim>,
    pub volumes: Map<PersistentVolume>,
    pub maps: Map<ConfigMap>,
    pub machines: Map<Machine>,
    pub offers: Map<WorkspaceNode>,
    pub policies: Map<NetworkPolicy>,
    pub terminating: bool,
    /// One revision per kind, in the order of the fields. Each change of a kind raises its own.
    pub revisions: [u64; 11],
}

pub trait Object: Clone + 'static {
    const INDEX: usize;
    const NAMESPACED: bool;
    fn meta(&self) -> &ObjectMeta;
    fn meta_mut(&mut self) -> &mut ObjectMeta;
    fn all(of: &Objects) -> &Map<Self>;
    fn all_mut(of: &mut Objects) -> &mut Map<Self>;
}
macro_rules! objects {
    ($($index:literal $namespaced:literal $field:ident: $kind:ty),+) => {$(impl Object for $kind {
        const INDEX: usize = $index;
        const NAMESPACED: bool = $namespaced;
        fn meta(&self) -> &ObjectMeta { &self.metadata }
        fn meta_mut(&mut self) -> &mut ObjectMeta { &mut self.metadata }
        fn all(of: &Objects) -> &Map<Self> { &of.$field }
        fn all_mut(of: &mut Objects) -> &mut Map<Self> { &mut of.$field }
    })+};
}
objects!(
    0 true projects: YoiProject,
    1 true workspaces: AgentWorkspace,
    2 true yoipods: YoiPod,
    3 true peers: YoiPeer,
    4 true pods: Pod,
    5 true claims: PersistentVolumeClaim,
    6 false volumes: PersistentVolume,
    7 true maps: ConfigMap,
    8 false machines: Machine,
    9 false offers: WorkspaceNode,
    10 true policies: NetworkPolicy
);

/// What the API server answered.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Done,
    /// What was observed is old, or the namespace is being deleted: the round ends without an error and is repeated.
    Quiet,
    Refused(String),
}

#[derive(Default)]
pub struct Cluster {
    pub now: Objects,
    pub seconds: i64,
    pub counter: u64,
    /// UIDs of what the operator made, with the kind.
    pub ours: BTreeMap<String, Kind>,
    /// By UID of a YoiPod, the highest run generation of a Pod that its status named. A Pod that was deleted before a status named it does not count:
    /// its name is free again.
    pub runs: BTreeMap<String, i64>,
    /// By UID of an agent's Pod, UID of the tree that it was made for.
    pub trees: BTreeMap<String, String>,
    /// Names that the operator has ever asked for. Users make objects under these names, too.
    pub requested: BTreeSet<(Kind, String)>,
    /// UIDs of the trees on each node's disk.
    pub disks: BTreeMap<String, BTreeSet<String>>,
    /// What is in bases that are prepared, by UID.
    pub contents: BTreeMap<String, BaseContent>,
    /// How often the branch of the git repositories has moved.
    pub branch: u64,
    /// The commit that is in a base, by its UID.
    pub fetched: BTreeMap<String, String>,
    pub git: GitServers,
    /// Bytes of the quota that a node enforces, by UID of the tree.
    pub quotas: BTreeMap<String, i64>,
    /// Bytes that agents have tried to write, by UID of the tree.
    pub used: BTreeMap<String, i64>,
    /// The administrator's list has the folder for another namespace now.
    pub unlisted: bool,
    /// The administrator's list has the folder at another path now.
    pub moved: bool,
    /// UIDs of workspaces that somebody deleted by force. Who removes a finalizer takes over its task.
    pub forced: BTreeSet<String>,
    /// Names of network policies that somebody deleted or opened, until the operator has applied them again.
    pub changed_policies: BTreeSet<String>,
    /// By UID, the resource version of claims for which Kubernetes missed the end of their last Pod. It looks at such a claim again when it changes.
    pub missed_ends: BTreeMap<String, Option<String>>,
    pub lending: Lending,
    pub coverage: Coverage,
}

pub fn at(seconds: i64) -> jiff::Timestamp {
    jiff::Timestamp::from_second(1_700_000_000 + seconds).expect("a time")
}

impl Cluster {
    pub fn now(&self) -> jiff::Timestamp {
        at(self.seconds)
    }

    pub fn get<K: Object>(&self, name: &str) -> Option<&Arc<K>> {
        K::all(&self.now).get(name)
    }

    pub fn names<K: Object>(&self) -> Vec<String> {
        K::all(&self.now).keys().cloned().collect()
    }

    fn touch<K: Object>(&mut self) -> u64 {
        self.counter += 1;
        self.now.revisions[K::INDEX] = self.counter;
        self.counter
    }

    /// Stores an object and returns its UID; `None` when the name is taken or the namespace is being deleted.
    pub fn create<K: Object>(&mut self, mut object: K) -> Option<String> {
        let name = object.meta().name.clone().expect("a name");
        if K::all(&self.now).contains_key(&name) || K::NAMESPACED && self.now.terminating {
            return None;
        }
        let n = self.touch::<K>();
        let made = Time(self.now());
        let meta = object.meta_mut();
        let uid = format!("uid-{n}");
        meta.namespace = K::NAMESPACED.then(|| NS.to_owned());
        meta.uid = Some(uid.clone());
        meta.resource_version = Some(n.to_string());
        meta.generation = Some(1);
        meta.creation_timestamp = Some(made);
        K::all_mut(&mut self.now).insert(name, Arc::new(object));
        Some(uid)
    }

    pub fn change<K: Object>(&mut self, name: &str, f: impl FnOnce(&mut K)) {
        if !K::all(&self.now).contains_key(name) {
            return;
        }
        let n = self.touch::<K>();
        let Some(slot) = K::all_mut(&mut self.now).get_mut(name) else { return };
        let object = Arc::make_mut(slot);
        f(object);
        object.meta_mut().resource_version = Some(n.to_string());
        if deleting(object.meta()) && object.meta().finalizers.iter().flatten().next().is_none() {
            K::all_mut(&mut self.now).remove(name);
        }
    }

    /// Like [`Self::change`], for a change of the spec: raises the generation.
    pub fn edit<K: Object>(&mut self, name: &str, f: impl FnOnce(&mut K)) {
        self.change::<K>(name, |o| {
            f(o);
            let generation = &mut o.meta_mut().generation;
            *generation = generation.map(|g| g + 1);
        });
    }

    pub fn remove<K: Object>(&mut self, name: &str) {
        if K::all(&self.now).get(name).is_some_and(|o| !deleting(o.meta())) {
            let when = Time(self.now());
            self.change::<K>(name, |o| o.meta_mut().deletion_timestamp = Some(when));
        }
    }

    /// Deletes an object by force: without its finalizers.
    pub fn purge<K: Object>(&mut self, name: &str) {
        if let Some(id) = self.get::<K>(name).map(|o| uid(o.meta()).to_owned()) {
            self.forced.insert(id);
        }
        self.change::<K>(name, |o| o.meta_mut().finalizers = None);
        self.remove::<K>(name);
    }

    pub fn exists(&self, node: &str) -> bool {
        self.now.machines.contains_key(node)
    }

    pub fn alive(&self, node: &str) -> bool {
        self.now.machines.get(node).is_some_and(|m| m.alive)
    }

    /// Metadata of the object of this kind and UID.
    pub fn by_uid(&self, kind: Kind, wanted: &str) -> Option<&ObjectMeta> {
        fn find<'a, K: Object>(c: &'a Cluster, wanted: &str) -> Option<&'a ObjectMeta> {
            K::all(&c.now).values().map(|o| o.meta()).find(|m| uid(m) == wanted)
        }
        match kind {
            Kind::Project => find::<YoiProject>(self, wanted),
            Kind::YoiPod => find::<YoiPod>(self, wanted),
            Kind::Workspace => find::<AgentWorkspace>(self, wanted),
            Kind::Claim => find::<PersistentVolumeClaim>(self, wanted),
            Kind::Volume => find::<PersistentVolume>(self, wanted),
            Kind::ConfigMap => find::<ConfigMap>(self, wanted),
            Kind::Pod => find::<Pod>(self, wanted),
            Kind::WorkspaceNode => find::<WorkspaceNode>(self, wanted),
        }
    }

    /// Carries out one step as the API server would.
    pub fn apply(&mut self, step: &Step) -> Answer {
        match step {
            Step::AddFinalizers { of, resource_version, all } => self.set_finalizers(of, resource_version, all),
            Step::RemoveFinalizer { of, resource_version, left, .. } => self.set_finalizers(of, resource_version, left),
            Step::EnsureWorkspace(o) => self.ensure(Kind::Workspace, (**o).clone()),
            Step::EnsureClaim(o) => {
                let mut claim = (**o).clone();
                claim.metadata.finalizers = Some(vec!["kubernetes.io/pvc-protection".to_owned()]);
                self.ensure(Kind::Claim, claim)
            }
            Step::EnsureVolume(o) => {
                let mut volume = (**o).clone();
                volume.metadata.finalizers = Some(vec!["kubernetes.io/pv-protection".to_owned()]);
                self.ensure(Kind::Volume, volume)
            }
            Step::EnsureConfigMap(o) => self.ensure(Kind::ConfigMap, (**o).clone()),
            Step::EnsurePod(o) => {
                let mut pod = (**o).clone();
                // In place of the grace period: a deleted Pod stays until its kubelet removes this.
                pod.metadata.finalizers = Some(vec!["kubelet".to_owned()]);
                let (title, tree) = (o.metadata.name.clone().unwrap_or_default(), crate::kubernetes::mounts(self, o));
                let answer = self.ensure(Kind::Pod, pod);
                let made = self.get::<Pod>(&title).map(|pod| uid(&pod.metadata).to_owned());
                if let (Some(pod), Some(tree)) = (made, tree) {
                    self.trees.entry(pod).or_insert(tree);
                }
                answer
            }
            Step::EnsureNetworkPolicy(o) => self.apply_policy(o),
            Step::OwnClaim { claim, owners } => {
                let news = |c: &PersistentVolumeClaim| c.metadata.owner_references.as_ref() != Some(owners);
                self.patch::<PersistentVolumeClaim>(claim, news, |c| c.metadata.owner_references = Some(owners.clone()))
            }
            Step::MakeWarmClaim(o) => {
                let mut claim = (**o).clone();
                claim.metadata.finalizers = Some(vec!["kubernetes.io/pvc-protection".to_owned()]);
                self.ensure(Kind::Claim, claim)
            }
            Step::TakeWarmClaim { claim, resource_version, yoipod, made_for, owners } => {
                let there = self.get::<PersistentVolumeClaim>(&claim.name).filter(|c| uid(&c.metadata) == claim.uid);
                if there.is_none_or(|c| c.metadata.resource_version.as_ref() != Some(resource_version)) {
                    return Answer::Quiet;
                }
                self.change::<PersistentVolumeClaim>(&claim.name, |c| {
                    let labels = c.metadata.labels.get_or_insert_default();
                    labels.remove(WARM);
                    labels.insert(YOIPOD.to_owned(), yoipod.clone());
                    c.metadata.annotations.get_or_insert_default().insert(MADE_FOR.to_owned(), made_for.clone());
                    c.metadata.owner_references = Some(owners.clone());
                });
                Answer::Done
            }
            Step::UnselectNode { claim, times } => self.patch::<PersistentVolumeClaim>(
                claim,
                |_| true,
                |c| {
                    let annotations = c.metadata.annotations.get_or_insert_default();
                    if annotations.remove(SELECTED_NODE).is_some() {
                        let done = annotations.get(TAKEN_BACK).and_then(|done| done.parse::<u32>().ok()).unwrap_or(0);
                        annotations.insert(TAKEN_BACK.to_owned(), (done + 1).to_string());
                    }
                    annotations.insert(GIVEN_BACK.to_owned(), times.to_string());
                },
            ),
            Step::NudgeClaim { claim, times } => self.patch::<PersistentVolumeClaim>(
                claim,
                |_| true,
                |c| {
                    c.metadata.annotations.get_or_insert_default().insert(REMINDED.to_owned(), times.to_string());
                },
            ),
            Step::SetTokens { pod, tokens } => self.patch::<Pod>(
                pod,
                |p| annotation(&p.metadata, TOKENS) != Some(tokens),
                |p| {
                    p.metadata.annotations.get_or_insert_default().insert(TOKENS.to_owned(), tokens.clone());
                },
            ),
            Step::SetRest { pod, after } => self.patch::<Pod>(
                pod,
                |p| annotation(&p.metadata, REST) != Some(after),
                |p| {
                    p.metadata.annotations.get_or_insert_default().insert(REST.to_owned(), after.clone());
                },
            ),
            Step::SetPolicy { pod, policy } => self.patch::<Pod>(
                pod,
                |p| annotation(&p.metadata, POLICY) != Some(policy),
                |p| {
                    p.metadata.annotations.get_or_insert_default().insert(POLICY.to_owned(), policy.clone());
                },
            ),
            Step::LeaveOutSet { pod, container, image, left_out } => self.patch::<Pod>(
                pod,
                |_| true,
                |p| {
                    p.metadata.annotations.get_or_insert_default().insert(LEFT_OUT.to_owned(), left_out.clone());
                    let containers = p.spec.iter_mut().flat_map(|spec| spec.init_containers.iter_mut().flatten());
                    for found in containers.filter(|found| found.name == *container) {
                        found.image = Some(image.clone());
                    }
                },
            ),
            Step::RetainVolume { volume } => self.patch::<PersistentVolume>(
                volume,
                |_| true,
                |v| {
                    v.spec.get_or_insert_default().persistent_volume_reclaim_policy = Some("Retain".to_owned());
                },
            ),
            Step::ConfirmGone { kind, namespace: _, name, of } => {
                let left = match kind {
                    Kind::Pod => self.get::<Pod>(name).is_some_and(|p| controlled_by(&p.metadata, of)),
                    Kind::Claim => self.get::<PersistentVolumeClaim>(name).is_some_and(|c| made_for(c, of)),
                    Kind::Volume => self.get::<PersistentVolume>(name).is_some_and(|v| tree_behind(v) == Some(of)),
                    Kind::Project | Kind::YoiPod | Kind::Workspace | Kind::ConfigMap | Kind::WorkspaceNode => false,
                };
                if left { Answer::Quiet } else { Answer::Done }
            }
            Step::SetNodeCondition { of, resource_version, condition } => {
                let Some(there) = self.get::<WorkspaceNode>(&of.name).filter(|o| uid(o.meta()) == of.uid) else { return Answer::Done };
                if there.metadata.resource_version.as_ref() != Some(resource_version) {
                    return Answer::Quiet;
                }
                self.coverage.reason(&condition.reason);
                self.change::<WorkspaceNode>(&of.name, |o| {
                    let conditions = &mut o.status.get_or_insert_default().conditions;
                    conditions.retain(|c| c.type_ != condition.type_);
                    conditions.push((**condition).clone());
                });
                Answer::Done
            }
            Step::SetClaims { of, resource_version, claims } => {
                let Some(there) = self.get::<AgentWorkspace>(&of.name).filter(|o| uid(o.meta()) == of.uid) else { return Answer::Done };
                if there.metadata.resource_version.as_ref() != Some(resource_version) {
                    return Answer::Quiet;
                }
                self.change::<AgentWorkspace>(&of.name, |w| w.status.get_or_insert_default().claims.clone_from(claims));
                Answer::Done
            }
            Step::Delete(target) => self.delete(target),
            Step::DeleteUnchanged { of, resource_version } => {
                let is_same = self.by_uid(of.kind, &of.uid).is_some_and(|m| m.resource_version.as_ref() == Some(resource_version));
                if is_same { self.delete(of) } else { Answer::Done }
            }
        }
    }

    /// Changes the object of this name and UID. An object that is gone needs no patch.
    fn patch<K: Object>(&mut self, of: &Target, news: impl FnOnce(&K) -> bool, f: impl FnOnce(&mut K)) -> Answer {
        if self.get::<K>(&of.name).is_some_and(|o| uid(o.meta()) == of.uid && news(o)) {
            self.change::<K>(&of.name, f);
        }
        Answer::Done
    }

    fn ensure<K: Object>(&mut self, kind: Kind, wanted: K) -> Answer {
        let name = wanted.meta().name.clone().expect("a name");
        self.requested.insert((kind, name.clone()));
        if K::NAMESPACED && self.now.terminating {
            return Answer::Quiet;
        }
        match K::all(&self.now).get(&name) {
            Some(there) if !same_making(wanted.meta(), there.meta()) => {
                Answer::Refused(format!("failed to make {name}: an object of that name exists and was not made for this one"))
            }
            Some(there) if deleting(there.meta()) => Answer::Quiet,
            Some(_) => Answer::Done,
            None => {
                let uid = self.create(wanted).expect("nothing stands in the way");
                self.ours.insert(uid, kind);
                Answer::Done
            }
        }
    }

    /// Applied by force: what somebody else wrote is overwritten.
    fn apply_policy(&mut self, wanted: &NetworkPolicy) -> Answer {
        let title = wanted.metadata.name.clone().expect("a name");
        match self.get::<NetworkPolicy>(&title) {
            Some(there) if there.spec == wanted.spec => {}
            Some(_) => self.change::<NetworkPolicy>(&title, |p| p.spec.clone_from(&wanted.spec)),
            None if self.now.terminating => return Answer::Quiet,
            None => drop(self.create(wanted.clone())),
        }
        self.changed_policies.remove(&title);
        Answer::Done
    }

    fn set_finalizers(&mut self, of: &Target, version: &str, all: &[String]) -> Answer {
        fn set<K: Object>(c: &mut Cluster, of: &Target, version: &str, all: &[String]) -> Answer {
            match c.get::<K>(&of.name) {
                // An object that is gone needs no patch.
                None => Answer::Done,
                Some(o) if uid(o.meta()) == of.uid && o.meta().resource_version.as_deref() == Some(version) => {
                    c.change::<K>(&of.name, |o| o.meta_mut().finalizers = Some(all.to_vec()));
                    Answer::Done
                }
                Some(_) => Answer::Quiet,
            }
        }
        match of.kind {
            Kind::Project => set::<YoiProject>(self, of, version, all),
            Kind::YoiPod => set::<YoiPod>(self, of, version, all),
            Kind::Workspace => set::<AgentWorkspace>(self, of, version, all),
            Kind::Claim | Kind::Volume | Kind::ConfigMap | Kind::Pod | Kind::WorkspaceNode => {
                Answer::Refused("nobody's finalizer".to_owned())
            }
        }
    }

    /// Without a UID, the API server deletes whatever object has the name.
    fn delete(&mut self, t: &Target) -> Answer {
        fn gone<K: Object>(c: &mut Cluster, t: &Target) {
            if c.get::<K>(&t.name).is_some_and(|o| t.uid.is_empty() || uid(o.meta()) == t.uid) {
                c.remove::<K>(&t.name);
            }
        }
        match t.kind {
            Kind::Project => gone::<YoiProject>(self, t),
            Kind::YoiPod => gone::<YoiPod>(self, t),
            Kind::Workspace => gone::<AgentWorkspace>(self, t),
            Kind::Claim => gone::<PersistentVolumeClaim>(self, t),
            Kind::Volume => gone::<PersistentVolume>(self, t),
            Kind::ConfigMap => gone::<ConfigMap>(self, t),
            Kind::Pod => gone::<Pod>(self, t),
            Kind::WorkspaceNode => gone::<WorkspaceNode>(self, t),
        }
        Answer::Done
    }
}

pub fn made_for(claim: &PersistentVolumeClaim, of: &str) -> bool {
    controlled_by(&claim.metadata, of) || annotation(&claim.metadata, MADE_FOR) == Some(of)
}

/// As in the operator's `apply`.
fn same_making(wanted: &ObjectMeta, existing: &ObjectMeta) -> bool {
    match controller(wanted) {
        Some(owner) => controlled_by(existing, &owner.uid),
        None => {
            let mut wanted = wanted.annotations.iter().flatten().peekable();
            wanted.peek().is_some() && wanted.all(|(k, v)| annotation(existing, k) == Some(v.as_str()))
        }
    }
}
