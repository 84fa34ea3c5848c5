//! What it costs to capture a working tree, and to send what has changed in it: `cargo bench -p yoi-worktree --bench capture`.
//!
//! | Measured | Over | Bar |
//! |---|---|---|
//! | a capture of 28 changes in 57,000 files | `git status` of the same tree | 2x of the medians |
//! | the bundle of them, in bytes | the changed files, each compressed by `gzip -9` | 1.5x |
//!
//! A third of the changes is staged, a third is not, a third is new and untracked; before each turn two of the files are written again. Both take turns in
//! going first; all files are in the page cache. `YOI_BENCH_FILES` is the number of files: fewer try the bench. With `YOI_BENCH_OUT` (a folder) the figures
//! also go to `capture.json` there.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads its own environment")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};
use yoi_worktree::{Asked, Captured, Limits, Source, capture, write_bundle};

#[path = "../../engine/benches/pairs/row.rs"]
mod row;

use row::row;

const FILES: usize = 57_000;
const FILES_PER_FOLDER: usize = 100;
const CHANGES: usize = 28;
/// Turns that are not counted.
const WARM: usize = 2;
const TURNS: usize = 15;
const BAR: f64 = 2.0;
const BYTES_BAR: f64 = 1.5;

fn main() {
    let files = std::env::var("YOI_BENCH_FILES").ok().and_then(|files| files.parse().ok()).unwrap_or(FILES);
    let temp = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (tree, private) = (temp.path().join("tree"), temp.path().join("private"));
    fs::create_dir_all(&private).unwrap();
    fill(&tree, files);
    let changed = change(&tree, files);
    let source = Source::WorkTree(tree.clone());
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    let mut last = None;
    for turn in 0..WARM + TURNS {
        for path in changed.iter().take(2) {
            append(path, &format!("// turn {turn}\n"));
        }
        for which in [turn % 2, 1 - turn % 2] {
            let started = Instant::now();
            if which == 0 {
                last = Some(captured(&source, &private));
            } else {
                git(&tree, &["status", "--porcelain"]);
            }
            if turn >= WARM {
                [&mut ours, &mut bare][which].push(started.elapsed());
            }
        }
    }
    let rows = [
        row(&format!("capture of {CHANGES} changes in {files} files over git status"), "git status", BAR, ours, bare),
        bytes(temp.path(), &source, &private, &last.unwrap(), &changed),
    ];
    if let Some(out) = std::env::var_os("YOI_BENCH_OUT") {
        fs::write(Path::new(&out).join("capture.json"), serde_json::to_vec_pretty(&rows).unwrap()).unwrap();
    }
}

fn captured(source: &Source, private: &Path) -> Captured {
    let limits = Limits { bytes: 256 << 20, untracked: 256 << 20 };
    capture(source, &Asked { private, include: &[], seconds: 1_800_000_000, limits }).unwrap()
}

/// What is sent of it, beside what the files that have changed are, compressed one by one.
fn bytes(folder: &Path, source: &Source, private: &Path, captured: &Captured, changed: &[PathBuf]) -> Value {
    let have: Vec<String> = captured.base.clone().into_iter().collect();
    let sent = write_bundle(source, private, &captured.commit, "refs/yoi/sync/bench", &have, &folder.join("bundle"), 64 << 20).unwrap();
    let compressed: usize = changed.iter().map(|path| gzip(path)).sum();
    let (ours, bare) = (sent as f64, compressed as f64);
    let ratio = ours / bare;
    let name = format!("bytes sent for {CHANGES} changes over the changed files compressed");
    println!("{name:<64} {ours:>7.0} B, gzip {bare:>7.0} B, {ratio:.2}x (bar {BYTES_BAR}x)");
    let sample = |bytes: f64| json!({ "n": 1, "p50": bytes, "p99": bytes });
    json!({ "name": name, "unit": "B", "ratio": ratio, "bar": BYTES_BAR, "ours": sample(ours), "bare": sample(bare) })
}

fn gzip(path: &Path) -> usize {
    let done = Command::new("gzip").args(["-9", "-n", "-c"]).arg(path).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    done.stdout.len()
}

/// Makes a repository of source files of 200 bytes to 4 KiB, all committed.
fn fill(tree: &Path, files: usize) {
    for n in 0..files {
        let path = path_of(tree, n);
        if n % FILES_PER_FOLDER == 0 {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
        }
        fs::write(path, text(n)).unwrap();
    }
    fs::write(tree.join(".gitignore"), "built/\n*.o\n").unwrap();
    git(tree, &["init", "-q", "-b", "main"]);
    git(tree, &["add", "-A"]);
    git(tree, &["-c", "user.name=b", "-c", "user.email=b@b", "commit", "-q", "-m", "base"]);
    // As everywhere but in the second after a checkout: the index knows the files.
    git(tree, &["status", "--porcelain"]);
}

fn path_of(tree: &Path, n: usize) -> PathBuf {
    tree.join(format!("crate{}/src/file{n}.rs", n / FILES_PER_FOLDER))
}

fn text(n: usize) -> String {
    let (length, mut text) = (200 + n * 37 % 4_000, format!("//! File {n}.\n\nfn function_{n}() {{\n"));
    let mut line = 0;
    while text.len() < length {
        text += &format!("    let value_{line} = other_function({line}, \"some text of file {n}\");\n");
        line += 1;
    }
    text + "}\n"
}

/// Changes files all over the tree, and returns them.
fn change(tree: &Path, files: usize) -> Vec<PathBuf> {
    let mut changed = Vec::new();
    for n in 0..CHANGES {
        let number = n * files / CHANGES;
        let path = if n % 3 == 2 { path_of(tree, number).with_file_name(format!("new{n}.rs")) } else { path_of(tree, number) };
        append(&path, &text(files + n));
        if n % 3 == 0 {
            git(tree, &["add", path.to_str().unwrap()]);
        }
        changed.push(path);
    }
    changed
}

fn append(path: &Path, text: &str) {
    use std::io::Write;
    let mut file = fs::File::options().create(true).append(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

fn git(folder: &Path, words: &[&str]) {
    let done = Command::new("git").args(words).current_dir(folder).stdin(Stdio::null()).output().unwrap();
    assert!(done.status.success(), "git {words:?}: {}", String::from_utf8_lossy(&done.stderr));
}
