//! The work of another agent, taken out of one tree and merged into another by the shipped binary, in its frame.

use http::StatusCode;
use serde_json::{Value, json};
use yoi_wire::bundle::BundleHead;
use yoi_wire::merge::{MergeOutcome, WORK};

use crate::diffs::{git, shim_with_base};
use crate::harness::{EXAMPLE, Harness};

/// A repository with the base's commit, known to the shim.
fn repository(harness: &Harness) -> String {
    git(harness, &["init", "-q", "-b", "main"]);
    std::fs::write(harness.tree().join("a"), "1\n2\n3\n4\n5\n").unwrap();
    std::fs::write(harness.tree().join("gone"), "1\n").unwrap();
    git(harness, &["add", "."]);
    git(harness, &["commit", "-q", "-m", "base"]);
    let base = git(harness, &["rev-parse", "HEAD"]).trim().to_owned();
    shim_with_base(harness, &base);
    base
}

async fn work(harness: &Harness) -> (BundleHead, Vec<u8>) {
    let (status, body) = harness.gateway.request("GET", "/v1/bundle?work=true", "").await;
    assert_eq!(status, StatusCode::OK, "{}", String::from_utf8_lossy(&body));
    let line = body.iter().position(|byte| *byte == b'\n').unwrap();
    (serde_json::from_slice(&body[..line]).unwrap(), body.to_vec())
}

async fn merge(harness: &Harness, work: &[u8], dry_run: bool) -> (StatusCode, Value) {
    let order = json!({ "from": { "namespace": "ns", "name": "child", "uid": "u-child" }, "dryRun": dry_run, "strategy": "stop" });
    let body = [order.to_string().as_bytes(), b"\n", work].concat();
    let (status, answer) = harness.gateway.request("POST", "/v1/merge", body).await;
    (status, serde_json::from_slice(&answer).unwrap())
}

fn read(harness: &Harness, name: &str) -> Option<String> {
    std::fs::read_to_string(harness.tree().join(name)).ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn d12_commits_and_what_is_not_committed_come_out_of_one_tree_and_are_merged_into_another_or_not_at_all() {
    let harness = Harness::new(EXAMPLE).await;
    let base = repository(&harness);
    let tree = harness.tree();
    let _runtime = harness.start(1, None);
    harness.gateway.wait_for_report(|report| report.ready).await;
    // As the child: one commit, and changes that are in none.
    std::fs::write(tree.join("a"), "one\n2\n3\n4\n5\n").unwrap();
    std::fs::write(tree.join("committed"), "1\n").unwrap();
    git(&harness, &["add", "."]);
    git(&harness, &["commit", "-q", "-m", "of the child"]);
    std::fs::remove_file(tree.join("gone")).unwrap();
    std::fs::write(tree.join("new \u{e4}"), "not committed\n").unwrap();
    let before = (std::fs::read(tree.join(".git/index")).unwrap(), git(&harness, &["count-objects"]), git(&harness, &["for-each-ref"]));
    let (head, of_child) = work(&harness).await;
    let after = (std::fs::read(tree.join(".git/index")).unwrap(), git(&harness, &["count-objects"]), git(&harness, &["for-each-ref"]));
    assert!(before == after, "the child's repository was written");
    assert_eq!((head.name.as_str(), head.commits, head.base.as_deref()), (WORK, 2, Some(base.as_str())));

    // As the parent, whose tree went on from the same commit.
    git(&harness, &["reset", "-q", "--hard", &base]);
    git(&harness, &["clean", "-q", "-f", "-d"]);
    std::fs::write(tree.join("a"), "1\n2\n3\n4\nfive\n").unwrap();
    let (status, dry) = merge(&harness, &of_child, true).await;
    assert_eq!((status, &dry["pathCount"]), (StatusCode::OK, &json!(4)), "{dry}");
    assert_eq!(read(&harness, "committed"), None);
    let (status, merged) = merge(&harness, &of_child, false).await;
    assert_eq!(status, StatusCode::OK, "{merged}");
    let merged: MergeOutcome = serde_json::from_value(merged).unwrap();
    let changes: Vec<String> = merged.paths.iter().map(|path| format!("{} {}", path.change, path.path)).collect();
    assert_eq!(changes, ["Changed a", "Added committed", "Deleted gone", "Added new \u{e4}"]);
    assert_eq!(read(&harness, "a").as_deref(), Some("one\n2\n3\n4\nfive\n"));
    assert_eq!((read(&harness, "gone"), read(&harness, "new \u{e4}").as_deref()), (None, Some("not committed\n")));
    assert_eq!(git(&harness, &["rev-parse", "HEAD"]).trim(), base, "something was committed");
    assert!(
        std::fs::read_dir(harness.dir.path().join("tmp"))
            .unwrap()
            .flatten()
            .all(|left| !left.file_name().to_string_lossy().contains("merge"))
    );

    // In a conflict nothing is written.
    git(&harness, &["update-ref", "-d", "refs/yoi/merged/u-child"]);
    git(&harness, &["reset", "-q", "--hard", &base]);
    git(&harness, &["clean", "-q", "-f", "-d"]);
    std::fs::write(tree.join("a"), "mine\n2\n3\n4\n5\n").unwrap();
    let (status, refused) = merge(&harness, &of_child, false).await;
    assert_eq!(
        (status, &refused["conflicts"][0]["path"], &refused["conflictCount"]),
        (StatusCode::OK, &json!("a"), &json!(1)),
        "{refused}"
    );
    assert_eq!((read(&harness, "a").as_deref(), read(&harness, "committed")), (Some("mine\n2\n3\n4\n5\n"), None));

    // Half of a bundle, and a tree that is no repository.
    let (status, broken) = merge(&harness, &of_child[..of_child.len() - 30], false).await;
    assert_eq!((status, &broken["reason"]), (StatusCode::CONFLICT, &json!("Invalid")), "{broken}");
    std::fs::remove_dir_all(tree.join(".git")).unwrap();
    let (status, no_git) = merge(&harness, &of_child, false).await;
    assert_eq!((status, &no_git["reason"]), (StatusCode::CONFLICT, &json!("NotGit")), "{no_git}");
}
