//! The mounts that show an agent's view of a tree to its Pod.

use std::collections::BTreeSet;

use super::{Entry, EntryKind, Level, TreePath, View};

/// One mount that is laid over a path of a tree, in the view of one Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cover {
    /// Where.
    pub path: TreePath,
    /// What is seen there and below, until another cover.
    pub shown: Shown,
    /// What is seen there instead if the path is no folder. None: the same.
    pub shown_file: Option<Shown>,
    /// What is seen instead in each folder directly below that has no cover of its own. None: the same. A folder that is made later is as the one that it is
    /// made in.
    pub folders: Option<Shown>,
}

/// What a cover shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// The path as it is, to be written. Over a path that can be written already, it only keeps that path from being renamed or removed.
    Writable,
    /// The path as it is, to be read.
    ReadOnly,
    /// Nothing: an empty folder, or an empty file.
    Hidden,
}

impl View {
    /// The covers that show this view, in the order in which they are laid, over a tree that shows everything writable. One of the root comes first, if there is
    /// one: it says how the tree is published.
    ///
    /// Whether a path is there, and what it is, is not known here. Whoever lays the covers refuses by name what is not there.
    ///
    /// # Caveats
    /// What no rule allows is shown to be read: an empty mount cannot have a path below it.
    #[must_use]
    pub fn covers(&self) -> Vec<Cover> {
        let named: BTreeSet<TreePath> = self.rules().map(|rule| rule.path.clone()).chain([TreePath::root()]).collect();
        let mut covers = Covers::default();
        // A folder comes before what is in it.
        for path in &named {
            let shown = self.shown(path, EntryKind::Folder);
            let folders = self.shown(&path.unnamed_child(), EntryKind::Folder);
            let is_folder = path.is_root() || named.iter().any(|other| other != path && other.starts_with(path));
            let shown_file = if is_folder { shown } else { self.shown(path, EntryKind::File) };
            let (as_folder, as_file) = (covers.shown_at(path, EntryKind::Folder), covers.shown_at(path, EntryKind::File));
            let changes = shown != as_folder || folders != as_folder || (!is_folder && shown_file != as_file);
            if changes && as_folder != Shown::Hidden {
                let differing = |other| (other != shown).then_some(other);
                covers.0.push(Cover { path: path.clone(), shown, shown_file: differing(shown_file), folders: differing(folders) });
            }
        }
        covers.with_pins()
    }

    fn shown(&self, path: &TreePath, kind: EntryKind) -> Shown {
        match self.level(&Entry { path: path.clone(), kind }) {
            Level::Hidden => Shown::Hidden,
            Level::Closed | Level::Read => Shown::ReadOnly,
            Level::Write => Shown::Writable,
        }
    }
}

#[derive(Default)]
pub(super) struct Covers(pub Vec<Cover>);

impl Covers {
    /// What is seen at a path with these covers.
    pub fn shown_at(&self, path: &TreePath, kind: EntryKind) -> Shown {
        let above = self.0.iter().filter(|cover| path.starts_with(&cover.path));
        let Some(cover) = above.max_by_key(|cover| cover.path.ancestors().count()) else { return Shown::Writable };
        let is_in = path.parent().as_ref() == Some(&cover.path);
        match kind {
            EntryKind::File if cover.path == *path => cover.shown_file.unwrap_or(cover.shown),
            EntryKind::File if is_in => cover.shown,
            EntryKind::Folder if cover.path == *path => cover.shown,
            EntryKind::File | EntryKind::Folder => cover.folders.unwrap_or(cover.shown),
        }
    }

    /// A covered path cannot be renamed, but a folder above it can, and the cover would go with it. So each folder above that can be renamed is covered, too.
    fn with_pins(self) -> Vec<Cover> {
        let has_cover = |folder: &TreePath| self.0.iter().any(|cover| cover.path == *folder);
        // What is in a folder that cannot be written cannot be renamed.
        let can_move =
            |folder: &TreePath| folder.parent().is_some_and(|parent| self.shown_at(&parent, EntryKind::Folder) == Shown::Writable);
        let above = self.0.iter().flat_map(|cover| cover.path.ancestors());
        let pins: BTreeSet<TreePath> = above.filter(|folder| !has_cover(folder) && can_move(folder)).collect();
        let pin = |path: TreePath| Cover { shown: self.shown_at(&path, EntryKind::Folder), path, shown_file: None, folders: None };
        let mut all: Vec<Cover> = pins.into_iter().map(pin).collect();
        all.extend(self.0);
        all.sort_by(|one, other| one.path.cmp(&other.path));
        all
    }
}
