//! What an agent asks of the agents that it has started.

use std::fmt;

use futures::future::BoxFuture;
use yoi_wire::children::{
    ChildWords, DiffRequest, LoansRequest, LoansResponse, ReadRequest, SpawnRequest, SpawnResponse, StopRequest, StopResponse, WaitRequest,
    WaitResponse,
};
use yoi_wire::evidence::{ChildFacts, ChildLog, ChildLogRequest, ChildStateRequest};
use yoi_wire::hub::{SendRequest, SendResponse};
use yoi_wire::merge::{MergeOutcome, MergeRequest};
use yoi_wire::people::DiffResponse;

use crate::peers_error::PeersError;

/// Answers the tools SpawnPod, SendToPod, ReadPodOutput, PodLog, PodState, DiffPod, MergePod, WaitPods and StopPod. Each request may be sent again: the same one has the same effect once.
pub trait Children: fmt::Debug + Send + Sync {
    /// Whether this agent may lend paths of its tree. If not, no child has any.
    fn lends(&self) -> bool;

    /// Reads which paths are lent.
    ///
    /// # Errors
    /// See [`PeersError`].
    fn loans<'a>(&'a self, request: &'a LoansRequest) -> BoxFuture<'a, Result<LoansResponse, PeersError>>;

    /// Makes a child, in a fork of this agent's tree or in paths of it that are lent.
    ///
    /// # Errors
    /// See [`PeersError`].
    fn spawn<'a>(&'a self, request: &'a SpawnRequest) -> BoxFuture<'a, Result<SpawnResponse, PeersError>>;

    /// Gives an idle child work, durable on return.
    ///
    /// # Errors
    /// See [`PeersError`].
    fn send_to_child<'a>(&'a self, message: &'a SendRequest) -> BoxFuture<'a, Result<SendResponse, PeersError>>;

    /// Reads what a child has said.
    ///
    /// # Errors
    /// See [`PeersError`].
    fn read<'a>(&'a self, request: &'a ReadRequest) -> BoxFuture<'a, Result<ChildWords, PeersError>>;

    /// Reads what a child has changed.
    ///
    /// # Errors
    /// See [`PeersError`].
    fn diff<'a>(&'a self, request: &'a DiffRequest) -> BoxFuture<'a, Result<DiffResponse, PeersError>>;

    /// Reads a part of a child's log.
    ///
    /// # Errors
    /// See [`PeersError`].
    fn log<'a>(&'a self, request: &'a ChildLogRequest) -> BoxFuture<'a, Result<ChildLog, PeersError>>;

    /// Reads how far a child is, out of its object, its log and its tree.
    ///
    /// # Errors
    /// See [`PeersError`].
    fn state<'a>(&'a self, request: &'a ChildStateRequest) -> BoxFuture<'a, Result<ChildFacts, PeersError>>;

    /// Merges a child's commits, and what it has not committed, into this agent's tree.
    ///
    /// # Errors
    /// Nothing was merged. See [`PeersError`].
    fn merge<'a>(&'a self, request: &'a MergeRequest) -> BoxFuture<'a, Result<MergeOutcome, PeersError>>;

    /// Waits until children have nothing to do, for a while; the answer says whether that was long enough.
    ///
    /// # Errors
    /// See [`PeersError`].
    fn wait<'a>(&'a self, request: &'a WaitRequest) -> BoxFuture<'a, Result<WaitResponse, PeersError>>;

    /// Stops a child, for good.
    ///
    /// # Errors
    /// See [`PeersError`].
    fn stop<'a>(&'a self, request: &'a StopRequest) -> BoxFuture<'a, Result<StopResponse, PeersError>>;
}
