//! Text that is read again at each use.

use std::path::PathBuf;
use std::sync::Arc;

/// A token or a CA that may change while the process runs. Cheap to clone. `Debug` never prints the text.
#[derive(Clone)]
pub struct TextSource {
    read: Arc<dyn Fn() -> std::io::Result<String> + Send + Sync>,
    name: Arc<str>,
}

/// The text could not be read.
#[derive(Debug, thiserror::Error)]
#[error("failed to read {name}")]
pub struct TextSourceError {
    /// The path, or the name that [`TextSource::from_fn`] was given. Never the text.
    pub name: Arc<str>,
    /// Why the read failed.
    #[source]
    pub source: std::io::Error,
}

impl TextSource {
    /// A file, read at each use. Use it for projected volumes, whose files the kubelet replaces.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let name = path.display().to_string();
        // A projected file lies on tmpfs and is at most a page long: reading it costs less than a task on the blocking pool.
        Self::from_fn(name, move || std::fs::read_to_string(&path))
    }

    /// A constant text.
    pub fn fixed(text: impl Into<String>) -> Self {
        let text = text.into();
        Self::from_fn("fixed text", move || Ok(text.clone()))
    }

    /// The result of `read`, called at each use; it must not block for long. Errors name the source `name`.
    pub fn from_fn(name: impl Into<String>, read: impl Fn() -> std::io::Result<String> + Send + Sync + 'static) -> Self {
        Self { read: Arc::new(read), name: Arc::from(name.into()) }
    }

    /// The text as it is now.
    ///
    /// # Errors
    /// When the file or the function fails.
    pub fn read(&self) -> Result<String, TextSourceError> {
        (self.read)().map_err(|source| TextSourceError { name: self.name.clone(), source })
    }
}

impl std::fmt::Debug for TextSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TextSource({})", self.name)
    }
}
