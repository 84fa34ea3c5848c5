//! Health, metrics and Pod Security of our processes.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use yoi_e2e::test_namespace::TestNamespace;

async fn pods(ns: &TestNamespace, namespace: &str, app: &str) -> Result<Vec<Pod>> {
    let api: Api<Pod> = Api::namespaced(ns.client.clone(), namespace);
    Ok(api.list(&ListParams::default().labels(&format!("app.kubernetes.io/name={app}"))).await?.items)
}

#[tokio::test]
async fn every_process_serves_health_and_metrics_with_help_texts() -> Result<()> {
    let ns = TestNamespace::create("metrics").await?;
    for (namespace, app, port) in
        [("yoi-system", "yoi-operator", 8080), ("yoi-system", "yoi-gateway", 8080), ("yoi-node", "yoi-agent-shim", 8081)]
    {
        let all = pods(&ns, namespace, app).await?;
        ensure!(!all.is_empty(), "no {app}");
        for pod in all {
            let path = |what: &str| format!("/api/v1/namespaces/{namespace}/pods/{}:{port}/proxy/{what}", pod.name_any());
            if app == "yoi-gateway" {
                // Only the kubelet may reach its probes.
                let object = format!("pod/{}", pod.name_any());
                ns.kubectl(&["-n", namespace, "wait", "--for=condition=Ready", &object, "--timeout=90s"]).await?.exit_ok()?;
            } else {
                for health in ["healthz", "readyz"] {
                    ns.kubectl(&["get", "--raw", &path(health)]).await?.exit_ok()?;
                }
            }
            let metrics = ns.kubectl(&["get", "--raw", &path("metrics")]).await?.exit_ok()?.out;
            let (helped, typed) = (metrics.matches("# HELP yoi_").count(), metrics.matches("# TYPE yoi_").count());
            ensure!(helped >= 3 && helped == typed, "{app}: {helped} of {typed} metrics have a help text\n{metrics}");
        }
    }
    ns.remove().await
}

#[tokio::test]
async fn every_pod_of_ours_but_the_shim_runs_where_restricted_is_enforced() -> Result<()> {
    let ns = TestNamespace::create("restricted").await?;
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(ns.client.clone());
    let enforced = namespaces.get("yoi-system").await?.labels().get("pod-security.kubernetes.io/enforce").cloned();
    ensure!(enforced.as_deref() == Some("restricted"), "{enforced:?}");
    for app in ["yoi-operator", "yoi-gateway"] {
        ensure!(!pods(&ns, "yoi-system", app).await?.is_empty(), "no {app}");
    }
    ns.remove().await
}
