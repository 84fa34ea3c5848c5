//! What a reload of a tree's assets costs over the files themselves: `cargo bench -p yoi-engine --bench assets`.
//!
//! | Measured | Over | Bar |
//! |---|---|---|
//! | a reload of 2,000 assets of which none has changed: the walk, the reading and parsing of what has, the next generation | reading and hashing the same files, whose paths are known | 1.2x of the medians |
//!
//! Skills, commands, workflows and nodes of the graph, a quarter each, of about 2 KiB. Both take turns in going first; all files are in the page cache.
//! With `YOI_BENCH_OUT` (a folder) the figures also go to `assets.json` there.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use sha2::{Digest, Sha256};
use yoi_engine::assets::{ProjectAssets, Strictness};
use yoi_engine::tools::tree::Tree;

#[path = "pairs/row.rs"]
mod row;

use row::row;

const ASSETS: usize = 2_000;
/// Turns that are not counted: only what has rested for a moment is not read again.
const WARM: usize = 20;
const TURNS: usize = 40;
const BAR: f64 = 1.2;

fn main() {
    let temp = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let files = fill(temp.path());
    let assets = ProjectAssets::new(Arc::new(Tree::open(temp.path()).unwrap()));
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for turn in 0..WARM + TURNS {
        for which in [turn % 2, 1 - turn % 2] {
            let started = Instant::now();
            if which == 0 {
                let snapshot = assets.reload(Strictness::Lenient).unwrap();
                let count = snapshot.skills.len() + snapshot.commands.len() + snapshot.workflows.len() + snapshot.graph.nodes.len();
                // The skills of `.jido` are nodes, too.
                assert_eq!(count, ASSETS + ASSETS / 4, "{:?}", snapshot.diagnostics.first());
            } else {
                std::hint::black_box(hash(&files));
            }
            if turn >= WARM {
                [&mut ours, &mut bare][which].push(started.elapsed());
            }
        }
    }
    let row = row("reload of 2000 assets over reading and hashing their files", "bare", BAR, ours, bare);
    if let Some(out) = std::env::var_os("YOI_BENCH_OUT") {
        fs::write(Path::new(&out).join("assets.json"), serde_json::to_vec_pretty(&[row]).unwrap()).unwrap();
    }
}

/// Makes the assets, and returns their files.
fn fill(tree: &Path) -> Vec<PathBuf> {
    let body: String =
        (0..24).map(|line| format!("Line {line} of what is to be done, in words that say little and take their place.\n")).collect();
    let mut files = Vec::new();
    for n in 0..ASSETS / 4 {
        let links = format!("See [[prereq:n{}|before]] and [[n{}]].\n", (n + 1) % (ASSETS / 4), (n + 7) % (ASSETS / 4));
        let workflow = "## Steps\n\n### one\n- **type**: agent\n- **agent**: builder\n";
        for (path, text) in [
            (
                format!(".jido/skills/s{n}/SKILL.md"),
                format!("---\nname: s{n}\ndescription: Does the work number {n}.\nversion: 1.0.0\n---\n{body}"),
            ),
            (
                format!(".jido/commands/c{n}.md"),
                format!("---\nname: c{n}\ndescription: Says the words number {n}.\n---\n{body}Of {{{{what}}}}.\n"),
            ),
            (format!(".jido/workflows/w{n}.md"), format!("---\nname: w{n}\nversion: 1.0.0\n---\n{body}\n{workflow}")),
            (format!(".jido/skill_graph/n{n}.md"), format!("# Node {n}\n{links}{body}")),
        ] {
            let path = tree.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            files.push(path);
        }
    }
    files
}

fn hash(files: &[PathBuf]) -> [u8; 32] {
    let mut sum = Sha256::new();
    for file in files {
        sum.update(fs::read(file).unwrap());
    }
    sum.finalize().into()
}
