use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Number of parent directories over which trees are spread.
pub const SHARDS: u8 = 64;

/// The name of a tree on disk: the UID of its object, a UUID in the one spelling that Kubernetes uses
/// (36 characters, lower case, hyphens). Any other text is refused, so a `Uid` is always safe as a file name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Uid([u8; 16]);

/// The text is not a canonical UUID.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("failed to accept {text:?} as a UID: it is not a lower-case hyphenated UUID")]
pub struct ParseUidError {
    /// The text, cut to 64 characters.
    pub text: String,
}

impl Uid {
    /// The UUID with these bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The parent directory of this tree, `00` to `3f`.
    pub fn shard(&self) -> String {
        format!("{:02x}", self.0.iter().fold(0, |acc, b| acc ^ b) % SHARDS)
    }
}

impl FromStr for Uid {
    type Err = ParseUidError;

    fn from_str(text: &str) -> Result<Self, ParseUidError> {
        let refused = || ParseUidError { text: text.chars().take(64).collect() };
        let raw = text.as_bytes();
        if raw.len() != 36 {
            return Err(refused());
        }
        let mut bytes = [0u8; 16];
        let mut nibbles = 0;
        for (at, c) in raw.iter().enumerate() {
            let value = match (at, c) {
                (8 | 13 | 18 | 23, b'-') => continue,
                (8 | 13 | 18 | 23, _) => return Err(refused()),
                (_, b'0'..=b'9') => c - b'0',
                (_, b'a'..=b'f') => c - b'a' + 10,
                _ => return Err(refused()),
            };
            bytes[nibbles / 2] = bytes[nibbles / 2] << 4 | value;
            nibbles += 1;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl TryFrom<String> for Uid {
    type Error = ParseUidError;
    fn try_from(text: String) -> Result<Self, ParseUidError> {
        text.parse()
    }
}

impl From<Uid> for String {
    fn from(uid: Uid) -> String {
        uid.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_canonical_spelling_is_a_name() {
        let good = "0198f0aa-5b1c-7d2e-8f00-0123456789ab";
        assert_eq!(good.parse::<Uid>().unwrap().to_string(), good);
        for bad in [
            "",
            "..",
            "0198F0AA-5b1c-7d2e-8f00-0123456789ab",
            "0198f0aa5b1c7d2e8f000123456789ab",
            "{198f0aa-5b1c-7d2e-8f00-0123456789a}",
            "0198f0aa-5b1c-7d2e-8f00-0123456789a/",
            "0198f0aa-5b1c-7d2e-8f00-0123456789ab.tmp",
            "0198f0aa--b1c-7d2e-8f00-0123456789ab",
        ] {
            assert!(bad.parse::<Uid>().is_err(), "{bad}");
        }
    }
}
