//! What every case gets: a data root in its own directory, on the file system of its lane.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::lanes::{DiskKind, Lane, in_guest};
use crate::zfs_pool::{self, ZfsPool};
use rustix::fs::{IFlags, Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags};
use yoi_workspace::mount::{self, TargetRoot};
use yoi_workspace::plan::{self, Recovery, RecoveryStep};
use yoi_workspace::{
    DataRoot, FaultPoint, Faults, Journal, NoFaults, Owner, PlantedFault, Provider, ProviderKind, QuotaState, RootOptions, Uid, ZfsOptions,
    mountinfo,
};

/// The file system of a lane. It is unmounted and removed when dropped.
pub struct LaneFilesystem {
    pub lane: Lane,
    pub dir: PathBuf,
    pub enforces_quotas: bool,
    mounted: bool,
    /// Ends before its file is removed.
    pool: Option<ZfsPool>,
    temp: tempfile::TempDir,
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Enters a new mount namespace. Without it, another process that makes a namespace at the wrong moment copies our mounts, and keeps an
/// overlay in use that a case has unmounted. Call it before there is another thread.
///
/// The guest has nobody else's processes, and a kernel opens the files of a pool in the first mount namespace, whoever asks.
pub fn enter_mount_namespace() {
    use rustix::mount::{MountPropagationFlags, mount_change};
    if is_root() && !in_guest() {
        // SAFETY: the descriptors of this one thread are not shared in a way that a new mount namespace changes.
        unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }.unwrap();
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
    }
}

/// True if `cargo xtask test` has prepared the machine so that every case can run.
pub fn must_run() -> bool {
    std::env::var_os("YOI_MUST_RUN").is_some()
}

impl LaneFilesystem {
    pub fn prepare(lane: Lane) -> Result<Self, &'static str> {
        // In memory if possible, so that a flush does not wait for what other processes write to the disk.
        let temp = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        if is_root() {
            // Of this process's mount namespace, so that nothing is left of it if the process is killed.
            rustix::mount::mount("conformance", temp.path(), "tmpfs", MountFlags::empty(), None).unwrap();
        }
        let (dir, image) = (temp.path().join("filesystem"), temp.path().join("image"));
        let mounted = match lane.lack() {
            None => {
                lane.disk().make(&image, 1 << 30, &dir);
                true
            }
            Some(why) if lane != Lane::Copy || must_run() => return Err(why),
            Some(_) => {
                fs::create_dir(&dir).unwrap();
                false
            }
        };
        let first = dir.join("first");
        fs::create_dir(&first).unwrap();
        // The quotas of datasets are of another kind, and have cases of their own.
        let may_set_up = lane == Lane::Btrfs || (lane.disk() != DiskKind::Btrfs && lane.kind() != ProviderKind::Zfs);
        let enforces_quotas = may_set_up && DataRoot::open(&first).unwrap().set_up_quotas().unwrap() == QuotaState::Enforced;
        // A kernel that may be any has simple quotas of Btrfs; that of the guest is older, and has project quotas.
        let must_enforce =
            if in_guest() { lane.disk() != DiskKind::Btrfs && lane.kind() != ProviderKind::Zfs } else { lane == Lane::Btrfs };
        assert!(enforces_quotas || !must_enforce, "quotas are not enforced");
        MADE.lock().unwrap().clear();
        let pool = (lane == Lane::Zfs).then(|| ZfsPool::make(&temp.path().join("pool")));
        Ok(Self { lane, dir, enforces_quotas, mounted, pool, temp })
    }
}

