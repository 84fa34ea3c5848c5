//! Where a tree's content comes from. Unions are structs of options with an exactly-one rule: an unknown variant must not break a watch.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::open_enum::open_enum;
use crate::pod::{ConfigMapKeyRef, SecretRef};

/// A git repository, fetched by a restricted populator Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = (NO_USER_RULE, NO_USER_MESSAGE))]
#[x_kube(validation = (NOT_IN_THE_CLEAR_RULE, NOT_IN_THE_CLEAR_MESSAGE))]
#[x_kube(validation = (SSH_RULE, SSH_MESSAGE))]
#[x_kube(validation = ("!has(self.sync) || !has(self.refresh)",
    "of sync and refresh only one: trees are made from what was synced last, or from where the branch is"))]
#[x_kube(validation = ("!has(self.sync) || !has(self.depth)",
    "sync needs the whole history: what is synced goes on from any commit of it"))]
#[x_kube(validation = ("!has(self.refresh) || !has(self.ref) || !self.ref.matches('^([0-9a-f]{40}|[0-9a-f]{64})$')",
    "refresh needs a ref that can move: a commit id never does"))]
#[serde(rename_all = "camelCase")]
pub struct GitSource {
    /// `https://`, `http://` or `git://` URL without user and password; or `ssh://user@host:port/path`, or `user@host:path`.
    #[schemars(length(max = 1024))]
    #[x_kube(validation = (GIT_URL_RULE, GIT_URL_MESSAGE))]
    pub url: String,
    /// Branch, tag, full commit id, or a ref such as `refs/pull/7/head`; the remote's HEAD when absent.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 250), regex(pattern = REF_PATTERN))]
    pub ref_: Option<String>,
    /// A Secret of this namespace with the keys `username` and `password` (for https; a token is a password), or `ssh-privatekey` and `known_hosts`
    /// (for ssh). Only the Pod that fetches the repository mounts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_secret_ref: Option<SecretRef>,
    /// Key of a ConfigMap of this namespace with PEM certificates that are trusted beside the public ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_ref: Option<ConfigMapKeyRef>,
    /// Hosts beside the url's own from which submodules and objects of git LFS may be fetched, with the same credentials, e.g. `git.example` or
    /// `git.example:8443`. The url's own host need not be named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 253), regex(pattern = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?(:[0-9]{1,5})?$")))]
    pub submodule_hosts: Vec<String>,
    /// Whether the submodules are fetched; Fetch when absent. With Skip their folders are empty, whatever is missing of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submodules: Option<LinkedContent>,
    /// Whether the objects of git LFS are fetched; Fetch when absent. With Skip their files are the pointers that the repository holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lfs: Option<LinkedContent>,
    /// Fetch only the last so many commits of the history of `ref` and of no other branch. The whole history of all branches when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub depth: Option<i64>,
    /// Of a project: look so often whether `ref` has moved, e.g. `10m`; at least `1m`. A branch that has moved makes the next generation, and trees that
    /// exist keep theirs. When absent, only `kubectl yoi refresh` looks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8), regex(pattern = r"^[1-9][0-9]{0,5}(m|h)$"))]
    pub refresh: Option<String>,
    /// Of a project: take the working trees that people send with `kubectl yoi sync`. New trees are made from the one that came last. What was sent counts
    /// no more when this is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<SyncSource>,
}

/// How a project takes working trees that people send.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct SyncSource {}

impl GitSource {
    /// What of the repository is not fetched, as a part of a sentence; `None` when all is.
    #[must_use]
    pub fn skipped(&self) -> Option<&'static str> {
        let skips = |content: Option<LinkedContent>| content == Some(LinkedContent::Skip);
        match (skips(self.submodules), skips(self.lfs)) {
            (true, true) => Some("its submodules and objects of git LFS"),
            (true, false) => Some("its submodules"),
            (false, true) => Some("its objects of git LFS"),
            (false, false) => None,
        }
    }
}

