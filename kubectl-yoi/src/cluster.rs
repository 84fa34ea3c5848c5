//! One connection to the API server; objects and the aggregated API by it.

use std::fmt::Debug;
use std::time::Duration;

use futures::{AsyncBufRead, StreamExt, TryStreamExt};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Config, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use yoi_crds::YoiPod;
use yoi_crds::name::manager;
use yoi_wire::people::{GROUP, VERSION};

use crate::args;
use crate::error::{self, Error};

pub struct Cluster {
    pub client: Client,
    pub namespace: String,
}

/// Kinds that live in a namespace and are told apart by name.
pub trait Object:
    Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
    + Clone
    + Debug
    + DeserializeOwned
    + Serialize
    + Send
    + Sync
    + 'static
{
}
impl<K> Object for K where
    K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize
        + Send
        + Sync
        + 'static
{
}

impl Cluster {
    /// # Errors
    /// When no configuration is found or it does not make sense.
    pub async fn connect(args: &args::Cluster) -> Result<Self, Error> {
        let options = KubeConfigOptions { context: args.context.clone(), ..Default::default() };
        let mut config = match &args.kubeconfig {
            Some(path) => {
                let file = Kubeconfig::read_from(path).map_err(|e| Error::Config { source: Box::new(e) })?;
                Config::from_custom_kubeconfig(file, &options).await.map_err(|e| Error::Config { source: Box::new(e) })?
            }
            None if args.context.is_some() => Config::from_kubeconfig(&options).await.map_err(|e| Error::Config { source: Box::new(e) })?,
            None => Config::infer().await.map_err(|e| Error::Config { source: Box::new(e) })?,
        };
        let namespace = args.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        // 503 is the gateway's word for an agent that cannot be reached now. A person wants to read it, not to wait while it is asked for again.
        config.default_retry = false;
        let client = kube::client::ClientBuilder::try_from(config)
            .map_err(|e| Error::Config { source: Box::new(e) })?
            // Bounds the wait for an answer's headers; streams live on.
            .with_layer(&tower::timeout::TimeoutLayer::new(Duration::from_secs(60)))
            .build();
        Ok(Cluster { client, namespace })
    }

    pub fn api<K: Object>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// `Kind namespace/name`, as errors call an object.
    pub fn called<K: Object>(&self, name: &str) -> String {
        format!("{} {}/{name}", K::kind(&()), self.namespace)
    }

    /// The command that lists the objects of a kind: the next step where one of them is missing.
    pub fn look<K: Object>(&self) -> String {
        let list = match &*K::plural(&()) {
            "yoipods" => "kubectl yoi ls agents".to_owned(),
            "agentworkspaces" => "kubectl yoi ls workspaces".to_owned(),
            "yoipeers" => "kubectl yoi ls peers".to_owned(),
            other => format!("kubectl get {other}"),
        };
        format!("{list} -n {}", self.namespace)
    }

    /// What the API server said of a deed on one object.
    fn said<K: Object>(&self, deed: &str, name: &str) -> impl FnOnce(kube::Error) -> Error {
        let (what, look) = (self.called::<K>(name), self.look::<K>());
        let deed = format!("{deed} {what}");
        move |error| Error::api(deed, &what, &look, error)
    }

    pub async fn get<K: Object>(&self, name: &str) -> Result<K, Error> {
        self.api::<K>().get(name).await.map_err(self.said::<K>("read", name))
    }

    pub async fn list<K: Object>(&self, all_namespaces: bool) -> Result<Vec<K>, Error> {
        let api: Api<K> = if all_namespaces { Api::all(self.client.clone()) } else { self.api() };
        let what = format!("the list of {}s", K::kind(&()));
        let listed = api.list(&ListParams::default()).await;
        let mut items = listed.map_err(|e| Error::api(format!("read {what}"), &what, "kubectl get crds", e))?.items;
        items.sort_by_key(|o| (o.namespace(), o.name_any()));
        Ok(items)
    }

    pub async fn create<K: Object>(&self, object: &K) -> Result<K, Error> {
        let params = PostParams { field_manager: Some(manager::PLUGIN.into()), ..Default::default() };
        self.api::<K>().create(&params, object).await.map_err(self.said::<K>("create", &object.name_any()))
    }

