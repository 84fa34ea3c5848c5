//! What a program's run may reach of this process: the model proxy and the socket for its hooks and for Yoi's tools.

use std::any::Any;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use futures::future::BoxFuture;
use yoi_wire::entry::TokenUsage;

use super::calls::ProgramCalls;

/// Opens proxy and socket to one run.
pub trait ProgramAccess: Send + Sync + fmt::Debug {
    /// From now on, whoever knows `token` asks the model and speaks for the run.
    ///
    /// # Errors
    /// Why the run cannot begin, as a sentence for people.
    fn open<'a>(
        &'a self,
        token: &'a str,
        calls: Arc<dyn ProgramCalls>,
        tokens: Arc<dyn RunTokens>,
    ) -> BoxFuture<'a, Result<RunAccess, String>>;
}

/// Counts the tokens of a run.
pub trait RunTokens: Send + Sync {
    /// The endpoint has counted these.
    fn used(&self, usage: TokenUsage);
    /// Whether the token limit lets the program ask again. Once it does not, the run is ended.
    fn may_ask(&self) -> bool;
}

/// What one run may reach.
pub struct RunAccess {
    /// Base URL of the model proxy. The proxy counts the run's tokens, and what the program says of them is not counted again.
    pub proxy: Option<String>,
    /// The socket for hooks and Yoi's tools.
    pub socket: Option<PathBuf>,
    /// Dropping it closes both to the run.
    pub guard: Box<dyn Any + Send + Sync>,
}

/// No proxy and no socket: a command needs neither.
#[derive(Clone, Copy, Debug)]
pub struct NoAccess;

impl ProgramAccess for NoAccess {
    fn open<'a>(
        &'a self,
        _token: &'a str,
        _calls: Arc<dyn ProgramCalls>,
        _tokens: Arc<dyn RunTokens>,
    ) -> BoxFuture<'a, Result<RunAccess, String>> {
        Box::pin(async { Ok(RunAccess { proxy: None, socket: None, guard: Box::new(()) }) })
    }
}
