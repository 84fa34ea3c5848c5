//! Runs the commands of findings.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace};

use super::doctor::{Finding, doctor, run};

/// Runs the doctor until it does not have this finding any more.
pub async fn wait_resolved(ns: &TestNamespace, args: &[&str], finding: &Finding) -> Result<()> {
    let start = Instant::now();
    loop {
        let findings = doctor(ns, args).await?;
        let Some(still) =
            findings.iter().find(|f| f.check == finding.check && f.object == finding.object && f.severity == finding.severity)
        else {
            return Ok(());
        };
        ensure!(start.elapsed() < TIMEOUT, "the doctor still reports {still:?}");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Runs the command of a finding. The command must succeed.
pub async fn run_fix(finding: &Finding) -> Result<()> {
    let output = run(&finding.command).await?;
    if output.code != 0 {
        bail!("`{}` failed: {output:?}", finding.command);
    }
    Ok(())
}
