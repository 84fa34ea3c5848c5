//! Conditions of one object in one round, and the Events that tell their changes.

use yoi_crds::condition::{Condition, ConditionStatus, Verdict, find, said};
use yoi_crds::reason::{self, condition};

/// Collects the operator's conditions; keeps transition times of the former ones.
pub(crate) struct Saying<'a> {
    before: &'a [Condition],
    generation: i64,
    now: String,
    said: Vec<Condition>,
}

impl<'a> Saying<'a> {
    pub(crate) fn new(before: &'a [Condition], generation: Option<i64>, now: jiff::Timestamp) -> Self {
        Saying { before, generation: generation.unwrap_or_default(), now: stamp(now), said: Vec::new() }
    }

    pub(crate) fn say(&mut self, type_: &str, verdict: Verdict) {
        self.said.retain(|c| c.type_ != type_);
        self.said.push(said(self.before, type_, verdict, self.generation, &self.now));
    }

    /// Like [`Self::say`] for words that come from another writer of this object.
    pub(crate) fn repeat(&mut self, type_: &str, status: ConditionStatus, reason: &str, message: &str) {
        self.say(type_, Verdict { status, reason: reason::ALL_MET, message: message.to_owned() });
        if let Some(last) = self.said.last_mut() {
            last.reason = camel(reason).to_owned();
        }
    }

    /// What is true now: said in this round, or by another writer before.
    pub(crate) fn find(&self, type_: &str) -> Option<&Condition> {
        find(&self.said, type_).or_else(|| find(self.before, type_))
    }

    pub(crate) fn is_true(&self, type_: &str) -> bool {
        self.find(type_).is_some_and(|c| c.status == ConditionStatus::True)
    }

    /// Ready is the summary: the first of `needed` that is not True, in this order.
    pub(crate) fn ready(&mut self, needed: &[&str], met: &str) {
        let unmet = needed.iter().find_map(|type_| match self.find(type_) {
            Some(c) if c.status == ConditionStatus::True => None,
            Some(c) => Some((c.reason.clone(), c.message.clone())),
            None => Some((reason::CREATING.to_owned(), format!("{type_} is not reported yet"))),
        });
        match unmet {
            None => self.say(condition::READY, Verdict::yes(reason::ALL_MET, met)),
            Some((reason, message)) => self.repeat(condition::READY, ConditionStatus::False, &reason, &message),
        }
    }

    pub(crate) fn done(self) -> Vec<Condition> {
        self.said
    }
}

/// RFC 3339, whole seconds, as Kubernetes writes times.
#[must_use]
pub fn stamp(at: jiff::Timestamp) -> String {
    jiff::Timestamp::from_second(at.as_second()).unwrap_or(at).to_string()
}

/// A word of another writer that would not pass as a reason must not make the status unwritable.
fn camel(word: &str) -> &str {
    let fits = word.chars().next().is_some_and(char::is_uppercase) && word.len() <= 64 && word.chars().all(|c| c.is_ascii_alphanumeric());
    if fits { word } else { reason::STARTING }
}

/// Kinds' statuses that carry conditions.
pub trait Conditions {
    fn conditions(&self) -> &[Condition];
    fn conditions_mut(&mut self) -> &mut Vec<Condition>;
}

macro_rules! conditions {
    ($($status:ty),+) => {$(
        impl Conditions for $status {
            fn conditions(&self) -> &[Condition] { &self.conditions }
            fn conditions_mut(&mut self) -> &mut Vec<Condition> { &mut self.conditions }
        }
    )+};
}
conditions!(yoi_crds::YoiProjectStatus, yoi_crds::AgentWorkspaceStatus, yoi_crds::YoiPodStatus, yoi_crds::YoiPeerStatus);

/// Puts a step's failure into Ready, so that the way out by error is told too.
pub fn blame<S: Conditions>(status: &mut S, before: &[Condition], failure: &str, generation: Option<i64>, now: jiff::Timestamp) {
    let verdict = Verdict::no(reason::APPLY_FAILED, failure);
    let ready = said(before, condition::READY, verdict, generation.unwrap_or_default(), &stamp(now));
    let all = status.conditions_mut();
    all.retain(|c| c.type_ != condition::READY);
    all.push(ready);
}

/// One sentence of the story that `kubectl describe` tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub warning: bool,
    pub reason: String,
    pub note: String,
}

/// Reasons that somebody must act on, or will want to find in the story.
const WARNINGS: &[&str] = &[
    reason::APPLY_FAILED,
    reason::INVALID_SPEC,
    reason::SOURCE_NOT_FOUND,
    reason::NO_ELIGIBLE_NODE,
    reason::PARENT_ON_OTHER_NODE,
    reason::POPULATE_FAILED,
    reason::CLAIM_LOST,
    reason::NODE_LOST,
    reason::SECRET_MISSING,
    reason::SESSION_TOPOLOGY_CONFLICT,
    reason::SESSION_LOCKED,
    reason::REPLAY_FAILED,
    reason::LOG_NEWER,
    reason::MODEL_UNREACHABLE,
    reason::DISK_FULL,
    reason::TASK_FAILED,
    reason::MEMBER_MISSING,
    reason::MEMBER_REPLACED,
];

/// The Events of a status change: what became bad, what became true, what came to rest. Each sentence once, although Ready repeats it.
#[must_use]
pub fn story(before: &[Condition], after: &[Condition]) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    for c in after {
        if find(before, &c.type_).is_some_and(|b| b.status == c.status && b.reason == c.reason) {
            continue;
        }
        let warning = c.status != ConditionStatus::True && WARNINGS.contains(&c.reason.as_str());
        // That a spec makes sense is no news.
        let good = c.status == ConditionStatus::True && c.type_ != condition::ACCEPTED;
        let rest = c.status != ConditionStatus::True && c.reason == reason::STOPPED;
        if (warning || good || rest) && !events.iter().any(|e| e.note == c.message) {
            let summary = c.type_ == condition::READY || c.reason == reason::ALL_MET;
            let reason = if good && summary { c.type_.as_str() } else { c.reason.as_str() };
            events.push(Event { warning, reason: reason.to_owned(), note: c.message.clone() });
        }
    }
    events
}
