//! Agents that take a warm session claim: time to Ready, compared with plain Pods that have a claim and that have none; and many agents at once, of which
//! some find one.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, LogParams, PostParams};
use serde_json::json;
use yoi_crds::condition::{ConditionStatus, find};
use yoi_crds::{AgentWorkspace, YoiPod, YoiProject};
use yoi_e2e::test_namespace::TestNamespace;

use crate::agents::{REPORTED, Step, time_agent, time_plain_pod};
use crate::measure::{Row, Samples};
use crate::trace::{Trace, is_true};

const ROUNDS: usize = 20;
/// Warm session claims while agents are made one by one.
pub const SESSIONS: usize = 2;
/// Over a plain Pod with a claim that binds late.
const LATE_BAR: f64 = 0.3;
/// Over a plain Pod without a claim.
const NONE_BAR: f64 = 1.3;
/// Of YoiPod and AgentWorkspace.
const WRITES_BAR: f64 = 10.0;

const BURSTS: usize = 2;
/// As many as one node takes beside everything else.
const MANY: usize = 50;
const WARM: usize = 20;
const BURST_BAR: f64 = 0.8;
const REFILL_BAR: Duration = Duration::from_secs(60);
/// A burst or a refill that takes longer has failed.
const LONGEST: Duration = Duration::from_secs(300);

const STEPS: [Step; 6] = [
    ("workspace made", "workspace", |_| true),
    ("Pod made", "pod", |_| true),
    ("Pod scheduled", "pod", |o| o["spec"]["nodeName"].is_string()),
    ("tree made", "workspace", |o| is_true(o, "Provisioned")),
    REPORTED,
    ("Pod Ready, as the kubelet says it", "pod", |o| is_true(o, "Ready")),
];

pub async fn run() -> Result<Vec<Row>> {
    let ns = TestNamespace::create("bench-warm").await?;
    create_projects(&ns).await?;
    let mut trace = Trace::new();
    trace.follow::<YoiPod>(&ns, "agent");
    trace.follow::<AgentWorkspace>(&ns, "workspace");
    trace.follow::<Pod>(&ns, "pod");

    let (mut ours, mut late, mut none) = (Samples::default(), Samples::default(), Samples::default());
    let (mut last, mut writes) = (Samples::default(), Samples::default());
    let mut steps = vec![Samples::default(); STEPS.len()];
    // The first round warms up image, caches and connections, and does not count.
    for n in 0..=ROUNDS {
        wait_warm(&ns, SESSIONS).await?;
        let agent = time_agent(&ns, ("warm", &format!("a{n}")), &trace, (n > 0).then_some((&STEPS[..], &mut steps))).await?;
        let with_claim = time_plain_pod(&ns, &format!("b{n}"), true, &trace, None).await?;
        let without = time_plain_pod(&ns, &format!("c{n}"), false, &trace, None).await?;
        if n > 0 {
            ours.add(agent.ready);
            last.add(agent.ready.saturating_sub(agent.reported));
            writes.add_number(agent.writes as f64);
            late.add(with_claim);
            none.add(without);
        }
        eprint!("\r  {n} of {ROUNDS} rounds ");
    }
    let own = runtime_start(&ns).await?;
    let bursts = bursts(&ns).await?;
    eprintln!();
    ns.remove_and_wait().await?;

    let mut rows = vec![
        Row::with_ratio("YoiPod with a warm claim, apply to Ready, over a plain Pod with a claim that binds late", &ours, &late, LATE_BAR),
        Row::with_ratio("the same over a plain Pod without a claim", &ours, &none, NONE_BAR),
        Row::without_ratio("writes to a YoiPod and its tree, apply to Ready, with a warm claim", "writes", &writes, Some(WRITES_BAR)),
    ];
    let named = STEPS.iter().zip(&steps);
    rows.extend(named.map(|(step, s)| Row::without_ratio(&format!("warm YoiPod: seen after, {}", step.0), "ms", s, None)));
    rows.push(Row::without_ratio("warm YoiPod: from the runtime's report to Ready", "ms", &last, None));
    rows.push(Row::without_ratio("runtime: from its first line of log to its report, as the gateway wrote it", "ms", &own, None));
    rows.extend(bursts);
    rows.iter().for_each(Row::print);
    Ok(rows)
}

/// Creates the projects `warm` and `cold`, of the same tree, with warm session claims and without.
pub async fn create_projects(ns: &TestNamespace) -> Result<()> {
    ns.create_git_project("cold").await?;
    let git = json!({ "git": { "url": format!("git://git.{}.svc:9418/project.git", ns.name) } });
    ns.create_project_with("warm", json!({ "source": git, "warm": { "sessions": SESSIONS } })).await?;
    ns.wait_condition::<YoiProject>("warm", "Ready", ConditionStatus::True).await.map(drop)
}

/// Waits until so many warm claims of the project `warm` are ready.
pub async fn wait_warm(ns: &TestNamespace, count: usize) -> Result<()> {
    let begin = format!("{count} of {count} ");
    ns.wait_for::<YoiProject, ()>("warm", &format!("{count} warm claims stand ready"), |project| {
        let conditions = &project?.status.as_ref()?.conditions;
        find(conditions, "SessionsWarm")?.message.starts_with(&begin).then_some(())
    })
    .await
}

