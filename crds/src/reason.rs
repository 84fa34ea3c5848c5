//! Condition types and their reasons: the vocabulary that users and alerts match on.

/// Condition types.
pub mod condition {
    pub const READY: &str = "Ready";
    pub const ACCEPTED: &str = "Accepted";
    // YoiProject
    pub const SOURCE_READY: &str = "SourceReady";
    pub const SEALED: &str = "Sealed";
    // AgentWorkspace
    pub const SCHEDULED: &str = "Scheduled";
    pub const PROVIDER_SELECTED: &str = "ProviderSelected";
    pub const POPULATED: &str = "Populated";
    pub const PROVISIONED: &str = "Provisioned";
    pub const BOUND: &str = "Bound";
    pub const IN_USE: &str = "InUse";
    pub const CLEANED_UP: &str = "CleanedUp";
    // YoiPod
    pub const WORKSPACE_READY: &str = "WorkspaceReady";
    pub const SESSION_READY: &str = "SessionReady";
    pub const TASK_COMPLETE: &str = "TaskComplete";
}

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal;)+) => {
        $($(#[doc = $doc])+ pub const $name: &str = $text;)+
        /// Every reason with its meaning, for the generated page.
        pub const ALL: &[(&str, &str)] = &[$(($text, concat!($($doc),+))),+];
    };
}

reasons! {
    /// The spec makes sense and what it names exists.
    VALID = "Valid";
    /// Every condition that Ready waits for is True.
    ALL_MET = "AllMet";
    /// The spec cannot be carried out as written.
    INVALID_SPEC = "InvalidSpec";
    /// The API server refused something that the object needs; its words are in the message.
    APPLY_FAILED = "ApplyFailed";
    /// A YoiProject, AgentWorkspace or claim that the spec names does not exist.
    SOURCE_NOT_FOUND = "SourceNotFound";
    /// A node was chosen.
    NODE_SELECTED = "NodeSelected";
    /// A late-bound workspace waits for the first Pod that uses it.
    WAITING_FOR_CONSUMER = "WaitingForConsumer";
    /// No node offers what the workspace asks for.
    NO_ELIGIBLE_NODE = "NoEligibleNode";
    /// A fork must be on its parent's node, and the Pod is not.
    PARENT_ON_OTHER_NODE = "ParentOnOtherNode";
    /// The provider on this node.
    SELECTED = "Selected";
    /// The node does not offer the provider asked for; there is no fallback.
    PROVIDER_UNAVAILABLE = "ProviderUnavailable";
    /// The populator Pod fills the base.
    POPULATING = "Populating";
    /// The populator Pod failed.
    POPULATE_FAILED = "PopulateFailed";
    /// The source's content is in the base.
    FILLED = "Filled";
    /// The base is read-only and has a manifest digest.
    SEALED = "Sealed";
    /// An empty tree was made.
    TREE_CREATED = "TreeCreated";
    /// The tree was made as a snapshot or copy of a base.
    CLONE_CREATED = "CloneCreated";
    /// A tree that was there already was taken over after a restart.
    ADOPTED = "Adopted";
    /// The shim is making the tree.
    CREATING = "Creating";
    /// The source holds nested subvolumes, which a snapshot would show as empty folders.
    NESTED_VOLUME = "NestedVolume";
    /// The source is being written and the provider cannot copy it atomically.
    SOURCE_NOT_SEALED = "SourceNotSealed";
    /// The node's data root is full.
    OUT_OF_SPACE = "OutOfSpace";
    /// The node's file system refused.
    BACKEND_ERROR = "BackendError";
    /// The claim is bound to this workspace's volume.
    CLAIM_BOUND = "ClaimBound";
    /// The claim and its volume exist; the binding controller has yet to join them.
    WAITING_FOR_CONTROLLER = "WaitingForController";
    /// The claim was bound and is gone.
    CLAIM_LOST = "ClaimLost";
    /// A Pod has the tree mounted.
    PUBLISHED = "Published";
    /// No Pod has the tree mounted.
    NOT_PUBLISHED = "NotPublished";
    /// Deletion waits until no Pod uses the tree.
    WAITING_FOR_PODS = "WaitingForPods";
    /// The file system says that the tree is busy; tried again.
    BUSY = "Busy";
    /// The node of the tree is gone.
    NODE_LOST = "NodeLost";
    /// The tree is destroyed.
    DESTROYED = "Destroyed";
    /// The project's base is not sealed on any node yet.
    PROJECT_NOT_READY = "ProjectNotReady";
    /// The model's Secret or its key does not exist.
    SECRET_MISSING = "SecretMissing";
    /// The tree and the session volume can only be reached from different nodes.
    SESSION_TOPOLOGY_CONFLICT = "SessionTopologyConflict";
    /// Another process holds the session's lock.
    SESSION_LOCKED = "SessionLocked";
    /// The session log is damaged; its file and line are in the message.
    REPLAY_FAILED = "ReplayFailed";
    /// The session log was written by a newer version.
    LOG_NEWER = "LogNewer";
    /// Replayed and locked.
    REPLAYED = "Replayed";
    /// The model endpoint does not answer or refuses.
    MODEL_UNREACHABLE = "ModelUnreachable";
    /// The session volume is full.
    DISK_FULL = "DiskFull";
    /// The agent's Pod is not there or its container is not running.
    POD_NOT_RUNNING = "PodNotRunning";
    /// The agent's Pod waits for a node.
    POD_PENDING = "PodPending";
    /// The runtime has started and not yet reported.
    STARTING = "Starting";
    /// The spec asks for no running Pod.
    STOPPED = "Stopped";
    /// The Pod is going down.
    STOPPING = "Stopping";
    /// The spec names no task.
    NO_TASK = "NoTask";
    /// The task was given to the agent.
    TASK_RUNNING = "TaskRunning";
    /// The task's run finished.
    TASK_SUCCEEDED = "TaskSucceeded";
    /// The task's run failed.
    TASK_FAILED = "TaskFailed";
    /// Both members exist and are bound by UID.
    MEMBERS_BOUND = "MembersBound";
    /// A member does not exist.
    MEMBER_MISSING = "MemberMissing";
    /// A member was deleted and made anew; the relation was with the former one.
    MEMBER_REPLACED = "MemberReplaced";
    /// Both names are the same.
    ITSELF = "Self";
}
