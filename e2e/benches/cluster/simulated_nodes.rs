//! Nodes without a machine: Node objects whose Leases are renewed, and a fake of the node's shim, which answers at once and has no disk.
//!
//! No kubelet and no Pod of a DaemonSet is on them: the label that DaemonSets of Linux select is left out. Everything that the fake writes is what the
//! shim writes (`agent-shim/src/shim/workspace_report.rs` and `node_report.rs`), under its field manager.

use std::collections::HashSet;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::future::try_join_all;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use yoi_crds::name::{field_manager, finalizer};
use yoi_crds::node::quantity;
use yoi_crds::reason::condition;
use yoi_crds::{AgentWorkspace, WorkspaceNode, condition::is_true};
use yoi_e2e::poll_seen;
use yoi_e2e::test_namespace::TIMEOUT;

const LABEL: &str = "yoi.dev/simulated";
/// Shorter than the third of the time after which the controller manager calls a node lost.
const RENEWAL: Duration = Duration::from_secs(8);
/// As the shim's.
const REPORT: Duration = Duration::from_secs(60);
const GIB: i64 = 1 << 30;
/// More than a real node of the cluster has: the operator takes the node with the most.
const FREE: i64 = 64 << 40;
/// A node also reports after so many new trees. The shim does not: until its next report all trees would go to the one node with the most room.
const TREES_PER_REPORT: i64 = 8;
/// Writes of all fakes at the same time.
const AT_ONCE: usize = 64;

/// The nodes, as long as it is there. [`Self::remove`] deletes them.
pub struct SimulatedNodes {
    client: Client,
    shims: Arc<FakeShims>,
    tasks: JoinSet<()>,
}

/// The shims of all simulated nodes.
pub struct FakeShims {
    client: Client,
    names: Vec<String>,
    /// Since when the nodes are ready.
    since: String,
    /// UIDs of the workspaces whose trees are made (false), or given up (true).
    answered: Mutex<HashSet<(String, bool)>>,
    /// Of each node.
    trees: Vec<AtomicI64>,
    reports: AtomicU64,
    slots: Semaphore,
}

fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn true_condition(type_: &str, reason: &str, message: &str, since: &str) -> Value {
    json!({"type": type_, "status": "True", "reason": reason, "message": message, "lastTransitionTime": since, "observedGeneration": 1})
}

impl SimulatedNodes {
    /// Makes so many nodes, and waits until Kubernetes lets Pods go there.
    pub async fn create(client: &Client, count: usize) -> Result<Self> {
        let names: Vec<String> = (0..count).map(|n| format!("simulated-{n:03}")).collect();
        let shims = Arc::new(FakeShims {
            client: client.clone(),
            trees: names.iter().map(|_| AtomicI64::new(0)).collect(),
            names,
            since: now(),
            answered: Mutex::default(),
            reports: AtomicU64::new(0),
            slots: Semaphore::new(AT_ONCE),
        });
        let mut nodes = SimulatedNodes { client: client.clone(), shims, tasks: JoinSet::new() };
        match nodes.start().await {
            Ok(()) => Ok(nodes),
            Err(error) => {
                nodes.remove().await?;
                Err(error)
            }
        }
    }

    async fn start(&mut self) -> Result<()> {
        let (client, shims) = (&self.client, &self.shims);
        let make = |name: String| async move { make_node(client, &name).await };
        let uids: Vec<String> = stream::iter(shims.names.clone()).map(make).buffered(16).try_collect().await?;
        let (renewed, names) = (client.clone(), shims.names.clone());
        self.tasks.spawn(async move {
            loop {
                let _ = try_join_all(names.iter().map(|name| renew(&renewed, name))).await;
                tokio::time::sleep(RENEWAL).await;
            }
        });
        let api = Api::<Node>::all(client.clone());
        let count = uids.len();
        poll_seen(TIMEOUT, "the simulated nodes are ready", async || {
            let all = api.list(&ListParams::default().labels(LABEL)).await?.items;
            let is_open = |node: &&Node| node.spec.as_ref().is_none_or(|spec| spec.taints.iter().flatten().next().is_none());
            let open = all.iter().filter(is_open).count();
            Ok(if open == count { Ok(()) } else { Err(format!("{open} of {count} are without a taint")) })
        })
        .await?;
        for (n, uid) in uids.iter().enumerate() {
            shims.report_node(n, Some(uid)).await?;
        }
        let reported = Arc::clone(shims);
        self.tasks.spawn(async move {
            // One after the other, so that each reports once in its time.
            for n in (0..count).cycle() {
                tokio::time::sleep(REPORT / count as u32).await;
                let _ = reported.report_node(n, None).await;
            }
        });
        Ok(())
    }