/// What becomes of content that a repository names, and does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, JsonSchema)]
pub enum LinkedContent {
    /// It is fetched, and without it the source is not taken.
    Fetch,
    /// It is left out.
    Skip,
    /// Of another version.
    #[schemars(skip)]
    Unknown,
}
open_enum!(LinkedContent: Fetch, Skip);

pub(crate) const NO_USER_RULE: &str = "!self.url.matches('^(https?|git)://[^/?#]*@') && !self.url.matches('^ssh://[^/?#@]*:[^/?#@]*@')";
pub(crate) const NO_USER_MESSAGE: &str = "url must not hold a user, password or token: many people can read the objects, conditions and logs that show it; \
    put them into a Secret and name it in credentialsSecretRef";
pub(crate) const NOT_IN_THE_CLEAR_RULE: &str = "!has(self.credentialsSecretRef) || !self.url.matches('^(http|git)://')";
pub(crate) const NOT_IN_THE_CLEAR_MESSAGE: &str =
    "credentialsSecretRef needs an https:// or ssh:// url: over http:// and git:// the credentials would go in the clear";
pub(crate) const SSH_RULE: &str = "has(self.credentialsSecretRef) || self.url.matches('^(https?|git)://')";
pub(crate) const SSH_MESSAGE: &str = "an ssh url needs credentialsSecretRef: a Secret with the keys ssh-privatekey and known_hosts";
pub(crate) const GIT_URL_MESSAGE: &str =
    "url must begin with https://, http://, git:// or ssh://, or be user@host:path, and hold no space, quote or control character";
/// A branch, a tag, a commit id or a ref.
pub(crate) const REF_PATTERN: &str = r"^[A-Za-z0-9_][A-Za-z0-9._/+-]*$";

/// The forms of [`GitSource::url`]. A host or path of ssh begins with no character that a program would take as an option.
pub(crate) const GIT_URL_RULE: &str = concat!(
    r#"self.matches('^(https?|git)://[^\\s\\x00-\\x1f\\x7f\\x27\\x22]+$')"#,
    r#" || self.matches('^ssh://([A-Za-z0-9_][A-Za-z0-9._+-]*@)?[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?/[^\\s\\x00-\\x1f\\x7f\\x27\\x22]+$')"#,
    r#" || self.matches('^[A-Za-z0-9_][A-Za-z0-9._+-]*@[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?:[A-Za-z0-9._/~][^\\s\\x00-\\x1f\\x7f\\x27\\x22]*$')"#,
);

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
pub struct EmptySource {
    /// Of a project: take the trees that people send with `kubectl yoi sync`, of folders that no server has. New trees are made from the one that came
    /// last, as one commit on the branch `main`; before the first one they are empty. Without it nothing more is taken, and trees are made from what came
    /// last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<SyncSource>,
}

/// Reference to an object of the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct NamedRef {
    #[schemars(length(min = 1, max = 50), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
}

/// A project of the same namespace, and which commit of its repository.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct ProjectRevision {
    #[schemars(length(min = 1, max = 50), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// The commit that the tree is of: a full commit id, or a branch, a tag or a ref such as `refs/pull/7/head` as it is when the tree is made. Of a
    /// project with a git source. When absent, the tree is of the project's current generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 250), regex(pattern = r"^[A-Za-z0-9_][A-Za-z0-9._/+-]*$"))]
    pub revision: Option<String>,
}

/// What fills a project's base.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = ("[has(self.git), has(self.host), has(self.empty)].filter(x, x).size() == 1",
    "exactly one of git, host and empty must be set"))]
#[serde(rename_all = "camelCase")]
pub struct ProjectSource {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<Box<GitSource>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostSource>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub empty: Option<EmptySource>,
}

