//! One controller per kind, all alike: observe, plan, apply, report.

mod kinds;
mod resync;

use std::convert::Infallible;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::core::NamespaceResourceScope;
use kube::runtime::controller::{Action, Config, Error as ControllerError};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher::Event;
use kube::runtime::{Controller, watcher};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, warn};
use yoi_crds::YoiPod;
use yoi_plan::conditions;
use yoi_plan::settings::Settings;
use yoi_plan::step::{Plan, Step};
use yoi_watch_cache::{Queued, queue};

use crate::cached::CachedClaim;
use crate::conversation_events::LiveConversations;
use crate::event_recorder::EventRecorder;
use crate::failures::Failures;
use crate::health::Metrics;
use crate::log_subject::{LogSubject, log_for};
use crate::progress_delay::ProgressDelay;
use crate::report::OwnedFields;
use crate::watch_caches::{CachedObject, WatchCaches};
use crate::{apply, report};

/// A plan that asks for a later look gets one after this time, and asks again.
const LONGEST: Duration = Duration::from_mins(10);

/// What every controller works with.
pub struct Context {
    pub client: Client,
    pub caches: Arc<WatchCaches>,
    pub settings: Settings,
    pub recorder: EventRecorder,
    pub metrics: Metrics,
    /// Reconciles at the same time, of each kind.
    pub concurrency: u16,
    /// Cancelled when the process stops: no reconcile begins any more.
    pub stop: CancellationToken,
    /// Reconciles under way.
    pub under_way: TaskTracker,
    pub failures: Failures,
    pub progress: ProgressDelay,
    pub conversations: LiveConversations,
}

impl Context {
    fn forget_failures(&self, kind: &str, namespace: &str, name: &str) {
        self.failures.forget(kind, namespace, name);
        self.metrics.failing(self.failures.count());
    }

    /// Returns how much longer a status waits before it is written; `None` for one that is written now, or says nothing new.
    fn status_wait<K: Reconciled>(&self, object: &K, subject: &LogSubject, status: &K::Status) -> Option<Duration> {
        let (kind, namespace, name) = (&subject.kind, &subject.namespace, &subject.name);
        let wait = object.status_may_wait(status).then(|| self.progress.remaining(kind, namespace, name, Instant::now())).flatten();
        if wait.is_none() {
            self.progress.forget(kind, namespace, name);
        }
        wait
    }
}

/// A kind that the operator reconciles, and whose status it writes.
pub trait Reconciled:
    CachedObject + Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
    type Status: OwnedFields + Send + Sync;

    fn current_status(&self) -> Option<&Self::Status>;

    /// Whether only people look at what this status says anew.
    fn status_may_wait(&self, status: &Self::Status) -> bool {
        report::may_wait(self.current_status(), status)
    }

    fn log_subject(&self) -> LogSubject {
        LogSubject::of(self, None)
    }

    /// Every object of the kind, in no order.
    fn all(caches: &WatchCaches) -> Vec<Arc<Self>>;

    fn plan(self: Arc<Self>, context: &Context, now: jiff::Timestamp) -> Plan<Self::Status>;

    /// What people hear of as Events, beside the changes of conditions.
    fn news(&self, _context: &Context) -> Vec<conditions::Event> {
        Vec::new()
    }
}

/// A kind that the operator takes care of without writing a status.
pub trait Maintained: CachedObject + Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static {
    fn plan(&self, context: &Context, now: jiff::Timestamp) -> Plan<Infallible>;
}

/// Runs the controller of a kind. Never returns; panics if a reconcile does.
pub async fn reconcile<K: Reconciled>(
    events: impl Stream<Item = Result<Event<Arc<K>>, watcher::Error>> + Send + 'static,
    triggers: impl Stream<Item = ObjectRef<Queued<K>>> + Send + 'static,
    context: Arc<Context>,
) {
    let (queue, names) = queue(events);
    let results = Arc::clone(&context);
    Controller::for_stream(queue, names)
        .with_config(Config::default().concurrency(context.concurrency))
        .reconcile_on(futures::stream::select(triggers, resync::resync(Arc::clone(&context))))
        .run(
            reconcile_queued::<K>,
            |queued, error, context| requeue_after_error(&subject_of(&queued, &context, K::log_subject), error, &context),
            context,
        )
        .for_each(|result| {
            finish(result, &results);
            std::future::ready(())
        })
        .await;
}

