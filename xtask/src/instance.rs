//! The clone that this program was built from, the cache of its user, and the clusters that the machine can hold.

pub use yoi_host::instance::{Instance, Node};

use std::path::{Path, PathBuf};

/// Built once, used by every clone of this user: Kubernetes, tools, base file systems.
pub fn cache() -> PathBuf {
    let place = std::env::var_os("XDG_CACHE_HOME").filter(|place| !place.is_empty()).map(PathBuf::from);
    place.unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/root".into())).join(".cache")).join("yoi")
}

/// The root of the clone this program was built from.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("/"))
}
