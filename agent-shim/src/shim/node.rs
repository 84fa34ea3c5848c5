//! The WorkspaceNode of this node.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, Resource, ResourceExt};
use serde_json::json;
use tokio::time::MissedTickBehavior;
use yoi_crds::WorkspaceNode;
use yoi_crds::name::manager;

use super::report::spell;
use super::world::{Trouble, World};
use crate::chain::whole;
use crate::decide::node;

const PERIOD: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
enum NotSaid {
    #[error("failed to ask the node what it offers")]
    Probe(#[source] Trouble),
    #[error("failed to report the node")]
    Report(#[from] kube::Error),
}

/// Looks and tells every minute, until the world stops; a node that stays as it is costs one read.
pub async fn run(world: Arc<World>, client: Client) {
    let api: Api<WorkspaceNode> = Api::all(client);
    let mut clock = tokio::time::interval(PERIOD);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = clock.tick() => {}
            () = world.stop.cancelled() => return,
        }
        if let Err(error) = tell(&world, &api).await {
            tracing::warn!(error = whole(&error), "the node was not reported");
            clock.reset_after(Duration::from_secs(5));
        }
        if let Err(error) = world.sweep().await {
            tracing::warn!(error = whole(&error), "publish records were not compared with the mount table");
        }
    }
}

async fn tell(world: &World, api: &Api<WorkspaceNode>) -> Result<(), NotSaid> {
    let found = world.mounter.probe().await.map_err(|e| NotSaid::Probe(e.into()))?;
    if let Ok(mut offers) = world.offers.write() {
        offers.clone_from(&found.offers);
    }
    let params = PatchParams::apply(manager::SHIM).force();
    let (api_version, kind) = (WorkspaceNode::api_version(&()), WorkspaceNode::kind(&()));
    let object = match api.get_opt(&world.node).await? {
        Some(object) => object,
        None => {
            let new = json!({ "apiVersion": api_version, "kind": kind, "metadata": { "name": world.node }, "spec": {} });
            api.patch(&world.node, &params, &Patch::Apply(&new)).await?
        }
    };
    let generation = object.metadata.generation.unwrap_or_default();
    let digests = world.runtimes.digests();
    let now = spell(Timestamp::now());
    if let Some(status) = node::status(object.status.as_ref(), &found, digests, generation, &now) {
        let applied = json!({ "apiVersion": api_version, "kind": kind, "metadata": { "name": object.name_any() }, "status": status });
        api.patch_status(&world.node, &params, &Patch::Apply(&applied)).await?;
        tracing::info!("reported the node");
    }
    Ok(())
}
