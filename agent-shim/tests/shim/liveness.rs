//! What the kubelet's probes ask.

use std::time::Duration;

use yoi_agent_shim::mounter::check::{self, CheckError};

use crate::real_disk::{in_memory, mounter};

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
    let started = std::time::Instant::now();
    assert!(matches!(check::run(&stuck), Err(CheckError::Silent { .. })));
    assert!(started.elapsed() < Duration::from_secs(10), "the kubelet waits 10 s");
}
