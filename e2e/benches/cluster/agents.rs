//! Time of an agent from apply to Ready, compared with a plain Pod of the same image with a claim of the same class, and the time of each step.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use yoi_crds::condition::ConditionStatus;
use yoi_crds::{AgentWorkspace, YoiPod, YoiProject};
use yoi_e2e::test_namespace::TestNamespace;

use crate::measure::{Row, Samples};
use crate::trace::{Trace, is_true};

const PAIRS: usize = 32;
const BAR: f64 = 1.15;
const OVERLAY_PAIRS: usize = 100;
const OVERLAY_BAR: f64 = 1.1;

pub type Step = (&'static str, &'static str, fn(&Value) -> bool);

pub const REPORTED: Step = ("runtime reports ready", "agent", |o| o["status"]["report"]["ready"] == true);
/// Steps in their usual order. Each time counts from the apply.
const OURS: [Step; 9] = [
    ("workspace made", "workspace", |_| true),
    ("session claim made", "claim", |_| true),
    ("Pod made", "pod", |_| true),
    ("claim bound", "claim", |o| o["status"]["phase"] == "Bound"),
    ("Pod scheduled", "pod", |o| o["spec"]["nodeName"].is_string()),
    ("node known to the workspace", "workspace", |o| o["status"]["nodeName"].is_string()),
    ("tree made", "workspace", |o| is_true(o, "Provisioned")),
    REPORTED,
    ("Pod Ready, as the kubelet says it", "pod", |o| is_true(o, "Ready")),
];
const BARE: [Step; 3] = [
    ("claim bound", "claim", |o| o["status"]["phase"] == "Bound"),
    ("Pod scheduled", "pod", |o| o["spec"]["nodeName"].is_string()),
    ("Pod Ready, as the kubelet says it", "pod", |o| is_true(o, "Ready")),
];

pub async fn run() -> Result<Vec<Row>> {
    let ns = TestNamespace::create("bench-agents").await?;
    ns.create_git_project("p").await?;
    let mut trace = Trace::new();
    trace.follow::<YoiPod>(&ns, "agent");
    trace.follow::<AgentWorkspace>(&ns, "workspace");
    trace.follow::<Pod>(&ns, "pod");
    trace.follow::<PersistentVolumeClaim>(&ns, "claim");

    let (mut ours, mut bare) = (Samples::default(), Samples::default());
    let (mut our_steps, mut bare_steps) = (vec![Samples::default(); OURS.len()], vec![Samples::default(); BARE.len()]);
    let mut last = Samples::default();
    // The first pair warms up image, caches and connections, and does not count.
    for n in 0..=PAIRS {
        let took = time_agent(&ns, ("p", &format!("a{n}")), &trace, (n > 0).then_some((&OURS[..], &mut our_steps))).await?;
        if n > 0 {
            ours.add(took.ready);
            last.add(took.ready.saturating_sub(took.reported));
        }
        let took = time_plain_pod(&ns, &format!("b{n}"), true, &trace, (n > 0).then_some((&BARE[..], &mut bare_steps))).await?;
        if n > 0 {
            bare.add(took);
        }
        eprint!("\r  {n} of {PAIRS} pairs ");
    }
    eprintln!();
    let (overlay, btrfs) = on_each_provider(&ns, &trace).await?;
    ns.remove_and_wait().await?;

    let mut rows = vec![Row::with_ratio("YoiPod, apply to Ready, over a plain Pod with such a claim", &ours, &bare, BAR)];
    let steps = |side: &str, names: &[Step], samples: &[Samples]| -> Vec<Row> {
        names.iter().zip(samples).map(|(step, s)| Row::without_ratio(&format!("{side}: seen after, {}", step.0), "ms", s, None)).collect()
    };
    rows.extend(steps("YoiPod", &OURS, &our_steps));
    rows.push(Row::without_ratio("YoiPod: from the runtime's report to Ready", "ms", &last, None));
    rows.extend(steps("plain Pod", &BARE, &bare_steps));
    rows.push(Row::with_ratio("YoiPod on Overlay, apply to Ready, over one on Btrfs", &overlay, &btrfs, OVERLAY_BAR));
    rows.iter().for_each(Row::print);
    Ok(rows)
}

