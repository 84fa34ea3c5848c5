//! The host's side of the node's network: one link, one route, three firewall rules.

use super::ip;
use crate::command::{capture, command, run, wait};
use crate::instance::{Instance, ROOT};
use anyhow::Result;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const FORWARD: &str = "/proc/sys/net/ipv4/ip_forward";

/// Pushes the node's end of the link into the namespaces of process `inner`.
pub fn connect(instance: Instance, inner: u32) -> Result<()> {
    let link = instance.host_link();
    ip(&format!("link add {link} type veth peer name eth0 netns {inner}"))?;
    ip(&format!("address add {}/30 dev {link}", instance.host_address()))?;
    ip(&format!("link set {link} up"))?;
    ip(&format!("route add {} via {} dev {link}", instance.whole_range(), instance.node_address()))?;
    if fs::read_to_string(FORWARD)?.trim() == "0" {
        fs::write(was_off(), "")?;
        fs::write(FORWARD, "1")?;
    }
    for rule in rules(instance) {
        run(&mut iptables("-I", &rule))?;
    }
    Ok(())
}

/// What runs inside, before any part of the node.
pub fn node_setup(instance: Instance) -> Vec<Vec<String>> {
    let lines = [
        "ip link set lo up".to_owned(),
        format!("ip address add {}/30 dev eth0", instance.node_address()),
        "ip link set eth0 up".to_owned(),
        format!("ip route add default via {}", instance.host_address()),
    ];
    let mut setup: Vec<Vec<String>> = lines.iter().map(|line| line.split(' ').map(str::to_owned).collect()).collect();
    setup.push(["sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"].map(str::to_owned).to_vec());
    setup
}

/// Idempotent. Removes only what has this instance's mark or name.
pub fn remove(instance: Instance) -> Result<()> {
    for rule in rules(instance) {
        while iptables("-C", &rule).output().is_ok_and(|output| output.status.success()) {
            run(&mut iptables("-D", &rule))?;
        }
    }
    // The link also goes with the node's namespace, in the kernel's own time, which may be between these two lines.
    let link = Path::new("/sys/class/net").join(instance.host_link());
    if link.exists() && ip(&format!("link delete {}", instance.host_link())).is_err() {
        wait("the end of the node's link", Duration::from_secs(10), || Ok((!link.exists()).then_some(())))?;
    }
    let ours = Instance::ALL.into_iter().any(|other| Path::new("/sys/class/net").join(other.host_link()).exists());
    if was_off().exists() && !ours {
        // Somebody else's bridge (Docker, libvirt) may have come to need forwarding.
        if capture(&mut command("ip", ["-o", "link", "show", "type", "bridge"]))?.is_empty() {
            fs::write(FORWARD, "0")?;
        }
        fs::remove_file(was_off())?;
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
    let (link, range) = (instance.host_link(), instance.whole_range());
    let rule = |table, chain, line: String| {
        let end = format!("{line} -m comment --comment {} -j {}", instance.mark(), if table == "nat" { "MASQUERADE" } else { "ACCEPT" });
        Rule { table, chain, words: end.split(' ').map(str::to_owned).collect() }
    };
    [
        rule("nat", "POSTROUTING", format!("-s {range} ! -o {link}")),
        rule("filter", "FORWARD", format!("-i {link}")),
        rule("filter", "FORWARD", format!("-o {link}")),
    ]
}

fn iptables(action: &str, rule: &Rule) -> std::process::Command {
    let mut iptables = command("iptables", ["-w", "-t", rule.table, action, rule.chain]);
    iptables.args(&rule.words);
    iptables
}
