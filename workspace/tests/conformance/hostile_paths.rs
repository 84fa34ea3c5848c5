//! Hostile names, and directories that become links while they are used: nothing outside of the data root changes.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::fs::{CWD, FileType, Mode, OFlags, RenameFlags};
use yoi_workspace::mount::{TargetRoot, unbind};
use yoi_workspace::plan::DiskStep;
use yoi_workspace::{Change, ChangeKind, CloneAccess, Marker, ProviderKind, Uid, mountinfo};

use crate::fixture::{Fixture, StopOnDrop, is_root};
use crate::{Case, Verdict};

pub const CASES: &[Case] = &[
    ("no_path_for_a_mount_leads_outside", targets),
    ("planted_a_target_that_is_judged_by_its_prefix_is_found", prefix),
    ("no_text_but_a_uid_names_a_tree", uids),
    ("hostile_names_are_listed_whole_and_once", names),
    ("a_tree_is_destroyed_while_its_folders_become_links", destroyed),
    ("planted_a_removal_by_path_is_found", by_path),
    ("a_tree_is_measured_sealed_and_compared_while_its_folders_become_links", read),
    ("a_tree_is_mounted_while_the_path_to_its_target_becomes_a_link", mounted),
    ("planted_a_mount_by_path_is_found", mounted_by_path),
];

const SWAPS: usize = 5_000;

/// A directory that nobody may change. It notices every change.
struct Outside {
    dir: PathBuf,
    before: Vec<(PathBuf, u32, u32, i64, u64)>,
}

impl Outside {
    fn new(fixture: &Fixture, name: &str) -> Self {
        let dir = fixture.dir.join(name);
        for n in 0..4 {
            fs::create_dir_all(dir.join(format!("sub{n}"))).unwrap();
            for m in 0..4 {
                fs::write(dir.join(format!("f{m}")), "precious").unwrap();
                fs::write(dir.join(format!("sub{n}/f{m}")), "precious").unwrap();
            }
        }
        // A file that is visible in every sum and every list.
        fs::File::create(dir.join("canary")).unwrap().set_len(1 << 40).unwrap();
        let before = Self::look(&dir);
        Self { dir, before }
    }

    fn look(dir: &Path) -> Vec<(PathBuf, u32, u32, i64, u64)> {
        let mut all = vec![];
        let mut rest = vec![dir.to_owned()];
        while let Some(at) = rest.pop() {
            for entry in fs::read_dir(&at).unwrap() {
                let path = entry.unwrap().path();
                let meta = fs::symlink_metadata(&path).unwrap();
                if meta.is_dir() {
                    rest.push(path.clone());
                }
                all.push((path, meta.mode(), meta.uid(), meta.mtime(), meta.len()));
            }
        }
        all.sort();
        all
    }

    /// Returns what changed, if anything did.
    fn harm(&self) -> Option<String> {
        if let Some(mount) = mountinfo::read().unwrap().iter().find(|m| m.mount_point.starts_with(&self.dir)) {
            _ = rustix::mount::unmount(&mount.mount_point, rustix::mount::UnmountFlags::DETACH);
            return Some(format!("something was mounted at {}", mount.mount_point.display()));
        }
        let (now, before) = (Self::look(&self.dir), &self.before);
        let gone = before.iter().find(|b| !now.contains(b)).map(|b| format!("{} was changed or removed", b.0.display()));
        gone.or_else(|| now.iter().find(|n| !before.contains(n)).map(|n| format!("{} was made", n.0.display())))
    }
}

