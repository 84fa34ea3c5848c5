//! Warm session claims: empty claims that are bound before an agent needs one, so that it starts without waiting for a volume.
//!
//! ```text
//! YoiProject's plan                                        YoiPod's plan
//! make a claim for a node  ->  Kubernetes binds it  ->     choose one (status)  ->  take it (the claim, if it is as it was seen)  ->  Pod
//!        ^                                                                                    |
//!        +------------------------------- one less stands ready: another is made <------------+
//! ```
//!
//! A class that binds late has the scheduler choose the node, which it writes into the annotation `volume.kubernetes.io/selected-node`. Kubernetes' own
//! controller then asks the provisioner, and neither looks for a Pod. So the operator writes that annotation when it creates the claim. A Pod that
//! mounts the claim would do as well, and would need an image, room, a quota and somebody who deletes it.
//!
//! # Guarantees
//! - A claim is taken only when this operator has made it, which its UID tells: the status of the project lists those. A label proves nothing, as users
//!   write labels.
//! - It is taken once. Two agents that choose the same one are told apart by the claim's resource version, and the other one chooses again.
//! - Nothing deletes a claim that has been taken: each deletion names the resource version, too.
//! - What cannot be had stops no agent: it gets a claim of its own, as without this.
//!
//! # Caveats
//! Whoever may make Pods in the namespace can mount a warm claim, as every other claim there, and write into it. No object tells that. The runtime of the
//! agent that takes it finds what is there, touches nothing and reports it, and the agent gets a claim of its own.

mod bucket;
mod claim;
pub mod class;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Toleration};
use yoi_crds::YoiProject;
use yoi_crds::condition::ConditionValue;
use yoi_crds::name::annotation;
use yoi_crds::reason;
use yoi_crds::warm::{WarmClaim, WarmFailure, WarmStatus};

use crate::conditions::format_time;
use crate::duration::time_left;
use crate::meta;
use crate::nodes::{Nodes, join_sentences};
use crate::settings::Settings;
use crate::step::Step;
use crate::stored::{ClaimPhase, Stored};
use crate::tree::base_set::BaseSet;
pub use bucket::TokenBucket;
pub(crate) use claim::{fits, is_free};
use class::{Classes, Need, Wanted};

/// How long a claim may take to be bound.
const BIND_PATIENCE: Duration = Duration::from_secs(90);
/// How long nothing is tried after a claim could not be had.
const RETRY: Duration = Duration::from_secs(60);
/// How soon more are made, when some are missing.
const REFILL: Duration = Duration::from_secs(1);
/// So many characters of a refusal are told.
pub(crate) const MOST_MESSAGE: usize = 600;
/// So many wait to be bound at the same time: a provisioner has few hands.
const MOST_UNBOUND: usize = 4;

/// What the plan of a project reads of warm claims.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Claims with the label whose controller the project is.
    pub claims: Vec<Arc<PersistentVolumeClaim>>,
    /// What this operator has made for the project, by UID. The status lists it after the next write.
    pub made: BTreeMap<String, Made>,
    /// Why the API server took the last one not, and when. Absent once it took one.
    pub refusal: Option<(String, jiff::Timestamp)>,
    /// How many there are in the whole cluster.
    pub in_cluster: usize,
    /// The StorageClasses of the cluster.
    pub classes: Classes,
}

/// A claim that this operator has made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// The node that it was made for.
    pub node: String,
    /// No watch has shown it yet.
    pub is_unseen: bool,
}

/// What the plan of a YoiPod reads of warm claims.
#[derive(Clone, Debug, Default)]
pub struct Candidates {
    /// Claims with the label that no other YoiPod has chosen, and the one that this YoiPod has chosen.
    pub claims: Vec<Arc<PersistentVolumeClaim>>,
    /// The volumes that these are bound to.
    pub volumes: Vec<Arc<PersistentVolume>>,
    /// The StorageClasses of the cluster.
    pub classes: Classes,
}

/// What to make and to give back, and what is said of it.
#[derive(Default)]
pub(crate) struct WarmPlan {
    pub steps: Vec<Step>,
    pub status: Option<Box<WarmStatus>>,
    pub condition: Option<ConditionValue>,
    pub requeue_after: Option<Duration>,
}

