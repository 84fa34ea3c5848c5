//! A folder of the host, with all that is not committed in it, becomes a tree.

use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use yoi_workspace::mount::{TargetRoot, unbind};
use yoi_workspace::{
    CaptureMethod, ChangeKind, CloneAccess, Error, ErrorReason, FaultPoint, Faults, HostFolder, Marker, Owner, PlantedFault, Provider,
    SysError, TreeOrigin, Uid, mountinfo,
};

use crate::changes::changes_of;
use crate::fixture::{Fixture, content, fill_repository, git, make_subvolume, needs_root, read_in};
use crate::lanes::Lane;
use crate::{Case, Verdict};

pub const CASES: &[Case] = &[
    ("w5_a_host_folder_is_captured_with_all_that_is_not_committed", w5),
    ("w6_a_folder_inside_a_subvolume_is_a_folder_of_its_snapshot", w6),
    ("w7_of_two_subvolumes_whose_names_begin_alike_the_right_one_is_captured", w7),
    ("w9_a_volume_inside_a_host_folder_is_refused_by_its_name", w9),
    ("w10_a_plain_folder_is_seeded_by_reflink_or_copied_and_the_marker_says_which", w10),
    ("w16_edits_of_a_host_folder_change_no_tree", w16),
    ("w41_a_host_folder_that_is_gone_a_link_or_no_folder_is_refused", w41),
    ("a_host_folder_of_root_or_of_another_user_is_refused_with_what_mends_it", owners),
    ("a_host_folder_whose_repository_is_elsewhere_is_refused_and_leaves_no_tree", linked),
    ("a_host_folder_that_changes_is_copied_again_and_then_refused", changing),
    ("planted_a_host_file_torn_in_the_copy_is_found", torn),
    ("a_host_folder_is_captured_once_for_each_tree", repeated),
];

pub const USER: Owner = Owner { uid: 1000, gid: 1000 };

/// The path of a folder beside the data root of a case, on the same file system. Nothing is there yet.
pub fn beside(fixture: &Fixture) -> PathBuf {
    fixture.dir.with_extension("host")
}

/// Gives everything below a folder to a user, and the folder itself.
pub fn give_away(path: &Path) {
    std::os::unix::fs::lchown(path, Some(USER.uid), Some(USER.gid)).unwrap();
    if fs::symlink_metadata(path).unwrap().is_dir() {
        fs::read_dir(path).unwrap().for_each(|entry| give_away(&entry.unwrap().path()));
    }
}

/// Makes a repository with staged, unstaged, untracked and ignored files that belongs to [`USER`].
fn repository(at: &Path) {
    fs::create_dir_all(at).unwrap();
    fill_repository(at);
    give_away(at);
}

/// Opens a folder of the host as the mounter does: below the folder that contains it.
pub fn opened(path: &Path) -> Result<HostFolder, Error> {
    let lost = |source| Error::SourceVanished { path: path.to_owned(), source: SysError { step: "open the parent", source } };
    let parent = fs::File::open(path.parent().unwrap()).map_err(lost)?;
    HostFolder::open(&parent, Path::new(path.file_name().unwrap()), path)
}

pub fn capture_with(provider: &dyn Provider, uid: Uid, path: &Path) -> Result<Marker, Error> {
    provider.capture(uid, &opened(path)?, USER, CloneAccess::ReadOnly)
}

fn capture(fixture: &Fixture, path: &Path) -> Result<(Uid, Marker), Error> {
    let uid = fixture.uid();
    Ok((uid, capture_with(fixture.provider(), uid, path)?))
}

fn how(marker: &Marker) -> (CaptureMethod, &str) {
    let captured = marker.captured.as_ref().unwrap();
    (captured.how, &captured.why)
}

