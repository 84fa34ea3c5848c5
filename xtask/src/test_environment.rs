//! The environment variables that tell tests and benchmarks of `e2e/` which cluster they use.

use crate::build;
use crate::command::this_program;
use crate::images::Built;
use crate::instance::Instance;
use anyhow::Result;

pub fn variables(instance: Instance, built: &Built) -> Result<Vec<(&'static str, String)>> {
    let (kubernetes, tools) = (build::kubernetes()?, build::tools()?);
    let shown = |path: &std::path::Path| path.display().to_string();
    Ok(vec![
        ("KUBECONFIG", shown(&instance.kubeconfig())),
        ("YOI_IMAGES", instance.path("images.json")),
        ("YOI_KUBECTL_YOI", shown(built.plugin()?)),
        ("YOI_HELM", shown(&tools.join("helm"))),
        ("YOI_KUBECTL", shown(&kubernetes.join("kubectl"))),
        // The program and the name with which a test runs commands in nodes and changes them, and the data root of each node.
        ("YOI_XTASK", shown(&this_program()?)),
        ("YOI_CLUSTER", instance.name().to_owned()),
        ("YOI_DATA_ROOT", instance.path("yoi")),
        ("YOI_HOST_SOURCE", instance.host_source()),
        // The files of the locks that tests hold.
        ("YOI_LOCKS", instance.path("locks")),
        // An error of a test says what happened; fifty frames of the executor after it only push that out of sight.
        ("RUST_LIB_BACKTRACE", "0".to_owned()),
    ])
}
