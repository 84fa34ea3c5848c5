//! The client of the API server: our objects, and the aggregated API.

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
use yoi_crds::name::field_manager;
use yoi_wire::people::{GROUP, VERSION};

use crate::args;
use crate::error::{self, Error, ErrorTarget, RefusalKind};

pub struct Cluster {
    pub client: Client,
    pub namespace: String,
}

/// A kind whose objects are in a namespace.
pub trait NamespacedObject:
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
impl<K> NamespacedObject for K where
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
    /// Reads the kubeconfig and makes a client. It does not connect yet.
    ///
    /// # Errors
    /// [`Error::Config`] when there is no configuration or it is wrong.
    pub async fn connect(args: &args::ClusterOptions) -> Result<Self, Error> {
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
        // The gateway answers 503 for an agent that it cannot reach now. The user sees that answer at once, without retries.
        config.default_retry = false;
        let client = kube::client::ClientBuilder::try_from(config)
            .map_err(|e| Error::Config { source: Box::new(e) })?
            // The timeout covers the headers of an answer. Streams may last longer.
            .with_layer(&tower::timeout::TimeoutLayer::new(Duration::from_secs(60)))
            .build();
        Ok(Cluster { client, namespace })
    }

    pub fn api<K: NamespacedObject>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Returns `Kind namespace/name`, the name of an object in messages.
    pub fn display_name<K: NamespacedObject>(&self, name: &str) -> String {
        format!("{} {}/{name}", K::kind(&()), self.namespace)
    }

    /// Returns the command that lists the objects of a kind. Messages about a missing object name it as the next step.
    pub fn list_command<K: NamespacedObject>(&self) -> String {
        let list = match &*K::plural(&()) {
            "yoipods" => return self.plugin_command("ls agents"),
            "agentworkspaces" => return self.plugin_command("ls workspaces"),
            "yoipeers" => return self.plugin_command("ls peers"),
            other => format!("kubectl get {other}"),
        };
        format!("{list} -n {}", self.namespace)
    }

    /// Returns the command `kubectl yoi` with these words and with `-n`, so that it works in whatever namespace the user's context is.
    pub fn plugin_command(&self, words: &str) -> String {
        format!("kubectl yoi {words} -n {}", self.namespace)
    }

    /// Returns the command of the doctor that looks at the same objects.
    pub fn doctor_command(&self, all_namespaces: bool) -> String {
        if all_namespaces { "kubectl yoi doctor -A".to_owned() } else { self.plugin_command("doctor") }
    }

    /// Returns the error for a failed operation on one object.
    fn api_error<K: NamespacedObject>(&self, operation: &str, name: &str) -> impl FnOnce(kube::Error) -> Error {
        let target = ErrorTarget {
            name: self.display_name::<K>(name),
            list_command: self.list_command::<K>(),
            doctor_command: self.doctor_command(false),
        };
        let operation = format!("{operation} {}", target.name);
        move |error| Error::api(operation, &target, error)
    }

    /// Returns the error for an operation on one object that the verb itself refuses.
    pub fn refused_error<K: NamespacedObject>(
        &self,
        operation: &str,
        name: &str,
        message: impl Into<String>,
        next: impl Into<String>,
    ) -> Error {
        Error::refused_error(format!("{operation} {}", self.display_name::<K>(name)), message, next, RefusalKind::Other)
    }

    /// Returns the error for an object that was deleted while a verb waited for it.
    pub fn gone_error<K: NamespacedObject>(&self, name: &str) -> Error {
        Error::Gone { what: self.display_name::<K>(name), next: self.list_command::<K>() }
    }

    pub fn task_failed(&self, name: &str, why: &str) -> Error {
        let next = self.plugin_command(&format!("log {name}"));
        Error::TaskFailed { what: self.display_name::<YoiPod>(name), why: why.to_owned(), next }
    }

    pub async fn get<K: NamespacedObject>(&self, name: &str) -> Result<K, Error> {
        self.api::<K>().get(name).await.map_err(self.api_error::<K>("read", name))
    }

    pub async fn list<K: NamespacedObject>(&self, all_namespaces: bool) -> Result<Vec<K>, Error> {
        let api: Api<K> = if all_namespaces { Api::all(self.client.clone()) } else { self.api() };
        let what = format!("the list of {}s", K::kind(&()));
        let target =
            ErrorTarget { name: what, list_command: "kubectl get crds".to_owned(), doctor_command: self.doctor_command(all_namespaces) };
        let listed = api.list(&ListParams::default()).await;
        let mut items = listed.map_err(|e| Error::api(format!("read {}", target.name), &target, e))?.items;
        items.sort_by_key(|o| (o.namespace(), o.name_any()));
        Ok(items)
    }

    pub async fn create<K: NamespacedObject>(&self, object: &K) -> Result<K, Error> {
        let params = PostParams { field_manager: Some(field_manager::PLUGIN.into()), ..Default::default() };
        self.api::<K>().create(&params, object).await.map_err(self.api_error::<K>("create", &object.name_any()))
    }

    pub async fn patch<K: NamespacedObject>(&self, name: &str, patch: &serde_json::Value) -> Result<K, Error> {
        let params = PatchParams { field_manager: Some(field_manager::PLUGIN.into()), ..Default::default() };
        self.api::<K>().patch(name, &params, &Patch::Merge(patch)).await.map_err(self.api_error::<K>("change", name))
    }

    /// Deletes this object, by its UID. A later object of the same name stays.
    pub async fn delete<K: NamespacedObject>(&self, object: &K) -> Result<(), Error> {
        let params =
            DeleteParams { preconditions: Some(Preconditions { uid: object.uid(), resource_version: None }), ..Default::default() };
        self.api::<K>().delete(&object.name_any(), &params).await.map_err(self.api_error::<K>("delete", &object.name_any()))?;
        Ok(())
    }

    /// Watches one object and calls `until` with each state, or with `None` while it does not exist, until that returns [`Wait::Done`].
    ///
    /// # Errors
    /// The error of `until`, or [`Error::TimedOut`] with the last reason of [`Wait::Pending`].
    pub async fn wait<K: NamespacedObject, T>(
        &self,
        name: &str,
        timeout: Duration,
        goal: &str,
        mut until: impl FnMut(Option<&K>) -> Result<Wait<T>, Error>,
    ) -> Result<T, Error> {
        let what = self.display_name::<K>(name);
        let mut stream = watcher::watch_object(self.api::<K>(), name).default_backoff().boxed();
        let mut why = "nothing was heard of it".to_owned();
        let watching = async {
            while let Some(next) = stream.next().await {
                match next {
                    Ok(object) => match until(object.as_ref())? {
                        Wait::Done(value) => return Ok(Some(value)),
                        Wait::Pending(reason) => why = reason,
                    },
                    // The watcher tries again by itself. The timeout shows its last error.
                    Err(error) => why = error::watch_error_message(&error),
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

    /// Returns the error for a request to an agent that cannot be built.
    fn invalid_request(&self, name: &str, error: impl std::error::Error + Send + Sync + 'static) -> Error {
        let operation = format!("write a request to {}", self.display_name::<YoiPod>(name));
        Error::local(operation, error, "check its name, the namespace and the words of the command line")
    }

    fn runtime_path(&self, name: &str, subresource: &str) -> String {
        format!("/apis/{GROUP}/{VERSION}/namespaces/{}/yoipods/{name}/{subresource}", self.namespace)
    }

    /// Opens a `GET` of a subresource of the aggregated API.
    pub async fn stream(&self, name: &str, subresource: &str, query: &str) -> Result<impl AsyncBufRead + use<>, Error> {
        let request = http::Request::get(format!("{}?{query}", self.runtime_path(name, subresource)))
            .body(Vec::new())
            .map_err(|e| self.invalid_request(name, e))?;
        self.client.request_stream(request).await.map_err(self.api_error::<YoiPod>(&format!("read the {subresource} of"), name))
    }

    pub async fn fetch<T: DeserializeOwned>(&self, name: &str, subresource: &str) -> Result<T, Error> {
        let request =
            http::Request::get(self.runtime_path(name, subresource)).body(Vec::new()).map_err(|e| self.invalid_request(name, e))?;
        self.client.request(request).await.map_err(self.api_error::<YoiPod>(&format!("read the {subresource} of"), name))
    }

    pub async fn post<T: DeserializeOwned>(&self, name: &str, subresource: &str, body: &impl Serialize) -> Result<T, Error> {
        let bytes = serde_json::to_vec(body).map_err(|e| self.invalid_request(name, e))?;
        let request = http::Request::post(self.runtime_path(name, subresource))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(bytes)
            .map_err(|e| self.invalid_request(name, e))?;
        self.client.request(request).await.map_err(self.api_error::<YoiPod>(&format!("post a {subresource} to"), name))
    }
}

pub enum Wait<T> {
    Done(T),
    Pending(String),
}

/// Splits a stream into lines without their newline.
pub fn lines(reader: impl AsyncBufRead + Unpin) -> impl futures::Stream<Item = std::io::Result<String>> {
    futures::AsyncBufReadExt::lines(reader).into_stream()
}

/// A cluster for tests that gives the same answer to every request.
#[cfg(test)]
pub fn fake_cluster(answer: serde_json::Value) -> Cluster {
    use kube::client::Body;
    let service = tower::service_fn(move |_: http::Request<Body>| {
        let answer = http::Response::new(Body::from(answer.to_string().into_bytes()));
        std::future::ready(Ok::<_, std::convert::Infallible>(answer))
    });
    Cluster { client: Client::new(service, "default"), namespace: "ns".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use serde_json::json;
    use yoi_crds::AgentWorkspace;

    #[tokio::test]
    async fn what_ended_while_it_was_waited_for_is_told_with_the_next_command_of_its_namespace() {
        let cluster = fake_cluster(json!({}));
        for (error, words, code) in [
            (cluster.gone_error::<YoiPod>("a"), "YoiPod ns/a was deleted meanwhile\n  next: kubectl yoi ls agents -n ns", 3),
            (
                cluster.gone_error::<AgentWorkspace>("w"),
                "AgentWorkspace ns/w was deleted meanwhile\n  next: kubectl yoi ls workspaces -n ns",
                3,
            ),
            (cluster.task_failed("a", "no"), "the task of YoiPod ns/a failed: no\n  next: kubectl yoi log a -n ns", 6),
            (cluster.refused_error::<YoiPod>("stop", "a", "no", "look"), "failed to stop YoiPod ns/a: no\n  next: look", 1),
        ] {
            assert_eq!((error.to_string().as_str(), error.exit_code()), (words, code));
        }
        assert_eq!([cluster.doctor_command(false), cluster.doctor_command(true)], ["kubectl yoi doctor -n ns", "kubectl yoi doctor -A"]);
    }

    /// The verbs refuse these lines by themselves, on a cluster where every object is this one.
    #[tokio::test]
    async fn every_refusal_of_a_verb_names_its_object_and_a_next_step_of_its_namespace() {
        let object = json!({ "metadata": { "name": "a", "namespace": "ns" },
            "spec": { "projectRef": { "name": "p" }, "agent": { "builtin": {} }, "source": { "empty": {} } },
            "status": { "pod": { "name": "a-1", "uid": "u" } } });
        let cluster = fake_cluster(object);
        for (line, words, next) in [
            ("peer a a", "failed to give a peer to YoiPod ns/a: an agent cannot be its own peer", "kubectl yoi ls agents -n ns"),
            ("rm a", "failed to delete YoiPod ns/a: its Pod is still there", "kubectl yoi stop --wait a -n ns"),
            ("run a -p p", "failed to run YoiPod ns/a: neither the command nor YoiProject ns/p says which", "give --model-provider"),
        ] {
            let cli = Cli::from_words(["kubectl-yoi"].into_iter().chain(line.split(' '))).unwrap();
            let result = match cli.command {
                Command::Peer(args) => crate::commands::peer::peer(&cluster, None, &args).await,
                Command::Rm(args) => crate::commands::agents::rm(&cluster, None, &args).await,
                Command::Run(args) => crate::commands::run::run(&cluster, None, args).await,
                _ => panic!("no row calls `{line}`"),
            };
            let text = result.unwrap_err().to_string();
            let (why, step) = text.split_once("\n  next: ").unwrap_or_else(|| panic!("no next step: {text}"));
            assert!(why.starts_with(words) && step.contains(next), "{text}");
        }
    }
}