/// A claim that this operator has made and no agent has taken.
#[derive(Clone, Copy)]
struct Own<'a> {
    claim: Stored<'a, PersistentVolumeClaim>,
    node: &'a str,
}

/// Why a claim does not stay.
enum Fault {
    /// Its node or its project changed.
    Outdated,
    /// It could not be had.
    Failed(String),
}

struct Context<'a> {
    project: Stored<'a, YoiProject>,
    before: Option<&'a WarmStatus>,
    seen: &'a Observed,
    base_set: &'a BaseSet<'a>,
    nodes: &'a Nodes,
    now: jiff::Timestamp,
}

/// `base_set` are the bases that new trees are made from.
pub(crate) fn plan<'a>(
    project: Stored<'a, YoiProject>,
    before: Option<&'a WarmStatus>,
    seen: &'a Observed,
    base_set: &'a BaseSet<'a>,
    nodes: &'a Nodes,
    settings: &Settings,
    now: jiff::Timestamp,
) -> WarmPlan {
    let context = Context { project, before, seen, base_set, nodes, now };
    let Some(warm) = project.get().spec.warm.as_deref().filter(|warm| warm.sessions > 0) else { return context.give_all_back(None) };
    let most = settings.most_warm_sessions;
    if most == 0 {
        let message = "the administrator has turned warm session claims off (agents.warmSessions: 0 of the chart)";
        return context.give_all_back(Some(ConditionValue::no(reason::WARM_OFF, message)));
    }
    let wanted = Wanted::new(warm.claim_template.as_ref(), settings, &seen.classes);
    match wanted.need() {
        Need::None(why) => context.give_all_back(Some(ConditionValue::yes(reason::SESSIONS_WARM, why))),
        Need::Refused(why) => context.give_all_back(Some(ConditionValue::no(reason::WARM_REFUSED, why))),
        Need::Claims => context.keep(usize::try_from(warm.sessions).unwrap_or(0).min(most), most, &wanted),
    }
}

/// The steps that give back all that no agent has taken: nothing new begins from a project that is being deleted.
pub(crate) fn teardown(project: Stored<'_, YoiProject>, before: Option<&WarmStatus>, seen: &Observed) -> Vec<Step> {
    own(project, before, seen).into_iter().filter_map(|own| claim::give_back(own.claim)).collect()
}

/// The claims of which it is known that this operator has made them, in the order of their names.
fn own<'a>(project: Stored<'_, YoiProject>, before: Option<&'a WarmStatus>, seen: &'a Observed) -> Vec<Own<'a>> {
    let listed: BTreeMap<&str, &str> =
        before.into_iter().flat_map(|before| &before.claims).map(|claim| (claim.uid.as_str(), claim.node.as_str())).collect();
    let node_of = |uid: &str| listed.get(uid).copied().or_else(|| seen.made.get(uid).map(|made| made.node.as_str()));
    let mut own: Vec<Own<'a>> = Stored::all(&seen.claims)
        .into_iter()
        .filter(|claim| is_free(*claim, project))
        .filter_map(|claim| Some(Own { claim, node: node_of(claim.uid().as_str())? }))
        .collect();
    own.sort_by_key(|own| own.claim.name());
    own
}

