//! The plugin for a user with few rights, completion of the command line, and `explain`.

use anyhow::{Context, Result, ensure};
use yoi_e2e::poll_until;
use yoi_e2e::program;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace};

use super::doctor::parse_report;

#[tokio::test]
async fn the_doctor_tells_a_viewer_what_it_could_not_check_and_counts_it() -> Result<()> {
    let ns = TestNamespace::create("viewer").await?;
    ns.create_empty_project("p").await?;
    let file = ns.kubeconfig_for("viewer", Some("yoi-view")).await?;
    let mut last = Vec::new();
    // A new binding takes effect a little later, and the doctor may rightly report a late answer.
    let looked = poll_until(TIMEOUT, "every check that a viewer may make", async || {
        let output = ns.yoi_as(&file, &["doctor", "-o", "json"]).await?;
        let findings = parse_report(&output)?;
        ensure!(!findings.iter().any(|f| f.severity == "error" && !f.message.contains("no answer in")), "{findings:#?}");
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
    // Names come from the cluster of the line.
    let ns = TestNamespace::create("tab").await?;
    ns.create_project("there", serde_json::json!({ "empty": {} })).await?;
    let words = ["__complete", "yoi", "run", "a", "-n", &ns.name, "-p", "th"];
    // A name that comes too late for a person is left out.
    poll_until(TIMEOUT, "the project's name", async || {
        let output = program::run(&kubectl, &words, &[("PATH", &path)], None).await?.exit_ok()?;
        Ok(output.out.starts_with("there\n:4").then_some(()))
    })
    .await?;
    std::fs::remove_dir_all(folder)?;
    ns.remove().await
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
