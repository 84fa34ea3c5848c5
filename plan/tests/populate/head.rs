//! What the Pod of `prepare` does after the command: it lets a base be sealed only if HEAD is what it was when the base was filled.

use std::process::Command;

use yoi_plan::workspace::prepare::HEAD_SCRIPT;

use crate::Folder;
use crate::git_server::GitServer;
use crate::populator::{Outcome, Populator};
use crate::repository::Repository;

struct Source {
    folder: Folder,
    server: GitServer,
    first: String,
    second: String,
}

impl Source {
    fn new(name: &str) -> Self {
        let folder = Folder::new(name);
        let server = GitServer::start(&folder.path().join("served"), "none");
        let repository = Repository::new(&folder.path().join("served"), "open/p");
        let [first, second] = ["1", "2"].map(|n| repository.write("n", n).commit(n));
        Source { folder, server, first, second }
    }

    /// A base of this ref that is filled, and what its Pod says of HEAD.
    fn filled(&self, name: &str, ref_: &str) -> (Populator, String) {
        let pod = Populator::new(&self.folder.path().join(name), &self.server.url("open/p.git")).ca(&self.server.ca).with("REF", ref_);
        pod.expect_filled();
        let answer = pod.answer().trim_end().to_owned();
        (pod, answer)
    }

    /// How the look at HEAD ends after `command` has run in a base of this ref.
    fn after(&self, name: &str, ref_: &str, command: &str) -> Outcome {
        let (pod, answer) = self.filled(name, ref_);
        run(&pod, command);
        look(pod, &answer)
    }
}

/// Runs the command of a `prepare`.
fn run(pod: &Populator, command: &str) {
    let mut shell = Command::new("sh");
    shell.args(["-ec", command]).current_dir(pod.tree()).env_clear().env("PATH", "/usr/bin:/bin").env("HOME", "/nonexistent");
    for role in ["AUTHOR", "COMMITTER"] {
        shell.env(format!("GIT_{role}_NAME"), "p").env(format!("GIT_{role}_EMAIL"), "p@p");
    }
    let done = shell.output().unwrap();
    assert!(done.status.success(), "{command}: {}", String::from_utf8_lossy(&done.stderr));
}

fn look(pod: Populator, answer: &str) -> Outcome {
    let (commit, branch) = answer.split_once(' ').expect("a commit and a branch");
    pod.with("COMMIT", commit).with("BRANCH", branch).run_script(HEAD_SCRIPT)
}

#[test]
fn a_command_that_leaves_head_alone_is_let_through_whatever_else_it_does_to_the_repository() {
    let source = Source::new("head-same");
    assert_eq!(source.filled("main", "").1, format!("{} refs/heads/main", source.second));
    assert_eq!(source.filled("detached", &source.first).1, format!("{} -", source.first));
    for (n, command) in [
        "mkdir build; echo x > build/out; echo /build/ >> .git/info/exclude",
        "git gc --quiet --prune=now && test ! -e .git/refs/heads/main",
        "git pack-refs --all; git branch other; git tag built; git branch zz HEAD~1; git pack-refs --all",
        "git checkout --quiet -b other; git commit --quiet --allow-empty -m x; git checkout --quiet main; git branch -D other",
        "echo 3 > n; git add n; git stash --quiet",
    ]
    .into_iter()
    .enumerate()
    {
        let done = source.after(&format!("main-{n}"), "", command);
        assert!(done.succeeded && done.words.is_empty(), "{command}: {}", done.words);
    }
    let done = source.after("detached-built", &source.first, "git gc --quiet; echo x > out");
    assert!(done.succeeded, "{}", done.words);
}

