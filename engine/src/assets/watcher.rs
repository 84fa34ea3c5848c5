//! Looks at a tree's assets again after its files have changed, also while a run is under way.
//!
//! # Guarantees
//! - However many changes come one after the other, there is one look, [`QUIET`] after the last of them, and [`LONGEST`] after the first at the latest.
//! - A look compares all that there is, so events that the kernel drops change nothing.
//! - As many folders are watched as a walk looks at, and no more: one that has left the tree, or that is none of assets any more, is let go.
//! - A folder is watched by its descriptor, which no link leads astray.
//!
//! # Caveats
//! - Only folders that hold assets, and those above them, are watched. What a link to a file leads to is seen when the next run begins, but for sets, whose
//!   folder the kubelet changes.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init, remove_watch};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use yoi_assets::FOLDERS;

use super::ProjectAssets;
use super::sets::Roots;
use super::walk;
use crate::log_reads::blocking;

/// How long nothing may change before the tree is looked at.
const QUIET: Duration = Duration::from_millis(250);
/// A tree that never rests is looked at all the same.
const LONGEST: Duration = Duration::from_secs(2);
const STRUCTURE: WatchFlags = WatchFlags::CREATE.union(WatchFlags::DELETE).union(WatchFlags::MOVED_FROM).union(WatchFlags::MOVED_TO);
const CONTENT: WatchFlags = STRUCTURE.union(WatchFlags::MODIFY).union(WatchFlags::CLOSE_WRITE).union(WatchFlags::ATTRIB);

/// When the next look is due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Debounce {
    /// The first change that no look has followed, and the last.
    changes: Option<(Instant, Instant)>,
}

impl Debounce {
    fn change(&mut self, now: Instant) {
        let first = self.changes.map_or(now, |(first, _)| first);
        self.changes = Some((first, now));
    }

    fn due(&self) -> Option<Instant> {
        self.changes.map(|(first, last)| (last + QUIET).min(first + LONGEST))
    }
}

/// Watches until `stop`. Where the kernel refuses, it says so in this process's log and ends: each begin of a run looks at the tree all the same.
pub async fn watch(assets: Arc<ProjectAssets>, stop: CancellationToken) {
    let watched = async {
        let inotify = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        // SAFETY: the descriptor is owned, and closed only with the `AsyncFd`.
        let fd = Arc::new(unsafe { AsyncFd::register_with_interest(inotify, Interest::READABLE) }?);
        let mut watched = BTreeSet::new();
        loop {
            // Before the look, so that what changes meanwhile is seen.
            let (looked_at, watches) = (assets.clone(), fd.clone());
            watched = blocking(move || {
                let watched = watch_folders(&looked_at, watches.get_ref(), watched);
                looked_at.look();
                watched
            })
            .await;
            wait_for_rest(&fd).await?;
        }
    };
    if let Some(Err::<(), io::Error>(error)) = stop.run_until_cancelled(watched).await {
        tracing::warn!(%error, "assets not watched");
    }
}

/// Returns once something has changed and a look is due.
async fn wait_for_rest(fd: &AsyncFd<OwnedFd>) -> io::Result<()> {
    let mut debounce = Debounce::default();
    loop {
        let due = debounce.due();
        tokio::select! {
            ready = fd.readable() => {
                let mut ready = ready?;
                drain(fd.get_ref())?;
                ready.clear_ready();
                debounce.change(Instant::now());
            }
            () = async { sleep_until(due.unwrap_or_else(Instant::now)).await }, if due.is_some() => return Ok(()),
        }
    }
}

