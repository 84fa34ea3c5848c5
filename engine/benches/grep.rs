//! What a search costs over ripgrep: `cargo bench -p yoi-engine --bench grep`.
//!
//! | Measured | Over | Bar |
//! |---|---|---|
//! | a call of the tool Grep, from its arguments to its output | `rg` over the same tree, from its start to the end of its output | 1.2x of the medians |
//!
//! Both look in one tree, in turn, and take turns in going first; all files are in the page cache. They have to find the same lines. `rg` gets
//! the options that make it look where Grep looks. Only Grep sorts what it found: `rg --sort` would use one thread. `YOI_BENCH_FILES` is the
//! number of files (57,000): fewer try the bench. With `YOI_BENCH_OUT` (a folder) the figures also go to `grep.json` there.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};
use yoi_engine::peers::NoPeers;
use yoi_engine::policy::Policy;
use yoi_engine::processes::ProcessSupervisor;
use yoi_engine::tools::shell::Shell;
use yoi_engine::tools::tree::Tree;
use yoi_engine::tools::{LiveOutput, ToolGate, ToolRunner};
use yoi_wire::entry::{CallFrom, ToolCall, ToolOutcome};
use yoi_wire::manifest::RunLimits;
use yoi_wire::policy::ToolPolicy;

#[path = "pairs/row.rs"]
mod row;

use row::row;

const FILES: usize = 57_000;
const FILES_PER_FOLDER: usize = 100;
/// Files that `.gitignore` leaves out, for each hundred others.
const IGNORED_PER_FOLDER: usize = 10;
/// Turns that are not counted.
const WARM: usize = 3;
const TURNS: usize = 40;
const BAR: f64 = 1.2;
/// Names of the rows, and what is looked for. Grep and ripgrep have the same syntax.
const PATTERNS: [(&str, &str); 3] = [
    ("a word of every hundredth file", "needle_in_[0-9]+"),
    ("a word of no file", "unheard_of"),
    ("a line of every file", r"^fn function_\d+\(\)"),
];

fn main() {
    if Command::new("rg").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("grep: NOT RUN: there is no `rg`, which the Debian package ripgrep brings");
        return;
    }
    let files = std::env::var("YOI_BENCH_FILES").ok().and_then(|files| files.parse().ok()).unwrap_or(FILES);
    let temp = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fill(temp.path(), files);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let _entered = runtime.enter();
    let shell = Shell::new(Arc::new(ProcessSupervisor::new(temp.path().to_owned(), "bench", &[])));
    let policy = Arc::new(Policy::new(&ToolPolicy::default()).expect("there is no rule"));
    let runner =
        ToolRunner::new(Arc::new(Tree::open(temp.path()).unwrap()), Arc::new(shell), Arc::new(NoPeers), RunLimits::default(), policy);
    let runner = ToolGate::new(runner);
    let rows: Vec<Value> = PATTERNS
        .iter()
        .map(|(name, pattern)| {
            let (mut ours, mut bare) = (Vec::new(), Vec::new());
            for turn in 0..WARM + TURNS {
                let mut lines = [0; 2];
                for which in [turn % 2, 1 - turn % 2] {
                    let started = Instant::now();
                    lines[which] = if which == 0 { runtime.block_on(grep(&runner, pattern)) } else { ripgrep(temp.path(), pattern) };
                    if turn >= WARM {
                        [&mut ours, &mut bare][which].push(started.elapsed());
                    }
                }
                assert_eq!(lines[0], lines[1], "lines that Grep and ripgrep found of {pattern}");
            }
            row(&format!("Grep over rg, {files} files, {name}"), "rg", BAR, ours, bare)
        })
        .collect();
    if let Some(out) = std::env::var_os("YOI_BENCH_OUT") {
        fs::write(Path::new(&out).join("grep.json"), serde_json::to_vec_pretty(&rows).unwrap()).unwrap();
    }
}

/// Makes a tree of source files of 200 bytes to 4 KiB, and some that are ignored.
fn fill(tree: &Path, files: usize) {
    fs::write(tree.join(".gitignore"), "built/\n*.o\n").unwrap();
    for n in 0..files {
        let folder = tree.join(format!("crate{}/src", n / FILES_PER_FOLDER));
        if n % FILES_PER_FOLDER == 0 {
            let built = folder.with_file_name("built");
            fs::create_dir_all(&folder).unwrap();
            fs::create_dir(&built).unwrap();
            for ignored in 0..IGNORED_PER_FOLDER {
                fs::write(built.join(format!("f{ignored}.rs")), "fn function_0() {} // needle_in_0\n").unwrap();
            }
        }
        let mut content = format!("//! File {n}.\n\nfn function_{n}() {{\n");
        if n % 100 == 0 {
            content += &format!("    needle_in_{n}();\n");
        }
        let length = 200 + n * 37 % 4_000;
        let mut line = 0;
        while content.len() < length {
            content += &format!("    let value_{line} = other_function({line}, \"some text of file {n}\");\n");
            line += 1;
        }
        fs::write(folder.join(format!("file{n}.rs")), content + "}\n").unwrap();
    }
}

/// Returns the number of matching lines.
async fn grep(runner: &ToolGate, pattern: &str) -> usize {
    let call = ToolCall { call_id: "call".into(), tool: "Grep".into(), args: json!({ "pattern": pattern }) };
    let end = runner.run(&call, CallFrom::Model, &LiveOutput::discard()).await;
    assert_eq!(end.outcome, ToolOutcome::Succeeded, "{}", end.output);
    let totals = end.output.lines().last().unwrap_or_default();
    let count = totals.split(" matching lines").next().and_then(|before| before.rsplit([' ', '[']).next());
    count.and_then(|count| count.parse().ok()).unwrap_or_default()
}

/// Returns the number of matching lines.
fn ripgrep(tree: &Path, pattern: &str) -> usize {
    let output = Command::new("rg")
        .args(["--no-config", "--color=never", "--heading", "--line-number", "--hidden", "--glob=!/.git"])
        .args(["--no-require-git", "--no-ignore-parent", "--no-ignore-global", "--crlf", "-e", pattern, "."])
        .current_dir(tree)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    // 1: there are no such lines.
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    let is_match = |line: &&[u8]| line.first().is_some_and(u8::is_ascii_digit);
    output.stdout.split(|byte| *byte == b'\n').filter(is_match).count()
}
