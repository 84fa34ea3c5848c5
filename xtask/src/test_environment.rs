//! The environment variables that tell tests and benchmarks of `e2e/` which cluster they use.

use crate::build;
use crate::images::Built;
use crate::instance::Instance;
use anyhow::{Context, Result};

pub fn variables(instance: Instance, built: &Built) -> Result<Vec<(&'static str, String)>> {
    let (kubernetes, tools) = (build::kubernetes()?, build::tools()?);
    let plugin = built.programs.get("kubectl-yoi").context("kubectl-yoi was not built")?;
    let shown = |path: &std::path::Path| path.display().to_string();
    Ok(vec![
        ("KUBECONFIG", shown(&instance.kubeconfig())),
        ("YOI_IMAGES", instance.path("images.json")),
        ("YOI_KUBECTL_YOI", shown(plugin)),
        ("YOI_HELM", shown(&tools.join("helm"))),
        ("YOI_KUBECTL", shown(&kubernetes.join("kubectl"))),
        // A command line that ends the node as a loss of power does, and starts it again.
        ("YOI_NODE_REBOOT", format!("{} cluster reboot --name {instance}", std::env::current_exe()?.display())),
        // A command line that runs what follows it inside the node, and the node's data root there.
        ("YOI_NODE_EXEC", format!("{} cluster exec --name {instance} --", std::env::current_exe()?.display())),
        // The program and the name with which a test changes nodes of the cluster.
        ("YOI_XTASK", shown(&std::env::current_exe()?)),
        ("YOI_CLUSTER", instance.name().to_owned()),
        ("YOI_DATA_ROOT", instance.path("yoi")),
        // An error of a test says what happened; fifty frames of the executor after it only push that out of sight.
        ("RUST_LIB_BACKTRACE", "0".to_owned()),
    ])
}
