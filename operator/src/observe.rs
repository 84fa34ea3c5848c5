//! Gathers what a plan reads from the caches, once per reconcile.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{Resource as _, ResourceExt};
use yoi_crds::name::label;
use yoi_crds::{AgentWorkspace, YoiPeer, YoiPod, YoiProject};
use yoi_plan::tree::base_set::base_parent_uid;
use yoi_plan::warm::class::Classes;
use yoi_plan::yoipod::{MADE_FOR, session_claim_name, workspace_name};
use yoi_plan::{ObservedPod, names, peer, project, warm, workspace, yoipod};

use crate::cache_key::CacheKey;
use crate::cached::{CachedClaim, CachedPod};
use crate::watch_caches::WatchCaches;

/// Namespace and name; the namespace of a cluster-scoped object is empty.
fn namespace_and_name<K: kube::Resource>(object: &K) -> (String, String) {
    (object.namespace().unwrap_or_default(), object.name_any())
}

#[must_use]
pub fn project(caches: &WatchCaches, object: Arc<YoiProject>) -> project::Observed {
    let (namespace, name) = namespace_and_name(&*object);
    let key = CacheKey::Project(namespace.clone(), name);
    // A project may have many, and only its end waits for them.
    let is_deleting = object.metadata.deletion_timestamp.is_some();
    let bases = caches.workspaces.by_key(&CacheKey::BaseOf(object.uid().unwrap_or_default()));
    // A base that began as a clone of a former one does without it.
    let is_used = |uid: &String| caches.workspaces.by_key(&CacheKey::Origin(uid.clone())).iter().any(|tree| tree.spec.base.is_none());
    let used = bases.iter().filter_map(|b| b.uid()).filter(is_used);
    let uid = object.uid().unwrap_or_default();
    let looks = controlled_pods(caches, &key, &uid);
    project::Observed {
        warm: warm(caches, &object),
        looks,
        origins: used.collect(),
        agents: if is_deleting { caches.yoipods.by_key(&key) } else { Vec::new() },
        trees: if is_deleting { caches.workspaces.by_key(&key) } else { Vec::new() },
        bases,
        terminating: caches.is_terminating(&namespace),
        nodes: caches.observed_nodes(),
        network_policies: caches.network_policies.by_key(&CacheKey::Namespace(namespace)),
        project: object,
    }
}

/// The warm session claims of a project; nothing for one that neither asks for them nor has any.
fn warm(caches: &WatchCaches, project: &YoiProject) -> warm::Observed {
    let listed = |project: &YoiProject| project.status.as_ref().and_then(|status| status.warm.clone()).unwrap_or_default().claims;
    if project.spec.warm.is_none() && listed(project).is_empty() {
        return warm::Observed::default();
    }
    let uid = project.uid().unwrap_or_default();
    let is_warm = |namespace: &str, name: &str, uid: &str| {
        let claim = caches.claims.get(namespace, name).filter(|claim| claim.metadata.uid() == uid);
        claim.map(|claim| claim.metadata.label(label::WARM).is_some())
    };
    let now = jiff::Timestamp::now();
    caches.warm_ledger.mark_seen(is_warm, now);
    let mut in_cluster = caches.warm_ledger.living();
    in_cluster.extend(caches.projects.all().iter().flat_map(|project| listed(project)).map(|claim| claim.uid));
    let (made, refusal) = caches.warm_ledger.of_project(&uid);
    warm::Observed {
        claims: caches.claims.by_key(&CacheKey::Warm(uid)).iter().map(|claim| Arc::new(claim.observed())).collect(),
        made,
        refusal,
        in_cluster: in_cluster.len(),
        classes: Classes(caches.storage_classes.all()),
    }
}