    pub fn shims(&self) -> Arc<FakeShims> {
        Arc::clone(&self.shims)
    }

    /// Deletes the nodes. Their Leases and WorkspaceNodes go with them.
    pub async fn remove(mut self) -> Result<()> {
        self.tasks.shutdown().await;
        let (params, all) = (DeleteParams::default(), ListParams::default().labels(LABEL));
        Api::<Node>::all(self.client).delete_collection(&params, &all).await.context("failed to delete the simulated nodes")?;
        Ok(())
    }
}

/// Returns the node's UID.
async fn make_node(client: &Client, name: &str) -> Result<String> {
    let api = Api::<Node>::all(client.clone());
    let labels = json!({LABEL: "true", "kubernetes.io/hostname": name});
    let node: Node = serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}}))?;
    let uid = api.create(&PostParams::default(), &node).await?.uid().unwrap_or_default();
    let amount = json!({"cpu": "8", "memory": "32Gi", "pods": "200", "ephemeral-storage": "500Gi"});
    let mut ready = true_condition("Ready", "KubeletReady", "simulated", &now());
    ready["lastHeartbeatTime"] = json!(now());
    ready.as_object_mut().map(|ready| ready.remove("observedGeneration"));
    let status = json!({"status": {"capacity": amount, "allocatable": amount, "conditions": [ready]}});
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await?;
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}]);
    let spec = json!({"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": Timestamp::now().to_string()});
    let lease: Lease = serde_json::from_value(json!({"metadata": {"name": name, "ownerReferences": owner}, "spec": spec}))?;
    Api::<Lease>::namespaced(client.clone(), "kube-node-lease").create(&PostParams::default(), &lease).await?;
    Ok(uid)
}

async fn renew(client: &Client, name: &str) -> Result<()> {
    let time = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    let body = json!({"spec": {"renewTime": time}});
    Api::<Lease>::namespaced(client.clone(), "kube-node-lease").patch(name, &PatchParams::default(), &Patch::Merge(&body)).await?;
    Ok(())
}

