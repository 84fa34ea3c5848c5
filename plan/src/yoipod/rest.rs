//! When an agent rests: without a Pod, until something wakes it.
//!
//! # Flow
//! A Pod's annotation says after how long its runtime may rest. The runtime decides: it closes its inbox and reports so, and the gateway writes
//! `status.rest`. The Pod then goes. Whatever comes for the agent, the gateway writes `status.rest.wake`, and another Pod follows.
//!
//! # Guarantees
//! A Pod whose runtime has closed its inbox takes nothing any more, so it goes, also when the agent is woken at once.

use yoi_crds::YoiPod;
use yoi_crds::name::annotation;
use yoi_crds::pod::DesiredState;
use yoi_wire::hub::ReportReason;

use super::wanted::has_ended;
use super::yoipod_input::YoiPodInput;
use crate::observed_pod::ObservedPod;
use crate::step::Step;
use crate::stored::Stored;
use crate::{duration, meta};

/// Whether the agent has gone to rest, and nothing has ended that. Its Pod may still be going down.
#[must_use]
pub fn is_resting(yoipod: &YoiPod) -> bool {
    let Some(status) = &yoipod.status else { return false };
    let Some(rest) = status.rest.as_deref().filter(|rest| rest.wake.is_none()) else { return false };
    let is_later = |run: i64| run > rest.run_generation;
    let has_run_since = status.report.as_ref().is_some_and(|report| is_later(report.run_generation));
    // The run that follows has the next number; a stop takes one, see `ended_by_stop`.
    let was_stopped_since = status.run_generation.is_some_and(|run| is_later(run.saturating_sub(1)));
    !has_run_since && !was_stopped_since
}

/// Whether the agent rests, and a message may wake it.
#[must_use]
pub fn may_be_woken(yoipod: &YoiPod) -> bool {
    let goes_on = match yoipod.spec.desired_state {
        DesiredState::Running | DesiredState::Suspended => !has_ended(yoipod),
        DesiredState::Stopped | DesiredState::Unknown => false,
    };
    goes_on && is_resting(yoipod) && !meta::deleting(&yoipod.metadata)
}

/// Whether no Pod is wanted because the agent rests. One that may rest no longer gets a Pod.
pub(super) fn wants_no_pod(input: &YoiPodInput<'_>) -> bool {
    is_resting(input.yoipod.get()) && after(input).is_none_or(|after| !after.is_empty())
}

/// A stop ends a rest: the next run has another number than the one that would follow the rest. `next` is the number without that.
pub(super) fn ended_by_stop(input: &YoiPodInput<'_>, next: Option<i64>) -> Option<i64> {
    let ends = input.yoipod.spec.desired_state == DesiredState::Stopped && is_resting(input.yoipod.get());
    let rested = input.before.rest.as_deref().filter(|_| ends)?.run_generation;
    (next == rested.checked_add(1)).then(|| rested.saturating_add(2).min(yoi_crds::pod::MOST_RUNS))
}

/// Value of the annotation [`annotation::REST`]: seconds, or empty for never. `None` while its project, which would say it, is not there.
pub(super) fn after(input: &YoiPodInput<'_>) -> Option<String> {
    let spec = &input.yoipod.spec;
    match spec.desired_state {
        DesiredState::Suspended => Some("0".to_owned()),
        DesiredState::Running => {
            let rest = match &spec.rest {
                Some(rest) => Some(rest),
                None => input.project?.get().spec.defaults.rest.as_ref(),
            };
            // The schema lets nothing else through; an agent whose text cannot be read does not rest.
            let after = rest.and_then(|rest| duration::parse(&rest.after).ok()).filter(|after| !after.is_zero());
            Some(after.map(|after| after.as_secs().to_string()).unwrap_or_default())
        }
        DesiredState::Stopped | DesiredState::Unknown => Some(String::new()),
    }
}

/// Whether the runtime of this Pod has closed its inbox.
pub(super) fn has_closed(input: &YoiPodInput<'_>, pod: Stored<'_, ObservedPod>) -> bool {
    input.before.report.as_ref().is_some_and(|report| report.pod_uid == pod.uid().as_str() && report.reason == ReportReason::Resting)
}

/// A change of the spec reaches the Pod that is there. A Pod of an earlier version shows its runtime nothing, and never rests.
pub(super) fn set_rest(input: &YoiPodInput<'_>, pod: Stored<'_, ObservedPod>) -> Option<Step> {
    let has = meta::annotation(pod.meta(), annotation::REST)?;
    let wanted = after(input)?;
    (has != wanted).then(|| Step::SetRest { pod: pod.target(), after: wanted })
}