impl<'a> Context<'a> {
    fn own(&self) -> Vec<Own<'a>> {
        own(self.project, self.before, self.seen)
    }

    /// Nothing is to stand ready.
    fn give_all_back(&self, condition: Option<ConditionValue>) -> WarmPlan {
        let own = self.own();
        let steps = own.iter().filter_map(|own| claim::give_back(own.claim)).collect();
        WarmPlan { steps, status: status(&own, None), condition, requeue_after: None }
    }

    /// Keeps `target` claims ready; `most` may be in the cluster.
    fn keep(&self, target: usize, most: usize, wanted: &Wanted<'_>) -> WarmPlan {
        let own = self.own();
        let mut failure = self.failure();
        let (mut steps, mut kept) = (Vec::new(), Vec::new());
        for own in own.iter().filter(|own| !own.claim.is_deleting()) {
            match self.fault(*own, wanted) {
                None => kept.push(*own),
                Some(fault) => {
                    steps.extend(claim::give_back(own.claim));
                    if let Fault::Failed(message) = fault {
                        failure = Some(WarmFailure { message, at: format_time(self.now) });
                    }
                }
            }
        }
        // The newest go first: an agent may be about to take an older one.
        kept.sort_by_key(|own| (own.claim.meta().creation_timestamp.as_ref().map(|at| at.0), own.claim.name()));
        let over = kept.len().saturating_sub(target).max(usize::from(self.seen.in_cluster > most && !kept.is_empty()));
        let surplus = kept.split_off(kept.len().saturating_sub(over));
        steps.extend(surplus.iter().filter_map(|own| claim::give_back(own.claim)));

        let ready: Vec<Own<'_>> = kept.iter().copied().filter(|own| own.claim.phase() == ClaimPhase::Bound).collect();
        if ready.len() >= target {
            failure = None;
        }
        let places = self.places();
        let unseen: Vec<&Made> = self.seen.made.values().filter(|made| made.is_unseen).collect();
        let missing = target.saturating_sub(kept.len() + unseen.len());
        let pause = failure.as_ref().and_then(|failure| time_left(failure.at.parse().ok()?, RETRY, self.now));
        let waiting = kept.len().saturating_sub(ready.len()) + unseen.len();
        let at_once = if failure.is_some() { 1 } else { MOST_UNBOUND };
        let room = most.saturating_sub(self.seen.in_cluster).min(at_once.saturating_sub(waiting));
        let make = if pause.is_some() || over > 0 { 0 } else { missing.min(room) };
        let made = self.make(make, &places, &kept, &unseen, wanted);
        let is_refilled = !made.is_empty() || over > 0;
        steps.extend(made);

        let bound_by = kept.iter().filter(|own| own.claim.phase() != ClaimPhase::Bound).filter_map(|own| self.bind_time_left(*own));
        let is_full = missing > 0 && self.seen.in_cluster >= most;
        let again = if is_refilled { Some(REFILL) } else { is_full.then_some(RETRY) };
        let condition = self.condition(target, &ready, failure.as_ref(), &places, is_full);
        WarmPlan {
            steps,
            status: status(&own, failure),
            condition: Some(condition),
            requeue_after: bound_by.chain(pause.filter(|_| missing > 0)).chain(again).min(),
        }
    }

    /// What was refused last, by the API server or by Kubernetes' own controllers.
    fn failure(&self) -> Option<WarmFailure> {
        let before = self.before.and_then(|before| before.failure.clone());
        // A condition has room for 1,024 characters.
        let refused = self
            .seen
            .refusal
            .as_ref()
            .map(|(message, at)| WarmFailure { message: message.chars().take(MOST_MESSAGE).collect(), at: format_time(*at) });
        let at = |failure: &WarmFailure| failure.at.parse::<jiff::Timestamp>().ok();
        before.into_iter().chain(refused).max_by_key(at)
    }

    fn fault(&self, own: Own<'_>, wanted: &Wanted<'_>) -> Option<Fault> {
        let Some(node) = self.nodes.0.get(own.node) else { return Some(Fault::Outdated) };
        // A node that does not answer for a while has its volumes still.
        let is_refused = node.not_ready_since.is_none() && node.refusal(self.tolerations()).is_some();
        let sealed = self.base_set.sealed_nodes();
        if is_refused || !fits(own.claim, wanted) || !sealed.is_empty() && !sealed.contains(&own.node) {
            return Some(Fault::Outdated);
        }
        let (title, class) = (own.claim.name(), wanted.class_name());
        match own.claim.phase() {
            ClaimPhase::Bound => None,
            ClaimPhase::Lost => Some(Fault::Failed(format!("claim {title} lost its volume before an agent took it"))),
            ClaimPhase::Other if meta::annotation(own.claim.meta(), annotation::SELECTED_NODE) != Some(own.node) => {
                Some(Fault::Failed(format!("the provisioner of StorageClass {class} makes no volume on node {}", own.node)))
            }
            ClaimPhase::Other if self.bind_time_left(own).is_none() => {
                let seconds = BIND_PATIENCE.as_secs();
                let message = format!("claim {title} of StorageClass {class} was not bound within {seconds} s on node {}", own.node);
                Some(Fault::Failed(message))
            }
            ClaimPhase::Other => None,
        }
    }

    fn bind_time_left(&self, own: Own<'_>) -> Option<Duration> {
        let made = own.claim.meta().creation_timestamp.as_ref().map_or(self.now, |at| at.0);
        time_left(made, BIND_PATIENCE, self.now)
    }

    fn tolerations(&self) -> &'a [Toleration] {
        self.project.get().spec.defaults.pod.as_ref().map(|pod| pod.tolerations.as_slice()).unwrap_or_default()
    }

    /// Nodes where an agent of the project could start now: they hold the sealed base, and let its Pods in.
    fn places(&self) -> Vec<&'a str> {
        let pod = self.project.get().spec.defaults.pod.clone().unwrap_or_default();
        let able = self.nodes.eligible_for_pods(self.base_set.provider, &pod.tolerations);
        let mut places = self.base_set.sealed_nodes();
        places.retain(|node| able.contains(node) && self.nodes.is_allowed_by(node, &pod));
        places
    }

    /// The steps that make `count` claims, each for the node with the fewest.
    fn make(&self, count: usize, places: &[&'a str], kept: &[Own<'_>], unseen: &[&Made], wanted: &Wanted<'_>) -> Vec<Step> {
        let on = |node: &str| {
            let seen = kept.iter().filter(|own| own.node == node).count();
            seen + unseen.iter().filter(|made| made.node == node).count()
        };
        let mut counts: BTreeMap<&str, usize> = places.iter().map(|node| (*node, on(node))).collect();
        let mut steps = Vec::new();
        for number in 0..count {
            let Some((node, there)) = counts.iter_mut().min_by_key(|(node, there)| (**there, **node)) else { break };
            *there += 1;
            steps.push(Step::MakeWarmClaim(Box::new(claim::warm_claim(self.project, node, wanted, self.now, number))));
        }
        steps
    }

    fn condition(&self, target: usize, ready: &[Own<'_>], failure: Option<&WarmFailure>, places: &[&str], is_full: bool) -> ConditionValue {
        let on: BTreeSet<&str> = ready.iter().map(|own| own.node).collect();
        let named =
            join_sentences(on.into_iter().map(|node| format!("{} on node {node}", ready.iter().filter(|own| own.node == node).count())));
        let count = ready.len();
        match failure {
            Some(failure) => {
                let stands = if count == 0 { "none stands ready".to_owned() } else { format!("{count} stand ready: {named}") };
                ConditionValue::no(reason::WARM_REFUSED, format!("{} ({stands}, and {target} are asked for)", failure.message))
            }
            None if count > 0 => {
                ConditionValue::yes(reason::SESSIONS_WARM, format!("{count} of {target} session claims stand ready: {named}"))
            }
            None if places.is_empty() => {
                ConditionValue::no(reason::WARMING, "no node that lets agents of this project in holds its sealed source yet")
            }
            None if is_full => {
                let message =
                    "there are as many warm session claims in the cluster as the administrator allows (agents.warmSessions of the chart)";
                ConditionValue::no(reason::WARMING, message)
            }
            None => ConditionValue::no(reason::WARMING, "session claims are being made and bound"),
        }
    }
}

/// `own` are all that are there, also those that are given back: as long as a claim is there, it is known whose it is.
fn status(own: &[Own<'_>], failure: Option<WarmFailure>) -> Option<Box<WarmStatus>> {
    let entry = |own: &Own<'_>| WarmClaim {
        name: own.claim.name().to_owned(),
        uid: own.claim.uid().as_str().to_owned(),
        node: own.node.to_owned(),
    };
    let status = WarmStatus { claims: own.iter().map(entry).collect(), failure };
    (status != WarmStatus::default()).then(|| Box::new(status))
}
