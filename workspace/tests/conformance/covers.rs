//! Covers: read-only mounts over a path of a tree that a Pod has mounted with `HostToContainer`. What they hold, and what they do not; decision 0011 says
//! what follows. Here they are laid by hand; `views.rs` has what the mounter lays.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, open, openat};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, MoveMountFlags, UnmountFlags, mount_change, unmount};
use yoi_workspace::mount::{self, BindOutcome, MountError, TargetRoot, unbind};
use yoi_workspace::{Uid, mountinfo};

use crate::covers_pod::{Pod, clone_private, enter_landlock, map_shared};
use crate::fixture::{Fixture, needs_root};
use crate::{Case, Verdict};

pub const CASES: &[Case] = &[
    ("a_cover_reaches_a_running_pod_holds_and_goes_again", reaches),
    ("a_cover_that_the_mounters_container_lays_reaches_the_pod_by_way_of_the_node", laid_in_a_container),
    ("a_cover_reaches_a_pod_with_a_user_namespace_and_stays_read_only_there", user_namespace),
    ("who_had_something_open_below_a_cover_before_it_writes_on", earlier_holders),
    ("a_cover_that_is_in_use_goes_only_lazily_and_its_users_stay_read_only", in_use),
    ("a_folder_above_a_cover_can_be_renamed_unless_it_is_covered_too", renamed_above),
    ("the_kernel_says_whether_anybody_holds_a_path_that_is_a_mount_of_its_own", own_mount),
    ("a_process_in_landlock_sees_a_cover_and_takes_none_off", landlocked),
];

/// What is covered in these cases. Its file `f` is also `outside`.
pub const LENT: &str = "src/deep";

/// A tree that is published as on a node: its data root is shared with the host, and so is the kubelet's folder.
pub struct Published {
    pub tree: Uid,
    data_root: PathBuf,
    pub in_data_root: PathBuf,
    /// The kubelet's folder.
    pub root: TargetRoot,
    pub at: PathBuf,
}

impl Published {
    pub fn new(fixture: &Fixture) -> Self {
        let data_root = fixture.dir.parent().unwrap().to_owned();
        mount_change(&data_root, MountPropagationFlags::SHARED).unwrap();
        let (base, _) = fixture.base();
        let (clone, in_data_root) = fixture.clone_of(base);
        fs::write(in_data_root.join(LENT).join("f"), "first").unwrap();
        fs::hard_link(in_data_root.join(LENT).join("f"), in_data_root.join("outside")).unwrap();
        let kubelet = fixture.dir.join("kubelet");
        fs::create_dir(&kubelet).unwrap();
        rustix::mount::mount_bind(&kubelet, &kubelet).unwrap();
        // A group of its own, not that of the data root.
        for change in [MountPropagationFlags::PRIVATE, MountPropagationFlags::SHARED] {
            mount_change(&kubelet, change).unwrap();
        }
        let root = TargetRoot::open(&kubelet).unwrap();
        let published = Self { tree: clone, data_root, in_data_root, root, at: kubelet.join("mount") };
        published.publish(fixture, clone);
        published
    }

    fn publish(&self, fixture: &Fixture, tree: Uid) {
        fixture.root.publish(tree, &self.root, Path::new("mount"), false).unwrap();
    }

    fn cover(&self) {
        assert_eq!(lay(&self.at, LENT, true), BindOutcome::Mounted);
    }

    fn uncover(&self, path: &str) {
        take_off(&self.at, path);
    }

    pub fn mounts_of(&self, path: &str) -> usize {
        let at = self.at.join(path);
        mountinfo::read().unwrap().iter().filter(|mount| mount.mount_point == at).count()
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        _ = mount_change(&self.data_root, MountPropagationFlags::PRIVATE);
    }
}

