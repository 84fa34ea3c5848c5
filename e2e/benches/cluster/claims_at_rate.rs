//! AgentWorkspaces with claims, at a steady rate, through the whole control path on 100 simulated nodes: the real API server, operator and controller
//! manager, and fakes that answer at once. So what is measured is the control plane's part, and how many writes it takes.
//!
//! The bench also plays the binder of Kubernetes, which may write only 20 times a second for the whole cluster: it binds each claim to its volume as that
//! does, with the same writes. The real one finds them bound. A claim's time counts from the moment when it was due, so a stall delays every claim behind it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Resource, ResourceExt};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use yoi_crds::condition::is_true;
use yoi_crds::reason::condition;
use yoi_crds::{AgentWorkspace, AgentWorkspaceStatus};
use yoi_e2e::test_namespace::TestNamespace;

use crate::measure::{Row, Samples};
use crate::simulated_nodes::{FakeShims, SimulatedNodes};
use crate::writes::count_writes;

const NODES: usize = 100;
/// The last one has bars.
const LOADS: [Load; 3] = [
    Load { rate: 10, seconds: 15, bars: None },
    Load { rate: 25, seconds: 15, bars: None },
    Load { rate: 75, seconds: 60, bars: Some((100.0, 300.0)) },
];
/// After the last claim was due, so long is waited for those that are not ready.
const PATIENCE: Duration = Duration::from_secs(60);
/// So long the objects of this bench may take to go. What is left then goes with the cluster.
const REMOVAL: Duration = Duration::from_secs(90);

/// What is seen of a claim, in the order in which it comes.
const STEPS: [&str; 4] = ["node chosen", "tree made, by the fake", "claim bound, by the bench", "Ready"];
const READY: usize = 3;

/// So many claims each second, for so many seconds.
#[derive(Clone, Copy)]
struct Load {
    rate: u32,
    seconds: u32,
    /// Of p50 and p99, in ms.
    bars: Option<(f64, f64)>,
}

/// When each claim was first seen in each state.
#[derive(Default)]
struct Seen(Mutex<HashMap<String, [Option<Instant>; STEPS.len()]>>);

impl Seen {
    fn record(&self, ws: &AgentWorkspace) {
        let at = Instant::now();
        let empty = AgentWorkspaceStatus::default();
        let status = ws.status.as_ref().unwrap_or(&empty);
        let is = |type_: &str| is_true(&status.conditions, type_);
        let reached = [status.node_name.is_some(), is(condition::PROVISIONED), is(condition::BOUND), is(condition::READY)];
        let mut all = self.0.lock().expect("no holder panics");
        let seen = all.entry(ws.name_any()).or_default();
        for (first, reached) in seen.iter_mut().zip(reached) {
            *first = first.or(reached.then_some(at));
        }
    }

    fn of(&self, name: &str) -> [Option<Instant>; STEPS.len()] {
        self.0.lock().expect("no holder panics").get(name).copied().unwrap_or_default()
    }

    /// How many of these are ready.
    fn ready(&self, names: &[String]) -> usize {
        let all = self.0.lock().expect("no holder panics");
        names.iter().filter(|name| all.get(*name).is_some_and(|seen| seen[READY].is_some())).count()
    }
}

pub async fn run() -> Result<Vec<Row>> {
    let ns = TestNamespace::create("bench-rate").await?;
    let nodes = SimulatedNodes::create(&ns.client, NODES).await?;
    let measured = measure(&ns, &nodes).await;
    nodes.remove().await?;
    let rows = measured?;
    rows.iter().for_each(Row::print);
    Ok(rows)
}

