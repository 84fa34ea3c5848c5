//! The watch and the queue around the making context.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use kube::api::Api;
use kube::runtime::controller::{self, Action, Controller};
use kube::runtime::reflector::{self, ObjectRef};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tracing::Instrument;
use yoi_crds::AgentWorkspace;
use yoi_workspace::Uid;

use super::orphans;
use super::provisioning::{self, Next, Outcome};
use super::state::{Error, ShimState};
use super::workspace_cache::uid_of;
use super::workspace_report::WorkspaceReporter;
use crate::chain::whole;
use crate::mounter::log_context::LogContext;

/// Trees made, sealed or destroyed side by side.
const CONCURRENCY: u16 = 32;
/// A making that takes longer is announced.
const SLOW_CREATION: Duration = Duration::from_secs(1);

struct ControllerContext {
    state: Arc<ShimState>,
    reports: WorkspaceReporter,
    failures: Mutex<HashMap<Uid, u32>>,
}

#[derive(Debug, thiserror::Error)]
enum ReconcileError {
    #[error(transparent)]
    Error(#[from] Error),
    #[error("failed to report to the API server")]
    Report(#[from] kube::Error),
}

/// Runs until the state stops.
pub async fn run(state: Arc<ShimState>, client: Client, requeued: UnboundedReceiver<ObjectRef<AgentWorkspace>>) {
    let api: Api<AgentWorkspace> = Api::all(client.clone());
    let mine = watcher::Config::default().fields(&format!("status.nodeName={}", state.node));
    let (reader, writer) = reflector::store();
    let watching = state.clone();
    let (orphan_events, received) = unbounded_channel();
    let stream = watcher(api, mine)
        .default_backoff()
        .modify(|ws| ws.managed_fields_mut().clear())
        .inspect(move |event| match event {
            Ok(event) => {
                watching.cache.apply_event(event);
                if let Some(event) = orphans::orphan_event(event) {
                    _ = orphan_events.send(event);
                }
            }
            Err(error) => tracing::warn!(error = whole(error), "the watch of workspaces broke"),
        })
        .reflect(writer)
        .applied_objects();
    let orphans_destroyed = orphans::run(state.clone(), client.clone(), received);
    let context = Arc::new(ControllerContext {
        reports: WorkspaceReporter::new(client, &state.node),
        failures: Mutex::default(),
        state: state.clone(),
    });
    let work = Controller::for_stream(stream, reader)
        .with_config(controller::Config::default().concurrency(CONCURRENCY))
        .reconcile_on(UnboundedReceiverStream::new(requeued))
        .run(reconcile, error_policy, context)
        .for_each(|_| async {});
    tokio::select! {
        () = work => {}
        () = orphans_destroyed => {}
        () = state.stop.cancelled() => {}
    }
}

/// Every line that is logged on the way says log_context it is.
async fn reconcile(queued: Arc<AgentWorkspace>, context: Arc<ControllerContext>) -> Result<Action, ReconcileError> {
    let (object, uid) = (object_name(&queued), queued.metadata.uid.clone().unwrap_or_default());
    let span = tracing::info_span!("workspace", object, uid);
    let log_context = LogContext { object: Some(object), uid: Some(uid), ..LogContext::default() };
    log_context.scope(reconcile_workspace(queued, context)).instrument(span).await
}

pub fn object_name(ws: &AgentWorkspace) -> String {
    format!("{}/{}", ws.namespace().unwrap_or_default(), ws.name_any())
}

async fn reconcile_workspace(queued: Arc<AgentWorkspace>, context: Arc<ControllerContext>) -> Result<Action, ReconcileError> {
    let state = &context.state;
    let Some(uid) = uid_of(&queued) else {
        tracing::error!("a workspace's UID is no UUID");
        return Ok(Action::await_change());
    };
    // The cache has what we wrote last; the controller's store may not have heard of it yet.
    let Some(ws) = state.cache.get(uid) else { return Ok(context.succeeded(uid)) };
    let mut work = std::pin::pin!(provisioning::provision(state, &ws, uid));
    let done = tokio::select! {
        done = &mut work => done,
        () = tokio::time::sleep(SLOW_CREATION) => {
            if let Some(update) = provisioning::slow_creation_status(&ws) {
                context.reports.apply(&state.cache, &ws, update, Timestamp::now()).await?;
            }
            work.await
        }
    };
    let Outcome { update, next } = done?;
    let latest = || state.cache.get(uid).unwrap_or_else(|| ws.clone());
    context.reports.apply(&state.cache, &latest(), update, Timestamp::now()).await?;
    match next {
        Next::AwaitChange => Ok(context.succeeded(uid)),
        Next::Retry => Ok(Action::requeue(context.next_backoff(uid))),
        Next::RemoveFinalizer => {
            context.reports.remove_finalizer(&latest()).await?;
            Ok(context.succeeded(uid))
        }
    }
}

fn error_policy(ws: Arc<AgentWorkspace>, error: &ReconcileError, context: Arc<ControllerContext>) -> Action {
    let (object, uid) = (object_name(&ws), ws.metadata.uid.as_deref());
    tracing::warn!(object, uid, error = whole(error), "failed to reconcile a workspace");
    Action::requeue(uid_of(&ws).map_or(SLOW_CREATION, |uid| context.next_backoff(uid)))
}

impl ControllerContext {
    fn succeeded(&self, uid: Uid) -> Action {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).remove(&uid);
        Action::await_change()
    }

    fn next_backoff(&self, uid: Uid) -> Duration {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let count = failures.entry(uid).or_default();
        *count += 1;
        provisioning::backoff(*count)
    }
}
