//! The power is cut right after a call returns: only what is on the device at that moment is left.

use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use yoi_test_support::wait_until;
use yoi_workspace::{
    CloneAccess, DataRoot, EntryLocation, ErrorReason, Journal, ProviderKind, ProviderRequest, RecordState, TreeOrigin, Uid, plan::select,
};

use crate::fixture::{Fixture, current_owner, make_subvolume, nth_uid, read_in, recover, run, sync, write_in};
use crate::host;
use crate::lanes::{DiskKind, Lane};
use crate::{Case, Verdict};

pub const CASES: &[Case] = &[
    ("a_power_cut_takes_no_tree_that_was_made_and_brings_none_back", power_cut),
    ("a_full_disk_refuses_new_trees_says_so_and_lets_old_ones_go", full_disk),
];

/// A file system in a file, with a provider's trees.
struct Disk {
    image: PathBuf,
    at: PathBuf,
    kind: ProviderKind,
    disk: DiskKind,
}

const DISKS: [(ProviderKind, DiskKind); 7] = [
    (ProviderKind::Btrfs, DiskKind::Btrfs),
    (ProviderKind::Overlay, DiskKind::Ext4),
    (ProviderKind::Overlay, DiskKind::Xfs),
    (ProviderKind::Overlay, DiskKind::Btrfs),
    (ProviderKind::Reflink, DiskKind::Xfs),
    (ProviderKind::Reflink, DiskKind::Btrfs),
    (ProviderKind::Copy, DiskKind::Ext4),
];

impl Disk {
    fn make(dir: &Path, (kind, disk): (ProviderKind, DiskKind), size: u64) -> Self {
        let name = format!("{kind}-on-{disk:?}");
        // XFS takes at least this.
        let size = if disk == DiskKind::Xfs { size.max(300 << 20) } else { size };
        fs::create_dir_all(dir).unwrap();
        let made = Self { image: dir.join(format!("{name}.img")), at: dir.join(format!("{name}-at")), kind, disk };
        disk.make(&made.image, size, &made.at);
        made
    }

    /// Takes away all that is not on the device: ext4 and XFS are told to stop without writing their log, and the device of a Btrfs, which knows no such
    /// call before Linux 6.19, is replaced by a copy of what it holds now.
    fn cut_power(&self) {
        if self.disk == DiskKind::Btrfs {
            let kept = self.image.with_extension("kept");
            run("cp", &["--sparse=always".as_ref(), &self.image, &kept]);
            rustix::mount::unmount(&self.at, rustix::mount::UnmountFlags::empty()).unwrap();
            fs::rename(kept, &self.image).unwrap();
        } else {
            shut_down(&self.at);
            rustix::mount::unmount(&self.at, rustix::mount::UnmountFlags::empty()).unwrap();
        }
        self.disk.mount(&self.image, &self.at);
    }
}

/// FS_IOC_SHUTDOWN with the flag that leaves the log unwritten: from now on the file system writes nothing to its device.
fn shut_down(at: &Path) {
    const FS_IOC_SHUTDOWN: u32 = 0x8004_587d;
    const NO_LOG_FLUSH: u32 = 2;
    let root = fs::File::open(at).unwrap();
    let flag = NO_LOG_FLUSH;
    // SAFETY: the call reads an u32.
    let done = unsafe { libc::ioctl(root.as_raw_fd(), FS_IOC_SHUTDOWN as _, &raw const flag) };
    assert_eq!(done, 0, "{}: {}", at.display(), std::io::Error::last_os_error());
}

impl Drop for Disk {
    fn drop(&mut self) {
        _ = rustix::mount::unmount(&self.at, rustix::mount::UnmountFlags::DETACH);
        _ = fs::remove_file(&self.image);
    }
}

fn not_here(fixture: &Fixture) -> Option<Verdict> {
    if fixture.lane != Lane::Copy {
        return Some(Verdict::NotRun("brings disks of its own; one lane is enough"));
    }
    DISKS.iter().find_map(|(_, disk)| disk.lack()).map(Verdict::Lacks)
}

