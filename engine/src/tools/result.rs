//! What comes of a call: its output while it runs, and its result.

use std::fmt;
use std::sync::Arc;

use yoi_wire::entry::{Image, ReadPosition, RefusalClass, ToolOutcome};

use crate::decision::Refusal;

/// How a call ended, and its output for the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallResult {
    /// How it ended.
    pub outcome: ToolOutcome,
    /// What the model reads.
    pub output: String,
    /// Pictures that the model sees beside the output.
    pub images: Vec<Image>,
    /// Why it was refused, with outcome Refused.
    pub refused: Option<RefusalClass>,
    /// How far it has read the words of another agent.
    pub read: Option<ReadPosition>,
}

impl CallResult {
    /// A result without pictures.
    #[must_use]
    pub fn new(outcome: ToolOutcome, output: impl Into<String>) -> Self {
        Self { outcome, output: output.into(), images: Vec::new(), refused: None, read: None }
    }

    /// The tool did what it was asked.
    #[must_use]
    pub fn succeeded(output: impl Into<String>) -> Self {
        Self::new(ToolOutcome::Succeeded, output)
    }

    /// The tool ran, and reports an error.
    #[must_use]
    pub fn failed(output: impl Into<String>) -> Self {
        Self::new(ToolOutcome::Failed, output)
    }

    /// The call did not begin.
    #[must_use]
    pub fn refused(refusal: Refusal) -> Self {
        Self { refused: Some(refusal.class), ..Self::new(ToolOutcome::Refused, refusal.message) }
    }
}

/// Takes the output of a call while the call runs, for people who watch. It is called on the thread of the call, so it must not block.
#[derive(Clone)]
pub struct LiveOutput(Arc<dyn Fn(&str) + Send + Sync>);

impl LiveOutput {
    /// `sink` is called with each piece of output. Together the pieces are the output before it is bounded.
    pub fn new(sink: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(sink))
    }

    /// Nobody watches.
    #[must_use]
    pub fn discard() -> Self {
        Self::new(|_| {})
    }

    /// Passes a piece of output on.
    pub fn send(&self, text: &str) {
        if !text.is_empty() {
            (self.0)(text);
        }
    }
}

impl fmt::Debug for LiveOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LiveOutput")
    }
}
