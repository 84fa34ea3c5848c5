//! Weak hints to an agent about those that it has started: a run that somebody asked for has ended, a call waits for a person, the agent is back with its session,
//! or nothing runs it any more.
//!
//! # Guarantees
//! * A hint is made of the child's log or status, and says where more is to be read. Nothing is decided by one: a lost one loses nothing.
//! * It wakes nobody: it waits in the parent's inbox for the parent's next run. A parent that rests or has no line gets none.
//! * Its id is made of the child and of what happened, so that it is read once, however often it is sent.
//! * A run that only a message of another agent has started is not told of; one that the parent, a person or the task has started is.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{Method, Request, Uri, header};
use http_body_util::Full;
use tokio::time::timeout;
use yoi_crds::reason::{self, Reason};
use yoi_wire::entry::{AgentRef, Body as EntryBody, RunEnded};
use yoi_wire::entry_text::run_outcome;
use yoi_wire::hub::{Activity, DeliverRequest, MessageSender, runtime_api};
use yoi_wire::people::LogLine;

use crate::GatewayState;
use crate::agent_index::AgentRecord;
use crate::log_lines::for_each_line;
use crate::people::{WhenStopped, read_from_runtime};

/// Reasons whose messages the operator writes: no text of the agent is in them.
const OPERATOR_REASONS: [Reason; 4] = [reason::NODE_LOST, reason::NODE_NOT_READY, reason::POD_NOT_RUNNING, reason::STOPPED];
/// Entries at the end of a log that are looked through.
const LOOKED_THROUGH: u32 = 400;

/// A report of a runtime that is ready.
pub struct ReadyReport {
    pub activity: Option<Activity>,
    pub pod_uid: String,
    /// Of the Pod.
    pub run_generation: i64,
    /// The Pod's first one.
    pub is_first: bool,
}

/// Tells the parent of an agent that has reported what it does, if there is something to tell. Returns at once.
pub fn after_report(gateway: &Arc<GatewayState>, agent: &AgentRef, report: ReadyReport) {
    let ReadyReport { activity, pod_uid, run_generation, is_first } = report;
    let activity = activity.filter(|activity| matches!(activity, Activity::Idle | Activity::NeedsInput));
    // The first run of an agent is its start, of which its parent knows.
    let is_back = is_first && run_generation > 1;
    if activity.is_none() && !is_back {
        return;
    }
    let Some(child) = gateway.agents.by_uid(&agent.uid) else { return };
    let Some(parent) = parent_of(gateway, &child) else { return };
    let gateway = gateway.clone();
    tokio::spawn(async move {
        if is_back {
            let sent = send(&gateway, &child, &parent, &format!("back-{pod_uid}"), "It is back, and goes on with its session.").await;
            log_unsent(&child, &parent, sent);
        }
        if let Some(activity) = activity {
            let sent = notify(&gateway, &child, &parent, activity).await;
            log_unsent(&child, &parent, sent);
        }
    });
}

/// Tells the parent that nothing runs the agent in this Pod any more, unless it has come back there. Called some time after the end of its line, when its status
/// says why. `before` is what was known of it while it had the line.
pub async fn after_line(gateway: &GatewayState, before: Option<Arc<AgentRecord>>, pod_uid: &str) {
    let Some(before) = before.filter(|before| before.spawned_by.is_some()) else { return };
    let is_there = gateway.lines.get(&before.name.uid).is_some_and(|line| line.pod_uid == pod_uid);
    let Some(parent) = parent_of(gateway, &before).filter(|_| !is_there && !gateway.stopping.is_cancelled()) else { return };
    let Some((what, text)) = end_of(gateway.agents.by_uid(&before.name.uid).as_deref(), pod_uid) else { return };
    let sent = send(gateway, &before, &parent, &format!("{what}-{pod_uid}"), &text).await;
    log_unsent(&before, &parent, sent);
}

/// Why nothing runs an agent in this Pod, as a part of an id, and a sentence. `None` where the agent has only gone to rest, or to another Pod by now.
fn end_of(now: Option<&AgentRecord>, pod_uid: &str) -> Option<(&'static str, String)> {
    let Some(now) = now else { return Some(("deleted", "Its YoiPod is gone, and with it what it has not committed.".to_owned())) };
    let is_elsewhere = now.pod_uid.as_ref().is_some_and(|current| current != pod_uid);
    if is_elsewhere || now.may_be_woken || now.has_closed_inbox() {
        return None;
    }
    let why = now.unready.as_ref().map(|(reason, message)| {
        // Other messages may hold text of the child, which the parent's model must not take for the gateway's.
        let is_operators = OPERATOR_REASONS.iter().any(|known| **known == *reason);
        if is_operators { format!(" ({reason}: {message})") } else { format!(" ({reason})") }
    });
    let why = why.unwrap_or_default();
    match (now.is_stopped, &now.unready) {
        (true, _) => Some(("stopped", format!("It has stopped{why}."))),
        (false, Some(_)) => Some(("down", format!("Its container has ended{why}. It is started again where that can be."))),
        // It runs, and only its line to this gateway is gone.
        (false, None) => None,
    }
}

