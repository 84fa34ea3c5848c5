//! Everything that the operator sees, and who must look again when a part of it changes.

mod keys;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use futures::channel::mpsc;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt};
use yoi_crds::reason::condition;
use yoi_crds::{AgentWorkspace, Condition, WorkspaceNode, YoiPeer, YoiPod, YoiProject, condition as conditions};
use yoi_plan::meta;
use yoi_plan::nodes::{self, Nodes};

use crate::cache::{Cache, Key, Source, cache};
use crate::trim;
use keys::{manifest_keys, ns, peer_keys, pod_keys, project_keys, volume_keys, workspace_keys, yoipod_keys};

pub struct WatchCaches {
    pub projects: Cache<YoiProject>,
    pub workspaces: Cache<AgentWorkspace>,
    pub yoipods: Cache<YoiPod>,
    pub peers: Cache<YoiPeer>,
    pub offers: Cache<WorkspaceNode>,
    pub pods: Cache<Pod>,
    pub claims: Cache<PersistentVolumeClaim>,
    pub volumes: Cache<PersistentVolume>,
    pub manifests: Cache<ConfigMap>,
    pub policies: Cache<NetworkPolicy>,
    pub namespaces: Cache<PartialObjectMeta<Namespace>>,
    pub machines: Cache<PartialObjectMeta<Node>>,
    nodes: RwLock<Arc<Nodes>>,
    senders: TriggerSenders,
}

/// The writing sides of all caches.
pub struct CacheWriters {
    pub projects: Source<YoiProject>,
    pub workspaces: Source<AgentWorkspace>,
    pub yoipods: Source<YoiPod>,
    pub peers: Source<YoiPeer>,
    pub offers: Source<WorkspaceNode>,
    pub pods: Source<Pod>,
    pub claims: Source<PersistentVolumeClaim>,
    pub volumes: Source<PersistentVolume>,
    pub manifests: Source<ConfigMap>,
    pub policies: Source<NetworkPolicy>,
    pub namespaces: Source<PartialObjectMeta<Namespace>>,
    pub machines: Source<PartialObjectMeta<Node>>,
}

struct TriggerSenders {
    projects: mpsc::UnboundedSender<ObjectRef<YoiProject>>,
    workspaces: mpsc::UnboundedSender<ObjectRef<AgentWorkspace>>,
    yoipods: mpsc::UnboundedSender<ObjectRef<YoiPod>>,
    peers: mpsc::UnboundedSender<ObjectRef<YoiPeer>>,
    offers: mpsc::UnboundedSender<ObjectRef<WorkspaceNode>>,
}

/// What each controller hears beside its own kind's watch.
pub struct Triggers {
    pub projects: mpsc::UnboundedReceiver<ObjectRef<YoiProject>>,
    pub workspaces: mpsc::UnboundedReceiver<ObjectRef<AgentWorkspace>>,
    pub yoipods: mpsc::UnboundedReceiver<ObjectRef<YoiPod>>,
    pub peers: mpsc::UnboundedReceiver<ObjectRef<YoiPeer>>,
    pub offers: mpsc::UnboundedReceiver<ObjectRef<WorkspaceNode>>,
}

/// A receiver that is gone belongs to a process that is stopping; nothing is lost with it.
fn send<K: Resource<DynamicType = ()>>(to: &mpsc::UnboundedSender<ObjectRef<K>>, namespace: &str, name: &str) {
    let _ = to.unbounded_send(ObjectRef::new(name).within(namespace));
}

fn send_all<K: Resource<DynamicType = ()>>(to: &mpsc::UnboundedSender<ObjectRef<K>>, objects: &[Arc<K>]) {
    for object in objects {
        let _ = to.unbounded_send(ObjectRef::from_obj(&**object));
    }
}

