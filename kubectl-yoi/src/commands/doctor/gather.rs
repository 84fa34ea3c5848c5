//! Reads the cluster with the user's own permissions. All requests go at once, and each has its own timeout.

use std::fmt::Debug;
use std::future::Future;
use std::time::{Duration, Instant};

use futures::future::join_all;
use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use yoi_crds::name::label;
use yoi_wire::people::{GROUP, VERSION};

use super::observed::{ApiCall, ObservedCluster, Permission, ReadFailure, ReadFailureCause, ReadResult};
use crate::cluster::Cluster;
use crate::error::{Error, ErrorTarget};

/// For the version of the API server. Without an answer the doctor ends.
const VERSION_TIMEOUT: Duration = Duration::from_secs(5);
/// For each request. All go at once, so the whole takes little longer.
const READ_TIMEOUT: Duration = Duration::from_secs(6);
const PART_OF_YOI: &str = "app.kubernetes.io/part-of=yoi";

/// Permissions without which our processes do not work, and which other tools of a cluster may take away: service account, verb, API group,
/// resource, subresource.
const REQUIRED_PERMISSIONS: &[(&str, &str, &str, &str, &str)] = &[
    ("yoi-gateway", "create", "authentication.k8s.io", "tokenreviews", ""),
    ("yoi-gateway", "create", "authorization.k8s.io", "subjectaccessreviews", ""),
    ("yoi-gateway", "patch", "yoi.dev", "yoipods", "status"),
    ("yoi-operator", "create", "", "pods", ""),
    ("yoi-operator", "patch", "yoi.dev", "yoipods", "status"),
    ("yoi-operator", "patch", "apiregistration.k8s.io", "apiservices", ""),
];

struct Observer {
    client: Client,
    bar: ProgressBar,
}

impl Observer {
    /// Awaits one request with the timeout. `permission` is what it takes, for the failure.
    async fn read<T>(&self, permission: &str, request: impl Future<Output = kube::Result<T>>) -> ReadResult<T> {
        let cause = match tokio::time::timeout(READ_TIMEOUT, request).await {
            Ok(Ok(value)) => {
                self.bar.inc(1);
                return Ok(value);
            }
            Err(_) => ReadFailureCause::TimedOut,
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 401 | 403) => ReadFailureCause::Forbidden,
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => ReadFailureCause::Absent,
            Ok(Err(kube::Error::Api(status))) => ReadFailureCause::Failed(status.message.clone()),
            Ok(Err(error)) => ReadFailureCause::Failed(yoi_wire::error_chain(&error)),
        };
        self.bar.inc(1);
        Err(ReadFailure { permission: permission.to_owned(), cause })
    }

    async fn list<K>(&self, api: Api<K>, params: ListParams) -> ReadResult<Vec<K>>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let group = K::group(&());
        let permission = if group.is_empty() { format!("list {}", K::plural(&())) } else { format!("list {}.{group}", K::plural(&())) };
        self.read(&permission, async { Ok(api.list(&params).await?.items) }).await
    }

    fn all<K: Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    fn scoped<K>(&self, scope: Option<&str>) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        match scope {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        }
    }

    /// Calls the aggregated API, through API server and gateway, and measures the time.
    async fn call_aggregated_api(&self) -> ReadResult<ApiCall> {
        let start = Instant::now();
        let path = format!("/apis/{GROUP}/{VERSION}");
        let call = async {
            let request = http::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
            self.client.request::<serde_json::Value>(request).await
        };
        match self.read(&format!("get /apis/{GROUP}/{VERSION}"), call).await {
            Ok(_) => Ok(ApiCall { took: start.elapsed(), failure: None }),
            Err(ReadFailure { cause: ReadFailureCause::Forbidden, permission }) => {
                Err(ReadFailure { cause: ReadFailureCause::Forbidden, permission })
            }
            Err(ReadFailure { cause, .. }) => {
                let message = match cause {
                    ReadFailureCause::Failed(message) => message,
                    ReadFailureCause::TimedOut => format!("no answer in {} s", READ_TIMEOUT.as_secs()),
                    ReadFailureCause::Absent | ReadFailureCause::Forbidden => "the API server does not know this API".to_owned(),
                };
                Ok(ApiCall { took: start.elapsed(), failure: Some(message) })
            }
        }
    }

    async fn permissions(&self, operator_namespace: &str) -> ReadResult<Vec<Permission>> {
        let api: Api<SubjectAccessReview> = self.all();
        let reviews = join_all(REQUIRED_PERMISSIONS.iter().map(|(name, verb, group, resource, subresource)| {
            let api = &api;
            async move {
                let account = format!("system:serviceaccount:{operator_namespace}:{name}");
                let attributes = ResourceAttributes {
                    verb: Some((*verb).to_owned()),
                    group: Some((*group).to_owned()),
                    resource: Some((*resource).to_owned()),
                    subresource: (!subresource.is_empty()).then(|| (*subresource).to_owned()),
                    name: (*resource == "apiservices").then(|| super::API_SERVICE.to_owned()),
                    ..ResourceAttributes::default()
                };
                let spec =
                    SubjectAccessReviewSpec { user: Some(account.clone()), resource_attributes: Some(attributes), ..Default::default() };
                let review = SubjectAccessReview { spec, ..Default::default() };
                let allowed = api.create(&PostParams::default(), &review).await?.status.is_some_and(|s| s.allowed);
                Ok(Permission { account, verb, resource, allowed })
            }
        }));
        self.read("create subjectaccessreviews.authorization.k8s.io", async { reviews.await.into_iter().collect() }).await
    }
}

