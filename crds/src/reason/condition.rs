//! Condition types, and which kinds have them.

use crate::name::field_manager;

/// One condition of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConditionMeaning {
    /// Type of the condition.
    pub type_: &'static str,
    /// Kind of the objects that have it.
    pub kind: &'static str,
    /// Field manager that writes it.
    pub writer: &'static str,
    /// What is so when it is True.
    pub when_true: &'static str,
}

macro_rules! conditions {
    ($($name:ident = $type:literal { $($kind:literal by $writer:ident: $when_true:literal;)+ })+) => {
        $(#[doc = concat!("The type `", $type, "`.")]
        pub const $name: &str = $type;)+
        /// Every condition of every kind.
        pub const ALL: &[ConditionMeaning] = &[
            $($(ConditionMeaning { type_: $type, kind: $kind, writer: field_manager::$writer, when_true: $when_true },)+)+
        ];
    };
}

/// Position of a type: the conditions of an object become True in this order.
#[must_use]
pub fn order(type_: &str) -> usize {
    ALL.iter().position(|c| c.type_ == type_).unwrap_or(ALL.len())
}

// Of each kind in the order in which they become True.
conditions! {
    ACCEPTED = "Accepted" {
        "AgentWorkspace" by OPERATOR: "The spec makes sense, and what it names exists.";
        "YoiPod" by OPERATOR: "The spec makes sense, and what it names exists.";
        "YoiPeer" by OPERATOR: "Both members exist and are bound by their UIDs.";
    }
    POLICY_VALID = "PolicyValid" {
        "YoiProject" by OPERATOR: "Every line of its `spec.policy` is understood. A project without a policy has no such condition.";
        "YoiPod" by OPERATOR: "Every line of its project's policy and of its own is understood, and its own only narrows. An agent for which nobody names a policy has no such condition.";
    }
    SOURCE_READY = "SourceReady" {
        "YoiProject" by OPERATOR: "The source was fetched into a base, and the project's `prepare` has succeeded there, if there is one.";
    }
    SCHEDULED = "Scheduled" {
        "AgentWorkspace" by OPERATOR: "A node was chosen for the tree.";
    }
    PROVIDER_SELECTED = "ProviderSelected" {
        "AgentWorkspace" by SHIM: "The node offers what the spec asks for, and made its choice.";
    }
    PROVISIONED = "Provisioned" {
        "AgentWorkspace" by SHIM: "The tree stands on its node.";
    }
    QUOTA_ENFORCED = "QuotaEnforced" {
        "AgentWorkspace" by SHIM: "Of a workspace with a quota: the file system of its node refuses what is over it.";
    }
    HEALTHY = "Healthy" {
        "AgentWorkspace" by SHIM: "The data root of its node works, and the tree is within its quota, after one of these was not so. A tree that never had such a failure has no such condition.";
    }
    POPULATED = "Populated" {
        "AgentWorkspace" by OPERATOR: "Of a base: the source's content is in it, and the project's `prepare` has succeeded in it, if there is one.";
    }
    SEALED = "Sealed" {
        "AgentWorkspace" by SHIM: "Of a base: it is read-only from now on, and has a manifest digest.";
        "YoiProject" by OPERATOR: "At least one node holds the current generation sealed.";
    }
    REFRESHED = "Refreshed" {
        "YoiProject" by OPERATOR: "The last look at its git repository did not fail, and trees are made from the commit that it found. A project that was never looked at has no such condition.";
    }
    SESSIONS_WARM = "SessionsWarm" {
        "YoiProject" by OPERATOR: "Of a project with `spec.warm`: at least one warm session claim stands ready, or none is needed.";
    }
    BOUND = "Bound" {
        "AgentWorkspace" by OPERATOR: "Of a workspace with a claim: the claim is bound to the tree.";
    }
    WORKSPACE_READY = "WorkspaceReady" {
        "YoiPod" by OPERATOR: "The agent's AgentWorkspace is Ready.";
    }
    SESSION_READY = "SessionReady" {
        "YoiPod" by OPERATOR: "The session volume is bound, locked by the runtime, and replayed.";
    }
    SCOPE_ENFORCED = "ScopeEnforced" {
        "YoiPod" by OPERATOR: "The kernel of the agent's node keeps every process of the agent in its frame, and in `spec.scope` where the agent was started with one. While neither runtime nor node has reported, an agent has no such condition.";
        "AgentWorkspace" by SHIM: "Paths of the tree are covered in the view of the Pod that has it mounted, as the scope of its agent says. A tree of an agent without a scope has no such condition.";
    }
    ASSETS_LOADED = "AssetsLoaded" {
        "YoiPod" by OPERATOR: "Skills, commands and workflows were read as its project says. An agent that has none, and whose project says nothing of them, has no such condition.";
    }
    PROGRAM_KNOWN = "ProgramKnown" {
        "YoiPod" by OPERATOR: "Of an agent that is a program, once its version was none that its preset names; else it has no such condition.";
    }
    GIT_FOUND = "GitFound" {
        "YoiPod" by OPERATOR: "Of an agent with a source, once its image was found to have no git; else it has no such condition.";
    }
    PROGRAM_SESSION_KEPT = "ProgramSessionKept" {
        "YoiPod" by OPERATOR: "Of an agent that is a program, once it could not go on in its own session and began another one; else it has no such condition.";
    }
    READY = "Ready" {
        "YoiProject" by OPERATOR: "New workspaces can start from it.";
        "AgentWorkspace" by OPERATOR: "It can be mounted.";
        "YoiPod" by OPERATOR: "Replayed and locked: the agent listens.";
        "YoiPeer" by OPERATOR: "The two see each other and may send messages.";
        "WorkspaceNode" by SHIM: "Trees can be made on this node.";
    }
    JOURNAL_READABLE = "JournalReadable" {
        "WorkspaceNode" by SHIM: "All that the node has written down of its trees and mounts can be read.";
    }
    MANIFEST_CURRENT = "ManifestCurrent" {
        "YoiPod" by OPERATOR: "What the agent was last started with is what its spec and its project say now. An agent that never ran has no such condition.";
    }
    TASK_COMPLETE = "TaskComplete" {
        "YoiPod" by OPERATOR: "The task's run finished.";
    }
    READER_READY = "ReaderReady" {
        "YoiPod" by OPERATOR: "While somebody reads a stopped agent: the Pod that serves its log, diff and patch runs.";
    }
    PUSHED = "Pushed" {
        "YoiPod" by OPERATOR: "What the agent had committed is on the branch. An agent of which nothing was to be pushed has no such condition.";
    }
    ENDING = "Ending" {
        "YoiPod" by OPERATOR: "The lifetime of the agent ends soon, or the agent has ended and is deleted soon; the message says when. Else it has no such condition.";
    }
    IN_USE = "InUse" {
        "AgentWorkspace" by SHIM: "A Pod has the tree mounted.";
    }
    CLEANED_UP = "CleanedUp" {
        "AgentWorkspace" by SHIM: "While it is deleted: nothing of it is left on its node.";
    }
}
