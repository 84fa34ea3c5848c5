//! A base of a working tree that somebody has synced: commits that the server does not have come in parts of one bundle.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Folder;
use crate::git_server::{GitServer, USER};
use crate::kills::content;
use crate::populator::Populator;
use crate::repository::Repository;

/// A server with a repository, and a clone of it whose commits nobody has pushed.
struct Laptop {
    folder: Folder,
    server: GitServer,
    token: String,
    clone: PathBuf,
}

/// A bundle as it lies in the cluster.
#[derive(Clone)]
struct Sent {
    commit: String,
    sha256: String,
    parts: Vec<Vec<u8>>,
}

impl Laptop {
    fn new(name: &str) -> (Self, String) {
        let (folder, server, token) = crate::serve_private(name);
        let repository = Repository::new(&folder.path().join("served"), "private/p");
        repository.write("folder/file", "one\n").write("file", "one\n").write("gone", "one\n");
        let first = repository.commit("one");
        let clone = folder.path().join("laptop");
        let from = repository.bare().to_str().unwrap().to_owned();
        git(folder.path(), &["clone", "--quiet", &from, clone.to_str().unwrap()], &[]);
        (Laptop { folder, server, token, clone }, first)
    }

    fn git(&self, args: &[&str]) -> String {
        git(&self.clone, args, &[])
    }

    /// What is in the clone, in two parts.
    fn send(&self) -> Sent {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--allow-empty", "-m", "The working tree as it is"]);
        self.send_commit(&self.git(&["rev-parse", "HEAD"]), "^origin/main")
    }

    fn send_commit(&self, commit: &str, without: &str) -> Sent {
        self.git(&["update-ref", "refs/yoi/sync/laptop", commit]);
        let file = self.folder.path().join("bundle");
        self.git(&["bundle", "create", "--quiet", file.to_str().unwrap(), "refs/yoi/sync/laptop", without]);
        Sent::new(commit, &fs::read(file).unwrap())
    }

    fn pod(&self, name: &str, sent: &Sent) -> Populator {
        let folder = self.folder.path().join(name);
        let pod = Populator::new(&folder, &self.server.url("private/p.git")).ca(&self.server.ca);
        fs::create_dir_all(folder.join("yoi/bundle")).unwrap();
        for (number, part) in sent.parts.iter().enumerate() {
            fs::write(folder.join("yoi/bundle").join(number.to_string()), part).unwrap();
        }
        let pod = pod.secret(&[("username", USER), ("password", &self.token)]).with("REF", "main");
        pod.with("REVISION", &sent.commit).with("BUNDLE", &sent.sha256).with("BUNDLE_PARTS", &sent.parts.len().to_string())
    }
}

impl Sent {
    fn new(commit: &str, bytes: &[u8]) -> Self {
        let (first, second) = bytes.split_at(bytes.len() / 2);
        Sent { commit: commit.to_owned(), sha256: yoi_plan::names::sha256(bytes), parts: vec![first.to_vec(), second.to_vec()] }
    }

    fn bytes(&self) -> Vec<u8> {
        self.parts.concat()
    }
}

fn git(folder: &Path, args: &[&str], input: &[u8]) -> String {
    let mut git = Command::new("git");
    git.current_dir(folder).args(["-c", "user.name=t", "-c", "user.email=t@t"]).args(args);
    git.env("GIT_CONFIG_NOSYSTEM", "1").env("HOME", "/nonexistent").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = git.spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), input).unwrap();
    let done = child.wait_with_output().unwrap();
    assert!(done.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).trim().to_owned()
}

