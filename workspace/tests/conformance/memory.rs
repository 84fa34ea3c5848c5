//! How much memory it takes to do what is done with trees: an agent decides how many names a folder has, and one mounter does it for all agents of a node.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use yoi_test_support::thorough;
use yoi_workspace::{ChangeLimits, CloneAccess};

use crate::fixture::{Fixture, needs_root};
use crate::host;
use crate::{Case, Verdict};

pub const CASES: &[Case] = &[("whatever_is_done_with_a_wide_folder_takes_little_memory", wide)];

struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: it hands every call to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller keeps the rules of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the rules of `dealloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// All names together take more than twice as much, and so do the paths of the files with several names.
const LIMIT: usize = 1 << 20;
const NAMES_OF_A_FILE: usize = 5;

/// Makes a folder in which so many names are, four long names deep.
fn fill(tree: &Path, first: &str, names: usize) {
    let mut folder = tree.join(first);
    (0..4).for_each(|_| folder.push("d".repeat(240)));
    fs::create_dir_all(&folder).unwrap();
    for n in 0..names {
        let name = |n: usize| folder.join(format!("{n:0250}"));
        match n % NAMES_OF_A_FILE {
            0 => fs::write(name(n), "x").unwrap(),
            more => fs::hard_link(name(n - more), name(n)).unwrap(),
        }
    }
}

/// What took more than the limit.
#[derive(Default)]
struct TooMuch(Vec<String>);

impl TooMuch {
    fn watch<T>(&mut self, what: &str, act: impl FnOnce() -> T) -> T {
        let before = NOW.load(Ordering::Relaxed);
        MOST.store(before, Ordering::Relaxed);
        let done = act();
        let taken = MOST.load(Ordering::Relaxed) - before;
        if taken > LIMIT {
            self.0.push(format!("{what} took {} KiB", taken >> 10));
        }
        done
    }
}

fn wide(fixture: &Fixture) -> Verdict {
    needs_root!();
    let (names, limits) = (if thorough() { 20_000 } else { 10_000 }, ChangeLimits { paths: 100, bytes: 64 << 10, ..ChangeLimits::NONE });
    let (provider, mut too_much) = (fixture.provider(), TooMuch::default());
    let (base, path) = fixture.empty();
    fill(&path, "first", names);
    too_much.watch("the usage of a tree that began empty", || provider.usage(base).unwrap());
    too_much.watch("a seal", || provider.seal(base).unwrap());
    let clone = fixture.uid();
    too_much.watch("a clone", || provider.clone_tree(clone, base, CloneAccess::ReadWrite).unwrap());
    let path = fixture.path(clone);
    fs::rename(path.join("first"), path.join("moved")).unwrap();
    fill(&path, "second", names);
    fixture.sync();
    too_much.watch("the usage of a clone", || provider.usage(clone).unwrap());
    too_much.watch("a visit of a clone", || provider.measure(clone).unwrap());
    too_much.watch("a change list", || provider.changes(clone, base, &limits).unwrap());
    too_much.watch("a list of all", || provider.contents(clone, &limits).unwrap());
    fixture.rest(clone);
    if !fixture.forks_at_rest() {
        too_much.watch("a seal of a clone", || provider.seal(clone).unwrap());
    }
    let fork = fixture.uid();
    too_much.watch("a fork", || provider.clone_tree(fork, clone, CloneAccess::ReadWrite).unwrap());
    for (what, uid) in [("a fork", fork), ("a clone", clone), ("a base", base)] {
        too_much.watch(&format!("the end of {what}"), || provider.destroy(uid).unwrap());
    }
    let source = host::beside(fixture);
    fs::create_dir(&source).unwrap();
    fill(&source, "first", names);
    host::give_away(&source);
    let uid = fixture.uid();
    too_much.watch("a capture", || host::capture_with(provider, uid, &source).unwrap());
    provider.destroy(uid).unwrap();
    fs::remove_dir_all(source).unwrap();
    assert!(too_much.0.is_empty(), "{}", too_much.0.join("; "));
    fixture.assert_only(&[]);
    Verdict::Ran
}
