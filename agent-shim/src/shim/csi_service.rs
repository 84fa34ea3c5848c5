//! The CSI services Identity and Node, which the kubelet calls.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kube::ResourceExt;
use tokio::time::Instant;
use tonic::{Request, Response, Status};
use tracing::Instrument;
use yoi_crds::AgentWorkspace;
use yoi_crds::name::{TOPOLOGY_NODE, TOPOLOGY_TREES, label};
use yoi_wire::identity::CSI_DRIVER;
use yoi_workspace::Uid;

use super::metrics::PublishOutcome;
use super::publishing::{self, PublishFailure};
use super::state::ShimState;
use super::workspaces::object_name;
use crate::decide::publish::{RequestedVolume, parse_request};
use crate::mounter::log_context::LogContext;
use crate::proto::csi::identity_server::Identity;
use crate::proto::csi::node_server::Node;
use crate::proto::csi::plugin_capability::{self, service};
use crate::proto::csi::*;
use crate::volume::PodVolume;
use yoi_wire::error_chain;

/// The CSI services of this node.
#[derive(Clone)]
pub struct CsiService(pub Arc<ShimState>);

/// Attributes that the kubelet sets: the Pod that mounts.
const POD_NAME: &str = "csi.storage.k8s.io/pod.name";
const POD_NAMESPACE: &str = "csi.storage.k8s.io/pod.namespace";

impl CsiService {
    /// Whom the log lines of a call are about: the workspace, or the Pod if this node does not know the workspace. `named` is the namespace and
    /// name of the Pod, which the kubelet passes to publish and not to unpublish.
    fn log_context(&self, volume: &PodVolume, tree: Option<Uid>, named: Option<(&str, &str)>) -> (LogContext, tracing::Span) {
        let (pod, name) = (volume.pod, volume.name.as_str());
        let ws = match tree {
            Some(uid) => self.0.workspaces.get(uid),
            None => self.0.workspaces.mounted_by(pod),
        };
        let (object, uid) = match &ws {
            Some(ws) => (Some(object_name(ws)), ws.metadata.uid.clone().unwrap_or_default()),
            None => (named.map(|(namespace, name)| format!("{namespace}/{name}")), pod.to_string()),
        };
        let run = ws.zip(named).and_then(|(ws, (_, pod))| run_of(&ws, pod));
        let tree = tree.map(tracing::field::display);
        let span = tracing::info_span!("volume", object, uid, run, %pod, tree, volume = name, node = self.0.node);
        (LogContext { object, uid: Some(uid), run }, span)
    }
}

/// The run of a Pod, which the operator names `<yoipod>-<run>`.
fn run_of(ws: &AgentWorkspace, pod: &str) -> Option<u64> {
    pod.strip_prefix(ws.labels().get(label::YOIPOD)?)?.strip_prefix('-')?.parse().ok()
}

/// To the kubelet, Aborted means that something may be mounted. After FailedPrecondition and Internal it does not unpublish.
impl From<PublishFailure> for Status {
    fn from(error: PublishFailure) -> Self {
        let text = error.to_string();
        match error {
            PublishFailure::Denied(_) => Status::failed_precondition(text),
            PublishFailure::NotYet(_) | PublishFailure::Unclear(_) => Status::aborted(text),
            PublishFailure::Failed(_) => Status::internal(text),
        }
    }
}

