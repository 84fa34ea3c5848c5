//! Makes the n-th disk operation of some code fail. The kernel asks a second thread before each system call of the first (seccomp user
//! notification), so the code under test needs no hooks.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, sync_channel};

/// How an operation fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It fails with this error and does nothing. Later operations are done.
    Once(i32),
    /// It and all later operations fail and do nothing: to the disk, the process died before it.
    Death,
}

/// Which operations are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// Also those that only read.
    All,
    /// Those that can change a disk.
    Changes,
}

/// How the code ended.
pub struct Run<T> {
    /// None if it panicked.
    pub answer: Option<T>,
    /// The system call that failed; None if the code ended before it.
    pub failed_call: Option<&'static str>,
    /// Number of operations that were counted.
    #[allow(dead_code, reason = "the tests of the shim, which have this file too, only look at what failed")]
    pub operations: usize,
    /// Number of operations that can change a disk and were done.
    pub changed: usize,
}

/// Runs `act` in its own thread, and makes its n-th operation fail, counted from 1.
pub fn run_with_fault<T: Send>(counted: Counted, nth: usize, fault: Fault, act: impl FnOnce() -> T + Send) -> io::Result<Run<T>> {
    let (tell, told) = sync_channel::<io::Result<RawFd>>(0);
    let (go, gone) = sync_channel::<()>(0);
    std::thread::scope(|scope| {
        let worker = scope.spawn(move || {
            let listener = install();
            let fails = listener.is_err();
            _ = tell.send(listener);
            // The watching thread must be ready before the first call waits for it.
            if fails || gone.recv().is_err() {
                return None;
            }
            catch_unwind(AssertUnwindSafe(act)).ok()
        });
        let listener = listener(&told)?;
        _ = go.send(());
        let run = watch(&listener, counted, nth, fault)?;
        Ok(Run { answer: worker.join().unwrap_or(None), ..run })
    })
}

fn listener(told: &Receiver<io::Result<RawFd>>) -> io::Result<OwnedFd> {
    let fd = told.recv().map_err(io::Error::other)??;
    // SAFETY: the kernel just gave it to the worker, who gave it to us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `struct seccomp_notif`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Question {
    id: u64,
    pid: u32,
    flags: u32,
    number: i32,
    arch: u32,
    instruction: u64,
    args: [u64; 6],
}

