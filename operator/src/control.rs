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
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, warn};
use yoi_crds::{
    AgentWorkspace, AgentWorkspaceStatus, WorkspaceNode, YoiPeer, YoiPeerStatus, YoiPod, YoiPodStatus, YoiProject, YoiProjectStatus,
};
use yoi_plan::settings::Settings;
use yoi_plan::step::Plan;
use yoi_plan::{conditions, nodes, nudge_deleting_claims, peer, project, workspace, yoipod};

use crate::failures::Failures;
use crate::health::Metrics;
use crate::report::Share;
use crate::subject::{Subject, tell};
use crate::world::World;
use crate::{apply, observe, report};

pub struct Context {
    pub client: Client,
    pub world: Arc<World>,
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
        world: Arc<World>,
        settings: Settings,
        recorder: Recorder,
        metrics: Metrics,
        stop: CancellationToken,
        rounds: TaskTracker,
    ) -> Self {
        Context { client, world, settings, recorder, metrics, stop, rounds, failures: Failures::default() }
    }

    fn forget(&self, kind: &str, namespace: &str, name: &str) {
        self.failures.forget(kind, namespace, name);
        self.metrics.failing(self.failures.count());
    }
}

/// A kind that the operator reconciles.
pub trait Governed:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
    type Status: Share + Send + Sync;
    fn said(&self) -> Option<&Self::Status>;
    fn subject(&self) -> Subject {
        Subject::of(self, None)
    }
    fn decide(self: Arc<Self>, context: &Context, now: jiff::Timestamp) -> Plan<Self::Status>;
}

impl Governed for YoiProject {
    type Status = YoiProjectStatus;
    fn said(&self) -> Option<&YoiProjectStatus> {
        self.status.as_ref()
    }
    fn decide(self: Arc<Self>, context: &Context, now: jiff::Timestamp) -> Plan<YoiProjectStatus> {
        project::plan(&observe::project(&context.world, self), &context.settings, now)
    }
}

impl Governed for AgentWorkspace {
    type Status = AgentWorkspaceStatus;
    fn said(&self) -> Option<&AgentWorkspaceStatus> {
        self.status.as_ref()
    }
    fn decide(self: Arc<Self>, context: &Context, now: jiff::Timestamp) -> Plan<AgentWorkspaceStatus> {
        workspace::plan(&observe::workspace(&context.world, self), &context.settings, now)
    }
}

impl Governed for YoiPod {
    type Status = YoiPodStatus;
    fn said(&self) -> Option<&YoiPodStatus> {
        self.status.as_ref()
    }
    fn subject(&self) -> Subject {
        Subject::of(self, self.status.as_ref().and_then(|s| s.run_generation))
    }
    fn decide(self: Arc<Self>, context: &Context, now: jiff::Timestamp) -> Plan<YoiPodStatus> {
        yoipod::plan(&observe::yoipod(&context.world, self), &context.settings, now)
    }
}

impl Governed for YoiPeer {
    type Status = YoiPeerStatus;
    fn said(&self) -> Option<&YoiPeerStatus> {
        self.status.as_ref()
    }
    fn decide(self: Arc<Self>, context: &Context, now: jiff::Timestamp) -> Plan<YoiPeerStatus> {
        peer::plan(&observe::peer(&context.world, self), now)
    }
}

