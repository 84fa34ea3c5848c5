use std::fmt;
use std::str::FromStr;

/// The longest name that leaves room for a tree and a snapshot of it, `/UID@UID`, in the 255 bytes that ZFS takes.
const MAX_LEN: usize = 180;

/// The name of a dataset: `pool/dataset`, or a pool alone. Letters, digits and `-_.:`, each part beginning with a letter or digit, so it is
/// never read as an option, a snapshot or another path.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DatasetName(String);

/// The text is no name of a dataset.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("failed to accept {text:?} as the name of a dataset: it is pool/dataset of letters, digits and -_.: and at most 180 long")]
pub struct ParseDatasetNameError {
    /// The text, cut to 200 characters.
    pub text: String,
}

impl DatasetName {
    /// The name as `zfs` takes it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The pool that it is in.
    pub fn pool(&self) -> &str {
        self.0.split_once('/').map_or(&self.0, |(pool, _)| pool)
    }
}

impl FromStr for DatasetName {
    type Err = ParseDatasetNameError;

    fn from_str(text: &str) -> Result<Self, ParseDatasetNameError> {
        let is_part = |part: &str| {
            part.starts_with(|c: char| c.is_ascii_alphanumeric()) && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:".contains(c))
        };
        match text.len() <= MAX_LEN && text.split('/').all(is_part) {
            true => Ok(Self(text.to_owned())),
            false => Err(ParseDatasetNameError { text: text.chars().take(200).collect() }),
        }
    }
}

impl fmt::Display for DatasetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_never_an_option_a_snapshot_or_a_path() {
        for good in ["tank", "tank/yoi", "tank/a.b_c-d:e/f0"] {
            assert_eq!(good.parse::<DatasetName>().unwrap().as_str(), good);
        }
        let long = "a".repeat(181);
        for bad in
            ["", "/", "-R", "tank/-r", "tank@s", "tank#b", "tank/../x", "/tank", "tank/", "tank//x", "tank/a b", "tank/%x", "t\n", &long]
        {
            assert!(bad.parse::<DatasetName>().is_err(), "{bad}");
        }
    }
}
