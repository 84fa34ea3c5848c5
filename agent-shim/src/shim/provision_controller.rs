//! The provision controller: the watch of this node's AgentWorkspaces, the work queue, and the report of each result.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use kube::api::Api;
use kube::runtime::controller::{self, Action, Controller};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::Instant;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tracing::Instrument;
use yoi_crds::AgentWorkspace;
use yoi_watch_cache::Queued;

use super::error::Error;
use super::first_reports::FirstReports;
use super::orphans;
use super::provisioning::{self, Next, ProvisionOutcome};
use super::state::{ShimState, StateInputs};
use super::workspace_report::WorkspaceReporter;
use super::workspaces::{object_name, uid_of};
use crate::mounter::log_context::LogContext;
use yoi_wire::error_chain;

/// How many workspaces are reconciled at the same time.
const CONCURRENCY: u16 = 32;
/// A tree that takes longer to make is reported as being created.
const SLOW_CREATION: Duration = Duration::from_secs(1);

struct ControllerContext {
    state: Arc<ShimState>,
    reporter: WorkspaceReporter,
    first_reports: FirstReports,
    /// Failures in a row by the name of the object.
    failures: Mutex<HashMap<String, u32>>,
}

#[derive(Debug, thiserror::Error)]
enum ReconcileError {
    #[error(transparent)]
    Provision(#[from] Error),
    #[error("failed to report to the API server")]
    Report(#[from] kube::Error),
}

/// Runs until [`ShimState::stop`] is cancelled.
pub async fn run(state: Arc<ShimState>, client: Client, inputs: StateInputs) {
    let on_this_node = watcher::Config::default().fields(&format!("status.nodeName={}", state.node));
    let (orphan_events, received) = unbounded_channel();
    let (changed, listed) = (state.clone(), state.node.clone());
    let events = inputs.writer.watch(Api::all(client.clone()), on_this_node, move |change| {
        changed.workspaces.apply_change(change);
        if change.listed {
            // The queue had the names of the listed objects before the cache had the objects.
            changed.workspaces.all().iter().for_each(|ws| changed.requeue(ws));
            changed.unclaimed.wake();
        }
    });
    let events = events.inspect(move |event| match event {
        Ok(event) => {
            if let Some(event) = orphans::orphan_event(event, &listed) {
                _ = orphan_events.send(event);
            }
        }
        Err(error) => tracing::warn!(error = error_chain(error), "the watch of workspaces broke"),
    });
    let (triggers, store) = yoi_watch_cache::queue(events);
    let orphans = orphans::run(state.clone(), client.clone(), received);
    let reporter = WorkspaceReporter::new(client, &state.node);
    let context =
        Arc::new(ControllerContext { reporter, first_reports: FirstReports::default(), failures: Mutex::default(), state: state.clone() });
    let controller = Controller::for_stream(triggers, store)
        .with_config(controller::Config::default().concurrency(CONCURRENCY))
        .reconcile_on(UnboundedReceiverStream::new(inputs.requeued))
        .run(reconcile, error_policy, context)
        .for_each(|_| async {});
    tokio::select! {
        () = controller => {}
        () = orphans => {}
        () = state.stop.cancelled() => {}
    }
}

async fn reconcile(queued: Arc<Queued<AgentWorkspace>>, context: Arc<ControllerContext>) -> Result<Action, ReconcileError> {
    let Some(ws) = context.state.workspaces.by_name(&queued.namespace().unwrap_or_default(), &queued.name_any()) else {
        return Ok(context.clear_failures(&queue_key(&queued)));
    };
    // Each line that is logged on the way names the workspace.
    let (object, uid) = (object_name(&ws), ws.metadata.uid.clone().unwrap_or_default());
    let span = tracing::info_span!("workspace", object, uid);
    let log_context = LogContext { object: Some(object), uid: Some(uid), ..LogContext::default() };
    let work = async {
        let result = reconcile_workspace(ws, &context).await;
        if let Err(error) = &result {
            tracing::warn!(error = error_chain(error), "failed to reconcile a workspace");
        }
        result
    };
    log_context.scope(work).instrument(span).await
}

async fn reconcile_workspace(ws: Arc<AgentWorkspace>, context: &ControllerContext) -> Result<Action, ReconcileError> {
    let state = &context.state;
    let Some(uid) = uid_of(&ws) else {
        tracing::error!("a workspace's UID is no UUID");
        return Ok(Action::await_change());
    };
    let mut work = std::pin::pin!(provisioning::provision(state, &ws, uid));
    let done = tokio::select! {
        done = &mut work => done,
        () = tokio::time::sleep(SLOW_CREATION) => {
            if let Some(update) = provisioning::slow_creation_status(&ws) {
                context.reporter.apply(&state.workspaces, &ws, update, Timestamp::now()).await?;
            }
            work.await
        }
    };
    let ProvisionOutcome { update, next } = done?;
    let latest = || state.workspaces.get(uid).unwrap_or_else(|| ws.clone());
    let update = match context.first_reports.settle(&latest(), uid, update, Instant::now()) {
        Ok(update) => update,
        // The mount wakes this before.
        Err(wait) if next == Next::AwaitChange => return Ok(Action::requeue(wait)),
        Err(_) => return Ok(Action::requeue(context.next_backoff(&object_name(&ws)))),
    };
    context.reporter.apply(&state.workspaces, &latest(), update, Timestamp::now()).await?;
    match next {
        Next::AwaitChange => Ok(context.clear_failures(&object_name(&ws))),
        Next::Retry => Ok(Action::requeue(context.next_backoff(&object_name(&ws)))),
        Next::RemoveFinalizer => {
            context.reporter.remove_finalizer(&latest()).await?;
            Ok(context.clear_failures(&object_name(&ws)))
        }
    }
}

fn error_policy(queued: Arc<Queued<AgentWorkspace>>, _: &ReconcileError, context: Arc<ControllerContext>) -> Action {
    Action::requeue(context.next_backoff(&queue_key(&queued)))
}

/// The same as [`object_name`] of the object.
fn queue_key(queued: &Queued<AgentWorkspace>) -> String {
    format!("{}/{}", queued.namespace().unwrap_or_default(), queued.name_any())
}

impl ControllerContext {
    fn clear_failures(&self, object: &str) -> Action {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).remove(object);
        Action::await_change()
    }

    fn next_backoff(&self, object: &str) -> Duration {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let count = failures.entry(object.to_owned()).or_default();
        *count += 1;
        provisioning::backoff(*count)
    }
}
