//! The container that fetches a team's skills and commands from git: a folder of one commit, bounded, and why there is none.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use yoi_plan::yoipod::assets::fetch::SCRIPT;

use crate::Folder;
use crate::git_server::{GitServer, USER, basic};
use crate::populator::{Outcome, Populator};
use crate::repository::Repository;
use crate::serve_private;

/// A Pod's container with a set, which is in the folder that this returns.
struct SetPod {
    pod: Populator,
    set: PathBuf,
}

impl SetPod {
    fn new(folder: &Path, server: &GitServer, path: &str) -> Self {
        let set = folder.join("set");
        fs::create_dir_all(&set).unwrap();
        let pod = Populator::new(folder, &server.url(path)).ca(&server.ca);
        let pod = pod.with("SET", set.to_str().unwrap()).with("FIELD", "spec.assets.from[].git").with("DEPTH", "1");
        SetPod { pod: pod.with("PLACE", "").with("LENIENT", ""), set }
    }

    fn with(self, name: &'static str, value: &str) -> Self {
        SetPod { pod: self.pod.with(name, value), ..self }
    }

    fn run(&self) -> Outcome {
        self.pod.run_script(SCRIPT)
    }

    fn expect_fetched(&self) -> &Self {
        let done = self.run();
        assert!(done.succeeded, "{}", done.words);
        self
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.set.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn has(&self, name: &str) -> bool {
        self.set.join(name).symlink_metadata().is_ok()
    }
}

fn served(name: &str) -> (Folder, GitServer, Repository) {
    let folder = Folder::new(name);
    let server = GitServer::start(&folder.path().join("served"), "none");
    let repository = Repository::new(&folder.path().join("served"), "open/p");
    (folder, server, repository)
}

#[test]
fn skills_and_commands_of_a_folder_are_fetched_at_the_ref_and_nothing_else_is() {
    let (folder, server, repository) = served("set");
    repository.write(".claude/skills/a/SKILL.md", "one").write(".claude/commands/b.md", "b").write(".claude/settings.json", "{}");
    repository.write(".claude/skill_graph/rules.md", "# Rules").write(".claude/AGENTS.md", "Be brief.");
    let first = repository.commit("one");
    repository.git(&["tag", "v1"]);
    repository
        .write(".claude/skills/a/SKILL.md", "two")
        .write(".claude/skills/a/scripts/run.sh", "echo")
        .link(".claude/skills/a/out", "/etc/passwd");
    repository.git(&["update-index", "--chmod=+x", ".claude/skills/a/scripts/run.sh"]);
    repository.gitlink(".claude/skills/module", &first);
    let second = repository.commit("two");
    let pod = SetPod::new(&folder.path().join("pod"), &server, "open/p.git").with("PLACE", ".claude");
    pod.expect_fetched();
    assert_eq!((pod.read("files/skills/a/SKILL.md"), pod.read("files/commands/b.md")), ("two".to_owned(), "b".to_owned()));
    assert_eq!((pod.read("files/skill_graph/rules.md"), pod.read("files/AGENTS.md")), ("# Rules".to_owned(), "Be brief.".to_owned()));
    assert_eq!((pod.read("revision").trim(), pod.pod.answer().trim()), (second.as_str(), second.as_str()));
    assert_eq!(fs::metadata(pod.set.join("files/skills/a/scripts/run.sh")).unwrap().permissions().mode() & 0o111, 0o111);
    assert_eq!(fs::read_link(pod.set.join("files/skills/a/out")).unwrap(), Path::new("/etc/passwd"), "it stays a link");
    for absent in ["files/settings.json", "files/src", "files/.claude", "files/skills/module", "failure", ".git"] {
        assert!(!pod.has(absent), "{absent}");
    }
    assert_eq!(fs::read_dir(folder.path().join("pod/tmp")).unwrap().count(), 0, "what git was told is left for the agent");
    for (ref_, commit, text) in [("v1", &first, "one"), (first.as_str(), &first, "one"), ("refs/heads/main", &second, "two")] {
        let pod = SetPod::new(&folder.path().join("pod"), &server, "open/p.git").with("PLACE", ".claude").with("REF", ref_);
        pod.expect_fetched();
        assert_eq!((pod.read("revision").trim(), pod.read("files/skills/a/SKILL.md").as_str()), (commit.as_str(), text), "{ref_}");
        assert_eq!(pod.has("files/skills/a/out"), ref_ == "refs/heads/main", "a former try has left files");
    }
}

#[test]
fn a_private_sets_token_is_nowhere_and_a_wrong_one_is_refused_with_the_field_that_names_it() {
    let (folder, server, token) = serve_private("set-private");
    Repository::new(&folder.path().join("served"), "private/p").write("skills/a/SKILL.md", "a").commit("one");
    let secret = |pod: SetPod, token: &str| SetPod { pod: pod.pod.secret(&[("username", USER), ("password", token)]), ..pod };
    let pod = secret(SetPod::new(folder.path(), &server, "private/p.git"), &token);
    pod.expect_fetched();
    assert_eq!(pod.read("files/skills/a/SKILL.md"), "a");
    let wrong = format!("wrong-{token}");
    let other = Folder::new("set-wrong");
    let refused = secret(SetPod::new(other.path(), &server, "private/p.git").with("LENIENT", "yes"), &wrong);
    refused.expect_fetched();
    let why = refused.read("failure");
    assert!(why.contains("refuses username and password of Secret clone-key: has the token expired"), "{why}");
    assert_eq!(why, refused.pod.answer(), "the condition says what the agent is told");
    for sent_back in [&*wrong, &*basic(USER, &wrong)] {
        assert!(!why.contains(sent_back), "{why}");
    }
    let unnamed = Folder::new("set-unnamed");
    let words = SetPod::new(unnamed.path(), &server, "private/p.git").run().words;
    assert!(words.contains("name a Secret with username and password in spec.assets.from[].git.credentialsSecretRef"), "{words}");
    crate::populator::expect_no_trace(vec![pod.set.clone()], &[&token, &basic(USER, &token)]);
    server.expect_no_leak();
}

#[test]
fn what_is_not_there_or_too_much_fails_a_strict_set_and_is_told_by_a_lenient_one() {
    let (folder, server, repository) = served("set-bounds");
    repository.commit("nothing of the kind");
    repository.git(&["branch", "empty"]);
    repository.write("many/commands/0.md", "x");
    let id = repository.git(&["rev-parse", ":many/commands/0.md"]);
    let many: String = (1..=2_000).map(|number| format!("100644 {id}\tmany/commands/{number}.md\n")).collect();
    repository.git_with(&["update-index", "--index-info"], &many);
    // A few bytes on the way, and many on the disk.
    repository.write("large/skills/a/SKILL.md", vec![b'x'; (16 << 20) + 1]);
    repository.write("file/skills", "no folder");
    repository.commit("too much");
    let table = [
        (vec![("REF", "empty")], "has no files in skills or commands: name the folder that holds these two in spec.assets.from[].git.path"),
        (vec![("REF", "gone")], "the source has no branch or tag gone now"),
        (vec![("PLACE", "nowhere")], "the folder nowhere of commit "),
        (vec![("PLACE", "many")], "has more than 2000 files in skills and commands"),
        (vec![("PLACE", "large")], "has more than 16 MiB in skills and commands"),
        (vec![("REF", "0123456789012345678901234567890123456789")], "0123456789012345678901234567890123456789"),
    ];
    for (number, (variables, words)) in table.into_iter().enumerate() {
        let pod = |name: &str| {
            let pod = SetPod::new(&folder.path().join(format!("{name}-{number}")), &server, "open/p.git");
            variables.iter().fold(pod, |pod, (name, value)| pod.with(name, value))
        };
        let strict = pod("strict").run();
        assert!(!strict.succeeded && strict.words.contains(words), "{words}: {}", strict.words);
        let lenient = pod("lenient").with("LENIENT", "yes");
        lenient.expect_fetched();
        assert!(lenient.read("failure").contains(words), "{words}: {}", lenient.read("failure"));
        assert!(!lenient.has("files") && !lenient.has("revision"), "{words}: half a set is there");
    }
}

#[test]
fn a_commit_that_is_too_large_to_fetch_ends_with_a_sentence_and_fills_no_disk() {
    let (folder, server, repository) = served("set-large");
    // Nothing shrinks it.
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    let noise: Vec<u8> = (0..4 << 20).map(|_| next()).collect();
    repository.write("skills/a/SKILL.md", "a").write("noise", noise).commit("large");
    let pod = SetPod::new(folder.path(), &server, "open/p.git").with("LENIENT", "yes");
    // A mebibyte instead of 64.
    let script = SCRIPT.replace("most_blocks=131072", "most_blocks=1024");
    assert_ne!(script, SCRIPT);
    let done = pod.pod.run_script(&script);
    assert!(done.succeeded, "{}", done.words);
    assert!(pod.read("failure").contains("keep skills and commands in a repository of their own"), "{}", pod.read("failure"));
}
