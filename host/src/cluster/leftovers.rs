//! What nodes could leave behind on the machine, listed before and after so that what is left has a name.

use super::cgroup;
use crate::command::{self, capture, command, run, wait};
use crate::instance::{Instance, Node, ROOT};
use anyhow::Result;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, Default, PartialEq, Eq)]
pub struct HostInventory(BTreeSet<String>);

impl HostInventory {
    pub fn take() -> Result<Self> {
        let mut found = BTreeSet::new();
        // Other tests of this machine mount and attach below the folder for temporary files; a node never does.
        let passing = |path: &str| Path::new(path).starts_with(std::env::temp_dir());
        for point in fs::read_to_string("/proc/self/mountinfo")?.lines().map(mount_point).filter(|point| !passing(point)) {
            found.insert(format!("mount {point}"));
        }
        for one in loops()? {
            let file = one.file.unwrap_or_default();
            if !passing(&file) {
                found.insert(format!("loop device {} on {file}", one.name));
            }
        }
        for entry in fs::read_dir("/sys/class/net")? {
            found.insert(format!("network link {}", entry?.file_name().to_string_lossy()));
        }
        for line in capture(&mut command("ip", ["-o", "route", "show", "table", "all"]))?.lines() {
            found.insert(format!("route {line}"));
        }
        // Who lacks the program has no rule of ours.
        if let Some(iptables) = command::find_program("iptables") {
            found.extend(firewall(|table| capture(&mut command(&iptables, ["-w", "-t", table, "-S"])))?);
        }
        if let Some(ipset) = command::find_program("ipset") {
            found.extend(capture(&mut command(&ipset, ["list", "-name"]))?.lines().map(|set| format!("ipset {set}")));
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
    pub fn difference<'a>(&'a self, before: &'a Self, instance: Instance) -> Vec<&'a str> {
        let others: Vec<_> = Instance::ALL.into_iter().filter(|other| *other != instance).collect();
        let foreign = |entry: &str| others.iter().any(|other| mentions(entry, *other));
        self.0.difference(&before.0).map(String::as_str).filter(|entry| !foreign(entry)).collect()
    }
}

/// `list`: the rules of a table, one a line. What cannot be read is not empty: nothing would be "left" of rules that nobody saw.
fn firewall(list: impl Fn(&str) -> Result<String>) -> Result<Vec<String>> {
    let mut found = vec![];
    // Ours are in the first two; a kernel may lack the others.
    for (table, ours) in [("filter", true), ("nat", true), ("mangle", false), ("raw", false)] {
        match list(table) {
            Ok(rules) => found.extend(rules.lines().map(|rule| format!("firewall {table} {rule}"))),
            Err(error) if ours => return Err(error),
            Err(_) => {}
        }
    }
    Ok(found)
}

fn mentions(entry: &str, instance: Instance) -> bool {
    let mut marks = vec![instance.mark(), instance.state().display().to_string(), instance.whole_range()];
    marks.extend(Node::possible(instance).flat_map(|node| [node.host_link(), node.pod_range()]));
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

/// An attached loop device. The path of its file is the one that whoever attached it saw, in a container most likely, and useless to us
/// then; device and inode of the file are true everywhere.
#[derive(serde::Deserialize)]
struct Loop {
    name: String,
    #[serde(rename = "back-file")]
    file: Option<String>,
    #[serde(rename = "back-ino")]
    inode: Option<u64>,
}

fn loops() -> Result<Vec<Loop>> {
    #[derive(serde::Deserialize)]
    struct Listed {
        loopdevices: Vec<Loop>,
    }
    let text = capture(&mut command("losetup", ["--list", "--json", "--output", "NAME,BACK-FILE,BACK-INO"]))?;
    // Without any device it prints nothing at all.
    let listed = if text.trim().is_empty() { Listed { loopdevices: vec![] } } else { serde_json::from_str(&text)? };
    Ok(listed.loopdevices)
}

/// Detaches the loop devices on files below the node's folder. Their file systems went with the mount namespace, in the kernel's own time.
pub fn detach_loops(node: Node) -> Result<()> {
    let state = node.folder();
    // Below the first node's folder are those of the others, which may run.
    let others: Vec<_> = Node::possible(node.instance).filter(|other| *other != node && !other.is_first()).map(Node::folder).collect();
    let device = |path: &Path| path.symlink_metadata().map(|about| about.dev());
    wait("the last loop device detached", Duration::from_secs(30), || {
        let attached = loops()?;
        if attached.is_empty() || !state.exists() {
            return Ok(Some(()));
        }
        let mut below = BTreeSet::new();
        inodes(&state, &others, device(&state)?, &mut below);
        let own: Vec<_> = attached.iter().filter(|one| one.inode.is_some_and(|inode| below.contains(&inode))).collect();
        for one in &own {
            // A stranger's file system may use the same number: then the path leads to that file, and not into our folder.
            let stranger = |file: &&Path| !file.starts_with(&state) && file.metadata().is_ok_and(|about| Some(about.ino()) == one.inode);
            let elsewhere = one.file.as_deref().map(Path::new).filter(stranger);
            if elsewhere.is_none() {
                run(&mut command("losetup", ["--detach", &one.name]))?;
            }
        }
        Ok(own.is_empty().then_some(()))
    })
}

/// Inodes of the files large enough to hold a file system, on one device, but for those below `without`.
fn inodes(folder: &Path, without: &[PathBuf], device: u64, found: &mut BTreeSet<u64>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(about) = entry.metadata() else { continue };
        if about.is_dir() && about.dev() == device && !without.contains(&entry.path()) {
            inodes(&entry.path(), without, device, found);
        } else if about.is_file() && about.len() >= 1 << 20 {
            found.insert(about.ino());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inventory(entries: &[&str]) -> HostInventory {
        HostInventory(entries.iter().map(|entry| (*entry).to_owned()).collect())
    }

    #[test]
    fn a_planted_leftover_is_named() {
        let before = inventory(&["file /var/lib/dpkg"]);
        let after = inventory(&["file /var/lib/dpkg", "loop device loop3 on /var/lib/yoi-cluster/yoi-test/yoi/pool.img"]);
        assert_eq!(after.difference(&before, Instance::YoiTest), ["loop device loop3 on /var/lib/yoi-cluster/yoi-test/yoi/pool.img"]);
    }

    #[test]
    fn what_a_further_node_leaves_is_named_as_what_the_first_one_leaves() {
        let left = ["network link yoi-test2", "route 198.19.16.0/21 via 198.19.127.10 dev yoi-test2", "route blackhole 198.19.0.0/17"];
        assert_eq!(inventory(&left).difference(&HostInventory::default(), Instance::YoiTest), left);
    }

    #[test]
    fn a_table_of_ours_that_cannot_be_read_is_not_an_empty_one() {
        let without = |missing: &'static str| {
            firewall(move |table| if table == missing { anyhow::bail!("no {table}") } else { Ok("-P FORWARD DROP\n-A FORWARD".to_owned()) })
        };
        assert_eq!(without("filter").unwrap_err().to_string(), "no filter");
        assert_eq!(without("nat").unwrap_err().to_string(), "no nat");
        let found = without("raw").unwrap();
        assert_eq!(found[..2], ["firewall filter -P FORWARD DROP", "firewall filter -A FORWARD"]);
        assert_eq!(found.len(), 6);
    }

    #[test]
    fn the_other_cluster_may_come_and_go_meanwhile() {
        let after = inventory(&[
            "file /var/lib/yoi-cluster/yoi",
            "firewall filter -A FORWARD -i yoi0 -m comment --comment yoi-cluster:yoi -j ACCEPT",
            "firewall filter -A FORWARD -i yoi-test0 -m comment --comment yoi-cluster:yoi-test -j ACCEPT",
            "network link yoi2",
            "route 198.18.16.0/21 via 198.18.127.10 dev yoi2",
            "route blackhole 198.18.0.0/17",
            "file /var/lib/yoi-cluster/yoi/nodes/3",
        ]);
        let before = HostInventory::default();
        assert_eq!(
            after.difference(&before, Instance::YoiTest),
            ["firewall filter -A FORWARD -i yoi-test0 -m comment --comment yoi-cluster:yoi-test -j ACCEPT"]
        );
    }
}
