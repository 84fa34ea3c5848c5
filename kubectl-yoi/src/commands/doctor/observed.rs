//! The cluster as the doctor has read it. The checks see nothing else.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, StorageClass};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::ResourceExt;
use yoi_crds::{AgentWorkspace, WorkspaceNode, YoiPeer, YoiPod, YoiProject};

/// Why something could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadFailure {
    /// The permission that it takes: `list nodes`.
    pub permission: String,
    pub cause: ReadFailureCause,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadFailureCause {
    /// The user has not got the permission.
    Forbidden,
    /// The API server knows no such kind.
    Absent,
    /// The answer did not come in time.
    TimedOut,
    /// Any other failure, with its message.
    Failed(String),
}

pub type ReadResult<T> = Result<T, ReadFailure>;

/// A permission of one of our processes, as a SubjectAccessReview answers it.
#[derive(Clone, Debug)]
pub struct Permission {
    /// `system:serviceaccount:yoi-system:yoi-gateway`.
    pub account: String,
    pub verb: &'static str,
    pub resource: &'static str,
    pub allowed: bool,
}

/// What the aggregated API answered.
#[derive(Clone, Debug)]
pub struct ApiCall {
    pub took: Duration,
    /// Why the call failed; `None` when it did not.
    pub failure: Option<String>,
}

/// The cluster at one moment. Objects with a namespace are of [`ObservedCluster::scope`]; those of our own processes are of any namespace.
pub struct ObservedCluster {
    pub now: Timestamp,
    /// Percent of the usual time after which the doctor says that something takes too long.
    pub patience_percent: u32,
    /// The namespace that was read; `None` is all of them.
    pub scope: Option<String>,
    /// Where operator and gateway are installed.
    pub operator_namespace: String,
    /// Version of this plugin.
    pub version: &'static str,
    /// Major and minor version of the API server.
    pub server: (u32, u32),
    pub crds: ReadResult<Vec<CustomResourceDefinition>>,
    pub nodes: ReadResult<Vec<Node>>,
    pub workspace_nodes: ReadResult<Vec<WorkspaceNode>>,
    pub csi_nodes: ReadResult<Vec<CSINode>>,
    pub deployments: ReadResult<Vec<Deployment>>,
    pub daemon_sets: ReadResult<Vec<DaemonSet>>,
    pub budgets: ReadResult<Vec<PodDisruptionBudget>>,
    pub leases: ReadResult<Vec<Lease>>,
    /// Pods of our own processes.
    pub our_pods: ReadResult<Vec<Pod>>,
    pub api_services: ReadResult<Vec<APIService>>,
    pub gateway_slices: ReadResult<Vec<EndpointSlice>>,
    pub api_call: ReadResult<ApiCall>,
    pub permissions: ReadResult<Vec<Permission>>,
    pub classes: ReadResult<Vec<StorageClass>>,
    pub drivers: ReadResult<Vec<CSIDriver>>,
    pub namespaces: ReadResult<Vec<Namespace>>,
    pub dns_services: ReadResult<Vec<Service>>,
    pub dns_slices: ReadResult<Vec<EndpointSlice>>,
    pub policies: ReadResult<Vec<NetworkPolicy>>,
    pub projects: ReadResult<Vec<YoiProject>>,
    pub yoipods: ReadResult<Vec<YoiPod>>,
    pub peers: ReadResult<Vec<YoiPeer>>,
    pub workspaces: ReadResult<Vec<AgentWorkspace>>,
    /// Pods of agents and populators.
    pub pods: ReadResult<Vec<Pod>>,
    /// Claims of sessions.
    pub claims: ReadResult<Vec<PersistentVolumeClaim>>,
    pub volumes: ReadResult<Vec<PersistentVolume>>,
    /// Warnings about Pods.
    pub warnings: ReadResult<Vec<Event>>,
}

/// Returns the list, or an empty one when it could not be read, which the check `rights` reports.
pub fn listed<T>(result: &ReadResult<Vec<T>>) -> &[T] {
    result.as_deref().unwrap_or_default()
}

