//! The gateway's part of a YoiPod's status: what it should say (pure), and the one place that writes it.
//!
//! # Guarantees
//! * Silence when nothing changed: the age of a hint alone is no change.
//! * Replicas share one field manager, and an apply leaves out what it does not name. So each write carries all of our part together with
//!   the resource version it was computed from: of two replicas that write at once one gets a conflict, reads, and decides anew.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use yoi_crds::YoiPod;
use yoi_crds::name::field_manager;
use yoi_crds::pod::{LastReport, LiveHint, SessionRef, TaskStatus};
use yoi_wire::entry::AgentRef;
use yoi_wire::hub::{self, Activity};

use crate::metrics::{Metrics, count};
use crate::world::{AgentRecord, Key, Ours, World};

/// The schema's bound on a report's message.
const MESSAGE_CHARS: usize = 1024;
/// Who loses this many races in a row lets the next report carry the news.
const TRIES: usize = 6;

/// What is to be true of our part. Each says whose Pod it speaks of, and says nothing of another one.
#[derive(Clone, Debug)]
pub enum Wish {
    /// The runtime in this Pod reported.
    Reported { pod_uid: String, report: hub::RuntimeReport },
    /// A line of this Pod is open.
    Live { pod_uid: String, activity: Activity },
    /// The last line of this Pod has ended.
    NotLive { pod_uid: String },
}

/// Our part as it should be; `None` when it is so already.
pub fn decide(record: &AgentRecord, wish: &Wish, now: &str) -> Option<Ours> {
    let mut ours = record.ours.clone();
    let current = |pod_uid: &String| record.pod_uid.as_ref() == Some(pod_uid);
    match wish {
        Wish::Reported { pod_uid, .. } | Wish::Live { pod_uid, .. } if !current(pod_uid) => return None,
        Wish::Reported { pod_uid, report } => {
            // A runtime that has not replayed yet knows no session; the pointer of the run before stays.
            if let Some(session) = &report.session {
                ours.session = Some(SessionRef { id: session.id.clone(), segment: session.segment.clone() });
            }
            if let Some(task) = &report.task {
                ours.task = Some(TaskStatus { id: task.id.clone(), state: task.state.as_str().to_owned() });
            }
            ours.live = Some(live(ours.live.take(), pod_uid, report.activity.as_str(), now));
            ours.report = Some(LastReport {
                pod_uid: pod_uid.clone(),
                run_generation: i64::try_from(report.run_generation).unwrap_or(i64::MAX),
                ready: report.ready,
                reason: report.reason.clone(),
                message: report.message.chars().take(MESSAGE_CHARS).collect(),
            });
        }
        // A report knows the activity better than the mere fact of a line.
        Wish::Live { .. } if record.hinted_live().is_some() => return None,
        Wish::Live { pod_uid, activity } => ours.live = Some(live(None, pod_uid, activity.as_str(), now)),
        Wish::NotLive { pod_uid } => {
            ours.live.take_if(|live| live.pod_uid == *pod_uid);
        }
    }
    (ours != record.ours).then_some(ours)
}

