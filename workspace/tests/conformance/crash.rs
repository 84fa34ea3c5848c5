//! The process dies after each step of a tree's life, and again after each step of the recovery.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use yoi_workspace::{
    CloneAccess, DataRoot, EntryLocation, FaultPoint, Faults, Journal, NoFaults, ProviderKind, Quota, RecordDetails, RecordState,
    TreeOrigin, Uid,
};

use crate::fixture::{Fixture, current_owner, nothing_to_do, nth_uid, open_root, read_in, recover, unmount_below, write_in};
use crate::lanes::Lane;
use crate::{Case, Verdict};

pub const CASES: &[Case] = &[
    ("w32_a_crash_after_any_step_is_done_or_undone", once),
    ("w32_a_crash_during_recovery_is_done_or_undone", again),
    ("planted_a_skipped_intent_is_found", planted),
    ("a_rename_lost_with_the_power_is_done_again", lost_rename),
    ("a_missing_tree_is_reported_and_not_made_again", missing_tree),
];

/// Panics at the n-th point.
struct CrashAt {
    left: AtomicUsize,
}

struct Crashed;

impl Faults for CrashAt {
    fn on_point(&self, _: FaultPoint) {
        if self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            // With panic! the hook would print a trace for each of hundreds of crashes.
            std::panic::resume_unwind(Box::new(Crashed));
        }
    }
}

fn crash_after(after: usize) -> Arc<dyn Faults> {
    Arc::new(CrashAt { left: AtomicUsize::new(after) })
}

/// Which intents a (wrong) caller does not write.
#[derive(Clone, Copy, PartialEq)]
enum SkippedIntent {
    None,
    Creating,
    Destroying,
}

/// The provider of all trees, and the quota of clones.
type Trees = (ProviderKind, Option<Quota>);

/// Makes a base and two clones, and destroys one of them: every operation, in the shim's order.
fn lifecycle(root: &DataRoot, journal: &Journal, (kind, quota): Trees, skipped: SkippedIntent) {
    let provider = root.provider(kind).unwrap();
    let (base, kept, gone) = (nth_uid(1), nth_uid(2), nth_uid(3));
    let create = |uid: Uid, origin: TreeOrigin| {
        let quota = quota.filter(|_| uid != base);
        if skipped != SkippedIntent::Creating {
            journal.begin_create_for(uid, kind, origin, RecordDetails { quota, ..RecordDetails::default() }).unwrap();
        }
        match origin {
            TreeOrigin::Empty { owner } => provider.create_empty(uid, owner).unwrap(),
            TreeOrigin::Clone { from, access } => provider.clone_tree(uid, from, access).unwrap(),
            TreeOrigin::Host { .. } => unreachable!("no host folder is in this life"),
        };
        if skipped == SkippedIntent::Creating {
            journal.begin_create_for(uid, kind, origin, RecordDetails { quota, ..RecordDetails::default() }).unwrap();
        }
        if quota.is_some() {
            provider.set_quota(uid, quota).unwrap();
        }
        journal.record_created(uid).unwrap();
    };
    create(base, TreeOrigin::Empty { owner: current_owner() });
    if journal.get(base).unwrap().unwrap().state == RecordState::Ready {
        write_in(root, base, "file", b"x");
    }
    journal.begin_seal(base).unwrap();
    provider.seal(base).unwrap();
    journal.record_sealed(base).unwrap();
    create(kept, TreeOrigin::Clone { from: base, access: CloneAccess::ReadWrite });
    create(gone, TreeOrigin::Clone { from: base, access: CloneAccess::ReadWrite });
    if skipped != SkippedIntent::Destroying {
        journal.begin_destroy(gone).unwrap();
    }
    provider.destroy(gone).unwrap();
    if skipped == SkippedIntent::Destroying {
        journal.begin_destroy(gone).unwrap();
    }
    journal.record_destroyed(gone).unwrap();
}

