//! The modes of a conversation: which kinds of tools its model may call, and how many steps a run has.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::open::{NamedValue, named_values};

/// What a conversation is for. A conversation that nobody has set a mode of works as [`Mode::Coding`] does, without the mode's own limit of steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// All tools.
    #[default]
    Coding,
    /// Tools that change nothing.
    Planning,
    /// All tools, and the most steps.
    Engineering,
}

/// The name is none of a mode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no mode {name:?}; there are coding, planning, engineering")]
pub struct UnknownMode {
    /// As it was given.
    pub name: String,
}

impl Mode {
    /// Whether tools that change something are closed.
    #[must_use]
    pub fn only_reads(self) -> bool {
        match self {
            Self::Planning => true,
            Self::Coding | Self::Engineering => false,
        }
    }

    /// The most calls of the model in a run.
    #[must_use]
    pub fn steps(self) -> u32 {
        match self {
            Self::Coding => 32,
            Self::Planning => 24,
            Self::Engineering => 40,
        }
    }
}

named_values!(Mode: Coding = "coding", Planning = "planning", Engineering = "engineering");

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(name: &str) -> Result<Self, UnknownMode> {
        Self::ALL.iter().copied().find(|mode| mode.as_str() == name).ok_or_else(|| UnknownMode { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p29_a_mode_is_read_and_written_by_its_name_and_another_name_is_refused_with_those_there_are() {
        for mode in Mode::ALL {
            assert_eq!(serde_json::to_value(mode).ok(), Some(mode.as_str().into()));
            assert_eq!(mode.to_string().parse(), Ok(*mode));
        }
        let error = "dreaming".parse::<Mode>().err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), Some("there is no mode \"dreaming\"; there are coding, planning, engineering"));
    }
}
