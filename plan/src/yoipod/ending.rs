//! The end of an agent by itself: when `limits.lifetime` stops it, and when `ttlAfterFinished` deletes its object.
//!
//! # Guarantees
//! Both are told in the condition Ending, and so in an Event, before they happen. An agent is not deleted while its Pod is there, nor before the commits that
//! its spec wants pushed are pushed.

use std::time::Duration;

use jiff::Timestamp;
use yoi_crds::YoiPod;
use yoi_crds::condition::{ConditionStatus, ConditionValue, find};
use yoi_crds::pod::{EndedBy, EndedStatus};
use yoi_crds::reason::{self, condition};

use super::wanted::is_finished;
use super::yoipod_input::YoiPodInput;
use crate::conditions::{format_time, value_of};
use crate::duration;
use crate::step::Step;

/// How long before the end of a lifetime it is told, at most; and at most a tenth of it.
const NOTICE: Duration = Duration::from_secs(600);

/// What ends the agent, and what its conditions say of it.
pub(super) struct EndingPlan {
    pub ended: Option<EndedStatus>,
    pub condition: Option<ConditionValue>,
    pub deletion: Option<Step>,
    pub requeue_after: Option<Duration>,
}

/// Whether the agent's lifetime is over, as the operator has recorded it.
#[must_use]
pub fn lifetime_is_over(yoipod: &YoiPod) -> bool {
    let ended = yoipod.status.as_ref().and_then(|status| status.ended.as_deref());
    yoipod.spec.limits.lifetime.is_some() && ended.is_some_and(|ended| ended.by == EndedBy::Lifetime)
}

/// Ready of an agent whose lifetime is over.
pub(super) fn lifetime_over(input: &YoiPodInput<'_>) -> Option<ConditionValue> {
    let yoipod = input.yoipod.get();
    let (lifetime, ended) = (yoipod.spec.limits.lifetime.as_ref()?, input.before.ended.as_ref().filter(|_| lifetime_is_over(yoipod))?);
    let message = format!("its lifetime of {lifetime} was over at {}; with a longer one, or none, it goes on", ended.since);
    Some(ConditionValue::no(reason::LIFETIME_OVER, message))
}

/// `pushed` is the condition Pushed after this round.
pub(super) fn plan(input: &YoiPodInput<'_>, pushed: Option<&ConditionValue>, now: Timestamp) -> EndingPlan {
    let end = end_of_life(input);
    match ended(input, end, now) {
        Some(ended) => after_the_end(input, ended, pushed, now),
        None => before_the_end(input, end, now),
    }
}

/// When the lifetime ends, and how long before that it is told.
fn end_of_life(input: &YoiPodInput<'_>) -> Option<(Timestamp, Duration)> {
    let lifetime = duration::parse(input.yoipod.get().spec.limits.lifetime.as_deref()?).ok()?;
    let made = input.yoipod.meta().creation_timestamp.as_ref()?.0;
    Some((made.saturating_add(lifetime).ok()?, NOTICE.min(lifetime / 10)))
}

/// What has ended the agent: since the round that first saw it.
fn ended(input: &YoiPodInput<'_>, end: Option<(Timestamp, Duration)>, now: Timestamp) -> Option<EndedStatus> {
    let by = if is_finished(input.yoipod.get()) { EndedBy::Task } else { end.filter(|(end, _)| *end <= now).map(|_| EndedBy::Lifetime)? };
    let before = input.before.ended.as_deref().filter(|before| before.by == by).cloned();
    Some(before.unwrap_or_else(|| EndedStatus { since: format_time(now), by }))
}

fn before_the_end(input: &YoiPodInput<'_>, end: Option<(Timestamp, Duration)>, now: Timestamp) -> EndingPlan {
    let nothing = EndingPlan { ended: None, condition: None, deletion: None, requeue_after: None };
    let Some((end, notice)) = end else { return nothing };
    let left = Duration::try_from(end.duration_since(now)).unwrap_or_default();
    match left.checked_sub(notice).filter(|until| !until.is_zero()) {
        Some(until_notice) => EndingPlan { requeue_after: Some(until_notice), ..nothing },
        None => {
            let lifetime = input.yoipod.get().spec.limits.lifetime.as_deref().unwrap_or_default();
            let message = format!(
                "its lifetime of {lifetime} ends at {}, and it stops then; with a longer one, or none, it goes on",
                format_time(end)
            );
            EndingPlan { condition: Some(ConditionValue::yes(reason::LIFETIME_ENDS, message)), requeue_after: Some(left), ..nothing }
        }
    }
}

fn after_the_end(input: &YoiPodInput<'_>, ended: EndedStatus, pushed: Option<&ConditionValue>, now: Timestamp) -> EndingPlan {
    let since: Option<Timestamp> = ended.since.parse().ok();
    let ttl = input.yoipod.get().spec.ttl_after_finished.as_deref().and_then(|ttl| duration::parse(ttl).ok());
    let stays = EndingPlan { ended: Some(ended), condition: None, deletion: None, requeue_after: None };
    let (Some(since), Some(ttl)) = (since, ttl) else { return stays };
    if let Some(unpushed) = pushed.filter(|pushed| pushed.status != ConditionStatus::True) {
        let message = format!("it is not deleted before its commits are pushed: {}", unpushed.message);
        return EndingPlan { condition: Some(value_of(ConditionStatus::False, unpushed.reason.as_str(), &message)), ..stays };
    }
    let due = since.saturating_add(ttl).unwrap_or(now);
    let message = format!("it has ended, and is deleted at {}; to keep it, take ttlAfterFinished out of its spec", format_time(due));
    let condition = ConditionValue::yes(reason::DELETED_WHEN_FINISHED, message);
    // It was told, and the Pod is gone.
    let was_told = find(&input.before.conditions, condition::ENDING)
        .is_some_and(|before| before.status == ConditionStatus::True && before.reason == reason::DELETED_WHEN_FINISHED);
    let left = duration::time_left(since, ttl, now);
    let may_go = was_told && left.is_none() && input.own_pods.is_empty();
    EndingPlan { condition: Some(condition), deletion: input.yoipod.delete_unchanged().filter(|_| may_go), requeue_after: left, ..stays }
}
