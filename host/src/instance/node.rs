//! One node of an instance, and the names, places and addresses that follow from its number.

use super::Instance;
use std::path::PathBuf;

/// Node 1 is the control plane; its folder is the instance's own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Node {
    pub instance: Instance,
    number: u8,
}

impl Node {
    /// How many nodes an instance can have.
    pub const MOST: u8 = 6;

    pub fn first(instance: Instance) -> Self {
        Self { instance, number: 1 }
    }

    /// Every node that the instance could have, whether it is there or not.
    pub fn possible(instance: Instance) -> impl Iterator<Item = Self> {
        (1..=Self::MOST).map(move |number| Self { instance, number })
    }

    /// The nodes whose folders are there, whether they run or not.
    pub fn existing(instance: Instance) -> Vec<Self> {
        Self::possible(instance).filter(|node| node.folder().exists()).collect()
    }

    /// The node that Kubernetes knows by this name.
    pub fn named(name: &str) -> Option<Self> {
        Instance::ALL.into_iter().flat_map(Self::possible).find(|node| node.name() == name)
    }

    pub fn is_first(self) -> bool {
        self.number == 1
    }

    pub fn name(self) -> String {
        if self.is_first() { format!("{}-node", self.instance) } else { format!("{}-node-{}", self.instance, self.number) }
    }

    pub fn folder(self) -> PathBuf {
        if self.is_first() { self.instance.state() } else { self.instance.state().join("nodes").join(self.number.to_string()) }
    }

    /// A path below the node's folder.
    pub fn path(self, below: &str) -> String {
        self.folder().join(below).display().to_string()
    }

    pub fn containerd_socket(self) -> String {
        self.path("containerd.sock")
    }

    pub fn cgroup(self) -> String {
        if self.is_first() { self.instance.name().to_owned() } else { self.name() }
    }

    /// The host's end of the link into the node.
    pub fn host_link(self) -> String {
        format!("{}{}", self.instance, self.number - 1)
    }

    /// Of the host's end of the link.
    pub fn host_address(self) -> String {
        self.instance.address(127, self.link_base() + 1)
    }

    /// Of the node's end. The API server listens on the first node's.
    pub fn address(self) -> String {
        self.instance.address(127, self.link_base() + 2)
    }

    /// Each link is a network of four addresses.
    fn link_base(self) -> u8 {
        4 * (self.number - 1)
    }

    /// An eighth of the instance's range.
    pub fn pod_range(self) -> String {
        self.instance.address(8 * (self.number - 1), 0) + "/21"
    }
}

impl std::fmt::Display for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_nodes_of_all_instances_share_a_name_place_or_address() {
        let nodes: Vec<Node> = Instance::ALL.into_iter().flat_map(Node::possible).collect();
        for property in [Node::name, Node::cgroup, Node::host_link, Node::containerd_socket] {
            let distinct: BTreeSet<String> = nodes.iter().map(|node| property(*node)).collect();
            assert_eq!(distinct.len(), nodes.len(), "{distinct:?}");
        }
        // A machine that has one of the two does not take the other.
        assert_eq!((Instance::Yoi.double(), Instance::YoiTest.double()), (Some(Instance::YoiHost), None));
        let nodes: Vec<Node> = nodes.into_iter().filter(|node| node.instance != Instance::YoiHost).collect();
        for property in [Node::host_address, Node::address, Node::pod_range] {
            let distinct: BTreeSet<String> = nodes.iter().map(|node| property(*node)).collect();
            assert_eq!(distinct.len(), nodes.len(), "{distinct:?}");
        }
        // Limits of the kernel: interface names, and the paths of Unix sockets.
        assert!(nodes.iter().all(|node| node.host_link().len() <= 15 && node.containerd_socket().len() < 100));
    }

    #[test]
    fn a_node_is_found_by_the_name_that_kubernetes_shows() {
        assert_eq!(Node::named("yoi-node"), Some(Node::first(Instance::Yoi)));
        let third = Node::possible(Instance::YoiTest).nth(2);
        assert_eq!(Node::named("yoi-test-node-3"), third);
        assert_eq!(third.map(Node::pod_range).as_deref(), Some("198.19.16.0/21"));
        assert_eq!(third.map(Node::address).as_deref(), Some("198.19.127.10"));
        for unknown in ["yoi-node-1", "yoi-node-7", "yoi", "kind-worker"] {
            assert_eq!(Node::named(unknown), None);
        }
    }
}
