//! Reports this node as a WorkspaceNode.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Resource, ResourceExt};
use serde_json::json;
use tokio::time::MissedTickBehavior;
use yoi_crds::WorkspaceNode;
use yoi_crds::name::field_manager;
use yoi_crds::node::WorkspaceNodeStatus;

use super::data_root;
use super::error::Error;
use super::record_sweep;
use super::state::ShimState;
use super::workspace_report::kubernetes_timestamp;
use crate::decide::node_status::{self, DataRootFailure};
use crate::host_sources::HostSourceName;
use crate::mounter::client::MounterFailure;
use yoi_wire::error_chain;

/// The pause between two reports.
const PERIOD: Duration = Duration::from_secs(60);
/// How long the folders of the host may take to answer.
const HOST_SOURCES_DEADLINE: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
enum NodeReportError {
    #[error("failed to ask the node what it offers")]
    Probe(#[source] Error),
    #[error("failed to report the node")]
    Report(#[from] kube::Error),
}

/// The pause before a report that somebody asked for, so that many who ask get one.
const EARLY_REPORT_DELAY: Duration = Duration::from_secs(2);

/// Reports every minute, and early when [`ShimState::report_node`] is notified, until [`ShimState::stop`] is cancelled. A node that has not changed costs one read and no write.
pub async fn run(state: Arc<ShimState>, client: Client) {
    let mut clock = tokio::time::interval(PERIOD);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = clock.tick() => {}
            () = state.report_node.notified() => tokio::time::sleep(EARLY_REPORT_DELAY).await,
            () = state.stop.cancelled() => return,
        }
        match report(&state, &client).await {
            Ok(()) => state.set_reported(Instant::now()),
            Err(error) => {
                tracing::warn!(error = error_chain(&error), "the node was not reported");
                clock.reset_after(Duration::from_secs(5));
            }
        }
        if let Err(error) = record_sweep::remove_stale_records(&state).await {
            tracing::warn!(error = error_chain(&error), "publish records were not compared with the mount table");
        }
    }
}

async fn report(state: &ShimState, client: &Client) -> Result<(), NodeReportError> {
    let found = match data_root::check(state).await {
        Err(MounterFailure::Refused(refused)) => {
            return Ok(report_without_data_root(client, &state.node, &data_root::refusal_failure(&refused)).await?);
        }
        found => found.map_err(|e| NodeReportError::Probe(e.into()))?,
    };
    let failure = state.data_root_failure();
    let damaged = state.damage_messages().await.map_err(NodeReportError::Probe)?;
    for why in &damaged {
        tracing::error!(why, "a record of this node cannot be read");
    }
    let digests = state.runtimes.digests();
    let available = match state.host_sources.0.is_empty() {
        true => Vec::new(),
        false => host_sources(state).await?,
    };
    let status = |object: &WorkspaceNode, now: &str| {
        let generation = object.metadata.generation.unwrap_or_default();
        let (before, listed) = (object.status.as_ref(), &state.host_sources);
        let after = node_status::status(before, &found, failure.as_ref(), digests, &damaged, generation, now);
        let after = node_status::with_host_sources(before, after, listed, &available);
        state.unclaimed.set_wishes(&object.spec.discard);
        node_status::with_unclaimed(before, after, state.unclaimed.status())
    };
    Ok(apply(client, &state.node, status).await?)
}

/// The folders that can be taken now. One on a file system that does not answer is no reason to leave the node unreported.
async fn host_sources(state: &ShimState) -> Result<Vec<HostSourceName>, NodeReportError> {
    match tokio::time::timeout(HOST_SOURCES_DEADLINE, state.mounter.host_sources()).await {
        Ok(found) => found.map_err(|e| NodeReportError::Probe(e.into())),
        Err(_) => {
            tracing::warn!("a folder of the host did not answer in {HOST_SOURCES_DEADLINE:?}");
            Ok(Vec::new())
        }
    }
}

/// Reports that the data root is not open.
pub async fn report_without_data_root(client: &Client, name: &str, failure: &DataRootFailure) -> kube::Result<()> {
    apply(client, name, |object, now| {
        node_status::without_data_root(object.status.as_ref(), failure, object.metadata.generation.unwrap_or_default(), now)
    })
    .await
}

/// The Node as the owner of the WorkspaceNode, so that both are deleted together. Name and UID come from this Pod's own token: the shim needs no
/// right to read Nodes.
async fn owner(client: &Client, name: &str) -> kube::Result<Option<OwnerReference>> {
    let review = Api::<SelfSubjectReview>::all(client.clone()).create(&PostParams::default(), &SelfSubjectReview::default()).await?;
    Ok(review.status.and_then(|s| s.user_info).and_then(|user| owner_by(user.extra.unwrap_or_default(), name)))
}

fn owner_by(extra: BTreeMap<String, Vec<String>>, name: &str) -> Option<OwnerReference> {
    let claim = |key: &str| extra.get(key).and_then(|values| values.first()).cloned();
    let uid = claim("authentication.kubernetes.io/node-uid")?;
    let is_this_node = claim("authentication.kubernetes.io/node-name")? == name;
    is_this_node.then(|| OwnerReference { api_version: "v1".into(), kind: "Node".into(), name: name.to_owned(), uid, ..Default::default() })
}

async fn apply(client: &Client, name: &str, status: impl FnOnce(&WorkspaceNode, &str) -> Option<WorkspaceNodeStatus>) -> kube::Result<()> {
    let api: Api<WorkspaceNode> = Api::all(client.clone());
    let params = PatchParams::apply(field_manager::SHIM).force();
    let (api_version, kind) = (WorkspaceNode::api_version(&()), WorkspaceNode::kind(&()));
    let object = match api.get_opt(name).await? {
        Some(object) if object.metadata.owner_references.iter().flatten().any(|o| o.kind == "Node") => object,
        _ => {
            // Before Kubernetes 1.32 the token does not name the Node, and the WorkspaceNode outlives it.
            let owners: Vec<_> = owner(client, name).await?.into_iter().collect();
            let metadata = json!({ "name": name, "ownerReferences": owners });
            let new = json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": {} });
            api.patch(name, &params, &Patch::Apply(&new)).await?
        }
    };
    if let Some(status) = status(&object, &kubernetes_timestamp(Timestamp::now())) {
        let applied = json!({ "apiVersion": api_version, "kind": kind, "metadata": { "name": object.name_any() }, "status": status });
        api.patch_status(name, &params, &Patch::Apply(&applied)).await?;
        tracing::info!("reported the node");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_owns_its_workspace_node_by_name_and_uid_and_no_other_does() {
        let extra = |name: &str| {
            let extra = [("node-name", name), ("node-uid", "u1"), ("pod-name", "p")];
            extra.into_iter().map(|(k, v)| (format!("authentication.kubernetes.io/{k}"), vec![v.to_owned()])).collect::<BTreeMap<_, _>>()
        };
        let owner = owner_by(extra("n1"), "n1").unwrap();
        assert_eq!((&*owner.api_version, &*owner.kind, &*owner.name, &*owner.uid), ("v1", "Node", "n1", "u1"));
        assert_eq!(owner_by(extra("n2"), "n1"), None);
        assert_eq!(owner_by(BTreeMap::new(), "n1"), None, "an older API server");
    }
}
