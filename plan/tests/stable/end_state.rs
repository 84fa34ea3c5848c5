//! What must hold when nothing changes any more: agents that can run do, deleted objects are gone, and nothing is left over.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use yoi_crds::condition::{find, is_true};
use yoi_crds::name::annotation::{GIVEN_BACK, NEW_TREE, POLICY, RESOLVED};
use yoi_crds::pod::DesiredState;
use yoi_crds::reason::{self, Reason, condition};
use yoi_crds::source::HostSource;
use yoi_crds::{AgentWorkspace, Condition, YoiPod, YoiProject};
use yoi_plan::meta::{annotation, controlled_by, deleting, name, uid};
use yoi_plan::network;
use yoi_plan::tree::base_set::FOLLOWS_CONSUMER;
use yoi_plan::workspace::claim::tree_behind;
use yoi_wire::hub::TaskState;

use crate::cluster::{Cluster, Machine, NS, Violation};
use crate::invariants::named;
use crate::kubernetes::{is_agent, is_over, is_reader, is_used, mounted, nodes};
use crate::operator::network;
use crate::users::foreign_objects;
use crate::{host_sources, loans, looks, pushes, quotas};

type Verdict = Result<(), Violation>;

fn broken<T>(why: String) -> Result<T, Violation> {
    Err(Violation(why))
}

fn ready(conditions: &[Condition]) -> (bool, Reason, &str) {
    let reported = find(conditions, condition::READY);
    let why = reported.and_then(|c| Reason::from_name(&c.reason)).unwrap_or(reason::OTHER);
    (is_true(conditions, condition::READY), why, reported.map_or("", |c| &c.message))
}

pub fn check(c: &Cluster) -> Verdict {
    // While a node is NotReady for ever, nothing on it ends, and nothing more is guaranteed.
    if c.now.machines.values().any(|m| !m.alive) {
        return Ok(());
    }
    leavings(c)?;
    loans::check(c, kept(c))?;
    if c.now.terminating {
        return emptied(c);
    }
    c.now.workspaces.values().try_for_each(|w| workspace(c, w))?;
    c.now.yoipods.values().try_for_each(|y| yoipod(c, y))?;
    let policies: Vec<_> = c.now.policies.values().cloned().collect();
    let mut open = network::ensure(NS, &network(), &policies);
    if c.now.projects.values().any(|p| p.spec.prepare.is_some() && !deleting(&p.metadata)) {
        open.extend(network::ensure_prepare(NS, &network(), &policies));
    }
    if let (Some(step), true) = (open.first(), c.now.projects.values().any(|p| !deleting(&p.metadata))) {
        return broken(format!("a namespace with a project rests without its network policy: {}", step.description()));
    }
    for (title, project) in &c.now.projects {
        let conditions = project.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
        let (fine, why, message) = ready(conditions);
        let none = c.now.machines.is_empty() && why == reason::NO_ELIGIBLE_NODE;
        let odd = why == reason::INVALID_SPEC && project.spec.unknown_field().is_some();
        let nowhere = !can_populate(c) && [reason::NO_ELIGIBLE_NODE, reason::POPULATOR_NOT_RUNNING, reason::POPULATING].contains(&why);
        if deleting(&project.metadata) && named(c, title).next().is_none() && !kept(c) {
            return broken(format!("project {title} never goes"));
        }
        if deleting(&project.metadata) && !kept(c) && why != reason::WAITING_FOR_AGENTS {
            return broken(format!("project {title} is being deleted and says {why}: {message}"));
        }
        let source = project.spec.source.host.as_ref();
        let waits = source.is_some_and(|s| host_sources::excuses(c, why, s, host_sources::pinned(c, uid(&project.metadata), s).as_deref()));
        let is_taken = source.is_none_or(|s| host_sources::pinned(c, uid(&project.metadata), s).is_some());
        if fine && !is_taken && !deleting(&project.metadata) {
            return broken(format!("project {title} is ready, and no base is of the take that it asks for"));
        }
        // What was taken of a folder is on one node, and prepare runs there.
        let taken = source.filter(|_| project.spec.prepare.is_some()).and_then(|s| host_sources::pinned(c, uid(&project.metadata), s));
        let can_prepare = |node: &String| c.now.machines.get(node).is_some_and(|m| !m.cordoned && !m.tainted && fills(c, node, m));
        let stays = why == reason::POPULATOR_NOT_RUNNING && taken.is_some_and(|node| !can_prepare(&node));
        if !(fine || none || waits || stays || nowhere || odd || blocked(c, why) || deleting(&project.metadata) || lost_trees(c)) {
            return broken(format!("project {title} rests at {why}: {message}"));
        }
    }
    for (title, peer) in &c.now.peers {
        let conditions = peer.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
        let bound = peer.status.as_ref().map(|s| s.members.as_slice()).unwrap_or_default();
        let same = |m: &yoi_crds::peer::BoundMember| c.get::<YoiPod>(&m.name).is_some_and(|y| uid(&y.metadata) == m.uid);
        let joined = bound.len() == 2 && bound.iter().all(same);
        if ready(conditions).0 != joined && !deleting(&peer.metadata) {
            return broken(format!("peer {title} says {:?} of {bound:?}", ready(conditions)));
        }
    }
    Ok(())
}

