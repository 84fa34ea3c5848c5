//! Agents that lend paths of their trees: the gateway that reserves, fences and makes children; the node that covers and mounts; and what must never be.
//!
//! A few worlds lend, by a stream of random numbers of their own, so that the others stay as they are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use yoi_crds::condition::is_true;
use yoi_crds::pod::DesiredState;
use yoi_crds::reason::condition;
use yoi_crds::workspace::{Claim, ClaimState, LoanView};
use yoi_crds::{AgentWorkspace, YoiPod, YoiProject};
use yoi_plan::children::child_by_claim;
use yoi_plan::meta::{controlled_by, controller, deleting, name, uid};
use yoi_plan::reservation::{LoanRequest, lends, moved};
use yoi_plan::scope::{self, Loan, conflict};
use yoi_plan::step::Step;
use yoi_wire::children::{SharedAccess, SharedPath, SpawnRequest};

use crate::cluster::{Cluster, Machine, Violation};
use crate::invariants::{About, Verdict, require};
use crate::kubernetes::{is_agent, is_over, mounts, node_of, phase};
use crate::users::{Random, made};

/// One world in so many lends.
const ONE_IN: u64 = 23;

/// What is known of loans beside the objects.
#[derive(Default)]
pub struct Lending {
    /// Agents of this world lend.
    on: bool,
    /// Requests that the gateway has not answered, by loan. It forgets them when it dies.
    asked: BTreeMap<String, SpawnRequest>,
    requests: u64,
    /// What is closed to the lender on the node of the tree: UID of the tree, and loan.
    covers: BTreeSet<(String, String)>,
    /// Containers of holders that have the tree mounted, by UID of their Pods.
    running: BTreeMap<String, Running>,
    /// Claims as they were last, by loan.
    known: BTreeMap<String, Claim>,
    /// What no promise lets be.
    broken: Option<String>,
}

#[derive(Clone)]
struct Running {
    node: String,
    tree: String,
    loan: String,
}

pub fn is_lending(seed: u64) -> bool {
    seed % ONE_IN == ONE_IN - 1
}

pub fn begin(c: &mut Cluster, seed: u64) -> Random {
    c.lending.on = is_lending(seed);
    Random(!seed)
}

/// What an agent of this world may lend.
pub fn delegation(c: &Cluster) -> Option<Value> {
    c.lending.on.then(|| json!({"allow": [{"path": ".", "access": "Write", "recursive": true}]}))
}

/// An agent that may lend, and its project. False in a world that does not lend.
pub fn furnish(c: &mut Cluster) -> bool {
    if c.lending.on {
        let defaults = json!({"model": {"provider": "OpenAI", "name": "m"}});
        c.create(YoiProject::new("p", made(json!({"source": {"empty": {}}, "defaults": defaults}))));
        let agent = json!({"projectRef": {"name": "p"}, "agent": {"builtin": {}}, "delegation": delegation(c)});
        c.create(YoiPod::new("a", made(agent)));
    }
    c.lending.on
}

/// One thing that happens to loans. True: everybody is to have a turn next.
pub fn act(c: &mut Cluster, random: &mut Random) -> bool {
    if !c.lending.on {
        return false;
    }
    match random.roll(40) {
        0..=9 => lend(c, random),
        10 => gateway_dies(c),
        11 => force(c),
        12 => child(c, random),
        13 => lender(c, random),
        14 => silence(c, random),
        _ => gateway(c),
    }
    random.one_in(4)
}

/// The node of a holder does not answer.
fn silence(c: &mut Cluster, random: &mut Random) {
    let nodes: Vec<String> = c.lending.running.values().map(|r| r.node.clone()).filter(|node| c.alive(node)).collect();
    if let Some(node) = random.pick(&nodes) {
        c.coverage.feature("loan: the node of its child does not answer");
        let now = c.seconds;
        c.change::<Machine>(node, |m| (m.alive, m.not_ready_since) = (false, Some(now)));
    }
}

fn claims(tree: &AgentWorkspace) -> &[Claim] {
    tree.status.as_ref().map(|status| status.claims.as_slice()).unwrap_or_default()
}

fn is_held(claim: &Claim) -> bool {
    claim.state != ClaimState::Released
}

