//! Errors of `kubectl yoi`: each names the object, the reason and the next step, and has its exit code.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use axum::Router;
use axum::http::StatusCode;
use serde_json::{Value, json};
use yoi_e2e::program::{self, CommandOutput};
use yoi_e2e::test_namespace::TestNamespace;

use super::doctor::run;
use super::{CLUSTER, RESTORE_GATEWAYS};

/// Runs the plugin with another kubeconfig.
async fn yoi(kubeconfig: &Path, args: &[&str]) -> Result<CommandOutput> {
    let plugin = std::env::var("YOI_KUBECTL_YOI")?;
    program::run(&plugin, args, &[("KUBECONFIG", &kubeconfig.to_string_lossy())], None).await
}

/// Checks that the plugin failed with `code`, that its error contains all of `words`, and that it shows no Rust debug output.
fn check_error(output: &CommandOutput, code: i32, words: &[&str]) -> Result<()> {
    ensure!(output.code == code, "exit code {}, not {code}: {output:?}", output.code);
    for word in words {
        ensure!(output.err.contains(word), "`{word}` is not in: {}", output.err);
    }
    // Lines of progress may stand before it.
    ensure!(output.err.lines().any(|line| line.starts_with("error: ")), "{}", output.err);
    for rust in ["Some(", "Err(", "Ok(", "Error {", "Error(", "Status {", "panicked", "RUST_BACKTRACE", "Os {"] {
        ensure!(!output.err.contains(rust), "`{rust}` is Rust's, in: {}", output.err);
    }
    Ok(())
}

/// Writes a changed copy of this cluster's kubeconfig and returns its path.
fn altered_kubeconfig(name: &str, change: impl FnOnce(&mut Value)) -> Result<PathBuf> {
    let mut config: Value = serde_yaml::from_str(&std::fs::read_to_string(std::env::var("KUBECONFIG")?)?)?;
    change(&mut config);
    let path = std::env::temp_dir().join(format!("yoi-{name}-{}.kubeconfig", std::process::id()));
    std::fs::write(&path, config.to_string())?;
    Ok(path)
}

/// Serves `app` and returns the path of a kubeconfig for it.
async fn serve(name: &str, app: Router) -> Result<PathBuf> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    tokio::spawn(async move { axum::serve(listener, app).await });
    altered_kubeconfig(name, |c| c["clusters"][0]["cluster"] = json!({ "server": url }))
}

fn version() -> axum::Json<Value> {
    axum::Json(json!({ "major": "1", "minor": "34", "gitVersion": "v1.34.0", "gitCommit": "", "gitTreeState": "", "buildDate": "",
        "goVersion": "", "compiler": "", "platform": "" }))
}

#[tokio::test]
async fn errors_name_the_cause_when_the_cluster_cannot_be_reached() -> Result<()> {
    let closed = altered_kubeconfig("closed", |c| c["clusters"][0]["cluster"]["server"] = json!("https://127.0.0.1:1"))?;
    let without_ca =
        altered_kubeconfig("tls", |c| drop(c["clusters"][0]["cluster"].as_object_mut().map(|c| c.remove("certificate-authority-data"))))?;
    for verb in [&["ls"][..], &["log", "a"], &["doctor"], &["send", "a", "x"], &["run", "a", "-p", "p"]] {
        // A message may have arrived although no answer came.
        let next = if verb[0] == "send" { "kubectl yoi send a --id " } else { "kubectl cluster-info" };
        check_error(&yoi(&closed, verb).await?, 5, &["failed to ", "refused", "\n  next: ", next])?;
        check_error(&yoi(&without_ca, verb).await?, 5, &["failed to ", "certificate", "\n  next: "])?;
    }
    let missing = PathBuf::from("/nonexistent/kubeconfig");
    check_error(&yoi(&missing, &["ls"]).await?, 1, &["configuration", "\n  next: set KUBECONFIG"])?;
    check_error(&yoi(&closed, &["ls", "--kubeconfig", "/nonexistent/kubeconfig"]).await?, 1, &["/nonexistent/kubeconfig", "\n  next: "])?;
    check_error(&yoi(&closed, &["ls", "--context", "nowhere"]).await?, 1, &["nowhere", "\n  next: "])?;
    for file in [closed, without_ca] {
        std::fs::remove_file(file)?;
    }
    Ok(())
}

#[tokio::test]
async fn errors_in_a_cluster_without_yoi_name_the_charts_to_install() -> Result<()> {
    let status = || {
        let words = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404, "details": {},
            "message": "the server could not find the requested resource" });
        (StatusCode::NOT_FOUND, axum::Json(words))
    };
    let app = Router::new().route("/version", axum::routing::get(async || version())).fallback(async move || status());
    let without_yoi = serve("without_yoi", app).await?;
    for verb in [&["ls"][..], &["log", "a"], &["run", "a", "-p", "p"], &["stop", "a"]] {
        check_error(
            &yoi(&without_yoi, verb).await?,
            1,
            &["the cluster does not know this API", "\n  next: install the charts yoi-crds and yoi-operator"],
        )?;
    }
    let findings = super::doctor::parse_report(&yoi(&without_yoi, &["doctor", "-o", "json"]).await?)?;
    let missing = findings.iter().filter(|f| f.check == "versions" && f.message.contains("not installed")).count();
    ensure!(missing == 5, "each kind must be named: {findings:#?}");
    std::fs::remove_file(without_yoi)?;
    Ok(())
}

