//! The two clusters this machine can hold, and every name, place and address that follows from which one it is.

use std::path::{Path, PathBuf};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum Instance {
    /// For people
    #[default]
    Yoi,
    /// For `cargo xtask test`, beside the other
    YoiTest,
}

/// All state of all instances. Unix socket paths below it stay under 100 bytes.
pub const ROOT: &str = "/var/lib/yoi-cluster";

impl Instance {
    pub const ALL: [Instance; 2] = [Instance::Yoi, Instance::YoiTest];

    pub fn name(self) -> &'static str {
        match self {
            Instance::Yoi => "yoi",
            Instance::YoiTest => "yoi-test",
        }
    }

    /// 198.18.0.0/15 is reserved for test networks, so no real network is hidden; each instance has one half.
    fn network(self) -> u8 {
        match self {
            Instance::Yoi => 18,
            Instance::YoiTest => 19,
        }
    }

    pub fn state(self) -> PathBuf {
        Path::new(ROOT).join(self.name())
    }

    pub fn path(self, below: &str) -> String {
        format!("{ROOT}/{}/{below}", self.name())
    }

    pub fn kubeconfig(self) -> PathBuf {
        self.state().join("kubeconfig")
    }

    pub fn containerd_socket(self) -> String {
        self.path("containerd.sock")
    }

    pub fn node_name(self) -> String {
        format!("{}-node", self.name())
    }

    pub fn cgroup(self) -> &'static str {
        self.name()
    }

    /// The host's end of the link into the node.
    pub fn host_link(self) -> String {
        format!("{}0", self.name())
    }

    pub fn mark(self) -> String {
        format!("yoi-cluster:{}", self.name())
    }

    pub fn host_address(self) -> String {
        format!("198.{}.255.1", self.network())
    }

    /// Also where the API server listens.
    pub fn node_address(self) -> String {
        format!("198.{}.255.2", self.network())
    }

    pub fn whole_range(self) -> String {
        format!("198.{}.0.0/16", self.network())
    }

    pub fn pod_range(self) -> String {
        format!("198.{}.0.0/18", self.network())
    }

    pub fn service_range(self) -> String {
        format!("198.{}.128.0/18", self.network())
    }

    pub fn api_service_address(self) -> String {
        format!("198.{}.128.1", self.network())
    }

    pub fn dns_address(self) -> String {
        format!("198.{}.128.10", self.network())
    }
}

impl std::fmt::Display for Instance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Built once, used by every clone of this user: Kubernetes, tools, base file systems.
pub fn cache() -> PathBuf {
    let place = std::env::var_os("XDG_CACHE_HOME").filter(|place| !place.is_empty()).map(PathBuf::from);
    place.unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/root".into())).join(".cache")).join("yoi")
}

/// The root of the clone this program was built from.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("/"))
}
