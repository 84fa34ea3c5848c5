use std::fs;
use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

/// 2026-02-28T23:59:59Z.
const NOW: u64 = 1_772_323_199;

/// A tree at `outer/root`.
fn fixture() -> (TempDir, PathBuf) {
    let outer = tempfile::tempdir().unwrap();
    let root = outer.path().join("root");
    fs::create_dir_all(root.join("crates/a")).unwrap();
    (outer, root)
}

async fn context(root: &Path, directory: Option<&str>) -> String {
    let processes = ProcessSupervisor::new(root.to_owned(), "a", &[("HOME".into(), root.into())]);
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW);
    tree_context(&processes, &Tree::open(root).unwrap(), &[], directory.map(Path::new), now, "Linux x86_64").await
}

/// By the supervisor: the end of another test's program takes a child that has no supervisor for an orphan.
async fn git(root: &Path, args: &[&str]) -> String {
    let identity = ["-c", "user.name=a", "-c", "user.email=a@b.invalid", "-c", "init.defaultBranch=main"];
    let processes = ProcessSupervisor::new(root.to_owned(), "a", &[("HOME".into(), root.into())]);
    let args = [&identity, args].concat();
    let output = processes.capture("git", &args, &[], Duration::from_secs(60), 4096).await.unwrap();
    assert!(output.success, "{}", output.stderr);
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn the_model_is_told_of_tree_date_platform_and_git() {
    let (_outer, root) = fixture();
    let head = format!("Tree: {}\nDate: 2026-02-28 (Saturday), UTC\nPlatform: Linux x86_64\n", root.display());
    assert_eq!(context(&root, None).await, format!("{head}Git: no repository\n"));
    git(&root, &["init", "-q"]).await;
    fs::write(root.join("new"), "x").unwrap();
    assert_eq!(context(&root, None).await, format!("{head}Git: branch main, no commit yet, 1 changed file\n"));
    git(&root, &["add", "."]).await;
    git(&root, &["commit", "-q", "-m", "first"]).await;
    let commit = git(&root, &["rev-parse", "HEAD"]).await;
    assert_eq!(context(&root, None).await, format!("{head}Git: branch main, commit {}, no changes\n", &commit[..12]));
    git(&root, &["mv", "new", "name with\nnewline"]).await;
    fs::write(root.join("other"), "x").unwrap();
    git(&root, &["checkout", "-q", "--detach"]).await;
    assert_eq!(context(&root, None).await, format!("{head}Git: no branch, commit {}, 2 changed files\n", &commit[..12]));
}

#[tokio::test]
async fn a_program_that_the_repository_names_is_not_run() {
    let (_outer, root) = fixture();
    git(&root, &["init", "-q"]).await;
    git(&root, &["config", "core.fsmonitor", "touch ran; false"]).await;
    fs::write(root.join("file"), "x").unwrap();
    assert!(context(&root, None).await.contains("1 changed file"));
    assert!(!root.join("ran").exists());
    git(&root, &["config", "--unset", "core.fsmonitor"]).await;
    git(&root, &["add", "file"]).await;
    git(&root, &["commit", "-q", "-m", "first"]).await;
    git(&root, &["config", "filter.x.clean", "touch ran; cat"]).await;
    fs::write(root.join(".git/info/attributes"), "* filter=x\n").unwrap();
    // Of equal length, so that only the content tells.
    fs::write(root.join("file"), "y").unwrap();
    assert!(context(&root, None).await.contains("1 changed file"));
    assert!(!root.join("ran").exists());
}

#[tokio::test]
async fn instructions_come_nearest_first_and_once() {
    let (outer, root) = fixture();
    fs::write(root.join("AGENTS.md"), "Of the root.\n\n").unwrap();
    symlink("AGENTS.md", root.join("CLAUDE.md")).unwrap();
    fs::write(root.join("crates/CLAUDE.md"), "Of crates.").unwrap();
    fs::write(root.join("crates/a/AGENTS.md"), "Of a.\n").unwrap();
    fs::write(outer.path().join("AGENTS.md"), "Of nobody.").unwrap();
    let of = |text: String| text.split_once("Git: no repository\n").unwrap().1.to_owned();
    let root_only = "\nInstructions of AGENTS.md:\nOf the root.\n";
    assert_eq!(of(context(&root, None).await), root_only);
    let nearest = format!("\nInstructions of crates/a/AGENTS.md:\nOf a.\n\nInstructions of crates/CLAUDE.md:\nOf crates.\n{root_only}");
    assert_eq!(of(context(&root, Some("crates/a")).await), nearest);
    // A link out of the tree is none.
    fs::remove_file(root.join("AGENTS.md")).unwrap();
    symlink("../AGENTS.md", root.join("AGENTS.md")).unwrap();
    assert_eq!(of(context(&root, None).await), "");
}

#[tokio::test]
async fn instructions_for_other_programs_are_told_too_and_a_copy_once() {
    let (_outer, root) = fixture();
    fs::create_dir(root.join(".github")).unwrap();
    fs::write(root.join("AGENTS.md"), "Of all.").unwrap();
    fs::write(root.join("GEMINI.md"), "Of Gemini.").unwrap();
    fs::write(root.join(".github/copilot-instructions.md"), "Of Copilot.").unwrap();
    let told = context(&root, None).await;
    let told = told.split_once("Git: no repository\n").unwrap().1;
    let own = "\nInstructions of GEMINI.md:\nOf Gemini.\n\nInstructions of .github/copilot-instructions.md:\nOf Copilot.\n";
    assert_eq!(told, format!("\nInstructions of AGENTS.md:\nOf all.\n{own}"));
    fs::remove_file(root.join("GEMINI.md")).unwrap();
    symlink("AGENTS.md", root.join("GEMINI.md")).unwrap();
    fs::write(root.join(".github/copilot-instructions.md"), "Of all.").unwrap();
    assert!(context(&root, None).await.ends_with("Git: no repository\n\nInstructions of AGENTS.md:\nOf all.\n"));
}

#[tokio::test]
async fn the_text_is_bounded_and_says_what_was_cut() {
    let (_outer, root) = fixture();
    fs::write(root.join("AGENTS.md"), "ä".repeat(20_000)).unwrap();
    let one = context(&root, None).await;
    assert!(one.len() < 17 << 10 && one.ends_with("ä\n\n[cut here; Read has the rest]\n"), "{}", one.len());
    for folder in ["", "crates", "crates/a"] {
        fs::write(root.join(folder).join("AGENTS.md"), format!("{folder}{}", "x".repeat(20_000))).unwrap();
    }
    let all = context(&root, Some("crates/a")).await;
    assert!(all.len() <= MAX_BYTES && all.contains("bytes left out") && all.contains("crates/axxx"), "{}", all.len());
}
