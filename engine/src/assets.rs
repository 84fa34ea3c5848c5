//! What a team keeps for its agents, in its tree and in sets beside it: skills, commands, workflows and a graph of knowledge. All conversations of a project
//! read one snapshot of it, whole, and change none.
//!
//! The files are looked at when a run begins. Only where a name, a size or a time differs are they read again, and the new generation counts from that run.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;
pub use yoi_assets::{AssetSnapshot, StrictError, Strictness};
use yoi_assets::{ParsedFiles, load_again};
use yoi_wire::assets::{AssetSettings, FetchedSet};

use crate::tools::tree::Tree;

mod expand;
mod listing;
mod news;
mod offer;
mod sets;
#[cfg(test)]
mod tests;
mod walk;
mod watcher;

pub use expand::{Expansion, expand, looks_like_command, text_of_command};
pub use listing::{counts, found, listing, report};
pub(crate) use news::{AssetNews, signal_of};
pub use offer::{AssetOffer, COMMAND, GRAPH, SKILL, asset_offer, has_use_for, is_for_model, list_of_commands, list_of_teams_skills};
pub use watcher::watch;

use sets::Roots;
use walk::FoundFile;

/// The assets of one tree.
#[derive(Debug)]
pub struct ProjectAssets {
    tree: Arc<Tree>,
    /// Held over a look, so that two looks make two generations.
    looked: Mutex<Looked>,
    loaded: watch::Sender<LoadedAssets>,
}

/// What was looked at.
#[derive(Debug, Default)]
struct Looked {
    settings: AssetSettings,
    /// What was found then; `None`: nobody has asked yet.
    found: Option<Vec<FoundFile>>,
    files: KnownFiles,
}

/// What of the files need not be read or parsed again.
#[derive(Debug, Default)]
struct KnownFiles {
    /// As long as nothing about them changes.
    rested: HashSet<FoundFile>,
    /// As long as their content is the same.
    parsed: ParsedFiles,
}

/// What counts, and how the last reading ended.
#[derive(Clone, Debug, Default)]
pub struct LoadedAssets {
    /// What counts.
    pub snapshot: Arc<AssetSnapshot>,
    /// Strict, and the files as they are now are refused: [`Self::snapshot`] is that of before.
    pub refused: Option<Arc<StrictError>>,
    /// The last reading was refused, also one that was asked to be strict where the project is not.
    pub last_refused: Option<Arc<StrictError>>,
    /// Somebody has said how they are read in this project.
    pub has_settings: bool,
    /// The team's sets that are fetched when the agent starts.
    pub sets: Vec<FetchedSet>,
    /// They were read, as they are to be.
    is_read: bool,
}

impl ProjectAssets {
    /// The assets of a tree, which is first looked at when somebody asks. Until then the snapshot is empty and its generation 0.
    #[must_use]
    pub fn new(tree: Arc<Tree>) -> Self {
        Self { tree, looked: Mutex::default(), loaded: watch::Sender::new(LoadedAssets::default()) }
    }

    /// Sets how they are read. What was read before is read again when somebody asks.
    pub fn set_settings(&self, settings: AssetSettings) {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let sets = sets::fetched_sets(&settings);
        self.loaded.send_modify(|loaded| (loaded.has_settings, loaded.is_read, loaded.sets) = (settings.is_of_project(), false, sets));
        *looked = Looked { settings, ..Looked::default() };
    }

    /// How they are read.
    #[must_use]
    pub fn settings(&self) -> AssetSettings {
        self.looked.lock().unwrap_or_else(PoisonError::into_inner).settings.clone()
    }

    /// Where the other files of a skill are whose set is not in the tree; `path` is that of its file. `None`: it has none, or they are in the tree.
    #[must_use]
    pub fn folder_in_set(&self, path: &str) -> Option<PathBuf> {
        sets::folder_in_set(&self.settings(), path)
    }

