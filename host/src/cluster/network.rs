//! The host's side of the cluster's network. Each node has a link to the machine, which routes between them: three firewall rules for the
//! whole instance, and for each node a link and the route of its Pods.

use super::ip;
use crate::command::{capture, command, run, wait};
use crate::instance::{Instance, Node, ROOT};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const FORWARD: &str = "/proc/sys/net/ipv4/ip_forward";
const LINKS: &str = "/sys/class/net";

/// What all nodes share. Idempotent.
pub fn prepare(instance: Instance) -> Result<()> {
    if let Some(double) = instance.double()
        && Node::possible(double).any(|node| Path::new(LINKS).join(node.host_link()).exists())
    {
        bail!("the cluster {double} runs on this machine, and has the addresses that {instance} would have: remove it first");
    }
    // What is sent to a node that is off or lost gets no answer, and does not leave the machine by another way.
    ip(&format!("route replace blackhole {}", instance.whole_range()))?;
    if fs::read_to_string(FORWARD)?.trim() == "0" {
        fs::write(was_off(), "")?;
        fs::write(FORWARD, "1")?;
    }
    for rule in rules(instance) {
        if !rule.exists() {
            run(&mut rule.iptables("-I"))?;
        }
    }
    Ok(())
}

/// Pushes the node's end of the link into the namespaces of process `inner`.
pub fn connect(node: Node, inner: u32) -> Result<()> {
    let link = node.host_link();
    ip(&format!("link add {link} type veth peer name eth0 netns {inner}"))?;
    ip(&format!("address add {}/30 dev {link}", node.host_address()))?;
    join(node)
}

/// The link carries nothing any more, as when a cable is pulled. The node's processes run on.
pub fn cut(node: Node) -> Result<()> {
    ip(&format!("link set {} down", node.host_link()))
}

/// The link carries again. Idempotent.
pub fn join(node: Node) -> Result<()> {
    let (link, address) = (node.host_link(), node.address());
    ip(&format!("link set {link} up"))?;
    // The kernel dropped the routes with the link.
    ip(&format!("route replace {} via {address} dev {link}", node.pod_range()))?;
    if node.is_first() {
        ip(&format!("route replace {} via {address} dev {link}", node.instance.service_range()))?;
    }
    Ok(())
}

/// Whether the node's link is up on the machine.
pub fn is_joined(node: Node) -> bool {
    let flags = fs::read_to_string(Path::new(LINKS).join(node.host_link()).join("flags")).unwrap_or_default();
    let flags = flags.trim().strip_prefix("0x").and_then(|hex| u32::from_str_radix(hex, 16).ok());
    flags.is_some_and(|flags| flags & 1 != 0)
}

/// What runs inside, before any part of the node.
pub fn node_setup(node: Node) -> Vec<Vec<String>> {
    let lines = [
        "ip link set lo up".to_owned(),
        format!("ip address add {}/30 dev eth0", node.address()),
        "ip link set eth0 up".to_owned(),
        format!("ip route add default via {}", node.host_address()),
        // A Pod that is gone has no route of its own any more: the default route would lead to the machine, and from there back.
        format!("ip route add unreachable {}", node.pod_range()),
    ];
    let mut setup: Vec<Vec<String>> = lines.iter().map(|line| line.split(' ').map(str::to_owned).collect()).collect();
    setup.push(["sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"].map(str::to_owned).to_vec());
    setup
}

/// Removes the node's link, and with it the routes. Idempotent.
pub fn disconnect(node: Node) -> Result<()> {
    // The link also goes with the node's namespace, in the kernel's own time, which may be between these two lines.
    let link = Path::new(LINKS).join(node.host_link());
    if link.exists() && ip(&format!("link delete {}", node.host_link())).is_err() {
        wait("the end of the node's link", Duration::from_secs(10), || Ok((!link.exists()).then_some(())))?;
    }
    Ok(())
}

/// Removes what has this instance's mark or a name of its nodes, and nothing else. Idempotent.
pub fn remove(instance: Instance) -> Result<()> {
    for (table, chain) in [("nat", "POSTROUTING"), ("filter", "FORWARD")] {
        for rule in marked(&capture(&mut command("iptables", ["-w", "-t", table, "-S", chain]))?, &instance.mark()) {
            run(command("iptables", ["-w", "-t", table, "-D"]).args(rule))?;
        }
    }
    Node::possible(instance).try_for_each(disconnect)?;
    let hole = ["route", "show", "type", "blackhole", "exact", &instance.whole_range()];
    if !capture(&mut command("ip", hole))?.trim().is_empty() {
        ip(&format!("route delete blackhole {}", instance.whole_range()))?;
    }
    let ours = Instance::ALL.into_iter().flat_map(Node::possible).any(|node| Path::new(LINKS).join(node.host_link()).exists());
    if was_off().exists() && !ours {
        // Somebody else's bridge (Docker, libvirt) may have come to need forwarding.
        if capture(&mut command("ip", ["-o", "link", "show", "type", "bridge"]))?.is_empty() {
            fs::write(FORWARD, "0")?;
        }
        fs::remove_file(was_off()).context("failed to remove the mark of the forwarding")?;
    }
    Ok(())
}

/// Of all instances: whoever is the first turns forwarding on, and whoever is the last turns it off.
fn was_off() -> PathBuf {
    Path::new(ROOT).join("ip-forward-was-off")
}

struct Rule {
    table: &'static str,
    chain: &'static str,
    words: Vec<String>,
}

fn rules(instance: Instance) -> [Rule; 3] {
    let range = instance.whole_range();
    let rule = |table, chain, line: String| {
        let end = format!("{line} -m comment --comment {} -j {}", instance.mark(), if table == "nat" { "MASQUERADE" } else { "ACCEPT" });
        Rule { table, chain, words: end.split(' ').map(str::to_owned).collect() }
    };
    [
        rule("nat", "POSTROUTING", format!("-s {range} ! -d {range}")),
        rule("filter", "FORWARD", format!("-s {range}")),
        rule("filter", "FORWARD", format!("-d {range}")),
    ]
}

/// The rules with this comment, in the output of `iptables -S`: chain and words of each.
fn marked<'a>(listed: &'a str, mark: &str) -> Vec<Vec<&'a str>> {
    let rules = listed.lines().filter_map(|line| line.strip_prefix("-A "));
    let rules = rules.map(|rule| rule.split_whitespace().map(|word| word.trim_matches('"')).collect::<Vec<_>>());
    rules.filter(|words| words.contains(&mark)).collect()
}

impl Rule {
    fn iptables(&self, action: &str) -> std::process::Command {
        let mut iptables = command("iptables", ["-w", "-t", self.table, action, self.chain]);
        iptables.args(&self.words);
        iptables
    }

    fn exists(&self) -> bool {
        self.iptables("-C").output().is_ok_and(|output| output.status.success())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_rules_with_the_instances_own_mark_are_removed() {
        let listed = "-P FORWARD ACCEPT\n\
            -A FORWARD -i yoi0 -m comment --comment \"yoi-cluster:yoi\" -j ACCEPT\n\
            -A FORWARD -s 198.19.0.0/17 -m comment --comment yoi-cluster:yoi-test -j ACCEPT\n\
            -A FORWARD -i docker0 -j ACCEPT\n";
        assert_eq!(
            marked(listed, "yoi-cluster:yoi"),
            [["FORWARD", "-i", "yoi0", "-m", "comment", "--comment", "yoi-cluster:yoi", "-j", "ACCEPT"]]
        );
    }
}
