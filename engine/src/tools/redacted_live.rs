//! Live output without secrets.

use std::sync::{Arc, Mutex, PoisonError};

use super::result::LiveOutput;
use crate::secrets::Redactor;

/// A piece that may end within one waits for the next.
pub(super) struct RedactedLive {
    redactor: Redactor,
    to: LiveOutput,
    held: Arc<Mutex<String>>,
}

impl RedactedLive {
    /// Passes what is no secret on to `to`.
    pub fn new(redactor: &Redactor, to: &LiveOutput) -> Self {
        Self { redactor: redactor.clone(), to: to.clone(), held: Arc::default() }
    }

    /// Where the tool writes to.
    pub fn output(&self) -> LiveOutput {
        let (redactor, to, held) = (self.redactor.clone(), self.to.clone(), self.held.clone());
        LiveOutput::new(move |text| {
            let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
            held.push_str(text);
            let complete = redactor.complete(&held);
            let rest = held.split_off(complete);
            to.send(&redactor.redact(std::mem::replace(&mut held, rest)));
        })
    }

    /// The tool has ended: passes the rest on.
    pub fn finish(self) {
        let rest = std::mem::take(&mut *self.held.lock().unwrap_or_else(PoisonError::into_inner));
        self.to.send(&self.redactor.redact(rest));
    }
}
