//! Conditions: what is true of an object, since when, and why not.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reason::Reason;

#[expect(missing_docs, reason = "a doc comment is a description in the schema; a name that says it all has none")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConditionStatus {
    True,
    False,
    Unknown,
}

/// A Kubernetes condition. Lists of them are maps keyed by `type`, so that two writers own different ones.
#[expect(missing_docs, reason = "a doc comment is a description in the schema; a name that says it all has none")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 64))]
    pub type_: String,
    pub status: ConditionStatus,
    /// CamelCase.
    #[schemars(length(min = 1, max = 64))]
    pub reason: String,
    /// A sentence for people: what, to which object, what next.
    #[schemars(length(max = 1024))]
    pub message: String,
    /// RFC 3339: when `status` last changed.
    pub last_transition_time: String,
    /// `metadata.generation` that this was said of.
    #[serde(default)]
    pub observed_generation: i64,
}

/// Status, reason and message of a condition; [`condition`] makes the condition of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionValue {
    /// Whether the condition is true.
    pub status: ConditionStatus,
    /// Why.
    pub reason: Reason,
    /// A sentence for people.
    pub message: String,
}

impl ConditionValue {
    /// The condition is True.
    #[must_use]
    pub fn yes(reason: Reason, message: impl Into<String>) -> Self {
        ConditionValue { status: ConditionStatus::True, reason, message: message.into() }
    }

    /// The condition is False.
    #[must_use]
    pub fn no(reason: Reason, message: impl Into<String>) -> Self {
        ConditionValue { status: ConditionStatus::False, reason, message: message.into() }
    }

    /// Nobody knows yet whether the condition is True.
    #[must_use]
    pub fn unknown(reason: Reason, message: impl Into<String>) -> Self {
        ConditionValue { status: ConditionStatus::Unknown, reason, message: message.into() }
    }
}

/// The condition `type_` of an object at `generation`. It keeps the transition time of `before` if the status is the same, and else has `now`,
/// RFC 3339. A message that is longer than the schema allows is cut.
#[must_use]
pub fn condition(before: &[Condition], type_: &str, value: ConditionValue, generation: i64, now: &str) -> Condition {
    let since = find(before, type_).filter(|c| c.status == value.status).map(|c| c.last_transition_time.clone());
    Condition {
        type_: type_.to_owned(),
        status: value.status,
        reason: value.reason.to_string(),
        message: cut(value.message),
        last_transition_time: since.unwrap_or_else(|| now.to_owned()),
        observed_generation: generation,
    }
}

/// The condition of this type, if there is one.
#[must_use]
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|c| c.type_ == type_)
}

/// Whether the condition of this type is True.
#[must_use]
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|c| c.status == ConditionStatus::True)
}

/// The schema allows 1,024 characters; the API server refuses a whole status for one longer message.
fn cut(message: String) -> String {
    const MOST: usize = 1024;
    if message.chars().count() <= MOST {
        return message;
    }
    let mut short: String = message.chars().take(MOST - 1).collect();
    short.push('…');
    short
}
