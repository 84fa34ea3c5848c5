//! Whether a Pod is to run the agent: what its spec asks for, and whether it has ended by itself.

use yoi_crds::YoiPod;
use yoi_crds::pod::{Completion, DesiredState};

use super::ending::lifetime_is_over;
use super::yoipod_input::YoiPodInput;
use super::{loan, loan_is_over, rest, yoipod_conditions};
use crate::meta;

/// Whether the agent has done its task and is to stop then: no Pod follows, although `desiredState` is Running.
#[must_use]
pub fn is_finished(yoipod: &YoiPod) -> bool {
    yoipod.spec.completion == Completion::Stop && yoipod_conditions::is_task_done(yoipod)
}

/// Whether nothing is to run the agent any more: its task is done, or its lifetime or its loan is over.
pub(crate) fn has_ended(yoipod: &YoiPod) -> bool {
    is_finished(yoipod) || lifetime_is_over(yoipod) || loan_is_over(yoipod)
}

/// Whether somebody has stopped the agent.
pub(crate) fn is_stopped_for_good(yoipod: &YoiPod) -> bool {
    yoipod.spec.desired_state == DesiredState::Stopped
}

/// The command after which an agent that has done its task and has `completion: Stop` goes on: it starts, and waits for messages.
#[must_use]
pub fn keep_command(namespace: &str, name: &str) -> String {
    format!(
        r#"kubectl patch yoipod {name} -n {namespace} --type merge -p '{{"spec":{{"completion":"Keep","push":null,"desiredState":"Running"}}}}'"#
    )
}

/// Whether nothing is to run the agent, and nothing will until somebody changes its spec or, when it rests, wakes it. Meanwhile a reader shows what it has done.
#[must_use]
pub fn is_stopped(yoipod: &YoiPod) -> bool {
    let rests = match yoipod.spec.desired_state {
        DesiredState::Stopped => true,
        DesiredState::Running | DesiredState::Suspended => has_ended(yoipod) || rest::is_resting(yoipod),
        DesiredState::Unknown => false,
    };
    rests && !meta::deleting(&yoipod.metadata)
}

/// Whether a Pod is to run the agent now.
pub(super) fn is_wanted(input: &YoiPodInput<'_>, now: jiff::Timestamp) -> bool {
    if loan::wants_no_pod(input, now) {
        return false;
    }
    match input.yoipod.spec.desired_state {
        DesiredState::Stopped => false,
        // A spec of another version is not accepted: its Pod goes on, and no new one is made.
        DesiredState::Unknown => true,
        DesiredState::Running | DesiredState::Suspended => !has_ended(input.yoipod.get()) && !rest::wants_no_pod(input),
    }
}
