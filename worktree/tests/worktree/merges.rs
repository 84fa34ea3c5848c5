//! The work of a child merged into its parent's tree: all of it or nothing, and as git itself merges.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use yoi_test_support::Share;
use yoi_worktree::{
    ApplyError, Asked, CheckError, Conflict, ConflictWhy, Favour, Limits, Merge, MergeError, Merged, Outcome, Rules, Source, Why, capture,
    merge, write_bundle,
};

use crate::applications::{Edit, commit_all, edit, of_git};
use crate::trees::{NAMES, Random, change, clear, copy_all, git, put, tree_by_git, tree_of};

const WORK: &str = "refs/yoi/work";
const UNLIMITED: Limits = Limits { bytes: u64::MAX, untracked: u64::MAX };
const RULES: Rules<'static> = Rules { name: WORK, bytes: 64 << 20, pack_bytes: 64 << 20, paths: 10_000, windows_names: false };

/// A parent's tree, and a child's that began as a copy of it.
struct Family {
    folder: tempfile::TempDir,
}

impl Family {
    /// `uncommitted` is in both trees, and in no commit.
    fn new(base: &[Edit], uncommitted: &[Edit]) -> Self {
        let family = Family { folder: tempfile::tempdir().unwrap() };
        let parent = family.parent();
        fs::create_dir(&parent).unwrap();
        git(&parent, &["init", "-q", "-b", "main"]);
        git(&parent, &["config", "user.name", "p"]);
        git(&parent, &["config", "user.email", "p@p"]);
        edit(&parent, base);
        commit_all(&parent);
        edit(&parent, uncommitted);
        family.fork();
        family
    }

    fn fork(&self) {
        copy_all(&self.parent(), &self.child());
    }

    fn parent(&self) -> PathBuf {
        self.folder.path().join("parent")
    }

    fn child(&self) -> PathBuf {
        self.folder.path().join("child")
    }

    /// The child's commits and what it has not committed.
    fn bundle(&self) -> PathBuf {
        let private = self.folder.path().join("captures");
        fs::create_dir_all(&private).unwrap();
        let source = Source::WorkTree(self.child());
        let asked = Asked { private: &private, include: &[], seconds: 1, limits: UNLIMITED };
        let captured = capture(&source, &asked).unwrap();
        let file = self.folder.path().join("bundle");
        let _ = fs::remove_file(&file);
        let base = git(&self.child(), &["rev-list", "--max-parents=0", "HEAD"]);
        write_bundle(&source, &private, &captured.commit, WORK, &[base], &file, u64::MAX).unwrap();
        file
    }

    fn merge_with(&self, favour: Favour, dry_run: bool, step: &mut dyn FnMut()) -> Result<Merged, MergeError> {
        let (private, bundle) = (tempfile::tempdir().unwrap(), self.bundle());
        let (folder, private) = (&self.parent(), private.path());
        let asked =
            Merge { folder, private, bundle: &bundle, rules: &RULES, key: "u-child", favour, seconds: 2, limits: UNLIMITED, dry_run };
        merge(&asked, step)
    }

    fn merge(&self) -> Merged {
        self.merge_with(Favour::Neither, false, &mut || {}).unwrap()
    }
}

fn paths(merged: &Merged) -> Vec<(String, Outcome)> {
    merged.paths.iter().map(|path| (String::from_utf8_lossy(&path.path).into_owned(), path.outcome.clone())).collect()
}

fn conflict(path: &str, why: ConflictWhy) -> Conflict {
    Conflict { path: path.as_bytes().to_vec(), why }
}

fn by_git(kind: &str) -> ConflictWhy {
    ConflictWhy::Git(kind.to_owned())
}

const LINES: &str = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";

