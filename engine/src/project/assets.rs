//! The skills and commands of a project, for whoever embeds the engine.

use std::sync::Arc;

use yoi_assets::{AssetSnapshot, StrictError, Strictness};

use super::Project;
use crate::log_reads::blocking;

impl Project {
    /// The skills and commands of its tree, and what of them could not be read: those that count since the last run began, or was asked for.
    #[must_use]
    pub fn assets(&self) -> Arc<AssetSnapshot> {
        self.instance.tools.runner().assets().current()
    }

    /// Reads them again. The next run has them; it would see by itself what has changed.
    ///
    /// # Errors
    /// Strict, and something is not as it should be: what was loaded before counts on.
    pub async fn reload_assets(&self, strictness: Strictness) -> Result<Arc<AssetSnapshot>, StrictError> {
        let assets = self.instance.tools.runner().assets().clone();
        blocking(move || assets.reload(strictness)).await
    }
}
