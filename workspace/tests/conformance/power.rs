//! The power is cut right after a call returns: only what is on the device at that moment is left.

use std::fs;
use std::path::{Path, PathBuf};

use yoi_workspace::{
    CloneAccess, DataRoot, EntryLocation, ErrorReason, Journal, ProviderKind, ProviderRequest, RecordState, TreeOrigin, Uid, loopback,
    plan::select,
};

use crate::fixture::{Fixture, Lane, content, current_owner, is_installed, is_root, make_ext4, mount_ext4, nth_uid, recover, run, sync};
use crate::{Case, Verdict};

pub const CASES: &[Case] = &[
    ("a_power_cut_takes_no_tree_that_was_made_and_brings_none_back", power_cut),
    ("a_full_disk_refuses_new_trees_says_so_and_lets_old_ones_go", full_disk),
];

/// A file system in a file.
struct Disk {
    image: PathBuf,
    at: PathBuf,
    kind: ProviderKind,
}

impl Disk {
    fn make(dir: &Path, kind: ProviderKind, size: u64) -> Self {
        let disk = Self { image: dir.join(format!("{kind}.img")), at: dir.join(format!("{kind}-at")), kind };
        match kind {
            ProviderKind::Btrfs => disk.mount(size),
            ProviderKind::Copy => make_ext4(&disk.image, size, &disk.at),
        }
        disk
    }

    fn mount(&self, size: u64) {
        match self.kind {
            ProviderKind::Btrfs => _ = loopback::ensure_loop_btrfs(&self.image, size, &self.at).unwrap(),
            ProviderKind::Copy => mount_ext4(&self.image, &self.at),
        }
    }

    /// Replaces the device by a copy of what it holds now.
    fn cut_power(&self) {
        let kept = self.image.with_extension("kept");
        run("cp", &["--sparse=always".as_ref(), &self.image, &kept]);
        rustix::mount::unmount(&self.at, rustix::mount::UnmountFlags::empty()).unwrap();
        fs::rename(kept, &self.image).unwrap();
        self.mount(0);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        _ = rustix::mount::unmount(&self.at, rustix::mount::UnmountFlags::DETACH);
        _ = fs::remove_file(&self.image);
    }
}

fn not_here(fixture: &Fixture) -> Option<Verdict> {
    match fixture.lane {
        Lane::Btrfs | Lane::CopyOnBtrfs => Some(Verdict::NotRun("brings disks of its own; one lane is enough")),
        Lane::Copy if !is_root() => Some(Verdict::Lacks("needs root")),
        Lane::Copy if !is_installed("mkfs.ext4") || !is_installed("mkfs.btrfs") => Some(Verdict::Lacks("needs mkfs.ext4 and mkfs.btrfs")),
        Lane::Copy => None,
    }
}

/// What is done before the power cut, and its name.
type Action<'a> = (&'a str, &'a dyn Fn(&DataRoot, &Journal));

fn power_cut(fixture: &Fixture) -> Verdict {
    if let Some(not_run) = not_here(fixture) {
        return not_run;
    }
    let mut cuts = 0;
    for kind in [ProviderKind::Btrfs, ProviderKind::Copy] {
        let disk = Disk::make(&fixture.dir, kind, 200 << 20);
        let journal_dir = fixture.dir.join(format!("{kind}-journal"));
        let (base, clone, gone) = (nth_uid(1), nth_uid(2), nth_uid(3));
        let clone_of = |from| TreeOrigin::Clone { from, access: CloneAccess::ReadWrite };
        let steps: [Action; 5] = [
            ("an empty tree", &|root, journal| create(root, journal, kind, base, TreeOrigin::Empty { owner: current_owner() })),
            ("a sealed tree", &|root, journal| {
                fs::write(tree(root, base).join("file"), "precious").unwrap();
                journal.begin_seal(base).unwrap();
                root.provider(kind).unwrap().seal(base).unwrap();
                journal.record_sealed(base).unwrap();
            }),
            ("a clone", &|root, journal| create(root, journal, kind, clone, clone_of(base))),
            ("another clone", &|root, journal| create(root, journal, kind, gone, clone_of(base))),
            ("a destroyed tree", &|root, journal| {
                journal.begin_destroy(gone).unwrap();
                root.provider(kind).unwrap().destroy(gone).unwrap();
                journal.record_destroyed(gone).unwrap();
            }),
        ];
        for (what, step) in &steps {
            let (root, journal) = (DataRoot::open(&disk.at).unwrap(), Journal::open(&journal_dir).unwrap());
            step(&root, &journal);
            // Nobody flushes this directory, so it must be gone after the cut; otherwise the test cut nothing.
            fs::create_dir(disk.at.join(format!("unflushed{cuts}"))).unwrap();
            drop(root);
            disk.cut_power();
            assert!(!disk.at.join(format!("unflushed{cuts}")).exists(), "{kind}: the harness detects nothing: everything is there");
            let root = DataRoot::open(&disk.at).unwrap();
            let recovery = recover(&root, &journal);
            assert_eq!((&recovery.lost, &recovery.orphans), (&vec![], &vec![]), "{kind}: after {what}: {recovery:?}");
            cuts += 1;
        }
        let (root, journal) = (DataRoot::open(&disk.at).unwrap(), Journal::open(&journal_dir).unwrap());
        let states: Vec<_> = journal.read_and_clean().unwrap().records.into_iter().map(|r| (r.uid, r.state)).collect();
        assert_eq!(states, [(base, RecordState::Sealed), (clone, RecordState::Ready)]);
        for uid in [base, clone] {
            assert_eq!(fs::read_to_string(tree(&root, uid).join("file")).unwrap(), "precious", "{kind}: {uid}");
        }
        assert!(root.inventory().unwrap().entries.iter().all(|e| e.location == EntryLocation::Live));
    }
    println!("    {cuts} power cuts");
    Verdict::Ran
}

