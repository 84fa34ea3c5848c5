//! Overlays on ext4: the provider's calls over the bare system calls, and over themselves.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{CWD, Mode};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, UnmountFlags};
use yoi_workspace::mount::{TargetRoot, unbind};
use yoi_workspace::{ChangeLimits, CloneAccess, DataRoot, Owner, Provider, ProviderKind, Uid};

use crate::{SAMPLES, Table, Times, met, take_turns, uid};

const FILES: [usize; 2] = [1_500, 57_000];
const OTHERS: usize = 5_000;
const CHANGED: usize = 28;

/// An ext4 in a file. It is removed when dropped, also by a panic.
struct Disk {
    at: PathBuf,
    root: Option<DataRoot>,
}

impl Disk {
    fn new(temp: &Path) -> Self {
        let (image, at) = (temp.join("overlays.ext4"), temp.join("overlays"));
        File::create(&image).unwrap().set_len(8 << 30).unwrap();
        fs::create_dir(&at).unwrap();
        run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image));
        run(Command::new("mount").args(["-t", "ext4", "-o", "loop"]).arg(&image).arg(&at));
        // Only the loop device holds the file now, so its space comes back however this process ends.
        fs::remove_file(&image).unwrap();
        let root = Some(DataRoot::open(&at).unwrap());
        Self { at, root }
    }

    fn root(&self) -> &DataRoot {
        self.root.as_ref().unwrap()
    }

    fn provider(&self) -> &dyn Provider {
        self.root().provider(ProviderKind::Overlay).unwrap()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.root = None;
        _ = rustix::mount::unmount(&self.at, UnmountFlags::DETACH);
    }
}

fn run(command: &mut Command) {
    let out = command.output().unwrap();
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
}

/// Makes a sealed base that is a git repository with everything committed.
fn base(disk: &Disk, files: usize) -> (Uid, PathBuf) {
    let base = uid();
    disk.provider().create_empty(base, Owner { uid: 0, gid: 0 }).unwrap();
    let path = disk.at.join("trees").join(base.shard()).join(base.to_string()).join("tree");
    for n in 0..files {
        let dir = path.join(format!("d{}", n / 100));
        if n % 100 == 0 {
            fs::create_dir(&dir).unwrap();
        }
        fs::write(dir.join(format!("f{n}")), vec![b'x'; 200 + n * 37 % 4_000]).unwrap();
    }
    git(&path, &["init", "-q"]);
    git(&path, &["add", "."]);
    git(&path, &["commit", "-q", "-m", "one"]);
    git(&path, &["status"]);
    disk.provider().seal(base).unwrap();
    (base, path)
}

fn git(at: &Path, args: &[&str]) {
    let settings = ["-c", "user.name=b", "-c", "user.email=b@b", "-c", "safe.directory=*", "-c", "gc.auto=0"];
    run(Command::new("git").current_dir(at).args(settings).args(args));
}

fn make(disk: &Disk, from: Uid) -> Uid {
    let new = uid();
    disk.provider().clone_tree(new, from, CloneAccess::ReadWrite).unwrap();
    new
}

/// The same calls that make a clone, by hand.
fn by_hand(parent: &Path, base: &File, name: &str) {
    let (temporary, live) = (parent.join(format!("{name}.tmp")), parent.join(name));
    fs::create_dir(&temporary).unwrap();
    symlink("x".repeat(200), temporary.join("marker")).unwrap();
    let upper = temporary.join("upper");
    let stat = rustix::fs::fstat(base).unwrap();
    rustix::fs::mkdir(&upper, Mode::RWXU).unwrap();
    rustix::fs::chownat(CWD, &upper, None, None, rustix::fs::AtFlags::empty()).unwrap();
    rustix::fs::chmod(&upper, Mode::from_raw_mode(stat.st_mode)).unwrap();
    fs::create_dir(temporary.join("work")).unwrap();
    File::open(&temporary).unwrap().sync_all().unwrap();
    fs::rename(temporary, live).unwrap();
}

/// A bare overlay mount, attached at a folder.
fn mount_by_hand(lower: &Path, entry: &Path, at: &Path) {
    let context = rustix::mount::fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).unwrap();
    let fd = std::os::fd::AsFd::as_fd(&context);
    let layers = [("lowerdir", lower.to_owned()), ("upperdir", entry.join("upper")), ("workdir", entry.join("work"))];
    for (name, path) in layers {
        rustix::mount::fsconfig_set_string(fd, name, path.to_str().unwrap()).unwrap();
    }
    for (name, value) in [("index", "on"), ("redirect_dir", "on"), ("metacopy", "off")] {
        rustix::mount::fsconfig_set_string(fd, name, value).unwrap();
    }
    rustix::mount::fsconfig_create(fd).unwrap();
    let made = rustix::mount::fsmount(fd, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::MOUNT_ATTR_NOSUID).unwrap();
    fs::create_dir(at).unwrap();
    rustix::mount::move_mount(&made, c"", CWD, at, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).unwrap();
}

