//! What is true of an agent, in sentences.

use k8s_openapi::api::core::v1::{ContainerState, Pod};
use yoi_crds::YoiPodStatus;
use yoi_crds::condition::{ConditionStatus, ConditionValue, find};
use yoi_crds::pod::{Completion, DesiredState};
use yoi_crds::reason::{self, condition};
use yoi_wire::hub::TaskState;

use super::{Observed, Run, manifest, pod_spec, session, session_claim_name, workspace_name};
use crate::conditions::{self, ConditionSet};
use crate::meta::{controller, deleting, name, namespace, uid};
use crate::workspace::holder;

pub(super) fn accepted(seen: &Observed) -> ConditionValue {
    let yoipod = &seen.yoipod;
    if let Some(field) = yoipod.spec.unknown_field() {
        return conditions::not_understood(field);
    }
    let here = namespace(&yoipod.metadata);
    let missing = |kind: &str, title: &str| {
        ConditionValue::no(reason::SOURCE_NOT_FOUND, format!("{kind} {title} does not exist in namespace {here}"))
    };
    if seen.project.is_none() {
        return missing("YoiProject", &yoipod.spec.project_ref.name);
    }
    if manifest::resolve(yoipod, seen.project.as_deref()).is_none() {
        return ConditionValue::no(
            reason::INVALID_SPEC,
            format!("no model: set spec.model here or spec.defaults.model of YoiProject {}", yoipod.spec.project_ref.name),
        );
    }
    if let Some(refused) = workspace_refused(seen) {
        return refused;
    }
    match &seen.session_claim {
        None if yoipod.spec.session.claim_name.is_some() => return missing("PersistentVolumeClaim", &session_claim_name(yoipod)),
        Some(claim) if session::foreign(yoipod, claim) => {
            let title = name(&claim.metadata);
            return ConditionValue::no(reason::INVALID_SPEC, former_session(name(&yoipod.metadata), here, title));
        }
        _ => {}
    }
    ConditionValue::yes(reason::VALID, "the spec makes sense and what it names exists")
}

/// The spec of a YoiPod says once and for all whose session it has, so the first way out makes the object anew.
fn former_session(yoipod: &str, namespace: &str, claim: &str) -> String {
    format!(
        "claim {claim} holds the session of a former agent of this name. To go on with it: `kubectl delete yoipod {yoipod} -n {namespace}`, then make it \
         again with `spec.session.claimName: {claim}`. To begin anew, and lose that session: `kubectl delete pvc {claim} -n {namespace}`"
    )
}

fn workspace_refused(seen: &Observed) -> Option<ConditionValue> {
    let yoipod = &seen.yoipod;
    let title = workspace_name(yoipod);
    let invalid = |why: String| Some(ConditionValue::no(reason::INVALID_SPEC, why));
    let missing = |title: &str| {
        let here = namespace(&yoipod.metadata);
        Some(ConditionValue::no(reason::SOURCE_NOT_FOUND, format!("AgentWorkspace {title} does not exist in namespace {here}")))
    };
    let named = yoipod.spec.workspace.as_ref();
    let by_ref = named.is_some_and(|w| w.ref_.is_some());
    let forked = named.and_then(|w| w.template.as_ref()?.source.as_ref()?.workspace.as_ref());
    let Some(workspace) = &seen.workspace else {
        return match forked {
            _ if by_ref => missing(title),
            Some(parent) if seen.parent.as_ref().is_none_or(|p| deleting(&p.metadata)) => missing(&parent.name),
            _ => None,
        };
    };
    if workspace.spec.base.is_some() {
        return invalid(format!("AgentWorkspace {title} is a base, and a base is never written again"));
    }
    if workspace.spec.claim {
        return invalid(format!("AgentWorkspace {title} has a claim for other Pods; a YoiPod needs one with claim: false"));
    }
    let theirs = controller(&workspace.metadata).filter(|o| o.uid != uid(&yoipod.metadata));
    match theirs {
        Some(owner) if !by_ref || owner.kind == "YoiPod" => {
            return invalid(format!("AgentWorkspace {title} exists and belongs to {} {}", owner.kind, owner.name));
        }
        _ => {}
    }
    if !by_ref && controller(&workspace.metadata).is_none() {
        return invalid(format!("AgentWorkspace {title} exists and was not made for this YoiPod; name it by spec.workspace.ref to use it"));
    }
    let first = holder(workspace, &seen.users).filter(|h| uid(&h.metadata) != uid(&yoipod.metadata));
    first.and_then(|h| invalid(format!("AgentWorkspace {title} is used by YoiPod {}; two agents cannot share a tree", name(&h.metadata))))
}

/// The current task ended, well or not.
pub(super) fn task_done(seen: &Observed) -> bool {
    matches!(task_state(seen), Some(TaskState::Succeeded | TaskState::Failed))
}

