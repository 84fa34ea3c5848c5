//! A session volume is full and the kernel reports ENOSPC.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::api::{Api, DeleteParams};
use serde_json::json;
use yoi_crds::YoiPod;
use yoi_crds::condition::{ConditionStatus, find};
use yoi_e2e::local_cluster::LocalCluster;
use yoi_e2e::poll_until;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace};
use yoi_wire::entry::Body;

use crate::{check_doctor_names, check_message, check_stops, send_until_accepted, wait_ready_reason};

/// A small ext4 in the node, with a PersistentVolume and a claim of this namespace.
struct SmallVolume {
    cluster: LocalCluster,
    node: String,
    folder: String,
    volume: String,
}

impl SmallVolume {
    async fn create(ns: &TestNamespace) -> Result<Self> {
        let name = ns.name.clone();
        let folder = format!("/tmp/{name}");
        // Mounted in the node, where the kubelet looks.
        let script = format!(
            "mkdir -p {folder}/m; truncate -s 24M {folder}/img; mkfs.ext4 -q -F -m 0 {folder}/img; mount -o loop {folder}/img {folder}/m; chmod 0777 {folder}/m"
        );
        let cluster = LocalCluster::from_environment()?;
        let node = cluster.workers().await?.into_iter().next().context("no node")?;
        let small = Self { cluster, node, folder, volume: name.clone() };
        small.run(&script).await.context("failed to make a small disk in the node")?;
        let volume = json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": name }, "spec": {
            "capacity": { "storage": "24Mi" }, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Retain", "storageClassName": "",
            "claimRef": { "namespace": name, "name": "small" }, "local": { "path": format!("{}/m", small.folder) },
            "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [
                { "key": "kubernetes.io/hostname", "operator": "In", "values": [small.node] }] }] } } } });
        ns.apply(&volume.to_string()).await?;
        let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "small" }, "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": name, "resources": { "requests": { "storage": "24Mi" } } } });
        ns.apply(&claim.to_string()).await?;
        Ok(small)
    }

    async fn run(&self, script: &str) -> Result<()> {
        self.cluster.run_on_node(&self.node, &format!("set -e; {script}")).await?.exit_ok().map(drop)
    }

    async fn fill(&self) -> Result<()> {
        let script = format!(
            "for size in 1M 64k 4k 1; do dd if=/dev/zero bs=$size of={0}/m/ballast oflag=append conv=notrunc 2>/dev/null || true; done; sync {0}/m/ballast",
            self.folder
        );
        self.run(&script).await
    }

    async fn free_space(&self) -> Result<()> {
        self.run(&format!("rm {}/m/ballast", self.folder)).await
    }

    async fn remove(self, ns: &TestNamespace) -> Result<()> {
        Api::<PersistentVolume>::all(ns.client.clone()).delete(&self.volume, &DeleteParams::default()).await?;
        self.run(&format!("umount -l {0}/m; rm -r {0}", self.folder)).await
    }
}

#[tokio::test]
async fn a_full_session_volume_is_reported_refuses_messages_and_recovers_when_there_is_room() -> Result<()> {
    let ns = TestNamespace::create("degraded-full").await?;
    ns.create_model("rules: [{ steps: [{ text: Hello. }] }]").await?;
    ns.create_empty_project("p").await?;
    let small = SmallVolume::create(&ns).await?;
    ns.create_agent("a", "p", json!({ "session": { "claimName": "small" } })).await?;
    ns.wait_agent_ready("a").await?;
    // Until a message is in the log, its file in the inbox takes room that it gives back.
    ns.yoi(&["send", "a", "the first word", "--wait"]).await?.exit_ok()?;

    small.fill().await?;
    let refused = ns.yoi(&["send", "a", "a word that finds no room"]).await?;
    ensure!(refused.code != 0 && refused.err.contains("the message was not taken: the session volume is full"), "{refused:?}");
    let condition = wait_ready_reason(&ns, "a", "DiskFull").await?;
    check_message(&condition, "No space left on device; make room there or enlarge its claim, and the agent goes on by itself")?;
    check_doctor_names(&ns, "agents", "YoiPod", "a", "the session volume is full").await?;
    ns.yoi(&["log", "a"]).await?.exit_ok()?;
    small.free_space().await?;
    ns.wait_condition::<YoiPod>("a", "Ready", ConditionStatus::True).await?;
    send_until_accepted(&ns, "a", "a word that finds room").await?;
    let log = ns
        .wait_log("a", "the message", |log| {
            log.iter().any(|l| matches!(&l.entry.body, Body::Input(input) if input.text == "a word that finds room")).then(|| log.to_vec())
        })
        .await?;
    ensure!(
        !log.iter().any(|l| matches!(&l.entry.body, Body::Input(input) if input.text.contains("no room"))),
        "a refused message is in the log"
    );

    // Full again: the agent stops, starts on the full volume, and reports it as soon as it needs space.
    small.fill().await?;
    check_stops(&ns, "a").await?;
    small.fill().await?;
    ns.yoi(&["start", "a"]).await?.exit_ok()?;
    let (condition, _) = poll_until(TIMEOUT, "the agent that started on a full volume says so", async || {
        // The start may have freed a little space, which is filled too.
        if ns.yoi(&["send", "a", "a word to a full volume"]).await?.code == 0 {
            small.fill().await?;
        }
        let conditions = ns.get::<YoiPod>("a").await?.status.unwrap_or_default().conditions;
        Ok(find(&conditions, "Ready").filter(|c| c.reason == "DiskFull").cloned())
    })
    .await?;
    check_message(&condition, "No space left on device; make room there or enlarge its claim, and the agent goes on by itself")?;
    small.free_space().await?;
    ns.wait_agent_ready("a").await?;
    send_until_accepted(&ns, "a", "the last word").await?;
    ns.delete::<YoiPod>("a").await?;
    ns.wait_gone::<YoiPod>("a").await?;
    let closed = small.remove(&ns).await;
    ns.remove().await?;
    closed
}
