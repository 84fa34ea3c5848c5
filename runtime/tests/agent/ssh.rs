//! A person comes into an agent: the machine's own ssh, and OpenSSH's server as the runtime starts it.

use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use axum::body::Body;
use futures::stream::unfold;
use http::StatusCode;
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use yoi_engine::frame::FrameSupport;
use yoi_wire::entry::{Body as EntryBody, Entry};
use yoi_wire::hub::{Refusal, runtime_api};
use yoi_wire::ssh::{MAX_SERVERS, SshEntry, SshHost};

use crate::harness::Harness;

const IDLE: &str = "rules:\n- steps:\n  - text: done\n";

/// Whether this machine has a server that this user may start.
fn has_server() -> bool {
    if rustix::process::geteuid().is_root() {
        // sshd of root demands this folder, which the package's service makes.
        let _ = std::fs::DirBuilder::new().mode(0o755).create("/run/sshd");
    }
    Path::new("/usr/sbin/sshd").exists()
}

/// A key in this folder, and its public half.
fn make_key(file: &Path) -> String {
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f"]).arg(file).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    std::fs::read_to_string(file.with_extension("pub")).unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
}

async fn host(harness: &Harness) -> SshHost {
    let (status, body) = harness.gateway.request("GET", runtime_api::SSH, "").await;
    assert_eq!(status, StatusCode::OK, "{}", String::from_utf8_lossy(&body));
    serde_json::from_slice(&body).unwrap()
}

fn path(key: &str) -> String {
    format!("{}?key={}", runtime_api::SSH, yoi_wire::bundle::query_value(key))
}