pub fn overlays(temp: &Path, table: &mut Table) {
    let disk = Disk::new(temp);
    let bases = FILES.map(|files| base(&disk, files));
    let roots = bases.each_ref().map(|(_, path)| File::open(path).unwrap());
    let parent = disk.at.join("by-hand");
    fs::create_dir(&parent).unwrap();

    let mut times = [(); FILES.len()].map(|()| (Times::default(), Times::default()));
    for n in 0..SAMPLES {
        for (k, (ours, bare)) in times.iter_mut().enumerate() {
            let from = bases[k].0;
            take_turns(n, || ours.time(|| _ = make(&disk, from)), || bare.time(|| by_hand(&parent, &roots[k], &format!("{n}-{k}"))));
        }
    }
    table.head("Overlay on ext4: make (the Provider's verb alone)");
    for (files, (ours, bare)) in FILES.iter().zip(&times) {
        table.over(&format!("overlay: make over by hand, {files} files"), ours, bare, Some(1.2));
    }
    table.over("overlay: make, 57,000 files over 1,500", &times[1].0, &times[0].0, Some(1.1));

    shown(&disk, &bases[1], &roots[1], table);
    listed(&disk, &bases[1], table);
    crowded(&disk, bases[0].0, &times[0].0, table);
}

/// Makes a tree and shows it, as for the first Pod.
fn shown(disk: &Disk, (from, path): &(Uid, PathBuf), root: &File, table: &mut Table) {
    let (parent, pods) = (disk.at.join("shown-by-hand"), disk.at.join("pods"));
    fs::create_dir(&parent).unwrap();
    fs::create_dir(&pods).unwrap();
    let targets = TargetRoot::open(&pods).unwrap();
    let (mut ours, mut bare) = (Times::default(), Times::default());
    let (mut show, mut again, mut hide, mut fork) = (Times::default(), Times::default(), Times::default(), Times::default());
    for n in 0..SAMPLES {
        let (target, other) = (PathBuf::from(format!("pod{n}")), PathBuf::from(format!("second{n}")));
        let mut new = *from;
        take_turns(
            n,
            || {
                ours.time(|| {
                    new = make(disk, *from);
                    show.time(|| _ = disk.root().publish(new, &targets, &target, false).unwrap());
                });
            },
            || {
                bare.time(|| {
                    by_hand(&parent, root, &n.to_string());
                    mount_by_hand(path, &parent.join(n.to_string()), &pods.join(format!("bare{n}")));
                });
            },
        );
        again.time(|| _ = disk.root().publish(new, &targets, &other, false).unwrap());
        fs::write(pods.join(&target).join("new"), "x").unwrap();
        unbind(&targets, &other).unwrap();
        hide.time(|| unbind(&targets, &target).unwrap());
        rustix::mount::unmount(pods.join(format!("bare{n}")), UnmountFlags::empty()).unwrap();
        fork.time(|| _ = make(disk, new));
    }
    table.head("Overlay on ext4: show");
    table.over("overlay: make and first show over bare mount", &ours, &bare, Some(1.3));
    for (name, times) in [
        ("overlay: first show", &show),
        ("overlay: second show of a tree", &again),
        ("overlay: hide the last", &hide),
        ("overlay: fork at rest, one file changed", &fork),
    ] {
        table.figure(name, times.p50(), &format!("p50 {:.0} us, p99 {:.0} us", times.p50(), times.at(0.99)), "");
    }
}

fn listed(disk: &Disk, (from, _): &(Uid, PathBuf), table: &mut Table) {
    let new = make(disk, *from);
    let pods = disk.at.join("pods");
    let targets = TargetRoot::open(&pods).unwrap();
    disk.root().publish(new, &targets, Path::new("listed"), false).unwrap();
    let path = pods.join("listed");
    for n in 0..CHANGED {
        fs::write(path.join(format!("d{n}/f{}", n * 100)), "changed").unwrap();
    }
    let (mut ours, mut status) = (Times::default(), Times::default());
    git(&path, &["--no-optional-locks", "status", "--porcelain"]);
    for _ in 0..20 {
        ours.time(|| assert_eq!(disk.provider().changes(new, *from, &ChangeLimits::NONE).unwrap().changes.len(), CHANGED));
        status.time(|| git(&path, &["--no-optional-locks", "status", "--porcelain"]));
    }
    unbind(&targets, Path::new("listed")).unwrap();
    table.head("Overlay on ext4: the change list of 28 changes in 57,000 files");
    table.over("overlay: change list over git status", &ours, &status, Some(0.1));
}

/// Makes many trees, and then some more.
fn crowded(disk: &Disk, from: Uid, alone: &Times, table: &mut Table) {
    let before = lines();
    (0..OTHERS).for_each(|_| _ = make(disk, from));
    let mut crowded = Times::default();
    (0..SAMPLES).for_each(|_| crowded.time(|| _ = make(disk, from)));
    table.head("Overlay on ext4: beside 5,000 others");
    table.over("overlay: make, beside 5,000 over the first", &crowded, alone, Some(1.5));
    let more = lines() - before;
    table.figure("overlay: lines in the mount table at rest (0)", more as f64, &format!("{more} lines"), &met(more == 0, "0"));
}

fn lines() -> usize {
    fs::read_to_string("/proc/self/mountinfo").unwrap().lines().count()
}
