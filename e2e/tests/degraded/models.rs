//! Models that are unreachable, refuse or send garbage.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use yoi_crds::YoiPod;
use yoi_crds::condition::{ConditionStatus, find};
use yoi_e2e::poll_until;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace};
use yoi_wire::entry::Body;

use crate::{check_doctor_names, check_message, check_responsive, check_stops, wait_ready_reason};

/// Faults of half a minute, each followed by a run of two turns.
const SCRIPT: &str = r#"
rules:
- when: { lastUserContains: be overloaded }
  steps:
  - { toolCalls: [{ tool: Shell, args: { command: echo ran >> ran } }], fault: { status: 503, times: 6 } }
  - { toolCalls: [{ tool: Shell, args: { command: cat ran } }] }
  - { text: done }
- when: { lastUserContains: be a web page }
  steps:
  - { toolCalls: [{ tool: Shell, args: { command: echo ran >> ran } }], fault: { show: html, times: 6 } }
  - { toolCalls: [{ tool: Shell, args: { command: cat ran } }] }
  - { text: done }
- when: { lastUserContains: break off }
  steps:
  - { toolCalls: [{ tool: Shell, args: { command: echo ran >> ran } }], fault: { show: cutEnd, times: 6 } }
  - { toolCalls: [{ tool: Shell, args: { command: cat ran } }] }
  - { text: done }
- when: { lastUserContains: be quiet }
  steps: [{ text: never, fault: { show: hang, times: 1000 } }]
- when: { lastUserContains: to your work }
  steps:
  - { toolCalls: [{ tool: Shell, args: { command: echo ran >> ran } }] }
  - { toolCalls: [{ tool: Shell, args: { command: cat ran } }] }
  - { text: done }
"#;

/// Checks that the agent reports the fault and its beginning, stays responsive, goes on by itself, and does its work once.
async fn check_recovers(ns: &TestNamespace, agent: &str, words: &str) -> Result<()> {
    let first = wait_ready_reason(ns, agent, "ModelUnreachable").await?;
    check_message(&first, words)?;
    check_responsive(ns, agent).await?;
    let now = ns.get::<YoiPod>(agent).await?.status.unwrap_or_default().conditions;
    let now = find(&now, "Ready").cloned();
    ensure!(
        now.as_ref().is_some_and(|c| c.status == ConditionStatus::True || c.last_transition_time == first.last_transition_time),
        "{agent}: the time of its transition changed: {first:?} {now:?}"
    );
    if agent == "late" {
        // Both checks name it: the agent's fault, and the name that cannot be resolved.
        for check in ["agents", "dns"] {
            check_doctor_names(ns, check, "YoiPod", agent, words).await?;
        }
        ns.apply(&late_service(&json!({ "app": "scripted-model" }))).await?;
    }
    ns.wait_task_complete(agent).await?;
    let log = ns
        .wait_log(agent, "the end of its work", |log| {
            log.iter().any(|l| matches!(&l.entry.body, Body::Assistant(a) if a.text == "done")).then(|| log.to_vec())
        })
        .await?;
    let outputs: Vec<&str> =
        log.iter().filter_map(|l| if let Body::ToolEnded(end) = &l.entry.body { Some(end.output.as_str()) } else { None }).collect();
    ensure!(outputs.contains(&"ran\n[exit code 0]"), "{agent}: the command did not run once: {outputs:?}");
    let mut notices: Vec<&str> =
        log.iter().filter_map(|l| if let Body::Notice(notice) = &l.entry.body { Some(notice.message.as_str()) } else { None }).collect();
    // For a moment the new Service has an address and no endpoint, and refuses connections.
    if agent == "late" && notices.get(1).is_some_and(|text| text.contains("connection refused")) {
        notices.remove(1);
    }
    ensure!(notices.len() == 1 && notices[0].contains(words), "{agent}: {notices:?}");
    ns.wait_condition::<YoiPod>(agent, "Ready", ConditionStatus::True).await.map(drop)
}

