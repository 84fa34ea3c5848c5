//! A folder without git whose tree agents work on. A repository of ours in the person's cache folder stands for it, and nothing of ours is in the folder.

use std::path::{Path, PathBuf};

use yoi_worktree::Source;

use crate::args::cache_folder;
use crate::git::{CloneRefusal, refusal};
use crate::show::one_line;

/// Below the cache folder.
const TREES: &str = "yoi/trees";
/// Letters of a folder's digest that name its repository.
const NAME_LETTERS: usize = 32;

/// The folder, and the repository that stands for it.
#[derive(Clone, Debug)]
pub struct FolderTree {
    pub root: PathBuf,
    pub repository: PathBuf,
}

impl FolderTree {
    /// That of the working directory, or of a folder above it. A repository of the person's that is nearer counts in its place.
    pub fn find() -> Option<Self> {
        Self::find_from(&here().ok()?, &cache_folder()?)
    }

    fn find_from(here: &Path, cache: &Path) -> Option<Self> {
        let without_git = here.ancestors().take_while(|folder| !folder.join(".git").exists());
        without_git.map(|folder| Self::new(folder, cache)).find(|tree| tree.repository.join("HEAD").exists())
    }

    fn new(root: &Path, cache: &Path) -> Self {
        let mut name = yoi_plan::names::sha256(root.as_os_str().as_encoded_bytes());
        name.truncate(NAME_LETTERS);
        FolderTree { root: root.to_owned(), repository: cache.join(TREES).join(name) }
    }

    /// The working directory, of which no repository is made yet.
    ///
    /// # Errors
    /// It cannot stand for a tree.
    pub fn of_here() -> Result<Self, CloneRefusal> {
        const NEXT: &str = "go to a folder that is there";
        let here = here().map_err(|error| refusal(format!("the working directory cannot be found: {error}"), NEXT))?;
        let cache = cache_folder().ok_or_else(|| refusal("nobody says which folder is yours", "say it: HOME, or XDG_CACHE_HOME"))?;
        // A link may lead there.
        let real = cache.ancestors().find_map(|folder| folder.canonicalize().ok()).unwrap_or_default();
        if real.starts_with(&here) || cache.starts_with(&here) {
            let message = format!("{} holds your cache folder, {}, in which Yoi keeps what it sends", here.display(), cache.display());
            return Err(refusal(one_line(&message), "go to the folder that agents are to work on; or name another one: XDG_CACHE_HOME"));
        }
        Ok(Self::new(&here, &cache))
    }

    /// Makes the repository, unless it is there.
    ///
    /// # Errors
    /// There is no git, or the disk does not take it.
    pub fn make(&self) -> Result<(), CloneRefusal> {
        let failed = |why: String| refusal(why, "look at the cache folder's owner and room, and say it again");
        yoi_worktree::make_repository(&self.repository).map_err(|error| failed(one_line(&yoi_wire::error_chain(&error))))?;
        // For people who come upon it.
        let path = self.repository.join("description");
        let text = format!("The tree of {}\n", self.root.display());
        std::fs::write(&path, text).map_err(|error| failed(format!("{} cannot be written: {error}", path.display())))
    }

    pub fn source(&self) -> Source {
        Source::Folder { root: self.root.clone(), repository: self.repository.clone() }
    }
}

/// The working directory. The system knows it as no link leads to it.
fn here() -> std::io::Result<PathBuf> {
    std::env::current_dir()
}

/// The working tree that the working directory is in, as far as somebody has one there.
pub fn source_here() -> std::io::Result<Source> {
    match FolderTree::find() {
        Some(tree) => Ok(tree.source()),
        None => std::env::current_dir().map(Source::WorkTree),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_found_from_below_and_a_repository_that_is_nearer_counts_in_its_place() {
        let place = tempfile::tempdir().unwrap();
        let (root, cache) = (place.path().join("tree"), place.path().join("cache"));
        let inner = root.join("sub/clone/below");
        std::fs::create_dir_all(&inner).unwrap();
        assert!(FolderTree::find_from(&inner, &cache).is_none());
        let made = FolderTree::new(&root, &cache);
        made.make().unwrap();
        assert_eq!(FolderTree::find_from(&inner, &cache).map(|tree| tree.root), Some(root.clone()));
        assert!(FolderTree::find_from(place.path(), &cache).is_none());
        std::fs::create_dir(root.join("sub/clone/.git")).unwrap();
        assert!(FolderTree::find_from(&inner, &cache).is_none());
        assert_eq!(FolderTree::find_from(&root.join("sub"), &cache).map(|tree| tree.repository), Some(made.repository));
        assert_eq!(std::fs::read_dir(&root).unwrap().count(), 1, "something of ours is in the folder");
    }
}
