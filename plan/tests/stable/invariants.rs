//! What must hold at every single write, however old the operator's caches are: no write changes an object of somebody else, names an object without its
//! UID, or comes too early.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use yoi_crds::condition::{Condition, ConditionStatus, find, is_true};
use yoi_crds::name::annotation::{NEW_TREE, REMINDED};
use yoi_crds::name::{finalizer, label};
use yoi_crds::pod::DesiredState;
use yoi_crds::reason::{self, condition};
use yoi_crds::{AgentWorkspace, AgentWorkspaceStatus, YoiPeerStatus, YoiPod, YoiPodStatus};
use yoi_plan::meta::{annotation, controlled_by, controller, deleting, label as label_of, uid};
use yoi_plan::names;
use yoi_plan::network;
use yoi_plan::step::{Kind, Step, Target};
use yoi_plan::tree::base_set::FOLLOWS_CONSUMER;
use yoi_plan::workspace::claim::tree_behind;
use yoi_plan::yoipod::{MADE_FOR, is_stopped, may_be_woken, run_generation};

use crate::cluster::{Cluster, NS, TAKEN_BACK, Violation, made_for};
use crate::kubernetes::{is_agent, is_over, is_reader, mounts};
use crate::looks::is_look;
use crate::prepared::{is_prepare, is_whole};
use crate::pushes::{self, is_pusher};
use crate::{host_sources, loans};

/// The object that is reconciled.
pub struct About {
    /// `None` for a YoiPeer, which no step changes.
    pub kind: Option<Kind>,
    pub uid: String,
    /// All caches were up to date.
    pub fresh: bool,
}

pub type Verdict = Result<(), Violation>;

pub fn require(fits: bool, why: &str, step: &Step) -> Verdict {
    if fits { Ok(()) } else { Err(Violation(format!("{why}: {}", step.description()))) }
}