/// Whether the populator of a first base can run on some node.
fn can_populate(c: &Cluster) -> bool {
    c.now.machines.iter().any(|(node, m)| !m.cordoned && !m.tainted && fills(c, node, m))
}

/// Whether a populator that tolerates every taint can run on the node.
fn fills(c: &Cluster, node: &str, m: &Machine) -> bool {
    m.alive && !m.packed && !m.unpullable && c.now.offers.contains_key(node)
}

/// Somebody else's object has a name that the operator needs.
fn blocked(c: &Cluster, why: Reason) -> bool {
    (why == reason::APPLY_FAILED || why == reason::INVALID_SPEC || why == reason::POPULATING || why == reason::POPULATOR_NOT_RUNNING)
        && (!foreign_objects(c).is_empty() || kept(c))
}

/// Somebody else's finalizer keeps an object that is being deleted.
fn kept(c: &Cluster) -> bool {
    let held = |m: &ObjectMeta| m.finalizers.iter().flatten().any(|f| f.starts_with("example.com/"));
    c.now.workspaces.values().any(|o| held(&o.metadata))
        || c.now.projects.values().any(|o| held(&o.metadata))
        || c.now.yoipods.values().any(|o| held(&o.metadata))
        || c.now.claims.values().any(|o| held(&o.metadata))
        || c.now.volumes.values().any(|o| held(&o.metadata))
        || c.now.maps.values().any(|o| held(&o.metadata))
        || c.now.pods.values().any(|o| held(&o.metadata))
}

/// Whether a node has lost a tree: that workspace waits for a person.
fn lost_trees(c: &Cluster) -> bool {
    let lost = |w: &AgentWorkspace| {
        let conditions = w.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
        find(conditions, condition::PROVISIONED).is_some_and(|p| p.reason == *reason::TREE_LOST || p.reason == *reason::SOURCE_NOT_SEALED)
    };
    c.now.workspaces.values().any(|w| lost(w))
}

