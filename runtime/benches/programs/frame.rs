//! Processes in the frame, and without it. Both are started by a process supervisor, as the runtime does.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;
use yoi_engine::frame::{Frame, FrameSupport};
use yoi_engine::processes::ProcessSupervisor;

use crate::pairs::{Pairs, Side};

const PROCESS_BAR: f64 = 1.3;
const PROCESS_TURNS: usize = 2000;
const BUILD_BAR: f64 = 1.05;
const BUILD_TURNS: usize = 25;
const STATUS_TURNS: usize = 60;
/// Turns that are not counted.
const WARM: usize = 2;
const FILES: usize = 57_000;
const FILES_PER_FOLDER: usize = 100;
const HEADERS_PER_FOLDER: usize = 20;
/// Files that the build compiles, one of a folder. All headers of the tree are what they depend on.
const COMPILED: usize = 60;
const COMPILE: &str = "make -s -j2";

/// The folders of a Pod, and what starts processes on both sides.
struct Setup {
    dir: tempfile::TempDir,
    framed: ProcessSupervisor,
    bare: ProcessSupervisor,
}

impl Setup {
    /// `None` where the kernel has no Landlock.
    fn new() -> Option<Self> {
        if !FrameSupport::of_this_kernel().governs_files() {
            println!("frame: NOT RUN: this kernel has no Landlock");
            return None;
        }
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["tree", "session", "tmp", "home"] {
            fs::create_dir(path(name)).unwrap();
        }
        fs::write(path("token"), "token").unwrap();
        let env = [("HOME", path("home")), ("TMPDIR", path("tmp"))].map(|(name, path)| (OsString::from(name), path.into_os_string()));
        let supervisor = || ProcessSupervisor::new(path("tree"), "bench", &env);
        let (mut framed, bare) = (supervisor(), supervisor());
        let write = ["tree", "tmp", "home"].map(path).into_iter().chain(["/tmp".into()]).collect();
        framed.enter_frame(Frame { write, closed: ["session", "token"].map(path).into(), volumes: true }).unwrap();
        Some(Self { dir, framed, bare })
    }

    /// The time from the start of a program to its end.
    async fn time(&self, side: Side, program: &str, args: &[&str]) -> Duration {
        let processes = match side {
            Side::Ours => &self.framed,
            Side::Bare => &self.bare,
        };
        let begun = Instant::now();
        let mut process = processes.start(program, |command| _ = command.args(args).stdout(Stdio::null())).unwrap();
        let status = process.wait().await.unwrap();
        let took = begun.elapsed();
        assert!(status.success(), "{program}: {status}");
        took
    }
}

pub async fn of_a_process() -> Vec<Value> {
    let Some(setup) = Setup::new() else { return Vec::new() };
    let mut pairs = Pairs::default();
    for turn in 0..WARM + PROCESS_TURNS {
        for side in Side::in_turn(turn) {
            let took = setup.time(side, "true", &[]).await;
            if turn >= WARM {
                pairs.push_time(side, took);
            }
        }
    }
    vec![pairs.row("frame: `true` in it, over without", "ms", Some(PROCESS_BAR))]
}

pub async fn of_a_build() -> Vec<Value> {
    if ["cc", "make", "git"].iter().any(|program| std::process::Command::new(program).arg("--version").output().is_err()) {
        println!("build: NOT RUN: it takes cc, make and git");
        return Vec::new();
    }
    let Some(setup) = Setup::new() else { return Vec::new() };
    let files = std::env::var("YOI_BENCH_FILES").ok().and_then(|files| files.parse().ok()).unwrap_or(FILES);
    let tree = setup.dir.path().join("tree");
    fill(&tree, files);
    let commit = "git init -q && git config user.name a && git config user.email a@b.invalid && git add -A && git commit -qm all";
    setup.time(Side::Bare, "sh", &["-c", commit]).await;
    let mut rows = Vec::new();
    for (name, script, turns) in [("a build", COMPILE, BUILD_TURNS), ("`git status`", "git status --porcelain", STATUS_TURNS)] {
        let mut pairs = Pairs::default();
        for turn in 0..WARM + turns {
            for side in Side::in_turn(turn) {
                setup.time(Side::Bare, "rm", &["-rf", "built"]).await;
                let took = setup.time(side, "sh", &["-c", script]).await;
                if turn >= WARM {
                    pairs.push_time(side, took);
                }
            }
        }
        rows.push(pairs.row(&format!("frame: {name} in a tree of {files} files, over without"), "ms", Some(BUILD_BAR)));
    }
    rows
}

/// Makes folders of C files and headers, and a makefile that builds a library of some of them.
fn fill(tree: &Path, files: usize) {
    let folders = files.div_ceil(FILES_PER_FOLDER);
    for folder in 0..folders {
        let path = tree.join(format!("part{folder}"));
        fs::create_dir(&path).unwrap();
        for n in 0..HEADERS_PER_FOLDER {
            fs::write(path.join(format!("h{n}.h")), format!("#pragma once\nint value_{folder}_{n}(int);\n")).unwrap();
        }
        // Each file includes headers of its own folder and of others.
        let other = |n: usize| (folder * 7 + n * 31) % folders;
        let own = (0..HEADERS_PER_FOLDER).map(|n| format!("#include \"h{n}.h\"\n"));
        let others = (0..HEADERS_PER_FOLDER).map(|n| format!("#include \"../part{}/h{n}.h\"\n", other(n)));
        let includes: String = own.chain(others).collect();
        for n in 0..FILES_PER_FOLDER - HEADERS_PER_FOLDER {
            let body = format!("#include <stdio.h>\n{includes}int f_{folder}_{n}(int x) {{ printf(\"%d\", x); return x + {n}; }}\n");
            fs::write(path.join(format!("f{n}.c")), body).unwrap();
        }
    }
    let objects: Vec<String> = (0..COMPILED.min(folders)).map(|folder| format!("built/part{folder}.o")).collect();
    let makefile = format!(
        "HEADERS := $(wildcard part*/*.h)\nbuilt/all.a: {}\n\tar rc $@ $^\nbuilt/%.o: %/f0.c $(HEADERS)\n\t@mkdir -p built\n\tcc -O1 -c -o $@ $<\n",
        objects.join(" ")
    );
    fs::write(tree.join("Makefile"), makefile).unwrap();
    fs::write(tree.join(".gitignore"), "built/\n").unwrap();
}