#[test]
fn a_commit_a_checkout_and_another_branch_are_refused_with_both_commits_and_what_to_do() {
    let source = Source::new("head-moved");
    let (first, second) = (&source.first, &source.second);
    let from = format!("it moved HEAD from commit {second} on main to");
    for (n, (command, to)) in [
        ("git reset --quiet --hard HEAD~1", format!("commit {first} on main.")),
        ("git pack-refs --all; git reset --quiet --hard HEAD~1; git pack-refs --all", format!("commit {first} on main.")),
        ("git checkout --quiet HEAD~1", format!("commit {first}.")),
        ("git checkout --quiet --detach", format!("commit {second}.")),
        ("git checkout --quiet -b build", format!("commit {second} on build.")),
        ("git checkout --quiet --orphan build", "no commit on build.".to_owned()),
        ("rm -rf .git", "no commit.".to_owned()),
    ]
    .into_iter()
    .enumerate()
    {
        let done = source.after(&format!("moved-{n}"), "", command);
        assert!(!done.succeeded, "{command}: it would be sealed");
        assert!(done.words.starts_with(&format!("{from} {to}")), "{command}: {}", done.words);
        assert!(done.words.ends_with("do that in the repository, or name another commit in spec.source.git.ref"), "{}", done.words);
        assert!(done.words.chars().count() < 500, "the condition would cut it: {}", done.words);
    }
    let (pod, answer) = source.filled("commits", "");
    run(&pod, "git commit --quiet --allow-empty -m built");
    let made = pod.git(&["rev-parse", "HEAD"]);
    let words = look(pod, &answer).words;
    assert!(words.starts_with(&format!("{from} commit {made} on main.")), "{words}");
    let done = source.after("detached", first, "git checkout --quiet main");
    assert!(done.words.starts_with(&format!("it moved HEAD from commit {first} to commit {second} on main.")), "{}", done.words);
}

#[test]
fn what_a_command_has_made_of_the_repository_is_not_run_and_not_followed() {
    let source = Source::new("head-hostile");
    // Each leaves a repository that git, or a reader who follows links, would find to be at the same commit.
    for (n, command) in [
        "mv .git ../elsewhere; ln -s ../elsewhere .git",
        "mv .git ../elsewhere-2; echo 'gitdir: ../elsewhere-2' > .git",
        "cp .git/HEAD ../head; ln -sf ../../head .git/HEAD",
        "cp .git/refs/heads/main ../main; ln -sf ../../../../main .git/refs/heads/main",
        "cp -R .git/refs ../refs; rm -r .git/refs; ln -s ../../refs .git/refs",
        "cp .git/refs/heads/main ../main-2; echo 'ref: ../../main-2' > .git/HEAD",
        "cp -R .git ../common; echo ../../common > .git/commondir",
        "mkdir .git/reftable",
        "rm .git/HEAD; mkfifo .git/HEAD",
        "mv .git/HEAD .git/h; mkdir .git/HEAD",
        "printf 'ref: refs/heads/main\\nref: refs/heads/other\\n' > .git/HEAD; rm .git/refs/heads/main",
        "head -c 3000000 /dev/zero | tr '\\0' a > .git/HEAD",
    ]
    .into_iter()
    .enumerate()
    {
        let done = source.after(&format!("hostile-{n}/pod"), "", command);
        assert!(!done.succeeded && done.words.contains("it moved HEAD from"), "{command}: {}", done.words);
    }
    let (pod, answer) = source.filled("settings/pod", "");
    let canary = source.folder.path().join("canary");
    let touch = format!("touch {}", canary.display());
    run(&pod, &format!("git config core.fsmonitor '{touch}'; git config core.pager '{touch}'; git config alias.rev-parse '!{touch}'"));
    run(
        &pod,
        &format!(
            "for hook in post-checkout post-index-change reference-transaction; do printf '#!/bin/sh\\n{touch}\\n' > .git/hooks/$hook; chmod +x .git/hooks/$hook; done"
        ),
    );
    assert!(look(pod, &answer).succeeded);
    assert!(!canary.exists(), "a setting of the repository was run");
}

#[test]
fn a_base_of_which_nobody_knows_the_commit_is_not_sealed() {
    let source = Source::new("head-unknown");
    let (pod, _) = source.filled("pod", "");
    let done = pod.with("COMMIT", "").with("BRANCH", "").run_script(HEAD_SCRIPT);
    assert_eq!((done.succeeded, &*done.words), (false, "the Pod that has filled the base did not say which commit it is at"));
    let empty = Repository::new(&source.folder.path().join("served"), "open/empty");
    assert!(!empty.bare().join("refs/heads/main").exists());
    let pod = Populator::new(&source.folder.path().join("empty"), &source.server.url("open/empty.git")).ca(&source.server.ca);
    pod.expect_filled();
    let answer = pod.answer().trim_end().to_owned();
    assert!(answer.starts_with("- refs/heads/"), "{answer}");
    run(&pod, "git commit --quiet --allow-empty -m first");
    let words = look(pod, &answer).words;
    assert!(words.starts_with("it moved HEAD from no commit on "), "{words}");
}
