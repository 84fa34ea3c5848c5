//! Runs after everything else: the charts go, and what must stay stays.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams};
use yoi_crds::YoiProject;
use yoi_e2e::program;
use yoi_e2e::stage::Stage;

#[tokio::test]
async fn uninstalling_ends_and_keeps_the_crds_and_their_objects() -> Result<()> {
    let stage = Stage::open("teardown").await?;
    stage.empty_project("kept").await?;
    let helm = std::env::var("YOI_HELM")?;
    // The same order as in the README.
    for release in ["yoi-operator", "yoi-crds"] {
        program::run(&helm, &["uninstall", release, "--namespace", "yoi-system", "--wait", "--timeout", "110s"], &[], None).await?.ok()?;
    }
    let crds: Api<CustomResourceDefinition> = Api::all(stage.client.clone());
    for kind in ["yoiprojects", "yoipods", "yoipeers", "agentworkspaces", "workspacenodes"] {
        crds.get(&format!("{kind}.yoi.dev")).await?;
    }
    let _: YoiProject = stage.get("kept").await?;

    // The aggregated API is gone with the chart, so a namespace's deletion is not held up by it.
    let namespaces: Api<Namespace> = Api::all(stage.client.clone());
    let empty: Namespace = serde_json::from_value(serde_json::json!({ "metadata": { "name": "e2e-after-yoi" } }))?;
    namespaces.create(&Default::default(), &empty).await?;
    namespaces.delete("e2e-after-yoi", &DeleteParams::default()).await?;
    let start = Instant::now();
    while namespaces.get_opt("e2e-after-yoi").await?.is_some() {
        ensure!(start.elapsed() < Duration::from_secs(60), "a namespace cannot be deleted after Yoi was uninstalled");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    Ok(())
}
