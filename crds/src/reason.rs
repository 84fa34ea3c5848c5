//! Condition types and their reasons, which users and alerts match on.
//!
//! `docs/reasons.md` is generated from here, and `kubectl yoi` takes its advice from here.

use std::fmt;
use std::ops::Deref;

/// Condition types.
pub mod condition;

/// A reason of a condition. Only this file can make one, so that `docs/reasons.md` has every reason.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reason {
    word: &'static str,
    meaning: &'static str,
    advice: Option<&'static str>,
    command: Option<&'static str>,
    warns: bool,
    recovery: Recovery,
}

/// How an object gets over a reason for which a condition is not True.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Recovery {
    /// By itself, or when somebody who is not waiting for it acts: it is worth waiting.
    Itself,
    /// Only after a person has changed something.
    Person,
    /// It is tried again and again. When that lasts, a person has to change something.
    Retried,
}

impl Reason {
    /// The reason of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Reason> {
        ALL.iter().copied().find(|reason| reason.word == name)
    }

    /// The name, as in a condition.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.word
    }

    /// What is true when a condition has it.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        self.meaning.trim()
    }

    /// What a person does about it, if there is something to do.
    #[must_use]
    pub const fn advice(self) -> Option<&'static str> {
        self.advice
    }

    /// A command that repairs it or shows more, for an object `$KIND $NAME` of `$NAMESPACE`. A person fills in the other words in capitals.
    #[must_use]
    pub const fn command(self) -> Option<&'static str> {
        self.command
    }

    /// Whether its Event is a Warning while the condition is not True: somebody must act, or will look for it later.
    #[must_use]
    pub const fn warns(self) -> bool {
        self.warns
    }

    /// How an object gets over it: what waits for the object ends early when only a person can fix it.
    #[must_use]
    pub const fn recovery(self) -> Recovery {
        self.recovery
    }
}

impl Deref for Reason {
    type Target = str;
    fn deref(&self) -> &str {
        self.word
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word)
    }
}

impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word)
    }
}

impl From<Reason> for String {
    fn from(reason: Reason) -> String {
        reason.word.to_owned()
    }
}

macro_rules! comparable {
    ($($text:ty),+) => {$(
        impl PartialEq<$text> for Reason {
            fn eq(&self, other: &$text) -> bool { self.word == AsRef::<str>::as_ref(other) }
        }
        impl PartialEq<Reason> for $text {
            fn eq(&self, other: &Reason) -> bool { AsRef::<str>::as_ref(self) == other.word }
        }
    )+};
}
comparable!(str, &str, String);

/// Whether a condition TaskComplete with this reason says that the task's run has failed.
#[must_use]
pub fn is_task_failure(reason: &str) -> bool {
    let failures = [
        TASK_FAILED,
        CANCELLED,
        TRUNCATED,
        REFUSED,
        CONTENT_FILTER,
        CONTEXT_FULL,
        LIMIT_REACHED,
        MODEL_REFUSED_HISTORY,
        EMPTY_ANSWER,
        WRITTEN_CALL,
        COMMAND_INVALID,
        PROGRAM_LOGIN_NEEDED,
        PROGRAM_SILENT,
    ];
    failures.iter().any(|failure| *failure == *reason)
}

macro_rules! optional {
    () => {
        None
    };
    ($text:literal) => {
        Some($text)
    };
}
macro_rules! marked {
    () => {
        false
    };
    ($mark:tt) => {
        true
    };
}
macro_rules! recovery {
    () => {
        Recovery::Itself
    };
    (!) => {
        Recovery::Itself
    };
    (person) => {
        Recovery::Person
    };
    (retried) => {
        Recovery::Retried
    };
}
macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $(@$mark:tt)? $name:ident = $word:literal $(, $advice:literal $(, $command:literal)?)?;)+) => {
        $($(#[doc = $doc])+ pub const $name: Reason = Reason {
            word: $word,
            meaning: concat!($($doc),+),
            advice: optional!($($advice)?),
            command: optional!($($($command)?)?),
            warns: marked!($($mark)?),
            recovery: recovery!($($mark)?),
        };)+
        /// Every reason.
        pub const ALL: &[Reason] = &[$($name),+];
    };
}

