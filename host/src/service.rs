//! The node's service where systemd runs: it is started with the machine. Elsewhere the node runs until the machine ends, and whoever wants it starts it again.

use crate::bundle::{Bundle, PROGRAM};
use crate::command::{command, run};
use crate::instance::Instance;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

const UNITS: &str = "/etc/systemd/system";

/// Whether systemd is the machine's first process.
pub fn has_systemd() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

/// The node takes a cgroup of its own when it starts, so the unit holds no process.
fn unit(instance: Instance, program: &Path) -> String {
    let program = program.display();
    format!(
        "[Unit]\nDescription=Kubernetes of one node with Yoi\nWants=network-online.target\nAfter=network-online.target local-fs.target\n\n\
         [Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart={program} start --name {instance}\nExecStop={program} stop --name {instance}\n\
         TimeoutStartSec=15min\nTimeoutStopSec=3min\nKillMode=process\n\n\
         [Install]\nWantedBy=multi-user.target\n"
    )
}

fn name(instance: Instance) -> String {
    format!("{instance}.service")
}

fn path(instance: Instance) -> PathBuf {
    Path::new(UNITS).join(name(instance))
}

/// Has the node started with the machine from now on.
pub fn enable(instance: Instance, bundle: &Bundle) -> Result<()> {
    if !has_systemd() {
        return Ok(());
    }
    let (path, text) = (path(instance), unit(instance, &bundle.folder().join(PROGRAM)));
    if fs::read_to_string(&path).ok().as_deref() != Some(&text) {
        fs::write(&path, text).with_context(|| format!("failed to write {}", path.display()))?;
        run(&mut command("systemctl", ["daemon-reload"]))?;
    }
    run(&mut command("systemctl", ["enable", "--quiet", "--now", &name(instance)]))
}

/// Removes the unit. The node is stopped by whoever calls.
pub fn remove(instance: Instance) -> Result<()> {
    let path = path(instance);
    if !has_systemd() || !path.exists() {
        return Ok(());
    }
    run(&mut command("systemctl", ["disable", "--quiet", "--now", &name(instance)]))?;
    fs::remove_file(&path).with_context(|| format!("failed to remove {}", path.display()))?;
    run(&mut command("systemctl", ["daemon-reload"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_starts_and_stops_the_program_of_the_bundle() {
        let unit = unit(Instance::YoiHost, Path::new("/var/lib/yoi-cluster/bundles/1/bin/yoi-host"));
        assert!(unit.contains("\nExecStart=/var/lib/yoi-cluster/bundles/1/bin/yoi-host start --name yoi-host\n"), "{unit}");
        assert!(unit.contains("\nExecStop=/var/lib/yoi-cluster/bundles/1/bin/yoi-host stop --name yoi-host\n"), "{unit}");
    }
}
