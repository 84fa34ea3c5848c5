//! A base that begins as a clone of the former one: what comes out is a fresh clone of the commit, object by object and file by file.

use std::fs;
use std::process::Command;
use std::time::Instant;

use crate::Folder;
use crate::git_server::{GitServer, USER};
use crate::kills::content;
use crate::populator::Populator;
use crate::repository::Repository;
use yoi_test_support::Share;

struct Source {
    folder: Folder,
    server: GitServer,
    repository: Repository,
    token: String,
}

impl Source {
    fn new(name: &str) -> Self {
        crate::populator::require("git-lfs", "git-lfs");
        let (folder, server, token) = crate::serve_private(name);
        let repository = Repository::new(&folder.path().join("served"), "private/p");
        for n in 0..40 {
            repository.write(&format!("src/{n}.rs"), format!("pub fn f{n}() {{}}\n"));
        }
        repository.write(".gitignore", "*.log\n").link("link", "src/0.rs");
        repository.write("folder/file", "one\n").write("file", "one\n").write("run.sh", "#!/bin/sh\n");
        Source { folder, server, repository, token }
    }

    fn pod(&self, name: &str) -> Populator {
        let pod = Populator::new(&self.folder.path().join(name), &self.server.url("private/p.git")).ca(&self.server.ca);
        pod.secret(&[("username", USER), ("password", &self.token)])
    }

    /// The Pod of the next generation, whose tree is a copy of that of `former`.
    fn next(&self, name: &str, former: &Populator, from: &str, to: &str) -> Populator {
        let pod = self.pod(name).with("FORMER", from).with("REVISION", to);
        fs::remove_dir(pod.tree()).unwrap();
        assert!(Command::new("cp").arg("-a").arg(former.tree()).arg(pod.tree()).status().unwrap().success());
        fs::write(pod.tree().join(MARK), "").unwrap();
        if pod.tree().join(".git/HEAD").exists() {
            // A snapshot keeps inodes and times of files, by which git knows them, and a copy does not.
            pod.git(&["update-index", "-q", "--refresh"]);
        }
        pod
    }

    /// The next base equals a fresh one, and was made as `increment` says.
    fn expect_equal(&self, name: &str, ref_: &str, former: &Populator, (from, to): (&str, &str), increment: bool) {
        let next = self.next(&format!("{name}-next"), former, from, to).with("REF", ref_);
        let fresh = self.pod(&format!("{name}-fresh")).with("REF", ref_).with("REVISION", to);
        fresh.expect_filled();
        next.expect_filled();
        let (made, wanted) = (content(&next), content(&fresh));
        let differs = wanted.keys().chain(made.keys()).find(|key| made.get(*key) != wanted.get(*key));
        assert_eq!(differs.map(|key| (key, made.get(key), wanted.get(key))), None, "{name}: not a fresh clone");
        assert_eq!(next.tree().join(MARK).exists(), increment, "{name}: by increment, or anew?");
        let answer = next.answer();
        let (at, why) = answer.split_once('\n').unwrap_or_default();
        assert!(at.starts_with(&format!("{to} ")), "{name}: {answer}");
        assert_eq!(why.trim().is_empty(), increment, "{name}: nobody can read why: {answer}");
        next.expect_no_trace(&[&self.token]);
    }
}

/// A file of no meaning to git. A fresh clone begins without it.
const MARK: &str = ".git/info/mark";

#[test]
fn a_commit_more_is_taken_by_increment_and_the_tree_equals_a_fresh_clone() {
    let source = Source::new("increment");
    let repository = &source.repository;
    let first = repository.commit("one");
    repository.git(&["tag", "v1"]);
    repository.git(&["branch", "old"]);
    let former = source.pod("former").with("REF", "main");
    former.expect_filled();

    repository.write("src/0.rs", "changed\n").write("new/deep/file", "new\n");
    repository.git(&["rm", "--quiet", "folder/file", "file", "link"]);
    repository.git(&["mv", "src/1.rs", "src/renamed.rs"]);
    repository.git(&["update-index", "--chmod=+x", "run.sh"]);
    // A file where a folder was, and a folder where a file was.
    repository.write("folder", "a file\n").write("file/now", "a folder\n").link("src/link", "../run.sh");
    let second = repository.commit("two");
    repository.git(&["tag", "-a", "-m", "two", "v2"]);
    repository.git(&["branch", "--quiet", "-D", "old"]);
    repository.git(&["branch", "other"]);
    // Nobody writes to a base. If somebody has, it does not stay.
    fs::write(former.tree().join("left.log"), "ignored").unwrap();
    fs::create_dir_all(former.tree().join("left/folder")).unwrap();
    source.expect_equal("one", "main", &former, (&first, &second), true);

    // One more from that one, whose branch has moved on by the time that it is fetched.
    let third = repository.write("src/3.rs", "changed\n").commit("three");
    repository.write("src/4.rs", "changed\n").commit("four");
    let next = source.next("next", &former, &first, &second).with("REF", "main");
    next.expect_filled();
    source.expect_equal("two", "main", &next, (&second, &third), true);
}

#[test]
fn what_a_forced_push_and_a_deleted_branch_took_away_is_in_no_object() {
    let source = Source::new("forced");
    let repository = &source.repository;
    let root = repository.commit("root");
    repository.git(&["checkout", "--quiet", "-b", "gone"]);
    repository.write("secret", "canary-gone\n").commit("gone");
    repository.git(&["tag", "-a", "-m", "gone", "gone-tag"]);
    repository.git(&["checkout", "--quiet", "main"]);
    let first = repository.write("src/0.rs", "a mistake\n").commit("a mistake");
    let former = source.pod("former");
    former.expect_filled();
    repository.git(&["reset", "--quiet", "--hard", &root]);
    let second = repository.write("src/0.rs", "right\n").commit("right");
    repository.git(&["branch", "--quiet", "-D", "gone"]);
    repository.git(&["tag", "--delete", "gone-tag"]);
    source.expect_equal("forced", "", &former, (&first, &second), true);
}