#[test]
fn w45_a_tree_that_nobody_has_pushed_is_made_from_its_bundle_anew_and_by_increment() {
    let (laptop, first) = Laptop::new("sync");
    laptop.git(&["commit", "--quiet", "--allow-empty", "-m", "not pushed"]);
    fs::write(laptop.clone.join("file"), "two\n").unwrap();
    fs::write(laptop.clone.join("new"), "new\n").unwrap();
    fs::remove_file(laptop.clone.join("gone")).unwrap();
    let sent = laptop.send();
    let fresh = laptop.pod("fresh", &sent);
    fresh.expect_filled();
    assert_eq!(
        (fresh.git(&["rev-parse", "HEAD"]), fresh.read("file"), fresh.read("new")),
        (sent.commit.clone(), "two\n".into(), "new\n".into())
    );
    assert!(!fresh.tree().join("gone").exists());
    assert_eq!(fresh.git(&["rev-list", "--count", "HEAD"]), "3", "the person's own history is below it");
    assert!(fresh.answer().starts_with(&format!("{} refs/heads/main", sent.commit)), "{}", fresh.answer());

    let former = Populator::new(&laptop.folder.path().join("former"), &laptop.server.url("private/p.git")).ca(&laptop.server.ca);
    former.secret(&[("username", USER), ("password", &laptop.token)]).with("REF", "main").expect_filled();
    let next = laptop.pod("next", &sent).with("FORMER", &first);
    fs::remove_dir(next.tree()).unwrap();
    assert!(Command::new("cp").arg("-a").arg(laptop.folder.path().join("former/tree")).arg(next.tree()).status().unwrap().success());
    next.git(&["update-index", "-q", "--refresh"]);
    next.expect_filled();
    assert_eq!(next.answer().trim(), format!("{} refs/heads/main", sent.commit), "by increment");
    let (made, wanted) = (content(&next), content(&fresh));
    let differs = wanted.keys().chain(made.keys()).find(|key| made.get(*key) != wanted.get(*key));
    assert_eq!(differs, None, "the increment is not what a fresh clone is");
}

#[test]
fn a_bundle_that_is_not_what_was_sent_or_holds_what_git_refuses_makes_no_base() {
    let (laptop, _) = Laptop::new("sync-refused");
    fs::write(laptop.clone.join("file"), "two\n").unwrap();
    let sent = laptop.send();
    let mut lost = sent.clone();
    lost.parts.pop();
    let mut swapped = sent.clone();
    swapped.parts.swap(0, 1);
    let mut damaged = sent.bytes();
    let middle = damaged.len() - 30;
    damaged[middle] ^= 1;
    let other = Sent { commit: "c0".repeat(20), ..sent.clone() };
    let unknown_base = {
        laptop.git(&["checkout", "--quiet", "--orphan", "unknown"]);
        laptop.git(&["commit", "--quiet", "-m", "of another repository"]);
        let base = laptop.git(&["rev-parse", "HEAD"]);
        laptop.git(&["commit", "--quiet", "--allow-empty", "-m", "on top"]);
        laptop.send_commit(&laptop.git(&["rev-parse", "HEAD"]), &format!("^{base}"))
    };
    let hook = {
        let blob = git(&laptop.clone, &["hash-object", "-w", "--stdin"], b"#!/bin/sh\n");
        let inner = git(&laptop.clone, &["mktree"], format!("100755 blob {blob}\thooks\n").as_bytes());
        let tree = git(&laptop.clone, &["mktree"], format!("040000 tree {inner}\t.git\n").as_bytes());
        let commit = laptop.git(&["commit-tree", "-p", "origin/main", "-m", "hostile", &tree]);
        laptop.send_commit(&commit, "^origin/main")
    };
    let cases = [
        ("lost", lost, "what was synced is not what has come"),
        ("swapped", swapped, "what was synced is not what has come"),
        ("damaged", Sent::new(&sent.commit, &damaged), "what was synced holds an object that is not sound"),
        ("no-bundle", Sent::new(&sent.commit, b"PACK of nothing\n\n"), "what was synced is no bundle"),
        ("other", other, "does not hold commit c0c0"),
        ("unknown-base", unknown_base, "is made on top of commits that the source does not have"),
        ("hook", hook, "what was synced holds an object that is not sound"),
    ];
    for (name, sent, words) in cases {
        let said = laptop.pod(name, &sent).expect_refused();
        assert!(said.contains(words), "{name}: {said}");
    }
    let gone = laptop.pod("gone", &sent);
    fs::remove_file(laptop.folder.path().join("gone/yoi/bundle/1")).unwrap();
    let said = gone.expect_refused();
    assert!(said.contains("part 1 of what was synced is not there any more: say kubectl yoi sync again"), "{said}");
}

