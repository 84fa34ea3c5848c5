//! The diff: its text comes from git, its paths from the shim.

use std::process::Command;

use http::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use yoi_wire::people::DiffResponse;

use crate::harness::{EXAMPLE, Harness};

pub fn git(harness: &Harness, args: &[&str]) -> String {
    let done =
        Command::new("git").args(["-c", "user.name=t", "-c", "user.email=t@t"]).args(args).current_dir(harness.tree()).output().unwrap();
    assert!(done.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

const CHANGES: &str =
    r#"{"changes":[{"path":"a","kind":"modified"},{"path":".git/index","kind":"modified"},{"path":".github","kind":"added"}]}"#;

/// A shim that knows the base, which has no commit.
fn shim(harness: &Harness) {
    answering(harness, "200 OK", CHANGES);
}

fn answering(harness: &Harness, status: &'static str, body: &'static str) {
    let listener = tokio::net::UnixListener::bind(&harness.shim_socket).unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut buffer = [0; 1024];
            let _ = stream.read(&mut buffer).await;
            let _ = stream.write_all(format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).as_bytes()).await;
        }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_whose_base_is_gone_still_shows_what_git_knows() {
    let harness = Harness::new(EXAMPLE).await;
    answering(&harness, "409 Conflict", r#"{"message":"what it was made from is gone"}"#);
    git(&harness, &["init", "-q"]);
    std::fs::write(harness.tree().join("new"), "fresh\n").unwrap();
    let _runtime = harness.start(1, None);
    harness.gateway.wait_for_report(|report| report.ready).await;
    let (status, body) = harness.gateway.request("GET", "/v1/diff", "").await;
    assert_eq!(status, StatusCode::OK, "{body:?}");
    let diff: DiffResponse = serde_json::from_slice(&body).unwrap();
    assert!(diff.text.unwrap().contains("+fresh\n"));
    assert_eq!((diff.paths.len(), diff.no_base.as_deref()), (0, Some("what it was made from is gone")));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_diff_shows_changes_and_new_files_and_leaves_the_repository_as_it_was() {
    let harness = Harness::new(EXAMPLE).await;
    let tree = harness.tree();
    git(&harness, &["init", "-q", "-b", "main"]);
    std::fs::write(tree.join("a"), "one\n").unwrap();
    std::fs::write(tree.join("gone"), "one\n").unwrap();
    std::fs::write(tree.join(".gitignore"), "built\n").unwrap();
    git(&harness, &["add", "."]);
    git(&harness, &["commit", "-q", "-m", "first"]);
    let base = git(&harness, &["rev-parse", "HEAD"]).trim().to_owned();
    std::fs::write(tree.join("a"), "two\n").unwrap();
    std::fs::remove_file(tree.join("gone")).unwrap();
    std::fs::write(tree.join("new"), "fresh\n").unwrap();
    std::fs::write(tree.join("built"), "output\n").unwrap();
    std::fs::write(tree.join("staged"), "staged\n").unwrap();
    git(&harness, &["add", "staged"]);
    let before =
        (git(&harness, &["status", "--porcelain"]), std::fs::read(tree.join(".git/index")).unwrap(), git(&harness, &["count-objects"]));
    let _runtime = harness.start(1, None);
    harness.gateway.wait_for_report(|report| report.ready).await;

    let (status, body) = harness.gateway.request("GET", "/v1/diff", "").await;
    assert_eq!(status, StatusCode::BAD_GATEWAY);
    assert!(String::from_utf8_lossy(&body).contains("failed to reach the node's shim"), "{body:?}");

    shim_with_base(&harness, &base);
    let (status, body) = harness.gateway.request("GET", "/v1/diff", "").await;
    assert_eq!(status, StatusCode::OK, "{body:?}");
    let diff: DiffResponse = serde_json::from_slice(&body).unwrap();
    let text = diff.text.unwrap();
    for wanted in ["-one\n+two\n", "+++ b/new\n", "+fresh\n", "deleted file", "+staged\n"] {
        assert!(text.contains(wanted), "{wanted:?} in {text}");
    }
    assert!(!text.contains("built") && !diff.cut);
    assert_eq!(diff.paths.iter().map(|change| change.path.as_str()).collect::<Vec<_>>(), ["a", ".github"]);
    let after =
        (git(&harness, &["status", "--porcelain"]), std::fs::read(tree.join(".git/index")).unwrap(), git(&harness, &["count-objects"]));
    assert_eq!(before, after);

    std::fs::write(tree.join("big"), "a line of some length\n".repeat(100_000)).unwrap();
    let (_, body) = harness.gateway.request("GET", "/v1/diff", "").await;
    let diff: DiffResponse = serde_json::from_slice(&body).unwrap();
    assert!(diff.cut && diff.text.is_some_and(|text| text.len() <= 1 << 20 && text.ends_with('\n')));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_without_git_has_paths_and_no_text_and_one_without_a_commit_has_both() {
    let harness = Harness::new(EXAMPLE).await;
    shim(&harness);
    let _runtime = harness.start(1, None);
    harness.gateway.wait_for_report(|report| report.ready).await;
    let (_, body) = harness.gateway.request("GET", "/v1/diff", "").await;
    let diff: DiffResponse = serde_json::from_slice(&body).unwrap();
    assert_eq!((diff.text, diff.paths.len()), (None, 2));
    git(&harness, &["init", "-q"]);
    std::fs::write(harness.tree().join("new"), "fresh\n").unwrap();
    assert!(get_diff(&harness, "").await.text.unwrap().contains("+fresh\n"));
    // The tree began empty, so a commit of the agent is as new as the rest.
    git(&harness, &["add", "new"]);
    git(&harness, &["commit", "-q", "-m", "first"]);
    assert!(get_diff(&harness, "").await.text.unwrap().contains("+fresh\n"));
    assert!(!get_diff(&harness, "?since=commit").await.text.unwrap().contains("+fresh\n"));
}

/// A shim that knows the base's commit.
pub fn shim_with_base(harness: &Harness, base: &str) {
    let body = format!("{},\"baseRevision\":\"{base}\"}}", CHANGES.trim_end_matches('}'));
    answering(harness, "200 OK", body.leak());
}

async fn get_diff(harness: &Harness, query: &str) -> DiffResponse {
    let (status, body) = harness.gateway.request("GET", &format!("/v1/diff{query}"), "").await;
    assert_eq!(status, StatusCode::OK, "{body:?}");
    serde_json::from_slice(&body).unwrap()
}

/// A repository with one commit of the base and two of the agent, and a change that is not committed. Returns the hash of the base's commit.
fn committed_work(harness: &Harness) -> String {
    let tree = harness.tree();
    let commit = |name: &str, text: &str| {
        std::fs::write(tree.join(name), text).unwrap();
        git(harness, &["add", "."]);
        git(harness, &["commit", "-q", "-m", &format!("say {}", text.trim())]);
    };
    git(harness, &["init", "-q", "-b", "main"]);
    commit("a", "from the base\n");
    let base = git(harness, &["rev-parse", "HEAD"]).trim().to_owned();
    commit("a", "committed\n");
    commit("b", "committed too\n");
    std::fs::write(tree.join("c"), "not committed\n").unwrap();
    base
}

#[tokio::test(flavor = "multi_thread")]
async fn the_diff_shows_committed_work_unless_it_is_asked_since_the_last_commit() {
    let harness = Harness::new(EXAMPLE).await;
    let base = committed_work(&harness);
    shim_with_base(&harness, &base);
    let _runtime = harness.start(1, None);
    harness.gateway.wait_for_report(|report| report.ready).await;
    let whole = get_diff(&harness, "").await;
    let text = whole.text.unwrap();
    for line in ["-from the base\n+committed\n", "+committed too\n", "+not committed\n"] {
        assert!(text.contains(line), "{line:?} in {text}");
    }
    assert_eq!((whole.compared_with.as_deref(), whole.base.as_deref()), (Some(&*base), Some(&*base)));
    let since_commit = get_diff(&harness, "?since=commit").await;
    let text = since_commit.text.unwrap();
    assert!(text.contains("+not committed\n") && !text.contains("+committed"), "{text}");
    let (status, _) = harness.gateway.request("GET", "/v1/diff?since=yesterday", "").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_without_the_bases_commit_is_compared_with_its_own_last_one() {
    let harness = Harness::new(EXAMPLE).await;
    committed_work(&harness);
    let unknown = "0123456789012345678901234567890123456789";
    shim_with_base(&harness, unknown);
    let _runtime = harness.start(1, None);
    harness.gateway.wait_for_report(|report| report.ready).await;
    let diff = get_diff(&harness, "").await;
    assert_eq!(diff.compared_with.unwrap(), git(&harness, &["rev-parse", "HEAD"]).trim());
    assert_eq!(diff.base.as_deref(), Some(unknown));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_patch_or_bundle_brings_the_agents_commits_into_another_clone() {
    let harness = Harness::new(EXAMPLE).await;
    let base = committed_work(&harness);
    shim_with_base(&harness, &base);
    let _runtime = harness.start(1, None);
    harness.gateway.wait_for_report(|report| report.ready).await;
    let clone = tempfile::tempdir().unwrap();
    let in_clone = |args: &[&str]| {
        let done =
            Command::new("git").args(["-c", "user.name=t", "-c", "user.email=t@t"]).args(args).current_dir(clone.path()).output().unwrap();
        assert!(done.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap()
    };
    in_clone(&["clone", "-q", harness.tree().to_str().unwrap(), "."]);
    in_clone(&["reset", "-q", "--hard", &base]);
    for (format, file) in [("mail", "p.mbox"), ("bundle", "p.bundle")] {
        let (status, body) = harness.gateway.request("GET", &format!("/v1/patch?format={format}"), "").await;
        assert_eq!(status, StatusCode::OK, "{body:?}");
        std::fs::write(clone.path().join(file), &body).unwrap();
    }
    in_clone(&["am", "-q", "p.mbox"]);
    assert_eq!(in_clone(&["log", "--format=%s", &format!("{base}..HEAD")]), "say committed too\nsay committed\n");
    in_clone(&["fetch", "-q", "p.bundle", "HEAD"]);
    assert_eq!(in_clone(&["rev-parse", "FETCH_HEAD"]), git(&harness, &["rev-parse", "HEAD"]));
    // Nothing committed since the base.
    git(&harness, &["reset", "-q", "--soft", &base]);
    let (status, body) = harness.gateway.request("GET", "/v1/patch", "").await;
    assert_eq!((status, body.len()), (StatusCode::OK, 0));
}