fn parent_of(gateway: &GatewayState, child: &AgentRecord) -> Option<Arc<AgentRecord>> {
    let parent = gateway.agents.by_uid(&child.spawned_by.as_ref()?.uid)?;
    (parent.name.namespace == child.name.namespace).then_some(parent)
}

fn log_unsent(child: &AgentRecord, parent: &AgentRecord, sent: Result<(), String>) {
    if let Err(why) = sent {
        tracing::debug!(object = %child.name, parent = %parent.name, why, "parent not told of its child");
    }
}

async fn notify(gateway: &GatewayState, child: &AgentRecord, parent: &AgentRecord, activity: Activity) -> Result<(), String> {
    let path = format!("{}?follow=false&tail={LOOKED_THROUGH}", runtime_api::LOG);
    let log = read_from_runtime(gateway, child, path, WhenStopped::Nobody).await.map_err(|failure| failure.into_plain().1)?;
    let events = Events::read(log, &parent.name.uid).await;
    let Some((what, text)) = events.notice(activity) else { return Ok(()) };
    send(gateway, child, parent, &what, &text).await
}

/// `what` happened, as a part of an id.
async fn send(gateway: &GatewayState, child: &AgentRecord, parent: &AgentRecord, what: &str, text: &str) -> Result<(), String> {
    let message = DeliverRequest {
        message_id: format!("notice-{}-{what}", child.name.uid),
        from: MessageSender { agent: Some(child.name.clone()), person: None },
        text: format!("[A notice about {}, which you started] {text} PodState and PodLog say more.", child.name.name),
        only_when_idle: false,
        weak: true,
    };
    let body = serde_json::to_vec(&message).map_err(|error| error.to_string())?;
    let line = gateway.delivery.line_to(parent, None).await.map_err(|refusal| refusal.message)?;
    let mut request = Request::new(Full::new(bytes::Bytes::from(body)));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::from_static(runtime_api::INBOX);
    request.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    let answer = timeout(gateway.settings.ack_timeout, line.request(request)).await.map_err(|_| "no acknowledgement".to_owned())?;
    let answer = answer.map_err(|error| yoi_wire::error_chain(&error))?;
    if answer.status().is_success() { Ok(()) } else { Err(format!("the parent's runtime answered {}", answer.status())) }
}

/// What the end of a log says that a parent may want to know.
#[derive(Debug, Default)]
struct Events {
    /// Ids of inputs, and whether the parent, a person or the task gave them.
    inputs: BTreeMap<String, bool>,
    /// Runs that one of these has started.
    asked: Vec<String>,
    ended: Option<RunEnded>,
    /// The call that waits for a person: its number and its tool.
    waits: Option<(u64, String)>,
}

impl Events {
    async fn read(log: Body, parent_uid: &str) -> Self {
        let mut events = Events::default();
        let take = |line: &[u8]| -> Result<ControlFlow<()>, serde_json::Error> {
            let LogLine { token: _, entry } = serde_json::from_slice(line)?;
            events.take(entry.seq, entry.body, parent_uid);
            Ok(ControlFlow::Continue(()))
        };
        // Of a log that breaks off, what was read counts: it is a hint.
        let _ = for_each_line(log, take).await;
        events
    }

    fn take(&mut self, seq: u64, body: EntryBody, parent_uid: &str) {
        match body {
            EntryBody::Input(input) => drop(self.inputs.insert(input.message_id, true)),
            EntryBody::PeerMessage(message) => drop(self.inputs.insert(message.message_id, message.from.uid == parent_uid)),
            // One whose cause is older than what was read went on for long: somebody wants to know of it.
            EntryBody::RunStarted(run) if run.cause.iter().any(|id| self.inputs.get(id).copied().unwrap_or(true)) => {
                self.asked.push(run.run_id);
            }
            // A paused run goes on because a person has said so.
            EntryBody::Resumed(resumed) => self.asked.push(resumed.run_id),
            EntryBody::RunEnded(ended) => (self.ended, self.waits) = (Some(ended), None),
            EntryBody::ToolAsked(asked) => self.waits = Some((seq, asked.tool)),
            EntryBody::ToolAnswered(_) => self.waits = None,
            _ => {}
        }
    }

