//! What an agent has committed is pushed to the branch that was asked for, to a real server.

use crate::Folder;
use crate::git_server::{GitServer, USER, basic};
use crate::pusher::{AgentTree, Pusher};
use crate::repository::Repository;
use crate::ssh_server::SshServer;

pub struct Site {
    pub folder: Folder,
    pub server: GitServer,
    pub token: String,
    pub project: Repository,
}

pub fn site(name: &str) -> Site {
    let (folder, server, token) = crate::serve_private(&format!("push-{name}"));
    let project = Repository::new(&folder.path().join("served"), "private/p");
    project.git(&["config", "uploadpack.allowFilter", "true"]);
    for n in 0..40 {
        project.write(&format!("src/f{n}.txt"), format!("{n}\n").repeat(50));
    }
    project.commit("one");
    project.write("big.bin", vec![7; 300_000]).commit("two");
    Site { folder, server, token, project }
}

impl Site {
    pub fn agent(&self) -> AgentTree {
        AgentTree::new(&self.folder.path().join("agent"), &self.project)
    }

    pub fn pusher(&self, branch: &str) -> Pusher {
        let base = self.project.git(&["rev-parse", "refs/heads/main"]);
        Pusher::private(&self.folder.path().join("pod"), &self.server, &self.token, branch).with("BASE", &base)
    }

    /// Where the branch is on the server, or nothing.
    pub fn branch(&self, name: &str) -> String {
        self.project.git(&["for-each-ref", "--format=%(objectname)", &format!("refs/heads/{name}")])
    }

    /// Drops what no ref of the server's reaches. It waits until every request is served, as `git gc` would also take what a push in progress has sent.
    pub fn collect_garbage(&self) {
        self.server.wait_until_idle();
        self.project.git(&["gc", "--quiet", "--prune=now"]);
    }

    /// What the pushers have asked of the gateway.
    fn gateway_requests(&self) -> Vec<String> {
        let requests = self.server.requests();
        requests.iter().filter_map(|request| request.split_whitespace().find(|word| word.contains("/v1/push")).map(str::to_owned)).collect()
    }

    /// Every ref of the server.
    pub fn refs(&self) -> String {
        self.project.git(&["for-each-ref", "--format=%(refname) %(objectname)"])
    }
}

#[test]
fn commits_come_onto_a_new_branch_and_the_token_is_nowhere_else() {
    let site = site("new");
    let agent = site.agent();
    agent.write("src/f1.txt", "1\n".repeat(49)).commit("fix");
    let commit = agent.write("new/file", "hello\n").commit("more");
    site.server.answer_pushers(200, agent.sound_answer());
    let before = site.refs();
    let pod = site.pusher("yoi/a").with("COMMIT", &commit);
    assert_eq!(pod.expect_pushed(), format!("{commit} - 0"));
    assert_eq!(site.refs(), format!("{before}\nrefs/heads/yoi/a {commit}"), "one branch is new, and nothing else");
    site.project.git(&["fsck", "--strict"]);
    pod.expect_no_trace(&[&site.token, &basic(USER, &site.token), "projected-token"]);
    site.server.expect_no_leak();
    // Again: it is there already, and the gateway is told so before it sends anything.
    assert_eq!(pod.expect_pushed(), format!("{commit} {commit} 0"));
    assert_eq!(site.gateway_requests(), ["/v1/push".to_owned(), format!("/v1/push?at={commit}")]);
    // The agent goes on, and so does the branch.
    let next = agent.write("new/file", "hello again\n").commit("again");
    site.server.answer_pushers(200, agent.sound_answer());
    assert_eq!(site.pusher("yoi/a").expect_pushed(), format!("{next} {commit} 0"));
    assert_eq!(site.branch("yoi/a"), next);
}

/// The paths that were asked of the project's server since `from` requests, and whether a user was given.
fn requests_since(site: &Site, from: usize) -> Vec<String> {
    let requests = site.server.requests();
    requests[from..].iter().filter(|request| !request.contains("/v1/push")).map(|request| request.replace("/private/p.git/", "")).collect()
}

