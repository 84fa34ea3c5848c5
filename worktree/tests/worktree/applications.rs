//! What an agent made of a commit, laid on trees that went on by themselves: nothing of the person's is lost, and said twice is the same as once.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use yoi_test_support::Share;
use yoi_worktree::{Application, Applied, ApplyError, Asked, Limits, Outcome, Source, Why, apply, capture, write_bundle};

use crate::trees::{NAMES, Random, Tree, all_of, change, clear, copy_all, git, put, tree_by_git, tree_of};

/// A person's clone and an agent's, of one base.
pub struct Scene {
    pub folder: tempfile::TempDir,
    pub base: String,
    pub theirs: String,
}

/// A path and its text; none for a file that is deleted.
pub type Edit = (&'static str, Option<&'static str>);

pub fn edit(root: &Path, edits: &[Edit]) {
    for (name, text) in edits {
        match text {
            Some(text) => put(root, name, text),
            None => clear(root, name),
        }
    }
}

impl Scene {
    pub fn new(base: &[Edit]) -> Self {
        let mut scene = Scene { folder: tempfile::tempdir().unwrap(), base: String::new(), theirs: String::new() };
        let person = scene.person();
        fs::create_dir(&person).unwrap();
        git(&person, &["init", "-q", "-b", "main"]);
        git(&person, &["config", "user.name", "p"]);
        git(&person, &["config", "user.email", "p@p"]);
        edit(&person, base);
        scene.base = commit_all(&person);
        git(scene.folder.path(), &["clone", "-q", "person", "agent"]);
        scene.theirs.clone_from(&scene.base);
        scene
    }

    pub fn person(&self) -> PathBuf {
        self.folder.path().join("person")
    }

    fn agent(&self) -> PathBuf {
        self.folder.path().join("agent")
    }

    pub fn agent_does(mut self, edits: &[Edit]) -> Self {
        edit(&self.agent(), edits);
        self.theirs = commit_all(&self.agent());
        self
    }

    pub fn kept(&self) -> PathBuf {
        self.person().join(".git/yoi/conflicts/alice")
    }

    pub fn lay_in(&self, folder: &Path, dry_run: bool, step: &mut dyn FnMut()) -> Result<Applied, ApplyError> {
        let private = tempfile::tempdir().unwrap();
        let objects = self.agent().join(".git/objects");
        let (base, theirs) = (&self.base, &self.theirs);
        apply(
            &Application {
                source: &Source::WorkTree(folder.to_owned()),
                here: folder,
                private: private.path(),
                objects: &objects,
                base,
                theirs,
                label: "alice",
                windows_names: false,
                dry_run,
            },
            step,
        )
    }

    pub fn lay(&self) -> BTreeMap<String, Outcome> {
        outcomes(&self.lay_in(&self.person(), false, &mut || {}).unwrap())
    }
}

pub fn commit_all(root: &Path) -> String {
    git(root, &["add", "-A"]);
    git(root, &["commit", "-q", "--allow-empty", "-m", "all"]);
    git(root, &["rev-parse", "HEAD"])
}

pub fn outcomes(applied: &Applied) -> BTreeMap<String, Outcome> {
    applied.paths.iter().map(|path| (String::from_utf8_lossy(&path.path).into_owned(), path.outcome.clone())).collect()
}

/// Everything that git keeps, without the folder of ours.
pub fn of_git(root: &Path) -> Tree {
    all_of(root).into_iter().filter(|(path, _)| path.starts_with(".git") && !path.starts_with(".git/yoi")).collect()
}

pub fn left(why: Why) -> Outcome {
    Outcome::LeftAlone(why)
}

