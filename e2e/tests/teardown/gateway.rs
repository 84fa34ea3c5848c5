//! A namespace is deleted while no gateway answers.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::json;
use yoi_e2e::poll_until;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace};

use crate::doctor::wait_finding;
use crate::installation::{Installation, SYSTEM, deletion_blockers};

async fn scale_gateways(ns: &TestNamespace, replicas: i32) -> Result<()> {
    let api: Api<Deployment> = Api::namespaced(ns.client.clone(), SYSTEM);
    api.patch("yoi-gateway", &PatchParams::default(), &Patch::Merge(json!({ "spec": { "replicas": replicas } }))).await?;
    poll_until(TIMEOUT, &format!("{replicas} gateways"), async || {
        let status = api.get("yoi-gateway").await?.status.unwrap_or_default();
        let (all, ready) = (status.replicas.unwrap_or_default(), status.ready_replicas.unwrap_or_default());
        Ok((all == replicas && ready == replicas).then_some(()))
    })
    .await
    .map(drop)
}

#[tokio::test]
async fn a_namespace_waits_for_a_gateway_and_ends_within_a_minute_of_its_return() -> Result<()> {
    let _installation = Installation::lock().await?;
    let ns = TestNamespace::create("no-gateway").await?;
    ns.create_model("rules: [{ steps: [{ text: hello }] }]").await?;
    ns.create_empty_project("p").await?;
    ns.create_agent("a", "p", json!({})).await?;
    ns.wait_agent_ready("a").await?;
    let empty = TestNamespace::create("no-gateway-empty").await?;
    scale_gateways(&ns, 0).await?;
    let tried = check_without_gateway(&ns, &empty).await;
    // The gateways come back even if the check failed.
    scale_gateways(&ns, 2).await?;
    tried?;
    for ns in [&ns, &empty] {
        let mut last = String::new();
        let (_, took) = poll_until(Duration::from_secs(60), "the namespace is gone a minute after the gateways' return", async || {
            let Some(words) = deletion_blockers(ns).await? else { return Ok(Some(())) };
            last = words;
            Ok(None)
        })
        .await
        .map_err(|error| error.context(last))?;
        println!("{} ended {took:?} after the gateways were back", ns.name);
    }
    Ok(())
}

/// Checks that no namespace can be deleted without a gateway, not even an empty one, and that namespace and doctor say why.
async fn check_without_gateway(ns: &TestNamespace, empty: &TestNamespace) -> Result<()> {
    let api = Api::<Namespace>::all(ns.client.clone());
    for ns in [ns, empty] {
        api.delete(&ns.name, &DeleteParams::default()).await?;
    }
    for ns in [ns, empty] {
        poll_until(TIMEOUT, "the namespace says what holds it", async || {
            let words = deletion_blockers(ns).await?;
            ensure!(words.is_some(), "the namespace ended without a gateway: nothing was tried");
            Ok(words.filter(|w| w.contains("Discovery") && w.contains("runtime.yoi.dev")))
        })
        .await?;
    }
    for waiting in [ns, empty] {
        let object = format!("Namespace {}", waiting.name);
        let finding =
            wait_finding(empty, &[], "stuck", &object, "cannot end while the aggregated API runtime.yoi.dev does not answer").await?;
        ensure!(finding.object == object && finding.severity == "error", "{finding:?}");
        ensure!(finding.command == "kubectl scale deployment yoi-gateway -n yoi-system --replicas=2", "{finding:?}");
    }
    Ok(())
}
