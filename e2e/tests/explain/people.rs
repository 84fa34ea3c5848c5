//! The plugin for a user with few rights, completion of the command line, and `explain`.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, PostParams};
use serde_json::json;
use yoi_e2e::poll_until;
use yoi_e2e::program;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace};

use super::CLUSTER;
use super::doctor::parse_report;

/// Creates a service account, binds it to `role`, and returns the path of a kubeconfig for it.
pub async fn kubeconfig_for(ns: &TestNamespace, name: &str, role: Option<&str>) -> Result<std::path::PathBuf> {
    ns.apply(&json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name } }).to_string()).await?;
    if let Some(role) = role {
        let account = format!("{}:{name}", ns.name);
        ns.kubectl(&["create", "rolebinding", name, "--clusterrole", role, "--serviceaccount", &account]).await?.exit_ok()?;
    }
    let accounts: Api<ServiceAccount> = ns.api();
    let request: TokenRequest = serde_json::from_value(json!({ "spec": { "audiences": [], "expirationSeconds": 3600 } }))?;
    let token = accounts.create_token_request(name, &PostParams::default(), &request).await?.status.map(|s| s.token).unwrap_or_default();
    let mut config: serde_json::Value = serde_yaml::from_str(&std::fs::read_to_string(std::env::var("KUBECONFIG")?)?)?;
    config["users"] = json!([{ "name": name, "user": { "token": token } }]);
    config["contexts"] = json!([{ "name": "c", "context": { "cluster": config["clusters"][0]["name"], "user": name } }]);
    config["current-context"] = json!("c");
    let path = std::env::temp_dir().join(format!("{}-{name}.kubeconfig", ns.name));
    std::fs::write(&path, config.to_string())?;
    Ok(path)
}

#[tokio::test]
async fn the_doctor_tells_a_viewer_what_it_could_not_check_and_counts_it() -> Result<()> {
    let _cluster = CLUSTER.read().await;
    let ns = TestNamespace::create("viewer").await?;
    ns.create_empty_project("p").await?;
    let file = kubeconfig_for(&ns, "viewer", Some("yoi-view")).await?;
    let mut last = Vec::new();
    // A new binding takes effect a little later, and the doctor may rightly report a late answer.
    let looked = poll_until(TIMEOUT, "every check that a viewer may make", async || {
        let output = ns.yoi_as(&file, &["doctor", "-o", "json"]).await?;
        let findings = parse_report(&output)?;
        ensure!(!findings.iter().any(|f| f.severity == "error"), "{findings:#?}");
        let whole = output.code == 4 && !findings.iter().any(|f| f.object.contains("yoiprojects"));
        last = findings.clone();
        Ok(whole.then_some(findings))
    });
    let (findings, _) = looked.await.with_context(|| format!("the only findings must be checks that were not possible: {last:#?}"))?;
    for right in
        ["list nodes", "list storageclasses.storage.k8s.io", "list customresourcedefinitions.apiextensions.k8s.io", "list namespaces"]
    {
        let one = findings.iter().find(|f| f.object == right);
        ensure!(
            one.is_some_and(|f| f.severity == "unknown" && f.message.contains("you may not") && f.command.contains("auth can-i")),
            "{right}: {findings:#?}"
        );
    }
    // The doctor calls nothing healthy that the viewer may not see.
    for check in ["charts", "nodes", "classes", "stuck", "rights"] {
        ensure!(!findings.iter().any(|f| f.check == check && f.severity == "ok"), "{check} passes unchecked: {findings:#?}");
    }
    std::fs::remove_file(file)?;
    ns.remove().await
}

#[tokio::test]
async fn kubectl_completes_our_verbs_by_a_program_on_path() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("yoi-complete-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let plugin = std::env::var("YOI_KUBECTL_YOI")?;
    for name in ["kubectl-yoi", "kubectl_complete-yoi"] {
        std::os::unix::fs::symlink(&plugin, folder.join(name))?;
    }
    let path = format!("{}:{}", folder.display(), std::env::var("PATH")?);
    let kubectl = std::env::var("YOI_KUBECTL")?;
    // kubectl's completion scripts call the plugin this way.
    let output = program::run(&kubectl, &["__complete", "yoi", "do"], &[("PATH", &path)], None).await?.exit_ok()?;
    ensure!(output.out.lines().next().is_some_and(|l| l.starts_with("doctor\t")) && output.out.contains("\n:4"), "{output:?}");
    let output = program::run(&kubectl, &["__complete", "yoi", "ls", "-o", ""], &[("PATH", &path)], None).await?.exit_ok()?;
    ensure!(output.out.starts_with("json\n"), "{output:?}");
    std::fs::remove_dir_all(folder)?;
    Ok(())
}

#[tokio::test]
async fn a_reason_is_explained_without_a_cluster() -> Result<()> {
    let plugin = std::env::var("YOI_KUBECTL_YOI")?;
    let nowhere = [("KUBECONFIG", "/nonexistent")];
    let output = program::run(&plugin, &["explain", "secretmissing"], &nowhere, None).await?.exit_ok()?;
    ensure!(output.out.starts_with("SecretMissing: ") && output.out.contains("\n  $ kubectl create secret"), "{output:?}");
    let output = program::run(&plugin, &["explain", "secret"], &nowhere, None).await?;
    ensure!(output.code == 3 && output.err.contains("did you mean SecretMissing"), "{output:?}");
    Ok(())
}