/// Nothing that the operator made is left without an owner.
fn leavings(c: &Cluster) -> Verdict {
    let owners: BTreeSet<&str> = c
        .now
        .projects
        .values()
        .map(|o| uid(&o.metadata))
        .chain(c.now.workspaces.values().map(|o| uid(&o.metadata)))
        .chain(c.now.yoipods.values().map(|o| uid(&o.metadata)))
        .collect();
    for (title, volume) in &c.now.volumes {
        if tree_behind(volume).is_some_and(|of| !owners.contains(of) && !c.forced.contains(of)) {
            return broken(format!("volume {title} is left over"));
        }
    }
    for (title, offer) in &c.now.offers {
        if !c.exists(title) && !deleting(&offer.metadata) {
            return broken(format!("what node {title} offered is left over"));
        }
    }
    for (title, y) in &c.now.yoipods {
        let mine = |m: &ObjectMeta| controlled_by(m, uid(&y.metadata)) && !deleting(m);
        let maps = c.now.maps.values().filter(|m| mine(&m.metadata)).count();
        let pods = c.now.pods.values().filter(|p| mine(&p.metadata) && !is_over(p)).count();
        if maps > 1 || pods > 1 {
            return broken(format!("{title} has {maps} manifests and {pods} Pods"));
        }
    }
    for pod in c.now.pods.values().filter(|p| is_reader(p) && !deleting(&p.metadata) && c.ours.contains_key(uid(&p.metadata))) {
        let owner = c.now.yoipods.values().find(|y| controlled_by(&pod.metadata, uid(&y.metadata)));
        let asked = owner.and_then(|y| y.status.as_ref()?.reader.as_ref()?.requested_at.as_ref()?.parse::<jiff::Timestamp>().ok());
        if asked.is_none_or(|asked| c.now().duration_since(asked).as_secs() >= 120) {
            return broken(format!("reader {} is left over", name(&pod.metadata)));
        }
    }
    pushes::left_over(c)?;
    let origins: BTreeSet<&str> = c
        .now
        .workspaces
        .values()
        .filter(|w| w.spec.base.is_none())
        .filter_map(|w| w.status.as_ref()?.origin.as_ref()?.workspace_uid.as_deref())
        .collect();
    for project in c.now.projects.values().filter(|p| !deleting(&p.metadata) && p.status.as_ref().is_some_and(|s| ready(&s.conditions).0)) {
        let current = project.status.as_ref().and_then(|s| s.generation.as_ref()).map(|g| g.name.as_str());
        looks::check(c, name(&project.metadata), project, can_populate(c) && !blocked(c, reason::POPULATING) && !lost_trees(c))?;
        if !looks::is_at_rest(project) {
            // Its next bases stand beside those that trees are made from.
            continue;
        }
        let old = c.now.workspaces.values().find(|w| {
            let other = w.spec.base.as_ref().is_some_and(|b| Some(b.generation.as_str()) != current);
            other && controlled_by(&w.metadata, uid(&project.metadata)) && !deleting(&w.metadata) && !origins.contains(uid(&w.metadata))
        });
        if let Some(old) = old {
            return broken(format!("base {} of a former generation is left over", name(&old.metadata)));
        }
        let stuck = c.now.workspaces.values().find(|w| {
            let conditions = w.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
            let is_stuck = find(conditions, condition::POPULATED).is_some_and(|p| p.reason == reason::POPULATOR_NOT_RUNNING);
            let follows = annotation(&w.metadata, FOLLOWS_CONSUMER).is_some();
            is_stuck && !follows && controlled_by(&w.metadata, uid(&project.metadata)) && !deleting(&w.metadata)
        });
        if let Some(stuck) = stuck {
            return broken(format!("base {} is stuck, and nobody needs it", name(&stuck.metadata)));
        }
    }
    Ok(())
}

/// A namespace that is being deleted becomes empty.
fn emptied(c: &Cluster) -> Verdict {
    let o = &c.now;
    let left: Vec<String> = o
        .workspaces
        .keys()
        .map(|n| format!("AgentWorkspace {n}"))
        .chain(o.projects.keys().map(|n| format!("YoiProject {n}")))
        .chain(o.yoipods.keys().map(|n| format!("YoiPod {n}")))
        .chain(o.claims.keys().map(|n| format!("claim {n}")))
        .chain(o.pods.keys().map(|n| format!("Pod {n}")))
        .chain(o.maps.keys().map(|n| format!("ConfigMap {n}")))
        .collect();
    if left.is_empty() || kept(c) { Ok(()) } else { broken(format!("the namespace never goes: {left:?} is left")) }
}

