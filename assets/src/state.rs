//! Whether an asset is in effect.

use serde::Serialize;

/// Whether an asset is in effect, and why not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state")]
pub enum AssetState {
    /// It is.
    Valid,
    /// It is not as its format has it.
    Invalid {
        /// Why, as a sentence.
        reason: String,
        /// The line, from 1, where there is one to name.
        #[serde(skip_serializing_if = "Option::is_none")]
        line: Option<u32>,
    },
    /// Another asset of its name wins.
    Shadowed {
        /// The path of that one.
        by: String,
    },
    /// Its file says so.
    Disabled,
}

impl AssetState {
    /// Whether it is in effect.
    #[must_use]
    pub const fn is_valid(&self) -> bool {
        matches!(self, Self::Valid)
    }

    /// As one word for a table.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Valid => "Valid",
            Self::Invalid { .. } => "Invalid",
            Self::Shadowed { .. } => "Shadowed",
            Self::Disabled => "Disabled",
        }
    }

    pub(crate) fn invalid(reason: impl Into<String>, line: Option<u32>) -> Self {
        Self::Invalid { reason: reason.into(), line }
    }
}
