//! Where a tree's content comes from. Unions are structs of options with an exactly-one rule: an unknown variant must not break a watch.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::open_enum::open_enum;

/// A git repository, cloned by a restricted populator Pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = ("!self.url.matches('^[a-z]+://[^/?#]*@')",
    "url must not hold a user, password or token: many people can read the objects, conditions and logs that show it"))]
#[serde(rename_all = "camelCase")]
pub struct GitSource {
    /// `https://`, `http://` or `git://` URL without user and password.
    #[schemars(length(max = 1024))]
    #[x_kube(validation = (r#"self.matches('^(https?|git)://[^\\s\\x00-\\x1f\\x7f\\x27\\x22]+$')"#,
        "url must begin with https://, http:// or git://, and hold no space, quote or control character: \
        write git@host:team/project as https://host/team/project"))]
    pub url: String,
    /// Branch, tag or full commit id; the remote's HEAD when absent.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 250), regex(pattern = r"^[A-Za-z0-9_][A-Za-z0-9._/+-]*$"))]
    pub ref_: Option<String>,
}

/// A folder of a node, with all that is in it, committed or not. The administrator lists the folders; nothing here is a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct HostSource {
    /// Its name in the chart's `shim.hostSources`.
    #[schemars(length(min = 1, max = 50), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// Any word. Another word is another generation: the folder is taken anew. `kubectl yoi take` writes the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[A-Za-z0-9][A-Za-z0-9._:+-]*$"))]
    pub take: Option<String>,
}

/// An empty tree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct EmptySource {}

/// Reference to an object of the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct NamedRef {
    #[schemars(length(min = 1, max = 50), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
}

/// What fills a project's base.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = ("[has(self.git), has(self.host), has(self.empty)].filter(x, x).size() == 1",
    "exactly one of git, host and empty must be set"))]
#[serde(rename_all = "camelCase")]
pub struct ProjectSource {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<GitSource>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostSource>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub empty: Option<EmptySource>,
}

/// What a workspace starts from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = ("[has(self.project), has(self.workspace), has(self.git), has(self.host), has(self.empty)].filter(x, x).size() == 1",
    "exactly one of project, workspace, git, host and empty must be set"))]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceSource {
    /// The sealed base of a YoiProject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<NamedRef>,
    /// A fork of another AgentWorkspace as it is at this moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<NamedRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<GitSource>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostSource>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub empty: Option<EmptySource>,
}

/// Owner of every file in a tree, and the user that agents run as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct TreeOwner {
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub uid: i64,
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub gid: i64,
}

/// The user of the agents' image.
impl Default for TreeOwner {
    fn default() -> Self {
        TreeOwner { uid: 1000, gid: 1000 }
    }
}

/// How a node makes the tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
pub enum ProviderName {
    /// The first that the node offers, in the order of this list.
    #[default]
    Auto,
    /// Clone of a ZFS snapshot: constant time, shares all blocks.
    Zfs,
    /// Btrfs snapshot: constant time, shares all blocks.
    Btrfs,
    /// An overlay over the base: constant time, shares what is not written. Works on every file system that holds trusted extended attributes,
    /// ext4 and XFS among them.
    Overlay,
    /// A copy that shares all blocks with its source: time by the number of files.
    Reflink,
    /// Plain copy: works on every file system, takes time and space by tree size.
    Copy,
    /// Of another version.
    #[schemars(skip)]
    Unknown,
}
open_enum!(ProviderName: Auto, Zfs, Btrfs, Overlay, Reflink, Copy);

impl ProviderName {
    /// Those that a node can offer, in the order in which [`ProviderName::Auto`] takes them.
    pub const OFFERED: [ProviderName; 5] =
        [ProviderName::Zfs, ProviderName::Btrfs, ProviderName::Overlay, ProviderName::Reflink, ProviderName::Copy];
}

