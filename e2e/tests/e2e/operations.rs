//! What an operator of the cluster asks of our own processes.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use yoi_e2e::stage::Stage;

async fn pods(stage: &Stage, namespace: &str, app: &str) -> Result<Vec<Pod>> {
    let api: Api<Pod> = Api::namespaced(stage.client.clone(), namespace);
    Ok(api.list(&ListParams::default().labels(&format!("app.kubernetes.io/name={app}"))).await?.items)
}

#[tokio::test]
async fn every_process_tells_its_health_and_its_metrics_with_help() -> Result<()> {
    let stage = Stage::open("metrics").await?;
    for (namespace, app, port) in
        [("yoi-system", "yoi-operator", 8080), ("yoi-system", "yoi-gateway", 8080), ("yoi-node", "yoi-agent-shim", 8081)]
    {
        let all = pods(&stage, namespace, app).await?;
        ensure!(!all.is_empty(), "no {app}");
        for pod in all {
            let path = |what: &str| format!("/api/v1/namespaces/{namespace}/pods/{}:{port}/proxy/{what}", pod.name_any());
            for health in ["healthz", "readyz"] {
                stage.kubectl(&["get", "--raw", &path(health)]).await?.ok()?;
            }
            let metrics = stage.kubectl(&["get", "--raw", &path("metrics")]).await?.ok()?.out;
            let (helped, typed) = (metrics.matches("# HELP yoi_").count(), metrics.matches("# TYPE yoi_").count());
            ensure!(helped >= 3 && helped == typed, "{app}: {helped} of {typed} metrics have a help text\n{metrics}");
        }
    }
    stage.close().await
}

#[tokio::test]
async fn every_pod_of_ours_but_the_shim_runs_where_restricted_is_enforced() -> Result<()> {
    let stage = Stage::open("restricted").await?;
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(stage.client.clone());
    let enforced = namespaces.get("yoi-system").await?.labels().get("pod-security.kubernetes.io/enforce").cloned();
    ensure!(enforced.as_deref() == Some("restricted"), "{enforced:?}");
    for app in ["yoi-operator", "yoi-gateway"] {
        ensure!(!pods(&stage, "yoi-system", app).await?.is_empty(), "no {app}");
    }
    stage.close().await
}
