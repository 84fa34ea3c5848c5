//! The node's data root is full and the kernel reports ENOSPC. The data root is full for all tests, so no other test runs beside this one.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::api::{Api, ListParams};
use serde_json::json;
use yoi_crds::condition::{ConditionStatus, find};
use yoi_crds::source::ProviderName;
use yoi_crds::{AgentWorkspace, WorkspaceNode, YoiPod};
use yoi_e2e::locks;
use yoi_e2e::poll_until;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace, uid};
use yoi_wire::entry::Body;
use yoi_wire::people::LogLine;

use crate::node::Node;

const SCRIPT: &str = r#"
rules:
- when: { lastUserContains: write much }
  steps:
  - { toolCalls: [{ tool: Shell, args: { command: "dd if=/dev/zero of=much bs=1M count=64; echo it ended with $?" } }] }
  - { text: I have seen it. }
- steps: [{ text: Hello. }]
"#;

/// Fills the data root with preallocated files until it is stopped. It fills again and again, because Btrfs' cleaner and each commit free space.
/// The last files are of one block each: where a single block of data is free, the marker of a tree can still be written.
struct DiskFiller<'a> {
    node: &'a Node,
    /// A file in the node's /run that exists while filling is wanted. `.busy` exists while the filler runs, `.full` once the disk was full.
    flag: String,
    folder: String,
}

/// The filler ends by itself after this time, even if its test was killed.
const FILLER_LIFETIME: Duration = Duration::from_secs(400);

impl<'a> DiskFiller<'a> {
    fn new(node: &'a Node, name: &str) -> Self {
        Self { node, flag: format!("/run/{name}"), folder: format!("\"$ROOT\"/pool/{name}") }
    }

    /// Starts the filler in the background of the node.
    async fn start(&self) -> Result<()> {
        let script = format!(
            "mkdir {0} && cd {0} && sync -f . && : > {1} && : > {1}.busy || exit 1
             (n=0; end=$(($(date +%s) + {2}))
             while [ -e {1} ] && [ $(date +%s) -lt $end ]; do
               for size in 4G 512M 64M 8M 1M 64K 4K; do while fallocate -l $size data-$n; do n=$((n + 1)); done; done
               : > {1}.full
               sync -f .; sleep 0.1
             done
             rm -f {1}.busy) < /dev/null > /dev/null 2>&1 &",
            self.folder,
            self.flag,
            FILLER_LIFETIME.as_secs()
        );
        self.node.sh(&script).await.map(drop)
    }

    async fn wait_full(&self) -> Result<()> {
        poll_until(TIMEOUT, "the data root is full", async || Ok(self.flag_exists("full").await?.then_some(()))).await.map(drop)
    }

    async fn flag_exists(&self, what: &str) -> Result<bool> {
        Ok(self.node.sh(&format!("test ! -e {}.{what} || echo there", self.flag)).await?.contains("there"))
    }