/// Takes all events. What they say is not needed.
fn drain(fd: &OwnedFd) -> io::Result<()> {
    let mut buffer = [0_u8; 16 << 10];
    loop {
        match rustix::io::read(fd, &mut buffer) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Watches each folder that may hold assets, and those above, and lets go of what else was watched `before`. Returns the kernel's numbers of all of them.
fn watch_folders(assets: &ProjectAssets, fd: &OwnedFd, before: BTreeSet<i32>) -> BTreeSet<i32> {
    let (tree, settings) = (&*assets.tree, assets.settings());
    let roots = Roots::open(tree, &settings.sets);
    let above = FOLDERS.iter().filter_map(|folder| folder.path.split('/').next());
    let above: Vec<(String, WatchFlags)> = std::iter::once(".").chain(above).map(|path| (path.to_owned(), STRUCTURE)).collect();
    let folders = walk::folders(tree, &settings).into_iter().filter_map(|path| Some((path.to_str()?.to_owned(), CONTENT)));
    let of_tree = above.into_iter().chain(folders).map(|(path, flags)| (tree, path, flags));
    let of_sets = roots.folders_of_sets().map(|set| (set, ".".to_owned(), CONTENT));
    let mut watched = BTreeSet::new();
    for (root, path, flags) in of_tree.chain(of_sets) {
        // By its descriptor, which leads nowhere else.
        let Ok(folder) = root.open_folder(&path) else { continue };
        match add_watch(fd, format!("/proc/self/fd/{}", folder.as_raw_fd()), flags | WatchFlags::ONLYDIR) {
            // The same folder has the same number.
            Ok(number) => watched.insert(number),
            Err(error) => {
                tracing::warn!(%error, path, "folder of assets not watched");
                // The limit of watches is the user's, so the next one would fail, too.
                return &watched | &before;
            }
        };
    }
    for gone in &before - &watched {
        // The kernel has let go of a folder that is removed.
        let _ = remove_watch(fd, gone);
    }
    watched
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::tools::tree::Tree;

    use super::*;

    fn assets(root: &Path) -> ProjectAssets {
        ProjectAssets::new(Arc::new(Tree::open(root).unwrap()))
    }

    fn write(root: &Path, skill: &str) {
        let folder = root.join(".agents/skills").join(skill);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("SKILL.md"), format!("---\nname: {skill}\ndescription: Of {skill}.\n---\n")).unwrap();
    }

    /// How many folders the kernel watches for this descriptor.
    fn in_kernel(fd: &OwnedFd) -> usize {
        let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).unwrap();
        text.lines().filter(|line| line.starts_with("inotify ")).count()
    }

    #[test]
    fn a_folder_that_leaves_the_tree_of_assets_is_not_watched_any_more() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "stays");
        let (assets, fd) = (assets(root.path()), init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).unwrap());
        let begin = watch_folders(&assets, &fd, BTreeSet::new());
        // The root, `.agents`, its skills, and the skill.
        assert_eq!((begin.len(), in_kernel(&fd)), (4, 4));
        let mut watched = begin.clone();
        for round in 0..20 {
            let name = format!("goes-{round}");
            write(root.path(), &name);
            watched = watch_folders(&assets, &fd, watched);
            assert_eq!(in_kernel(&fd), 5);
            std::fs::rename(root.path().join(".agents/skills").join(&name), root.path().join(&name)).unwrap();
        }
        std::fs::remove_dir_all(root.path().join(".agents/skills/stays")).unwrap();
        watched = watch_folders(&assets, &fd, watched);
        assert_eq!((watched.len(), in_kernel(&fd)), (3, 3), "what was moved away, and what is removed, is watched on");
        assert!(watched.is_subset(&begin));
    }

    #[tokio::test]
    async fn p7_a_change_is_seen_although_the_kernel_has_dropped_events() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "first");
        let (assets, stop) = (Arc::new(assets(root.path())), CancellationToken::new());
        let mut loaded = assets.subscribe();
        let watching = tokio::spawn(watch(assets.clone(), stop.clone()));
        loaded.wait_for(|loaded| loaded.snapshot.skill("first").is_some()).await.unwrap();
        // Nothing takes events while this thread is busy. Each round makes four.
        let most: usize = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap().trim().parse().unwrap();
        let note = root.path().join(".agents/skills/first/note");
        for _ in 0..most / 3 {
            std::fs::write(&note, "x").unwrap();
            std::fs::remove_file(&note).unwrap();
        }
        write(root.path(), "second");
        loaded.wait_for(|loaded| loaded.snapshot.skill("second").is_some()).await.unwrap();
        stop.cancel();
        watching.await.unwrap();
    }

    #[test]
    fn p7_a_thousand_changes_in_200_ms_are_one_look_250_ms_after_the_last() {
        let begin = Instant::now();
        let at = |micros: u64| begin + Duration::from_micros(micros);
        let mut debounce = Debounce::default();
        assert_eq!(debounce.due(), None);
        for change in 0..1_000 {
            debounce.change(at(change * 200));
            assert_eq!(debounce.due(), Some(at(change * 200) + QUIET), "no look is due between two of them");
        }
        // A tree that never rests.
        for change in 0..100 {
            debounce.change(at(200_000 + change * 100_000));
        }
        assert_eq!(debounce.due(), Some(begin + LONGEST));
    }
}
