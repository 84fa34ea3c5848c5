//! A lead that lends, its witness, and the nodes under them.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use yoi_crds::{AgentWorkspace, YoiPod};
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace, uid};
use yoi_e2e::{poll_seen, poll_until};

use super::claim_reader::{self, ClaimReader};
use super::evidence::{self, LENDER, Stamp, Writes};
use crate::node::{Component, Node};

const WITNESS: &str = include_str!("witness.c");
/// As many children as a round may take, of which only the last one gets its loan.
pub const MOST_CHILDREN: usize = 4;

/// What can die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Operator,
    Gateway,
    Shim,
    Mounter,
    Kubelet,
    RuntimeOf(Side),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Lender,
    Holder,
}

pub struct Scene {
    pub ns: TestNamespace,
    pub claims: ClaimReader,
    nodes: BTreeMap<String, Node>,
    /// Where the tree is, and its UID.
    home: String,
    tree: String,
    /// Name of the child that may hold the path.
    pub child: String,
}

/// Compiles the witness where no tree is, has the lender make what is written, and leaves it running in the background.
fn script() -> Value {
    let make = format!(
        "cat > /tmp/witness.c <<'END'\n{WITNESS}\nEND\ncc -o /tmp/witness /tmp/witness.c || exit 1; at=$(uname -n); \
         if [ ${{at%-*}} = {LENDER} ]; then /tmp/witness \"$PWD\" {LENDER} init || true; fi"
    );
    let start = "at=$(uname -n); exec /tmp/witness \"$PWD\" \"${at%-*}\"";
    let lend = |n: usize| {
        let args = json!({ "name": child(n), "task": "keep watch", "share": [{ "path": "lent", "access": "Write" }] });
        json!({ "when": { "lastUserContains": request_to_lend(n) }, "repeat": true, "steps": [{ "toolCalls": [{ "tool": "SpawnPod", "args": args }] }, { "text": "Lent." }] })
    };
    let watch = json!({ "when": { "lastUserContains": "keep watch" }, "repeat": true, "steps": [
        { "toolCalls": [{ "tool": "Shell", "args": { "command": make } }] },
        { "toolCalls": [{ "tool": "Shell", "args": { "command": start, "background": true } }] },
        { "text": "I watch." } ] });
    let rules: Vec<Value> = (1..=MOST_CHILDREN).map(lend).chain([watch]).collect();
    json!({ "textsApart": true, "rules": rules })
}

fn child(n: usize) -> String {
    format!("child-{n}")
}

/// What the lead is sent, so that it lends.
pub fn request_to_lend(n: usize) -> String {
    format!("lend it to {}.", child(n))
}

impl Scene {
    /// A lead whose witness writes in every way.
    pub async fn create() -> Result<Scene> {
        let ns = TestNamespace::create("writers").await?;
        ns.create_model(&script().to_string()).await?;
        ns.create_empty_project("p").await?;
        let delegation = json!({ "allow": [{ "path": "lent", "access": "Write" }] });
        let limits = json!({ "children": MOST_CHILDREN });
        let session = json!({ "retain": "Delete" });
        ns.create_agent(LENDER, "p", json!({ "delegation": delegation, "limits": limits, "session": session })).await?;
        ns.wait_agent_ready(LENDER).await?;
        let tree: AgentWorkspace = ns.get(LENDER).await?;
        let home = tree.status.as_ref().and_then(|status| status.node_name.clone()).context("the lead's tree has no node")?;
        let nodes = Node::all().await?;
        ensure!(nodes.contains_key(&home), "{home} is no node of this cluster: {:?}", nodes.keys());
        let scene = Scene { claims: ClaimReader::start(&ns), ns, nodes, home, tree: uid(&tree), child: child(1) };
        scene.watch(LENDER).await?;
        scene.wait_lender_writes().await?;
        Ok(scene)
    }

    /// Has the agent start its witness, as after each restart of its container.
    pub async fn watch(&self, agent: &str) -> Result<()> {
        poll_seen(TIMEOUT, format!("{agent} keeps watch"), async || {
            let sent = self.ns.yoi(&["send", agent, "keep watch", "--wait"]).await?;
            Ok(if sent.code == 0 { Ok(()) } else { Err(sent.err) })
        })
        .await
        .map(drop)
    }

    fn home(&self) -> Result<&Node> {
        self.nodes.get(&self.home).with_context(|| format!("no node {}", self.home))
    }

