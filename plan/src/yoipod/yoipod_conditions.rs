//! The conditions of a YoiPod.

use yoi_crds::Condition;
use yoi_crds::condition::{ConditionStatus, ConditionValue, find};
use yoi_crds::pod::{Completion, DesiredState, LastReport};
use yoi_crds::reason::{self, condition};
use yoi_wire::hub::TaskState;

use super::run::{RunPlan, RunRecord, RunState};
use super::waiting_container::waiting;
use super::yoipod_input::YoiPodInput;
use super::{manifest, pod_spec, waiting_container};
use crate::conditions::{ConditionSet, value_of};
use crate::observed_pod::{ContainerState, ObservedPod, PodPhase, Terminated};
use crate::stored::{ClaimPhase, Stored};

/// The conditions after this round. `refused` is why the spec is not accepted.
pub(super) fn conditions(
    input: &YoiPodInput<'_>,
    refused: Option<&ConditionValue>,
    run: &RunPlan<'_>,
    now: jiff::Timestamp,
) -> Vec<Condition> {
    let workspace_ready = workspace_ready(input, run);
    let ready = ready(input, refused, &workspace_ready, run);
    let valid = || ConditionValue::yes(reason::VALID, "the spec makes sense and what it names exists");
    let mut conditions = ConditionSet::new(&input.before.conditions, input.yoipod.meta().generation, now);
    conditions.set(condition::ACCEPTED, refused.cloned().unwrap_or_else(valid));
    conditions.set(condition::WORKSPACE_READY, workspace_ready);
    conditions.set(condition::SESSION_READY, session_ready(input, run));
    conditions.set(condition::TASK_COMPLETE, task_complete(input));
    conditions.set(condition::READY, ready);
    conditions.into_conditions()
}

/// The current task has ended, well or not.
pub(super) fn is_task_done(input: &YoiPodInput<'_>) -> bool {
    matches!(task_state(input), Some(TaskState::Succeeded | TaskState::Failed))
}

/// What the gateway last reported of the task that the spec names now.
fn task_state(input: &YoiPodInput<'_>) -> Option<TaskState> {
    let task = manifest::task(input.yoipod.get())?;
    input.before.task.as_ref().filter(|t| t.id == task.id)?.state.known()
}

/// The summary, with the reason that helps most.
fn ready(input: &YoiPodInput<'_>, refused: Option<&ConditionValue>, workspace_ready: &ConditionValue, run: &RunPlan<'_>) -> ConditionValue {
    match (&run.state, refused) {
        (RunState::Exists(pod), _) => pod_ready(input, workspace_ready, run, *pod),
        (_, Some(refused)) => ConditionValue::no(refused.reason, refused.message.clone()),
        (RunState::NotWanted { stopping: true }, None) => ConditionValue::no(reason::STOPPING, "the Pod is going down"),
        (RunState::NotWanted { stopping: false }, None) => ConditionValue::no(reason::STOPPED, stopped_message(input)),
        (RunState::Waits(why), None) => why.clone(),
        (RunState::Starting, None) => starting(input),
    }
}