fn workspace(c: &Cluster, w: &AgentWorkspace) -> Verdict {
    let title = name(&w.metadata);
    let used = mounted(c).contains(uid(&w.metadata));
    // A tree in use stays until its agent stops, as claims do.
    if deleting(&w.metadata) && !used && !kept(c) && !is_used(c, title) {
        return broken(format!("workspace {title} never goes: {:?}", w.metadata));
    }
    if deleting(&w.metadata) {
        return Ok(());
    }
    quotas::check(c, title, w)?;
    host_sources::check_path(c, title, w)?;
    let conditions = w.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
    let (fine, why, message) = ready(conditions);
    let source = &w.spec.source;
    // The scheduler made the same choice again and again, and the operator has stopped asking it for another.
    let count = |claim: &std::sync::Arc<PersistentVolumeClaim>| annotation(&claim.metadata, GIVEN_BACK)?.parse::<u32>().ok();
    let has_given_up = c.now.claims.get(title).and_then(count).is_some_and(|times| times >= 8);
    let excused = match why {
        reason::NODE_LOST => w.status.as_ref().and_then(|s| s.node_name.as_ref()).is_some_and(|n| !c.exists(n)),
        reason::NO_ELIGIBLE_NODE => {
            let taken_on = host_source(c, w).and_then(|(source, parent)| host_sources::pinned(c, parent, source));
            let free = |(node, m): (&String, &std::sync::Arc<Machine>)| {
                taken_on.as_ref().is_none_or(|taken_on| taken_on == node)
                    && m.alive
                    && !m.cordoned
                    && !m.tainted
                    && !m.packed
                    && c.now.offers.contains_key(node)
            };
            !c.now.machines.iter().any(free) || has_given_up
        }
        // Its node, if it is a base; else the node of its consumer, which has no other that would do.
        reason::POPULATOR_NOT_RUNNING if has_given_up => true,
        reason::POPULATOR_NOT_RUNNING => match &w.spec.base {
            Some(base) => !c.now.machines.get(&base.node).is_some_and(|m| !m.cordoned && !m.tainted && fills(c, &base.node, m)),
            None => {
                let keeps_node =
                    w.status.as_ref().and_then(|s| s.node_name.as_ref()).and_then(|node| Some((node, c.now.machines.get(node)?)));
                let mut users = c.now.yoipods.values().filter(|y| yoi_plan::yoipod::workspace_name(y) == title);
                !can_populate(c)
                    || keeps_node.is_some_and(|(node, m)| !fills(c, node, m))
                    || users.any(|y| !could_run(c, y, Some(w)))
                    || blocked(c, why)
            }
        },
        reason::SOURCE_NOT_FOUND | reason::SOURCE_NOT_SEALED => {
            let gone = |name: &str| c.now.projects.get(name).is_none_or(|p| deleting(&p.metadata));
            let project = source.project.as_ref().is_some_and(|p| gone(&p.name));
            let tree = |p: &AgentWorkspace| p.status.as_ref().is_some_and(|s| is_true(&s.conditions, condition::PROVISIONED));
            let parent = source.workspace.as_ref().map(|p| c.now.workspaces.get(&p.name));
            project || parent.is_some_and(|p| p.is_none_or(|p| deleting(&p.metadata) || !tree(p))) || lost_trees(c)
        }
        reason::PROJECT_NOT_READY => project_is_not_ready(c, source.project.as_ref().map(|p| p.name.as_str())),
        reason::PROJECT_DELETING => source.project.as_ref().is_some_and(|p| project_is_going(c, &p.name)),
        reason::INVALID_SPEC if looks::names_no_commit(c, w) => true,
        reason::INVALID_SPEC if c.now.claims.get(title).is_some_and(|x| deleting(&x.metadata)) => true,
        reason::WAITING_FOR_CONSUMER => !c.now.pods.values().any(|p| {
            !is_over(p)
                && p.spec.as_ref().is_some_and(|s| s.node_name.is_some())
                && crate::kubernetes::mounts(c, p).as_deref() == Some(uid(&w.metadata))
        }),
        reason::PARENT_ON_OTHER_NODE => true,
        reason::TREE_LOST => lost_trees(c),
        reason::POPULATING => blocked(c, why) || lost_trees(c) || project_is_not_ready(c, source.project.as_ref().map(|p| p.name.as_str())),
        reason::CLAIM_LOST => c
            .now
            .claims
            .get(title)
            .is_some_and(|x| deleting(&x.metadata) || x.status.as_ref().is_some_and(|s| s.phase.as_deref() == Some("Lost"))),
        // A base that a user made, on a node that does not exist or from a source that no base has.
        _ => {
            blocked(c, why)
                || w.spec.base.is_some() && !c.ours.contains_key(uid(&w.metadata))
                || why == reason::INVALID_SPEC && message.contains("fork of itself")
        }
    };
    let odd = why == reason::INVALID_SPEC && w.spec.unknown_field().is_some();
    let excused = excused || waits_for_host_source(c, why, w) || is_of_former_folder(c, w) || too_large(w, why);
    if fine || excused || odd { Ok(()) } else { broken(format!("workspace {title} rests at {why}: {message}")) }
}

