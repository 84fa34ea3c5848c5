//! What a machine has and lacks, from what it says of itself. A pure look: nothing here asks it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::show;

/// The oldest kernel that can mount a tree.
const KERNEL: (u32, u32) = (5, 12);
/// KiB that a node with images, bases and trees takes at least.
const ROOM: u64 = 20 << 20;
/// KiB of memory.
const MEMORY: u64 = 2 << 20;
/// What a Kubernetes of one node takes from the packages of its machine: the program, and the packages of Debian and of Fedora that bring it.
const PROGRAMS: [(&str, &str, &str); 10] = [
    ("containerd", "containerd", "containerd"),
    ("runc", "runc", "runc"),
    ("cni-plugins", "containernetworking-plugins", "containernetworking-plugins"),
    ("mkfs.btrfs", "btrfs-progs", "btrfs-progs"),
    ("ip", "iproute2", "iproute"),
    ("iptables", "iptables", "iptables-nft"),
    ("ipset", "ipset", "ipset"),
    ("conntrack", "conntrack", "conntrack-tools"),
    ("nsenter", "util-linux", "util-linux"),
    ("zstd", "zstd", "zstd"),
];
/// Programs of a Kubernetes that is there already.
const KUBERNETES: [&str; 6] = ["k3s", "rke2", "microk8s", "kubelet", "kind", "minikube"];

/// The programs that the script looks for.
pub fn programs() -> String {
    PROGRAMS.iter().map(|(program, ..)| *program).chain(KUBERNETES).collect::<Vec<_>>().join(" ")
}

/// What a machine says of itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Facts(BTreeMap<String, String>);

impl Facts {
    /// Reads the lines of the script. `None` when they are not whole.
    pub fn parse(text: &str) -> Option<Self> {
        let facts: BTreeMap<_, _> = text
            .lines()
            .filter_map(|line| line.trim_end_matches('\r').split_once('='))
            .map(|(name, value)| (name.to_owned(), show::one_line(value.trim())))
            .collect();
        facts.contains_key("end").then_some(Facts(facts))
    }

    fn get(&self, name: &str) -> &str {
        self.0.get(name).map(String::as_str).unwrap_or_default()
    }

    fn has(&self, name: &str) -> bool {
        self.get(name) == "yes"
    }

    fn has_word(&self, name: &str, word: &str) -> bool {
        self.get(name).split([' ', ',']).any(|found| found == word)
    }

    /// As `uname -m` says it.
    pub fn machine(&self) -> &str {
        self.get("machine")
    }

    /// What makes root of this person there without a question: nothing, or `sudo`.
    pub fn root(&self) -> Option<&'static str> {
        match (self.get("uid"), self.get("sudo")) {
            ("0", _) => Some(""),
            (_, "yes") => Some("sudo"),
            _ => None,
        }
    }

    /// Name and version of its system, for a list.
    pub fn system(&self) -> String {
        let os = self.get("os").trim();
        let os = if os.is_empty() { self.get("system") } else { os };
        format!("{os}, {}, {} {}", self.get("machine"), self.get("system"), self.get("kernel"))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    Ok,
    /// It works without, and less well.
    Note,
    Missing,
}

impl State {
    pub fn word(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::Note => "note",
            State::Missing => "missing",
        }
    }
}

/// One thing that a machine has or lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    pub what: &'static str,
    pub state: State,
    pub message: String,
    /// What is typed on that machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

impl Finding {
    fn new(what: &'static str, state: State, message: impl Into<String>) -> Self {
        Finding { what, state, message: message.into(), command: None }
    }

    fn with_command(self, command: Option<String>) -> Self {
        Finding { command, ..self }
    }
}

/// What a machine has and lacks for a Kubernetes of its own with Yoi on it.
pub fn findings(facts: &Facts) -> Vec<Finding> {
    if facts.get("system") != "Linux" {
        let system = facts.get("system");
        let message = format!("it is {}, and nodes are Linux", if system.is_empty() { "no system that is known" } else { system });
        let command = (system == "Darwin").then(|| "brew install lima && limactl start --name yoi template://debian-12".to_owned());
        return vec![Finding::new("system", State::Missing, message).with_command(command)];
    }
    vec![machine(facts), kernel(facts), root(facts), cgroups(facts), disk(facts), room(facts), memory(facts), frame(facts), packages(facts)]
}

fn sudo(facts: &Facts, words: &str) -> String {
    if facts.get("uid") == "0" { words.to_owned() } else { format!("sudo {words}") }
}

/// A command that installs packages: of Debian, or of Fedora.
fn install(facts: &Facts, debian: &str, fedora: &str) -> Option<String> {
    if facts.has("manager.apt-get") {
        return Some(sudo(facts, &format!("apt-get install --no-install-recommends {debian}")));
    }
    facts.has("manager.dnf").then(|| sudo(facts, &format!("dnf install {fedora}")))
}

fn machine(facts: &Facts) -> Finding {
    let machine = facts.get("machine");
    let is_known = ["x86_64", "aarch64"].contains(&machine);
    let rest = if is_known { "" } else { ", and there are images for x86_64 and aarch64" };
    Finding::new("machine", if is_known { State::Ok } else { State::Missing }, format!("{machine}{rest}"))
}