    /// What happened, as a part of an id, and a sentence.
    fn notice(&self, activity: Activity) -> Option<(String, String)> {
        match activity {
            Activity::NeedsInput => {
                let (seq, tool) = self.waits.as_ref()?;
                Some((format!("asked-{seq}"), format!("Its call {seq} of {tool} waits for a person, who is asked already.")))
            }
            Activity::Idle => {
                let ended = self.ended.as_ref().filter(|ended| self.asked.contains(&ended.run_id))?;
                let why = ended.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
                let id: String = ended.run_id.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(64).collect();
                Some((id, format!("Its run has ended: {}{why}.", run_outcome(ended.outcome))))
            }
            Activity::Running | Activity::Paused => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn line(seq: usize, kind: &str, body: Value) -> String {
        let entry = json!({ "id": "i", "seq": seq, "run": 1, "at": "2026-01-01T00:00:00.000Z", "kind": kind, "body": body });
        format!("{}\n", json!({ "token": format!("s.{seq}"), "entry": entry }))
    }

    fn message(seq: usize, id: &str, uid: &str) -> String {
        line(seq, "PeerMessage", json!({ "messageId": id, "from": { "namespace": "ns", "name": "x", "uid": uid }, "text": "t" }))
    }

    fn run(seq: usize, id: &str, cause: &str) -> String {
        let ended = json!({ "runId": id, "outcome": "failed", "reason": "Refused", "message": "words of the model's endpoint" });
        line(seq, "RunStarted", json!({ "runId": id, "cause": [cause] })) + &line(seq + 1, "RunEnded", ended)
    }

    async fn notice(log: &str, activity: Activity) -> Option<(String, String)> {
        Events::read(Body::from(log.to_owned()), "u-lead").await.notice(activity)
    }

    #[tokio::test]
    async fn e7_b19_a_run_of_the_parent_a_person_or_the_task_is_told_of_and_one_of_another_agents_message_is_not() {
        let task = line(1, "Input", json!({ "from": "task", "messageId": "t", "text": "t" }));
        let told = notice(&(task.clone() + &run(2, "run-2", "t")), Activity::Idle).await;
        assert_eq!(told, Some(("run-2".to_owned(), "Its run has ended: failed (Refused).".to_owned())));
        let of_parent = message(1, "m", "u-lead") + &run(2, "run-2", "m");
        assert!(notice(&of_parent, Activity::Idle).await.is_some());
        let of_peer = message(4, "p", "u-peer") + &run(5, "run-5", "p");
        assert_eq!(notice(&(task + &run(2, "run-2", "t") + &of_peer), Activity::Idle).await, None);
        // A person lets a paused run go on.
        let paused = message(4, "p", "u-peer") + &line(5, "RunStarted", json!({ "runId": "r", "cause": ["p"] }));
        let resumed = line(6, "Resumed", json!({ "runId": "r", "by": { "user": "jane", "requestId": "q" } }));
        let ended = line(7, "RunEnded", json!({ "runId": "r", "outcome": "finished" }));
        assert!(notice(&(paused + &resumed + &ended), Activity::Idle).await.is_some());
    }

    fn record(desired: &str, status: Value) -> AgentRecord {
        let spec = json!({ "projectRef": { "name": "p" }, "agent": { "builtin": {} }, "desiredState": desired });
        let metadata = json!({ "namespace": "ns", "name": "child", "uid": "u-c" });
        let pod: yoi_crds::YoiPod = serde_json::from_value(json!({ "metadata": metadata, "spec": spec, "status": status })).unwrap();
        AgentRecord::from(pod)
    }

    #[test]
    fn g8_an_end_is_told_of_with_what_the_status_says_and_going_to_rest_or_to_another_pod_is_none() {
        let ready = |reason: &str, message: &str| json!([{ "type": "Ready", "status": "False", "reason": reason, "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z" }]);
        let status = |pod: Value, conditions: Value| json!({ "runGeneration": 2, "pod": pod, "conditions": conditions });
        let pod = || json!({ "name": "child-2", "uid": "p" });
        let killed = record("Running", status(pod(), ready("PodNotRunning", "the container of Pod child-2 ended with exit code 137")));
        let (what, text) = end_of(Some(&killed), "p").unwrap();
        assert!(what == "down" && text.contains("exit code 137"), "{what} {text}");
        let stopped = record("Stopped", status(Value::Null, ready("Stopped", "desiredState is Stopped")));
        assert_eq!(end_of(Some(&stopped), "p").map(|(what, _)| what), Some("stopped"));
        let no_line = record("Running", status(pod(), json!([])));
        assert_eq!(end_of(Some(&no_line), "p"), None, "it runs");
        assert_eq!(end_of(None, "p").map(|(what, _)| what), Some("deleted"));
        assert_eq!(end_of(Some(&killed), "an earlier one"), None, "it runs in another Pod");
        let mut rests = status(pod(), json!([]));
        rests["report"] = json!({ "podUID": "p", "runGeneration": 2, "ready": false, "reason": "Resting", "message": "" });
        assert_eq!(end_of(Some(&record("Running", rests)), "p"), None);
    }

    #[tokio::test]
    async fn a_call_that_waits_for_a_person_is_told_of_until_it_is_answered() {
        let asked = json!({ "callId": "c", "tool": "Shell", "from": "model", "rules": ["Shell"], "seconds": 60 });
        let asked = line(7, "ToolAsked", asked);
        let (id, text) = notice(&asked, Activity::NeedsInput).await.unwrap();
        assert!(id == "asked-7" && text.contains("Shell"), "{id} {text}");
        let answered = line(8, "ToolAnswered", json!({ "callId": "c", "asked": 7, "answer": { "approved": true, "by": "jane" } }));
        assert_eq!(notice(&(asked + &answered), Activity::NeedsInput).await, None);
    }
}
