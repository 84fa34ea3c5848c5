//! Errors of `kubectl yoi`: each names the object, the reason and the next step, and has its exit code.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, ensure};
use axum::Router;
use axum::http::StatusCode;
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use yoi_crds::{YoiPeer, YoiPod};
use yoi_e2e::program::{self, CommandOutput};
use yoi_e2e::test_namespace::TestNamespace;
use yoi_test_support::in_time;

/// Runs the plugin with another kubeconfig.
async fn yoi(kubeconfig: &Path, args: &[&str]) -> Result<CommandOutput> {
    let plugin = std::env::var("YOI_KUBECTL_YOI")?;
    program::run(&plugin, args, &[("KUBECONFIG", &kubeconfig.to_string_lossy())], None).await
}

/// Checks that the plugin failed with `code`, that its error contains all of `words`, and that it shows no Rust debug output.
pub fn check_error(output: &CommandOutput, code: i32, words: &[&str]) -> Result<()> {
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

/// Writes a kubeconfig for a server at this address and returns its path.
fn kubeconfig(name: &str, server: &str) -> Result<PathBuf> {
    let config = json!({ "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{ "name": "c", "cluster": { "server": server } }], "users": [{ "name": "u", "user": {} }],
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }] });
    let path = std::env::temp_dir().join(format!("yoi-{name}-{}.kubeconfig", std::process::id()));
    std::fs::write(&path, config.to_string())?;
    Ok(path)
}

/// Serves `app` and returns the path of a kubeconfig for it.
async fn serve(name: &str, app: Router) -> Result<PathBuf> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    tokio::spawn(async move { axum::serve(listener, app).await });
    kubeconfig(name, &url)
}

/// Serves TLS with a certificate that nobody knows, and returns the path of a kubeconfig for it.
async fn serve_unknown_certificate(name: &str) -> Result<PathBuf> {
    let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
    let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).map_err(anyhow::Error::msg)?;
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key)?;
    let (listener, acceptor) = (TcpListener::bind("127.0.0.1:0").await?, TlsAcceptor::from(Arc::new(config)));
    let url = format!("https://{}", listener.local_addr()?);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // The client ends the handshake.
            let _ = acceptor.accept(stream).await;
        }
    });
    kubeconfig(name, &url)
}

fn version() -> axum::Json<Value> {
    axum::Json(json!({ "major": "1", "minor": "34", "gitVersion": "v1.34.0", "gitCommit": "", "gitTreeState": "", "buildDate": "",
        "goVersion": "", "compiler": "", "platform": "" }))
}

#[tokio::test]
async fn errors_name_the_cause_when_the_cluster_cannot_be_reached() -> Result<()> {
    let closed = kubeconfig("closed", "https://127.0.0.1:1")?;
    let without_ca = serve_unknown_certificate("tls").await?;
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
    let ended = in_time("the end of the doctor", yoi(&silent, &["doctor"])).await?;
    check_error(&ended, 5, &["no answer in", "\n  next: "])?;
    let version_only = Router::new().route("/version", axum::routing::get(async || version())).fallback(never);
    let version_only = serve("version_only", version_only).await?;
    let ended = in_time("the end of the doctor", yoi(&version_only, &["doctor", "-o", "json"])).await?;
    let findings = super::doctor::parse_report(&ended)?;
    let late = findings.iter().filter(|f| f.severity == "unknown" && f.message.contains("did not answer in time")).count();
    ensure!(late > 20 && findings.iter().all(|f| f.severity != "ok"), "{findings:#?}");
    for file in [silent, version_only] {
        std::fs::remove_file(file)?;
    }
    Ok(())
}

#[tokio::test]
async fn errors_name_objects_that_are_missing_stopped_pending_or_forbidden() -> Result<()> {
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
    let alone = ns.yoi(&["peer", "a", "z"]).await?;
    ensure!(alone.code == 3 && alone.err.contains("does not exist"), "{alone:?}");
    ensure!(ns.list::<YoiPeer>("").await?.is_empty(), "a YoiPeer was made");
    let itself = ns.yoi(&["peer", "a", "a"]).await?;
    check_error(&itself, 1, &[&format!("YoiPod {here}/a"), "cannot be its own peer", &format!("kubectl yoi ls agents -n {here}")])?;

    ns.create_agent("stopped", "p", json!({ "desiredState": "Stopped" })).await?;
    ns.wait_reason::<YoiPod>("stopped", "Ready", "Stopped").await?;
    check_error(
        &ns.yoi(&["send", "stopped", "x"]).await?,
        5,
        &[&format!("YoiPod {here}/stopped"), "is Stopped", "kubectl yoi start stopped"],
    )?;
    check_error(&ns.yoi(&["diff", "stopped"]).await?, 5, &["has stopped", "has never run", "kubectl describe yoipod stopped"])?;

    ns.create_agent("far", "p", json!({ "pod": { "nodeSelector": { "yoi.example/planet": "mars" } } })).await?;
    ns.wait_reason::<YoiPod>("far", "Ready", "Unschedulable").await?;
    check_error(
        &ns.yoi(&["send", "far", "x"]).await?,
        5,
        // The gateway may still know the reason before this one; the scheduler's words are there in any case.
        &[&format!("YoiPod {here}/far"), "nodes are available", "kubectl describe yoipod far"],
    )?;

    let nobody = ns.kubeconfig_for("nobody", None).await?;
    for verb in [&["ls"][..], &["log", "stopped"], &["stop", "stopped"]] {
        check_error(&ns.yoi_as(&nobody, verb).await?, 4, &["failed to ", "forbidden", "\n  next: ask for the role yoi-edit"])?;
    }
    std::fs::remove_file(nobody)?;

    for (line, words) in [("log", "<AGENT>"), ("log A", "lower-case"), ("frobnicate", "unrecognized"), ("stop a --timeout x", "duration")] {
        let output = ns.yoi(&line.split(' ').collect::<Vec<_>>()).await?;
        ensure!(output.code == 2 && output.err.contains(words) && output.err.contains("--help"), "{line}: {output:?}");
    }
    check_error(&ns.yoi(&["run", "a"]).await?, 2, &["is not named", "--project PROJECT", "kubectl yoi init --apply"])?;
    // A closed standard output is no error.
    let output = program::run("bash", &["-c", "set -o pipefail; \"$YOI_KUBECTL_YOI\" crds | head -1"], &[], None).await?.exit_ok()?;
    ensure!(output.out == "---\n" && output.err.is_empty(), "{output:?}");
    ns.remove().await
}