/// The loan by which an agent works in another one's tree.
fn loan_of(yoipod: &YoiPod) -> Option<&str> {
    yoipod.spec.spawned_by.as_ref()?.loan.as_deref()
}

pub fn has_loan(yoipod: &YoiPod) -> bool {
    loan_of(yoipod).is_some()
}

fn agent_of<'a>(c: &'a Cluster, pod: &Pod) -> Option<&'a Arc<YoiPod>> {
    let owner = controller(&pod.metadata)?;
    c.now.yoipods.values().find(|y| uid(&y.metadata) == owner.uid)
}

/// Whether the agent of the Pod works by a loan.
pub fn works_by_loan(c: &Cluster, pod: &Pod) -> bool {
    agent_of(c, pod).is_some_and(|agent| has_loan(agent))
}

/// Whether this agent works by a loan of this tree.
pub fn is_holder(c: &Cluster, tree: &str, agent: &str) -> bool {
    let loan = c.now.yoipods.values().find(|y| uid(&y.metadata) == agent).and_then(|y| loan_of(y));
    let tree = c.now.workspaces.values().find(|w| uid(&w.metadata) == tree);
    loan.is_none_or(|loan| tree.is_none_or(|tree| claims(tree).iter().any(|claim| claim.loan == loan)))
}

/// The node of a tree.
pub fn node_of_tree(c: &Cluster, tree: &str) -> Option<String> {
    c.now.workspaces.values().find(|w| uid(&w.metadata) == tree)?.status.as_ref()?.node_name.clone()
}

fn is_running(pod: &Pod) -> bool {
    is_agent(pod) && phase(pod) == "Running"
}

/// The Pod by which the lender of a claim has the tree mounted.
fn lender_pod<'a>(c: &'a Cluster, tree: &str, claim: &Claim) -> Option<&'a Arc<Pod>> {
    let is_it =
        |pod: &&Arc<Pod>| is_running(pod) && controlled_by(&pod.metadata, &claim.lender.uid) && mounts(c, pod).as_deref() == Some(tree);
    c.now.pods.values().find(is_it)
}

/// An agent asks for a child in paths of its tree.
fn lend(c: &mut Cluster, random: &mut Random) {
    let may = |y: &&Arc<YoiPod>| lends(y) && !deleting(&y.metadata);
    let lenders: Vec<_> = c.now.yoipods.values().filter(may).cloned().collect();
    let Some(lender) = random.pick(&lenders) else { return };
    let path = *random.pick(&["src", "src/parser", "docs"]).expect("paths");
    let holder = *random.pick(&["k1", "k2", "k3"]).expect("names");
    let Some(status) = lender.status.as_ref() else { return };
    let (Some(pod), Some(tree)) = (&status.pod, &status.workspace) else { return };
    if !c.now.pods.get(&pod.name).is_some_and(|p| uid(&p.metadata) == pod.uid && phase(p) == "Running") || c.get::<YoiPod>(holder).is_some()
    {
        return;
    }
    let Some(object) = c.get::<AgentWorkspace>(&tree.name).cloned() else { return };
    c.lending.requests += 1;
    let share = vec![SharedPath { path: path.to_owned(), access: SharedAccess::Write, recursive: true }];
    let request_id = format!("r-{}", c.lending.requests);
    let request = LoanRequest { lender, pod_uid: &pod.uid, holder, request_id: &request_id, share: &share };
    match request.reserve(&object, c.now()) {
        Ok(claims) => {
            c.coverage.feature("loan: reserved");
            let (loan, title) = (request.loan(), tree.name.clone());
            let task = "do".to_owned();
            let asked = SpawnRequest {
                name: holder.to_owned(),
                task,
                request_id: request_id.clone(),
                share: Some(share.clone()),
                cwd: None,
                template: None,
            };
            c.lending.asked.insert(loan, asked);
            c.change::<AgentWorkspace>(&title, |w| w.status.get_or_insert_default().claims = claims);
        }
        Err(refusal) if refusal.reason == yoi_wire::hub::RefusalReason::PathHeld => {
            c.coverage.feature("loan: refused, for another one holds the path")
        }
        Err(_) => {}
    }
}

