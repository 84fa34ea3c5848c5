//! The fields of a YoiPod's status that the gateway owns: a pure function computes them, and [`StatusWriter`] alone writes them.
//!
//! # Guarantees
//! * Nothing is written when nothing changed. The age of `status.live` alone is no change.
//! * Replicas share one field manager, and an apply removes the fields that it leaves out. So each write carries all of the gateway's fields
//!   and the resource version that they were computed from. Of two replicas that write at once, one gets a conflict, reads the object, and
//!   computes again.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use yoi_crds::YoiPod;
use yoi_crds::assets::AssetsStatus;
use yoi_crds::name::field_manager;
use yoi_crds::pod::{LastReport, LiveHint, RequestedPush, RestStatus, SessionRef, TaskStatus, Wake};
use yoi_wire::assets::{AssetsReport, MAX_ERROR_CHARS, MAX_REPORTED_ERRORS, ReloadedAssets};
use yoi_wire::conversation::{MAX_CONVERSATIONS, is_other_name};
use yoi_wire::entry::AgentRef;
use yoi_wire::hub::{self, Activity, ReportReason};
use yoi_wire::open::Open;

use crate::agent_index::{AgentIndex, AgentRecord, GatewayStatus};
use crate::metrics::{GatewayMetrics, count};

/// The schema's bound on the message of a report, in characters.
const MESSAGE_CHARS: usize = 1024;
/// The schema's bound on what woke an agent, in characters.
const WAKE_CHARS: usize = 256;
/// Attempts of one write. After as many conflicts the next report carries the change.
const TRIES: usize = 6;

/// How often `status.reader.requestedAt` of one agent is written, at most.
pub const REQUEST_READER_EVERY: Duration = Duration::from_secs(60);

/// A change of the gateway's fields; all but the last three are for one Pod. Such a one does not apply when the agent runs in another Pod.
#[derive(Clone, Debug)]
pub enum StatusChange {
    /// The runtime in this Pod reported.
    Reported { pod_uid: String, report: Box<hub::RuntimeReport> },
    /// A line of this Pod is open.
    SetLive { pod_uid: String, activity: Activity },
    /// The last line of this Pod has ended.
    ClearLive { pod_uid: String },
    /// Somebody wants to read what the stopped agent has done.
    RequestReader,
    /// Somebody wants what the agent has committed to be pushed. Nothing changes while a push is under way.
    RequestPush(Box<RequestedPush>),
    /// Something needs the agent, which rests: a sentence's end that says what, and whose. Nothing changes when it was woken before.
    Wake { by: String },
}

