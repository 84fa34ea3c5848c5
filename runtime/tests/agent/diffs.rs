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

/// A repository in `at` with one commit, or none.
fn repository_in(harness: &Harness, at: &str, commits: bool) {
    let folder = harness.tree().join(at);
    std::fs::create_dir_all(&folder).unwrap();
    git(harness, &["init", "-q", at]);
    std::fs::write(folder.join("inner"), "of the inner one\n").unwrap();
    if commits {
        git(harness, &["-C", at, "add", "."]);
        git(harness, &["-C", at, "commit", "-q", "-m", "inner"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_in_the_tree_is_named_and_the_rest_is_shown_and_committed() {
    let harness = Harness::new(EXAMPLE).await;
    let base = committed_work(&harness);
    shim_with_base(&harness, &base);
    repository_in(&harness, "empty", false);
    repository_in(&harness, "d/full", true);
    let _runtime = harness.start(1, None);
    harness.gateway.wait_for_report(|report| report.ready).await;
    let diff = get_diff(&harness, "").await;
    let named: Vec<&str> = diff.inner_repositories.iter().map(|inner| inner.path.as_str()).collect();
    assert_eq!(named, ["d/full", "empty"]);
    let text = diff.text.unwrap();
    assert!(text.contains("+not committed\n") && !text.contains("of the inner one") && !text.contains("Subproject"), "{text}");
    let (status, body) = harness.gateway.request("POST", "/v1/bundle", "{\"message\":\"rest\"}").await;
    assert_eq!(status, StatusCode::OK, "{body:?}");
    assert_eq!(git(&harness, &["show", "--format=", "--name-only", "HEAD"]), "c\n");
    let (status, body) = harness.gateway.request("GET", "/v1/bundle", "").await;
    assert_eq!(status, StatusCode::OK, "{body:?}");
    let head: yoi_wire::bundle::BundleHead = serde_json::from_slice(body.split(|byte| *byte == b'\n').next().unwrap()).unwrap();
    assert_eq!((head.commits, head.uncommitted.count), (3, 0), "{head:?}");
    let sentences: Vec<String> = head.inner_repositories.iter().map(|inner| inner.sentence()).collect();
    assert!(sentences.len() == 2 && sentences[1].starts_with("empty is a git repository of its own and no submodule"), "{sentences:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn work_in_a_submodule_is_in_the_diff_and_named_where_it_does_not_come_with_the_commits() {
    let harness = Harness::new(EXAMPLE).await;
    let tree = harness.tree();
    let upstream = harness.dir.path().join("upstream");
    let in_upstream = |args: &[&str]| git(&harness, &[&["-C", upstream.to_str().unwrap()], args].concat());
    git(&harness, &["init", "-q", "-b", "main", upstream.to_str().unwrap()]);
    for text in ["one\n", "two\n"] {
        std::fs::write(upstream.join("inner"), text).unwrap();
        in_upstream(&["add", "."]);
        in_upstream(&["commit", "-q", "-m", text]);
    }
    git(&harness, &["init", "-q", "-b", "main"]);
    for name in ["dirty", "moved", "published"] {
        git(&harness, &["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", upstream.to_str().unwrap(), name]);
        git(&harness, &["-C", name, "checkout", "-q", "HEAD^"]);
    }
    git(&harness, &["add", "."]);
    git(&harness, &["commit", "-q", "-m", "base"]);
    let base = git(&harness, &["rev-parse", "HEAD"]).trim().to_owned();
    shim_with_base(&harness, &base);
    std::fs::write(tree.join("dirty/inner"), "changed in dirty\n").unwrap();
    std::fs::write(tree.join("dirty/new"), "new in dirty\n").unwrap();
    std::fs::write(tree.join("moved/inner"), "committed in moved\n").unwrap();
    git(&harness, &["-C", "moved", "commit", "-q", "-a", "-m", "moved"]);
    git(&harness, &["-C", "published", "checkout", "-q", "main"]);
    let _runtime = harness.start(1, None);
    harness.gateway.wait_for_report(|report| report.ready).await;
    let text = get_diff(&harness, "").await.text.unwrap();
    for wanted in [
        "--- a/dirty/inner\n+++ b/dirty/inner\n@@ -1 +1 @@\n-one\n+changed in dirty\n",
        "+++ b/dirty/new\n@@ -0,0 +1 @@\n+new in dirty\n",
        "--- a/moved\n+++ b/moved\n",
        "+++ b/moved/inner\n@@ -1 +1 @@\n-one\n+committed in moved\n",
        "+++ b/published/inner\n@@ -1 +1 @@\n-one\n+two\n",
    ] {
        assert!(text.contains(wanted), "{wanted:?} in {text}");
    }
    let (status, body) = harness.gateway.request("POST", "/v1/bundle", "{\"message\":\"pointers\"}").await;
    assert_eq!(status, StatusCode::OK, "{body:?}");
    let (_, body) = harness.gateway.request("GET", "/v1/bundle", "").await;
    let head: yoi_wire::bundle::BundleHead = serde_json::from_slice(body.split(|byte| *byte == b'\n').next().unwrap()).unwrap();
    let commit = git(&harness, &["-C", "moved", "rev-parse", "HEAD"]).trim().to_owned();
    let named: Vec<_> = head.inner_repositories.into_iter().map(|inner| (inner.path, inner.state)).collect();
    let expected = [
        ("moved".to_owned(), yoi_wire::bundle::InnerState::Unpublished { commit }),
        ("dirty".to_owned(), yoi_wire::bundle::InnerState::Uncommitted),
    ];
    assert_eq!(named, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_whose_repository_is_elsewhere_shows_its_paths_and_says_what_the_source_must_be() {
    for (name, words) in [("worktree", "as in a linked work tree"), ("shared", "as in a clone made with `--shared`")] {
        let harness = Harness::new(EXAMPLE).await;
        let origin = harness.dir.path().join("origin");
        let run = |args: &[&str]| {
            let done =
                Command::new("git").args(["-c", "user.name=t", "-c", "user.email=t@t"]).args(args).current_dir(harness.dir.path()).output();
            assert!(done.unwrap().status.success(), "git {args:?}");
        };
        run(&["init", "-q", "origin"]);
        run(&["-C", "origin", "commit", "-q", "--allow-empty", "-m", "first"]);
        std::fs::remove_dir(harness.tree()).unwrap();
        match name {
            "worktree" => run(&["-C", "origin", "worktree", "add", "-q", "../tree"]),
            _ => run(&["clone", "-q", "--shared", "origin", "tree"]),
        }
        // The Pod has the tree only.
        std::fs::rename(&origin, harness.dir.path().join("not-in-the-pod")).unwrap();
        shim(&harness);
        let _runtime = harness.start(1, None);
        harness.gateway.wait_for_report(|report| report.ready).await;
        let diff = get_diff(&harness, "").await;
        assert_eq!((diff.text, diff.paths.len()), (None, 2), "{name}");
        let why = diff.no_text.unwrap();
        assert!(why.contains(words) && why.contains("which is not in the tree"), "{name}: {why}");
        let (status, body) = harness.gateway.request("GET", "/v1/bundle", "").await;
        assert!(status == StatusCode::CONFLICT && String::from_utf8_lossy(&body).contains(words), "{name}: {status} {body:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_whose_times_alone_have_changed_is_not_in_the_list() {
    let harness = Harness::new(EXAMPLE).await;
    git(&harness, &["init", "-q", "-b", "main"]);
    for name in ["a", "touched", "other"] {
        std::fs::write(harness.tree().join(name), "one\n").unwrap();
    }
    git(&harness, &["add", "."]);
    git(&harness, &["commit", "-q", "-m", "base"]);
    let base = git(&harness, &["rev-parse", "HEAD"]).trim().to_owned();
    let paths = ["a", "touched", "ignored"].map(|path| format!(r#"{{"path":"{path}","kind":"modified"}}"#)).join(",");
    answering(&harness, "200 OK", format!(r#"{{"changes":[{paths},{{"path":"gone","kind":"deleted"}}],"baseRevision":"{base}"}}"#).leak());
    std::fs::write(harness.tree().join("a"), "two\n").unwrap();
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(60);
    std::fs::File::options().write(true).open(harness.tree().join("touched")).unwrap().set_modified(later).unwrap();
    let _runtime = harness.start(1, None);
    harness.gateway.wait_for_report(|report| report.ready).await;
    let paths: Vec<String> = get_diff(&harness, "").await.paths.into_iter().map(|change| change.path).collect();
    assert_eq!(paths, ["a", "ignored", "gone"]);
}
