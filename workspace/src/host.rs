//! Other programs and system calls that no crate wraps.
#![expect(clippy::disallowed_types, reason = "this file is the one that starts programs")]

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags};

use crate::SysError;
use crate::error::StepContext;

/// Runs a program to its end in a clean environment with `LC_ALL=C`; kills it at the deadline. Any end but success is an error that
/// carries what it wrote to stderr.
pub(crate) fn run(program: &str, args: &[&OsStr], deadline: Duration) -> Result<(), SysError> {
    let mut child = Command::new(program)
        .args(args)
        .env_clear()
        .env("LC_ALL", "C")
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .step("start a program")?;
    let ended = wait_exit(&child, deadline);
    if !matches!(ended, Ok(true)) {
        let _ = child.kill();
    }
    let status = child.wait().step("wait for a program")?;
    if !ended? {
        return Err(io::Error::new(io::ErrorKind::TimedOut, format!("{program} took longer than {deadline:?}"))).step("run a program");
    }
    if status.success() {
        return Ok(());
    }
    let mut stderr_text = String::new();
    if let Some(stderr) = child.stderr.take() {
        // The text is an extra: the exit status says whether it failed.
        let _ = stderr.take(2000).read_to_string(&mut stderr_text);
    }
    Err(io::Error::other(format!("{program}: {status}: {}", stderr_text.trim()))).step("run a program")
}

/// Waits for the child to end. False at the deadline.
fn wait_exit(child: &std::process::Child, deadline: Duration) -> Result<bool, SysError> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::other("the program has no process id")).step("watch a program")?;
    let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).step("watch a program")?;
    let mut poll = libc::pollfd { fd: pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let millis = i32::try_from(deadline.as_millis()).unwrap_or(i32::MAX);
    loop {
        // SAFETY: one pollfd, alive through the call.
        match unsafe { libc::poll(&mut poll, 1, millis) } {
            // A signal to this process does not end the wait. Signals are few, so the deadline may start again.
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            -1 => return Err(io::Error::last_os_error()).step("watch a program"),
            n => return Ok(n > 0),
        }
    }
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

/// Makes a detached mount private, nosuid, nodev and, if asked, read-only.
pub(crate) fn harden_mount(mount: impl AsFd, read_only: bool) -> io::Result<()> {
    let read_only = if read_only { MOUNT_ATTR_RDONLY } else { 0 };
    let attr = MountAttr {
        attr_set: MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | read_only,
        attr_clr: 0,
        // A mount made later in the data root must not appear in a Pod, nor one made in a Pod in the data root.
        propagation: libc::MS_PRIVATE,
        userns_fd: 0,
    };
    mount_setattr(mount.as_fd().as_raw_fd(), &attr)
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

fn mount_setattr(fd: i32, attr: &MountAttr) -> io::Result<()> {
    // SAFETY: the path is a C string and the structure is as long as we say.
    let done = unsafe {
        libc::syscall(libc::SYS_mount_setattr, fd, c"".as_ptr(), libc::AT_EMPTY_PATH, std::ptr::from_ref(attr), size_of::<MountAttr>())
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_hangs_is_killed_at_the_deadline() {
        let error = run("sleep", &["60".as_ref()], Duration::from_millis(20)).unwrap_err();
        assert_eq!(error.source.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_program_that_fails_is_quoted() {
        let error = run("ls", &["/there/is/no/such/place".as_ref()], Duration::from_secs(10)).unwrap_err();
        assert!(error.source.to_string().contains("No such file or directory"), "{error:?}");
        run("true", &[], Duration::from_secs(10)).unwrap();
    }
}
