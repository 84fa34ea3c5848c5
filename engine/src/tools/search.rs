//! Walks over the files of a tree: what Grep and Glob have in common.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use globset::{GlobBuilder, GlobMatcher};
use ignore::{DirEntry, WalkBuilder, WalkState};

use super::tree::{PathError, Tree};

/// Where and how long to look.
#[derive(Clone, Debug)]
pub struct Search {
    /// The folder or file, as the model wrote it.
    pub path: String,
    /// Whether files count that `.gitignore` and `.ignore` leave out.
    pub ignored_too: bool,
    pub stop: StopSearch,
}

/// Ends a search early: after a time, or because nobody waits for it any more.
#[derive(Clone, Debug)]
pub struct StopSearch {
    cancelled: Arc<AtomicBool>,
    deadline: Instant,
}

/// Cancels a search when it is dropped.
#[derive(Debug)]
pub struct CancelOnDrop(Arc<AtomicBool>);

impl StopSearch {
    /// A search that ends after `limit`, or when the other value is dropped.
    #[must_use]
    pub fn after(limit: Duration) -> (Self, CancelOnDrop) {
        let cancelled = Arc::new(AtomicBool::new(false));
        (Self { cancelled: cancelled.clone(), deadline: Instant::now() + limit }, CancelOnDrop(cancelled))
    }

    #[must_use]
    pub fn is_over(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed) || Instant::now() >= self.deadline
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Search {
    /// Visits every file beneath the path, on several threads, in no order, and returns whether it visited all. No folder is entered by a
    /// link, and what is in `.git` is not visited. `visitor` makes a function for each thread; that gets paths relative to the root, of
    /// files and, if `links`, of links too.
    ///
    /// # Errors
    /// The path leads out of the tree or is not there.
    pub fn visit<F>(&self, tree: &Tree, links: bool, visitor: impl Fn() -> F + Sync) -> Result<bool, PathError>
    where
        F: FnMut(&Path) + Send,
    {
        let located = tree.locate(&self.path)?;
        if !tree.kind(&self.path)?.is_dir() {
            visitor()(&located);
            return Ok(true);
        }
        let is_root = located == Path::new(".");
        let target = if is_root { tree.root().to_owned() } else { tree.root().join(&located) };
        // From the root, so that the ignore files above the folder count.
        let reached = Arc::new(AtomicBool::new(is_root));
        let mut complete = self.walk(tree, tree.root(), Some((target.clone(), reached.clone())), links, &visitor);
        if complete && !reached.load(Ordering::Relaxed) {
            // The folder itself is ignored, and was asked for.
            complete = self.walk(tree, &target, None, links, &visitor);
        }
        Ok(complete)
    }

    /// `within`: what to visit beneath `from`, and whether it was reached.
    fn walk<F>(
        &self,
        tree: &Tree,
        from: &Path,
        within: Option<(PathBuf, Arc<AtomicBool>)>,
        links: bool,
        visitor: &(impl Fn() -> F + Sync),
    ) -> bool
    where
        F: FnMut(&Path) + Send,
    {
        let ignores = !self.ignored_too;
        let mut walk = WalkBuilder::new(from);
        // Nothing outside of the tree decides what is in it, and a tree need not be a git repository.
        walk.parents(false).git_global(false).require_git(false).follow_links(false);
        walk.hidden(false).ignore(ignores).git_ignore(ignores).git_exclude(ignores);
        walk.filter_entry(move |entry| {
            if entry.file_name() == ".git" && entry.depth() > 0 {
                return false;
            }
            let Some((target, reached)) = &within else { return true };
            if entry.path().starts_with(target) {
                reached.store(true, Ordering::Relaxed);
                return true;
            }
            target.starts_with(entry.path())
        });
        let incomplete = AtomicBool::new(false);
        walk.build_parallel().run(|| {
            let mut visit = visitor();
            let incomplete = &incomplete;
            Box::new(move |entry| {
                if self.stop.is_over() {
                    incomplete.store(true, Ordering::Relaxed);
                    return WalkState::Quit;
                }
                // A folder that may not be read has nothing to show; others go on.
                let Ok(entry) = entry else { return WalkState::Continue };
                if is_wanted(&entry, links)
                    && let Ok(path) = entry.path().strip_prefix(tree.root())
                {
                    visit(path);
                }
                WalkState::Continue
            })
        });
        !incomplete.load(Ordering::Relaxed)
    }
}

fn is_wanted(entry: &DirEntry, links: bool) -> bool {
    entry.file_type().is_some_and(|kind| kind.is_file() || (links && kind.is_symlink()))
}

/// Reads a pattern for paths relative to the root. One without `/` matches names at any depth.
///
/// # Errors
/// The message for the model.
pub fn glob(pattern: &str) -> Result<GlobMatcher, String> {
    let relative = pattern.trim_start_matches("./").trim_start_matches('/');
    let anywhere = if relative.contains('/') { relative.to_owned() } else { format!("**/{relative}") };
    match GlobBuilder::new(&anywhere).literal_separator(true).build() {
        Ok(glob) => Ok(glob.compile_matcher()),
        Err(error) => Err(format!("is no glob: {}", error.kind())),
    }
}