fn late_service(selector: &Value) -> String {
    json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "late-model" },
        "spec": { "selector": selector, "ports": [{ "port": 8080 }] } })
    .to_string()
}

#[tokio::test]
async fn an_agent_reports_why_its_model_does_not_answer_stays_responsive_and_recovers() -> Result<()> {
    let ns = TestNamespace::create("degraded-models").await?;
    ns.create_model(SCRIPT).await?;
    ns.create_empty_project("p").await?;
    let at = |host: &str| json!({ "provider": "OpenAI", "name": "scripted", "baseUrl": format!("http://{host}.{}.svc:8080/v1/", ns.name) });
    for (name, task) in [("busy", "be overloaded"), ("page", "be a web page"), ("cut", "break off"), ("quiet", "be quiet")] {
        ns.create_agent(name, "p", json!({ "task": task })).await?;
    }
    ns.create_agent("late", "p", json!({ "task": "to your work", "model": at("late-model") })).await?;
    let stopped = async {
        ns.wait_agent_ready("quiet").await?;
        ns.wait_log("quiet", "a run", |log| log.iter().any(|l| l.entry.body.kind() == "RunStarted").then_some(())).await?;
        check_responsive(&ns, "quiet").await?;
        check_stops(&ns, "quiet").await?;
        let closed = ns.log("quiet").await?.iter().any(|l| l.entry.body.kind() == "RunEnded");
        ensure!(closed, "it was killed: its run is not closed");
        Ok(())
    };
    futures::try_join!(
        check_recovers(&ns, "busy", "answered 503 Service Unavailable"),
        check_recovers(&ns, "page", "no stream of a chat; check the model's baseUrl"),
        check_recovers(&ns, "cut", "broke its answer off"),
        check_recovers(&ns, "late", "has a name that cannot be resolved; check the model's baseUrl"),
        stopped,
    )?;
    ns.remove().await
}

#[tokio::test]
async fn a_key_that_the_endpoint_refuses_is_reported_and_never_shown() -> Result<()> {
    let ns = TestNamespace::create("degraded-key").await?;
    ns.create_model_with_key(SCRIPT, "sk-the-right-key").await?;
    ns.create_empty_project("p").await?;
    let secret = |key: &str| {
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "model" }, "stringData": { "apiKey": key } }).to_string()
    };
    ns.apply(&secret("sk-the-wrong-key")).await?;
    let model = json!({ "provider": "OpenAI", "name": "scripted", "baseUrl": format!("http://scripted-model.{}.svc:8080/v1/", ns.name),
        "authSecretRef": { "name": "model", "key": "apiKey" } });
    ns.create_agent("a", "p", json!({ "task": "to your work", "model": model })).await?;
    let condition = wait_ready_reason(&ns, "a", "ModelRefused").await?;
    check_message(&condition, "answered 401 Unauthorized; it does not take the key: correct the Secret")?;
    check_doctor_names(&ns, "agents", "YoiPod", "a", "answered 401 Unauthorized; it does not take the key").await?;
    check_responsive(&ns, "a").await?;
    let objects = ns.kubectl(&["get", "yoipods,configmaps,pods,events", "-o", "yaml"]).await?.exit_ok()?.out;
    ensure!(!objects.contains("sk-the-wrong-key"), "an object holds the key");
    // As the condition's message says: correct the Secret, resume, and the run goes on.
    ns.apply(&secret("sk-the-right-key")).await?;
    // The agent reads the Secret again by itself after a minute, by a new process. Who comes in between asks once more.
    let goes_on = poll_until(TIMEOUT, "the agent goes on", async || {
        let resumed = ns.yoi(&["resume", "a"]).await?.code == 0;
        let conditions = ns.get::<YoiPod>("a").await?.status.unwrap_or_default().conditions;
        let refused = find(&conditions, "Ready").is_some_and(|ready| ready.reason == "ModelRefused");
        Ok((resumed || !refused).then_some(()))
    });
    goes_on.await?;
    ns.wait_task_complete("a").await?;
    ns.remove().await
}
