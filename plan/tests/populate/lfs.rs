//! Objects of git LFS.

use std::fs;

use crate::Folder;
use crate::git_server::{GitServer, USER, basic, pointer};
use crate::populator::Populator;
use crate::repository::Repository;

const ATTRIBUTES: &str = "*.bin filter=lfs diff=lfs merge=lfs -text\n";

struct Source {
    folder: Folder,
    server: GitServer,
    token: String,
    repository: Repository,
}

impl Source {
    fn new(name: &str) -> Self {
        crate::populator::require("git-lfs", "git-lfs");
        let (folder, server, token) = crate::serve_private(name);
        let repository = Repository::new(&folder.path().join("served"), "private/p");
        repository.write(".gitattributes", ATTRIBUTES);
        Source { folder, server, token, repository }
    }

    fn pod(&self) -> Populator {
        let pod = Populator::new(self.folder.path(), &self.server.url("private/p.git")).ca(&self.server.ca);
        pod.secret(&[("username", USER), ("password", &self.token)])
    }
}

#[test]
fn objects_are_fetched_with_the_same_token_which_is_nowhere_else() {
    let source = Source::new("lfs");
    let (large, small) = (vec![7_u8; 300_000], b"few bytes".to_vec());
    source.repository.write("assets/large.bin", source.server.keep_object(&large));
    source.repository.write("assets/in the tree/small.bin", source.server.keep_object(&small));
    source.repository.commit("one");
    let pod = source.pod();
    pod.expect_filled();
    assert_eq!(fs::read(pod.tree().join("assets/large.bin")).unwrap(), large);
    assert_eq!(fs::read(pod.tree().join("assets/in the tree/small.bin")).unwrap(), small);
    pod.expect_no_trace(&[&source.token, &basic(USER, &source.token)]);
    source.server.expect_no_leak();
    let hooks = fs::read_dir(pod.tree().join(".git/hooks")).into_iter().flatten().map(|entry| entry.unwrap().path());
    let active: Vec<_> = hooks.filter(|hook| hook.extension().is_none()).collect();
    assert!(active.is_empty(), "{active:?}");
}

#[test]
fn a_missing_object_is_refused_by_the_name_of_its_file() {
    let source = Source::new("lfs-missing");
    source.repository.write("assets/weights.bin", pointer(b"never uploaded")).commit("one");
    let words = source.pod().expect_refused();
    assert!(words.ends_with("file assets/weights.bin of git LFS is not fetched"), "{words}");
    assert!(words.contains("does not exist"), "the server's own words are gone: {words}");
}

#[test]
fn a_server_that_is_down_is_refused_by_the_name_of_the_file() {
    let source = Source::new("lfs-down");
    source.repository.write("weights.bin", source.server.keep_object(b"content")).commit("one");
    source.server.fail_lfs_with(501);
    let words = source.pod().expect_refused();
    assert!(words.ends_with("file weights.bin of git LFS is not fetched"), "{words}");
}

#[test]
fn a_repository_cannot_leave_objects_out() {
    let source = Source::new("lfs-exclude");
    source.repository.write("weights.bin", source.server.keep_object(b"content"));
    source
        .repository
        .write(".lfsconfig", "[lfs]\n\tfetchexclude = *\n\tfetchinclude = nothing\n\tskipdownloaderrors = true\n")
        .commit("one");
    let pod = source.pod();
    pod.expect_filled();
    assert_eq!(pod.read("weights.bin"), "content");
}

#[test]
fn a_server_on_another_host_is_used_only_where_the_source_names_it() {
    let source = Source::new("lfs-host");
    source.repository.write("weights.bin", source.server.keep_object(b"content"));
    let other = format!("https://{}/private/elsewhere.git/info/lfs", source.server.other_host());
    source.repository.write(".lfsconfig", format!("[lfs]\n\turl = {other}\n")).commit("one");
    let words = source.pod().expect_refused();
    let says = format!(
        "the server of git LFS in .lfsconfig is on host {}, which nobody has allowed: name it in spec.source.git.submoduleHosts",
        source.server.other_host()
    );
    assert_eq!(words, says);
    assert!(source.server.requests().iter().all(|request| !request.contains("lfs")), "{:?}", source.server.requests());
    let pod = source.pod().with("SUBMODULE_HOSTS", &source.server.other_host());
    pod.expect_filled();
    assert_eq!(pod.read("weights.bin"), "content");
}

#[test]
fn a_source_that_only_speaks_of_git_lfs_is_fetched_whole() {
    let source = Source::new("lfs-plain");
    source.repository.write("docs/pointer.txt", pointer(b"anything")).write("small.bin", "0").link("link.bin", "nowhere");
    source.repository.commit("one");
    let pod = source.pod();
    pod.expect_filled();
    assert_eq!(pod.read("docs/pointer.txt"), pointer(b"anything"));
    assert_eq!(pod.read("small.bin"), "0");
}