/// `struct seccomp_notif_resp`.
#[repr(C)]
struct Verdict {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

const RECV: u64 = 0xc050_2100;
const SEND: u64 = 0xc018_2101;
const SET_FLAGS: u64 = 0x4008_2104;
const CONTINUE: u32 = 1;
const _: () = assert!(size_of::<Question>() == 80 && size_of::<Verdict>() == 24);

/// The answer of the code is left open.
fn watch<T>(listener: &OwnedFd, counted: Counted, nth: usize, fault: Fault) -> io::Result<Run<T>> {
    // The two threads take turns, so the kernel may hand the core over (since 6.6; without it this is only slower).
    // SAFETY: SET_FLAGS takes a number.
    unsafe { libc::ioctl(listener.as_raw_fd(), SET_FLAGS as _, 1u64) };
    let (mut failed_call, mut operations, mut changed) = (None, 0, 0);
    loop {
        let mut poll = libc::pollfd { fd: listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd, alive through the call.
        if unsafe { libc::poll(&raw mut poll, 1, -1) } < 0 {
            match io::Error::last_os_error() {
                e if e.kind() == io::ErrorKind::Interrupted => continue,
                e => return Err(e),
            }
        }
        if poll.revents & libc::POLLIN == 0 {
            // Every thread with the filter has ended.
            return Ok(Run { answer: None, failed_call, operations, changed });
        }
        // SAFETY: all fields are plain numbers, and RECV wants them zero.
        let mut asked: Question = unsafe { std::mem::zeroed() };
        // SAFETY: RECV writes a seccomp_notif.
        if unsafe { libc::ioctl(listener.as_raw_fd(), RECV as _, &raw mut asked) } < 0 {
            match io::Error::last_os_error() {
                e if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => continue,
                e => return Err(e),
            }
        }
        if is_no_file(&asked) {
            answer(listener, &Verdict { id: asked.id, value: 0, error: 0, flags: CONTINUE })?;
            continue;
        }
        let (mut error, changing) = (None, changes(&asked));
        if counted == Counted::All || changing {
            operations += 1;
            error = match fault {
                Fault::Once(errno) => (operations == nth).then_some(errno),
                Fault::Death => (operations >= nth).then_some(libc::EIO),
            };
        }
        changed += usize::from(changing && error.is_none());
        if error.is_some() && failed_call.is_none() {
            failed_call = Some(name(asked.number));
        }
        let verdict = match error {
            Some(errno) => Verdict { id: asked.id, value: 0, error: -errno, flags: 0 },
            None => Verdict { id: asked.id, value: 0, error: 0, flags: CONTINUE },
        };
        answer(listener, &verdict)?;
    }
}

fn answer(listener: &OwnedFd, verdict: &Verdict) -> io::Result<()> {
    // SAFETY: SEND reads a seccomp_notif_resp.
    match unsafe { libc::ioctl(listener.as_raw_fd(), SEND as _, std::ptr::from_ref(verdict)) } {
        -1 => match io::Error::last_os_error() {
            // A signal interrupted the call; the kernel asks again.
            e if e.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            e => Err(e),
        },
        _ => Ok(()),
    }
}

/// True for reads and writes of pipes, sockets and the like. The caller is a thread of this process, so its descriptors are ours.
fn is_no_file(asked: &Question) -> bool {
    matches!(libc::c_long::from(asked.number), libc::SYS_read | libc::SYS_write)
        && std::fs::read_link(format!("/proc/self/fd/{}", asked.args[0])).is_ok_and(|at| !at.starts_with("/"))
}

macro_rules! calls {
    ($($(#[$attribute:meta])* $name:ident $changes:literal,)+) => {
        /// Number, name, and whether it can change a disk.
        const CALLS: &[(libc::c_long, &str, bool)] = &[$($(#[$attribute])* (libc::$name, stringify!($name), $changes),)+];
    };
}

calls! {
    SYS_openat true,
    SYS_openat2 false,
    SYS_getdents64 false,
    SYS_newfstatat false,
    SYS_fstat false,
    SYS_statx false,
    SYS_fstatfs false,
    SYS_readlinkat false,
    SYS_read false,
    SYS_pread64 false,
    SYS_lseek false,
    SYS_fgetxattr false,
    SYS_flistxattr false,
    SYS_write true,
    SYS_pwrite64 true,
    SYS_ioctl true,
    SYS_mkdirat true,
    SYS_mknodat true,
    SYS_symlinkat true,
    SYS_linkat true,
    SYS_unlinkat true,
    SYS_renameat2 true,
    SYS_fchmod true,
    SYS_fchmodat true,
    SYS_fchown true,
    SYS_fchownat true,
    SYS_utimensat true,
    SYS_fsetxattr true,
    SYS_ftruncate true,
    SYS_copy_file_range true,
    SYS_fsync true,
    SYS_fdatasync true,
    SYS_syncfs true,
    SYS_open_tree false,
    SYS_fsopen false,
    SYS_fsconfig true,
    SYS_fsmount false,
    SYS_setns false,
    SYS_unshare false,
    SYS_pivot_root false,
    SYS_lgetxattr false,
    SYS_llistxattr false,
    SYS_lsetxattr true,
    SYS_open_by_handle_at false,
    SYS_mount_setattr false,
    SYS_move_mount true,
    SYS_mount true,
    SYS_umount2 true,
    #[cfg(target_arch = "x86_64")] SYS_open true,
    #[cfg(target_arch = "x86_64")] SYS_stat false,
    #[cfg(target_arch = "x86_64")] SYS_lstat false,
    #[cfg(target_arch = "x86_64")] SYS_readlink false,
    #[cfg(target_arch = "x86_64")] SYS_mkdir true,
    #[cfg(target_arch = "x86_64")] SYS_rmdir true,
    #[cfg(target_arch = "x86_64")] SYS_unlink true,
    #[cfg(target_arch = "x86_64")] SYS_symlink true,
    #[cfg(target_arch = "x86_64")] SYS_link true,
    #[cfg(target_arch = "x86_64")] SYS_rename true,
    SYS_renameat true,
    #[cfg(target_arch = "x86_64")] SYS_chmod true,
    #[cfg(target_arch = "x86_64")] SYS_chown true,
}

fn name(number: i32) -> &'static str {
    CALLS.iter().find(|(n, ..)| *n == libc::c_long::from(number)).map_or("another", |(_, name, _)| &name[4..])
}

const FSCONFIG_CMD_CREATE: u64 = 6;

/// True if this call can change a disk.
fn changes(asked: &Question) -> bool {
    let number = libc::c_long::from(asked.number);
    let flags = |at: usize| asked.args[at] as i32 & (libc::O_CREAT | libc::O_TRUNC) != 0;
    match number {
        libc::SYS_openat => flags(2),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open => flags(1),
        // The Btrfs ioctls (create, snapshot, delete, read-only, sync), FICLONE, and flags of files.
        libc::SYS_ioctl => match asked.args[1] as u32 {
            0x4008_6602 => true,
            code => code >> 8 & 0xff == 0x94 && matches!(code & 0xff, 8 | 9 | 14 | 15 | 23 | 24 | 26 | 63),
        },
        // An overlay writes to its layers when it is made; the options before only name them.
        libc::SYS_fsconfig => asked.args[1] == FSCONFIG_CMD_CREATE,
        _ => CALLS.iter().any(|(n, _, changes)| *n == number && *changes),
    }
}

/// Installs the filter for this thread and the threads that it starts.
fn install() -> io::Result<RawFd> {
    const ALLOW: u32 = 0x7fff_0000;
    const NOTIFY: u32 = 0x7fc0_0000;
    let op = |code: u32, jt: usize, jf: usize, k: u32| libc::sock_filter { code: code as u16, jt: jt as u8, jf: jf as u8, k };
    let load = |offset| op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset);
    let equal = |k, jt, jf| op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, jt, jf, k);
    let answer = |k| op(libc::BPF_RET | libc::BPF_K, 0, 0, k);
    let mut program = vec![load(0)];
    for (at, (number, name, _)) in CALLS.iter().enumerate() {
        let left = CALLS.len() - 1 - at;
        // Jumps to the last part: allow, the check of the descriptor, notify.
        program.push(equal(*number as u32, if *name == "SYS_write" { left + 1 } else { left + 3 }, 0));
    }
    program.push(answer(ALLOW));
    // Output for people is not on the disk: writes to descriptors 0 to 2 are always allowed.
    program.push(load(16));
    program.push(op(libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K, 0, 1, 2));
    program.push(answer(NOTIFY));
    program.push(answer(ALLOW));
    let fprog = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: plain numbers; of this thread only.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the program lives through the call, which copies it. 1 is SECCOMP_SET_MODE_FILTER, 8 asks for a listener.
    match unsafe { libc::syscall(libc::SYS_seccomp, 1, 8, &raw const fprog) } {
        -1 => Err(io::Error::last_os_error()),
        fd => Ok(fd as RawFd),
    }
}