pub fn step(c: &Cluster, about: &About, step: &Step) -> Verdict {
    let target = |t: &Target| {
        require(!t.uid.is_empty(), "an object is touched by its name alone", step)?;
        let place = if matches!(t.kind, Kind::Volume | Kind::WorkspaceNode) { "" } else { NS };
        require(t.namespace == place, "a step reaches into another namespace", step)
    };
    let making = |meta: &ObjectMeta| {
        require(meta.namespace.as_deref() == Some(NS), "something is made in another namespace", step)?;
        require(!(c.now.terminating && about.fresh), "something is made in a terminating namespace", step)
    };
    match step {
        Step::AddFinalizers { of, resource_version, all } => {
            target(of)?;
            let Some(now) = current(c, about, of, resource_version, step)? else { return Ok(()) };
            let kept = now.iter().all(|f| all.contains(f));
            let added = all.iter().all(|f| now.contains(f) || f.starts_with("yoi.dev/"));
            require(kept && added, "somebody's finalizer is lost or forged", step)
        }
        Step::RemoveFinalizer { of, resource_version, finalizer, left } => {
            target(of)?;
            let Some(now) = current(c, about, of, resource_version, step)? else { return Ok(()) };
            let rest: Vec<&String> = now.iter().filter(|f| f != finalizer).collect();
            require(rest == left.iter().collect::<Vec<_>>(), "somebody's finalizer is lost", step)?;
            let going = c.by_uid(of.kind, &of.uid).is_some_and(deleting);
            require(going, "a finalizer is taken from an object that stays", step)?;
            if *finalizer == finalizer::NODE_DATA { node_data(c, about, of, step) } else { check_finalizers(c, about, of, &now, step) }
        }
        Step::EnsureWorkspace(w) => {
            making(&w.metadata)?;
            let finalizers = w.metadata.finalizers.clone().unwrap_or_default();
            require(finalizers.len() == 2, "a workspace is born without its finalizers", step)?;
            require(controller(&w.metadata).is_some(), "a workspace is made for nobody", step)?;
            if about.fresh { base_made(c, w, step) } else { Ok(()) }
        }
        Step::EnsureClaim(claim) => {
            making(&claim.metadata)?;
            require(made_for(claim, &about.uid), "a claim is made for another object", step)?;
            let named = claim.spec.as_ref().is_some_and(|s| s.volume_name.is_some());
            require(!named, "a claim names its volume, and binds 14 s later", step)
        }
        Step::EnsureVolume(volume) => volume_made(c, about, volume, step),
        Step::EnsureConfigMap(map) => {
            making(&map.metadata)?;
            require(controlled_by(&map.metadata, &about.uid), "a manifest is made for another object", step)
        }
        Step::EnsurePod(pod) => {
            making(&pod.metadata)?;
            require(controlled_by(&pod.metadata, &about.uid), "a Pod is made for another object", step)?;
            if c.get::<Pod>(pod.metadata.name.as_deref().unwrap_or_default()).is_some() {
                return Ok(());
            }
            match pod {
                pod if is_agent(pod) => agent_made(c, about, pod, step),
                pod if is_reader(pod) => reader_made(c, about, pod, step),
                pod if is_prepare(pod) => {
                    let closed = [network::PREPARE, network::PREPARE_AS_AGENTS].iter().all(|policy| has_policy(c, policy));
                    require(closed, "a base is prepared before the network policies of that are there", step)?;
                    populator_made(c, about, step)
                }
                pod if is_pusher(pod) => pushes::pod_made(c, about, pod, step),
                pod if is_look(pod) => require(has_policy(c, network::POPULATORS), "a Pod looks before its network policy", step),
                _ => populator_made(c, about, step),
            }
        }
        Step::EnsureNetworkPolicy(policy) => {
            making(&policy.metadata)?;
            let both = ["Ingress".to_owned(), "Egress".to_owned()];
            let closed = policy.spec.as_ref().is_some_and(|s| s.policy_types.as_deref() == Some(&both) && s.ingress.is_none());
            require(closed, "a network policy lets somebody in", step)?;
            let same = c.get::<NetworkPolicy>(policy.metadata.name.as_deref().unwrap_or_default()).is_some_and(|p| p.spec == policy.spec);
            require(!same || !about.fresh, "a network policy is applied and says nothing new", step)
        }
        Step::OwnClaim { claim, owners } => {
            target(claim)?;
            let there = c.by_uid(Kind::Claim, &claim.uid);
            let mine = there.is_none_or(|m| annotation(m, MADE_FOR) == Some(&about.uid));
            require(mine, "an object that is not ours is patched", step)?;
            require(owners.iter().all(|o| o.uid == about.uid), "a claim is given to another object", step)
        }
        Step::RetainVolume { volume } => {
            target(volume)?;
            let there = c.now.volumes.values().find(|v| uid(&v.metadata) == volume.uid);
            let claim = there.and_then(|v| v.spec.as_ref()?.claim_ref.as_ref()?.uid.clone());
            let claim = claim.and_then(|uid| c.by_uid(Kind::Claim, &uid));
            let mine = claim.is_none_or(|m| annotation(m, MADE_FOR) == Some(&about.uid));
            require(mine, "an object that is not ours is patched", step)
        }
        Step::SetTokens { pod, .. } | Step::SetRest { pod, .. } | Step::SetPolicy { pod, .. } | Step::LeaveOutSet { pod, .. } => {
            target(pod)?;
            let mine = c.by_uid(Kind::Pod, &pod.uid).is_none_or(|m| controlled_by(m, &about.uid));
            require(mine, "an object that is not ours is patched", step)
        }
        Step::MakeWarmClaim(claim) => {
            making(&claim.metadata)?;
            let labelled = label_of(&claim.metadata, label::WARM).is_some() && controlled_by(&claim.metadata, &about.uid);
            require(labelled, "a warm claim is made for another object", step)?;
            let unclaimed = annotation(&claim.metadata, MADE_FOR).is_none() && claim.spec.as_ref().is_some_and(|s| s.volume_name.is_none());
            require(unclaimed, "a warm claim is born with a session", step)
        }
        Step::TakeWarmClaim { claim, resource_version, made_for, owners, .. } => {
            target(claim)?;
            require(*made_for == about.uid && owners.iter().all(|o| o.uid == about.uid), "a claim is given to another object", step)?;
            let Some(there) = c.by_uid(Kind::Claim, &claim.uid) else { return Ok(()) };
            require(c.ours.contains_key(&claim.uid), "a claim that a user made is taken as warm", step)?;
            let same = there.resource_version.as_ref() == Some(resource_version);
            require(!same || annotation(there, MADE_FOR).is_none() && !deleting(there), "a warm claim is handed on", step)
        }
        Step::DeleteUnchanged { of, resource_version } => {
            target(of)?;
            let Some(there) = c.by_uid(of.kind, &of.uid) else { return Ok(()) };
            let same = there.resource_version.as_ref() == Some(resource_version);
            require(c.ours.contains_key(&of.uid), "an object that is not ours is deleted", step)?;
            require(!same || annotation(there, MADE_FOR).is_none(), "a session is deleted", step)?;
            require(!same || controlled_by(there, &about.uid), "another object's part is deleted", step)
        }
        Step::UnselectNode { claim, times } => {
            target(claim)?;
            let mine = c.by_uid(Kind::Claim, &claim.uid).is_none_or(|m| controlled_by(m, &about.uid));
            require(mine, "an object that is not ours is patched", step)?;
            // A view that is late may give one choice back without a count of its own.
            let done = c.by_uid(Kind::Claim, &claim.uid).and_then(|there| annotation(there, TAKEN_BACK)?.parse::<u32>().ok());
            let most = 8 + 4;
            require(*times <= most + 1 && done.unwrap_or(0) <= most + 4, "a choice of node is given back again and again", step)
        }
        Step::NudgeClaim { claim, times } => {
            target(claim)?;
            let Some(there) = c.by_uid(Kind::Claim, &claim.uid) else { return Ok(()) };
            let workspaces = controller(there).is_some_and(|o| o.kind == "AgentWorkspace");
            require(workspaces || annotation(there, MADE_FOR).is_some(), "an object that is not ours is patched", step)?;
            require(deleting(there), "Kubernetes is nudged about a claim that stays", step)?;
            let written = annotation(there, REMINDED).and_then(|t| t.parse::<u32>().ok()).unwrap_or(0);
            require(!about.fresh || *times > written, "Kubernetes is nudged again and nothing is due", step)
        }
        // That of a tree is also asked for the last Pod of an agent to which paths of it are lent.
        Step::ConfirmGone { of, .. } => require(
            *of == about.uid || loans::is_holder(c, &about.uid, of),
            "the API server is asked for what was made for another object",
            step,
        ),
        Step::SetNodeCondition { of, condition, .. } => {
            target(of)?;
            let unknown = condition.type_ == "Ready" && condition.status == yoi_crds::condition::ConditionStatus::Unknown;
            require(unknown, "the operator says of a node what only its shim knows", step)?;
            require(!about.fresh || !c.alive(&of.name), "nothing is heard of a node that is well", step)
        }
        Step::SetClaims { of, .. } => {
            target(of)?;
            require(of.uid == about.uid, "another object's claims are written", step)
        }
        Step::Delete(t) => {
            target(t)?;
            deleted(c, about, t, step)
        }
    }
}

