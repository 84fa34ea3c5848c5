//! Applications that are killed, that meet somebody who writes, or that must not begin.

use std::fs;
use std::path::Path;
use std::process::Command;

use yoi_worktree::{Application, ApplyError, Source, Why, apply};

use crate::applications::{Scene, commit_all, edit, left, of_git, outcomes};
use crate::trees::{all_of, copy_all, git, tree_of};

/// A scene in which every kind of step is taken, and some paths are left alone.
fn busy_scene() -> Scene {
    let scene = Scene::new(&[
        ("a", Some("1")),
        ("b", Some("1")),
        ("c/d", Some("1")),
        ("f", Some("1")),
        ("g/h", Some("1")),
        ("left", Some("1")),
        ("left-too", Some("1")),
    ]);
    let scene = scene.agent_does(&[
        ("a", Some("2")),
        ("b", Some("*2")),
        ("c/d", None),
        ("f/new", Some("2")),
        ("g", Some(">a")),
        ("left", Some("2")),
        ("left-too", None),
        ("n/e/w", Some("2")),
    ]);
    edit(&scene.person(), &[("left", Some("of mine")), ("left-too", Some("of mine")), ("mine", Some("of mine"))]);
    git(&scene.person(), &["add", "left"]);
    scene
}

const CHILD: &str = "YOI_WORK_LAYS";

#[test]
fn one_that_is_killed_at_any_step_loses_nothing_and_goes_on_when_it_is_said_again() {
    if let Some(words) = std::env::var_os(CHILD) {
        let words = words.into_string().unwrap();
        let [folder, base, theirs, steps] = words.split('\n').collect::<Vec<_>>()[..] else { panic!("{words}") };
        let folder = Path::new(folder);
        let private = tempfile::tempdir_in(folder).unwrap();
        let (objects, mut left) = (folder.join("agent/.git/objects"), steps.parse::<u32>().unwrap());
        let asked = Application {
            source: &Source::WorkTree(folder.join("person")),
            here: &folder.join("person"),
            private: private.path(),
            objects: &objects,
            base,
            theirs,
            label: "alice",
            windows_names: false,
            dry_run: false,
        };
        apply(&asked, &mut || {
            // No destructor runs, as when it is killed.
            if left == 0 {
                std::process::abort();
            }
            left -= 1;
        })
        .unwrap();
        return;
    }
    let scene = busy_scene();
    let (person, template) = (scene.person(), scene.folder.path().join("template"));
    copy_all(&person, &template);
    let (before, git_before) = (tree_of(&person), of_git(&person));
    let once = scene.lay();
    let wanted = tree_of(&person);
    let kept = tree_of(&scene.kept());
    for steps in 0.. {
        copy_all(&template, &person);
        let words = [scene.folder.path().to_str().unwrap(), &scene.base, &scene.theirs, &steps.to_string()].join("\n");
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "interruptions::one_that_is_killed_at_any_step_loses_nothing_and_goes_on_when_it_is_said_again"]);
        let output = child.env(CHILD, words).output().unwrap();
        let between = tree_of(&person);
        for path in before.keys().chain(wanted.keys()) {
            let found = between.get(path);
            assert!(found == before.get(path) || found == wanted.get(path), "killed before step {steps}: {}", path.display());
        }
        assert!(of_git(&person) == git_before, "killed before step {steps}");
        if output.status.success() {
            assert!(steps >= 7, "only {steps} steps");
            break;
        }
        scene.lay();
        assert_eq!(tree_of(&person), wanted, "killed before step {steps}, and said again");
        assert_eq!(tree_of(&scene.kept()), kept, "killed before step {steps}, and said again");
        assert!(of_git(&person) == git_before && person.join(".git/yoi/interrupted-1").exists());
    }
    assert!(once.values().any(|outcome| *outcome == left(Why::BothChanged)));
}

#[test]
fn what_the_person_writes_in_the_middle_stays() {
    let scene = busy_scene();
    let person = scene.person();
    let mut written = false;
    let applied = scene
        .lay_in(&person, false, &mut || {
            if !std::mem::replace(&mut written, true) {
                edit(
                    &person,
                    &[("a", Some("in the middle")), ("c/d", Some("in the middle")), ("n/e/w", Some("in the middle")), ("b", None)],
                );
            }
        })
        .unwrap();
    let done = outcomes(&applied);
    for path in ["a", "c/d", "n/e/w", "b"] {
        assert_eq!(done[path], left(Why::Changing), "{path}");
    }
    for path in ["a", "c/d", "n/e/w"] {
        assert_eq!(fs::read_to_string(person.join(path)).unwrap(), "in the middle");
    }
    assert!(!person.join("b").exists());
    assert_eq!(fs::read_to_string(scene.kept().join("n/e/w")).unwrap(), "2");
    let kept = applied.paths.iter().find(|path| path.path == b"a").unwrap().kept.clone().unwrap();
    assert_eq!(fs::read_to_string(kept).unwrap(), "2");
}

#[test]
fn nothing_is_laid_while_git_is_in_the_middle_of_something_or_another_lays() {
    for (verb, wanted) in [
        (&["merge", "-q", "side"][..], "merge"),
        (&["rebase", "-q", "side"], "rebase"),
        (&["cherry-pick", "side"], "cherry-pick"),
        (&["revert", "--no-edit", "HEAD~1"], "revert"),
        (&["bisect", "start"], "bisect"),
    ] {
        let scene = Scene::new(&[("a", Some("1"))]).agent_does(&[("new", Some("2"))]);
        let person = scene.person();
        git(&person, &["checkout", "-q", "-b", "side"]);
        edit(&person, &[("a", Some("side"))]);
        commit_all(&person);
        git(&person, &["checkout", "-q", "main"]);
        for text in ["2", "3"] {
            edit(&person, &[("a", Some(text))]);
            commit_all(&person);
        }
        let _ = Command::new("git").args(verb).current_dir(&person).env("GIT_EDITOR", "true").output().unwrap();
        let before = all_of(&person);
        match scene.lay_in(&person, false, &mut || {}) {
            Err(ApplyError::UnderWay(found)) => assert_eq!(found, wanted),
            other => panic!("{wanted}: {other:?}"),
        }
        assert!(all_of(&person) == before, "{wanted}");
    }
    let scene = busy_scene();
    fs::create_dir(scene.person().join(".git/yoi")).unwrap();
    let lock = fs::File::create(scene.person().join(".git/yoi/apply.lock")).unwrap();
    lock.lock().unwrap();
    assert!(matches!(scene.lay_in(&scene.person(), false, &mut || {}), Err(ApplyError::Busy)));
}
