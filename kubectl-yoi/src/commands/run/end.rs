//! What `run --wait` waits for: the end of the task and of its push, or that the agent is ready; and what is told of it.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;
use yoi_crds::condition::{ConditionStatus, find, is_true};
use yoi_crds::pod::{Completion, PushOutcome, PushResult};
use yoi_crds::reason::{self, condition};
use yoi_crds::{YoiPod, YoiProject};
use yoi_wire::entry::{Body, Entry};
use yoi_wire::hub::Activity;

use crate::cluster::{Cluster, Wait};
use crate::commands::approvals::needs_input;
use crate::commands::push;
use crate::commands::stop_start::not_ready;
use crate::error::Error;
use crate::progress::{Progress, unless_over_soon};
use crate::session_log::LogReader;
use crate::show;

/// How many entries of the log may follow the agent's last words: the end of the run, notices, and what a message of a person started since.
const TAIL: u64 = 100;

/// What `-o json` prints: the agent, and what it said last.
#[derive(Serialize)]
pub struct Ended {
    #[serde(flatten)]
    pub agent: YoiPod,
    /// Absent for an agent without a task, and for one that said nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
}

/// Waits for the end, and returns it with the sentences that tell of it. `followed` says whether whoever reads them has begun to see the log come: then
/// the log tells what goes on, and the answer is not told again. `None`: nobody sees the log.
pub async fn wait(
    cluster: &Cluster,
    name: &str,
    project: &YoiProject,
    has_task: bool,
    timeout: Duration,
    followed: Option<&AtomicBool>,
) -> Result<(Ended, String), Error> {
    let begun = Instant::now();
    let ended = wait_for(cluster, name, project, has_task, timeout, followed).await;
    if let Err(Error::TaskFailed { .. }) = &ended
        && let Some(failure) = last_words(cluster, name).await.failure
    {
        // The object has none of it: neither exit code nor words.
        eprintln!("{}", show::visible(&failure).trim_end());
    }
    let mut agent = ended?;
    if !has_task {
        return Ok((Ended { agent, answer: None }, format!("{name} is ready")));
    }
    let mut pushed = None;
    if agent.spec.push.is_some() && agent.spec.completion == Completion::Stop {
        let (end, outcome) = wait_for_push(cluster, name, timeout.saturating_sub(begun.elapsed())).await?;
        (agent, pushed) = (end, Some(outcome));
    }
    let what = format!("{}: its last words are read", cluster.display_name::<YoiPod>(name));
    let answer = unless_over_soon(&what, last_words(cluster, name)).await.answer;
    let mut sentences = Vec::new();
    if let Some(answer) = answer.as_ref().filter(|_| followed.is_none()) {
        sentences.push(show::visible(answer).trim_end().to_owned());
    }
    sentences.push(format!("task of {name} done"));
    sentences.extend(pushed.map(|outcome| show::one_line(&outcome.message)));
    sentences.push(format!("its changes: {}", cluster.plugin_command(&format!("diff {name}"))));
    Ok((Ended { agent, answer }, sentences.join("\n")))
}

/// Waits until the task has ended, or until the agent is ready when it has no task, or until only a person can help it on.
async fn wait_for(
    cluster: &Cluster,
    name: &str,
    project: &YoiProject,
    has_task: bool,
    timeout: Duration,
    followed: Option<&AtomicBool>,
) -> Result<YoiPod, Error> {
    let goal = if has_task { "task done" } else { "ready" };
    let (mut progress, what) = (Some(Progress::start()), cluster.display_name::<YoiPod>(name));
    // What a person has to do is told beside the log, too. The rest tells whoever shows the log.
    let is_for_person = Cell::new(false);
    let tell = |why: &str| {
        if is_for_person.get() || !followed.is_some_and(|begun| begun.load(Ordering::Relaxed)) {
            progress.get_or_insert_with(Progress::start).set(&format!("{what}: {why}"));
        } else {
            progress = None;
        }
    };
    let until = |pod: Option<&YoiPod>| {
        is_for_person.set(false);
        let Some(pod) = pod else {
            return Err(cluster.gone_error::<YoiPod>(name));
        };
        let conditions = pod.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
        if has_task {
            match find(conditions, condition::TASK_COMPLETE) {
                Some(c) if c.status == ConditionStatus::True => return Ok(Wait::Done(pod.clone())),
                Some(c) if reason::is_task_failure(&c.reason) => {
                    return Err(cluster.task_failed(name, &c.message));
                }
                _ => {}
            }
        } else if is_true(conditions, condition::READY) {
            return Ok(Wait::Done(pod.clone()));
        }
        if needs_input(pod) {
            is_for_person.set(true);
            let command = cluster.plugin_command(&format!("approvals {name}"));
            return Ok(Wait::Pending(format!("NeedsInput: a call waits for a person, see {command}")));
        }
        if pod.status.as_ref().and_then(|s| s.live.as_ref()).is_some_and(|live| live.activity == Activity::Paused) {
            is_for_person.set(true);
            return Ok(Wait::Pending("Paused: a person has paused its run".to_owned()));
        }
        let waits = not_ready(cluster, pod, Some(project));
        is_for_person.set(matches!(waits, Wait::Blocked(_)));
        Ok(waits)
    };
    cluster.watch(name, timeout, goal, until, tell).await
}