/// Whether a project is being deleted, and stays because something names it.
fn project_is_going(c: &Cluster, name: &str) -> bool {
    c.now.projects.get(name).is_some_and(|project| deleting(&project.metadata))
}

/// Whether the workspace, or the base that it is, waits for a folder that no node can take.
fn waits_for_host_source(c: &Cluster, why: Reason, w: &AgentWorkspace) -> bool {
    let Some((source, parent)) = host_source(c, w) else { return false };
    let node = w.spec.base.as_ref().map(|base| base.node.clone()).or_else(|| host_sources::pinned(c, parent, source));
    // It keeps the node that was chosen for it or for its Pod, and the folder was taken anew on another before the tree was made.
    let chosen = w.status.as_ref().and_then(|s| s.node_name.as_ref()).or_else(|| pod_node(c, w));
    let is_elsewhere = why == reason::NO_ELIGIBLE_NODE && chosen.is_some() && node.is_some() && chosen != node.as_ref();
    is_elsewhere || host_sources::excuses(c, why, source, node.as_deref())
}

/// Whether it is a base of a folder that its project does not name any more. It goes once the project has its next one.
fn is_of_former_folder(c: &Cluster, w: &AgentWorkspace) -> bool {
    let folder = w.spec.source.host.as_ref().filter(|_| w.spec.base.is_some());
    let project = c.now.projects.values().find(|p| controlled_by(&w.metadata, uid(&p.metadata)));
    folder.is_some() && project.is_some_and(|p| p.spec.source.host.as_ref() != folder)
}

/// The node of a Pod that was made for the tree.
fn pod_node<'a>(c: &'a Cluster, w: &AgentWorkspace) -> Option<&'a String> {
    let pods = c.now.pods.values().filter(|p| is_agent(p) && crate::kubernetes::mounts(c, p).as_deref() == Some(uid(&w.metadata)));
    pods.filter_map(|p| p.spec.as_ref()?.node_name.as_ref()).next()
}

/// The folder that the tree is made from, and the UID of the object whose bases hold it.
fn host_source<'a>(c: &'a Cluster, w: &'a AgentWorkspace) -> Option<(&'a HostSource, &'a str)> {
    match &w.spec.source.project {
        Some(project) => c.now.projects.get(&project.name).and_then(|p| Some((p.spec.source.host.as_ref()?, uid(&p.metadata)))),
        None => Some((w.spec.source.host.as_ref()?, uid(&w.metadata))),
    }
}

/// No node has so much space.
fn too_large(w: &AgentWorkspace, why: Reason) -> bool {
    why == reason::OUT_OF_SPACE && w.status.as_ref().is_some_and(|s| quotas::refusal(s.quota_bytes).is_some())
}

/// A project that is being deleted does not change its conditions any more.
fn project_is_not_ready(c: &Cluster, title: Option<&str>) -> bool {
    let ready = |p: &YoiProject| p.status.as_ref().is_some_and(|s| is_true(&s.conditions, condition::READY));
    title.and_then(|t| c.now.projects.get(t)).is_none_or(|p| deleting(&p.metadata) || !ready(p))
}

