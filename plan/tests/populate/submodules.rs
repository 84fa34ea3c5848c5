//! Submodules.

use std::process::Command;

use crate::Folder;
use crate::git_server::{GitServer, USER, basic};
use crate::populator::Populator;
use crate::repository::Repository;

struct Source {
    folder: Folder,
    server: GitServer,
    token: String,
    main: Repository,
    library: Repository,
    /// Of the library.
    commit: String,
}

impl Source {
    fn new(name: &str) -> Self {
        let folder = Folder::new(name);
        let token = format!("canary-{name}-{}", std::process::id());
        let served = folder.path().join("served");
        let server = GitServer::start(&served, &token);
        let (main, library) = (Repository::new(&served, "private/p"), Repository::new(&served, "private/lib"));
        let commit = library.write("lib.rs", "pub fn one() {}\n").commit("one");
        library.write("lib.rs", "pub fn two() {}\n").commit("two");
        Source { folder, server, token, main, library, commit }
    }

    fn pod(&self, name: &str) -> Populator {
        let pod = Populator::new(&self.folder.path().join(name), &self.server.url("private/p.git")).ca(&self.server.ca);
        pod.secret(&[("username", USER), ("password", &self.token)])
    }
}

#[test]
fn submodules_are_fetched_at_their_commits_with_the_same_token_in_submodules_too() {
    let source = Source::new("submodule");
    let served = source.folder.path().join("served");
    let middle = Repository::new(&served, "private/middle");
    let nested = middle.submodule("deep/lib", "../lib.git", &source.commit).commit("one");
    source.main.submodule("vendor/second lib", "../middle.git", &nested);
    source.main.submodule("vendor/first", &source.server.url("private/lib.git"), &source.commit).commit("one");
    for depth in ["", "1"] {
        let pod = source.pod(&format!("pod{depth}")).with("DEPTH", depth);
        pod.expect_filled();
        for file in ["vendor/first/lib.rs", "vendor/second lib/deep/lib/lib.rs"] {
            assert_eq!(pod.read(file), "pub fn one() {}\n", "{file}");
        }
        assert!(!pod.git(&["submodule", "status", "--recursive"]).contains('-'), "one of them is not there");
        pod.expect_no_trace(&[&source.token, &basic(USER, &source.token)]);
    }
    source.server.expect_no_leak();
}

#[test]
fn a_submodule_on_another_host_is_refused_with_the_field_that_would_allow_it() {
    let source = Source::new("submodule-host");
    let other = source.server.other_host();
    source.main.submodule("vendor/lib", &format!("https://{other}/private/lib.git"), &source.commit).commit("one");
    let words = source.pod("refused").expect_refused();
    assert_eq!(
        words,
        format!("submodule vendor/lib is on host {other}, which nobody has allowed: name it in spec.source.git.submoduleHosts")
    );
    assert!(source.server.requests().iter().all(|request| !request.contains("lib.git")), "{:?}", source.server.requests());
    let pod = source.pod("allowed").with("SUBMODULE_HOSTS", &format!("git.example {other}"));
    pod.expect_filled();
    assert_eq!(pod.read("vendor/lib/lib.rs"), "pub fn one() {}\n");
}

#[test]
fn a_gitmodules_that_can_be_read_in_two_ways_leads_to_no_other_host() {
    let source = Source::new("submodule-two-ways");
    let other = source.server.other_host();
    let (good, bad) = ("../lib.git", format!("https://{other}/private/lib.git"));
    for (n, entries) in [
        format!("[submodule \"a\"]\n\tpath = sub\n\turl = {good}\n\tpath = other\n[submodule \"b\"]\n\tpath = sub\n\turl = {bad}\n"),
        format!("[submodule \"a\"]\n\tpath = sub\n\turl = {good}\n\tpath = other\n\turl = {bad}\n[submodule \"b\"]\n\tpath = sub\n\turl = {good}\n"),
        format!("[submodule \"a\"]\n\tpath = sub\n\turl = {good}\n\turl = {bad}\n[submodule \"b\"]\n\tpath = other\n\turl = {good}\n"),
    ]
    .into_iter()
    .enumerate()
    {
        source.main.write(".gitmodules", entries).gitlink("other", &source.commit).gitlink("sub", &source.commit).commit("both");
        let words = source.pod(&format!("pod{n}")).expect_refused();
        assert!(words.contains(&format!("is on host {other}, which nobody has allowed")), "{n}: {words}");
    }
}