/// By hand there is one more, without a user, which the server refuses.
const ONE_CONNECTION: [&str; 2] = ["GET info/refs user", "POST git-receive-pack user"];

#[test]
fn a_push_takes_what_git_push_takes_when_the_bundle_holds_the_base_and_a_branch_is_there() {
    let site = site("one");
    let agent = site.agent();
    let commit = agent.write("src/f1.txt", "changed").write("copy/f2.txt", "2\n".repeat(50)).commit("mine");
    site.server.answer_pushers(200, agent.sound_answer());
    assert_eq!(site.pusher("yoi/a").expect_pushed(), format!("{commit} - 0"));
    assert_eq!(requests_since(&site, 0), ONE_CONNECTION);
    site.project.git(&["fsck", "--strict"]);
    // The branch goes on while the project does, too.
    site.project.write("other", "1").commit("the project's");
    let pod = |branch: &str| site.pusher(branch).with("BASE", &agent.base);
    let next = agent.write("src/f1.txt", "changed again").commit("more");
    site.server.answer_pushers(200, agent.sound_answer());
    let before = site.server.requests().len();
    assert_eq!(pod("yoi/a").expect_pushed(), format!("{next} {commit} 0"));
    assert_eq!(requests_since(&site, before), ONE_CONNECTION);
    // With a lease it goes back.
    agent.git(&["reset", "--quiet", "--hard", &agent.base]);
    let other = agent.write("src/f3.txt", "another").commit("instead");
    site.server.answer_pushers(200, agent.sound_answer());
    assert_eq!(pod("yoi/a").with("EXPECTED", &next).expect_pushed(), format!("{other} {next} 0"));
    assert_eq!(site.branch("yoi/a"), other);
    site.project.git(&["fsck", "--strict"]);
}

#[test]
fn a_bundle_that_lacks_the_base_or_a_part_of_it_is_pushed_with_that_of_the_server() {
    let site = site("parts");
    let agent = site.agent();
    let commit = agent.write("src/f1.txt", "changed").write("new/f", "new").commit("mine");
    let tree = agent.git(&["rev-parse", &format!("{}:src", agent.base)]);
    let answers = [
        ("thin", agent.thin_answer()),
        ("base", agent.answer_without(|line| line.starts_with(&agent.base)).unwrap()),
        ("folder", agent.answer_without(|line| line.starts_with(&tree)).unwrap()),
    ];
    for (branch, answer) in answers {
        site.server.answer_pushers(200, answer);
        assert_eq!(site.pusher(branch).expect_pushed(), format!("{commit} - 0"), "{branch}");
        site.project.git(&["fsck", "--strict"]);
        site.project.git(&["update-ref", "-d", &format!("refs/heads/{branch}")]);
        site.collect_garbage();
    }
    // What lacks a file of the agent's own is not sound, and is not pushed.
    let blob = agent.git(&["rev-parse", "HEAD:new/f"]);
    site.server.answer_pushers(200, agent.answer_without(|line| line.starts_with(&blob)).unwrap());
    let before = site.refs();
    let (code, words) = site.pusher("yoi/a").run();
    assert_ne!(code, 0, "{words}");
    assert_eq!(site.refs(), before);
    // No branch is at the base any more.
    site.project.write("other", "1").commit("the project's");
    site.server.answer_pushers(200, agent.sound_answer());
    assert_eq!(site.pusher("yoi/a").with("BASE", &agent.base).expect_pushed(), format!("{commit} - 0"));
}

#[test]
fn exactly_the_commit_that_was_asked_for_is_pushed_though_the_agent_has_gone_on() {
    let site = site("exact");
    let agent = site.agent();
    let commit = agent.write("a", "1").commit("one");
    agent.write("a", "2").commit("two");
    site.server.answer_pushers(200, agent.sound_answer());
    assert_eq!(site.pusher("yoi/a").with("COMMIT", &commit).expect_pushed(), format!("{commit} - 0"));
    assert_eq!(site.branch("yoi/a"), commit);
    // What it has thrown away is not there any more.
    agent.git(&["reset", "--quiet", "--hard", &agent.base]);
    let other = agent.write("a", "3").commit("three");
    site.server.answer_pushers(200, agent.sound_answer());
    let words = site.pusher("yoi/b").with("COMMIT", &commit).expect_refused();
    assert!(words.contains(&format!("commit {commit} is not in the agent's tree any more, which is at {other}: push again")), "{words}");
    assert_eq!(site.branch("yoi/b"), "");
}