/// A data root with its journal, for one run.
struct Setup {
    dir: PathBuf,
    lane: Lane,
    trees: Trees,
}

impl Setup {
    fn new(fixture: &Fixture, name: &str) -> Self {
        let dir = fixture.dir.join(name);
        std::fs::create_dir(&dir).unwrap();
        // Elsewhere each recovery tries again to set a quota.
        let quota = fixture.enforces_quotas.then(|| Quota::new(10 << 20).unwrap());
        Self { dir, lane: fixture.lane, trees: (fixture.kind(), quota) }
    }

    fn open(&self, faults: Arc<dyn Faults>) -> (DataRoot, Journal) {
        let root = open_root(self.lane, &self.dir, faults.clone());
        (root, Journal::open_with_faults(&self.dir.join("journal"), faults).unwrap())
    }

    /// True if it crashed.
    fn run_until(&self, after: usize, skipped: SkippedIntent) -> bool {
        let (root, journal) = self.open(crash_after(after));
        crashed(|| lifecycle(&root, &journal, self.trees, skipped))
    }

    /// Recovers, and returns what is still inconsistent.
    fn inconsistency(&self) -> Option<String> {
        let (root, journal) = self.open(Arc::new(NoFaults));
        recover(&root, &journal);
        let rest = yoi_workspace::plan::recover(&journal.read_and_clean().unwrap(), &root.inventory().unwrap());
        if !nothing_to_do(&rest) {
            return Some(format!("{rest:?}"));
        }
        let records: BTreeMap<_, _> = journal.read_and_clean().unwrap().records.into_iter().map(|r| (r.uid, r.state)).collect();
        let settled = records.values().all(|s| matches!(s, RecordState::Ready | RecordState::Sealed));
        let found = root.inventory().unwrap();
        let agree = found.entries.iter().map(|e| e.uid).eq(records.keys().copied())
            && found.entries.iter().all(|e| e.location == EntryLocation::Live && e.marker.is_some());
        let limited = found.entries.iter().all(|e| e.marker.as_ref().and_then(|m| m.quota) == self.trees.1.filter(|_| e.uid != nth_uid(1)));
        (!settled || !agree || !limited).then(|| format!("{records:?} against {found:?}"))
    }

    /// Repeats every call from the start, as a reconcile does.
    fn finish(&self) {
        let (root, journal) = self.open(Arc::new(NoFaults));
        let done = crashed(|| repeat_lifecycle(&root, &journal, self.trees));
        assert!(!done);
        let uids: Vec<_> = journal.read_and_clean().unwrap().records.into_iter().map(|r| (r.uid, r.state)).collect();
        assert_eq!(uids, [(nth_uid(1), RecordState::Sealed), (nth_uid(2), RecordState::Ready)]);
        assert_eq!(read_in(&root, nth_uid(2), "file").unwrap_or_default().len(), 1);
        assert_eq!(self.inconsistency(), None);
    }
}

/// Like [`lifecycle`], for a data root where a part of it is done.
fn repeat_lifecycle(root: &DataRoot, journal: &Journal, (kind, quota): Trees) {
    let base = nth_uid(1);
    // `lifecycle` writes to the base before it seals it, so it cannot run again on a sealed base.
    if journal.get(base).unwrap().is_some_and(|r| r.state == RecordState::Sealed) {
        let provider = root.provider(kind).unwrap();
        provider.seal(base).unwrap();
        for n in [2, 3] {
            let (uid, origin) = (nth_uid(n), TreeOrigin::Clone { from: base, access: CloneAccess::ReadWrite });
            journal.begin_create_for(uid, kind, origin, RecordDetails { quota, ..RecordDetails::default() }).unwrap();
            provider.clone_tree(uid, base, CloneAccess::ReadWrite).unwrap();
            if quota.is_some() {
                provider.set_quota(uid, quota).unwrap();
            }
            journal.record_created(uid).unwrap();
        }
        journal.begin_destroy(nth_uid(3)).unwrap();
        provider.destroy(nth_uid(3)).unwrap();
        journal.record_destroyed(nth_uid(3)).unwrap();
    } else {
        lifecycle(root, journal, (kind, quota), SkippedIntent::None);
    }
}