/// Waits for what becomes of the push that follows the task.
async fn wait_for_push(cluster: &Cluster, name: &str, timeout: Duration) -> Result<(YoiPod, PushOutcome), Error> {
    let (agent, outcome) = cluster
        .wait(name, timeout, "pushed", |agent: Option<&YoiPod>| {
            let Some(agent) = agent else { return Err(cluster.gone_error::<YoiPod>(name)) };
            Ok(match push_of_task(agent) {
                Some(outcome) => Wait::Done((agent.clone(), outcome)),
                None => Wait::Pending(push_so_far(agent)),
            })
        })
        .await?;
    match outcome.result {
        PushResult::Pushed | PushResult::Nothing => Ok((agent, outcome)),
        PushResult::Failed | PushResult::Unknown => {
            let next = format!("mend what it says and push again: {}", cluster.plugin_command(&format!("push {name}")));
            let message = format!("the task is done, and its push failed: {}", show::one_line(&outcome.message));
            Err(cluster.refused_error::<YoiPod>(push::OPERATION, name, message, next))
        }
    }
}

/// What became of the push of the task; `None` while it is to come.
fn push_of_task(agent: &YoiPod) -> Option<PushOutcome> {
    let push = agent.status.as_ref()?.push.as_ref()?;
    // Its outcome is written with this. A person's push may have ended since, and is told then, as the newer.
    push.task.as_ref()?;
    push.outcome.clone()
}

fn push_so_far(agent: &YoiPod) -> String {
    let status = agent.status.as_ref();
    let pushed = status.and_then(|status| find(&status.conditions, condition::PUSHED));
    pushed.map_or_else(|| "the task is done, its push begins".to_owned(), |pushed| pushed.message.clone())
}

/// The end of a log.
#[derive(Debug, Default)]
struct LastWords {
    /// What the agent said last.
    answer: Option<String>,
    /// Why its last run did not finish.
    failure: Option<String>,
}

/// What stands at the end of the log. The task has ended however that reads, so a log that cannot be read is told and fails nothing.
async fn last_words(cluster: &Cluster, agent: &str) -> LastWords {
    let mut words = LastWords::default();
    let mut reader = LogReader { cluster, agent, follow: false, after: None, tail: Some(TAIL) };
    let read = reader.for_each(|_, line| {
        record(&mut words, &line.entry);
        Ok(ControlFlow::<()>::Continue(()))
    });
    if let Err(error) = read.await {
        eprintln!("the task has ended; its log could not be read: {}", show::visible(&error.to_string()));
    }
    words
}

fn record(words: &mut LastWords, entry: &Entry) {
    match &entry.body {
        Body::Assistant(said) if !said.text.is_empty() => words.answer = Some(said.text.clone()),
        Body::RunEnded(end) => words.failure.clone_from(&end.message),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn agent(push: serde_json::Value) -> YoiPod {
        serde_json::from_value(json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPod", "metadata": { "name": "a", "namespace": "ns" },
            "spec": { "projectRef": { "name": "p" }, "agent": { "builtin": {} }, "task": "t", "push": {}, "completion": "Stop" },
            "status": { "push": push } }))
        .unwrap()
    }

    #[test]
    fn the_push_of_a_task_has_ended_when_its_outcome_is_there_and_not_when_the_task_is_done() {
        let outcome = |id| json!({ "id": id, "branch": "b", "result": "Failed", "message": "refused by a hook", "finishedAt": "2026-01-01T00:00:00Z" });
        for (push, ended) in [
            (json!({}), false),
            (json!({ "outcome": outcome("of a person") }), false),
            (json!({ "task": "t1" }), false),
            (json!({ "task": "t1", "outcome": outcome("t1") }), true),
            (json!({ "task": "t1", "outcome": outcome("p1"), "endedRequest": "p1" }), true),
        ] {
            assert_eq!(push_of_task(&agent(push.clone())).is_some(), ended, "{push}");
        }
    }

    #[test]
    fn the_answer_is_the_last_text_of_the_agent() {
        let mut words = LastWords::default();
        let failed = json!({ "runId": "r", "outcome": "failed", "reason": "ProgramFailed", "message": "command ended with exit code 3" });
        for (kind, body) in [
            ("Assistant", json!({ "text": "first" })),
            ("Assistant", json!({ "text": "last" })),
            ("Assistant", json!({ "text": "" })),
            ("RunEnded", failed),
        ] {
            let entry = json!({ "id": "i", "seq": 1, "run": 1, "at": "2026-01-01T00:00:00.000Z", "kind": kind, "body": body });
            record(&mut words, &serde_json::from_value(entry).unwrap());
        }
        assert_eq!((words.answer.as_deref(), words.failure.as_deref()), (Some("last"), Some("command ended with exit code 3")));
    }
}
