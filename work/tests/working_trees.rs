//! Generated working trees, captured, sent and built again; and the person's side, which stays as it is.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use yoi_test_support::{thorough, wait_until};
use yoi_work::{Asked, CaptureError, Captured, CheckError, Limits, Rules, Source, capture, check, write_bundle};

const NAME: &str = "refs/yoi/sync/machine";

fn git(folder: &Path, words: &[&str]) -> String {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=t", "-c", "user.email=t@t", "-c", "protocol.file.allow=always"]).args(words).current_dir(folder);
    let done = command.output().unwrap();
    assert!(done.status.success(), "git {words:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).trim_end().to_owned()
}

/// Numbers that are the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }

    fn bytes(&mut self) -> Vec<u8> {
        let length = self.below(300);
        (0..length).map(|_| b"abc \n\t\0\xff"[usize::try_from(self.below(8)).unwrap()]).collect()
    }
}

/// What a file of a tree is: its mode and its bytes, or where it leads.
type Tree = BTreeMap<PathBuf, (u32, Vec<u8>)>;

/// Every path below `folder`, without what git keeps for itself.
fn tree_of(folder: &Path) -> Tree {
    let (mut tree, mut folders) = (Tree::new(), vec![folder.to_owned()]);
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let name = path.strip_prefix(folder).unwrap().to_owned();
            if metadata.is_symlink() {
                let target = fs::read_link(&path).unwrap();
                tree.insert(name, (0o120_000, std::os::unix::ffi::OsStrExt::as_bytes(target.as_os_str()).to_vec()));
            } else if metadata.is_dir() {
                if path.file_name().is_some_and(|name| name != ".git") {
                    folders.push(path);
                }
            } else {
                tree.insert(name, (metadata.permissions().mode() & 0o100, fs::read(&path).unwrap()));
            }
        }
    }
    tree
}

/// Every byte below a folder, `.git` included.
fn all_of(folder: &Path) -> Tree {
    let mut all = tree_of(folder);
    for (path, file) in tree_of(&folder.join(".git")) {
        all.insert(Path::new(".git").join(path), file);
    }
    all
}

/// How many files and folders there are, while others come and go.
fn entries(folder: &Path) -> usize {
    let Ok(read) = fs::read_dir(folder) else { return 0 };
    read.flatten().map(|entry| 1 + entries(&entry.path())).sum()
}

