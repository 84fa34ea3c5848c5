//! Paths of a tree that are lent: real processes hold something there in every way, a mount covers it, and who could still write is ended, and nobody else.
//!
//! The fence looks at all processes when it is the first of its pid namespace. So these tests start themselves once more, as the first process of one, with mounts of
//! their own.

#[path = "../agent/skip.rs"]
mod skip;

use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open};
use rustix::mount::{MountFlags, mount_bind, mount_remount};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::thread::UnshareFlags;
use yoi_runtime::fence::{fence, fence_within, sentence};
use yoi_wire::fence::{FenceRequest, FenceResponse};

/// Set in the process that is the first of its namespace.
const INNER: &str = "YOI_TEST_FENCE_INNER";
/// What a holder holds, and the tree.
const HOLD: &str = "YOI_TEST_FENCE_HOLD";
const TREE: &str = "YOI_TEST_FENCE_TREE";
/// What is lent. Folders above it are covered, too, so that they stay where they are.
const LENT: &str = "src/deep";

/// Runs the test of this name in namespaces of its own. True: this is there.
fn is_inner(test: &str) -> bool {
    if std::env::var_os(INNER).is_some() {
        return true;
    }
    if !rustix::process::geteuid().is_root() {
        skip::skip("namespaces and mounts need root");
        return false;
    }
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]);
    command.arg(std::env::current_exe().unwrap()).args(["--exact", test, "--nocapture", "--test-threads=1"]).env(INNER, "1");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    false
}

/// A tree that is a mount of its own, as in a Pod.
struct Tree {
    _dir: tempfile::TempDir,
    at: PathBuf,
}

impl Tree {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().canonicalize().unwrap().join("tree");
        for folder in [LENT, "docs", "src/other"] {
            std::fs::create_dir_all(at.join(folder)).unwrap();
        }
        for file in ["src/deep/f", "src/deep/g", "docs/f", "docs/gone"] {
            std::fs::write(at.join(file), vec![b'x'; 4096]).unwrap();
        }
        mount_bind(&at, &at).unwrap();
        Self { _dir: dir, at }
    }

    /// As the node covers what is lent: the outer first.
    fn cover(&self) {
        mount_bind(self.at.join("src"), self.at.join("src")).unwrap();
        let lent = self.at.join(LENT);
        mount_bind(&lent, &lent).unwrap();
        mount_remount(&lent, MountFlags::BIND | MountFlags::RDONLY, "").unwrap();
    }

    fn hold(&self, how: &str) -> Holder {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "a_process_that_holds_something", "--nocapture", "--test-threads=1"]);
        command.env(HOLD, how).env(TREE, &self.at).current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert!(lines.any(|line| line.contains("holding")), "{how} ended");
        Holder { how: how.to_owned(), child }
    }

    fn hold_all<'a>(&self, all: impl IntoIterator<Item = &'a str>) -> Vec<Holder> {
        all.into_iter().map(|how| self.hold(how)).collect()
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.at, rustix::mount::UnmountFlags::DETACH);
    }
}

struct Holder {
    how: String,
    child: Child,
}

