//! What is done on the disk, and what is promised after each step of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::mount::{MountFlags, UnmountFlags};
use yoi_workspace::{CloneAccess, DataRoot, Journal, ProviderKind, RootOptions, TreeOrigin, Uid, ZfsOptions};

use super::pool::{Pool, TREES};
use super::{ACKS_AT, Setup};
use crate::fixture::{current_owner, nth_uid};
use crate::lanes::DiskKind;

/// How often the whole life is repeated, with the trees of the last one beside it.
const ROUNDS: u64 = 2;

/// One step. It is reported when it has returned.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    Make(Uid),
    /// A program in the tree writes a file and flushes it.
    Write(Uid, &'static str),
    Seal(Uid),
    Clone {
        uid: Uid,
        from: Uid,
    },
    Destroy(Uid),
    /// A directory beside the trees, with this number. Nobody flushes it, so some cut must take it although it was reported.
    Unflushed(usize),
}

/// All steps, in their order.
pub fn steps(kind: ProviderKind) -> Vec<Step> {
    use Step::{Clone, Destroy, Make, Seal, Unflushed, Write};
    let mut steps = Vec::new();
    for round in 0..ROUNDS {
        let [base, clone, fork, sibling] = [1, 2, 3, 4].map(|n| nth_uid(round * 10 + n));
        steps.extend([Make(base), Write(base, "file"), Seal(base), Clone { uid: clone, from: base }, Write(clone, "mine")]);
        steps.push(Unflushed(round as usize));
        // What cannot be forked while it may be written is sealed.
        let forks_sealed_only = matches!(kind, ProviderKind::Copy | ProviderKind::Reflink);
        steps.extend(forks_sealed_only.then_some(Seal(clone)));
        steps.extend([Clone { uid: fork, from: clone }, Write(fork, "of the fork"), Destroy(clone)]);
        steps.extend([Clone { uid: sibling, from: base }, Destroy(sibling)]);
        steps.extend((round + 1 < ROUNDS).then_some([Destroy(fork), Destroy(base)]).into_iter().flatten());
    }
    steps
}

/// A tree that was reported.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Promise {
    pub files: BTreeSet<&'static str>,
    pub is_sealed: bool,
}

/// What is promised after these steps.
pub fn promised(steps: &[Step]) -> BTreeMap<Uid, Promise> {
    let mut trees: BTreeMap<Uid, Promise> = BTreeMap::new();
    for step in steps {
        match step {
            Step::Make(uid) => _ = trees.insert(*uid, Promise::default()),
            Step::Write(uid, name) => _ = trees.get_mut(uid).unwrap().files.insert(name),
            Step::Seal(uid) => trees.get_mut(uid).unwrap().is_sealed = true,
            Step::Clone { uid, from } => {
                let files = trees[from].files.clone();
                trees.insert(*uid, Promise { files, is_sealed: false });
            }
            Step::Destroy(uid) => _ = trees.remove(uid),
            Step::Unflushed(_) => {}
        }
    }
    trees
}

/// What is in a file of this name.
pub fn text(name: &str) -> String {
    format!("the content of {name}\n").repeat(500)
}

/// Where the disk is mounted: the data root with its journal, as on a node, and what is beside it.
pub fn unflushed(at: &Path, n: usize) -> std::path::PathBuf {
    at.join(format!("unflushed{n}"))
}

pub fn open(kind: ProviderKind, at: &Path) -> (DataRoot, Journal) {
    let dir = at.join("root");
    let zfs = (kind == ProviderKind::Zfs).then(|| ZfsOptions::new(TREES.parse().unwrap()));
    let options = RootOptions { zfs, ..RootOptions::default() };
    (DataRoot::open_with(&dir, options).unwrap(), Journal::open(&dir.join("journal")).unwrap())
}

/// Does all steps on the disk. The number of those that were done is written past the end of the file system, after each of them: the log has it where it
/// was reported.
pub fn record(setup: Setup, device: &Path) {
    let at = tempfile::tempdir().unwrap();
    let mount = |kind: &str, options| rustix::mount::mount(device, at.path(), kind, MountFlags::empty(), options);
    match setup.disk {
        DiskKind::Ext4 => mount("ext4", c""),
        // With the files of project ids, where the kernel has them.
        DiskKind::Xfs => mount("xfs", c"prjquota").or_else(|_| mount("xfs", c"")),
        DiskKind::Btrfs => mount("btrfs", c""),
    }
    .unwrap();
    let pool = (setup.provider == ProviderKind::Zfs).then(|| Pool::create(device));
    fs::create_dir(at.path().join("root")).unwrap();
    let (root, journal) = open(setup.provider, at.path());
    let mounted = fs::File::open(at.path()).unwrap();
    rustix::fs::syncfs(&mounted).unwrap();
    let acks = fs::File::options().write(true).custom_flags(libc::O_DIRECT).open(device).unwrap();
    for (done, step) in steps(setup.provider).iter().enumerate() {
        acknowledge(&acks, done);
        perform(setup.provider, &root, &journal, at.path(), step);
    }
    acknowledge(&acks, steps(setup.provider).len());
    drop((root, journal, mounted));
    drop(pool);
    rustix::mount::unmount(at.path(), UnmountFlags::empty()).unwrap();
}

/// What O_DIRECT writes.
#[repr(C, align(4096))]
struct Block([u8; 4096]);

fn acknowledge(device: &fs::File, done: usize) {
    let mut block = Block([0; 4096]);
    // A sector of zeroes is no report.
    block.0[..8].copy_from_slice(&(done as u64 + 1).to_le_bytes());
    device.write_all_at(&block.0, ACKS_AT).unwrap();
}

/// How many steps were reported as done by a write; None if it is part of the file system.
pub fn acknowledged(at: u64, data: &[u8]) -> Option<usize> {
    (at == ACKS_AT).then(|| u64::from_le_bytes(data[..8].try_into().unwrap()) as usize - 1)
}

/// As the shim does it: the journal before and after.
fn perform(kind: ProviderKind, root: &DataRoot, journal: &Journal, at: &Path, step: &Step) {
    let provider = root.provider(kind).unwrap();
    match *step {
        Step::Make(uid) => {
            let owner = current_owner();
            journal.begin_create(uid, kind, TreeOrigin::Empty { owner }).unwrap();
            provider.create_empty(uid, owner).unwrap();
            journal.record_created(uid).unwrap();
        }
        Step::Clone { uid, from } => {
            let access = CloneAccess::ReadWrite;
            journal.begin_create(uid, kind, TreeOrigin::Clone { from, access }).unwrap();
            provider.clone_tree(uid, from, access).unwrap();
            journal.record_created(uid).unwrap();
        }
        Step::Write(uid, name) => {
            let tree = root.open_tree(uid).unwrap();
            let mut file = fs::File::create(format!("/proc/self/fd/{}/{name}", tree.as_raw_fd())).unwrap();
            file.write_all(text(name).as_bytes()).unwrap();
            file.sync_all().unwrap();
            rustix::fs::fsync(&tree).unwrap();
        }
        Step::Seal(uid) => {
            journal.begin_seal(uid).unwrap();
            provider.seal(uid).unwrap();
            journal.record_sealed(uid).unwrap();
        }
        Step::Destroy(uid) => {
            journal.begin_destroy(uid).unwrap();
            provider.destroy(uid).unwrap();
            journal.record_destroyed(uid).unwrap();
        }
        Step::Unflushed(n) => fs::create_dir(unflushed(at, n)).unwrap(),
    }
}