fn create(root: &DataRoot, journal: &Journal, kind: ProviderKind, uid: Uid, origin: TreeOrigin) {
    journal.begin_create(uid, kind, origin).unwrap();
    let provider = root.provider(kind).unwrap();
    match origin {
        TreeOrigin::Empty { owner } => provider.create_empty(uid, owner).unwrap(),
        TreeOrigin::Clone { from, access } => provider.clone_tree(uid, from, access).unwrap(),
    };
    journal.record_created(uid).unwrap();
}

fn tree(root: &DataRoot, uid: Uid) -> PathBuf {
    use std::os::fd::AsRawFd;
    let tree = root.open_tree(uid).unwrap();
    fs::read_link(format!("/proc/self/fd/{}", tree.as_raw_fd())).unwrap()
}

/// Fills the disk with data and then with names, until not even a name fits.
fn fill(at: &Path) {
    use std::io::Write;
    fs::create_dir_all(at).unwrap();
    let mut big = fs::File::create(at.join("big")).unwrap();
    for size in [1 << 20, 4096, 512] {
        while big.write_all(&vec![7; size]).and_then(|()| big.sync_data()).is_ok() {}
    }
    let mut refused = 0;
    for n in 0..1_000_000 {
        let made = fs::write(at.join(format!("{n}-{}", "x".repeat(200))), vec![7; 1500]);
        refused = if made.is_err() { refused + 1 } else { 0 };
        if refused > 20 {
            return;
        }
    }
}

fn full_disk(fixture: &Fixture) -> Verdict {
    if let Some(not_run) = not_here(fixture) {
        return not_run;
    }
    for kind in [ProviderKind::Btrfs, ProviderKind::Copy] {
        let disk = Disk::make(&fixture.dir, kind, 160 << 20);
        let (root, journal) = (DataRoot::open(&disk.at).unwrap(), Journal::open(&fixture.dir.join(format!("{kind}-full"))).unwrap());
        let provider = root.provider(kind).unwrap();
        let (base, old) = (nth_uid(1), nth_uid(2));
        create(&root, &journal, kind, base, TreeOrigin::Empty { owner: current_owner() });
        fs::write(tree(&root, base).join("file"), vec![1; 3 << 20]).unwrap();
        provider.seal(base).unwrap();
        create(&root, &journal, kind, old, TreeOrigin::Clone { from: base, access: CloneAccess::ReadWrite });
        fill(&tree(&root, old).join("filling"));
        // A snapshot is small. Some more can be made until the reserve is used up, too.
        let made: Vec<_> =
            (10..2000).map(nth_uid).take_while(|uid| provider.clone_tree(*uid, base, CloneAccess::ReadWrite).is_ok()).collect();
        let refused = provider.clone_tree(nth_uid(9), base, CloneAccess::ReadWrite).unwrap_err();
        assert_eq!(refused.reason(), ErrorReason::OutOfSpace, "{kind}: {refused:?}");
        let offers = root.probe().unwrap().offers;
        assert_eq!(
            select(ProviderRequest::Auto, &offers).unwrap().provider,
            kind,
            "a full disk is no reason to choose otherwise: {offers:?}"
        );
        let entries = root.inventory().unwrap().entries;
        assert!(
            entries.iter().all(|e| e.location == EntryLocation::Live && e.marker.is_some()),
            "{kind}: half a tree was left: {entries:?}"
        );
        assert_eq!(entries.len(), made.len() + 2);
        assert_eq!(fs::read(tree(&root, base).join("file")).unwrap().len(), 3 << 20);

        journal.begin_destroy(old).unwrap();
        provider.destroy(old).unwrap();
        journal.record_destroyed(old).unwrap();
        // By itself the cleaner of Btrfs would begin within 30 s.
        let again = (0..200).find_map(|_| {
            sync(&disk.at, kind == ProviderKind::Btrfs);
            let done = provider.clone_tree(nth_uid(9), base, CloneAccess::ReadWrite);
            std::thread::sleep(if done.is_ok() { std::time::Duration::ZERO } else { std::time::Duration::from_millis(100) });
            done.ok()
        });
        assert!(again.is_some(), "{kind}: there is room again, and no tree is made");
        assert_eq!(content(&tree(&root, nth_uid(9))), content(&tree(&root, base)));
        println!("    {kind}: refused after {} more, made again after the largest went", made.len());
    }
    Verdict::Ran
}
