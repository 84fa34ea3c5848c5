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

use super::cache::uid_of;
use super::door;
use super::making::{self, Next};
use super::world::World;
use crate::chain::whole;
use crate::decide::stray::{Stray, stray};
use crate::mounter::whose::Whose;

/// A round of the making door that began before the end was heard may make the tree once more.
const AFTERWARDS: Duration = Duration::from_secs(30);

/// What the watch says that may concern a tree without an object.
pub enum News {
    /// This object, as being deleted.
    Ended(Box<AgentWorkspace>),
    /// All of this node's workspaces were listed, at a start or because the watch had lost its place.
    Listed,
}

pub fn news(event: &Event<AgentWorkspace>) -> Option<News> {
    match event {
        Event::InitDone => Some(News::Listed),
        Event::Delete(_) => untold(event).map(|ws| News::Ended(Box::new(ws))),
        Event::Init | Event::InitApply(_) | Event::Apply(_) => None,
    }
}

/// The object, as being deleted, if it ended with our finalizer still on it.
fn untold(event: &Event<AgentWorkspace>) -> Option<AgentWorkspace> {
    let Event::Delete(ws) = event else { return None };
    let ours = ws.finalizers().iter().any(|f| f == finalizer::NODE_DATA);
    ours.then(|| {
        let mut ended = ws.clone();
        ended.metadata.deletion_timestamp.get_or_insert(Time(Timestamp::now()));
        ended
    })
}

/// Ends the trees of those that come in, until the world stops.
pub async fn run(world: Arc<World>, client: Client, mut news: UnboundedReceiver<News>) {
    let mut under_way = JoinSet::new();
    // A list that comes while an earlier one's questions are open asks nothing twice.
    let mut asked: HashMap<Uid, AbortHandle> = HashMap::new();
    while let Some(news) = news.recv().await {
        while under_way.try_join_next().is_some() {}
        asked.retain(|_, question| !question.is_finished());
        match news {
            News::Ended(ws) => drop(under_way.spawn(end(world.clone(), client.clone(), *ws))),
            News::Listed => {
                for (uid, ws) in strays(&world).await {
                    asked.entry(uid).or_insert_with(|| under_way.spawn(end(world.clone(), client.clone(), ws)));
                }
            }
        }
    }
}

async fn end(world: Arc<World>, client: Client, ws: AgentWorkspace) {
    if is_gone(&client, &ws).await {
        let object = door::named(&ws);
        tracing::warn!(object, uid = ws.uid(), "a workspace went without a word; its tree goes too");
        let whose = Whose { object: Some(object), uid: ws.uid(), ..Whose::default() };
        let buried = async {
            bury(&world, &ws).await;
            sleep(AFTERWARDS).await;
            bury(&world, &ws).await;
        };
        whose.during(buried).await;
    }
}

/// Trees whose objects the list did not show, each with its object as being deleted. That the list does not show one proves nothing.
async fn strays(world: &World) -> Vec<(Uid, AgentWorkspace)> {
    let records = match world.journal(|j| j.read()).await {
        Ok(contents) => contents.records,
        Err(error) => {
            tracing::error!(error = whole(&error), "the journal was not compared with the workspaces of this node");
            return Vec::new();
        }
    };
    let unseen = records.iter().filter(|r| world.cache.get(r.uid).is_none());
    let found = unseen.filter_map(|record| match stray(record) {
        Stray::Ask { namespace, name } => Some((record.uid, ended(record, namespace, name, &world.node))),
        Stray::Keep(why) => {
            tracing::warn!(uid = %record.uid, why, "a tree is kept whose workspace is not listed");
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
            Err(kube::Error::Api(status)) if names(&status, ws) => return true,
            Err(error) => tracing::warn!(error = whole(&error), "a workspace that is not in the watch was not asked for; tried again"),
        }
        failures += 1;
        sleep(making::pause(failures)).await;
    }
}

/// A 404 about this very object: a proxy says 404 too, and an API server that does not serve our kinds at the moment.
fn names(status: &Status, ws: &AgentWorkspace) -> bool {
    let about = |d: &kube::core::response::StatusDetails| d.name == ws.name_any() && d.group == AgentWorkspace::group(&());
    status.is_not_found() && status.details.as_ref().is_some_and(about)
}

/// As if its deletion had been told; what still has the tree mounted is waited for.
async fn bury(world: &World, ws: &AgentWorkspace) {
    let Some(uid) = uid_of(ws) else { return };
    let mut failures = 0;
    loop {
        match making::work(world, ws, uid).await {
            Ok(outcome) if outcome.next == Next::LetGo => return,
            // Not this node's: there was nothing to end.
            Ok(outcome) if outcome.next == Next::Rest => return,
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%uid, error = whole(&error), "the tree of a workspace that is gone was not destroyed; tried again")
            }
        }
        failures += 1;
        sleep(making::pause(failures)).await;
    }
}

#[cfg(test)]
mod tests;
