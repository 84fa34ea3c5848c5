//! The workload of a run: three agents, two of them peers, one more that rests, a scripted model, and clients that send messages.

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
use yoi_crds::source::ProviderName;
use yoi_crds::{AgentWorkspace, YoiPeer, YoiPod};
use yoi_e2e::test_namespace::{TestNamespace, uid, wait_removed};

use crate::agent_client::AgentClient;
use crate::checks::{self, AgentHistory};
use crate::churn::{self, Churn};
use crate::deadlines::{self, Deadlines};
use crate::endpoints;
use crate::inventory::{self, NodeInventory};
use crate::node::Node;
use crate::objects::{self, ObjectName};
use crate::person::Person;
use crate::power::Disk;
use crate::resting::{RESTING, RestingAgent};
use crate::rng::SeededRng;

pub const AGENTS: [&str; 3] = ["a", "b", "c"];

/// For each message the agent runs a command that appends the call's id to a file and commits it, so a second execution is visible. A person may
/// interrupt any answer, so a rule goes on with its last step, and a conversation that was turned back gives no call the id of an earlier one.
const SCRIPT: &str = r#"
textsApart: true
rules:
- name: heard
  when: { lastUserContains: "told pass" }
  repeat: true
  steps: [{ text: I heard it. }]
- name: a-to-b
  when: { lastUserContains: "pass ", systemContains: 'the agent "a"' }
  repeat: true
  steps:
  - toolCalls: [{ tool: SendToPeerPod, id: 'pass {{user}}', args: { to: b, message: "told {{user}}" } }]
  - text: Passed on.
- name: b-to-a
  when: { lastUserContains: "pass ", systemContains: 'the agent "b"' }
  repeat: true
  steps:
  - toolCalls: [{ tool: SendToPeerPod, id: 'pass {{user}}', args: { to: a, message: "told {{user}}" } }]
  - text: Passed on.
- name: work
  when: {}
  repeat: true
  steps:
  - text: I write it down.
    toolCalls:
    - tool: Shell
      id: 'work {{user}}'
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

pub struct Workload {
    pub ns: TestNamespace,
    pub node: Node,
    pub disk: Option<Disk>,
    pub agent_clients: Vec<Arc<AgentClient>>,
    /// One for each agent, in the same order.
    pub persons: Vec<Arc<Person>>,
    pub resting: RestingAgent,
    /// UIDs of the agents' trees.
    pub trees: BTreeMap<&'static str, String>,
    /// The provider that made them.
    pub provider: ProviderName,
    pub before: NodeInventory,
    /// Objects that exist as long as the workload.
    first_objects: BTreeSet<ObjectName>,
    other_runtimes: usize,
    tasks: JoinSet<()>,
}

impl Workload {
    /// Creates the workload. With `power`, the agents' sessions are on a disk whose power can be cut.
    pub async fn create(node: &Node, rng: &mut SeededRng, power: bool) -> Result<Workload> {
        let client = Client::try_default().await?;
        // What still ends would be missed in what is there before.
        wait_removed(&client).await?;
        let other_runtimes = node.pids(crate::node::Component::Runtime).await?.len();
        let before = NodeInventory::collect(&client, node).await?;
        let ns = TestNamespace::create("kills").await?;
        let name = format!("kills-{:x}", rng.below(1 << 30));
        let disk = if power { Some(Disk::create(&client, node, &name, AGENTS.len()).await?) } else { None };
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
        let made_by = ns.get::<AgentWorkspace>(AGENTS[0]).await?.status.and_then(|status| status.provider);
        let provider = made_by.context("no provider in the status of a tree")?.selected;
        let at_rest = json!({ "path": "/workspace/tree", "claim": true, "binding": "Immediate", "source": { "project": { "name": "p" } } });
        ns.apply(&churn::workspace(churn::AT_REST, &at_rest).to_string()).await?;
        ns.wait_condition::<AgentWorkspace>(churn::AT_REST, "Ready", ConditionStatus::True).await?;
        ns.wait_condition::<YoiPeer>("a.b", "Ready", ConditionStatus::True).await?;
        let resting = RestingAgent::create(&ns).await?;
        let agent_clients: Vec<_> = AGENTS.iter().map(|agent| AgentClient::new(&ns.name, agent)).collect();
        let mut tasks = JoinSet::new();
        for agent_client in &agent_clients {
            agent_client.start(&ns.client, &mut tasks, rng.branch(&agent_client.agent));
        }
        let persons: Vec<_> = AGENTS.iter().map(|agent| Person::new(&ns.name, agent)).collect();
        for person in &persons {
            person.start(&ns.client, &mut tasks, &rng.branch(&format!("person of {}", person.agent)));
        }
        resting.start(&ns.client, &mut tasks, rng.branch(RESTING));
        // The disk's mounts and volumes exist as long as the workload.
        let with_disk = NodeInventory::collect(&client, node).await?;
        let before = before.with(disk.iter().flat_map(|disk| with_disk.matching(&disk.name)));
        let first_objects = objects::list(&ns).await?;
        Ok(Workload {
            ns,
            node: node.clone(),
            disk,
            agent_clients,
            persons,
            resting,
            trees,
            provider,
            before,
            first_objects,
            other_runtimes,
            tasks,
        })
    }