impl ObservedCluster {
    /// Returns after how many seconds something takes too long that usually may take `seconds`.
    pub fn patience(&self, seconds: i64) -> i64 {
        seconds * i64::from(self.patience_percent) / 100
    }

    /// Returns all that could not be read. The destructuring is complete so that a new field does not compile without a line here.
    pub fn read_failures(&self) -> Vec<&ReadFailure> {
        let ObservedCluster {
            now: _,
            patience_percent: _,
            scope: _,
            operator_namespace: _,
            version: _,
            server: _,
            crds,
            nodes,
            workspace_nodes,
            csi_nodes,
            deployments,
            daemon_sets,
            budgets,
            leases,
            our_pods,
            api_services,
            gateway_slices,
            api_call,
            permissions,
            classes,
            drivers,
            namespaces,
            dns_services,
            dns_slices,
            policies,
            projects,
            yoipods,
            peers,
            workspaces,
            pods,
            claims,
            volumes,
            warnings,
        } = self;
        [
            crds.as_ref().err(),
            nodes.as_ref().err(),
            workspace_nodes.as_ref().err(),
            csi_nodes.as_ref().err(),
            deployments.as_ref().err(),
            daemon_sets.as_ref().err(),
            budgets.as_ref().err(),
            leases.as_ref().err(),
            our_pods.as_ref().err(),
            api_services.as_ref().err(),
            gateway_slices.as_ref().err(),
            api_call.as_ref().err(),
            permissions.as_ref().err(),
            classes.as_ref().err(),
            drivers.as_ref().err(),
            namespaces.as_ref().err(),
            dns_services.as_ref().err(),
            dns_slices.as_ref().err(),
            policies.as_ref().err(),
            projects.as_ref().err(),
            yoipods.as_ref().err(),
            peers.as_ref().err(),
            workspaces.as_ref().err(),
            pods.as_ref().err(),
            claims.as_ref().err(),
            volumes.as_ref().err(),
            warnings.as_ref().err(),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Returns the seconds since `then`. They are never less than 0, although clocks differ.
    pub fn age(&self, then: Timestamp) -> i64 {
        (self.now.as_second() - then.as_second()).max(0)
    }

    pub fn deployment(&self, name: &str) -> Option<&Deployment> {
        listed(&self.deployments).iter().find(|d| d.name_any() == name)
    }

    /// The project that an agent names.
    pub fn project_of(&self, agent: &YoiPod) -> Option<&YoiProject> {
        let is_its = |project: &&YoiProject| project.namespace() == agent.namespace() && project.name_any() == agent.spec.project_ref.name;
        listed(&self.projects).iter().find(is_its)
    }

    pub fn api_service(&self) -> Option<&APIService> {
        listed(&self.api_services).iter().find(|a| a.name_any() == super::API_SERVICE)
    }

    /// Returns the command that makes again what the Helm release holds and the cluster has lost.
    pub fn reapply_command(&self, release: &str) -> String {
        format!(
            "helm get manifest {release} -n {} | kubectl apply --server-side --force-conflicts --field-manager=helm -f -",
            self.operator_namespace
        )
    }

    /// Returns the command that helps with a gateway that cannot be reached.
    pub fn fix_gateway_command(&self) -> String {
        match self.deployment("yoi-gateway") {
            Some(d) if replicas(d) == 0 => format!("kubectl scale deployment yoi-gateway -n {} --replicas=2", self.operator_namespace),
            None if self.deployments.is_ok() && self.api_service().is_some() => format!("kubectl delete apiservice {}", super::API_SERVICE),
            Some(_) | None => format!("kubectl describe pods -n {} -l app.kubernetes.io/name=yoi-gateway", self.operator_namespace),
        }
    }
}

/// Returns how many replicas a Deployment asks for.
pub fn replicas(deployment: &Deployment) -> i32 {
    deployment.spec.as_ref().and_then(|s| s.replicas).unwrap_or(1)
}

/// Returns `Kind namespace/name`.
pub fn display_name<K: kube::Resource<DynamicType = ()>>(object: &K) -> String {
    let name = object.name_any();
    match object.namespace() {
        Some(namespace) => format!("{} {namespace}/{name}", K::kind(&())),
        None => format!("{} {name}", K::kind(&())),
    }
}
