//! The conditions that one plan sets, and the Events of their changes.

use yoi_crds::condition::{Condition, ConditionStatus, ConditionValue, condition, find};
use yoi_crds::reason::{self, Reason, condition};

/// The conditions that one plan sets. Each keeps its former transition time while its status stays the same.
pub(crate) struct ConditionSet<'a> {
    before: &'a [Condition],
    generation: i64,
    now: String,
    conditions: Vec<Condition>,
}

impl<'a> ConditionSet<'a> {
    /// `before` are all conditions of the object, other writers' too. `generation` is `metadata.generation`.
    pub(crate) fn new(before: &'a [Condition], generation: Option<i64>, now: jiff::Timestamp) -> Self {
        ConditionSet { before, generation: generation.unwrap_or_default(), now: format_time(now), conditions: Vec::new() }
    }

    pub(crate) fn set(&mut self, type_: &str, value: ConditionValue) {
        self.conditions.retain(|c| c.type_ != type_);
        self.conditions.push(condition(self.before, type_, value, self.generation, &self.now));
    }

    /// Sets these conditions as they were.
    pub(crate) fn keep(&mut self, types: &[&str]) {
        for type_ in types {
            if let Some(c) = find(self.before, type_) {
                self.set(type_, value_of(c.status, &c.reason, &c.message));
            }
        }
    }

    /// The condition as it is set here, else as another writer or an earlier plan set it.
    fn find(&self, type_: &str) -> Option<&Condition> {
        find(&self.conditions, type_).or_else(|| find(self.before, type_))
    }

    pub(crate) fn is_true(&self, type_: &str) -> bool {
        self.find(type_).is_some_and(|c| c.status == ConditionStatus::True)
    }

    /// Sets Ready, the summary: reason and message of the first condition of `needed` that is not True; `met` when all are.
    pub(crate) fn set_ready(&mut self, needed: &[&str], met: &str) {
        let unmet = needed.iter().find_map(|type_| match self.find(type_) {
            Some(c) if c.status == ConditionStatus::True => None,
            Some(c) => Some(value_of(ConditionStatus::False, &c.reason, &c.message)),
            None => Some(ConditionValue::no(reason::CREATING, format!("{type_} is not reported yet"))),
        });
        self.set(condition::READY, unmet.unwrap_or_else(|| ConditionValue::yes(reason::ALL_MET, met)));
    }

    pub(crate) fn into_conditions(self) -> Vec<Condition> {
        self.conditions
    }
}

/// The value of a condition that repeats what another writer reported. A reason of another version becomes `Other`.
pub(crate) fn value_of(status: ConditionStatus, reason: &str, message: &str) -> ConditionValue {
    ConditionValue { status, reason: Reason::from_name(reason).unwrap_or(reason::OTHER), message: message.to_owned() }
}

/// Not accepted: the schema of another version let a value of `field` in that this version does not know.
pub(crate) fn unknown_field(field: &str) -> ConditionValue {
    let why = format!("{field} says something that this version of Yoi does not know; upgrade Yoi, or delete the object and make it anew");
    ConditionValue::no(reason::INVALID_SPEC, why)
}

/// Ready of an object that is in a namespace that is being deleted; `then` is what becomes of it, as the end of a sentence.
pub(crate) fn namespace_terminating(namespace: &str, then: &str) -> ConditionValue {
    ConditionValue::no(reason::NAMESPACE_TERMINATING, format!("namespace {namespace} is being deleted: {then}"))
}

/// A time as Kubernetes writes it: RFC 3339, in whole seconds.
#[must_use]
pub fn format_time(at: jiff::Timestamp) -> String {
    jiff::Timestamp::from_second(at.as_second()).unwrap_or(at).to_string()
}

/// A status that has conditions.
pub trait Conditions {
    /// All conditions, of every writer.
    fn conditions(&self) -> &[Condition];
    /// All conditions, to be changed.
    fn conditions_mut(&mut self) -> &mut Vec<Condition>;
}

macro_rules! impl_conditions {
    ($($status:ty),+) => {$(
        impl Conditions for $status {
            fn conditions(&self) -> &[Condition] { &self.conditions }
            fn conditions_mut(&mut self) -> &mut Vec<Condition> { &mut self.conditions }
        }
    )+};
}
impl_conditions!(yoi_crds::YoiProjectStatus, yoi_crds::AgentWorkspaceStatus, yoi_crds::YoiPodStatus, yoi_crds::YoiPeerStatus);

