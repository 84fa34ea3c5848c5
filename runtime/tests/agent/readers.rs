//! Reading an agent that has stopped.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use serde_json::json;
use yoi_session::disk::RealDisk;
use yoi_session::{Holder, Lock};
use yoi_wire::hub::runtime_api;
use yoi_wire::identity::env;
use yoi_wire::open::Open;
use yoi_wire::people::UsageResponse;

use crate::harness::{EXAMPLE, Harness, Runtime};

/// Each file and folder with its content, time, inode and mode.
fn contents(root: &Path) -> BTreeMap<PathBuf, (Vec<u8>, i64, i64, u64, u32)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let (path, meta) = entry.map(|entry| (entry.path(), entry.metadata().unwrap())).unwrap();
            let content = if meta.is_dir() { Vec::new() } else { std::fs::read(&path).unwrap() };
            if meta.is_dir() {
                folders.push(path.clone());
            }
            found.insert(path, (content, meta.mtime(), meta.mtime_nsec(), meta.ino(), meta.mode()));
        }
    }
    found
}

pub fn start_reader(harness: &Harness, path: Option<PathBuf>) -> Runtime {
    start_reader_with(harness, path, true)
}

fn start_reader_with(harness: &Harness, path: Option<PathBuf>, frame: bool) -> Runtime {
    let folder = |name: &str| harness.dir.path().join(name);
    let gateway = &harness.gateway;
    let manifest = json!({
        "agent": {"namespace": "ns", "name": "a", "uid": "uid-a"}, "path": path,
        "gateway": {"lines": gateway.address, "service": gateway.address, "serverName": "gateway.test", "ca": gateway.ca},
    });
    let log = std::fs::OpenOptions::new().create(true).append(true).open(folder("stderr")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_yoi-runtime"));
    command.arg("read").env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", folder("home")).env("TMPDIR", folder("tmp"));
    command.env("YOI_SESSION", folder("session")).env("YOI_TOKEN", folder("token")).env("YOI_SHIM_SOCKET", &harness.shim_socket);
    command.env(env::READER, manifest.to_string()).env("YOI_FRAME", frame.to_string());
    Runtime { child: command.spawn().unwrap() }
}

/// The only segment of the only session.
fn segment(harness: &Harness) -> PathBuf {
    let session = std::fs::read_dir(harness.session().join("sessions")).unwrap().next().unwrap().unwrap().path();
    std::fs::read_dir(session).unwrap().map(|entry| entry.unwrap().path()).find(|path| path.extension().is_some()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn f16_a_reader_shows_the_log_and_changes_no_byte_of_the_session_volume() {
    let harness = Harness::new(EXAMPLE).await;
    let mut runtime = harness.start(3, Some("say hello"));
    harness.wait_for_runs(1).await;
    let used = harness.wait_for_usage(|usage| usage.turns > 0).await;
    assert!(runtime.terminate().await.success());
    harness.gateway.forget_line();
    let reports = harness.gateway.reports().len();
    // What a crash in the middle of an append leaves.
    std::fs::OpenOptions::new().append(true).open(segment(&harness)).unwrap().write_all(b"{\"crc\":\"00").unwrap();
    // The lock of the volume is held, and a reader needs none.
    let holder = Holder { run_generation: 3, pod_uid: "pod-3".to_owned() };
    let lock = Lock::take(Arc::new(RealDisk), &harness.session(), holder).unwrap();
    let before = contents(&harness.session());

    let mut reader = start_reader(&harness, Some(harness.tree()));
    let shown = harness.gateway.log("").await;
    assert!(shown.iter().any(|line| line.entry.body.kind() == "RunEnded"), "{shown:?}");
    assert_eq!(shown.iter().map(|line| line.entry.clone()).collect::<Vec<_>>(), harness.entries());
    assert_eq!(harness.gateway.log("tail=1").await.len(), 1);
    let stopped = Open::Other("Stopped".to_owned());
    assert_eq!(harness.usage().await, UsageResponse { activity: stopped, ..used }, "what was used is read from the log");
    // A followed log ends with its last entry: nobody writes another one.
    assert_eq!(harness.gateway.log("follow=true").await.len(), shown.len());
    let (status, _) =
        harness.gateway.deliver("m1", yoi_wire::hub::MessageSender { agent: None, person: Some("alice".into()) }, "hello").await;
    assert_eq!(status.as_u16(), 404, "a reader takes no message");
    assert_eq!(contents(&harness.session()), before);
    assert_eq!(harness.gateway.reports().len(), reports, "a reader reports nothing");
    harness.stop(&mut reader).await;
    drop(lock);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_of_an_agent_without_session_or_tree_says_so() {
    let harness = Harness::new(EXAMPLE).await;
    let _reader = start_reader(&harness, None);
    for (path, words) in [
        ("/v1/log", "there is no session yet"),
        ("/v1/diff", "the agent's tree is gone"),
        ("/v1/patch", "the agent's tree is gone"),
        (runtime_api::USAGE, "there is no session yet"),
    ] {
        let (status, body) = harness.gateway.request("GET", path, "").await;
        let text = String::from_utf8_lossy(&body).into_owned();
        assert!(status.as_u16() == 404 && text.contains(words), "{path}: {status} {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_frame_a_reader_runs_no_git_and_says_why() {
    let harness = Harness::new(EXAMPLE).await;
    let mut runtime = harness.start(1, Some("say hello"));
    harness.wait_for_runs(1).await;
    assert!(runtime.terminate().await.success());
    harness.gateway.forget_line();
    crate::diffs::git(&harness, &["init", "-q"]);
    let _reader = start_reader_with(&harness, Some(harness.tree()), false);
    assert!(!harness.gateway.log("").await.is_empty(), "the log needs no git");
    for path in ["/v1/diff", "/v1/patch", "/v1/bundle"] {
        let (status, body) = harness.gateway.request("GET", path, "").await;
        let text = String::from_utf8_lossy(&body).into_owned();
        assert!(status.as_u16() == 409 && text.contains("git is not run for a stopped agent here"), "{path}: {status} {text}");
    }
}