struct Scene {
    folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        Scene { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn repository(&self) -> PathBuf {
        let path = self.path("person");
        fs::create_dir(&path).unwrap();
        git(&path, &["init", "-q", "-b", "main"]);
        path
    }

    fn capture(&self, source: &Source, include: &[String]) -> Result<Captured, CaptureError> {
        let private = self.path("private");
        fs::create_dir_all(&private).unwrap();
        capture(source, &Asked { private: &private, include, seconds: 1_800_000_000, limits: Limits { bytes: 1 << 20 } })
    }

    /// Sends the commit to a repository that has `have`, and returns the tree that is built there.
    fn rebuilt(&self, source: &Source, captured: &Captured, other: &Path, have: &[String]) -> Tree {
        let bundle = self.path("work.bundle");
        let _ = fs::remove_file(&bundle);
        write_bundle(source, &self.path("private"), &captured.commit, NAME, have, &bundle, 1 << 20).unwrap();
        let checked = self.check(&bundle, other).unwrap();
        assert_eq!(checked.commit, captured.commit);
        git(other, &["fetch", "-q", bundle.to_str().unwrap(), &format!("{NAME}:{NAME}")]);
        let built = self.path("built");
        let _ = fs::remove_dir_all(&built);
        fs::create_dir(&built).unwrap();
        git(other, &["-c", "core.autocrlf=false", "--work-tree", built.to_str().unwrap(), "checkout", "-q", "-f", NAME, "--", "."]);
        tree_of(&built)
    }

    fn check(&self, bundle: &Path, other: &Path) -> Result<yoi_work::Checked, CheckError> {
        let quarantine = self.path("quarantine");
        let _ = fs::remove_dir_all(&quarantine);
        fs::create_dir(&quarantine).unwrap();
        check(bundle, other, &quarantine, &Rules { name: NAME, bytes: 1 << 20, pack_bytes: 1 << 20, paths: 1000, windows_names: false })
    }

    fn other(&self) -> PathBuf {
        let other = self.path("other.git");
        git(self.folder.path(), &["init", "-q", "--bare", "other.git"]);
        other
    }
}

/// Names that a tree may hold; none is the folder of another.
const NAMES: [&str; 10] =
    ["a", "b/c", "b/d e", "f/\u{e4}\u{1f600}", "f/-x", "q\"uote", "new\nline", "deep/er/and/er", "back\\slash", "b/ends "];

fn change(random: &mut Random, root: &Path, name: &str) {
    let path = root.join(name);
    let _ = fs::remove_file(&path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    match random.below(6) {
        0 => {}
        1 => symlink(["a", "../nowhere", "/etc/passwd"][usize::try_from(random.below(3)).unwrap()], &path).unwrap(),
        kind => {
            fs::write(&path, random.bytes()).unwrap();
            let mode = if kind == 2 { 0o755 } else { 0o644 };
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
    }
}

#[test]
fn a_captured_tree_is_built_again_as_it_was_and_the_persons_side_is_untouched() {
    for seed in 1..=if thorough() { 300 } else { 30 } {
        let (scene, mut random) = (Scene::new(), Random(seed * 0x9e37_79b9));
        let root = scene.repository();
        if seed % 5 != 0 {
            NAMES.iter().for_each(|name| change(&mut random, &root, name));
            git(&root, &["add", "-A"]);
            git(&root, &["commit", "-q", "--allow-empty", "-m", "base"]);
        }
        // Staged, then changed once more, or not; a stash and an ignored file, too.
        for name in NAMES {
            match random.below(4) {
                0 => change(&mut random, &root, name),
                1 => {
                    change(&mut random, &root, name);
                    git(&root, &["add", "-A"]);
                }
                2 => {
                    change(&mut random, &root, name);
                    git(&root, &["add", "-A"]);
                    change(&mut random, &root, name);
                }
                _ => {}
            }
        }
        fs::write(root.join(".gitignore"), "*.log\nbuild/\n").unwrap();
        fs::write(root.join("x.log"), "not wanted").unwrap();
        fs::create_dir_all(root.join("build/deep")).unwrap();
        fs::write(root.join("build/deep/wanted"), "wanted").unwrap();
        fs::write(root.join("build/other"), "not wanted").unwrap();
        let before = all_of(&root);
        let source = Source::WorkTree(root.clone());
        let captured = scene.capture(&source, &["build/**/wanted".to_owned()]).unwrap();
        let again = scene.capture(&source, &["build/**/wanted".to_owned()]).unwrap();
        assert_eq!(captured, again, "seed {seed}: the same moment has the same commit");
        assert!(all_of(&root) == before, "seed {seed}: something of the person's has changed");
        let mut wanted = tree_of(&root);
        wanted.remove(Path::new("x.log"));
        wanted.remove(Path::new("build/other"));
        let other = scene.other();
        let mut have = Vec::new();
        if let Some(base) = &captured.base {
            git(&root, &["push", "-q", other.to_str().unwrap(), "main"]);
            have.push(base.clone());
        }
        let built = scene.rebuilt(&source, &captured, &other, &have);
        assert_eq!(built, wanted, "seed {seed}");
    }
}

#[test]
fn a_tree_without_git_is_captured_with_a_repository_elsewhere() {
    let scene = Scene::new();
    let root = scene.path("plain");
    let mut random = Random(7);
    fs::create_dir(&root).unwrap();
    NAMES.iter().for_each(|name| change(&mut random, &root, name));
    let before = tree_of(&root);
    let source = Source::Folder(root.clone());
    let captured = scene.capture(&source, &[]).unwrap();
    assert_eq!(captured.base, None);
    let built = scene.rebuilt(&source, &captured, &scene.other(), &[]);
    assert!(built == before && tree_of(&root) == before && !root.join(".git").exists());
    assert!(matches!(scene.capture(&Source::WorkTree(root), &[]), Err(CaptureError::NoWorkTree { .. })));
}

#[test]
fn a_capture_that_is_killed_leaves_the_persons_side_as_it_was() {
    const CHILD: &str = "YOI_WORK_CAPTURES";
    if let Some(private) = std::env::var_os(CHILD) {
        let private = PathBuf::from(private);
        let asked = Asked { private: &private, include: &[], seconds: 0, limits: Limits { bytes: 1 << 30 } };
        let _ = capture(&Source::WorkTree(private.parent().unwrap().join("person")), &asked);
        return;
    }
    let scene = Scene::new();
    let root = scene.repository();
    for n in 0..200 {
        fs::write(root.join(format!("f{n}")), vec![b'x'; 1000 + n]).unwrap();
    }
    git(&root, &["add", "f1"]);
    let before = all_of(&root);
    for after in [0, 1, 2, 20, 100] {
        let private = scene.path(&format!("private-{after}"));
        fs::create_dir(&private).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "a_capture_that_is_killed_leaves_the_persons_side_as_it_was"]).env(CHILD, &private);
        let mut child = child.stdout(std::process::Stdio::null()).spawn().unwrap();
        wait_until("the capture to begin", || (child.try_wait().unwrap().is_some() || entries(&private) >= after).then_some(()));
        let _ = child.kill();
        child.wait().unwrap();
        assert!(all_of(&root) == before, "killed after {after} files");
    }
    assert!(scene.capture(&Source::WorkTree(root), &[]).is_ok(), "the next one works");
}

#[test]
fn what_is_too_large_or_fits_no_pattern_is_asked_for_first() {
    let scene = Scene::new();
    let root = scene.repository();
    fs::write(root.join("small"), "x").unwrap();
    fs::write(root.join("large"), vec![0; 2 << 20]).unwrap();
    let source = Source::WorkTree(root.clone());
    let Err(CaptureError::TooLarge { largest, .. }) = scene.capture(&source, &[]) else { panic!("it was taken") };
    assert_eq!(largest, ["large (2097152)", "small (1)"]);
    fs::remove_file(root.join("large")).unwrap();
    let none = scene.capture(&source, &["nothing/**".to_owned()]);
    assert!(matches!(none, Err(CaptureError::NothingIncluded(pattern)) if pattern == "nothing/**"));
}

#[test]
fn a_repository_within_the_tree_is_named() {
    let scene = Scene::new();
    let root = scene.repository();
    fs::create_dir(root.join("inner")).unwrap();
    git(&root.join("inner"), &["init", "-q"]);
    git(&root.join("inner"), &["commit", "-q", "--allow-empty", "-m", "one"]);
    assert_eq!(scene.capture(&Source::WorkTree(root), &[]).unwrap().repositories, ["inner"]);
}

/// A commit whose tree git itself would not make, bundled.
fn planted(scene: &Scene, root: &Path, entries: &[u8]) -> PathBuf {
    let file = scene.path("tree");
    fs::write(&file, entries).unwrap();
    let tree = git(root, &["hash-object", "-t", "tree", "--literally", "-w", file.to_str().unwrap()]);
    let commit = git(root, &["commit-tree", "-m", "planted", &tree]);
    let bundle = scene.path("planted.bundle");
    let private = scene.path("private");
    fs::create_dir_all(&private).unwrap();
    write_bundle(&Source::WorkTree(root.to_owned()), &private, &commit, NAME, &[], &bundle, 1 << 20).unwrap();
    bundle
}

#[test]
fn a_bundle_with_a_path_of_git_or_elsewhere_is_refused() {
    for name in [".git", "..", ".GIT", "a/b", "git~1"] {
        let scene = Scene::new();
        let root = scene.repository();
        fs::write(root.join("x"), "x").unwrap();
        let hash = git(&root, &["hash-object", "-w", "x"]);
        let bytes = (0..20).map(|n| u8::from_str_radix(&hash[n * 2..n * 2 + 2], 16).unwrap());
        let entry: Vec<u8> = format!("100644 {name}\0").bytes().chain(bytes).collect();
        let refused = scene.check(&planted(&scene, &root, &entry), &scene.other()).unwrap_err();
        assert!(matches!(refused, CheckError::Damaged(_) | CheckError::Path { .. }), "{name}: {refused}");
    }
}

#[test]
fn a_bundle_that_is_cut_long_foreign_or_of_another_name_is_refused() {
    let scene = Scene::new();
    let root = scene.repository();
    fs::write(root.join("x"), "x").unwrap();
    git(&root, &["add", "-A"]);
    git(&root, &["commit", "-q", "-m", "base"]);
    fs::write(root.join("y"), "y").unwrap();
    let source = Source::WorkTree(root.clone());
    let captured = scene.capture(&source, &[]).unwrap();
    let (bundle, other) = (scene.path("b"), scene.other());
    write_bundle(&source, &scene.path("private"), &captured.commit, NAME, &[], &bundle, 1 << 20).unwrap();
    let whole = fs::read(&bundle).unwrap();
    for length in [0, 10, 60, whole.len() / 2, whole.len() - 1] {
        fs::write(&bundle, &whole[..length]).unwrap();
        let refused = scene.check(&bundle, &other).unwrap_err();
        assert!(matches!(refused, CheckError::NoBundle(_) | CheckError::Damaged(_)), "{length}: {refused}");
    }
    let mut flipped = whole.clone();
    let at = whole.len() - 30;
    flipped[at] ^= 0xff;
    fs::write(&bundle, &flipped).unwrap();
    assert!(matches!(scene.check(&bundle, &other), Err(CheckError::Damaged(_))));
    fs::write(&bundle, &whole).unwrap();
    assert!(scene.check(&bundle, &other).is_ok());
    let _ = fs::remove_dir_all(scene.path("quarantine"));
    fs::create_dir(scene.path("quarantine")).unwrap();
    let rules = Rules { name: "refs/yoi/sync/other", bytes: 1 << 20, pack_bytes: 1 << 20, paths: 1000, windows_names: true };
    let by = |rules: &Rules<'_>| check(&bundle, &other, &scene.path("quarantine"), rules);
    assert!(matches!(by(&rules), Err(CheckError::OtherName { .. })));
    assert!(matches!(by(&Rules { name: NAME, bytes: 10, ..rules.clone() }), Err(CheckError::TooLarge { most: 10, .. })));
    assert!(matches!(by(&Rules { name: NAME, paths: 1, ..rules.clone() }), Err(CheckError::TooMany(1))));
    fs::remove_file(&bundle).unwrap();
    let base = captured.base.unwrap();
    write_bundle(&source, &scene.path("private"), &captured.commit, NAME, std::slice::from_ref(&base), &bundle, 1 << 20).unwrap();
    assert!(matches!(scene.check(&bundle, &other), Err(CheckError::NotOnOurs(commit)) if commit == base));
    let short = write_bundle(&source, &scene.path("private"), &captured.commit, NAME, &[], &scene.path("short"), 100);
    assert!(short.is_err() && !scene.path("short").exists());
    assert!(git(&other, &["for-each-ref"]).is_empty(), "nothing came into the repository");
}
