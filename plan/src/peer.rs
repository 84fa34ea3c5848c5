//! YoiPeer: binds the identities of its two members, once.

use std::sync::Arc;

use yoi_crds::condition::ConditionValue;
use yoi_crds::peer::BoundMember;
use yoi_crds::reason::{self, condition};
use yoi_crds::{YoiPeer, YoiPeerStatus, YoiPod};

use crate::conditions::ConditionSet;
use crate::meta::{deleting, namespace, uid};
use crate::step::Plan;

#[derive(Clone, Debug)]
pub struct Observed {
    pub peer: Arc<YoiPeer>,
    pub terminating: bool,
    /// The YoiPods of `spec.members`, in that order.
    pub members: [Option<Arc<YoiPod>>; 2],
}

#[must_use]
pub fn plan(seen: &Observed, now: jiff::Timestamp) -> Plan<YoiPeerStatus> {
    let meta = &seen.peer.metadata;
    if deleting(meta) || seen.terminating {
        return Plan::nothing();
    }
    let before = seen.peer.status.clone().unwrap_or_default();
    let mut saying = ConditionSet::new(&before.conditions, meta.generation, now);
    let names = &seen.peer.spec.members;
    let [a, b] = names.as_slice() else {
        saying.say(condition::ACCEPTED, ConditionValue::no(reason::INVALID_SPEC, "a YoiPeer has exactly two members"));
        return told(saying, meta.generation, before.members);
    };
    if a == b {
        saying.say(condition::ACCEPTED, ConditionValue::no(reason::ITSELF, format!("{a} cannot be its own peer")));
        return told(saying, meta.generation, before.members);
    }
    let missing: Vec<&str> = names.iter().zip(&seen.members).filter(|(_, m)| m.is_none()).map(|(n, _)| n.as_str()).collect();
    let mut members = before.members.clone();
    if members.is_empty() && missing.is_empty() {
        members = names
            .iter()
            .zip(&seen.members)
            .filter_map(|(name, m)| Some(BoundMember { name: name.clone(), uid: uid(&m.as_ref()?.metadata).to_owned() }))
            .collect();
    }
    let replaced: Vec<&str> = names
        .iter()
        .zip(&seen.members)
        .filter(|(name, now)| {
            let bound = members.iter().find(|m| m.name == **name);
            matches!((bound, now), (Some(bound), Some(now)) if bound.uid != uid(&now.metadata))
        })
        .map(|(name, _)| name.as_str())
        .collect();
    let unmet = if let Some(name) = replaced.first() {
        let again =
            format!("{name} was deleted and made anew, and this relation was with the former one; delete this YoiPeer and make it again");
        Some(ConditionValue::no(reason::MEMBER_REPLACED, again))
    } else {
        missing.first().map(|name| {
            ConditionValue::no(reason::MEMBER_MISSING, format!("YoiPod {name} does not exist in namespace {}", namespace(meta)))
        })
    };
    saying.say(
        condition::ACCEPTED,
        if members.is_empty() {
            unmet.clone().unwrap_or_else(|| ConditionValue::no(reason::MEMBER_MISSING, "not bound yet"))
        } else {
            ConditionValue::yes(reason::MEMBERS_BOUND, "both members are bound by their identity")
        },
    );
    saying
        .say(condition::READY, unmet.unwrap_or_else(|| ConditionValue::yes(reason::MEMBERS_BOUND, format!("{a} and {b} see each other"))));
    Plan {
        steps: Vec::new(),
        status: Some(YoiPeerStatus { observed_generation: meta.generation, members, conditions: saying.done() }),
        requeue_after: None,
    }
}

fn told(mut saying: ConditionSet<'_>, generation: Option<i64>, members: Vec<BoundMember>) -> Plan<YoiPeerStatus> {
    saying.ready(&[condition::ACCEPTED], "");
    Plan {
        steps: Vec::new(),
        status: Some(YoiPeerStatus { observed_generation: generation, members, conditions: saying.done() }),
        requeue_after: None,
    }
}