/// Paths that no target may have, relative to a root that holds `link` (to outside), `linked/deep`, `file` and `dir`.
fn hostile_paths(outside: &Path) -> BTreeSet<OsString> {
    let name = outside.file_name().unwrap().to_str().unwrap();
    let full = outside.to_str().unwrap();
    let heads = [
        "",
        ".",
        "..",
        "/",
        "//",
        "./..",
        "dir/..",
        "dir/../..",
        "link",
        "./link",
        "dir/../link",
        "file",
        "link/.",
        "link/..",
        "dir/./../link",
    ];
    let tails = ["", "/", "/.", "/..", "/sub0", "/sub0/", "/sub0/..", "/x", "/f0", "//sub0", "/../sub0", "/x/../sub1"];
    let mut all = BTreeSet::new();
    for head in heads {
        for tail in tails {
            all.insert(format!("{head}{tail}"));
            all.insert(format!("{head}/{name}{tail}"));
        }
    }
    for up in 1..12 {
        all.insert(format!("{}etc", "../".repeat(up)));
        all.insert(format!("{}{}", "../".repeat(up), &full[1..]));
        all.insert(format!("dir/{}{name}", "../".repeat(up)));
        all.insert(format!("{}dir", "./".repeat(up)) + "/..");
    }
    for absolute in [full, "/etc", "/proc/self/root", "/proc/self/cwd", "/dev/shm", "/"] {
        all.extend(["", "/", "/.", "/x", "//x", "/sub0"].map(|tail| format!("{absolute}{tail}")));
    }
    let mut all: BTreeSet<_> = all.into_iter().map(OsString::from).collect();
    for raw in [&b"a\0b"[..], b"\0", b"link\0", b"link/sub0\0", b"../x\0", b"\0/link"] {
        all.insert(OsString::from_vec(raw.to_vec()));
    }
    for long in [256, 1000, 4095, 4096, 10_000] {
        all.insert("a".repeat(long).into());
        all.insert("link/".repeat(long / 5).into());
        all.insert("../".repeat(long / 3).into());
    }
    all
}

/// Calls `entry` with every path. Returns their number, or what changed outside.
fn try_all(outside: &Outside, entry: &dyn Fn(&Path)) -> Result<usize, String> {
    let all = hostile_paths(&outside.dir);
    for path in &all {
        entry(Path::new(path));
        if let Some(harm) = outside.harm() {
            return Err(format!("{harm}, by the path {path:?}"));
        }
    }
    Ok(all.len())
}

/// A root for targets that contains links to outside.
fn target_root(fixture: &Fixture, outside: &Outside) -> (TargetRoot, PathBuf) {
    let dir = fixture.dir.join("pods");
    fs::create_dir_all(dir.join("dir")).unwrap();
    fs::create_dir_all(dir.join("linked")).unwrap();
    fs::write(dir.join("file"), "").unwrap();
    std::os::unix::fs::symlink(&outside.dir, dir.join("link")).unwrap();
    std::os::unix::fs::symlink(&outside.dir, dir.join("linked/deep")).unwrap();
    (TargetRoot::open(&dir).unwrap(), dir)
}

macro_rules! needs_root {
    () => {
        if !is_root() {
            return Verdict::Lacks("needs root to mount");
        }
    };
}

fn targets(fixture: &Fixture) -> Verdict {
    needs_root!();
    let (outside, (base, _)) = (Outside::new(fixture, "outside"), fixture.base());
    let (root, dir) = target_root(fixture, &outside);
    let said = AtomicUsize::new(0);
    let inputs = try_all(&outside, &|path| {
        let below = |p: &Path| p.components().all(|c| matches!(c, std::path::Component::Normal(_))) && !p.starts_with("link");
        let published = fixture.root.publish(base, &root, path, true);
        assert!(published.is_err() || below(path), "{path:?}");
        let unbound = unbind(&root, path);
        assert!(published.is_err() || unbound.is_ok(), "{path:?}: {unbound:?}");
        said.fetch_add(2, Ordering::Relaxed);
    })
    .unwrap();
    println!("    {inputs} paths, {} calls", said.load(Ordering::Relaxed));
    assert!(inputs >= 300, "only {inputs}");
    assert!(!mountinfo::read().unwrap().iter().any(|m| m.mount_point.starts_with(&dir)));
    Verdict::Ran
}

fn prefix(fixture: &Fixture) -> Verdict {
    let outside = Outside::new(fixture, "outside");
    let (_, dir) = target_root(fixture, &outside);
    let harm = try_all(&outside, &|path| {
        let full = dir.join(path);
        // The planted fault: a path that begins with the root may still lead outside.
        if full.starts_with(&dir) && !path.as_os_str().as_bytes().contains(&0) && path.as_os_str().len() < 200 {
            _ = fs::create_dir_all(full);
        }
    });
    println!("    found: {}", harm.expect_err("the harness is blind"));
    Verdict::Ran
}