/// The warm session claims that an agent may take: those of its project that no other agent has chosen.
fn candidates(caches: &WatchCaches, yoipod: &YoiPod, project: Option<&YoiProject>) -> warm::Candidates {
    let Some(project) = project.filter(|project| project.spec.warm.is_some()) else { return warm::Candidates::default() };
    let is_settled = own_claim(caches, yoipod).is_some_and(|claim| claim.metadata.annotation(MADE_FOR) == yoipod.metadata.uid.as_deref());
    if is_settled || yoipod.spec.session.claim_name.is_some() {
        return warm::Candidates::default();
    }
    let claims = caches.claims.by_key(&CacheKey::Warm(project.uid().unwrap_or_default())).into_iter().filter(|claim| {
        let key = CacheKey::Claim(claim.metadata.namespace().to_owned(), claim.metadata.name().to_owned());
        caches.yoipods.by_key(&key).iter().all(|other| other.uid() == yoipod.uid())
    });
    let claims: Vec<_> = claims.collect();
    let volumes = claims.iter().filter_map(|claim| volume(caches, claim.volume()?)).collect();
    let claims = claims.iter().map(|claim| Arc::new(claim.observed())).collect();
    warm::Candidates { claims, volumes, classes: Classes(caches.storage_classes.all()) }
}

fn volume(caches: &WatchCaches, name: &str) -> Option<Arc<PersistentVolume>> {
    caches.volumes.get("", name).map(|volume| Arc::new(volume.observed()))
}

/// The Pods with this key whose controller has this UID.
fn controlled_pods(caches: &WatchCaches, key: &CacheKey, controller: &str) -> Vec<Arc<ObservedPod>> {
    let is_controlled = |pod: &&Arc<CachedPod>| pod.metadata.controller().is_some_and(|uid| uid == controller);
    caches.pods.by_key(key).iter().filter(is_controlled).map(|pod| Arc::new(pod.observed())).collect()
}

/// The Pods that bear the name of a YoiPod.
fn pods_of(caches: &WatchCaches, yoipod: &CacheKey) -> Vec<Arc<ObservedPod>> {
    caches.pods.by_key(yoipod).iter().map(|pod| Arc::new(pod.observed())).collect()
}

fn own_claim(caches: &WatchCaches, yoipod: &YoiPod) -> Option<Arc<CachedClaim>> {
    caches.claims.get(&yoipod.namespace().unwrap_or_default(), &session_claim_name(yoipod))
}

/// The claim that holds the agent's session. While its status names none: one that was warm, and that a former agent of its name has left.
fn session_claim(caches: &WatchCaches, yoipod: &YoiPod) -> Option<Arc<CachedClaim>> {
    let is_undecided = yoipod.spec.session.claim_name.is_none() && yoipod.status.as_ref().is_none_or(|s| s.session_claim_name.is_none());
    let former = || {
        let of_name = CacheKey::YoiPod(yoipod.namespace().unwrap_or_default(), yoipod.name_any());
        let was_warm =
            |claim: &Arc<CachedClaim>| names::is_warm_claim(claim.metadata.name()) && claim.metadata.annotation(MADE_FOR).is_some();
        caches.claims.by_key(&of_name).into_iter().find(was_warm)
    };
    own_claim(caches, yoipod).or_else(|| former().filter(|_| is_undecided))
}

