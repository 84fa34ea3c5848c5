//! The commit under test, and how much of the history comes with it.

use std::fs;

use crate::Folder;
use crate::git_server::GitServer;
use crate::populator::Populator;
use crate::repository::Repository;
use yoi_plan::project::look_pod::LOOK_SCRIPT;

struct Source {
    folder: Folder,
    server: GitServer,
    repository: Repository,
    /// Of main, oldest first.
    commits: Vec<String>,
}

impl Source {
    fn new(name: &str) -> Self {
        let folder = Folder::new(name);
        let server = GitServer::start(&folder.path().join("served"), "none");
        let repository = Repository::new(&folder.path().join("served"), "open/p");
        let commits = (1..=4).map(|n| repository.write("n", n.to_string()).commit(&n.to_string())).collect();
        Source { folder, server, repository, commits }
    }

    fn pod(&self, name: &str) -> Populator {
        Populator::new(&self.folder.path().join(name), &self.server.url("open/p.git")).ca(&self.server.ca)
    }

    /// A commit that only this ref holds.
    fn hidden(&self, ref_: &str) -> String {
        self.repository.git(&["checkout", "--quiet", "-b", "hidden"]);
        let commit = self.repository.write("n", "hidden").commit("hidden");
        self.repository.git(&["update-ref", ref_, &commit]);
        self.repository.git(&["checkout", "--quiet", "main"]);
        self.repository.git(&["branch", "--quiet", "-D", "hidden"]);
        commit
    }
}

#[test]
fn a_pull_requests_ref_or_its_commit_is_taken_though_no_branch_holds_it() {
    let source = Source::new("pull");
    let commit = source.hidden("refs/pull/7/head");
    source.repository.git(&["update-ref", "refs/merge-requests/7/head", &commit]);
    for (n, ref_) in ["refs/pull/7/head", "refs/merge-requests/7/head", &commit].into_iter().enumerate() {
        for depth in ["", "1"] {
            let pod = source.pod(&format!("pod-{n}-{depth}")).with("REF", ref_).with("DEPTH", depth);
            pod.expect_filled();
            assert_eq!((pod.git(&["rev-parse", "HEAD"]), pod.read("n")), (commit.clone(), "hidden".to_owned()), "{ref_} {depth}");
        }
    }
}

#[test]
fn a_full_commit_id_is_that_commit_whatever_a_branch_of_this_name_holds() {
    let source = Source::new("commit-id");
    source.repository.git(&["update-ref", &format!("refs/heads/{}", source.commits[1]), &source.commits[3]]);
    let pod = source.pod("pod").with("REF", &source.commits[1]);
    pod.expect_filled();
    assert_eq!(pod.git(&["rev-parse", "HEAD"]), source.commits[1]);
}

#[test]
fn branches_and_tags_are_taken_by_either_name_with_and_without_a_depth() {
    let source = Source::new("names");
    source.repository.git(&["branch", "feature/x", &source.commits[2]]);
    source.repository.git(&["tag", "v1", &source.commits[0]]);
    for (n, (ref_, commit, branch)) in [
        ("", 3, Some("main")),
        ("feature/x", 2, Some("feature/x")),
        ("refs/heads/feature/x", 2, Some("feature/x")),
        ("v1", 0, None),
        ("refs/tags/v1", 0, None),
    ]
    .into_iter()
    .enumerate()
    {
        for depth in ["", "1"] {
            let pod = source.pod(&format!("pod-{n}-{depth}")).with("REF", ref_).with("DEPTH", depth);
            pod.expect_filled();
            assert_eq!(pod.git(&["rev-parse", "HEAD"]), source.commits[commit], "{ref_} {depth}");
            let head = pod.read(".git/HEAD");
            let expected = branch.map_or(source.commits[commit].clone(), |branch| format!("ref: refs/heads/{branch}"));
            assert_eq!(head.trim(), expected, "{ref_} {depth}");
        }
    }
}

#[test]
fn a_depth_is_how_many_commits_of_the_history_are_there() {
    let source = Source::new("depth");
    let count = |pod: &Populator| pod.git(&["rev-list", "--count", "--all"]);
    for (depth, commits) in [("1", "1"), ("3", "3"), ("", "4")] {
        let pod = source.pod(&format!("pod{depth}")).with("DEPTH", depth);
        pod.expect_filled();
        assert_eq!(count(&pod), commits);
    }
}

