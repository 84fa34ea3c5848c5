//! The clusters this machine can hold side by side, and every name, place and address that follows from which one it is.

mod node;

pub use node::Node;

use std::path::{Path, PathBuf};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, clap::ValueEnum)]
pub enum Instance {
    /// For people
    #[default]
    Yoi,
    /// For `cargo xtask test`, beside the other
    YoiTest,
    /// For `cargo xtask bench`, so that nothing else is measured with it
    YoiBench,
    /// For tests that kill or take away what others need, beside the one above
    YoiFaults,
    /// What a bundle starts on a machine that is reached by SSH
    YoiHost,
}

/// All state of all instances. Unix socket paths below it stay under 100 bytes.
pub const ROOT: &str = "/var/lib/yoi-cluster";

impl Instance {
    pub const ALL: [Instance; 5] = [Instance::Yoi, Instance::YoiTest, Instance::YoiBench, Instance::YoiFaults, Instance::YoiHost];

    pub fn name(self) -> &'static str {
        match self {
            Instance::Yoi => "yoi",
            Instance::YoiTest => "yoi-test",
            Instance::YoiBench => "yoi-bench",
            Instance::YoiFaults => "yoi-faults",
            Instance::YoiHost => "yoi-host",
        }
    }

    /// 198.18.0.0/15 is reserved for test networks, so no real network is hidden; each instance has a quarter: the second byte of its
    /// addresses, and the first of its 128 third bytes. Two are for people, one from a clone and one from a bundle: a machine has one of them.
    fn network(self) -> (u8, u8) {
        match self {
            Instance::Yoi | Instance::YoiHost => (18, 0),
            Instance::YoiTest => (19, 0),
            Instance::YoiBench => (18, 128),
            Instance::YoiFaults => (19, 128),
        }
    }

    /// `third`: of the instance's 128.
    fn address(self, third: u8, fourth: u8) -> String {
        let (second, first) = self.network();
        format!("198.{second}.{}.{fourth}", first + third)
    }

    pub fn state(self) -> PathBuf {
        Path::new(ROOT).join(self.name())
    }

    pub fn path(self, below: &str) -> String {
        format!("{ROOT}/{}/{below}", self.name())
    }

    /// The folder that tests on this cluster fill as a person's checkout. It is not there before.
    pub fn host_source(self) -> String {
        self.path("host-sources/clone")
    }

    pub fn kubeconfig(self) -> PathBuf {
        self.state().join("kubeconfig")
    }

    /// The comment of the instance's firewall rules.
    pub fn mark(self) -> String {
        format!("yoi-cluster:{}", self.name())
    }

    pub fn whole_range(self) -> String {
        self.address(0, 0) + "/17"
    }

    /// The Pods of all nodes.
    pub fn pod_range(self) -> String {
        self.address(0, 0) + "/18"
    }

    /// The other one with the same addresses.
    pub fn double(self) -> Option<Self> {
        Self::ALL.into_iter().find(|other| *other != self && other.network() == self.network())
    }

    pub fn service_range(self) -> String {
        self.address(64, 0) + "/19"
    }

    pub fn api_service_address(self) -> String {
        self.address(64, 1)
    }

    pub fn dns_address(self) -> String {
        self.address(64, 10)
    }
}

impl std::fmt::Display for Instance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
