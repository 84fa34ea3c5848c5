use crate::bench::Benchmark;
use crate::cluster::{DataRoot, Shape};
use crate::images::Profile;
use crate::instance::{Instance, Node};
use crate::testing::Part;
use clap::{Parser, Subcommand};
use std::path::PathBuf;

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about = "Yoi from a clone: a local Kubernetes, images, charts, checks")]
pub struct Args {
    #[command(subcommand)]
    pub action: XtaskCommand,
}

#[derive(Subcommand)]
pub enum XtaskCommand {
    /// A real Kubernetes on this machine with Yoi installed and an example fleet at work
    Up {
        /// Install into the cluster of this kubeconfig context instead of a local one
        #[arg(long, conflicts_with = "name")]
        context: Option<String>,
        /// Push the images there, and let that cluster pull them: host and path, such as registry.example/team/yoi
        #[arg(long, requires = "context", value_name = "HOST/PATH")]
        registry: Option<String>,
        /// The registry speaks plain HTTP
        #[arg(long, requires = "registry")]
        plain_http: bool,
        /// How the programs are compiled: `release` by default with --registry, else `dev`
        #[arg(long, requires = "context", value_enum)]
        profile: Option<Profile>,
        /// A value of the chart yoi-operator, as `helm --set` takes it
        #[arg(long, requires = "context", value_name = "KEY=VALUE")]
        set: Vec<String>,
        #[arg(long, value_enum, default_value_t)]
        name: Instance,
        #[command(flatten)]
        shape: Shape,
    },
    /// Remove the local cluster and everything it put on this machine
    Down {
        #[arg(long, value_enum, default_value_t)]
        name: Instance,
    },
    /// The local cluster alone, without Yoi
    Cluster {
        #[command(subcommand)]
        action: ClusterCommand,
    },
    /// Build every image and import the changed ones into the local cluster
    Images {
        #[arg(long, value_enum, default_value_t)]
        name: Instance,
        /// Build the images of the programs that agents can be instead, from npm: one of each and one with all. They are not published
        #[arg(long)]
        programs: bool,
    },
    /// Make one file with all that a machine without cargo and Go gets to become a node, for `kubectl yoi host up`
    Bundle {
        /// How the programs are compiled
        #[arg(long, value_enum, default_value = "release")]
        profile: Profile,
        /// The file; bundle/yoi-VERSION-MACHINE.tar.zst in the user's cache when absent, where the plugin looks for it
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Write the generated files: CRDs for kubectl and for the chart, the page of reasons
    Generate {
        /// Write nothing; fail when a file differs from what would be written
        #[arg(long)]
        check: bool,
    },
    /// Run a line of shell in Linux 6.1 with OpenZFS 2.1, in an emulator; the first time takes about 7 minutes
    Guest {
        /// A file that is copied into the folder that the line runs in
        #[arg(long = "bring", value_name = "FILE")]
        files: Vec<PathBuf>,
        /// A disk of the guest, /dev/vda and on; each write to it is logged in FILE.log, as dm-log-writes does
        #[arg(long = "disk", value_name = "FILE")]
        disks: Vec<PathBuf>,
        /// End the guest after so many seconds
        #[arg(long, default_value_t = 600)]
        limit: u64,
        #[arg(trailing_var_arg = true, required = true)]
        command: Vec<String>,
    },
    /// Check which crate imports which
    Law,
    /// Measure, and write the figures and pictures of docs/benchmarks.md: release builds on a cluster of their own
    Bench {
        /// Leave that cluster running; only with cluster or a part of it
        #[arg(long)]
        keep: bool,
        /// Only these; all by default
        #[arg(value_enum)]
        wanted: Vec<Benchmark>,
    },
    /// Whether the harness of kills finds the faults of e2e/planted, each built and rolled out on the cluster yoi-faults
    Planted {
        /// Only these
        names: Vec<String>,
    },
    /// What must hold at each landing: format, lints, laws, unit tests, and tests on a real cluster of three nodes; about 25 minutes
    Test {
        /// Every test once: also what kills, removes, measures or takes long; about an hour and a half
        #[arg(long)]
        all: bool,
        /// Print the table of tests: which run each is in, where, what it took last, its locks and crates
        #[arg(long)]
        list: bool,
        /// Leave the cluster running, and use the one that is there: the next run of a test starts in seconds
        #[arg(long)]
        keep: bool,
        /// Only what the changes since the last common commit with this revision can break, what is not committed included
        #[arg(long, value_name = "REV", conflicts_with_all = ["filters", "all"])]
        since: Option<String>,
        /// Write what the tests took into xtask/tests.txt
        #[arg(long)]
        record: bool,
        /// Only the tests whose names contain one of these, whichever run they are in
        filters: Vec<String>,
    },
    /// What looks long for rare faults: rounds of kills by the hundred, planted faults, cuts of power. Hours; all parts by default
    Soak {
        #[arg(value_enum)]
        parts: Vec<Part>,
    },
}

#[derive(Subcommand)]
pub enum ClusterCommand {
    /// Start it, or repair or reuse what is there
    Up {
        #[arg(long, value_enum, default_value_t)]
        name: Instance,
        #[command(flatten)]
        shape: Shape,
    },
    /// Stop it and leave nothing behind
    Down {
        #[arg(long, value_enum, default_value_t)]
        name: Instance,
    },
    /// What runs, and where its files are
    Status {
        #[arg(long, value_enum, default_value_t)]
        name: Instance,
    },
    /// End a node's first process and start it again, like a reboot: mounts and processes are gone, what is on disk stays
    Reboot {
        #[arg(long, value_enum, default_value_t)]
        name: Instance,
        /// Another node than the first, by the name that Kubernetes shows
        #[arg(long, value_parser = node)]
        node: Option<Node>,
    },
    /// Run a command inside a node: its processes, mounts and network
    Exec {
        #[arg(long, value_enum, default_value_t)]
        name: Instance,
        /// Another node than the first, by the name that Kubernetes shows
        #[arg(long, value_parser = node)]
        node: Option<Node>,
        #[arg(trailing_var_arg = true, required = true)]
        command: Vec<String>,
    },
    /// One node, by the name that Kubernetes shows
    Node {
        #[command(subcommand)]
        action: NodeCommand,
    },
}

#[derive(Subcommand)]
pub enum NodeCommand {
    /// Start one more node, and wait until it is Ready
    Add {
        #[arg(long, value_enum, default_value_t)]
        name: Instance,
        /// What its data root is on [default: folder]
        #[arg(long, value_enum)]
        data_root: Option<DataRoot>,
    },
    /// Delete its Node object, and all of it on this machine
    Remove {
        #[arg(value_parser = node)]
        node: Node,
    },
    /// End its Pods and processes, as when a machine is switched off
    Stop {
        #[arg(value_parser = node)]
        node: Node,
    },
    /// Switch on a node that is off: it starts from its disk
    Start {
        #[arg(value_parser = node)]
        node: Node,
    },
    /// Cut its link: its processes run on and reach nothing but each other
    Lose {
        #[arg(value_parser = node)]
        node: Node,
    },
    /// Join the link again that `lose` cut
    Restore {
        #[arg(value_parser = node)]
        node: Node,
    },
    /// Taint it, or remove the taint
    Taint {
        #[arg(value_parser = node)]
        node: Node,
        /// As kubectl takes it
        #[arg(default_value = "maintenance=true:NoSchedule", value_name = "KEY=VALUE:EFFECT")]
        taint: String,
        #[arg(long)]
        remove: bool,
    },
}

fn node(name: &str) -> Result<Node, String> {
    Node::named(name)
        .ok_or_else(|| "no local cluster has a node of this name; they are called yoi-node, yoi-node-2, yoi-test-node-2 and so on".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_benchmark_that_there_is_not_is_refused_with_the_names_of_those_there_are() {
        let refused = Args::try_parse_from(["cargo xtask", "bench", "nonsense"]).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(
            refused.contains(
                "workspace, providers, zfs, providers-zfs, refresh, capture, push, session, tools, assets, runtime, programs, cluster, agents, warm, first-word, rest, attach, claims, loans, messages, objects, claims-at-rate"
            ),
            "{refused}"
        );
    }

    #[test]
    fn a_node_says_by_its_name_to_which_cluster_it_belongs() {
        let parsed = Args::try_parse_from(["cargo xtask", "cluster", "node", "stop", "yoi-test-node-2"]).unwrap();
        let XtaskCommand::Cluster { action: ClusterCommand::Node { action: NodeCommand::Stop { node } } } = parsed.action else {
            panic!("another command")
        };
        assert_eq!((node.instance, node.is_first()), (Instance::YoiTest, false));
        let refused = Args::try_parse_from(["cargo xtask", "cluster", "node", "stop", "kind-worker"]).err().map(|e| e.to_string());
        assert!(refused.is_some_and(|text| text.contains("yoi-node-2")));
    }
}