fn gateway_dies(c: &mut Cluster) {
    if !c.lending.asked.is_empty() {
        c.coverage.feature("loan: the gateway dies before the child is made");
        c.lending.asked.clear();
    }
}

/// The gateway goes on with what it was asked for, each a step.
pub fn gateway(c: &mut Cluster) {
    let asked: Vec<_> = c.lending.asked.iter().map(|(loan, request)| (loan.clone(), request.clone())).collect();
    for (loan, request) in asked {
        let found = c.now.workspaces.values().find_map(|w| Some((w.clone(), claims(w).iter().find(|claim| claim.loan == loan)?.clone())));
        let Some((tree, claim)) = found else {
            c.lending.asked.remove(&loan);
            continue;
        };
        let title = name(&tree.metadata).to_owned();
        let is_covered = tree.status.iter().flat_map(|s| &s.loans).any(|view| view.loan == loan && view.covered);
        match claim.state {
            ClaimState::Reserved if is_covered => {
                let Some(claims) = moved(&tree, &loan, &[scope::ClaimState::Reserved], scope::ClaimState::Fenced, None) else { continue };
                c.coverage.feature("loan: fenced");
                c.change::<AgentWorkspace>(&title, |w| w.status.get_or_insert_default().claims = claims);
            }
            ClaimState::Reserved => {}
            ClaimState::Fenced => {
                c.lending.asked.remove(&loan);
                let lender = c.get::<YoiPod>(&claim.lender.name).filter(|y| uid(&y.metadata) == claim.lender.uid);
                let Some(Ok(child)) = lender.map(|lender| child_by_claim(lender, &request, &title, &claim)) else { continue };
                if c.create(child).is_some() {
                    c.coverage.feature("loan: its child is made");
                }
            }
            ClaimState::Active | ClaimState::Reclaiming | ClaimState::Released | ClaimState::Unknown => drop(c.lending.asked.remove(&loan)),
        }
    }
}

/// Somebody deletes the object of a holder's Pod by force, though its node does not answer and its container may go on.
fn force(c: &mut Cluster) {
    let silent = |r: &&Running| c.exists(&r.node) && !c.alive(&r.node);
    let lost: Vec<String> = c.lending.running.iter().filter(|(_, r)| silent(r)).map(|(pod, _)| pod.clone()).collect();
    for pod in lost {
        let title = c.now.pods.iter().find(|(_, p)| uid(&p.metadata) == pod).map(|(title, _)| title.clone());
        if let Some(title) = title {
            c.coverage.feature("loan: a Pod of a silent node is deleted by force");
            c.purge::<Pod>(&title);
        }
    }
}

fn child(c: &mut Cluster, random: &mut Random) {
    let children: Vec<String> = c.now.yoipods.iter().filter(|(_, y)| has_loan(y)).map(|(title, _)| title.clone()).collect();
    let Some(title) = random.pick(&children).cloned() else { return };
    if random.one_in(2) {
        c.coverage.feature("loan: its child is deleted");
        c.remove::<YoiPod>(&title);
    } else {
        c.coverage.feature("loan: its child is stopped");
        c.edit::<YoiPod>(&title, |y| y.spec.desired_state = DesiredState::Stopped);
    }
}

fn lender(c: &mut Cluster, random: &mut Random) {
    let lenders: Vec<String> =
        c.now.workspaces.values().flat_map(|w| claims(w)).filter(|claim| is_held(claim)).map(|claim| claim.lender.name.clone()).collect();
    let Some(title) = random.pick(&lenders).filter(|title| c.get::<YoiPod>(title).is_some()).cloned() else { return };
    match random.roll(4) {
        0 => {
            c.coverage.feature("loan: its lender is deleted");
            c.remove::<YoiPod>(&title);
        }
        1 => {
            c.coverage.feature("loan: its lender is stopped");
            c.edit::<YoiPod>(&title, |y| y.spec.desired_state = DesiredState::Stopped);
        }
        _ => {
            let pod = c.get::<YoiPod>(&title).and_then(|y| Some(y.status.as_ref()?.pod.as_ref()?.name.clone()));
            if let Some(pod) = pod {
                c.coverage.feature("loan: its lender is started anew");
                c.remove::<Pod>(&pod);
            }
        }
    }
}