pub fn run(program: &str, args: &[&Path]) {
    let out = Command::new(program).args(args).output().unwrap();
    assert!(out.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
}

impl Drop for LaneFilesystem {
    fn drop(&mut self) {
        drop(self.pool.take());
        if self.mounted {
            rustix::mount::unmount(&self.dir, UnmountFlags::empty()).unwrap();
        }
        if is_root() {
            // The kernel lets go of a loop device some time after it is unmounted.
            rustix::mount::unmount(self.temp.path(), UnmountFlags::DETACH).unwrap();
        }
    }
}

/// UIDs are used once in a file system, as the API server gives them: its project ids are computed from them, and trees of one UID find no more than 64.
static CASES: AtomicU64 = AtomicU64::new(0);
const UIDS_OF_A_CASE: u64 = 1 << 20;

/// The data root of one case.
pub struct Fixture {
    pub lane: Lane,
    pub dir: PathBuf,
    /// For disks of a case's own: beside the lane's file system, whose other cases may leave too little room in it.
    pub disks: PathBuf,
    pub enforces_quotas: bool,
    pub root: DataRoot,
    next: AtomicU64,
}

impl Fixture {
    pub fn new(filesystem: &LaneFilesystem, name: &str) -> Self {
        let dir = filesystem.dir.join(name.replace("::", "-"));
        fs::create_dir(&dir).unwrap();
        let (lane, root) = (filesystem.lane, open_root(filesystem.lane, &dir, Arc::new(NoFaults)));
        let enforces_quotas = filesystem.enforces_quotas;
        let disks = filesystem.temp.path().join(format!("disks-of-{name}"));
        let next = AtomicU64::new(1 + UIDS_OF_A_CASE * CASES.fetch_add(1, Ordering::Relaxed));
        Self { lane, enforces_quotas, root, dir, disks, next }
    }

    pub fn kind(&self) -> ProviderKind {
        self.lane.kind()
    }

    pub fn on_btrfs(&self) -> bool {
        self.lane.disk() == DiskKind::Btrfs
    }

    /// True if a tree that is not sealed can be cloned once nobody uses it.
    pub fn forks_at_rest(&self) -> bool {
        match self.kind() {
            ProviderKind::Zfs | ProviderKind::Btrfs | ProviderKind::Overlay => true,
            ProviderKind::Reflink | ProviderKind::Copy => false,
        }
    }

    /// True if a tree can be cloned while it is written.
    pub fn forks_live(&self) -> bool {
        match self.kind() {
            ProviderKind::Zfs | ProviderKind::Btrfs => true,
            ProviderKind::Overlay | ProviderKind::Reflink | ProviderKind::Copy => false,
        }
    }

    /// True if each tree is a mount of its own.
    fn is_mount(&self, uid: Uid) -> bool {
        self.kind() == ProviderKind::Zfs || self.root.marker(uid).unwrap().lower.is_some()
    }

    pub fn provider(&self) -> &dyn Provider {
        self.root.provider(self.kind()).unwrap()
    }

    /// Opens the same data root again, with fault injection.
    pub fn reopened(&self, faults: Arc<dyn Faults>) -> DataRoot {
        open_root(self.lane, &self.dir, faults)
    }

    pub fn sync(&self) {
        sync(&self.dir, self.on_btrfs());
        if self.kind() == ProviderKind::Zfs {
            zfs_pool::sync();
        }
    }

    pub fn uid(&self) -> Uid {
        nth_uid(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Where a test sees the tree. An overlay or dataset is mounted there, in its own entry, until it is destroyed or the test calls [`Self::rest`].
    pub fn path(&self, uid: Uid) -> PathBuf {
        let entry = self.entry(uid);
        let below = self.root.marker(uid).unwrap().below;
        if self.is_mount(uid) {
            let tree = self.provider().open_for_mount(uid).unwrap();
            mount::bind_tree(tree, &TargetRoot::open(&entry).unwrap(), Path::new("tree"), false).unwrap();
        }
        // A mount shows only the folder that is the tree.
        if self.is_mount(uid) || below.as_os_str().is_empty() { entry.join("tree") } else { entry.join("tree").join(below) }
    }

    pub fn entry(&self, uid: Uid) -> PathBuf {
        self.dir.join("trees").join(uid.shard()).join(uid.to_string())
    }

    /// Ends what [`Self::path`] mounted, as the end of a Pod does.
    pub fn rest(&self, uid: Uid) {
        if self.is_mount(uid) {
            mount::unbind(&TargetRoot::open(&self.entry(uid)).unwrap(), Path::new("tree")).unwrap();
        }
    }

    /// Makes an empty tree.
    pub fn empty(&self) -> (Uid, PathBuf) {
        let uid = self.uid();
        self.provider().create_empty(uid, current_owner()).unwrap();
        (uid, self.path(uid))
    }

    /// Makes a sealed base: a small git repository with staged, unstaged, untracked and ignored files.
    pub fn base(&self) -> (Uid, PathBuf) {
        let (uid, path) = self.empty();
        fill_repository(&path);
        self.provider().seal(uid).unwrap();
        (uid, path)
    }

    pub fn clone_of(&self, from: Uid) -> (Uid, PathBuf) {
        let uid = self.uid();
        self.provider().clone_tree(uid, from, yoi_workspace::CloneAccess::ReadWrite).unwrap();
        (uid, self.path(uid))
    }

    /// Checks that the data root holds the given trees and nothing else.
    pub fn assert_only(&self, expected: &[Uid]) {
        let found = self.root.inventory().unwrap();
        assert_eq!(found.foreign, Vec::<String>::new());
        let names: Vec<_> = found.entries.iter().map(|e| (e.uid, e.location)).collect();
        let mut expected: Vec<_> = expected.iter().map(|uid| (*uid, yoi_workspace::EntryLocation::Live)).collect();
        expected.sort();
        assert_eq!(names, expected);
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        unmount_below(&self.dir);
        if self.kind() == ProviderKind::Zfs {
            // What the case left in the pool.
            zfs_pool::destroy_all(&dataset_of(&self.dir));
        }
    }
}

/// Opens a data root of a lane.
pub fn open_root(lane: Lane, dir: &Path, faults: Arc<dyn Faults>) -> DataRoot {
    let zfs = (lane.kind() == ProviderKind::Zfs).then(|| ZfsOptions::new(parent_dataset(dir).parse().unwrap()));
    DataRoot::open_with(dir, RootOptions { zfs, faults, ..RootOptions::default() }).unwrap()
}

/// The name of the parent dataset of a data root: as its path in the lane's file system.
pub fn dataset_of(dir: &Path) -> String {
    let names: Vec<_> = dir.iter().map(|name| name.to_str().unwrap()).skip_while(|name| *name != "filesystem").skip(1).collect();
    format!("{}/{}", zfs_pool::POOL, names.join("/"))
}

/// The parent datasets of data roots that are in the pool.
static MADE: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Makes the parent dataset of a data root, if it is not there.
fn parent_dataset(dir: &Path) -> String {
    let name = dataset_of(dir);
    if MADE.lock().unwrap().insert(name.clone()) {
        zfs_pool::zfs(&["create", "-o", "mountpoint=none", &name]);
    }
    name
}

/// Unmounts everything below a directory.
pub fn unmount_below(dir: &Path) {
    for mount in mountinfo::read().unwrap().iter().rev().filter(|m| m.mount_point.starts_with(dir) && m.mount_point != dir) {
        _ = rustix::mount::unmount(&mount.mount_point, UnmountFlags::DETACH);
    }
}

/// The content of a file of a tree, read through the tree's descriptor. None if it is not there.
pub fn read_in(root: &DataRoot, uid: Uid, name: &str) -> Option<String> {
    let tree = root.open_tree(uid).unwrap();
    fs::read_to_string(format!("/proc/self/fd/{}/{name}", tree.as_raw_fd())).ok()
}

/// Writes a file into a tree, through the tree's descriptor.
pub fn write_in(root: &DataRoot, uid: Uid, name: &str, bytes: &[u8]) {
    let tree = root.open_tree(uid).unwrap();
    fs::write(format!("/proc/self/fd/{}/{name}", tree.as_raw_fd()), bytes).unwrap();
}

/// Faults that are only this one.
pub fn planted(fault: PlantedFault) -> Arc<dyn Faults> {
    struct Planted(PlantedFault);
    impl Faults for Planted {
        fn on_point(&self, _: FaultPoint) {}
        fn has(&self, fault: PlantedFault) -> bool {
            fault == self.0
        }
    }
    Arc::new(Planted(fault))
}

/// Writes all dirty data of the file system to the device. On Btrfs it also wakes the cleaner of deleted subvolumes.
pub fn sync(at: &Path, is_btrfs: bool) {
    match is_btrfs {
        true => run("btrfs", &["filesystem".as_ref(), "sync".as_ref(), at]),
        false => rustix::fs::syncfs(fs::File::open(at).unwrap()).unwrap(),
    }
}

/// Plans a recovery and does every step. The plan is returned.
pub fn recover(root: &DataRoot, journal: &Journal) -> Recovery {
    let plan = plan::recover(&journal.read_and_clean().unwrap(), &root.inventory().unwrap());
    for step in &plan.steps {
        match step {
            RecoveryStep::Disk(step) => root.perform(step).unwrap(),
            RecoveryStep::Journal(step) => journal.apply(step).unwrap(),
        }
    }
    plan
}

/// True if disk and journal agree and there is nothing to report.
pub fn nothing_to_do(plan: &Recovery) -> bool {
    let Recovery { steps, orphans, lost, foreign, unknown } = plan;
    steps.is_empty() && orphans.is_empty() && lost.is_empty() && foreign.is_empty() && unknown.is_empty()
}

pub fn nth_uid(n: u64) -> Uid {
    let mut bytes = *b"\x01\x98\xf0\xaa\x5b\x1c\x7d\x2e\x8f\0\0\0\0\0\0\0";
    bytes[8..].copy_from_slice(&n.to_be_bytes());
    Uid::from_bytes(bytes)
}

pub fn current_owner() -> Owner {
    Owner { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
}

pub fn git(at: &Path, args: &[&str]) -> String {
    let out = Command::new("git")
        .current_dir(at)
        .args(["-c", "user.name=t", "-c", "user.email=t@t", "-c", "safe.directory=*", "-c", "init.defaultBranch=main"])
        .args(args)
        .output()
        .expect("git is needed by this suite");
    assert!(out.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

pub fn fill_repository(at: &Path) {
    fs::create_dir_all(at.join("src/deep/er")).unwrap();
    fs::write(at.join(".gitignore"), "target/\n").unwrap();
    for n in 0..40 {
        fs::write(at.join(format!("src/file{n}.rs")), format!("fn f{n}() {{}}\n").repeat(50)).unwrap();
    }
    fs::write(at.join("src/deep/er/still.rs"), "// still\n").unwrap();
    std::os::unix::fs::symlink("file1.rs", at.join("src/link.rs")).unwrap();
    git(at, &["init", "-q"]);
    git(at, &["add", "."]);
    git(at, &["commit", "-q", "-m", "one"]);
    fs::create_dir(at.join("target")).unwrap();
    fs::write(at.join("target/ignored.bin"), vec![7u8; 3 << 20]).unwrap();
    fs::write(at.join("src/file2.rs"), "staged\n").unwrap();
    git(at, &["add", "src/file2.rs"]);
    fs::write(at.join("src/file3.rs"), "unstaged\n").unwrap();
    fs::write(at.join("untracked.txt"), "untracked\n").unwrap();
}

/// Every path below `at` with mode and content, but without times.
pub fn content(at: &Path) -> Vec<(PathBuf, u32, Vec<u8>)> {
    fn descend(at: &Path, below: &Path, out: &mut Vec<(PathBuf, u32, Vec<u8>)>) {
        use std::os::unix::fs::MetadataExt;
        for entry in fs::read_dir(at.join(below)).unwrap() {
            let path = below.join(entry.unwrap().file_name());
            let meta = fs::symlink_metadata(at.join(&path)).unwrap();
            let bytes = if meta.is_file() {
                fs::read(at.join(&path)).unwrap()
            } else if meta.is_symlink() {
                fs::read_link(at.join(&path)).unwrap().as_os_str().as_bytes().to_vec()
            } else {
                Vec::new()
            };
            out.push((path.clone(), meta.mode(), bytes));
            if meta.is_dir() {
                descend(at, &path, out);
            }
        }
    }
    let mut out = Vec::new();
    descend(at, Path::new(""), &mut out);
    out.sort();
    out
}

/// Makes a subvolume, as an agent can.
pub fn make_subvolume(path: &Path) {
    #[repr(C)]
    struct Args {
        fd: i64,
        name: [u8; 4088],
    }
    const SUBVOL_CREATE: u32 = 1 << 30 | 4096 << 16 | 0x94 << 8 | 14;
    let parent = fs::File::open(path.parent().unwrap()).unwrap();
    let mut args = Args { fd: 0, name: [0; 4088] };
    let name = path.file_name().unwrap().as_bytes();
    args.name[..name.len()].copy_from_slice(name);
    // SAFETY: SUBVOL_CREATE reads a btrfs_ioctl_vol_args.
    let done = unsafe { libc::ioctl(parent.as_raw_fd(), SUBVOL_CREATE as _, &mut args) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

pub fn set_read_only(subvolume: &Path) {
    const SUBVOL_SETFLAGS: u32 = 1 << 30 | 8 << 16 | 0x94 << 8 | 26;
    let dir = fs::File::open(subvolume).unwrap();
    let mut flags = 2u64;
    // SAFETY: SUBVOL_SETFLAGS reads a u64.
    let done = unsafe { libc::ioctl(dir.as_raw_fd(), SUBVOL_SETFLAGS as _, &mut flags) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

/// False where the file system has no such flag.
pub fn set_immutable(path: &Path) -> bool {
    let file = rustix::fs::open(path, OFlags::RDONLY, Mode::empty()).unwrap();
    let flags = rustix::fs::ioctl_getflags(file.as_fd());
    flags.is_ok_and(|flags| rustix::fs::ioctl_setflags(&file, flags | IFlags::IMMUTABLE).is_ok())
}

/// Tells a thread to end, also when an assertion fails; else the thread's scope would wait for ever.
pub struct StopOnDrop<'a>(pub &'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Ends the case with `Lacks` unless it runs as root.
macro_rules! needs_root {
    () => {
        if !$crate::fixture::is_root() {
            return $crate::Verdict::Lacks("needs root to mount");
        }
    };
}
pub(crate) use needs_root;
