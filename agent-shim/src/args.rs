//! The command line. Only this module reads flags and the environment.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use yoi_workspace::{DatasetName, ZfsOptions};

use crate::host_sources::{self, HostSources};

/// The command line of `yoi-agent-shim`.
#[derive(Parser)]
#[command(name = "yoi-agent-shim", version, about = "Makes and mounts the trees of one node")]
pub struct ShimCli {
    /// How logs are spelled.
    #[arg(long, env = "YOI_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text, global = true)]
    pub log_format: LogFormat,
    /// What is logged, as in `info,kube=warn`.
    #[arg(long, env = "RUST_LOG", default_value = "info", global = true)]
    pub log: String,
    /// Which of the two processes to run.
    #[command(subcommand)]
    pub command: ShimCommand,
}

/// The format of log lines on stderr.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// The process to run.
#[derive(Subcommand)]
pub enum ShimCommand {
    /// Reconciles workspaces and answers the kubelet. Needs root's uid and no capability.
    Shim(ShimArgs),
    /// Does the disk work that the shim asks for. Privileged; takes itself off the network.
    Mounter(MounterArgs),
    /// Asks a mounter to do something, and fails if it does not within eight seconds. For a liveness probe.
    CheckMounter(CheckMounterArgs),
}

/// Arguments of the shim.
#[derive(Args, Clone)]
pub struct ShimArgs {
    /// Name of this node.
    #[arg(long, env = "YOI_NODE_NAME")]
    pub node_name: String,
    /// The kubelet's root folder.
    #[arg(long, default_value = "/var/lib/kubelet")]
    pub kubelet_dir: PathBuf,
    /// The mounter's socket.
    #[arg(long, default_value = "/run/yoi/mounter.sock")]
    pub mounter_socket: PathBuf,
    /// The runtime that Pods of this node are given.
    #[arg(long, default_value = "/bin/yoi-runtime")]
    pub runtime_binary: PathBuf,
    /// Folders of nodes that trees may be made from, as JSON: a list of name, path and namespaces.
    #[arg(long, value_parser = host_sources::parse, default_value = "[]")]
    pub host_sources: HostSources,
    /// Where /healthz, /readyz and /metrics are served.
    #[arg(long, default_value = "0.0.0.0:8081")]
    pub health_address: SocketAddr,
}

impl ShimArgs {
    /// The directory of everything that the shim keeps on the node.
    pub fn driver_dir(&self) -> PathBuf {
        driver_dir(&self.kubelet_dir)
    }
}

/// Arguments of the mounter.
#[derive(Args, Clone)]
pub struct MounterArgs {
    /// Name of this node, for logs.
    #[arg(long, env = "YOI_NODE_NAME", default_value = "")]
    pub node_name: String,
    /// The kubelet's root folder.
    #[arg(long, default_value = "/var/lib/kubelet")]
    pub kubelet_dir: PathBuf,
    /// Where trees live.
    #[arg(long, default_value = "/var/lib/yoi")]
    pub data_root: PathBuf,
    /// Keep the trees in a Btrfs file of this size below the data root, e.g. `20Gi`. Without it they lie in the data root itself.
    #[arg(long, value_parser = parse_bytes)]
    pub loop_size: Option<u64>,
    /// Turn on simple quotas in the Btrfs of the data root, which no kernel before Linux 6.7 can mount then. In a file of `--loop-size` they
    /// are always on.
    #[arg(long)]
    pub btrfs_simple_quota: bool,
    /// The dataset of ZFS below which trees are made, e.g. `tank/yoi`. It must exist. Without it no tree is a dataset.
    #[arg(long)]
    pub zfs_dataset: Option<DatasetName>,
    /// The host's root, whose program `zfs` is run. Without it `zfs` is this process's own.
    #[arg(long, requires = "zfs_dataset")]
    pub host_root: Option<PathBuf>,
    /// The most files of a tree that are read ahead while the Pod starts for which it is mounted: the first `git status` then does not wait for the kernel
    /// to read them. 0: none.
    #[arg(long, default_value_t = 100_000)]
    pub read_ahead_files: usize,
    /// Folders of nodes that trees may be made from, as JSON: a list of name, path and namespaces.
    #[arg(long, value_parser = host_sources::parse, default_value = "[]")]
    pub host_sources: HostSources,
    /// Holds, under the name of each of them, the folder of the host that contains it.
    #[arg(long, default_value = "/host-sources")]
    pub host_sources_dir: PathBuf,
    /// Where the shim finds this mounter.
    #[arg(long, default_value = "/run/yoi/mounter.sock")]
    pub mounter_socket: PathBuf,
}

impl MounterArgs {
    /// Where trees of provider Zfs are, if they have a dataset.
    pub fn zfs(&self) -> Option<ZfsOptions> {
        let host_root = self.host_root.clone();
        let on_detour = |text: &str| tracing::warn!("{text}");
        self.zfs_dataset.clone().map(|dataset| ZfsOptions { host_root, on_detour, ..ZfsOptions::new(dataset) })
    }
}

/// Arguments of the check of the mounter.
#[derive(Args, Clone)]
pub struct CheckMounterArgs {
    /// The mounter's socket.
    #[arg(long, default_value = "/run/yoi/mounter.sock")]
    pub mounter_socket: PathBuf,
}

/// The CSI driver's directory below the kubelet's root directory.
pub fn driver_dir(kubelet_dir: &std::path::Path) -> PathBuf {
    kubelet_dir.join("plugins").join(yoi_wire::identity::CSI_DRIVER)
}

/// Reads a size as Kubernetes writes it: a whole number of bytes, `Ki`, `Mi`, `Gi` or `Ti`.
fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" => 0,
        "Ki" => 10,
        "Mi" => 20,
        "Gi" => 30,
        "Ti" => 40,
        other => return Err(format!("{other:?} is none of Ki, Mi, Gi, Ti")),
    };
    let whole: u64 = digits.parse().map_err(|e| format!("{digits:?} is no whole number: {e}"))?;
    whole.checked_mul(1 << shift).ok_or_else(|| "too large".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        ShimCli::command().debug_assert();
    }

    #[test]
    fn a_dataset_is_named_as_zfs_names_it_and_the_hosts_root_needs_one() {
        let parse = |args: &[&str]| ShimCli::try_parse_from([&["yoi-agent-shim", "mounter"], args].concat());
        let ShimCommand::Mounter(args) = parse(&["--zfs-dataset=tank/yoi", "--host-root=/host"]).unwrap().command else { panic!() };
        let zfs = args.zfs().unwrap();
        assert_eq!((zfs.dataset.as_str(), zfs.host_root), ("tank/yoi", Some(PathBuf::from("/host"))));
        let ShimCommand::Mounter(args) = parse(&[]).unwrap().command else { panic!() };
        assert!(args.zfs().is_none());
        for bad in [&["--zfs-dataset=tank/yoi@s"][..], &["--zfs-dataset=-R"], &["--zfs-dataset="], &["--host-root=/host"]] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn sizes_are_written_as_in_kubernetes() {
        assert_eq!(parse_bytes("20Gi"), Ok(20 << 30));
        assert_eq!(parse_bytes("4096"), Ok(4096));
        for bad in ["", "Gi", "1.5Gi", "20G", "-1", "99999999999Ti"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }
}