#[test]
fn d12_what_both_changed_in_other_lines_is_merged_and_head_and_index_stay() {
    let family = Family::new(&[("a", Some(LINES)), ("gone", Some("1")), ("mine", Some("1"))], &[("draft", Some("of both"))]);
    let (parent, child) = (family.parent(), family.child());
    edit(&child, &[("a", Some("one\n2\n3\n4\n5\n6\n7\n8\n9\n")), ("gone", None), ("new/er", Some("*2"))]);
    commit_all(&child);
    edit(&child, &[("late", Some("not committed"))]);
    edit(&parent, &[("a", Some("1\n2\n3\n4\n5\n6\n7\n8\nnine\n")), ("mine", Some("2"))]);
    git(&parent, &["add", "mine"]);
    let (before, git_before) = (tree_of(&parent), of_git(&parent));
    let dry = family.merge_with(Favour::Neither, true, &mut || {}).unwrap();
    assert!(tree_of(&parent) == before && of_git(&parent) == git_before, "a dry run has written");
    let merged = family.merge();
    let changed = [("a", Outcome::Changed), ("gone", Outcome::Deleted), ("late", Outcome::Added), ("new/er", Outcome::Added)];
    assert_eq!(paths(&merged), changed.map(|(path, outcome)| (path.to_owned(), outcome)));
    assert_eq!((paths(&dry), merged.conflicts.len(), merged.not_remembered.as_deref()), (paths(&merged), 0, None));
    assert_eq!(fs::read_to_string(parent.join("a")).unwrap(), "one\n2\n3\n4\n5\n6\n7\n8\nnine\n");
    let only_what_is_remembered: BTreeSet<_> = of_git(&parent)
        .into_iter()
        .filter(|file| git_before.get(&file.0) != Some(&file.1))
        .map(|(path, _)| path)
        .filter(|path| !path.starts_with(".git/objects"))
        .collect();
    assert_eq!(only_what_is_remembered, BTreeSet::from([PathBuf::from(".git/refs/yoi/merged/u-child")]));
    assert!(family.merge().paths.is_empty(), "merged twice");
}

#[test]
fn d12_with_a_conflict_nothing_is_merged_and_its_paths_are_listed() {
    let base = [("a", Some("1")), ("b", Some("1")), ("c", Some("1")), (".gitignore", Some("x.log\n"))];
    let family = Family::new(&base, &[]);
    let (parent, child) = (family.parent(), family.child());
    edit(&child, &[("a", Some("theirs")), ("b", None), ("c", Some("2")), ("n", Some("of the child"))]);
    edit(&parent, &[("a", Some("ours")), ("b", Some("ours"))]);
    let (before, git_before) = (tree_of(&parent), of_git(&parent));
    let merged = family.merge();
    assert_eq!(merged.conflicts, [conflict("a", by_git("contents")), conflict("b", by_git("modify/delete"))]);
    assert!(merged.paths.is_empty() && tree_of(&parent) == before && of_git(&parent) == git_before, "half of it was merged");
    // Lines have a right side when one is named, and what is gone on one side has none.
    let favoured = family.merge_with(Favour::Theirs, false, &mut || {}).unwrap();
    assert_eq!(favoured.conflicts, [conflict("b", by_git("modify/delete"))]);
    edit(&parent, &[("b", Some("1"))]);
    for (favour, text) in [(Favour::Ours, "ours"), (Favour::Theirs, "theirs")] {
        let copy = family.folder.path().join("copy");
        copy_all(&parent, &copy);
        assert!(family.merge_with(favour, false, &mut || {}).unwrap().conflicts.is_empty());
        assert_eq!((fs::read_to_string(parent.join("a")).unwrap().as_str(), parent.join("b").exists()), (text, false));
        copy_all(&copy, &parent);
    }
    // A file that git ignores is in the way of one that the child has added.
    edit(&parent, &[("a", Some("1")), ("x.log", Some("of mine"))]);
    edit(&child, &[("x.log", Some("theirs"))]);
    git(&child, &["add", "-f", "x.log"]);
    git(&child, &["commit", "-q", "-m", "log"]);
    let before = tree_of(&parent);
    assert_eq!(family.merge().conflicts, [conflict("x.log", ConflictWhy::Tree(Why::InTheWay))]);
    assert!(tree_of(&parent) == before, "half of it was merged");
}

