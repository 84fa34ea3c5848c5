//! Loans of a tree's paths: who holds which, and what the node shows of them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::open_enum::open_enum;
use crate::pod::Scope;

/// The most loans of one tree at a time.
pub const MAX_CLAIMS: usize = 32;
/// The most characters of what became of a loan.
pub const MAX_LOAN_MESSAGE: u32 = 4096;
/// What an id of a loan looks like.
pub const LOAN_PATTERN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// The most characters of one.
pub const MAX_LOAN: u32 = 63;

/// One loan of paths of this tree. The gateway makes it, and the operator and the gateway take it from state to state; each write names the version of this object
/// that it has read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    /// Names the loan for ever: no two of one tree have the same.
    #[schemars(length(min = 1, max = MAX_LOAN), regex(pattern = LOAN_PATTERN))]
    pub loan: String,
    pub lender: Lender,
    pub holder: Holder,
    /// What the holder may do. Nobody else writes there meanwhile.
    pub rules: Scope,
    pub state: ClaimState,
    /// RFC 3339: when the gateway reserved the paths.
    #[schemars(length(max = 40))]
    pub reserved_at: String,
    /// Why the loan ended, where it did not end with its holder's work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = MAX_LOAN_MESSAGE))]
    pub message: Option<String>,
}

/// The agent whose tree it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Lender {
    /// Name of its YoiPod.
    #[schemars(length(min = 1, max = 50))]
    pub name: String,
    /// UID of that YoiPod.
    #[schemars(length(min = 1, max = 64))]
    pub uid: String,
    /// UID of its Pod when the paths were reserved. A loan whose holder was not made when that Pod ends is given up.
    #[serde(default, rename = "podUID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub pod_uid: Option<String>,
}

/// The agent that holds the paths, or is to hold them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Holder {
    /// Name of its YoiPod.
    #[schemars(length(min = 1, max = 50))]
    pub name: String,
    /// UID of that YoiPod. Absent until it is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub uid: Option<String>,
    /// Operator: of an Active loan, the only Pod of the holder that may mount the tree inline; it stays here until another one is.
    #[serde(default, rename = "podUID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub pod_uid: Option<String>,
}

/// Where a loan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub enum ClaimState {
    /// The paths are the holder's from now on; the lender may still have files there open.
    Reserved,
    /// The lender cannot write there, and nothing in its Pod has anything there open.
    Fenced,
    /// The holder works.
    Active,
    /// The holder is to end, or never came up.
    Reclaiming,
    /// The lender has its paths back.
    Released,
    /// Of another version.
    #[schemars(skip)]
    Unknown,
}
open_enum!(ClaimState: Reserved, Fenced, Active, Reclaiming, Released);

/// How a loan stands on the node. The shim writes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LoanView {
    #[schemars(length(min = 1, max = MAX_LOAN), regex(pattern = LOAN_PATTERN))]
    pub loan: String,
    /// Every Pod of the lender on the node sees the paths read-only, and one that starts later does, too.
    pub covered: bool,
    /// Why it is not so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = MAX_LOAN_MESSAGE))]
    pub message: Option<String>,
}
