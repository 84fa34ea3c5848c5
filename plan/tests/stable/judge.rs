//! What must hold at every single write, whatever the operator knew: nothing of others is touched, nothing by name alone, nothing too early.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use yoi_crds::condition::{Condition, find, is_true};
use yoi_crds::name::annotation::REMINDED;
use yoi_crds::name::{finalizer, label};
use yoi_crds::reason::condition;
use yoi_crds::{AgentWorkspace, AgentWorkspaceStatus, YoiPeerStatus, YoiPod, YoiPodStatus};
use yoi_plan::meta::{annotation, controlled_by, controller, deleting, label as label_of, uid};
use yoi_plan::names;
use yoi_plan::network;
use yoi_plan::step::{Kind, Step, Target};
use yoi_plan::workspace::claim::tree_behind;
use yoi_plan::yoipod::{MADE_FOR, run_generation};

use crate::cluster::{Broken, Cluster, NS, made_for};
use crate::kubernetes::{is_agent, mounts, over};

/// The object whose round it is.
pub struct About {
    /// `None`: a project, which has nothing that a step could mean by kind.
    pub kind: Option<Kind>,
    pub uid: String,
    /// The round saw the world as it is.
    pub fresh: bool,
}

type Verdict = Result<(), Broken>;

fn hold(fits: bool, why: &str, step: &Step) -> Verdict {
    if fits { Ok(()) } else { Err(Broken(format!("{why}: {}", step.description()))) }
}

pub fn step(c: &Cluster, about: &About, step: &Step) -> Verdict {
    let target = |t: &Target| {
        hold(!t.uid.is_empty(), "an object is touched by its name alone", step)?;
        let place = if matches!(t.kind, Kind::Volume | Kind::WorkspaceNode) { "" } else { NS };
        hold(t.namespace == place, "a step reaches into another namespace", step)
    };
    let making = |meta: &ObjectMeta| {
        hold(meta.namespace.as_deref() == Some(NS), "something is made in another namespace", step)?;
        hold(!(c.now.terminating && about.fresh), "something is made in a terminating namespace", step)
    };
    match step {
        Step::AddFinalizers { of, resource_version, all } => {
            target(of)?;
            let Some(now) = current(c, about, of, resource_version, step)? else { return Ok(()) };
            let kept = now.iter().all(|f| all.contains(f));
            let added = all.iter().all(|f| now.contains(f) || f.starts_with("yoi.dev/"));
            hold(kept && added, "somebody's finalizer is lost or forged", step)
        }
        Step::RemoveFinalizer { of, resource_version, finalizer, left } => {
            target(of)?;
            let Some(now) = current(c, about, of, resource_version, step)? else { return Ok(()) };
            let rest: Vec<&String> = now.iter().filter(|f| f != finalizer).collect();
            hold(rest == left.iter().collect::<Vec<_>>(), "somebody's finalizer is lost", step)?;
            let going = c.by_uid(of.kind, &of.uid).is_some_and(deleting);
            hold(going, "a finalizer is taken from an object that stays", step)?;
            if *finalizer == finalizer::NODE_DATA { node_data(c, about, of, step) } else { guarded(c, of, &now, step) }
        }
        Step::EnsureWorkspace(w) => {
            making(&w.metadata)?;
            let finalizers = w.metadata.finalizers.clone().unwrap_or_default();
            hold(finalizers.len() == 2, "a workspace is born without its finalizers", step)?;
            hold(controller(&w.metadata).is_some(), "a workspace is made for nobody", step)
        }
        Step::EnsureClaim(claim) => {
            making(&claim.metadata)?;
            hold(made_for(claim, &about.uid), "a claim is made for another object", step)?;
            let named = claim.spec.as_ref().is_some_and(|s| s.volume_name.is_some());
            hold(!named, "a claim names its volume, and binds 14 s later", step)
        }
        Step::EnsureVolume(volume) => volume_made(c, about, volume, step),
        Step::EnsureConfigMap(map) => {
            making(&map.metadata)?;
            hold(controlled_by(&map.metadata, &about.uid), "a manifest is made for another object", step)
        }
        Step::EnsurePod(pod) => {
            making(&pod.metadata)?;
            hold(controlled_by(&pod.metadata, &about.uid), "a Pod is made for another object", step)?;
            if c.get::<Pod>(pod.metadata.name.as_deref().unwrap_or_default()).is_some() {
                return Ok(());
            }
            if is_agent(pod) { agent_made(c, about, pod, step) } else { populator_made(c, about, step) }
        }
        Step::EnsureNetworkPolicy(policy) => {
            making(&policy.metadata)?;
            let both = ["Ingress".to_owned(), "Egress".to_owned()];
            let closed = policy.spec.as_ref().is_some_and(|s| s.policy_types.as_deref() == Some(&both) && s.ingress.is_none());
            hold(closed, "a network policy lets somebody in", step)?;
            let same = c.get::<NetworkPolicy>(policy.metadata.name.as_deref().unwrap_or_default()).is_some_and(|p| p.spec == policy.spec);
            hold(!same || !about.fresh, "a network policy is applied and says nothing new", step)
        }
        Step::OwnClaim { claim, owners } => {
            target(claim)?;
            let there = c.by_uid(Kind::Claim, &claim.uid);
            let mine = there.is_none_or(|m| annotation(m, MADE_FOR) == Some(&about.uid));
            hold(mine, "an object that is not ours is patched", step)?;
            hold(owners.iter().all(|o| o.uid == about.uid), "a claim is given to another object", step)
        }
        Step::RetainVolume { volume } => {
            target(volume)?;
            let there = c.now.volumes.values().find(|v| uid(&v.metadata) == volume.uid);
            let claim = there.and_then(|v| v.spec.as_ref()?.claim_ref.as_ref()?.uid.clone());
            let claim = claim.and_then(|uid| c.by_uid(Kind::Claim, &uid));
            let mine = claim.is_none_or(|m| annotation(m, MADE_FOR) == Some(&about.uid));
            hold(mine, "an object that is not ours is patched", step)
        }
        Step::UnselectNode { claim } => {
            target(claim)?;
            let mine = c.by_uid(Kind::Claim, &claim.uid).is_none_or(|m| controlled_by(m, &about.uid));
            hold(mine, "an object that is not ours is patched", step)
        }
        Step::NudgeClaim { claim, times } => {
            target(claim)?;
            let Some(there) = c.by_uid(Kind::Claim, &claim.uid) else { return Ok(()) };
            let workspaces = controller(there).is_some_and(|o| o.kind == "AgentWorkspace");
            hold(workspaces || annotation(there, MADE_FOR).is_some(), "an object that is not ours is patched", step)?;
            hold(deleting(there), "Kubernetes is reminded of a claim that stays", step)?;
            let said = annotation(there, REMINDED).and_then(|t| t.parse::<u32>().ok()).unwrap_or(0);
            hold(!about.fresh || *times > said, "Kubernetes is reminded again and nothing is due", step)
        }
        Step::ConfirmGone { of, .. } => hold(*of == about.uid, "somebody else's leavings are asked for", step),
        Step::Delete(t) => {
            target(t)?;
            deleted(c, about, t, step)
        }
    }
}