    /// The roots of the team's sets, in which their instructions are, with their names.
    #[must_use]
    pub(crate) fn roots_of_sets(&self) -> Vec<(String, Tree)> {
        sets::roots_of_sets(&self.settings())
    }

    /// The snapshot that counts. Blocks when nobody has asked before.
    #[must_use]
    pub fn current(&self) -> Arc<AssetSnapshot> {
        self.loaded().snapshot
    }

    /// The snapshot that counts, and how the last reading ended. Blocks when nobody has asked before.
    #[must_use]
    pub fn loaded(&self) -> LoadedAssets {
        // Whoever asks during a reading has what was loaded before, and does not wait.
        let loaded = self.loaded.borrow().clone();
        if loaded.is_read {
            return loaded;
        }
        self.look();
        self.loaded.borrow().clone()
    }

    /// Looks at the files, and makes another snapshot where something differs. Blocks. Where the project is strict and one of them is not right, the snapshot
    /// of before counts on.
    pub fn look(&self) -> Arc<AssetSnapshot> {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let Looked { settings, found: before, files } = &mut *looked;
        let roots = Roots::open(&self.tree, &settings.sets);
        let found = walk::walk(&roots, settings);
        if before.as_ref() != Some(&found) {
            let strictness = strictness(settings);
            if let Err(error) = self.read(&roots, &found, files, strictness, true) {
                tracing::warn!(%error, "assets refused");
            }
            *before = Some(found);
        }
        self.loaded.borrow().snapshot.clone()
    }

    /// Makes another snapshot, whether or not something differs. What was not changed since it was read is not read again. Blocks.
    ///
    /// # Errors
    /// Strict, or the project is, and one of them is not right: the snapshot of before counts on.
    pub fn reload(&self, asked: Strictness) -> Result<Arc<AssetSnapshot>, StrictError> {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let Looked { settings, found: before, files } = &mut *looked;
        let roots = Roots::open(&self.tree, &settings.sets);
        let found = walk::walk(&roots, settings);
        let is_strict = settings.strict;
        let strictness = if is_strict { Strictness::Strict } else { asked };
        let read = self.read(&roots, &found, files, strictness, is_strict);
        // What only the asker finds too strict is read by the next look.
        if read.is_ok() || is_strict {
            *before = Some(found);
        }
        read?;
        Ok(self.loaded.borrow().snapshot.clone())
    }

    /// What counts, and every reading.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<LoadedAssets> {
        self.loaded.subscribe()
    }

    /// `is_lasting`: a refusal is the project's, and not that of one asker.
    fn read(
        &self,
        roots: &Roots<'_>,
        found: &[FoundFile],
        known: &mut KnownFiles,
        strictness: Strictness,
        is_lasting: bool,
    ) -> Result<(), StrictError> {
        let generation = self.loaded.borrow().snapshot.generation + 1;
        let KnownFiles { rested, parsed } = known;
        let read = walk::read(roots, found, rested, &|file| parsed.knows(file, strictness));
        *rested = read.rested;
        match load_again(parsed, &read.files, &read.same, generation, strictness) {
            Ok(snapshot) => {
                tracing::info!(
                    generation,
                    skills = snapshot.skills.len(),
                    commands = snapshot.commands.len(),
                    diagnostics = snapshot.diagnostics.len(),
                    "assets loaded"
                );
                self.loaded.send_modify(|loaded| {
                    (loaded.snapshot, loaded.refused, loaded.last_refused, loaded.is_read) = (Arc::new(snapshot), None, None, true);
                });
                Ok(())
            }
            Err(error) => {
                let refused = Arc::new(error.clone());
                self.loaded.send_modify(|loaded| {
                    loaded.last_refused = Some(refused.clone());
                    if is_lasting {
                        (loaded.refused, loaded.is_read) = (Some(refused), true);
                    }
                });
                Err(error)
            }
        }
    }
}

fn strictness(settings: &AssetSettings) -> Strictness {
    if settings.strict { Strictness::Strict } else { Strictness::Lenient }
}
