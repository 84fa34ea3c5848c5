//! A folder or file of the tree is exchanged for a link out of it, again and again, while a tool uses it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::{Value, json};
use yoi_engine::frame::{Frame, FrameSupport};
use yoi_engine::processes::ProcessSupervisor;
use yoi_runtime::diff::{ComparedWith, text_diff};
use yoi_wire::entry::ToolOutcome;

use crate::fixture::{INSIDE, SECRET, TreeFixture};
use crate::repositories::ONE_AT_A_TIME;
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

/// The index is reached by a link in the tree, through a folder that is exchanged for a link out of it. Returns the answers to diffs.
fn race_for_the_index(tries: usize) -> Vec<String> {
    let fixture = TreeFixture::new();
    let (tree, outer) = (fixture.tree(), fixture.outer());
    fs::remove_dir_all(tree.join(".git")).unwrap();
    for name in ["socket", "fifo", "device", "block"] {
        let _ = fs::remove_file(tree.join(name));
    }
    for words in [&["init", "-q"][..], &["add", "file"]] {
        assert!(Command::new("git").args(words).current_dir(&tree).output().unwrap().status.success());
    }
    fs::create_dir(tree.join("swapped")).unwrap();
    fs::create_dir(outer.join("outside/race")).unwrap();
    fs::rename(tree.join(".git/index"), tree.join("swapped/index")).unwrap();
    fs::write(outer.join("outside/race/index"), SECRET).unwrap();
    symlink("../outside/race", tree.join("other")).unwrap();
    symlink("../swapped/index", tree.join(".git/index")).unwrap();
    let (stop, swaps) = (AtomicBool::new(false), AtomicUsize::new(0));
    let processes = ProcessSupervisor::new(tree.clone(), "a", &[]);
    let mut answers = Vec::new();
    let (stopped, root) = (&stop, &tree);
    let runtime = tokio::runtime::Handle::current();
    thread::scope(|scope| {
        scope.spawn(|| swap(root, Path::new("../outside/race"), stopped, &swaps));
        scope.spawn(|| {
            // A busy machine may run only one of the two threads for a while.
            let is_race =
                |answers: &[String]| [true, false].iter().all(|shown| answers.iter().any(|answer| answer.starts_with("Ok") == *shown));
            while answers.len() < tries || (!is_race(&answers) && answers.len() < 20 * tries) {
                let diff = runtime.block_on(text_diff(&processes, root, ComparedWith::Head));
                answers.push(format!("{diff:?}"));
            }
            stopped.store(true, Ordering::Relaxed);
        });
    });
    assert!(swaps.load(Ordering::Relaxed) > tries, "the race was none");
    answers
}

/// What git says of a file that is no index tells that its bytes were copied to where the agent reads them.
#[tokio::test(flavor = "multi_thread")]
async fn exchanging_the_way_to_the_index_never_has_a_diff_read_another_file() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let answers = race_for_the_index(60);
    let (shown, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.starts_with("Ok"));
    println!("race for the index: {} shown, {} refused", shown.len(), refused.len());
    let copied: Vec<_> = refused.iter().filter(|answer| answer.contains("index file") || answer.contains("bad signature")).collect();
    assert!(copied.is_empty(), "{} of {}: {copied:?}", copied.len(), answers.len());
    assert!(!shown.is_empty() && !refused.is_empty(), "the race was none: {answers:?}");
}

/// The agent sees the folder with the copy of the index appear, and puts a link in its place.
#[tokio::test(flavor = "multi_thread")]
async fn a_link_in_the_place_of_the_folder_for_the_index_leads_nowhere_else() {
    if FrameSupport::of_this_kernel().lacks().is_some() {
        println!("SKIPPED: this kernel lacks a part of Landlock");
        return;
    }
    let _alone = ONE_AT_A_TIME.lock().await;
    // Not in /dev/shm, where every process of an agent may write.
    let outer = tempfile::tempdir().unwrap();
    let (tree, closed) = (outer.path().join("tree"), outer.path().join("closed"));
    let temp = tree.join("temp");
    for folder in [&temp, &tree.join("moved"), &closed] {
        fs::create_dir_all(folder).unwrap();
    }
    fs::write(tree.join("file"), INSIDE).unwrap();
    for words in [&["init", "-q"][..], &["add", "file"]] {
        assert!(Command::new("git").args(words).current_dir(&tree).output().unwrap().status.success());
    }
    let mut processes = ProcessSupervisor::new(tree.clone(), "a", &[("TMPDIR".into(), temp.clone().into())]);
    processes.enter_frame(Frame { write: vec![tree.clone()], closed: vec![closed.clone()], volumes: true }).unwrap();
    let (stop, moved) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut answers = 0;
    let runtime = tokio::runtime::Handle::current();
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for entry in fs::read_dir(&temp).unwrap().flatten().filter(|entry| !entry.path().is_symlink()) {
                    let away = tree.join(format!("moved/{}", moved.load(Ordering::Relaxed)));
                    if fs::rename(entry.path(), &away).is_ok() && symlink(&closed, entry.path()).is_ok() {
                        moved.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        });
        scope.spawn(|| {
            while answers < 40 || (moved.load(Ordering::Relaxed) <= 10 && answers < 1000) {
                let _ = runtime.block_on(text_diff(&processes, &tree, ComparedWith::Head));
                answers += 1;
            }
            stop.store(true, Ordering::Relaxed);
        });
    });
    assert!(moved.load(Ordering::Relaxed) > 10, "no race: {moved:?}");
    assert_eq!(fs::read_dir(&closed).unwrap().count(), 0, "{:?}", fs::read_dir(&closed).unwrap().collect::<Vec<_>>());
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