fn uids(fixture: &Fixture) -> Verdict {
    let (base, _) = fixture.base();
    let good = base.to_string();
    let mut all: BTreeSet<OsString> = hostile_paths(&fixture.dir);
    for at in 0..=good.len() {
        for wrong in ["/", ".", "..", "A", "g", " ", "\n", "%2f", "é", "-"] {
            all.insert(format!("{}{wrong}{}", &good[..at], &good[at..]).into());
            all.insert(format!("{}{wrong}{}", &good[..at], good.get(at + 1..).unwrap_or_default()).into());
        }
    }
    all.remove(OsStr::new(&good));
    let before = fixture.root.inventory().unwrap();
    for text in &all {
        let Some(text) = text.to_str() else { continue };
        if text == good {
            continue;
        }
        assert!(text.parse::<Uid>().is_err(), "{text:?}");
        let word = serde_json::to_string(text).unwrap();
        for json in [format!(r#"{{"Discard":{{"uid":{word}}}}}"#), format!(r#"{{"Destroy":{{"uid":{word},"provider":"Copy"}}}}"#)] {
            assert!(serde_json::from_str::<DiskStep>(&json).is_err(), "{json}");
        }
        let marker = format!(r#"{{"version":1,"uid":{word},"provider":"Copy","making":{{"Empty":{{"owner":{{"uid":0,"gid":0}}}}}}}}"#);
        assert!(serde_json::from_str::<Marker>(&marker).is_err(), "{marker}");
    }
    assert_eq!(fixture.root.inventory().unwrap(), before);
    println!("    {} texts, 4 parsers each", all.len());
    assert!(all.len() >= 300);
    Verdict::Ran
}

fn hostile_names() -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = [
        &b"\n"[..],
        b"a\nb",
        b"\r\n",
        b"\t",
        b" ",
        b"  ",
        b"-rf",
        b"--",
        b"*",
        b"?",
        b"\\",
        b"\\n",
        b"'",
        b"\"",
        b"$(x)",
        b"`x`",
        b";",
        b"&",
        b"|",
        b"...",
    ]
    .map(<[u8]>::to_vec)
    .to_vec();
    names.extend(
        [&b".. "[..], b". .", b"~", b"#", b"%00", b"a\x1b[31mb", b"\x7f", b"tree", b"marker", b"marker.new", b"deep.0", b".git"]
            .map(<[u8]>::to_vec),
    );
    names.extend((0x80..=0xff_u8).map(|b| vec![b'x', b]));
    names.extend([vec![b'n'; 255], "é".repeat(127).into_bytes(), vec![0xff; 255], vec![b'\n'; 255]]);
    names
}

fn names(fixture: &Fixture) -> Verdict {
    let (base, path) = fixture.empty();
    fs::write(path.join("still"), "x").unwrap();
    fixture.provider().seal(base).unwrap();
    let (clone, path) = fixture.clone_of(base);
    let mut expected: BTreeSet<PathBuf> = BTreeSet::new();
    for (n, name) in hostile_names().into_iter().enumerate() {
        let name = OsString::from_vec(name);
        let at = path.join(&name);
        match n % 4 {
            0 => fs::write(&at, "x").unwrap(),
            1 => std::os::unix::fs::symlink("/etc/passwd", &at).unwrap(),
            2 => rustix::fs::mknodat(CWD, &at, FileType::Fifo, Mode::RWXU, 0).unwrap(),
            _ => {
                fs::create_dir(&at).unwrap();
                fs::write(at.join(&name), "x").unwrap();
                expected.insert(Path::new(&name).join(&name));
            }
        }
        expected.insert(PathBuf::from(name));
    }
    // Longer than any path that a system call takes.
    let long = "d".repeat(250);
    let (mut at, mut below) = (rustix::fs::open(&path, OFlags::DIRECTORY, Mode::empty()).unwrap(), PathBuf::new());
    for _ in 0..20 {
        rustix::fs::mkdirat(&at, &*long, Mode::RWXU).unwrap();
        at = rustix::fs::openat(&at, &*long, OFlags::DIRECTORY, Mode::empty()).unwrap();
        below.push(&long);
        expected.insert(below.clone());
    }
    drop(at);
    let told = fixture.provider().changes(clone, base).unwrap();
    assert!(told.iter().all(|c| c.kind == ChangeKind::Added));
    assert_eq!(told.len(), expected.len());
    assert_eq!(told.iter().map(|c| c.path.clone()).collect::<BTreeSet<_>>(), expected);
    let wire: Vec<Change> = serde_json::from_str(&serde_json::to_string(&told).unwrap()).unwrap();
    assert_eq!(wire, told);
    println!("    {} names", expected.len());
    fixture.provider().destroy(clone).unwrap();
    fixture.assert_only(&[base]);
    Verdict::Ran
}

/// Exchanges directories with links as fast as it can, until it is stopped.
struct Swapper {
    stop: AtomicBool,
    done: AtomicUsize,
}

impl Swapper {
    fn new() -> Self {
        Self { stop: AtomicBool::new(false), done: AtomicUsize::new(0) }
    }

    fn swap(&self, at: &OwnedFd, pairs: &[(String, String)]) {
        while !self.stop.load(Ordering::Relaxed) {
            let mut any = false;
            for (a, b) in pairs {
                if rustix::fs::renameat_with(at, &**a, at, &**b, RenameFlags::EXCHANGE).is_ok() {
                    any = true;
                    self.done.fetch_add(1, Ordering::Relaxed);
                }
            }
            if !any {
                std::thread::yield_now();
            }
        }
    }

    /// Runs `act` while the directories are exchanged.
    fn during<T>(&self, at: &Path, pairs: &[(String, String)], act: impl FnOnce() -> T) -> T {
        self.stop.store(false, Ordering::Relaxed);
        let dir = rustix::fs::open(at, OFlags::DIRECTORY, Mode::empty()).unwrap();
        let (before, wanted) = (self.done.load(Ordering::Relaxed), pairs.len());
        std::thread::scope(|scope| {
            scope.spawn(|| self.swap(&dir, pairs));
            let _stop = StopOnDrop(&self.stop);
            while self.done.load(Ordering::Relaxed) < before + wanted {
                std::thread::yield_now();
            }
            act()
        })
    }
}

/// Fills a tree with directories, and beside each a link to outside, where the same names are.
fn fill_with_links(path: &Path, outside: &Outside) -> Vec<(String, String)> {
    let dirs = ["a", "b", "c", "d", "e", "f", "g", "h"];
    for dir in dirs {
        for n in 0..4 {
            fs::create_dir_all(path.join(dir).join(format!("sub{n}"))).unwrap();
            for m in 0..4 {
                fs::write(path.join(dir).join(format!("f{m}")), "x").unwrap();
                fs::write(path.join(dir).join(format!("sub{n}/f{m}")), "x").unwrap();
            }
        }
        std::os::unix::fs::symlink(&outside.dir, path.join(format!("{dir}-link"))).unwrap();
    }
    dirs.map(|dir| (dir.to_owned(), format!("{dir}-link"))).to_vec()
}

fn destroyed(fixture: &Fixture) -> Verdict {
    let (outside, swapper) = (Outside::new(fixture, "outside"), Swapper::new());
    let mut rounds = 0;
    while swapper.done.load(Ordering::Relaxed) < SWAPS || rounds < 20 {
        let (uid, path) = fixture.empty();
        let pairs = fill_with_links(&path, &outside);
        // A directory that is a link at the moment may stop a call; the next call goes on.
        swapper.during(&path, &pairs, || (0..50).any(|_| fixture.provider().destroy(uid).is_ok()));
        fixture.provider().destroy(uid).unwrap();
        assert_eq!(outside.harm(), None, "after {} swaps", swapper.done.load(Ordering::Relaxed));
        rounds += 1;
    }
    fixture.assert_only(&[]);
    println!("    {} swaps, {rounds} trees", swapper.done.load(Ordering::Relaxed));
    Verdict::Ran
}

/// The planted fault: checks a path, and then uses the path again.
fn remove_by_path(path: &Path) {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        match fs::symlink_metadata(entry.path()) {
            Ok(meta) if meta.is_dir() => remove_by_path(&entry.path()),
            _ => _ = fs::remove_file(entry.path()),
        }
    }
    _ = fs::remove_dir(path);
}