/// A port whose connections go to servers of the agent that let in who has this key.
async fn port(harness: &Harness, key: &str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (gateway, path) = (harness.gateway.clone(), path(key));
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            let (gateway, path) = (gateway.clone(), path.clone());
            tokio::spawn(async move {
                let (read, mut write) = connection.into_split();
                let body = unfold(read, |mut read| async {
                    let mut piece = Vec::with_capacity(4096);
                    let count = read.read_buf(&mut piece).await.ok()?;
                    (count > 0).then_some((Ok::<_, std::io::Error>(piece), read))
                });
                let mut response = gateway.open("ann", &path, Body::from_stream(body)).await;
                while let Some(Ok(frame)) = response.body_mut().frame().await {
                    if write.write_all(&frame.into_data().unwrap()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

async fn ssh(harness: &Harness, host: &SshHost, port: u16, key: &Path, command: &str) -> Output {
    let known = harness.dir.path().join("known_hosts");
    std::fs::write(&known, format!("agent {}\n", host.host_key)).unwrap();
    let mut ssh = tokio::process::Command::new("ssh");
    ssh.args([
        "-F",
        "none",
        "-T",
        "-o",
        "BatchMode=yes",
        "-o",
        "HostKeyAlias=agent",
        "-o",
        "StrictHostKeyChecking=yes",
        "-o",
        "IdentitiesOnly=yes",
    ]);
    ssh.arg("-o").arg(format!("UserKnownHostsFile={}", known.display())).arg("-i").arg(key);
    ssh.args(["-p", &port.to_string(), "-l", &host.user, "127.0.0.1", command]).stdin(Stdio::null()).kill_on_drop(true);
    yoi_test_support::in_time("the end of ssh", ssh.output()).await.unwrap()
}

fn ways_in(entries: &[Entry]) -> Vec<SshEntry> {
    let of = |entry: &Entry| if let EntryBody::Extension(extension) = &entry.body { SshEntry::of(extension) } else { None };
    entries.iter().filter_map(of).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_has_a_shell_as_the_agent_in_its_frame_and_the_log_says_from_when_to_when() {
    if !has_server() {
        return crate::skip::skip("there is no OpenSSH server here");
    }
    let mut harness = Harness::new(IDLE).await;
    harness.user_env.push(("ODD", "it's \"odd\" \\ # $HOME"));
    let _runtime = harness.start(1, None);
    harness.gateway.wait_for_report(|report| report.ready).await;
    std::fs::write(harness.session().join("secret"), "secret").unwrap();
    let found = host(&harness).await;
    assert_eq!(Path::new(&found.path), harness.tree());
    assert_eq!(host(&harness).await, found, "the key is that of the Pod");

    let key = harness.dir.path().join("client");
    let port = port(&harness, &make_key(&key)).await;
    let command = format!(
        "cd {} && pwd && printf '%s\\n' \"$YOI_AGENT\" \"$ODD\" && test -n \"$YOI_CALL\" && echo made > made && cat {}/secret; \
         setsid sleep 300 > /dev/null 2>&1 < /dev/null & exit 7",
        found.path,
        harness.session().display(),
    );
    let said = ssh(&harness, &found, port, &key, &command).await;
    let (out, errors) = (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    assert_eq!(said.status.code(), Some(7), "{out} {errors} {}", harness.stderr());
    let mut wanted = format!("{}\na\nit's \"odd\" \\ # $HOME\n", found.path);
    if !FrameSupport::of_this_kernel().governs_files() {
        wanted.push_str("secret");
    }
    assert_eq!(out, wanted, "{errors}");
    assert_eq!(std::fs::read_to_string(harness.tree().join("made")).unwrap(), "made\n");

    let entries = harness.wait_until("the end of the way in", |entries| ways_in(entries).len() == 2).await;
    let ways = ways_in(&entries);
    assert!(ways[0].ended.is_none() && ways[0].user == "ann" && ways[1].id == ways[0].id && ways[1].user == "ann", "{ways:?}");
    assert!(ways[1].ended.as_ref().unwrap().killed > 0, "what was left has ended: {ways:?}");
    let left =
        std::fs::read_dir(harness.dir.path().join("tmp/yoi-ssh")).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
    assert_eq!(left.len(), 2, "only the host key: {left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_comes_in_with_another_key_and_who_leaves_in_the_middle_leaves_nothing() {
    if !has_server() {
        return crate::skip::skip("there is no OpenSSH server here");
    }
    let harness = Harness::new(IDLE).await;
    let _runtime = harness.start(1, None);
    harness.gateway.wait_for_report(|report| report.ready).await;
    let found = host(&harness).await;
    let (one, other) = (harness.dir.path().join("one"), harness.dir.path().join("other"));
    let (key, _) = (make_key(&one), make_key(&other));
    let port = port(&harness, &key).await;
    let refused = ssh(&harness, &found, port, &other, "true").await;
    assert_eq!(refused.status.code(), Some(255));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("Permission denied"), "{refused:?}");
    for bad in ["", "no key", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA\nssh-ed25519 AAAAC3NzaC1lZDI1NTE5BBBB"] {
        let (status, _) = harness.gateway.request_as("ann", "POST", &path(bad), "").await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{bad}");
    }

    // As many as may: each sends its greeting and waits.
    let mut open = Vec::new();
    for _ in 0..MAX_SERVERS {
        let (say, said) = tokio::sync::mpsc::channel::<Vec<u8>>(1);
        let body = Body::from_stream(unfold(said, |mut said| async { Some((Ok::<_, std::io::Error>(said.recv().await?), said)) }));
        let mut response = harness.gateway.open("bob", &path(&key), body).await;
        assert_eq!(response.status(), StatusCode::OK);
        let greeting = response.body_mut().frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(greeting.starts_with(b"SSH-2.0-"), "{greeting:?}");
        open.push((say, response));
    }
    let (status, body) = harness.gateway.request_as("ann", "POST", &path(&key), "").await;
    let refusal: Refusal = serde_json::from_slice(&body).unwrap();
    assert!(status == StatusCode::TOO_MANY_REQUESTS && refusal.message.contains("close one"), "{refusal:?}");
    drop(open);
    harness
        .wait_until("the end of all", |entries| ways_in(entries).iter().filter(|way| way.ended.is_some()).count() == MAX_SERVERS + 1)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_can_serve_nobody_says_what_it_lacks() {
    if !rustix::process::geteuid().is_root() {
        return crate::skip::skip("starting the runtime as another user needs root");
    }
    let refusal = async |harness: &Harness| {
        let _runtime = harness.start(1, None);
        harness.gateway.wait_for_report(|report| report.ready).await;
        let (status, body) = harness.gateway.request("GET", runtime_api::SSH, "").await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
        serde_json::from_slice::<Refusal>(&body).unwrap().message
    };
    let harness = Harness { user_env: vec![("PATH", "/nowhere")], ..Harness::new(IDLE).await };
    let said = refusal(&harness).await;
    assert!(said.contains("no sshd") && said.contains("apt-get install openssh-server"), "{said}");
    if has_server() {
        let harness = Harness { uid: Some(54_321), ..Harness::new(IDLE).await };
        let said = refusal(&harness).await;
        assert!(said.contains("uid 54321") && said.contains("/etc/passwd"), "{said}");
    }
}