#[test]
fn a_path_of_one_side_is_taken_and_one_of_both_is_left_with_the_other_version_beside() {
    type Case = (&'static str, Vec<Edit>, Vec<Edit>, Vec<Edit>, Vec<(&'static str, Outcome)>);
    let cases: Vec<Case> = vec![
        (
            "each on its own",
            vec![("a", Some("1")), ("b/c", Some("1")), ("d", Some("1")), ("mine", Some("1"))],
            vec![("mine", Some("2")), ("own", Some("3"))],
            vec![("a", Some("2")), ("b/c", None), ("new/er", Some("2")), ("d", Some("*1"))],
            vec![("a", Outcome::Changed), ("b/c", Outcome::Deleted), ("d", Outcome::Changed), ("new/er", Outcome::Added)],
        ),
        (
            "both the same",
            vec![("a", Some("1")), ("b", Some("1"))],
            vec![("a", Some("2")), ("b", None), ("c", Some("*3"))],
            vec![("a", Some("2")), ("b", None), ("c", Some("*3"))],
            vec![("a", Outcome::Same), ("b", Outcome::Same), ("c", Outcome::Same)],
        ),
        (
            "both",
            vec![("a", Some("1")), ("b", Some("1")), ("c", Some("1")), ("l", Some(">1"))],
            vec![("a", Some("2")), ("b", None), ("c", Some("2")), ("l", Some(">2"))],
            vec![("a", Some("3")), ("b", Some("3")), ("c", None), ("l", Some(">3"))],
            vec![
                ("a", left(Why::BothChanged)),
                ("b", left(Why::BothChanged)),
                ("c", left(Why::BothChanged)),
                ("l", left(Why::BothChanged)),
            ],
        ),
        (
            "untracked and ignored files are in the way, unless they are the same",
            vec![(".gitignore", Some("*.log\nbuild/\n"))],
            vec![("a", Some("of mine")), ("b", Some("2")), ("x.log", Some("of mine")), ("build/y", Some("2"))],
            vec![(".gitignore", Some("")), ("a", Some("2")), ("b", Some("2")), ("x.log", Some("2")), ("build/y", Some("2"))],
            vec![
                (".gitignore", Outcome::Changed),
                ("a", left(Why::InTheWay)),
                ("b", Outcome::Same),
                ("build/y", Outcome::Same),
                ("x.log", left(Why::InTheWay)),
            ],
        ),
        (
            "a file becomes a folder, and a folder a file",
            vec![("a", Some("1")), ("b/c", Some("1")), ("b/d/e", Some("1"))],
            vec![],
            vec![("a/x", Some("2")), ("b", Some("2"))],
            vec![
                ("a", Outcome::Deleted),
                ("a/x", Outcome::Added),
                ("b", Outcome::Added),
                ("b/c", Outcome::Deleted),
                ("b/d/e", Outcome::Deleted),
            ],
        ),
        (
            "a folder with something of the person's stays",
            vec![(".gitignore", Some("*.log\n")), ("b/c", Some("1"))],
            vec![("b/x.log", Some("of mine"))],
            vec![("b", Some("2"))],
            vec![("b", left(Why::Folder)), ("b/c", Outcome::Deleted)],
        ),
        (
            "a file or link of the person's is where the other side has a folder",
            vec![("b/c", Some("1")), ("elsewhere/c", Some("1"))],
            vec![("b", Some(">elsewhere")), ("f", Some("of mine"))],
            vec![("b/c", Some("2")), ("f/x", Some("2"))],
            vec![("b/c", left(Why::BothChanged)), ("f/x", left(Why::Below("f".into())))],
        ),
        (
            "odd names",
            vec![("new\nline", Some("1")), ("q\"uote", Some("1")), ("-x", Some("1")), (":(top)x", Some("1"))],
            vec![("q\"uote", Some("2"))],
            vec![("new\nline", Some("2")), ("q\"uote", Some("3")), ("-x", None), (":(top)x", Some("2")), ("ä/ ", Some("2"))],
            vec![
                ("-x", Outcome::Deleted),
                (":(top)x", Outcome::Changed),
                ("new\nline", Outcome::Changed),
                ("q\"uote", left(Why::BothChanged)),
                ("ä/ ", Outcome::Added),
            ],
        ),
    ];
    for (name, base, of_person, of_agent, wanted) in cases {
        let scene = Scene::new(&base).agent_does(&of_agent);
        let person = scene.person();
        put(&person, "stashed", "of mine");
        git(&person, &["stash", "-q", "-u"]);
        edit(&person, &of_person);
        // The first is staged, the others are not.
        if let Some((first, _)) = of_person.first() {
            let _ = Command::new("git").args(["add", "-A", "--", first]).current_dir(&person).output();
        }
        let (before, theirs) = (tree_of(&person), tree_of(&scene.agent()));
        let git_before = of_git(&person);
        let dry = outcomes(&scene.lay_in(&person, true, &mut || {}).unwrap());
        assert!(tree_of(&person) == before && !person.join(".git/yoi").exists(), "{name}: a dry run has written");
        let wanted: BTreeMap<String, Outcome> = wanted.into_iter().map(|(path, outcome)| (path.to_owned(), outcome)).collect();
        assert_eq!(dry, wanted, "{name}");
        assert_eq!(scene.lay(), wanted, "{name}");
        assert!(of_git(&person) == git_before, "{name}: something of git's has changed");
        let after = tree_of(&person);
        check_nothing_lost(&before, &after, &theirs, &wanted, &scene.kept(), name);
        let again: BTreeMap<String, Outcome> = wanted
            .into_iter()
            .map(|(path, outcome)| (path, if matches!(outcome, Outcome::LeftAlone(_)) { outcome } else { Outcome::Same }))
            .collect();
        assert_eq!(scene.lay(), again, "{name}: again");
        assert!(tree_of(&person) == after && of_git(&person) == git_before, "{name}: again");
        assert!(!person.join(".git/yoi/apply").exists(), "{name}: something is left");
    }
}

