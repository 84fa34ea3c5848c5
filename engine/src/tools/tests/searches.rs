use std::os::unix::fs::symlink;

use super::*;
use crate::frame::{Frame, FrameSupport};

fn source_tree() -> Fixture {
    let fixture = Fixture::new();
    fixture.write("src/main.rs", "fn main() {\n    let needle = 1;\n    call(needle);\n}\n");
    fixture.write("src/lib/a.rs", "// a needle\r\n// NEEDLE\r\n");
    fixture.write("docs/text.md", "no\nneedle\n");
    fixture.write("target/built.rs", "needle\n");
    fixture.write("src/gen/out.rs", "needle\n");
    fixture.write(".github/ci.yaml", "needle: 1\n");
    fixture.write(".git/config", "needle\n");
    fixture.write("binary", b"\0needle\n");
    fixture.write(".gitignore", "/target\n*.log\n");
    fixture.write("src/.gitignore", "gen/\n");
    fixture.write("x.log", "needle\n");
    fixture
}

#[tokio::test]
async fn grep_returns_lines_with_their_numbers_under_their_files_and_the_totals() {
    let fixture = source_tree();
    let found = fixture.succeed("Grep", json!({"pattern": "needle"})).await;
    let expected = ".github/ci.yaml\n1:needle: 1\n\ndocs/text.md\n2:needle\n\nsrc/lib/a.rs\n1:// a needle\n\nsrc/main.rs\n2:    let needle = 1;\n\
        3:    call(needle);\n[5 matching lines in 4 files]";
    assert_eq!(found, expected);
    let args = json!({"pattern": "^// needle$", "ignoreCase": true, "glob": "*.rs", "path": "src"});
    assert_eq!(fixture.succeed("Grep", args).await, "src/lib/a.rs\n2:// NEEDLE\n[1 matching lines in 1 files]");
    let args = json!({"pattern": "call", "context": 1});
    assert_eq!(
        fixture.succeed("Grep", args).await,
        "src/main.rs\n2-    let needle = 1;\n3:    call(needle);\n4-}\n[1 matching lines in 1 files]"
    );
    let args = json!({"pattern": "needle", "filesOnly": true, "glob": "src/**"});
    assert_eq!(fixture.succeed("Grep", args).await, "src/lib/a.rs: 1\nsrc/main.rs: 2\n[3 matching lines in 2 files]");
    assert_eq!(fixture.succeed("Grep", json!({"pattern": "no such thing"})).await, "[no matching lines]");
    let args = json!({"pattern": "needle", "path": "src/main.rs", "limit": 1});
    assert_eq!(fixture.succeed("Grep", args).await, "src/main.rs\n2:    let needle = 1;\n[cut here; 2 matching lines in 1 files in all]");
}

#[tokio::test]
async fn ignore_files_above_a_folder_count_and_an_ignored_folder_can_be_asked_for() {
    let fixture = source_tree();
    fixture.write("src/deep/x.log", "needle\n");
    fixture.write("src/deep/y", "needle\n");
    let deep = fixture.succeed("Grep", json!({"pattern": "needle", "path": "src/deep", "filesOnly": true})).await;
    assert_eq!(deep, "src/deep/y: 1\n[1 matching lines in 1 files]");
    let target = fixture.succeed("Grep", json!({"pattern": "needle", "path": "target", "filesOnly": true})).await;
    assert_eq!(target, "target/built.rs: 1\n[1 matching lines in 1 files]");
    let all = fixture.succeed("Grep", json!({"pattern": "needle", "filesOnly": true, "ignoredToo": true})).await;
    assert!(
        all.contains("target/built.rs") && all.contains("x.log") && all.contains("src/gen/out.rs") && !all.contains(".git/config"),
        "{all}"
    );
}

#[tokio::test]
async fn results_are_the_first_by_path_and_the_totals_are_of_all() {
    let fixture = Fixture::with_limits(RunLimits { tool_output_bytes: 1200, ..RunLimits::default() });
    for n in 0..300 {
        fixture.write(&format!("{:02}/{n:03}", n % 20), "needle\n".repeat(5));
    }
    let found = fixture.succeed("Grep", json!({"pattern": "needle", "limit": 12})).await;
    let lines = |path: &str, count: usize| format!("{path}\n") + &(1..=count).map(|n| format!("{n}:needle\n")).collect::<String>();
    let expected = [lines("00/000", 5), lines("00/020", 5), lines("00/040", 2)].join("\n");
    assert_eq!(found, expected + "[cut here; 1500 matching lines in 300 files in all]");
    let found = fixture.succeed("Grep", json!({"pattern": "needle", "limit": 2000})).await;
    assert!(found.len() <= 1200 && found.ends_with("[cut here; 1500 matching lines in 300 files in all]"), "{found}");
    let files = fixture.succeed("Glob", json!({"pattern": "**/*"})).await;
    assert!(files.starts_with("00/000\n00/020\n") && files.ends_with(" of 300 files]") && files.len() <= 1200, "{files}");
}

