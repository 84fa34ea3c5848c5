//! The events that have come and were not looked at yet.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use notify::event::Flag;
use notify::{Event, EventHandler, EventKind};
use tokio::sync::Notify;
use tokio::time::Instant;

/// How long nothing must change before the tree is taken.
const QUIET: Duration = Duration::from_millis(250);
/// How long a tree that never rests is waited for.
const LONGEST: Duration = Duration::from_secs(5);
/// How long lies between two looks because events were lost: a look makes events, too, and must not call for itself without end.
const AFTER_LOSS: Duration = Duration::from_secs(10);
/// Paths that git is asked about. With more, the tree is looked at without a question.
const MAX_PATHS: usize = 1000;
/// Folders that git ignores as a whole, and whose events are dropped.
const MAX_LEFT_OUT: usize = 1000;

/// Where events are of what.
pub struct Places {
    /// The top of the working tree.
    pub root: PathBuf,
    /// git's folder of this work tree.
    pub git: PathBuf,
    /// git's folder of all work trees of the clone.
    pub common: PathBuf,
}

/// What an event says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weight {
    Nothing,
    /// A path of the tree, which git may ignore.
    Path,
    /// What git makes of any path may be another.
    Everything,
}

impl Places {
    fn weigh(&self, path: &Path) -> Weight {
        if let Some(inner) = [&self.git, &self.common].into_iter().find_map(|folder| path.strip_prefix(folder).ok()) {
            return weigh_of_git(inner);
        }
        if !path.starts_with(&self.root) {
            return Weight::Nothing;
        }
        // They say what is ignored.
        if path.file_name().is_some_and(|name| name == ".gitignore") { Weight::Everything } else { Weight::Path }
    }
}

/// A commit, a checkout, what is added though it is ignored, and settings. Objects, logs, locks and what is ours say nothing.
fn weigh_of_git(inner: &Path) -> Weight {
    let is_lock = inner.extension().is_some_and(|extension| extension == "lock");
    let counts = ["HEAD", "index", "packed-refs", "config", "refs/heads", "info"];
    if !is_lock && counts.iter().any(|name| inner.starts_with(name)) { Weight::Everything } else { Weight::Nothing }
}

#[derive(Default)]
struct Pending {
    /// When the first and the last event came.
    between: Option<(Instant, Instant)>,
    paths: BTreeSet<PathBuf>,
    is_everything: bool,
    /// Events were lost.
    is_loss: bool,
    /// When the tree was looked at last because events were lost.
    loss_looked_at: Option<Instant>,
    left_out: BTreeSet<PathBuf>,
    trouble: Option<String>,
    is_trouble_told: bool,
}

/// What was taken to be looked at.
pub struct Taken {
    pub paths: BTreeSet<PathBuf>,
    pub is_everything: bool,
}

/// What the file system has told, for the one who asks.
pub struct Shared {
    places: Places,
    pending: Mutex<Pending>,
    notify: Notify,
}