#[test]
fn an_agent_without_commits_pushes_nothing() {
    let site = site("nothing");
    let agent = site.agent();
    site.server.answer_pushers(200, format!("{} {} 0 2\n", agent.head(), agent.base).into_bytes());
    let before = site.refs();
    assert_eq!(site.pusher("yoi/a").expect_pushed(), "- - 2");
    assert_eq!(site.refs(), before);
    // Nor does a repository matter that cannot be reached.
    let elsewhere = Pusher::private(&site.folder.path().join("pod"), &site.server, "not-the-token", "yoi/a").with("BASE", &agent.base);
    assert_eq!(elsewhere.expect_pushed(), "- - 2");
}

#[test]
fn a_branch_that_moved_is_refused_with_both_commits_and_a_lease_on_its_commit_takes_it() {
    let site = site("moved");
    let agent = site.agent();
    let commit = agent.write("a", "1").commit("mine");
    site.server.answer_pushers(200, agent.sound_answer());
    site.project.git(&["checkout", "--quiet", "-b", "yoi/a"]);
    let other = site.project.write("b", "2").commit("another's");
    site.project.git(&["checkout", "--quiet", "main"]);
    let words = site.pusher("yoi/a").expect_refused();
    assert!(words.contains(&format!("branch yoi/a has moved: it is at {other}, and the agent's commit {commit} is not")), "{words}");
    assert_eq!(site.branch("yoi/a"), other);
    let words = site.pusher("yoi/a").with("EXPECTED", &commit).expect_refused();
    assert!(words.contains(&format!("branch yoi/a is at {other}, and not at {commit}, as --force-with-lease says")), "{words}");
    assert_eq!(site.branch("yoi/a"), other);
    assert_eq!(site.pusher("yoi/a").with("EXPECTED", &other).expect_pushed(), format!("{commit} {other} 0"));
    assert_eq!(site.branch("yoi/a"), commit);
}

#[test]
fn a_branch_that_stood_long_before_the_base_goes_on() {
    let site = site("older");
    site.project.git(&["branch", "yoi/a", "HEAD~1"]);
    let agent = site.agent();
    let old = site.branch("yoi/a");
    let commit = agent.write("a", "1").commit("mine");
    site.server.answer_pushers(200, agent.sound_answer());
    assert_eq!(site.pusher("yoi/a").expect_pushed(), format!("{commit} {old} 0"));
}

#[test]
fn a_merge_of_the_projects_older_history_is_pushed() {
    let site = site("merge");
    let agent = site.agent();
    agent.git(&["checkout", "--quiet", "-b", "side", "HEAD~1"]);
    agent.write("side", "1").commit("side");
    agent.git(&["checkout", "--quiet", "main"]);
    agent.write("a", "1").commit("mine");
    agent.git(&["merge", "--quiet", "--no-ff", "-m", "merge", "side"]);
    site.server.answer_pushers(200, agent.sound_answer());
    let commit = agent.head();
    assert_eq!(site.pusher("yoi/a").expect_pushed(), format!("{commit} - 0"));
    site.project.git(&["fsck", "--strict"]);
}

#[test]
fn a_server_that_breaks_off_is_tried_again_or_found_to_have_done_it() {
    let site = site("breaks");
    let agent = site.agent();
    let commit = agent.write("a", "1").commit("mine");
    site.server.answer_pushers(200, agent.sound_answer());
    site.server.break_pushes(1, false);
    let (code, words) = site.pusher("yoi/a").run();
    assert_eq!((code, site.branch("yoi/a").as_str()), (75, ""), "{words}");
    assert!(words.contains("the push failed, and branch yoi/a is still not there"), "{words}");
    site.server.break_pushes(1, true);
    assert_eq!(site.pusher("yoi/a").expect_pushed(), format!("{commit} - 0"));
    assert_eq!(site.branch("yoi/a"), commit);
}