fn with_labels(selector: &str) -> ListParams {
    ListParams::default().labels(selector)
}

/// Returns the number at the start of a text such as `34+`.
fn leading_number(text: &str) -> u32 {
    text.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap_or_default()
}

/// Reads all that the checks need.
///
/// # Errors
/// When the API server does not answer at all.
pub async fn gather(cluster: &Cluster, all_namespaces: bool) -> Result<ObservedCluster, Error> {
    let operation = "ask the API server for its version";
    let answered = tokio::time::timeout(VERSION_TIMEOUT, cluster.client.apiserver_version()).await;
    let version = match answered {
        Ok(Ok(version)) => version,
        Ok(Err(error)) => {
            let (name, list_command) = ("the cluster".to_owned(), "kubectl cluster-info".to_owned());
            return Err(Error::api(
                operation,
                &ErrorTarget { name, list_command, doctor_command: cluster.doctor_command(all_namespaces) },
                error,
            ));
        }
        Err(_) => return Err(Error::no_answer(operation, VERSION_TIMEOUT)),
    };
    let bar = ProgressBar::new(27);
    bar.set_style(
        ProgressStyle::with_template("{spinner} {elapsed:>4} {pos} of {len} looks").unwrap_or_else(|_| ProgressStyle::default_spinner()),
    );
    bar.enable_steady_tick(Duration::from_millis(120));
    let observer = Observer { client: cluster.client.clone(), bar };
    let scope = (!all_namespaces).then_some(cluster.namespace.as_str());
    let unfiltered = ListParams::default;

    // The APIService names the namespace of the chart. All other requests need it, so this one goes first.
    let api_services =
        observer.list(observer.all::<APIService>(), unfiltered().fields(&format!("metadata.name={}", super::API_SERVICE))).await;
    let service_namespace = api_services.iter().flatten().find_map(|a| a.spec.as_ref()?.service.as_ref()?.namespace.clone());
    let operator_namespace = service_namespace.unwrap_or_else(|| super::DEFAULT_NAMESPACE.to_owned());

    let slices = |selector: &str| observer.list(observer.all::<EndpointSlice>(), with_labels(selector));
    let (ours, fleet, storage, rest) = tokio::join!(
        async {
            tokio::join!(
                observer.list(observer.all(), with_labels(PART_OF_YOI)),
                observer.list(observer.all(), unfiltered()),
                observer.list(observer.scoped(Some(&operator_namespace)), with_labels(PART_OF_YOI)),
                observer.list(observer.scoped(Some(&operator_namespace)), unfiltered()),
                observer.list(observer.all(), with_labels(PART_OF_YOI)),
                slices("kubernetes.io/service-name=yoi-gateway"),
                observer.call_aggregated_api(),
                observer.permissions(&operator_namespace),
            )
        },
        async {
            tokio::join!(
                observer.list(observer.scoped(scope), unfiltered()),
                observer.list(observer.scoped(scope), unfiltered()),
                observer.list(observer.scoped(scope), unfiltered()),
                observer.list(observer.scoped(scope), unfiltered()),
                observer.list(observer.scoped(scope), with_labels(label::ROLE)),
                observer.list(observer.scoped(scope), with_labels(label::YOIPOD)),
                observer.list(observer.scoped(scope), with_labels(label::ROLE)),
                observer.list(observer.scoped(scope), unfiltered().fields("type=Warning,involvedObject.kind=Pod").limit(500)),
            )
        },
        async {
            tokio::join!(
                observer.list(observer.all(), unfiltered()),
                observer.list(observer.all(), unfiltered()),
                observer.list(observer.all(), unfiltered()),
                observer.list(observer.all(), unfiltered()),
                observer.list(observer.all(), unfiltered()),
                observer.list(observer.all(), unfiltered()),
            )
        },
        async {
            tokio::join!(
                observer.list(observer.all(), unfiltered()),
                observer.list(observer.all(), unfiltered()),
                observer.list(observer.scoped::<Service>(Some("kube-system")), with_labels("k8s-app=kube-dns")),
                slices("k8s-app=kube-dns"),
            )
        },
    );
    observer.bar.finish_and_clear();
    let (deployments, daemon_sets, budgets, leases, our_pods, gateway_slices, api_call, permissions) = ours;
    let (projects, yoipods, peers, workspaces, pods, claims, policies, warnings) = fleet;
    let (classes, drivers, volumes, csi_nodes, nodes, workspace_nodes) = storage;
    let (crds, namespaces, dns_services, dns_slices) = rest;
    Ok(ObservedCluster {
        now: Timestamp::now(),
        patience_percent: cluster.patience_percent,
        scope: scope.map(str::to_owned),
        operator_namespace,
        version: env!("CARGO_PKG_VERSION"),
        server: (leading_number(&version.major), leading_number(&version.minor)),
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
    })
}