/// True if `act` crashed at a point. Any other panic goes on.
fn crashed(act: impl FnOnce()) -> bool {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(()) => false,
        Err(cause) if cause.is::<Crashed>() => true,
        Err(cause) => std::panic::resume_unwind(cause),
    }
}

fn remove(dir: &Path) {
    unmount_below(dir);
    // Subvolumes and datasets that cannot be removed this way only take space.
    let _ = std::fs::remove_dir_all(dir);
}

fn once(fixture: &Fixture) -> Verdict {
    let mut points = 0;
    for after in 1.. {
        let setup = Setup::new(fixture, &format!("once{after}"));
        let cut = setup.run_until(after, SkippedIntent::None);
        assert_eq!(setup.inconsistency(), None, "after {after} points");
        setup.finish();
        remove(&setup.dir);
        if !cut {
            break;
        }
        points = after;
    }
    assert!(points > 30, "only {points} points were passed");
    Verdict::Ran
}

fn again(fixture: &Fixture) -> Verdict {
    let mut second = 0;
    for after in 1.. {
        let mut cut = false;
        for then in 1.. {
            let setup = Setup::new(fixture, &format!("again{after}-{then}"));
            cut = setup.run_until(after, SkippedIntent::None);
            let (root, journal) = setup.open(crash_after(then));
            let cut_again = crashed(|| drop(recover(&root, &journal)));
            assert_eq!(setup.inconsistency(), None, "after {after} points, then {then}");
            remove(&setup.dir);
            if !cut_again {
                break;
            }
            second += 1;
        }
        if !cut {
            break;
        }
    }
    assert!(second > 30, "recovery passed only {second} points");
    Verdict::Ran
}

fn planted(fixture: &Fixture) -> Verdict {
    for (skipped, name) in [(SkippedIntent::Creating, "creating"), (SkippedIntent::Destroying, "destroying")] {
        let mut inconsistencies = 0;
        for after in 1.. {
            let setup = Setup::new(fixture, &format!("{name}{after}"));
            let cut = setup.run_until(after, skipped);
            inconsistencies += usize::from(setup.inconsistency().is_some());
            remove(&setup.dir);
            if !cut || inconsistencies > 0 {
                break;
            }
        }
        assert!(inconsistencies > 0, "the harness does not find a skipped intent of {name}");
    }
    Verdict::Ran
}

fn lost_rename(fixture: &Fixture) -> Verdict {
    let setup = Setup::new(fixture, "lost");
    let (root, journal) = setup.open(Arc::new(NoFaults));
    lifecycle(&root, &journal, setup.trees, SkippedIntent::None);
    let kept = nth_uid(2);
    let live = setup.dir.join("trees").join(kept.shard()).join(kept.to_string());
    std::fs::rename(&live, live.with_extension("tmp")).unwrap();
    assert_eq!(setup.inconsistency(), None);
    assert!(read_in(&root, kept, "file").is_some());
    Verdict::Ran
}

fn missing_tree(fixture: &Fixture) -> Verdict {
    let setup = Setup::new(fixture, "missing");
    let (root, journal) = setup.open(Arc::new(NoFaults));
    lifecycle(&root, &journal, setup.trees, SkippedIntent::None);
    root.provider(setup.trees.0).unwrap().destroy(nth_uid(2)).unwrap();
    let plan = recover(&root, &journal);
    assert_eq!((plan.lost, plan.steps), (vec![nth_uid(2)], vec![]));
    assert!(journal.get(nth_uid(2)).unwrap().is_some());
    Verdict::Ran
}