/// A base that follows nobody is the first one of its content, and its populator can start on its node.
fn base_made(c: &Cluster, made: &AgentWorkspace, step: &Step) -> Verdict {
    let Some(base) = made.spec.base.as_ref().filter(|_| annotation(&made.metadata, FOLLOWS_CONSUMER).is_none()) else { return Ok(()) };
    let refuses = c.now.machines.get(&base.node).is_none_or(|m| !m.alive || m.cordoned || m.tainted);
    require(!refuses, "a base is made where its populator cannot start", step)?;
    if let Some(source) = &made.spec.source.host {
        require(host_sources::published(c, &base.node, source).is_some(), "a folder is taken on a node that does not offer it", step)?;
        let shows = host_sources::shows_where_it_lies(c, made, &base.node, source);
        require(shows, "a base of a folder shows elsewhere than the folder lies", step)?;
        let parent = controller(&made.metadata).map(|o| o.uid.clone()).unwrap_or_default();
        let taken_on = host_sources::taken_on(c, &parent, &base.generation);
        require(taken_on.is_none_or(|node| *node == base.node), "a folder is taken on two nodes for one generation", step)?;
    }
    let of = |w: &AgentWorkspace| w.spec.base.as_ref().is_some_and(|b| b.generation == base.generation) && !deleting(&w.metadata);
    let sealed = c.now.workspaces.values().any(|w| {
        let status = w.status.as_ref();
        let is_there = status.and_then(|s| s.node_name.as_ref()).is_some_and(|node| c.exists(node));
        let lost = status.is_some_and(|s| find(&s.conditions, condition::PROVISIONED).is_some_and(|p| p.reason == *reason::TREE_LOST));
        of(w)
            && is_there
            && !lost
            && status.is_some_and(|s| is_true(&s.conditions, condition::SEALED))
            && c.ours.contains_key(uid(&w.metadata))
    });
    require(!sealed, "a base is made for nobody, though another is sealed", step)
}

