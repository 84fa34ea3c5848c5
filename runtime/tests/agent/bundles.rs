//! The agent's commits as a bundle: what is in it, what it is made on top of, how long it may be, and a commit of the rest.

use std::path::Path;
use std::process::Command;

use http::StatusCode;
use serde_json::{Value, json};
use yoi_test_support::Share;
use yoi_wire::bundle::{BundleHead, query_value};

use crate::diffs::{git, shim_with_base};
use crate::generated_history::{GeneratedHistory, histories, objects_of};
use crate::harness::{EXAMPLE, Harness, Runtime};
use crate::readers::start_reader;

fn git_in(folder: &Path, args: &[&str]) -> String {
    let done = Command::new("git").args(["-c", "user.name=t", "-c", "user.email=t@t"]).args(args).current_dir(folder).output().unwrap();
    assert!(done.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

/// A repository with the base's commit, known to the shim. Returns its hash.
fn repository(harness: &Harness) -> String {
    git(harness, &["init", "-q", "-b", "main"]);
    std::fs::write(harness.tree().join("a"), "from the base\n").unwrap();
    git(harness, &["add", "."]);
    git(harness, &["commit", "-q", "-m", "base"]);
    let base = git(harness, &["rev-parse", "HEAD"]).trim().to_owned();
    shim_with_base(harness, &base);
    base
}

async fn started(harness: &Harness) -> Runtime {
    let runtime = harness.start(1, None);
    harness.gateway.wait_for_report(|report| report.ready).await;
    runtime
}

async fn bundle(harness: &Harness, query: &str) -> (BundleHead, Vec<u8>) {
    let (status, body) = harness.gateway.request("GET", &format!("/v1/bundle{query}"), "").await;
    assert_eq!(status, StatusCode::OK, "{}", String::from_utf8_lossy(&body));
    let line = body.iter().position(|byte| *byte == b'\n').unwrap();
    (serde_json::from_slice(&body[..line]).unwrap(), body[line + 1..].to_vec())
}

async fn refused(harness: &Harness, query: &str) -> (StatusCode, String) {
    let (status, body) = harness.gateway.request("GET", &format!("/v1/bundle{query}"), "").await;
    let refusal: Value = serde_json::from_slice(&body).unwrap();
    (status, refusal["message"].as_str().unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn generated_histories_leave_the_tree_object_by_object_and_nothing_else_does() {
    let harness = Harness::new(EXAMPLE).await;
    let base = repository(&harness);
    let clone = harness.dir.path().join("clone");
    git_in(harness.dir.path(), &["clone", "-q", "tree", "clone"]);
    let _runtime = started(&harness).await;
    let file = harness.dir.path().join("b.bundle");
    let mut share = Share::one_in(5);
    for seed in (0..histories(40)).filter(|_| share.takes_next()) {
        let history = GeneratedHistory::new(seed, &base);
        history.import(&harness.tree());
        let (head, bytes) = bundle(&harness, &format!("?branch={}", query_value(&history.branch))).await;
        let name = format!("refs/heads/{}", history.branch);
        let commit = git(&harness, &["rev-parse", &name]).trim().to_owned();
        let count = git(&harness, &["rev-list", "--count", &commit, &format!("^{base}")]);
        assert_eq!((&head.name, head.commit.as_ref(), head.base.as_ref()), (&name, Some(&commit), Some(&base)), "seed {seed}");
        assert_eq!(head.commits.to_string(), count.trim(), "seed {seed}");
        std::fs::write(&file, bytes).unwrap();
        let heads = git_in(&clone, &["bundle", "list-heads", file.to_str().unwrap()]);
        assert_eq!(heads, format!("{commit} {name}\n"), "seed {seed}: more than the branch");
        git_in(&clone, &["fetch", "-q", file.to_str().unwrap(), &format!("{name}:{name}")]);
        assert!(objects_of(&clone, &name) == objects_of(&harness.tree(), &name), "seed {seed}: other objects");
    }
    assert_eq!(git_in(&clone, &["tag"]), "", "a tag came with a branch");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_bundle_is_checked_without_the_base_and_pushed_from_there_object_by_object() {
    let harness = Harness::new(EXAMPLE).await;
    for folder in ["deep/in/it", "beside"] {
        std::fs::create_dir_all(harness.tree().join(folder)).unwrap();
        std::fs::write(harness.tree().join(folder).join("f"), folder).unwrap();
    }
    let base = repository(&harness);
    let server = harness.dir.path().join("server");
    git_in(harness.dir.path(), &["clone", "-q", "--bare", "tree", "server"]);
    let _runtime = started(&harness).await;
    let mut share = Share::one_in(5);
    for seed in (0..histories(40)).filter(|_| share.takes_next()) {
        let history = GeneratedHistory::new(seed, &base);
        history.import(&harness.tree());
        let (head, bytes) = bundle(&harness, &format!("?branch={}&whole=true", query_value(&history.branch))).await;
        let (commit, name) = (head.commit.unwrap(), head.name);
        let end = bytes.windows(2).position(|two| two == b"\n\n").unwrap() + 2;
        assert_eq!(String::from_utf8_lossy(&bytes[..end]), format!("# v2 git bundle\n-{base}\n{commit} {name}\n\n"), "seed {seed}");
        let checked = harness.dir.path().join(format!("checked-{seed}"));
        git_in(harness.dir.path(), &["init", "-q", "--bare", checked.to_str().unwrap()]);
        std::fs::write(checked.join("pack"), &bytes[end..]).unwrap();
        git_in(&checked, &["index-pack", "--fsck-objects", "-o", "objects/pack/pack-w.idx", "pack"]);
        std::fs::rename(checked.join("pack"), checked.join("objects/pack/pack-w.pack")).unwrap();
        std::fs::write(checked.join("shallow"), format!("{base}\n")).unwrap();
        git_in(&checked, &["rev-list", "--quiet", "--objects", &commit, &format!("^{base}")]);
        git_in(&checked, &["push", "-q", server.to_str().unwrap(), &format!("{commit}:{name}")]);
        assert!(objects_of(&server, &name) == objects_of(&harness.tree(), &name), "seed {seed}: other objects");
    }
    git_in(&server, &["fsck", "--full", "--strict"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_says_what_is_not_committed_and_is_empty_without_commits() {
    let harness = Harness::new(EXAMPLE).await;
    let base = repository(&harness);
    let tree = harness.tree();
    let _runtime = started(&harness).await;
    let (head, bytes) = bundle(&harness, "").await;
    assert_eq!((head.name.as_str(), head.commit.as_ref(), head.commits, bytes.len()), ("HEAD", Some(&base), 0, 0));
    assert_eq!((head.uncommitted.count, head.uncommitted.cut), (0, false));
    std::fs::write(tree.join("a"), "changed\n").unwrap();
    std::fs::write(tree.join("new \u{1f600}"), "").unwrap();
    std::fs::create_dir(tree.join("folder")).unwrap();
    (0..30).for_each(|n| std::fs::write(tree.join(format!("folder/{n}")), "").unwrap());
    let before = (std::fs::read(tree.join(".git/index")).unwrap(), git(&harness, &["count-objects"]));
    let (head, _) = bundle(&harness, "").await;
    assert_eq!((head.uncommitted.count, head.uncommitted.paths), (3, vec!["a".into(), "folder/".into(), "new \u{1f600}".into()]));
    assert_eq!(before, (std::fs::read(tree.join(".git/index")).unwrap(), git(&harness, &["count-objects"])), "the repository was written");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_history_that_is_not_the_projects_or_a_branch_that_is_none_gives_no_bundle() {
    let harness = Harness::new(EXAMPLE).await;
    let base = repository(&harness);
    let _runtime = started(&harness).await;
    for name in ["../x", "refs/heads/main", "-f", "a..b", "HEAD"] {
        let (status, message) = refused(&harness, &format!("?branch={}", query_value(name))).await;
        assert!(status == StatusCode::BAD_REQUEST && message.contains(&format!("`{name}` is no name of a branch")), "{status} {message}");
    }
    let (status, message) = refused(&harness, "?branch=gone").await;
    assert!(status == StatusCode::NOT_FOUND && message.contains("has no branch gone"), "{status} {message}");
    git(&harness, &["checkout", "-q", "--orphan", "own"]);
    git(&harness, &["commit", "-q", "-m", "of its own"]);
    let (status, message) = refused(&harness, "").await;
    assert!(status == StatusCode::CONFLICT && message.contains(&format!("is not made on top of {base}")), "{status} {message}");
    git(&harness, &["checkout", "-q", "main"]);
    git(&harness, &["merge", "-q", "--allow-unrelated-histories", "-m", "both", "own"]);
    let (status, message) = refused(&harness, "").await;
    assert!(status == StatusCode::CONFLICT && message.contains("has nothing in common"), "{status} {message}");
    // A replacement would make it look like one that is on top of the base.
    git(&harness, &["replace", "--graft", "own", &base]);
    let (status, _) = refused(&harness, "?branch=own").await;
    assert_eq!(status, StatusCode::CONFLICT, "a replaced parent was believed");
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_of_more_than_256_mib_are_refused_with_their_size() {
    let harness = Harness::new(EXAMPLE).await;
    repository(&harness);
    let _runtime = started(&harness).await;
    let large = std::fs::File::create(harness.tree().join("large")).unwrap();
    std::io::copy(&mut std::io::Read::take(std::fs::File::open("/dev/urandom").unwrap(), 257 << 20), &mut &large).unwrap();
    git(&harness, &["-c", "core.compression=0", "add", "."]);
    git(&harness, &["commit", "-q", "-m", "large"]);
    let (status, message) = refused(&harness, "").await;
    assert!(status == StatusCode::PAYLOAD_TOO_LARGE && message.contains("commits are 257 MiB, and a bundle has at most 256"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_is_committed_as_the_agent_between_runs_and_no_hook_runs() {
    let harness = Harness::new(EXAMPLE).await;
    let base = repository(&harness);
    let tree = harness.tree();
    std::fs::write(tree.join("left"), "over\n").unwrap();
    let hook = tree.join(".git/hooks/pre-commit");
    std::fs::write(&hook, "#!/bin/sh\ntouch ../hook-ran\nexit 1\n").unwrap();
    std::fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let _runtime = started(&harness).await;
    let commit = async |message: &str| {
        let (status, body) = harness.gateway.request("POST", "/v1/bundle", json!({ "message": message }).to_string()).await;
        (status, serde_json::from_slice::<Value>(&body).unwrap())
    };
    let (status, body) = commit(" ").await;
    assert!(status == StatusCode::BAD_REQUEST && body["message"] == "a commit has a message", "{body}");
    let (status, body) = commit("left \u{fc}ber").await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let head = git(&harness, &["log", "-1", "--format=%H %P %an %s"]);
    assert_eq!(head.trim(), format!("{} {base} a left \u{fc}ber", body["commit"].as_str().unwrap()));
    assert!(!harness.dir.path().join("hook-ran").exists() && git(&harness, &["status", "--porcelain"]).is_empty());
    assert_eq!(commit("again").await, (StatusCode::OK, json!({})), "there is nothing left");
    let (head, bytes) = bundle(&harness, "").await;
    assert!(head.commits == 1 && head.uncommitted.count == 0 && !bytes.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_committed_while_a_run_is_under_way() {
    let script =
        "rules:\n- repeat: true\n  steps:\n  - toolCalls: [{tool: Shell, args: {command: 'touch begun; sleep 20'}}]\n  - {text: Done.}\n";
    let harness = Harness::new(script).await;
    let base = repository(&harness);
    let _runtime = harness.start(1, Some("go"));
    harness.wait_until("the start of the command", |_| harness.tree().join("begun").exists()).await;
    let (status, body) = harness.gateway.request("POST", "/v1/bundle", "{\"message\":\"m\"}").await;
    let message = String::from_utf8_lossy(&body).into_owned();
    assert!(status == StatusCode::CONFLICT && message.contains("a run is under way"), "{status} {message}");
    assert_eq!(git(&harness, &["rev-parse", "HEAD"]).trim(), base);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_agents_reader_gives_the_bundle_and_commits_nothing() {
    let harness = Harness::new(EXAMPLE).await;
    repository(&harness);
    git(&harness, &["commit", "-q", "--allow-empty", "-m", "work"]);
    let _reader = start_reader(&harness, Some(harness.tree()));
    let (head, bytes) = bundle(&harness, "").await;
    assert!(head.commits == 1 && bytes.starts_with(b"# v2 git bundle\n"));
    let (status, _) = harness.gateway.request("POST", "/v1/bundle", "{\"message\":\"m\"}").await;
    assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED);
}
