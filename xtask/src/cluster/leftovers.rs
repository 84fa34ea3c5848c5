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
        for place in
            places.into_iter().chain(["/var/log", "/var/log/pods", "/var/log/containers", "/etc", "/etc/cni", "/opt", "/usr/libexec"])
        {
            for entry in fs::read_dir(place).into_iter().flatten() {
                found.insert(format!("file {}", entry?.path().display()));
            }
        }
        found.extend(processes()?);
        Ok(Self(found))
    }

    /// What is here and was not there, but for what another instance may have changed meanwhile.
    pub fn beyond<'a>(&'a self, before: &'a Self, instance: Instance) -> Vec<&'a str> {
        let others: Vec<_> = Instance::ALL.into_iter().filter(|other| *other != instance).collect();
        let foreign = |entry: &str| others.iter().any(|other| speaks_of(entry, *other));
        self.0.difference(&before.0).map(String::as_str).filter(|entry| !foreign(entry)).collect()
    }
}

fn speaks_of(entry: &str, instance: Instance) -> bool {
    let mut marks = vec![instance.mark(), instance.host_link(), instance.state().display().to_string(), instance.whole_range()];
    marks.extend(cgroup::all(instance));
    let ends = |rest: &str| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '-');
    marks.iter().any(|mark| entry.match_indices(mark.as_str()).any(|(at, _)| ends(&entry[at + mark.len()..])))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn inventory(entries: &[&str]) -> Inventory {
        Inventory(entries.iter().map(|entry| (*entry).to_owned()).collect())
    }

    #[test]
    fn a_planted_leftover_is_named() {
        let before = inventory(&["file /var/lib/dpkg"]);
        let after = inventory(&["file /var/lib/dpkg", "loop device loop3 on /var/lib/yoi-cluster/yoi-test/yoi/pool.img"]);
        assert_eq!(after.beyond(&before, Instance::YoiTest), ["loop device loop3 on /var/lib/yoi-cluster/yoi-test/yoi/pool.img"]);
    }

    #[test]
    fn the_other_cluster_may_come_and_go_meanwhile() {
        let after = inventory(&[
            "file /var/lib/yoi-cluster/yoi",
            "firewall filter -A FORWARD -i yoi0 -m comment --comment yoi-cluster:yoi -j ACCEPT",
            "firewall filter -A FORWARD -i yoi-test0 -m comment --comment yoi-cluster:yoi-test -j ACCEPT",
        ]);
        let left = after.beyond(&Inventory::default(), Instance::YoiTest);
        assert_eq!(left, ["firewall filter -A FORWARD -i yoi-test0 -m comment --comment yoi-cluster:yoi-test -j ACCEPT"]);
    }
}