/// Runs the controller of a kind that is maintained, one object at a time. Never returns; panics if a round of it does.
pub async fn maintain<K: Maintained>(
    events: impl Stream<Item = Result<Event<Arc<K>>, watcher::Error>> + Send + 'static,
    triggers: impl Stream<Item = ObjectRef<Queued<K>>> + Send + 'static,
    context: Arc<Context>,
) {
    let (queue, names) = queue(events);
    let results = Arc::clone(&context);
    Controller::for_stream(queue, names)
        .with_config(Config::default().concurrency(1))
        .reconcile_on(triggers)
        .run(
            maintain_queued::<K>,
            |queued, error, context| {
                requeue_after_error(&subject_of(&queued, &context, |object: &K| LogSubject::of(object, None)), error, &context)
            },
            context,
        )
        .for_each(|result| {
            finish(result, &results);
            std::future::ready(())
        })
        .await;
}

/// As [`maintain`], for the claims that are being deleted: a cluster may have many, and the others need nothing.
pub async fn maintain_claims(
    events: impl Stream<Item = Result<Event<Arc<CachedClaim>>, watcher::Error>> + Send + 'static,
    triggers: impl Stream<Item = ObjectRef<Queued<PersistentVolumeClaim>>> + Send + 'static,
    context: Arc<Context>,
) {
    let deleting = |claim: Arc<CachedClaim>| claim.metadata.is_deleting().then(|| Arc::new(claim.observed()));
    let events = events.filter_map(move |event| {
        let event = match event {
            Ok(Event::Init) => Some(Ok(Event::Init)),
            Ok(Event::InitApply(claim)) => deleting(claim).map(Event::InitApply).map(Ok),
            Ok(Event::InitDone) => Some(Ok(Event::InitDone)),
            Ok(Event::Apply(claim)) => deleting(claim).map(Event::Apply).map(Ok),
            Ok(Event::Delete(claim)) => deleting(claim).map(Event::Delete).map(Ok),
            Err(error) => Some(Err(error)),
        };
        std::future::ready(event)
    });
    maintain(events, triggers, context).await;
}

fn cached<K: CachedObject + Resource<DynamicType = ()>>(queued: &Queued<K>, context: &Context) -> Option<Arc<K>> {
    K::get(&context.caches, &queued.namespace().unwrap_or_default(), &queued.name_any())
}

fn subject_of<K: CachedObject + Resource<DynamicType = ()>>(
    queued: &Queued<K>,
    context: &Context,
    subject: fn(&K) -> LogSubject,
) -> LogSubject {
    cached(queued, context).map_or_else(|| LogSubject::of(queued, None), |object| subject(&object))
}

