//! What a node could leave behind, listed before and after, so that a difference is a name and not a feeling.

use super::cgroup;
use crate::command::{capture, command, quiet, wait};
use crate::instance::{Instance, ROOT};
use anyhow::Result;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Inventory(BTreeSet<String>);

impl Inventory {
    pub fn take() -> Result<Self> {
        let mut found = BTreeSet::new();
        for line in fs::read_to_string("/proc/self/mountinfo")?.lines() {
            found.insert(format!("mount {}", mount_point(line)));
        }
        for (device, file) in loops() {
            found.insert(format!("loop device {device} on {file}"));
        }
        for entry in fs::read_dir("/sys/class/net")? {
            found.insert(format!("network link {}", entry?.file_name().to_string_lossy()));
        }
        for line in capture(&mut command("ip", ["-o", "route", "show", "table", "all"]))?.lines() {
            found.insert(format!("route {line}"));
        }
        for table in ["filter", "nat", "mangle", "raw"] {
            let rules = capture(&mut command("iptables", ["-w", "-t", table, "-S"])).unwrap_or_default();
            found.extend(rules.lines().map(|rule| format!("firewall {table} {rule}")));
        }
        found.insert(format!("ip_forward {}", fs::read_to_string("/proc/sys/net/ipv4/ip_forward")?.trim()));
        for instance in Instance::ALL {
            found.extend(cgroup::all(instance).into_iter().map(|path| format!("cgroup {path}")));
        }
        let places = ["/var/lib", ROOT, "/var/lib/kubelet", "/var/lib/cni", "/var/lib/containerd", "/run", "/run/containerd", "/run/netns"];
        for place in places.into_iter().chain(["/var/log", "/var/log/pods", "/var/log/containers", "/etc", "/etc/cni", "/opt", "/usr/libexec"]) {
            for entry in fs::read_dir(place).into_iter().flatten() {
                found.insert(format!("file {}", entry?.path().display()));
            }
        }
        found.extend(processes()?);
        Ok(Self(found))
    }

    /// What is here and was not there.
    pub fn beyond<'a>(&'a self, before: &'a Self) -> Vec<&'a str> {
        self.0.difference(&before.0).map(String::as_str).collect()
    }
}

/// Processes that an instance's folder shows in: its supervisor, its parts, its containers' shims.
fn processes() -> Result<Vec<String>> {
    let mut found = vec![];
    for entry in fs::read_dir("/proc")?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if name.parse::<u32>().is_ok() && line.contains(&format!("{ROOT}/")) {
            found.push(format!("process {name} {line}"));
        }
    }
    Ok(found)
}

pub fn mounts_below(folder: &Path) -> Result<Vec<String>> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    Ok(mounts.lines().map(mount_point).filter(|point| Path::new(point).starts_with(folder)).collect())
}

fn mount_point(line: &str) -> String {
    line.split(' ').nth(4).unwrap_or_default().to_owned()
}

fn loops() -> Vec<(String, String)> {
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let file = |path: PathBuf| fs::read_to_string(path.join("loop/backing_file")).ok();
    devices.filter_map(|entry| Some((entry.file_name().to_string_lossy().into_owned(), file(entry.path())?.trim().to_owned()))).collect()
}

/// Loop devices on files below the instance's folder. Their file systems went with the mount namespace, in the kernel's own time.
pub fn detach_loops(instance: Instance) -> Result<()> {
    let own = || loops().into_iter().filter(|(_, file)| file.starts_with(&instance.path(""))).collect::<Vec<_>>();
    wait("the last loop device detached", Duration::from_secs(30), || {
        for (device, _) in own() {
            quiet(&mut command("losetup", ["--detach", &format!("/dev/{device}")]))?;
        }
        Ok(own().is_empty().then_some(()))
    })
}
