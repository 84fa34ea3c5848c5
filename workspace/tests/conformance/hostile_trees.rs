//! Trees that nobody would make but to break something: cloned, compared and destroyed, or refused with the reason. None is silently
//! another tree.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, XattrFlags};
use yoi_workspace::{ChangeKind, ChangeLimits, CloneAccess, Error, ErrorReason, ProviderKind};

use crate::changes::changes_of;
use crate::fixture::{Fixture, make_subvolume, needs_root, set_immutable};
use crate::host;
use crate::lanes::rounds;
use crate::{Case, Verdict};

pub const CASES: &[Case] = &[
    ("a_tree_of_100000_names_10000_links_holes_and_devices_is_cloned_compared_and_destroyed", strange),
    ("a_tree_with_marks_of_an_overlay_is_cloned_as_it_is_or_refused", marks),
    ("a_tree_of_300_levels_is_cloned_or_refused_with_the_reason", deep),
    ("a_host_folder_of_strange_files_is_captured_whole", strange_host),
    ("a_host_folder_of_300_levels_or_with_marks_of_an_overlay_is_refused_with_the_reason", refused_host),
];

fn strange(fixture: &Fixture) -> Verdict {
    needs_root!();
    let (base, path) = fixture.empty();
    fs::create_dir(path.join("many")).unwrap();
    let (names, links) = (rounds(100_000), rounds(10_000));
    for n in 0..names {
        // Two inodes, because ext4 gives one at most 65,000 names.
        let first = path.join(format!("many/{}", n % 2));
        match n {
            0 | 1 => fs::write(first, "x").unwrap(),
            _ => fs::hard_link(first, path.join(format!("many/{n}"))).unwrap(),
        }
    }
    // With one name: on Btrfs every name of a file differs once one of them went.
    fs::write(path.join("many/single"), "x").unwrap();
    fs::write(path.join("linked"), "x").unwrap();
    fs::create_dir(path.join("links")).unwrap();
    (1..links).for_each(|n| fs::hard_link(path.join("linked"), path.join(format!("links/{n}"))).unwrap());
    let size = 1 << 40;
    let sparse = fs::File::create(path.join("sparse")).unwrap();
    sparse.set_len(size).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"middle", size / 2).unwrap();
    // An open file would keep the tree in use.
    drop(sparse);
    let node = |name: &str, kind, device| rustix::fs::mknodat(CWD, path.join(name), kind, Mode::RUSR | Mode::WUSR, device).unwrap();
    node("null", FileType::CharacterDevice, rustix::fs::makedev(1, 3));
    node("disk", FileType::BlockDevice, rustix::fs::makedev(7, 200));
    node("socket", FileType::Socket, 0);
    node("pipe", FileType::Fifo, 0);
    fs::write(path.join("closed"), "x").unwrap();
    fs::set_permissions(path.join("closed"), fs::Permissions::from_mode(0o000)).unwrap();
    fs::write(path.join("fixed"), "x").unwrap();
    fixture.provider().seal(base).unwrap();
    _ = fixture.forks_live() || set_immutable(&path.join("fixed"));

    let (clone, copy) = fixture.clone_of(base);
    let facts = |at: &Path| {
        let m = fs::symlink_metadata(at).unwrap();
        (m.mode(), m.rdev(), m.len(), m.nlink())
    };
    for name in ["many/7", "links/1999", "sparse", "null", "disk", "socket", "pipe", "closed", "fixed"] {
        assert_eq!(facts(&copy.join(name)), facts(&path.join(name)), "{name}");
    }
    assert!(fs::metadata(copy.join("sparse")).unwrap().blocks() < 1024, "a hole was filled");
    assert_eq!(fs::read_dir(copy.join("many")).unwrap().count(), names + 1);
    assert_eq!(changes_of(fixture, clone, base), []);
    fs::remove_file(copy.join("many/single")).unwrap();
    fs::write(copy.join("many/new"), "x").unwrap();
    let sparse = fs::File::options().write(true).open(copy.join("sparse")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"MIDDLE", size / 2).unwrap();
    drop(sparse);
    let list: Vec<_> = changes_of(fixture, clone, base).into_iter().map(|(kind, _, path)| (kind, path)).collect();
    assert_eq!(list.len(), 3);
    let expected = [(ChangeKind::Added, "many/new"), (ChangeKind::Deleted, "many/single"), (ChangeKind::Modified, "sparse")];
    assert_eq!(list, expected.map(|(kind, path)| (kind, path.to_owned())));
    fixture.provider().destroy(clone).unwrap();
    fixture.provider().destroy(base).unwrap();
    fixture.assert_only(&[]);
    Verdict::Ran
}