fn stopped_message(input: &YoiPodInput<'_>) -> &'static str {
    match (input.yoipod.spec.desired_state, input.yoipod.spec.completion) {
        (DesiredState::Running, Completion::Stop) => "the task is done and completion is Stop",
        (DesiredState::Running | DesiredState::Stopped | DesiredState::Unknown, _) => "desiredState is Stopped",
    }
}

fn starting(input: &YoiPodInput<'_>) -> ConditionValue {
    match input.pods.iter().find(|pod| pod.is_deleting()) {
        Some(pod) => ConditionValue::no(reason::STOPPING, format!("Pod {} is going down; another one follows", pod.name())),
        None => ConditionValue::no(reason::STARTING, "the Pod and what it needs are being made"),
    }
}

fn workspace_ready(input: &YoiPodInput<'_>, run: &RunPlan<'_>) -> ConditionValue {
    let title = input.workspace_name;
    let Some(workspace) = input.workspace else {
        return ConditionValue::no(reason::CREATING, format!("AgentWorkspace {title} does not exist yet"));
    };
    if run.no_room {
        let message = "no node that holds the base, or could hold the tree, has room for the Pod; it may go to any node that can make the tree, \
                       which gets a base then";
        return ConditionValue::no(reason::NO_ROOM, message);
    }
    match (find(workspace.conditions(), condition::READY), &run.state) {
        (Some(c), _) if c.status == ConditionStatus::True => {
            ConditionValue::yes(reason::ALL_MET, format!("AgentWorkspace {title} is ready"))
        }
        (_, RunState::Waits(why)) => why.clone(),
        (Some(c), _) => value_of(ConditionStatus::False, &c.reason, &c.message),
        (None, _) => ConditionValue::no(reason::CREATING, format!("AgentWorkspace {title} was just made")),
    }
}

/// True when the volume is there, and the runtime has locked and replayed the log on it.
fn session_ready(input: &YoiPodInput<'_>, run: &RunPlan<'_>) -> ConditionValue {
    let title = &input.session_claim_name;
    let Some(claim) = input.session_claim.any_claim() else {
        return ConditionValue::no(reason::CREATING, format!("claim {title} does not exist yet"));
    };
    match claim.phase() {
        ClaimPhase::Lost => ConditionValue::no(reason::CLAIM_LOST, format!("claim {title} lost its volume")),
        ClaimPhase::Bound => match (report(input, &run.record), &run.state) {
            (Some(r), RunState::Exists(_)) if r.ready => ConditionValue::yes(reason::REPLAYED, "the session is locked and replayed"),
            (Some(r), RunState::Exists(_)) => value_of(ConditionStatus::False, r.reason.as_str(), &r.message),
            (_, RunState::NotWanted { .. }) => {
                ConditionValue::no(reason::STOPPED, format!("claim {title} keeps the session; no Pod is wanted"))
            }
            _ => ConditionValue::no(reason::STARTING, format!("claim {title} is bound; the runtime has not reported yet")),
        },
        ClaimPhase::Other => ConditionValue::no(reason::WAITING_FOR_CONTROLLER, format!("claim {title} waits for its volume")),
    }
}

fn task_complete(input: &YoiPodInput<'_>) -> ConditionValue {
    if input.yoipod.spec.task.is_none() {
        return ConditionValue::no(reason::NO_TASK, "the spec names no task");
    }
    match task_state(input) {
        None => ConditionValue::no(reason::TASK_RUNNING, "the task waits to be given to the agent"),
        Some(TaskState::Submitted | TaskState::Running) => ConditionValue::no(reason::TASK_RUNNING, "the task was given to the agent"),
        Some(TaskState::Succeeded) => ConditionValue::yes(reason::TASK_SUCCEEDED, "the task's run finished"),
        Some(TaskState::Failed) => ConditionValue::no(reason::TASK_FAILED, "the task's run failed; the log says why"),
    }
}

/// What the runtime of exactly this Pod and run reported.
fn report<'a>(input: &'a YoiPodInput<'_>, record: &RunRecord) -> Option<&'a LastReport> {
    let report = input.before.report.as_ref()?;
    let pod = record.pod.as_ref()?;
    (report.pod_uid == pod.uid && Some(report.run_generation) == record.run_generation).then_some(report)
}

fn pod_ready(input: &YoiPodInput<'_>, workspace_ready: &ConditionValue, run: &RunPlan<'_>, pod: Stored<'_, ObservedPod>) -> ConditionValue {
    let report = report(input, &run.record);
    if let Some(why) = not_running(pod, run.unschedulable) {
        return match report {
            // A runtime that ended has reported why before. Its exit code says less.
            Some(r) if !r.ready && why.reason == reason::POD_NOT_RUNNING => value_of(ConditionStatus::False, r.reason.as_str(), &r.message),
            // The Pod has its node and waits for the tree.
            _ if why.reason == reason::POD_PENDING && pod.node.is_some() && workspace_ready.status != ConditionStatus::True => {
                ConditionValue::no(workspace_ready.reason, workspace_ready.message.clone())
            }
            _ => why,
        };
    }
    match report {
        Some(r) if r.ready => ConditionValue::yes(reason::ALL_MET, "replayed and locked; the agent listens"),
        Some(r) => value_of(ConditionStatus::False, r.reason.as_str(), &r.message),
        None => ConditionValue::no(reason::STARTING, "the runtime has started and not yet reported"),
    }
}

/// Why the agent's container is not running; `None` when it is. `unschedulable` as in [`RunPlan`].
fn not_running(pod: Stored<'_, ObservedPod>, unschedulable: bool) -> Option<ConditionValue> {
    let title = pod.name();
    let ended = match pod.phase {
        PodPhase::Failed => Some("Failed"),
        PodPhase::Succeeded => Some("Succeeded"),
        PodPhase::Running | PodPhase::Other => None,
    };
    if let Some(phase) = ended {
        let why = pod.reason.as_ref().or(pod.message.as_ref()).map(|r| format!(" ({r})")).unwrap_or_default();
        return Some(ConditionValue::no(reason::POD_NOT_RUNNING, format!("Pod {title} is {phase}{why}; another one follows")));
    }
    match pod.container(pod_spec::CONTAINER) {
        Some(ContainerState::Running) => None,
        Some(ContainerState::Terminated(Terminated { exit_code, .. })) => {
            Some(ConditionValue::no(reason::POD_NOT_RUNNING, format!("the container of Pod {title} ended with exit code {exit_code}")))
        }
        Some(ContainerState::Waiting { reason, message }) => Some(waiting(pod, reason.as_deref(), message.as_deref())),
        None if pod.node.is_some() => Some(ConditionValue::no(
            reason::POD_PENDING,
            format!("Pod {title}: it waits for its volumes{}", waiting_container::needed_by_volumes(pod)),
        )),
        None => {
            let why = pod.unscheduled.as_ref().and_then(|u| u.message.as_deref()).unwrap_or("it waits for a node");
            let reason = if unschedulable { reason::UNSCHEDULABLE } else { reason::POD_PENDING };
            Some(ConditionValue::no(reason, format!("Pod {title}: {why}")))
        }
    }
}
