//! The diff: its text comes from git, its paths from the shim.

use std::process::Command;

use http::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use yoi_wire::people::DiffResponse;

use crate::harness::{EXAMPLE, Harness};

fn git(harness: &Harness, args: &[&str]) -> String {
    let done =
        Command::new("git").args(["-c", "user.name=t", "-c", "user.email=t@t"]).args(args).current_dir(harness.tree()).output().unwrap();
    assert!(done.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

fn shim(harness: &Harness) {
    let body = r#"{"changes":[{"path":"a","kind":"modified"},{"path":".git/index","kind":"modified"},{"path":".github","kind":"added"}]}"#;
    answering(harness, "200 OK", body);
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

    shim(&harness);
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
    let (_, body) = harness.gateway.request("GET", "/v1/diff", "").await;
    let diff: DiffResponse = serde_json::from_slice(&body).unwrap();
    assert!(diff.text.unwrap().contains("+fresh\n"));
}