/// Sets Ready to False with a step's failure, so that the status is also right when a plan could not be carried out. `before` are the conditions that
/// the object has, and `failure` the sentence for people.
pub fn set_apply_failed<S: Conditions>(status: &mut S, before: &[Condition], failure: &str, generation: Option<i64>, now: jiff::Timestamp) {
    let value = ConditionValue::no(reason::APPLY_FAILED, failure);
    let ready = condition(before, condition::READY, value, generation.unwrap_or_default(), &format_time(now));
    let all = status.conditions_mut();
    all.retain(|c| c.type_ != condition::READY);
    all.push(ready);
}

/// An Event as `kubectl describe` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Of type Warning; else Normal.
    pub warning: bool,
    /// CamelCase.
    pub reason: String,
    /// The condition's message.
    pub note: String,
}

/// The Events of a change of conditions: for each that became True, that is False for a reason to warn of, or that says that an agent stopped or
/// takes no warm session claim. They come
/// in the order in which conditions become true. Each message comes once, although Ready repeats it.
#[must_use]
pub fn condition_events(before: &[Condition], after: &[Condition]) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    let mut after: Vec<_> = after.iter().collect();
    after.sort_by_key(|c| condition::order(&c.type_));
    for c in after {
        if find(before, &c.type_).is_some_and(|b| b.status == c.status && b.reason == c.reason) {
            continue;
        }
        let warning = c.status != ConditionStatus::True && Reason::from_name(&c.reason).is_some_and(Reason::warns);
        // Nobody needs to hear that a spec or a policy makes sense, that a manifest is what spec and project say, or that each run is in its frame.
        let routine = [condition::ACCEPTED, condition::POLICY_VALID, condition::MANIFEST_CURRENT, condition::SCOPE_ENFORCED]
            .contains(&c.type_.as_str());
        let good = c.status == ConditionStatus::True && !routine;
        let stopped = c.type_ == condition::READY
            && c.status != ConditionStatus::True
            && [reason::STOPPED, reason::RESTING, reason::LIFETIME_OVER].iter().any(|rests| c.reason == *rests);
        // An agent that starts some seconds later than others of its project.
        let cold = c.status != ConditionStatus::True && c.type_ == condition::SESSION_READY && c.reason == reason::NO_WARM_SESSION;
        if (warning || good || stopped || cold) && !events.iter().any(|e| e.note == c.message) {
            let summary = c.type_ == condition::READY || c.reason == reason::ALL_MET;
            let reason = if good && summary { c.type_.as_str() } else { c.reason.as_str() };
            events.push(Event { warning, reason: reason.to_owned(), note: c.message.clone() });
        }
    }
    events
}

