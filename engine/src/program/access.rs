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
        budget: Arc<dyn RunBudget>,
    ) -> BoxFuture<'a, Result<RunAccess, String>>;
}

/// Counts the model calls and tokens of a run. The model proxy calls it on its thread, so it must not block.
pub trait RunBudget: Send + Sync {
    /// An answer has ended or broken off. These are the tokens that its endpoint had told, or else those that its size speaks for. Called once for
    /// an answer, before its end is passed on; also after the run's end, when its program did not wait for the answer.
    fn used(&self, usage: TokenUsage);

    /// Counts one more call of the model.
    ///
    /// # Errors
    /// A limit does not let the program ask again. The run is ended soon.
    fn ask(&self) -> Result<(), UsedUp>;
}

/// The limit that is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsedUp {
    /// `limits.tokens`.
    Tokens,
    /// `limits.turnsPerRun`.
    Turns,
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
        _budget: Arc<dyn RunBudget>,
    ) -> BoxFuture<'a, Result<RunAccess, String>> {
        Box::pin(async { Ok(RunAccess { proxy: None, socket: None, guard: Box::new(()) }) })
    }
}