impl ProjectSource {
    /// Whether the project takes working trees that people send.
    #[must_use]
    pub fn takes_trees(&self) -> bool {
        self.git.as_ref().is_some_and(|git| git.sync.is_some()) || self.empty.as_ref().is_some_and(|empty| empty.sync.is_some())
    }
}

/// What a workspace starts from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = ("[has(self.project), has(self.workspace), has(self.git), has(self.host), has(self.empty)].filter(x, x).size() == 1",
    "exactly one of project, workspace, git, host and empty must be set"))]
#[x_kube(validation = ("!has(self.git) || !has(self.git.refresh)", "refresh is of a project: a workspace is fetched once"))]
#[x_kube(validation = ("!has(self.git) || !has(self.git.sync)", "sync is of a project: a workspace is fetched once"))]
#[x_kube(validation = ("!has(self.empty) || !has(self.empty.sync)", "sync is of a project: a workspace is made once"))]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceSource {
    /// The sealed base of a YoiProject, or one commit of its repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<Box<ProjectRevision>>,
    /// A fork of another AgentWorkspace as it is at this moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<NamedRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<Box<GitSource>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostSource>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub empty: Option<EmptySource>,
}

/// Whether the text is a full commit id of git.
#[must_use]
pub fn is_commit_id(text: &str) -> bool {
    [40, 64].contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
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

/// Our own mounts, and what an image needs to run, must stay visible. `/run` too, where images link `/var/run` to. Below folders of programs and of
/// libraries a file of a repository would be run in place of the image's, by Pods that hold credentials, too.
pub(crate) const PATH_RULE: &str = "!self.contains('/../') && !self.endsWith('/..') && !self.contains('/./') && !self.endsWith('/.') \
    && !['/', '/yoi', '/session', '/tmp', '/home', '/home/agent', '/etc', '/var', '/var/run', '/run', '/proc', '/sys', '/dev', \
    '/bin', '/sbin', '/usr', '/lib', '/lib64', '/opt/yoi'].exists(p, self == p) \
    && !['/yoi/', '/session/', '/etc/', '/var/run/', '/run/', '/proc/', '/sys/', '/dev/', \
    '/bin/', '/sbin/', '/usr/', '/lib/', '/lib64/', '/opt/yoi/'].exists(p, self.startsWith(p))";
pub(crate) const PATH_MESSAGE: &str = "path must not hold . or .. and must not cover a system folder, lie in one (/usr, /bin, /lib, /etc), or cover one that agents use (/yoi, /session, /tmp, /home/agent)";

/// Where a tree shows whose spec names no path, unless it is a copy of a folder of a node, of a project's tree, or of another workspace.
pub const DEFAULT_PATH: &str = "/workspace";

/// Those of [`PATH_RULE`].
const COVERED_FOLDERS: [&str; 19] = [
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
    "/opt/yoi",
];
const FOLDERS_WITH_ALL_BELOW: [&str; 14] = [
    "/yoi/",
    "/session/",
    "/etc/",
    "/var/run/",
    "/run/",
    "/proc/",
    "/sys/",
    "/dev/",
    "/bin/",
    "/sbin/",
    "/usr/",
    "/lib/",
    "/lib64/",
    "/opt/yoi/",
];

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
        for program in
            ["/usr/local/bin", "/usr/lib/git-core", "/usr/src/app", "/bin/x", "/sbin/x", "/lib/x86_64-linux-gnu", "/lib64/x", "/opt/yoi/x"]
        {
            assert!(!is_tree_path(program), "{program}");
        }
        for fits in ["/opt", "/opt/app", "/usrlocal", "/binaries", "/lib32"] {
            assert!(is_tree_path(fits), "{fits}");
        }
        for wrong in ["", "/", "a", "/a/", "//a", "/a//b", "/a/../b", "/a/..", "/./a", "/a b", "/\u{e4}", "/tmp", "/etc/x", &too_long] {
            assert!(!is_tree_path(wrong), "{wrong}");
        }
    }
}
