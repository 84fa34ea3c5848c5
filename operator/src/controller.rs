//! One controller per kind, all alike: observe, decide, apply, report.

use std::convert::Infallible;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::core::NamespaceResourceScope;
use kube::runtime::controller::{Action, Config};
use kube::runtime::events::Recorder;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::{Controller, watcher};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, warn};
use yoi_crds::{
    AgentWorkspace, AgentWorkspaceStatus, WorkspaceNode, YoiPeer, YoiPeerStatus, YoiPod, YoiPodStatus, YoiProject, YoiProjectStatus,
};
use yoi_plan::settings::Settings;
use yoi_plan::step::Plan;
use yoi_plan::{conditions, network, nodes, nudge_deleting_claims, peer, project, workspace, yoipod};

use crate::cache::Key;
use crate::failures::Failures;
use crate::health::Metrics;
use crate::log_subject::{LogSubject, log_for};
use crate::report::OwnedFields;
use crate::watch_caches::WatchCaches;
use crate::{apply, observe, report};

pub struct Context {
    pub client: Client,
    pub caches: Arc<WatchCaches>,
    pub settings: Settings,
    pub recorder: Recorder,
    pub metrics: Metrics,
    /// Cancelled: no round begins any more.
    pub stop: CancellationToken,
    /// Rounds under way.
    pub rounds: TaskTracker,
    pub failures: Failures,
}

impl Context {
    #[must_use]
    pub fn new(
        client: Client,
        caches: Arc<WatchCaches>,
        settings: Settings,
        recorder: Recorder,
        metrics: Metrics,
        stop: CancellationToken,
        rounds: TaskTracker,
    ) -> Self {
        Context { client, caches, settings, recorder, metrics, stop, rounds, failures: Failures::default() }
    }

    /// No Pod of ours is made where its network policy is not.
    fn with_network_policies<S>(&self, namespace: &str, mut plan: Plan<S>) -> Plan<S> {
        if let Some(rules) = &self.settings.network {
            let existing = self.caches.policies.by(&Key::Namespace(namespace.to_owned()));
            network::before_pods(&mut plan.steps, namespace, rules, &existing);
        }
        plan
    }

    fn forget(&self, kind: &str, namespace: &str, name: &str) {
        self.failures.forget(kind, namespace, name);
        self.metrics.failing(self.failures.count());
    }
}

/// A kind that the operator reconciles.
pub trait Reconciled:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
    type Status: OwnedFields + Send + Sync;
    fn current_status(&self) -> Option<&Self::Status>;
    fn subject(&self) -> LogSubject {
        LogSubject::of(self, None)
    }
    fn plan(self: Arc<Self>, context: &Context, now: jiff::Timestamp) -> Plan<Self::Status>;
}

impl Reconciled for YoiProject {
    type Status = YoiProjectStatus;
    fn current_status(&self) -> Option<&YoiProjectStatus> {
        self.status.as_ref()
    }
    fn plan(self: Arc<Self>, context: &Context, now: jiff::Timestamp) -> Plan<YoiProjectStatus> {
        let namespace = self.namespace().unwrap_or_default();
        let seen = observe::project(&context.caches, self);
        let mut plan = project::plan(&seen, now);
        // A namespace with a project is a namespace with agents.
        if let (Some(rules), Some(_)) = (&context.settings.network, &plan.status) {
            let existing = context.caches.policies.by(&Key::Namespace(namespace.clone()));
            plan.steps.splice(0..0, network::ensure(&namespace, rules, &existing));
        }
        plan
    }
}

impl Reconciled for AgentWorkspace {
    type Status = AgentWorkspaceStatus;
    fn current_status(&self) -> Option<&AgentWorkspaceStatus> {
        self.status.as_ref()
    }
    fn plan(self: Arc<Self>, context: &Context, now: jiff::Timestamp) -> Plan<AgentWorkspaceStatus> {
        let namespace = self.namespace().unwrap_or_default();
        context.with_network_policies(&namespace, workspace::plan(&observe::workspace(&context.caches, self), &context.settings, now))
    }
}

impl Reconciled for YoiPod {
    type Status = YoiPodStatus;
    fn current_status(&self) -> Option<&YoiPodStatus> {
        self.status.as_ref()
    }
    fn subject(&self) -> LogSubject {
        LogSubject::of(self, self.status.as_ref().and_then(|s| s.run_generation))
    }
    fn plan(self: Arc<Self>, context: &Context, now: jiff::Timestamp) -> Plan<YoiPodStatus> {
        let namespace = self.namespace().unwrap_or_default();
        context.with_network_policies(&namespace, yoipod::plan(&observe::yoipod(&context.caches, self), &context.settings, now))
    }
}

impl Reconciled for YoiPeer {
    type Status = YoiPeerStatus;
    fn current_status(&self) -> Option<&YoiPeerStatus> {
        self.status.as_ref()
    }
    fn plan(self: Arc<Self>, context: &Context, now: jiff::Timestamp) -> Plan<YoiPeerStatus> {
        peer::plan(&observe::peer(&context.caches, self), now)
    }
}

