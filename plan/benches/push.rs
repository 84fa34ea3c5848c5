//! Compares what a pusher's Pod does with `git push` by hand: 20 commits in a tree of 57,000 files, to an https server with a token: `cargo bench -p yoi-plan --bench
//! push`, or `cargo bench -p yoi-plan --bench push -- 9` for another number of rounds. Needs root. With `YOI_BENCH_OUT=FOLDER` the rows are also written to
//! `FOLDER/push.json`.
//!
//! Ours is the whole script of the Pod, from the request for the agent's bundle, which the gateway has ready, to its end; the Pod's start is left out. By hand is
//! `git push` in the agent's tree. The server is on loopback, and forgets each push before the next one.
#![expect(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a program of its own: it is told where to write, calls git and prints what it measures"
)]

#[path = "../tests/populate/git_server.rs"]
#[expect(dead_code, reason = "the tests use the rest")]
mod git_server;
#[path = "measure/pair.rs"]
mod pair;
#[path = "../tests/populate/populator.rs"]
#[expect(dead_code, reason = "the tests use the rest")]
mod populator;
#[path = "../tests/populate/pusher.rs"]
#[expect(dead_code, reason = "the tests use the rest")]
mod pusher;
#[path = "../tests/populate/repository.rs"]
#[expect(dead_code, reason = "the tests use the rest")]
mod repository;

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use git_server::{GitServer, USER};
use pair::{FILES, Pair, fill_tree};
use pusher::{AgentTree, Pusher};
use repository::Repository;

const COMMITS: usize = 20;
const CHANGED: usize = 3;
const BAR: f64 = 1.5;
const TOKEN: &str = "token-of-the-benchmark";

fn main() {
    if !rustix::process::geteuid().is_root() {
        println!("push: NOT RUN: needs root");
        return;
    }
    if std::process::id() != 1 {
        // A Pod sees its own processes alone, and the script looks at all that it sees.
        let own = std::env::current_exe().expect("a program");
        let mut anew = Command::new("unshare");
        anew.args(["--pid", "--fork", "--kill-child", "--mount-proc"]).arg(own).args(std::env::args_os().skip(1));
        panic!("failed to run unshare: {}", anew.exec());
    }
    let temp = tempfile::tempdir().expect("a folder");
    let site = Site::new(temp.path());
    let mut times = Pair::default();
    for round in 0..pair::rounds() {
        let pod = Pusher::private(&temp.path().join(format!("pod-{round}")), &site.server, TOKEN, "yoi/a");
        let pod = pod.with("COMMIT", &site.agent.head()).with("BASE", &site.agent.base);
        times.measure(|| drop(pod.expect_pushed()), || site.push_by_hand(), || site.forget_push());
    }
    pair::write("push", &[times.row(&format!("push of {COMMITS} commits in a tree of {FILES} files, over git push by hand"), BAR)]);
}

struct Site {
    server: GitServer,
    project: Repository,
    agent: AgentTree,
    /// What a person has on the own machine: a file with user and token, and the system's certificates with that of the server.
    credentials: PathBuf,
    ca: PathBuf,
}

impl Site {
    fn new(temp: &Path) -> Self {
        let served = temp.join("served");
        let server = GitServer::start_with(&served, TOKEN, false);
        let project = Repository::new(&served, "private/p");
        // As the large hosts have it.
        project.git(&["config", "uploadpack.allowFilter", "true"]);
        // Else the first commit starts a gc in the background, which the next one waits for in vain.
        project.git(&["config", "gc.auto", "0"]);
        fill_tree(Path::new(&project.git(&["rev-parse", "--show-toplevel"])));
        project.git(&["add", "."]);
        project.commit("one");
        project.git(&["gc", "--quiet"]);
        let agent = AgentTree::new(&temp.join("agent"), &project);
        for n in 0..COMMITS {
            for file in (0..CHANGED).map(|of| n * 2000 + of * 150) {
                let name = format!("d{}/f{file}", file / 100);
                let former = fs::read_to_string(agent.folder().join(&name)).expect("a file");
                agent.write(&name, format!("{former}\ncommit {n}\n"));
            }
            agent.write(&format!("new/f{n}"), format!("{n}\n").repeat(300)).commit(&format!("commit {n}"));
        }
        server.answer_pushers(200, agent.sound_answer());
        let site = Site { credentials: temp.join("credentials"), ca: temp.join("ca.crt"), server, project, agent };
        fs::write(&site.credentials, format!("https://{USER}:{TOKEN}@{}\n", site.server.host())).expect("a file");
        // As after `update-ca-certificates`.
        let system = fs::read_to_string("/etc/ssl/certs/ca-certificates.crt").unwrap_or_default();
        fs::write(&site.ca, system + &site.server.ca).expect("a file");
        site
    }

    fn push_by_hand(&self) {
        let helper = format!("credential.helper=store --file={}", self.credentials.display());
        let url = self.server.url("private/p.git");
        let mut git = Command::new("git");
        git.current_dir(self.agent.folder()).args(["-c", &helper, "push", "--quiet", &url, "HEAD:refs/heads/yoi/a"]);
        let done = git.env("GIT_SSL_CAINFO", &self.ca).output().expect("git");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    fn forget_push(&self) {
        let pushed = self.project.git(&["rev-parse", "refs/heads/yoi/a"]);
        assert_eq!(pushed, self.agent.head(), "another commit was pushed");
        self.project.git(&["update-ref", "-d", "refs/heads/yoi/a"]);
        self.project.git(&["gc", "--quiet", "--prune=now"]);
    }
}
