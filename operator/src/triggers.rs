//! Which objects are reconciled because another one changed.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use futures::channel::mpsc;
use k8s_openapi::api::core::v1::Taint;
use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt};
use yoi_crds::reason::condition;
use yoi_crds::{AgentWorkspace, Condition, WorkspaceNodeStatus, YoiPod, condition as conditions};
use yoi_plan::meta;
use yoi_plan::nodes::{self, Nodes};
use yoi_watch_cache::Queued;

use crate::cache_key::{CacheKey, namespace_of};
use crate::watch_caches::WatchCaches;

type Sender<K> = mpsc::UnboundedSender<ObjectRef<Queued<K>>>;

/// A receiver that is gone belongs to a process that is stopping; nothing is lost with it.
fn trigger<K: Resource<DynamicType = ()>>(controller: &Sender<K>, namespace: &str, name: &str) {
    let object = ObjectRef::new(name);
    let _ = controller.unbounded_send(if namespace.is_empty() { object } else { object.within(namespace) });
}

fn trigger_all<K: Resource<DynamicType = ()>>(controller: &Sender<K>, objects: &[Arc<K>]) {
    for object in objects {
        trigger(controller, &namespace_of(&**object), &object.name_any());
    }
}

/// One method for each entry of the column "on change" in [`crate::kinds`]. `keys` are those that the changed objects had before and have now.
impl WatchCaches {
    pub(crate) fn no_triggers(&self, _: &[CacheKey]) {}

    /// The workspaces and YoiPods that start from the project, and its bases that are not ready. The project itself is reconciled by its own watch.
    pub(crate) fn project_changed(&self, keys: &[CacheKey]) {
        for key in keys {
            match key {
                CacheKey::Project(..) => {
                    trigger_all(&self.senders.workspaces, &self.workspaces.by_key(key));
                    trigger_all(&self.senders.yoipods, &self.yoipods.by_key(key));
                }
                // Somebody asks for the source, which a base waits to be filled from.
                CacheKey::Itself(uid) => {
                    let bases = self.workspaces.by_key(&CacheKey::BaseOf(uid.clone()));
                    let unready = |w: &AgentWorkspace| !is_ready(w.status.as_ref().map(|s| s.conditions.as_slice()));
                    trigger_all(&self.senders.workspaces, &matching(bases, unready));
                }
                CacheKey::Workspace(..)
                | CacheKey::Parent(..)
                | CacheKey::YoiPod(..)
                | CacheKey::Claim(..)
                | CacheKey::BaseOf(_)
                | CacheKey::Origin(_)
                | CacheKey::Warm(_)
                | CacheKey::SpawnedBy(_)
                | CacheKey::Namespace(_) => {}
            }
        }
    }

    pub(crate) fn workspace_changed(&self, keys: &[CacheKey]) {
        for key in keys {
            match key {
                CacheKey::Workspace(namespace, name) => {
                    trigger_all(&self.senders.yoipods, &self.yoipods.by_key(key));
                    // A fork waits for its parent's tree.
                    let forks = CacheKey::Parent(namespace.clone(), name.clone());
                    trigger_all(&self.senders.workspaces, &self.workspaces.by_key(&forks));
                    trigger_all(&self.senders.yoipods, &self.yoipods.by_key(&forks));
                }
                CacheKey::Itself(uid) => self.trigger_clones_of(uid),
                CacheKey::Origin(uid) => self.trigger_owner_of_unused_base(uid),
                CacheKey::BaseOf(uid) => self.trigger_owner_of_bases(uid),
                CacheKey::Project(namespace, name) => self.trigger_project_that_goes(namespace, name),
                CacheKey::Parent(..) | CacheKey::YoiPod(..) | CacheKey::Claim(..) | CacheKey::Warm(_) | CacheKey::Namespace(_) => {}
                CacheKey::SpawnedBy(_) => {}
            }
        }
    }

    /// The project or workspace that owns the bases, and what waits for a tree from one of them. The owner is found by its own UID: the last base
    /// of a parent may just be gone.
    fn trigger_owner_of_bases(&self, owner_uid: &str) {
        let owner = CacheKey::Itself(owner_uid.to_owned());
        for project in self.projects.by_key(&owner) {
            let (namespace, name) = (namespace_of(&*project), project.name_any());
            trigger(&self.senders.projects, &namespace, &name);
            let key = CacheKey::Project(namespace, name);
            let has_no_origin = |w: &AgentWorkspace| w.status.as_ref().is_none_or(|s| s.origin.is_none());
            trigger_all(&self.senders.workspaces, &matching(self.workspaces.by_key(&key), has_no_origin));
            trigger_all(&self.senders.yoipods, &matching(self.yoipods.by_key(&key), |y| !is_yoipod_ready(y)));
        }
        for workspace in self.workspaces.by_key(&owner) {
            let (namespace, name) = (namespace_of(&*workspace), workspace.name_any());
            trigger(&self.senders.workspaces, &namespace, &name);
            trigger_all(&self.senders.yoipods, &self.yoipods.by_key(&CacheKey::Workspace(namespace, name)));
        }
    }