fn kernel(facts: &Facts) -> Finding {
    let release = facts.get("kernel");
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse::<u32>().ok());
    let version = numbers.next().flatten().zip(numbers.next().flatten());
    if version.is_some_and(|version| version >= KERNEL) {
        return Finding::new("kernel", State::Ok, format!("Linux {release}"));
    }
    let message = format!("Linux {release}, and trees are mounted by {}.{} or newer", KERNEL.0, KERNEL.1);
    let package = if facts.get("machine") == "aarch64" { "linux-image-arm64" } else { "linux-image-amd64" };
    Finding::new("kernel", State::Missing, message).with_command(install(facts, package, "kernel"))
}

fn root(facts: &Facts) -> Finding {
    let found = |state, message: &str| Finding::new("root", state, message);
    match (facts.get("uid"), facts.get("sudo")) {
        ("0", _) => found(State::Ok, "this person is root"),
        (_, "yes") => found(State::Ok, "sudo asks for no password"),
        (_, "asks") => found(State::Note, "sudo is there, and asks for a password"),
        _ => found(State::Missing, "a node needs root, and there is no sudo").with_command(
            Some("su -c 'apt-get install sudo && usermod -aG sudo '\"$USER\"".to_owned()).filter(|_| facts.has("manager.apt-get")),
        ),
    }
}

fn cgroups(facts: &Facts) -> Finding {
    if facts.get("cgroup") == "cgroup2fs" {
        return Finding::new("cgroups", State::Ok, "version 2");
    }
    if facts.has("cgroup.v1") {
        return Finding::new("cgroups", State::Note, "version 1, which Kubernetes will leave behind one day");
    }
    let message = "neither version 2 nor version 1 with cpu and memory is at /sys/fs/cgroup: the kernel's line needs systemd.unified_cgroup_hierarchy=1, and a reboot";
    Finding::new("cgroups", State::Missing, message)
}

/// What trees are made by.
fn disk(facts: &Facts) -> Finding {
    let disk = facts.get("disk");
    let offers = |name: &str| facts.has_word("filesystems", name) || facts.has(&format!("module.{name}"));
    match disk {
        "btrfs" | "zfs" => Finding::new("trees", State::Ok, format!("/var/lib is on {disk}: snapshots")),
        _ if offers("btrfs") => Finding::new(
            "trees",
            State::Ok,
            format!("/var/lib is on {disk}; the kernel has Btrfs, so a file on it can hold trees: snapshots"),
        ),
        _ if offers("overlay") => {
            Finding::new("trees", State::Note, format!("/var/lib is on {disk}, and the kernel has no Btrfs: overlays"))
        }
        _ => Finding::new("trees", State::Missing, format!("/var/lib is on {disk}, and the kernel has neither Btrfs nor overlays")),
    }
}

fn room(facts: &Facts) -> Finding {
    if facts.has("node") {
        return Finding::new("room", State::Ok, "a node of Yoi is there, and has its room");
    }
    // `Filesystem 1024-blocks Used Available Capacity Mounted on`.
    let free: Option<u64> = facts.get("room").split_whitespace().nth(3).and_then(|kib| kib.parse().ok());
    let (state, rest) = at_least(free, ROOM);
    Finding::new("room", state, format!("{} free at /var/lib{rest}", free.map_or_else(|| "nobody knows what is".to_owned(), kib)))
}

fn memory(facts: &Facts) -> Finding {
    let all: Option<u64> = facts.get("memory").parse().ok();
    let (state, rest) = at_least(all, MEMORY);
    let cpus = facts.get("cpus");
    Finding::new("memory", state, format!("{}, {cpus} processors{rest}", all.map_or_else(|| "not known".to_owned(), kib)))
}

fn at_least(found: Option<u64>, least: u64) -> (State, String) {
    match found {
        Some(found) if found >= least => (State::Ok, String::new()),
        Some(_) => (State::Missing, format!(", and a node needs {}", kib(least))),
        None => (State::Note, format!("; a node needs {}", kib(least))),
    }
}

fn kib(count: u64) -> String {
    show::bytes(count.saturating_mul(1024))
}

fn frame(facts: &Facts) -> Finding {
    if facts.has_word("lsm", "landlock") {
        return Finding::new("landlock", State::Ok, "programs of agents get a frame");
    }
    Finding::new(
        "landlock",
        State::Note,
        "the kernel does not say that it has Landlock, without which programs of agents get no frame: its line needs lsm=landlock,...",
    )
}

