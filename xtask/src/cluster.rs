//! The clusters of this machine, with the programs and images that this program compiles first.

pub use yoi_host::cluster::{DataRoot, HostInventory, Kubectl, Shape, down, exec, import, link_program};

use crate::instance::Instance;
use crate::{build, images, packages};
use anyhow::Result;

pub fn up(instance: Instance, shape: Shape) -> Result<()> {
    packages::for_cluster()?;
    yoi_host::cluster::up(instance, shape, &build::programs()?, &images::cluster_archives()?)
}

pub fn explain(instance: Instance) {
    println!("\nThe cluster {instance} is up.\n  export KUBECONFIG={}", instance.kubeconfig().display());
    println!("  export PATH={}:$PATH   # kubectl and helm", instance.path("bin"));
    println!("  NetworkPolicies are enforced, by the controller of kube-router.");
    println!(
        "  `cargo xtask cluster exec --name {instance} -- bash` enters the first node, and with --node another; `cargo xtask down --name {instance}` removes all of it."
    );
}

pub fn status(instance: Instance) -> Result<()> {
    yoi_host::cluster::status(instance, build::kubernetes)
}

/// Single nodes of a cluster.
pub mod nodes {
    pub use yoi_host::cluster::nodes::{lose, restore, stop};

    use super::{DataRoot, build, packages};
    use crate::instance::{Instance, Node};
    use anyhow::Result;
    use yoi_host::cluster::nodes;

    pub fn add(instance: Instance, data_root: Option<DataRoot>) -> Result<()> {
        packages::for_cluster()?;
        nodes::add(instance, data_root, &build::programs()?)
    }

    pub fn remove(node: Node) -> Result<()> {
        nodes::remove(node, &build::programs()?)
    }

    pub fn start(node: Node) -> Result<()> {
        nodes::start(node, &build::programs()?)
    }

    pub fn reboot(node: Node) -> Result<()> {
        nodes::reboot(node, &build::programs()?)
    }

    pub fn taint(node: Node, taint: &str, remove: bool) -> Result<()> {
        nodes::taint(node, taint, remove, &build::programs()?)
    }
}