/// Whether the change only tells people how far something is that is not ready yet. It is not progress when a condition falls back, when there is
/// something to warn of, or when one becomes True on which others act.
#[must_use]
pub fn is_progress(before: &[Condition], after: &[Condition]) -> bool {
    let is_true = |c: &Condition| c.status == ConditionStatus::True;
    let was_true = |type_: &str| find(before, type_).is_some_and(is_true);
    let waits = |c: &Condition| match c.type_.as_str() {
        // Why no warm claim is taken stands nowhere else, and the next round may decide otherwise.
        condition::SESSION_READY if c.reason == reason::NO_WARM_SESSION => find(before, &c.type_).is_some_and(|b| b.reason == c.reason),
        // Ready follows them at once.
        condition::WORKSPACE_READY | condition::SESSION_READY => is_true(c) || !was_true(&c.type_),
        // An answer to whoever wrote the spec.
        condition::ACCEPTED => is_true(c),
        condition::MANIFEST_CURRENT => is_true(c) || !was_true(&c.type_),
        condition::TASK_COMPLETE => find(before, &c.type_).is_none_or(|b| b.status == c.status && b.reason == c.reason),
        type_ => is_true(c) == was_true(type_),
    };
    let kept = before.iter().all(|b| find(after, &b.type_).is_some());
    let ready = find(after, condition::READY)
        .is_some_and(|c| !is_true(c) && ![reason::STOPPED, reason::RESTING, reason::LIFETIME_OVER].iter().any(|rests| c.reason == *rests));
    ready && kept && after.iter().all(waits) && condition_events(before, after).iter().all(|event| !event.warning)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conditions(values: &[(&str, ConditionValue)]) -> Vec<Condition> {
        values.iter().map(|(type_, value)| yoi_crds::condition::condition(&[], type_, value.clone(), 1, "t")).collect()
    }

    fn reasons(before: &[Condition], after: &[Condition]) -> Vec<String> {
        condition_events(before, after).into_iter().map(|e| e.reason).collect()
    }

    #[test]
    fn events_of_one_change_come_in_the_order_in_which_conditions_become_true() {
        // As a status is written: sorted by type.
        let after = conditions(&[
            (condition::ACCEPTED, ConditionValue::yes(reason::VALID, "valid")),
            (condition::MANIFEST_CURRENT, ConditionValue::yes(reason::UP_TO_DATE, "current")),
            (condition::READY, ConditionValue::yes(reason::ALL_MET, "ready")),
            (condition::SCOPE_ENFORCED, ConditionValue::yes(reason::FRAME_ENFORCED, "framed")),
            (condition::SESSION_READY, ConditionValue::yes(reason::REPLAYED, "replayed")),
            (condition::TASK_COMPLETE, ConditionValue::yes(reason::TASK_SUCCEEDED, "done")),
            (condition::WORKSPACE_READY, ConditionValue::yes(reason::ALL_MET, "workspace")),
        ]);
        assert_eq!(reasons(&[], &after), ["WorkspaceReady", "Replayed", "Ready", "TaskSucceeded"]);
        assert_eq!(reasons(&after, &after), Vec::<String>::new());
        let lacking = conditions(&[(condition::SCOPE_ENFORCED, ConditionValue::no(reason::FRAME_INCOMPLETE, "no Landlock"))]);
        assert_eq!(reasons(&after, &lacking), ["FrameIncomplete"]);
    }

    #[test]
    fn progress_is_what_nobody_acts_on() {
        let pending = (condition::READY, ConditionValue::no(reason::POD_PENDING, "it waits for a node"));
        let accepted = (condition::ACCEPTED, ConditionValue::yes(reason::VALID, "valid"));
        let waits = (condition::WORKSPACE_READY, ConditionValue::no(reason::WAITING_FOR_CONSUMER, "waits"));
        let before = conditions(&[accepted.clone(), pending.clone(), waits.clone()]);
        let starting = (condition::READY, ConditionValue::no(reason::STARTING, "it starts"));
        let has_tree = (condition::WORKSPACE_READY, ConditionValue::yes(reason::ALL_MET, "ready"));
        for further in [[&accepted, &starting, &waits], [&accepted, &starting, &has_tree]] {
            let after = conditions(&further.map(Clone::clone));
            assert!(is_progress(&before, &after), "{after:?}");
        }
        let refused = (condition::ACCEPTED, ConditionValue::no(reason::INVALID_SPEC, "no"));
        let warned = (condition::READY, ConditionValue::no(reason::APPLY_FAILED, "refused"));
        let stopped = (condition::READY, ConditionValue::no(reason::STOPPED, "stopped"));
        let is_ready = (condition::READY, ConditionValue::yes(reason::ALL_MET, "ready"));
        for urgent in [
            vec![refused, pending.clone(), waits.clone()],
            vec![accepted.clone(), warned, waits.clone()],
            vec![accepted.clone(), stopped, waits.clone()],
            vec![accepted.clone(), is_ready, has_tree.clone()],
            // A condition that is no longer reported, and one that has fallen back.
            vec![accepted.clone(), starting.clone()],
            vec![
                accepted.clone(),
                starting.clone(),
                waits.clone(),
                (condition::SCHEDULED, ConditionValue::yes(reason::NODE_SELECTED, "n")),
            ],
        ] {
            let after = conditions(&urgent);
            assert!(!is_progress(&before, &after), "{after:?}");
        }
        let cold = (condition::SESSION_READY, ConditionValue::no(reason::NO_WARM_SESSION, "none is free"));
        let without = conditions(&[accepted.clone(), pending.clone()]);
        let with = conditions(&[accepted.clone(), pending.clone(), cold]);
        assert!(!is_progress(&without, &with) && is_progress(&with, &with));
        let had_tree = conditions(&[accepted.clone(), pending.clone(), has_tree]);
        assert!(!is_progress(&had_tree, &conditions(&[accepted, pending, waits])), "the tree is gone");
    }

    #[test]
    fn an_agent_that_stops_has_one_event() {
        let after = conditions(&[
            (condition::READY, ConditionValue::no(reason::STOPPED, "the spec asks for no Pod")),
            (condition::SESSION_READY, ConditionValue::no(reason::STOPPED, "the claim keeps the session")),
        ]);
        assert_eq!(reasons(&[], &after), ["Stopped"]);
    }

    #[test]
    fn a_reason_that_this_version_does_not_know_becomes_other() {
        let mut set = ConditionSet::new(&[], Some(1), jiff::Timestamp::UNIX_EPOCH);
        set.set(condition::SESSION_READY, value_of(ConditionStatus::False, "Teleported", "to mars"));
        set.set(condition::READY, value_of(ConditionStatus::False, "DiskFull", "full"));
        let conditions = set.into_conditions();
        assert_eq!((conditions[0].reason.as_str(), conditions[0].message.as_str()), ("Other", "to mars"));
        assert_eq!(conditions[1].reason, "DiskFull");
    }
}