impl WatchCaches {
    #[must_use]
    pub fn new() -> (Arc<WatchCaches>, CacheWriters, Triggers) {
        let (projects, s_projects) = cache(project_keys, trim::whole);
        let (workspaces, s_workspaces) = cache(workspace_keys, trim::whole);
        let (yoipods, s_yoipods) = cache(yoipod_keys, trim::whole);
        let (peers, s_peers) = cache(peer_keys, trim::whole);
        let (offers, s_offers) = cache(|n: &WorkspaceNode| vec![Key::Uid(n.name_any())], trim::whole);
        let (pods, s_pods) = cache(pod_keys, trim::pod);
        let (claims, s_claims) = cache(|c: &PersistentVolumeClaim| vec![Key::Claim(ns(c), c.name_any())], trim::claim);
        let (volumes, s_volumes) = cache(volume_keys, trim::volume);
        let (manifests, s_manifests) = cache(manifest_keys, trim::whole);
        let (policies, s_policies) = cache(|p: &NetworkPolicy| vec![Key::Namespace(ns(p))], trim::whole);
        let (namespaces, s_namespaces) = cache(|_: &PartialObjectMeta<Namespace>| Vec::new(), trim::whole);
        let (machines, s_machines) = cache(|n: &PartialObjectMeta<Node>| vec![Key::Uid(n.name_any())], trim::whole);
        let (send_projects, triggers_projects) = mpsc::unbounded();
        let (send_workspaces, triggers_workspaces) = mpsc::unbounded();
        let (send_yoipods, triggers_yoipods) = mpsc::unbounded();
        let (send_peers, triggers_peers) = mpsc::unbounded();
        let (send_offers, triggers_offers) = mpsc::unbounded();
        let senders = TriggerSenders {
            projects: send_projects,
            workspaces: send_workspaces,
            yoipods: send_yoipods,
            peers: send_peers,
            offers: send_offers,
        };
        let nodes = RwLock::default();
        let caches = WatchCaches {
            projects,
            workspaces,
            yoipods,
            peers,
            offers,
            pods,
            claims,
            volumes,
            manifests,
            policies,
            namespaces,
            machines,
            nodes,
            senders,
        };
        let writers = CacheWriters {
            projects: s_projects,
            workspaces: s_workspaces,
            yoipods: s_yoipods,
            peers: s_peers,
            offers: s_offers,
            pods: s_pods,
            claims: s_claims,
            volumes: s_volumes,
            manifests: s_manifests,
            policies: s_policies,
            namespaces: s_namespaces,
            machines: s_machines,
        };
        let triggers = Triggers {
            projects: triggers_projects,
            workspaces: triggers_workspaces,
            yoipods: triggers_yoipods,
            peers: triggers_peers,
            offers: triggers_offers,
        };
        (Arc::new(caches), writers, triggers)
    }

    /// No decision is made on half a caches: "no Pod" must mean that there is none.
    pub async fn wait(&self) {
        self.projects.wait().await;
        self.workspaces.wait().await;
        self.yoipods.wait().await;
        self.peers.wait().await;
        self.offers.wait().await;
        self.pods.wait().await;
        self.claims.wait().await;
        self.volumes.wait().await;
        self.manifests.wait().await;
        self.policies.wait().await;
        self.namespaces.wait().await;
        self.machines.wait().await;
    }

