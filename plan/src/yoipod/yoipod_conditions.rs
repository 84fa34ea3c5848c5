//! The conditions of a YoiPod.

use yoi_crds::condition::{ConditionStatus, ConditionValue, find};
use yoi_crds::pod::{Completion, DesiredState, LastReport};
use yoi_crds::reason::{self, Reason, condition};
use yoi_crds::{Condition, YoiPod};
use yoi_wire::hub::TaskState;

use super::run::{RunPlan, RunRecord, RunState};
use super::waiting_container::waiting;
use super::yoipod_input::YoiPodInput;
use super::{
    assets, ending, loan, lost_node, lost_tree, manifest, manifest_current, pod_spec, policy_valid, rest, scope_enforced, waiting_container,
};
use crate::conditions::{ConditionSet, value_of};
use crate::observed_pod::{ContainerState, ObservedPod, PodPhase, Terminated};
use crate::stored::{ClaimPhase, Stored};

/// Conditions that other parts of the plan have found. An agent without one of them does not have it.
pub(super) struct OtherConditions {
    pub reader_ready: Option<ConditionValue>,
    pub pushed: Option<ConditionValue>,
    pub ending: Option<ConditionValue>,
}

/// The conditions after this round. `refused` is why the spec is not accepted.
pub(super) fn conditions(
    input: &YoiPodInput<'_>,
    refused: Option<&ConditionValue>,
    run: &RunPlan<'_>,
    others: OtherConditions,
    now: jiff::Timestamp,
) -> Vec<Condition> {
    let workspace_ready = workspace_ready(input, run);
    let session_ready = session_ready(input, run);
    let ready = match ready(input, refused, &workspace_ready, run, now) {
        // No Pod follows, whatever is said of the next one.
        ready if input.terminating && ready.status != ConditionStatus::True => goes_with_its_namespace(input, run),
        // The runtime's word is one of several.
        ready if ready.status == ConditionStatus::True => first_unmet([&workspace_ready, &session_ready]).unwrap_or(ready),
        ready => ready,
    };
    let valid = || ConditionValue::yes(reason::VALID, "the spec makes sense and what it names exists");
    let mut conditions = ConditionSet::new(&input.before.conditions, input.yoipod.meta().generation, now);
    conditions.set(condition::ACCEPTED, refused.cloned().unwrap_or_else(valid));
    conditions.set(condition::WORKSPACE_READY, workspace_ready);
    conditions.set(condition::SESSION_READY, session_ready);
    let report = report(input, &run.record).filter(|_| matches!(run.state, RunState::Exists(_)));
    if let Some(enforced) = scope_enforced::condition(input, running_pod(run), report) {
        conditions.set(condition::SCOPE_ENFORCED, enforced);
    }
    let fetched = running_pod(run).map(|pod| assets::fetched(pod.get())).unwrap_or_default();
    if let Some(assets) = report.and_then(|report| report.assets.as_ref()) {
        conditions.set(condition::ASSETS_LOADED, assets::condition(&input.yoipod.spec.project_ref.name, assets, &fetched));
    } else if let Some(failed) = running_pod(run).and_then(assets::keeps_from_starting) {
        conditions.set(condition::ASSETS_LOADED, failed);
    }
    if let Some(report) = report {
        if let Some(version) = &report.program {
            conditions.set(condition::PROGRAM_KNOWN, ConditionValue::no(reason::PROGRAM_VERSION_UNKNOWN, version.clone()));
        }
        if let Some(missing) = git_missing(input, report) {
            conditions.set(condition::GIT_FOUND, missing);
        }
        if let Some(lost) = &report.program_session {
            conditions.set(condition::PROGRAM_SESSION_KEPT, ConditionValue::no(reason::PROGRAM_SESSION_LOST, lost.clone()));
        }
    }
    if let Some(current) = manifest_current::condition(input, run.record.manifest.as_ref()) {
        conditions.set(condition::MANIFEST_CURRENT, current);
    }
    if let Some(policy) = policy_valid::condition(input, run.record.manifest.as_ref(), running_pod(run)) {
        conditions.set(condition::POLICY_VALID, policy);
    }
    conditions.set(condition::TASK_COMPLETE, task_complete(input));
    let OtherConditions { reader_ready, pushed, ending } = others;
    for (type_, value) in [(condition::READER_READY, reader_ready), (condition::PUSHED, pushed), (condition::ENDING, ending)] {
        if let Some(value) = value {
            conditions.set(type_, value);
        }
    }
    conditions.set(condition::READY, ready);
    conditions.into_conditions()
}