/// What the gateway last said of the task that the spec names now.
fn task_state(seen: &Observed) -> Option<TaskState> {
    let task = manifest::task(&seen.yoipod)?;
    let said = seen.yoipod.status.as_ref()?.task.as_ref().filter(|t| t.id == task.id)?;
    [TaskState::Submitted, TaskState::Running, TaskState::Succeeded, TaskState::Failed].into_iter().find(|s| s.as_str() == said.state)
}

pub(super) fn say(saying: &mut ConditionSet<'_>, seen: &Observed, status: &YoiPodStatus, run: &Run) {
    workspace_ready(saying, seen, run);
    session_ready(saying, seen, status, run);
    saying.say(condition::TASK_COMPLETE, task_complete(seen));
    if !saying.is_true(condition::ACCEPTED) && !matches!(run, Run::Is(_)) {
        saying.ready(&[condition::ACCEPTED], "");
        return;
    }
    match run {
        Run::Unwanted { stopping: true } => saying.say(condition::READY, ConditionValue::no(reason::STOPPING, "the Pod is going down")),
        Run::Unwanted { stopping: false } => saying.say(condition::READY, ConditionValue::no(reason::STOPPED, stopped(seen))),
        Run::Waits(why) => saying.say(condition::READY, why.clone()),
        Run::Coming => saying.say(condition::READY, coming(seen)),
        Run::Is(pod) => running(saying, seen, status, pod),
    }
}

fn stopped(seen: &Observed) -> &'static str {
    match (seen.yoipod.spec.desired_state, seen.yoipod.spec.completion) {
        (DesiredState::Running, Completion::Stop) => "the task is done and completion is Stop",
        (DesiredState::Running | DesiredState::Stopped | DesiredState::Unknown, _) => "desiredState is Stopped",
    }
}

fn coming(seen: &Observed) -> ConditionValue {
    let going = seen.pods.iter().find(|p| deleting(&p.metadata));
    match going {
        Some(pod) => ConditionValue::no(reason::STOPPING, format!("Pod {} is going down; another one follows", name(&pod.metadata))),
        None => ConditionValue::no(reason::STARTING, "the Pod and what it needs are being made"),
    }
}

fn workspace_ready(saying: &mut ConditionSet<'_>, seen: &Observed, run: &Run) {
    let title = workspace_name(&seen.yoipod);
    let Some(workspace) = &seen.workspace else {
        saying.say(condition::WORKSPACE_READY, ConditionValue::no(reason::CREATING, format!("AgentWorkspace {title} does not exist yet")));
        return;
    };
    let conditions = workspace.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
    match (find(conditions, condition::READY), run) {
        (Some(c), _) if c.status == ConditionStatus::True => {
            saying.say(condition::WORKSPACE_READY, ConditionValue::yes(reason::ALL_MET, format!("AgentWorkspace {title} is ready")));
        }
        (_, Run::Waits(why)) => saying.say(condition::WORKSPACE_READY, why.clone()),
        (Some(c), _) => saying.repeat(condition::WORKSPACE_READY, ConditionStatus::False, &c.reason, &c.message),
        (None, _) => {
            saying.say(condition::WORKSPACE_READY, ConditionValue::no(reason::CREATING, format!("AgentWorkspace {title} was just made")))
        }
    }
}

/// The volume is there, and the runtime has locked and replayed the log on it.
fn session_ready(saying: &mut ConditionSet<'_>, seen: &Observed, status: &YoiPodStatus, run: &Run) {
    let title = session_claim_name(&seen.yoipod);
    let type_ = condition::SESSION_READY;
    let Some(claim) = &seen.session_claim else {
        saying.say(type_, ConditionValue::no(reason::CREATING, format!("claim {title} does not exist yet")));
        return;
    };
    match claim.status.as_ref().and_then(|s| s.phase.as_deref()) {
        Some("Lost") => saying.say(type_, ConditionValue::no(reason::CLAIM_LOST, format!("claim {title} lost its volume"))),
        Some("Bound") => match (report(seen, status), run) {
            (Some(r), Run::Is(_)) if r.ready => {
                saying.say(type_, ConditionValue::yes(reason::REPLAYED, "the session is locked and replayed"))
            }
            (Some(r), Run::Is(_)) => saying.repeat(type_, ConditionStatus::False, &r.reason, &r.message),
            (_, Run::Unwanted { .. }) => {
                saying.say(type_, ConditionValue::no(reason::STOPPED, format!("claim {title} keeps the session; no Pod is wanted")))
            }
            _ => {
                saying.say(type_, ConditionValue::no(reason::STARTING, format!("claim {title} is bound; the runtime has not reported yet")))
            }
        },
        _ => saying.say(type_, ConditionValue::no(reason::WAITING_FOR_CONTROLLER, format!("claim {title} waits for its volume"))),
    }
}