/// Finalizers of the object as it is now; `None` when the API server refuses the step, because the object has changed.
fn current(c: &Cluster, about: &About, of: &Target, version: &str, step: &Step) -> Result<Option<Vec<String>>, Violation> {
    require(of.uid == about.uid && Some(of.kind) == about.kind, "another object's finalizers are touched", step)?;
    require(!version.is_empty(), "finalizers are set without a resource version", step)?;
    let there = c.by_uid(of.kind, &of.uid).filter(|m| m.resource_version.as_deref() == Some(version));
    Ok(there.map(|m| m.finalizers.clone().unwrap_or_default()))
}

fn node_data(c: &Cluster, about: &About, of: &Target, step: &Step) -> Verdict {
    let node = c.get::<AgentWorkspace>(&of.name).and_then(|w| w.status.as_ref()?.node_name.clone());
    require(!about.fresh || node.is_none_or(|n| !c.exists(&n)), "a finalizer goes while the tree is on its node", step)
}

/// Names of the YoiPods and trees that name the project.
pub fn named<'a>(c: &'a Cluster, project: &'a str) -> impl Iterator<Item = &'a str> {
    let agents = c.now.yoipods.iter().filter(move |(_, y)| y.spec.project_ref.name == project).map(|(title, _)| title.as_str());
    let is_of = move |w: &AgentWorkspace| w.spec.source.project.as_ref().is_some_and(|p| p.name == project);
    agents.chain(c.now.workspaces.iter().filter(move |(_, w)| is_of(w)).map(|(title, _)| title.as_str()))
}

fn check_finalizers(c: &Cluster, about: &About, of: &Target, now: &[String], step: &Step) -> Verdict {
    let pods = c.now.pods.values().any(|p| controlled_by(&p.metadata, &of.uid));
    let data = of.kind == Kind::Workspace && now.iter().any(|f| f == finalizer::NODE_DATA);
    let claims = of.kind == Kind::Workspace && c.now.claims.values().any(|x| controlled_by(&x.metadata, &of.uid));
    let volumes = c.now.volumes.values().any(|v| tree_behind(v) == Some(&of.uid));
    // Populators are deleted before the node's data; an agent's Pod uses the session and the name.
    let pods = pods && (of.kind == Kind::YoiPod);
    require(!(pods || data || claims || volumes), "a finalizer goes before what it guards", step)?;
    let named = of.kind == Kind::Project && named(c, &of.name).next().is_some();
    require(!named || !about.fresh, "a project goes while something names it", step)
}

fn volume_made(c: &Cluster, about: &About, volume: &PersistentVolume, step: &Step) -> Verdict {
    let spec = volume.spec.as_ref().expect("a spec");
    let claim = spec.claim_ref.as_ref().and_then(|r| r.uid.as_deref()).unwrap_or_default();
    require(!claim.is_empty(), "a volume is made before its claim", step)?;
    require(tree_behind(volume) == Some(&about.uid), "a volume shows another object's tree", step)?;
    let owner = c.now.workspaces.values().find(|w| uid(&w.metadata) == about.uid).and_then(|w| w.status.as_ref());
    let made = owner.is_some_and(|s| is_true(&s.conditions, condition::PROVISIONED));
    require(made || !about.fresh, "a volume is made before its tree", step)?;
    let same = c.by_uid(Kind::Claim, claim).is_some_and(|m| controlled_by(m, &about.uid));
    require(same || !about.fresh, "a volume is made for a claim that is not its own", step)
}

/// The policy exists as it should be. One that somebody deleted or opened counts too: the project's next round applies it again, and no Pod waits for
/// that.
pub fn has_policy(c: &Cluster, policy: &str) -> bool {
    c.changed_policies.contains(policy) || c.get::<NetworkPolicy>(policy).is_some()
}