fn running_pod<'a>(run: &RunPlan<'a>) -> Option<Stored<'a, ObservedPod>> {
    match run.state {
        RunState::Exists(pod) => Some(pod),
        RunState::NotWanted { .. } | RunState::Waits(_) | RunState::Starting => None,
    }
}

/// The current task has ended, well or not.
pub(super) fn is_task_done(yoipod: &YoiPod) -> bool {
    matches!(task_state(yoipod), Some(TaskState::Succeeded | TaskState::Failed))
}

/// The id of the current task, if it has succeeded.
pub(super) fn succeeded_task(yoipod: &YoiPod) -> Option<String> {
    manifest::task(yoipod).filter(|_| task_state(yoipod) == Some(TaskState::Succeeded)).map(|task| task.id)
}

/// What the gateway last reported of the task that the spec names now.
fn task_state(yoipod: &YoiPod) -> Option<TaskState> {
    let task = manifest::task(yoipod)?;
    yoipod.status.as_ref()?.task.as_ref().filter(|t| t.id == task.id)?.state.known()
}

/// The summary, with the reason that helps most.
fn ready(
    input: &YoiPodInput<'_>,
    refused: Option<&ConditionValue>,
    workspace_ready: &ConditionValue,
    run: &RunPlan<'_>,
    now: jiff::Timestamp,
) -> ConditionValue {
    match (&run.state, refused) {
        (_, Some(refused)) => ConditionValue::no(refused.reason, refused.message.clone()),
        (RunState::Exists(pod), None) => pod_ready(input, workspace_ready, run, *pod),
        (RunState::NotWanted { stopping: true }, None) => stopping(input),
        (RunState::NotWanted { stopping: false }, None) if let Some(over) = loan::over(input, now) => over,
        (RunState::NotWanted { stopping: false }, None) if let Some(since) = resting_since(input) => {
            let message = format!("it rests since {since}; a message, a run or somebody who attaches wakes it");
            ConditionValue::no(reason::RESTING, message)
        }
        (RunState::NotWanted { stopping: false }, None) if let Some(over) = ending::lifetime_over(input) => over,
        (RunState::NotWanted { stopping: false }, None) => ConditionValue::no(reason::STOPPED, stopped_message(input)),
        (RunState::Waits(why), None) => why.clone(),
        (RunState::Starting, None) => starting(input),
    }
}

fn goes_with_its_namespace(input: &YoiPodInput<'_>, run: &RunPlan<'_>) -> ConditionValue {
    let namespace = input.yoipod.namespace();
    let pod = match &run.state {
        RunState::Exists(pod) => format!("its Pod {} does not run any more, and", pod.name()),
        RunState::NotWanted { .. } | RunState::Waits(_) | RunState::Starting => match input.own_pods.first() {
            Some(pod) => format!("its Pod {} is going down, and", pod.name()),
            None => "it has no Pod, and".to_owned(),
        },
    };
    ConditionValue::no(reason::NAMESPACE_TERMINATING, format!("namespace {namespace} is being deleted: {pod} none can be made in it"))
}

fn first_unmet(values: [&ConditionValue; 2]) -> Option<ConditionValue> {
    let unmet = values.into_iter().find(|value| value.status != ConditionStatus::True)?;
    Some(ConditionValue::no(unmet.reason, unmet.message.clone()))
}

/// Since when the agent rests; `None` when it has no Pod for another reason.
fn resting_since<'a>(input: &'a YoiPodInput<'_>) -> Option<&'a str> {
    let rest = input.before.rest.as_deref().filter(|_| rest::may_be_woken(input.yoipod.get()))?;
    Some(&rest.since)
}

