//! Objects that are created and deleted beside the agents while processes are killed.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};
use tokio::time::sleep;
use yoi_crds::condition::is_true;
use yoi_crds::source::ProviderName;
use yoi_crds::{AgentWorkspace, YoiPod};
use yoi_e2e::test_namespace::{TestNamespace, TestObject};

use crate::rng::SeededRng;

/// Repeats a request until the API server has answered, as people and pipelines do.
pub async fn retry<T, F: Future<Output = kube::Result<T>>>(mut request: impl FnMut() -> F) -> Result<Option<T>> {
    let started = Instant::now();
    loop {
        match tokio::time::timeout(Duration::from_secs(10), request()).await {
            Ok(Ok(done)) => return Ok(Some(done)),
            // An earlier try did it, although its answer was lost.
            Ok(Err(kube::Error::Api(status))) if status.is_already_exists() || status.is_not_found() => return Ok(None),
            Ok(Err(kube::Error::Api(status))) if status.code == 422 || status.code == 400 => bail!("refused: {}", status.message),
            other => {
                if started.elapsed() > yoi_test_support::limit(Duration::from_secs(120)) {
                    bail!("the API server does not take it: {:?}", other.map(|done| done.map(drop)));
                }
            }
        }
        sleep(Duration::from_millis(250)).await;
    }
}

pub async fn create<K: TestObject>(ns: &TestNamespace, object: Value) -> Result<()> {
    let object: K = serde_json::from_value(object)?;
    let (api, how) = (ns.api::<K>(), Default::default());
    retry(|| api.create(&how, &object)).await.map(drop)
}

pub async fn delete<K: TestObject>(ns: &TestNamespace, name: &str) -> Result<()> {
    let (api, how) = (ns.api::<K>(), Default::default());
    retry(|| api.delete(name, &how)).await.map(drop)
}

pub fn workspace(name: &str, spec: &Value) -> Value {
    json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "AgentWorkspace", "metadata": { "name": name }, "spec": spec })
}

/// A tree that no Pod mounts: what is forked where the provider forks no tree in use.
pub const AT_REST: &str = "at-rest";

/// A Pod that is not ours and works in the tree of a claim.
fn foreign_pod(name: &str, claim: &str, image: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name }, "spec": {
        "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 1,
        "securityContext": { "runAsNonRoot": true, "runAsUser": 1000, "runAsGroup": 1000, "seccompProfile": { "type": "RuntimeDefault" } },
        "containers": [{ "name": "foreign", "image": image, "imagePullPolicy": "Never",
            "command": ["/bin/sh", "-c", "echo here >> /workspace/tree/foreign && exec sleep 100000"],
            "securityContext": { "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": { "drop": ["ALL"] } },
            "volumeMounts": [{ "name": "tree", "mountPath": "/workspace/tree" }] }],
        "volumes": [{ "name": "tree", "persistentVolumeClaim": { "claimName": claim } }] } })
}

/// Number of forks that are deleted while the shim clones them.
const HASTY: u64 = 6;

/// The objects of one round.
pub struct Churn {
    round: u64,
    /// Name of the workspace that is forked.
    parent: &'static str,
}

impl Churn {
    /// `provider`: the one that made the agents' trees.
    pub fn new(round: u64, provider: ProviderName) -> Churn {
        let parent = match provider {
            ProviderName::Zfs | ProviderName::Btrfs => "a",
            ProviderName::Overlay | ProviderName::Reflink | ProviderName::Copy | ProviderName::Auto | ProviderName::Unknown => AT_REST,
        };
        Churn { round, parent }
    }

    fn fork(&self, name: &str) -> Value {
        workspace(name, &json!({ "source": { "workspace": { "name": self.parent } } }))
    }

    fn name(&self, what: &str) -> String {
        format!("{what}-{}", self.round)
    }