/// Whether the node mounts the tree for a holder: by its claim, while the lender is closed out, and while no other holder has a part of it.
pub fn holder_may_mount(c: &Cluster, pod: &Pod, tree: &str) -> bool {
    let Some(object) = c.now.workspaces.values().find(|w| uid(&w.metadata) == tree) else { return false };
    let named = claims(object).iter().find(|claim| claim.holder.pod_uid.as_deref() == Some(uid(&pod.metadata)));
    let Some(claim) = named.filter(|claim| claim.state == ClaimState::Active) else { return false };
    let is_said = object.status.iter().flat_map(|s| &s.loans).any(|view| view.loan == claim.loan && view.covered);
    let is_covered = c.lending.covers.contains(&(tree.to_owned(), claim.loan.clone()));
    is_said && is_covered && other_holder(c, tree, claim).is_none()
}

/// The loan by which another Pod has mounted what this one is to write.
fn other_holder(c: &Cluster, tree: &str, claim: &Claim) -> Option<String> {
    let of = |loan: &str| claim_of(c, loan).and_then(|claim| as_loan(&claim));
    let others: Vec<Loan> = c.lending.running.values().filter(|r| r.tree == tree).filter_map(|r| of(&r.loan)).collect();
    conflict(&others, &as_loan(claim)?).map(|conflict| conflict.loan)
}

fn as_loan(claim: &Claim) -> Option<Loan> {
    let rules = scope::rules(&claim.rules).ok()?;
    Some(Loan { id: claim.loan.clone(), lender: claim.lender.name.clone(), holder: claim.holder.name.clone(), rules })
}

/// A claim by its loan; of one that is forgotten, as its holder's object has it.
fn claim_of(c: &Cluster, loan: &str) -> Option<Claim> {
    let known = c.now.workspaces.values().flat_map(|w| claims(w)).find(|claim| claim.loan == loan);
    known.or_else(|| c.lending.known.get(loan)).cloned()
}

/// What follows on the nodes once Pods have started or ended. Called after each thing that starts or ends some.
pub fn follow(c: &mut Cluster) {
    if !c.lending.on {
        return;
    }
    for claim in c.now.workspaces.values().flat_map(|w| claims(w).to_vec()).collect::<Vec<_>>() {
        c.lending.known.insert(claim.loan.clone(), claim);
    }
    // A container ends with its Pod, where the kubelet answers; and with its machine.
    let ended = |c: &Cluster, pod: &String, r: &Running| {
        let is_there = c.now.pods.values().any(|p| uid(&p.metadata) == pod && !is_over(p));
        !c.exists(&r.node) || c.alive(&r.node) && !is_there
    };
    let over: Vec<String> = c.lending.running.iter().filter(|(pod, r)| ended(c, pod, r)).map(|(pod, _)| pod.clone()).collect();
    over.iter().for_each(|pod| drop(c.lending.running.remove(pod)));
    // Nothing is mounted where the machine is new. The object of a tree may go by force under who has it mounted.
    let on_node = |c: &Cluster, tree: &str| node_of_tree(c, tree).is_some_and(|node| c.exists(&node));
    let is_mounted = |c: &Cluster, tree: &str| c.lending.running.values().any(|r| r.tree == tree);
    let gone: Vec<_> = c.lending.covers.iter().filter(|(tree, _)| !on_node(c, tree) && !is_mounted(c, tree)).cloned().collect();
    c.lending.covers.retain(|cover| !gone.contains(cover));
    let started: Vec<Arc<Pod>> = c.now.pods.values().filter(|p| is_running(p)).cloned().collect();
    for pod in started {
        let Some((tree, node)) = mounts(c, &pod).zip(node_of(&pod).map(str::to_owned)) else { continue };
        let Some(agent) = agent_of(c, &pod).cloned() else { continue };
        match loan_of(&agent) {
            // It has closed to it what is lent before it runs.
            None => cover(c, &tree),
            Some(loan) if !c.lending.running.contains_key(uid(&pod.metadata)) && c.alive(&node) => {
                if holder_may_mount(c, &pod, &tree) {
                    c.coverage.feature("loan: its child works");
                    c.lending.running.insert(uid(&pod.metadata).to_owned(), Running { node, tree, loan: loan.to_owned() });
                }
            }
            Some(_) => {}
        }
    }
    let broken = two_writers(c);
    c.lending.broken = c.lending.broken.take().or(broken);
}

