//! Gateways are replaced while agents send.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use serde_json::json;
use yoi_crds::YoiPeer;
use yoi_crds::condition::ConditionStatus;
use yoi_e2e::locks::{self, Lock};
use yoi_e2e::poll_until;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace};
use yoi_wire::entry::{Body, ToolOutcome};
use yoi_wire::people::LogLine;

use crate::installation::{SYSTEM, pod_of};

/// `a` sends to `b` in each turn, and its run has no end.
const TALK: &str = r#"
rules:
- name: talk
  when: { lastUserContains: "talk to b" }
  steps: [{ delayMs: 200, toolCalls: [{ tool: SendToPeerPod, args: { to: b, message: "a word of a" } }] }]
  repeat: true
- steps: [{ text: heard }]
"#;

/// Sends for ten seconds from the shell of `a`, each message on a new connection. Prints the status of each answer.
const SHELL_SENDER: &str = r#"
end=$(($(date +%s) + 10))
while [ $(date +%s) -lt $end ]; do
  curl -sk -m 15 -o /dev/null -w '%{http_code}\n' -H "Authorization: Bearer $(cat /var/run/yoi/token)" -H 'Content-Type: application/json' \
    -d "{\"to\":\"b\",\"messageId\":\"shell-$(date +%s%N)\",\"text\":\"a word of the shell\"}" https://yoi-gateway.yoi-system.svc:8443/v1/send
  sleep 0.3
done
"#;

#[tokio::test]
async fn no_send_fails_while_the_gateways_are_replaced() -> Result<()> {
    let _alone = locks::exclusive(&[Lock::Gateways]).await?;
    let ns = TestNamespace::create("rollout").await?;
    ns.create_model(TALK).await?;
    ns.create_empty_project("p").await?;
    ns.create_agent("a", "p", json!({ "limits": { "turnsPerRun": 10_000 } })).await?;
    ns.create_agent("b", "p", json!({ "limits": { "turnsPerRun": 10_000 } })).await?;
    ns.wait_agent_ready("a").await?;
    ns.wait_agent_ready("b").await?;
    ns.yoi(&["peer", "a", "b"]).await?.exit_ok()?;
    ns.wait_condition::<YoiPeer>("a.b", "Ready", ConditionStatus::True).await?;
    // Another test may just have replaced the gateways: the plugin waits until `a` has its line to the one that is asked.
    ns.yoi(&["send", "a", "talk to b"]).await?.exit_ok()?;
    ns.wait_log("a", "the first message", |log| (!sent(log).is_empty()).then_some(())).await?;
    let pod = pod_of(&ns, "a").await?.metadata.name.unwrap_or_default();
    let former = gateway_pods(&ns).await?;

    let rolled = AtomicBool::new(false);
    let by_person = async {
        let (mut count, mut failed) = (0, Vec::new());
        while !rolled.load(Ordering::Relaxed) {
            let output = ns.yoi(&["send", "b", "a word of a person"]).await?;
            count += 1;
            if output.code != 0 {
                failed.push(output.err);
            }
        }
        anyhow::Ok((count, failed))
    };
    let by_shell = async {
        let mut statuses = Vec::new();
        while !rolled.load(Ordering::Relaxed) {
            let output = ns.kubectl(&["exec", &pod, "--", "/bin/sh", "-c", SHELL_SENDER]).await?.exit_ok()?;
            statuses.extend(output.out.lines().map(str::to_owned));
        }
        anyhow::Ok(statuses)
    };
    let rollout = async {
        ns.kubectl(&["-n", SYSTEM, "rollout", "restart", "deployment/yoi-gateway"]).await?.exit_ok()?;
        // A former replica is gone only after it has served on.
        let gone = poll_until(2 * TIMEOUT, "the gateways are replaced", async || {
            let now = gateway_pods(&ns).await?;
            Ok((now.is_disjoint(&former) && now.len() == former.len()).then_some(()))
        })
        .await;
        rolled.store(true, Ordering::Relaxed);
        anyhow::Ok(gone?.1)
    };
    let ((by_person, failed), statuses, took) = futures::try_join!(by_person, by_shell, rollout)?;
    ensure!(failed.is_empty(), "{} of {by_person} sends of a person failed: {failed:?}", failed.len());
    let failed: Vec<&String> = statuses.iter().filter(|status| *status != "200").collect();
    ensure!(failed.is_empty(), "{} of {} sends of the shell failed: {failed:?}", failed.len(), statuses.len());
    let by_tool = sent(&ns.log("a").await?);
    let failed: Vec<&String> = by_tool.iter().filter(|(ok, _)| !ok).map(|(_, output)| output).collect();
    ensure!(failed.is_empty(), "{} of {} sends of the agent failed: {failed:?}", failed.len(), by_tool.len());
    println!(
        "{by_person} sends of a person, {} of an agent and {} of a shell while the gateways were replaced in {took:?}: 0 failed",
        by_tool.len(),
        statuses.len()
    );
    ns.remove_and_wait().await
}

/// For each message that the agent's tool has sent: whether it is known to have arrived, and what the tool said.
fn sent(log: &[LogLine]) -> Vec<(bool, String)> {
    log.iter()
        .filter_map(|line| match &line.entry.body {
            Body::ToolEnded(end) => Some((end.outcome == ToolOutcome::Succeeded, end.output.clone())),
            _ => None,
        })
        .collect()
}

async fn gateway_pods(ns: &TestNamespace) -> Result<BTreeSet<String>> {
    let api: Api<Pod> = Api::namespaced(ns.client.clone(), SYSTEM);
    let list = api.list(&ListParams::default().labels("app.kubernetes.io/name=yoi-gateway")).await?;
    Ok(list.items.into_iter().filter_map(|pod| pod.metadata.uid).collect())
}