async fn measure(ns: &TestNamespace, nodes: &SimulatedNodes) -> Result<Vec<Row>> {
    let seen = Arc::new(Seen::default());
    let mut tasks = JoinSet::new();
    tasks.spawn(follow_workspaces(ns.api(), nodes.shims(), Arc::clone(&seen)));
    tasks.spawn(bind_claims(ns.client.clone(), ns.name.clone()));
    let mut rows = vec![];
    for load in LOADS {
        eprint!("\r  {} claims a second for {} s ", load.rate, load.seconds);
        rows.extend(at_rate(ns, &seen, &nodes.shims(), load).await?);
    }
    eprint!("\r  the claims go                    ");
    let name = ns.name.clone();
    let api = Api::<k8s_openapi::api::core::v1::Namespace>::all(ns.client.clone());
    api.delete(&name, &kube::api::DeleteParams::background()).await?;
    let gone = async {
        while !matches!(api.get_opt(&name).await, Ok(None)) {
            tokio::time::sleep(Duration::from_secs(1)).await
        }
    };
    if tokio::time::timeout(REMOVAL, gone).await.is_err() {
        eprintln!("\n  not all objects of namespace {name} are gone after {REMOVAL:?}; they go with the cluster");
    }
    eprintln!();
    Ok(rows)
}

/// Measures one load, once it is over: a claim that is not ready after [`PATIENCE`] is an error.
async fn at_rate(ns: &TestNamespace, seen: &Seen, shims: &FakeShims, Load { rate, seconds, bars }: Load) -> Result<Vec<Row>> {
    let names: Vec<String> = (0..rate * seconds).map(|n| format!("c{rate}x{n:05}")).collect();
    let (before, reports) = (count_writes(ns).await?, shims.reports());
    let began = Instant::now() + Duration::from_millis(50);
    let due = |n: usize| began + Duration::from_secs(1) * n as u32 / rate;
    let mut creating = JoinSet::new();
    for (n, name) in names.iter().enumerate() {
        tokio::time::sleep_until(due(n).into()).await;
        let object: AgentWorkspace = serde_json::from_value(json!({
            "apiVersion": "yoi.dev/v1alpha1", "kind": "AgentWorkspace", "metadata": {"name": name},
            "spec": {"source": {"empty": {}}, "claim": true, "binding": "Immediate"},
        }))?;
        let api = ns.api::<AgentWorkspace>();
        creating.spawn(async move { api.create(&PostParams::default(), &object).await.map(drop) });
    }
    while let Some(created) = creating.join_next().await {
        created?.context("failed to create an AgentWorkspace")?;
    }
    let until = Instant::now() + PATIENCE;
    while seen.ready(&names) < names.len() && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let missing: Vec<&String> = names.iter().filter(|name| seen.of(name)[READY].is_none()).collect();
    ensure!(
        missing.is_empty(),
        "{} of {} claims at {rate}/s are not ready after {PATIENCE:?}, e.g. {}",
        missing.len(),
        names.len(),
        missing[0]
    );
    // The last Events of these claims are on their way still.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (written, reports) = (count_writes(ns).await?.since(before), shims.reports() - reports);

    let mut steps = vec![Samples::default(); STEPS.len()];
    for (n, name) in names.iter().enumerate() {
        for (samples, at) in steps.iter_mut().zip(seen.of(name)) {
            samples.add(at.context("a claim is ready without a step before")?.saturating_duration_since(due(n)));
        }
    }
    let what = format!("AgentWorkspace with a claim, create to Ready, {rate}/s on {NODES} nodes");
    let ready = &steps[READY];
    let mut rows = vec![Row::without_ratio(&what, "ms", ready, bars.map(|(_, p99)| p99))];
    rows.extend(bars.map(|(p50, _)| Row::number(&format!("the same, p50 at {rate}/s"), "ms", ready.quantile(0.5), Some(p50))));
    let parts = STEPS.iter().zip(&steps).take(READY);
    rows.extend(parts.map(|(step, samples)| Row::without_ratio(&format!("at {rate}/s: seen after, {step}"), "ms", samples, None)));
    let each = |count: u64| count as f64 / names.len() as f64;
    // One of each is the bench's own: it created the object.
    rows.push(Row::number(
        &format!("at {rate}/s: writes to yoi.dev objects for each claim"),
        "writes",
        each(written.ours.saturating_sub(reports)) - 1.0,
        None,
    ));
    rows.push(Row::number(&format!("at {rate}/s: writes of the operator for each claim"), "writes", each(written.operators), None));
    Ok(rows)
}

