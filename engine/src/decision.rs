//! Whether a call of a tool may begin.

use std::collections::BTreeSet;
use std::fmt;

use yoi_wire::entry::{CallDecision, CallFrom, RefusalClass, ToolAsked};

/// Whether a call may begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It may.
    Allow,
    /// It may not.
    Refuse(Refusal),
    /// A person has to be asked, unless one has approved it already.
    Ask(Question),
}

impl Decision {
    /// The decision as the log has it.
    #[must_use]
    pub fn record(&self, from: CallFrom) -> CallDecision {
        match self {
            Self::Allow => CallDecision::allowed(from),
            Self::Refuse(refusal) => refusal.record(from),
            // Only what has been approved is recorded as a decision.
            Self::Ask(question) => CallDecision { rule: question.rules.first().cloned(), ..CallDecision::allowed(from) },
        }
    }
}

impl From<Result<Option<Question>, Refusal>> for Decision {
    fn from(checked: Result<Option<Question>, Refusal>) -> Self {
        match checked {
            Ok(None) => Self::Allow,
            Ok(Some(question)) => Self::Ask(question),
            Err(refusal) => Self::Refuse(refusal),
        }
    }
}

/// What a person is asked about a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The rules of the policy that want it asked; of an unreadable command those that it may match.
    pub rules: Vec<String>,
    /// The command cannot be read.
    pub unreadable: bool,
    /// After how many seconds without an answer the call is refused.
    pub seconds: u64,
}

impl Question {
    /// Whether answers for these rules, given for all calls, are an answer to it.
    #[must_use]
    pub fn is_covered_by(&self, always_approved: &BTreeSet<String>) -> bool {
        !self.unreadable && !self.rules.is_empty() && self.rules.iter().all(|rule| always_approved.contains(rule))
    }

    /// Whether an answer to `asked` about the same call is one to this question, too. What a path leads to may have changed since.
    #[must_use]
    pub fn is_answered_with(&self, asked: &ToolAsked) -> bool {
        self.rules.iter().all(|rule| asked.rules.contains(rule))
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