fn yoipod(c: &Cluster, y: &YoiPod) -> Verdict {
    let title = name(&y.metadata);
    if deleting(&y.metadata) {
        return if kept(c) { Ok(()) } else { broken(format!("{title} never goes")) };
    }
    pushes::check(title, y)?;
    let conditions = y.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
    let (fine, why, message) = ready(conditions);
    let pods: Vec<_> = c.now.pods.values().filter(|p| is_agent(p) && controlled_by(&p.metadata, uid(&y.metadata))).collect();
    if y.spec.desired_state == DesiredState::Stopped {
        let has_returned = why == reason::LOAN_RETURNED && loans::excuses(c, y);
        let rests = why == reason::STOPPED || has_returned || !is_true(conditions, condition::ACCEPTED);
        return if pods.is_empty() && rests { Ok(()) } else { broken(format!("{title} is stopped and says {why}: {message}")) };
    }
    let last_valid = y.status.as_ref().and_then(|s| s.policy.as_deref()).unwrap_or("{}");
    let is_named = find(conditions, condition::POLICY_VALID).is_none_or(|_| is_true(conditions, condition::POLICY_VALID))
        && c.now.projects.contains_key(&y.spec.project_ref.name);
    if is_named && pods.iter().any(|p| annotation(&p.metadata, POLICY) != Some(last_valid)) {
        return broken(format!("{title} has a Pod under another policy than {last_valid}"));
    }
    let workspace = c.now.workspaces.get(yoi_plan::yoipod::workspace_name(y));
    let cloned = workspace.and_then(|w| w.spec.source.project.as_ref()).map_or(&y.spec.project_ref.name, |p| &p.name);
    let excused = match why {
        reason::STOPPED => y
            .status
            .as_ref()
            .is_some_and(|s| s.task.as_ref().is_some_and(|t| matches!(t.state.known(), Some(TaskState::Succeeded | TaskState::Failed)))),
        reason::POLICY_INVALID => !is_true(conditions, condition::ACCEPTED),
        reason::PRESET_UNKNOWN => y.spec.agent.cli.as_ref().is_some_and(|cli| cli.preset.as_deref() == Some("gone")),
        reason::SOURCE_NOT_FOUND | reason::INVALID_SPEC => {
            // Its own reason, or its workspace's.
            let theirs = workspace.and_then(|w| w.status.as_ref()).is_some_and(|s| ready(&s.conditions).1 == why);
            !is_true(conditions, condition::ACCEPTED) || theirs
        }
        reason::NO_ELIGIBLE_NODE => c.now.offers.is_empty() || !can_populate(c),
        reason::NODE_LOST | reason::TREE_AND_SESSION_LOST => {
            workspace.and_then(|w| w.status.as_ref()?.node_name.clone()).is_some_and(|n| !c.exists(&n))
        }
        reason::PROJECT_NOT_READY => project_is_not_ready(c, Some(cloned)),
        reason::PROJECT_DELETING => project_is_going(c, cloned) || project_is_going(c, &y.spec.project_ref.name),
        reason::SOURCE_NOT_SEALED | reason::TREE_LOST | reason::PARENT_ON_OTHER_NODE => true,
        reason::POPULATING => blocked(c, why) || lost_trees(c) || project_is_not_ready(c, Some(cloned)),
        reason::POPULATOR_NOT_RUNNING => !can_populate(c) || !could_run(c, y, workspace.map(|w| &**w)) || blocked(c, why),
        reason::POD_PENDING | reason::UNSCHEDULABLE => {
            !foreign_objects(c).is_empty()
                || project_is_not_ready(c, Some(&y.spec.project_ref.name))
                || !could_run(c, y, workspace.map(|w| &**w))
        }
        reason::SESSION_TOPOLOGY_CONFLICT => !could_run(c, y, workspace.map(|w| &**w)),
        // Its volume is gone, and the data with it.
        // Its claim was deleted by force while its Pod ran, and the new one has no volume.
        reason::WAITING_FOR_CONTROLLER => {
            let claim = c.now.claims.get(&yoi_plan::yoipod::session_claim_name(y));
            !pods.is_empty() && claim.is_none_or(|x| x.spec.as_ref().is_none_or(|s| s.volume_name.is_none()))
        }
        reason::CLAIM_LOST | reason::STARTING => session_is_lost(c, y) || blocked(c, reason::APPLY_FAILED),
        reason::CREATING => {
            workspace.is_some_and(|w| deleting(&w.metadata)) && (kept(c) || mounted(c).contains(workspace.map_or("", |w| uid(&w.metadata))))
        }
        // Only a person takes another manifest for one that was altered.
        reason::MANIFEST_DAMAGED => {
            c.now.maps.values().any(|m| controlled_by(&m.metadata, uid(&y.metadata)) && annotation(&m.metadata, RESOLVED) == Some("{"))
        }
        reason::RESTING => pods.is_empty() && yoi_plan::yoipod::may_be_woken(y),
        reason::STOPPING => kept(c),
        reason::WAITING_FOR_PODS => workspace.is_some_and(|w| deleting(&w.metadata) && mounted(c).contains(uid(&w.metadata))),
        reason::TREE_DELETED => {
            let former = y.status.as_ref().and_then(|s| s.workspace.as_ref()?.uid.as_deref());
            let is_there = workspace.is_some_and(|w| Some(uid(&w.metadata)) == former);
            former.is_some() && !is_there && annotation(&y.metadata, NEW_TREE) != former
        }
        _ => blocked(c, why),
    };
    let excused = excused || workspace.is_some_and(|w| waits_for_host_source(c, why, w) || too_large(w, why));
    let excused = excused || loans::excuses(c, y);
    if fine || excused || kept(c) { Ok(()) } else { broken(format!("{title} rests at {why}: {message}")) }
}

