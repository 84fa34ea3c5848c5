//! Time of a workspace with an immediate claim from apply to Ready, compared with a bare claim and a volume made in the same order.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::json;
use yoi_crds::AgentWorkspace;
use yoi_crds::condition::ConditionStatus;
use yoi_e2e::test_namespace::{TestNamespace, uid};

use crate::measure::{Row, Samples};

const PAIRS: usize = 40;
const AT_ONCE: usize = 200;

pub async fn run() -> Result<Vec<Row>> {
    let ns = TestNamespace::create("bench-claims").await?;
    ns.create_git_project("p").await?;
    let (mut ours, mut bare) = (Samples::default(), Samples::default());
    for n in 0..=PAIRS {
        let (a, b) = (time_workspace(&ns, &format!("w{n}")).await?, time_claim(&ns, &format!("b{n}")).await?);
        if n > 0 {
            ours.add(a);
            bare.add(b);
        }
        delete_and_wait(&ns, &[format!("w{n}")], &[format!("b{n}")]).await?;
        eprint!("\r  {n} of {PAIRS} pairs ");
    }
    let mut rows = vec![Row::with_ratio("AgentWorkspace with a claim, apply to Ready, over a bare claim bound", &ours, &bare, 1.5)];

    let (mut ours, mut bare) = (Samples::default(), Samples::default());
    let (mut our_each, mut bare_each) = (Samples::default(), Samples::default());
    for round in 0..3 {
        eprint!("\r  {AT_ONCE} at once, round {}      ", round + 1);
        let names = |kind: &str| -> Vec<String> { (0..AT_ONCE).map(|n| format!("{kind}{round}x{n}")).collect() };
        let (w, b) = (names("w"), names("b"));
        wait_binder_idle(&ns, &format!("q{round}w")).await?;
        let since = Instant::now();
        let each = try_join_all(w.iter().map(|name| time_workspace(&ns, name))).await?;
        ours.add(since.elapsed());
        each.into_iter().for_each(|took| our_each.add(took));
        delete_and_wait(&ns, &w, &[]).await?;
        wait_binder_idle(&ns, &format!("q{round}b")).await?;
        let since = Instant::now();
        let each = try_join_all(b.iter().map(|name| time_claim(&ns, name))).await?;
        bare.add(since.elapsed());
        each.into_iter().for_each(|took| bare_each.add(took));
        delete_and_wait(&ns, &[], &b).await?;
    }
    eprintln!();
    ns.remove_and_wait().await?;
    rows.push(Row::with_ratio(&format!("{AT_ONCE} of them at once, until the last, over {AT_ONCE} bare claims"), &ours, &bare, 1.2));
    rows.push(Row::with_ratio("each of them", &our_each, &bare_each, 1.2));
    rows.iter().for_each(Row::print);
    Ok(rows)
}

/// Waits until Kubernetes' volume binder is idle. It may write 20 times a second, so it works for about 60 s after 200 bound claims are gone,
/// and the next measurement would include that time.
async fn wait_binder_idle(ns: &TestNamespace, name: &str) -> Result<()> {
    let begun = Instant::now();
    for n in 0.. {
        let name = format!("{name}{n}");
        let took = time_claim(ns, &name).await?;
        delete_and_wait(ns, &[], &[name]).await?;
        if took < Duration::from_secs(1) {
            break;
        }
        ensure!(begun.elapsed() < Duration::from_secs(300), "the binder is never idle: a single claim takes it {took:?}");
    }
    Ok(())
}

async fn time_workspace(ns: &TestNamespace, name: &str) -> Result<Duration> {
    let object: AgentWorkspace = serde_json::from_value(json!({
        "apiVersion": "yoi.dev/v1alpha1", "kind": "AgentWorkspace", "metadata": { "name": name },
        "spec": { "source": { "project": { "name": "p" } }, "claim": true, "binding": "Immediate" },
    }))?;
    let since = Instant::now();
    ns.api::<AgentWorkspace>().create(&PostParams::default(), &object).await?;
    ns.wait_condition::<AgentWorkspace>(name, "Ready", ConditionStatus::True).await?;
    Ok(since.elapsed())
}

/// Creates the claim first, without `volumeName`, then the volume with the claim's UID. Only this order binds without a resync.
async fn time_claim(ns: &TestNamespace, name: &str) -> Result<Duration> {
    let claim: PersistentVolumeClaim = serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "bench-by-hand", "resources": { "requests": { "storage": "1Gi" } } },
    }))?;
    let since = Instant::now();
    let claim = ns.api::<PersistentVolumeClaim>().create(&PostParams::default(), &claim).await?;
    let volume: PersistentVolume = serde_json::from_value(json!({
        "metadata": { "name": volume(ns, name) },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "1Gi" }, "storageClassName": "bench-by-hand",
            "persistentVolumeReclaimPolicy": "Retain", "hostPath": { "path": "/nonexistent" },
            "claimRef": { "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": ns.name, "name": name, "uid": uid(&claim) },
        },
    }))?;
    Api::<PersistentVolume>::all(ns.client.clone()).create(&PostParams::default(), &volume).await?;
    let bound = |o: Option<&PersistentVolumeClaim>| (o?.status.as_ref()?.phase.as_deref() == Some("Bound")).then_some(());
    ns.wait_for::<PersistentVolumeClaim, ()>(name, "bound", bound).await?;
    Ok(since.elapsed())
}

fn volume(ns: &TestNamespace, name: &str) -> String {
    format!("{}-{name}", ns.name)
}

async fn delete_and_wait(ns: &TestNamespace, workspaces: &[String], claims: &[String]) -> Result<()> {
    let volumes = Api::<PersistentVolume>::all(ns.client.clone());
    for name in workspaces {
        ns.api::<AgentWorkspace>().delete(name, &DeleteParams::default()).await?;
    }
    for name in claims {
        ns.api::<PersistentVolumeClaim>().delete(name, &DeleteParams::default()).await?;
        volumes.delete(&volume(ns, name), &DeleteParams::default()).await?;
    }
    for name in workspaces {
        ns.wait_gone::<AgentWorkspace>(name).await?;
    }
    for name in claims {
        ns.wait_gone::<PersistentVolumeClaim>(name).await?;
    }
    Ok(())
}
