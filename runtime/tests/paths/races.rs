//! A folder or file of the tree is exchanged for a link out of it, again and again, while a tool uses it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::{Value, json};
use yoi_wire::entry::ToolOutcome;

use crate::fixture::{INSIDE, SECRET, TreeFixture};
use crate::subjects::{PathTools, PrefixCheck, PrefixMethod, RuntimeTools};

/// What is exchanged for what.
#[derive(Clone, Copy, Debug)]
enum Swap {
    /// `swapped/file`: the folder is exchanged for a link to a folder outside.
    Folder { absolute: bool },
    /// `swapped`: the file is exchanged for a link to a file outside.
    File,
    /// `swapped/sub/file`: the folder above the last one.
    Above,
    /// `swapped/made-<n>/file`, which does not exist before.
    New,
}

#[derive(Debug, Default)]
struct Seen {
    swaps: usize,
    tries: usize,
    inside: usize,
    refused: usize,
    failed: usize,
}

impl Swap {
    fn set_up(self, fixture: &TreeFixture) -> std::path::PathBuf {
        let (tree, outer) = (fixture.tree(), fixture.outer());
        fs::create_dir_all(outer.join("outside/race/sub")).unwrap();
        for file in ["outside/race/file", "outside/race/sub/file"] {
            fs::write(outer.join(file), SECRET).unwrap();
        }
        let swapped = tree.join("swapped");
        let target = match self {
            Self::File => {
                fs::write(&swapped, INSIDE).unwrap();
                "../outside/race/file".into()
            }
            Self::Folder { .. } | Self::Above | Self::New => {
                fs::create_dir_all(swapped.join("sub")).unwrap();
                fs::write(swapped.join("file"), INSIDE).unwrap();
                fs::write(swapped.join("sub/file"), INSIDE).unwrap();
                if let Self::Folder { absolute: true } = self { outer.join("outside/race") } else { "../outside/race".into() }
            }
        };
        symlink(&target, tree.join("other")).unwrap();
        target
    }

    fn path(self, n: usize) -> String {
        match self {
            Self::Folder { .. } => "swapped/file".to_owned(),
            Self::File => "swapped".to_owned(),
            Self::Above => "swapped/sub/file".to_owned(),
            Self::New => format!("swapped/made-{}/file", n % 50),
        }
    }
}

fn call(n: usize, path: &str) -> (&'static str, Value) {
    match n % 4 {
        0 => ("Write", json!({"path": path, "content": format!("{INSIDE} {n}")})),
        1 => ("Edit", json!({"path": path, "old": "e", "new": "e", "all": true})),
        _ => ("Read", json!({"path": path})),
    }
}

/// Exchanges until `stop`. A tool may replace the link with its file; then a new link is made.
fn swap(tree: &Path, target: &Path, stop: &AtomicBool, swaps: &AtomicUsize) {
    let (swapped, other, fresh) = (tree.join("swapped"), tree.join("other"), tree.join("fresh"));
    while !stop.load(Ordering::Relaxed) {
        renameat_with(CWD, &swapped, CWD, &other, RenameFlags::EXCHANGE).unwrap();
        if !swapped.is_symlink() && !other.is_symlink() {
            symlink(target, &fresh).unwrap();
            fs::rename(&fresh, &other).unwrap();
        }
        swaps.fetch_add(1, Ordering::Relaxed);
        // Long enough for the other thread to be in the middle of a call, at changing points of it.
        thread::sleep(Duration::from_micros(20));
    }
}

/// Calls tools while the path is exchanged, at least `tries` times. Returns counts, or the promise that was broken.
fn race(how: Swap, tries: usize, make: &dyn Fn(&TreeFixture) -> Box<dyn PathTools>) -> Result<Seen, String> {
    let mut fixture = TreeFixture::new();
    let target = how.set_up(&fixture);
    fixture.reset_canaries();
    let subject = make(&fixture);
    let (stop, swaps, tree) = (AtomicBool::new(false), AtomicUsize::new(0), fixture.tree());
    let mut seen = Seen::default();
    let result = thread::scope(|scope| {
        scope.spawn(|| swap(&tree, &target, &stop, &swaps));
        let one_try = |n: usize, seen: &mut Seen| {
            let (tool, args) = call(n, &how.path(n));
            let end = subject.run(tool, &args);
            seen.tries += 1;
            match end.outcome {
                ToolOutcome::Succeeded => seen.inside += 1,
                ToolOutcome::Refused => seen.refused += 1,
                _ => seen.failed += 1,
            }
            if end.output.contains(SECRET) {
                return Err(format!("{how:?}, try {n}, {tool}: the secret was disclosed"));
            }
            if n.is_multiple_of(200) {
                fixture.check_untouched().map_err(|what| format!("{how:?}, until try {n}: {what}"))?;
            }
            Ok(())
        };
        let mut result = Ok(());
        // A busy machine may run only one of the two threads for a while.
        let no_race_yet = |seen: &Seen| seen.inside.min(seen.refused) == 0 || swaps.load(Ordering::Relaxed) <= tries / 20;
        while result.is_ok() && (seen.tries < tries || (no_race_yet(&seen) && seen.tries < 100 * tries)) {
            result = one_try(seen.tries, &mut seen);
        }
        stop.store(true, Ordering::Relaxed);
        result
    });
    seen.swaps = swaps.load(Ordering::Relaxed);
    result?;
    fixture.check_untouched().map_err(|what| format!("{how:?}, at the end: {what}"))?;
    fixture.check_no_secret_inside().map_err(|what| format!("{how:?}: {what}"))?;
    Ok(seen)
}

fn tools(fixture: &TreeFixture) -> Box<dyn PathTools> {
    Box::new(RuntimeTools::new(&fixture.tree()))
}

const TRIES: usize = 5000;
const ALL: [Swap; 5] = [Swap::Folder { absolute: false }, Swap::Folder { absolute: true }, Swap::File, Swap::Above, Swap::New];

#[test]
fn p15_exchanging_a_path_in_use_for_a_link_never_leads_a_tool_out() {
    let mut tries = 0;
    for how in ALL {
        let seen = race(how, TRIES, &tools).unwrap_or_else(|error| panic!("{error}"));
        println!("race {how:?}: {seen:?}");
        assert!(seen.inside > 0 && seen.refused > 0 && seen.swaps > TRIES / 20, "the race was none: {how:?} {seen:?}");
        tries += seen.tries;
    }
    assert!(tries >= 20_000, "{tries} tries");
}

#[test]
fn planted_a_prefix_compared_before_the_open_loses_the_race() {
    let naive =
        |fixture: &TreeFixture| -> Box<dyn PathTools> { Box::new(PrefixCheck { root: fixture.tree(), how: PrefixMethod::Canonical }) };
    for how in [Swap::Folder { absolute: false }, Swap::File, Swap::Above] {
        let error = race(how, 50_000, &naive).expect_err("the planted fault was not led out");
        println!("seen: {error}");
    }
}
