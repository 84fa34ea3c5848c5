//! Two zones, each with session volumes that only its own nodes reach, as disks of clouds are.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use yoi_crds::condition::ConditionStatus;
use yoi_crds::{AgentWorkspace, YoiPod};
use yoi_e2e::local_cluster::LocalCluster;
use yoi_e2e::locks::{self, Lock};
use yoi_e2e::poll_until;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace};

const ZONE: &str = "topology.kubernetes.io/zone";

/// Sets the zone of a node, or removes it.
async fn set_zone(client: &Client, node: &str, zone: Option<&str>) -> Result<()> {
    let patch = json!({ "metadata": { "labels": { ZONE: zone } } });
    Api::<Node>::all(client.clone()).patch(node, &PatchParams::default(), &Patch::Merge(&patch)).await?;
    Ok(())
}

async fn claim(ns: &TestNamespace, name: &str, more: &Value) -> Result<()> {
    let mut spec = json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "16Mi" } } });
    if let (Some(spec), Some(more)) = (spec.as_object_mut(), more.as_object()) {
        spec.extend(more.clone());
    }
    let claim = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": name }, "spec": spec });
    ns.apply(&claim.to_string()).await
}

async fn bound_volume(ns: &TestNamespace, claim: &str) -> Result<String> {
    poll_until(TIMEOUT, &format!("{claim} is bound"), async || {
        let claim = ns.get::<PersistentVolumeClaim>(claim).await?;
        let bound = claim.status.and_then(|status| status.phase).is_some_and(|phase| phase == "Bound");
        Ok(claim.spec.and_then(|spec| spec.volume_name).filter(|_| bound))
    })
    .await
    .map(|(volume, _)| volume)
}

/// Makes the claim `name` with a volume that only nodes of this zone reach. Its data are a volume's of the class that all nodes reach.
async fn claim_in_zone(ns: &TestNamespace, name: &str, zone: &str) -> Result<()> {
    let data = format!("{name}-data");
    claim(ns, &data, &json!({ "storageClassName": "shared" })).await?;
    let volumes = Api::<PersistentVolume>::all(ns.client.clone());
    let source = volumes.get(&bound_volume(ns, &data).await?).await?.spec.context("a volume without a spec")?;
    let terms = json!([{ "matchExpressions": [{ "key": ZONE, "operator": "In", "values": [zone] }] }]);
    let title = format!("{}-{name}", ns.name);
    let volume = json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": title }, "spec": {
        "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "16Mi" }, "storageClassName": "", "hostPath": source.host_path,
        "claimRef": { "namespace": ns.name, "name": name }, "nodeAffinity": { "required": { "nodeSelectorTerms": terms } } } });
    ns.apply_as_operator(&volume.to_string()).await?;
    claim(ns, name, &json!({ "storageClassName": "", "volumeName": title })).await?;
    bound_volume(ns, name).await.map(drop)
}

#[tokio::test]
async fn with_volumes_of_two_zones_each_agent_runs_in_the_zone_of_its_session_and_a_tree_elsewhere_is_a_conflict() -> Result<()> {
    let _alone = locks::exclusive(&[Lock::Nodes]).await?;
    let (ns, cluster) = (TestNamespace::create("zones").await?, LocalCluster::from_environment()?);
    let workers = cluster.workers().await?;
    ensure!(workers.len() >= 2, "this test needs two workers, and there are {workers:?}");
    let (one, two) = (&workers[0], &workers[1]);
    set_zone(&ns.client, one, Some("one")).await?;
    set_zone(&ns.client, two, Some("two")).await?;
    let outcome = in_two_zones(&ns, one, two).await;
    for node in [one, two] {
        set_zone(&ns.client, node, None).await?;
    }
    let volumes = Api::<PersistentVolume>::all(ns.client.clone());
    for name in ["first", "second", "third"] {
        volumes.delete(&format!("{}-{name}", ns.name), &Default::default()).await.ok();
    }
    outcome?;
    ns.remove().await
}

async fn in_two_zones(ns: &TestNamespace, one: &str, two: &str) -> Result<()> {
    ns.create_empty_project("p").await?;
    for (agent, zone, node) in [("first", "one", one), ("second", "two", two)] {
        claim_in_zone(ns, agent, zone).await?;
        ns.create_agent(agent, "p", json!({ "session": { "claimName": agent } })).await?;
        ns.wait_agent_ready(agent).await?;
        let found = ns.get::<YoiPod>(agent).await?.status.and_then(|status| status.workspace?.node_name).context("no node")?;
        ensure!(found == node, "the session of {agent} is in zone {zone}, and it runs on {found}");
    }

    // A tree of zone one and a session of zone two have no node in common. Its agent is stopped: not every provider forks a tree in use.
    ns.yoi(&["stop", "first", "--wait"]).await?.exit_ok()?;
    let tree = json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "AgentWorkspace", "metadata": { "name": "tree" },
        "spec": { "source": { "workspace": { "name": "first" } } } });
    ns.apply(&tree.to_string()).await?;
    ns.wait_condition::<AgentWorkspace>("tree", "Ready", ConditionStatus::True).await?;
    claim_in_zone(ns, "third", "two").await?;
    ns.create_agent("third", "p", json!({ "session": { "claimName": "third" }, "workspace": { "ref": { "name": "tree" } } })).await?;
    let ready = ns.wait_reason::<YoiPod>("third", "Ready", "SessionTopologyConflict").await?;
    ensure!(ready.message.contains(one) && ready.message.contains(two), "{}", ready.message);

    // In the zone of the tree it starts.
    set_zone(&ns.client, one, Some("two")).await?;
    ns.wait_agent_ready("third").await
}
