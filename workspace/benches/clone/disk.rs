//! The Btrfs for the measurements, and the bare system calls.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use yoi_workspace::{DataRoot, Provider, ProviderKind, Uid, ensure_loop_btrfs};

/// A Btrfs in a file. It is removed when dropped, also by a panic.
pub struct Pool {
    at: PathBuf,
    root: Option<DataRoot>,
}

impl Pool {
    pub fn new(temp: &Path, name: &str) -> Self {
        let at = temp.join(name);
        ensure_loop_btrfs(&temp.join(name).with_extension("btrfs"), 8 << 30, &at).unwrap();
        // Only the loop device holds the file now, so its space comes back however this process ends.
        fs::remove_file(temp.join(name).with_extension("btrfs")).unwrap();
        let root = Some(DataRoot::open(&at).unwrap());
        Self { at, root }
    }

    pub fn root(&self) -> &DataRoot {
        self.root.as_ref().unwrap()
    }

    pub fn provider(&self) -> &dyn Provider {
        self.root().provider(ProviderKind::Btrfs).unwrap()
    }

    pub fn path(&self, uid: Uid) -> PathBuf {
        let tree = self.root().open_tree(uid).unwrap();
        fs::read_link(format!("/proc/self/fd/{}", tree.as_raw_fd())).unwrap()
    }

    pub fn folder(&self, name: &str) -> File {
        fs::create_dir(self.at.join(name)).unwrap();
        File::open(self.at.join(name)).unwrap()
    }

    pub fn sync(&self) {
        sync(&File::open(&self.at).unwrap());
    }

    /// Used bytes of the device.
    pub fn used(&self) -> u64 {
        rustix::fs::statvfs(&self.at).map(|v| (v.f_blocks - v.f_bfree) * v.f_frsize).unwrap()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.root = None;
        // Lazily, because a failure may leave descriptors open. The loop device goes with the last of them.
        _ = rustix::mount::unmount(&self.at, rustix::mount::UnmountFlags::DETACH);
    }
}

/// Writes all dirty data of the file system, commits, and wakes the cleaner of deleted subvolumes.
fn sync(any: &File) {
    const SYNC: u32 = 0x94 << 8 | 8;
    // SAFETY: SYNC takes no argument.
    let done = unsafe { libc::ioctl(any.as_raw_fd(), SYNC as _) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

/// Waits until the kernel has cleaned up every deleted snapshot (since 6.13; an older kernel does it in the background).
///
/// It polls the length of the queue, because the kernel's own wait (`FOR_QUEUED`) was seen to sleep on with an empty queue (6.18).
pub fn wait_for_the_cleaner(any: &File) {
    /// `struct btrfs_ioctl_subvol_wait`: a subvolume's id, what is asked, a count.
    #[repr(C)]
    struct Wait(u64, u32, u32);
    const SUBVOL_SYNC_WAIT: u32 = 1 << 30 | 16 << 16 | 0x94 << 8 | 65;
    const COUNT: u32 = 2;
    let begun = std::time::Instant::now();
    loop {
        sync(any);
        let mut queued = Wait(0, COUNT, 0);
        // SAFETY: SUBVOL_SYNC_WAIT reads and writes a btrfs_ioctl_subvol_wait.
        let asked = unsafe { libc::ioctl(any.as_raw_fd(), SUBVOL_SYNC_WAIT as _, &raw mut queued) };
        if asked != 0 || queued.2 == 0 {
            return;
        }
        assert!(begun.elapsed().as_secs() < 60, "{} deleted subvolumes are still there", queued.2);
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

/// Writes a file as the journal writes a record, without the journal.
pub fn one_flushed_file(dir: &Path, handle: &File, name: &str) {
    let temporary = dir.join(format!("{name}.tmp"));
    let mut file = File::create(&temporary).unwrap();
    file.write_all(&[b'x'; 200]).unwrap();
    file.sync_all().unwrap();
    fs::rename(temporary, dir.join(name)).unwrap();
    handle.sync_all().unwrap();
}

/// `struct btrfs_ioctl_vol_args_v2`.
#[repr(C)]
struct Args {
    fd: i64,
    other: [u64; 6],
    name: [u8; 4040],
}

fn args(fd: i64, name: &str) -> Args {
    let mut args = Args { fd, other: [0; 6], name: [0; 4040] };
    args.name[..name.len()].copy_from_slice(name.as_bytes());
    args
}

pub fn snapshot(source: &File, parent: &File, name: &str) {
    const SNAP_CREATE_V2: u32 = 1 << 30 | 4096 << 16 | 0x94 << 8 | 23;
    let mut args = args(source.as_raw_fd().into(), name);
    // SAFETY: SNAP_CREATE_V2 reads a btrfs_ioctl_vol_args_v2.
    let done = unsafe { libc::ioctl(parent.as_raw_fd(), SNAP_CREATE_V2 as _, &raw mut args) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

pub fn delete(parent: &File, name: &str) {
    const SNAP_DESTROY_V2: u32 = 1 << 30 | 4096 << 16 | 0x94 << 8 | 63;
    let mut args = args(0, name);
    // SAFETY: SNAP_DESTROY_V2 reads a btrfs_ioctl_vol_args_v2.
    let done = unsafe { libc::ioctl(parent.as_raw_fd(), SNAP_DESTROY_V2 as _, &raw mut args) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}
