//! Generated working trees, captured, sent and built again; and the person's side, which stays as it is.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use yoi_test_support::{Share, wait_until};
use yoi_worktree::{
    Asked, CaptureError, Captured, CheckError, Limits, OddNames, Rules, Source, capture, check, odd_names, remember, write_bundle,
};

use crate::trees::{NAMES, Random, Tree, all_of, change, git, tree_by_git, tree_of};

const NAME: &str = "refs/yoi/sync/machine";

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
        capture(
            source,
            &Asked { private: &private, include, seconds: 1_800_000_000, limits: Limits { bytes: 1 << 20, untracked: 1 << 20 } },
        )
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

    fn check(&self, bundle: &Path, other: &Path) -> Result<yoi_worktree::Checked, CheckError> {
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

#[test]
fn a_captured_tree_is_built_again_as_it_was_and_the_persons_side_is_untouched() {
    let mut share = Share::one_in(20);
    for seed in (1..=300).filter(|_| share.takes_next()) {
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
        fs::create_dir_all(root.join("nested/empty")).unwrap();
        fs::write(root.join("nested/.gitignore"), "*.tmp\n!wanted.tmp\n!*.log\n").unwrap();
        for name in ["x.tmp", "wanted.tmp", "wanted.log"] {
            fs::write(root.join("nested").join(name), name).unwrap();
        }
        let before = all_of(&root);
        let source = Source::WorkTree(root.clone());
        let captured = scene.capture(&source, &["build/**/wanted".to_owned()]).unwrap();
        let again = scene.capture(&source, &["build/**/wanted".to_owned()]).unwrap();
        assert_eq!(captured, again, "seed {seed}: the same moment has the same commit");
        assert!(all_of(&root) == before, "seed {seed}: something of the person's has changed");
        let mut wanted = tree_of(&root);
        wanted.remove(Path::new("x.log"));
        wanted.remove(Path::new("build/other"));
        wanted.remove(Path::new("nested/x.tmp"));
        assert_eq!(
            captured.tree,
            tree_by_git(&scene.path("copy"), &root, &["build/deep/wanted"]),
            "seed {seed}: git itself makes another tree"
        );
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

/// What a file system cannot hold, and what the person wants of line ends, is git's own to know.
#[test]
fn settings_and_attributes_count_as_for_git_itself() {
    let settings: [&[(&str, &str)]; 8] = [
        &[],
        &[("core.autocrlf", "true")],
        &[("core.autocrlf", "input"), ("core.safecrlf", "true")],
        &[("core.fileMode", "false")],
        &[("core.symlinks", "false")],
        &[("core.ignorecase", "true")],
        &[("filter.turned.clean", "tr a-z n-za-m"), ("filter.turned.smudge", "tr a-z n-za-m"), ("core.quotePath", "false")],
        &[("core.hooksPath", "hooks-of-the-person"), ("core.splitIndex", "true"), ("core.untrackedCache", "true"), ("index.version", "4")],
    ];
    for (number, settings) in settings.into_iter().enumerate() {
        let scene = Scene::new();
        let root = scene.repository();
        fs::write(root.join(".gitattributes"), "*.txt text eol=crlf\n*.bin binary\n*.turned filter=turned\n").unwrap();
        fs::write(root.join("a.txt"), "a\r\nb\r\n").unwrap();
        fs::write(root.join("run"), "x").unwrap();
        symlink("a.txt", root.join("link")).unwrap();
        git(&root, &["add", "-A"]);
        git(&root, &["commit", "-q", "-m", "base"]);
        for (name, value) in settings {
            git(&root, &["config", name, value]);
        }
        let hook = root.join("hooks-of-the-person/post-index-change");
        fs::create_dir(hook.parent().unwrap()).unwrap();
        fs::write(&hook, "#!/bin/sh\ntouch ran\n").unwrap();
        fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
        for (name, text) in
            [("b.txt", "c\r\nd\n"), ("c.bin", "\r\n"), ("d", "e\r\nf\r\n"), ("e.turned", "hello"), ("run", "xy"), ("RUN.x", "z")]
        {
            fs::write(root.join(name), text).unwrap();
        }
        fs::set_permissions(root.join("run"), fs::Permissions::from_mode(0o755)).unwrap();
        let before = all_of(&root);
        let captured = scene.capture(&Source::WorkTree(root.clone()), &[]).unwrap();
        assert!(all_of(&root) == before, "{number}: something of the person's has changed");
        assert_eq!(captured.tree, tree_by_git(&scene.path("copy"), &root, &[]), "{number}");
    }
}

#[test]
fn a_file_that_git_was_told_to_believe_unchanged_is_read_all_the_same() {
    let scene = Scene::new();
    let root = scene.repository();
    for name in ["assumed", "here", "skipped"] {
        fs::write(root.join(name), "1").unwrap();
    }
    git(&root, &["add", "-A"]);
    git(&root, &["commit", "-q", "-m", "base"]);
    git(&root, &["update-index", "--assume-unchanged", "assumed"]);
    git(&root, &["update-index", "--skip-worktree", "skipped", "here"]);
    fs::write(root.join("assumed"), "other").unwrap();
    fs::write(root.join("here"), "2").unwrap();
    // As in a sparse checkout: what is not there on purpose is not deleted.
    fs::remove_file(root.join("skipped")).unwrap();
    fs::write(root.join("intended"), "3").unwrap();
    git(&root, &["add", "-N", "intended"]);
    let before = all_of(&root);
    let captured = scene.capture(&Source::WorkTree(root.clone()), &[]).unwrap();
    assert!(all_of(&root) == before);
    let source = Source::WorkTree(root);
    let built = scene.rebuilt(&source, &captured, &scene.other(), &[]);
    let texts: Vec<_> = built.into_iter().map(|(path, (_, text))| (path.display().to_string(), String::from_utf8(text).unwrap())).collect();
    assert_eq!(
        texts,
        [("assumed", "other"), ("here", "2"), ("intended", "3"), ("skipped", "1")].map(|(a, b)| (a.to_owned(), b.to_owned()))
    );
}

#[test]
fn a_tree_without_git_is_captured_with_a_repository_elsewhere() {
    let mut share = Share::one_in(10);
    for seed in (1..=60).filter(|_| share.takes_next()) {
        let (scene, mut random) = (Scene::new(), Random(seed * 0x9e37_79b9));
        let root = scene.path("plain");
        fs::create_dir(&root).unwrap();
        NAMES.iter().for_each(|name| change(&mut random, &root, name));
        let source = Source::Folder { root: root.clone(), repository: scene.path("ours") };
        let other = scene.other();
        for _ in 0..3 {
            let before = tree_of(&root);
            let captured = scene.capture(&source, &[]).unwrap();
            assert_eq!(captured.base, None);
            // A later capture reads only what has changed since.
            remember(&source, &scene.path("private")).unwrap();
            let again = scene.capture(&source, &[]).unwrap();
            assert_eq!(again, captured, "seed {seed}");
            let built = scene.rebuilt(&source, &captured, &other, &[]);
            assert!(built == before && tree_of(&root) == before && !root.join(".git").exists(), "seed {seed}");
            git(&other, &["update-ref", "-d", NAME]);
            for name in NAMES {
                if random.below(2) == 0 {
                    change(&mut random, &root, name);
                }
            }
        }
        assert!(matches!(scene.capture(&Source::WorkTree(root), &[]), Err(CaptureError::NoWorkTree { .. })));
    }
}

#[test]
fn in_a_tree_without_git_what_is_ignored_by_now_stays_at_home_though_it_was_captured_before() {
    let scene = Scene::new();
    let root = scene.path("plain");
    for (name, text) in [("kept", "1"), ("secret.env", "2"), ("sub/.gitignore", "*.log\n"), ("sub/x.log", "3"), ("sub/y", "4")] {
        fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
        fs::write(root.join(name), text).unwrap();
    }
    let (source, other) = (Source::Folder { root: root.clone(), repository: scene.path("ours") }, scene.other());
    let names = |include: &[String]| {
        let captured = scene.capture(&source, include).unwrap();
        remember(&source, &scene.path("private")).unwrap();
        let built = scene.rebuilt(&source, &captured, &other, &[]);
        git(&other, &["update-ref", "-d", NAME]);
        built.into_keys().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(&["**/x.log".to_owned()]), "kept secret.env sub/.gitignore sub/x.log sub/y");
    assert_eq!(names(&[]), "kept secret.env sub/.gitignore sub/y", "nobody has asked for the ignored file this time");
    fs::write(root.join(".gitignore"), "secret.env\n").unwrap();
    fs::remove_file(root.join("sub/y")).unwrap();
    assert_eq!(names(&[]), ".gitignore kept sub/.gitignore");
}

#[test]
fn a_capture_that_is_killed_leaves_the_persons_side_as_it_was() {
    const CHILD: &str = "YOI_WORK_CAPTURES";
    if let Some(private) = std::env::var_os(CHILD) {
        let private = PathBuf::from(private);
        let asked = Asked { private: &private, include: &[], seconds: 0, limits: Limits { bytes: 1 << 30, untracked: 1 << 30 } };
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
        child.args(["--exact", "captures::a_capture_that_is_killed_leaves_the_persons_side_as_it_was"]).env(CHILD, &private);
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
    let asked = |untracked| Asked { private: Path::new(""), include: &[], seconds: 0, limits: Limits { bytes: 4 << 20, untracked } };
    let private = scene.path("private");
    let Err(CaptureError::Untracked { bytes, largest }) = capture(&source, &Asked { private: &private, ..asked(1 << 20) }) else {
        panic!("it was taken")
    };
    assert_eq!((bytes, largest.len()), ((2 << 20) + 1, 2));
    assert!(capture(&source, &Asked { private: &private, ..asked(4 << 20) }).is_ok());
    // What git tracks has been said to belong to the tree.
    git(&root, &["add", "large"]);
    assert!(capture(&source, &Asked { private: &private, ..asked(1 << 20) }).is_ok());
    git(&root, &["rm", "-q", "--cached", "large"]);
    fs::remove_file(root.join("large")).unwrap();
    let none = scene.capture(&source, &["nothing/**".to_owned()]);
    assert!(matches!(none, Err(CaptureError::NothingIncluded(pattern)) if pattern == "nothing/**"));
}

#[test]
fn w46_a_capture_is_made_again_when_a_file_has_changed_while_it_was_read() {
    let scene = Scene::new();
    let root = scene.repository();
    // Its filter gets what git has read, and writes to the file: always, or once.
    let filter =
        |condition: &str| format!("sh -c 'if {condition}; then echo more >> a.txt; touch {}; fi; cat'", scene.path("once").display());
    fs::write(root.join(".gitattributes"), "a.txt filter=writes\n").unwrap();
    fs::write(root.join("a.txt"), "a\n").unwrap();
    git(&root, &["config", "filter.writes.clean", &filter("true")]);
    let source = Source::WorkTree(root.clone());
    let Err(CaptureError::Changing(paths)) = scene.capture(&source, &[]) else { panic!("half of an edit was taken") };
    assert_eq!(paths, ["a.txt"]);
    fs::remove_file(scene.path("once")).unwrap();
    git(&root, &["config", "filter.writes.clean", &filter(&format!("[ ! -e {} ]", scene.path("once").display()))]);
    let captured = scene.capture(&source, &[]).unwrap();
    let text = fs::read_to_string(root.join("a.txt")).unwrap();
    assert!(scene.path("once").exists(), "nothing was written meanwhile");
    let built = scene.rebuilt(&source, &captured, &scene.other(), &[]);
    assert_eq!(String::from_utf8(built[Path::new("a.txt")].1.clone()).unwrap(), text, "the tree is of an older moment");
}

#[test]
fn a_repository_within_the_tree_is_named() {
    let scene = Scene::new();
    let root = scene.repository();
    fs::create_dir(root.join("inner")).unwrap();
    git(&root.join("inner"), &["init", "-q"]);
    git(&root.join("inner"), &["commit", "-q", "--allow-empty", "-m", "one"]);
    git(&root, &["submodule", "--quiet", "add", root.join("inner").to_str().unwrap(), "sub"]);
    git(&root, &["commit", "-q", "-m", "with a submodule"]);
    git(&root.join("sub"), &["commit", "-q", "--allow-empty", "-m", "two"]);
    fs::write(root.join("sub/left"), "not committed").unwrap();
    let before = all_of(&root);
    let captured = scene.capture(&Source::WorkTree(root.clone()), &[]).unwrap();
    assert_eq!(captured.repositories, ["inner", "sub"]);
    assert!(all_of(&root) == before);
    assert_eq!(captured.tree, tree_by_git(&scene.path("copy"), &root, &[]));
}

#[test]
fn new_names_that_windows_cannot_hold_are_found_and_so_are_those_that_this_disk_does_not_tell_apart() {
    let scene = Scene::new();
    let root = scene.repository();
    fs::write(root.join("nul"), "in the history").unwrap();
    git(&root, &["add", "-A"]);
    git(&root, &["commit", "-q", "-m", "base"]);
    let source = Source::WorkTree(root.clone());
    let look = |scene: &Scene| {
        let captured = scene.capture(&source, &[]).unwrap();
        odd_names(&source, &scene.path("private"), &captured).unwrap()
    };
    fs::write(root.join("File"), "1").unwrap();
    assert_eq!(look(&scene), OddNames::default(), "what HEAD has is the project's own");
    fs::create_dir(root.join("sub")).unwrap();
    for name in ["CON", "a:b", "sub/aux.c", "ends.", "file"] {
        fs::write(root.join(name), "1").unwrap();
    }
    let reserved: Vec<String> = look(&scene).reserved.into_iter().map(|(path, _)| path).collect();
    assert_eq!(reserved, ["CON", "a:b", "ends.", "sub/aux.c"]);
    assert_eq!(look(&scene).alike, [], "this disk tells them apart");
    // Both are tracked, as by somebody whose disk tells them apart.
    git(&root, &["add", "-A"]);
    git(&root, &["config", "core.ignoreCase", "true"]);
    assert_eq!(look(&scene).alike, [("File".to_owned(), "file".to_owned())]);

    // The same where nothing was ever committed, and without git.
    let plain = scene.path("plain");
    fs::create_dir(&plain).unwrap();
    fs::write(plain.join("prn.log"), "1").unwrap();
    let source = Source::Folder { root: plain, repository: scene.path("beside.git") };
    let captured = scene.capture(&source, &[]).unwrap();
    let found = odd_names(&source, &scene.path("private"), &captured).unwrap();
    assert_eq!(found.reserved, [("prn.log".to_owned(), "it is a device of Windows")]);
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
    let before = tree_of(&other);
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
    assert!(tree_of(&other) == before, "something of a bundle came into the repository");
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
    assert!(tree_of(&other) == before, "something of a refused bundle came into the repository");
}