#[must_use]
pub fn workspace(caches: &WatchCaches, object: Arc<AgentWorkspace>) -> workspace::Observed {
    let (namespace, name) = namespace_and_name(&*object);
    let uid = object.uid().unwrap_or_default();
    let source = &object.spec.source;
    let named = source.project.as_ref().map(|p| p.name.clone());
    // The plan checks the UIDs.
    let owner = base_parent_uid(&object).and_then(|_| yoi_plan::meta::controller(&object.metadata));
    let (of_project, of_workspace): (Option<_>, Option<_>) = match owner {
        Some(owner) if owner.kind == AgentWorkspace::kind(&()) => (None, Some(owner.name.clone())),
        owner => (owner.map(|owner| owner.name.clone()), None),
    };
    let forked = source.workspace.as_ref().map(|w| w.name.clone());
    let parent = forked.or(of_workspace).and_then(|name| caches.workspaces.get(&namespace, &name));
    // A base of a commit of a project goes with the workspace that names both.
    let of_parent = || parent.as_ref().filter(|_| owner.is_some())?.spec.source.project.as_ref().map(|p| p.name.clone());
    let project = named.or(of_project).or_else(of_parent).and_then(|name| caches.projects.get(&namespace, &name));
    let base_parent =
        base_parent_uid(&object).map(str::to_owned).or_else(|| project.as_ref().and_then(|p| p.uid())).unwrap_or_else(|| uid.clone());
    let mut bases = caches.workspaces.by_key(&CacheKey::BaseOf(base_parent));
    if source.project.as_ref().is_some_and(|p| p.revision.is_some()) {
        bases.extend(caches.workspaces.by_key(&CacheKey::BaseOf(uid.clone())));
    }
    let users = caches.yoipods.by_key(&CacheKey::Workspace(namespace.clone(), name.clone()));
    let agents = users.iter().flat_map(|u| pods_of(caches, &CacheKey::YoiPod(namespace.clone(), u.name_any()))).collect();
    let populators = controlled_pods(caches, &CacheKey::Workspace(namespace.clone(), name.clone()), &uid);
    let claimed = object.spec.claim;
    workspace::Observed {
        terminating: caches.is_terminating(&namespace),
        project,
        parent,
        bases,
        users,
        agents,
        populators,
        claim: claimed.then(|| caches.claims.get(&namespace, &name)).flatten().map(|claim| Arc::new(claim.observed())),
        volume: claimed.then(|| volume(caches, &names::volume(&uid))).flatten(),
        nodes: caches.observed_nodes(),
        network_policies: caches.network_policies.by_key(&CacheKey::Namespace(namespace)),
        workspace: object,
    }
}

#[must_use]
pub fn yoipod(caches: &WatchCaches, object: Arc<YoiPod>) -> yoipod::Observed {
    let (namespace, name) = namespace_and_name(&*object);
    let project = caches.projects.get(&namespace, &object.spec.project_ref.name);
    let works_in = workspace_name(&object).to_owned();
    let workspace = caches.workspaces.get(&namespace, &works_in);
    let base_parents = [project.as_ref().and_then(|p| p.uid()), workspace.as_ref().and_then(|w| w.uid())];
    let bases = base_parents.into_iter().flatten().flat_map(|uid| caches.workspaces.by_key(&CacheKey::BaseOf(uid))).collect();
    let template = object.spec.workspace.as_ref().and_then(|w| w.template.as_ref()?.source.as_ref()?.workspace.clone());
    let fork_source = workspace.as_ref().map_or(template, |w| w.spec.source.workspace.clone());
    let session_claim = session_claim(caches, &object);
    let mine = CacheKey::YoiPod(namespace.clone(), name);
    let spawner = object.spec.spawned_by.as_ref().and_then(|by| caches.yoipods.first_by_key(&CacheKey::Itself(by.uid.clone())));
    let started = caches.yoipods.by_key(&CacheKey::SpawnedBy(object.uid().unwrap_or_default()));
    yoipod::Observed {
        spawner: spawner.filter(|spawner| spawner.namespace().as_ref() == Some(&namespace)),
        children: started.iter().filter(|child| child.namespace().as_ref() == Some(&namespace)).count(),
        terminating: caches.is_terminating(&namespace),
        warm: candidates(caches, &object, project.as_deref()),
        project,
        workspace,
        users: caches.yoipods.by_key(&CacheKey::Workspace(namespace.clone(), works_in)),
        bases,
        parent: fork_source.and_then(|w| caches.workspaces.get(&namespace, &w.name)),
        pods: pods_of(caches, &mine),
        session_volume: session_claim.as_ref().and_then(|claim| volume(caches, claim.volume()?)),
        session_claim: session_claim.map(|claim| Arc::new(claim.observed())),
        manifests: caches.manifests.by_key(&mine).iter().map(|map| Arc::new(map.observed())).collect(),
        nodes: caches.observed_nodes(),
        network_policies: caches.network_policies.by_key(&CacheKey::Namespace(namespace)),
        yoipod: object,
    }
}