#[tokio::test]
async fn long_lines_are_cut_and_their_length_is_told() {
    let fixture = Fixture::new();
    fixture.write("min.js", format!("needle{}\n", "x".repeat(10_000)));
    let found = fixture.succeed("Grep", json!({"pattern": "needle"})).await;
    assert!(found.len() < 600 && found.contains("x [... 10006 bytes]\n"), "{found}");
}

#[tokio::test]
async fn glob_finds_files_by_their_paths() {
    let fixture = source_tree();
    assert_eq!(fixture.succeed("Glob", json!({"pattern": "*.rs"})).await, "src/lib/a.rs\nsrc/main.rs\n[2 files]");
    assert_eq!(fixture.succeed("Glob", json!({"pattern": "src/*.rs"})).await, "src/main.rs\n[1 files]");
    assert_eq!(fixture.succeed("Glob", json!({"pattern": "src/**/*.rs", "ignoredToo": true})).await.lines().count(), 4);
    assert_eq!(fixture.succeed("Glob", json!({"pattern": "*.{md,yaml}"})).await, ".github/ci.yaml\ndocs/text.md\n[2 files]");
    assert_eq!(fixture.succeed("Glob", json!({"pattern": "*.rs", "path": "docs"})).await, "[no files]");
    assert!(fixture.fail("Glob", json!({"pattern": "*", "path": "nothing"})).await.contains("No such file"));
}

#[tokio::test]
async fn a_search_stays_beneath_the_root_whatever_links_there_are() {
    let fixture = source_tree();
    let outside = fixture.outer.path().to_owned();
    fs::create_dir(outside.join("other")).unwrap();
    fs::write(outside.join("other/file"), "a secret\n").unwrap();
    fs::write(outside.join(".gitignore"), "docs\n").unwrap();
    symlink("../secret", fixture.path("out")).unwrap();
    symlink("../other", fixture.path("folder")).unwrap();
    symlink("docs/text.md", fixture.path("within")).unwrap();
    symlink("docs", fixture.path("folder-within")).unwrap();
    assert_eq!(fixture.succeed("Grep", json!({"pattern": "secret"})).await, "[no matching lines]");
    let names = fixture.succeed("Glob", json!({"pattern": "*"})).await;
    assert!(
        names.contains("within\n") && names.contains("docs/text.md\n") && !names.contains("out\n") && !names.contains("folder"),
        "{names}"
    );
    let through = fixture.succeed("Grep", json!({"pattern": "needle", "path": "folder-within"})).await;
    assert_eq!(through, "docs/text.md\n2:needle\n[1 matching lines in 1 files]");
    for path in ["out", "folder", "folder/file", "..", "../other", "/etc"] {
        for (tool, args) in [
            ("Grep", json!({"pattern": "secret", "path": path})),
            ("Glob", json!({"pattern": "*", "path": path})),
            ("List", json!({"path": path})),
            ("Read", json!({"path": path})),
        ] {
            let refusal = fixture.refuse(tool, args.clone());
            assert!(refusal.class == RefusalClass::SandboxViolation && refusal.message.starts_with("sandbox_violation"), "{tool} {path}");
            let end = fixture.run(tool, args).await;
            assert_eq!(end.outcome, ToolOutcome::Refused, "{tool} {path}: {}", end.output);
        }
    }
}

/// Without the frame, the search leaves out what the file outside says.
#[tokio::test]
async fn a_search_reads_no_list_of_files_to_ignore_that_is_closed_to_the_agent() {
    if !FrameSupport::of_this_kernel().governs_files() {
        return println!("SKIPPED: this kernel has no Landlock");
    }
    let framed = |outer: &Path, processes: &mut ProcessSupervisor| {
        fs::create_dir(outer.join("closed")).unwrap();
        processes.enter_frame(Frame { write: vec![outer.join("root")], closed: vec![outer.join("closed")], volumes: true }).unwrap();
    };
    let fixture = Fixture::with(RunLimits::default(), framed);
    fs::write(fixture.outer.path().join("closed/list"), "guess\n").unwrap();
    symlink("../closed/list", fixture.path(".gitignore")).unwrap();
    fixture.write("guess", "needle\n");
    assert_eq!(fixture.succeed("Glob", json!({"pattern": "*"})).await, "guess\n[1 files]");
    assert_eq!(fixture.succeed("Grep", json!({"pattern": "needle"})).await, "guess\n1:needle\n[1 matching lines in 1 files]");
}

#[tokio::test]
async fn a_search_over_its_time_returns_what_it_found() {
    let fixture = Fixture::with_limits(RunLimits { tool_seconds: 0, ..RunLimits::default() });
    fixture.write("file", "needle\n");
    let search = search::Search { path: ".".into(), ignored_too: false, stop: search::StopSearch::after(std::time::Duration::ZERO).0 };
    let tree = Tree::open(&fixture.path(".")).unwrap();
    assert!(!search.visit(&tree, false, || |_: &Path| {}).unwrap());
    let (stop, cancel) = search::StopSearch::after(std::time::Duration::from_secs(3600));
    let search = search::Search { stop, ..search };
    assert!(search.visit(&tree, false, || |_: &Path| {}).unwrap());
    drop(cancel);
    assert!(!search.visit(&tree, false, || |_: &Path| {}).unwrap());
}
