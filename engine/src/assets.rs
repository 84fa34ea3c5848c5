//! What a team keeps in its tree for its agents: skills and commands. All conversations of a project read one snapshot of it, whole, and change none.
//!
//! The tree is looked at when a run begins. Only where a name, a size or a time differs is it read again, and the new generation counts from that run.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;
pub use yoi_assets::{AssetSnapshot, Strictness};
use yoi_assets::{StrictError, load};

use crate::tools::tree::Tree;

mod expand;
mod listing;
mod offer;
#[cfg(test)]
mod tests;
mod walk;
mod watcher;

pub use expand::{Expansion, expand, looks_like_command, text_of_command};
pub use listing::{counts, found, listing};
pub use offer::{AssetOffer, COMMAND, GRAPH, SKILL, asset_offer, has_use_for, is_for_model, list_of_commands};

pub(crate) use watcher::watch;

use walk::FoundFile;

/// The assets of one tree.
#[derive(Debug)]
pub struct ProjectAssets {
    tree: Arc<Tree>,
    /// What was found when the snapshot was made; `None`: nobody has asked yet. Held over a look, so that two looks make two generations.
    found: Mutex<Option<Vec<FoundFile>>>,
    current: watch::Sender<Arc<AssetSnapshot>>,
}

impl ProjectAssets {
    /// The assets of a tree, which is first looked at when somebody asks. Until then the snapshot is empty and its generation 0.
    #[must_use]
    pub fn new(tree: Arc<Tree>) -> Self {
        Self { tree, found: Mutex::new(None), current: watch::Sender::new(Arc::default()) }
    }

    /// The snapshot that counts. Blocks when nobody has asked before.
    #[must_use]
    pub fn current(&self) -> Arc<AssetSnapshot> {
        if self.found.lock().unwrap_or_else(PoisonError::into_inner).is_none() {
            return self.look();
        }
        self.current.borrow().clone()
    }

    /// Looks at the tree, and makes another snapshot where something differs. Blocks.
    pub fn look(&self) -> Arc<AssetSnapshot> {
        let mut known = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let found = walk::walk(&self.tree);
        if known.as_ref() != Some(&found) {
            // Lenient reading refuses nothing.
            if let Err(error) = self.swap(&found, Strictness::Lenient) {
                tracing::error!(%error, "assets not loaded");
            }
            *known = Some(found);
        }
        self.current.borrow().clone()
    }

    /// Reads all assets again, whether or not something differs. Blocks.
    ///
    /// # Errors
    /// Strict, and one of them is not right: the snapshot of before counts on.
    pub fn reload(&self, strictness: Strictness) -> Result<Arc<AssetSnapshot>, StrictError> {
        let mut known = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let found = walk::walk(&self.tree);
        self.swap(&found, strictness)?;
        *known = Some(found);
        Ok(self.current.borrow().clone())
    }

    /// The snapshot, and every change of it.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Arc<AssetSnapshot>> {
        self.current.subscribe()
    }

    fn swap(&self, found: &[FoundFile], strictness: Strictness) -> Result<(), StrictError> {
        let generation = self.current.borrow().generation + 1;
        let snapshot = load(&walk::read(&self.tree, found), generation, strictness)?;
        tracing::info!(
            generation,
            skills = snapshot.skills.len(),
            commands = snapshot.commands.len(),
            diagnostics = snapshot.diagnostics.len(),
            "assets loaded"
        );
        self.current.send_replace(Arc::new(snapshot));
        Ok(())
    }
}
