//! Paths of a tree.

use std::fmt;

/// The most bytes of a path: the kernel takes no longer one.
const MAX_BYTES: usize = 4095;
/// The most bytes of a name in a path.
const MAX_NAME: usize = 255;
/// The most names in a path.
const MAX_PARTS: usize = 256;
/// How much of a path an error quotes.
const QUOTED: usize = 60;

/// A path of a tree, relative to its root, of plain names. `.` is the root.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TreePath(Vec<String>);

/// Why something is no path of a tree.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It is empty.
    #[error("failed to read a path: it is empty; `.` is the whole tree")]
    Empty,
    /// It is no text.
    #[error("failed to read the path {0}: it is not UTF-8")]
    NotUtf8(String),
    /// It begins with a slash.
    #[error("failed to read the path {0}: it is absolute; name it relative to the tree")]
    Absolute(String),
    /// It has a `..`.
    #[error("failed to read the path {0}: it has a `..`; name it without")]
    Parent(String),
    /// It has a `.` beside other names.
    #[error("failed to read the path {0}: it has a `.`; name it without")]
    Current(String),
    /// It has two slashes in a row, or ends with one.
    #[error("failed to read the path {0}: a name in it is empty; write one `/` between two names, and none at the end")]
    EmptyName(String),
    /// It leads into git's own folder.
    #[error("failed to read the path {0}: git's own folder has no rules; what is in it belongs to the whole tree")]
    Git(String),
    /// It has a NUL.
    #[error("failed to read the path {0}: it has a NUL byte")]
    Nul(String),
    /// It is too long.
    #[error("failed to read the path {0}: it has {1} bytes, and at most {MAX_BYTES} are taken")]
    Long(String, usize),
    /// A name in it is too long.
    #[error("failed to read the path {0}: a name in it has {1} bytes, and at most {MAX_NAME} are taken")]
    LongName(String, usize),
    /// It has too many names.
    #[error("failed to read the path {0}: it has {1} names, and at most {MAX_PARTS} are taken")]
    Deep(String, usize),
}

impl TreePath {
    /// The root of the tree.
    #[must_use]
    pub fn root() -> Self {
        Self(Vec::new())
    }

    /// Reads a path as users write it: `src/parser`, or `.`.
    ///
    /// # Errors
    /// Why it is none. The error quotes the beginning of the path, without control characters.
    pub fn parse(bytes: &[u8]) -> Result<Self, PathError> {
        let quoted = || quote(bytes);
        let Ok(text) = std::str::from_utf8(bytes) else { return Err(PathError::NotUtf8(quoted())) };
        match text {
            "" => return Err(PathError::Empty),
            "." => return Ok(Self::root()),
            _ if text.contains('\0') => return Err(PathError::Nul(quoted())),
            _ if text.starts_with('/') => return Err(PathError::Absolute(quoted())),
            _ => {}
        }
        // Before the length of all: it says more.
        let count = text.split('/').count();
        if count > MAX_PARTS {
            return Err(PathError::Deep(quoted(), count));
        }
        if bytes.len() > MAX_BYTES {
            return Err(PathError::Long(quoted(), bytes.len()));
        }
        let part = |part: &str| match part {
            "" => Err(PathError::EmptyName(quoted())),
            "." => Err(PathError::Current(quoted())),
            ".." => Err(PathError::Parent(quoted())),
            ".git" => Err(PathError::Git(quoted())),
            long if long.len() > MAX_NAME => Err(PathError::LongName(quoted(), long.len())),
            name => Ok(name.to_owned()),
        };
        Ok(Self(text.split('/').map(part).collect::<Result<_, _>>()?))
    }

    /// Whether this is the root of the tree.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this is that path, or below it.
    #[must_use]
    pub fn starts_with(&self, above: &Self) -> bool {
        self.0.starts_with(&above.0)
    }

    /// The folder that contains this; None for the root.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        self.0.split_last().map(|(_, parents)| Self(parents.to_vec()))
    }

    /// All folders that contain this, the root first.
    pub fn ancestors(&self) -> impl Iterator<Item = Self> {
        (0..self.0.len()).map(move |length| Self(self.0.iter().take(length).cloned().collect()))
    }

    /// Something directly below this that no path names.
    pub(super) fn unnamed_child(&self) -> Self {
        let mut parts = self.0.clone();
        parts.push("\0".to_owned());
        Self(parts)
    }
}

impl fmt::Display for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_root() {
            return f.write_str(".");
        }
        // Only what a decision made up of itself has a NUL.
        f.write_str(&self.0.join("/").replace('\0', "*"))
    }
}

fn quote(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let cut: String = text.chars().take(QUOTED).collect();
    let end = if cut.len() < text.len() { "…" } else { "" };
    format!("{cut:?}{end}")
}
