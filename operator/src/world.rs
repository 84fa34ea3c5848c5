//! Everything that the operator sees, and who must look again when a part of it changes.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use futures::channel::mpsc;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt};
use yoi_crds::name::label;
use yoi_crds::reason::condition;
use yoi_crds::{AgentWorkspace, Condition, WorkspaceNode, YoiPeer, YoiPod, YoiProject, condition as conditions};
use yoi_plan::manage;
use yoi_plan::nodes::{self, Nodes};
use yoi_plan::workspace::base::lineage_of;
use yoi_plan::yoipod::{session_claim_name, workspace_name};

use crate::cache::{Cache, Key, Source, cache};

pub struct World {
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
    wake: Wake,
}

/// The writing sides of all caches.
pub struct Sources {
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

struct Wake {
    projects: mpsc::UnboundedSender<ObjectRef<YoiProject>>,
    workspaces: mpsc::UnboundedSender<ObjectRef<AgentWorkspace>>,
    yoipods: mpsc::UnboundedSender<ObjectRef<YoiPod>>,
    peers: mpsc::UnboundedSender<ObjectRef<YoiPeer>>,
}

/// What each controller hears beside its own kind's watch.
pub struct Woken {
    pub projects: mpsc::UnboundedReceiver<ObjectRef<YoiProject>>,
    pub workspaces: mpsc::UnboundedReceiver<ObjectRef<AgentWorkspace>>,
    pub yoipods: mpsc::UnboundedReceiver<ObjectRef<YoiPod>>,
    pub peers: mpsc::UnboundedReceiver<ObjectRef<YoiPeer>>,
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

impl World {
    #[must_use]
    pub fn new() -> (Arc<World>, Sources, Woken) {
        let (projects, s_projects) = cache(project_keys);
        let (workspaces, s_workspaces) = cache(workspace_keys);
        let (yoipods, s_yoipods) = cache(yoipod_keys);
        let (peers, s_peers) = cache(peer_keys);
        let (offers, s_offers) = cache(|n: &WorkspaceNode| vec![Key::Uid(n.name_any())]);
        let (pods, s_pods) = cache(pod_keys);
        let (claims, s_claims) = cache(|c: &PersistentVolumeClaim| vec![Key::Claim(ns(c), c.name_any())]);
        let (volumes, s_volumes) = cache(volume_keys);
        let (manifests, s_manifests) = cache(manifest_keys);
        let (policies, s_policies) = cache(|p: &NetworkPolicy| vec![Key::Namespace(ns(p))]);
        let (namespaces, s_namespaces) = cache(|_: &PartialObjectMeta<Namespace>| Vec::new());
        let (machines, s_machines) = cache(|n: &PartialObjectMeta<Node>| vec![Key::Uid(n.name_any())]);
        let (wake_projects, woken_projects) = mpsc::unbounded();
        let (wake_workspaces, woken_workspaces) = mpsc::unbounded();
        let (wake_yoipods, woken_yoipods) = mpsc::unbounded();
        let (wake_peers, woken_peers) = mpsc::unbounded();
        let wake = Wake { projects: wake_projects, workspaces: wake_workspaces, yoipods: wake_yoipods, peers: wake_peers };
        let nodes = RwLock::default();
        let world = World {
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
            wake,
        };
        let sources = Sources {
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
        let woken = Woken { projects: woken_projects, workspaces: woken_workspaces, yoipods: woken_yoipods, peers: woken_peers };
        (Arc::new(world), sources, woken)
    }

    /// No decision is made on half a world: "no Pod" must mean that there is none.
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
                send_all(&self.wake.workspaces, &self.workspaces.by(key));
                send_all(&self.wake.yoipods, &self.yoipods.by(key));
            }
        }
    }

    pub fn workspace_changed(&self, keys: &[Key]) {
        for key in keys {
            match key {
                Key::Workspace(..) => send_all(&self.wake.yoipods, &self.yoipods.by(key)),
                Key::Uid(uid) => self.base_changed(uid),
                Key::Origin(uid) => self.origin_changed(uid),
                // A fork waits for its parent's tree; its own parent's entry is under this key too.
                Key::Parent(..) | Key::Project(..) | Key::Lineage(_) | Key::YoiPod(..) | Key::Claim(..) | Key::Namespace(_) => {}
            }
        }
        for key in keys {
            if let Key::Workspace(namespace, name) = key {
                let parent = Key::Parent(namespace.clone(), name.clone());
                send_all(&self.wake.workspaces, &self.workspaces.by(&parent));
                send_all(&self.wake.yoipods, &self.yoipods.by(&parent));
            }
            if let Key::Lineage(uid) = key {
                self.lineage_changed(uid);
            }
        }
    }

    /// A base is of a project or of one workspace; both decide by it, and so does who waits for a tree from it.
    fn lineage_changed(&self, uid: &str) {
        for base in self.workspaces.by(&Key::Lineage(uid.to_owned())) {
            let Some(owner) = manage::controller(&base.metadata) else { continue };
            let namespace = ns(&*base);
            if owner.kind == "YoiProject" {
                send(&self.wake.projects, &namespace, &owner.name);
                let project = Key::Project(namespace, owner.name.clone());
                let waiting: Vec<_> =
                    self.workspaces.by(&project).into_iter().filter(|w| w.status.as_ref().is_none_or(|s| s.origin.is_none())).collect();
                send_all(&self.wake.workspaces, &waiting);
                let waiting: Vec<_> = self.yoipods.by(&project).into_iter().filter(|y| !ready(y)).collect();
                send_all(&self.wake.yoipods, &waiting);
            } else {
                send(&self.wake.workspaces, &namespace, &owner.name);
                send_all(&self.wake.yoipods, &self.yoipods.by(&Key::Workspace(namespace, owner.name.clone())));
            }
            // All bases under this key have the same owner.
            break;
        }
    }