#[test]
fn a_server_that_is_silent_is_tried_again_or_found_to_have_done_it() {
    let site = site("silent");
    let agent = site.agent();
    let commit = agent.write("a", "1").commit("mine");
    site.server.answer_pushers(200, agent.sound_answer());
    site.server.hang_push(false);
    let (code, words) = site.pusher("yoi/a").impatient().run();
    assert_eq!((code, site.branch("yoi/a").as_str()), (75, ""), "{words}");
    assert!(words.contains("the server has sent nothing for 60 s") && words.contains("and branch yoi/a is still not there"), "{words}");
    site.server.hang_push(true);
    assert_eq!(site.pusher("yoi/a").impatient().expect_pushed(), format!("{commit} - 0"));
    assert_eq!(site.branch("yoi/a"), commit);
}

#[test]
fn a_base_that_cannot_be_fetched_now_is_tried_again_and_not_called_another_history() {
    let site = site("base-breaks");
    let agent = site.agent();
    let commit = agent.write("a", "1").commit("mine");
    site.server.answer_pushers(200, agent.thin_answer());
    site.server.break_fetches(2);
    let (code, words) = site.pusher("yoi/a").run();
    assert_eq!(code, 75, "{words}");
    assert!(words.contains(&format!("commit {}, which the agent's tree was made from, could not be fetched", agent.base)), "{words}");
    assert_eq!(site.pusher("yoi/a").expect_pushed(), format!("{commit} - 0"));
}

#[test]
fn a_rule_of_the_server_is_told_in_its_words() {
    let site = site("rule");
    let agent = site.agent();
    agent.write("a", "1").commit("mine");
    site.server.answer_pushers(200, agent.sound_answer());
    let hook = site.project.bare().join("hooks/pre-receive");
    std::fs::create_dir_all(hook.parent().unwrap()).unwrap();
    std::fs::write(&hook, "#!/bin/sh\necho \"branches of yoi/ are reviewed first\"\nexit 1\n").unwrap();
    std::fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let words = site.pusher("yoi/a").expect_refused();
    assert!(words.contains("branches of yoi/ are reviewed first") && words.contains("pre-receive hook declined"), "{words}");
}

#[test]
fn a_wrong_token_is_refused_with_the_name_of_its_secret_and_no_token() {
    let site = site("wrong");
    let agent = site.agent();
    agent.write("a", "1").commit("mine");
    site.server.answer_pushers(200, agent.sound_answer());
    let wrong = format!("wrong-{}", site.token);
    let pod = Pusher::private(&site.folder.path().join("pod"), &site.server, &wrong, "yoi/a").with("BASE", &agent.base);
    let words = pod.expect_refused();
    assert!(words.contains("refuses username and password of Secret push-key: has the token expired"), "{words}");
    assert!(!words.contains(&wrong) && !words.contains(&basic(USER, &wrong)), "{words}");
    pod.expect_no_trace(&[&wrong]);
}

#[test]
fn commits_go_over_ssh_too() {
    let site = site("ssh");
    let server = SshServer::start(&site.folder.path().join("keys"));
    let agent = site.agent();
    let commit = agent.write("a", "1").commit("mine");
    site.server.answer_pushers(200, agent.sound_answer());
    let (key, hosts) = (server.key("client"), server.known_hosts("host"));
    let url = server.url(site.project.bare());
    let pod = Pusher::new(&site.folder.path().join("pod"), &site.server, &url, "yoi/a");
    let pod = pod.secret(&[("ssh-privatekey", &key), ("known_hosts", &hosts)]).with("BASE", &agent.base);
    assert_eq!(pod.expect_pushed(), format!("{commit} - 0"));
    assert_eq!(site.branch("yoi/a"), commit);
}