#[test]
fn what_was_merged_once_is_no_conflict_when_the_child_goes_on() {
    let family = Family::new(&[("a", Some(LINES))], &[]);
    let (parent, child) = (family.parent(), family.child());
    edit(&child, &[("a", Some("one\n2\n3\n4\n5\n6\n7\n8\n9\n"))]);
    family.merge();
    // Not committed by either, and changed again in the very line.
    edit(&child, &[("a", Some("uno\n2\n3\n4\n5\n6\n7\n8\n9\n")), ("b", Some("2"))]);
    let merged = family.merge();
    assert!(merged.conflicts.is_empty(), "{merged:?}");
    assert_eq!(fs::read_to_string(parent.join("a")).unwrap(), fs::read_to_string(child.join("a")).unwrap());
}

#[test]
fn a_merge_into_a_tree_that_is_in_the_middle_of_one_or_of_another_project_is_refused() {
    let family = Family::new(&[("a", Some("1"))], &[]);
    let parent = family.parent();
    edit(&family.child(), &[("a", Some("2"))]);
    fs::write(parent.join(".git/MERGE_HEAD"), git(&parent, &["rev-parse", "HEAD"])).unwrap();
    let refused = family.merge_with(Favour::Neither, false, &mut || {});
    assert!(matches!(refused, Err(MergeError::Apply(ApplyError::UnderWay("merge")))), "{refused:?}");
    fs::remove_dir_all(&parent).unwrap();
    fs::create_dir(&parent).unwrap();
    git(&parent, &["init", "-q", "-b", "main"]);
    edit(&parent, &[("other", Some("1"))]);
    commit_all(&parent);
    let refused = family.merge_with(Favour::Neither, false, &mut || {});
    assert!(matches!(refused, Err(MergeError::Check(CheckError::NotOnOurs(_)))), "{refused:?}");
}

#[test]
fn what_is_written_while_the_merge_is_laid_stays_and_the_rest_goes_back() {
    let family = Family::new(&[("a", Some("1")), ("b", Some("1")), ("c", Some("1"))], &[]);
    let parent = family.parent();
    edit(&family.child(), &[("a", Some("2")), ("b", Some("2")), ("c", None), ("d", Some("2"))]);
    let mut steps = 0;
    let mut write = || {
        steps += 1;
        // The child's deletion comes first, then the others one by one.
        if steps == 2 {
            put(&parent, "b", "of a process that goes on");
        }
    };
    let merged = family.merge_with(Favour::Neither, false, &mut write).unwrap();
    assert_eq!(merged.conflicts, [conflict("b", ConflictWhy::Tree(Why::Changing))]);
    let now: Vec<String> = ["a", "b", "c"].map(|name| fs::read_to_string(parent.join(name)).unwrap()).to_vec();
    assert_eq!(now, ["1", "of a process that goes on", "1"]);
    assert!(!parent.join("d").exists());
}

/// Changes lines of a text, or makes one.
fn change_lines(random: &mut Random, root: &Path, name: &str) {
    let path = root.join(name);
    let is_text = fs::symlink_metadata(&path).is_ok_and(|found| found.is_file());
    let text = if is_text { String::from_utf8(fs::read(&path).unwrap()).unwrap_or_default() } else { String::new() };
    let mut lines: Vec<String> =
        if text.is_empty() { (0..12).map(|n| n.to_string()).collect() } else { text.lines().map(str::to_owned).collect() };
    for _ in 0..=random.below(2) {
        let at = usize::try_from(random.below(lines.len().max(1) as u64)).unwrap();
        match random.below(3) {
            0 => lines.insert(at, format!("new {}", random.below(9))),
            1 if lines.len() > 3 => drop(lines.remove(at)),
            _ => lines[at].push('!'),
        }
    }
    put(root, name, "");
    fs::write(path, lines.join("\n") + "\n").unwrap();
}

/// What one side does for a while; at the end not all of it is committed.
fn work(random: &mut Random, root: &Path) {
    for _ in 0..=random.below(2) {
        for _ in 0..=random.below(2) {
            let name = NAMES[usize::try_from(random.below(NAMES.len() as u64)).unwrap()];
            match random.below(8) {
                0 => change(random, root, name),
                1 => clear(root, name),
                2 => {
                    let from = root.join(name);
                    if fs::symlink_metadata(&from).is_ok_and(|found| found.is_file()) {
                        fs::rename(from, root.join(format!("moved {}", random.below(4)))).unwrap();
                    }
                }
                _ => change_lines(random, root, name),
            }
        }
        if random.below(2) == 0 {
            commit_all(root);
        }
    }
}