    /// Stops the filler, deletes its files and waits until there is free space.
    async fn stop(self) -> Result<()> {
        self.node.sh(&format!("rm -f {0}", self.flag)).await?;
        poll_until(TIMEOUT, "the filler has ended", async || Ok((!self.flag_exists("busy").await?).then_some(()))).await?;
        // The files are truncated first: a full Btrfs may have no space to record an unlink.
        self.node
            .sh(&format!(
                "rm -f {1}.full; cd {0} && for f in data-*; do : > $f; done; cd / && rm -rf {0}; sync -f \"$ROOT\"/pool",
                self.folder, self.flag
            ))
            .await?;
        // Deleted files are free space only after Btrfs' cleaner and one or two commits.
        let room = format!(
            "mkdir {0} && dd if=/dev/zero of={0}/much bs=1M count=128 conv=fsync 2> /dev/null && echo room; rm -rf {0}; sync -f \"$ROOT\"/pool",
            self.folder
        );
        poll_until(TIMEOUT, "there is room again", async || Ok(self.node.sh(&room).await?.contains("room").then_some(()))).await.map(drop)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_data_root_is_reported_loses_no_tree_and_all_goes_on_when_there_is_room() -> Result<()> {
    let _alone = locks::exclusive(&locks::INTACT).await?;
    let node = Node::from_environment()?;
    let ns = TestNamespace::create("full-root").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_empty_project("p").await?;
    for name in ["old", "leaves"] {
        ns.create_agent(name, "p", json!({ "session": { "retain": "Delete" } })).await?;
        ns.wait_agent_ready(name).await?;
    }
    let filler = DiskFiller::new(&node, &ns.name);
    let refused = async {
        filler.start().await?;
        filler.wait_full().await?;
        while_full(&ns).await
    };
    let refused = refused.await;
    filler.stop().await?;
    let young = refused?;
    // The agent gets its tree without any further request.
    let context = || format!("{young} was refused for want of room, there is room, and it stays without a tree");
    ns.wait_agent_ready(&young).await.with_context(context)?;
    ns.wait_condition::<AgentWorkspace>(&young, "Provisioned", ConditionStatus::True).await?;
    let output = write_much(&ns, 2).await?;
    ensure!(output.contains("it ended with 0"), "{output}");
    ns.remove_and_wait().await
}

/// At most this many trees may be made between two rounds of the filler.
const MAX_TREES: usize = 20;

/// Returns the name of the agent whose tree was refused.
async fn while_full(ns: &TestNamespace) -> Result<String> {
    let mut refused = None;
    for number in 0..MAX_TREES {
        let name = format!("young-{number}");
        ns.create_agent(&name, "p", json!({ "session": { "retain": "Delete" } })).await?;
        let decided = |workspace: Option<&AgentWorkspace>| {
            let condition = find(&workspace?.status.as_ref()?.conditions, "Provisioned")?.clone();
            (condition.status == ConditionStatus::True || condition.reason == "OutOfSpace").then_some(condition)
        };
        let provisioned = ns.wait_for(&name, "provisioned or refused", decided).await?;
        if provisioned.status != ConditionStatus::True {
            ensure!(provisioned.message.contains("No space left on device"), "{}", provisioned.message);
            refused = Some(name);
            break;
        }
    }
    let young = refused.with_context(|| format!("the data root is full, and {MAX_TREES} trees were made in it"))?;
    let ready = ns
        .wait_for::<YoiPod, _>(&young, "reported as out of space", |agent| {
            let ready = find(&agent?.status.as_ref()?.conditions, "Ready")?;
            (ready.status == ConditionStatus::False && ready.message.contains("No space left")).then(|| ready.clone())
        })
        .await?;
    ensure!(ready.reason == "OutOfSpace", "{ready:?}");

    // An agent that was there before goes on, sees ENOSPC in its tools, stops, and starts again on its own tree.
    let tree = uid(&ns.get::<AgentWorkspace>("old").await?);
    let output = write_much(ns, 1).await?;
    ensure!(output.contains("No space left on device"), "{output}");
    ns.yoi(&["stop", "old", "--wait"]).await?.exit_ok()?;
    ns.yoi(&["start", "old", "--wait"]).await?.exit_ok()?;
    ensure!(uid(&ns.get::<AgentWorkspace>("old").await?) == tree, "the agent came back on another tree");

    // Doctor names the node once the shim has reported it.
    poll_until(TIMEOUT, "doctor names the full data root", async || {
        let output = ns.yoi(&["doctor"]).await?;
        Ok((output.out.contains("of its data root is free") && output.code != 0).then_some(()))
    })
    .await?;

    // A full disk does not change which provider a new project gets.
    let nodes = Api::<WorkspaceNode>::all(ns.client.clone()).list(&ListParams::default()).await?.items;
    let offers = nodes.iter().filter_map(|node| node.status.as_ref()).flat_map(|status| &status.providers).collect::<Vec<_>>();
    ensure!(
        offers.iter().any(|p| p.name == ProviderName::Btrfs && p.available),
        "Btrfs is not offered while the data root is full: {offers:?}"
    );

    // A tree can be deleted.
    let gone = uid(&ns.get::<AgentWorkspace>("leaves").await?);
    ns.delete::<YoiPod>("leaves").await?;
    ns.wait_gone::<YoiPod>("leaves").await?;
    ns.wait_gone::<AgentWorkspace>("leaves").await.with_context(|| format!("the tree {gone} does not go from a full data root"))?;
    Ok(young)
}

/// Sends the agent `old` the message for the nth time. Returns the command's output.
async fn write_much(ns: &TestNamespace, nth: usize) -> Result<String> {
    ns.yoi(&["send", "old", "write much"]).await?.exit_ok()?;
    let output = |log: &[LogLine]| {
        let ended = log.iter().filter_map(|line| if let Body::ToolEnded(end) = &line.entry.body { Some(&end.output) } else { None });
        let done = log.iter().filter(|line| line.entry.body.kind() == "RunEnded").count() == nth;
        ended.into_iter().nth(nth - 1).filter(|_| done).cloned()
    };
    ns.wait_log("old", "the end of a run in which much was written", output).await
}
