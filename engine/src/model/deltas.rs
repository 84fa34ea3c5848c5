//! What the caller of a model sees while the answer comes.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use yoi_wire::entry::TokenUsage;

/// The next piece of an answer that is not complete. The log has only complete answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelDelta {
    /// More of the text.
    Text(String),
    /// More of the reasoning, where the endpoint shows it.
    Reasoning(String),
    /// A tool call begins, or more of its arguments came.
    ToolCall {
        /// Place among the answer's calls, from 0.
        index: usize,
        /// The endpoint's id; the logged one differs when the endpoint gave none, or one twice.
        call_id: String,
        /// Name of the tool.
        tool: String,
        /// More of the arguments, as JSON text.
        args: String,
    },
}

type OnDelta = Arc<dyn Fn(ModelDelta) + Send + Sync>;

/// Takes deltas of one call, and its tokens so far. Clones share both.
#[derive(Clone, Default)]
pub struct DeltaSink {
    on_delta: Option<OnDelta>,
    usage: Arc<Mutex<Option<TokenUsage>>>,
}

impl DeltaSink {
    /// Calls `on_delta` for each delta, on the model's thread: it must not block.
    #[must_use]
    pub fn new(on_delta: impl Fn(ModelDelta) + Send + Sync + 'static) -> Self {
        Self { on_delta: Some(Arc::new(on_delta)), usage: Arc::default() }
    }

    /// Drops the deltas and keeps the tokens.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Tokens that the endpoint has counted so far. It also tells them of a call whose future was dropped.
    #[must_use]
    pub fn usage(&self) -> Option<TokenUsage> {
        *self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_usage(&self, usage: TokenUsage) {
        *self.usage.lock().unwrap_or_else(PoisonError::into_inner) = Some(usage);
    }

    pub(super) fn send(&self, delta: ModelDelta) {
        if let Some(on_delta) = &self.on_delta {
            on_delta(delta);
        }
    }
}

impl fmt::Debug for DeltaSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeltaSink").field("usage", &self.usage()).finish_non_exhaustive()
    }
}