fn agent_made(c: &Cluster, about: &About, pod: &Pod, step: &Step) -> Verdict {
    let volumes = pod.spec.as_ref().and_then(|s| s.volumes.as_deref()).unwrap_or_default();
    let map = volumes.iter().find_map(|v| v.config_map.as_ref()).map(|m| m.name.clone()).unwrap_or_default();
    let ours = c.now.maps.get(&map).is_some_and(|m| controlled_by(&m.metadata, &about.uid));
    require(ours || !about.fresh, "a Pod is made before its manifest", step)?;
    require(has_policy(c, network::AGENTS), "an agent is made before its network policy", step)?;
    let claim = volumes.iter().find_map(|v| v.persistent_volume_claim.as_ref()).map(|m| m.claim_name.clone()).unwrap_or_default();
    let named = c.now.yoipods.values().any(|y| uid(&y.metadata) == about.uid && y.spec.session.claim_name.is_some());
    let session = c.get::<PersistentVolumeClaim>(&claim);
    require(session.is_some() || !about.fresh, "a Pod is made before its session's claim", step)?;
    require(
        named || session.is_none_or(|s| annotation(&s.metadata, MADE_FOR) == Some(&about.uid)),
        "a Pod is given another's session",
        step,
    )?;
    let tree = mounts(c, pod).and_then(|tree| c.now.workspaces.values().find(|w| uid(&w.metadata) == tree));
    let mounts_of_agent = pod.spec.as_ref().and_then(|s| s.containers.first()?.volume_mounts.as_deref()).unwrap_or_default();
    let shown_at = mounts_of_agent.iter().find(|m| m.name == "tree").map(|m| m.mount_path.as_str());
    require(!about.fresh || tree.is_none_or(|w| w.tree_path() == shown_at), "an agent sees its tree elsewhere than the status says", step)?;
    let agent = c.now.yoipods.values().find(|y| uid(&y.metadata) == about.uid);
    let former = agent.and_then(|y| c.trees.get(&y.status.as_ref()?.report.as_ref()?.pod_uid));
    let is_meant = |former: &String| agent.and_then(|y| annotation(&y.metadata, NEW_TREE)) == Some(former);
    let begins_anew = former.is_some_and(|former| mounts(c, pod).as_ref() != Some(former) && !is_meant(former));
    require(!begins_anew || !about.fresh, "an agent goes on in another tree unasked", step)?;
    // One that is not to rest any more starts by itself.
    let rests = agent.is_some_and(|y| y.spec.desired_state == DesiredState::Suspended && may_be_woken(y));
    require(!about.fresh || !rests, "an agent that rests gets a Pod", step)?;
    let highest = c.runs.get(&about.uid).copied().unwrap_or(0);
    require(run_generation(pod) > highest, "the run generation was not raised for another Pod", step)?;
    let other =
        c.now.pods.values().find(|p| controlled_by(&p.metadata, &about.uid) && !is_pusher(p) && !deleting(&p.metadata) && !is_over(p));
    require(other.is_none(), "two Pods for one YoiPod", step)
}

fn reader_made(c: &Cluster, about: &About, pod: &Pod, step: &Step) -> Verdict {
    require(has_policy(c, network::READERS), "a reader is made before its network policy", step)?;
    let spec = pod.spec.as_ref().expect("a spec");
    let volumes = spec.volumes.as_deref().unwrap_or_default();
    let session = volumes.iter().find_map(|v| v.persistent_volume_claim.as_ref());
    let tree = volumes.iter().filter(|v| v.name == "tree").find_map(|v| v.csi.as_ref());
    let read_only = session.is_some_and(|s| s.read_only == Some(true)) && tree.is_none_or(|t| t.read_only == Some(true));
    require(read_only, "a reader may write", step)?;
    let claim = session.and_then(|s| c.get::<PersistentVolumeClaim>(&s.claim_name));
    let of = claim.and_then(|claim| annotation(&claim.metadata, MADE_FOR));
    let named = c.now.yoipods.values().any(|y| uid(&y.metadata) == about.uid && y.spec.session.claim_name.is_some());
    require(named || of.is_none_or(|of| of == about.uid), "a reader is given another's session", step)?;
    let own = |p: &&Arc<Pod>| is_agent(p) && controlled_by(&p.metadata, &about.uid) && !is_over(p);
    require(!about.fresh || c.now.pods.values().find(own).is_none(), "a reader is made while the agent runs", step)?;
    let owner = c.now.yoipods.values().find(|y| uid(&y.metadata) == about.uid);
    require(!about.fresh || owner.is_some_and(|y| is_stopped(y)), "an agent that is to run gets a reader", step)
}