/// The gateway's fields after the change. `None` when they are so already, or when the change is about another Pod.
pub fn desired_status(record: &AgentRecord, change: &StatusChange, now: &str) -> Option<GatewayStatus> {
    let mut desired = record.gateway_status.clone();
    let current = |pod_uid: &String| record.pod_uid.as_ref() == Some(pod_uid);
    match change {
        StatusChange::Reported { pod_uid, .. } | StatusChange::SetLive { pod_uid, .. } if !current(pod_uid) => return None,
        StatusChange::Reported { pod_uid, report } => {
            // A runtime that has not replayed yet knows no session. The one of the run before stays.
            if let Some(session) = &report.session {
                desired.session = Some(SessionRef { id: session.id.clone(), segment: session.segment.clone() });
            }
            if let Some(task) = &report.task {
                desired.task = Some(TaskStatus {
                    id: task.id.clone(),
                    state: task.state.clone(),
                    // The schema's bound.
                    reason: task.reason.as_ref().map(|reason| reason.chars().take(64).collect()),
                });
            }
            desired.rest = rest_status(desired.rest.take(), report, now);
            desired.live = Some(live_status(desired.live.take(), pod_uid, &LiveReport::of(report), now));
            desired.report = Some(LastReport {
                pod_uid: pod_uid.clone(),
                run_generation: i64::try_from(report.run_generation).unwrap_or(i64::MAX),
                ready: report.ready,
                reason: report.reason.clone(),
                message: bounded(&report.message),
                volume_run_generation: report.volume_run_generation.map(|seen| i64::try_from(seen).unwrap_or(i64::MAX)),
                scope: report.scope.as_deref().map(bounded),
                has_frame: report.has_frame,
                has_git: report.has_git,
                program: report.program.as_deref().map(bounded),
                program_session: report.program_session.as_deref().map(bounded),
                assets: report.assets.as_ref().map(|assets| Box::new(assets_status(assets))),
            });
        }
        // A report has set the activity, which an open line does not know.
        StatusChange::SetLive { .. } if record.current_live().is_some() => return None,
        StatusChange::SetLive { pod_uid, activity } => {
            desired.live = Some(live_status(None, pod_uid, &LiveReport::only((*activity).into()), now))
        }
        StatusChange::ClearLive { pod_uid } => {
            desired.live.take_if(|live| live.pod_uid == *pod_uid);
        }
        StatusChange::RequestReader if !record.is_stopped || was_requested_just_now(record, now) => return None,
        StatusChange::RequestReader => desired.reader_requested_at = Some(now.to_owned()),
        StatusChange::Wake { .. } if !record.may_be_woken => return None,
        StatusChange::Wake { by } => {
            let by = by.chars().take(WAKE_CHARS).collect();
            if let Some(rest) = &mut desired.rest {
                rest.wake = Some(Wake { requested_at: now.to_owned(), by });
            }
        }
        StatusChange::RequestPush(_) if record.push_under_way().is_some() => return None,
        StatusChange::RequestPush(request) => {
            desired.push = Some(Box::new(RequestedPush { requested_at: now.to_owned(), ..(**request).clone() }))
        }
    }
    (desired != record.gateway_status).then_some(desired)
}

/// Less than a minute ago. Another replica's clock may be a little ahead; a time from far in the future was written by a clock that is wrong.
fn was_requested_just_now(record: &AgentRecord, now: &str) -> bool {
    let time = |text: &str| text.parse::<Timestamp>().ok();
    let asked = record.gateway_status.reader_requested_at.as_deref().and_then(time);
    let ago = asked.zip(time(now)).map(|(asked, now)| now.duration_since(asked));
    ago.is_some_and(|ago| ago.unsigned_abs() < REQUEST_READER_EVERY)
}

/// The schema's bound.
fn bounded(text: &str) -> String {
    text.chars().take(MESSAGE_CHARS).collect()
}

/// Within the schema's bounds.
fn assets_status(AssetsReport { counts, refused, first_errors }: &AssetsReport) -> AssetsStatus {
    let ReloadedAssets { generation, digest: _, skills, commands, workflows, nodes, errors } = counts;
    let count = |count: &u32| i32::try_from(*count).unwrap_or(i32::MAX);
    AssetsStatus {
        generation: i64::try_from(*generation).unwrap_or(i64::MAX),
        skills: count(skills),
        commands: count(commands),
        workflows: count(workflows),
        nodes: count(nodes),
        errors: count(errors),
        refused: *refused,
        first_errors: first_errors.iter().take(MAX_REPORTED_ERRORS).map(|error| error.chars().take(MAX_ERROR_CHARS).collect()).collect(),
    }
}

/// The agent's last rest after this report. A runtime that goes on in the Pod that went to rest has not rested.
fn rest_status(before: Option<Box<RestStatus>>, report: &hub::RuntimeReport, now: &str) -> Option<Box<RestStatus>> {
    let run_generation = i64::try_from(report.run_generation).unwrap_or(i64::MAX);
    let is_of_this_run = before.as_ref().is_some_and(|rest| rest.run_generation == run_generation);
    match (report.reason == ReportReason::Resting, is_of_this_run) {
        (true, false) => Some(Box::new(RestStatus { run_generation, since: now.to_owned(), wake: None })),
        (false, true) => before.filter(|rest| rest.wake.is_some()),
        (true, true) | (false, false) => before,
    }
}

