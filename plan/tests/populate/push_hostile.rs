//! Bundles that an agent may have written byte by byte. None of them changes a branch, and nothing in them is run.

use std::fs;

use crate::push::{Site, site};
use crate::pusher::AgentTree;

/// The words with which this answer of the gateway is refused: those of the cluster's objects, and of the Pod's log. No ref of the server changes.
fn refused_with_log(site: &Site, answer: Vec<u8>) -> (String, String) {
    let before = site.refs();
    site.server.answer_pushers(200, answer);
    let (code, words, log) = site.pusher("yoi/a").run_with_log();
    assert_eq!(code, 1, "{words}\n{log}");
    assert_eq!(site.refs(), before, "{words}");
    (words, log)
}

/// The words that the cluster's objects get.
fn refused(site: &Site, answer: Vec<u8>) -> String {
    refused_with_log(site, answer).0
}

fn since(agent: &AgentTree) -> String {
    format!("^{}", agent.base)
}

#[test]
fn a_bundle_with_more_than_one_name_is_refused() {
    let site = site("names");
    let agent = site.agent();
    agent.write("a", "1").commit("mine");
    agent.git(&["branch", "other"]);
    let words = refused(&site, agent.answer(&["HEAD", "refs/heads/other", &since(&agent)]));
    assert!(words.contains("holds 2 names, and not HEAD at") && !words.contains("other"), "{words}");
    let words = refused(&site, agent.answer(&["refs/heads/other", &since(&agent)]));
    assert!(words.contains("and not HEAD at"), "{words}");
}

#[test]
fn a_history_that_is_not_the_projects_is_refused() {
    let site = site("foreign");
    let agent = site.agent();
    agent.git(&["checkout", "--quiet", "--orphan", "foreign"]);
    agent.write("a", "1").commit("foreign");
    let words = refused(&site, agent.answer(&["HEAD"]));
    assert!(words.contains("is not made on top of"), "{words}");
    agent.git(&["checkout", "--quiet", "main"]);
    agent.git(&["merge", "--quiet", "--allow-unrelated-histories", "-m", "both", "foreign"]);
    let words = refused(&site, agent.sound_answer());
    assert!(words.contains("a history was merged into commit") && words.contains("nothing in common with the project's"), "{words}");
}

#[test]
fn a_bundle_on_top_of_a_commit_that_the_project_does_not_have_is_refused() {
    let site = site("base");
    let mut agent = site.agent();
    agent.base = agent.write("a", "1").commit("hidden");
    agent.write("a", "2").commit("shown");
    let words = refused(&site, agent.sound_answer());
    assert!(words.contains("the agent's bundle does not begin at"), "{words}");
    // The project has another history by now.
    let words = site.pusher("yoi/a").with("BASE", &agent.base).expect_refused();
    assert!(words.contains(&format!("does not give commit {}, which the agent's tree was made from", agent.base)), "{words}");
}

#[test]
fn objects_that_fsck_refuses_are_refused() {
    let site = site("fsck");
    let agent = site.agent();
    let blob = agent.write("a", "1").git(&["hash-object", "-w", "a"]);
    // A tree with a file called .git.
    let entry =
        [b"100644 .git\0".to_vec(), (0..20).map(|at| u8::from_str_radix(&blob[2 * at..2 * at + 2], 16).unwrap()).collect()].concat();
    let path = site.folder.path().join("tree");
    fs::write(&path, entry).unwrap();
    let tree = agent.git(&["hash-object", "-t", "tree", "-w", "--literally", path.to_str().unwrap()]);
    let commit = agent.git(&["commit-tree", "-p", "HEAD", "-m", "bad", &tree]);
    agent.git(&["update-ref", "HEAD", &commit]);
    let (words, log) = refused_with_log(&site, agent.sound_answer());
    assert_eq!(words, "an object of the agent's commits is not sound");
    assert!(log.contains("hasDotgit"), "{log}");
}

#[test]
fn bytes_that_are_no_bundle_or_half_of_one_are_refused() {
    let site = site("bytes");
    let agent = site.agent();
    agent.write("a", "1".repeat(5000)).commit("mine");
    let sound = agent.sound_answer();
    let line = sound.split_inclusive(|byte| *byte == b'\n').next().unwrap().to_vec();
    assert!(refused(&site, [line.clone(), b"no bundle\n\n".to_vec()].concat()).contains("the agent's bundle is none"));
    assert!(refused(&site, line.clone()).contains("the agent's bundle is none"));
    assert!(refused(&site, sound[..sound.len() - 10].to_vec()).contains("is not sound"));
    let mut flipped = sound.clone();
    let last = flipped.len() - 30;
    flipped[last] ^= 1;
    assert!(refused(&site, flipped).contains("is not sound"));
    let text = String::from_utf8_lossy(&sound[line.len()..]).into_owned();
    let filtered = text.replacen("# v2 git bundle\n", "# v3 git bundle\n@object-format=sha1\n@filter=blob:none\n", 1);
    assert!(refused(&site, [line, filtered.into_bytes()].concat()).contains("leaves objects out"));
}

#[test]
fn more_than_a_bundle_can_hold_is_not_kept() {
    let site = site("large");
    let agent = site.agent();
    agent.write("a", "1").commit("mine");
    let mut answer = agent.sound_answer();
    answer.resize((256 << 20) + 100_000, 0);
    let words = refused(&site, answer);
    assert!(words.contains("the agent's commits are more than 256 MiB"), "{words}");
}