/// Times agents whose trees are overlays and agents whose trees are Btrfs subvolumes, in turn, on one node and one data root.
async fn on_each_provider(ns: &TestNamespace, trace: &Trace) -> Result<(Samples, Samples)> {
    let (mut overlay, mut btrfs) = (Samples::default(), Samples::default());
    for provider in ["Overlay", "Btrfs"] {
        let (name, url) = (provider.to_lowercase(), format!("git://git.{}.svc:9418/project.git", ns.name));
        ns.create_project_with(&name, json!({ "source": { "git": { "url": url } }, "provider": provider })).await?;
        ns.wait_condition::<YoiProject>(&name, "Ready", ConditionStatus::True).await?;
    }
    // The first pair warms up, and does not count.
    for n in 0..=OVERLAY_PAIRS {
        for (project, samples) in [("overlay", &mut overlay), ("btrfs", &mut btrfs)] {
            let took = time_agent(ns, (project, &format!("{project}{n}")), trace, None).await?;
            if n > 0 {
                samples.add(took.ready);
            }
        }
        eprint!("\r  {n} of {OVERLAY_PAIRS} pairs of providers ");
    }
    eprintln!();
    Ok((overlay, btrfs))
}

/// What an agent took from its apply on.
pub struct AgentStart {
    pub ready: Duration,
    pub reported: Duration,
    /// Versions of the YoiPod and of its tree, until the YoiPod was seen Ready.
    pub writes: usize,
}

/// Steps, and the samples of each.
pub type Steps<'a> = (&'a [Step], &'a mut Vec<Samples>);

const READY: Step = ("Ready", "agent", |o| is_true(o, "Ready"));

pub async fn time_agent(ns: &TestNamespace, (project, name): (&str, &str), trace: &Trace, steps: Option<Steps<'_>>) -> Result<AgentStart> {
    let object: YoiPod = serde_json::from_value(json!({
        "apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPod", "metadata": { "name": name },
        "spec": { "projectRef": { "name": project }, "agent": { "builtin": { "instruction": "Wait." } }, "session": { "retain": "Delete" } },
    }))?;
    trace.clear();
    let since = Instant::now();
    ns.api::<YoiPod>().create(&PostParams::default(), &object).await?;
    ns.wait_condition::<YoiPod>(name, "Ready", ConditionStatus::True).await?;
    let ready = since.elapsed();
    wait_seen(trace, since, name, &READY).await?;
    let writes = trace.versions("agent", name) + trace.versions("workspace", name);
    let reported = wait_seen(trace, since, name, &REPORTED).await?;
    if let Some((steps, all)) = steps {
        for (samples, step) in all.iter_mut().zip(steps) {
            samples.add(wait_seen(trace, since, name, step).await?);
        }
    }
    ns.api::<YoiPod>().delete(name, &DeleteParams::default()).await?;
    ns.wait_gone::<YoiPod>(name).await?;
    ns.wait_gone::<PersistentVolumeClaim>(&format!("{name}-session")).await?;
    Ok(AgentStart { ready, reported, writes })
}

/// Waits until the trace has seen `step`. Its watches may be a little behind the watch that waited for Ready.
pub async fn wait_seen(trace: &Trace, since: Instant, name: &str, step: &Step) -> Result<Duration> {
    let begun = Instant::now();
    loop {
        if let Some(at) = trace.first(since, step.1, name, step.2) {
            return Ok(at);
        }
        ensure!(begun.elapsed() < Duration::from_secs(5), "{name}: never saw: {}", step.0);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Times a plain Pod of the agents' image, with a claim as a session has one or without.
pub async fn time_plain_pod(ns: &TestNamespace, name: &str, with_claim: bool, trace: &Trace, steps: Option<Steps<'_>>) -> Result<Duration> {
    let claim: PersistentVolumeClaim = serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    }))?;
    let mut volume = if with_claim { json!({ "persistentVolumeClaim": { "claimName": name } }) } else { json!({ "emptyDir": {} }) };
    volume["name"] = json!("session");
    let pod: Pod = serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": {
            "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 1,
            "securityContext": { "runAsNonRoot": true, "runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000,
                "seccompProfile": { "type": "RuntimeDefault" } },
            "containers": [{
                "name": "plain", "image": ns.image("agent")?, "imagePullPolicy": "Never", "command": ["sleep", "3600"],
                "securityContext": { "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": { "drop": ["ALL"] } },
                "volumeMounts": [{ "name": "session", "mountPath": "/session" }],
            }],
            "volumes": [volume],
        },
    }))?;
    trace.clear();
    let since = Instant::now();
    if with_claim {
        ns.api::<PersistentVolumeClaim>().create(&PostParams::default(), &claim).await?;
    }
    ns.api::<Pod>().create(&PostParams::default(), &pod).await?;
    ns.wait_pod_ready(name).await?;
    let took = since.elapsed();
    if let Some((steps, all)) = steps {
        for (samples, step) in all.iter_mut().zip(steps) {
            samples.add(wait_seen(trace, since, name, step).await?);
        }
    }
    ns.api::<Pod>().delete(name, &DeleteParams::default()).await?;
    ns.wait_gone::<Pod>(name).await?;
    if with_claim {
        ns.api::<PersistentVolumeClaim>().delete(name, &DeleteParams::default()).await?;
        ns.wait_gone::<PersistentVolumeClaim>(name).await?;
    }
    Ok(took)
}