    /// A project that is being deleted waits for what names it.
    fn trigger_project_that_goes(&self, namespace: &str, name: &str) {
        if self.projects.get(namespace, name).is_some_and(|project| project.metadata.deletion_timestamp.is_some()) {
            trigger(&self.senders.projects, namespace, name);
        }
    }

    /// The clones of the workspace: they may have lost their origin.
    fn trigger_clones_of(&self, uid: &str) {
        trigger_all(&self.senders.workspaces, &self.workspaces.by_key(&CacheKey::Origin(uid.to_owned())));
    }

    /// When the last clone of a base is gone, the project may delete the base.
    fn trigger_owner_of_unused_base(&self, base_uid: &str) {
        if self.workspaces.contains_key(&CacheKey::Origin(base_uid.to_owned())) {
            return;
        }
        for base in self.workspaces.by_key(&CacheKey::Itself(base_uid.to_owned())) {
            if let Some(owner) = meta::controller(&base.metadata).filter(|o| o.kind == "YoiProject") {
                trigger(&self.senders.projects, &namespace_of(&*base), &owner.name);
            }
        }
    }

    /// The YoiPeers that join the YoiPod; its workspace, because that takes its node from the YoiPod's Pod; and all YoiPods that name the same
    /// workspace: when one of two goes, the other may have the tree.
    pub(crate) fn yoipod_changed(&self, keys: &[CacheKey]) {
        for key in keys {
            match key {
                CacheKey::YoiPod(..) => trigger_all(&self.senders.peers, &self.peers.by_key(key)),
                CacheKey::Workspace(namespace, name) => {
                    trigger(&self.senders.workspaces, namespace, name);
                    trigger_all(&self.senders.yoipods, &self.yoipods.by_key(key));
                }
                CacheKey::Project(namespace, name) => self.trigger_project_that_goes(namespace, name),
                CacheKey::SpawnedBy(uid) => self.trigger_spawner_of_another_count(uid),
                // Those that it has started hang under nobody once it is gone.
                CacheKey::Itself(uid) if !self.yoipods.contains_key(key) => {
                    trigger_all(&self.senders.yoipods, &self.yoipods.by_key(&CacheKey::SpawnedBy(uid.clone())));
                }
                CacheKey::Itself(_)
                | CacheKey::Parent(..)
                | CacheKey::Claim(..)
                | CacheKey::BaseOf(_)
                | CacheKey::Origin(_)
                | CacheKey::Warm(_)
                | CacheKey::Namespace(_) => {}
            }
        }
    }

    /// The YoiPod with this UID, if it has started more or fewer than its status says.
    fn trigger_spawner_of_another_count(&self, uid: &str) {
        let started = self.yoipods.by_key(&CacheKey::SpawnedBy(uid.to_owned())).len();
        let says_another = |spawner: &YoiPod| {
            let said = spawner.status.as_ref().and_then(|status| status.children).unwrap_or_default();
            usize::try_from(said) != Ok(started)
        };
        trigger_all(&self.senders.yoipods, &matching(self.yoipods.by_key(&CacheKey::Itself(uid.to_owned())), says_another));
    }

    /// The owners of a Pod, ConfigMap, claim or volume, and the projects of a network policy's namespace.
    pub(crate) fn part_changed(&self, keys: &[CacheKey]) {
        for key in keys {
            match key {
                CacheKey::YoiPod(namespace, name) => trigger(&self.senders.yoipods, namespace, name),
                CacheKey::Workspace(namespace, name) => trigger(&self.senders.workspaces, namespace, name),
                CacheKey::Claim(namespace, name) => {
                    trigger_all(&self.senders.yoipods, &self.yoipods.by_key(key));
                    // A workspace's claim has the workspace's name.
                    trigger(&self.senders.workspaces, namespace, name);
                }
                CacheKey::Project(namespace, name) => trigger(&self.senders.projects, namespace, name),
                CacheKey::Namespace(_) => trigger_all(&self.senders.projects, &self.projects.by_key(key)),
                CacheKey::Warm(uid) => trigger_all(&self.senders.projects, &self.projects.by_key(&CacheKey::Itself(uid.clone()))),
                CacheKey::Parent(..) | CacheKey::BaseOf(_) | CacheKey::Origin(_) | CacheKey::SpawnedBy(_) | CacheKey::Itself(_) => {}
            }
        }
    }