#[tokio::test]
async fn the_doctor_ends_though_the_api_server_hangs() -> Result<()> {
    async fn never() -> axum::Json<Value> {
        std::future::pending().await
    }
    let silent = serve("silent", Router::new().fallback(never)).await?;
    let start = Instant::now();
    check_error(&yoi(&silent, &["doctor"]).await?, 5, &["no answer in", "\n  next: "])?;
    ensure!(start.elapsed() < Duration::from_secs(40), "{:?}", start.elapsed());
    let version_only = Router::new().route("/version", axum::routing::get(async || version())).fallback(never);
    let version_only = serve("version_only", version_only).await?;
    let start = Instant::now();
    let findings = super::doctor::parse_report(&yoi(&version_only, &["doctor", "-o", "json"]).await?)?;
    ensure!(start.elapsed() < Duration::from_secs(40), "{:?}", start.elapsed());
    println!("ended after {:.1} s", start.elapsed().as_secs_f32());
    let late = findings.iter().filter(|f| f.severity == "unknown" && f.message.contains("did not answer in time")).count();
    ensure!(late > 20 && findings.iter().all(|f| f.severity != "ok"), "{findings:#?}");
    for file in [silent, version_only] {
        std::fs::remove_file(file)?;
    }
    Ok(())
}

#[tokio::test]
async fn errors_name_objects_that_are_missing_stopped_pending_or_forbidden() -> Result<()> {
    let _cluster = CLUSTER.read().await;
    let ns = TestNamespace::create("mistakes").await?;
    let here = ns.name.clone();
    ns.create_model("rules: [{ steps: [{ text: hello }] }]").await?;
    ns.create_empty_project("p").await?;
    check_error(
        &ns.yoi(&["log", "absent"]).await?,
        3,
        &[&format!("YoiPod {here}/absent does not exist"), "\n  next: kubectl yoi ls agents"],
    )?;
    check_error(&ns.yoi(&["run", "a", "-p", "absent"]).await?, 3, &[&format!("YoiProject {here}/absent does not exist"), "\n  next: "])?;
    check_error(&ns.yoi(&["workspace", "rm", "w"]).await?, 3, &[&format!("AgentWorkspace {here}/w does not exist"), "\n  next: "])?;
    let itself = ns.yoi(&["peer", "a", "a"]).await?;
    check_error(&itself, 1, &[&format!("YoiPod {here}/a"), "cannot be its own peer", &format!("kubectl yoi ls agents -n {here}")])?;

    ns.create_agent("stopped", "p", json!({ "desiredState": "Stopped" })).await?;
    ns.wait_reason::<yoi_crds::YoiPod>("stopped", "Ready", "Stopped").await?;
    check_error(
        &ns.yoi(&["send", "stopped", "x"]).await?,
        5,
        &[&format!("YoiPod {here}/stopped"), "is Stopped", "kubectl yoi start stopped"],
    )?;
    check_error(&ns.yoi(&["diff", "stopped"]).await?, 5, &["has stopped", "has never run", "kubectl describe yoipod stopped"])?;

    ns.create_agent("far", "p", json!({ "pod": { "nodeSelector": { "yoi.example/planet": "mars" } } })).await?;
    ns.wait_reason::<yoi_crds::YoiPod>("far", "Ready", "Unschedulable").await?;
    check_error(
        &ns.yoi(&["send", "far", "x"]).await?,
        5,
        &[&format!("YoiPod {here}/far"), "Unschedulable", "kubectl describe yoipod far"],
    )?;

    let nobody = ns.kubeconfig_for("nobody", None).await?;
    for verb in [&["ls"][..], &["log", "stopped"], &["stop", "stopped"]] {
        check_error(&ns.yoi_as(&nobody, verb).await?, 4, &["failed to ", "forbidden", "\n  next: ask for the role yoi-edit"])?;
    }
    std::fs::remove_file(nobody)?;

    for (line, words) in [
        ("log", "<AGENT>"),
        ("log A", "lower-case"),
        ("run a", "--project"),
        ("frobnicate", "unrecognized"),
        ("stop a --timeout x", "duration"),
    ] {
        let output = ns.yoi(&line.split(' ').collect::<Vec<_>>()).await?;
        ensure!(output.code == 2 && output.err.contains(words) && output.err.contains("--help"), "{line}: {output:?}");
    }
    // A closed standard output is no error.
    let output = program::run("bash", &["-c", "set -o pipefail; \"$YOI_KUBECTL_YOI\" crds | head -1"], &[], None).await?.exit_ok()?;
    ensure!(output.out == "---\n" && output.err.is_empty(), "{output:?}");
    ns.remove().await
}

#[tokio::test]
async fn reading_a_log_without_a_gateway_says_what_is_missing() -> Result<()> {
    let _cluster = CLUSTER.write().await;
    let ns = TestNamespace::create("absent").await?;
    ns.create_empty_project("p").await?;
    ns.create_agent("a", "p", json!({ "desiredState": "Stopped" })).await?;
    run("kubectl scale deployment yoi-gateway -n yoi-system --replicas=0").await?.exit_ok()?;
    let gone = "kubectl wait apiservice v1alpha1.runtime.yoi.dev --for=condition=Available=false --timeout=60s";
    let waited = run(gone).await;
    let output = ns.yoi(&["log", "a"]).await;
    run(RESTORE_GATEWAYS).await?.exit_ok()?;
    waited?.exit_ok()?;
    check_error(&output?, 5, &[&format!("YoiPod {}/a", ns.name), "\n  next: ", "kubectl yoi doctor"])?;
    ns.remove().await
}