    pub async fn merge<K: Object>(&self, name: &str, patch: &serde_json::Value) -> Result<K, Error> {
        let params = PatchParams { field_manager: Some(manager::PLUGIN.into()), ..Default::default() };
        self.api::<K>().patch(name, &params, &Patch::Merge(patch)).await.map_err(self.said::<K>("change", name))
    }

    /// Deletes exactly the object that was looked at: a later one of the same name stays.
    pub async fn delete<K: Object>(&self, object: &K) -> Result<(), Error> {
        let params =
            DeleteParams { preconditions: Some(Preconditions { uid: object.uid(), resource_version: None }), ..Default::default() };
        self.api::<K>().delete(&object.name_any(), &params).await.map_err(self.said::<K>("delete", &object.name_any()))?;
        Ok(())
    }

    /// Follows one object and hands each state to `until` (None: it does not exist) until that gives an answer.
    ///
    /// # Errors
    /// `until`'s own, or [`Error::TimedOut`] with the last answer of `why`.
    pub async fn wait<K: Object, T>(
        &self,
        name: &str,
        timeout: Duration,
        goal: &str,
        mut until: impl FnMut(Option<&K>) -> Result<Wait<T>, Error>,
    ) -> Result<T, Error> {
        let what = self.called::<K>(name);
        let mut stream = watcher::watch_object(self.api::<K>(), name).default_backoff().boxed();
        let mut why = "nothing was heard of it".to_owned();
        let watching = async {
            while let Some(next) = stream.next().await {
                match next {
                    Ok(object) => match until(object.as_ref())? {
                        Wait::Over(value) => return Ok(Some(value)),
                        Wait::Still(reason) => why = reason,
                    },
                    // The watcher tries again by itself; what it says last is what the person sees if that never helps.
                    Err(error) => why = error::of_watch(&error),
                }
            }
            Ok(None)
        };
        match tokio::time::timeout(timeout, watching).await {
            Ok(Ok(Some(value))) => Ok(value),
            Ok(Err(error)) => Err(error),
            Ok(Ok(None)) | Err(_) => Err(Error::TimedOut {
                what: format!("{what}: {goal}"),
                seconds: timeout.as_secs(),
                why,
                next: format!("kubectl describe {} {name} -n {}", K::plural(&()), self.namespace),
            }),
        }
    }

    fn runtime_path(&self, name: &str, subresource: &str) -> String {
        format!("/apis/{GROUP}/{VERSION}/namespaces/{}/yoipods/{name}/{subresource}", self.namespace)
    }

    /// `GET` of a subresource of the aggregated API, as lines.
    pub async fn stream(&self, name: &str, subresource: &str, query: &str) -> Result<impl AsyncBufRead + use<>, Error> {
        let request = http::Request::get(format!("{}?{query}", self.runtime_path(name, subresource)))
            .body(Vec::new())
            .map_err(|e| Error::Local { deed: "build the request", source: Box::new(e) })?;
        self.client.request_stream(request).await.map_err(self.said::<YoiPod>(&format!("read the {subresource} of"), name))
    }

    pub async fn fetch<T: DeserializeOwned>(&self, name: &str, subresource: &str) -> Result<T, Error> {
        let request = http::Request::get(self.runtime_path(name, subresource))
            .body(Vec::new())
            .map_err(|e| Error::Local { deed: "build the request", source: Box::new(e) })?;
        self.client.request(request).await.map_err(self.said::<YoiPod>(&format!("read the {subresource} of"), name))
    }

    pub async fn post<T: DeserializeOwned>(&self, name: &str, subresource: &str, body: &impl Serialize) -> Result<T, Error> {
        let bytes = serde_json::to_vec(body).map_err(|e| Error::Local { deed: "write the request", source: Box::new(e) })?;
        let request = http::Request::post(self.runtime_path(name, subresource))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(bytes)
            .map_err(|e| Error::Local { deed: "build the request", source: Box::new(e) })?;
        self.client.request(request).await.map_err(self.said::<YoiPod>(&format!("post a {subresource} to"), name))
    }
}

pub enum Wait<T> {
    Over(T),
    Still(String),
}

/// Lines of a stream, without their newline.
pub fn lines(reader: impl AsyncBufRead + Unpin) -> impl futures::Stream<Item = std::io::Result<String>> {
    futures::AsyncBufReadExt::lines(reader).into_stream()
}