fn cover(c: &mut Cluster, tree: &str) {
    let Some(object) = c.now.workspaces.values().find(|w| uid(&w.metadata) == tree).cloned() else { return };
    for claim in claims(&object).iter().filter(|claim| is_held(claim)) {
        c.lending.covers.insert((tree.to_owned(), claim.loan.clone()));
    }
}

/// Why two agents can write at one place.
fn two_writers(c: &Cluster) -> Option<String> {
    for (pod, holder) in &c.lending.running {
        let Some(claim) = claim_of(c, &holder.loan) else {
            return Some(format!("{pod} works by loan {}, which nobody knows", holder.loan));
        };
        let lender = lender_pod(c, &holder.tree, &claim).is_some();
        if lender && !c.lending.covers.contains(&(holder.tree.clone(), holder.loan.clone())) {
            return Some(format!("{} and {} write what loan {} lets be written", claim.lender.name, claim.holder.name, claim.loan));
        }
        if let Some(other) = other_holder(c, &holder.tree, &claim) {
            return Some(format!("two write at one place, by the loans {} and {other}", claim.loan));
        }
    }
    None
}

/// The shim of each node that answers: it covers what is lent, says so, and takes off what is back. With `random`, some are late.
pub fn shims(c: &mut Cluster, random: Option<&mut Random>) {
    if !c.lending.on || random.is_some_and(|random| random.0.is_multiple_of(3)) {
        return;
    }
    for title in c.names::<AgentWorkspace>() {
        let object = c.now.workspaces[&title].clone();
        let tree = uid(&object.metadata).to_owned();
        let Some(status) = object.status.as_ref().filter(|s| s.node_name.as_ref().is_some_and(|node| c.alive(node))) else { continue };
        let held: Vec<&Claim> = claims(&object).iter().filter(|claim| is_held(claim)).collect();
        let mounted: BTreeSet<String> = c.lending.running.values().filter(|r| r.tree == tree).map(|r| r.loan.clone()).collect();
        let is_kept = |(of, loan): &(String, String)| *of != tree || held.iter().any(|claim| claim.loan == *loan) || mounted.contains(loan);
        c.lending.covers = std::mem::take(&mut c.lending.covers).into_iter().filter(|cover| is_kept(cover)).collect();
        let mut views = Vec::new();
        for claim in held {
            let lender = lender_pod(c, &tree, claim).is_some();
            if lender {
                c.lending.covers.insert((tree.clone(), claim.loan.clone()));
            }
            let message = (!lender).then(|| "no Pod of the lender has the tree mounted on its node".to_owned());
            views.push(LoanView { loan: claim.loan.clone(), covered: lender, message });
        }
        views.sort_by(|a, b| a.loan.cmp(&b.loan));
        if status.loans != views {
            c.change::<AgentWorkspace>(&title, |w| w.status.get_or_insert_default().loans = views);
        }
    }
}

fn rank(state: ClaimState) -> usize {
    match state {
        ClaimState::Reserved => 0,
        ClaimState::Fenced => 1,
        ClaimState::Active => 2,
        ClaimState::Reclaiming => 3,
        ClaimState::Released => 4,
        ClaimState::Unknown => 5,
    }
}