/// Finalizers of the object as it is; `None`: the API server refuses, because the view was old.
fn current(c: &Cluster, about: &About, of: &Target, version: &str, step: &Step) -> Result<Option<Vec<String>>, Broken> {
    hold(of.uid == about.uid && Some(of.kind) == about.kind, "another object's finalizers are touched", step)?;
    hold(!version.is_empty(), "finalizers are set without a resource version", step)?;
    let there = c.by_uid(of.kind, &of.uid).filter(|m| m.resource_version.as_deref() == Some(version));
    Ok(there.map(|m| m.finalizers.clone().unwrap_or_default()))
}

fn node_data(c: &Cluster, about: &About, of: &Target, step: &Step) -> Verdict {
    let node = c.get::<AgentWorkspace>(&of.name).and_then(|w| w.status.as_ref()?.node_name.clone());
    hold(!about.fresh || node.is_none_or(|n| !c.exists(&n)), "a finalizer goes while the tree is on its node", step)
}

fn guarded(c: &Cluster, of: &Target, now: &[String], step: &Step) -> Verdict {
    let pods = c.now.pods.values().any(|p| controlled_by(&p.metadata, &of.uid));
    let data = of.kind == Kind::Workspace && now.iter().any(|f| f == finalizer::NODE_DATA);
    let claims = of.kind == Kind::Workspace && c.now.claims.values().any(|x| controlled_by(&x.metadata, &of.uid));
    let volumes = c.now.volumes.values().any(|v| tree_behind(v) == Some(&of.uid));
    // Populators go with the node's data; the agent's Pod is what holds session and name.
    let pods = pods && (of.kind == Kind::YoiPod);
    hold(!(pods || data || claims || volumes), "a finalizer goes before what it guards", step)
}