/// Everything that would differ if somebody had written to a folder.
fn trace(at: &Path) -> Vec<(PathBuf, u64, u32, i64, i64, i64, i64)> {
    let mut found = Vec::new();
    let mut rest = vec![at.to_owned()];
    while let Some(path) = rest.pop() {
        let m = fs::symlink_metadata(&path).unwrap();
        found.push((path.clone(), m.ino(), m.mode(), m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec()));
        if m.is_dir() {
            rest.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    found.sort();
    found
}

fn w5(fixture: &Fixture) -> Verdict {
    needs_root!();
    let source = beside(fixture);
    repository(&source);
    let status = |at: &Path| git(at, &["--no-optional-locks", "status", "--porcelain=v2", "--ignored"]);
    let (expected, before, words) = (content(&source), trace(&source), status(&source));
    assert!(["untracked.txt", "target/", "1 M. ", "1 .M "].iter().all(|part| words.contains(part)), "{words}");
    let (base, marker) = capture(fixture, &source).unwrap();
    assert!(marker.sealed.is_some() && marker.origin == TreeOrigin::Host { owner: USER }, "{marker:?}");
    assert_eq!(content(&fixture.path(base)), expected);
    let (_, path) = fixture.clone_of(base);
    assert_eq!(content(&path), expected);
    assert_eq!(status(&path), words);
    let users = |m: fs::Metadata| (m.uid(), m.gid()) == (USER.uid, USER.gid);
    assert!(["", ".git", "src/file1.rs", "src/link.rs"].iter().all(|name| users(fs::symlink_metadata(path.join(name)).unwrap())));
    assert_eq!(trace(&source), before, "the source was written to");
    Verdict::Ran
}

/// None in lanes without subvolumes to capture.
fn in_btrfs(fixture: &Fixture) -> Option<Verdict> {
    (fixture.lane != Lane::Btrfs).then_some(Verdict::NotRun("makes no snapshots of host folders"))
}

/// Makes a folder that the lane can capture in place, if it can capture any so.
pub fn make_folder(lane: Lane, at: &Path) {
    match lane {
        Lane::Btrfs => make_subvolume(at),
        _ => fs::create_dir(at).unwrap(),
    }
}

fn w6(fixture: &Fixture) -> Verdict {
    if let Some(verdict) = in_btrfs(fixture) {
        return verdict;
    }
    let volume = beside(fixture);
    make_subvolume(&volume);
    let source = volume.join("a/repo");
    repository(&source);
    fs::create_dir(volume.join("a/repo-two")).unwrap();
    fs::write(volume.join("a/secret"), vec![1; 1 << 20]).unwrap();
    let expected = content(&source);
    let (base, marker) = capture(fixture, &source).unwrap();
    assert_eq!(how(&marker), (CaptureMethod::Snapshot, "the source lies in a subvolume of the data root's file system"));
    assert_eq!(marker.below, Path::new("a/repo"));
    assert_eq!(content(&fixture.path(base)), expected);
    let (clone, path) = fixture.clone_of(base);
    assert_eq!((content(&path), &fixture.root.marker(clone).unwrap().below), (expected, &marker.below));

    // What a Pod mounts is the folder, and the mount is known as the tree's.
    let pods = fixture.dir.join("pods");
    fs::create_dir(&pods).unwrap();
    let root = TargetRoot::open(&pods).unwrap();
    fixture.root.publish(clone, &root, Path::new("pod"), false).unwrap();
    let (shown, table) = (pods.join("pod"), mountinfo::read().unwrap());
    assert!(shown.join("src").exists() && !shown.join("a").exists() && !shown.join("../secret").exists());
    let mount = table.iter().find(|m| m.mount_point == shown).unwrap();
    assert_eq!([fixture.root.mounted_tree(mount), fixture.root.shown_tree(mount), mountinfo::named_tree(mount)], [Some(clone); 3]);
    let part = mountinfo::Mount { root: mount.root.join("src"), ..mount.clone() };
    assert_eq!([fixture.root.mounted_tree(&part), fixture.root.shown_tree(&part)], [None; 2], "a part of a tree");
    unbind(&root, Path::new("pod")).unwrap();

    // Only the folder is listed, measured and sealed.
    fs::write(path.join("new"), "x").unwrap();
    fs::remove_file(path.join("src/file4.rs")).unwrap();
    fs::write(path.join("../repo-two/stranger"), "x").unwrap();
    let list: Vec<_> = changes_of(fixture, clone, base).into_iter().map(|(kind, _, path)| (kind, path)).collect();
    let wanted = [(ChangeKind::Added, "new"), (ChangeKind::Deleted, "src/file4.rs")].map(|(kind, path)| (kind, path.to_owned()));
    assert_eq!(list, wanted);
    let (counted, visited) = (fixture.provider().usage(clone).unwrap(), fixture.provider().measure(clone).unwrap());
    assert!(visited.logical_bytes < 4 << 20);
    assert_eq!((counted.logical_bytes, counted.entries), (visited.logical_bytes, visited.entries));
    make_subvolume(&path.join("../beside"));
    let fork = fixture.clone_of(clone).1;
    assert!(fork.join("new").exists() && !fork.join("src/file4.rs").exists());
    make_subvolume(&path.join("src/nested"));
    let refused = fixture.provider().clone_tree(fixture.uid(), clone, CloneAccess::ReadWrite).unwrap_err();
    assert_eq!(refused.reason(), ErrorReason::NestedVolume);
    for entry in fixture.root.inventory().unwrap().entries {
        fixture.provider().destroy(entry.uid).unwrap();
    }
    fixture.assert_only(&[]);
    Verdict::Ran
}

fn w7(fixture: &Fixture) -> Verdict {
    if let Some(verdict) = in_btrfs(fixture) {
        return verdict;
    }
    let top = beside(fixture);
    fs::create_dir(&top).unwrap();
    for name in ["x", "xy"] {
        make_subvolume(&top.join(name));
        fs::create_dir(top.join(name).join("deep")).unwrap();
        fs::write(top.join(name).join("deep/which"), name).unwrap();
        give_away(&top.join(name));
    }
    for (path, below, file) in [("xy/deep", "deep", "which"), ("xy", "", "deep/which")] {
        let (uid, marker) = capture(fixture, &top.join(path)).unwrap();
        assert_eq!((how(&marker).0, &*marker.below), (CaptureMethod::Snapshot, Path::new(below)));
        assert_eq!(read_in(&fixture.root, uid, file).as_deref(), Some("xy"));
    }
    Verdict::Ran
}

fn w9(fixture: &Fixture) -> Verdict {
    needs_root!();
    let source = beside(fixture);
    make_folder(fixture.lane, &source);
    repository(&source);
    let refused = |named: &str| {
        let error = capture(fixture, &source).unwrap_err();
        assert!(matches!(&error, Error::SourceNested { path } if path == Path::new(named)), "{error}");
        assert_eq!(error.reason(), ErrorReason::NestedVolume);
        fixture.assert_only(&[]);
    };
    let inside = source.join("src/deep");
    rustix::mount::mount("none", &inside, "tmpfs", rustix::mount::MountFlags::empty(), None).unwrap();
    refused("src/deep");
    rustix::mount::unmount(&inside, rustix::mount::UnmountFlags::empty()).unwrap();
    if fixture.on_btrfs() {
        ["src/nested2", "src/deep/nested1"].iter().for_each(|name| make_subvolume(&source.join(name)));
        fs::write(source.join("src/nested2/file"), "x").unwrap();
        refused("src/deep/nested1");
        ["src/nested2/file"].iter().for_each(|name| fs::remove_file(source.join(name)).unwrap());
        ["src/nested2", "src/deep/nested1"].iter().for_each(|name| fs::remove_dir(source.join(name)).unwrap());
    }
    let (uid, _) = capture(fixture, &source).unwrap();
    assert_eq!(content(&fixture.path(uid)), content(&source));
    Verdict::Ran
}

fn w10(fixture: &Fixture) -> Verdict {
    needs_root!();
    let (source, elsewhere) = (beside(fixture), tempfile::tempdir_in("/dev/shm").unwrap());
    repository(&source);
    repository(elsewhere.path());
    fixture.sync();
    let before = trace(&source);
    let (near, marker) = capture(fixture, &source).unwrap();
    let (method, why) = match fixture.lane {
        Lane::Copy | Lane::CopyOnBtrfs => (CaptureMethod::Copied, "this provider copies every file"),
        Lane::Btrfs => (CaptureMethod::Reflinked, "the source lies in no subvolume"),
        Lane::OverlayOnExt4 => (CaptureMethod::Copied, "this provider makes no snapshots; no file could share its blocks: "),
        Lane::OverlayOnXfs | Lane::OverlayOnBtrfs | Lane::ReflinkOnXfs | Lane::ReflinkOnBtrfs => {
            (CaptureMethod::Reflinked, "this provider makes no snapshots")
        }
        Lane::Zfs => (CaptureMethod::Copied, "the source lies in no dataset; no file could share its blocks: "),
    };
    assert!(how(&marker).0 == method && how(&marker).1.starts_with(why), "{marker:?}");
    if method == CaptureMethod::Reflinked {
        fixture.sync();
        assert_eq!(fixture.provider().measure(near).unwrap().exclusive_bytes, 0);
        // Where the file system counts, its metadata is in it.
        assert!(fixture.provider().usage(near).unwrap().exclusive_bytes < 1 << 20);
    }
    assert_eq!(trace(&source), before, "the source was written to");
    let (far, marker) = capture(fixture, elsewhere.path()).unwrap();
    assert_eq!(how(&marker).0, CaptureMethod::Copied);
    println!("    {}; from elsewhere: {}", how(&fixture.root.marker(near).unwrap()).1, how(&marker).1);
    assert_eq!(content(&fixture.path(far)), content(elsewhere.path()));
    assert_eq!(content(&fixture.clone_of(far).1), content(elsewhere.path()));
    Verdict::Ran
}

fn w16(fixture: &Fixture) -> Verdict {
    needs_root!();
    let source = beside(fixture);
    make_folder(fixture.lane, &source);
    repository(&source);
    let expected = content(&source);
    let (base, _) = capture(fixture, &source).unwrap();
    let (_, early) = fixture.clone_of(base);
    fs::write(source.join("src/file1.rs"), "edited outside\n").unwrap();
    std::os::unix::fs::FileExt::write_all_at(&fs::File::options().write(true).open(source.join("target/ignored.bin")).unwrap(), b"x", 9)
        .unwrap();
    fs::remove_file(source.join("untracked.txt")).unwrap();
    fs::rename(source.join("src/deep"), source.join("deep")).unwrap();
    assert_eq!((content(&early), content(&fixture.clone_of(base).1)), (expected.clone(), expected));
    let (later, _) = capture(fixture, &source).unwrap();
    assert_eq!(read_in(&fixture.root, later, "src/file1.rs").as_deref(), Some("edited outside\n"));
    fs::remove_dir_all(&source).or_else(|_| fs::remove_dir_all(source.join("src"))).unwrap();
    assert_eq!(fs::read_to_string(early.join("src/file3.rs")).unwrap(), "unstaged\n");
    Verdict::Ran
}

fn w41(fixture: &Fixture) -> Verdict {
    needs_root!();
    let top = beside(fixture);
    fs::create_dir_all(top.join("real")).unwrap();
    fs::write(top.join("file"), "x").unwrap();
    std::os::unix::fs::symlink("/etc", top.join("out")).unwrap();
    std::os::unix::fs::symlink("real", top.join("in")).unwrap();
    give_away(&top);
    let expected = [
        ("missing", ErrorReason::SourceNotFound),
        ("out", ErrorReason::SourceForbidden),
        ("in", ErrorReason::SourceForbidden),
        ("file", ErrorReason::SourceForbidden),
    ];
    for (name, reason) in expected {
        assert_eq!(opened(&top.join(name)).unwrap_err().reason(), reason, "{name}");
    }
    // It goes between the moment at which it is opened and the copy.
    let folder = opened(&top.join("real")).unwrap();
    fs::remove_dir(top.join("real")).unwrap();
    assert_eq!(
        fixture.provider().capture(fixture.uid(), &folder, USER, CloneAccess::ReadOnly).unwrap_err().reason(),
        ErrorReason::SourceNotFound
    );
    // The data root itself, a part of it, and what contains it.
    fs::create_dir(fixture.dir.join("inner")).unwrap();
    for path in [fixture.dir.clone(), fixture.dir.join("inner"), fixture.dir.parent().unwrap().to_owned()] {
        let m = fs::metadata(&path).unwrap();
        std::os::unix::fs::chown(&path, Some(USER.uid), Some(USER.gid)).unwrap();
        let error = capture(fixture, &path).unwrap_err();
        std::os::unix::fs::chown(&path, Some(m.uid()), Some(m.gid())).unwrap();
        assert_eq!(error.reason(), ErrorReason::SourceForbidden, "{error}");
    }
    fixture.assert_only(&[]);
    Verdict::Ran
}

fn owners(fixture: &Fixture) -> Verdict {
    needs_root!();
    let source = beside(fixture);
    fs::create_dir(&source).unwrap();
    let refused = |part: &str| {
        let error = capture(fixture, &source).unwrap_err();
        assert!(error.reason() == ErrorReason::SourceForbidden && error.to_string().contains(part), "{error}");
        println!("    {error}");
    };
    refused(&format!("no agent is root; on the node, run: chown -R 1000:1000 {}", source.display()));
    std::os::unix::fs::chown(&source, Some(1001), Some(7)).unwrap();
    refused("it belongs to 1001:7, and the tree would be 1000:1000's; set the owner to uid 1001 and gid 7");
    fixture.assert_only(&[]);
    Verdict::Ran
}

fn linked(fixture: &Fixture) -> Verdict {
    needs_root!();
    let source = beside(fixture);
    fs::create_dir(&source).unwrap();
    fs::write(source.join(".git"), "gitdir: /elsewhere/.git/worktrees/source\n").unwrap();
    give_away(&source);
    let error = capture(fixture, &source).unwrap_err();
    assert!(error.reason() == ErrorReason::SourceForbidden && error.to_string().contains("git clone"), "{error}");
    fixture.assert_only(&[]);
    fs::remove_file(source.join(".git")).unwrap();
    capture(fixture, &source).unwrap();
    Verdict::Ran
}

/// Writes one text to two files, so often as it is told to, each time that a file of the host was copied.
struct Writer {
    source: PathBuf,
    left: AtomicUsize,
    is_planted: bool,
}

impl Writer {
    fn of(source: &Path, times: usize, is_planted: bool) -> Arc<dyn Faults> {
        Arc::new(Self { source: source.to_owned(), left: AtomicUsize::new(times), is_planted })
    }
}

impl Faults for Writer {
    fn on_point(&self, point: FaultPoint) {
        let take = |left: usize| left.checked_sub(1);
        if point == FaultPoint::HostFileCopied
            && let Ok(left) = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
        {
            TWINS.iter().for_each(|name| fs::write(self.source.join(name), format!("{left:20}")).unwrap());
        }
    }

    fn has(&self, fault: PlantedFault) -> bool {
        self.is_planted && fault == PlantedFault::TornFileKept
    }
}

/// Written together, so a tree of one moment has one text in both.
const TWINS: [&str; 2] = ["f03", "f15"];

fn many_files(fixture: &Fixture) -> PathBuf {
    let source = beside(fixture);
    fs::create_dir(&source).unwrap();
    (0..20).for_each(|n| fs::write(source.join(format!("f{n:02}")), format!("{:20}", "first")).unwrap());
    give_away(&source);
    source
}

fn changing(fixture: &Fixture) -> Verdict {
    needs_root!();
    let source = many_files(fixture);
    // Two writes end two passes at most, whatever the order of the files, and the third is quiet.
    for (writes, is_refused) in [(1, false), (2, false), (usize::MAX, true)] {
        let root = fixture.reopened(Writer::of(&source, writes, false));
        let uid = fixture.uid();
        match capture_with(root.provider(fixture.kind()).unwrap(), uid, &source) {
            Ok(_) if !is_refused => {
                let texts = TWINS.map(|name| read_in(&fixture.root, uid, name).unwrap());
                assert_eq!(texts, TWINS.map(|name| fs::read_to_string(source.join(name)).unwrap()), "{writes} writes");
                fixture.provider().destroy(uid).unwrap();
            }
            Err(error) if is_refused => {
                assert!(matches!(&error, Error::SourceChanging { path, passes: 3 } if TWINS.map(Path::new).contains(&&**path)), "{error}");
                assert_eq!(error.reason(), ErrorReason::SourceChanging);
            }
            other => panic!("{writes} writes: {other:?}"),
        }
        fixture.assert_only(&[]);
    }
    Verdict::Ran
}

fn torn(fixture: &Fixture) -> Verdict {
    needs_root!();
    let source = many_files(fixture);
    let root = fixture.reopened(Writer::of(&source, usize::MAX, true));
    let uid = fixture.uid();
    capture_with(root.provider(fixture.kind()).unwrap(), uid, &source).unwrap();
    let texts = TWINS.map(|name| read_in(&fixture.root, uid, name).unwrap());
    assert_ne!(texts[0], texts[1], "the harness detects nothing");
    println!("    found: a tree of two moments, {texts:?}");
    Verdict::Ran
}

fn repeated(fixture: &Fixture) -> Verdict {
    needs_root!();
    let source = beside(fixture);
    repository(&source);
    let (uid, marker) = capture(fixture, &source).unwrap();
    fs::write(source.join("later"), "x").unwrap();
    assert_eq!(capture_with(fixture.provider(), uid, &source).unwrap(), marker);
    assert_eq!(read_in(&fixture.root, uid, "later"), None);
    let conflict = fixture.provider().create_empty(uid, USER).unwrap_err();
    assert!(matches!(conflict, Error::Conflict { .. }), "{conflict}");
    let odd = beside(fixture).with_file_name(std::ffi::OsString::from_vec(format!("{:?}-\u{e9} \\,:\n", fixture.lane).into_bytes()));
    fs::create_dir(&odd).unwrap();
    give_away(&odd);
    capture(fixture, &odd).unwrap();
    Verdict::Ran
}