fn live(before: Option<LiveHint>, pod_uid: &str, activity: &str, now: &str) -> LiveHint {
    match before {
        Some(live) if live.pod_uid == pod_uid && live.activity == activity => live,
        _ => LiveHint { pod_uid: pod_uid.to_owned(), activity: activity.to_owned(), observed_at: now.to_owned() },
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

pub struct StatusWriter {
    client: Client,
    world: Arc<World>,
    metrics: Arc<Metrics>,
}

impl StatusWriter {
    pub fn new(client: Client, world: Arc<World>, metrics: Arc<Metrics>) -> Self {
        StatusWriter { client, world, metrics }
    }

    /// Makes it so. True when something had to be written.
    pub async fn write(&self, agent: &AgentRef, wish: &Wish) -> Result<bool, WriteError> {
        let written = self.write_uncounted(agent, wish).await;
        let outcome = match &written {
            Ok(true) => "written",
            Ok(false) => "unchanged",
            Err(_) => "failed",
        };
        count(&self.metrics.status_writes, outcome);
        written
    }

    async fn write_uncounted(&self, agent: &AgentRef, wish: &Wish) -> Result<bool, WriteError> {
        let api = Api::<YoiPod>::namespaced(self.client.clone(), &agent.namespace);
        let mut known = self.world.agent(&Key::new(&agent.namespace, &agent.name));
        for _ in 0..TRIES {
            let record = match known.take() {
                Some(record) => record,
                None => {
                    let object = api.get_opt(&agent.name).await.map_err(|error| WriteError::Read(agent.clone(), error))?;
                    self.world.learn(object.ok_or_else(|| WriteError::Gone(agent.clone()))?.into())
                }
            };
            if record.name.uid != agent.uid {
                return Err(WriteError::Gone(agent.clone()));
            }
            let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            let Some(ours) = decide(&record, wish, &now) else { return Ok(false) };
            let params = PatchParams::apply(field_manager::GATEWAY).force();
            match api.patch_status(&agent.name, &params, &Patch::Apply(&patch(&record, &ours))).await {
                Ok(object) => {
                    self.world.learn(object.into());
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

fn patch(record: &AgentRecord, ours: &Ours) -> serde_json::Value {
    let Ours { session, task, live, report } = ours;
    let mut status = serde_json::Map::new();
    let parts = [("session", json!(session)), ("task", json!(task)), ("live", json!(live)), ("report", json!(report))];
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
    use yoi_wire::hub::SessionPointer;

    fn record(ours: Ours) -> AgentRecord {
        AgentRecord {
            name: AgentRef { namespace: "ns".into(), name: "a".into(), uid: "u".into() },
            resource_version: "1".into(),
            desired: DesiredState::Running,
            run_generation: 1,
            pod_uid: Some("p1".into()),
            ours,
            unready: None,
        }
    }

    fn reported(pod_uid: &str, activity: Activity) -> Wish {
        let session = Some(SessionPointer { id: "s".into(), segment: "1".into() });
        let report = hub::RuntimeReport {
            run_generation: 1,
            ready: true,
            reason: "Replayed".into(),
            message: "x".repeat(2000),
            session,
            task: None,
            activity,
        };
        Wish::Reported { pod_uid: pod_uid.into(), report }
    }

    #[test]
    fn a_report_is_written_once_and_its_age_is_no_news() {
        let first = decide(&record(Ours::default()), &reported("p1", Activity::Idle), "t1").unwrap();
        assert_eq!(first.report.as_ref().unwrap().message.len(), 1024);
        assert_eq!(decide(&record(first.clone()), &reported("p1", Activity::Idle), "t2"), None);
        let second = decide(&record(first), &reported("p1", Activity::Running), "t3").unwrap();
        assert_eq!(second.live.unwrap().observed_at, "t3");
    }

    #[test]
    fn a_former_pod_says_nothing() {
        for wish in [reported("p0", Activity::Idle), Wish::Live { pod_uid: "p0".into(), activity: Activity::Idle }] {
            assert_eq!(decide(&record(Ours::default()), &wish, "t"), None);
        }
    }

    #[test]
    fn the_end_of_a_former_pods_line_leaves_the_successors_hint() {
        let ours = decide(&record(Ours::default()), &reported("p1", Activity::Running), "t1").unwrap();
        assert_eq!(decide(&record(ours.clone()), &Wish::NotLive { pod_uid: "p0".into() }, "t2"), None);
        assert_eq!(decide(&record(ours.clone()), &Wish::Live { pod_uid: "p1".into(), activity: Activity::Idle }, "t2"), None);
        let after = decide(&record(ours.clone()), &Wish::NotLive { pod_uid: "p1".into() }, "t2").unwrap();
        assert_eq!(after, Ours { live: None, ..ours });
    }

    #[test]
    fn a_report_without_session_keeps_the_pointer() {
        let ours = decide(&record(Ours::default()), &reported("p1", Activity::Idle), "t1").unwrap();
        let Wish::Reported { pod_uid, report } = reported("p1", Activity::Idle) else { unreachable!() };
        let wish = Wish::Reported { pod_uid, report: hub::RuntimeReport { session: None, ready: false, ..report } };
        assert!(decide(&record(ours), &wish, "t2").unwrap().session.is_some());
    }
}