impl Holder {
    fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    fn is_stopped(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        stat[stat.rfind(')').unwrap()..].starts_with(") T")
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn request() -> FenceRequest {
    FenceRequest { loan: "l".into(), paths: vec![LENT.into()] }
}

fn names(holders: &mut [Holder], ended: bool) -> Vec<String> {
    let matching = holders.iter_mut().filter_map(|holder| (holder.has_ended() == ended).then(|| holder.how.clone()));
    matching.collect()
}

/// Not a test of its own: what the tests below start.
#[test]
fn a_process_that_holds_something() {
    let (Some(how), Some(tree)) = (std::env::var_os(HOLD), std::env::var_os(TREE).map(PathBuf::from)) else { return };
    let held = hold(how.to_str().unwrap(), &tree);
    if how == "a program file" {
        let mut shell = Command::new(tree.join(LENT).join("program"));
        panic!("{}", std::os::unix::process::CommandExt::exec(shell.args(["-c", "echo holding; while :; do sleep 600; done"])));
    }
    println!("holding");
    loop {
        std::thread::park();
        std::hint::black_box(&held);
    }
}

/// Opens it, and returns what keeps it.
fn hold(how: &str, tree: &Path) -> Box<dyn std::any::Any> {
    let (lent, file) = (tree.join(LENT), tree.join(LENT).join("f"));
    let opened = |path: &Path, flags: OFlags| open(path, flags | OFlags::CLOEXEC, Mode::empty()).unwrap();
    match how {
        "a descriptor to write" => Box::new(opened(&file, OFlags::RDWR)),
        "a descriptor to read" => Box::new(opened(&file, OFlags::RDONLY)),
        "a folder" => Box::new(opened(&lent, OFlags::PATH)),
        "a mapping" => Box::new(Mapped::new(&opened(&file, OFlags::RDWR))),
        "a working directory" => {
            std::env::set_current_dir(&lent).unwrap();
            Box::new(())
        }
        "a root" => {
            rustix::process::chroot(&lent).unwrap();
            std::env::set_current_dir("/").unwrap();
            Box::new(())
        }
        "a program file" => {
            std::fs::copy("/bin/sh", lent.join("program")).unwrap();
            Box::new(())
        }
        "a working directory above" => {
            std::env::set_current_dir(tree.join("src")).unwrap();
            Box::new(())
        }
        "a folder beside" => Box::new(opened(&tree.join("src/other"), OFlags::PATH)),
        "a mount namespace" => {
            // SAFETY: nothing in this process relies on its mounts.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }.unwrap();
            Box::new(())
        }
        "a descriptor of a thread" => {
            let (send, ready) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                // SAFETY: this thread opens and closes only what it opens here.
                unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FILES) }.unwrap();
                let kept = open(&file, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
                send.send(()).unwrap();
                loop {
                    std::thread::park();
                    std::hint::black_box(&kept);
                }
            });
            ready.recv().unwrap();
            Box::new(())
        }
        "a descriptor in a socket" => {
            let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
            let sent = opened(&file, OFlags::RDWR);
            let mut space = [0_u8; 64];
            let mut ancillary = SendAncillaryBuffer::new(bytemuck_space(&mut space));
            let descriptors = [sent.as_fd()];
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)));
            rustix::net::sendmsg(&one, &[std::io::IoSlice::new(b"x")], &mut ancillary, SendFlags::empty()).unwrap();
            Box::new((one, other))
        }
        // These could have what they have now.
        "the tree" => {
            std::env::set_current_dir(tree).unwrap();
            Box::new(())
        }
        "a file beside to write" => Box::new(opened(&tree.join("docs/f"), OFlags::RDWR)),
        "a mapping beside" => Box::new(Mapped::new(&opened(&tree.join("docs/f"), OFlags::RDWR))),
        "a file without a name" => {
            let path = tree.join("docs/gone");
            let kept = opened(&path, OFlags::RDWR);
            std::fs::remove_file(path).unwrap();
            Box::new(kept)
        }
        "memory that is shared" => {
            let memory = rustix::fs::memfd_create("m", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
            rustix::fs::ftruncate(&memory, 4096).unwrap();
            Box::new((Mapped::new(&memory), memory))
        }
        "a descriptor through the cover" => Box::new(opened(&file, OFlags::RDONLY)),
        "a mapping through the cover" => Box::new(Mapped::read(&opened(&file, OFlags::RDONLY))),
        "a working directory through the cover" => {
            std::env::set_current_dir(&lent).unwrap();
            Box::new(())
        }
        other => panic!("nobody holds {other}"),
    }
}

fn bytemuck_space(space: &mut [u8]) -> &mut [std::mem::MaybeUninit<u8>] {
    // SAFETY: a byte that is there may be treated as one that need not be.
    unsafe { &mut *(std::ptr::from_mut(space) as *mut [std::mem::MaybeUninit<u8>]) }
}

/// A page of a file in memory, shared with the file, whose descriptor is closed.
struct Mapped(*mut libc::c_void);

impl Mapped {
    fn new(file: &OwnedFd) -> Self {
        Self::with(file, libc::PROT_READ | libc::PROT_WRITE)
    }

    fn read(file: &OwnedFd) -> Self {
        Self::with(file, libc::PROT_READ)
    }

    fn with(file: &OwnedFd, rights: i32) -> Self {
        // SAFETY: a new mapping, which nothing is read from.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), 4096, rights, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Self(at)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: it was mapped above, and nobody else has it.
        unsafe { libc::munmap(self.0, 4096) };
    }
}

