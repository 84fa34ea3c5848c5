//! Compares the next generation's base with a fresh one of the same commit, at 57,000 files of which 28 have changed:
//! `cargo bench -p yoi-plan --bench refresh`, or `cargo bench -p yoi-plan --bench refresh -- 5` for another number of rounds. Needs root. With `YOI_BENCH_OUT=FOLDER` the rows are also written to
//! `FOLDER/refresh.json`.
//!
//! Both sides are what a node and the populator do until the base is sealed: the provider's operation, the populator's script against a git server on
//! loopback, and the seal. Images, Pods and a real network are left out; all of them but the Pods would make a fresh base dearer.
#![expect(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a program of its own: it is told where to write, calls git and prints what it measures"
)]

#[path = "measure/pair.rs"]
mod pair;

use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use pair::{FILES, Pair, fill_tree};
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change};
use serde_json::Value;
use yoi_plan::workspace::populate_pod::SCRIPT;
use yoi_workspace::{CloneAccess, DataRoot, Owner, Provider, ProviderKind, Uid, ensure_loop_btrfs};

const CHANGED: usize = 28;
const BAR: f64 = 0.2;

fn main() {
    if !rustix::process::geteuid().is_root() {
        println!("refresh: NOT RUN: needs root");
        return;
    }
    // Its mounts go with this process, however it ends.
    // SAFETY: the descriptors of this one thread are not shared in a way that a new mount namespace changes.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }.expect("a mount namespace");
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).expect("mounts of its own");
    let temp = tempfile::tempdir().expect("a folder");
    let source = Source::new(temp.path());
    let disk = Disk::new(temp.path());
    pair::write("refresh", &[measure(&source, &disk, pair::rounds())]);
}

fn measure(source: &Source, disk: &Disk, rounds: usize) -> Value {
    let provider = disk.root().provider(ProviderKind::Btrfs).expect("the provider");
    let empty = |uid| provider.create_empty(uid, Owner { uid: 0, gid: 0 }).map(drop).expect("an empty tree");
    let mut commit = source.commit();
    let mut former = uid();
    empty(former);
    disk.fill(provider, former, source, ("", &commit));
    let mut times = Pair::default();
    for round in 0..rounds {
        source.change(&format!("round {round}\n"));
        let (from, to) = (commit, source.commit());
        let [next, anew] = [uid(), uid()];
        let by_increment = || {
            provider.clone_tree(next, former, CloneAccess::ReadWrite).expect("a clone");
            disk.fill(provider, next, source, (&from, &to));
        };
        let from_nothing = || {
            empty(anew);
            disk.fill(provider, anew, source, ("", &to));
        };
        times.measure(by_increment, from_nothing, || {});
        for old in [former, anew] {
            provider.destroy(old).expect("it is destroyed");
        }
        disk.sync();
        (former, commit) = (next, to);
    }
    provider.destroy(former).expect("it is destroyed");
    times.row(&format!("the next base, {CHANGED} of {FILES} files changed, over a fresh one"), BAR)
}

fn uid() -> Uid {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    let n = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let mut bytes = [0; 16];
    bytes[8..].copy_from_slice(&n.to_be_bytes());
    Uid::from_bytes(bytes)
}

fn run(command: &mut Command) -> String {
    let out = command.output().expect("it starts");
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).trim().to_owned()
}

/// A repository, and the server that gives it out.
struct Source {
    tree: PathBuf,
    url: String,
    server: Child,
}

impl Source {
    fn new(temp: &Path) -> Self {
        let served = temp.join("served");
        let tree = served.join("p");
        fill_tree(&tree);
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port").port();
        let mut daemon = Command::new("git");
        daemon.args(["daemon", "--export-all", "--listen=127.0.0.1"]).arg(format!("--port={port}"));
        daemon.arg(format!("--base-path={}", served.display())).arg(&served).process_group(0);
        let server = daemon.spawn().expect("git daemon");
        let source = Source { tree, url: format!("git://127.0.0.1:{port}/p/.git"), server };
        source.git(&["init", "-q", "--initial-branch=main"]);
        source.git(&["add", "."]);
        source.git(&["commit", "-q", "-m", "one"]);
        source.git(&["repack", "-q", "-a", "-d"]);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            std::thread::sleep(Duration::from_millis(20));
        }
        source
    }

    fn git(&self, args: &[&str]) -> String {
        let settings = ["-c", "user.name=b", "-c", "user.email=b@b", "-c", "safe.directory=*", "-c", "gc.auto=0"];
        run(Command::new("git").current_dir(&self.tree).args(settings).args(args))
    }

    fn change(&self, line: &str) {
        for n in 0..CHANGED {
            let file = format!("d{}/f{}", n * 20, n * 2000);
            fs::write(self.tree.join(&file), line.repeat(100)).expect("a file");
        }
        self.git(&["commit", "-q", "-a", "-m", "more"]);
    }

    fn commit(&self) -> String {
        self.git(&["rev-parse", "HEAD"])
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        _ = Command::new("kill").args(["-TERM", "--", &format!("-{}", self.server.id())]).status();
        _ = self.server.wait();
    }
}

/// A Btrfs in a file, with a data root, and the folder that is a populator's `/tmp` and `/yoi`.
struct Disk {
    at: PathBuf,
    pod: PathBuf,
    root: Option<DataRoot>,
}

impl Disk {
    fn new(temp: &Path) -> Self {
        let (image, at) = (temp.join("btrfs.image"), temp.join("btrfs"));
        ensure_loop_btrfs(&image, 8 << 30, &at).expect("a Btrfs");
        // Only the loop device holds the file now, so its space comes back however this process ends.
        fs::remove_file(&image).expect("the image is ours");
        let root = Some(DataRoot::open(&at).expect("a data root"));
        Disk { at, pod: temp.join("pod"), root }
    }

    fn root(&self) -> &DataRoot {
        self.root.as_ref().expect("until it is dropped")
    }

    fn sync(&self) {
        rustix::fs::syncfs(File::open(&self.at).expect("the mountpoint")).expect("it is flushed");
    }

    /// Fills the tree from commit `former` to `revision` as a populator does, and seals it.
    fn fill(&self, provider: &dyn Provider, tree: Uid, source: &Source, (former, revision): (&str, &str)) {
        let path = self.at.join("trees").join(tree.shard()).join(tree.to_string()).join("tree");
        _ = fs::remove_dir_all(&self.pod);
        fs::create_dir_all(self.pod.join("tmp")).expect("a folder");
        let mut script = SCRIPT.to_owned();
        for (file, stand_in) in [("/tmp", self.pod.join("tmp")), ("/yoi", self.pod.clone()), ("/dev/termination-log", self.pod.join("end"))]
        {
            script = script.replace(file, &stand_in.display().to_string());
        }
        let mut shell = Command::new("/bin/sh");
        shell.args(["-eu", "-c", &script]).current_dir("/").env("URL", &source.url).env("DEST", &path);
        for name in ["REF", "DEPTH", "SECRET", "CA", "SUBMODULE_HOSTS"] {
            shell.env(name, "");
        }
        run(shell.env("FORMER", former).env("REVISION", revision));
        let packs = fs::read_dir(path.join(".git/objects/pack")).expect("packs").flatten();
        let packs = packs.filter(|file| file.path().extension().is_some_and(|end| end == "pack")).count();
        assert_eq!(packs > 1, !former.is_empty(), "by increment, or anew?");
        provider.seal(tree).expect("it is sealed");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.root = None;
        // Lazily, because a failure may leave descriptors open. The loop device goes with the last of them.
        _ = rustix::mount::unmount(&self.at, UnmountFlags::DETACH);
    }
}