#[test]
fn submodules_and_objects_of_git_lfs_that_are_skipped_are_not_asked_for() {
    crate::populator::require("git-lfs", "git-lfs");
    let source = Source::new("submodule-skip");
    source.main.gitlink("vendor/lib", &source.commit).write(".gitattributes", "*.bin filter=lfs\n");
    source.main.write("weights.bin", crate::git_server::pointer(b"never uploaded")).commit("neither can be had");
    let pod = source.pod("pod").with("SUBMODULES", "Skip").with("LFS", "Skip");
    pod.expect_filled();
    assert!(pod.tree().join("vendor/lib").is_dir() && pod.read("weights.bin").starts_with("version https://git-lfs"));
    let words = source.pod("lfs").with("SUBMODULES", "Skip").expect_refused();
    assert!(words.ends_with("file weights.bin of git LFS is not fetched"), "{words}");
    let words = source.pod("submodules").with("LFS", "Skip").expect_refused();
    assert!(words.contains("submodule vendor/lib is not taken"), "{words}");
}

#[test]
fn a_submodule_whose_repository_or_commit_or_entry_is_missing_is_refused_by_name() {
    let source = Source::new("submodule-missing");
    source.main.gitlink("vendor/lib", &source.commit).commit("no entry");
    let words = source.pod("entry").expect_refused();
    assert!(words.ends_with("submodule vendor/lib is not taken: .gitmodules has no entry of it that git takes"), "{words}");
    source.main.submodule("vendor/lib", "../lib.git", &"a".repeat(40)).commit("no commit");
    let words = source.pod("commit").expect_refused();
    assert!(words.ends_with(&format!("submodule vendor/lib is not fetched from {}", source.server.url("private/lib.git"))), "{words}");
    source.main.write(".gitmodules", "[submodule \"x\"]\n\tpath = vendor/lib\n\turl = ../gone.git\n").commit("no repository");
    let words = source.pod("repository").expect_refused();
    assert!(words.ends_with(&format!("submodule vendor/lib is not fetched from {}", source.server.url("private/gone.git"))), "{words}");
}

#[test]
fn an_object_of_git_lfs_in_a_submodule_is_fetched_and_a_missing_one_named() {
    crate::populator::require("git-lfs", "git-lfs");
    let source = Source::new("submodule-lfs");
    source.library.write(".gitattributes", "*.bin filter=lfs\n").write("weights.bin", source.server.keep_object(b"content"));
    let commit = source.library.commit("lfs");
    source.main.submodule("vendor/lib", "../lib.git", &commit).commit("one");
    let pod = source.pod("pod");
    pod.expect_filled();
    assert_eq!(pod.read("vendor/lib/weights.bin"), "content");
    source.library.write("weights.bin", crate::git_server::pointer(b"never uploaded"));
    let commit = source.library.commit("missing");
    source.main.submodule("vendor/lib", "../lib.git", &commit).commit("two");
    let words = source.pod("missing").expect_refused();
    assert!(words.ends_with("file vendor/lib/weights.bin of git LFS is not fetched"), "{words}");
}

#[test]
fn submodules_in_submodules_have_an_end() {
    let source = Source::new("submodule-chain");
    let served = source.folder.path().join("served");
    let (mut name, mut commit) = ("lib".to_owned(), source.commit.clone());
    for n in 0..9 {
        let next = Repository::new(&served, &format!("private/chain{n}"));
        commit = next.submodule("s", &format!("../{name}.git"), &commit).commit("one");
        name = format!("chain{n}");
    }
    source.main.submodule("s", &format!("../{name}.git"), &commit).commit("one");
    let words = source.pod("pod").expect_refused();
    assert!(words.ends_with("lie more than 8 deep in one another"), "{words}");
}

#[test]
fn the_host_of_a_url_is_the_one_that_git_speaks_to_or_the_url_is_not_taken() {
    let script = concat!(include_str!("../../src/workspace/populate/hosts.sh"), "\nhost_of \"$1\"\n");
    for (url, host) in [
        ("https://git.example/p.git", "git.example"),
        ("https://Git.Example:443/p.git", "git.example"),
        ("https://git.example:8443/p", "git.example:8443"),
        ("http://git.example/p", "git.example"),
        ("git://git.example:9418/p", "git.example"),
        ("ssh://git@git.example/p", "git.example"),
        ("ssh://git.example:2222/p", "git.example:2222"),
        ("git@git.example:team/p.git", "git.example"),
        ("git@git.example:22:p", "git.example"),
        ("https://git.example?@evil.example/p", "git.example"),
        ("https://user@git.example/p", ""),
        ("https://git.example\\@evil.example/p", ""),
        ("https://git.example%2f@evil.example/p", ""),
        ("https:///p", ""),
        ("file:///etc", ""),
        ("ext::sh -c touch% x", ""),
        ("ext::sh -c touch@x:y", ""),
        ("-oProxyCommand=x@y:z", ""),
        ("ssh://-oProxyCommand=x/p", ""),
        ("git@-oProxyCommand=x:p", ""),
        ("../p", ""),
        ("/srv/a@b:c", ""),
        ("", ""),
    ] {
        let done = Command::new("/bin/sh").args(["-eu", "-c", script, "sh", url]).output().unwrap();
        assert!(done.status.success(), "{url}");
        assert_eq!(String::from_utf8_lossy(&done.stdout).trim_end(), host, "{url}");
    }
}
