//! UIDs, as short as they can be held.

use std::fmt;

/// The UID of an object, or another text that usually is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Uid {
    /// As Kubernetes writes them: in lower case, with hyphens.
    Uuid([u8; 16]),
    Other(Box<str>),
}

impl From<&str> for Uid {
    fn from(text: &str) -> Self {
        let number = u128::from_str_radix(&text.replace('-', ""), 16);
        let uuid = number.map(|number| Uid::Uuid(number.to_be_bytes())).ok();
        uuid.filter(|uuid| uuid.to_string() == text).unwrap_or_else(|| Uid::Other(text.into()))
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Uid::Uuid(bytes) => {
                let n = u128::from_be_bytes(*bytes);
                let part = |shift: u32, digits: u32| n >> shift & ((1 << (4 * digits)) - 1);
                write!(f, "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}", part(96, 8), part(80, 4), part(64, 4), part(48, 4), part(0, 12))
            }
            Uid::Other(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_what_it_was() {
        for text in ["0d5c6d1e-7f0c-4b55-9a52-6c2f8f5b0001", "ffffffff-ffff-ffff-ffff-ffffffffffff"] {
            assert!(matches!(Uid::from(text), Uid::Uuid(_)), "{text}");
            assert_eq!(Uid::from(text).to_string(), text);
        }
        for text in [
            "",
            "u",
            "0D5C6D1E-7f0c-4b55-9a52-6c2f8f5b0001",
            "0d5c6d1e7f0c4b559a526c2f8f5b0001",
            "+d5c6d1e-7f0c-4b55-9a52-6c2f8f5b0001",
            "7",
        ] {
            assert_eq!(Uid::from(text), Uid::Other(text.into()));
            assert_eq!(Uid::from(text).to_string(), text);
        }
    }
}
