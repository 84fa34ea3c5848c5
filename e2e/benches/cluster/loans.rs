//! What an agent that starts others costs: the time to its child's first call of the model, the time in which a path that it lends is closed and open again, and
//! what all of it writes.

use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use yoi_crds::workspace::ClaimState;
use yoi_crds::{AgentWorkspace, YoiPod};
use yoi_e2e::poll_until;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace, client_as_operator, uid};
use yoi_wire::entry::Body;

use crate::gateway_client::{Gateway, gateway, pod_of, token_of};
use crate::measure::{Row, Samples};
use crate::trace::Trace;
use crate::writes::{Writes, count_writes_when_quiet};

/// Each a fork, a child in lent paths, and an agent that a person applies.
const TRIPLES: usize = 8;
const LOANS: usize = 20;
const SPAWNS: usize = 3;
/// Calls of tools, and readings of a child's words, beside one of each.
const CALLS: usize = 10;

const SCRIPT: &str = r#"
rules:
- name: child
  when: { lastUserContains: "work as the child" }
  steps:
  - text: The child has done it.
- name: lead
  when: { lastUserContains: "make the docs" }
  steps:
  - toolCalls: [{ tool: Shell, args: { command: "mkdir docs" } }]
  - text: Made.
- name: one
  when: { lastUserContains: "look once" }
  steps:
  - toolCalls: [{ tool: ReadPodOutput, args: { name: kept } }]
  - text: Looked.
- name: many
  when: { lastUserContains: "look often" }
  steps:
  - toolCalls: [$MANY]
  - text: Looked.
"#;