fn volume_made(c: &Cluster, about: &About, volume: &PersistentVolume, step: &Step) -> Verdict {
    let spec = volume.spec.as_ref().expect("a spec");
    let claim = spec.claim_ref.as_ref().and_then(|r| r.uid.as_deref()).unwrap_or_default();
    hold(!claim.is_empty(), "a volume is made before its claim", step)?;
    hold(tree_behind(volume) == Some(&about.uid), "a volume shows another object's tree", step)?;
    let owner = c.now.workspaces.values().find(|w| uid(&w.metadata) == about.uid).and_then(|w| w.status.as_ref());
    let made = owner.is_some_and(|s| is_true(&s.conditions, condition::PROVISIONED));
    hold(made || !about.fresh, "a volume is made before its tree", step)?;
    let same = c.by_uid(Kind::Claim, claim).is_some_and(|m| controlled_by(m, &about.uid));
    hold(same || !about.fresh, "a volume is made for a claim that is not its own", step)
}

/// Where somebody tears a policy down, the operator puts it up again with the project's next round, and no Pod waits for that.
fn fenced(c: &Cluster, policy: &str) -> bool {
    c.torn.contains(policy) || c.get::<NetworkPolicy>(policy).is_some()
}

fn agent_made(c: &Cluster, about: &About, pod: &Pod, step: &Step) -> Verdict {
    let volumes = pod.spec.as_ref().and_then(|s| s.volumes.as_deref()).unwrap_or_default();
    let map = volumes.iter().find_map(|v| v.config_map.as_ref()).map(|m| m.name.clone()).unwrap_or_default();
    let ours = c.now.maps.get(&map).is_some_and(|m| controlled_by(&m.metadata, &about.uid));
    hold(ours || !about.fresh, "a Pod is made before its manifest", step)?;
    hold(fenced(c, network::AGENTS), "an agent is made before its network policy", step)?;
    let claim = volumes.iter().find_map(|v| v.persistent_volume_claim.as_ref()).map(|m| m.claim_name.clone()).unwrap_or_default();
    let named = c.now.yoipods.values().any(|y| uid(&y.metadata) == about.uid && y.spec.session.claim_name.is_some());
    let session = c.get::<PersistentVolumeClaim>(&claim);
    hold(session.is_some() || !about.fresh, "a Pod is made before its session's claim", step)?;
    hold(named || session.is_none_or(|s| annotation(&s.metadata, MADE_FOR) == Some(&about.uid)), "a Pod is given another's session", step)?;
    let highest = c.runs.get(&about.uid).copied().unwrap_or(0);
    hold(run_generation(pod) > highest, "the run generation was not raised for another Pod", step)?;
    let other = c.now.pods.values().find(|p| controlled_by(&p.metadata, &about.uid) && !deleting(&p.metadata) && !over(p));
    hold(other.is_none(), "two Pods for one YoiPod", step)
}

fn populator_made(c: &Cluster, about: &About, step: &Step) -> Verdict {
    let base = c.now.workspaces.values().find(|w| uid(&w.metadata) == about.uid);
    hold(fenced(c, network::POPULATORS), "a populator is made before its network policy", step)?;
    let conditions = base.and_then(|b| b.status.as_ref()).map(|s| s.conditions.as_slice()).unwrap_or_default();
    hold(!about.fresh || !is_true(conditions, condition::SEALED), "a sealed base is filled again", step)?;
    hold(!about.fresh || is_true(conditions, condition::PROVISIONED), "a base is filled before it is made", step)
}

fn deleted(c: &Cluster, about: &About, t: &Target, step: &Step) -> Verdict {
    let Some(there) = c.by_uid(t.kind, &t.uid) else { return Ok(()) };
    hold(there.name.as_deref() == Some(&t.name), "one is named and another is meant", step)?;
    if t.kind == Kind::WorkspaceNode {
        return hold(!about.fresh || !c.exists(&t.name), "what a living node offers is deleted", step);
    }
    if t.kind == Kind::Workspace && t.uid == about.uid {
        let ttl = c.get::<AgentWorkspace>(&t.name).is_some_and(|w| w.spec.ttl_after_release.is_some());
        return hold(ttl, "a workspace deletes itself unasked", step);
    }
    hold(c.ours.contains_key(&t.uid), "an object that is not ours is deleted", step)?;
    hold(annotation(there, MADE_FOR).is_none(), "a session is deleted", step)?;
    let fits = match t.kind {
        Kind::Volume => t.name == names::volume(&about.uid),
        // Bases are a project's or a workspace's, and a YoiPod may see to neither.
        _ => controlled_by(there, &about.uid),
    };
    hold(fits, "another object's part is deleted", step)?;
    let base = c.now.workspaces.values().any(|w| uid(&w.metadata) == t.uid && w.spec.base.is_some());
    hold(t.kind != Kind::Workspace || base, "a tree that is no base is deleted", step)
}

