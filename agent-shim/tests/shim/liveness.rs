//! What the kubelet's probes ask.

use std::time::Duration;

use kube::runtime::watcher::Event;
use yoi_agent_shim::mounter::check::{self, CheckError};
use yoi_agent_shim::shim::health;

use crate::real_disk::{in_memory, mounter};
use crate::test_shim::TestShim;

#[tokio::test]
async fn a_shim_that_could_not_report_its_node_for_three_minutes_is_not_ready() {
    let shim = TestShim::new();
    shim.apply_event(Event::Init);
    shim.apply_event(Event::InitDone);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(health::serve(shim.state.clone(), listener));
    let ready = async || -> String {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        response
    };
    let ago = |seconds| std::time::Instant::now().checked_sub(Duration::from_secs(seconds)).unwrap();
    shim.state.set_reported(ago(170));
    assert!(ready().await.contains("200"), "a report every minute may fail twice");
    shim.state.set_reported(ago(181));
    let answer = ready().await;
    assert!(answer.contains("503") && answer.contains("could not be reported for three minutes"), "{answer}");
    shim.state.set_reported(ago(0));
    assert!(ready().await.contains("200"));
    serving.abort();
}

#[test]
fn a_mounter_that_works_passes_its_check_and_one_that_accepts_and_never_answers_fails_it() {
    if !rustix::process::geteuid().is_root() {
        return crate::skip::skip("the mounter answers root only");
    }
    let dir = in_memory();
    for folder in ["pool", "kubelet"] {
        std::fs::create_dir(dir.path().join(folder)).unwrap();
    }
    let socket = dir.path().join("mounter.sock");
    assert!(matches!(check::run(&socket), Err(CheckError::Silent { .. })), "there is none yet");
    mounter(dir.path(), &dir.path().join("pool"), "mounter");
    check::run(&socket).unwrap();

    // The kernel accepts for a process whose threads are all stuck.
    let stuck = dir.path().join("stuck.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&stuck).unwrap();
    let refused = check::run(&stuck).unwrap_err();
    assert!(matches!(&refused, CheckError::Silent { source, .. } if source.kind() == std::io::ErrorKind::WouldBlock), "{refused:?}");
    assert!(check::TIMEOUT < Duration::from_secs(10), "the kubelet waits 10 s");
}