fn by_path(fixture: &Fixture) -> Verdict {
    let (outside, swapper) = (Outside::new(fixture, "outside"), Swapper::new());
    for rounds in 1..500 {
        let path = fixture.dir.join(format!("tree{rounds}"));
        fs::create_dir(&path).unwrap();
        let pairs = fill_with_links(&path, &outside);
        swapper.during(&path, &pairs, || remove_by_path(&path));
        if let Some(harm) = outside.harm() {
            println!("    found: {harm}, after {} swaps, {rounds} trees", swapper.done.load(Ordering::Relaxed));
            return Verdict::Ran;
        }
    }
    panic!("the harness is blind");
}

fn read(fixture: &Fixture) -> Verdict {
    let (outside, swapper) = (Outside::new(fixture, "outside"), Swapper::new());
    let (base, path) = fixture.empty();
    fill_with_links(&path, &outside);
    fixture.provider().seal(base).unwrap();
    let (mut rounds, mut answers) = (0, 0);
    while swapper.done.load(Ordering::Relaxed) < SWAPS || rounds < 10 {
        let (uid, path) = fixture.clone_of(base);
        let pairs: Vec<_> = ["a", "b", "c", "d", "e", "f", "g", "h"].map(|d| (d.to_owned(), format!("{d}-link"))).to_vec();
        swapper.during(&path, &pairs, || {
            for _ in 0..5 {
                // A call may fail, but it must not follow a link.
                if let Ok(usage) = fixture.provider().usage(uid) {
                    assert!(usage.logical_bytes < 1 << 40, "it weighed what is outside");
                    answers += 1;
                }
                if let Ok(changes) = fixture.provider().changes(uid, base) {
                    assert!(!changes.iter().any(|c| c.path.ends_with("canary")), "it told what is outside");
                    answers += 1;
                }
            }
            if fixture.kind() == ProviderKind::Btrfs {
                let fork = fixture.uid();
                fixture.provider().clone_tree(fork, uid, CloneAccess::ReadWrite).unwrap();
                assert!(fixture.provider().usage(fork).unwrap().logical_bytes < 1 << 40);
                fixture.provider().destroy(fork).unwrap();
            }
            if let Ok(manifest) = fixture.provider().seal(uid) {
                assert!(manifest.bytes < 1 << 40, "it sealed what is outside");
                answers += 1;
            }
        });
        fixture.provider().destroy(uid).unwrap();
        rounds += 1;
    }
    assert!(answers > rounds, "only {answers} answers");
    assert_eq!(outside.harm(), None);
    println!("    {} swaps, {rounds} trees, {answers} answers", swapper.done.load(Ordering::Relaxed));
    Verdict::Ran
}