impl Shared {
    pub fn new(places: Places) -> Self {
        Shared { places, pending: Mutex::default(), notify: Notify::new() }
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When what has come is to be looked at; `None` when nothing has.
    pub fn due(&self) -> Option<Instant> {
        let pending = self.pending();
        let (first, last) = pending.between?;
        let due = (last + QUIET).min(first + LONGEST);
        let not_before = pending.loss_looked_at.filter(|_| pending.is_loss).map(|at| at + AFTER_LOSS);
        Some(not_before.map_or(due, |not_before| due.max(not_before)))
    }

    /// What has come. From now on it counts as looked at.
    pub fn take(&self, now: Instant) -> Taken {
        let mut pending = self.pending();
        pending.between = None;
        if std::mem::take(&mut pending.is_loss) {
            pending.loss_looked_at = Some(now);
        }
        Taken { paths: std::mem::take(&mut pending.paths), is_everything: std::mem::take(&mut pending.is_everything) }
    }

    /// Returns when something has come.
    pub async fn changed(&self) {
        self.notify.notified().await;
    }

    /// Drops events below these folders, until what is ignored may be something else.
    pub fn leave_out(&self, folders: impl Iterator<Item = PathBuf>) {
        let mut pending = self.pending();
        let free = MAX_LEFT_OUT.saturating_sub(pending.left_out.len());
        pending.left_out.extend(folders.take(free));
    }

    pub fn set_trouble(&self, error: &notify::Error) {
        self.pending().trouble.get_or_insert_with(|| trouble(error));
        self.notify.notify_one();
    }

    pub fn has_trouble(&self) -> bool {
        self.pending().trouble.is_some()
    }

    pub fn new_trouble(&self) -> Option<String> {
        let mut pending = self.pending();
        let trouble = pending.trouble.clone()?;
        (!std::mem::replace(&mut pending.is_trouble_told, true)).then_some(trouble)
    }

    fn add(&self, event: &Event, now: Instant) {
        let is_loss = event.attrs.flag() == Some(Flag::Rescan);
        // To read a file changes nothing, and captures read.
        if matches!(event.kind, EventKind::Access(_)) && !is_loss {
            return;
        }
        let mut pending = self.pending();
        let mut counts = is_loss;
        for path in &event.paths {
            match self.places.weigh(path) {
                Weight::Nothing => {}
                Weight::Path if path.ancestors().any(|folder| pending.left_out.contains(folder)) => {}
                Weight::Path => {
                    counts = true;
                    pending.is_everything |= pending.paths.len() >= MAX_PATHS;
                    if !pending.is_everything {
                        pending.paths.insert(path.clone());
                    }
                }
                Weight::Everything => {
                    counts = true;
                    pending.is_everything = true;
                    pending.left_out.clear();
                }
            }
        }
        if is_loss {
            pending.is_everything = true;
            pending.is_loss = true;
        }
        if counts {
            let first = pending.between.map_or(now, |(first, _)| first);
            pending.between = Some((first, now));
            drop(pending);
            self.notify.notify_one();
        }
    }
}

/// Hands on what the file system tells.
pub struct Events(pub Arc<Shared>);

impl EventHandler for Events {
    fn handle_event(&mut self, event: notify::Result<Event>) {
        match event {
            Ok(event) => self.0.add(&event, Instant::now()),
            Err(error) => self.0.set_trouble(&error),
        }
    }
}

fn trouble(error: &notify::Error) -> String {
    let next = match error.kind {
        notify::ErrorKind::MaxFilesWatch => "; on Linux more of them: sudo sysctl fs.inotify.max_user_watches=1048576",
        _ => "",
    };
    format!("not every folder can be watched, so the tree is looked at every 5 s: {error}{next}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use notify::event::{AccessKind, CreateKind, EventAttributes, ModifyKind};

    fn shared() -> Shared {
        let common = PathBuf::from("/tree/.git");
        Shared::new(Places { root: "/tree".into(), git: common.clone(), common })
    }

    fn event(kind: EventKind, path: &str) -> Event {
        Event { kind, paths: vec![path.into()], attrs: EventAttributes::default() }
    }

    const WRITTEN: EventKind = EventKind::Modify(ModifyKind::Any);

    #[test]
    fn only_what_may_change_the_tree_counts() {
        let linked = Places { root: "/linked".into(), git: "/tree/.git/worktrees/linked".into(), common: "/tree/.git".into() };
        let here = shared().places;
        for (places, path, weight) in [
            (&here, "/tree/a", Weight::Path),
            (&here, "/tree/sub/.gitignore", Weight::Everything),
            (&here, "/tree/.git/index", Weight::Everything),
            (&here, "/tree/.git/index.lock", Weight::Nothing),
            (&here, "/tree/.git/refs/heads/main", Weight::Everything),
            (&here, "/tree/.git/refs/heads/main.lock", Weight::Nothing),
            (&here, "/tree/.git/info/exclude", Weight::Everything),
            (&here, "/tree/.git/objects/ab/cd", Weight::Nothing),
            (&here, "/tree/.git/yoi/sync/index", Weight::Nothing),
            (&here, "/tree/.git/logs/HEAD", Weight::Nothing),
            (&here, "/elsewhere/a", Weight::Nothing),
            (&linked, "/tree/.git/worktrees/linked/HEAD", Weight::Everything),
            (&linked, "/tree/.git/worktrees/other/HEAD", Weight::Nothing),
            (&linked, "/linked/.git", Weight::Path),
        ] {
            assert_eq!(places.weigh(Path::new(path)), weight, "{path}");
        }
        let shared = shared();
        shared.add(&event(EventKind::Access(AccessKind::Any), "/tree/a"), Instant::now());
        assert!(shared.due().is_none(), "to read is no change");
    }

    #[test]
    fn a_tree_is_looked_at_once_it_rests_and_one_that_never_rests_after_a_while() {
        let (shared, begin) = (shared(), Instant::now());
        shared.add(&event(EventKind::Create(CreateKind::File), "/tree/a"), begin);
        assert_eq!(shared.due(), Some(begin + QUIET));
        for n in 1..100 {
            shared.add(&event(WRITTEN, "/tree/a"), begin + QUIET * n / 2);
        }
        assert_eq!(shared.due(), Some(begin + LONGEST));
        let taken = shared.take(begin);
        assert!(!taken.is_everything && taken.paths == BTreeSet::from(["/tree/a".into()]) && shared.due().is_none());
    }

    #[test]
    fn events_below_what_is_ignored_are_dropped_until_that_may_be_something_else() {
        let (shared, now) = (shared(), Instant::now());
        shared.leave_out([PathBuf::from("/tree/target")].into_iter());
        shared.add(&event(WRITTEN, "/tree/target/debug/x"), now);
        assert!(shared.due().is_none());
        shared.add(&event(WRITTEN, "/tree/.gitignore"), now);
        assert!(shared.take(now).is_everything);
        shared.add(&event(WRITTEN, "/tree/target/debug/x"), now);
        assert!(!shared.take(now).paths.is_empty());
    }

    #[test]
    fn lost_events_and_very_many_have_the_whole_tree_looked_at_and_a_loss_not_without_end() {
        let (shared, now) = (shared(), Instant::now());
        for n in 0..=MAX_PATHS {
            shared.add(&event(WRITTEN, &format!("/tree/{n}")), now);
        }
        let taken = shared.take(now);
        assert!(taken.is_everything && taken.paths.len() == MAX_PATHS);
        let lost = Event::new(EventKind::Other).set_flag(Flag::Rescan);
        shared.add(&lost, now);
        assert_eq!(shared.due(), Some(now + QUIET));
        assert!(shared.take(now).is_everything);
        shared.add(&lost, now + QUIET);
        assert_eq!(shared.due(), Some(now + AFTER_LOSS));
    }
}