#[test]
fn another_node_gets_the_commit_that_the_first_one_holds_though_the_branch_was_moved_away_from_it() {
    let source = Source::new("revision");
    let former = source.commits[3].clone();
    source.repository.git(&["reset", "--quiet", "--hard", &source.commits[0]]);
    source.repository.git(&["update-ref", "refs/keep", &former]);
    for depth in ["", "1"] {
        let pod = source.pod(&format!("pod{depth}")).with("REF", "main").with("REVISION", &former).with("DEPTH", depth);
        pod.expect_filled();
        assert_eq!((pod.git(&["rev-parse", "HEAD"]), pod.read("n")), (former.clone(), "4".to_owned()));
        assert_eq!(pod.read(".git/HEAD").trim(), "ref: refs/heads/main");
    }
}

#[test]
fn a_ref_that_the_server_does_not_have_is_named() {
    let source = Source::new("no-ref");
    for (n, ref_) in ["nowhere", "refs/pull/9/head", "refs/heads/nowhere", &"1".repeat(40)].into_iter().enumerate() {
        let words = source.pod(&format!("pod{n}")).with("REF", ref_).expect_refused();
        assert!(words.ends_with(&format!("the source has no branch, tag or commit {ref_}")), "{words}");
        let shallow = source.pod(&format!("shallow{n}")).with("REF", ref_).with("DEPTH", "1").expect_refused();
        assert!(shallow.contains(ref_.trim_start_matches("refs/heads/")), "{shallow}");
    }
}

#[test]
fn a_default_branch_that_is_not_there_is_named_with_those_that_are_and_a_source_without_any_is_empty() {
    let source = Source::new("no-default");
    source.repository.git(&["branch", "side"]);
    source.repository.git(&["symbolic-ref", "HEAD", "refs/heads/master"]);
    for depth in ["", "1"] {
        let words = source.pod(&format!("pod{depth}")).with("DEPTH", depth).expect_refused();
        assert!(
            words.ends_with("the source has no branch master, which its HEAD names; it has main, side: name one in spec.source.git.ref, or let HEAD name one on the server"),
            "{words}"
        );
        source.pod(&format!("named{depth}")).with("DEPTH", depth).with("REF", "side").expect_filled();
    }
    let look = source.pod("look").with("ANSWER", "/dev/null").run_script(LOOK_SCRIPT);
    assert!(!look.succeeded && look.words.contains("which its HEAD names; it has main, side: name one"), "{}", look.words);
    for branch in ["main", "side"] {
        source.repository.git(&["update-ref", "-d", &format!("refs/heads/{branch}")]);
    }
    for depth in ["", "1"] {
        source.pod(&format!("empty{depth}")).with("DEPTH", depth).expect_filled();
    }
}

#[test]
fn a_redirect_to_another_place_is_not_followed_and_its_end_is_told() {
    let source = Source::new("moved");
    let at = source.server.url("moved/p.git");
    let pod = Populator::new(&source.folder.path().join("pod"), &at).ca(&source.server.ca);
    let words = pod.expect_refused();
    let to = format!("https://{}/open/p.git", source.server.other_host());
    assert!(words.contains(&format!("the server of {at} leads to {to}, and no redirect is followed: write that URL")), "{words}");
    assert!(!source.server.requests().iter().any(|request| request.contains("/open/")), "{:?}", source.server.requests());
}

#[test]
fn a_server_is_asked_for_progress_so_that_it_is_not_silent_while_it_counts_and_none_of_it_is_told() {
    let source = Source::new("progress");
    let (hook, log) = (source.folder.path().join("hook"), source.folder.path().join("asked"));
    fs::write(&hook, format!("#!/bin/sh\necho \"$@\" >>{}\nexec \"$@\"\n", log.display())).unwrap();
    fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let library = Repository::new(&source.folder.path().join("served"), "open/lib");
    let commit = library.commit("one");
    source.repository.submodule("lib", "../lib.git", &commit).commit("submodule");
    // A repository may not name it itself.
    fs::write(source.folder.path().join("served/.gitconfig"), format!("[uploadpack]\n\tpackObjectsHook = {}\n", hook.display())).unwrap();
    source.pod("pod").expect_filled();
    let asked = fs::read_to_string(&log).unwrap();
    assert!(asked.lines().count() >= 2, "{asked}");
    assert!(asked.lines().all(|line| line.contains("--progress")), "{asked}");
    // The tree is a clone without anything in the way of progress; the words are those of the failure alone.
    let words = source.pod("none").with("REF", "nowhere").expect_refused();
    assert!(words.ends_with("the source has no branch, tag or commit nowhere") && !words.contains("objects:"), "{words}");
}

#[test]
fn what_a_former_attempt_left_is_gone() {
    let source = Source::new("former");
    let pod = source.pod("pod");
    fs::create_dir_all(pod.tree().join(".git/hooks")).unwrap();
    fs::write(pod.tree().join(".git/config"), "[core]\n\tfsmonitor = false\n[broken").unwrap();
    fs::write(pod.tree().join("left"), "").unwrap();
    pod.expect_filled();
    assert!(!pod.tree().join("left").exists());
}