    /// Names of the caches that have not listed yet.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        let all = [
            ("yoiprojects", self.projects.is_ready()),
            ("agentworkspaces", self.workspaces.is_ready()),
            ("yoipods", self.yoipods.is_ready()),
            ("yoipeers", self.peers.is_ready()),
            ("workspacenodes", self.offers.is_ready()),
            ("pods", self.pods.is_ready()),
            ("persistentvolumeclaims", self.claims.is_ready()),
            ("persistentvolumes", self.volumes.is_ready()),
            ("configmaps", self.manifests.is_ready()),
            ("networkpolicies", self.policies.is_ready()),
            ("namespaces", self.namespaces.is_ready()),
            ("nodes", self.machines.is_ready()),
        ];
        all.into_iter().filter(|(_, ready)| !ready).map(|(name, _)| name).collect()
    }

    #[must_use]
    pub fn nodes(&self) -> Arc<Nodes> {
        Arc::clone(&self.nodes.read().unwrap_or_else(PoisonError::into_inner))
    }

    #[must_use]
    pub fn terminating(&self, namespace: &str) -> bool {
        self.namespaces.get("", namespace).is_some_and(|n| n.metadata.deletion_timestamp.is_some())
    }

    /// A project is looked at; so is everything that starts from it.
    pub fn project_changed(&self, keys: &[Key]) {
        for key in keys {
            if let Key::Project(..) = key {
                send_all(&self.senders.workspaces, &self.workspaces.by(key));
                send_all(&self.senders.yoipods, &self.yoipods.by(key));
            }
        }
    }

    pub fn workspace_changed(&self, keys: &[Key]) {
        for key in keys {
            match key {
                Key::Workspace(..) => send_all(&self.senders.yoipods, &self.yoipods.by(key)),
                Key::Uid(uid) => self.base_changed(uid),
                Key::Origin(uid) => self.origin_changed(uid),
                // A fork waits for its parent's tree; its own parent's entry is under this key too.
                Key::Parent(..) | Key::Project(..) | Key::Lineage(_) | Key::YoiPod(..) | Key::Claim(..) | Key::Namespace(_) => {}
            }
        }
        for key in keys {
            if let Key::Workspace(namespace, name) = key {
                let parent = Key::Parent(namespace.clone(), name.clone());
                send_all(&self.senders.workspaces, &self.workspaces.by(&parent));
                send_all(&self.senders.yoipods, &self.yoipods.by(&parent));
            }
            if let Key::Lineage(uid) = key {
                self.lineage_changed(uid);
            }
        }
    }

    /// A base is of a project or of one workspace; both decide by it, and so does who waits for a tree from it.
    fn lineage_changed(&self, uid: &str) {
        for base in self.workspaces.by(&Key::Lineage(uid.to_owned())) {
            let Some(owner) = meta::controller(&base.metadata) else { continue };
            let namespace = ns(&*base);
            if owner.kind == "YoiProject" {
                send(&self.senders.projects, &namespace, &owner.name);
                let project = Key::Project(namespace, owner.name.clone());
                let waiting: Vec<_> =
                    self.workspaces.by(&project).into_iter().filter(|w| w.status.as_ref().is_none_or(|s| s.origin.is_none())).collect();
                send_all(&self.senders.workspaces, &waiting);
                let waiting: Vec<_> = self.yoipods.by(&project).into_iter().filter(|y| !ready(y)).collect();
                send_all(&self.senders.yoipods, &waiting);
            } else {
                send(&self.senders.workspaces, &namespace, &owner.name);
                send_all(&self.senders.yoipods, &self.yoipods.by(&Key::Workspace(namespace, owner.name.clone())));
            }
            // All bases under this key have the same owner.
            break;
        }
    }

    /// The base itself changed: trees that name it as their origin may have lost it.
    fn base_changed(&self, uid: &str) {
        send_all(&self.senders.workspaces, &self.workspaces.by(&Key::Origin(uid.to_owned())));
    }

    /// The last tree from this base went: an old base may go now.
    fn origin_changed(&self, uid: &str) {
        if self.workspaces.any(&Key::Origin(uid.to_owned())) {
            return;
        }
        for base in self.workspaces.by(&Key::Uid(uid.to_owned())) {
            if let Some(owner) = meta::controller(&base.metadata).filter(|o| o.kind == "YoiProject") {
                send(&self.senders.projects, &ns(&*base), &owner.name);
            }
        }
    }

    /// The workspace binds itself to the YoiPod's Pod; peers are bound to its identity; a rival for the same tree may be next.
    pub fn yoipod_changed(&self, keys: &[Key]) {
        for key in keys {
            match key {
                Key::YoiPod(..) => send_all(&self.senders.peers, &self.peers.by(key)),
                Key::Workspace(namespace, name) => {
                    send(&self.senders.workspaces, namespace, name);
                    let users = self.yoipods.by(key);
                    if users.len() > 1 {
                        send_all(&self.senders.yoipods, &users);
                    }
                }
                Key::Parent(..)
                | Key::Project(..)
                | Key::Claim(..)
                | Key::Lineage(_)
                | Key::Origin(_)
                | Key::Uid(_)
                | Key::Namespace(_) => {}
            }
        }
    }

    /// For Pods, ConfigMaps, claims and volumes: their keys name who is concerned.
    pub fn part_changed(&self, keys: &[Key]) {
        for key in keys {
            match key {
                Key::YoiPod(namespace, name) => send(&self.senders.yoipods, namespace, name),
                Key::Workspace(namespace, name) => send(&self.senders.workspaces, namespace, name),
                Key::Claim(namespace, name) => {
                    send_all(&self.senders.yoipods, &self.yoipods.by(key));
                    // The claim of a workspace bears the workspace's name.
                    send(&self.senders.workspaces, namespace, name);
                }
                Key::Namespace(_) => send_all(&self.senders.projects, &self.projects.by(key)),
                Key::Parent(..) | Key::Project(..) | Key::Lineage(_) | Key::Origin(_) | Key::Uid(_) => {}
            }
        }
    }

    /// Nodes or what they offer changed. Quiet where nothing that a plan reads did.
    pub fn machines_changed(&self) {
        let mut now = BTreeMap::new();
        for machine in self.machines.all() {
            let name = machine.name_any();
            let offer = self.offers.get("", &name);
            now.insert(name, nodes::Node { labels: machine.labels().clone(), offer });
        }
        let now = Arc::new(Nodes(now));
        let before = {
            let mut nodes = self.nodes.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *nodes, Arc::clone(&now))
        };
        let seen = |nodes: &Nodes| -> BTreeMap<String, _> {
            let of = |n: &nodes::Node| (n.labels.clone(), n.offer.as_ref().and_then(|o| o.status.clone()));
            nodes.0.iter().map(|(name, node)| (name.clone(), of(node))).collect()
        };
        if seen(&before) == seen(&now) {
            return;
        }
        let names = |nodes: &Nodes| nodes.0.keys().cloned().collect::<Vec<_>>();
        let everyone = names(&before) != names(&now);
        send_all(&self.senders.offers, &keep(self.offers.all(), |o| !now.exists(&o.name_any())));
        send_all(&self.senders.projects, &self.projects.all());
        send_all(
            &self.senders.workspaces,
            &keep(self.workspaces.all(), |w| everyone || !is_ready(w.status.as_ref().map(|s| s.conditions.as_slice()))),
        );
        send_all(&self.senders.yoipods, &keep(self.yoipods.all(), |y| everyone || !ready(y)));
    }
}

fn keep<K>(all: Vec<Arc<K>>, fits: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
    all.into_iter().filter(|o| fits(o)).collect()
}

fn ready(yoipod: &YoiPod) -> bool {
    is_ready(yoipod.status.as_ref().map(|s| s.conditions.as_slice()))
}

/// Whether Ready is True among these conditions.
#[must_use]
pub fn is_ready(all: Option<&[Condition]>) -> bool {
    all.is_some_and(|c| conditions::is_true(c, condition::READY))
}
