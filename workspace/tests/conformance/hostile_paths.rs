//! Hostile paths and names: nothing outside of the data root changes.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::{CWD, FileType, Mode, OFlags};
use yoi_workspace::mount::{TargetRoot, unbind};
use yoi_workspace::plan::DiskStep;
use yoi_workspace::{Change, ChangeKind, ChangeLimits, CloneAccess, HostFolder, Marker, Uid, mountinfo};

use crate::fixture::{Fixture, needs_root};
use crate::host;
use crate::outside::Outside;
use crate::{Case, Verdict};

pub const CASES: &[Case] = &[
    ("no_path_for_a_mount_leads_outside", targets),
    ("planted_a_target_that_is_judged_by_its_prefix_is_found", prefix),
    ("no_path_of_a_host_folder_leads_outside", sources),
    ("planted_a_host_folder_that_is_judged_by_its_prefix_is_found", source_prefix),
    ("no_text_but_a_uid_names_a_tree", uids),
    ("hostile_names_are_listed_whole_and_once", names),
];

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
    println!("    found: {}", harm.expect_err("the harness detects nothing"));
    Verdict::Ran
}

/// A folder of host folders that contains links to outside.
fn source_root(fixture: &Fixture) -> (Outside, PathBuf) {
    let outside = Outside::new(fixture, "outside");
    let (_, inside) = target_root(fixture, &outside);
    let dir = host::beside(fixture);
    fs::rename(inside, &dir).unwrap();
    ["dir", "linked"].iter().for_each(|name| host::give_away(&dir.join(name)));
    (outside, dir)
}

fn sources(fixture: &Fixture) -> Verdict {
    needs_root!();
    let (outside, dir) = source_root(fixture);
    let (root, captured) = (fs::File::open(&dir).unwrap(), AtomicUsize::new(0));
    let inputs = try_all(&outside, &|path| {
        let Ok(folder) = HostFolder::open(&root, path, path) else { return };
        let plain = path.components().all(|c| matches!(c, std::path::Component::Normal(_)));
        assert!(plain && !path.starts_with("link"), "{path:?}");
        let uid = fixture.uid();
        if fixture.provider().capture(uid, &folder, host::USER, CloneAccess::ReadOnly).is_ok() {
            assert!(fixture.provider().usage(uid).unwrap().logical_bytes < 1 << 40, "{path:?}");
            fixture.provider().destroy(uid).unwrap();
            captured.fetch_add(1, Ordering::Relaxed);
        }
    })
    .unwrap();
    println!("    {inputs} paths");
    assert!(inputs >= 300 && captured.load(Ordering::Relaxed) == 0);
    // The one folder that may be captured.
    let folder = HostFolder::open(&root, Path::new("dir"), Path::new("dir")).unwrap();
    let uid = fixture.uid();
    fixture.provider().capture(uid, &folder, host::USER, CloneAccess::ReadOnly).unwrap();
    fixture.provider().destroy(uid).unwrap();
    fixture.assert_only(&[]);
    Verdict::Ran
}

fn source_prefix(fixture: &Fixture) -> Verdict {
    let (outside, dir) = source_root(fixture);
    let found = hostile_paths(&outside.dir).into_iter().map(|path| dir.join(path)).find(|full| {
        // The planted fault: a path that begins with the folder may still lead outside, where the canary is.
        full.starts_with(&dir) && fs::metadata(full.join("canary")).is_ok()
    });
    println!("    found: {:?}", found.expect("the harness detects nothing").strip_prefix(&dir).unwrap());
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
    let told = fixture.provider().changes(clone, base, &ChangeLimits::NONE).unwrap().changes;
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
