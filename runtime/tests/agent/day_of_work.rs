//! A day of an agent: 400 turns over the sources of a project, with edits, searches, builds, background commands and commits; three compactions, a turning
//! back, and three deaths of its process.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use serde_json::json;
use yoi_test_support::eventually;
use yoi_wire::control::{ControlAction, ControlReason};
use yoi_wire::entry::{Body, Entry, RunOutcome};
use yoi_wire::hub::Activity;

use crate::degraded::invariants::check_no_duplicates;
use crate::harness::{Harness, kinds, outcomes, status_kib, texts};
use crate::people::ask;

const JOBS: usize = 40;
/// Model calls of one job.
const TURNS: usize = 10;
/// The process dies in these jobs.
const DEATHS: [usize; 3] = [3, 6, 9];
/// The conversation is compacted after these.
const COMPACTED: [usize; 3] = [12, 22, 32];
/// This one is turned back and done again.
const TURNED_BACK: usize = 17;
/// The jobs after which memory is compared: two of the last process.
const MEASURED: [usize; 2] = [11, JOBS - 1];

fn job(n: usize) -> String {
    let shell = |command: &str| json!({"toolCalls": [{"tool": "Shell", "args": {"command": command}}]});
    let call = |tool: &str, args: serde_json::Value| json!({"toolCalls": [{"tool": tool, "args": args}]});
    let notes = format!("notes/{n}.md");
    let steps = [
        shell(&format!("mkdir -p notes && printf 'line %s\\n' $(seq 20) >{notes}")),
        call("Read", json!({"path": notes})),
        call("Edit", json!({"path": notes, "old": "line 7\n", "new": format!("line seven of {n}\n")})),
        json!({"toolCalls": [
            {"tool": "Grep", "args": {"pattern": format!("seven of {n}")}},
            {"tool": "Glob", "args": {"pattern": "notes/*.md"}},
            {"tool": "List", "args": {"path": "notes"}},
        ]}),
        call("Shell", json!({"command": "sleep 1; echo served", "background": true})),
        call("Grep", json!({"pattern": "fn main", "glob": "*.rs"})),
        shell("find . -name '*.rs' -not -path './.git/*' | xargs cat | wc -l >built"),
        // The process dies while this runs, in some jobs; nothing waits for its end there.
        shell(&format!("touch $TMPDIR/at-{n}; sleep {}", if DEATHS.contains(&n) { "30" } else { "0.2" })),
        shell(&format!("git add notes && git commit -qm 'job {n}' || git status --short notes")),
        json!({"text": format!("Job {n} is done.")}),
    ];
    assert_eq!(steps.len(), TURNS);
    json!({"when": {"lastUserContains": format!("job number {n}.")}, "steps": steps}).to_string()
}

/// Folders, files of each, and lines of each file of the sources. They do not grow with this project, as its own would.
const SOURCES: [usize; 3] = [20, 20, 100];