    /// The base itself changed: trees that name it as their origin may have lost it.
    fn base_changed(&self, uid: &str) {
        send_all(&self.wake.workspaces, &self.workspaces.by(&Key::Origin(uid.to_owned())));
    }

    /// The last tree from this base went: an old base may go now.
    fn origin_changed(&self, uid: &str) {
        if self.workspaces.any(&Key::Origin(uid.to_owned())) {
            return;
        }
        for base in self.workspaces.by(&Key::Uid(uid.to_owned())) {
            if let Some(owner) = manage::controller(&base.metadata).filter(|o| o.kind == "YoiProject") {
                send(&self.wake.projects, &ns(&*base), &owner.name);
            }
        }
    }

    /// The workspace binds itself to the YoiPod's Pod; peers are bound to its identity; a rival for the same tree may be next.
    pub fn yoipod_changed(&self, keys: &[Key]) {
        for key in keys {
            match key {
                Key::YoiPod(..) => send_all(&self.wake.peers, &self.peers.by(key)),
                Key::Workspace(namespace, name) => {
                    send(&self.wake.workspaces, namespace, name);
                    let users = self.yoipods.by(key);
                    if users.len() > 1 {
                        send_all(&self.wake.yoipods, &users);
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
                Key::YoiPod(namespace, name) => send(&self.wake.yoipods, namespace, name),
                Key::Workspace(namespace, name) => send(&self.wake.workspaces, namespace, name),
                Key::Claim(namespace, name) => {
                    send_all(&self.wake.yoipods, &self.yoipods.by(key));
                    // The claim of a workspace bears the workspace's name.
                    send(&self.wake.workspaces, namespace, name);
                }
                Key::Namespace(_) => send_all(&self.wake.projects, &self.projects.by(key)),
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
        send_all(&self.wake.projects, &self.projects.all());
        send_all(
            &self.wake.workspaces,
            &keep(self.workspaces.all(), |w| everyone || !is_ready(w.status.as_ref().map(|s| s.conditions.as_slice()))),
        );
        send_all(&self.wake.yoipods, &keep(self.yoipods.all(), |y| everyone || !ready(y)));
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

fn ns<K: Resource>(object: &K) -> String {
    object.meta().namespace.clone().unwrap_or_default()
}

fn project_keys(project: &YoiProject) -> Vec<Key> {
    vec![Key::Project(ns(project), project.name_any()), Key::Namespace(ns(project))]
}

fn workspace_keys(workspace: &AgentWorkspace) -> Vec<Key> {
    let namespace = ns(workspace);
    let mut keys = vec![Key::Workspace(namespace.clone(), workspace.name_any())];
    keys.extend(workspace.metadata.uid.clone().map(Key::Uid));
    if let Some(lineage) = lineage_of(workspace) {
        keys.push(Key::Lineage(lineage.to_owned()));
        return keys;
    }
    keys.extend(workspace.spec.source.project.as_ref().map(|p| Key::Project(namespace.clone(), p.name.clone())));
    keys.extend(workspace.spec.source.workspace.as_ref().map(|w| Key::Parent(namespace, w.name.clone())));
    keys.extend(workspace.status.as_ref().and_then(|s| s.origin.as_ref()?.workspace_uid.clone()).map(Key::Origin));
    keys
}

fn yoipod_keys(yoipod: &YoiPod) -> Vec<Key> {
    let namespace = ns(yoipod);
    let forked = yoipod.spec.workspace.as_ref().and_then(|w| w.template.as_ref()?.source.as_ref()?.workspace.as_ref());
    let mut keys = vec![
        Key::YoiPod(namespace.clone(), yoipod.name_any()),
        Key::Workspace(namespace.clone(), workspace_name(yoipod).to_owned()),
        Key::Project(namespace.clone(), yoipod.spec.project_ref.name.clone()),
        Key::Claim(namespace.clone(), session_claim_name(yoipod)),
    ];
    keys.extend(forked.map(|w| Key::Parent(namespace, w.name.clone())));
    keys
}

fn peer_keys(peer: &YoiPeer) -> Vec<Key> {
    peer.spec.members.iter().map(|m| Key::YoiPod(ns(peer), m.clone())).collect()
}

fn pod_keys(pod: &Pod) -> Vec<Key> {
    let of = |key: &str| manage::label(&pod.metadata, key).map(str::to_owned);
    let mut keys = Vec::new();
    keys.extend(of(label::YOIPOD).map(|name| Key::YoiPod(ns(pod), name)));
    keys.extend(of(label::WORKSPACE).map(|name| Key::Workspace(ns(pod), name)));
    keys
}

fn volume_keys(volume: &PersistentVolume) -> Vec<Key> {
    let claim = volume.spec.as_ref().and_then(|s| s.claim_ref.as_ref());
    claim.and_then(|c| Some(Key::Claim(c.namespace.clone()?, c.name.clone()?))).into_iter().collect()
}

fn manifest_keys(map: &ConfigMap) -> Vec<Key> {
    manage::label(&map.metadata, label::YOIPOD).map(|name| Key::YoiPod(ns(map), name.to_owned())).into_iter().collect()
}
