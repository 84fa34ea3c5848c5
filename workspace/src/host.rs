//! Other programs and system calls that no crate wraps.
#![expect(clippy::disallowed_types, reason = "this file is the one that starts programs")]

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode};
use rustix::mount::{MountFlags, MountPropagationFlags, MoveMountFlags, UnmountFlags};
use rustix::process::{Pid, PidfdFlags};
use rustix::thread::UnshareFlags;

use crate::SysError;
use crate::error::StepContext;

/// The most bytes of a program's output that are kept: `zfs` says about 1 KiB of each of the forks of a base.
const MAX_OUTPUT: usize = 16 << 20;
const MAX_STDERR: usize = 2000;

/// Runs a program to its end in a clean environment with `LC_ALL=C`, and returns what it wrote to stdout; kills it at the deadline. Any end
/// but success is an error that carries what it wrote to stderr. More than 16 MiB of output is an error: a part of it would be read as the
/// whole.
pub(crate) fn run(program: &str, args: &[&OsStr], deadline: Duration) -> Result<Vec<u8>, SysError> {
    run_in(View::default(), &Stuck::default(), program, args, deadline)
}

/// A program that ended without success. It is the source of a [`SysError`].
#[derive(Debug, thiserror::Error)]
#[error("{program}: {status}: {stderr}")]
pub(crate) struct ProgramFailure {
    pub program: String,
    pub status: std::process::ExitStatus,
    /// What it wrote there, without blanks around it.
    pub stderr: String,
}

/// What a program finds in place of this process's own root and mounts.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct View<'a> {
    /// Its root directory, in which the program itself is, too. None: that of this process.
    pub root: Option<&'a Path>,
    /// Mounts that are attached nowhere, and where the program alone sees them: paths of one name below `/tmp`, which holds nothing else then.
    pub mounts: &'a [(BorrowedFd<'a>, &'static CStr)],
    /// Where this process has mounts that the program must not see. Only looked at where there are `mounts`. One that is made meanwhile stays.
    pub without: &'a [PathBuf],
    /// The most bytes of its output that are kept, where an answer that is longer is of no use. None: [`MAX_OUTPUT`].
    pub max_output: Option<usize>,
}

