//! Shared blocks: what Reflink refuses, and what counts as a tree's own.

use std::fs;

use rustix::fs::{IFlags, Mode, OFlags};
use yoi_workspace::{CloneAccess, DataRoot, Error, PlantedFault, Provider, ProviderKind, Uid};

use crate::fixture::{Fixture, current_owner, planted, write_in};
use crate::lanes::{DiskKind, Lane};
use crate::{Case, Verdict};

const ACL: &str = "system.posix_acl_access";

pub const CASES: &[Case] = &[
    ("w12_reflink_shares_every_block_or_refuses_and_leaves_nothing", refused),
    ("planted_a_reflink_that_falls_back_to_a_copy_is_found", falls_back),
    ("what_is_written_to_a_clone_is_its_own_and_nothing_else", own_bytes),
    ("planted_shared_blocks_that_count_as_exclusive_are_found", counted),
    ("w42_an_acl_of_a_file_is_kept_in_its_clone", acl),
];

fn reflink(root: &DataRoot) -> &dyn Provider {
    root.provider(ProviderKind::Reflink).unwrap()
}

fn acl(fixture: &Fixture) -> Verdict {
    // `user::rwx,user:1001:r--,group::r--,mask::r--,other::---`, as Linux keeps it.
    let entries: [(u16, u16, u32); 5] = [(1, 7, !0), (2, 4, 1001), (4, 4, !0), (16, 4, !0), (32, 0, !0)];
    let entry = |(tag, rights, id): &(u16, u16, u32)| [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat();
    let acl = [2_u32.to_le_bytes().to_vec(), entries.iter().flat_map(entry).collect()].concat();
    let (base, path) = fixture.empty();
    fs::write(path.join("file"), "x").unwrap();
    rustix::fs::setxattr(path.join("file"), ACL, &acl, rustix::fs::XattrFlags::empty()).unwrap();
    fixture.provider().seal(base).unwrap();
    let (_, clone) = fixture.clone_of(base);
    let mut found = vec![0; 1000];
    let length = rustix::fs::getxattr(clone.join("file"), ACL, &mut found[..]).unwrap();
    assert_eq!(found[..length], acl);
    Verdict::Ran
}

/// Makes a sealed base with a file whose blocks cannot be shared. `None` where each file's can.
fn unshareable(fixture: &Fixture) -> Option<Uid> {
    let base = fixture.uid();
    match fixture.lane {
        // No file of ext4 can.
        Lane::Copy => {
            reflink(&fixture.root).create_empty(base, current_owner()).unwrap();
            write_in(&fixture.root, base, "file", &[7; 100_000]);
        }
        // Between files with and without checksums Btrfs shares none.
        Lane::ReflinkOnBtrfs => {
            reflink(&fixture.root).create_empty(base, current_owner()).unwrap();
            write_in(&fixture.root, base, "before", &[7; 100_000]);
            let path = fixture.entry(base).join("tree/file");
            let file = rustix::fs::open(&path, OFlags::CREATE | OFlags::RDWR, Mode::RUSR).unwrap();
            rustix::fs::ioctl_setflags(&file, IFlags::NOCOW).unwrap();
            fs::write(&path, vec![7; 100_000]).unwrap();
        }
        _ => return None,
    }
    reflink(&fixture.root).seal(base).unwrap();
    Some(base)
}

fn refused(fixture: &Fixture) -> Verdict {
    let Some(base) = unshareable(fixture) else { return Verdict::NotRun("every file can share its blocks, or it is not about Reflink") };
    let error = reflink(&fixture.root).clone_tree(fixture.uid(), base, CloneAccess::ReadWrite).unwrap_err();
    let Error::Make { source, .. } = error else { panic!("{error:?}") };
    assert_eq!(source.step, "share the blocks of a file");
    fixture.assert_only(&[base]);
    Verdict::Ran
}

fn falls_back(fixture: &Fixture) -> Verdict {
    let Some(base) = unshareable(fixture) else { return Verdict::NotRun("every file can share its blocks, or it is not about Reflink") };
    let root = fixture.reopened(planted(PlantedFault::FallsBackToCopy));
    reflink(&root).clone_tree(fixture.uid(), base, CloneAccess::ReadWrite).expect("the harness detects nothing");
    println!("    found: a file was copied in silence");
    Verdict::Ran
}

fn shares(fixture: &Fixture) -> bool {
    fixture.lane.disk() != DiskKind::Ext4
}

fn own_bytes(fixture: &Fixture) -> Verdict {
    let (base, path) = fixture.empty();
    fs::write(path.join("large"), vec![7; 4 << 20]).unwrap();
    fixture.provider().seal(base).unwrap();
    let (clone, path) = fixture.clone_of(base);
    let exclusive = |uid| {
        fixture.sync();
        fixture.provider().measure(uid).unwrap().exclusive_bytes
    };
    let before = exclusive(clone);
    fs::write(path.join("new"), vec![8; 1 << 20]).unwrap();
    let after = exclusive(clone);
    assert!((1 << 20..1 << 21).contains(&(after - before)), "{before}, then {after}");
    // One block of the large file: an overlay on ext4 copies it up whole.
    let file = fs::File::options().write(true).open(path.join("large")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[9; 4096], 0).unwrap();
    let last = exclusive(clone);
    match fixture.kind() {
        ProviderKind::Overlay if !shares(fixture) => assert!(last - after >= 4 << 20, "{after}, then {last}"),
        ProviderKind::Copy if !shares(fixture) => assert_eq!(last, after),
        // Some file systems unshare more than one block at a time.
        _ => assert!((4096..=1 << 20).contains(&(last - after)), "{after}, then {last}"),
    }
    Verdict::Ran
}

fn counted(fixture: &Fixture) -> Verdict {
    if !shares(fixture) || fixture.kind() == ProviderKind::Btrfs {
        return Verdict::NotRun("shares no blocks, or has one way to count them");
    }
    let (base, path) = fixture.empty();
    fs::write(path.join("large"), vec![7; 4 << 20]).unwrap();
    fixture.provider().seal(base).unwrap();
    let (clone, path) = fixture.clone_of(base);
    // Makes an overlay share the blocks of the file with its base, too.
    fs::set_permissions(path.join("large"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    fixture.sync();
    let exclusive = |root: &DataRoot| root.provider(fixture.kind()).unwrap().measure(clone).unwrap().exclusive_bytes;
    assert!(exclusive(&fixture.root) < 64 << 10, "{} bytes", exclusive(&fixture.root));
    let wrong = exclusive(&fixture.reopened(planted(PlantedFault::SharedCountedAsExclusive)));
    assert!(wrong >= 4 << 20, "the harness detects nothing");
    println!("    found: {wrong} bytes of a tree that shares them all");
    Verdict::Ran
}