    pub fn set_busy(&self, on: bool) {
        for agent_client in &self.agent_clients {
            agent_client.set_busy(on);
        }
        for person in &self.persons {
            person.set_busy(on);
        }
        self.resting.client.set_busy(on);
    }

    /// Requests one more message to each agent.
    pub fn request_messages(&self) {
        for agent_client in &self.agent_clients {
            agent_client.request_message();
        }
        self.resting.client.request_message();
    }

    /// Returns a sentence for each promise that the logs show as broken.
    pub async fn violations(&self) -> Result<Vec<String>> {
        let mut violations = Vec::new();
        let model_inputs = self.model_inputs().await?;
        let mut logs = BTreeMap::new();
        for (agent_client, person) in self.agent_clients.iter().zip(&self.persons) {
            // What was answered and shown before the log is read is in it.
            let (answered, attached) = (person.answered(), person.attached_entries());
            let read = agent_client.lines_read();
            let log = self.read_log(agent_client).await?;
            let traces = self.node.file(&self.trees[agent_client.agent.as_str()], "traces").await?;
            let acknowledged = agent_client.acknowledged_ids();
            let history = AgentHistory { agent: &agent_client.agent, log: &log, read: &read, acknowledged: &acknowledged, traces: &traces };
            violations.extend(agent_client.reader_errors());
            violations.extend(person.errors());
            violations.extend(checks::steering::answer_violations(&agent_client.agent, &log, &answered));
            violations.extend(checks::steering::attached_violations(&agent_client.agent, &log, &attached));
            violations.extend(checks::violations(&history));
            violations.extend(checks::unlogged_model_input(&agent_client.agent, &log, &model_inputs));
            logs.insert(agent_client.agent.clone(), log);
        }
        for (from, to) in [("a", "b"), ("b", "a")] {
            violations.extend(checks::peer_message_violations(from, &logs[from], to, &logs[to]));
        }
        violations.extend(self.node.uppers_mounted_twice().await?);
        Ok(violations)
    }

    /// The same of the agent that rests. A reader is left for two minutes.
    pub async fn violations_of_resting(&self) -> Result<Vec<String>> {
        self.resting.violations(&self.ns.client, &self.node, &self.model_inputs().await?).await
    }

    /// Returns the whole log. Retries only while Kubernetes' own endpoints lead to no gateway.
    async fn read_log(&self, agent_client: &AgentClient) -> Result<Vec<String>> {
        let (client, started) = (&self.ns.client, Instant::now());
        loop {
            let before = endpoints::missing_pods(client).await?;
            let error = match agent_client.log(client).await {
                Ok(log) => return Ok(log),
                Err(error) => error,
            };
            let missing = [before, endpoints::missing_pods(client).await?].concat();
            if missing.is_empty() || started.elapsed() > deadlines::KUBERNETES {
                return Err(error).with_context(|| format!("failed to read the log of {}; {missing:?}", agent_client.agent));
            }
            println!("the log of {} is asked for again: {}", agent_client.agent, missing[0]);
            sleep(Duration::from_secs(1)).await;
        }
    }