fn session_is_lost(c: &Cluster, y: &YoiPod) -> bool {
    let claim = c.now.claims.get(&yoi_plan::yoipod::session_claim_name(y));
    claim.is_none_or(|x| deleting(&x.metadata) || x.status.as_ref().is_some_and(|s| s.phase.as_deref() == Some("Lost")))
}

/// Whether some node could run the agent: by its selector, room, tree and session.
fn could_run(c: &Cluster, y: &YoiPod, workspace: Option<&AgentWorkspace>) -> bool {
    let Some(workspace) = workspace else { return true };
    if session_is_lost(c, y) {
        return false;
    }
    let known = nodes(&c.now.machines, &c.now.offers);
    let placed = workspace.status.as_ref().and_then(|s| s.node_name.clone());
    let forked =
        workspace.spec.source.workspace.as_ref().map(|p| c.now.workspaces.get(&p.name).and_then(|p| p.status.as_ref()?.node_name.clone()));
    let folder = host_source(c, workspace);
    let taken = folder.map(|(source, parent)| host_sources::pinned(c, parent, source));
    if placed.is_none() && taken == Some(None) && folder.is_some_and(|(source, _)| !host_sources::is_listed(c, source)) {
        return false;
    }
    let claim = c.now.claims.get(&yoi_plan::yoipod::session_claim_name(y));
    let volume = claim.and_then(|x| c.now.volumes.get(x.spec.as_ref()?.volume_name.as_ref()?));
    c.now.machines.iter().any(|(node, m)| {
        let labels = m.metadata.labels.as_ref().expect("labels");
        let selected = y.spec.pod.node_selector.iter().all(|(k, v)| labels.get(k) == Some(v));
        let at = placed.as_ref().is_none_or(|p| p == node) && forked.as_ref().is_none_or(|p| p.as_ref() == Some(node));
        let reached = volume.is_none_or(|v| known.reaches(node, v));
        let starts = m.alive && !m.full && !m.packed && !m.cordoned && !m.tainted;
        // A tree that has no node yet needs a base there.
        let filled = placed.is_some() || forked.is_some() || taken.is_some() || fills(c, node, m);
        let at = at && (placed.is_some() || taken.as_ref().is_none_or(|t| t.as_ref().is_none_or(|t| t == node)));
        starts && filled && selected && at && reached && c.now.offers.contains_key(node)
    })
}
