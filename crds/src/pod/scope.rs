//! Which paths of its tree an agent may write.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::open_enum::open_enum;

/// The most bytes of a rule's path.
pub(super) const MAX_PATH: u32 = 512;
/// An empty name, `.`, `..` or git's own folder among the names of a path.
pub(super) const PATH_RULE: &str = r"self == '.' || !self.matches('(^|/)(\\.|\\.\\.|\\.git)?(/|$)')";
pub(super) const PATH_MESSAGE: &str =
    "a path is relative to the tree and has plain names, e.g. src/parser, or it is . for the whole tree; git's own folder has no rules";

/// Which paths of its tree an agent may write, whoever of its processes tries: the kernel of its node holds it. What no rule allows to be written can be read, and
/// so can git's own folder, so an agent commits only where it may write the whole tree. A denial counts before what allows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = ("!has(self.deny) || size(self.allow) + size(self.deny) <= 64", "at most 64 rules are taken, allowed and denied together"))]
#[x_kube(validation = ("!has(self.deny) || self.deny.all(rule, rule.access != 'Read' || rule.recursive)",
    "what is denied to be read is hidden with all below it: recursive must be true there"))]
pub struct Scope {
    /// What may be written, or read.
    #[schemars(length(min = 1, max = 64))]
    pub allow: Vec<ScopeRule>,
    /// What may not: a denial of Write leaves reading, one of Read hides the path. What git's history holds of it can be read there all the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub deny: Vec<ScopeRule>,
}

/// One rule of a scope. Its path must be in the tree when the agent starts, and no link: else the agent does not start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
pub struct ScopeRule {
    /// Relative to the tree, e.g. `src/parser`; `.` is the whole tree.
    #[schemars(length(min = 1, max = MAX_PATH), regex(pattern = r"^[^\x00]+$"))]
    #[x_kube(validation = (PATH_RULE, PATH_MESSAGE))]
    pub path: String,
    /// What the rule allows, or denies.
    pub access: ScopeAccess,
    /// Whether the rule holds for all below the path. If not, it holds for the path and the files in it; folders that are made in it later are as itself.
    #[serde(default = "yes")]
    pub recursive: bool,
}

fn yes() -> bool {
    true
}

/// What a rule of a scope is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub enum ScopeAccess {
    /// Reading.
    Read,
    /// Writing. Whoever may write may read.
    Write,
    /// Of another version.
    #[schemars(skip)]
    Unknown,
}
open_enum!(ScopeAccess: Read, Write);

impl Scope {
    /// Whether a rule has an access of another version.
    pub(crate) fn has_unknown(&self) -> bool {
        self.allow.iter().chain(&self.deny).any(|rule| rule.access == ScopeAccess::Unknown)
    }
}
