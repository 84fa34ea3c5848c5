//! The scripts of populator and pusher Pods, run with the git, git-lfs and ssh of this machine against servers on loopback.
#![expect(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "runs the shipped script, and servers for it, and shows how often"
)]

mod bystander;
mod credentials;
#[path = "../../../runtime/tests/agent/generated_history.rs"]
mod generated_history;
mod git_server;
mod head;
mod hostile;
mod increment;
mod kills;
mod lfs;
mod look;
mod populator;
mod push;
mod push_histories;
mod push_hostile;
mod push_kills;
mod pusher;
mod refs;
mod repository;
mod sets;
mod ssh;
mod ssh_server;
mod submodules;
mod sync;

use std::path::{Path, PathBuf};

use git_server::GitServer;

/// A directory of the test's own. It is removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("yoi-populate-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server of private repositories, which are in the folder `served`, and the token that reads them.
fn serve_private(name: &str) -> (Folder, GitServer, String) {
    let folder = Folder::new(name);
    let token = format!("canary-{name}-{}", std::process::id());
    let server = GitServer::start(&folder.path().join("served"), &token);
    (folder, server, token)
}
