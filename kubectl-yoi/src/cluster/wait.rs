//! Waiting for what an object is to become.

use std::convert::Infallible;
use std::time::Duration;

use futures::StreamExt;
use kube::runtime::{WatchStreamExt, watcher};
use tokio::time::Instant;
use yoi_crds::YoiProject;
use yoi_crds::condition::{Condition, ConditionStatus, find};
use yoi_crds::reason::{Reason, Recovery, condition};

use super::{Cluster, NamespacedObject};
use crate::error::{self, Error};
use crate::progress::{Progress, QUIET};
use crate::remedy;
use crate::show;

/// For how long a reason must hold that only a person can fix. A cause that somebody is just making is not fixed yet.
const PERSON_GRACE: Duration = Duration::from_secs(5);
/// As [`PERSON_GRACE`], where another try may help.
const RETRY_GRACE: Duration = Duration::from_secs(30);

/// What became of a wait so far.
pub enum Wait<T> {
    Done(T),
    /// Why not yet.
    Pending(String),
    /// As `Pending`; when the reason holds for long enough, the wait ends with the error.
    Blocked(Blocked),
}

/// A reason for which waiting is of no use.
pub struct Blocked {
    why: String,
    reason: Reason,
    grace: Duration,
    error: Error,
}

/// Returns what a condition that is not True means for a wait: that waiting helps, or that a person has to act first. `next` is the command of a
/// reason that names more than the object.
pub fn blocked<K: NamespacedObject, T>(
    cluster: &Cluster,
    object: &K,
    goal: &'static str,
    condition: Option<&Condition>,
    next: impl FnOnce(Reason) -> Option<String>,
) -> Wait<T> {
    let Some(condition) = condition else { return Wait::Pending("the operator has not seen it yet".to_owned()) };
    let why = format!("{}: {}", condition.reason, condition.message);
    // A condition of an earlier generation says nothing about this one.
    let current = object.meta().generation.is_none_or(|generation| condition.observed_generation >= generation);
    let reason = Reason::from_name(&condition.reason).filter(|_| current && condition.status != ConditionStatus::True);
    let Some(reason) = reason else { return Wait::Pending(why) };
    let grace = match reason.recovery() {
        Recovery::Itself => return Wait::Pending(why),
        Recovery::Person => PERSON_GRACE,
        Recovery::Retried => RETRY_GRACE,
    };
    let grace = grace * cluster.patience_percent / 100;
    let what = cluster.display_name::<K>(object.meta().name.as_deref().unwrap_or_default());
    let next = next(reason).unwrap_or_else(|| remedy::fix_command(object, reason));
    let advice = reason.advice().unwrap_or_default();
    let error = Error::NeedsPerson { what, goal, why: show::one_line(&why), advice, next };
    Wait::Blocked(Blocked { why, reason, grace, error })
}

/// The reason that a wait is held up by, and since when.
#[derive(Default)]
struct Held(Option<(Instant, Blocked)>);

impl Held {
    /// Takes note of a further state. The same reason goes on holding.
    fn set(&mut self, blocked: Blocked) {
        let since = self.0.as_ref().filter(|(_, before)| before.reason == blocked.reason).map(|(since, _)| *since);
        self.0 = Some((since.unwrap_or_else(Instant::now), blocked));
    }

    /// When it has held for long enough.
    fn deadline(&self) -> Option<Instant> {
        self.0.as_ref().map(|(since, blocked)| *since + blocked.grace)
    }
}

impl Cluster {
    /// Watches one object and calls `until` with each state, or with `None` while it does not exist, until that returns [`Wait::Done`]. Meanwhile
    /// it shows why not yet.
    ///
    /// # Errors
    /// The error of `until`, that of a [`Wait::Blocked`] that lasted, or [`Error::TimedOut`] with the last reason.
    pub async fn wait<K: NamespacedObject, T>(
        &self,
        name: &str,
        timeout: Duration,
        goal: &str,
        until: impl FnMut(Option<&K>) -> Result<Wait<T>, Error>,
    ) -> Result<T, Error> {
        let mut progress = Progress::start();
        let what = self.display_name::<K>(name);
        self.watch(name, timeout, goal, until, |why| progress.set(&format!("{what}: {why}"))).await
    }

    /// As [`Cluster::wait`], with `show` in place of the line of progress.
    ///
    /// # Errors
    /// As [`Cluster::wait`].
    pub async fn watch<K: NamespacedObject, T>(
        &self,
        name: &str,
        timeout: Duration,
        goal: &str,
        mut until: impl FnMut(Option<&K>) -> Result<Wait<T>, Error>,
        mut show: impl FnMut(&str),
    ) -> Result<T, Error> {
        let mut stream = watcher::watch_object(self.api::<K>(), name).default_backoff().boxed();
        let mut why = "nothing was heard of it".to_owned();
        let mut held = Held::default();
        let end = Instant::now() + timeout;
        // By then most have passed the states that say nothing, such as that nobody has looked at an object that was just made.
        let (shown_from, mut is_unshown) = (Instant::now() + QUIET, true);
        loop {
            let next = tokio::select! {
                next = stream.next() => next,
                () = tokio::time::sleep_until(shown_from), if is_unshown => {
                    show(&why);
                    is_unshown = false;
                    continue;
                }
                () = tokio::time::sleep_until(held.deadline().map_or(end, |deadline| deadline.min(end))) => match held.0 {
                    Some((since, blocked)) if since + blocked.grace <= end => return Err(blocked.error),
                    _ => break,
                },
            };
            why = match next {
                None => break,
                Some(Ok(object)) => match until(object.as_ref())? {
                    Wait::Done(value) => return Ok(value),
                    Wait::Pending(why) => {
                        held = Held::default();
                        why
                    }
                    Wait::Blocked(blocked) => {
                        let why = blocked.why.clone();
                        held.set(blocked);
                        why
                    }
                },
                // The watcher tries again by itself. The timeout shows its last error.
                Some(Err(error)) => error::watch_error_message(&error),
            };
            is_unshown = Instant::now() < shown_from;
            if !is_unshown {
                show(&why);
            }
        }
        Err(Error::TimedOut {
            what: format!("{}: {goal}", self.display_name::<K>(name)),
            seconds: timeout.as_secs(),
            why: show::one_line(&why),
            next: format!("kubectl describe {} {name} -n {}", K::plural(&()), self.namespace),
        })
    }

