//! Events of objects: each is told once, and those that one component tells are in the order in which they happened.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use yoi_crds::name::field_manager;
use yoi_crds::{ConditionStatus, YoiPod};
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace};
use yoi_e2e::{poll_seen, poll_until};

struct Event {
    reason: String,
    count: u64,
    /// The component that told it.
    reporter: String,
}

/// Returns the Events about one object, in the order of their times.
async fn events_about(ns: &TestNamespace, kind: &str, name: &str) -> Result<Vec<Event>> {
    let about = format!("involvedObject.kind={kind},involvedObject.name={name}");
    let output = ns.kubectl(&["get", "events", "--field-selector", &about, "-o", "json"]).await?.exit_ok()?;
    let list: Value = serde_json::from_str(&output.out)?;
    let mut events: Vec<_> = list["items"].as_array().context("no list")?.iter().collect();
    events.sort_by_key(|e| e["eventTime"].as_str().unwrap_or_default().to_owned());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let one = |e: &Value| Event {
        reason: text(&e["reason"]),
        count: e["series"]["count"].as_u64().unwrap_or(1),
        reporter: text(&e["reportingComponent"]),
    };
    Ok(events.into_iter().map(one).collect())
}

/// Waits until the Events of an object have exactly the reasons `wanted`, once each.
///
/// Those of one component must be in this order. A component tells an Event after it has written the condition, so another one, which acts on that
/// condition, may tell its own first.
async fn wait_events(ns: &TestNamespace, kind: &str, name: &str, wanted: &[&str]) -> Result<()> {
    let told = poll_seen(TIMEOUT, "all Events", async || {
        let events = events_about(ns, kind, name).await?;
        let place = |event: &Event| wanted.iter().position(|reason| *reason == event.reason);
        let mut told: Vec<_> = events.iter().map(|event| (&*event.reporter, place(event))).collect();
        // Stable: those of one component stay in the order of their times.
        told.sort_by_key(|(reporter, _)| *reporter);
        let each: BTreeSet<_> = told.iter().filter_map(|(_, place)| *place).collect();
        let reasons: Vec<_> = events.iter().map(|event| (&*event.reporter, &*event.reason, event.count)).collect();
        ensure!(told.iter().all(|(reporter, _)| [field_manager::OPERATOR, field_manager::SHIM].contains(reporter)), "told by {told:?}");
        let wrong = format!("the Events of {kind} {name} are {reasons:?}, not {wanted:?}");
        // Events are written after the conditions. An Event too many, or another order, is a failure at once.
        ensure!(told.is_sorted() && each.len() == events.len(), "{wrong}");
        if events.len() < wanted.len() {
            return Ok(Err(wrong));
        }
        ensure!(events.iter().all(|event| event.count == 1), "told twice: {reasons:?}");
        Ok(Ok(()))
    });
    told.await.map(drop)
}

/// Checks that `kubectl describe` shows the same reasons in the same order.
async fn check_describe(ns: &TestNamespace, name: &str, wanted: &[&str]) -> Result<()> {
    let text = ns.kubectl(&["describe", "yoipod", name]).await?.exit_ok()?.out;
    let events = text.split("Events:").nth(1).context("no Events")?;
    let reasons: Vec<_> = events.lines().skip(3).filter_map(|l| l.split_whitespace().nth(1)).collect();
    ensure!(reasons == wanted, "kubectl describe shows {reasons:?}, not {wanted:?}\n{events}");
    Ok(())
}

#[tokio::test]
async fn events_of_an_agent_are_in_order_from_apply_to_deletion() -> Result<()> {
    let ns = TestNamespace::create("story").await?;
    // Without a delay the Event of the finished task could come before that of Ready.
    ns.create_model("rules: [{ steps: [{ text: hello, delayMs: 45000 }] }]").await?;
    ns.create_empty_project("p").await?;
    ns.create_agent("a", "p", json!({ "task": "say it" })).await?;
    ns.wait_task_complete("a").await?;
    let up = ["WorkspaceReady", "Replayed", "Ready", "TaskSucceeded"];
    wait_events(&ns, "YoiPod", "a", &up).await?;
    check_describe(&ns, "a", &up).await?;
    wait_events(&ns, "AgentWorkspace", "a", &["NodeSelected", "CloneCreated", "Ready"]).await?;

    ns.yoi(&["stop", "a", "--wait"]).await?.exit_ok()?;
    let down = [&up[..], &["Stopped"]].concat();
    wait_events(&ns, "YoiPod", "a", &down).await?;
    check_describe(&ns, "a", &down).await?;
    let conditions = ns.get::<YoiPod>("a").await?.status.unwrap_or_default().conditions;
    let ready = yoi_crds::condition::find(&conditions, "Ready").context("no Ready")?;
    ensure!(ready.status == ConditionStatus::False && ready.reason == "Stopped", "{ready:?}");

    wait_events(&ns, "AgentWorkspace", "a", &["NodeSelected", "CloneCreated", "Ready", "Released"]).await?;

    ns.yoi(&["rm", "a", "--force"]).await?.exit_ok()?;
    ns.wait_gone::<YoiPod>("a").await?;
    ns.wait_gone::<yoi_crds::AgentWorkspace>("a").await?;
    wait_events(&ns, "AgentWorkspace", "a", &["NodeSelected", "CloneCreated", "Ready", "Released", "Destroyed"]).await?;
    // The deletion of a YoiPod adds no Event.
    wait_events(&ns, "YoiPod", "a", &down).await?;
    ns.remove().await
}

