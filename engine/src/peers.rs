//! What an agent asks of others: who is there, and messages to them.

use std::fmt;

use futures::FutureExt;
use futures::future::BoxFuture;
use yoi_wire::hub::{PodList, RestoreRequest, RestoreResponse, SendRequest, SendResponse};

use crate::children::Children;
pub use crate::peers_error::PeersError;

/// Answers the tools ListPods, SendToPeerPod and RestorePod. Whoever embeds the engine says how the others are reached.
pub trait Peers: fmt::Debug + Send + Sync {
    /// Returns the agents that this one sees.
    ///
    /// # Errors
    /// See [`PeersError`].
    fn list(&self) -> BoxFuture<'_, Result<PodList, PeersError>>;

    /// Sends a message once: it repeats nothing. `Ok` means that the message is durable at its receiver. The same id is the same message,
    /// however often it is sent.
    ///
    /// # Errors
    /// See [`PeersError`].
    fn send<'a>(&'a self, message: &'a SendRequest) -> BoxFuture<'a, Result<SendResponse, PeersError>>;

    /// Starts a stopped child or peer again, and returns when it is up.
    ///
    /// # Errors
    /// See [`PeersError`].
    fn restore<'a>(&'a self, request: &'a RestoreRequest) -> BoxFuture<'a, Result<RestoreResponse, PeersError>>;

    /// What starts children and answers for them. `None`: this agent may start none, and is offered no tool for it.
    fn children(&self) -> Option<&dyn Children> {
        None
    }
}

/// There are no others.
#[derive(Clone, Copy, Debug)]
pub struct NoPeers;

impl Peers for NoPeers {
    fn list(&self) -> BoxFuture<'_, Result<PodList, PeersError>> {
        async { Ok(PodList { pods: Vec::new() }) }.boxed()
    }

    fn send<'a>(&'a self, _message: &'a SendRequest) -> BoxFuture<'a, Result<SendResponse, PeersError>> {
        async { Err(PeersError::NotSent { message: "there is nobody".to_owned(), retry: false }) }.boxed()
    }

    fn restore<'a>(&'a self, _request: &'a RestoreRequest) -> BoxFuture<'a, Result<RestoreResponse, PeersError>> {
        async { Err(PeersError::NotSent { message: "there is nobody".to_owned(), retry: false }) }.boxed()
    }
}
