//! kind reads and validates `kind-config.yaml` by its own code, and nothing more: it gets a docker that answers no further questions.

use super::report::LaneOutcome;
use crate::build;
use crate::command::command;
use crate::instance::repository;
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Answers what kind asks before it looks at the configuration; fails at the first command after that.
const DOCKER: &str = r#"#!/bin/sh
case "$1" in
info) echo '{"CgroupDriver":"cgroupfs","CgroupVersion":"2","MemoryLimit":true,"PidsLimit":true,"CPUShares":true,"SecurityOptions":[]}' ;;
ps) ;;
version | -v | --version) echo 'Docker version 28.0.0' ;;
*) exit 1 ;;
esac
"#;

pub fn check() -> Result<LaneOutcome> {
    let folder = tempfile::tempdir()?;
    let planted = folder.path().join("planted.yaml");
    fs::write(&planted, "kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\nnodes: [{role: control-plain}]\n")?;
    if accepts(&planted).is_ok() {
        bail!("this check detects nothing: it lets an unknown node role pass");
    }
    accepts(&repository().join("kind-config.yaml"))?;
    Ok(LaneOutcome::Passed)
}

fn accepts(file: &Path) -> Result<()> {
    let bin = tempfile::tempdir()?;
    fs::write(bin.path().join("docker"), DOCKER)?;
    fs::set_permissions(bin.path().join("docker"), fs::Permissions::from_mode(0o755))?;
    let mut kind = command(build::tools()?.join("kind"), ["create", "cluster", "--name", "yoi-check", "--config"]);
    kind.arg(file).env("KIND_EXPERIMENTAL_PROVIDER", "docker").env("KUBECONFIG", bin.path().join("kubeconfig"));
    kind.env("PATH", std::env::join_paths([bin.path(), Path::new("/usr/bin"), Path::new("/bin")])?);
    let output = kind.output().context("failed to start kind")?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // kind says this after it has parsed and validated, and before it makes anything.
    if !said.contains("Creating cluster") {
        bail!("kind refuses {}: {}", file.display(), said.trim());
    }
    Ok(())
}