impl FakeShims {
    /// Reports what the node offers: so many bytes less as it has trees. With the Node's UID, also makes the WorkspaceNode.
    async fn report_node(&self, n: usize, node_uid: Option<&str>) -> Result<()> {
        let name = self.names[n].as_str();
        let api = Api::<WorkspaceNode>::all(self.client.clone());
        let params = PatchParams::apply(field_manager::SHIM).force();
        let of = json!({"apiVersion": "yoi.dev/v1alpha1", "kind": "WorkspaceNode"});
        if let Some(uid) = node_uid {
            let mut object = of.clone();
            object["metadata"] = json!({"name": name, "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}]});
            object["spec"] = json!({});
            api.patch(name, &params, &Patch::Apply(&object)).await?;
        }
        let free = FREE - self.trees[n].load(Ordering::SeqCst) * (GIB / 16);
        self.reports.fetch_add(1, Ordering::SeqCst);
        let mut object = of;
        object["metadata"] = json!({"name": name});
        object["status"] = json!({
            "providers": [{"name": "Btrfs", "available": true, "reason": "Btrfs: simulated"}], "kernel": "simulated", "runtimeDigests": [],
            "capacity": {"totalBytes": FREE, "freeBytes": free, "total": quantity(FREE), "free": quantity(free)},
            "conditions": [
                true_condition("JournalReadable", "AllMet", "every record can be read", &self.since),
                true_condition("Ready", "AllMet", "trees can be made on this node", &self.since),
            ],
        });
        api.patch_status(name, &params, &Patch::Apply(&object)).await?;
        Ok(())
    }

    /// How many reports of nodes there were.
    pub fn reports(&self) -> u64 {
        self.reports.load(Ordering::SeqCst)
    }

    /// Does what the node's shim does when its watch shows this state of a workspace.
    pub async fn answer(&self, ws: &AgentWorkspace) -> Result<()> {
        let chosen = ws.status.as_ref().and_then(|status| status.node_name.as_deref());
        let Some(n) = chosen.and_then(|node| self.names.iter().position(|name| name == node)) else { return Ok(()) };
        let is_deleting = ws.metadata.deletion_timestamp.is_some();
        if !is_deleting && ws.status.as_ref().is_some_and(|status| is_true(&status.conditions, condition::PROVISIONED)) {
            return Ok(());
        }
        let key = (ws.uid().unwrap_or_default(), is_deleting);
        if !self.answered.lock().expect("no holder panics").insert(key) {
            return Ok(());
        }
        let _slot = self.slots.acquire().await?;
        if is_deleting {
            return self.remove_finalizer(ws).await;
        }
        let chosen = "Btrfs: the best that the node offers";
        let not_used = json!({"type": "InUse", "status": "False", "reason": "NotPublished", "message": "no Pod has the tree mounted", "lastTransitionTime": now(), "observedGeneration": 1});
        let conditions = [
            not_used,
            true_condition("ProviderSelected", "Selected", chosen, &now()),
            true_condition("Provisioned", "TreeCreated", "the tree stands on its node", &now()),
        ];
        let object = json!({
            "apiVersion": "yoi.dev/v1alpha1", "kind": "AgentWorkspace", "metadata": {"name": ws.name_any(), "uid": ws.uid()},
            "status": {"conditions": conditions, "provider": {"selected": "Btrfs", "reason": chosen}},
        });
        let namespace = ws.namespace().unwrap_or_default();
        let api = Api::<AgentWorkspace>::namespaced(self.client.clone(), &namespace);
        api.patch_status(&ws.name_any(), &PatchParams::apply(field_manager::SHIM).force(), &Patch::Apply(&object)).await?;
        self.publish_event(ws, &namespace, &self.names[n]).await?;
        let trees = self.trees[n].fetch_add(1, Ordering::SeqCst) + 1;
        if trees % TREES_PER_REPORT == 0 { self.report_node(n, None).await } else { Ok(()) }
    }

    async fn publish_event(&self, ws: &AgentWorkspace, namespace: &str, node: &str) -> Result<()> {
        let now = Timestamp::now();
        let event = serde_json::from_value(json!({
            "metadata": {"name": format!("{}.{:x}", ws.name_any(), now.as_nanosecond()), "namespace": namespace},
            "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string(), "type": "Normal", "reason": "TreeCreated", "action": "Provisioned",
            "note": "Provisioned: the tree stands on its node", "reportingController": "yoi-agent-shim", "reportingInstance": node,
            "regarding": {"apiVersion": "yoi.dev/v1alpha1", "kind": "AgentWorkspace", "name": ws.name_any(), "namespace": namespace, "uid": ws.uid()},
        }))?;
        let api = Api::<k8s_openapi::api::events::v1::Event>::namespaced(self.client.clone(), namespace);
        api.create(&PostParams::default(), &event).await?;
        Ok(())
    }

    /// Removes the finalizer of the shim, as it does when the tree is gone.
    async fn remove_finalizer(&self, ws: &AgentWorkspace) -> Result<()> {
        let left: Vec<&String> = ws.finalizers().iter().filter(|f| *f != finalizer::NODE_DATA).collect();
        let body = json!({"metadata": {"resourceVersion": ws.resource_version(), "uid": ws.uid(), "finalizers": left}});
        let api = Api::<AgentWorkspace>::namespaced(self.client.clone(), &ws.namespace().unwrap_or_default());
        let done = api.patch(&ws.name_any(), &PatchParams::default(), &Patch::Merge(&body)).await;
        if done.is_err() {
            // It has changed meanwhile, and the watch shows it again.
            self.answered.lock().expect("no holder panics").remove(&(ws.uid().unwrap_or_default(), true));
        }
        Ok(())
    }
}
