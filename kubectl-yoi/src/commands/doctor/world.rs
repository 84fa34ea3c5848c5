//! What was gathered. Checks see this and nothing else.

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

/// Why something was not seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotLooked {
    /// `list nodes`: the right that it takes.
    pub right: String,
    pub because: Because,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Because {
    /// The user has not got the right.
    Forbidden,
    /// The API server knows no such kind.
    Absent,
    /// It took longer than a look may.
    Late,
    /// Anything else, in the server's words.
    Failed(String),
}

pub type Looked<T> = Result<T, NotLooked>;

/// One right of one of our processes, as the API server judges it.
#[derive(Clone, Debug)]
pub struct Right {
    /// `system:serviceaccount:yoi-system:yoi-gateway`.
    pub account: String,
    pub verb: &'static str,
    pub resource: &'static str,
    pub allowed: bool,
}

/// What the aggregated API answered.
#[derive(Clone, Debug)]
pub struct Called {
    pub took: Duration,
    /// The server's words when it did not work.
    pub failure: Option<String>,
}

/// The cluster at one moment. Kinds with a namespace are of [`World::scope`], but our own processes, which are looked for everywhere.
pub struct World {
    pub now: Timestamp,
    /// The namespace that was looked at; None: all.
    pub scope: Option<String>,
    /// Where operator and gateway are.
    pub home: String,
    /// Of this plugin.
    pub version: &'static str,
    /// `major.minor` of the API server.
    pub server: (u32, u32),
    pub crds: Looked<Vec<CustomResourceDefinition>>,
    pub nodes: Looked<Vec<Node>>,
    pub workspace_nodes: Looked<Vec<WorkspaceNode>>,
    pub csi_nodes: Looked<Vec<CSINode>>,
    pub deployments: Looked<Vec<Deployment>>,
    pub daemon_sets: Looked<Vec<DaemonSet>>,
    pub budgets: Looked<Vec<PodDisruptionBudget>>,
    pub leases: Looked<Vec<Lease>>,
    /// Pods of our own processes.
    pub our_pods: Looked<Vec<Pod>>,
    pub api_services: Looked<Vec<APIService>>,
    pub gateway_slices: Looked<Vec<EndpointSlice>>,
    pub called: Looked<Called>,
    pub rights: Looked<Vec<Right>>,
    pub classes: Looked<Vec<StorageClass>>,
    pub drivers: Looked<Vec<CSIDriver>>,
    pub namespaces: Looked<Vec<Namespace>>,
    pub dns_services: Looked<Vec<Service>>,
    pub dns_slices: Looked<Vec<EndpointSlice>>,
    pub policies: Looked<Vec<NetworkPolicy>>,
    pub projects: Looked<Vec<YoiProject>>,
    pub yoipods: Looked<Vec<YoiPod>>,
    pub peers: Looked<Vec<YoiPeer>>,
    pub workspaces: Looked<Vec<AgentWorkspace>>,
    /// Agents' and populators' Pods.
    pub pods: Looked<Vec<Pod>>,
    /// Claims of sessions.
    pub claims: Looked<Vec<PersistentVolumeClaim>>,
    pub volumes: Looked<Vec<PersistentVolume>>,
    /// Warnings about Pods.
    pub warnings: Looked<Vec<Event>>,
}

/// The list, or nothing where it was not seen: that is said once, by the check of rights.
pub fn seen<T>(looked: &Looked<Vec<T>>) -> &[T] {
    looked.as_deref().unwrap_or_default()
}

impl World {
    /// Everything that was not seen. Full destructuring: a new field must be felt here.
    pub fn not_looked(&self) -> Vec<&NotLooked> {
        let World {
            now: _,
            scope: _,
            home: _,
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
            called,
            rights,
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
            called.as_ref().err(),
            rights.as_ref().err(),
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

    /// Seconds since `then`, never less than 0: clocks differ.
    pub fn age(&self, then: Timestamp) -> i64 {
        (self.now.as_second() - then.as_second()).max(0)
    }

    pub fn deployment(&self, name: &str) -> Option<&Deployment> {
        seen(&self.deployments).iter().find(|d| d.name_any() == name)
    }

    pub fn api_service(&self) -> Option<&APIService> {
        seen(&self.api_services).iter().find(|a| a.name_any() == super::API_SERVICE)
    }

    /// Makes again what the release of the charts holds and the cluster has lost.
    pub fn reapply(&self, release: &str) -> String {
        format!("helm get manifest {release} -n {} | kubectl apply --server-side --force-conflicts --field-manager=helm -f -", self.home)
    }

    /// What mends a gateway that nobody can reach: more replicas where there are none.
    pub fn mend_gateway(&self) -> String {
        match self.deployment("yoi-gateway") {
            Some(d) if replicas(d) == 0 => format!("kubectl scale deployment yoi-gateway -n {} --replicas=2", self.home),
            None if self.deployments.is_ok() && self.api_service().is_some() => format!("kubectl delete apiservice {}", super::API_SERVICE),
            Some(_) | None => format!("kubectl describe pods -n {} -l app.kubernetes.io/name=yoi-gateway", self.home),
        }
    }
}

/// How many a Deployment shall have.
pub fn replicas(deployment: &Deployment) -> i32 {
    deployment.spec.as_ref().and_then(|s| s.replicas).unwrap_or(1)
}

/// `Kind namespace/name`.
pub fn called<K: kube::Resource<DynamicType = ()>>(object: &K) -> String {
    let name = object.name_any();
    match object.namespace() {
        Some(namespace) => format!("{} {namespace}/{name}", K::kind(&())),
        None => format!("{} {name}", K::kind(&())),
    }
}