/// One round. The status is written whether the steps succeeded or not, and says so if they did not.
async fn reconcile_queued<K: Reconciled>(queued: Arc<Queued<K>>, context: Arc<Context>) -> Result<Action, apply::Error> {
    context.caches.wait_until_ready().await;
    let _under_way = context.under_way.token();
    if context.stop.is_cancelled() {
        return Ok(Action::await_change());
    }
    let Some(object) = cached(&queued, &context) else {
        // Deleted since it was queued: the deletion is queued, too.
        return Ok(Action::await_change());
    };
    let _timer = context.metrics.reconcile(&K::kind(&()), Instant::now());
    let now = jiff::Timestamp::now();
    let plan = Arc::clone(&object).plan(&context, now);
    let subject = object.log_subject();
    log_for!(debug, &subject, steps = plan.steps.len(), status = plan.status.is_some(), "decided");
    let (mut failure, mut requeue_after) = (None, plan.requeue_after);
    for step in &plan.steps {
        let applied = if let Step::MakeWarmClaim(claim) = step {
            context.caches.warm_ledger.make(&context.client, &subject, claim).await;
            Ok(())
        } else {
            apply::apply(&context.client, &subject, step).await
        };
        if matches!(step, Step::TakeWarmClaim { .. }) && applied.is_ok() {
            context.metrics.count_warm_taken();
        }
        if let Err(error) = applied {
            failure = Some(error);
            break;
        }
    }
    if let Some(mut status) = plan.status {
        let before = object.current_status();
        if let Some(error) = failure.as_ref().filter(|e| !e.is_quiet()) {
            let conditions = before.map(conditions::Conditions::conditions).unwrap_or_default();
            conditions::set_apply_failed(&mut status, conditions, &error.to_string(), object.meta().generation, now);
        }
        // After an outdated step the status would be outdated too.
        if failure.as_ref().is_some_and(apply::Error::is_quiet) {
            // Dropped.
        } else if let Some(wait) = context.status_wait(&*object, &subject, &status) {
            requeue_after = Some(requeue_after.map_or(wait, |after| after.min(wait)));
        } else {
            report::write_status(&context.client, &context.recorder, &subject, &*object, before, status).await?;
        }
    }
    report::publish_events(&context.recorder, &subject, &*object, object.news(&context));
    match failure {
        Some(error) => Err(error),
        None => {
            context.forget_failures(&subject.kind, &subject.namespace, &subject.name);
            Ok(requeue(requeue_after))
        }
    }
}

async fn maintain_queued<K: Maintained>(queued: Arc<Queued<K>>, context: Arc<Context>) -> Result<Action, apply::Error> {
    context.caches.wait_until_ready().await;
    let _under_way = context.under_way.token();
    if context.stop.is_cancelled() {
        return Ok(Action::await_change());
    }
    let Some(object) = cached(&queued, &context) else { return Ok(Action::await_change()) };
    let subject = LogSubject::of(&*object, None);
    let plan = object.plan(&context, jiff::Timestamp::now());
    for step in &plan.steps {
        apply::apply(&context.client, &subject, step).await?;
    }
    context.forget_failures(&subject.kind, &subject.namespace, &subject.name);
    // There are few, and nothing else looks at them again.
    Ok(requeue(plan.requeue_after.or(Some(LONGEST))))
}

/// When to look at the object again: after what its plan asks for; without that when it is triggered.
fn requeue(after: Option<Duration>) -> Action {
    after.map_or_else(Action::await_change, |after| Action::requeue(after.clamp(Duration::from_millis(100), LONGEST)))
}

fn requeue_after_error(subject: &LogSubject, error: &apply::Error, context: &Context) -> Action {
    if error.is_quiet() {
        log_for!(debug, subject, %error, "looking again");
        return Action::requeue(Duration::from_secs(1));
    }
    context.metrics.count_error(&subject.kind);
    let pause = context.failures.record_failure(&subject.kind, &subject.namespace, &subject.name);
    context.metrics.failing(context.failures.count());
    log_for!(warn, subject, %error, pause_seconds = pause.as_secs(), "reconcile failed");
    Action::requeue(pause)
}

type RoundResult<K> = Result<(ObjectRef<K>, Action), ControllerError<apply::Error, watcher::Error>>;

/// Logs what `requeue_after_error` did not, and forgets the failures of objects that are gone.
fn finish<K: Resource<DynamicType = ()>>(result: RoundResult<K>, context: &Context) {
    match result {
        Ok(_) | Err(ControllerError::ReconcilerFailed(..)) => {}
        Err(ControllerError::ObjectNotFound(gone)) => {
            let namespace = gone.namespace.as_deref().unwrap_or_default();
            context.forget_failures(&K::kind(&()), namespace, &gone.name);
            context.progress.forget(&K::kind(&()), namespace, &gone.name);
            if K::kind(&()) == YoiPod::kind(&()) {
                context.conversations.forget(namespace, &gone.name);
            }
        }
        Err(ControllerError::QueueError(error)) => {
            warn!(kind = %K::kind(&()), %error, "watch failed; it is tried again");
        }
        Err(error) => error!(kind = %K::kind(&()), %error, "controller failed"),
    }
}
