//! What is at work while things are killed: three agents, two of them peers, a model, messages without end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use axum::http::Request;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, ListParams};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::sleep;
use yoi_crds::condition::ConditionStatus;
use yoi_crds::{AgentWorkspace, YoiPeer, YoiPod};
use yoi_e2e::test_namespace::{TestNamespace, uid};

use crate::census::{self, Inhabitant};
use crate::chance::Chance;
use crate::checks::{self, Known};
use crate::churn::Churn;
use crate::endpoints;
use crate::inventory::{self, Inventory};
use crate::ledger::Account;
use crate::node::Node;
use crate::patience::{self, Patience};
use crate::power::Disk;

pub const AGENTS: [&str; 3] = ["a", "b", "c"];

/// A message is written down by a command that adds its call's id to a file, so that a second execution would show, and commits it.
const SCRIPT: &str = r#"
rules:
- name: heard
  when: { lastUserContains: "told pass" }
  steps: [{ text: I heard it. }]
- name: a-to-b
  when: { lastUserContains: "pass ", systemContains: 'the agent "a"' }
  steps:
  - toolCalls: [{ tool: SendToPeerPod, args: { to: b, message: "told {{user}}" } }]
  - text: Passed on.
- name: b-to-a
  when: { lastUserContains: "pass ", systemContains: 'the agent "b"' }
  steps:
  - toolCalls: [{ tool: SendToPeerPod, args: { to: a, message: "told {{user}}" } }]
  - text: Passed on.
