//! Destroys the trees of workspaces that were deleted without waiting for this node.
//!
//! The API server may read an object without finalizers, delete it, and so ignore a finalizer that was added in between (seen on 1.34: one
//! version has both finalizers and a node, and the next event is the deletion). A workspace that is deleted in its first moments may then be
//! gone while its tree is being made, and nothing would ask for the end of that tree. If the shim was not running at that time, the next
//! listing lacks the object, and the journal still has a record of its tree.

use std::collections::HashMap;
use std::sync::Arc;

use kube::api::Api;
use kube::core::Status;
use kube::runtime::watcher::Event;
use kube::{Client, Resource, ResourceExt};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Duration, sleep};
use yoi_crds::AgentWorkspace;
use yoi_crds::name::finalizer;
use yoi_workspace::Uid;

use super::provisioning::{backoff, destroy_unused_tree};
use super::state::ShimState;
use super::workspaces::uid_of;
use crate::decide::orphan::{OrphanCheck, check_orphan};
use crate::mounter::log_context::LogContext;
use yoi_wire::error_chain;

/// An attempt to provision that began before the deletion was seen may make the tree once more within this time.
const SECOND_PASS_DELAY: Duration = Duration::from_secs(30);

/// A tree whose object may be gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrphanCandidate {
    /// UID of the tree and of its object.
    pub uid: Uid,
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
}

/// What the watch shows that may concern a tree without an object.
#[derive(Debug)]
pub enum OrphanEvent {
    /// An object of this node was deleted with our finalizer on it.
    Deleted(OrphanCandidate),
    /// All objects of this node were listed.
    Listed,
}

/// What an event of the watch means for orphans, or None.
pub fn orphan_event(event: &Event<Arc<AgentWorkspace>>, node: &str) -> Option<OrphanEvent> {
    match event {
        Event::InitDone => Some(OrphanEvent::Listed),
        Event::Delete(ws) => deleted_with_finalizer(ws, node).map(OrphanEvent::Deleted),
        Event::Init | Event::InitApply(_) | Event::Apply(_) => None,
    }
}

fn deleted_with_finalizer(ws: &AgentWorkspace, node: &str) -> Option<OrphanCandidate> {
    let has_finalizer = ws.finalizers().iter().any(|f| f == finalizer::NODE_DATA);
    let is_here = ws.status.as_ref().is_some_and(|s| s.node_name.as_deref() == Some(node));
    if !(has_finalizer && is_here) {
        return None;
    }
    Some(OrphanCandidate { uid: uid_of(ws)?, namespace: ws.namespace().unwrap_or_default(), name: ws.name_any() })
}

/// Handles the events until their sender is dropped. Each tree is checked and destroyed by a task of its own.
pub async fn run(state: Arc<ShimState>, client: Client, mut events: UnboundedReceiver<OrphanEvent>) {
    let mut tasks = JoinSet::new();
    // A listing that comes while the API server is still being asked about a tree does not ask again.
    let mut checks: HashMap<Uid, AbortHandle> = HashMap::new();
    while let Some(event) = events.recv().await {
        while tasks.try_join_next().is_some() {}
        checks.retain(|_, check| !check.is_finished());
        match event {
            OrphanEvent::Deleted(candidate) => drop(tasks.spawn(destroy_if_gone(state.clone(), client.clone(), candidate))),
            OrphanEvent::Listed => {
                for candidate in unlisted_trees(&state).await {
                    checks.entry(candidate.uid).or_insert_with(|| tasks.spawn(destroy_if_gone(state.clone(), client.clone(), candidate)));
                }
            }
        }
    }
}

async fn destroy_if_gone(state: Arc<ShimState>, client: Client, candidate: OrphanCandidate) {
    if !is_gone(&client, &candidate).await {
        return;
    }
    let OrphanCandidate { uid, namespace, name } = candidate;
    let object = format!("{namespace}/{name}");
    tracing::warn!(object, %uid, "a workspace went without a word; its tree goes too");
    let context = LogContext { object: Some(object), uid: Some(uid.to_string()), ..LogContext::default() };
    let both_passes = async {
        destroy_orphan(&state, uid).await;
        sleep(SECOND_PASS_DELAY).await;
        destroy_orphan(&state, uid).await;
    };
    context.scope(both_passes).await;
}

/// Trees whose objects were not listed and may be gone. A listing proves nothing, so the API server is asked about each.
async fn unlisted_trees(state: &ShimState) -> Vec<OrphanCandidate> {
    let records = match state.journal(|j| j.read()).await {
        Ok(contents) => contents.records,
        Err(error) => {
            tracing::error!(error = error_chain(&error), "the journal was not compared with the workspaces of this node");
            return Vec::new();
        }
    };
    let unlisted = records.iter().filter(|r| state.workspaces.get(r.uid).is_none());
    let candidates = unlisted.filter_map(|record| match check_orphan(record) {
        OrphanCheck::AskApiServer { namespace, name } => {
            Some(OrphanCandidate { uid: record.uid, namespace: namespace.to_owned(), name: name.to_owned() })
        }
        OrphanCheck::Keep(why) => {
            tracing::warn!(uid = %record.uid, why, "a tree is kept whose workspace is not listed");
            None
        }
    });
    candidates.collect()
}

/// Asks the API server until it answers. An object also leaves the watch when it moves to another node, so its deletion there proves nothing.
async fn is_gone(client: &Client, candidate: &OrphanCandidate) -> bool {
    let api: Api<AgentWorkspace> = Api::namespaced(client.clone(), &candidate.namespace);
    let mut failures = 0;
    loop {
        match api.get(&candidate.name).await {
            Ok(found) => return uid_of(&found).is_some_and(|found| found != candidate.uid),
            Err(kube::Error::Api(status)) if is_about(&status, candidate) => return true,
            Err(error) => {
                tracing::warn!(error = error_chain(&error), "a workspace that is not in the watch was not asked for; tried again")
            }
        }
        failures += 1;
        sleep(backoff(failures)).await;
    }
}

/// Whether it is a 404 about this very object. A proxy answers 404 too, and so does an API server that does not serve our kinds at the moment.
fn is_about(status: &Status, candidate: &OrphanCandidate) -> bool {
    let names_it = |d: &kube::core::response::StatusDetails| d.name == candidate.name && d.group == AgentWorkspace::group(&());
    status.is_not_found() && status.details.as_ref().is_some_and(names_it)
}

/// Destroys the tree by its UID. Waits for Pods that still mount it, and tries again after failures.
pub async fn destroy_orphan(state: &ShimState, uid: Uid) {
    let mut failures = 0;
    loop {
        match destroy_unused_tree(state, uid).await {
            Ok(Ok(())) => return,
            Ok(Err(_)) => {}
            Err(error) => {
                tracing::warn!(%uid, error = error_chain(&error), "the tree of a workspace that is gone was not destroyed; tried again")
            }
        }
        failures += 1;
        sleep(backoff(failures)).await;
    }
}
