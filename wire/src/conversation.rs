//! The conversations of an agent: `main`, and others that people start and stop.

use serde::{Deserialize, Serialize};

use crate::entry::TokenUsage;
use crate::hub::Activity;
use crate::mode::Mode;
use crate::open::{Open, named_values};

/// The conversation that every agent has. Tasks and messages of other agents go to it.
pub const MAIN: &str = "main";
/// The most conversations beside [`MAIN`] that run at a time.
pub const MAX_CONVERSATIONS: usize = 16;
/// The most conversations beside [`MAIN`] that an agent has at all, the stopped ones among them.
pub const MAX_STORED_CONVERSATIONS: usize = 256;
/// The most bytes of a name.
const MAX_NAME: usize = 63;

/// Whether a conversation beside [`MAIN`] can have this name: 1 to 63 lower-case letters, digits and `-`, which is neither first nor last.
#[must_use]
pub fn is_other_name(name: &str) -> bool {
    let of_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(of_name) && !name.starts_with('-') && !name.ends_with('-') && name != MAIN
}

/// Whether a conversation runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConversationState {
    /// It takes messages.
    Running,
    /// A person has stopped it. It can be read, and started again.
    Stopped,
    /// It has ended by itself. It can be read, and started again.
    Failed,
}

named_values!(ConversationState: Running = "Running", Stopped = "Stopped", Failed = "Failed");

/// A conversation in the list of an agent's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConversationStatus {
    /// Its name.
    pub name: String,
    /// Whether it runs.
    pub state: Open<ConversationState>,
    /// Why it has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What it does, while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activity: Option<Open<Activity>>,
    /// Tokens over its life, while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<TokenUsage>,
    /// The mode that a person has set, while it runs; absent: nobody has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Open<Mode>>,
    /// Its session, while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
}

/// All conversations of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConversationList {
    /// [`MAIN`], then the others by name.
    pub conversations: Vec<ConversationStatus>,
}

impl ConversationStatus {
    /// A conversation that a person has stopped, or whose agent has stopped.
    #[must_use]
    pub fn stopped(name: &str) -> Self {
        let (name, state) = (name.to_owned(), ConversationState::Stopped.into());
        Self { name, state, message: None, activity: None, tokens: None, mode: None, session: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_kubernetes_objects_and_main_is_taken() {
        assert!(["a", "a-1", "7", &"x".repeat(63)].into_iter().all(is_other_name));
        assert!(!["", "-a", "a-", "A", "a b", "a/b", "..", "main", &"x".repeat(64)].into_iter().any(is_other_name));
    }
}
