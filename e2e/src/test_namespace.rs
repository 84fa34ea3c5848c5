//! A namespace of the cluster that one test has for itself.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use futures::StreamExt;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Config, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use yoi_crds::Condition;
use yoi_crds::condition::{ConditionStatus, find};
use yoi_wire::people::LogLine;

use crate::locks::{self, Held};
use crate::program::{self, CommandOutput};
use crate::{poll_seen, poll_until};

/// Any kind that is namespaced.
pub trait TestObject:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize + Send + Sync + 'static
{
}
impl<K> TestObject for K where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize + Send + Sync + 'static
{
}

/// How long any single step takes at most on a quiet machine with two cores. A wait for it goes on for [`yoi_test_support::limit`] of that.
pub const TIMEOUT: Duration = Duration::from_secs(180);

/// A namespace with Pod Security restricted, and the programs and images to test with.
pub struct TestNamespace {
    /// A client with the rights of the cluster's administrator.
    pub client: Client,
    /// Name of the namespace.
    pub name: String,
    /// References of our images by their short names.
    images: BTreeMap<String, String>,
    /// Yoi stays as it was installed while there is this namespace.
    _intact: Held,
}

fn environment(name: &str) -> Result<String> {
    std::env::var(name).with_context(|| format!("{name} is not set: run these tests by `cargo xtask test`"))
}

const OPERATOR: &str = "system:serviceaccount:yoi-system:yoi-operator";

/// Returns a client with the rights of the cluster's administrator under the operator's name: only the operator may create bases, and Pods with the
/// label `yoi.dev/role`.
///
/// # Errors
/// When there is no kubeconfig.
pub async fn client_as_operator() -> Result<Client> {
    let mut config = Config::infer().await?;
    config.auth_info.impersonate = Some(OPERATOR.to_owned());
    config.auth_info.impersonate_groups = Some(vec!["system:masters".to_owned()]);
    Ok(Client::try_from(config)?)
}

/// Waits until the namespaces of tests are gone whose deletion was requested: see [`TestNamespace::remove`].
///
/// # Errors
/// After [`TIMEOUT`].
pub async fn wait_removed(client: &Client) -> Result<()> {
    let namespaces = Api::<Namespace>::all(client.clone());
    poll_until(TIMEOUT, "the namespaces of former tests are gone", async || {
        let of_tests = namespaces.list(&ListParams::default().labels("yoi.dev/e2e=true")).await?.items;
        Ok(of_tests.iter().all(|namespace| namespace.metadata.deletion_timestamp.is_none()).then_some(()))
    })
    .await
    .map(drop)
}

