//! The charts as Helm and the API server see them.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyPort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use yoi_e2e::program::{self, Said};
use yoi_e2e::stage::Stage;

fn charts(name: &str) -> String {
    format!("{}/../charts/{name}", env!("CARGO_MANIFEST_DIR"))
}

async fn helm(args: &[&str]) -> Result<Said> {
    program::run(&std::env::var("YOI_HELM")?, args, &[], None).await
}

async fn rendered(more: &[&str]) -> Result<Said> {
    helm(&[&["template", "yoi-operator", &charts("yoi-operator"), "--namespace", "yoi-system", "--kube-version", "1.34.0"], more].concat())
        .await
}

#[tokio::test]
async fn both_charts_are_clean_under_strict_lint() -> Result<()> {
    for chart in ["yoi-crds", "yoi-operator"] {
        helm(&["lint", "--strict", &charts(chart)]).await?.ok()?;
    }
    Ok(())
}

#[tokio::test]
async fn values_that_make_no_sense_are_refused_by_the_schema() -> Result<()> {
    for nonsense in [
        "operator.replicas=none",
        "shim.dataRoot=relative",
        "shim.loopBtrfs.size=big",
        "logFormat=xml",
        "unknown=1",
        "image.pullPolicy=Sometimes",
    ] {
        let said = rendered(&["--set", nonsense]).await?;
        ensure!(said.code != 0 && said.err.contains("schema"), "{nonsense} was taken: {said:?}");
    }
    Ok(())
}

#[tokio::test]
async fn every_rendered_object_passes_the_servers_strict_dry_run() -> Result<()> {
    let stage = Stage::open("charts").await?;
    for more in [&[][..], &["--set", "shim.loopBtrfs.enabled=true", "--set", "logFormat=text", "--set", "image.pullSecrets[0].name=s"]] {
        let objects = rendered(more).await?.ok()?.out;
        let kubectl = std::env::var("YOI_KUBECTL")?;
        let args = ["apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-f", "-"];
        let said = program::run(&kubectl, &args, &[], Some(&objects)).await?.ok()?;
        ensure!(!said.err.to_lowercase().contains("warning"), "{}", said.err);
    }
    stage.close().await
}

#[tokio::test]
async fn no_role_of_ours_has_a_wildcard() -> Result<()> {
    let objects = rendered(&[]).await?.ok()?.out;
    for document in objects.split("\n---") {
        let object: serde_json::Value = serde_yaml::from_str(document)?;
        if object["kind"] == "ClusterRole" || object["kind"] == "Role" {
            let rules = object["rules"].to_string();
            ensure!(!rules.contains("\"*\""), "{} has a wildcard: {rules}", object["metadata"]["name"]);
            let secrets = object["rules"].as_array().into_iter().flatten().filter(|r| r["resources"].to_string().contains("\"secrets\""));
            for rule in secrets {
                let makes = rule["verbs"] == serde_json::json!(["create"]);
                ensure!(object["kind"] == "Role" && (makes || rule["resourceNames"].is_array()), "{rule} reads users' Secrets");
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn agents_are_denied_all_but_dns_the_gateway_and_what_the_chart_says() -> Result<()> {
    let stage = Stage::open("network").await?;
    stage.model("rules: [{ steps: [{ text: hello }] }]").await?;
    stage.empty_project("p").await?;
    stage.agent("a", "p", serde_json::json!({})).await?;
    stage.agent_ready("a").await?;
    let policies: Vec<NetworkPolicy> = stage.list("").await?;
    let agents = policies.iter().filter_map(|p| p.spec.as_ref()).find(|s| {
        let labels = s.pod_selector.as_ref().and_then(|p| p.match_labels.as_ref());
        labels.and_then(|l| l.get("yoi.dev/role")).map(String::as_str) == Some("agent")
    });
    let Some(agents) = agents else { anyhow::bail!("no NetworkPolicy selects agents") };
    let types = agents.policy_types.clone().unwrap_or_default();
    ensure!(types.contains(&"Ingress".to_owned()) && types.contains(&"Egress".to_owned()), "{types:?}");
    ensure!(agents.ingress.as_ref().is_none_or(Vec::is_empty), "something may come in");
    let egress = serde_json::to_string(&agents.egress)?;
    for port in [53, 8443, 443] {
        let named = |p: &NetworkPolicyPort| p.port == Some(IntOrString::Int(port)) && p.end_port.is_none();
        ensure!(agents.egress.iter().flatten().flat_map(|r| r.ports.iter().flatten()).any(named), "no rule for port {port}: {egress}");
    }
    // The policy selects the agent that runs here.
    let selected = agents.pod_selector.as_ref().and_then(|p| p.match_labels.clone()).unwrap_or_default();
    let pod: Vec<Pod> = stage.list("yoi.dev/yoipod=a").await?;
    let borne = pod.first().and_then(|p| p.metadata.labels.clone()).unwrap_or_default();
    ensure!(selected.iter().all(|(key, value)| borne.get(key) == Some(value)), "{selected:?} does not select {borne:?}");
    ensure!(agents.egress.iter().flatten().all(|r| r.ports.as_ref().is_some_and(|p| !p.is_empty())), "a rule without ports: {egress}");
    stage.close().await
}