    /// Waits until no object of this name has this UID.
    pub async fn wait_gone<K: NamespacedObject>(&self, name: &str, uid: Option<&str>, timeout: Duration) -> Result<(), Error> {
        self.wait(name, timeout, "gone", |object: Option<&K>| {
            let there = object.is_some_and(|object| object.meta().uid.as_deref() == uid);
            Ok(if there { Wait::Pending("it is being deleted".to_owned()) } else { Wait::Done(()) })
        })
        .await
    }

    /// Awaits `made`, something that is made from a project, and ends early when only a person can get the project ready: what is made from it says
    /// no more than that the project is not ready.
    pub async fn unless_project_fails<T>(
        &self,
        project: Option<&str>,
        timeout: Duration,
        made: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let Some(project) = project else { return made.await };
        let trouble = self.watch(
            project,
            timeout,
            "ready",
            |project: Option<&YoiProject>| {
                let Some(project) = project else { return Ok(Wait::Pending(String::new())) };
                let conditions = project.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
                Ok(blocked::<_, Infallible>(self, project, "ready", find(conditions, condition::READY), |_| None))
            },
            |_| {},
        );
        let trouble = async {
            match trouble.await {
                Err(error @ Error::NeedsPerson { .. }) => error,
                // The other wait knows more of a project that is missing, and ends by itself.
                Ok(_) | Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            made = made => made,
            error = trouble => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;
    use yoi_crds::YoiPod;

    /// A cluster with an agent that is not ready for this reason, and stays so: no watch is ever answered.
    fn cluster_with_agent(reason: &str, patience_percent: u32) -> Cluster {
        let agent = json!({ "metadata": { "name": "a", "namespace": "ns" }, "spec": { "projectRef": { "name": "p" }, "agent": { "builtin": {} } },
            "status": { "conditions": [{ "type": "Ready", "status": "False", "reason": reason, "message": "it is not",
                "lastTransitionTime": "2026-01-01T00:00:00Z" }] } });
        let list = json!({ "kind": "List", "apiVersion": "v1", "metadata": { "resourceVersion": "1" }, "items": [agent] }).to_string();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (list, is_watch) = (list.clone(), request.uri().query().is_some_and(|query| query.contains("watch=true")));
            async move {
                if is_watch {
                    std::future::pending::<()>().await;
                }
                Ok::<_, Infallible>(http::Response::new(Body::from(list.into_bytes())))
            }
        });
        Cluster { client: Client::new(service, "default"), namespace: "ns".to_owned(), dry_run: None, patience_percent, conversation: None }
    }

    /// tokio's clock stands still while anything can go on, so these are the very seconds that a person waits.
    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_soon_for_a_person_later_for_what_is_tried_again_and_never_early_for_what_passes() {
        for (reason, percent, seconds) in [
            ("SecretMissing", 100, 5),
            ("ModelUnreachable", 100, 30),
            ("ImagePullFailed", 100, 30),
            ("PopulateFailed", 100, 30),
            ("Unschedulable", 100, 90),
            ("PodPending", 100, 90),
            // As tests of the program set it.
            ("SecretMissing", 1000, 50),
            ("ModelUnreachable", 10, 3),
            ("Unschedulable", 10, 90),
        ] {
            let cluster = cluster_with_agent(reason, percent);
            let begun = Instant::now();
            let waited = cluster.wait("a", Duration::from_secs(90), "ready", |agent: Option<&YoiPod>| {
                let Some(agent) = agent else { return Ok(Wait::Pending("it is not there".to_owned())) };
                let conditions = agent.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
                Ok(blocked::<_, Infallible>(&cluster, agent, "ready", find(conditions, condition::READY), |_| None))
            });
            let error = waited.await.unwrap_err();
            assert_eq!(begun.elapsed().as_secs(), seconds, "{reason} at {percent} percent");
            assert_eq!(matches!(error, Error::NeedsPerson { .. }), seconds < 90, "{reason}: {error}");
            assert!(error.to_string().contains(&format!("{reason}: it is not")), "{error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_passes_within_the_first_second_is_never_shown_and_then_the_latest_is_once() {
        let cluster = cluster_with_agent("PodPending", 100);
        for (seconds, expected) in [(0, vec![]), (3, vec![(1, "no node yet".to_owned())])] {
            let (begun, mut shown) = (Instant::now(), Vec::new());
            let until = |_: Option<&YoiPod>| Ok(Wait::<Infallible>::Pending("no node yet".to_owned()));
            let show = |why: &str| shown.push((begun.elapsed().as_secs(), why.to_owned()));
            cluster.watch("a", Duration::from_millis(500) + Duration::from_secs(seconds), "ready", until, show).await.unwrap_err();
            assert_eq!(shown, expected, "of {seconds}.5 s");
        }
    }
}