fn populator_made(c: &Cluster, about: &About, step: &Step) -> Verdict {
    let base = c.now.workspaces.values().find(|w| uid(&w.metadata) == about.uid);
    require(has_policy(c, network::POPULATORS), "a populator is made before its network policy", step)?;
    let conditions = base.and_then(|b| b.status.as_ref()).map(|s| s.conditions.as_slice()).unwrap_or_default();
    require(!about.fresh || !is_true(conditions, condition::SEALED), "a sealed base is filled again", step)?;
    require(!about.fresh || is_true(conditions, condition::PROVISIONED), "a base is filled before it is made", step)
}

fn deleted(c: &Cluster, about: &About, t: &Target, step: &Step) -> Verdict {
    let Some(there) = c.by_uid(t.kind, &t.uid) else { return Ok(()) };
    require(there.name.as_deref() == Some(&t.name), "one is named and another is meant", step)?;
    if t.kind == Kind::WorkspaceNode {
        return require(!about.fresh || !c.exists(&t.name), "what a living node offers is deleted", step);
    }
    if t.kind == Kind::Workspace && t.uid == about.uid {
        let ttl = c.get::<AgentWorkspace>(&t.name).is_some_and(|w| w.spec.ttl_after_release.is_some());
        // A folder is taken anew when a run of prepare in what was taken before has failed, or nobody knows how it ended.
        let anew = |w: &AgentWorkspace| {
            let is_prepared = w.spec.base.as_ref().is_some_and(|b| b.prepare.is_some());
            let populated = w.status.as_ref().is_some_and(|s| is_true(&s.conditions, condition::POPULATED));
            is_prepared && w.spec.source.host.is_some() && !populated
        };
        let anew = c.get::<AgentWorkspace>(&t.name).is_some_and(|w| anew(w));
        return require(ttl || anew, "a workspace deletes itself unasked", step);
    }
    require(c.ours.contains_key(&t.uid), "an object that is not ours is deleted", step)?;
    // One that was warm goes again while nothing was ever said in it: its node had no room.
    let agent = c.now.yoipods.values().find(|y| uid(&y.metadata) == about.uid);
    let is_silent = agent.is_some_and(|y| y.status.as_ref().is_none_or(|s| s.report.is_none() && s.session.is_none()));
    let is_given_back = t.kind == Kind::Claim && names::is_warm_claim(&t.name) && annotation(there, MADE_FOR) == Some(&about.uid);
    if is_given_back {
        return require(is_silent || !about.fresh, "a session is deleted", step);
    }
    require(annotation(there, MADE_FOR).is_none(), "a session is deleted", step)?;
    let fits = match t.kind {
        Kind::Volume => t.name == names::volume(&about.uid),
        // A base belongs to a project or to a workspace, and a YoiPod's plan may make one for either.
        _ => controlled_by(there, &about.uid),
    };
    require(fits, "another object's part is deleted", step)?;
    let base = c.now.workspaces.values().any(|w| uid(&w.metadata) == t.uid && w.spec.base.is_some());
    require(t.kind != Kind::Workspace || base, "a tree that is no base is deleted", step)
}

/// Conditions of the operator without which no object is Ready.
const SUMMED_UP: [&str; 8] = [
    condition::ACCEPTED,
    condition::SOURCE_READY,
    condition::SCHEDULED,
    condition::POPULATED,
    condition::SEALED,
    condition::BOUND,
    condition::WORKSPACE_READY,
    condition::SESSION_READY,
];

