//! When a working tree has changed: by the file system's own events, without those of paths that git ignores, and by a look once in a while.
//!
//! # Guarantees
//! - A change after [`Changes::next`] has returned is told by the next call, as far as the file system tells it; what it does not tell is found by a look.
//! - Nothing here says what has changed: each time the whole tree is captured anew.

mod pending;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use notify::{Config, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, sleep_until};

use super::clone::Folders;
use crate::git;
use pending::{Places, Shared};

/// After how long the tree is looked at though no event has come: network file systems do not tell what others write.
const LOOK: Duration = Duration::from_secs(60);
/// As [`LOOK`], where not every folder can be watched.
const LOOK_UNWATCHED: Duration = Duration::from_secs(5);

pub struct Changes {
    shared: Arc<Shared>,
    root: PathBuf,
    /// Whether ignored files may be a part of the tree.
    with_ignored: bool,
    /// Events come as long as it is there.
    _watcher: Option<RecommendedWatcher>,
}

impl Changes {
    /// Begins to watch. `with_ignored`: what git ignores counts, too.
    pub fn begin(folders: &Folders, with_ignored: bool) -> Self {
        let places = Places { root: folders.root.clone(), git: folders.git.clone(), common: folders.common.clone() };
        let shared = Arc::new(Shared::new(places));
        let config = Config::default().with_follow_symlinks(false);
        let watched = RecommendedWatcher::new(pending::Events(Arc::clone(&shared)), config).and_then(|mut watcher| {
            watcher.watch(&folders.root, RecursiveMode::Recursive)?;
            // That of a linked work tree is elsewhere. In one of ours only we write.
            if !folders.is_ours && !folders.git.starts_with(&folders.root) {
                watcher.watch(&folders.git, RecursiveMode::NonRecursive)?;
            }
            Ok(watcher)
        });
        let watcher = watched.map_err(|error| shared.set_trouble(&error)).ok();
        Changes { shared, root: folders.root.clone(), with_ignored, _watcher: watcher }
    }

    /// Why not every folder is watched, once.
    pub fn new_trouble(&self) -> Option<String> {
        self.shared.new_trouble()
    }

    /// Returns when the tree may have changed, and rests, or when it is time to look at it.
    pub async fn next(&mut self) {
        let look_at = Instant::now() + if self.shared.has_trouble() { LOOK_UNWATCHED } else { LOOK };
        loop {
            let Some(due) = self.shared.due() else {
                tokio::select! {
                    () = self.shared.changed() => continue,
                    () = sleep_until(look_at) => return,
                }
            };
            if due > Instant::now() {
                sleep_until(due).await;
                continue;
            }
            let taken = self.shared.take(Instant::now());
            if taken.is_everything || self.with_ignored || self.any_counts(&taken.paths).await || Instant::now() >= look_at {
                return;
            }
        }
    }

    /// Whether one of these paths is not ignored. What git cannot say counts.
    async fn any_counts(&self, paths: &BTreeSet<PathBuf>) -> bool {
        let mut asked = BTreeSet::new();
        for path in paths {
            let Ok(inner) = path.strip_prefix(&self.root) else { return true };
            // The top itself.
            if inner.as_os_str().is_empty() {
                return true;
            }
            asked.extend(inner.ancestors().filter(|path| !path.as_os_str().is_empty()));
        }
        let Some(ignored) = self.ignored(&asked).await else { return true };
        let folders = asked.iter().filter(|path| ignored.contains(**path) && !paths.contains(&self.root.join(path)));
        self.shared.leave_out(folders.map(|folder| self.root.join(folder)));
        asked.iter().any(|path| paths.contains(&self.root.join(path)) && !ignored.contains(*path))
    }

    /// Those that git ignores; `None` when it does not say.
    async fn ignored(&self, paths: &BTreeSet<&Path>) -> Option<BTreeSet<PathBuf>> {
        let input = paths.iter().flat_map(|path| [bytes_of(path), vec![0]].concat()).collect::<Vec<u8>>();
        let mut command = git::command(&["check-ignore", "-z", "--stdin"]);
        let mut child = command.current_dir(&self.root).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
        let mut stdin = child.stdin.take()?;
        let write = async move {
            // A git that ends early has said that it failed.
            let _ = stdin.write_all(&input).await;
        };
        let ((), output) = tokio::join!(write, child.wait_with_output());
        let output = output.ok()?;
        // 1: it ignores none of them.
        let is_answer = matches!(output.status.code(), Some(0 | 1));
        let names = output.stdout.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        is_answer.then(|| names.map(path_of).collect())
    }
}

#[cfg(unix)]
fn bytes_of(path: &Path) -> Vec<u8> {
    std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()).to_vec()
}

#[cfg(not(unix))]
fn bytes_of(path: &Path) -> Vec<u8> {
    path.to_string_lossy().replace('\\', "/").into_bytes()
}

#[cfg(unix)]
fn path_of(name: &[u8]) -> PathBuf {
    PathBuf::from(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(name))
}

#[cfg(not(unix))]
fn path_of(name: &[u8]) -> PathBuf {
    PathBuf::from(String::from_utf8_lossy(name).replace('/', "\\"))
}
