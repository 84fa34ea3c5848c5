//! The name of a runtime binary: the digest of its content.

use serde::{Deserialize, Serialize};

/// The SHA-256 of a runtime binary as 64 lower-case hexadecimal digits. It is safe as a file name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RuntimeDigest(String);

/// The text is not the digest of a runtime binary.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("failed to accept the runtime digest: it is not 64 lower-case hexadecimal digits")]
pub struct ParseRuntimeDigestError;

impl RuntimeDigest {
    /// The 64 digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for RuntimeDigest {
    type Error = ParseRuntimeDigestError;
    fn try_from(text: String) -> Result<Self, ParseRuntimeDigestError> {
        let hex = text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if text.len() == 64 && hex { Ok(RuntimeDigest(text)) } else { Err(ParseRuntimeDigestError) }
    }
}

impl From<RuntimeDigest> for String {
    fn from(digest: RuntimeDigest) -> String {
        digest.0
    }
}