#[test]
fn who_could_write_below_a_lent_path_by_whatever_it_holds_is_ended_and_nobody_else() {
    if !is_inner("who_could_write_below_a_lent_path_by_whatever_it_holds_is_ended_and_nobody_else") {
        return;
    }
    let tree = Tree::new();
    let writers = [
        "a descriptor to write",
        "a descriptor to read",
        "a folder",
        "a mapping",
        "a working directory",
        "a root",
        "a program file",
        "a working directory above",
        "a folder beside",
        "a mount namespace",
        "a descriptor of a thread",
        "a descriptor in a socket",
    ];
    let mut holders = tree.hold_all(writers);
    let mut others =
        tree.hold_all(["the tree", "a file beside to write", "a mapping beside", "a file without a name", "memory that is shared"]);
    tree.cover();
    others.extend(tree.hold_all([
        "a descriptor through the cover",
        "a mapping through the cover",
        "a working directory through the cover",
    ]));

    let FenceResponse { fenced, ended, left, refused } = fence(&tree.at, &request());
    assert!(fenced && left.is_empty() && refused.is_none(), "{ended:?} {left:?} {refused:?}");
    let pids: Vec<u32> = ended.iter().map(|held| held.pid).collect();
    let spared: Vec<&str> = holders.iter().filter(|holder| !pids.contains(&holder.child.id())).map(|holder| &*holder.how).collect();
    assert!(spared.is_empty(), "could write on: {spared:?}");
    holders.iter_mut().for_each(|holder| _ = holder.child.wait().unwrap());
    assert_eq!(names(&mut others, true), Vec::<String>::new(), "{ended:?}");
    assert!(others.iter().all(|holder| !holder.is_stopped()), "who was looked at goes on");
    let told = sentence(&request(), &ended);
    assert!(told.contains("src/deep is lent (loan l)") && told.contains("its working directory"), "{told}");
    // Said again it finds nobody.
    let again = fence(&tree.at, &request());
    assert!(again.fenced && again.ended.is_empty(), "{again:?}");
    // One that was stopped before stays so.
    rustix::process::kill_process(rustix::process::Pid::from_child(&others[0].child), rustix::process::Signal::STOP).unwrap();
    while !others[0].is_stopped() {
        std::thread::yield_now();
    }
    assert!(fence(&tree.at, &request()).fenced && others[0].is_stopped());
}

#[test]
fn what_the_runtime_itself_holds_is_told_and_not_ended() {
    if !is_inner("what_the_runtime_itself_holds_is_told_and_not_ended") {
        return;
    }
    let tree = Tree::new();
    let kept = open(tree.at.join(LENT), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
    tree.cover();
    let held = fence_within(&tree.at, &request(), Duration::ZERO);
    assert!(!held.fenced && held.ended.is_empty() && held.left.len() == 1 && held.left[0].pid == 1, "{held:?}");
    assert!(held.why_not().contains("descriptor") && held.why_not().contains(LENT), "{}", held.why_not());
    drop(kept);
    assert!(fence(&tree.at, &request()).fenced);
}

#[test]
fn a_path_that_is_not_closed_or_has_a_file_with_another_name_is_refused_by_name() {
    if !is_inner("a_path_that_is_not_closed_or_has_a_file_with_another_name_is_refused_by_name") {
        return;
    }
    let tree = Tree::new();
    let refusal = |paths: &[&str]| {
        let paths = paths.iter().map(|path| (*path).to_owned()).collect();
        let response = fence(&tree.at, &FenceRequest { loan: "l".into(), paths });
        assert!(!response.fenced && response.left.is_empty());
        response.refused.unwrap()
    };
    assert!(refusal(&[LENT]).contains("src/deep is not closed to this Pod"), "no cover has come");
    for path in ["", ".", "/etc", "../tree", "src/../docs"] {
        assert!(refusal(&[path]).contains("no path of plain names"), "{path}");
    }
    assert!(refusal(&["nowhere"]).contains("nowhere"));
    assert!(refusal(&[]).contains("no path is named"));
    // By the other name it could be written.
    std::fs::hard_link(tree.at.join(LENT).join("g"), tree.at.join("docs/g")).unwrap();
    tree.cover();
    assert!(refusal(&[LENT]).contains("src/deep/g has another name"));
    std::fs::remove_file(tree.at.join("docs/g")).unwrap();
    assert!(fence(&tree.at, &request()).fenced);
}
