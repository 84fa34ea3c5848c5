//! A tiny cluster: objects with UIDs and resource versions, an API server that refuses what the real one refuses, and the promises that must
//! hold at every single write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use yoi_crds::condition::is_true;
use yoi_crds::name::finalizer;
use yoi_crds::reason::condition;
use yoi_crds::{AgentWorkspace, AgentWorkspaceStatus, YoiPeer, YoiPod, YoiPodStatus, YoiProject};
use yoi_plan::manage::{controlled_by, deleting, uid};
use yoi_plan::nodes::Nodes;
use yoi_plan::step::{Kind, Step, Target};

pub const NS: &str = "n";

#[derive(Clone, Default)]
pub struct Cluster {
    pub projects: BTreeMap<String, Arc<YoiProject>>,
    pub workspaces: BTreeMap<String, Arc<AgentWorkspace>>,
    pub yoipods: BTreeMap<String, Arc<YoiPod>>,
    pub peers: BTreeMap<String, Arc<YoiPeer>>,
    pub pods: BTreeMap<String, Arc<Pod>>,
    pub claims: BTreeMap<String, Arc<PersistentVolumeClaim>>,
    pub volumes: BTreeMap<String, Arc<PersistentVolume>>,
    pub maps: BTreeMap<String, Arc<ConfigMap>>,
    pub nodes: Arc<Nodes>,
    pub terminating: bool,
    pub seconds: i64,
    pub counter: u64,
}

/// What every write is held against.
#[derive(Debug)]
pub struct Broken(pub String);

pub trait Object: Clone {
    fn meta(&self) -> &ObjectMeta;
    fn meta_mut(&mut self) -> &mut ObjectMeta;
}
macro_rules! objects {
    ($($kind:ty),+) => {$(impl Object for $kind {
        fn meta(&self) -> &ObjectMeta { &self.metadata }
        fn meta_mut(&mut self) -> &mut ObjectMeta { &mut self.metadata }
    })+};
}
objects!(YoiProject, AgentWorkspace, YoiPod, YoiPeer, Pod, PersistentVolumeClaim, PersistentVolume, ConfigMap);

pub fn at(seconds: i64) -> jiff::Timestamp {
    jiff::Timestamp::from_second(1_700_000_000 + seconds).unwrap()
}

impl Cluster {
    pub fn now(&self) -> jiff::Timestamp {
        at(self.seconds)
    }

