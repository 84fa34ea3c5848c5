//! Looks at the cluster with the user's own rights: everything at once, each look with a deadline of its own.

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

use super::world::{Because, Called, Looked, NotLooked, Right, World};
use crate::cluster::Cluster;
use crate::error::{About, Error};

/// For the first word of the API server: without it there is nothing to say.
const GREETING: Duration = Duration::from_secs(5);
/// For each look, all of which go at once; so the whole takes little longer.
const LOOK: Duration = Duration::from_secs(6);
const OURS: &str = "app.kubernetes.io/part-of=yoi";

/// Rights without which our processes do not work, and which a cluster's own tools take away now and then.
const RIGHTS: &[(&str, &str, &str, &str, &str)] = &[
    ("yoi-gateway", "create", "authentication.k8s.io", "tokenreviews", ""),
    ("yoi-gateway", "create", "authorization.k8s.io", "subjectaccessreviews", ""),
    ("yoi-gateway", "patch", "yoi.dev", "yoipods", "status"),
    ("yoi-operator", "create", "", "pods", ""),
    ("yoi-operator", "patch", "yoi.dev", "yoipods", "status"),
    ("yoi-operator", "patch", "apiregistration.k8s.io", "apiservices", ""),
];

struct Looking {
    client: Client,
    bar: ProgressBar,
}

impl Looking {
    /// One look: what was seen, or why not.
    async fn look<T>(&self, right: &str, seeing: impl Future<Output = kube::Result<T>>) -> Looked<T> {
        let because = match tokio::time::timeout(LOOK, seeing).await {
            Ok(Ok(seen)) => {
                self.bar.inc(1);
                return Ok(seen);
            }
            Err(_) => Because::Late,
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 401 | 403) => Because::Forbidden,
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => Because::Absent,
            Ok(Err(kube::Error::Api(status))) => Because::Failed(status.message.clone()),
            Ok(Err(error)) => Because::Failed(crate::error::chain(&error)),
        };
        self.bar.inc(1);
        Err(NotLooked { right: right.to_owned(), because })
    }

    async fn list<K>(&self, api: Api<K>, params: ListParams) -> Looked<Vec<K>>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let group = K::group(&());
        let right = if group.is_empty() { format!("list {}", K::plural(&())) } else { format!("list {}.{group}", K::plural(&())) };
        self.look(&right, async { Ok(api.list(&params).await?.items) }).await
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

    /// The aggregated API, all the way: API server, gateway, and back.
    async fn call(&self) -> Looked<Called> {
        let start = Instant::now();
        let path = format!("/apis/{GROUP}/{VERSION}");
        let asking = async {
            let request = http::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
            self.client.request::<serde_json::Value>(request).await
        };
        match self.look(&format!("get /apis/{GROUP}/{VERSION}"), asking).await {
            Ok(_) => Ok(Called { took: start.elapsed(), failure: None }),
            Err(NotLooked { because: Because::Forbidden, right }) => Err(NotLooked { because: Because::Forbidden, right }),
            Err(NotLooked { because, .. }) => {
                let words = match because {
                    Because::Failed(words) => words,
                    Because::Late => format!("no answer in {} s", LOOK.as_secs()),
                    Because::Absent | Because::Forbidden => "the API server does not know this API".to_owned(),
                };
                Ok(Called { took: start.elapsed(), failure: Some(words) })
            }
        }
    }

    async fn rights(&self, home: &str) -> Looked<Vec<Right>> {
        let api: Api<SubjectAccessReview> = self.all();
        let asked = join_all(RIGHTS.iter().map(|(name, verb, group, resource, subresource)| {
            let api = &api;
            async move {
                let account = format!("system:serviceaccount:{home}:{name}");
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
                Ok(Right { account, verb, resource, allowed })
            }
        }));
        self.look("create subjectaccessreviews.authorization.k8s.io", async { asked.await.into_iter().collect() }).await
    }
}

fn labelled(selector: &str) -> ListParams {
    ListParams::default().labels(selector)
}

