//! The StorageClass `shared`.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::Api;
use serde_json::json;
use yoi_e2e::local_cluster::LocalCluster;
use yoi_e2e::test_namespace::TestNamespace;

use crate::{pod_on, sh};

#[tokio::test]
async fn a_shared_volume_is_one_folder_on_two_nodes_and_a_lock_taken_on_one_is_refused_on_the_other() -> Result<()> {
    let (ns, cluster) = (TestNamespace::create("shared").await?, LocalCluster::from_environment()?);
    let workers = cluster.workers().await?;
    ensure!(workers.len() >= 2, "this cluster has only the workers {workers:?}");
    let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "data" }, "spec": {
        "accessModes": ["ReadWriteMany"], "storageClassName": "shared", "resources": { "requests": { "storage": "1Mi" } } } });
    ns.apply(&claim.to_string()).await?;
    for (name, node) in ["one", "two"].iter().zip(&workers) {
        let mut pod = pod_on(node, name, json!({ "volumes": [{ "name": "own", "persistentVolumeClaim": { "claimName": "data" } }] }));
        pod["spec"]["containers"][0]["workingDir"] = "/own".into();
        ns.apply(&pod.to_string()).await?;
    }
    ns.wait_pod_ready("one").await?;
    ns.wait_pod_ready("two").await?;
    let volume = ns.get::<PersistentVolumeClaim>("data").await?.spec.and_then(|spec| spec.volume_name).context("the claim is not bound")?;
    let volume = Api::<PersistentVolume>::all(ns.client.clone()).get(&volume).await?;
    ensure!(volume.spec.is_some_and(|spec| spec.node_affinity.is_none()), "the volume is bound to a node");

    sh(&ns, "one", "flock lock sleep 100000 > /dev/null 2>&1 & echo written > file; while flock -n lock true; do sleep 0.1; done").await?;
    ensure!(sh(&ns, "two", "cat file").await? == "written\n", "the other node sees another folder");
    ensure!(sh(&ns, "two", "flock -n lock true && echo taken || echo refused").await? == "refused\n", "two nodes hold one lock");
    ns.kubectl(&["delete", "pod", "one"]).await?.exit_ok()?;
    ensure!(sh(&ns, "two", "flock -w 60 lock true && echo taken").await? == "taken\n", "the lock outlives its holder");
    ns.remove().await
}