/// What a runtime says of what goes on.
#[derive(Clone, Debug)]
struct LiveReport {
    activity: Open<Activity>,
    background: Option<i32>,
    conversations: Vec<String>,
}

impl LiveReport {
    fn of(report: &hub::RuntimeReport) -> Self {
        // The schema's bounds: a name that is none is the runtime's fault, and spoils no other.
        let names = report.conversations.iter().filter(|name| is_other_name(name)).take(MAX_CONVERSATIONS);
        Self {
            activity: report.activity.clone(),
            background: i32::try_from(report.background).ok().filter(|count| *count > 0),
            conversations: names.cloned().collect(),
        }
    }

    fn only(activity: Open<Activity>) -> Self {
        Self { activity, background: None, conversations: Vec::new() }
    }
}

fn live_status(before: Option<LiveHint>, pod_uid: &str, report: &LiveReport, now: &str) -> LiveHint {
    let LiveReport { activity, background, conversations } = report.clone();
    match before {
        Some(live)
            if live.pod_uid == pod_uid
                && live.activity == activity
                && live.background == background
                && live.conversations == conversations =>
        {
            live
        }
        _ => LiveHint { pod_uid: pod_uid.to_owned(), activity, background, conversations, observed_at: now.to_owned() },
    }
}

#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("failed to find YoiPod {namespace}/{name} with UID {uid}", namespace = .0.namespace, name = .0.name, uid = .0.uid)]
    Gone(AgentRef),
    #[error("failed to read YoiPod {namespace}/{name}", namespace = .0.namespace, name = .0.name)]
    Read(AgentRef, #[source] kube::Error),
    #[error("failed to write the status of YoiPod {namespace}/{name}", namespace = .0.namespace, name = .0.name)]
    Write(AgentRef, #[source] kube::Error),
    #[error("failed to write the status of YoiPod {namespace}/{name}: others wrote it {TRIES} times meanwhile", namespace = .0.namespace, name = .0.name)]
    Contended(AgentRef),
}

/// Writes the gateway's fields of YoiPods.
pub struct StatusWriter {
    client: Client,
    agents: Arc<AgentIndex>,
    metrics: Arc<GatewayMetrics>,
}

impl StatusWriter {
    pub fn new(client: Client, agents: Arc<AgentIndex>, metrics: Arc<GatewayMetrics>) -> Self {
        StatusWriter { client, agents, metrics }
    }

    /// Applies the change, and returns whether it wrote.
    ///
    /// # Errors
    /// [`WriteError::Gone`] when the agent was deleted or replaced.
    pub async fn write(&self, agent: &AgentRef, change: &StatusChange) -> Result<bool, WriteError> {
        let written = self.try_write(agent, change).await;
        let outcome = match &written {
            Ok(true) => "written",
            Ok(false) => "unchanged",
            Err(_) => "failed",
        };
        count(&self.metrics.status_writes, outcome);
        written
    }

    async fn try_write(&self, agent: &AgentRef, change: &StatusChange) -> Result<bool, WriteError> {
        let api = Api::<YoiPod>::namespaced(self.client.clone(), &agent.namespace);
        let mut known = self.agents.get(&agent.namespace, &agent.name);
        for _ in 0..TRIES {
            let record = match known.take() {
                Some(record) => record,
                None => {
                    let object = api.get_opt(&agent.name).await.map_err(|error| WriteError::Read(agent.clone(), error))?;
                    self.agents.learn(object.ok_or_else(|| WriteError::Gone(agent.clone()))?)
                }
            };
            if record.name.uid != agent.uid {
                return Err(WriteError::Gone(agent.clone()));
            }
            let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            let Some(gateway_status) = desired_status(&record, change, &now) else { return Ok(false) };
            let params = PatchParams::apply(field_manager::GATEWAY).force();
            match api.patch_status(&agent.name, &params, &Patch::Apply(&patch(&record, &gateway_status))).await {
                Ok(object) => {
                    self.agents.learn(object);
                    return Ok(true);
                }
                Err(kube::Error::Api(status)) if status.is_conflict() => {}
                Err(kube::Error::Api(status)) if status.is_not_found() => return Err(WriteError::Gone(agent.clone())),
                Err(error) => return Err(WriteError::Write(agent.clone(), error)),
            }
        }
        Err(WriteError::Contended(agent.clone()))
    }
}

fn patch(record: &AgentRecord, gateway_status: &GatewayStatus) -> serde_json::Value {
    let GatewayStatus { session, task, live, report, reader_requested_at, push, rest } = gateway_status;
    let reader = reader_requested_at.as_ref().map(|at| json!({"requestedAt": at}));
    let push = push.as_ref().map(|request| json!({"request": request}));
    let mut status = serde_json::Map::new();
    let parts = [
        ("session", json!(session)),
        ("task", json!(task)),
        ("live", json!(live)),
        ("report", json!(report)),
        ("reader", json!(reader)),
        ("push", json!(push)),
        ("rest", json!(rest)),
    ];
    status.extend(parts.into_iter().filter(|(_, value)| !value.is_null()).map(|(name, value)| (name.to_owned(), value)));
    json!({
        "apiVersion": "yoi.dev/v1alpha1",
        "kind": "YoiPod",
        "metadata": {"name": record.name.name, "namespace": record.name.namespace, "resourceVersion": record.resource_version},
        "status": status,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use yoi_crds::pod::DesiredState;
    use yoi_wire::hub::{ReportReason, SessionPointer};

    fn record(gateway_status: GatewayStatus) -> AgentRecord {
        AgentRecord {
            name: AgentRef { namespace: "ns".into(), name: "a".into(), uid: "u".into() },
            resource_version: "1".into(),
            desired: DesiredState::Running,
            run_generation: 1,
            pod_uid: Some("p1".into()),
            gateway_status,
            unready: None,
            is_stopped: false,
            may_be_woken: false,
            lifetime_is_over: false,
            reader_pod_uid: None,
            pusher_pod_uid: None,
            ended_push: None,
            spawned_by: None,
            not_restorable: None,
            reader_unready: None,
        }
    }

    fn report_change(pod_uid: &str, activity: Activity) -> StatusChange {
        let session = Some(SessionPointer { id: "s".into(), segment: "1".into() });
        let report = hub::RuntimeReport {
            run_generation: 1,
            ready: true,
            reason: ReportReason::Replayed.into(),
            message: "x".repeat(2000),
            session,
            task: None,
            activity: activity.into(),
            volume_run_generation: None,
            scope: None,
            has_frame: None,
            has_git: None,
            program: Some("y".repeat(2000)),
            program_session: Some("z".repeat(2000)),
            assets: Some(AssetsReport {
                counts: ReloadedAssets { generation: u64::MAX, skills: 2, errors: u32::MAX, ..ReloadedAssets::default() },
                refused: true,
                first_errors: vec!["ä".repeat(2000); 9],
            }),
            background: 0,
            refused_calls: std::collections::BTreeMap::new(),
            conversations: ["review", "../x"].map(str::to_owned).into_iter().chain((0..20).map(|n| format!("c-{n}"))).collect(),
        };
        StatusChange::Reported { pod_uid: pod_uid.into(), report: Box::new(report) }
    }

    #[test]
    fn g10_a_report_that_comes_twice_is_written_once_and_its_age_is_no_change() {
        let first = desired_status(&record(GatewayStatus::default()), &report_change("p1", Activity::Idle), "t1").unwrap();
        assert_eq!(first.report.as_ref().unwrap().message.len(), 1024);
        assert_eq!(first.report.as_ref().unwrap().program.as_deref(), Some(&*"y".repeat(1024)));
        let assets = first.report.as_ref().unwrap().assets.clone().unwrap();
        assert_eq!((assets.generation, assets.skills, assets.errors, assets.refused), (i64::MAX, 2, i32::MAX, true));
        assert_eq!(assets.first_errors, vec!["ä".repeat(300); 5], "the schema's bounds");
        assert_eq!(desired_status(&record(first.clone()), &report_change("p1", Activity::Idle), "t2"), None);
        let second = desired_status(&record(first), &report_change("p1", Activity::Running), "t3").unwrap();
        let live = second.live.unwrap();
        assert_eq!((live.observed_at.as_str(), live.conversations.len(), live.conversations[0].as_str()), ("t3", 16, "review"));
        assert_eq!(live.conversations[1], "c-0");
    }

    #[test]
    fn g10_a_late_report_or_line_of_a_former_pod_changes_nothing() {
        for change in [report_change("p0", Activity::Idle), StatusChange::SetLive { pod_uid: "p0".into(), activity: Activity::Idle }] {
            assert_eq!(desired_status(&record(GatewayStatus::default()), &change, "t"), None);
        }
    }

    #[test]
    fn the_end_of_a_former_pods_line_leaves_the_live_status_of_its_successor() {
        let gateway_status = desired_status(&record(GatewayStatus::default()), &report_change("p1", Activity::Running), "t1").unwrap();
        assert_eq!(desired_status(&record(gateway_status.clone()), &StatusChange::ClearLive { pod_uid: "p0".into() }, "t2"), None);
        assert_eq!(
            desired_status(
                &record(gateway_status.clone()),
                &StatusChange::SetLive { pod_uid: "p1".into(), activity: Activity::Idle },
                "t2"
            ),
            None
        );
        let after = desired_status(&record(gateway_status.clone()), &StatusChange::ClearLive { pod_uid: "p1".into() }, "t2").unwrap();
        assert_eq!(after, GatewayStatus { live: None, ..gateway_status });
    }

    #[test]
    fn a_reader_is_asked_for_at_most_once_a_minute_and_only_for_a_stopped_agent() {
        let asked = |is_stopped: bool, before: Option<&str>| {
            let gateway_status = GatewayStatus { reader_requested_at: before.map(str::to_owned), ..GatewayStatus::default() };
            let record = AgentRecord { is_stopped, ..record(gateway_status) };
            desired_status(&record, &StatusChange::RequestReader, "2026-01-01T10:00:00Z").and_then(|status| status.reader_requested_at)
        };
        let now = Some("2026-01-01T10:00:00Z".to_owned());
        assert_eq!(asked(true, None), now);
        assert_eq!(asked(true, Some("2026-01-01T09:59:01Z")), None, "less than a minute ago");
        assert_eq!(asked(true, Some("2026-01-01T10:00:02Z")), None, "by a clock that is a little ahead");
        for before in ["2026-01-01T09:59:00Z", "2026-01-02T00:00:00Z", "yesterday"] {
            assert_eq!(asked(true, Some(before)), now, "{before}");
        }
        assert_eq!(asked(false, None), None);
    }

    #[test]
    fn commands_in_the_background_are_part_of_what_an_agent_does() {
        let with = |background| {
            let StatusChange::Reported { pod_uid, report } = report_change("p1", Activity::Idle) else { unreachable!() };
            StatusChange::Reported { pod_uid, report: Box::new(hub::RuntimeReport { background, ..*report }) }
        };
        let begun = desired_status(&record(GatewayStatus::default()), &with(2), "t1").unwrap();
        assert_eq!(begun.live.as_ref().unwrap().background, Some(2));
        assert_eq!(desired_status(&record(begun.clone()), &with(2), "t2"), None);
        let ended = desired_status(&record(begun), &with(0), "t3").unwrap().live.unwrap();
        assert_eq!((ended.background, ended.observed_at.as_str()), (None, "t3"));
    }

    #[test]
    fn a_report_without_a_session_keeps_the_former_one() {
        let gateway_status = desired_status(&record(GatewayStatus::default()), &report_change("p1", Activity::Idle), "t1").unwrap();
        let StatusChange::Reported { pod_uid, report } = report_change("p1", Activity::Idle) else { unreachable!() };
        let report = Box::new(hub::RuntimeReport { session: None, ready: false, ..*report });
        let change = StatusChange::Reported { pod_uid, report };
        assert!(desired_status(&record(gateway_status), &change, "t2").unwrap().session.is_some());
    }
}