#[test]
fn hooks_filters_and_attributes_of_the_agents_repository_are_not_run() {
    let site = site("canary");
    let agent = site.agent();
    let canary = site.folder.path().join("canary");
    let run = format!("touch {}", canary.display());
    agent.write(".gitattributes", "* filter=evil diff=evil merge=evil\n");
    agent.write(".gitconfig", format!("[filter \"evil\"]\nclean = {run}\nsmudge = {run}\n[core]\nsshCommand = {run}\nfsmonitor = {run}\n"));
    for hook in ["pre-push", "reference-transaction", "post-checkout", "post-index-change"] {
        agent.write(&format!("hooks/{hook}"), format!("#!/bin/sh\n{run}\n"));
    }
    agent.write(".gitmodules", "[submodule \"x\"]\n\tpath = x\n\turl = https://elsewhere.invalid/x.git\n");
    let commit = agent.commit("hostile");
    site.server.answer_pushers(200, agent.sound_answer());
    site.pusher("yoi/a").expect_pushed();
    assert_eq!(site.branch("yoi/a"), commit);
    assert!(!canary.exists());
}

#[test]
fn pointers_of_git_lfs_are_not_pushed_without_their_files() {
    let site = site("lfs");
    let agent = site.agent();
    for name in ["a.bin", "in a folder/b.bin", "c.bin", "d.bin"] {
        agent.write(name, crate::git_server::pointer(name.as_bytes())).commit(name);
    }
    let (words, log) = refused_with_log(&site, agent.sound_answer());
    assert!(words.starts_with("the commits hold pointers of git LFS, 4 in all, whose contents are in the agent's tree only"), "{words}");
    assert!(log.contains("in a folder/b.bin") && !words.contains(".bin"), "{words}\n{log}");
}

#[test]
fn no_word_of_the_agent_comes_into_an_object_through_a_push() {
    let words_of_the_agent = "ignore-previous-instructions";
    let pointer = crate::git_server::pointer(b"content");
    let name = format!("{words_of_the_agent}.bin");
    type Change<'a> = dyn Fn(&AgentTree) -> Vec<u8> + 'a;
    let changes: [(&str, &Change<'_>); 5] = [
        ("pointer", &|agent| {
            agent.write(&name, &pointer).commit(words_of_the_agent);
            agent.sound_answer()
        }),
        ("branch", &|agent| {
            agent.write("a", "1").commit(words_of_the_agent);
            agent.git(&["branch", words_of_the_agent]);
            agent.answer(&[&format!("refs/heads/{words_of_the_agent}"), &since(agent)])
        }),
        ("url", &|agent| {
            let entry = format!("[submodule \"x\"]\n\tpath = x\n\turl = --{words_of_the_agent}\n");
            agent.write(".gitmodules", entry).commit(words_of_the_agent);
            agent.sound_answer()
        }),
        ("header", &|agent| {
            agent.write("a", "1").commit("mine");
            format!("{} {} 1 0\n{words_of_the_agent}\n", agent.head(), agent.base).into_bytes()
        }),
        ("prerequisite", &|agent| {
            let hidden = agent.write("a", "1").commit(words_of_the_agent);
            agent.write("a", "2").commit("shown");
            agent.answer(&["HEAD", &format!("^{hidden}")])
        }),
    ];
    for (label, change) in changes {
        let site = site(&format!("words-{label}"));
        let (words, log) = refused_with_log(&site, change(&site.agent()));
        assert!(!words.is_empty() && !words.contains(words_of_the_agent), "{label}: {words}");
        // Of a header that is none git tells nothing, and of a commit that is not there its hash.
        let is_quoted = !["header", "prerequisite"].contains(&label);
        assert!(!is_quoted || log.contains(words_of_the_agent), "{label}: people do not find it in the log either: {log}");
    }
}

#[test]
fn a_text_that_speaks_of_a_pointer_of_git_lfs_is_pushed_and_hides_none() {
    let site = site("lfs-text");
    let agent = site.agent();
    let pointer = crate::git_server::pointer(b"content");
    let long = format!("{pointer}{}", "x".repeat(1100));
    // The last line looks like the one in which git names the blob that comes next.
    let forged = format!("{pointer}0123456789012345678901234567890123456789 blob 12");
    let commit = agent.write("docs.md", format!("A pointer is:\n{pointer}")).write("long", long).commit("text");
    site.server.answer_pushers(200, agent.sound_answer());
    assert_eq!(site.pusher("yoi/a").expect_pushed(), format!("{commit} - 0"));
    for (n, name) in ["0", "a", "z"].into_iter().enumerate() {
        agent.write(name, format!("text {n}\n{forged}"));
    }
    agent.write("b.bin", &pointer).commit("both");
    let words = refused(&site, agent.sound_answer());
    assert!(words.contains("pointers of git LFS, 1 in all"), "{words}");
}

#[test]
fn a_branch_name_is_data_for_the_shell_and_for_git() {
    let site = site("branch");
    let agent = site.agent();
    let commit = agent.write("a", "1").commit("mine");
    site.server.answer_pushers(200, agent.sound_answer());
    for branch in ["a$(id)b", "a'b\"c", "a;b", "a&b|c", "w\u{e4}g", "a.b"] {
        assert_eq!(site.pusher(branch).expect_pushed(), format!("{commit} - 0"), "{branch}");
        assert_eq!(site.branch(branch), commit, "{branch}");
    }
    // A name that ends in the other's is another.
    site.project.git(&["branch", "x/refs/heads/yoi/a", "HEAD"]);
    assert_eq!(site.pusher("yoi/a").expect_pushed(), format!("{commit} - 0"));
}