impl TestNamespace {
    /// Creates a namespace that enforces Pod Security restricted. Its name begins with `e2e-` and `test`. Waits while another test holds one of
    /// [`locks::INTACT`] alone.
    ///
    /// # Errors
    /// When the environment of `cargo xtask test` is missing or the cluster does not answer.
    pub async fn create(test: &str) -> Result<TestNamespace> {
        let images = environment("YOI_IMAGES")?;
        let images = serde_json::from_slice(&std::fs::read(&images).with_context(|| format!("failed to read {images}"))?)?;
        environment("KUBECONFIG")?;
        let intact = locks::intact().await?;
        let client = Client::try_default().await?;
        let nanos = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_nanos();
        let namespace = format!("e2e-{}-{:06x}", test.replace('_', "-"), nanos % 0x00ff_ffff);
        let object: Namespace = serde_json::from_value(json!({
            "metadata": { "name": namespace, "labels": {
                "pod-security.kubernetes.io/enforce": "restricted", "yoi.dev/e2e": "true" } }
        }))?;
        Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &object).await?;
        let ns = TestNamespace { client, name: namespace, images, _intact: intact };
        // Kubernetes creates this account a little later, and refuses Pods and tokens until then.
        ns.wait_for::<ServiceAccount, ()>("default", "there", |account| account.map(drop)).await?;
        Ok(ns)
    }

    /// Creates a second namespace for the same test.
    ///
    /// # Errors
    /// As [`TestNamespace::create`].
    pub async fn create_other(&self) -> Result<TestNamespace> {
        TestNamespace::create("beside").await
    }

    /// Requests the deletion of the namespace and does not wait for it: `cargo xtask test` waits once for all at its end, and fails with the conditions of
    /// those that do not go. A test that fails before this leaves its namespace as it is, for whoever looks why.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn remove(self) -> Result<()> {
        self.request_removal().await.map(drop)
    }

    /// Deletes the namespace and waits until it is gone, where the deletion is what is tested, or what follows needs it. A deletion that hangs fails the test.
    ///
    /// # Errors
    /// When the namespace still exists after the limit of [`TIMEOUT`], with the conditions that say why.
    pub async fn remove_and_wait(self) -> Result<()> {
        let api = self.request_removal().await?;
        poll_seen(TIMEOUT, &format!("namespace {} is gone", self.name), async || {
            let Some(namespace) = api.get_opt(&self.name).await? else { return Ok(Ok(())) };
            let held = namespace.status.and_then(|s| s.conditions).unwrap_or_default();
            let held: Vec<_> = held.into_iter().filter(|c| c.status == "True").filter_map(|c| c.message).collect();
            Ok(Err(held.join("; ")))
        })
        .await
        .map(drop)
    }

    async fn request_removal(&self) -> Result<Api<Namespace>> {
        let api = Api::<Namespace>::all(self.client.clone());
        api.delete(&self.name, &DeleteParams::default()).await?;
        Ok(api)
    }

    /// Returns the reference of one of our images by its short name.
    ///
    /// # Errors
    /// When `cargo xtask images` did not build it.
    pub fn image(&self, name: &str) -> Result<&str> {
        self.images.get(name).map(String::as_str).with_context(|| format!("no image {name} in YOI_IMAGES"))
    }

    /// Returns the API of a kind in this namespace.
    #[must_use]
    pub fn api<K: TestObject>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.name)
    }

    /// Applies YAML documents with `kubectl apply` in this namespace. Replaces `$NAMESPACE` and `$image(x)` in them.
    ///
    /// # Errors
    /// When kubectl fails, with its output.
    pub async fn apply(&self, yaml: &str) -> Result<()> {
        self.try_apply(yaml).await?.exit_ok().map(drop)
    }

    /// As [`TestNamespace::apply`], and returns the output when kubectl refuses.
    ///
    /// # Errors
    /// When kubectl cannot be run.
    pub async fn try_apply(&self, yaml: &str) -> Result<CommandOutput> {
        self.apply_with(yaml, &[]).await
    }

    /// As [`TestNamespace::apply`], under the operator's name: see [`client_as_operator`].
    ///
    /// # Errors
    /// When kubectl cannot be run or fails.
    pub async fn apply_as_operator(&self, yaml: &str) -> Result<()> {
        self.apply_with(yaml, &["--as", OPERATOR, "--as-group", "system:masters"]).await?.exit_ok().map(drop)
    }

    async fn apply_with(&self, yaml: &str, flags: &[&str]) -> Result<CommandOutput> {
        let mut text = yaml.replace("$NAMESPACE", &self.name);
        for (name, reference) in &self.images {
            text = text.replace(&format!("$image({name})"), reference);
        }
        program::run(&environment("YOI_KUBECTL")?, &[flags, &["-n", &self.name, "apply", "-f", "-"]].concat(), &[], Some(&text)).await
    }

    /// Runs kubectl in this namespace.
    ///
    /// # Errors
    /// When kubectl cannot be run.
    pub async fn kubectl(&self, args: &[&str]) -> Result<CommandOutput> {
        program::run(&environment("YOI_KUBECTL")?, &[&["-n", self.name.as_str()], args].concat(), &[], None).await
    }

    /// Runs kubectl in this namespace with this standard input.
    ///
    /// # Errors
    /// When kubectl cannot be run.
    pub async fn kubectl_with_input(&self, args: &[&str], input: &str) -> Result<CommandOutput> {
        program::run(&environment("YOI_KUBECTL")?, &[&["-n", self.name.as_str()], args].concat(), &[], Some(input)).await
    }

    /// Runs `kubectl yoi` in this namespace.
    ///
    /// # Errors
    /// When it cannot be run.
    pub async fn yoi(&self, args: &[&str]) -> Result<CommandOutput> {
        program::run(&environment("YOI_KUBECTL_YOI")?, &[&["-n", self.name.as_str()], args].concat(), &[], None).await
    }

    /// Runs `kubectl yoi` in this namespace for so long at most; its exit code is then 124, and what it printed is returned.
    ///
    /// # Errors
    /// When it cannot be run, or `limit` is above two minutes.
    pub async fn yoi_for(&self, limit: Duration, args: &[&str]) -> Result<CommandOutput> {
        let (seconds, plugin) = (format!("{}", limit.as_secs_f64()), environment("YOI_KUBECTL_YOI")?);
        let words = [&[&seconds, &plugin, "-n", self.name.as_str()], args].concat();
        program::run("timeout", &words, &[], None).await
    }

    /// Runs `kubectl yoi` in this namespace with its standard output to a file, which can be read while it runs.
    ///
    /// # Errors
    /// When it cannot be run.
    pub async fn yoi_into(&self, file: &str, args: &[&str]) -> Result<CommandOutput> {
        let plugin = environment("YOI_KUBECTL_YOI")?;
        let words = ["-c", r#"exec "$@" > "$0""#, file, &plugin, "-n", self.name.as_str()];
        program::run("bash", &[&words[..], args].concat(), &[], None).await
    }

    /// Runs `kubectl yoi` in this namespace as the user of another kubeconfig.
    ///
    /// # Errors
    /// When it cannot be run.
    pub async fn yoi_as(&self, kubeconfig: &std::path::Path, args: &[&str]) -> Result<CommandOutput> {
        let kubeconfig = kubeconfig.to_string_lossy();
        program::run(&environment("YOI_KUBECTL_YOI")?, &[&["-n", self.name.as_str()], args].concat(), &[("KUBECONFIG", &kubeconfig)], None)
            .await
    }

    /// Returns how often a component has told the reason about an object of this kind.
    ///
    /// # Errors
    /// When kubectl fails, with its output.
    pub async fn event_count(&self, kind: &str, name: &str, reason: &str) -> Result<u64> {
        let about = format!("involvedObject.kind={kind},involvedObject.name={name},reason={reason}");
        let list: Value =
            serde_json::from_str(&self.kubectl(&["get", "events", "--field-selector", &about, "-o", "json"]).await?.exit_ok()?.out)?;
        // The kubelet counts in the Event itself, newer components in its series.
        let count = |event: &Value| event["count"].as_u64().or_else(|| event["series"]["count"].as_u64()).unwrap_or(1);
        Ok(list["items"].as_array().context("no list")?.iter().map(count).sum())
    }

    /// Returns an object by its name.
    ///
    /// # Errors
    /// When it does not exist.
    pub async fn get<K: TestObject>(&self, name: &str) -> Result<K> {
        Ok(self.api::<K>().get(name).await?)
    }

    /// Returns the objects that a label selector matches. An empty selector matches all.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn list<K: TestObject>(&self, selector: &str) -> Result<Vec<K>> {
        Ok(self.api::<K>().list(&ListParams::default().labels(selector)).await?.items)
    }

    /// Applies a JSON merge patch to an object and returns the result.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn merge_patch<K: TestObject>(&self, name: &str, patch: &Value) -> Result<K> {
        Ok(self.api::<K>().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?)
    }

    /// Requests the deletion of an object and does not wait for it.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn delete<K: TestObject>(&self, name: &str) -> Result<()> {
        self.api::<K>().delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Watches one object until `until` returns a value. `until` gets `None` while the object does not exist.
    ///
    /// # Errors
    /// After [`TIMEOUT`], with the object as it was last seen.
    pub async fn wait_for<K: TestObject, T>(&self, name: &str, goal: &str, mut until: impl FnMut(Option<&K>) -> Option<T>) -> Result<T> {
        let mut last = None;
        let following = async {
            let mut stream = watcher::watch_object(self.api::<K>(), name).default_backoff().boxed();
            while let Some(next) = stream.next().await {
                if let Ok(object) = next {
                    if let Some(found) = until(object.as_ref()) {
                        return Ok(found);
                    }
                    last = object;
                }
            }
            Err(anyhow!("the watch of {name} ended"))
        };
        let limit = yoi_test_support::limit(TIMEOUT);
        let found = tokio::time::timeout(limit, following).await;
        match found {
            Ok(found) => found,
            Err(_) => bail!(
                "{} {}/{name} is not `{goal}` after {limit:?}: {}",
                K::kind(&()),
                self.name,
                last.map_or_else(|| "it does not exist".to_owned(), |o| serde_json::to_string(&o).unwrap_or_default())
            ),
        }
    }

    /// Waits until an object does not exist.
    ///
    /// # Errors
    /// As [`TestNamespace::wait_for`].
    pub async fn wait_gone<K: TestObject>(&self, name: &str) -> Result<()> {
        self.wait_for::<K, ()>(name, "gone", |o| o.is_none().then_some(())).await
    }

    /// Waits until the condition `type_` has this status, and returns the condition.
    ///
    /// # Errors
    /// As [`TestNamespace::wait_for`].
    pub async fn wait_condition<K: TestObject>(&self, name: &str, type_: &str, status: ConditionStatus) -> Result<Condition> {
        self.wait_for::<K, Condition>(name, &format!("{type_}={status:?}"), |object| {
            let found = find(&conditions(object?), type_)?.clone();
            (found.status == status).then_some(found)
        })
        .await
    }

    /// Waits until the condition `type_` is not True and has this reason, and returns the condition.
    ///
    /// # Errors
    /// As [`TestNamespace::wait_for`].
    pub async fn wait_reason<K: TestObject>(&self, name: &str, type_: &str, reason: &str) -> Result<Condition> {
        self.wait_message::<K>(name, type_, reason, |_| true).await
    }

    /// As [`TestNamespace::wait_reason`], until the condition's message is a `wanted` one, too.
    ///
    /// # Errors
    /// As [`TestNamespace::wait_for`].
    pub async fn wait_message<K: TestObject>(
        &self,
        name: &str,
        type_: &str,
        reason: &str,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Condition> {
        self.wait_for::<K, Condition>(name, &format!("{type_}/{reason}"), |object| {
            let found = find(&conditions(object?), type_)?.clone();
            (found.status != ConditionStatus::True && found.reason == reason && wanted(&found.message)).then_some(found)
        })
        .await
    }

    /// Returns the whole session log of an agent, read by `kubectl yoi log -o json`.
    ///
    /// # Errors
    /// When the plugin fails, with its output.
    pub async fn log(&self, agent: &str) -> Result<Vec<LogLine>> {
        let said = self.yoi(&["log", agent, "-o", "json"]).await?.exit_ok()?;
        said.out.lines().map(|line| serde_json::from_str(line).with_context(|| format!("not a log line: {line}"))).collect()
    }

    /// Reads the log again and again until `until` returns a value.
    ///
    /// # Errors
    /// After [`TIMEOUT`], with the kinds of the entries that were read last.
    pub async fn wait_log<T>(&self, agent: &str, goal: &str, until: impl Fn(&[LogLine]) -> Option<T>) -> Result<T> {
        let found = poll_seen(TIMEOUT, format!("the log of {agent} shows `{goal}`"), async || {
            Ok(match self.log(agent).await {
                Ok(lines) => until(&lines).ok_or_else(|| lines.iter().map(|line| line.entry.body.kind()).collect::<Vec<_>>().join(" ")),
                Err(unread) => Err(format!("{unread:#}")),
            })
        });
        Ok(found.await?.0)
    }
}

fn conditions<K: TestObject>(object: &K) -> Vec<Condition> {
    let value = serde_json::to_value(object).unwrap_or_default();
    serde_json::from_value(value["status"]["conditions"].clone()).unwrap_or_default()
}

/// Returns the UID of an object that came from the API server.
#[must_use]
pub fn uid<K: TestObject>(object: &K) -> String {
    object.uid().unwrap_or_default()
}
