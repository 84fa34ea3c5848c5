//! Workspaces that go without a word to us.
//!
//! The API server reads an object, finds no finalizer on it and deletes it; a finalizer that was put on in between holds nothing back (seen on
//! 1.34: one version with both finalizers and a node, and the next event is its end). So a workspace that is deleted in its first moments
//! may be gone while its tree is being made, and nobody would ever ask for the end of that tree. Where the shim was not there to hear it,
//! the next whole list does not show the object, and the journal still has its tree.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::Api;
use kube::core::Status;
use kube::runtime::watcher::Event;
use kube::{Client, Resource, ResourceExt};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;
use yoi_crds::name::finalizer;
use yoi_crds::workspace::Binding;
use yoi_crds::{AgentWorkspace, AgentWorkspaceSpec, AgentWorkspaceStatus};
use yoi_workspace::{Record, Uid};

use super::provision_controller;
use super::provisioning::{self, Next};
use super::state::ShimState;
use super::workspace_cache::uid_of;
use crate::chain::whole;
use crate::decide::orphan::{OrphanCheck, check_orphan};
use crate::mounter::log_context::LogContext;

/// A round of the making door that began before the end was heard may make the tree once more.
const SECOND_PASS_DELAY: Duration = Duration::from_secs(30);

/// What the watch says that may concern a tree without an object.
pub enum OrphanEvent {
    /// This object, as being deleted.
    Deleted(Box<AgentWorkspace>),
    /// All of this node's workspaces were listed, at a start or because the watch had lost its place.
    Listed,
}

pub fn orphan_event(event: &Event<AgentWorkspace>) -> Option<OrphanEvent> {
    match event {
        Event::InitDone => Some(OrphanEvent::Listed),
        Event::Delete(_) => deleted_with_finalizer(event).map(|ws| OrphanEvent::Deleted(Box::new(ws))),
        Event::Init | Event::InitApply(_) | Event::Apply(_) => None,
    }
}

/// The object, as being deleted, if it ended with our finalizer still on it.
fn deleted_with_finalizer(event: &Event<AgentWorkspace>) -> Option<AgentWorkspace> {
    let Event::Delete(ws) = event else { return None };
    let ours = ws.finalizers().iter().any(|f| f == finalizer::NODE_DATA);
    ours.then(|| {
        let mut ended = ws.clone();
        ended.metadata.deletion_timestamp.get_or_insert(Time(Timestamp::now()));
        ended
    })
}

/// Ends the trees of those that come in, until the state stops.
pub async fn run(state: Arc<ShimState>, client: Client, mut news: UnboundedReceiver<OrphanEvent>) {
    let mut under_way = JoinSet::new();
    // A list that comes while an earlier one's questions are open asks nothing twice.
    let mut asked: HashMap<Uid, AbortHandle> = HashMap::new();
    while let Some(news) = news.recv().await {
        while under_way.try_join_next().is_some() {}
        asked.retain(|_, question| !question.is_finished());
        match news {
            OrphanEvent::Deleted(ws) => drop(under_way.spawn(destroy_if_gone(state.clone(), client.clone(), *ws))),
            OrphanEvent::Listed => {
                for (uid, ws) in unlisted_trees(&state).await {
                    asked.entry(uid).or_insert_with(|| under_way.spawn(destroy_if_gone(state.clone(), client.clone(), ws)));
                }
            }
        }
    }
}

async fn destroy_if_gone(state: Arc<ShimState>, client: Client, ws: AgentWorkspace) {
    if is_gone(&client, &ws).await {
        let object = provision_controller::object_name(&ws);
        tracing::warn!(object, uid = ws.uid(), "a workspace went without a word; its tree goes too");
        let log_context = LogContext { object: Some(object), uid: ws.uid(), ..LogContext::default() };
        let buried = async {
            destroy_orphan(&state, &ws).await;
            sleep(SECOND_PASS_DELAY).await;
            destroy_orphan(&state, &ws).await;
        };
        log_context.scope(buried).await;
    }
}

/// Trees log_context objects the list did not show, each with its object as being deleted. That the list does not show one proves nothing.
async fn unlisted_trees(state: &ShimState) -> Vec<(Uid, AgentWorkspace)> {
    let records = match state.journal(|j| j.contents()).await {
        Ok(contents) => contents.records,
        Err(error) => {
            tracing::error!(error = whole(&error), "the journal was not compared with the workspaces of this node");
            return Vec::new();
        }
    };
    let unseen = records.iter().filter(|r| state.cache.get(r.uid).is_none());
    let found = unseen.filter_map(|record| match check_orphan(record) {
        OrphanCheck::AskApiServer { namespace, name } => Some((record.uid, ended(record, namespace, name, &state.node))),
        OrphanCheck::Keep(why) => {
            tracing::warn!(uid = %record.uid, why, "a tree is kept log_context workspace is not listed");
            None
        }
    });
    found.collect()
}

/// As much of the object as its end needs.
fn ended(record: &Record, namespace: &str, name: &str, node: &str) -> AgentWorkspace {
    let spec = AgentWorkspaceSpec {
        source: Default::default(),
        provider: Default::default(),
        path: String::new(),
        owner: None,
        claim: false,
        binding: Binding::default(),
        read_only: false,
        ttl_after_release: None,
        base: None,
    };
    let mut ws = AgentWorkspace::new(name, spec);
    ws.metadata.namespace = Some(namespace.to_owned());
    ws.metadata.uid = Some(record.uid.to_string());
    ws.metadata.finalizers = Some(vec![finalizer::NODE_DATA.to_owned()]);
    ws.metadata.deletion_timestamp = Some(Time(Timestamp::now()));
    ws.status = Some(AgentWorkspaceStatus { node_name: Some(node.to_owned()), ..Default::default() });
    ws
}

/// The API server's own word: an object also leaves the watch when it is no longer this node's.
async fn is_gone(client: &Client, ws: &AgentWorkspace) -> bool {
    let api: Api<AgentWorkspace> = Api::namespaced(client.clone(), &ws.namespace().unwrap_or_default());
    let mut failures = 0;
    loop {
        match api.get(&ws.name_any()).await {
            Ok(found) => return uid_of(&found).is_some_and(|found| Some(found) != uid_of(ws)),
            Err(kube::Error::Api(status)) if is_about(&status, ws) => return true,
            Err(error) => tracing::warn!(error = whole(&error), "a workspace that is not in the watch was not asked for; tried again"),
        }
        failures += 1;
        sleep(provisioning::backoff(failures)).await;
    }
}

/// A 404 about this very object: a proxy says 404 too, and an API server that does not serve our kinds at the moment.
fn is_about(status: &Status, ws: &AgentWorkspace) -> bool {
    let about = |d: &kube::core::response::StatusDetails| d.name == ws.name_any() && d.group == AgentWorkspace::group(&());
    status.is_not_found() && status.details.as_ref().is_some_and(about)
}

/// As if its deletion had been told; what still has the tree mounted is waited for.
async fn destroy_orphan(state: &ShimState, ws: &AgentWorkspace) {
    let Some(uid) = uid_of(ws) else { return };
    let mut failures = 0;
    loop {
        match provisioning::provision(state, ws, uid).await {
            Ok(outcome) if outcome.next == Next::RemoveFinalizer => return,
            // Not this node's: there was nothing to end.
            Ok(outcome) if outcome.next == Next::AwaitChange => return,
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%uid, error = whole(&error), "the tree of a workspace that is gone was not destroyed; tried again")
            }
        }
        failures += 1;
        sleep(provisioning::backoff(failures)).await;
    }
}

#[cfg(test)]
mod tests;
