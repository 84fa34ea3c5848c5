//! The environment variables that tell tests and benchmarks of `e2e/` which cluster they use.

use crate::build;
use crate::command::this_program;
use crate::images::Built;
use crate::instance::{Instance, cache};
use anyhow::Result;
use std::path::{Path, PathBuf};

/// The programs that tests run by hand: helm, kubectl, and the plugin if it was compiled.
pub fn programs(plugin: Option<&Path>) -> Result<Vec<(&'static str, String)>> {
    let shown = |path: &Path| path.display().to_string();
    let mut variables =
        vec![("YOI_HELM", shown(&build::tools()?.join("helm"))), ("YOI_KUBECTL", shown(&build::kubernetes()?.join("kubectl")))];
    variables.extend(plugin.map(|plugin| ("YOI_KUBECTL_YOI", shown(plugin))));
    Ok(variables)
}

/// What tests make another machine a node with.
pub fn bundle() -> PathBuf {
    cache().join("bundle").join("of-tests.tar.zst")
}

pub fn variables(instance: Instance, built: &Built) -> Result<Vec<(&'static str, String)>> {
    let shown = |path: &Path| path.display().to_string();
    let mut variables = programs(Some(built.plugin()?))?;
    variables.extend([
        ("KUBECONFIG", shown(&instance.kubeconfig())),
        ("YOI_IMAGES", instance.path("images.json")),
        // The program and the name with which a test runs commands in nodes and changes them, and the data root of each node.
        ("YOI_XTASK", shown(&this_program()?)),
        ("YOI_CLUSTER", instance.name().to_owned()),
        // Made where a test takes it.
        ("YOI_BUNDLE", shown(&bundle())),
        ("YOI_DATA_ROOT", instance.path("yoi")),
        ("YOI_HOST_SOURCE", instance.host_source()),
        // The files of the locks that tests hold.
        ("YOI_LOCKS", instance.path("locks")),
        // An error of a test says what happened; fifty frames of the executor after it only push that out of sight.
        ("RUST_LIB_BACKTRACE", "0".to_owned()),
    ]);
    Ok(variables)
}