#[tokio::test]
async fn events_of_an_agent_whose_project_comes_late_say_why_it_waited() -> Result<()> {
    let ns = TestNamespace::create("late").await?;
    ns.create_model("rules: [{ steps: [{ text: hello }] }]").await?;
    ns.create_agent("a", "p", json!({})).await?;
    let condition = ns.wait_reason::<YoiPod>("a", "Ready", "SourceNotFound").await?;
    ensure!(condition.message.contains("YoiProject p does not exist in namespace"), "{condition:?}");
    wait_events(&ns, "YoiPod", "a", &["SourceNotFound"]).await?;
    ns.create_empty_project("p").await?;
    ns.wait_agent_ready("a").await?;
    let whole = ["SourceNotFound", "WorkspaceReady", "Replayed", "Ready"];
    wait_events(&ns, "YoiPod", "a", &whole).await?;
    check_describe(&ns, "a", &whole).await?;
    ns.remove().await
}

/// Returns the reasons of the Warnings about one object, each with its count.
async fn warning_reasons(ns: &TestNamespace, kind: &str, name: &str) -> Result<Vec<(String, u64)>> {
    let about = format!("involvedObject.kind={kind},involvedObject.name={name},type=Warning");
    let output = ns.kubectl(&["get", "events", "--field-selector", &about, "-o", "json"]).await?.exit_ok()?;
    let list: Value = serde_json::from_str(&output.out)?;
    let one = |e: &Value| (e["reason"].as_str().unwrap_or_default().to_owned(), e["series"]["count"].as_u64().unwrap_or(1));
    Ok(list["items"].as_array().context("no list")?.iter().map(one).collect())
}

#[tokio::test]
async fn a_stop_is_no_warning_and_an_image_or_a_node_that_is_not_there_is_one() -> Result<()> {
    let ns = TestNamespace::create("warned").await?;
    ns.create_model("rules: [{ steps: [{ text: hello }] }]").await?;
    ns.create_empty_project("p").await?;
    ns.create_agent("a", "p", json!({})).await?;
    ns.wait_agent_ready("a").await?;
    ns.yoi(&["stop", "a", "--wait"]).await?.exit_ok()?;
    wait_events(&ns, "AgentWorkspace", "a", &["NodeSelected", "CloneCreated", "Ready", "Released"]).await?;
    for kind in ["YoiPod", "AgentWorkspace"] {
        let warnings = warning_reasons(&ns, kind, "a").await?;
        ensure!(warnings.is_empty(), "{kind}: {warnings:?}");
    }

    let once = |reason: &str| vec![(reason.to_owned(), 1)];
    ns.create_agent("image", "p", json!({ "pod": { "image": "127.0.0.1:1/absent:1", "imagePullPolicy": "Always" } })).await?;
    ns.wait_reason::<YoiPod>("image", "Ready", "ImagePullFailed").await?;
    ns.create_agent("large", "p", json!({ "pod": { "resources": { "requests": { "memory": "1000Gi" } } } })).await?;
    ns.wait_reason::<YoiPod>("large", "Ready", "Unschedulable").await?;
    // Each try of the kubelet changes what its container waits for.
    poll_until(TIMEOUT, "the kubelet tries the image a third time", async || {
        Ok((ns.event_count("Pod", "image-1", "Pulling").await? >= 3).then_some(()))
    })
    .await?;
    for (name, reason) in [("image", "ImagePullFailed"), ("large", "Unschedulable")] {
        let warnings = warning_reasons(&ns, "YoiPod", name).await?;
        ensure!(warnings == once(reason), "{name}: {warnings:?}");
    }
    let ended = ns.yoi(&["start", "image", "--wait", "--timeout", "100s"]).await?;
    ensure!(ended.code == 1 && ended.err.contains("ImagePullFailed") && ended.err.contains("127.0.0.1:1/absent:1"), "{ended:?}");
    ns.remove().await
}