/// One round. The status is written whether the steps succeeded or not, and says so if they did not.
async fn reconcile<K: Reconciled>(object: Arc<K>, context: Arc<Context>) -> Result<Action, apply::Error> {
    context.caches.wait().await;
    let _round = context.rounds.token();
    if context.stop.is_cancelled() {
        return Ok(Action::await_change());
    }
    let kind = K::kind(&());
    let _timer = context.metrics.reconcile(&kind, Instant::now());
    let now = jiff::Timestamp::now();
    let plan = Arc::clone(&object).plan(&context, now);
    let subject = object.subject();
    log_for!(debug, &subject, steps = plan.steps.len(), status = plan.status.is_some(), "decided");
    let mut failure = None;
    for step in &plan.steps {
        if let Err(error) = apply::apply(&context.client, &subject, step).await {
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
        if failure.as_ref().is_none_or(|e| !e.is_quiet()) {
            report::write_status(&context.client, &context.recorder, &subject, &*object, before, status).await?;
        }
    }
    match failure {
        Some(error) => Err(error),
        None => {
            context.forget(&subject.kind, &subject.namespace, &subject.name);
            Ok(again(plan.requeue_after))
        }
    }
}

fn again(after: Option<Duration>) -> Action {
    after.map_or_else(Action::await_change, |after| Action::requeue(after.max(Duration::from_millis(100))))
}

fn after_error<K: Reconciled>(object: Arc<K>, error: &apply::Error, context: Arc<Context>) -> Action {
    after(&object.subject(), error, &context)
}

fn after(subject: &LogSubject, error: &apply::Error, context: &Context) -> Action {
    if error.is_quiet() {
        log_for!(debug, subject, %error, "looking again");
        return Action::requeue(Duration::from_secs(1));
    }
    context.metrics.failed(&subject.kind);
    let pause = context.failures.failed(&subject.kind, &subject.namespace, &subject.name);
    context.metrics.failing(context.failures.count());
    log_for!(warn, subject, %error, pause_seconds = pause.as_secs(), "reconcile failed");
    Action::requeue(pause)
}

/// A kind of which the operator takes care now and then, and of which it says nothing.
pub trait Maintained: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static {
    fn plan(&self, context: &Context, now: jiff::Timestamp) -> Plan<Infallible>;
}

/// What nodes that are no more left behind goes.
impl Maintained for WorkspaceNode {
    fn plan(&self, context: &Context, _: jiff::Timestamp) -> Plan<Infallible> {
        nodes::left_over(self, &context.caches.nodes())
    }
}

/// Claims that are being deleted are not forgotten.
impl Maintained for PersistentVolumeClaim {
    fn plan(&self, _: &Context, now: jiff::Timestamp) -> Plan<Infallible> {
        nudge_deleting_claims::plan(self, now)
    }
}

async fn maintain_object<K: Maintained>(object: Arc<K>, context: Arc<Context>) -> Result<Action, apply::Error> {
    context.caches.wait().await;
    let _round = context.rounds.token();
    if context.stop.is_cancelled() {
        return Ok(Action::await_change());
    }
    let subject = LogSubject::of(&*object, None);
    let plan = object.plan(&context, jiff::Timestamp::now());
    for step in &plan.steps {
        apply::apply(&context.client, &subject, step).await?;
    }
    context.forget(&subject.kind, &subject.namespace, &subject.name);
    Ok(again(plan.requeue_after))
}

/// Runs for ever, like [`run`].
pub async fn maintain<K: Maintained>(
    trigger: impl Stream<Item = Result<K, watcher::Error>> + Send + 'static,
    store: Store<K>,
    triggers: impl Stream<Item = ObjectRef<K>> + Send + 'static,
    context: Arc<Context>,
) {
    let for_results = Arc::clone(&context);
    Controller::for_stream(trigger, store)
        .with_config(Config::default().concurrency(1))
        .reconcile_on(triggers)
        .run(maintain_object::<K>, |o, e, c| after(&LogSubject::of(&*o, None), e, &c), context)
        .for_each(|round| {
            finish_round(round, &for_results);
            std::future::ready(())
        })
        .await;
}

type Round<K> = Result<(ObjectRef<K>, Action), kube::runtime::controller::Error<apply::Error, watcher::Error>>;

/// What a round left to be told or forgotten.
fn finish_round<K: Resource<DynamicType = ()>>(round: Round<K>, context: &Context) {
    match round {
        // Told by `after` already.
        Ok(_) | Err(kube::runtime::controller::Error::ReconcilerFailed(..)) => {}
        // Deleted between its event and its turn: nothing of it is kept.
        Err(kube::runtime::controller::Error::ObjectNotFound(gone)) => {
            context.forget(&K::kind(&()), gone.namespace.as_deref().unwrap_or_default(), &gone.name);
        }
        Err(kube::runtime::controller::Error::QueueError(error)) => {
            warn!(kind = %K::kind(&()), %error, "watch failed; it is tried again");
        }
        Err(error) => error!(kind = %K::kind(&()), %error, "controller failed"),
    }
}

/// Runs for ever. Panics if a reconcile does: half a controller must not go on.
pub async fn run<K: Reconciled>(
    trigger: impl Stream<Item = Result<K, watcher::Error>> + Send + 'static,
    store: Store<K>,
    triggers: impl Stream<Item = ObjectRef<K>> + Send + 'static,
    context: Arc<Context>,
    concurrency: u16,
) {
    let for_results = Arc::clone(&context);
    Controller::for_stream(trigger, store)
        .with_config(Config::default().concurrency(concurrency))
        .reconcile_on(triggers)
        .run(reconcile::<K>, after_error::<K>, context)
        .for_each(|round| {
            finish_round(round, &for_results);
            std::future::ready(())
        })
        .await;
}
