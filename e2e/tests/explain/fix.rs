//! Runs the commands of findings.

use anyhow::{Result, bail};
use yoi_e2e::poll_seen;
use yoi_e2e::test_namespace::{TIMEOUT, TestNamespace};

use super::doctor::{Finding, doctor, run};

/// Runs the doctor until it does not have this finding any more.
pub async fn wait_resolved(ns: &TestNamespace, args: &[&str], finding: &Finding) -> Result<()> {
    poll_seen(TIMEOUT, "the doctor reports it no more", async || {
        let same = |f: &Finding| f.check == finding.check && f.object == finding.object && f.severity == finding.severity;
        let still = doctor(ns, args).await?.into_iter().find(same);
        Ok(still.map_or(Ok(()), |still| Err(format!("{still:?}"))))
    })
    .await
    .map(drop)
}

/// Runs the command of a finding. The command must succeed.
pub async fn run_fix(finding: &Finding) -> Result<()> {
    let output = run(&finding.command).await?;
    if output.code != 0 {
        bail!("`{}` failed: {output:?}", finding.command);
    }
    Ok(())
}