pub async fn run() -> Result<Vec<Row>> {
    let ns = TestNamespace::create("bench-loans").await?;
    let many = [r#"{ tool: ReadPodOutput, args: { name: kept } }, { tool: Shell, args: { command: "true" } }"#; CALLS].join(", ");
    ns.create_model(&SCRIPT.replace("$MANY", &many)).await?;
    ns.create_project_with("p", json!({ "source": { "empty": {} }, "provider": "Btrfs" })).await?;
    let delegation = json!({ "allow": [{ "path": "docs", "access": "Write" }] });
    ns.create_agent("lead", "p", json!({ "task": "make the docs", "delegation": delegation, "session": { "retain": "Delete" } })).await?;
    ns.wait_task_complete("lead").await?;
    let lead = Lead { gateway: gateway(&ns).await?, token: token_of(&ns, "lead").await?, ns };
    let mut rows = lead.first_calls().await?;
    rows.extend(lead.covers().await?);
    rows.extend(lead.writes().await?);
    lead.ns.remove_and_wait().await?;
    rows.iter().for_each(Row::print);
    Ok(rows)
}

/// An agent that may lend `docs`.
struct Lead {
    ns: TestNamespace,
    gateway: Gateway,
    token: String,
}

impl Lead {
    /// Has it start a child, as its tool SpawnPod does.
    async fn spawn(&self, name: &str, share: bool) -> Result<()> {
        let mut body = json!({ "name": name, "task": "work as the child", "requestId": format!("bench-{name}") });
        if share {
            body["share"] = json!([{ "path": "docs", "access": "Write" }]);
        }
        let answer = self.gateway.as_runtime(&self.token, "/v1/children/spawn", &body.to_string()).await?;
        ensure!(answer.code == 200, "{name} was not started: {answer:?}");
        Ok(())
    }

    /// The same agent as a child in a fork, as a person makes it.
    async fn apply(&self, name: &str) -> Result<()> {
        let object: YoiPod = serde_json::from_value(json!({
            "apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPod", "metadata": { "name": name },
            "spec": {
                "projectRef": { "name": "p" }, "agent": { "builtin": { "instruction": "You are lead." } }, "task": "work as the child",
                "workspace": { "template": { "source": { "workspace": { "name": "lead" } } } }, "session": { "retain": "Delete" },
            },
        }))?;
        self.ns.api::<YoiPod>().create(&PostParams::default(), &object).await?;
        Ok(())
    }

    async fn remove(&self, name: &str) -> Result<()> {
        self.ns.api::<YoiPod>().delete(name, &DeleteParams::default()).await?;
        self.ns.wait_gone::<YoiPod>(name).await?;
        self.ns.wait_gone::<PersistentVolumeClaim>(&format!("{name}-session")).await
    }

    async fn wait_open(&self) -> Result<()> {
        let is_open = |tree: Option<&AgentWorkspace>| {
            let status = tree?.status.as_ref()?;
            let is_back = status.claims.iter().all(|claim| claim.state == ClaimState::Released);
            (is_back && status.loans.iter().all(|view| !view.covered)).then_some(())
        };
        self.ns.wait_for("lead", "its paths back", is_open).await
    }

    /// When the first run began, which calls the model at once. The node's clock is this machine's.
    async fn first_call(&self, name: &str) -> Result<SystemTime> {
        self.ns.wait_task_complete(name).await?;
        let log = self.ns.log(name).await?;
        let begun = log.iter().find(|line| matches!(line.entry.body, Body::RunStarted(_))).context("no run in the log")?;
        let at: Timestamp = begun.entry.at.parse().context("the time of an entry")?;
        Ok(at.into())
    }

    async fn first_calls(&self) -> Result<Vec<Row>> {
        let [mut fork, mut share, mut bare] = [Samples::default(), Samples::default(), Samples::default()];
        // The first of each warms up, and does not count.
        for n in 0..=TRIPLES {
            for (kind, samples) in [("fork", &mut fork), ("share", &mut share), ("bare", &mut bare)] {
                let name = format!("{kind}{n}");
                let since = SystemTime::now();
                match kind {
                    "bare" => self.apply(&name).await?,
                    kind => self.spawn(&name, kind == "share").await?,
                }
                let took = self.first_call(&name).await?.duration_since(since).context("an entry of before")?;
                if n > 0 {
                    samples.add(took);
                }
                self.remove(&name).await?;
                self.wait_open().await?;
            }
            eprint!("\r  {n} of {TRIPLES} of each kind of child ");
        }
        eprintln!();
        Ok(vec![
            Row::with_ratio("SpawnPod to the child's first run, over apply of such a YoiPod to its first", &fork, &bare, 1.15),
            Row::with_ratio("with share", &share, &bare, 1.25),
        ])
    }

    /// A claim by hand, so that the time begins with the write of it.
    async fn covers(&self) -> Result<Vec<Row>> {
        let ns = &self.ns;
        let (tree, lead): (AgentWorkspace, YoiPod) = (ns.get("lead").await?, ns.get("lead").await?);
        let path = tree.tree_path().context("the tree has no path")?.to_owned();
        let pod_uid = lead.status.as_ref().and_then(|status| Some(status.pod.as_ref()?.uid.clone())).context("the lead has no Pod")?;
        let witness = Witness::start(ns, &path).await?;
        let trees = Api::<AgentWorkspace>::namespaced(client_as_operator().await?, &ns.name);
        let write = async |status: Value| -> Result<SystemTime> {
            let since = SystemTime::now();
            trees.patch_status("lead", &PatchParams::default(), &Patch::Merge(&json!({ "status": status }))).await?;
            Ok(since)
        };
        let mut trace = Trace::new();
        trace.follow::<AgentWorkspace>(ns, "workspace");
        let [mut closed, mut open, mut bare] = [Samples::default(), Samples::default(), Samples::default()];
        for n in 0..=LOANS {
            let claim = json!({
                "loan": format!("bench-{n}"), "lender": { "name": "lead", "uid": uid(&lead), "podUID": pod_uid }, "holder": { "name": "nobody" },
                "rules": { "allow": [{ "path": "docs", "access": "Write", "recursive": true }] }, "state": "Reserved",
                "reservedAt": Timestamp::now().to_string(),
            });
            let since = write(json!({ "claims": [claim] })).await?;
            let until_closed = witness.first(since, false).await?;
            let since = write(json!({ "claims": [] })).await?;
            let until_open = witness.first(since, true).await?;
            self.wait_open().await?;
            // What nobody acts on, but whoever watches sees.
            trace.clear();
            let mark = format!("bench {n}");
            let condition = json!({ "type": "Bench", "status": "True", "reason": "Bench", "message": mark, "lastTransitionTime": "2026-01-01T00:00:00Z" });
            let conditions = ns.get::<AgentWorkspace>("lead").await?.status.unwrap_or_default().conditions;
            let mut conditions = serde_json::to_value(conditions)?;
            conditions.as_array_mut().context("no conditions")?.retain(|known| known["type"] != "Bench");
            conditions.as_array_mut().context("no conditions")?.push(condition);
            let since = Instant::now();
            trees.patch_status("lead", &PatchParams::default(), &Patch::Merge(&json!({ "status": { "conditions": conditions } }))).await?;
            let is_marked = |object: &Value| object["status"]["conditions"].to_string().contains(&mark);
            let seen = async || Ok(trace.first(since, "workspace", "lead", is_marked));
            let seen = poll_until(TIMEOUT, "a watch shows the status", seen).await?.0;
            if n > 0 {
                closed.add(until_closed);
                open.add(until_open);
                bare.add(seen);
            }
            eprint!("\r  {n} of {LOANS} loans ");
        }
        eprintln!();
        Ok(vec![
            Row::with_ratio(
                "claim written until its lender's write fails, over a status patch until a watch shows it",
                &closed,
                &bare,
                3.0,
            ),
            Row::with_ratio("claim gone until its lender's write succeeds, over the same", &open, &bare, 3.0),
        ])
    }

    async fn writes(&self) -> Result<Vec<Row>> {
        let ns = &self.ns;
        let before = count_writes_when_quiet(ns).await?;
        for n in 0..SPAWNS {
            self.spawn(&format!("s{n}"), true).await?;
            ns.wait_task_complete(&format!("s{n}")).await?;
            self.remove(&format!("s{n}")).await?;
            self.wait_open().await?;
        }
        let spawned = count_writes_when_quiet(ns).await?;
        for n in 0..SPAWNS {
            self.apply(&format!("o{n}")).await?;
            ns.wait_task_complete(&format!("o{n}")).await?;
            self.remove(&format!("o{n}")).await?;
        }
        let own = count_writes_when_quiet(ns).await?;
        self.spawn("kept", false).await?;
        ns.wait_task_complete("kept").await?;
        self.apply("alone").await?;
        ns.wait_task_complete("alone").await?;
        let ready = count_writes_when_quiet(ns).await?;
        send(ns, "alone", "work as the child").await?;
        let alone = count_writes_when_quiet(ns).await?;
        send(ns, "kept", "work as the child").await?;
        let kept = count_writes_when_quiet(ns).await?;
        send(ns, "lead", "look once").await?;
        let once = count_writes_when_quiet(ns).await?;
        send(ns, "lead", "look often").await?;
        let often = count_writes_when_quiet(ns).await?;
        let all = |writes: Writes| (writes.ours + writes.operators) as f64;
        let ratio = all(spawned.since(before)) / all(own.since(spawned));
        let more = all(often.since(once)) - all(once.since(kept));
        let told = all(kept.since(alone)) - all(alone.since(ready));
        Ok(vec![
            Row::number("writes of a spawn in lent paths and its return, over those of a YoiPod and its end", "times", ratio, Some(1.5)),
            Row::number(
                "writes of a child's run, of which its parent gets a notice, more than of another agent's",
                "writes",
                told,
                Some(0.0),
            ),
            Row::number(
                &format!("writes of {} calls and readings of a child's words more in a run", 2 * CALLS - 1),
                "writes",
                more,
                Some(0.0),
            ),
        ])
    }
}

/// Has the agent make a run.
async fn send(ns: &TestNamespace, agent: &str, text: &str) -> Result<()> {
    ns.yoi(&["send", agent, text, "--wait"]).await?.exit_ok().map(drop)
}

/// A process in the lead's Pod that tries to write again and again, and says each time whether it could.
struct Witness {
    tries: Arc<Mutex<Vec<(SystemTime, bool)>>>,
    _process: tokio::process::Child,
}

impl Witness {
    async fn start(ns: &TestNamespace, path: &str) -> Result<Self> {
        let script = format!(
            "while :; do if ( : > {path}/docs/witness ) 2>/dev/null; then echo $(date +%s%N) ok; else echo $(date +%s%N) no; fi; sleep 0.002; done"
        );
        let kubectl = std::env::var("YOI_KUBECTL").context("YOI_KUBECTL names the kubectl of the tests")?;
        let mut process = tokio::process::Command::new(kubectl)
            .args(["-n", &ns.name, "exec", &pod_of(ns, "lead").await?, "-c", "agent", "--", "/bin/sh", "-c", &script])
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("failed to start kubectl")?;
        let mut lines = BufReader::new(process.stdout.take().context("kubectl has no output")?).lines();
        let tries: Arc<Mutex<Vec<(SystemTime, bool)>>> = Arc::default();
        let all = tries.clone();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let Some((nanos, outcome)) = line.split_once(' ') else { continue };
                let Ok(nanos) = nanos.parse::<u64>() else { continue };
                let at = UNIX_EPOCH + Duration::from_nanos(nanos);
                all.lock().unwrap_or_else(PoisonError::into_inner).push((at, outcome == "ok"));
            }
        });
        let witness = Witness { tries, _process: process };
        witness.first(UNIX_EPOCH, true).await?;
        Ok(witness)
    }

    /// How long after this moment a write first succeeded, or failed.
    async fn first(&self, since: SystemTime, succeeds: bool) -> Result<Duration> {
        let find = async || {
            let tries = self.tries.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(tries.iter().find(|(at, could)| *at >= since && *could == succeeds).map(|(at, _)| *at))
        };
        let (at, _) = poll_until(TIMEOUT, &format!("a write of the lead that succeeds: {succeeds}"), find).await?;
        Ok(at.duration_since(since).unwrap_or_default())
    }
}
