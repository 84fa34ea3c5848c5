//! Why the gateway or a runtime does not do what it was asked.

use serde::{Deserialize, Serialize};

/// A request was understood and refused, or could not be carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
#[error("{message}")]
pub struct Refusal {
    /// For the program.
    pub reason: RefusalReason,
    /// A sentence for people or the model.
    pub message: String,
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefusalReason {
    /// No proof of identity, or it does not belong to a current agent's Pod.
    NotAnAgent,
    /// The caller may see no agent of this name. The answer is the same whether such an agent exists or not.
    NotVisible,
    /// A YoiPeer names both, but does not join them now: it is not bound, not Ready or being deleted, or the agent it joined is gone or
    /// replaced by a namesake.
    NotAPeer,
    /// No live line to the target.
    Unreachable,
    /// The receiver takes no more messages for now.
    InboxFull,
    /// The request is not well formed, or the message is too long.
    Invalid,
    /// The receiver's disk or log refused it. It may be found there all the same once the disk works again; the same id makes another try safe.
    ReceiverFailed,
    /// It was handed over and not acknowledged: the receiver may have it. The same id makes another try safe.
    Unacknowledged,
    /// The receiver goes to rest and takes nothing more in this Pod. A runtime says so to the gateway alone, which wakes the agent.
    Resting,
    /// The receiver rests and is being woken, which takes longer than the gateway waits. Nothing was sent; the same id makes another try safe.
    Waking,
    /// The caller has started no agent of this name. The answer is the same whether such an agent exists or not.
    NotAChild,
    /// The receiver has a run under way, or messages that wait. Nothing was sent.
    AlreadyRunning,
    /// The caller's YoiPod has no `spec.delegation`, so it starts no agents.
    NoDelegation,
    /// A YoiPod of this name is there already.
    NameTaken,
    /// The caller has as many children as its limit allows.
    Limit,
    /// The API server refused the object.
    NotMade,
    /// The paths are not lent: the caller's delegation or scope does not allow it, the node cannot close them, or a process keeps something there open.
    NotLent,
    /// Another agent holds one of the paths. Nothing was lent.
    PathHeld,
    /// A tree is no git repository, or has no commit that the other one has, too: nothing tells what each has changed.
    NotGit,
    /// The agent is reachable, or is to run already: there is nothing to restore.
    AlreadyLive,
    /// The agent has no session that it could go on with, or is not to go on.
    NotRestorable,
    /// The agent was started, and its container has ended or it had no line in time.
    NotUp,
}