// With a mark the Event is a Warning: `@!`; `@person`, what only a person can fix; `@retried`, what is tried again by itself. Then what to do, and a
// command.
reasons! {
    /// The spec makes sense and what it names exists.
    VALID = "Valid";
    /// Every condition that Ready waits for is True.
    ALL_MET = "AllMet";
    /// The spec cannot be carried out as written.
    @person INVALID_SPEC = "InvalidSpec",
        "The message says which field. `kubectl edit` changes it, unless it is immutable: then delete the object and make it anew.",
        "kubectl describe $KIND $NAME -n $NAMESPACE";
    /// The API server refused something that the object needs; its answer is in the message.
    @retried APPLY_FAILED = "ApplyFailed",
        "Fix what the API server names: often a quota, an admission policy or a right of the operator. It is tried again by itself.",
        "kubectl describe $KIND $NAME -n $NAMESPACE";
    /// A YoiProject, AgentWorkspace, claim, ConfigMap or folder of the node that the spec names does not exist.
    @person SOURCE_NOT_FOUND = "SourceNotFound",
        "Make what the message names; the object goes on by itself.",
        "kubectl apply -n $NAMESPACE -f MANIFEST.yaml";
    /// The source may not be used: no node lists it for this namespace, its folder belongs to somebody else, or the repository in it has parts elsewhere.
    @person SOURCE_FORBIDDEN = "SourceForbidden",
        "Have the administrator list the folder and this namespace in the chart's `shim.hostSources`, or run the command in the message on the node.",
        "kubectl get workspacenodes -o jsonpath='{.items[*].status.hostSources}'";
    /// Files of the source were written each time that it was copied.
    @retried SOURCE_CHANGING = "SourceChanging",
        "Stop what writes to the folder for a moment; the message names the last file. It is tried again by itself.",
        "kubectl describe $KIND $NAME -n $NAMESPACE";
    /// A node was chosen.
    NODE_SELECTED = "NodeSelected";
    /// A late-bound workspace waits for the first Pod that uses it.
    WAITING_FOR_CONSUMER = "WaitingForConsumer",
        "Start a Pod that uses the claim, or make the workspace with `binding: Immediate`.";
    /// No node offers what the workspace asks for.
    @retried NO_ELIGIBLE_NODE = "NoEligibleNode",
        "Free space on a node, let the shim run on more nodes, or ask for another provider; the message counts the nodes and why each will not do.",
        "kubectl describe workspacenodes";
    /// A fork must be on its parent's node, and the Pod is not.
    @person PARENT_ON_OTHER_NODE = "ParentOnOtherNode",
        "Let the Pod go to the node of the parent, or make the fork from the project.",
        "kubectl get agentworkspaces -n $NAMESPACE -o wide";
    /// The provider on this node.
    SELECTED = "Selected";
    /// The node does not offer the provider asked for; there is no fallback.
    PROVIDER_UNAVAILABLE = "ProviderUnavailable",
        "Give the data root a file system that has it, or ask for `Auto`; the WorkspaceNode says of each provider why not.",
        "kubectl describe workspacenodes";
    /// The populator Pod fills the base.
    POPULATING = "Populating";
    /// The populator Pod failed.
    @retried POPULATE_FAILED = "PopulateFailed",
        "The message holds the end of the populator's output, and when it is tried again: fix the URL, the ref, the Secret or the way to the server. Of a project it is tried at once with `kubectl yoi refresh`.",
        "kubectl get pods -n $NAMESPACE -l yoi.dev/role=populator";
    /// The project's `prepare` runs in the base.
    PREPARING = "Preparing";
    /// The project's `prepare` failed in the base. It is tried again in a base that is filled anew.
    @retried PREPARE_FAILED = "PrepareFailed",
        "The message holds the last words of the command and names its Pod, whose log has the rest; or it says that the command has moved HEAD, and from which commit to which. Mend `spec.prepare` or the source; a changed `spec.prepare` is tried at once.",
        "kubectl logs -n $NAMESPACE -l yoi.dev/role=prepare --tail=100";
    /// The Pod that fills or prepares a base cannot run on its node. Another node gets a base, if there is one that can.
    @retried POPULATOR_NOT_RUNNING = "PopulatorNotRunning",
        "The message holds the words of the scheduler or the kubelet: room, a taint, the image. It goes on by itself when that is fixed.",
        "kubectl describe pods -n $NAMESPACE -l 'yoi.dev/role in (populator,prepare)'";
    /// Trees are made from the commit that the last look at the git repository found.
    REFRESHED = "Refreshed";
    /// The last look at the git repository failed. Trees are made from the commit that is there.
    @retried REFRESH_FAILED = "RefreshFailed",
        "The message holds git's words: fix the URL, the ref, the Secret or the way to the server. The next look is after `spec.source.git.refresh`, or now with the command.",
        "kubectl yoi refresh $NAME -n $NAMESPACE";
    /// The source's content is in the base.
    FILLED = "Filled";
    /// The base is read-only and has a manifest digest.
    SEALED = "Sealed";
    /// An empty tree was made.
    TREE_CREATED = "TreeCreated";
    /// The tree was made as a snapshot, overlay or copy of a base.
    CLONE_CREATED = "CloneCreated";
    /// A tree that was there already was taken over after a restart.
    ADOPTED = "Adopted";
    /// The shim is making the tree.
    CREATING = "Creating";
    /// The source holds nested subvolumes, which a snapshot would show as empty folders.
    NESTED_VOLUME = "NestedVolume",
        "Remove the nested subvolume from the source tree.";
    /// The source is being written and the provider cannot copy it atomically.
    SOURCE_NOT_SEALED = "SourceNotSealed",
        "Wait until the parent has its tree. Btrfs forks a tree in use, `Overlay` one that no Pod mounts: stop the parent's agent, and it goes on by itself.",
        "kubectl get agentworkspaces -n $NAMESPACE";
    /// The file system of the node refuses what is over the quota.
    ENFORCED = "Enforced";
    /// The node cannot enforce the quota; the message says what its file system lacks. The tree works without.
    @! UNSUPPORTED = "Unsupported",
        "Use a node whose data root is Btrfs with simple quotas (`shim.loopBtrfs`, or `shim.btrfs.simpleQuota`), or XFS or ext4 mounted with `prjquota`.",
        "kubectl describe workspacenodes";
    /// The tree takes as much as its quota allows, or more. It can be used, and what is written to it may fail.
    @! QUOTA_EXCEEDED = "QuotaExceeded",
        "Remove files from the tree, or raise `spec.quota` of the workspace.",
        "kubectl yoi ls workspaces -n $NAMESPACE";
    /// The node's data root is full, or smaller than the quota that is asked for.
    OUT_OF_SPACE = "OutOfSpace",
        "Make room in the data root of the node: delete workspaces that nobody needs, or enlarge the volume.",
        "kubectl yoi ls workspaces -A";
    /// The file system of the node's trees has become read-only, as the kernel makes it after an error. Nothing can be written, made or deleted.
    @retried READ_ONLY_FILESYSTEM = "ReadOnlyFilesystem",
        "The message says who uses it: end those Pods, and the node mounts it anew within a minute. A file system that the node's admin has mounted, only they can mount anew.",
        "kubectl delete pods -A --field-selector spec.nodeName=NODE -l yoi.dev/yoipod";
    /// The node's kernel lacks system calls that every tree and mount needs.
    @person KERNEL_TOO_OLD = "KernelTooOld",
        "Give the node the kernel that the message names, or keep agents off it with `shim.nodeSelector`.",
        "kubectl get workspacenodes -o wide";
    /// Folders of the source lie more than 256 levels deep, and the provider of its tree copies no deeper ones.
    @person TREE_TOO_DEEP = "TreeTooDeep",
        "The message names a folder in which they are: remove it from the parent's tree, or what is deep in it. Then delete this fork and make it again.",
        "kubectl describe $KIND $NAME -n $NAMESPACE";
    /// The node's file system refused.
    BACKEND_ERROR = "BackendError",
        "Read the message, then the mounter's log; the file system may need repair.",
        "kubectl logs -n yoi-node -l app.kubernetes.io/name=yoi-agent-shim -c mounter --tail=50";
    /// The tree stood on its node's disk and is not there any more. It is never made anew under the same object.
    @person TREE_LOST = "TreeLost",
        "If the node's data root is only not mounted, mount it and restart the shim. If the tree is gone for good, delete the workspace and make it anew.",
        "kubectl delete $KIND $NAME -n $NAMESPACE";
    /// The AgentWorkspace that held the agent's tree was deleted, and the tree with it. The agent does not begin in another tree by itself: its session
    /// is about the former one.
    @person TREE_DELETED = "TreeDeleted",
        "To go on with the session in a new tree, say so by this command. To begin anew, delete the agent with its session and make it again.",
        r#"kubectl annotate yoipod $NAME -n $NAMESPACE --overwrite yoi.dev/new-tree="$(kubectl get yoipod $NAME -n $NAMESPACE -o 'jsonpath={.status.workspace.uid}')""#;
    /// The tree is ready. It was made from another source than its project has now.
    FORMER_SOURCE = "FormerSource",
        "Nothing, if that is meant. For a tree of the project's source as it is now, make a new workspace or agent.",
        "kubectl yoi ls workspaces -n $NAMESPACE -o wide";
    /// What the node has written down about the tree cannot be read. The tree is left alone; others are served.
    @person JOURNAL_DAMAGED = "JournalDamaged",
        "Put the file that the message names back from a backup, or move it away: the tree is then taken over as it stands. Deleting the workspace also ends this.",
        "kubectl describe $KIND $NAME -n $NAMESPACE";
    /// What is mounted as the node's data root is not the one that its trees are in.
    @person DATA_ROOT_MISSING = "DataRootMissing",
        "Mount the node's data root; the shim goes on by itself. If it is gone for good, the message says what to remove.",
        "kubectl logs -n yoi-node -l app.kubernetes.io/name=yoi-agent-shim -c shim --tail=20";
    /// The claim is bound to this workspace's volume.
    CLAIM_BOUND = "ClaimBound";
    /// The claim and its volume exist; the binding controller has yet to join them.
    WAITING_FOR_CONTROLLER = "WaitingForController",
        "Usually seconds. If it lasts: does the StorageClass exist, and does its provisioner run?",
        "kubectl describe pvc -n $NAMESPACE";
    /// The claim was bound and is gone.
    @!CLAIM_LOST = "ClaimLost",
        "A new claim is made when the old one is gone.",
        "kubectl get pvc -n $NAMESPACE";
    /// A Pod has the tree mounted.
    PUBLISHED = "Published";
    /// No Pod has the tree mounted.
    NOT_PUBLISHED = "NotPublished";
    /// The last Pod that had the tree mounted let it go.
    RELEASED = "Released";
    /// Deletion waits until no Pod uses the tree.
    WAITING_FOR_PODS = "WaitingForPods",
        "Delete the Pods that still use the tree.",
        "kubectl get pods -n $NAMESPACE";
    /// Deletion of the project waits until no YoiPod and no AgentWorkspace names it. Those that have a tree go on, and nothing new begins from it.
    @!WAITING_FOR_AGENTS = "WaitingForAgents",
        "Delete the agents and workspaces that the message names, when nobody needs them any more.",
        "kubectl yoi ls -n $NAMESPACE";
    /// The file system says that the tree is busy; tried again.
    BUSY = "Busy",
        "Usually seconds. If it lasts, some process of the node holds a file of the tree open.",
        "kubectl logs -n yoi-node -l app.kubernetes.io/name=yoi-agent-shim -c mounter --tail=50";
    /// The node of the tree does not answer: the tree cannot be destroyed, and an agent on it cannot be reached.
    @retried NODE_NOT_READY = "NodeNotReady",
        "Bring the node that the message names back. If it is gone for good, delete its Node object: its trees are given up then.",
        "kubectl get nodes";
    /// Nothing is heard of the node's shim: its Pod is gone or not ready, as when the node is switched off or its link is cut. Nothing new goes there.
    @retried NODE_STATUS_UNKNOWN = "NodeStatusUnknown",
        "Bring the node back, or its yoi-agent-shim Pod: the node is Ready again by itself. If the node is gone for good, delete its Node object.",
        "kubectl describe pods -A -l app.kubernetes.io/name=yoi-agent-shim --field-selector spec.nodeName=NODE";
    /// The node of the tree is gone.
    @person NODE_LOST = "NodeLost",
        "The tree went with its node. Delete the object and make it anew.",
        "kubectl delete $KIND $NAME -n $NAMESPACE";
    /// The node of the agent's tree is gone, and with it the volume of its session, which no other node can use.
    @person TREE_AND_SESSION_LOST = "TreeAndSessionLost",
        "Nothing of the agent is left to go on with. Delete it with its session, and make it again.",
        "kubectl yoi rm $NAME -n $NAMESPACE --purge --force";
    /// The tree is destroyed.
    DESTROYED = "Destroyed";
    /// The project's base is not sealed on any node yet.
    PROJECT_NOT_READY = "ProjectNotReady",
        "See why the project is not Ready.",
        "kubectl describe yoiprojects -n $NAMESPACE";
    /// The project that the object was to begin from is being deleted. It goes once nothing names it, and this object does.
    @person PROJECT_DELETING = "ProjectDeleting",
        "Delete the object, and make it again when there is another project of that name.",
        "kubectl delete $KIND $NAME -n $NAMESPACE";
    /// The namespace is being deleted, and the object with it. Nothing can be made in it any more.
    NAMESPACE_TERMINATING = "NamespaceTerminating",
        "Nothing, unless it lasts: then see what holds the namespace.",
        "kubectl describe namespace $NAMESPACE";
    /// A Secret that the agent needs, or the key in it, does not exist: the model's, a program's login, or one of `pod.env`.
    @person SECRET_MISSING = "SecretMissing",
        "Make the Secret, or put the key into it that the message names; the agent takes it up by itself. The command does both, and keeps other keys.",
        r#"kubectl create secret generic SECRET -n $NAMESPACE --from-literal=KEY="$MODEL_KEY" --dry-run=client -o yaml | kubectl apply -f -"#;
    /// The tree and the session volume can only be reached from different nodes.
    @person SESSION_TOPOLOGY_CONFLICT = "SessionTopologyConflict",
        "Use a session volume that the node of the tree can reach, or a new workspace.",
        "kubectl describe yoipod $NAME -n $NAMESPACE";
    /// Another process holds the session's lock.
    @!SESSION_LOCKED = "SessionLocked",
        "Another Pod still runs on this session. It ends by itself when that Pod is gone; two YoiPods must not name the same claim.",
        "kubectl get pods -n $NAMESPACE -l yoi.dev/yoipod";
    /// The session log is damaged; its file and line are in the message.
    @person REPLAY_FAILED = "ReplayFailed",
        "Nothing is overwritten. Restore the file from a backup of the session volume, or go on with a new session: another YoiPod with another claim.",
        "kubectl describe yoipod $NAME -n $NAMESPACE";
    /// The session log was written by a newer version.
    @person LOG_NEWER = "LogNewer",
        "Let the newer version run it: upgrade the charts again.",
        "helm upgrade yoi-operator charts/yoi-operator -n yoi-system --reuse-values";
    /// Somebody has written into a warm session claim before the agent took it. The agent gets a claim of its own; this one stays as it is, and no agent uses it.
    @!SESSION_NOT_EMPTY = "SessionNotEmpty",
        "Nothing: another Pod follows with a claim of its own. Whoever may make Pods in the namespace can mount claims there.",
        "kubectl describe pvc -n $NAMESPACE";
    /// Replayed and locked.
    REPLAYED = "Replayed";
    /// The model endpoint does not answer, or what it sends cannot be used. While the run is open it is asked again by itself.
    @retried MODEL_UNREACHABLE = "ModelUnreachable",
        "Fix what the message names: the endpoint's address, its certificate (`caRef` names a CA of your own), the way to it. A run that has ended over it is \
         given its work again by a message.",
        r#"kubectl yoi send $NAME "go on" -n $NAMESPACE"#;
    /// The model endpoint wants something of a person: another key, credit, a quota, other settings; or it refuses a request without saying why, or none of its
    /// answers can be used. The run stays open, and its task is not lost.
    @person MODEL_REFUSED = "ModelRefused",
        "The log holds the endpoint's words. A changed spec or project reaches the agent by itself; after a changed Secret, or what you did at the provider, resume it, \
         and it asks again at once. By itself it reads the Secret after a minute, later within ten, and asks the endpoint after 5 minutes and then every 30.",
        "kubectl yoi resume $NAME -n $NAMESPACE";
    /// The session volume is full.
    @retried DISK_FULL = "DiskFull",
        "Enlarge the session claim (if its class allows), or free its volume.",
        "kubectl describe pvc -l yoi.dev/yoipod=$NAME -n $NAMESPACE";
    /// The session volume refuses to be written.
    @retried DISK_FAILED = "DiskFailed",
        "Fix the volume that the message names; the agent goes on by itself.",
        "kubectl describe pvc -l yoi.dev/yoipod=$NAME -n $NAMESPACE";
    /// The project has warm session claims, and the agent takes none of them, for the reason in the message. Its claim is made and bound with its Pod.
    NO_WARM_SESSION = "NoWarmSession",
        "Nothing: the agent starts some seconds later. More of them stand ready with a higher `spec.warm.sessions` of the project.",
        "kubectl describe yoiproject -n $NAMESPACE";
    /// Session claims stand ready, so the next agent starts without waiting for a volume; or the StorageClass binds at once, and none are needed.
    SESSIONS_WARM = "SessionsWarm";
    /// The first warm session claims are being made.
    WARMING = "Warming",
        "Usually seconds. Agents start meanwhile, with claims that are bound with their Pods.";
    /// The administrator of the cluster allows no warm session claims.
    WARM_OFF = "WarmOff",
        "Have the administrator set `agents.warmSessions` of the chart, or take `spec.warm` out of the project.",
        "kubectl edit $KIND $NAME -n $NAMESPACE";
    /// A warm session claim could not be had. Agents start as they do without one.
    @retried WARM_REFUSED = "WarmRefused",
        "The message says who refuses: often a quota of the namespace, or a StorageClass. It is tried again every minute; `spec.warm.sessions: 0` ends it.",
        "kubectl describe $KIND $NAME -n $NAMESPACE";
    /// The agent's Pod is not there or its container is not running.
    POD_NOT_RUNNING = "PodNotRunning",
        "Another Pod follows by itself. If it does not last, read what the last one said.",
        "kubectl logs -n $NAMESPACE -l yoi.dev/yoipod=$NAME --tail=50";
    /// There is no session volume: the agent has never run.
    NO_SESSION = "NoSession",
        "Start the agent; its log begins then.",
        "kubectl yoi start $NAME -n $NAMESPACE";
    /// The Pod that reads a stopped agent's session cannot run. It is tried again for as long as somebody asks.
    @retried READER_FAILED = "ReaderFailed",
        "The message says how it ended. Its own log says why.",
        "kubectl logs $NAME-reader -n $NAMESPACE";
    /// The stopped agent's log is served, and its diff and its commits are not: git would run what the tree says, and the node's kernel keeps no process in a
    /// frame.
    READER_WITHOUT_GIT = "ReaderWithoutGit",
        "Start the agent to see its diff and to take its commits. Give the node a kernel with Landlock, to read them from a stopped agent.",
        "kubectl yoi start $NAME -n $NAMESPACE";
    /// The agent's commits are on the branch that the message names.
    PUSHED = "Pushed";
    /// The agent has committed nothing since its base, so nothing was pushed.
    NOTHING_TO_PUSH = "NothingToPush",
        "See what is not committed. `kubectl yoi push --commit -m MESSAGE` commits and pushes it.",
        "kubectl yoi diff $NAME -n $NAMESPACE --since-commit";
    /// A Pod takes the agent's commits and pushes them. It is tried up to three times.
    PUSHING = "Pushing",
        "Usually seconds. If it lasts, the message says what it waits for.",
        "kubectl logs $NAME-push -n $NAMESPACE";
    /// The agent's commits were not pushed, or it is not known whether they were, as when the server breaks off; the message says why.
    @person PUSH_FAILED = "PushFailed",
        "The message has git's words. Mend what they name (a token, a rule of the server), or choose another branch, and push again.",
        "kubectl yoi push $NAME -n $NAMESPACE";
    /// The agent's Pod waits for its node, its image or its volumes.
    POD_PENDING = "PodPending",
        "Usually seconds. If it lasts, the message says what it waits for: the scheduler, the image, a volume.",
        "kubectl describe pods -n $NAMESPACE -l yoi.dev/yoipod=$NAME";
    /// No node can take the agent's Pod as things are. The scheduler goes on trying, and an autoscaler may add a node.
    @!UNSCHEDULABLE = "Unschedulable",
        "The message holds the scheduler's words. Wait for room or for a node, or change what the Pod asks for: `spec.pod` or `spec.defaults.pod` of the project.",
        "kubectl describe pods -n $NAMESPACE -l yoi.dev/yoipod=$NAME";
    /// The kubelet cannot pull the image of the agent's Pod.
    @retried IMAGE_PULL_FAILED = "ImagePullFailed",
        "Fix what the message names: the image's name or tag, the registry's Secret in `spec.pod.imagePullSecrets`, the way to the registry. The kubelet goes on trying.",
        "kubectl describe pods -n $NAMESPACE -l yoi.dev/yoipod=$NAME";
    /// The image of the agent's Pod has no valid name.
    @person INVALID_IMAGE_NAME = "InvalidImageName",
        "Write the image as REGISTRY/NAME:TAG in `spec.pod.image`.",
        "kubectl edit $KIND $NAME -n $NAMESPACE";
    /// The kubelet cannot make the agent's container as the Pod describes it.
    @retried CONTAINER_NOT_CREATED = "ContainerNotCreated",
        "The message holds the kubelet's words: often a volume's `subPath`, or a profile of `spec.pod.securityContext` that the node does not have. The kubelet goes on trying.",
        "kubectl describe pods -n $NAMESPACE -l yoi.dev/yoipod=$NAME";
    /// No node that holds the base, or that could hold the tree, has room for the agent's Pod. It may go to any node that can make the tree.
    NO_ROOM = "NoRoom",
        "Wait for a node to join or for room. What the Pod asks for stands in `spec.pod.resources` and `spec.pod.nodeSelector`.",
        "kubectl describe pods -n $NAMESPACE -l yoi.dev/yoipod=$NAME";
    /// The runtime has started and not yet reported.
    STARTING = "Starting";
    /// The spec asks for no running Pod.
    STOPPED = "Stopped",
        "Start it when it shall go on; log, diff and patch show what it has done without that. An agent that has done its task and has `completion: Stop` \
         goes on once that is `Keep`.",
        "kubectl yoi start $NAME -n $NAMESPACE";
    /// The Pod is going down.
    STOPPING = "Stopping";
    /// The agent has had nothing to do and rests without a Pod; its session and its tree stay.
    RESTING = "Resting",
        "Send it a message, start a run, or attach to it: each wakes it. Log, diff and patch show what it has done without that.",
        "kubectl yoi send $NAME TEXT -n $NAMESPACE";
    /// `spec.limits.lifetime` is over: nothing runs the agent any more. Its session and its tree stay.
    LIFETIME_OVER = "LifetimeOver",
        "Raise `spec.limits.lifetime`, or take it out, and the agent goes on. Log, diff and patch show what it has done without that.",
        r#"kubectl patch $KIND $NAME -n $NAMESPACE --type merge -p '{"spec":{"limits":{"lifetime":null}}}'"#;
    /// `spec.limits.lifetime` ends soon.
    LIFETIME_ENDS = "LifetimeEnds",
        "Raise `spec.limits.lifetime`, or take it out, and the agent goes on.",
        r#"kubectl patch $KIND $NAME -n $NAMESPACE --type merge -p '{"spec":{"limits":{"lifetime":null}}}'"#;
    /// The agent has ended, and `spec.ttlAfterFinished` has it deleted at the time that the message names.
    DELETED_WHEN_FINISHED = "DeletedWhenFinished",
        "To keep it, take `spec.ttlAfterFinished` out before that time.",
        r#"kubectl patch $KIND $NAME -n $NAMESPACE --type merge -p '{"spec":{"ttlAfterFinished":null}}'"#;
    /// The spec names no task.
    NO_TASK = "NoTask";
    /// The task was given to the agent.
    TASK_RUNNING = "TaskRunning";
    /// The task's run finished.
    TASK_SUCCEEDED = "TaskSucceeded";
    /// The task's run failed.
    @!TASK_FAILED = "TaskFailed",
        "The log says why.",
        "kubectl yoi log $NAME -n $NAMESPACE";
    /// The task's run failed: a person cancelled it, or took its input back.
    @!CANCELLED = "Cancelled",
        "Give it the work again by a message, if that is meant.",
        r#"kubectl yoi send $NAME "go on" -n $NAMESPACE"#;
    /// The task's run failed: the model's last answer was cut off at its output limit.
    @!TRUNCATED = "Truncated",
        "Raise `spec.model.maxOutputTokens`, or ask for smaller steps, and let it go on.",
        r#"kubectl yoi send $NAME "go on" -n $NAMESPACE"#;
    /// The task's run failed: the model refused to answer.
    @!REFUSED = "Refused",
        "The log holds the model's words. Word the task in another way, or use another model.",
        "kubectl yoi log $NAME -n $NAMESPACE";
    /// The task's run failed: a filter of the endpoint withheld the answer.
    @!CONTENT_FILTER = "ContentFilter",
        "The log says what the endpoint said. Word the task in another way, or use another endpoint.",
        "kubectl yoi log $NAME -n $NAMESPACE";
    /// The task's run failed: the conversation does not fit into the model's window, compacted as it is.
    @!CONTEXT_FULL = "ContextFull",
        "Use a model with a larger window, or lower `spec.compaction.keep`.",
        "kubectl edit $KIND $NAME -n $NAMESPACE";
    /// The task's run failed: it used up `spec.limits.turnsPerRun` or `spec.limits.tokens`.
    @!LIMIT_REACHED = "LimitReached",
        "Raise the limit that the log names, and let the agent go on by a message.",
        "kubectl edit $KIND $NAME -n $NAMESPACE";
    /// The run failed: the endpoint refuses something in the conversation, in a way that is not repaired. The endpoint itself answers, and is asked again by the
    /// next message.
    @retried MODEL_REFUSED_HISTORY = "ModelRefusedHistory",
        "The log holds the endpoint's words, and names the last entry that it was given. Turn the conversation back to before what it refuses with `kubectl \
         yoi rewind`, or use another model.",
        "kubectl yoi log $NAME -n $NAMESPACE";
    /// The run failed: the model answered three times in a row with neither a word nor a call of a tool. Reasoning alone is no answer.
    @!EMPTY_ANSWER = "EmptyAnswer",
        "Ask it to go on. A model that does so often is not made for calls of tools, or its server takes them for something else: use another one.",
        r#"kubectl yoi send $NAME "go on" -n $NAMESPACE"#;
    /// The run failed: the model wrote a call of a tool as text, and did so again after it was told. Nothing of such a call runs.
    @!WRITTEN_CALL = "WrittenCall",
        "The model's server does not make calls of what its model writes: give it the parser of tool calls that fits the model (vLLM: `--tool-call-parser`, \
         llama.cpp: `--jinja`), or use another model.",
        "kubectl yoi log $NAME -n $NAMESPACE";
    /// The run failed before the model was called: the command that it began with has a wrong or missing parameter, or its file is not as it should be.
    @!COMMAND_INVALID = "CommandInvalid",
        "The message names the command and the parameter: send it again with that, or mend its file.",
        "kubectl yoi log $NAME -n $NAMESPACE";
    /// The endpoint refused a request, and took it in another form: without a picture, with roles in another order, without former reasoning, or with a lower
    /// limit of its answer. Stands in the log.
    MODEL_REQUEST_CHANGED = "ModelRequestChanged",
        "Nothing: the agent goes on. The message says what the model is not given any more.",
        "kubectl yoi log $NAME -n $NAMESPACE";
    /// The agent lends paths of its tree, and processes of it that had something open there were ended: a mount closes a path only to who opens it anew. Stands
    /// in the log.
    HOLDERS_ENDED = "HoldersEnded",
        "Nothing: the agent goes on. The message names the processes; what is to run on, start it outside of what is lent.",
        "kubectl yoi log $NAME -n $NAMESPACE";
    /// The program's own session was gone or could not be read, so it began a new one with what the log knows: what it was asked, what it answered, and its
    /// calls. Stands in the log, and as a condition of the agent for the rest of its session.
    PROGRAM_SESSION_LOST = "ProgramSessionLost",
        "Nothing: the agent goes on. What the program knew beyond the log, it has to look up again.",
        "kubectl yoi log $NAME -n $NAMESPACE";
    /// The program ended its turn while a background task of its own ran, and stopped the task with it. Stands in the log.
    PROGRAM_TASK_STOPPED = "ProgramTaskStopped",
        "Ask the agent to run it in the foreground, or to wait for its end. The message names the task.",
        r#"kubectl yoi send $NAME "run it again, and wait for it" -n $NAMESPACE"#;
    /// The run failed: the agent's program said so, or ended without a result. Stands in the log.
    @!PROGRAM_FAILED = "ProgramFailed",
        "The log has the program's last words. Mend what they name, and let the agent go on by a message.",
        r#"kubectl yoi send $NAME "go on" -n $NAMESPACE"#;
    /// The run failed: the program's HOME in the session volume is full. What the program kept there of its own conversation is gone; the agent's log is not.
    /// Stands in the log.
    @!PROGRAM_HOME_FULL = "ProgramHomeFull",
        "The message has the bound. Let the agent go on by a message: its program begins a conversation of its own anew.",
        r#"kubectl yoi send $NAME "go on" -n $NAMESPACE"#;
    /// The run failed: the agent's program wrote nothing for `spec.limits.silenceSeconds`, and was ended. Stands in the log.
    @!PROGRAM_SILENT = "ProgramSilent",
        "The log has what the program did last. Let the agent go on by a message, or give it more time: a build or a slow model may be silent for long.",
        r#"kubectl yoi send $NAME "go on" -n $NAMESPACE"#;
    /// The kernel keeps every process of the agent in its frame: the tree, `/tmp` and its HOME to write, the image to read.
    FRAME_ENFORCED = "FrameEnforced";
    /// The kernel of the agent's node lacks a part of what keeps the agent's processes in their frame; the message says which. The agent runs without that part.
    @! FRAME_INCOMPLETE = "FrameIncomplete",
        "Give the node a newer kernel with Landlock (`landlock` stands in /sys/kernel/security/lsm), or keep agents that you do not trust on other nodes by \
         `spec.pod.nodeSelector`.",
        "kubectl get nodes -o wide";
    /// Mounts of the kernel close the paths of the tree that the scope of the Pod's agent does not leave open.
    COVERS_LAID = "CoversLaid";
    /// A path of the agent's scope cannot be closed or opened as its rule says, so the tree is not mounted and the agent does not start. The message names the path.
    @person COVER_REFUSED = "CoverRefused",
        "Make the path in the project's source, or name another one in `spec.scope`: a path must be in the tree, and no link. The agent starts then by itself.",
        "kubectl edit $KIND $NAME -n $NAMESPACE";
    /// An agent that works in its parent's tree waits until the paths that it is lent are closed to its parent.
    LOAN_PENDING = "LoanPending",
        "Wait: the loan begins within seconds, or is given up. The command shows the loans of the tree; the agent that lends is in `spec.spawnedBy`.",
        "kubectl yoi scope $NAME -n $NAMESPACE";
    /// The agent has ended, and what it was lent is not back yet: a Pod of it is left, or its node does not answer.
    LOAN_RECLAIMING = "LoanReclaiming",
        "Wait until its Pod is gone. If its node is gone for good, delete the Node: until then nobody knows whether something there still writes.",
        "kubectl get pods -n $NAMESPACE -l yoi.dev/yoipod=$NAME -o wide";
    /// What the agent was lent is back with its parent, and the agent does not run again. What it has said and done can be read.
    LOAN_RETURNED = "LoanReturned",
        "Nothing. For more work there, let its parent start another one.",
        "kubectl yoi log $NAME -n $NAMESPACE";
    /// The agent's image has no git. The agent works; its diff, its commits and its push cannot be read from it while it runs. Once it has stopped they are
    /// read with the image that fetches sources.
    GIT_MISSING = "GitMissing",
        "Name an image that holds git: `spec.pod.image`, or `spec.defaults.pod.image` of the project. Or stop the agent, to see what it has changed.",
        "kubectl edit $KIND $NAME -n $NAMESPACE";
    /// All files of skills, commands and workflows were read, and none is as it should not be.
    ASSETS_READ = "AssetsRead";
    /// Some files of skills, commands and workflows are not as they should be and do not count. All others do.
    ASSETS_PARTLY_READ = "AssetsPartlyRead",
        "Mend the files that the message names; each counts from the next run on. The command lists all of them with the reasons.",
        "kubectl yoi assets $NAME -n $NAMESPACE";
    /// The project reads its skills, commands and workflows strictly, and one of their files is not as it should be. What was loaded before counts on.
    @!INVALID_ASSETS = "InvalidAssets",
        "Mend the files that the message names, or set `spec.assets.strict` of the project to false: then only these files do not count.",
        "kubectl yoi assets $NAME -n $NAMESPACE";
    /// A set of `spec.assets.from` could not be fetched at the start of the agent: a git repository, or an image. The message says which, and why. Where the
    /// project reads strictly the agent does not start, and it is tried again; else it has started without that set.
    @retried ASSETS_NOT_FETCHED = "AssetsNotFetched",
        "Do what the message says. A strict project's agent starts then by itself; another one reads the set from its next start on.",
        "kubectl yoi restart $NAME -n $NAMESPACE";
    /// The agent's runtime is of an earlier version, and does not say whether the kernel keeps the agent's processes in their frame.
    @!FRAME_NOT_REPORTED = "FrameNotReported",
        "Restart the agent: its next Pod has the runtime of this version.",
        "kubectl yoi restart $NAME -n $NAMESPACE";
    /// No preset of the chart has the name in `spec.agent.cli.preset`.
    @person PRESET_UNKNOWN = "PresetUnknown",
        "Name one of the presets that the message lists, or bring one of your own by `spec.agent.cli.presetFrom`.",
        "kubectl edit $KIND $NAME -n $NAMESPACE";
    /// The preset in the ConfigMap that `spec.agent.cli.presetFrom` names cannot be used; the message says why.
    @person PRESET_INVALID = "PresetInvalid",
        "Mend the ConfigMap, then restart the agent.",
        "kubectl yoi restart $NAME -n $NAMESPACE";
    /// The agent's program does not speak the wire format of its model.
    @person MODEL_FORMAT_NOT_SPOKEN = "ModelFormatNotSpoken",
        "Name a model with one of the formats in the message: `spec.model.provider`, and `spec.model.api` of provider OpenAI. Or take another program.",
        "kubectl edit $KIND $NAME -n $NAMESPACE";
    /// The agent's program is not in its image.
    @person PROGRAM_MISSING = "ProgramMissing",
        "Name an image that holds the program and git: `spec.pod.image`, or `spec.defaults.pod.image` of the project.",
        "kubectl edit $KIND $NAME -n $NAMESPACE";
    /// The task's run failed: the agent's program asks for a login, because the one in the Secret of `spec.agent.cli.credentialsSecretRef` is not good, or no
    /// longer.
    @person PROGRAM_LOGIN_NEEDED = "ProgramLoginNeeded",
        "Log in with the program on a machine of your own, and put the new file into the Secret. The agent's HOME keeps the former one, so begin it anew: \
         `kubectl yoi rm --purge`.",
        "kubectl yoi log $NAME -n $NAMESPACE";
    /// The agent's program is of a version that its preset does not name. It runs; what it says in a way that is not known stands in the log as it came.
    @! PROGRAM_VERSION_UNKNOWN = "ProgramVersionUnknown",
        "The message has the versions. Use an image with one that is named, or bring a preset that fits by `spec.agent.cli.presetFrom`.",
        "kubectl yoi log $NAME -n $NAMESPACE";
    /// The agent's manifest is what its spec and its project say now.
    UP_TO_DATE = "UpToDate";
    /// The project's defaults have changed since the agent's manifest was made. The agent goes on with the manifest of its last run.
    PROJECT_CHANGED = "ProjectChanged",
        "Nothing, if the agent shall go on as it is. To take the project as it is now, refresh the agent at its next start.",
        "kubectl yoi stop $NAME -n $NAMESPACE --wait && kubectl yoi start $NAME -n $NAMESPACE --refresh";
    /// The agent's own spec has changed since its manifest was made, or a refresh was asked for. The next start takes both.
    SPEC_CHANGED = "SpecChanged",
        "Restart the agent, to take its spec and its project as they are now.",
        "kubectl yoi restart $NAME -n $NAMESPACE";
    /// The project cannot be read. The manifest of the last run is enough.
    PROJECT_UNREADABLE = "ProjectUnreadable",
        "Nothing, if the agent shall go on as it is. A project of this name can be made anew.",
        "kubectl get yoiprojects -n $NAMESPACE";
    /// The manifest of the agent's last run is not what it was made as. The agent does not start with another one by itself.
    @person MANIFEST_DAMAGED = "ManifestDamaged",
        "To make a new manifest of the spec and the project as they are now, refresh the agent.",
        "kubectl yoi start $NAME -n $NAMESPACE --refresh";
    /// A line of the policy is not understood, or a YoiPod's allows more than its project's. The agent goes on under the last valid policy; one that never
    /// ran does not start.
    @person POLICY_INVALID = "PolicyInvalid",
        "The message names the line and what is wrong with it: change `spec.policy` there.",
        "kubectl edit $KIND $NAME -n $NAMESPACE";
    /// The policy is valid, and the agent's Pod is of an earlier version of Yoi, which keeps the policy that it was started under.
    POLICY_AT_NEXT_START = "PolicyAtNextStart",
        "Start the agent again to have it under the policy as it is now.",
        "kubectl yoi restart $NAME -n $NAMESPACE";
    /// Both members exist and are bound by UID.
    MEMBERS_BOUND = "MembersBound";
    /// A member does not exist.
    @person MEMBER_MISSING = "MemberMissing",
        "Make the YoiPod that is missing, or delete the YoiPeer.",
        "kubectl delete yoipeer $NAME -n $NAMESPACE";
    /// A member was deleted and made anew; the relation was with the former one.
    @person MEMBER_REPLACED = "MemberReplaced",
        "A YoiPod of the same name is another agent. Join the two anew, if that is meant.",
        "kubectl delete yoipeer $NAME -n $NAMESPACE";
    /// Both names are the same.
    ITSELF = "Self",
        "Name two agents.",
        "kubectl delete yoipeer $NAME -n $NAMESPACE";
    /// The runtime gave a reason that this operator does not know; its answer is in the message.
    OTHER = "Other",
        "Upgrade the charts, so that operator and runtime are of one version.",
        "helm upgrade yoi-operator charts/yoi-operator -n yoi-system --reuse-values";
}