/// Records what the watch shows of the workspaces, and lets the fakes answer.
async fn follow_workspaces(api: Api<AgentWorkspace>, shims: Arc<FakeShims>, seen: Arc<Seen>) {
    let mut stream = watcher(api, watcher::Config::default()).default_backoff().applied_objects().boxed();
    while let Some(next) = stream.next().await {
        let Ok(ws) = next else { continue };
        seen.record(&ws);
        let shims = Arc::clone(&shims);
        tokio::spawn(async move {
            if let Err(error) = shims.answer(&ws).await {
                eprintln!("\n  a fake of the shim failed at {}: {error:#}", ws.name_any());
            }
        });
    }
}

/// Binds the claims of the namespace to their volumes, and removes the finalizers of what is being deleted, as the controller manager does.
async fn bind_claims(client: Client, namespace: String) {
    let slots = Arc::new(Semaphore::new(64));
    let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), &namespace);
    let volumes = Api::<PersistentVolume>::all(client);
    let mut made = watcher(volumes.clone(), watcher::Config::default()).default_backoff().applied_objects().boxed();
    let mut deleting = watcher(claims.clone(), watcher::Config::default()).default_backoff().applied_objects().boxed();
    let mut handled = std::collections::HashSet::new();
    loop {
        tokio::select! {
            Some(Ok(volume)) = made.next() => {
                let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.clone()).filter(|claim| claim.namespace.as_deref() == Some(&namespace));
                let Some(claim) = claim.and_then(|claim| claim.name) else { continue };
                let is_deleting = volume.metadata.deletion_timestamp.is_some();
                if handled.insert((volume.name_any(), is_deleting)) {
                    let (claims, volumes, slots) = (claims.clone(), volumes.clone(), Arc::clone(&slots));
                    tokio::spawn(async move {
                        let _slot = slots.acquire().await;
                        // A refusal means that the real one was faster.
                        let _ = match is_deleting {
                            true => remove_finalizers(&volumes, &volume).await,
                            false => bind(&claims, &volumes, &claim, &volume.name_any()).await,
                        };
                    });
                }
            }
            Some(Ok(claim)) = deleting.next() => {
                if claim.metadata.deletion_timestamp.is_some() && handled.insert((claim.name_any(), true)) {
                    let (claims, slots) = (claims.clone(), Arc::clone(&slots));
                    tokio::spawn(async move {
                        let _slot = slots.acquire().await;
                        let _ = remove_finalizers(&claims, &claim).await;
                    });
                }
            }
        }
    }
}

/// Removes the finalizers of Kubernetes' own controllers from what is being deleted.
async fn remove_finalizers<K: Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned>(
    api: &Api<K>,
    object: &K,
) -> kube::Result<()> {
    let body = json!({"metadata": {"uid": object.uid(), "finalizers": null}});
    api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(&body)).await.map(drop)
}

/// The writes of the binder: the volume's phase, the claim's volume, the claim's phase.
async fn bind(claims: &Api<PersistentVolumeClaim>, volumes: &Api<PersistentVolume>, claim: &str, volume: &str) -> kube::Result<()> {
    let params = PatchParams::default();
    volumes.patch_status(volume, &params, &Patch::Merge(json!({"status": {"phase": "Bound"}}))).await?;
    let bound = json!({"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}, "spec": {"volumeName": volume}});
    claims.patch(claim, &params, &Patch::Merge(&bound)).await?;
    let status = json!({"status": {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}});
    claims.patch_status(claim, &params, &Patch::Merge(&status)).await?;
    Ok(())
}