/// Each path is as it was or as the other side has it, as its outcome says; and where it was left alone, the other version is beside.
fn check_nothing_lost(before: &Tree, after: &Tree, theirs: &Tree, outcomes: &BTreeMap<String, Outcome>, kept: &Path, name: &str) {
    let kept = if kept.exists() { tree_of(kept) } else { Tree::new() };
    let paths: std::collections::BTreeSet<_> = before.keys().chain(after.keys()).collect();
    for path in paths {
        let outcome = outcomes.get(&*path.to_string_lossy());
        let wanted = match outcome {
            Some(Outcome::Added | Outcome::Changed | Outcome::Same) => theirs.get(path),
            Some(Outcome::Deleted) => None,
            Some(Outcome::LeftAlone(_)) | None => before.get(path),
        };
        assert_eq!(after.get(path), wanted, "{name}: {}, {outcome:?}", path.display());
    }
    for (path, _) in outcomes.iter().filter(|(_, outcome)| matches!(outcome, Outcome::LeftAlone(_))) {
        assert_eq!(kept.get(Path::new(path)), theirs.get(Path::new(path)), "{name}: the other version of {path}");
    }
}

#[test]
fn of_generated_pairs_nothing_is_lost_and_git_itself_agrees_where_it_can_say() {
    let names: Vec<&str> = NAMES.into_iter().chain(["a/x", "a/y/z", "b", "same"]).collect();
    let (mut share, mut agreed) = (Share::one_in(10), 0);
    for seed in (1..=300_u64).filter(|_| share.takes_next()) {
        let mut random = Random(seed * 0x9e37_79b9);
        let mut scene = Scene::new(&[("same", Some("1"))]);
        let (person, agent) = (scene.person(), scene.agent());
        names.iter().for_each(|name| change(&mut random, &person, name));
        scene.base = commit_all(&person);
        git(&agent, &["pull", "-q"]);
        for name in &names {
            if random.below(3) == 0 {
                change(&mut random, &agent, name);
            }
        }
        scene.theirs = commit_all(&agent);
        // Where the person has changed little, git can say more often.
        let changes = if seed % 3 == 0 { 40 } else { 6 };
        for name in &names {
            match random.below(changes) {
                0 => change(&mut random, &person, name),
                1 => {
                    change(&mut random, &person, name);
                    git(&person, &["add", "-A"]);
                }
                // What the agent has done, too.
                2 if fs::symlink_metadata(agent.join(name)).is_ok_and(|found| found.is_file()) => {
                    clear(&person, name);
                    fs::create_dir_all(person.join(name).parent().unwrap()).unwrap();
                    fs::copy(agent.join(name), person.join(name)).unwrap();
                }
                _ => {}
            }
        }
        let (before, theirs, git_before) = (tree_of(&person), tree_of(&agent), of_git(&person));
        let merged = merged_by_git(&scene);
        let done = scene.lay();
        assert!(of_git(&person) == git_before, "seed {seed}: something of git's has changed");
        let after = tree_of(&person);
        check_nothing_lost(&before, &after, &theirs, &done, &scene.kept(), &format!("seed {seed}"));
        let Some((merged, is_clean)) = merged else { continue };
        if is_clean && !done.values().any(|outcome| matches!(outcome, Outcome::LeftAlone(_))) {
            agreed += 1;
            assert_eq!(tree_by_git(&scene.folder.path().join("copy"), &person, &[]), merged, "seed {seed}");
        }
    }
    assert!(agreed > 0, "git could never say");
}

