//! Programs that run side by side: the end of one takes none of another's processes.

use std::fs;
use std::path::Path;

use yoi_test_support::eventually;

use super::*;

/// Leaves session, parents and environment: a daemon of which only its parent at its start knows whose it is.
const DAEMON: &str = "env -i setsid sh -c 'env -i setsid sh -c \"echo \\$\\$ > daemon; exec sleep 600\" &'";

fn is_alive(pid: u32) -> bool {
    procfs::read_process(pid).is_some_and(|process| !process.ended)
}

/// The pid of the daemon, once it has written it.
async fn daemon(folder: &Path) -> u32 {
    eventually("the daemon has started", async || fs::read_to_string(folder.join("daemon")).ok()?.trim().parse().ok()).await
}

#[tokio::test]
async fn the_end_of_a_program_takes_its_daemons_and_not_those_of_another() {
    // As the runtime is: what loses its parent and has no other subreaper becomes a child of this process.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let supervisor = ProcessSupervisor::new(folders[0].path().to_owned(), "a", &[]);
    let start =
        |folder: &Path, script: &str| supervisor.start("sh", |command| _ = command.arg("-c").arg(script).current_dir(folder)).unwrap();
    // The one that ends first began first, so that the other's daemon is younger than it.
    let mut first = start(folders[0].path(), &format!("{DAEMON}; mkfifo gate; read x < gate"));
    let first_daemon = daemon(folders[0].path()).await;
    let second = start(folders[1].path(), &format!("{DAEMON}; exec sleep 600"));
    let second_daemon = daemon(folders[1].path()).await;
    assert!(is_alive(first_daemon) && is_alive(second_daemon));
    eventually("the gate is made", async || folders[0].path().join("gate").exists().then_some(())).await;
    fs::write(folders[0].path().join("gate"), "go\n").unwrap();
    assert!(first.wait().await.unwrap().success());
    first.kill_tree();
    assert!(!is_alive(first_daemon), "a daemon outlived its program");
    assert!(is_alive(second_daemon), "the end of one program took the daemon of another");
    drop(second);
    assert!(!is_alive(second_daemon), "a daemon outlived its program");
}
