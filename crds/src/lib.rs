//! The API of Yoi: group `yoi.dev`, version `v1alpha1`.
//!
//! Objects hold intent, identity, pointers, digests, conditions and small counters. What an agent said or did is in its session log only.

#![deny(missing_docs, clippy::unwrap_used, clippy::expect_used)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]
#![allow(clippy::duplicated_attributes, reason = "each printcolumn is a list of its own, which the lint does not see")]

#[expect(missing_docs, reason = "a doc comment is a description in the schema; a field whose name says it all has none")]
pub mod assets;
pub mod condition;
pub mod name;
#[expect(missing_docs, reason = "a doc comment is a description in the schema; a field whose name says it all has none")]
pub mod node;
mod open_enum;
#[expect(missing_docs, reason = "a doc comment is a description in the schema; a field whose name says it all has none")]
pub mod peer;
#[expect(missing_docs, reason = "a doc comment is a description in the schema; a field whose name says it all has none")]
pub mod pod;
#[expect(missing_docs, reason = "a doc comment is a description in the schema; a field whose name says it all has none")]
pub mod policy;
pub mod prepare;
#[expect(missing_docs, reason = "a doc comment is a description in the schema; a field whose name says it all has none")]
pub mod project;
pub mod quota;
pub mod reason;
#[expect(missing_docs, reason = "a doc comment is a description in the schema; a field whose name says it all has none")]
pub mod source;
pub mod sync;
#[expect(missing_docs, reason = "a doc comment is a description in the schema; a field whose name says it all has none")]
pub mod warm;
#[expect(missing_docs, reason = "a doc comment is a description in the schema; a field whose name says it all has none")]
pub mod workspace;

pub use condition::{Condition, ConditionStatus};
pub use node::{WorkspaceNode, WorkspaceNodeStatus};
pub use peer::{YoiPeer, YoiPeerSpec, YoiPeerStatus};
pub use pod::{YoiPod, YoiPodSpec, YoiPodStatus};
pub use project::{YoiProject, YoiProjectSpec, YoiProjectStatus};
pub use workspace::{AgentWorkspace, AgentWorkspaceSpec, AgentWorkspaceStatus};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

/// Every CRD of the group, in the order in which people read them.
#[must_use]
pub fn all() -> Vec<CustomResourceDefinition> {
    vec![YoiProject::crd(), YoiPod::crd(), YoiPeer::crd(), AgentWorkspace::crd(), WorkspaceNode::crd()]
}