#[must_use]
pub fn peer(caches: &WatchCaches, object: Arc<YoiPeer>) -> peer::Observed {
    let (namespace, _) = namespace_and_name(&*object);
    let member = |i: usize| object.spec.members.get(i).and_then(|m| caches.yoipods.get(&namespace, m));
    peer::Observed { terminating: caches.is_terminating(&namespace), members: [member(0), member(1)], peer: object }
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;

    fn object<K: DeserializeOwned>(value: Value) -> K {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_base_is_used_by_a_tree_that_was_made_from_it_and_not_by_a_base_that_began_from_it() {
        let (caches, writers, _triggers) = WatchCaches::new();
        let project_meta = json!({"name": "p", "namespace": "ns", "uid": "uid-p", "resourceVersion": "1"});
        let of_project: YoiProject =
            object(json!({"metadata": project_meta, "spec": {"source": {"git": {"url": "https://git.example/a"}}}}));
        let apply = |workspace: Value| writers.workspaces.apply(Event::Apply(object::<AgentWorkspace>(workspace)), |_| {});
        for (generation, uid, from) in [("g1", "uid-1", None), ("g2", "uid-2", Some("uid-1")), ("g3", "uid-3", Some("uid-2"))] {
            let origin = from.map_or(json!({"kind": "Empty"}), |from| json!({"kind": "Base", "workspaceUID": from}));
            let owner = json!([{"apiVersion": "yoi.dev/v1alpha1", "kind": "YoiProject", "name": "p", "uid": "uid-p", "controller": true}]);
            apply(
                json!({"metadata": {"name": names::base(generation, "n"), "namespace": "ns", "uid": uid, "resourceVersion": "1", "ownerReferences": owner},
                "spec": {"source": {"git": {"url": "https://git.example/a"}}, "base": {"generation": generation, "node": "n"}},
                "status": {"origin": origin}}),
            );
        }
        apply(json!({"metadata": {"name": "w", "namespace": "ns", "uid": "uid-w", "resourceVersion": "1"},
            "spec": {"source": {"project": {"name": "p"}}}, "status": {"origin": {"kind": "Base", "workspaceUID": "uid-2"}}}));
        let seen = project(&caches, Arc::new(of_project));
        assert_eq!((seen.bases.len(), seen.origins), (3, ["uid-2".to_owned()].into()));
    }

    #[test]
    fn a_base_of_a_commit_is_seen_with_its_workspace_and_the_project_that_this_names() {
        let (caches, writers, _triggers) = WatchCaches::new();
        let meta = |name: &str, uid: &str| json!({"name": name, "namespace": "ns", "uid": uid, "resourceVersion": "1"});
        let spec = json!({"source": {"git": {"url": "https://git.example/a"}}});
        writers.projects.apply(Event::Apply(object::<YoiProject>(json!({"metadata": meta("p", "uid-p"), "spec": spec}))), |_| {});
        let named = json!({"source": {"project": {"name": "p", "revision": "main"}}});
        writers.workspaces.apply(Event::Apply(object::<AgentWorkspace>(json!({"metadata": meta("w", "uid-w"), "spec": named}))), |_| {});
        for (kind, name, parent) in [("AgentWorkspace", "w", Some("uid-w")), ("YoiProject", "p", None)] {
            let mut meta = meta(&names::base("g", "n"), "uid-b");
            meta["ownerReferences"] =
                json!([{"apiVersion": "yoi.dev/v1alpha1", "kind": kind, "name": name, "uid": format!("uid-{name}"), "controller": true}]);
            let spec = json!({"source": {"git": {"url": "https://git.example/a"}}, "base": {"generation": "g", "node": "n"}});
            let seen = workspace(&caches, Arc::new(object(json!({"metadata": meta, "spec": spec}))));
            assert_eq!(seen.project.and_then(|project| project.uid()).as_deref(), Some("uid-p"), "{kind}");
            assert_eq!(seen.parent.and_then(|parent| parent.uid()).as_deref(), parent, "{kind}");
        }
    }
}