/// Lays a mount of a path of the tree at `at` over itself.
fn lay(at: &Path, path: &str, read_only: bool) -> BindOutcome {
    let dir = open(at.join(path), OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    mount::bind(dir.as_fd(), &TargetRoot::open(at).unwrap(), Path::new(path), read_only).unwrap()
}

fn attach(mount: &OwnedFd, at: &Path) {
    rustix::mount::move_mount(mount, c"", CWD, at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).unwrap();
}

fn take_off(at: &Path, path: &str) {
    unmount(at.join(path), UnmountFlags::DETACH | UnmountFlags::NOFOLLOW).unwrap();
}

pub fn create(path: impl AsRef<Path>) -> Result<(), Errno> {
    open(path.as_ref(), OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR).map(drop)
}

pub fn write(path: impl AsRef<Path>) -> Result<(), Errno> {
    open(path.as_ref(), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).map(drop)
}

/// The path of a descriptor by which it is opened again.
fn by_fd(fd: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", fd.as_raw_fd()).into()
}

fn reaches(fixture: &Fixture) -> Verdict {
    needs_root!();
    let tree = Published::new(fixture);
    let of_tree = mountinfo::read().unwrap().into_iter().find(|mount| mount.mount_point == tree.at).unwrap();
    assert!(of_tree.shared, "what is mounted in a shared folder is shared, in a group of its own");
    let pod = Pod::start(&tree.at, &fixture.dir.join("container"));
    pod.run(|at| create(at.join(LENT).join("before")).unwrap());

    tree.cover();
    assert_eq!(lay(&tree.at, LENT, true), BindOutcome::AlreadyMounted);
    assert_eq!(tree.mounts_of(LENT), 1);
    pod.run(|at| {
        let lent = at.join(LENT);
        assert_eq!(create(lent.join("new")), Err(Errno::ROFS));
        assert_eq!(write(lent.join("f")), Err(Errno::ROFS));
        assert_eq!(rustix::fs::unlink(lent.join("f")), Err(Errno::ROFS));
        assert_eq!(rustix::fs::chmod(&lent, Mode::RWXU), Err(Errno::ROFS));
        assert_eq!(rustix::fs::rename(&lent, at.join("src/other")), Err(Errno::BUSY));
        assert_eq!(rustix::fs::rmdir(&lent), Err(Errno::BUSY));
        create(at.join("src/beside")).unwrap();
        // Into it, out of it, and a second name outside.
        assert_eq!(rustix::fs::rename(at.join("src/beside"), lent.join("beside")), Err(Errno::XDEV));
        assert_eq!(rustix::fs::rename(lent.join("f"), at.join("src/f")), Err(Errno::XDEV));
        assert_eq!(rustix::fs::link(lent.join("f"), at.join("src/f")), Err(Errno::XDEV));
        assert_eq!(fs::read_to_string(lent.join("f")).unwrap(), "first");
    });
    // A Pod that starts later sees it, too.
    let later = Pod::start(&tree.at, &fixture.dir.join("later"));
    later.run(|at| assert_eq!(create(at.join(LENT).join("new")), Err(Errno::ROFS)));
    // The data root does not, and what is mounted there is not seen here.
    create(tree.in_data_root.join(LENT).join("by-another-pod")).unwrap();
    rustix::mount::mount_bind(tree.in_data_root.join("target"), tree.in_data_root.join("src")).unwrap();
    pod.run(|at| assert!(at.join("src/beside").exists()));
    unmount(tree.in_data_root.join("src"), UnmountFlags::empty()).unwrap();
    assert_eq!(rustix::mount::mount_move(tree.at.join(LENT), tree.at.join("target")), Err(Errno::INVAL), "none moves below a shared mount");

    tree.uncover(LENT);
    for pod in [&pod, &later] {
        pod.run(|at| create(at.join(LENT).join("after")).unwrap());
    }
    // What is hidden is covered by an empty folder.
    let empty = fixture.dir.join("empty");
    fs::create_dir(&empty).unwrap();
    let nothing = fs::File::open(&empty).unwrap();
    mount::bind(nothing.as_fd(), &TargetRoot::open(&tree.at).unwrap(), Path::new(LENT), true).unwrap();
    pod.run(|at| {
        assert_eq!(fs::read_dir(at.join(LENT)).unwrap().count(), 0);
        assert_eq!(create(at.join(LENT).join("new")), Err(Errno::ROFS));
    });
    // The end of the Pod cannot take the tree away under a cover.
    drop((pod, later));
    assert!(matches!(unbind(&tree.root, Path::new("mount")), Err(MountError::Busy { .. })));
    tree.uncover(LENT);
    unbind(&tree.root, Path::new("mount")).unwrap();
    Verdict::Ran
}

fn laid_in_a_container(fixture: &Fixture) -> Verdict {
    needs_root!();
    let tree = Published::new(fixture);
    let pod = Pod::start(&tree.at, &fixture.dir.join("container"));
    let mounter = Pod::with_peers(&tree.at);
    // By hand: `bind` reads the mount table of the process, which is that of its first thread.
    mounter.run(|at| attach(&clone_private(&at.join(LENT), true), &at.join(LENT)));
    assert_eq!(tree.mounts_of(LENT), 1);
    pod.run(|at| assert_eq!(create(at.join(LENT).join("new")), Err(Errno::ROFS)));
    // It ends, and the cover stays; the next one takes it off.
    drop(mounter);
    pod.run(|at| assert_eq!(create(at.join(LENT).join("new")), Err(Errno::ROFS)));
    assert_eq!(lay(&tree.at, LENT, true), BindOutcome::AlreadyMounted);
    Pod::with_peers(&tree.at).run(|at| take_off(at, LENT));
    assert_eq!(tree.mounts_of(LENT), 0);
    pod.run(|at| create(at.join(LENT).join("new")).unwrap());
    Verdict::Ran
}

fn user_namespace(fixture: &Fixture) -> Verdict {
    needs_root!();
    let tree = Published::new(fixture);
    let container = fixture.dir.join("container");
    fs::create_dir(&container).unwrap();
    let script = "mount --rbind \"$1\" \"$2\" && mount --make-rslave \"$2\" && cd \"$2\" && echo ready && read go || exit 1
        (echo x >src/deep/new) 2>/dev/null && echo written || echo refused
        mount -o remount,bind,rw src/deep 2>/dev/null
        (echo x >src/deep/new) 2>/dev/null && echo written || echo locked
        read go && (echo x >src/deep/new) 2>/dev/null && echo written";
    let mut pod = crate::covers_pod::Script::start(script, &[&tree.at, &container]);
    assert_eq!(pod.line(), "ready");
    tree.cover();
    pod.go();
    assert_eq!((pod.line(), pod.line()), ("refused".to_owned(), "locked".to_owned()));
    tree.uncover(LENT);
    pod.go();
    assert_eq!(pod.line(), "written");
    Verdict::Ran
}

fn earlier_holders(fixture: &Fixture) -> Verdict {
    needs_root!();
    let tree = Published::new(fixture);
    let pod = Pod::start(&tree.at, &fixture.dir.join("container"));
    let (writer, reader, folder, mut mapped) = pod.run(|at| {
        let lent = at.join(LENT);
        let writer = open(lent.join("f"), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let reader = open(lent.join("f"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let folder = open(&lent, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let mapped = map_shared(&writer);
        rustix::process::chdir(&lent).unwrap();
        (writer, reader, folder, mapped)
    });
    // A process that made its mounts private: only one with CAP_SYS_ADMIN over them can.
    let private = Pod::start(&tree.at, &fixture.dir.join("private"));
    private.run(|at| mount_change(at, MountPropagationFlags::PRIVATE).unwrap());

    tree.cover();
    rustix::io::write(&writer, b"W").unwrap();
    mapped.write(1, b'M');
    drop(open(by_fd(&reader), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap());
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
    drop(openat(&folder, "by-folder", flags, Mode::RUSR).unwrap());
    pod.run(|at| {
        create("by-cwd").unwrap();
        // The same file by its name elsewhere.
        write(at.join("outside")).unwrap();
        assert_eq!(write(at.join(LENT).join("f")), Err(Errno::ROFS));
    });
    private.run(|at| create(at.join(LENT).join("by-private")).unwrap());
    let lent = tree.in_data_root.join(LENT);
    assert!(fs::read_to_string(lent.join("f")).unwrap().starts_with("WM"));
    assert!(["by-folder", "by-cwd", "by-private"].iter().all(|name| lent.join(name).exists()));
    tree.uncover(LENT);
    Verdict::Ran
}

fn in_use(fixture: &Fixture) -> Verdict {
    needs_root!();
    let tree = Published::new(fixture);
    let pod = Pod::start(&tree.at, &fixture.dir.join("container"));
    tree.cover();
    let reader = pod.run(|at| {
        rustix::process::chdir(at.join(LENT)).unwrap();
        open("f", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).unwrap()
    });
    assert_eq!(unmount(tree.at.join(LENT), UnmountFlags::empty()), Err(Errno::BUSY));
    tree.uncover(LENT);
    assert_eq!(tree.mounts_of(LENT), 0);
    assert_eq!(write(by_fd(&reader)), Err(Errno::ROFS), "what was opened through the cover stays so");
    pod.run(|at| {
        assert_eq!(create("by-cwd"), Err(Errno::ROFS));
        create(at.join(LENT).join("by-path")).unwrap();
        rustix::process::chdir(at.join(LENT)).unwrap();
        create("by-cwd").unwrap();
    });
    Verdict::Ran
}

fn renamed_above(fixture: &Fixture) -> Verdict {
    needs_root!();
    let tree = Published::new(fixture);
    let pod = Pod::start(&tree.at, &fixture.dir.join("container"));
    tree.cover();
    pod.run(|at| {
        rustix::fs::rename(at.join("src"), at.join("moved")).unwrap();
        fs::create_dir_all(at.join(LENT)).unwrap();
        create(at.join(LENT).join("another")).unwrap();
        assert_eq!(create(at.join("moved/deep/new")), Err(Errno::ROFS), "the cover goes with its folder");
        fs::remove_dir_all(at.join("src")).unwrap();
        rustix::fs::rename(at.join("moved"), at.join("src")).unwrap();
    });
    assert_eq!(tree.mounts_of(LENT), 1);
    tree.uncover(LENT);

    assert_eq!(lay(&tree.at, "src", false), BindOutcome::Mounted);
    tree.cover();
    pod.run(|at| {
        assert_eq!(rustix::fs::rename(at.join("src"), at.join("moved")), Err(Errno::BUSY));
        create(at.join("src/beside")).unwrap();
        assert_eq!(create(at.join(LENT).join("new")), Err(Errno::ROFS));
        // What it costs.
        assert_eq!(rustix::fs::rename(at.join("src/beside"), at.join("beside")), Err(Errno::XDEV));
    });
    tree.uncover(LENT);
    tree.uncover("src");
    pod.run(|at| rustix::fs::rename(at.join("src/beside"), at.join("beside")).unwrap());
    Verdict::Ran
}

/// Below a mount of the path that can be written lies a cover. Taking the upper one off fails while anything is held through it, in whatever Pod.
fn own_mount(fixture: &Fixture) -> Verdict {
    needs_root!();
    let tree = Published::new(fixture);
    let (at, upper) = (tree.at.join(LENT), clone_private(&tree.at.join(LENT), false));
    tree.cover();
    attach(&upper, &at);
    drop(upper);
    assert_eq!(tree.mounts_of(LENT), 2);
    let pod = Pod::start(&tree.at, &fixture.dir.join("container"));
    pod.run(|at| create(at.join(LENT).join("new")).unwrap());
    let try_to_take_off = || unmount(&at, UnmountFlags::NOFOLLOW);
    let holders: [fn(&Path) -> OwnedFd; 3] = [
        |at| open(at.join(LENT).join("f"), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap(),
        |at| open(at.join(LENT).join("f"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).unwrap(),
        |at| open(at.join(LENT), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap(),
    ];
    for hold in holders {
        let held = pod.run(hold);
        assert_eq!(try_to_take_off(), Err(Errno::BUSY));
        drop(held);
    }
    let mapped = pod.run(|at| map_shared(&open(at.join(LENT).join("f"), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap()));
    assert_eq!(try_to_take_off(), Err(Errno::BUSY), "a mapping alone");
    drop(mapped);
    pod.run(|at| rustix::process::chdir(at.join(LENT)).unwrap());
    assert_eq!(try_to_take_off(), Err(Errno::BUSY), "a working directory alone");
    pod.run(|_| rustix::process::chdir("/").unwrap());
    try_to_take_off().unwrap();
    pod.run(|at| assert_eq!(create(at.join(LENT).join("later")), Err(Errno::ROFS)));
    tree.uncover(LENT);
    Verdict::Ran
}

fn landlocked(fixture: &Fixture) -> Verdict {
    needs_root!();
    let tree = Published::new(fixture);
    let pod = Pod::start(&tree.at, &fixture.dir.join("container"));
    if !pod.run(enter_landlock) {
        return Verdict::Lacks("the kernel has no Landlock");
    }
    pod.run(|at| create(at.join(LENT).join("before")).unwrap());
    tree.cover();
    pod.run(|at| {
        assert_eq!(create(at.join(LENT).join("new")), Err(Errno::ROFS));
        assert_eq!(fs::read_to_string(at.join(LENT).join("f")).unwrap(), "first", "a right to a folder reaches through a cover");
        assert_eq!(unmount(at.join(LENT), UnmountFlags::DETACH), Err(Errno::PERM));
        assert_eq!(mount_change(at, MountPropagationFlags::PRIVATE), Err(Errno::PERM));
    });
    tree.uncover(LENT);
    pod.run(|at| create(at.join(LENT).join("after")).unwrap());
    Verdict::Ran
}