    /// Creates this round's objects and deletes those of the round before, at random moments within a few seconds.
    pub async fn run(&self, ns: &TestNamespace, rng: &mut SeededRng) -> Result<()> {
        let image = ns.image("agent")?;
        let path = "/workspace/tree";
        let moments: Vec<Duration> = (0..4 + HASTY).map(|_| rng.millis(0, 4000)).collect();
        let short: Vec<Duration> = (0..1 + HASTY).map(|_| rng.millis(0, 700)).collect();
        let claim = async {
            sleep(moments[0]).await;
            let spec = json!({ "path": path, "claim": true, "source": { "project": { "name": "p" } } });
            create::<AgentWorkspace>(ns, workspace(&self.name("claim"), &spec)).await?;
            create::<Pod>(ns, foreign_pod(&self.name("foreign"), &self.name("claim"), image)).await
        };
        let fork_workspace = async {
            sleep(moments[1]).await;
            create::<AgentWorkspace>(ns, self.fork(&self.name("fork"))).await
        };
        let agent = async {
            sleep(moments[2]).await;
            let name = self.name("brief");
            let object = json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPod", "metadata": { "name": name }, "spec": {
                "projectRef": { "name": "p" }, "agent": { "builtin": { "instruction": "You are brief." } }, "session": { "retain": "Delete" } } });
            create::<YoiPod>(ns, object).await?;
            sleep(short[0] * 8).await;
            delete::<YoiPod>(ns, &name).await
        };
        let previous = async {
            sleep(moments[3]).await;
            self.remove_previous(ns).await
        };
        let hasty = futures::future::try_join_all((0..HASTY).map(|number| {
            let at = usize::try_from(number).unwrap_or_default();
            let (before, between) = (moments[4 + at], short[1 + at]);
            async move {
                sleep(before).await;
                let name = format!("hasty-{}-{number}", self.round);
                create::<AgentWorkspace>(ns, self.fork(&name)).await?;
                sleep(between).await;
                delete::<AgentWorkspace>(ns, &name).await
            }
        }));
        futures::try_join!(claim, fork_workspace, agent, previous, hasty).map(drop)
    }

    async fn remove_previous(&self, ns: &TestNamespace) -> Result<()> {
        let Some(round) = self.round.checked_sub(1) else { return Ok(()) };
        Churn { round, ..*self }.remove(ns).await
    }

    pub async fn remove(&self, ns: &TestNamespace) -> Result<()> {
        delete::<Pod>(ns, &self.name("foreign")).await?;
        for what in ["claim", "fork", "last"] {
            delete::<AgentWorkspace>(ns, &self.name(what)).await?;
        }
        Ok(())
    }

    /// Creates a fork after the last fault. It gets ready only when all processes work again.
    pub async fn create_last_fork(&self, ns: &TestNamespace) -> Result<()> {
        create::<AgentWorkspace>(ns, self.fork(&self.name("last"))).await
    }

    /// Returns whether this object belongs to this round and stays until the next one.
    pub fn owns(&self, kind: &str, name: &str) -> bool {
        match kind {
            "Pod" => name == self.name("foreign"),
            "PersistentVolumeClaim" => name == self.name("claim"),
            _ => false,
        }
    }

    /// Returns a sentence for each object that is not as requested.
    pub fn pending(&self, workspaces: &[AgentWorkspace], yoipods: &[YoiPod], pods: &[Pod]) -> Vec<String> {
        let mut pending = Vec::new();
        for name in ["claim", "fork", "last"].map(|what| self.name(what)) {
            let found = workspaces.iter().find(|w| w.name_any() == name);
            let ready = found.and_then(|w| w.status.as_ref()).is_some_and(|s| is_true(&s.conditions, "Ready"));
            if !ready {
                pending.push(format!("AgentWorkspace {name} is not Ready"));
            }
        }
        let foreign = pods.iter().find(|p| p.name_any() == self.name("foreign"));
        if !foreign.is_some_and(pod_ready) {
            pending.push(format!("Pod {} is not Ready", self.name("foreign")));
        }
        let known = ["claim", "fork", "last"].map(|what| self.name(what));
        for extra in workspaces.iter().filter(|w| w.spec.base.is_none()).map(ResourceExt::name_any) {
            if !known.contains(&extra) && extra != AT_REST && !is_of_workload(&extra) {
                pending.push(format!("AgentWorkspace {extra} is still there"));
            }
        }
        for extra in yoipods.iter().map(ResourceExt::name_any).filter(|name| !is_of_workload(name)) {
            pending.push(format!("YoiPod {extra} is still there"));
        }
        pending
    }
}

/// Whether an agent of this name stays as long as the workload.
fn is_of_workload(name: &str) -> bool {
    name == crate::resting::RESTING || crate::workload::AGENTS.contains(&name)
}

pub fn pod_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_ref());
    pod.metadata.deletion_timestamp.is_none() && conditions.is_some_and(|all| all.iter().any(|c| c.type_ == "Ready" && c.status == "True"))
}