/// An overlay obeys these in its lower layer, so they would change what it shows.
fn marks(fixture: &Fixture) -> Verdict {
    needs_root!();
    for (name, what) in [("whiteout", "a character device 0:0"), ("opaque", "trusted.overlay"), ("redirect", "trusted.overlay")] {
        let (base, path) = fixture.empty();
        fs::create_dir(path.join("dir")).unwrap();
        let at = path.join("dir").join(name);
        if name == "whiteout" {
            rustix::fs::mknodat(CWD, &at, FileType::CharacterDevice, Mode::empty(), 0).unwrap();
        } else {
            fs::create_dir(&at).unwrap();
            fs::write(at.join("file"), "x").unwrap();
            let (attribute, value) = if name == "opaque" { ("trusted.overlay.opaque", "y") } else { ("trusted.overlay.redirect", "/dir") };
            rustix::fs::setxattr(&at, attribute, value.as_bytes(), XattrFlags::empty()).unwrap();
        }
        match fixture.provider().seal(base) {
            Err(error @ Error::NotALower { .. }) if fixture.kind() == ProviderKind::Overlay => {
                assert_eq!(error.reason(), ErrorReason::InvalidRequest);
                assert!(error.to_string().contains(&format!("dir/{name} as it is: ")) && error.to_string().contains(what), "{error}");
                assert!(fixture.provider().clone_tree(fixture.uid(), base, CloneAccess::ReadWrite).is_err());
            }
            Ok(_) if fixture.kind() != ProviderKind::Overlay => {
                let (clone, copy) = fixture.clone_of(base);
                let kind = |at: &Path| (fs::symlink_metadata(at).unwrap().mode(), fs::symlink_metadata(at).unwrap().rdev());
                assert_eq!(kind(&copy.join("dir").join(name)), kind(&at));
                assert_eq!(changes_of(fixture, clone, base), []);
                fixture.provider().destroy(clone).unwrap();
            }
            other => panic!("{other:?}"),
        }
        fixture.provider().destroy(base).unwrap();
    }
    fixture.assert_only(&[]);
    Verdict::Ran
}

