//! Overlays on ext4: the provider's calls over the bare system calls, and over themselves.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, UnmountFlags};
use yoi_workspace::mount::{TargetRoot, unbind};
use yoi_workspace::{CloneAccess, ProviderKind, Uid};

use crate::loop_disk::{Disk, FileSystem, fill_repository, uid};
use crate::{SAMPLES, Table, Times, met, take_turns};

const FILES: [usize; 2] = [1_500, 57_000];
const OTHERS: usize = 5_000;

/// Makes a sealed base that is a git repository with everything committed.
fn base(disk: &Disk, files: usize) -> (Uid, PathBuf) {
    let (base, path) = disk.empty(ProviderKind::Overlay);
    fill_repository(&path, files);
    disk.provider(ProviderKind::Overlay).seal(base).unwrap();
    (base, path)
}

fn make(disk: &Disk, from: Uid) -> Uid {
    let new = uid();
    disk.provider(ProviderKind::Overlay).clone_tree(new, from, CloneAccess::ReadWrite).unwrap();
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
    let disk = Disk::new(temp, "overlays", FileSystem::Ext4);
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
    crowded(temp, table);
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
        table.alone(name, times);
    }
}

/// Makes a tree beside many others and beside none, in turns.
fn crowded(temp: &Path, table: &mut Table) {
    let disks = ["beside none", "beside many"].map(|name| Disk::new(temp, name, FileSystem::Ext4));
    let bases = disks.each_ref().map(|disk| base(disk, FILES[0]).0);
    let (lines_before, used_before) = (lines(), disks[1].used());
    (0..OTHERS).for_each(|_| _ = make(&disks[1], bases[1]));
    let (more, bytes) = (lines() - lines_before, (disks[1].used() - used_before) / OTHERS as u64);
    let mut times = [Times::default(), Times::default()];
    for n in 0..SAMPLES {
        for k in 0..disks.len() {
            let at = (n + k) % disks.len();
            let mut new = bases[at];
            times[at].time(|| new = make(&disks[at], bases[at]));
            disks[at].provider(ProviderKind::Overlay).destroy(new).unwrap();
        }
    }
    table.head("Overlay on ext4: beside 5,000 others, and at rest");
    table.over("overlay: make, beside 5,000 over beside none", &times[1], &times[0], Some(1.5));
    table.figure("overlay: lines in the mount table at rest (0)", more as f64, &format!("{more} lines"), &met(more == 0, "0"));
    let words = format!("{bytes} bytes");
    table.figure(
        "overlay: disk of a tree at rest, over 64 KiB (at most 1x)",
        bytes as f64 / 65536.0,
        &words,
        &met(bytes <= 65536, "<= 64 KiB"),
    );
}

fn lines() -> usize {
    fs::read_to_string("/proc/self/mountinfo").unwrap().lines().count()
}