fn stopped_message(input: &YoiPodInput<'_>) -> &'static str {
    match (input.yoipod.spec.desired_state, input.yoipod.spec.completion) {
        (DesiredState::Running | DesiredState::Suspended, Completion::Stop) => "the task is done and completion is Stop",
        (DesiredState::Running | DesiredState::Suspended | DesiredState::Stopped | DesiredState::Unknown, _) => "desiredState is Stopped",
    }
}

fn stopping(input: &YoiPodInput<'_>) -> ConditionValue {
    let lost = input.own_pods.iter().find_map(|pod| lost_node::goes_down(input, *pod, "it has ended"));
    lost.unwrap_or_else(|| ConditionValue::no(reason::STOPPING, "the Pod is going down"))
}

fn starting(input: &YoiPodInput<'_>) -> ConditionValue {
    match input.pods.iter().chain(&input.readers).find(|pod| pod.is_deleting()) {
        Some(pod) if let Some(lost) = lost_node::goes_down(input, *pod, "another one follows") => lost,
        Some(pod) => ConditionValue::no(reason::STOPPING, format!("Pod {} is going down; another one follows", pod.name())),
        None => ConditionValue::no(reason::STARTING, format!("{}the Pod and what it needs are being made", woken_by(input))),
    }
}

/// What has woken the agent, as the begin of a sentence; empty when nothing has since it last ran.
fn woken_by(input: &YoiPodInput<'_>) -> String {
    let rest =
        input.before.rest.as_deref().filter(|rest| input.before.report.as_ref().is_none_or(|r| r.run_generation <= rest.run_generation));
    rest.and_then(|rest| rest.wake.as_ref()).map(|wake| format!("woken by {}: ", wake.by)).unwrap_or_default()
}

fn workspace_ready(input: &YoiPodInput<'_>, run: &RunPlan<'_>) -> ConditionValue {
    let title = input.workspace_name;
    // Of a stopped agent, too: no start brings it back.
    if let Some(lost) = lost_tree::why(input).or_else(|| lost_node::all_gone(input)) {
        return lost;
    }
    let Some(workspace) = input.workspace else {
        return ConditionValue::no(reason::CREATING, format!("AgentWorkspace {title} does not exist yet"));
    };
    if let (true, Some(pod)) = (workspace.is_deleting(), input.own_pods.first()) {
        let (name, namespace) = (input.yoipod.name(), input.yoipod.namespace());
        let message = format!(
            "AgentWorkspace {title} is being deleted: its tree is destroyed when Pod {} ends, and what is only there is lost then. To see and save that \
             before: `kubectl yoi diff {name} -n {namespace}`, `kubectl yoi patch {name} -n {namespace}`",
            pod.name()
        );
        return ConditionValue::no(reason::WAITING_FOR_PODS, message);
    }
    if run.no_room {
        let message = "no node that holds the base, or could hold the tree, has room for the Pod; it may go to any node that can make the tree, \
                       which gets a base then";
        return ConditionValue::no(reason::NO_ROOM, message);
    }
    match (find(workspace.conditions(), condition::READY), &run.state) {
        (Some(c), _) if c.status == ConditionStatus::True && c.reason == reason::FORMER_SOURCE => {
            ConditionValue::yes(reason::FORMER_SOURCE, format!("AgentWorkspace {title}: {}", c.message))
        }
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
    if let Some(cold) = &run.cold {
        return ConditionValue::no(reason::NO_WARM_SESSION, cold.clone());
    }
    // While its claim is made and waits for its volume, it says why no warm one was taken.
    let before = find(&input.before.conditions, condition::SESSION_READY).filter(|before| before.reason == reason::NO_WARM_SESSION);
    let pending = |reason, message| match before {
        Some(before) => value_of(ConditionStatus::False, &before.reason, &before.message),
        None => ConditionValue::no(reason, message),
    };
    let Some(claim) = input.session_claim.any_claim() else {
        return pending(reason::CREATING, format!("claim {title} does not exist yet"));
    };
    match claim.phase() {
        ClaimPhase::Lost => ConditionValue::no(reason::CLAIM_LOST, format!("claim {title} lost its volume")),
        ClaimPhase::Bound => match (report(input, &run.record), &run.state) {
            (Some(r), RunState::Exists(_)) if r.ready => ConditionValue::yes(reason::REPLAYED, "the session is locked and replayed"),
            (Some(r), RunState::Exists(_)) => value_of(ConditionStatus::False, r.reason.as_str(), &r.message),
            (_, RunState::NotWanted { .. }) => {
                let reason = if resting_since(input).is_some() { reason::RESTING } else { reason::STOPPED };
                ConditionValue::no(reason, format!("claim {title} keeps the session; no Pod is wanted"))
            }
            _ => ConditionValue::no(reason::STARTING, format!("claim {title} is bound; the runtime has not reported yet")),
        },
        ClaimPhase::Other => pending(reason::WAITING_FOR_CONTROLLER, format!("claim {title} waits for its volume")),
    }
}

/// In a tree that was made from nothing nobody needs git.
fn git_missing(input: &YoiPodInput<'_>, report: &LastReport) -> Option<ConditionValue> {
    let has_source = input.project.is_some_and(|project| project.spec.source.empty.is_none() || project.spec.source.takes_trees());
    let message =
        "the image has no git, so diff, pull and push cannot read what the agent has changed while it runs; when it has stopped, they can";
    (report.has_git == Some(false) && has_source).then(|| ConditionValue::no(reason::GIT_MISSING, message))
}

fn task_complete(input: &YoiPodInput<'_>) -> ConditionValue {
    if input.yoipod.spec.task.is_none() {
        return ConditionValue::no(reason::NO_TASK, "the spec names no task");
    }
    match task_state(input.yoipod.get()) {
        None => ConditionValue::no(reason::TASK_RUNNING, "the task waits to be given to the agent"),
        Some(TaskState::Submitted | TaskState::Running) => ConditionValue::no(reason::TASK_RUNNING, "the task was given to the agent"),
        Some(TaskState::Succeeded) => ConditionValue::yes(reason::TASK_SUCCEEDED, "the task's run finished"),
        Some(TaskState::Failed) => task_failed(input),
    }
}

fn task_failed(input: &YoiPodInput<'_>) -> ConditionValue {
    let why = input.before.task.as_ref().and_then(|task| task.reason.as_deref());
    // What a program asks for stands in its own words.
    let login = input.yoipod.spec.agent.cli.as_ref().and_then(|cli| cli.credentials_secret_ref.as_ref());
    let says_no_more = |why: Reason| [reason::TASK_FAILED, reason::PROGRAM_FAILED].contains(&why);
    if let Some(secret) = login.filter(|_| why.and_then(Reason::from_name).is_none_or(says_no_more)) {
        let message = format!(
            "the task's run failed; the log says why. If the program asks for a login there, the one in Secret {} is not good, or no longer",
            secret.name
        );
        return ConditionValue::no(reason::TASK_FAILED, message);
    }
    match why.and_then(Reason::from_name).filter(|reason| reason::is_task_failure(reason)) {
        Some(reason) if reason == reason::PROGRAM_LOGIN_NEEDED => {
            let secret = input.yoipod.spec.agent.cli.as_ref().and_then(|cli| cli.credentials_secret_ref.as_ref());
            let secret = secret.map(|secret| format!(" in Secret {}", secret.name)).unwrap_or_default();
            ConditionValue::no(
                reason,
                format!("the task's run failed: the program asks for a login; the one{secret} is not good, or no longer"),
            )
        }
        Some(reason) => ConditionValue::no(reason, format!("the task's run failed: {reason}; the log says more")),
        None => ConditionValue::no(reason::TASK_FAILED, "the task's run failed; the log says why"),
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
    if let Some(node) = lost_node::not_ready(input, pod) {
        let message =
            format!("node {node} is not ready, and Pod {} is on it; the agent may run on there, and nobody reaches it", pod.name());
        return ConditionValue::no(reason::NODE_NOT_READY, message);
    }
    if let Some(gone) = lost_node::gone(input).filter(|_| pod.node.is_none()) {
        return gone;
    }
    let why_not_running = not_running(pod, pod_spec::CONTAINER, run.unschedulable).filter(|_| !is_ahead_of_kubelet(pod, report));
    if let Some(mut why) = why_not_running {
        if let Some(tree) = lost_node::closed(input, pod) {
            why.message = format!("{tree}. {}", why.message);
        }
        return match report {
            // A runtime that ended has reported why before. Its exit code says less.
            Some(r) if !r.ready && why.reason == reason::POD_NOT_RUNNING => value_of(ConditionStatus::False, r.reason.as_str(), &r.message),
            _ if why.reason == reason::POD_PENDING
                && let Some(refused) = scope_enforced::refused(input, pod) =>
            {
                refused
            }
            _ if why.reason == reason::POD_PENDING
                && let Some(failed) = assets::keeps_from_starting(pod) =>
            {
                failed
            }
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

/// Whether the runtime says that it is ready before the kubelet says that its container runs: nothing but that container has the Pod's token.
fn is_ahead_of_kubelet(pod: Stored<'_, ObservedPod>, report: Option<&LastReport>) -> bool {
    let is_ready = report.is_some_and(|report| report.ready);
    is_ready && pod.node.is_some() && pod.phase == PodPhase::Other && !pod.was_started(pod_spec::CONTAINER)
}

/// Why the Pod's one container is not running; `None` when it is. `unschedulable` as in [`RunPlan`].
pub(super) fn not_running(pod: Stored<'_, ObservedPod>, container: &str, unschedulable: bool) -> Option<ConditionValue> {
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
    match pod.container(container) {
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