fn task_complete(seen: &Observed) -> ConditionValue {
    if seen.yoipod.spec.task.is_none() {
        return ConditionValue::no(reason::NO_TASK, "the spec names no task");
    }
    match task_state(seen) {
        None => ConditionValue::no(reason::TASK_RUNNING, "the task waits to be given to the agent"),
        Some(TaskState::Submitted | TaskState::Running) => ConditionValue::no(reason::TASK_RUNNING, "the task was given to the agent"),
        Some(TaskState::Succeeded) => ConditionValue::yes(reason::TASK_SUCCEEDED, "the task's run finished"),
        Some(TaskState::Failed) => ConditionValue::no(reason::TASK_FAILED, "the task's run failed; the log says why"),
    }
}

/// What the runtime of exactly this Pod and run said.
fn report<'a>(seen: &'a Observed, status: &YoiPodStatus) -> Option<&'a yoi_crds::pod::LastReport> {
    let report = seen.yoipod.status.as_ref()?.report.as_ref()?;
    let pod = status.pod.as_ref()?;
    (report.pod_uid == pod.uid && Some(report.run_generation) == status.run_generation).then_some(report)
}

fn running(saying: &mut ConditionSet<'_>, seen: &Observed, status: &YoiPodStatus, pod: &Pod) {
    if let Some(down) = not_running(pod) {
        let unmet = !saying.is_true(condition::WORKSPACE_READY);
        let last_words = report(seen, status).filter(|r| !r.ready && down.reason == reason::POD_NOT_RUNNING);
        if let Some(r) = last_words {
            // A runtime that ended said why before; its exit code says less.
            saying.repeat(condition::READY, ConditionStatus::False, &r.reason, &r.message);
        } else if down.reason == reason::POD_PENDING && unmet && has_node(pod) {
            // The node is chosen: what holds the Pod up is the tree.
            saying.ready(&[condition::WORKSPACE_READY], "");
        } else {
            saying.say(condition::READY, down);
        }
        return;
    }
    match report(seen, status) {
        Some(r) if r.ready => saying.say(condition::READY, ConditionValue::yes(reason::ALL_MET, "replayed and locked; the agent listens")),
        Some(r) => saying.repeat(condition::READY, ConditionStatus::False, &r.reason, &r.message),
        None => saying.say(condition::READY, ConditionValue::no(reason::STARTING, "the runtime has started and not yet reported")),
    }
}

fn has_node(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|s| s.node_name.is_some())
}

/// Why the agent's container is not running; `None` when it is.
fn not_running(pod: &Pod) -> Option<ConditionValue> {
    let title = name(&pod.metadata);
    let status = pod.status.as_ref();
    if let Some(phase @ ("Failed" | "Succeeded")) = status.and_then(|s| s.phase.as_deref()) {
        let why = status.and_then(|s| s.reason.clone().or_else(|| s.message.clone())).map(|r| format!(" ({r})")).unwrap_or_default();
        return Some(ConditionValue::no(reason::POD_NOT_RUNNING, format!("Pod {title} is {phase}{why}; another one follows")));
    }
    let containers = status.and_then(|s| s.container_statuses.as_ref());
    let state = containers.and_then(|c| c.iter().find(|c| c.name == pod_spec::CONTAINER)).and_then(|c| c.state.as_ref());
    match state {
        Some(ContainerState { running: Some(_), .. }) => None,
        Some(ContainerState { terminated: Some(t), .. }) => {
            Some(ConditionValue::no(reason::POD_NOT_RUNNING, format!("the container of Pod {title} ended with exit code {}", t.exit_code)))
        }
        Some(ContainerState { waiting: Some(w), .. }) => {
            let word = w.reason.as_deref().unwrap_or("waiting");
            let more = w.message.as_deref().filter(|_| word != "CrashLoopBackOff").map(|m| format!(": {m}")).unwrap_or_default();
            let reason = if word == "CrashLoopBackOff" { reason::POD_NOT_RUNNING } else { reason::POD_PENDING };
            Some(ConditionValue::no(reason, format!("the container of Pod {title} waits: {word}{more}")))
        }
        Some(_) | None => {
            let conditions = status.and_then(|s| s.conditions.as_deref()).unwrap_or_default();
            let scheduled = conditions.iter().find(|c| c.type_ == "PodScheduled" && c.status == "False");
            let why = scheduled.and_then(|c| c.message.clone()).unwrap_or_else(|| "it waits for a node".to_owned());
            let why = if has_node(pod) { "it waits for its volumes".to_owned() } else { why };
            Some(ConditionValue::no(reason::POD_PENDING, format!("Pod {title}: {why}")))
        }
    }
}