/// The sources that the agent works on, a repository of their own.
fn sources(tree: &Path) {
    let [folders, files, lines] = SOURCES;
    for folder in 0..folders {
        let at = tree.join(format!("part-{folder}/src"));
        std::fs::create_dir_all(&at).unwrap();
        for file in 0..files {
            let mut text = String::from(if file == 0 { "fn main() {\n" } else { "fn helper() {\n" });
            for line in 0..lines {
                writeln!(text, "    let value_{line} = step(\"part {folder}, file {file}\", {line}) + {};", line * folder + file).unwrap();
            }
            std::fs::write(at.join(format!("file_{file}.rs")), text + "}\n").unwrap();
        }
    }
    for args in [&["init", "-q"][..], &["add", "-A"], &["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "sources"]] {
        git(tree, args);
    }
}

fn git(at: &Path, args: &[&str]) -> String {
    let out = Command::new("git").args(["-c", "safe.directory=*"]).args(args).current_dir(at).output().unwrap();
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

/// The content of the folder of notes as the same edits leave it without an agent.
fn expected_notes() -> String {
    let folder = tempfile::tempdir().unwrap();
    git(folder.path(), &["init", "-q"]);
    std::fs::create_dir(folder.path().join("notes")).unwrap();
    for n in 0..JOBS {
        let mut text = String::new();
        for line in 1..=20 {
            if line == 7 { writeln!(text, "line seven of {n}") } else { writeln!(text, "line {line}") }.unwrap();
        }
        std::fs::write(folder.path().join(format!("notes/{n}.md")), text).unwrap();
    }
    git(folder.path(), &["add", "notes"]);
    let tree = git(folder.path(), &["write-tree"]);
    git(folder.path(), &["rev-parse", &format!("{}:notes", tree.trim())])
}

async fn run(harness: &Harness, id: &str, n: usize) {
    let done = ask(harness, id, ControlAction::Run { text: format!("Do job number {n}.") }).await;
    assert!(done.done.is_some(), "{done:?} {}", kinds(&harness.entries()));
}

/// The run may be over in the log a moment before the agent is idle.
async fn compact(harness: &Harness, after: usize) {
    let mut attempt = 0;
    eventually("an idle agent", async || {
        attempt += 1;
        let answer = ask(harness, &format!("compact-{after}-{attempt}"), ControlAction::Compact {}).await;
        match answer.refused.map(|refused| refused.reason) {
            None => Some(()),
            Some(ControlReason::AlreadyRunning) => None,
            Some(reason) => panic!("{reason:?}"),
        }
    })
    .await;
}

async fn finished(harness: &Harness, runs: usize) -> Vec<Entry> {
    let entries = harness.wait_for_runs(runs).await;
    assert_eq!(outcomes(&entries).last(), Some(&RunOutcome::Finished), "{}", kinds(&entries));
    entries
}

#[tokio::test(flavor = "multi_thread")]
async fn a_day_of_work_leaves_the_right_commits_a_whole_log_and_no_memory_behind() {
    let mut script =
        String::from("rules:\n- {when: {lastUserContains: about to be replaced by your summary}, steps: [{text: Many jobs were done.}]}\n");
    for n in 0..JOBS {
        writeln!(script, "- {}", job(n)).unwrap();
    }
    let harness = Harness::new(&script).await;
    let limits = json!({"turnsPerRun": 100, "toolSeconds": 60, "toolOutputBytes": 8192});
    let harness = Harness { manifest_settings: json!({"segmentBytes": 262_144}), limits, ..harness };
    sources(&harness.tree());
    let mut runtime = harness.start(1, None);
    harness.gateway.wait_for_report(|report| report.ready).await;
    let (mut runs, mut generation, mut memory) = (0, 1, Vec::new());
    for n in 0..JOBS {
        run(&harness, &format!("job-{n}"), n).await;
        if DEATHS.contains(&n) {
            let at = harness.dir.path().join(format!("tmp/at-{n}"));
            harness.wait_until("the command in which the process dies", |_| at.exists()).await;
            runtime.kill();
            generation += 1;
            harness.gateway.forget_line();
            runtime = harness.start(generation, None);
            // The run has ended, and another goes on where it was.
            runs += 1;
            assert_eq!(outcomes(&harness.wait_for_runs(runs).await)[runs - 1], RunOutcome::Interrupted);
        }
        runs += 1;
        finished(&harness, runs).await;
        if n == TURNED_BACK {
            let targets = ask(&harness, "targets", ControlAction::RewindTargets {}).await.done.unwrap().rewind.unwrap();
            let (segment, seq, head) = (targets.segment, targets.inputs.last().unwrap().seq, targets.head);
            let back = ask(&harness, "back", ControlAction::RewindTo { segment, seq, head }).await.done.unwrap();
            assert!(!back.remaining_effects.is_empty(), "{back:?}");
            run(&harness, "job-again", n).await;
            runs += 1;
            finished(&harness, runs).await;
        }
        if COMPACTED.contains(&n) {
            compact(&harness, n).await;
        }
        if MEASURED.contains(&n) {
            // Memory is given back once the agent waits.
            harness.wait_for_usage(|usage| usage.activity == Activity::Idle).await;
            memory.push(status_kib(runtime.child.id(), "RssAnon"));
        }
    }
    let entries = harness.entries();
    check_no_duplicates(&entries).unwrap();
    let turns = entries.iter().filter(|entry| matches!(entry.body, Body::Assistant(_))).count();
    let compactions = entries.iter().filter(|entry| matches!(entry.body, Body::CompactionEnded(_))).count();
    assert!(turns >= JOBS * TURNS && compactions == COMPACTED.len(), "{turns} turns, {compactions} compactions");
    assert_eq!(texts(&entries).iter().filter(|text| text.ends_with("is done.")).count(), JOBS + 1);
    let commits: Vec<String> = (0..JOBS).map(|n| format!("job {n}")).collect();
    let log = git(&harness.tree(), &["log", "--reverse", "--format=%s", "HEAD"]);
    assert_eq!(log.lines().skip(1).collect::<Vec<_>>(), commits);
    assert_eq!(git(&harness.tree(), &["rev-parse", "HEAD:notes"]), expected_notes());
    println!("{turns} turns, {} KiB of its own after {} jobs, {} after {JOBS}", memory[0], MEASURED[0] + 1, memory[1]);
    assert!(memory[1] * 10 <= memory[0] * 13, "{memory:?} KiB of its own");
    assert!(runtime.terminate().await.success());
}