/// The tree that git makes of both sides, and whether it has found no conflict.
fn merged_by_git(scene: &Scene) -> Option<(String, bool)> {
    let copy = scene.folder.path().join("merged");
    copy_all(&scene.person(), &copy);
    let ours = commit_all(&copy);
    git(&copy, &["fetch", "-q", scene.agent().to_str().unwrap()]);
    let words = ["-c", "merge.renames=false", "-c", "merge.directoryRenames=false", "merge-tree", "--write-tree", &ours, &scene.theirs];
    let done = Command::new("git").args(words).current_dir(&copy).output().unwrap();
    let tree = String::from_utf8(done.stdout).ok()?.lines().next()?.to_owned();
    matches!(done.status.code(), Some(0 | 1)).then(|| (tree, done.status.success()))
}

#[test]
fn a_tree_is_found_by_any_folder_of_it_and_a_work_tree_beside_has_its_own() {
    let scene = Scene::new(&[("deep/er/a", Some("1"))]).agent_does(&[("deep/er/a", Some("2"))]);
    let person = scene.person();
    let beside = scene.folder.path().join("beside");
    git(&person, &["worktree", "add", "-q", "--detach", beside.to_str().unwrap()]);
    edit(&person, &[("deep/er/a", Some("of mine"))]);
    let applied = scene.lay_in(&beside.join("deep/er"), false, &mut || {}).unwrap();
    assert_eq!(outcomes(&applied)["deep/er/a"], Outcome::Changed);
    assert_eq!(fs::read_to_string(beside.join("deep/er/a")).unwrap(), "2");
    assert_eq!(fs::read_to_string(person.join("deep/er/a")).unwrap(), "of mine");
}

#[test]
fn git_settings_say_what_a_disk_can_hold() {
    let (crlf, links, modes, case) = ("core.autocrlf", "core.symlinks", "core.fileMode", "core.ignoreCase");
    let ntfs = "core.protectNTFS";
    let scene = Scene::new(&[("a.txt", Some("1\n"))]).agent_does(&[("a.txt", Some("2\n3\n")), ("new.txt", Some("4\n"))]);
    git(&scene.person(), &["config", crlf, "true"]);
    edit(&scene.person(), &[("a.txt", Some("1\r\n"))]);
    assert_eq!(scene.lay()["a.txt"], Outcome::Changed);
    assert_eq!(fs::read(scene.person().join("a.txt")).unwrap(), b"2\r\n3\r\n");
    assert_eq!(fs::read(scene.person().join("new.txt")).unwrap(), b"4\r\n");
    for (setting, value, path, of_person, of_agent, wanted) in [
        (links, "false", "l", None, Some(">a"), left(Why::Links)),
        (modes, "false", "a", Some("*1"), Some("2"), Outcome::Changed),
        (modes, "true", "a", Some("*1"), Some("2"), left(Why::BothChanged)),
        (case, "true", "A", Some("1"), Some("2"), left(Why::Case("a".into()))),
        (case, "false", "A", None, Some("2"), Outcome::Added),
        (ntfs, "true", "aux.c", None, Some("2"), left(Why::Name("it is a device of Windows"))),
        (ntfs, "true", "x:y", None, Some("2"), left(Why::Name("it holds a letter that Windows does not take"))),
        (ntfs, "false", "aux.c", None, Some("2"), Outcome::Added),
    ] {
        let scene = Scene::new(&[("a", Some("1"))]).agent_does(&[(path, of_agent)]);
        git(&scene.person(), &["config", setting, value]);
        if path == "a" {
            edit(&scene.person(), &[(path, of_person)]);
        }
        assert_eq!(scene.lay()[path], wanted, "{setting}={value}");
    }
}

