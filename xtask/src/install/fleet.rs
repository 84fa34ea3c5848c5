//! The example fleet: applied, and awaited until every agent has done its task.

use crate::cluster::Kubectl;
use crate::instance::repository;
use crate::say;
use anyhow::{Context, Result};

pub const NAMESPACE: &str = "yoi-example";

/// What must come true, in this order: the kind's plural, its condition, what people read meanwhile.
const STAGES: [(&str, &str, &str); 4] = [
    ("pods/git", "Ready", "the git server starts"),
    ("yoiprojects", "Ready", "the project's tree is cloned and sealed"),
    ("yoipods", "Ready", "agents get their trees and start"),
    ("yoipods", "TaskComplete", "agents work on their tasks"),
];

pub fn start(kubectl: &Kubectl) -> Result<()> {
    let step = say::step("Start the example fleet (about a minute)");
    let examples = repository().join("examples/fleet");
    kubectl.run(["apply".as_ref(), "--server-side".as_ref(), "--force-conflicts".as_ref(), "-f".as_ref(), examples.as_os_str()])?;
    for (what, condition, now) in STAGES {
        step.progress(now);
        let condition = format!("--for=condition={condition}");
        let mut words = vec!["--namespace", NAMESPACE, "wait", &condition, what, "--timeout=300s"];
        words.extend((!what.contains('/')).then_some("--all"));
        kubectl.run(words).with_context(|| kubectl.picture(NAMESPACE))?;
    }
    step.done("every agent has done its task");
    Ok(())
}