/// Ready sums up the others. Every condition has a known reason, and its transition time changes only with its status.
fn check_conditions(c: &mut Cluster, title: &str, before: &[Condition], after: &[Condition]) -> Verdict {
    for new in after {
        let was = find(before, &new.type_);
        if was.is_none_or(|w| w.reason != new.reason) {
            c.coverage.reason(&new.reason);
        }
        let same = was.is_some_and(|w| w.status == new.status);
        if same && was.is_some_and(|w| w.last_transition_time != new.last_transition_time) {
            return Err(Violation(format!("{title}: {} changes its time and not its status", new.type_)));
        }
        let unmet = after.iter().find(|c| c.status != ConditionStatus::True && SUMMED_UP.contains(&c.type_.as_str()));
        if let Some(unmet) = unmet.filter(|_| new.type_ == condition::READY && new.status == ConditionStatus::True) {
            return Err(Violation(format!("{title}: Ready is True beside {} {}", unmet.type_, unmet.reason)));
        }
        if new.message.is_empty() && new.reason != *yoi_crds::reason::ALL_MET {
            return Err(Violation(format!("{title}: {} has no sentence for {}", new.type_, new.reason)));
        }
    }
    Ok(())
}

/// A status is written only when it changes.
fn check_changed<S: PartialEq>(title: &str, before: &S, after: &S) -> Verdict {
    if before == after { Err(Violation(format!("the status of {title} is written and says nothing new"))) } else { Ok(()) }
}

pub fn project(c: &mut Cluster, title: &str, before: &yoi_crds::YoiProjectStatus, after: &yoi_crds::YoiProjectStatus) -> Verdict {
    check_changed(title, before, after)?;
    check_conditions(c, title, &before.conditions, &after.conditions)
}

pub fn peer(c: &mut Cluster, title: &str, before: &YoiPeerStatus, after: &YoiPeerStatus) -> Verdict {
    check_changed(title, before, after)?;
    if !before.members.is_empty() && before.members != after.members {
        return Err(Violation(format!("peer {title} is bound to others than before")));
    }
    check_conditions(c, title, &before.conditions, &after.conditions)
}

/// `before` holds the fields that the operator owns.
pub fn workspace(c: &mut Cluster, object: &AgentWorkspace, before: &AgentWorkspaceStatus, after: &AgentWorkspaceStatus) -> Verdict {
    let title = object.metadata.name.as_deref().unwrap_or_default();
    let broken = |why: &str| Err(Violation(format!("{title} {why}")));
    check_changed(title, before, after)?;
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
        let alive = c.now.pods.values().any(|p| uid(&p.metadata) == former && !is_over(p));
        if alive {
            return broken("is given to a second writer while the first one lives");
        }
    }
    if let Some(pod) = &after.pod_uid {
        let there = c.now.pods.values().find(|p| uid(&p.metadata) == pod);
        if there.is_some_and(|p| is_reader(p) || !c.ours.contains_key(pod) || mounts(c, p).as_deref() != Some(id.as_str())) {
            return broken("is given to a Pod that was not made for it");
        }
    }
    if is_true(&after.conditions, condition::POPULATED) && !is_true(&before.conditions, condition::POPULATED) && !is_whole(c, object) {
        return broken("is to be sealed with what a part of a run has left in it");
    }
    let reader = after.reader_pod_uid.as_ref().and_then(|pod| c.now.pods.values().find(|p| uid(&p.metadata) == pod));
    if reader.is_some_and(|p| !is_reader(p) || mounts(c, p).as_deref() != Some(id.as_str())) {
        return broken("is shown to a Pod that does not read it");
    }
    check_conditions(c, title, &before.conditions, &after.conditions)
}

pub fn yoipod(c: &mut Cluster, object: &Arc<YoiPod>, before: &YoiPodStatus, after: &YoiPodStatus) -> Verdict {
    let title = object.metadata.name.as_deref().unwrap_or_default();
    check_changed(title, before, after)?;
    if after.run_generation < before.run_generation {
        return Err(Violation(format!(
            "the run generation of {title} falls from {:?} to {:?}",
            before.run_generation, after.run_generation
        )));
    }
    if let Some(pod) = after.pod.as_ref().and_then(|p| c.now.pods.values().find(|x| uid(&x.metadata) == p.uid)) {
        let run = run_generation(pod);
        c.runs.entry(uid(&object.metadata).to_owned()).and_modify(|r| *r = run.max(*r)).or_insert(run);
        if !controlled_by(&pod.metadata, uid(&object.metadata)) {
            return Err(Violation(format!("{title} names a Pod that is not its own")));
        }
    }
    pushes::reported(c, title, before, after)?;
    check_conditions(c, title, &before.conditions, &after.conditions)
}
