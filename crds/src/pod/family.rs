//! Agents that start others.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::scope::{Scope, ScopeRule};
use crate::workspace::{ClaimState, LOAN_PATTERN, MAX_LOAN, MAX_LOAN_MESSAGE};

/// That an agent may start others, each in a fork of its tree, and which paths of its own tree it may lend them instead. Empty: it lends nothing. A denial counts
/// before what allows. A path is lent only as far as spec.scope lets the agent itself use it, and while it is lent the agent does not write there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = ("!has(self.deny) || size(self.deny) == 0 || (has(self.allow) && size(self.allow) > 0)",
    "deny takes from what allow names: without allow nothing is lent"))]
#[x_kube(validation = ("!has(self.allow) || !has(self.deny) || size(self.allow) + size(self.deny) <= 64",
    "at most 64 rules are taken, allowed and denied together"))]
#[x_kube(validation = ("!has(self.deny) || self.deny.all(rule, rule.access != 'Read' || rule.recursive)",
    "what is denied to be read is hidden with all below it: recursive must be true there"))]
pub struct Delegation {
    /// What may be lent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub allow: Vec<ScopeRule>,
    /// What may not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub deny: Vec<ScopeRule>,
}

impl Delegation {
    /// What may be lent, as the rules of a scope; none when nothing may.
    #[must_use]
    pub fn rules(&self) -> Option<Scope> {
        let Delegation { allow, deny } = self;
        (!allow.is_empty()).then(|| Scope { allow: allow.clone(), deny: deny.clone() })
    }

    /// Whether a rule has an access of another version.
    pub(crate) fn has_unknown(&self) -> bool {
        self.rules().is_some_and(|rules| rules.has_unknown())
    }
}

/// Who has started an agent: the record of its birth. It stays when that one is deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = ("has(self.loan) == has(self.rules)", "loan and rules go together"))]
#[serde(rename_all = "camelCase")]
pub struct SpawnedBy {
    /// Name of the YoiPod that has started it.
    #[schemars(length(min = 1, max = 50))]
    pub name: String,
    /// UID of that YoiPod.
    #[schemars(length(min = 1, max = 64))]
    pub uid: String,
    /// Id of the request: the same one makes no second agent.
    #[schemars(length(min = 1, max = 128))]
    pub request_id: String,
    /// Of an agent that works in its parent's tree: the loan by which it does, one of `status.claims` of the AgentWorkspace that `spec.workspace.ref` names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_LOAN), regex(pattern = LOAN_PATTERN))]
    pub loan: Option<String>,
    /// What it was lent; `spec.scope` is the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<Box<Scope>>,
}

/// The loan of an agent that works in its parent's tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LoanStatus {
    #[schemars(length(min = 1, max = MAX_LOAN))]
    pub id: String,
    /// Released, too, when the tree does not know it any more.
    pub state: ClaimState,
    /// Why it ended, where it did not end with the agent's work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = MAX_LOAN_MESSAGE))]
    pub message: Option<String>,
}