/// What every status must be like: known words, times that mean something.
fn spoken(c: &mut Cluster, title: &str, before: &[Condition], after: &[Condition]) -> Verdict {
    for said in after {
        let was = find(before, &said.type_);
        if was.is_none_or(|w| w.reason != said.reason) {
            c.cover.reason(&said.reason);
        }
        let same = was.is_some_and(|w| w.status == said.status);
        if same && was.is_some_and(|w| w.last_transition_time != said.last_transition_time) {
            return Err(Broken(format!("{title}: {} changes its time and not its status", said.type_)));
        }
        if said.message.is_empty() && said.reason != *yoi_crds::reason::ALL_MET {
            return Err(Broken(format!("{title}: {} has no sentence for {}", said.type_, said.reason)));
        }
    }
    Ok(())
}

/// Silence when nothing changed.
fn news<S: PartialEq>(title: &str, before: &S, after: &S) -> Verdict {
    if before == after { Err(Broken(format!("the status of {title} is written and says nothing new"))) } else { Ok(()) }
}

pub fn project(c: &mut Cluster, title: &str, before: &yoi_crds::YoiProjectStatus, after: &yoi_crds::YoiProjectStatus) -> Verdict {
    news(title, before, after)?;
    spoken(c, title, &before.conditions, &after.conditions)
}

pub fn peer(c: &mut Cluster, title: &str, before: &YoiPeerStatus, after: &YoiPeerStatus) -> Verdict {
    news(title, before, after)?;
    if !before.members.is_empty() && before.members != after.members {
        return Err(Broken(format!("peer {title} is bound to others than before")));
    }
    spoken(c, title, &before.conditions, &after.conditions)
}

/// `before`: the operator's share of what stood.
pub fn workspace(c: &mut Cluster, object: &AgentWorkspace, before: &AgentWorkspaceStatus, after: &AgentWorkspaceStatus) -> Verdict {
    let title = object.metadata.name.as_deref().unwrap_or_default();
    let broken = |why: &str| Err(Broken(format!("{title} {why}")));
    news(title, before, after)?;
    let id = uid(&object.metadata).to_owned();
    let bound = label_of(&object.metadata, label::YOIPOD).is_some();
    if bound && before.node_name.is_none() && after.node_name.is_some() && after.pod_uid.is_none() {
        return broken("is asked for before its Pod is bound");
    }
    let stands = |node: &String| c.exists(node) && c.disks.get(node).is_some_and(|d| d.contains(&id));
    if before.node_name != after.node_name && before.node_name.as_ref().is_some_and(stands) {
        return broken("leaves its tree behind on another node");
    }
    let made = object.status.as_ref().is_some_and(|s| is_true(&s.conditions, condition::PROVISIONED));
    if made && before.origin.is_some() && before.origin != after.origin {
        return broken("changes what its tree was made from");
    }
    if let Some(former) = before.pod_uid.as_ref().filter(|_| before.pod_uid != after.pod_uid && after.pod_uid.is_some()) {
        let alive = c.now.pods.values().any(|p| uid(&p.metadata) == former && !over(p));
        if alive {
            return broken("is given to a second writer while the first one lives");
        }
    }
    if let Some(pod) = &after.pod_uid {
        let there = c.now.pods.values().find(|p| uid(&p.metadata) == pod);
        if there.is_some_and(|p| !c.ours.contains_key(pod) || mounts(c, p).as_deref() != Some(id.as_str())) {
            return broken("is given to a Pod that was not made for it");
        }
    }
    spoken(c, title, &before.conditions, &after.conditions)
}

pub fn yoipod(c: &mut Cluster, object: &Arc<YoiPod>, before: &YoiPodStatus, after: &YoiPodStatus) -> Verdict {
    let title = object.metadata.name.as_deref().unwrap_or_default();
    news(title, before, after)?;
    if after.run_generation < before.run_generation {
        return Err(Broken(format!("the run generation of {title} falls from {:?} to {:?}", before.run_generation, after.run_generation)));
    }
    if let Some(pod) = after.pod.as_ref().and_then(|p| c.now.pods.values().find(|x| uid(&x.metadata) == p.uid)) {
        let run = run_generation(pod);
        c.runs.entry(uid(&object.metadata).to_owned()).and_modify(|r| *r = run.max(*r)).or_insert(run);
        if !controlled_by(&pod.metadata, uid(&object.metadata)) {
            return Err(Broken(format!("{title} calls a stranger's Pod its own")));
        }
    }
    spoken(c, title, &before.conditions, &after.conditions)
}