/// `1.34+` and the like.
fn number(text: &str) -> u32 {
    text.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap_or_default()
}

/// # Errors
/// When the API server does not answer at all.
pub async fn gather(cluster: &Cluster, all_namespaces: bool) -> Result<World, Error> {
    let deed = "ask the API server for its version";
    let greeted = tokio::time::timeout(GREETING, cluster.client.apiserver_version()).await;
    let greeting = match greeted {
        Ok(Ok(greeting)) => greeting,
        Ok(Err(error)) => {
            let (what, look) = ("the cluster".to_owned(), "kubectl cluster-info".to_owned());
            return Err(Error::api(deed, &About { what, look, doctor: cluster.doctor(all_namespaces) }, error));
        }
        Err(_) => return Err(Error::silent(deed, GREETING)),
    };
    let bar = ProgressBar::new(27);
    bar.set_style(
        ProgressStyle::with_template("{spinner} {elapsed:>4} {pos} of {len} looks").unwrap_or_else(|_| ProgressStyle::default_spinner()),
    );
    bar.enable_steady_tick(Duration::from_millis(120));
    let l = Looking { client: cluster.client.clone(), bar };
    let scope = (!all_namespaces).then_some(cluster.namespace.as_str());
    let plain = ListParams::default;

    // Where the chart was installed stands in what it made; everything else waits for this one look.
    let api_services = l.list(l.all::<APIService>(), plain().fields(&format!("metadata.name={}", super::API_SERVICE))).await;
    let named = api_services.iter().flatten().find_map(|a| a.spec.as_ref()?.service.as_ref()?.namespace.clone());
    let home = named.unwrap_or_else(|| super::HOME.to_owned());

    let slices = |selector: &str| l.list(l.all::<EndpointSlice>(), labelled(selector));
    let (ours, fleet, storage, rest) = tokio::join!(
        async {
            tokio::join!(
                l.list(l.all(), labelled(OURS)),
                l.list(l.all(), plain()),
                l.list(l.scoped(Some(&home)), labelled(OURS)),
                l.list(l.scoped(Some(&home)), plain()),
                l.list(l.all(), labelled(OURS)),
                slices("kubernetes.io/service-name=yoi-gateway"),
                l.call(),
                l.rights(&home),
            )
        },
        async {
            tokio::join!(
                l.list(l.scoped(scope), plain()),
                l.list(l.scoped(scope), plain()),
                l.list(l.scoped(scope), plain()),
                l.list(l.scoped(scope), plain()),
                l.list(l.scoped(scope), labelled(label::ROLE)),
                l.list(l.scoped(scope), labelled(label::YOIPOD)),
                l.list(l.scoped(scope), labelled(label::ROLE)),
                l.list(l.scoped(scope), plain().fields("type=Warning,involvedObject.kind=Pod").limit(500)),
            )
        },
        async {
            tokio::join!(
                l.list(l.all(), plain()),
                l.list(l.all(), plain()),
                l.list(l.all(), plain()),
                l.list(l.all(), plain()),
                l.list(l.all(), plain()),
                l.list(l.all(), plain()),
            )
        },
        async {
            tokio::join!(
                l.list(l.all(), plain()),
                l.list(l.all(), plain()),
                l.list(l.scoped::<Service>(Some("kube-system")), labelled("k8s-app=kube-dns")),
                slices("k8s-app=kube-dns"),
            )
        },
    );
    l.bar.finish_and_clear();
    let (deployments, daemon_sets, budgets, leases, our_pods, gateway_slices, called, rights) = ours;
    let (projects, yoipods, peers, workspaces, pods, claims, policies, warnings) = fleet;
    let (classes, drivers, volumes, csi_nodes, nodes, workspace_nodes) = storage;
    let (crds, namespaces, dns_services, dns_slices) = rest;
    Ok(World {
        now: Timestamp::now(),
        scope: scope.map(str::to_owned),
        home,
        version: env!("CARGO_PKG_VERSION"),
        server: (number(&greeting.major), number(&greeting.minor)),
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
    })
}
