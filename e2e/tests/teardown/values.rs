//! Values of the chart: invalid values are refused, and changed values reach agents that run already.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use serde_json::json;
use yoi_e2e::poll_until;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace};

use crate::installation::{Installation, agent_identity, chart, helm, pod_of, restart_count, send_until_delivered};

#[tokio::test]
async fn invalid_values_of_the_chart_are_refused() -> Result<()> {
    let chart = chart("yoi-operator").to_string_lossy().into_owned();
    let render = async |more: &[&str]| helm(&[&["template", "yoi-operator", &chart, "--kube-version", "1.34.0"], more].concat()).await;
    render(&[]).await?.exit_ok()?;
    for nonsense in [
        "agent.egress[0].ports[0].port=443",
        "agents.egress[0].port=443",
        "agents.egress[0].ports[0].protocol=HTTP",
        "agents.egress[0].ports[0].port=70000",
        "agents.egress[0].to[0].host=example.org",
        "agents.populatorEgress[0].ports[0].prot=TCP",
        "gateway.tolerations[0].efect=NoSchedule",
        "gateway.tolerations[0].operator=Maybe",
        "gateway.replicas=0",
        "gateway.hostNetwork=maybe",
        "gateway.ports.api=80",
        "gateway.ports.probes=8081",
        "gateway.priorityClassName=No_Class",
        "operator.resources.limit.memory=1Gi",
        "operator.resources.limits.memory=lots",
        "operator.nodeSelector.a.b=c",
        "shim.resources.requests.cpu=-1",
        "shim.dataroot=/var/lib/yoi",
        "image.gateway.tag=a b",
        "image.gateway.name=x",
        "image.pullSecrets[0].secret=x",
        "logLevel=",
    ] {
        let output = render(&["--set", nonsense]).await?;
        ensure!(output.code != 0 && output.err.contains("schema"), "{nonsense} was taken: {output:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_changed_egress_value_reaches_running_agents() -> Result<()> {
    let installation = Installation::lock().await?;
    let ns = TestNamespace::create("egress").await?;
    ns.create_model("rules: [{ steps: [{ text: hello }] }]").await?;
    ns.create_empty_project("p").await?;
    ns.create_agent("a", "p", json!({})).await?;
    ns.wait_agent_ready("a").await?;
    let before = agent_identity(&ns, "a").await?;
    let rules = async || -> Result<String> {
        let policy: NetworkPolicy = ns.get("yoi-agents").await?;
        let spec = policy.spec.context("a policy without a spec")?;
        ensure!(spec.ingress.as_ref().is_none_or(Vec::is_empty), "something may come in");
        Ok(serde_json::to_string(&spec.egress)?)
    };
    let first = rules().await?;
    ensure!(!first.contains("10443"), "{first}");
    let narrowed =
        json!([{ "to": [{ "ipBlock": { "cidr": "192.0.2.0/24" } }], "ports": [{ "protocol": "TCP", "port": 10443 }] }]).to_string();
    installation.install(&["--set-json", &format!("agents.egress={narrowed}")]).await?;
    let changed = poll_until(TIMEOUT, "the policy says what the value says", async || {
        let now = rules().await?;
        Ok((now.contains("10443") && now.contains("192.0.2.0/24")).then_some(now))
    })
    .await;
    installation.install(&[]).await?;
    let (now, took) = changed?;
    println!("the policy of a namespace that was there changed {took:?} after the upgrade");
    ensure!(now.contains("53") && now.contains("8443"), "an agent may reach neither DNS nor the gateway: {now}");
    poll_until(TIMEOUT, "the policy is the former one again", async || Ok((rules().await? == first).then_some(()))).await?;
    ensure!(agent_identity(&ns, "a").await? == before && restart_count(&pod_of(&ns, "a").await?) == 0, "the agent was replaced");
    send_until_delivered(&ns, "a", "are you there").await?;
    ns.remove_and_wait().await
}