/// What must hold when the operator writes claims.
pub fn set_claims(c: &mut Cluster, about: &About, step: &Step) -> Verdict {
    let Step::SetClaims { of, resource_version, claims: written } = step else { return Ok(()) };
    let there = c.now.workspaces.values().find(|w| uid(&w.metadata) == of.uid).cloned();
    // The API server refuses what was decided on another version.
    let Some(tree) = there.filter(|w| w.metadata.resource_version.as_ref() == Some(resource_version)) else { return Ok(()) };
    for before in claims(&tree) {
        let after = written.iter().find(|claim| claim.loan == before.loan);
        let Some(after) = after else {
            // What is back is forgotten in the same write when its lender is gone.
            require(rank(before.state) >= rank(ClaimState::Reclaiming), "a loan that is out is forgotten", step)?;
            if before.state == ClaimState::Reclaiming {
                released(c, about, before, step)?;
            }
            continue;
        };
        require(rank(after.state) >= rank(before.state), "a loan goes back to a state that it has left", step)?;
        if after.state == ClaimState::Active && before.state != ClaimState::Active {
            c.coverage.feature("loan: begins");
        }
        if after.state == ClaimState::Reclaiming && before.state == ClaimState::Fenced {
            c.coverage.feature("loan: given up before it begins");
        }
        if after.state == ClaimState::Released && before.state != ClaimState::Released {
            c.coverage.feature("loan: released");
            released(c, about, before, step)?;
        }
    }
    require(written.iter().all(|claim| claims(&tree).iter().any(|before| before.loan == claim.loan)), "the operator makes a loan", step)
}

fn released(c: &Cluster, about: &About, claim: &Claim, step: &Step) -> Verdict {
    let holder = c.now.yoipods.values().find(|y| loan_of(y) == Some(&claim.loan)).map(|y| uid(&y.metadata).to_owned());
    let is_of_holder = |p: &Pod| is_agent(p) && holder.iter().chain(&claim.holder.uid).any(|holder| controlled_by(&p.metadata, holder));
    require(!c.now.pods.values().any(|p| is_of_holder(p)), "a loan is back while a Pod of its holder is there", step)?;
    let mut silent = c.lending.running.values().filter(|r| r.loan == claim.loan && !c.alive(&r.node));
    require(
        !about.fresh || silent.next().is_none(),
        "a loan is back while a container of its holder runs on a node that is not heard of",
        step,
    )
}

/// The first thing that broke a promise outside of the operator's own steps.
pub fn broken(c: &mut Cluster) -> Verdict {
    match c.lending.broken.take() {
        Some(why) => Err(Violation(why)),
        None => Ok(()),
    }
}

/// What must hold when nothing changes any more.
pub fn check(c: &Cluster, is_kept: bool) -> Verdict {
    let broken = |why: String| Err(Violation(why));
    for (title, tree) in &c.now.workspaces {
        let id = uid(&tree.metadata);
        for claim in claims(tree) {
            let holder = c.now.yoipods.values().find(|y| loan_of(y) == Some(&claim.loan));
            let works = holder.is_some_and(|y| !deleting(&y.metadata) && y.spec.desired_state != DesiredState::Stopped);
            let ends_well = claim.state == ClaimState::Released || claim.state == ClaimState::Active && works;
            if !ends_well && !is_kept {
                return broken(format!("loan {} of {title} rests at {:?}, and its child is {holder:?}", claim.loan, claim.state));
            }
            let is_covered = c.lending.covers.contains(&(id.to_owned(), claim.loan.clone()));
            if is_held(claim) && lender_pod(c, id, claim).is_some() && !is_covered {
                return broken(format!("loan {} of {title} is open to its lender", claim.loan));
            }
            if !is_held(claim) && is_covered {
                return broken(format!("loan {} of {title} is back and still closed to its lender", claim.loan));
            }
        }
    }
    let is_known = |(tree, loan): &&(String, String)| {
        c.now.workspaces.values().any(|w| uid(&w.metadata) == tree && claims(w).iter().any(|claim| claim.loan == *loan && is_held(claim)))
    };
    match c.lending.covers.iter().find(|cover| !is_known(cover)) {
        Some((tree, loan)) => broken(format!("a cover of {tree} is left of loan {loan}")),
        None => Ok(()),
    }
}

/// Whether an agent that works by a loan may rest without being ready: its loan is over, or its lender's Pod is not there to be closed out.
pub fn excuses(c: &Cluster, yoipod: &YoiPod) -> bool {
    let Some(loan) = loan_of(yoipod) else { return false };
    let found = c.now.workspaces.values().find_map(|w| Some((w, claims(w).iter().find(|claim| claim.loan == loan)?)));
    found.is_none_or(|(tree, claim)| {
        let is_made = tree.status.as_ref().is_some_and(|s| is_true(&s.conditions, condition::PROVISIONED));
        !is_held(claim) || !is_made || lender_pod(c, uid(&tree.metadata), claim).is_none()
    })
}