/// A path to a target. One component is exchanged with a link to outside, where the rest of the path exists, too.
fn target_path(fixture: &Fixture) -> (PathBuf, Outside, Vec<(String, String)>) {
    let dir = fixture.dir.join("pods");
    fs::create_dir_all(dir.join("pod/sub0")).unwrap();
    let outside = Outside::new(fixture, "outside");
    std::os::unix::fs::symlink(&outside.dir, dir.join("pod-link")).unwrap();
    (dir, outside, vec![("pod".to_owned(), "pod-link".to_owned())])
}

fn mounted(fixture: &Fixture) -> Verdict {
    needs_root!();
    let (base, _) = fixture.base();
    let (dir, outside, pairs) = target_path(fixture);
    let (root, target, swapper) = (TargetRoot::open(&dir).unwrap(), Path::new("pod/sub0/mount"), Swapper::new());
    let (mut rounds, mut mounted) = (0, 0);
    swapper.during(&dir, &pairs, || {
        while swapper.done.load(Ordering::Relaxed) < SWAPS || rounds < 200 {
            mounted += usize::from(fixture.root.publish(base, &root, target, false).is_ok());
            _ = unbind(&root, target);
            rounds += 1;
        }
    });
    if dir.join("pod").is_symlink() {
        rustix::fs::renameat_with(CWD, dir.join("pod"), CWD, dir.join("pod-link"), RenameFlags::EXCHANGE).unwrap();
    }
    unbind(&root, target).unwrap();
    assert_eq!(outside.harm(), None);
    assert!(!mountinfo::read().unwrap().iter().any(|m| m.mount_point.starts_with(&dir)));
    assert!(mounted > 0, "it was never mounted");
    println!("    {} swaps, {rounds} attempts, {mounted} mounted", swapper.done.load(Ordering::Relaxed));
    Verdict::Ran
}

fn mounted_by_path(fixture: &Fixture) -> Verdict {
    needs_root!();
    let (_, tree) = fixture.base();
    let (dir, outside, pairs) = target_path(fixture);
    let (target, swapper) = (dir.join("pod/sub0"), Swapper::new());
    let harm = swapper.during(&dir, &pairs, || {
        (0..50_000).find_map(|_| {
            // The planted fault: checks the path and then uses it again, with other work between.
            let judged = target.canonicalize().is_ok_and(|real| real.starts_with(&dir));
            std::thread::yield_now();
            if judged && rustix::mount::mount_bind(&tree, &target).is_ok() {
                let harm = outside.harm();
                _ = rustix::mount::unmount(&target, rustix::mount::UnmountFlags::DETACH);
                return harm;
            }
            None
        })
    });
    for mount in mountinfo::read().unwrap().iter().filter(|m| m.mount_point.starts_with(&fixture.dir)) {
        _ = rustix::mount::unmount(&mount.mount_point, rustix::mount::UnmountFlags::DETACH);
    }
    println!("    found: {}, after {} swaps", harm.expect("the harness is blind"), swapper.done.load(Ordering::Relaxed));
    Verdict::Ran
}