#[test]
fn a_ref_that_is_no_default_branch_is_taken_by_increment() {
    let source = Source::new("refs-increment");
    let repository = &source.repository;
    repository.commit("one");
    repository.git(&["checkout", "--quiet", "-b", "feature"]);
    let first = repository.write("n", "1").commit("feature 1");
    repository.git(&["update-ref", "refs/pull/7/head", &first]);
    repository.git(&["tag", "moving"]);
    let mut share = Share::one_in(2);
    let refs = ["feature", "refs/heads/feature", "moving", "refs/pull/7/head"].into_iter();
    let refs: Vec<_> = refs.filter(|_| share.takes_next()).collect();
    // What is checked out there is the server's default branch.
    repository.git(&["checkout", "--quiet", "main"]);
    let formers: Vec<Populator> = refs.iter().enumerate().map(|(n, ref_)| source.pod(&format!("former-{n}")).with("REF", ref_)).collect();
    formers.iter().for_each(|former| _ = former.expect_filled());
    repository.git(&["checkout", "--quiet", "feature"]);
    let second = repository.write("n", "2").commit("feature 2");
    repository.git(&["update-ref", "refs/pull/7/head", &second]);
    repository.git(&["tag", "--force", "moving"]);
    repository.git(&["checkout", "--quiet", "main"]);
    repository.write("m", "2").commit("main 2");
    for (n, (ref_, former)) in refs.iter().zip(&formers).enumerate() {
        source.expect_equal(&format!("ref-{n}"), ref_, former, (&first, &second), true);
    }
}

#[test]
fn where_an_increment_might_differ_the_source_is_fetched_anew() {
    let source = Source::new("anew");
    let repository = &source.repository;
    let library = Repository::new(&source.folder.path().join("served"), "private/lib");
    let submodule = library.write("lib.rs", "pub fn one() {}\n").commit("one");
    let first = repository.commit("one");
    let plain = source.pod("plain");
    plain.expect_filled();
    let attributes = repository.write(".gitattributes", "*.rs eol=crlf\n").commit("attributes");
    source.expect_equal("attributes", "", &plain, (&first, &attributes), false);

    repository.write(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n");
    let lfs = repository.write("a.bin", source.server.keep_object(b"an object")).commit("lfs");
    source.expect_equal("lfs", "", &plain, (&first, &lfs), false);
    let with_lfs = source.pod("held-lfs");
    with_lfs.expect_filled();
    let more = repository.write("n", "1").commit("more");
    source.expect_equal("with-lfs", "", &with_lfs, (&lfs, &more), false);

    repository.git(&["rm", "--quiet", "a.bin", ".gitattributes"]);
    let none = repository.commit("none");
    let none_pod = source.pod("none");
    none_pod.expect_filled();
    // A submodule that is new is fetched as in a fresh clone; one that was there lies in the former base.
    let with = repository.submodule("vendor/lib", "../lib.git", &submodule).commit("submodule");
    source.expect_equal("submodule", "", &none_pod, (&none, &with), true);
    let with_submodule = source.pod("held-submodule");
    with_submodule.expect_filled();
    let without = repository.write("n", "2").commit("more");
    source.expect_equal("with-submodule", "", &with_submodule, (&with, &without), false);

    repository.git(&["branch", "trunk"]);
    repository.git(&["symbolic-ref", "HEAD", "refs/heads/trunk"]);
    let trunk = repository.write("n", "3").commit("trunk");
    source.expect_equal("trunk", "", &none_pod, (&none, &trunk), false);
}

#[test]
fn an_increment_that_was_cut_short_or_finds_another_base_is_no_base_of_a_later_attempt() {
    let source = Source::new("cut");
    let repository = &source.repository;
    let first = repository.commit("one");
    let former = source.pod("former");
    former.expect_filled();
    let second = repository.write("n", "2").commit("two");
    source.expect_equal("other", "", &former, (&second, &second), false);
    fs::create_dir(former.tree().join(".git/increment")).unwrap();
    source.expect_equal("cut", "", &former, (&first, &second), false);
    fs::remove_dir_all(former.tree().join(".git")).unwrap();
    fs::create_dir_all(former.tree().join(".git/info")).unwrap();
    source.expect_equal("none", "", &former, (&first, &second), false);
}

#[test]
fn an_increment_that_is_killed_at_any_moment_ends_as_a_fresh_clone() {
    let source = Source::new("killed");
    let repository = &source.repository;
    let first = repository.commit("one");
    let former = source.pod("former");
    former.expect_filled();
    let second = repository.write("src/0.rs", "changed\n").write("n", "2").commit("two");
    let fresh = source.pod("fresh").with("REVISION", &second);
    fresh.expect_filled();
    let wanted = content(&fresh);
    let whole = source.next("whole", &former, &first, &second);
    let begun = Instant::now();
    whole.expect_filled();
    let whole = begun.elapsed();
    let mut share = Share::one_in(4);
    for part in (1..=8).filter(|_| share.takes_next()) {
        let pod = source.next(&format!("killed-{part}"), &former, &first, &second);
        let moment = whole * part / 9;
        let undone = pod.run_for(moment).is_none();
        pod.renew_tmp();
        // Somebody has deleted the Pod, so the next one counts as the first attempt, too.
        pod.expect_filled();
        assert_eq!(content(&pod), wanted, "killed after {moment:?} of {whole:?}: {undone}");
    }
}