/// The parent's tree with all of the child's work merged by a person: the tree, or the paths in conflict.
fn merged_by_hand(family: &Family, hand: &Path) -> Result<String, BTreeSet<String>> {
    let child = family.folder.path().join("child by hand");
    let branch = git(&family.child(), &["rev-parse", "HEAD"]);
    if child.exists() {
        // The child's history goes on, as far as the last merge knows it.
        let parent = git(&child, &["rev-parse", "HEAD"]);
        let former = family.folder.path().join("former");
        fs::rename(child.join(".git"), &former).unwrap();
        copy_all(&family.child(), &child);
        fs::remove_dir_all(child.join(".git")).unwrap();
        fs::rename(&former, child.join(".git")).unwrap();
        assert_eq!(git(&child, &["rev-parse", "HEAD"]), parent, "after {branch}");
    } else {
        copy_all(&family.child(), &child);
    }
    commit_all(&child);
    let commit = git(&child, &["rev-parse", "HEAD"]);
    git(hand, &["fetch", "-q", child.to_str().unwrap()]);
    commit_all(hand);
    let words = ["-c", "user.name=t", "-c", "user.email=t@t", "merge", "-q", "--no-edit", "--no-ff", &commit];
    let done = Command::new("git").args(words).current_dir(hand).output().unwrap();
    if done.status.success() {
        return Ok(git(hand, &["rev-parse", "HEAD^{tree}"]));
    }
    let unmerged = git(hand, &["-c", "core.quotePath=false", "diff", "--name-only", "--diff-filter=U", "-z"]);
    Err(unmerged.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect())
}

#[test]
fn of_generated_histories_the_merge_is_the_one_that_git_makes_by_hand_and_in_a_conflict_nothing_is_written() {
    let (mut share, mut clean, mut in_conflict) = (Share::one_in(10), 0, 0);
    for seed in (1..=200_u64).filter(|_| share.takes_next()) {
        let mut random = Random(seed * 0x9e37_79b9);
        let family = Family::new(&[("same", Some("1"))], &[]);
        let (parent, child) = (family.parent(), family.child());
        NAMES.iter().for_each(|name| change_lines(&mut random, &parent, name));
        commit_all(&parent);
        // The root of the history is no longer where both began, so that the bundle has commits of before.
        family.fork();
        let hand = family.folder.path().join("hand");
        for round in 1..=2 {
            work(&mut random, &child);
            work(&mut random, &parent);
            // What is merged by hand is committed, and here it need not be.
            let former = family.folder.path().join("former hand");
            if hand.exists() {
                fs::rename(hand.join(".git"), &former).unwrap();
                copy_all(&parent, &hand);
                fs::remove_dir_all(hand.join(".git")).unwrap();
                fs::rename(&former, hand.join(".git")).unwrap();
            } else {
                copy_all(&parent, &hand);
            }
            let (before, git_before) = (tree_of(&parent), of_git(&parent));
            let wanted = merged_by_hand(&family, &hand);
            let merged = family.merge();
            match wanted {
                Ok(tree) => {
                    assert!(merged.conflicts.is_empty(), "seed {seed}.{round}: {:?}", merged.conflicts);
                    let copy = family.folder.path().join("copy");
                    assert_eq!(tree_by_git(&copy, &parent, &[]), tree, "seed {seed}.{round}");
                    clean += 1;
                }
                Err(unmerged) => {
                    let listed: BTreeSet<String> =
                        merged.conflicts.iter().map(|conflict| String::from_utf8_lossy(&conflict.path).into_owned()).collect();
                    // Where a file and a folder meet, git makes up a name with the name of a side in it.
                    let plain =
                        |paths: &BTreeSet<String>| paths.iter().filter(|path| !path.contains('~')).cloned().collect::<BTreeSet<_>>();
                    assert_eq!(plain(&listed), plain(&unmerged), "seed {seed}.{round}");
                    assert!(!listed.is_empty() && tree_of(&parent) == before && of_git(&parent) == git_before, "seed {seed}.{round}");
                    in_conflict += 1;
                    break;
                }
            }
        }
    }
    assert!(clean > 0 && in_conflict > 0, "{clean} clean, {in_conflict} in conflict");
}