    fn next(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    /// A new object of this name, unless there is one.
    pub fn born<K: Object>(&mut self, pick: impl Fn(&mut Cluster) -> &mut BTreeMap<String, Arc<K>>, mut object: K) -> bool {
        let name = object.meta().name.clone().unwrap();
        if pick(self).contains_key(&name) {
            return false;
        }
        let n = self.next();
        let made = Time(self.now());
        let meta = object.meta_mut();
        meta.uid = Some(format!("uid-{n}"));
        meta.resource_version = Some(n.to_string());
        meta.generation = Some(1);
        meta.creation_timestamp = Some(made);
        pick(self).insert(name, Arc::new(object));
        true
    }

    pub fn change<K: Object>(&mut self, pick: impl Fn(&mut Cluster) -> &mut BTreeMap<String, Arc<K>>, name: &str, f: impl FnOnce(&mut K)) {
        let n = self.next();
        let Some(slot) = pick(self).get_mut(name) else { return };
        let object = Arc::make_mut(slot);
        f(object);
        object.meta_mut().resource_version = Some(n.to_string());
        let gone = object.meta().deletion_timestamp.is_some() && object.meta().finalizers.iter().flatten().next().is_none();
        if gone {
            pick(self).remove(name);
        }
    }

    pub fn remove<K: Object>(&mut self, pick: impl Fn(&mut Cluster) -> &mut BTreeMap<String, Arc<K>>, name: &str) {
        let when = Time(self.now());
        self.change(pick, name, |o| {
            let _ = o.meta_mut().deletion_timestamp.get_or_insert(when);
        });
    }

    /// Carries out one step as the API server would, after holding it against the promises.
    pub fn apply(&mut self, step: &Step, stale: bool) -> Result<(), Broken> {
        self.check(step, stale)?;
        match step {
            Step::AddFinalizers { of, resource_version, all } => self.set_finalizers(of, resource_version, all.clone()),
            Step::RemoveFinalizer { of, resource_version, left, .. } => self.set_finalizers(of, resource_version, left.clone()),
            Step::EnsureWorkspace(o) if !self.terminating => drop(self.born(|c| &mut c.workspaces, (**o).clone())),
            Step::EnsureClaim(o) if !self.terminating => {
                let mut claim = (**o).clone();
                // As the real one: a claim in use, or bound, is protected until its Pods are gone.
                claim.metadata.finalizers = Some(vec!["kubernetes.io/pvc-protection".to_owned()]);
                self.born(|c| &mut c.claims, claim);
            }
            Step::EnsureConfigMap(o) if !self.terminating => drop(self.born(|c| &mut c.maps, (**o).clone())),
            Step::EnsurePod(o) if !self.terminating => {
                let mut pod = (**o).clone();
                // Stands for the grace period: a Pod that is deleted stays until its kubelet lets it go.
                pod.metadata.finalizers = Some(vec!["kubelet".to_owned()]);
                self.born(|c| &mut c.pods, pod);
            }
            Step::EnsureVolume(o) => drop(self.born(|c| &mut c.volumes, (**o).clone())),
            Step::EnsureWorkspace(_)
            | Step::EnsureClaim(_)
            | Step::EnsureConfigMap(_)
            | Step::EnsurePod(_)
            | Step::EnsureNetworkPolicy(_) => {}
            Step::OwnClaim { claim, owners } => {
                let owners = owners.clone();
                if self.claims.get(&claim.name).is_some_and(|c| uid(&c.metadata) == claim.uid) {
                    self.change(|c| &mut c.claims, &claim.name, |c| c.metadata.owner_references = Some(owners));
                }
            }
            Step::RetainVolume { volume } => self.change(
                |c| &mut c.volumes,
                &volume.name,
                |v| {
                    v.spec.get_or_insert_default().persistent_volume_reclaim_policy = Some("Retain".to_owned());
                },
            ),
            Step::Delete(target) => self.delete(target),
        }
        Ok(())
    }

    fn set_finalizers(&mut self, of: &Target, version: &str, all: Vec<String>) {
        let fits = |m: &ObjectMeta| uid(m) == of.uid && m.resource_version.as_deref() == Some(version);
        match of.kind {
            Kind::YoiPod if self.yoipods.get(&of.name).is_some_and(|o| fits(&o.metadata)) => {
                self.change(|c| &mut c.yoipods, &of.name, |o| o.metadata.finalizers = Some(all));
            }
            Kind::Workspace if self.workspaces.get(&of.name).is_some_and(|o| fits(&o.metadata)) => {
                self.change(|c| &mut c.workspaces, &of.name, |o| o.metadata.finalizers = Some(all));
            }
            _ => {}
        }
    }

    fn delete(&mut self, t: &Target) {
        let same = |m: Option<&ObjectMeta>| m.is_some_and(|m| uid(m) == t.uid);
        match t.kind {
            Kind::YoiPod if same(self.yoipods.get(&t.name).map(|o| &o.metadata)) => self.remove(|c| &mut c.yoipods, &t.name),
            Kind::Workspace if same(self.workspaces.get(&t.name).map(|o| &o.metadata)) => self.remove(|c| &mut c.workspaces, &t.name),
            Kind::Claim if same(self.claims.get(&t.name).map(|o| &o.metadata)) => self.remove(|c| &mut c.claims, &t.name),
            Kind::Volume if same(self.volumes.get(&t.name).map(|o| &o.metadata)) => self.remove(|c| &mut c.volumes, &t.name),
            Kind::ConfigMap if same(self.maps.get(&t.name).map(|o| &o.metadata)) => self.remove(|c| &mut c.maps, &t.name),
            Kind::Pod if same(self.pods.get(&t.name).map(|o| &o.metadata)) => self.remove(|c| &mut c.pods, &t.name),
            _ => {}
        }
    }

    fn check(&self, step: &Step, stale: bool) -> Result<(), Broken> {
        let broken = |why: &str| Err(Broken(format!("{why}: {}", step.deed())));
        match step {
            Step::Delete(t) | Step::RemoveFinalizer { of: t, .. } if t.uid.is_empty() => return broken("a removal without a UID"),
            Step::EnsureWorkspace(_) | Step::EnsureClaim(_) | Step::EnsureConfigMap(_) | Step::EnsurePod(_)
                if self.terminating && !stale =>
            {
                return broken("something is made in a terminating namespace");
            }
            Step::EnsureVolume(v) => {
                let spec = v.spec.as_ref().unwrap();
                let claim = spec.claim_ref.as_ref().unwrap();
                if claim.uid.as_deref().is_none_or(str::is_empty) {
                    return broken("a volume before its claim");
                }
                let handle = &spec.csi.as_ref().unwrap().volume_handle;
                let owner = self.workspaces.values().find(|w| uid(&w.metadata) == handle);
                let made = owner.and_then(|w| w.status.as_ref()).is_some_and(|s| is_true(&s.conditions, condition::PROVISIONED));
                if !made && !stale {
                    return broken("a volume before its tree");
                }
            }
            Step::RemoveFinalizer { of, finalizer: f, .. } if !stale && *f == finalizer::OPERATOR => {
                let left = self.pods.values().any(|p| controlled_by(&p.metadata, &of.uid))
                    || of.kind == Kind::Workspace && self.volumes.contains_key(&yoi_plan::names::volume(&of.uid));
                if left {
                    return broken("an object goes before what it owns");
                }
            }
            Step::EnsurePod(p) => {
                let volumes = p.spec.as_ref().unwrap().volumes.as_ref().unwrap();
                let map = volumes.iter().find_map(|v| v.config_map.as_ref());
                if map.is_some_and(|m| !self.maps.contains_key(&m.name)) && !stale {
                    return broken("a Pod before its manifest");
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The operator's write of an AgentWorkspace's status; `version` is what the decision saw.
    pub fn write_workspace(&mut self, name: &str, version: Option<&str>, said: AgentWorkspaceStatus) -> Result<(), Broken> {
        let Some(object) = self.workspaces.get(name).filter(|o| o.metadata.resource_version.as_deref() == version) else { return Ok(()) };
        let before = object.status.clone().unwrap_or_default();
        let bound = object.metadata.labels.as_ref().is_some_and(|l| l.contains_key(yoi_crds::name::label::YOIPOD));
        if bound && before.node_name.is_none() && said.node_name.is_some() && said.pod_uid.is_none() {
            return Err(Broken(format!("the tree of {name} is asked for before its Pod is bound")));
        }
        if let Some(former) = before.pod_uid.as_ref().filter(|_| before.pod_uid != said.pod_uid) {
            let alive = self.pods.values().any(|p| {
                let phase = p.status.as_ref().and_then(|s| s.phase.as_deref()).unwrap_or("Pending");
                uid(&p.metadata) == former && !matches!(phase, "Failed" | "Succeeded")
            });
            if alive && said.pod_uid.is_some() {
                return Err(Broken(format!("{name} is given to a second writer while the first one lives")));
            }
        }
        let mut merged = said;
        merged.provider = before.provider;
        merged.volume = before.volume;
        let own = [condition::ACCEPTED, condition::SCHEDULED, condition::POPULATED, condition::BOUND, condition::READY];
        merged.conditions.extend(before.conditions.into_iter().filter(|c| !own.contains(&c.type_.as_str())));
        self.change(|c| &mut c.workspaces, name, |w| w.status = Some(merged));
        Ok(())
    }

    pub fn write_yoipod(&mut self, name: &str, version: Option<&str>, said: YoiPodStatus) -> Result<(), Broken> {
        let Some(object) = self.yoipods.get(name).filter(|o| o.metadata.resource_version.as_deref() == version) else { return Ok(()) };
        let before = object.status.clone().unwrap_or_default();
        if said.run_generation < before.run_generation {
            return Err(Broken(format!("run generation of {name} falls from {:?} to {:?}", before.run_generation, said.run_generation)));
        }
        let merged = YoiPodStatus { session: before.session, task: before.task, live: before.live, report: before.report, ..said };
        self.change(|c| &mut c.yoipods, name, |y| y.status = Some(merged));
        Ok(())
    }

    /// Owner references: what has lost its owner goes.
    pub fn collect_garbage(&mut self) {
        let mut alive: BTreeSet<String> = BTreeSet::new();
        alive.extend(self.projects.values().map(|o| uid(&o.metadata).to_owned()));
        alive.extend(self.workspaces.values().map(|o| uid(&o.metadata).to_owned()));
        alive.extend(self.yoipods.values().map(|o| uid(&o.metadata).to_owned()));
        let orphan = |m: &ObjectMeta| m.owner_references.iter().flatten().any(|o| !alive.contains(&o.uid)) && !deleting(m);
        let names =
            |all: Vec<(&String, &ObjectMeta)>| all.into_iter().filter(|(_, m)| orphan(m)).map(|(n, _)| n.clone()).collect::<Vec<_>>();
        let workspaces = names(self.workspaces.iter().map(|(n, o)| (n, &o.metadata)).collect());
        let pods = names(self.pods.iter().map(|(n, o)| (n, &o.metadata)).collect());
        let claims = names(self.claims.iter().map(|(n, o)| (n, &o.metadata)).collect());
        let maps = names(self.maps.iter().map(|(n, o)| (n, &o.metadata)).collect());
        workspaces.iter().for_each(|n| self.remove(|c| &mut c.workspaces, n));
        pods.iter().for_each(|n| self.remove(|c| &mut c.pods, n));
        claims.iter().for_each(|n| self.remove(|c| &mut c.claims, n));
        maps.iter().for_each(|n| self.remove(|c| &mut c.maps, n));
    }
}