/// Names of Secrets, claims and classes, as Kubernetes takes them.
pub(crate) const SUBDOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";

/// Bytes of a tree's path.
pub(crate) const MAX_PATH: usize = 256;

/// A tree's path inside containers.
pub(crate) const PATH_PATTERN: &str = r"^(/[A-Za-z0-9._+@-]+)+$";

/// Our own mounts, and what an image needs to run, must stay visible. `/run` too, where images link `/var/run` to.
pub(crate) const PATH_RULE: &str = "!self.contains('/../') && !self.endsWith('/..') && !self.contains('/./') && !self.endsWith('/.') \
    && !['/', '/yoi', '/session', '/tmp', '/home', '/home/agent', '/etc', '/var', '/var/run', '/run', '/proc', '/sys', '/dev', \
    '/bin', '/sbin', '/usr', '/lib', '/lib64'].exists(p, self == p) \
    && !['/yoi/', '/session/', '/etc/', '/var/run/', '/run/', '/proc/', '/sys/', '/dev/'].exists(p, self.startsWith(p))";
pub(crate) const PATH_MESSAGE: &str =
    "path must not hold . or .. and must not cover a system folder or one that agents use (/yoi, /session, /tmp, /home/agent)";

/// Where a tree shows whose spec names no path, unless it is a copy of a folder of a node, of a project's tree, or of another workspace.
pub const DEFAULT_PATH: &str = "/workspace";

/// Those of [`PATH_RULE`].
const COVERED_FOLDERS: [&str; 18] = [
    "/",
    "/yoi",
    "/session",
    "/tmp",
    "/home",
    "/home/agent",
    "/etc",
    "/var",
    "/var/run",
    "/run",
    "/proc",
    "/sys",
    "/dev",
    "/bin",
    "/sbin",
    "/usr",
    "/lib",
    "/lib64",
];
const FOLDERS_WITH_ALL_BELOW: [&str; 8] = ["/yoi/", "/session/", "/etc/", "/var/run/", "/run/", "/proc/", "/sys/", "/dev/"];

/// Whether the API server takes this as the path of a tree.
#[must_use]
pub fn is_tree_path(path: &str) -> bool {
    let is_plain = |name: &str| {
        let of_pattern = |b: u8| b.is_ascii_alphanumeric() || b"._+@-".contains(&b);
        !name.is_empty() && name != "." && name != ".." && name.bytes().all(of_pattern)
    };
    let fits = path.len() <= MAX_PATH && path.strip_prefix('/').is_some_and(|names| names.split('/').all(is_plain));
    fits && !COVERED_FOLDERS.contains(&path) && !FOLDERS_WITH_ALL_BELOW.iter().any(|folder| path.starts_with(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_trees_if_the_rule_of_the_schema_lets_it_through() {
        let quoted: Vec<&str> = PATH_RULE.split('\'').skip(1).step_by(2).collect();
        let dots = ["/../", "/..", "/./", "/."];
        let rust: Vec<&str> = [&dots[..], &COVERED_FOLDERS[..], &FOLDERS_WITH_ALL_BELOW[..]].concat();
        assert_eq!(quoted, rust, "the rule has other words");
        assert_eq!(PATH_PATTERN, "^(/[A-Za-z0-9._+@-]+)+$");
        let (longest, too_long) = (format!("/{}", "a".repeat(MAX_PATH - 1)), format!("/{}", "a".repeat(MAX_PATH)));
        for fits in ["/workspace", "/a", "/...", "/a..b", "/home/other", "/home/agent/tree", "/tmp/x", "/srv/a+b@c_d-e.f", &longest] {
            assert!(is_tree_path(fits), "{fits}");
        }
        for wrong in ["", "/", "a", "/a/", "//a", "/a//b", "/a/../b", "/a/..", "/./a", "/a b", "/\u{e4}", "/tmp", "/etc/x", &too_long] {
            assert!(!is_tree_path(wrong), "{wrong}");
        }
    }
}