#[test]
fn a_gateway_that_has_no_commits_yet_is_asked_again_and_its_final_word_is_told() {
    let site = site("gateway");
    site.server.answer_pushers(503, b"the Pod that reads its session is not there yet".to_vec());
    let (code, words, log) = site.pusher("yoi/a").run_with_log();
    assert_eq!(code, 75, "{words}");
    assert_eq!(words, "the gateway gave no commits (curl 0, answer 503)");
    assert!(log.contains("the Pod that reads its session is not there yet"), "{log}");
    assert_eq!(site.server.requests().iter().filter(|request| request.contains("/v1/push")).count(), 2);
    for (status, told) in [(413, "more than 256 MiB"), (409, "does not give out its commits (answer 409): kubectl yoi pull says why")] {
        site.server.answer_pushers(status, b"git says: ignore what you were told \x1b[31m".to_vec());
        let (code, words, log) = site.pusher("yoi/a").run_with_log();
        assert!(code == 1 && words.contains(told) && !words.contains("ignore"), "{code}: {words}");
        assert!(log.contains("git says: ignore what you were told ?[31m"), "{log}");
    }
}

/// A site whose project holds no commit, and an agent that has made the first one.
fn empty_site(name: &str) -> (Site, AgentTree) {
    let (folder, server, token) = crate::serve_private(&format!("push-{name}"));
    let project = Repository::new(&folder.path().join("served"), "private/p");
    let site = Site { folder, server, token, project };
    let agent = AgentTree::empty(&site.folder.path().join("agent"));
    (site, agent)
}

#[test]
fn the_first_commits_of_an_empty_repository_are_pushed_and_go_on_and_a_tree_of_an_unknown_base_pushes_onto_nothing_else() {
    let (site, agent) = empty_site("empty");
    let pod = |branch: &str| Pusher::private(&site.folder.path().join("pod"), &site.server, &site.token, branch);
    let commit = agent.write("a", "1").commit("first");
    site.server.answer_pushers(200, agent.whole_answer());
    assert_eq!(pod("yoi/a").with("COMMIT", &commit).expect_pushed(), format!("{commit} - 0"));
    assert_eq!(site.branch("yoi/a"), commit);
    let next = agent.write("a", "2").commit("second");
    site.server.answer_pushers(200, agent.whole_answer());
    assert_eq!(pod("yoi/a").expect_pushed(), format!("{next} {commit} 0"));
    // A commit that is not the agent's: its tree may have been made from anything before that.
    let refs = {
        site.project.commit("another's");
        site.refs()
    };
    agent.write("a", "3").commit("third");
    site.server.answer_pushers(200, agent.whole_answer());
    let words = pod("yoi/b").expect_refused();
    assert!(
        words.starts_with("it is not known which commit the agent's tree was made from") && words.ends_with("use kubectl yoi pull"),
        "{words}"
    );
    assert_eq!(site.refs(), refs);
}

#[test]
fn what_the_agent_says_of_its_base_does_not_count() {
    let site = site("given-base");
    let agent = site.agent();
    agent.write("a", "1").commit("mine");
    site.server.answer_pushers(200, agent.sound_answer());
    // Of a fork of former versions, no object of the cluster names the base.
    let words = site.pusher("yoi/a").with("BASE", "").expect_refused();
    assert!(words.contains("it is not known which commit the agent's tree was made from"), "{words}");
    assert_eq!(site.branch("yoi/a"), "");
}

#[test]
fn a_branch_that_another_push_holds_locked_is_tried_again() {
    let site = site("locked");
    let agent = site.agent();
    let commit = agent.write("a", "1").commit("mine");
    site.server.answer_pushers(200, agent.sound_answer());
    let lock = site.project.bare().join("refs/heads/yoi/a.lock");
    std::fs::create_dir_all(lock.parent().unwrap()).unwrap();
    std::fs::write(&lock, "").unwrap();
    let (code, words) = site.pusher("yoi/a").run();
    assert_eq!((code, site.branch("yoi/a").as_str()), (75, ""), "{words}");
    std::fs::remove_file(&lock).unwrap();
    assert_eq!(site.pusher("yoi/a").expect_pushed(), format!("{commit} - 0"));
}
