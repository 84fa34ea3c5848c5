//! Text that is read anew each time it is needed.

use std::path::PathBuf;
use std::sync::Arc;

/// A token or a CA that may change while the process runs. Cheap to clone; never prints its text.
#[derive(Clone)]
pub struct TextSource {
    read: Arc<dyn Fn() -> std::io::Result<String> + Send + Sync>,
    name: Arc<str>,
}

#[derive(Debug, thiserror::Error)]
#[error("failed to read {name}")]
pub struct TextSourceError {
    /// What was read: a path, or a word for it. Never its text.
    pub name: Arc<str>,
    #[source]
    pub source: std::io::Error,
}

impl TextSource {
    /// A file, read at each use; for projected volumes, whose files are replaced under their readers.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let name = path.display().to_string();
        // A projected file lies on tmpfs and is a page long: reading it costs less than a hop to the blocking pool.
        Self::from_fn(name, move || std::fs::read_to_string(&path))
    }

    /// Text that does not change.
    pub fn fixed(text: impl Into<String>) -> Self {
        let text = text.into();
        Self::from_fn("fixed text", move || Ok(text.clone()))
    }

    /// Whatever `read` gives. `name` is what errors call it. `read` must not block for long.
    pub fn from_fn(name: impl Into<String>, read: impl Fn() -> std::io::Result<String> + Send + Sync + 'static) -> Self {
        Self { read: Arc::new(read), name: Arc::from(name.into()) }
    }

    pub fn read(&self) -> Result<String, TextSourceError> {
        (self.read)().map_err(|source| TextSourceError { name: self.name.clone(), source })
    }
}

impl std::fmt::Debug for TextSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TextSource({})", self.name)
    }
}