fn deep(fixture: &Fixture) -> Verdict {
    let (base, _) = fixture.base();
    let (uid, path) = fixture.clone_of(base);
    let mut at = rustix::fs::open(&path, OFlags::DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..300 {
        rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
        at = rustix::fs::openat(&at, "d", OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    drop(at);
    fixture.rest(uid);
    // A tree that is not whole is never sealed, so no clone of it is.
    let refused = fixture.provider().seal(uid).unwrap_err();
    assert!(matches!(&refused, Error::Seal { source, .. } if source.source.to_string().contains("deeper than 256 levels")), "{refused:?}");
    let fork = fixture.uid();
    match (fixture.kind(), fixture.provider().clone_tree(fork, uid, CloneAccess::ReadWrite)) {
        (ProviderKind::Zfs | ProviderKind::Btrfs, Ok(_)) => {
            let tree = fixture.root.open_tree(fork).unwrap();
            assert!(fs::metadata(format!("/proc/self/fd/{}/{}", tree.as_raw_fd(), "d/".repeat(300))).is_ok());
            drop(tree);
            fixture.provider().destroy(fork).unwrap();
        }
        (ProviderKind::Overlay, Err(error)) => {
            assert_eq!(error.reason(), ErrorReason::TreeTooDeep);
            let Error::Make { source, .. } = error else { panic!("{error:?}") };
            // Not a step of the copy: it is refused before that.
            assert_eq!(
                (source.step, &*source.source.to_string()),
                ("fork the tree", "the tree is deeper than 256 levels in its folder \"d\"")
            );
        }
        (ProviderKind::Reflink | ProviderKind::Copy, Err(Error::SourceNotSealed { .. })) => {}
        other => panic!("{other:?}"),
    }
    assert!(!fixture.provider().changes(uid, base, &ChangeLimits::NONE).unwrap().too_deep.is_empty());
    fixture.provider().destroy(uid).unwrap();
    fixture.assert_only(&[base]);
    Verdict::Ran
}

/// Makes a host folder that a snapshot is made of where that is possible.
fn host_folder(fixture: &Fixture) -> PathBuf {
    let source = host::beside(fixture);
    match fixture.kind() {
        ProviderKind::Btrfs => make_subvolume(&source),
        ProviderKind::Zfs | ProviderKind::Overlay | ProviderKind::Reflink | ProviderKind::Copy => fs::create_dir(&source).unwrap(),
    }
    source
}

fn strange_host(fixture: &Fixture) -> Verdict {
    needs_root!();
    let source = host_folder(fixture);
    let node = |name: &str, kind, device| rustix::fs::mknodat(CWD, source.join(name), kind, Mode::RUSR | Mode::WUSR, device).unwrap();
    node("null", FileType::CharacterDevice, rustix::fs::makedev(1, 3));
    node("disk", FileType::BlockDevice, rustix::fs::makedev(7, 200));
    node("pipe", FileType::Fifo, 0);
    let listener = std::os::unix::net::UnixListener::bind(source.join("socket")).unwrap();
    fs::write(source.join("linked"), "x").unwrap();
    (0..1000).for_each(|n| fs::hard_link(source.join("linked"), source.join(format!("link{n}"))).unwrap());
    let sparse = fs::File::create(source.join("sparse")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"middle", 1 << 39).unwrap();
    drop(sparse);
    let odd = OsStr::from_bytes(b"\xff\xfe\n");
    fs::create_dir(source.join(odd)).unwrap();
    fs::write(source.join(odd).join(odd), "odd").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", source.join("out")).unwrap();
    fs::create_dir(source.join("closed")).unwrap();
    fs::write(source.join("closed/inside"), "x").unwrap();
    for (name, mode) in [("closed", 0o000), ("linked", 0o4751), ("closed/inside", 0o000)] {
        fs::set_permissions(source.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    rustix::fs::setxattr(source.join("linked"), "user.colour", b"red", XattrFlags::empty()).unwrap();
    host::give_away(&source);
    fs::write(source.join("fixed"), "x").unwrap();
    set_immutable(&source.join("fixed"));

    let uid = fixture.uid();
    host::capture_with(fixture.provider(), uid, &source).unwrap();
    let (clone, copy) = fixture.clone_of(uid);
    let facts = |at: &Path| {
        let m = fs::symlink_metadata(at).unwrap();
        let (links, size) = if m.is_dir() { (0, 0) } else { (m.nlink(), m.len()) };
        (m.mode(), m.uid(), m.rdev(), size, links, m.mtime(), m.mtime_nsec())
    };
    let names = ["", "null", "disk", "pipe", "socket", "link999", "sparse", "out", "closed", "closed/inside", "fixed"];
    names.iter().for_each(|name| assert_eq!(facts(&copy.join(name)), facts(&source.join(name)), "{name}"));
    assert!(fs::metadata(copy.join("sparse")).unwrap().blocks() < 1024, "a hole was filled");
    assert_eq!(fs::read(copy.join(odd).join(odd)).unwrap(), b"odd");
    assert_eq!(rustix::fs::getxattr(copy.join("link0"), "user.colour", &mut [0; 8]).unwrap(), 3);
    drop(listener);
    fixture.provider().destroy(clone).unwrap();
    fixture.provider().destroy(uid).unwrap();
    fixture.assert_only(&[]);
    Verdict::Ran
}

fn refused_host(fixture: &Fixture) -> Verdict {
    needs_root!();
    let source = host_folder(fixture);
    host::give_away(&source);
    let uid = fixture.uid();
    rustix::fs::mknodat(CWD, source.join("whiteout"), FileType::CharacterDevice, Mode::empty(), 0).unwrap();
    match host::capture_with(fixture.provider(), uid, &source) {
        Err(Error::NotALower { path, .. }) if fixture.kind() == ProviderKind::Overlay => assert_eq!(path, Path::new("whiteout")),
        Ok(_) if fixture.kind() != ProviderKind::Overlay => fixture.provider().destroy(uid).unwrap(),
        other => panic!("{other:?}"),
    }
    fixture.assert_only(&[]);
    fs::remove_file(source.join("whiteout")).unwrap();
    let mut at = rustix::fs::open(&source, OFlags::DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..300 {
        rustix::fs::mkdirat(&at, "d", Mode::RWXU).unwrap();
        at = rustix::fs::openat(&at, "d", OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    let error = host::capture_with(fixture.provider(), uid, &source).unwrap_err();
    let text = std::error::Error::source(&error).and_then(|step| step.source()).unwrap().to_string();
    assert_eq!(text, "the tree is deeper than 256 levels", "{error:?}");
    fixture.assert_only(&[]);
    Verdict::Ran
}
