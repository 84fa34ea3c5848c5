//! Runs `kubectl yoi doctor` and the commands of its findings, for several test targets.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use yoi_e2e::poll_seen;
use yoi_e2e::program::{self, CommandOutput};
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace};

#[derive(Clone, Debug, Deserialize)]
pub struct Finding {
    pub severity: String,
    pub check: String,
    pub object: String,
    pub message: String,
    #[serde(default)]
    pub command: String,
}

#[derive(Deserialize)]
struct Report {
    findings: Vec<Finding>,
}

/// Returns the doctor's findings, after a check that its exit code fits them.
pub async fn doctor(ns: &TestNamespace, args: &[&str]) -> Result<Vec<Finding>> {
    let all = args.contains(&"-A");
    let words = [&["doctor", "-o", "json"], args].concat();
    let output = if all { run(&format!("kubectl-yoi {}", words.join(" "))).await? } else { ns.yoi(&words).await? };
    parse_report(&output)
}

pub fn parse_report(output: &CommandOutput) -> Result<Vec<Finding>> {
    let report: Report = serde_json::from_str(&output.out).with_context(|| format!("no report: {output:?}"))?;
    let has = |severity: &str| report.findings.iter().any(|f| f.severity == severity);
    let expected = match (has("error") || has("warning"), has("unknown")) {
        (true, _) => 1,
        (false, true) => 4,
        (false, false) => 0,
    };
    ensure!(output.code == expected, "exit code {} with {:?}", output.code, report.findings);
    for finding in &report.findings {
        ensure!(!finding.check.is_empty() && !finding.object.is_empty() && !finding.message.is_empty(), "{finding:?}");
        ensure!(finding.command.is_empty() == (finding.severity == "ok"), "a finding without a command: {finding:?}");
    }
    Ok(report.findings)
}

/// Runs the doctor until it has this finding, and returns it.
pub async fn wait_finding(ns: &TestNamespace, args: &[&str], check: &str, object: &str, words: &str) -> Result<Finding> {
    let looked = poll_seen(TIMEOUT, "the finding", async || {
        let findings = doctor(ns, args).await?;
        let bad = |f: &&Finding| f.check == check && f.object.contains(object) && f.message.contains(words);
        Ok(findings.iter().find(bad).cloned().ok_or_else(|| format!("{findings:#?}")))
    });
    let (found, _) = looked.await.with_context(|| format!("{check} never says `{words}` of {object}"))?;
    println!("{} {}: {}\n  $ {}", found.severity, found.object, found.message, found.command);
    Ok(found)
}

/// Runs a shell command with kubectl, helm and the plugin on PATH.
pub async fn run(line: &str) -> Result<CommandOutput> {
    let mut path = Vec::new();
    for variable in ["YOI_KUBECTL", "YOI_HELM", "YOI_KUBECTL_YOI"] {
        let program = std::path::PathBuf::from(std::env::var(variable)?);
        path.push(program.parent().with_context(|| format!("{variable} has no folder"))?.to_owned());
    }
    path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let path = std::env::join_paths(path)?.to_string_lossy().into_owned();
    program::run("sh", &["-c", line], &[("PATH", &path), ("MODEL_KEY", "a-key")], None).await
}