/// What is done before the power cut, and its name.
type Action<'a> = (&'a str, &'a dyn Fn(&DataRoot, &Journal));

fn power_cut(fixture: &Fixture) -> Verdict {
    if let Some(not_run) = not_here(fixture) {
        return not_run;
    }
    let mut cuts = 0;
    for on in DISKS {
        let disk = Disk::make(&fixture.disks, on, 200 << 20);
        let kind = disk.kind;
        // Beside it is the folder of the host.
        let root_dir = disk.at.join("root");
        fs::create_dir(&root_dir).unwrap();
        sync(&disk.at, disk.disk == DiskKind::Btrfs);
        let journal_dir = fixture.dir.join(format!("{kind}-on-{:?}-journal", disk.disk));
        let (base, clone, gone, taken) = (nth_uid(1), nth_uid(2), nth_uid(3), nth_uid(4));
        let clone_of = |from| TreeOrigin::Clone { from, access: CloneAccess::ReadWrite };
        let steps: [Action; 6] = [
            ("an empty tree", &|root, journal| create(root, journal, kind, base, TreeOrigin::Empty { owner: current_owner() })),
            ("a sealed tree", &|root, journal| {
                write_in(root, base, "file", b"precious");
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
            ("a tree of a host folder that nobody has flushed", &|root, journal| {
                journal.begin_create(taken, kind, TreeOrigin::Host { owner: host::USER }).unwrap();
                let source = disk.at.join("host");
                if disk.disk == DiskKind::Btrfs {
                    make_subvolume(&source);
                } else {
                    fs::create_dir(&source).unwrap();
                }
                fs::write(source.join("file"), "precious").unwrap();
                host::give_away(&source);
                let marker = host::capture_with(root.provider(kind).unwrap(), taken, &source).unwrap();
                println!("    {kind} on {:?}: {:?}", disk.disk, marker.captured.unwrap().how);
                journal.record_created(taken).unwrap();
            }),
        ];
        for (what, step) in &steps {
            let (root, journal) = (DataRoot::open(&root_dir).unwrap(), Journal::open(&journal_dir).unwrap());
            step(&root, &journal);
            // Nobody flushes this directory, so it must be gone after the cut; otherwise the test cut nothing.
            fs::create_dir(disk.at.join(format!("unflushed{cuts}"))).unwrap();
            drop(root);
            disk.cut_power();
            assert!(!disk.at.join(format!("unflushed{cuts}")).exists(), "{kind}: the harness detects nothing: everything is there");
            let root = DataRoot::open(&root_dir).unwrap();
            let recovery = recover(&root, &journal);
            assert_eq!((&recovery.lost, &recovery.orphans), (&vec![], &vec![]), "{kind}: after {what}: {recovery:?}");
            cuts += 1;
        }
        let (root, journal) = (DataRoot::open(&root_dir).unwrap(), Journal::open(&journal_dir).unwrap());
        let states: Vec<_> = journal.read_and_clean().unwrap().records.into_iter().map(|r| (r.uid, r.state)).collect();
        assert_eq!(states, [(base, RecordState::Sealed), (clone, RecordState::Ready), (taken, RecordState::Ready)]);
        for uid in [base, clone, taken] {
            assert_eq!(read_in(&root, uid, "file").as_deref(), Some("precious"), "{kind}: {uid}");
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
        TreeOrigin::Host { .. } => unreachable!("no host folder is on the disk"),
    };
    journal.record_created(uid).unwrap();
}

/// Fills the disk with data and then with names, until not even a name fits. The names are long links: Btrfs keeps them in its metadata, and refuses
/// even a short file where no block of data is free.
fn fill(at: &Path) {
    use std::io::Write;
    fs::create_dir_all(at).unwrap();
    // XFS gives back what it reserved behind the end of a file once the file is closed, so there may be room for another one.
    for n in 0.. {
        let Ok(mut big) = fs::File::create(at.join(format!("big-{n}"))) else { break };
        let mut written = 0;
        for size in [1 << 20, 4096, 512] {
            while big.write_all(&vec![7; size]).and_then(|()| big.sync_data()).is_ok() {
                written += size;
            }
        }
        if written < 4096 {
            break;
        }
    }
    let mut refused = 0;
    for n in 0..1_000_000 {
        let made = std::os::unix::fs::symlink("x".repeat(1500), at.join(format!("{n}-{}", "x".repeat(200))));
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
    for on in DISKS {
        let disk = Disk::make(&fixture.disks, on, 160 << 20);
        let kind = disk.kind;
        let journal_dir = fixture.dir.join(format!("{kind}-on-{:?}-full", disk.disk));
        let (root, journal) = (DataRoot::open(&disk.at).unwrap(), Journal::open(&journal_dir).unwrap());
        let provider = root.provider(kind).unwrap();
        let (base, old) = (nth_uid(1), nth_uid(2));
        create(&root, &journal, kind, base, TreeOrigin::Empty { owner: current_owner() });
        write_in(&root, base, "file", &[b'1'; 3 << 20]);
        provider.seal(base).unwrap();
        create(&root, &journal, kind, old, TreeOrigin::Clone { from: base, access: CloneAccess::ReadWrite });
        let opened = root.open_tree(old).unwrap();
        fill(&PathBuf::from(format!("/proc/self/fd/{}/filling", opened.as_raw_fd())));
        drop(opened);
        // A snapshot is small. Some more can be made until the reserve is used up, too. Btrfs may find a little room in the attempt that it
        // refuses, so what counts is several in a row.
        let (mut made, mut refused) = (Vec::new(), Vec::new());
        for uid in (10..2000).map(nth_uid) {
            match provider.clone_tree(uid, base, CloneAccess::ReadWrite) {
                Ok(_) => {
                    made.push(uid);
                    refused.clear();
                }
                Err(error) => refused.push(error),
            }
            if refused.len() == 5 {
                break;
            }
        }
        assert_eq!(refused.len(), 5, "{kind}: the disk is full, and {} trees were made in it", made.len());
        assert!(refused.iter().all(|error| error.reason() == ErrorReason::OutOfSpace), "{kind}: {refused:?}");
        let offers = root.probe().unwrap().offers;
        let offered = offers.iter().find(|o| o.provider == kind).unwrap();
        assert!(offered.available, "a full disk is no reason to choose otherwise: {offers:?}");
        let best = if disk.disk == DiskKind::Btrfs { ProviderKind::Btrfs } else { ProviderKind::Overlay };
        assert_eq!(select(ProviderRequest::Auto, &offers).unwrap().provider, best, "{offers:?}");
        let entries = root.inventory().unwrap().entries;
        assert!(
            entries.iter().all(|e| e.location == EntryLocation::Live && e.marker.is_some()),
            "{kind}: half a tree was left: {entries:?}"
        );
        assert_eq!(entries.len(), made.len() + 2);
        assert_eq!(read_in(&root, base, "file").unwrap().len(), 3 << 20);

        journal.begin_destroy(old).unwrap();
        provider.destroy(old).unwrap();
        journal.record_destroyed(old).unwrap();
        // By itself the cleaner of Btrfs would begin within 30 s.
        wait_until(format!("{kind}: there is room again, and a tree is made"), || {
            sync(&disk.at, disk.disk == DiskKind::Btrfs);
            provider.clone_tree(nth_uid(9), base, CloneAccess::ReadWrite).ok()
        });
        assert_eq!(read_in(&root, nth_uid(9), "file"), read_in(&root, base, "file"));
        println!("    {kind}: refused after {} more, made again after the largest went", made.len());
    }
    Verdict::Ran
}