    /// Sends a signal to each process of it, and returns how many there were. With the signal 0 it only counts.
    pub async fn signal(&self, target: Target, signal: &str) -> Result<usize> {
        let component = match target {
            Target::Operator => Component::Operator,
            Target::Gateway => Component::Gateway,
            Target::Shim => Component::Shim,
            Target::Mounter => Component::Mounter,
            Target::Kubelet => Component::Kubelet,
            Target::RuntimeOf(_) => Component::Runtime,
        };
        let nodes: Vec<&Node> = match target {
            Target::Operator | Target::Gateway => self.nodes.values().collect(),
            Target::Shim | Target::Mounter | Target::Kubelet | Target::RuntimeOf(_) => vec![self.home()?],
        };
        let mut found = 0;
        for node in nodes {
            let mut pids = node.pids(component).await?;
            if let Target::RuntimeOf(side) = target {
                pids = self.of_agent(node, &pids, side).await?;
            }
            node.signal(signal, &pids).await?;
            found += pids.len();
        }
        Ok(found)
    }

    /// Those whose container is of the agent's Pod: a runtime has its socket and its binary from a folder of that name.
    async fn of_agent(&self, node: &Node, pids: &[u32], side: Side) -> Result<Vec<u32>> {
        let agent = match side {
            Side::Lender => LENDER,
            Side::Holder => &self.child,
        };
        let pod = self.ns.get::<YoiPod>(agent).await?.status.and_then(|status| status.pod).map(|pod| pod.uid);
        let Some(pod) = pod.filter(|_| !pids.is_empty()) else { return Ok(Vec::new()) };
        let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
        let script = format!("for pid in {}; do grep -qF {pod} /proc/$pid/mountinfo && echo $pid; done; true", pids.join(" "));
        Ok(node.sh(&script).await?.lines().filter_map(|line| line.trim().parse().ok()).collect())
    }

    /// All that the witnesses have written.
    pub async fn writes(&self) -> Result<Writes> {
        let pairs = 65_536 * 16;
        let script = format!(
            "for at in \"$ROOT\"/trees/*/{0}/tree \"$ROOT\"/trees/*/{0}/upper \"$ROOT\"/pool/trees/*/{0}/tree; do [ -d $at/lent ] || continue; cd $at
             echo = lines; cat lent/lines
             echo = lender-stores; od -A n -t u8 -w16 -v -N {pairs} lent/mapped | awk '$1 > 0'
             echo = holder-stores; od -A n -t u8 -w16 -v -j {pairs} lent/mapped | awk '$1 > 0'
             echo = moved-in; ls lent/moved; echo = moved-out; ls out; done; true",
            self.tree
        );
        Writes::parse(&self.home()?.sh(&script).await?, &self.child)
    }

    /// How often the lender's witness has tried.
    async fn tries(&self) -> Result<Stamp> {
        let tries = self.home()?.file(&self.tree, &format!("tries-{LENDER}")).await?;
        Ok(tries.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or_default())
    }

    /// Waits until the lender has written in each way, from now on: nobody has locked it out.
    pub async fn wait_lender_writes(&self) -> Result<()> {
        let since = claim_reader::now()?;
        let wanted: Vec<&str> = evidence::WAYS.into_iter().chain(evidence::WAYS_OF_LENDER).collect();
        poll_seen(TIMEOUT, "the lender writes in each way", async || {
            let writes = self.writes().await?;
            let ways = writes.ways_since(LENDER, since);
            let missing: Vec<&&str> = wanted.iter().filter(|way| !ways.contains(**way)).collect();
            Ok(if missing.is_empty() { Ok(()) } else { Err(format!("it did not by {missing:?}")) })
        })
        .await
        .map(drop)
    }

    /// Waits until the holder has written in each way from now on, and the lender has tried to.
    pub async fn wait_holder_writes(&self) -> Result<()> {
        let (since, tried) = (claim_reader::now()?, self.tries().await?);
        poll_seen(TIMEOUT, "the holder writes in each way, and the lender tries to", async || {
            let (writes, tries) = (self.writes().await?, self.tries().await?);
            let ways = writes.ways_since(&self.child, since);
            let missing: Vec<&&str> = evidence::WAYS.iter().filter(|way| !ways.contains(**way)).collect();
            Ok(match missing.is_empty() && tries > tried + 10 {
                true => Ok(()),
                false => Err(format!("it did not by {missing:?}; the lender tried {} times", tries.saturating_sub(tried))),
            })
        })
        .await
        .map(drop)
    }

    pub fn name_child(&mut self, n: usize) {
        self.child = child(n);
    }

    /// Waits until no cover of the tree is left on its node, and the status says so.
    pub async fn wait_uncovered(&self) -> Result<()> {
        self.ns
            .wait_for::<AgentWorkspace, _>(LENDER, "its paths open", |tree| {
                tree?.status.as_ref()?.loans.iter().all(|view| !view.covered).then_some(())
            })
            .await?;
        let covers = format!("awk '$4 ~ \"{}.*/lent\" {{ print $5 }}' /proc/self/mountinfo", self.tree);
        poll_until(Duration::from_secs(30), "no cover is left", async || {
            Ok(self.home()?.sh(&covers).await?.trim().is_empty().then_some(()))
        })
        .await
        .map(drop)
    }
}