/// One round. The status is written whether the steps succeeded or not, and says so if they did not.
async fn reconcile<K: Governed>(object: Arc<K>, context: Arc<Context>) -> Result<Action, apply::Error> {
    context.world.wait().await;
    let _round = context.rounds.token();
    if context.stop.is_cancelled() {
        return Ok(Action::await_change());
    }
    let kind = K::kind(&());
    let _timer = context.metrics.reconcile(&kind, Instant::now());
    let now = jiff::Timestamp::now();
    let plan = Arc::clone(&object).decide(&context, now);
    let subject = object.subject();
    tell!(debug, &subject, steps = plan.steps.len(), status = plan.status.is_some(), "decided");
    let mut failure = None;
    for step in &plan.steps {
        if let Err(error) = apply::apply(&context.client, &subject, step).await {
            failure = Some(error);
            break;
        }
    }
    if let Some(mut status) = plan.status {
        let before = object.said();
        if let Some(error) = failure.as_ref().filter(|e| !e.is_quiet()) {
            let said = before.map(conditions::Conditions::conditions).unwrap_or_default();
            conditions::set_apply_failed(&mut status, said, &error.to_string(), object.meta().generation, now);
        }
        // After an outdated step the status would be outdated too.
        if failure.as_ref().is_none_or(|e| !e.is_quiet()) {
            report::status(&context.client, &context.recorder, &subject, &*object, before, status).await?;
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

fn after_error<K: Governed>(object: Arc<K>, error: &apply::Error, context: Arc<Context>) -> Action {
    after(&object.subject(), error, &context)
}

fn after(subject: &Subject, error: &apply::Error, context: &Context) -> Action {
    if error.is_quiet() {
        tell!(debug, subject, %error, "looking again");
        return Action::requeue(Duration::from_secs(1));
    }
    context.metrics.failed(&subject.kind);
    let pause = context.failures.failed(&subject.kind, &subject.namespace, &subject.name);
    context.metrics.failing(context.failures.count());
    tell!(warn, subject, %error, pause_seconds = pause.as_secs(), "reconcile failed");
    Action::requeue(pause)
}

/// A kind of which the operator takes care now and then, and of which it says nothing.
pub trait Tended: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static {
    fn decide(&self, context: &Context, now: jiff::Timestamp) -> Plan<Infallible>;
}

/// What nodes that are no more left behind goes.
impl Tended for WorkspaceNode {
    fn decide(&self, context: &Context, _: jiff::Timestamp) -> Plan<Infallible> {
        nodes::left_over(self, &context.world.nodes())
    }
}

/// Claims that are being deleted are not forgotten.
impl Tended for PersistentVolumeClaim {
    fn decide(&self, _: &Context, now: jiff::Timestamp) -> Plan<Infallible> {
        nudge_deleting_claims::plan(self, now)
    }
}

async fn tended<K: Tended>(object: Arc<K>, context: Arc<Context>) -> Result<Action, apply::Error> {
    context.world.wait().await;
    let _round = context.rounds.token();
    if context.stop.is_cancelled() {
        return Ok(Action::await_change());
    }
    let subject = Subject::of(&*object, None);
    let plan = object.decide(&context, jiff::Timestamp::now());
    for step in &plan.steps {
        apply::apply(&context.client, &subject, step).await?;
    }
    context.forget(&subject.kind, &subject.namespace, &subject.name);
    Ok(again(plan.requeue_after))
}

/// Runs for ever, like [`run`].
pub async fn tend<K: Tended>(
    trigger: impl Stream<Item = Result<K, watcher::Error>> + Send + 'static,
    store: Store<K>,
    woken: impl Stream<Item = ObjectRef<K>> + Send + 'static,
    context: Arc<Context>,
) {
    let heard = Arc::clone(&context);
    Controller::for_stream(trigger, store)
        .with_config(Config::default().concurrency(1))
        .reconcile_on(woken)
        .run(tended::<K>, |o, e, c| after(&Subject::of(&*o, None), e, &c), context)
        .for_each(|round| {
            ended(round, &heard);
            std::future::ready(())
        })
        .await;
}

type Round<K> = Result<(ObjectRef<K>, Action), kube::runtime::controller::Error<apply::Error, watcher::Error>>;

/// What a round left to be told or forgotten.
fn ended<K: Resource<DynamicType = ()>>(round: Round<K>, context: &Context) {
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
pub async fn run<K: Governed>(
    trigger: impl Stream<Item = Result<K, watcher::Error>> + Send + 'static,
    store: Store<K>,
    woken: impl Stream<Item = ObjectRef<K>> + Send + 'static,
    context: Arc<Context>,
    concurrency: u16,
) {
    let heard = Arc::clone(&context);
    Controller::for_stream(trigger, store)
        .with_config(Config::default().concurrency(concurrency))
        .reconcile_on(woken)
        .run(reconcile::<K>, after_error::<K>, context)
        .for_each(|round| {
            ended(round, &heard);
            std::future::ready(())
        })
        .await;
}
