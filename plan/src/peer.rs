//! YoiPeer: binds the identities of its two members, once.

use std::sync::Arc;

use yoi_crds::condition::ConditionValue;
use yoi_crds::peer::BoundMember;
use yoi_crds::reason::{self, condition};
use yoi_crds::{YoiPeer, YoiPeerStatus, YoiPod};

use crate::conditions::ConditionSet;
use crate::step::Plan;
use crate::stored::{Stored, Uid};

/// Everything that the decision about a YoiPeer reads, gathered once.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The object that the plan is about.
    pub peer: Arc<YoiPeer>,
    /// The namespace is being deleted.
    pub terminating: bool,
    /// The YoiPods of `spec.members`, in that order.
    pub members: [Option<Arc<YoiPod>>; 2],
}

/// One member: the name in the spec, the YoiPod that bears it now, and the one that was bound.
struct Member<'a> {
    name: &'a str,
    current: Option<Uid<'a>>,
    is_deleting: bool,
    bound: Option<&'a BoundMember>,
}

impl Member<'_> {
    fn is_replaced(&self) -> bool {
        matches!((self.bound, self.current), (Some(bound), Some(current)) if bound.uid != current.as_str())
    }
}

/// The status of a YoiPeer; it never has steps. An object that no API server has stored gets an empty plan.
#[must_use]
pub fn plan(seen: &Observed, now: jiff::Timestamp) -> Plan<YoiPeerStatus> {
    let Some(peer) = Stored::new(&*seen.peer) else { return Plan::nothing() };
    if peer.is_deleting() || seen.terminating {
        return Plan::nothing();
    }
    let before = peer.status.clone().unwrap_or_default();
    let generation = peer.meta().generation;
    let mut conditions = ConditionSet::new(&before.conditions, generation, now);
    let bound = match members(peer, seen, &before.members) {
        Err(refused) => {
            conditions.set(condition::ACCEPTED, refused);
            conditions.set_ready(&[condition::ACCEPTED], "");
            before.members.clone()
        }
        Ok(members) => {
            let bound = bind(&members, &before.members);
            let unmet = unmet(&members, peer.namespace());
            let accepted = if bound.is_empty() {
                unmet.clone().unwrap_or_else(|| ConditionValue::no(reason::MEMBER_MISSING, "not bound yet"))
            } else {
                ConditionValue::yes(reason::MEMBERS_BOUND, "both members are bound by their identity")
            };
            conditions.set(condition::ACCEPTED, accepted);
            let [a, b] = members;
            let met = || ConditionValue::yes(reason::MEMBERS_BOUND, format!("{} and {} see each other", a.name, b.name));
            conditions.set(condition::READY, unmet.unwrap_or_else(met));
            bound
        }
    };
    let status = YoiPeerStatus { observed_generation: generation, members: bound, conditions: conditions.into_conditions() };
    Plan { steps: Vec::new(), status: Some(status), requeue_after: None }
}

/// The two members, or why the spec is refused.
fn members<'a>(peer: Stored<'a, YoiPeer>, seen: &'a Observed, bound: &'a [BoundMember]) -> Result<[Member<'a>; 2], ConditionValue> {
    let [a, b] = peer.get().spec.members.as_slice() else {
        return Err(ConditionValue::no(reason::INVALID_SPEC, "a YoiPeer has exactly two members"));
    };
    if a == b {
        return Err(ConditionValue::no(reason::ITSELF, format!("{a} cannot be its own peer")));
    }
    let [at_a, at_b] = &seen.members;
    let member = |name: &'a String, yoipod: &'a Option<Arc<YoiPod>>| Member {
        name,
        current: Stored::of(yoipod).map(Stored::uid),
        is_deleting: Stored::of(yoipod).is_some_and(Stored::is_deleting),
        bound: bound.iter().find(|bound| bound.name == *name),
    };
    Ok([member(a, at_a), member(b, at_b)])
}

/// Both members are bound in one write, when both exist and neither is being deleted, and never again.
fn bind(members: &[Member<'_>; 2], before: &[BoundMember]) -> Vec<BoundMember> {
    let [a, b] = members;
    match (a.current, b.current) {
        (Some(uid_a), Some(uid_b)) if before.is_empty() && !a.is_deleting && !b.is_deleting => {
            [(a, uid_a), (b, uid_b)].map(|(member, uid)| BoundMember { name: member.name.to_owned(), uid: uid.as_str().to_owned() }).into()
        }
        _ => before.to_vec(),
    }
}

/// Why the members do not see each other; `None` when they do.
fn unmet(members: &[Member<'_>; 2], namespace: &str) -> Option<ConditionValue> {
    if let Some(replaced) = members.iter().find(|member| member.is_replaced()) {
        let message = format!(
            "{} was deleted and made anew, and this relation was with the former one; delete this YoiPeer and make it again",
            replaced.name
        );
        return Some(ConditionValue::no(reason::MEMBER_REPLACED, message));
    }
    if let Some(missing) = members.iter().find(|member| member.current.is_none()) {
        return Some(ConditionValue::no(
            reason::MEMBER_MISSING,
            format!("YoiPod {} does not exist in namespace {namespace}", missing.name),
        ));
    }
    // A relation that is bound lasts until its member is gone.
    let going = members.iter().find(|member| member.is_deleting && member.bound.is_none())?;
    Some(ConditionValue::no(
        reason::MEMBER_MISSING,
        format!("YoiPod {} is being deleted; the relation waits for another one of this name", going.name),
    ))
}
