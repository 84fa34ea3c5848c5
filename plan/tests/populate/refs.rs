//! The commit under test, and how much of the history comes with it.

use std::fs;

use crate::Folder;
use crate::git_server::GitServer;
use crate::populator::Populator;
use crate::repository::Repository;

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
fn what_a_former_attempt_left_is_gone() {
    let source = Source::new("former");
    let pod = source.pod("pod");
    fs::create_dir_all(pod.tree().join(".git/hooks")).unwrap();
    fs::write(pod.tree().join(".git/config"), "[core]\n\tfsmonitor = false\n[broken").unwrap();
    fs::write(pod.tree().join("left"), "").unwrap();
    pod.expect_filled();
    assert!(!pod.tree().join("left").exists());
}