/// What of an agent's start is the runtime's own: from its first line of log until a watch shows its report.
async fn runtime_start(ns: &TestNamespace) -> Result<Samples> {
    let mut own = Samples::default();
    for n in 0..5 {
        let name = format!("r{n}");
        wait_warm(ns, SESSIONS).await?;
        ns.create_agent(&name, "warm", json!({ "session": { "retain": "Delete" } })).await?;
        let (pod, reported) = ns
            .wait_for::<YoiPod, _>(&name, "reported as ready", |agent| {
                let status = agent?.status.as_ref()?;
                let is_ready = status.report.as_ref().is_some_and(|report| report.ready);
                is_ready.then_some((status.pod.as_ref()?.name.clone(), Timestamp::now()))
            })
            .await?;
        let log = ns.api::<Pod>().logs(&pod, &LogParams { timestamps: true, ..LogParams::default() }).await?;
        let first = log.split_whitespace().next().context("the runtime has logged nothing")?;
        let began: Timestamp = first.parse().with_context(|| format!("{first} is no time"))?;
        own.add(Duration::try_from(reported.duration_since(began)).unwrap_or_default());
        delete(ns, &[name]).await?;
    }
    Ok(own)
}

/// Many agents at once, all cold and then with some warm claims, in turn.
async fn bursts(ns: &TestNamespace) -> Result<Vec<Row>> {
    ns.merge_patch::<YoiProject>("warm", &json!({ "spec": { "warm": { "sessions": WARM } } })).await?;
    let (mut warm, mut cold, mut refill) = (Samples::default(), Samples::default(), Samples::default());
    for n in 0..BURSTS {
        eprint!("\r  burst {n}: {MANY} agents at once ");
        let names: Vec<String> = (0..MANY).map(|i| format!("c{n}x{i}")).collect();
        cold.add(burst(ns, "cold", &names).await?);
        delete(ns, &names).await?;

        wait_warm(ns, WARM).await?;
        let names: Vec<String> = (0..MANY).map(|i| format!("w{n}x{i}")).collect();
        warm.add(burst(ns, "warm", &names).await?);
        let begun = Instant::now();
        wait_warm(ns, WARM).await?;
        refill.add(begun.elapsed());
        let taken = count_warm_claims(ns, &names).await?;
        ensure!(taken > 0, "no agent has taken a warm claim");
        eprintln!("\r  burst {n}: {taken} agents had a warm claim ");
        delete(ns, &names).await?;
    }
    let name = format!("{MANY} YoiPods at once, until the last is Ready, {WARM} warm claims over none");
    let refilled = format!("{WARM} warm claims stand ready again, after the last of {MANY} agents is Ready");
    Ok(vec![
        Row::with_ratio(&name, &warm, &cold, BURST_BAR),
        Row::without_ratio(&refilled, "ms", &refill, Some(REFILL_BAR.as_secs_f64() * 1_000.0)),
    ])
}

/// Makes these agents and returns the time until all are Ready.
async fn burst(ns: &TestNamespace, project: &str, names: &[String]) -> Result<Duration> {
    let mut trace = Trace::new();
    trace.follow::<YoiPod>(ns, "agent");
    let objects = names.iter().map(|name| {
        serde_json::from_value::<YoiPod>(json!({
            "apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPod", "metadata": { "name": name },
            "spec": { "projectRef": { "name": project }, "agent": { "builtin": { "instruction": "Wait." } }, "session": { "retain": "Delete" } },
        }))
    });
    let objects: Vec<YoiPod> = objects.collect::<Result<_, _>>()?;
    let since = Instant::now();
    let api = ns.api::<YoiPod>();
    let made = objects.iter().map(|object| {
        let api = &api;
        async move { api.create(&PostParams::default(), object).await.map(drop) }
    });
    stream::iter(made).buffer_unordered(16).try_collect::<()>().await?;
    let prefix = names[0].split('x').next().unwrap_or_default().to_owned() + "x";
    loop {
        let ready = trace.count("agent", &prefix, |object| is_true(object, "Ready"));
        if ready == names.len() {
            return Ok(since.elapsed());
        }
        ensure!(since.elapsed() < LONGEST, "{ready} of {} agents are Ready after {LONGEST:?}", names.len());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// How many of these agents have a claim that was warm.
async fn count_warm_claims(ns: &TestNamespace, names: &[String]) -> Result<usize> {
    let all = try_join_all(names.iter().map(|name| ns.get::<YoiPod>(name))).await?;
    let claims = all.into_iter().filter_map(|agent| agent.status?.session_claim_name);
    Ok(claims.filter(|name| name.starts_with("warm.")).count())
}

async fn delete(ns: &TestNamespace, names: &[String]) -> Result<()> {
    for name in names {
        ns.api::<YoiPod>().delete(name, &DeleteParams::background()).await?;
    }
    for name in names {
        ns.wait_gone::<YoiPod>(name).await?;
        ns.wait_gone::<PersistentVolumeClaim>(&format!("{name}-session")).await?;
    }
    Ok(())
}