    /// The projects that have warm session claims: whether a class is worth them may have changed.
    pub(crate) fn classes_changed(&self, _: &[CacheKey]) {
        trigger_all(&self.senders.projects, &matching(self.projects.all(), |project| project.spec.warm.is_some()));
    }

    /// The WorkspaceNodes of the nodes that the Pods of shims are, or were, on.
    pub(crate) fn shim_pods_changed(&self, keys: &[CacheKey]) {
        for key in keys {
            if let CacheKey::Itself(node) = key {
                self.absent_shims.set(node, !self.shim_pods.contains_key(key));
                trigger(&self.senders.workspace_nodes, "", node);
            }
        }
    }

    /// Everything that decides by nodes, if a Node or a WorkspaceNode changed in a way that a plan reads.
    pub(crate) fn nodes_changed(&self, _: &[CacheKey]) {
        let nodes = self.nodes.all().into_iter().map(|node| {
            let name = node.name_any();
            let offer = self.workspace_nodes.get("", &name);
            (name, nodes::Node::new(&node, offer))
        });
        let after = Arc::new(Nodes(nodes.collect()));
        let before = {
            let mut observed = self.observed_nodes.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *observed, Arc::clone(&after))
        };
        if what_plans_read(&before) == what_plans_read(&after) {
            return;
        }
        let joined_or_left = !before.0.keys().eq(after.0.keys());
        trigger_all(&self.senders.workspace_nodes, &matching(self.workspace_nodes.all(), |w| !after.exists(&w.name_any())));
        trigger_all(&self.senders.projects, &self.projects.all());
        let unready = |w: &AgentWorkspace| !is_ready(w.status.as_ref().map(|s| s.conditions.as_slice()));
        // An agent that was ready is not, when its node does not answer; nor is a loan over whose holder was there.
        let is_lost_or_back = joined_or_left || !lost(&before).eq(lost(&after));
        let lends = |w: &AgentWorkspace| w.status.as_ref().is_some_and(|status| !status.claims.is_empty());
        let concerned = |w: &AgentWorkspace| joined_or_left || unready(w) || (is_lost_or_back && lends(w));
        trigger_all(&self.senders.workspaces, &matching(self.workspaces.all(), concerned));
        trigger_all(&self.senders.yoipods, &matching(self.yoipods.all(), |y| is_lost_or_back || !is_yoipod_ready(y)));
    }
}

/// Each node by its name, as far as something waits for it. Free bytes only order the nodes, and change every minute.
fn what_plans_read(nodes: &Nodes) -> BTreeMap<&str, (WithoutOffer<'_>, Option<WorkspaceNodeStatus>)> {
    fn read(node: &nodes::Node) -> (WithoutOffer<'_>, Option<WorkspaceNodeStatus>) {
        let nodes::Node { labels, cordoned, taints, not_ready_since, offer } = node;
        let status = offer.as_ref().and_then(|offer| offer.status.as_ref());
        ((labels, *cordoned, taints, *not_ready_since), status.map(|status| WorkspaceNodeStatus { capacity: None, ..status.clone() }))
    }
    nodes.0.iter().map(|(name, node)| (name.as_str(), read(node))).collect()
}

/// The nodes that are not ready, by name.
fn lost(nodes: &Nodes) -> impl Iterator<Item = &str> {
    nodes.0.iter().filter(|(_, node)| node.not_ready_since.is_some()).map(|(name, _)| name.as_str())
}

/// Labels, cordon, taints, and since when it is not ready.
type WithoutOffer<'a> = (&'a BTreeMap<String, String>, bool, &'a [Taint], Option<jiff::Timestamp>);

fn matching<K>(objects: Vec<Arc<K>>, predicate: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
    objects.into_iter().filter(|object| predicate(object)).collect()
}

fn is_yoipod_ready(yoipod: &YoiPod) -> bool {
    is_ready(yoipod.status.as_ref().map(|s| s.conditions.as_slice()))
}

/// Whether the condition Ready is True.
#[must_use]
pub fn is_ready(all: Option<&[Condition]>) -> bool {
    all.is_some_and(|c| conditions::is_true(c, condition::READY))
}

#[cfg(test)]
mod tests;