#[tonic::async_trait]
impl Identity for CsiService {
    async fn get_plugin_info(&self, _: Request<GetPluginInfoRequest>) -> Result<Response<GetPluginInfoResponse>, Status> {
        let (name, vendor_version) = (CSI_DRIVER.to_owned(), env!("CARGO_PKG_VERSION").to_owned());
        Ok(Response::new(GetPluginInfoResponse { name, vendor_version, manifest: HashMap::new() }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        let service = plugin_capability::Service { r#type: service::Type::VolumeAccessibilityConstraints.into() };
        let capabilities = vec![PluginCapability { r#type: Some(plugin_capability::Type::Service(service)) }];
        Ok(Response::new(GetPluginCapabilitiesResponse { capabilities }))
    }

    async fn probe(&self, _: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        Ok(Response::new(ProbeResponse { ready: Some(self.0.serving.load(Ordering::Relaxed)) }))
    }
}

#[tonic::async_trait]
impl Node for CsiService {
    async fn node_publish_volume(&self, request: Request<NodePublishVolumeRequest>) -> Result<Response<NodePublishVolumeResponse>, Status> {
        let r = request.into_inner();
        if r.volume_id.is_empty() || r.volume_capability.is_none() {
            return Err(Status::invalid_argument("a volume id and a volume capability are required"));
        }
        let publish = parse_request(&self.0.kubelet_dir, &r.volume_id, &r.target_path, r.readonly, &r.volume_context)
            .map_err(|e| Status::invalid_argument(error_chain(&e)))?;
        let started = Instant::now();
        let tree = match publish.requested {
            RequestedVolume::Tree(uid) | RequestedVolume::Claim(uid) => Some(uid),
            RequestedVolume::Runtime(_) => None,
        };
        let attribute = |key| r.volume_context.get(key).map(String::as_str).unwrap_or_default();
        let (volume, named) = (publish.volume.clone(), Some((attribute(POD_NAMESPACE), attribute(POD_NAME))));
        let context = || self.log_context(&volume, tree, named);
        let done = publishing::publish(&self.0, publish, &context).instrument(context().1).await;
        let outcome = done.as_ref().map_or_else(PublishFailure::outcome, |()| PublishOutcome::Mounted);
        self.0.metrics.count_publish(outcome, started.elapsed());
        context().1.in_scope(|| match &done {
            Ok(()) => tracing::info!(took = ?started.elapsed(), "mounted"),
            Err(error) => tracing::warn!(took = ?started.elapsed(), %error, "not mounted"),
        });
        done?;
        Ok(Response::new(NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Result<Response<NodeUnpublishVolumeResponse>, Status> {
        let r = request.into_inner();
        if r.volume_id.is_empty() {
            return Err(Status::invalid_argument("a volume id is required"));
        }
        let volume =
            PodVolume::from_target(&self.0.kubelet_dir, Path::new(&r.target_path)).map_err(|e| Status::invalid_argument(e.to_string()))?;
        // As with publishing: what has started is finished even if the kubelet cancels the call.
        let (state, tree) = (self.0.clone(), self.0.publish_records.get(&volume).and_then(|p| p.shows.tree()));
        let (log_context, span) = self.log_context(&volume, tree, None);
        let work = async move {
            let done = publishing::unpublish(&state, &volume).await;
            match &done {
                Ok(()) => tracing::info!("unmounted"),
                Err(error) => tracing::warn!(error = error_chain(error), "not unmounted"),
            }
            done
        };
        match tokio::spawn(log_context.scope(work).instrument(span)).await {
            Ok(Ok(())) => Ok(Response::new(NodeUnpublishVolumeResponse {})),
            Ok(Err(error)) => Err(Status::internal(error_chain(&error))),
            Err(error) => Err(Status::internal(error.to_string())),
        }
    }

    async fn node_get_capabilities(&self, _: Request<NodeGetCapabilitiesRequest>) -> Result<Response<NodeGetCapabilitiesResponse>, Status> {
        let rpc = node_service_capability::Rpc { r#type: node_service_capability::rpc::Type::GetVolumeStats.into() };
        let capabilities = vec![NodeServiceCapability { r#type: Some(node_service_capability::Type::Rpc(rpc)) }];
        Ok(Response::new(NodeGetCapabilitiesResponse { capabilities }))
    }

    async fn node_get_info(&self, _: Request<NodeGetInfoRequest>) -> Result<Response<NodeGetInfoResponse>, Status> {
        let node = self.0.node.clone();
        let topology = Topology {
            segments: HashMap::from([(TOPOLOGY_NODE.to_owned(), node.clone()), (TOPOLOGY_TREES.to_owned(), "true".to_owned())]),
        };
        Ok(Response::new(NodeGetInfoResponse { node_id: node, max_volumes_per_node: 0, accessible_topology: Some(topology) }))
    }

    async fn node_stage_volume(&self, _: Request<NodeStageVolumeRequest>) -> Result<Response<NodeStageVolumeResponse>, Status> {
        Err(not_advertised())
    }

    async fn node_unstage_volume(&self, _: Request<NodeUnstageVolumeRequest>) -> Result<Response<NodeUnstageVolumeResponse>, Status> {
        Err(not_advertised())
    }

    /// What a tree takes of its quota, by the figures of its status. A tree without a quota has no total.
    async fn node_get_volume_stats(
        &self,
        request: Request<NodeGetVolumeStatsRequest>,
    ) -> Result<Response<NodeGetVolumeStatsResponse>, Status> {
        let r = request.into_inner();
        if r.volume_id.is_empty() || r.volume_path.is_empty() {
            return Err(Status::invalid_argument("a volume id and a volume path are required"));
        }
        let volume =
            PodVolume::from_target(&self.0.kubelet_dir, Path::new(&r.volume_path)).map_err(|e| Status::invalid_argument(e.to_string()))?;
        let Some(record) = self.0.publish_records.get(&volume) else { return Err(Status::not_found("this volume is not mounted")) };
        // The folder of a Pod's runtime takes nothing.
        let (used, quota) = match record.shows.tree() {
            None => (0, None),
            Some(uid) => {
                let usage = self.0.usages.get(uid).ok_or_else(|| Status::unavailable("the tree was not measured yet"))?;
                let used = usage.charged_bytes.unwrap_or(usage.exclusive_bytes);
                (bytes_of(used), self.0.workspaces.get(uid).and_then(|ws| ws.status.as_ref()?.quota_bytes))
            }
        };
        let (total, available) = quota.map_or((0, 0), |quota| (quota, quota.saturating_sub(used).max(0)));
        let usage = VolumeUsage { available, total, used, unit: volume_usage::Unit::Bytes.into() };
        Ok(Response::new(NodeGetVolumeStatsResponse { usage: vec![usage], volume_condition: None }))
    }

    async fn node_expand_volume(&self, _: Request<NodeExpandVolumeRequest>) -> Result<Response<NodeExpandVolumeResponse>, Status> {
        Err(not_advertised())
    }
}

fn bytes_of(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn not_advertised() -> Status {
    Status::unimplemented("not among the capabilities of this driver")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn workspace(labels: serde_json::Value) -> AgentWorkspace {
        let object = json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "AgentWorkspace", "metadata": { "name": "ws", "labels": labels },
            "spec": { "source": { "empty": {} } } });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn the_run_is_read_from_the_name_of_a_yoipods_pod_and_of_no_other() {
        let of_a = workspace(json!({ "yoi.dev/yoipod": "a" }));
        let runs = ["a-3", "a-b-3", "a", "a-", "a-3x", "b-3", ""].map(|pod| run_of(&of_a, pod));
        assert_eq!(runs, [Some(3), None, None, None, None, None, None]);
        assert_eq!(run_of(&workspace(json!({})), "a-3"), None);
    }
}
