//! Workspaces that go without a word to us.
//!
//! The API server reads an object, finds no finalizer on it and deletes it; a finalizer that was put on in between holds nothing back (seen on
//! 1.34: one version with both finalizers and a node, and the next event is its end). So a workspace that is deleted in its first moments
//! may be gone while its tree is being made, and nobody would ever ask for the end of that tree.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::Api;
use kube::runtime::watcher::Event;
use kube::{Client, ResourceExt};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio::time::sleep;
use yoi_crds::AgentWorkspace;
use yoi_crds::name::finalizer;

use super::cache::uid_of;
use super::making::{self, Next};
use super::world::World;
use crate::chain::whole;

/// A round of the making door that began before the end was heard may make the tree once more.
const AFTERWARDS: Duration = Duration::from_secs(30);

/// The object, as being deleted, if it ended with our finalizer still on it.
pub fn untold(event: &Event<AgentWorkspace>) -> Option<AgentWorkspace> {
    let Event::Delete(ws) = event else { return None };
    let ours = ws.finalizers().iter().any(|f| f == finalizer::NODE_DATA);
    ours.then(|| {
        let mut ended = ws.clone();
        ended.metadata.deletion_timestamp.get_or_insert(Time(Timestamp::now()));
        ended
    })
}

/// Ends the trees of those that come in, until the world stops.
pub async fn run(world: Arc<World>, client: Client, mut ended: UnboundedReceiver<AgentWorkspace>) {
    let mut under_way = JoinSet::new();
    while let Some(ws) = ended.recv().await {
        let (world, client) = (world.clone(), client.clone());
        under_way.spawn(async move {
            if is_gone(&client, &ws).await {
                bury(&world, &ws).await;
                sleep(AFTERWARDS).await;
                bury(&world, &ws).await;
            }
        });
        while under_way.try_join_next().is_some() {}
    }
}

/// The API server's own word: an object also leaves the watch when it is no longer this node's.
async fn is_gone(client: &Client, ws: &AgentWorkspace) -> bool {
    let api: Api<AgentWorkspace> = Api::namespaced(client.clone(), &ws.namespace().unwrap_or_default());
    let mut failures = 0;
    loop {
        match api.get_opt(&ws.name_any()).await {
            Ok(found) => return found.is_none_or(|found| found.uid() != ws.uid()),
            Err(error) => tracing::warn!(error = whole(&error), "a workspace that left the watch was not asked for; tried again"),
        }
        failures += 1;
        sleep(making::pause(failures)).await;
    }
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
mod tests {
    use super::*;
    use crate::sample::{uid, workspace};
    use crate::shim::tests::Stage;
    use serde_json::json;
    use yoi_workspace::ProviderKind;

    #[test]
    fn only_an_end_with_our_finalizer_still_on_is_one_that_nobody_told() {
        let ws = || workspace(1, json!({}));
        assert!(untold(&Event::Delete(ws())).is_some_and(|ended| ended.metadata.deletion_timestamp.is_some()));
        assert!(untold(&Event::Apply(ws())).is_none());
        assert!(untold(&Event::Delete(workspace(1, json!({ "metadata": { "finalizers": [] } })))).is_none());
    }

    #[tokio::test]
    async fn the_tree_of_a_workspace_that_vanished_goes_too() {
        let stage = Stage::new();
        *stage.world.offers.write().unwrap() = crate::sample::offers(&[ProviderKind::Copy]);
        let ws = workspace(1, json!({}));
        making::work(&stage.world, &ws, uid(1)).await.unwrap();
        assert!(stage.world.journal.get(uid(1)).unwrap().is_some());
        bury(&stage.world, &untold(&Event::Delete(ws)).unwrap()).await;
        assert_eq!(stage.world.journal.get(uid(1)).unwrap(), None);
        assert_eq!(stage.fake.heard().len(), 2, "made and destroyed");
    }
}
