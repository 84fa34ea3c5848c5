//! Whether a call of a tool may begin.

use std::fmt;

use yoi_wire::entry::{CallDecision, CallFrom, RefusalClass};

/// Whether a call may begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It may.
    Allow,
    /// It may not.
    Refuse(Refusal),
}

impl Decision {
    /// The decision as the log has it.
    #[must_use]
    pub fn record(&self, from: CallFrom) -> CallDecision {
        match self {
            Self::Allow => CallDecision::allowed(from),
            Self::Refuse(refusal) => refusal.record(from),
        }
    }
}

impl From<Result<(), Refusal>> for Decision {
    fn from(checked: Result<(), Refusal>) -> Self {
        match checked {
            Ok(()) => Self::Allow,
            Err(refusal) => Self::Refuse(refusal),
        }
    }
}

/// Why a call may not begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The class, for the log.
    pub class: RefusalClass,
    /// What the model reads. It begins with the word of the class.
    pub message: String,
    /// The rule of the policy that refuses it, where one does.
    pub rule: Option<String>,
}

impl Refusal {
    /// `why` follows the word of the class.
    #[must_use]
    pub fn new(class: RefusalClass, why: impl fmt::Display) -> Self {
        Self::with_message(class, format!("{}: {why}", class.word()))
    }

    /// `message` is the whole of what the model reads.
    #[must_use]
    pub fn with_message(class: RefusalClass, message: String) -> Self {
        Self { class, message, rule: None }
    }

    /// The refusal as the log has it.
    #[must_use]
    pub fn record(&self, from: CallFrom) -> CallDecision {
        CallDecision { from, refused: Some(self.class), rule: self.rule.clone() }
    }
}