impl View<'_> {
    /// What is to be done between fork and exec. It makes system calls, and allocates nothing.
    fn enter(&self) -> Result<Option<impl FnMut() -> io::Result<()> + use<>>, SysError> {
        if self.root.is_none() && self.mounts.is_empty() {
            return Ok(None);
        }
        let as_text = |root: &Path| CString::new(root.as_os_str().as_bytes()).map_err(io::Error::other);
        let root = self.root.map(as_text).transpose().step("name the root of a program")?;
        // Of two on one mount point the later is on top.
        let without = self.without.iter().rev().map(|path| as_text(path)).collect::<io::Result<Vec<_>>>().step("name a mount")?;
        let copy = |(mount, at): &(BorrowedFd, &'static CStr)| Ok((mount.try_clone_to_owned()?, *at));
        let mounts: Vec<_> = self.mounts.iter().map(copy).collect::<io::Result<_>>().step("copy a descriptor")?;
        Ok(Some(move || {
            if !mounts.is_empty() {
                // SAFETY: the new process has one thread.
                unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?;
                // What ends elsewhere ends here, too, and nothing of this is seen elsewhere.
                rustix::mount::mount_change(c"/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
                for path in &without {
                    // It may have ended elsewhere meanwhile.
                    let _ = rustix::mount::unmount(&**path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
                }
            }
            if let Some(root) = &root {
                rustix::process::chroot(&**root)?;
                rustix::process::chdir(c"/")?;
            }
            if !mounts.is_empty() {
                rustix::mount::mount(c"yoi", c"/tmp", c"tmpfs", MountFlags::NOSUID | MountFlags::NODEV, c"mode=0700")?;
            }
            for (mount, at) in &mounts {
                rustix::fs::mkdir(*at, Mode::RWXU)?;
                rustix::mount::move_mount(mount, c"", CWD, *at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
            }
            Ok(())
        }))
    }
}

/// How many programs were killed at their deadline and are still there: the kernel lets none go that waits for a pool that is suspended.
#[derive(Debug, Default)]
pub(crate) struct Stuck(Arc<AtomicUsize>);

impl Stuck {
    /// So many may wait. Each takes a process and a thread.
    pub const MAX: usize = 8;

    fn check(&self, program: &str) -> Result<(), SysError> {
        match self.0.load(Ordering::Relaxed) {
            n if n < Self::MAX => Ok(()),
            n => {
                let text = format!(
                    "{n} processes of {program} were killed and do not end, so no more are started; look at the pool with `zpool status`"
                );
                Err(io::Error::new(io::ErrorKind::TimedOut, text)).step("start a program")
            }
        }
    }

    /// Waits for a program on a thread of its own.
    fn reap(&self, mut child: Child) {
        if matches!(child.try_wait(), Ok(Some(_))) {
            return;
        }
        self.0.fetch_add(1, Ordering::Relaxed);
        let count = self.0.clone();
        // Where no thread can be started, it counts for good.
        let _ = std::thread::Builder::new().name("reaper".into()).spawn(move || {
            let _ = child.wait();
            count.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

/// Like [`run`], with this view of the machine; refused while too many programs before it are stuck.
pub(crate) fn run_in(view: View, stuck: &Stuck, program: &str, args: &[&OsStr], deadline: Duration) -> Result<Vec<u8>, SysError> {
    stuck.check(program)?;
    let max_output = view.max_output.unwrap_or(MAX_OUTPUT);
    let mut command = Command::new(program);
    if let Some(enter) = view.enter()? {
        // SAFETY: between fork and exec it makes system calls, and allocates nothing.
        unsafe { command.pre_exec(enter) };
    }
    let mut child = command
        .args(args)
        .env_clear()
        .env("LC_ALL", "C")
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .step("start a program")?;
    let pipes = Pipes { stdout: child.stdout.take().map(OwnedFd::from), stderr: child.stderr.take().map(OwnedFd::from) };
    let ended = pidfd_of(&child).and_then(|pidfd| pipes.read_until_exit(&pidfd, max_output, deadline));
    let Ok(Some(output)) = ended else {
        let _ = child.kill();
        // Nobody waits for one that the kernel does not let go.
        stuck.reap(child);
        ended?;
        return Err(io::Error::new(io::ErrorKind::TimedOut, format!("{program} took longer than {deadline:?}"))).step("run a program");
    };
    let status = child.wait().step("wait for a program")?;
    if !status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(io::Error::other(ProgramFailure { program: program.to_owned(), status, stderr })).step("run a program");
    }
    if output.is_cut {
        return Err(io::Error::other(format!("{program} wrote more than {max_output} bytes"))).step("read the output of a program");
    }
    Ok(output.stdout)
}

fn pidfd_of(child: &std::process::Child) -> Result<OwnedFd, SysError> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::other("the program has no process id")).step("watch a program")?;
    rustix::process::pidfd_open(pid, PidfdFlags::empty()).step("watch a program")
}

/// What a program wrote. What is over the limits is read and dropped, so that the program does not wait for a full pipe.
#[derive(Default)]
struct Output {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    is_cut: bool,
}

struct Pipes {
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
}

impl Pipes {
    /// Reads both pipes until the program has ended; None at the deadline. A process that the program left behind may hold the pipes open,
    /// so their end is not waited for.
    fn read_until_exit(mut self, pidfd: &OwnedFd, max_output: usize, deadline: Duration) -> Result<Option<Output>, SysError> {
        let mut output = Output::default();
        let begun = Instant::now();
        loop {
            let raw = |fd: Option<&OwnedFd>| fd.map_or(-1, |fd| fd.as_raw_fd());
            let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            // poll skips a descriptor that is negative.
            let mut polled = [entry(pidfd.as_raw_fd()), entry(raw(self.stdout.as_ref())), entry(raw(self.stderr.as_ref()))];
            let left = deadline.saturating_sub(begun.elapsed()).as_millis();
            // SAFETY: three pollfds, alive through the call.
            match unsafe { libc::poll(polled.as_mut_ptr(), 3, i32::try_from(left).unwrap_or(i32::MAX)) } {
                -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => continue,
                -1 => return Err(io::Error::last_os_error()).step("watch a program"),
                0 => return Ok(None),
                _ => {}
            }
            if polled[1].revents != 0 && !drain(&self.stdout, &mut output.stdout, max_output, &mut output.is_cut)? {
                self.stdout = None;
            }
            if polled[2].revents != 0 && !drain(&self.stderr, &mut output.stderr, MAX_STDERR, &mut false)? {
                self.stderr = None;
            }
            // Only once nothing more can be read at once: what it wrote before its end is in the pipes.
            if polled[0].revents != 0 && polled[1].revents == 0 && polled[2].revents == 0 {
                return Ok(Some(output));
            }
            if begun.elapsed() >= deadline {
                return Ok(None);
            }
        }
    }
}

/// Reads what is there. False at the end of the pipe.
fn drain(pipe: &Option<OwnedFd>, into: &mut Vec<u8>, limit: usize, is_cut: &mut bool) -> Result<bool, SysError> {
    let Some(pipe) = pipe else { return Ok(false) };
    let mut buffer = [0; 16 << 10];
    let n = match rustix::io::read(pipe, &mut buffer) {
        Ok(n) => n,
        Err(rustix::io::Errno::INTR) => return Ok(true),
        Err(e) => return Err(e).step("read the output of a program"),
    };
    let room = limit.saturating_sub(into.len());
    *is_cut |= n > room;
    into.extend_from_slice(&buffer[..n.min(room)]);
    Ok(n > 0)
}

const MOUNT_ATTR_RDONLY: u64 = 0x1;
const MOUNT_ATTR_NOSUID: u64 = 0x2;
const MOUNT_ATTR_NODEV: u64 = 0x4;

/// `struct mount_attr`.
#[repr(C)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

/// Makes a detached mount private, nosuid, nodev and, if asked, read-only. With `may_clear`, a mount that is not to be read-only is made
/// writable; without, it stays as the mount that it was cloned from.
pub(crate) fn harden_mount(mount: impl AsFd, read_only: bool, may_clear: bool) -> io::Result<()> {
    let attr = MountAttr {
        attr_set: MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | if read_only { MOUNT_ATTR_RDONLY } else { 0 },
        attr_clr: if !read_only && may_clear { MOUNT_ATTR_RDONLY } else { 0 },
        // A mount made later in the data root must not appear in a Pod, nor one made in a Pod in the data root.
        propagation: libc::MS_PRIVATE,
        userns_fd: 0,
    };
    mount_setattr(mount.as_fd().as_raw_fd(), &attr, 0)
}

/// Makes a mount and all below it read-only.
pub(crate) fn make_mounts_read_only(mount: impl AsFd) -> io::Result<()> {
    const AT_RECURSIVE: i32 = 0x8000;
    let attr = MountAttr { attr_set: MOUNT_ATTR_RDONLY, attr_clr: 0, propagation: 0, userns_fd: 0 };
    mount_setattr(mount.as_fd().as_raw_fd(), &attr, AT_RECURSIVE)
}

/// Makes the current directory, a mount point, the root of this thread's mount namespace. The former root is mounted on top of it.
pub(crate) fn pivot_root_here() -> io::Result<()> {
    let here = c".".as_ptr();
    // SAFETY: both paths are C strings that live through the call.
    if unsafe { libc::syscall(libc::SYS_pivot_root, here, here) } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The inode number of the file that an attribute `trusted.overlay.origin` names, in the file system of `layer`. None if it is no handle of a
/// file that is there.
///
/// The attribute is a `struct ovl_fb`: version, magic, length, flags, type, the UUID of the file system, then the handle's bytes.
pub(crate) fn inode_of_overlay_handle(layer: &OwnedFd, attribute: &[u8]) -> Result<Option<u64>, SysError> {
    const HEAD: usize = 21;
    const MAGIC: u8 = 0xfb;
    const MAX_HANDLE: usize = 128;
    let (Some([0, MAGIC, length, _, kind, ..]), Some(bytes)) = (attribute.get(..HEAD), attribute.get(HEAD..)) else { return Ok(None) };
    if usize::from(*length) != attribute.len() || bytes.len() > MAX_HANDLE {
        return Ok(None);
    }
    /// `struct file_handle`.
    #[repr(C)]
    struct Handle {
        bytes: u32,
        kind: i32,
        data: [u8; MAX_HANDLE],
    }
    let mut handle = Handle { bytes: bytes.len() as u32, kind: i32::from(*kind), data: [0; MAX_HANDLE] };
    handle.data[..bytes.len()].copy_from_slice(bytes);
    let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: the kernel reads a file_handle as long as it says.
    let opened = unsafe { libc::syscall(libc::SYS_open_by_handle_at, layer.as_raw_fd(), &raw mut handle, flags) };
    if opened < 0 {
        return match io::Error::last_os_error() {
            e if matches!(e.raw_os_error(), Some(libc::ESTALE | libc::EINVAL)) => Ok(None),
            e => Err(e).step("open a file by its handle"),
        };
    }
    // SAFETY: the kernel just gave this descriptor to us.
    let file = unsafe { OwnedFd::from_raw_fd(opened as i32) };
    Ok(Some(rustix::fs::fstat(&file).step("stat a file")?.st_ino))
}

/// The oldest kernel that has all of [`CALLS`], and all else that this crate uses.
pub(crate) const MIN_KERNEL: &str = "5.12";

/// System calls that no tree or mount can do without, and that a kernel may lack.
const CALLS: [(&str, libc::c_long); 5] = [
    ("openat2", libc::SYS_openat2),
    ("open_tree", libc::SYS_open_tree),
    ("move_mount", libc::SYS_move_mount),
    ("fsopen", libc::SYS_fsopen),
    ("mount_setattr", libc::SYS_mount_setattr),
];

/// The system calls that this kernel lacks. Each is tried with arguments that every kernel refuses.
pub(crate) fn missing_calls() -> Vec<String> {
    let lacks = |number: libc::c_long| {
        // SAFETY: no descriptor -1 exists and the pointers are null, so the kernel reads and changes nothing.
        let done = unsafe { libc::syscall(number, -1, std::ptr::null::<u8>(), -1, std::ptr::null::<u8>(), 0) };
        done < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ENOSYS)
    };
    CALLS.iter().filter(|(_, number)| lacks(*number)).map(|(name, _)| (*name).to_owned()).collect()
}

fn mount_setattr(fd: i32, attr: &MountAttr, flags: i32) -> io::Result<()> {
    // SAFETY: the path is a C string and the structure is as long as we say.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            fd,
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | flags,
            std::ptr::from_ref(attr),
            size_of::<MountAttr>(),
        )
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use yoi_test_support::{limit, wait_until};

    use super::*;

    /// For a program that ends by itself.
    fn patience() -> Duration {
        limit(Duration::from_secs(20))
    }

    #[test]
    fn a_program_that_hangs_is_killed_at_the_deadline() {
        let error = run("sleep", &["60".as_ref()], Duration::from_millis(20)).unwrap_err();
        assert_eq!(error.source.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn programs_that_do_not_end_are_bounded_in_number() {
        let stuck = Stuck::default();
        let hang = || run_in(View::default(), &stuck, "sleep", &["60".as_ref()], Duration::from_millis(1)).unwrap_err();
        // As if the kernel let none of them go.
        stuck.0.fetch_add(Stuck::MAX - 1, Ordering::Relaxed);
        assert!(hang().source.to_string().contains("took longer than"));
        stuck.0.fetch_max(Stuck::MAX, Ordering::Relaxed);
        let refused = hang();
        assert_eq!((refused.step, refused.source.kind()), ("start a program", io::ErrorKind::TimedOut));
        assert!(refused.source.to_string().starts_with("8 processes of sleep were killed and do not end"), "{refused:?}");
    }

    #[test]
    fn a_program_that_is_killed_is_reaped_and_counts_no_more() {
        let stuck = Stuck::default();
        for _ in 0..Stuck::MAX * 2 {
            wait_until("it is reaped", || (stuck.0.load(Ordering::Relaxed) == 0).then_some(()));
            let error = run_in(View::default(), &stuck, "sleep", &["60".as_ref()], Duration::from_millis(1)).unwrap_err();
            assert!(error.source.to_string().contains("took longer than"), "{error:?}");
        }
    }

    #[test]
    fn a_program_that_fails_is_quoted() {
        let error = run("ls", &["/there/is/no/such/place".as_ref()], patience()).unwrap_err();
        assert!(error.source.to_string().contains("No such file or directory"), "{error:?}");
        run("true", &[], patience()).unwrap();
    }

    #[test]
    fn the_output_of_a_program_is_returned_whole_or_refused() {
        let print = |bytes: &str| run("head", &["-c".as_ref(), bytes.as_ref(), "/dev/zero".as_ref()], patience());
        assert_eq!(run("printf", &["a\\tb\\n".as_ref()], patience()).unwrap(), b"a\tb\n");
        // More than a pipe holds, and exactly the limit.
        assert_eq!(print("16777216").unwrap().len(), MAX_OUTPUT);
        let refused = print("16777217").unwrap_err();
        assert!(refused.source.to_string().contains("more than 16777216 bytes"), "{refused:?}");
    }

    #[test]
    fn a_program_that_writes_without_end_is_killed_at_the_deadline() {
        let error = run("yes", &[], Duration::from_millis(100)).unwrap_err();
        assert_eq!(error.source.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_process_that_a_program_left_behind_is_not_waited_for() {
        let output = run("sh", &["-c".as_ref(), "sleep infinity & echo $!".as_ref()], patience()).unwrap();
        // It is there, so nobody has waited for its end.
        let pid = std::str::from_utf8(&output).unwrap().trim().parse().ok().and_then(Pid::from_raw).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
}
