//! The team's sets of assets beside the tree, as they are in their folders.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use yoi_wire::assets::{AssetSet, AssetSettings, FetchedSet};
use yoi_wire::identity::{ASSET_FAILURE, ASSET_FILES, ASSET_REVISION};

use crate::tools::tree::Tree;

/// The most bytes that are read of why a set is not there.
const MAX_WORDS_BYTES: u64 = 4096;

/// What paths are relative to: the tree, and the folders of the sets.
pub(super) struct Roots<'a> {
    pub(super) tree: &'a Tree,
    sets: Vec<io::Result<Tree>>,
}

impl<'a> Roots<'a> {
    /// A set that cannot be opened is an error of [`Self::root`].
    pub(super) fn open(tree: &'a Tree, sets: &[AssetSet]) -> Self {
        Self { tree, sets: sets.iter().map(|set| Tree::open(&root_of(set))).collect() }
    }

    /// The root of the tree (`None`), or of a set by its place in the settings.
    pub(super) fn root(&self, set: Option<u16>) -> io::Result<&Tree> {
        let Some(set) = set else { return Ok(self.tree) };
        let error = |error: &io::Error| io::Error::new(error.kind(), error.to_string());
        self.sets.get(usize::from(set)).ok_or(io::ErrorKind::NotFound)?.as_ref().map_err(error)
    }

    /// The folders of the sets.
    pub(super) fn folders_of_sets(&self) -> impl Iterator<Item = &Tree> {
        self.sets.iter().flatten()
    }
}

/// What the paths of a set are relative to.
fn root_of(set: &AssetSet) -> PathBuf {
    let folder = Path::new(&set.folder);
    if set.fetched { folder.join(ASSET_FILES) } else { folder.to_owned() }
}

/// Where the folder of a skill is to be read, for who cannot read it in the tree: `path` is that of its file. `None`: it is of the tree, or one file.
pub(super) fn folder_in_set(settings: &AssetSettings, path: &str) -> Option<PathBuf> {
    let of_path = |set: &AssetSet| path.strip_prefix(&set.name)?.strip_prefix('/').map(|below| root_of(set).join(below));
    let file = settings.sets.iter().filter(|set| set.fetched && !set.folder.is_empty()).find_map(of_path)?;
    file.parent().map(Path::to_owned)
}

/// The sets that are fetched when the agent starts, as they are here.
pub(super) fn fetched_sets(settings: &AssetSettings) -> Vec<FetchedSet> {
    settings.sets.iter().filter(|set| set.fetched).map(fetched_set).collect()
}

/// How one such set is: its revision, or why it is missing.
pub(super) fn fetched_set(set: &AssetSet) -> FetchedSet {
    let missing = |why: String| FetchedSet { name: set.name.clone(), revision: None, missing: Some(why) };
    if set.folder.is_empty() {
        return missing("is fetched when the agent starts, so what it holds is not shown while the agent is stopped".to_owned());
    }
    let file = |name: &str| {
        let mut text = String::new();
        let tree = Tree::open(Path::new(&set.folder)).ok()?;
        tree.read(name).ok()?.take(MAX_WORDS_BYTES).read_to_string(&mut text).ok()?;
        Some(text.trim().to_owned())
    };
    match file(ASSET_FAILURE) {
        Some(why) => missing(format!("is not fetched: {why}")),
        None => FetchedSet { name: set.name.clone(), revision: file(ASSET_REVISION), missing: None },
    }
}

/// The roots of the sets that are there, with the names of the sets.
pub(super) fn roots_of_sets(settings: &AssetSettings) -> Vec<(String, Tree)> {
    let opened = |set: &AssetSet| Some((set.name.clone(), Tree::open(&root_of(set)).ok()?));
    settings.sets.iter().filter(|set| !set.folder.is_empty()).filter_map(opened).collect()
}