#[test]
fn other_repositories_and_what_is_not_checked_out_are_left_alone() {
    let scene = Scene::new(&[("a", Some("1")), ("out", Some("1")), (".gitignore", Some("own/\n"))]);
    let (person, agent) = (scene.person(), scene.agent());
    git(&person, &["update-index", "--skip-worktree", "out"]);
    clear(&person, "out");
    put(&person, "own/.git/config", "");
    git(&agent, &["submodule", "--quiet", "add", person.to_str().unwrap(), "sub"]);
    put(&agent, "own/x", "2");
    git(&agent, &["add", "-f", "own/x"]);
    let scene = scene.agent_does(&[("out", Some("2"))]);
    let done = scene.lay();
    assert_eq!(done[".gitmodules"], Outcome::Added);
    assert_eq!(done["sub"], left(Why::Repository("sub".into())));
    assert_eq!(done["own/x"], left(Why::Repository("own".into())));
    assert_eq!(done["out"], left(Why::LeftOut));
    assert!(!person.join("own/x").exists() && !person.join("out").exists() && !person.join("sub").exists());
    assert_eq!(tree_of(&scene.kept()).keys().map(|path| path.as_os_str().as_bytes()).collect::<Vec<_>>(), [&b"out"[..], b"own/x"]);
}

#[test]
fn on_a_tree_without_git_a_path_of_one_side_is_taken_and_one_of_both_is_left() {
    let scene = Scene::new(&[]);
    let (root, private) = (scene.folder.path().join("plain"), scene.folder.path().join("private"));
    fs::create_dir_all(root.join("sub")).unwrap();
    fs::create_dir(&private).unwrap();
    edit(&root, &[("a", Some("1")), ("b", Some("1")), ("sub/gone", Some("1")), (".gitignore", Some("/x.log\n")), ("x.log", Some("mine"))]);
    let source = Source::Folder { root: root.clone(), repository: scene.folder.path().join("ours") };
    let limits = Limits { bytes: 1 << 20, untracked: 1 << 20 };
    let captured = capture(&source, &Asked { private: &private, include: &[], seconds: 0, limits }).unwrap();
    let bundle = scene.folder.path().join("bundle");
    write_bundle(&source, &private, &captured.commit, "refs/heads/main", &[], &bundle, 1 << 20).unwrap();
    let agent = scene.folder.path().join("agents");
    git(scene.folder.path(), &["clone", "-q", "-b", "main", bundle.to_str().unwrap(), "agents"]);
    edit(&agent, &[("a", Some("2")), ("b", Some("2")), ("new/er", Some("2")), ("sub/gone", None), ("x.log", Some("2"))]);
    git(&agent, &["add", "-f", "x.log"]);
    let theirs = commit_all(&agent);
    edit(&root, &[("b", Some("of mine"))]);

    let objects = agent.join(".git/objects");
    let lay = |dry_run| {
        let private = tempfile::tempdir_in(scene.folder.path()).unwrap();
        let (base, theirs) = (&captured.commit, &theirs);
        let (source, private) = (&source, private.path());
        let asked =
            Application { source, here: &root, private, objects: &objects, base, theirs, label: "alice", windows_names: false, dry_run };
        outcomes(&apply(&asked, &mut || {}).unwrap())
    };
    let wanted = [
        ("a", Outcome::Changed),
        ("b", left(Why::BothChanged)),
        ("new/er", Outcome::Added),
        ("sub/gone", Outcome::Deleted),
        ("x.log", left(Why::InTheWay)),
    ];
    let wanted: BTreeMap<String, Outcome> = wanted.into_iter().map(|(name, outcome)| (name.to_owned(), outcome)).collect();
    let before = tree_of(&root);
    assert_eq!(lay(true), wanted);
    assert!(tree_of(&root) == before, "a dry run has written");
    assert_eq!(lay(false), wanted);
    let texts: Vec<String> =
        tree_of(&root).into_iter().map(|(path, (_, text))| format!("{} {}", path.display(), String::from_utf8_lossy(&text))).collect();
    assert_eq!(texts, [".gitignore /x.log\n", "a 2", "b of mine", "new/er 2", "x.log mine"]);
    let kept = scene.folder.path().join("ours/yoi/conflicts/alice");
    assert_eq!((fs::read_to_string(kept.join("b")).unwrap(), fs::read_to_string(kept.join("x.log")).unwrap()), ("2".into(), "2".into()));
}