    /// Waits until nothing is left over. Returns the time that took, and a sentence for each thing that is past its deadline.
    pub async fn leftovers(&self, round: &Churn) -> Result<(Duration, Vec<String>)> {
        let (started, mut deadlines) = (Instant::now(), Deadlines::default());
        loop {
            let mut left = inventory::stuck_deletions(&self.ns.client, &self.ns.name).await?;
            left.extend(objects::unexpected(&objects::list(&self.ns).await?, &self.first_objects, round));
            left.extend(NodeInventory::orphans(&self.ns.client, &self.node, &self.before).await?);
            left.extend(inventory::connection_problems(&self.ns.client, &self.node, AGENTS.len() + self.other_runtimes).await?);
            if left.is_empty() {
                return Ok((started.elapsed(), left));
            }
            if started.elapsed() < deadlines::KUBERNETES && !endpoints::missing_pods(&self.ns.client).await?.is_empty() {
                deadlines.reset();
            }
            let overdue = deadlines.overdue(&left, Instant::now());
            if !overdue.is_empty() {
                return Ok((started.elapsed(), overdue.into_iter().map(|thing| format!("left over: {thing}")).collect()));
            }
            sleep(Duration::from_secs(1)).await;
        }
    }

    /// Returns every text that the model was sent.
    async fn model_inputs(&self) -> Result<String> {
        let path = format!("/api/v1/namespaces/{}/pods/scripted-model:8080/proxy/shown", self.ns.name);
        Ok(self.ns.client.request_text(Request::get(path).body(Vec::new())?).await?)
    }

    /// Returns how many requests of persons were carried out so far.
    pub fn steered(&self) -> usize {
        self.persons.iter().flat_map(|person| person.answered()).filter(|answered| answered.response.done.is_some()).count()
    }

    /// Returns the number of calls with an unknown outcome, and of all calls, so far.
    pub fn calls(&self) -> (usize, usize) {
        let count = |word: &str| self.agent_clients.iter().flat_map(|a| a.lines_read()).filter(|line| line.contains(word)).count();
        (count("\"outcome\":\"unknown\""), count("\"kind\":\"ToolEnded\""))
    }

    /// Returns the Pods of one of our Deployments or of the DaemonSet.
    pub async fn pods(&self, namespace: &str, app: &str) -> Result<Vec<Pod>> {
        let api: Api<Pod> = Api::namespaced(self.ns.client.clone(), namespace);
        Ok(api.list(&ListParams::default().labels(&format!("app.kubernetes.io/name={app}"))).await?.items)
    }

    /// Deletes everything and waits until nothing is left over.
    pub async fn remove(mut self) -> Result<()> {
        self.set_busy(false);
        self.tasks.shutdown().await;
        let Workload { ns, node, disk, before, other_runtimes, .. } = self;
        let client = ns.client.clone();
        // A session outlives its YoiPod; nothing needs these sessions after the run.
        for agent in AGENTS.into_iter().chain([RESTING]) {
            crate::churn::delete::<YoiPod>(&ns, agent).await?;
        }
        ns.remove_and_wait().await?;
        if let Some(disk) = disk {
            disk.remove().await?;
        }
        let mut deadlines = Deadlines::default();
        loop {
            let mut left = NodeInventory::orphans(&client, &node, &before).await?;
            left.extend(inventory::connection_problems(&client, &node, other_runtimes).await?);
            if left.is_empty() {
                return Ok(());
            }
            let overdue = deadlines.overdue(&left, Instant::now());
            ensure!(overdue.is_empty(), "left over after everything was deleted:\n  {}", overdue.join("\n  "));
            sleep(Duration::from_secs(1)).await;
        }
    }

    /// Returns the names of the agents' Pods.
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