/// With a Kubernetes of its own a machine has them.
fn packages(facts: &Facts) -> Finding {
    let there: Vec<&str> = KUBERNETES.into_iter().filter(|name| facts.has(&format!("program.{name}"))).collect();
    if !there.is_empty() {
        let message = format!("{} is there: install the charts on that, with its kubeconfig", there.join(", "));
        return Finding::new("kubernetes", State::Ok, message);
    }
    let missing: Vec<_> = PROGRAMS.into_iter().filter(|(program, ..)| !facts.has(&format!("program.{program}"))).collect();
    if missing.is_empty() {
        return Finding::new("packages", State::Ok, "all that a Kubernetes of one node takes from the machine");
    }
    let of =
        |column: fn(&(&'static str, &'static str, &'static str)) -> &'static str| missing.iter().map(column).collect::<Vec<_>>().join(" ");
    let message = format!("a Kubernetes of one node takes from the machine: {}", of(|(program, ..)| program));
    Finding::new("packages", State::Missing, message).with_command(install(facts, &of(|(_, debian, _)| debian), &of(|(.., fedora)| fedora)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Vec<(&'static str, String)> {
        let mut facts: Vec<(&str, String)> = [
            ("system", "Linux"),
            ("machine", "x86_64"),
            ("kernel", "6.1.0-18-amd64"),
            ("os", "debian 12"),
            ("uid", "1000"),
            ("sudo", "yes"),
            ("cgroup", "cgroup2fs"),
            ("disk", "ext2/ext3"),
            ("room", "/dev/vda1 61664044 9000000 52664044 15% /"),
            ("memory", "8000000"),
            ("cpus", "4"),
            ("filesystems", "nodev sysfs nodev overlay ext4"),
            ("module.btrfs", "yes"),
            ("lsm", "lockdown,capability,landlock,yama"),
            ("manager.apt-get", "yes"),
        ]
        .map(|(name, value)| (name, value.to_owned()))
        .into();
        facts.extend(PROGRAMS.map(|(program, ..)| (Box::leak(format!("program.{program}").into_boxed_str()) as &str, "yes".to_owned())));
        facts
    }

    fn facts(facts: &[(&str, String)]) -> Facts {
        let lines: String = facts.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
        Facts::parse(&(lines + "end=yes\n")).unwrap()
    }

    #[test]
    fn a_machine_that_has_all_lacks_nothing_and_half_an_answer_is_none() {
        let good = facts(&good());
        let found = findings(&good);
        assert!(found.iter().all(|finding| finding.state == State::Ok), "{found:?}");
        assert_eq!(good.system(), "debian 12, x86_64, Linux 6.1.0-18-amd64");
        assert_eq!(Facts::parse("system=Linux\n"), None);
    }

    #[test]
    fn each_thing_that_a_machine_lacks_is_named_with_its_command() {
        for (name, value, what, state, words, command) in [
            ("machine", "riscv64", "machine", State::Missing, "riscv64", None),
            (
                "kernel",
                "5.10.0-28-arm64",
                "kernel",
                State::Missing,
                "5.12 or newer",
                Some("sudo apt-get install --no-install-recommends linux-image-amd64"),
            ),
            ("kernel", "", "kernel", State::Missing, "5.12", Some("linux-image-amd64")),
            ("sudo", "no", "root", State::Missing, "no sudo", Some("su -c")),
            ("sudo", "asks", "root", State::Note, "asks for a password", None),
            ("cgroup.v1", "yes", "cgroups", State::Ok, "version 2", None),
            ("node", "yes", "room", State::Ok, "has its room", None),
            ("cgroup", "tmpfs", "cgroups", State::Missing, "systemd.unified_cgroup_hierarchy=1", None),
            ("disk", "btrfs", "trees", State::Ok, "snapshots", None),
            ("module.btrfs", "no", "trees", State::Note, "overlays", None),
            ("room", "/dev/vda1 61664044 9000000 1000 99% /", "room", State::Missing, "a node needs 20", None),
            ("room", "", "room", State::Note, "a node needs 20", None),
            ("memory", "1000", "memory", State::Missing, "a node needs 2", None),
            ("lsm", "lockdown,capability", "landlock", State::Note, "no frame", None),
            (
                "program.conntrack",
                "",
                "packages",
                State::Missing,
                "conntrack",
                Some("sudo apt-get install --no-install-recommends conntrack"),
            ),
            ("program.k3s", "yes", "kubernetes", State::Ok, "k3s is there", None),
            ("system", "Darwin", "system", State::Missing, "it is Darwin", Some("limactl start")),
        ] {
            let mut changed = good();
            changed.retain(|(known, _)| *known != name);
            changed.push((name, value.to_owned()));
            let found = findings(&facts(&changed));
            let finding = found.iter().find(|finding| finding.what == what).unwrap_or_else(|| panic!("{name}: {found:?}"));
            assert!(finding.state == state && finding.message.contains(words), "{name}: {finding:?}");
            match (command, &finding.command) {
                (Some(wanted), Some(command)) => assert!(command.contains(wanted), "{name}: {command}"),
                (wanted, command) => assert!(wanted.is_none() && command.is_none(), "{name}: {finding:?}"),
            }
        }
        let mut fedora = good();
        fedora.retain(|(name, _)| !["manager.apt-get", "program.conntrack", "uid"].contains(name));
        fedora.extend([("manager.dnf", "yes".to_owned()), ("uid", "0".to_owned())]);
        let found = findings(&facts(&fedora));
        assert_eq!(found.last().unwrap().command.as_deref(), Some("dnf install conntrack-tools"));
    }
}
