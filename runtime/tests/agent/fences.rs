//! Paths of the tree that are lent: the gateway asks, and the runtime ends who could still write there, and notes it in the log. `tests/fence` has who that is.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use http::StatusCode;
use serde_json::json;
use yoi_test_support::eventually;
use yoi_wire::entry::{Body, ToolOutcome};
use yoi_wire::fence::FenceResponse;
use yoi_wire::hub::runtime_api;

use crate::harness::{Harness, tool_ends};

/// A command that works in a folder until it is ended.
const SCRIPT: &str = "rules:\n- steps:\n  - toolCalls: [{tool: Shell, args: {command: \"cd src/deep && echo > ../../ready && exec sleep 600\"}}]\n  - text: done\n";

/// A runtime that is the first process of its container, in which the tree is a mount.
fn in_container(harness: &Harness) -> std::path::PathBuf {
    let start = harness.dir.path().join("start");
    let (tree, runtime) = (harness.tree(), env!("CARGO_BIN_EXE_yoi-runtime"));
    let inner = format!("mount --bind '{0}' '{0}' && exec '{runtime}' \"$@\"", tree.display());
    let flags = "--mount --propagation private --pid --fork --kill-child --mount-proc";
    std::fs::write(&start, format!("#!/bin/sh\nINNER=$(cat <<'END'\n{inner}\nEND\n)\nexec unshare {flags} sh -c \"$INNER\" sh \"$@\"\n"))
        .unwrap();
    std::fs::set_permissions(&start, std::fs::Permissions::from_mode(0o755)).unwrap();
    start
}

async fn fence(harness: &Harness, body: serde_json::Value) -> (StatusCode, FenceResponse) {
    let (status, body) = harness.gateway.request("POST", runtime_api::FENCE, body.to_string()).await;
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
async fn who_works_below_a_path_that_is_lent_is_ended_and_the_log_says_so() {
    if !rustix::process::geteuid().is_root() {
        return crate::skip::skip("namespaces and mounts need root");
    }
    let harness = Harness::new(SCRIPT).await;
    std::fs::create_dir_all(harness.tree().join("src/deep")).unwrap();
    let harness = Harness { binary: Some(in_container(&harness)), ..harness };
    let runtime = harness.start(1, Some("go"));
    eventually("the command works", async || harness.tree().join("ready").exists().then_some(())).await;

    for none in [json!({}), json!({ "loan": "l", "paths": [] })] {
        assert_eq!(fence(&harness, none).await.0, StatusCode::BAD_REQUEST);
    }
    let asked = json!({ "loan": "l-1", "paths": ["src/deep"] });
    let (_, open) = fence(&harness, asked.clone()).await;
    assert!(!open.fenced && open.why_not().contains("src/deep is not closed to this Pod"), "{open:?}");

    let starter = runtime.child.id();
    let container = std::fs::read_to_string(format!("/proc/{starter}/task/{starter}/children")).unwrap();
    let tree = harness.tree().display().to_string();
    let cover = format!("mount --bind {tree}/src/deep {tree}/src/deep && mount -o remount,bind,ro {tree}/src/deep");
    let covered = Command::new("nsenter").args(["-t", container.trim(), "-m", "sh", "-c", &cover]).status().unwrap();
    assert!(covered.success());
    let (status, fenced) = fence(&harness, asked).await;
    assert!(status == StatusCode::OK && fenced.fenced, "{fenced:?}");
    assert!(fenced.ended.iter().any(|held| held.program == "sleep" && held.by == "working directory"), "{fenced:?}");

    let entries = harness.wait_for_runs(1).await;
    assert_eq!(tool_ends(&entries).remove(0).outcome, ToolOutcome::Failed);
    let notice = |body: &Body| match body {
        Body::Notice(notice) if notice.reason == "HoldersEnded" => Some(notice.message.clone()),
        _ => None,
    };
    let entries = harness.wait_until("the notice", |entries| entries.iter().any(|entry| notice(&entry.body).is_some())).await;
    let told = entries.iter().find_map(|entry| notice(&entry.body)).unwrap();
    assert!(told.contains("src/deep is lent (loan l-1)") && told.contains("sleep"), "{told}");
}
