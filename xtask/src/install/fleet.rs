//! The example fleet: applied, and awaited until it works.

use crate::cluster::Kubectl;
use crate::instance::repository;
use crate::say;
use anyhow::Result;

pub fn start(kubectl: &Kubectl) -> Result<()> {
    let examples = repository().join("examples");
    if !examples.exists() {
        say::note("no examples/ yet: nothing to start");
        return Ok(());
    }
    let step = say::step("Start the example fleet");
    kubectl.run(["apply".as_ref(), "--server-side".as_ref(), "-f".as_ref(), examples.as_os_str()])?;
    kubectl.run(["wait", "--for=condition=Ready", "yoipods", "--all", "--all-namespaces", "--timeout=300s"])?;
    step.done("");
    Ok(())
}