- name: work
  when: {}
  steps:
  - text: I write it down.
    toolCalls:
    - tool: Shell
      args:
        command: |
          test -d .git || { git init -q -b main . && printf 'traces\n' > .git/info/exclude; }
          rm -f .git/*.lock .git/refs/heads/*.lock
          sleep 0.$((RANDOM % 5))
          echo '{{user}} {{call}}' >> traces
          echo '{{user}}' >> numbers
          sleep 0.$((RANDOM % 5))
          git add -A && git commit -qm '{{user}} {{call}}' && git log -1 --format=%s
  - text: Done.
"#;

pub struct World {
    pub ns: TestNamespace,
    pub node: Node,
    pub disk: Option<Disk>,
    pub accounts: Vec<Arc<Account>>,
    /// UIDs of the agents' trees.
    pub trees: BTreeMap<&'static str, String>,
    pub before: Inventory,
    /// Objects that are there for the world's whole life.
    first: BTreeSet<Inhabitant>,
    others: usize,
    tasks: JoinSet<()>,
}

impl World {
    /// With `power`, the sessions of the agents lie on a disk whose power can be cut.
    pub async fn open(node: &Node, chance: &mut Chance, power: bool) -> Result<World> {
        let client = Client::try_default().await?;
        let others = node.pids(crate::node::Part::Runtime).await?.len();
        let before = Inventory::take(&client, node).await?;
        let ns = TestNamespace::create("kills").await?;
        let name = format!("kills-{:x}", chance.below(1 << 30));
        let disk = if power { Some(Disk::make(&client, node, &name, AGENTS.len()).await?) } else { None };
        ns.create_model(SCRIPT).await?;
        ns.create_empty_project("p").await?;
        let session = disk
            .as_ref()
            .map_or(json!({ "retain": "Delete" }), |disk| json!({ "claimTemplate": { "storageClassName": disk.name, "size": "16Mi" } }));
        for agent in AGENTS {
            ns.create_agent(agent, "p", json!({ "session": session })).await?;
        }
        let peer = json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPeer", "metadata": { "name": "a.b" }, "spec": { "members": ["a", "b"] } });
        ns.apply(&peer.to_string()).await?;
        let mut trees = BTreeMap::new();
        for agent in AGENTS {
            ns.wait_agent_ready(agent).await?;
            trees.insert(agent, uid(&ns.get::<AgentWorkspace>(agent).await?));
        }
        ns.wait_condition::<YoiPeer>("a.b", "Ready", ConditionStatus::True).await?;
        let accounts: Vec<_> = AGENTS.iter().map(|agent| Account::new(&ns.name, agent)).collect();
        let mut tasks = JoinSet::new();
        for account in &accounts {
            account.start(&ns.client, &mut tasks, chance.branch(&account.agent));
        }
        // What is there for the world's whole life.
        let mounted = Inventory::take(&client, node).await?;
        let before = before.with(disk.iter().flat_map(|disk| mounted.called(&disk.name)));
        let first = census::take(&ns).await?;
        Ok(World { ns, node: node.clone(), disk, accounts, trees, before, first, others, tasks })
    }

    pub fn work(&self, on: bool) {
        for account in &self.accounts {
            account.work(on);
        }
    }

    /// One more message to each agent.
    pub fn proof(&self) {
        for account in &self.accounts {
            account.prove();
        }
    }

    /// What the logs say that they should not, or not any more.
    pub async fn broken(&self) -> Result<Vec<String>> {
        let mut broken = Vec::new();
        let shown = self.shown().await?;
        let mut logs = BTreeMap::new();
        for account in &self.accounts {
            let read = account.read();
            let log = self.log_of(account).await?;
            let traces = self.node.file(&self.trees[account.agent.as_str()], "traces").await?;
            let acknowledged = account.acknowledged();
            let known = Known { agent: &account.agent, log: &log, read: &read, acknowledged: &acknowledged, traces: &traces };
            broken.extend(account.seen_wrong());
            broken.extend(checks::broken(&known));
            broken.extend(checks::not_remembered(&account.agent, &log, &shown));
            logs.insert(account.agent.clone(), log);
        }
        for (from, to) in [("a", "b"), ("b", "a")] {
            broken.extend(checks::passed_on(from, &logs[from], to, &logs[to]));
        }
        Ok(broken)
    }

    /// The whole log; asked for again only when Kubernetes itself did not lead there.
    async fn log_of(&self, account: &Account) -> Result<Vec<String>> {
        let (client, begun) = (&self.ns.client, Instant::now());
        loop {
            let before = endpoints::behind(client).await?;
            let error = match account.log(client).await {
                Ok(log) => return Ok(log),
                Err(error) => error,
            };
            let behind = [before, endpoints::behind(client).await?].concat();
            if behind.is_empty() || begun.elapsed() > patience::KUBERNETES {
                return Err(error).with_context(|| format!("failed to read the log of {}; {behind:?}", account.agent));
            }
            println!("the log of {} is asked for again: {}", account.agent, behind[0]);
            sleep(Duration::from_secs(1)).await;
        }
    }

    /// What belongs to nobody, when it is quiet and there was time to take it away, and how long that took.
    pub async fn left_over(&self, round: &Churn) -> Result<(Duration, Vec<String>)> {
        let (begun, mut patience) = (Instant::now(), Patience::default());
        loop {
            let mut left = inventory::held(&self.ns.client, &self.ns.name).await?;
            left.extend(census::strangers(&census::take(&self.ns).await?, &self.first, round));
            left.extend(Inventory::strays(&self.ns.client, &self.node, &self.before).await?);
            left.extend(inventory::connections(&self.ns.client, &self.node, AGENTS.len() + self.others).await?);
            if left.is_empty() {
                return Ok((begun.elapsed(), left));
            }
            if begun.elapsed() < patience::KUBERNETES && !endpoints::behind(&self.ns.client).await?.is_empty() {
                patience.again();
            }
            let overdue = patience.overdue(&left, Instant::now());
            if !overdue.is_empty() {
                return Ok((begun.elapsed(), overdue.into_iter().map(|thing| format!("left over: {thing}")).collect()));
            }
            sleep(Duration::from_secs(1)).await;
        }
    }

    /// What the model was shown, by its own account.
    async fn shown(&self) -> Result<String> {
        let path = format!("/api/v1/namespaces/{}/pods/scripted-model:8080/proxy/shown", self.ns.name);
        Ok(self.ns.client.request_text(Request::get(path).body(Vec::new())?).await?)
    }

    /// Calls whose outcome is unknown, and all calls, so far.
    pub fn calls(&self) -> (usize, usize) {
        let count = |word: &str| self.accounts.iter().flat_map(|a| a.read()).filter(|line| line.contains(word)).count();
        (count("\"outcome\":\"unknown\""), count("\"kind\":\"ToolEnded\""))
    }

    /// Pods of one of our Deployments or of the DaemonSet.
    pub async fn pods(&self, namespace: &str, app: &str) -> Result<Vec<Pod>> {
        let api: Api<Pod> = Api::namespaced(self.ns.client.clone(), namespace);
        Ok(api.list(&ListParams::default().labels(&format!("app.kubernetes.io/name={app}"))).await?.items)
    }

    /// The end: all of it goes, and nothing is left.
    pub async fn close(mut self) -> Result<()> {
        self.work(false);
        self.tasks.shutdown().await;
        let World { ns, node, disk, before, others, .. } = self;
        let client = ns.client.clone();
        // Kept when their YoiPods go, as is promised; here nobody wants them.
        for agent in AGENTS {
            crate::churn::delete::<YoiPod>(&ns, agent).await?;
        }
        ns.remove().await?;
        if let Some(disk) = disk {
            disk.remove().await?;
        }
        let mut patience = Patience::default();
        loop {
            let mut left = Inventory::strays(&client, &node, &before).await?;
            left.extend(inventory::connections(&client, &node, others).await?);
            if left.is_empty() {
                return Ok(());
            }
            let overdue = patience.overdue(&left, Instant::now());
            ensure!(overdue.is_empty(), "left over after everything was deleted:\n  {}", overdue.join("\n  "));
            sleep(Duration::from_secs(1)).await;
        }
    }

    /// The names of the agents' Pods.
    pub async fn agent_pods(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for agent in AGENTS {
            let pod: YoiPod = self.ns.get(agent).await?;
            match pod.status.and_then(|s| s.pod) {
                Some(pod) => names.push(pod.name),
                None => bail!("{agent} has no Pod"),
            }
        }
        Ok(names)
    }
}
