//! What the caller of a model sees while the answer comes.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
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

/// Takes deltas of one call, its tokens so far, and what was changed in its request. Clones share all of it.
#[derive(Clone, Default)]
pub struct DeltaSink {
    on_delta: Option<OnDelta>,
    usage: Arc<Mutex<Option<TokenUsage>>>,
    /// Bytes of the answer so far.
    bytes: Arc<AtomicUsize>,
    changes: Arc<Mutex<Vec<String>>>,
}

impl DeltaSink {
    /// Calls `on_delta` for each delta, on the model's thread: it must not block.
    #[must_use]
    pub fn new(on_delta: impl Fn(ModelDelta) + Send + Sync + 'static) -> Self {
        Self { on_delta: Some(Arc::new(on_delta)), ..Self::default() }
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

    /// Bytes of the answer that have come so far; 0: none has begun.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// What was changed in the request because the endpoint had refused it, as sentences for people. Each is returned once.
    #[must_use]
    pub fn take_changes(&self) -> Vec<String> {
        std::mem::take(&mut *self.changes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn add_change(&self, sentence: String) {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner).push(sentence);
    }

    pub(super) fn set_usage(&self, usage: TokenUsage) {
        *self.usage.lock().unwrap_or_else(PoisonError::into_inner) = Some(usage);
    }

    pub(super) fn send(&self, delta: ModelDelta) {
        let bytes = match &delta {
            ModelDelta::Text(text) | ModelDelta::Reasoning(text) => text.len(),
            // A call has begun, though nothing of its arguments may have come.
            ModelDelta::ToolCall { tool, args, .. } => tool.len().max(1) + args.len(),
        };
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
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
