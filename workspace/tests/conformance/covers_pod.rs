//! A Pod as a container runtime makes one of it, for the cases about covers: a mount namespace with the tree in it, `rbind` and `rslave`.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{MountPropagationFlags, OpenTreeFlags, mount_change};
use rustix::thread::UnshareFlags;

type Job = Box<dyn FnOnce(&Path) + Send>;

/// A thread with mounts and a working directory of its own. It ends when it is dropped.
pub struct Pod {
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Pod {
    /// Mounts what is at `published` at `at`, which it makes.
    pub fn start(published: &Path, at: &Path) -> Self {
        std::fs::create_dir(at).unwrap();
        let published = published.to_owned();
        Self::spawn(at, move |at| {
            let slave = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
            mount_change("/", slave).unwrap();
            rustix::mount::mount_bind_recursive(&published, at).unwrap();
            mount_change(at, slave).unwrap();
        })
    }

    /// Another container whose mounts are `Bidirectional`: what it mounts in the tree at `published` is seen outside, and the other way round.
    pub fn with_peers(published: &Path) -> Self {
        Self::spawn(published, |_| {})
    }

    fn spawn(at: &Path, set_up: impl FnOnce(&Path) + Send + 'static) -> Self {
        let at = at.to_owned();
        let (jobs, received) = mpsc::channel::<Job>();
        let (send_ready, ready) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            // SAFETY: this thread was started for this function; nothing else relies on its directories or mounts.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS | UnshareFlags::NEWNS) }.unwrap();
            set_up(&at);
            send_ready.send(()).unwrap();
            received.iter().for_each(|job| job(&at));
        });
        ready.recv().expect("the Pod did not start");
        Self { jobs: Some(jobs), thread: Some(thread) }
    }

    /// Does something in the Pod, with the path of its tree.
    pub fn run<T: Send + 'static>(&self, act: impl FnOnce(&Path) -> T + Send + 'static) -> T {
        let (send, result) = mpsc::channel();
        let job: Job = Box::new(move |at| _ = send.send(act(at)));
        self.jobs.as_ref().unwrap().send(job).expect("the Pod has ended");
        result.recv().expect("it failed in the Pod")
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        drop(self.jobs.take());
        // A panic in it was one of the case, too.
        _ = self.thread.take().map(JoinHandle::join);
    }
}

/// A shell with mounts and users of its own, as a Pod with `hostUsers: false`.
pub struct Script {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Script {
    pub fn start(script: &str, args: &[&PathBuf]) -> Self {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "--propagation", "slave", "sh", "-c", script, "sh"]).args(args);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    /// Ends one `read` of the script.
    pub fn go(&mut self) {
        self.input.write_all(b"go\n").unwrap();
    }

    /// The next line that it writes.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Two bytes of a file in memory, which are written to it.
pub struct Mapped(*mut u8);

// SAFETY: the pointer is to memory that nothing else uses.
unsafe impl Send for Mapped {}

pub fn map_shared(file: &OwnedFd) -> Mapped {
    // SAFETY: a new mapping of a file that is long enough.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), 2, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
    Mapped(at.cast())
}

impl Mapped {
    pub fn write(&mut self, index: usize, byte: u8) {
        assert!(index < 2);
        // SAFETY: the mapping is there until this is dropped, and has two bytes.
        unsafe { self.0.add(index).write_volatile(byte) };
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `map_shared`, and nobody else has it.
        _ = unsafe { libc::munmap(self.0.cast(), 2) };
    }
}

/// A mount of a folder that is attached nowhere and in no group.
pub fn clone_private(folder: &Path, read_only: bool) -> OwnedFd {
    let mount = rustix::mount::open_tree(CWD, folder, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC).unwrap();
    // `struct mount_attr`: attributes to set, to clear, propagation, user namespace. MOUNT_ATTR_RDONLY is 1.
    let attributes: [u64; 4] = [u64::from(read_only), 0, libc::MS_PRIVATE, 0];
    // SAFETY: the path is a C string and the structure is as long as we say.
    let done = unsafe {
        let (path, size) = (c"".as_ptr(), size_of_val(&attributes));
        libc::syscall(libc::SYS_mount_setattr, mount.as_raw_fd(), path, libc::AT_EMPTY_PATH, attributes.as_ptr(), size)
    };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    mount
}

/// Puts the calling thread in a Landlock domain that opens the tree at `at`, and nothing else. False if the kernel has none.
pub fn enter_landlock(at: &Path) -> bool {
    /// All rights of the first version.
    const RIGHTS: u64 = (1 << 13) - 1;
    /// `struct landlock_path_beneath_attr`.
    #[repr(C, packed)]
    struct Beneath {
        rights: u64,
        folder: i32,
    }
    let handled = RIGHTS;
    let folder = rustix::fs::open(at, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let beneath = Beneath { rights: RIGHTS, folder: folder.as_raw_fd() };
    // SAFETY: the structures are alive and as long as we say.
    unsafe {
        let ruleset = libc::syscall(libc::SYS_landlock_create_ruleset, &raw const handled, size_of::<u64>(), 0);
        if ruleset < 0 {
            return false;
        }
        assert_eq!(libc::syscall(libc::SYS_landlock_add_rule, ruleset, 1, &raw const beneath, 0), 0);
        assert_eq!(libc::syscall(libc::SYS_landlock_restrict_self, ruleset, 0), 0);
        libc::close(ruleset as i32);
    }
    true
}