#[test]
fn a_bundle_that_brings_a_path_that_windows_cannot_hold_makes_no_base_and_one_that_goes_on_from_such_a_path_does() {
    let (laptop, first) = Laptop::new("sync-names");
    fs::create_dir(laptop.clone.join("sub")).unwrap();
    for (number, path) in
        ["CON", "sub/nul.txt", "com1", "a:b", "ends.", "ends ", "sub./x", "q?", "back\\slash", "new\nline"].iter().enumerate()
    {
        laptop.git(&["checkout", "--quiet", "--force", "-B", "try", &first]);
        fs::create_dir_all(laptop.clone.join(path).parent().unwrap()).unwrap();
        fs::write(laptop.clone.join(path), "x\n").unwrap();
        let said = laptop.pod(&format!("reserved-{number}"), &laptop.send()).expect_refused();
        assert!(said.contains("which Windows cannot hold: rename it") && said.contains("what was synced holds the path"), "{path}: {said}");
        laptop.git(&["clean", "--quiet", "-ffdx"]);
    }
    laptop.git(&["checkout", "--quiet", "--force", "-B", "try", &first]);
    for path in ["console", "com10", "a.b", ".hidden", "aux-1", "lptx"] {
        fs::write(laptop.clone.join(path), "x\n").unwrap();
    }
    laptop.pod("plain", &laptop.send()).expect_filled();

    // The server has one of its own.
    let folder = laptop.folder.path();
    fs::write(laptop.clone.join("aux.c"), "of the project\n").unwrap();
    laptop.git(&["add", "--all"]);
    laptop.git(&["commit", "--quiet", "-m", "with a device"]);
    let served = folder.join("served/private/p.git");
    git(&served, &["config", "receive.denyCurrentBranch", "ignore"], &[]);
    laptop.git(&["push", "--quiet", "--force", served.to_str().unwrap(), "HEAD:main"]);
    laptop.git(&["fetch", "--quiet", "origin"]);
    fs::write(laptop.clone.join("later"), "x\n").unwrap();
    laptop.pod("its-own", &laptop.send()).expect_filled();
}

#[test]
fn a_tree_that_no_server_has_is_made_from_its_bundle_alone() {
    let folder = Folder::new("sync-from-nowhere");
    let laptop = folder.path().join("laptop");
    fs::create_dir_all(laptop.join("sub")).unwrap();
    git(&laptop, &["init", "--quiet", "-b", "whatever"], &[]);
    fs::write(laptop.join("file"), "one\n").unwrap();
    fs::write(laptop.join("sub/inner"), "two\n").unwrap();
    // A repository within it, of which only the commit comes, and what looks like a pointer of git LFS.
    git(&laptop, &["init", "--quiet", "nested"], &[]);
    git(&laptop.join("nested"), &["commit", "--quiet", "--allow-empty", "-m", "x"], &[]);
    fs::write(laptop.join(".gitattributes"), "*.bin -filter\n").unwrap();
    git(&laptop, &["-c", "advice.addEmbeddedRepo=false", "add", "--all"], &[]);
    git(&laptop, &["commit", "--quiet", "-m", "The working tree as it is"], &[]);
    let commit = git(&laptop, &["rev-parse", "HEAD"], &[]);
    git(&laptop, &["update-ref", "refs/yoi/sync/laptop", &commit], &[]);
    let file = folder.path().join("bundle");
    git(&laptop, &["bundle", "create", "--quiet", file.to_str().unwrap(), "refs/yoi/sync/laptop"], &[]);
    let sent = Sent::new(&commit, &fs::read(file).unwrap());

    let pod = |name: &str, sent: &Sent| {
        let pod =
            Populator::new(&folder.path().join(name), "").with("SUBMODULES", "Skip").with("LFS", "Skip").with("REVISION", &sent.commit);
        fs::create_dir_all(folder.path().join(name).join("yoi/bundle")).unwrap();
        for (number, part) in sent.parts.iter().enumerate() {
            fs::write(folder.path().join(name).join("yoi/bundle").join(number.to_string()), part).unwrap();
        }
        pod.with("BUNDLE", &sent.sha256).with("BUNDLE_PARTS", &sent.parts.len().to_string())
    };
    let made = pod("made", &sent);
    made.expect_filled();
    assert_eq!((made.read("file"), made.read("sub/inner")), ("one\n".into(), "two\n".into()));
    assert_eq!(made.answer().trim(), format!("{commit} refs/heads/main"));
    assert_eq!(made.git(&["remote"]), "");

    let other = Sent { commit: "c0".repeat(20), ..sent.clone() };
    assert!(pod("other", &other).expect_refused().contains("does not hold commit c0c0"));
    let gone = pod("gone", &sent).with("BUNDLE", "");
    assert!(gone.expect_refused().contains("is not there any more: say kubectl yoi sync again"));
}
