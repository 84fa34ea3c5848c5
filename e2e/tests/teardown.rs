//! Runs after everything else: nothing is left of what was deleted, the charts go, and what must stay stays.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams};
use yoi_crds::{AgentWorkspace, YoiProject};
use yoi_e2e::program;
use yoi_e2e::stage::Stage;

/// The UIDs of the trees on the node's disk.
async fn trees() -> Result<BTreeSet<String>> {
    let words = std::env::var("YOI_NODE_EXEC")?;
    let mut words: Vec<&str> = words.split(' ').collect();
    let root = std::env::var("YOI_DATA_ROOT")?;
    words.extend(["find", &root, "-mindepth", "3", "-maxdepth", "5", "-path", "*/trees/*/*", "-prune", "-printf", "%f\n"]);
    let said = program::run(words[0], &words[1..], &[], None).await?.ok()?;
    Ok(said.out.lines().map(str::to_owned).collect())
}

#[tokio::test]
async fn w44_no_tree_is_left_of_a_workspace_that_is_gone() -> Result<()> {
    let stage = Stage::open("leaks").await?;
    stage.empty_project("there").await?;
    let uids = async || -> Result<BTreeSet<String>> {
        let all = Api::<AgentWorkspace>::all(stage.client.clone()).list(&Default::default()).await?.items;
        Ok(all.into_iter().filter_map(|w| w.metadata.uid).collect())
    };
    // The base of that project is there, so an empty answer would be a wrong question.
    let base = uids().await?;
    ensure!(!base.is_empty() && base.is_subset(&trees().await?), "the node does not show the tree of a base");
    for round in 0..10 {
        let name = format!("w{round}");
        stage.yoi(&["workspace", "create", &name, "--project", "there", "--claim", "--immediate", "--wait"]).await?.ok()?;
        stage.yoi(&["workspace", "rm", &name]).await?.ok()?;
        stage.until_gone::<AgentWorkspace>(&name).await?;
    }
    let start = Instant::now();
    loop {
        let (there, known) = (trees().await?, uids().await?);
        let left: Vec<_> = there.difference(&known).collect();
        if left.is_empty() {
            break;
        }
        ensure!(start.elapsed() < Duration::from_secs(60), "trees without an object: {left:?}");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    stage.close().await
}

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
