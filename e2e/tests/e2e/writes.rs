//! What an agent costs the API server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::StreamExt;
use kube::ResourceExt;
use kube::runtime::watcher;
use serde_json::json;
use yoi_crds::{AgentWorkspace, YoiPod};
use yoi_e2e::test_namespace::{TestNamespace, TestObject};

/// Of the YoiPod: created, finalizer, Pod with manifest and number of the run, the runtime's report, Ready. Of its tree: created, accepted with its node, made
/// and in use, Ready.
const WRITES: u64 = 5 + 4;
/// At most once in this time it is written how far an agent is that starts slowly.
const PROGRESS: Duration = Duration::from_secs(2);

/// Every version of an object, by its resource version, with what was written of its status.
type Versions = Arc<Mutex<BTreeMap<u64, serde_json::Value>>>;

/// How often it was written, but for the node's report of what a tree takes: that comes once a minute at most, whatever the agent does.
fn writes(versions: &Versions) -> usize {
    let without_usage = |mut status: serde_json::Value| {
        if let Some(status) = status.as_object_mut() {
            // Of a tree that is no base, this is all that it says of its volume.
            status.remove("volume");
        }
        status
    };
    let versions: Vec<_> = versions.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
    let is_usage = |before: &serde_json::Value, after: &serde_json::Value| {
        before != after && without_usage(before.clone()) == without_usage(after.clone())
    };
    versions.len() - versions.windows(2).filter(|pair| matches!(pair, [before, after] if is_usage(before, after))).count()
}

/// Of one API server's store, so it is a number, and the later version has the greater one.
fn version_of(object: &impl ResourceExt) -> u64 {
    object.resource_version().and_then(|version| version.parse().ok()).unwrap_or_default()
}

/// Follows the object `name` until the test ends.
fn follow<K: TestObject>(ns: &TestNamespace, name: &'static str) -> Versions {
    let (versions, api) = (Versions::default(), ns.api::<K>());
    let into = Arc::clone(&versions);
    tokio::spawn(async move {
        let mut events = watcher(api, watcher::Config::default()).boxed();
        while let Some(event) = events.next().await {
            if let Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) = event
                && object.name_any() == name
            {
                let status = serde_json::to_value(&object).map(|mut value| value["status"].take()).unwrap_or_default();
                into.lock().unwrap_or_else(PoisonError::into_inner).insert(version_of(&object), status);
            }
        }
    });
    versions
}

#[tokio::test]
async fn an_agent_is_ready_after_nine_writes_and_a_slow_start_adds_one_in_two_seconds() -> Result<()> {
    let ns = TestNamespace::create("writes").await?;
    ns.create_empty_project("p").await?;
    let (pod, tree) = (follow::<YoiPod>(&ns, "a"), follow::<AgentWorkspace>(&ns, "a"));
    let begin = Instant::now();
    ns.create_agent("a", "p", json!({})).await?;
    ns.wait_agent_ready("a").await?;
    let took = begin.elapsed();
    // What comes late counts, too, and only time shows that nothing does.
    tokio::time::sleep(2 * PROGRESS).await;
    let versions = |of: &Versions| of.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let (pod, tree) = (versions(&pod), versions(&tree));
    // Two objects, and each may be written once more in each span that has begun.
    let allowed = WRITES + 2 * (took.as_millis() / PROGRESS.as_millis()) as u64;
    let written = (pod.len() + tree.len()) as u64;
    eprintln!("{written} writes in {took:?}: {} of the YoiPod, {} of its tree", pod.len(), tree.len());
    ensure!(pod.len() > 3 && tree.len() > 2, "the watches missed something: {pod:?} {tree:?}");
    ensure!(written <= allowed, "{written} writes in {took:?}, {allowed} allowed: {pod:#?} {tree:#?}");
    ns.remove().await
}

/// The statuses that were written last.
fn last(versions: &Versions) -> Vec<serde_json::Value> {
    versions.lock().unwrap_or_else(PoisonError::into_inner).values().rev().take(4).cloned().collect()
}

/// Waits until nothing was written for a while, and returns how often an agent and its tree were written since `before`.
async fn settled(of: [&Versions; 2], before: usize) -> usize {
    let count = || of.map(writes).into_iter().sum::<usize>();
    let mut now = count();
    loop {
        // Only time shows that nothing is written.
        tokio::time::sleep(2 * PROGRESS).await;
        let then = std::mem::replace(&mut now, count());
        if then == now {
            return now - before;
        }
    }
}

#[tokio::test]
async fn turns_requests_of_people_and_attachments_write_nothing() -> Result<()> {
    const SCRIPT: &str = "rules:\n- when: {lastUserContains: many turns}\n  steps: [{toolCalls: [{tool: Shell, args: {command: a}}]}, {toolCalls: [{tool: Shell, args: {command: b}}]}, \
        {toolCalls: [{tool: Shell, args: {command: c}}]}, {toolCalls: [{tool: Shell, args: {command: d}}]}, {text: done}]\n- steps: [{text: done}]\n";
    let ns = TestNamespace::create("no-writes").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_empty_project("p").await?;
    let (pod, tree) = (follow::<YoiPod>(&ns, "a"), follow::<AgentWorkspace>(&ns, "a"));
    ns.create_agent("a", "p", json!({})).await?;
    ns.wait_agent_ready("a").await?;
    let both = [&pod, &tree];
    let mut before = settled(both, 0).await;
    let mut written = async |what: &[&str]| -> Result<usize> {
        ns.yoi(what).await?.exit_ok()?;
        let more = settled(both, before).await;
        before += more;
        Ok(more)
    };
    let one = written(&["send", "a", "one turn", "--wait"]).await?;
    let many = written(&["send", "a", "many turns", "--wait"]).await?;
    let request = written(&["rewind", "a"]).await?;
    ns.yoi_for(Duration::from_secs(3), &["attach", "a"]).await?;
    let attached = written(&["top", "a"]).await?;
    eprintln!("writes of a run of one turn {one}, of five {many}, of a request {request}, of an attachment {attached}");
    // The begin and the end of a run: of a short one, a report may be sent that tells both.
    ensure!(
        one <= 2 && many <= 2 && request == 0 && attached == 0,
        "{one} {many} {request} {attached}: {:#?} {:#?}",
        last(&pod),
        last(&tree)
    );
    ns.remove().await
}
