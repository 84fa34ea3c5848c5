//! Repositories that want something run, reached or written beside the Pod that has the credentials.

use std::fs;
use std::path::PathBuf;

use crate::Folder;
use crate::bystander::CanaryServer;
use crate::git_server::{GitServer, USER, basic};
use crate::populator::{Outcome, Populator};
use crate::repository::Repository;

/// A private repository, with a file that a command of it would make, a folder outside of the tree, and a server that nobody may speak to.
struct Attack {
    folder: Folder,
    server: GitServer,
    token: String,
    canary: CanaryServer,
    repository: Repository,
}

impl Attack {
    fn new(name: &str) -> Self {
        let (folder, server, token) = crate::serve_private(&format!("hostile-{name}"));
        let repository = Repository::new(&folder.path().join("served"), "private/p");
        fs::create_dir_all(folder.path().join("outside")).unwrap();
        Attack { folder, server, token, canary: CanaryServer::start(), repository }
    }

    fn ran(&self) -> PathBuf {
        self.folder.path().join("outside/ran")
    }

    /// A command that leaves a trace.
    fn command(&self) -> String {
        format!("touch {}", self.ran().display())
    }

    /// The same as a program in the tree.
    fn program(&self) -> String {
        format!("#!/bin/sh\n{}\n", self.command())
    }

    fn populate(&self) -> (Populator, Outcome) {
        self.repository.commit("hostile");
        self.fetch("private/p.git", "")
    }

    /// What the index of a work tree cannot hold.
    fn populate_tree(&self, entries: &str) -> (Populator, Outcome) {
        let tree = self.repository.git_with(&["mktree", "--missing"], entries);
        let commit = self.repository.git(&["commit-tree", &tree, "-m", "hostile"]);
        self.repository.git(&["update-ref", "refs/heads/hostile", &commit]);
        self.fetch("private/p.git", "hostile")
    }

    fn fetch(&self, path: &str, ref_: &str) -> (Populator, Outcome) {
        let pod = Populator::new(self.folder.path(), &self.server.url(path)).ca(&self.server.ca).with("REF", ref_);
        let pod = pod.secret(&[("username", USER), ("password", &self.token)]);
        let outcome = pod.run();
        let outside: Vec<_> = fs::read_dir(self.folder.path().join("outside")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(outside.is_empty(), "it ran or wrote {outside:?}: {}", outcome.words);
        assert_eq!(self.canary.visits(), 0, "it reached another server: {}", outcome.words);
        pod.expect_no_trace(&[&self.token, &basic(USER, &self.token)]);
        assert!(!outcome.words.contains(&self.token), "{}", outcome.words);
        self.server.expect_no_leak();
        (pod, outcome)
    }

    /// It is fetched as what it is: files.
    fn expect_harmless(&self) -> Populator {
        let (pod, outcome) = self.populate();
        assert!(outcome.succeeded, "{}", outcome.words);
        pod
    }

    fn expect_refused(&self, why: &str) {
        let (_, outcome) = self.populate();
        assert!(!outcome.succeeded && outcome.words.contains(why), "expected {why:?}: {}", outcome.words);
    }

    fn gitmodules(&self, path: &str, text: &str) {
        self.repository.write(".gitmodules", text).gitlink(path, &"a".repeat(40));
    }

    fn lfs(&self, config: &str) {
        crate::populator::require("git-lfs", "git-lfs");
        self.repository.write(".gitattributes", "*.bin filter=lfs\n").write("a.bin", self.server.keep_object(b"content"));
        self.repository.write(".lfsconfig", config);
    }
}

#[test]
fn a_filter_of_the_tree_is_not_run() {
    let attack = Attack::new("filter");
    attack.repository.write("src/payload", "x").write(".gitattributes", "* filter=evil diff=evil merge=evil ident\n");
    let config = format!("[filter \"evil\"]\n\tsmudge = {0}\n\tclean = {0}\n\tprocess = {0}\n\trequired = true\n", attack.command());
    attack.repository.write(".gitconfig", &config).write("config", &config);
    attack.expect_harmless();
}

#[test]
fn hooks_of_the_tree_are_not_run() {
    let attack = Attack::new("hooks");
    for folder in ["hooks", ".githooks", ".husky"] {
        for hook in ["post-checkout", "post-merge", "reference-transaction", "fsmonitor-watchman"] {
            attack.repository.write(&format!("{folder}/{hook}"), attack.program());
            attack.repository.git(&["update-index", "--chmod=+x", &format!("{folder}/{hook}")]);
        }
    }
    attack.repository.write(".gitconfig", "[core]\n\thooksPath = hooks\n\tfsmonitor = hooks/fsmonitor-watchman\n");
    attack.expect_harmless();
}

#[test]
fn a_path_in_git_own_folder_is_refused() {
    let attack = Attack::new("dot-git");
    let blob = attack.repository.git_with(&["hash-object", "-w", "--stdin"], &attack.program());
    let hooks = attack.repository.git_with(&["mktree"], &format!("100755 blob {blob}\tpost-checkout\n"));
    let git = attack.repository.git_with(&["mktree"], &format!("040000 tree {hooks}\thooks\n"));
    let (pod, Outcome { succeeded, words }) = attack.populate_tree(&format!("040000 tree {git}\t.git\n"));
    assert!(!succeeded);
    assert!(words.contains("invalid path '.git/hooks/post-checkout'"), "{words}");
    assert!(!attack.ran().exists() && !pod.tree().join(".git/hooks/post-checkout").exists());
}

#[test]
fn a_repository_inside_the_tree_is_not_used() {
    let attack = Attack::new("embedded");
    for folder in ["", "inner/"] {
        attack.repository.write(&format!("{folder}HEAD"), "ref: refs/heads/main\n").write(&format!("{folder}refs/x"), "");
        attack.repository.write(&format!("{folder}objects/x"), "");
        let config = format!("[core]\n\tbare = true\n\tfsmonitor = {0}\n\thooksPath = hooks\n\tworktree = {1}\n", attack.command(), "/");
        attack.repository.write(&format!("{folder}config"), config);
    }
    attack.expect_harmless();
}

#[test]
fn a_server_of_git_lfs_elsewhere_is_not_reached() {
    for (n, key) in ["[lfs]\n\turl", "[remote \"origin\"]\n\tlfsurl", "[LFS]\n\tURL"].into_iter().enumerate() {
        let attack = Attack::new(&format!("lfs-url-{n}"));
        attack.lfs(&format!("{key} = http://{}/x\n", attack.canary.host()));
        attack.expect_refused("which nobody has allowed: name it in spec.source.git.submoduleHosts");
    }
}

#[test]
fn a_server_of_git_lfs_behind_a_link_an_included_file_or_a_second_word_is_not_reached() {
    let attack = Attack::new("lfs-link");
    attack.lfs("");
    attack.repository.git(&["rm", "--quiet", "--force", ".lfsconfig"]);
    attack.repository.write("real", format!("[lfs]\n\turl = http://{}/x\n", attack.canary.host())).link(".lfsconfig", "real");
    attack.expect_refused(".lfsconfig is a link");

    for (n, section) in ["include", "includeIf \"gitdir:**\""].into_iter().enumerate() {
        let attack = Attack::new(&format!("lfs-include-{n}"));
        attack.lfs(&format!("[{section}]\n\tpath = other\n"));
        attack.repository.write("other", format!("[lfs]\n\turl = http://{}/x\n", attack.canary.host()));
        attack.expect_refused(".lfsconfig includes another file");
    }

    let attack = Attack::new("lfs-words");
    attack.lfs(&format!("[lfs]\n\turl = http://{}/x https://{}/\n", attack.canary.host(), attack.server.host()));
    attack.expect_refused("which nobody has allowed");
}

#[test]
fn a_server_of_git_lfs_that_is_a_file_or_a_command_is_not_used() {
    for (n, url) in ["file:///etc", "ext::sh -c id", "ssh://-oProxyCommand=x/p"].into_iter().enumerate() {
        let attack = Attack::new(&format!("lfs-scheme-{n}"));
        attack.lfs(&format!("[lfs]\n\turl = \"{url}\"\n"));
        attack.expect_refused("only https, http, git and ssh urls without a password are fetched");
    }
}

#[test]
fn programs_that_an_lfsconfig_names_are_not_run() {
    let attack = Attack::new("lfs-program");
    let program = attack.command();
    attack.lfs(&format!(
        "[lfs]\n\tstandalonetransferagent = evil\n[lfs \"customtransfer.evil\"]\n\tpath = {program}\n\
        [lfs \"extension.evil\"]\n\tsmudge = {program}\n\tclean = {program}\n\tpriority = 0\n[core]\n\tsshCommand = {program}\n\
        [credential]\n\thelper = !{program}\n"
    ));
    let pod = attack.expect_harmless();
    assert_eq!(pod.read("a.bin"), "content");
}

#[test]
fn a_link_to_the_credentials_is_a_link_and_no_more() {
    let attack = Attack::new("link");
    let secret = attack.folder.path().join("yoi/credentials/password");
    attack.repository.write(".gitattributes", "*.bin filter=lfs\n").link("a.bin", secret.to_str().unwrap());
    attack.repository.link("b", secret.to_str().unwrap());
    attack.expect_harmless();
}

#[test]
fn a_submodule_with_a_url_of_another_kind_is_refused() {
    for (n, url) in ["ext::sh -c id", "file:///etc", "/etc", "--upload-pack=touch", "-u", "https://user:word@h/p"].into_iter().enumerate() {
        let attack = Attack::new(&format!("submodule-url-{n}"));
        let url = url.replace("sh -c id", &format!("sh -c {}", attack.command().replace(' ', "% ")));
        attack.gitmodules("lib", &format!("[submodule \"lib\"]\n\tpath = lib\n\turl = \"{url}\"\n"));
        attack.expect_refused("submodule lib");
    }
}

#[test]
fn a_submodule_on_another_server_is_not_reached_however_its_url_is_written() {
    for (n, form) in ["http://EVIL/p", "http://OWN@EVIL/p", "http://OWN\\\\@EVIL/p", "git://EVIL/p", "ssh://EVIL/p"].into_iter().enumerate()
    {
        let attack = Attack::new(&format!("submodule-host-{n}"));
        let url = form.replace("EVIL", &attack.canary.host()).replace("OWN", &attack.server.host());
        attack.gitmodules("lib", &format!("[submodule \"lib\"]\n\tpath = lib\n\turl = \"{url}\"\n"));
        attack.expect_refused("submodule lib");
    }
}

#[test]
fn a_command_in_place_of_an_update_is_not_run() {
    let attack = Attack::new("submodule-update");
    let url = attack.server.url("private/p.git");
    attack.gitmodules("lib", &format!("[submodule \"lib\"]\n\tpath = lib\n\turl = {url}\n\tupdate = !{}\n", attack.command()));
    attack.expect_refused("submodule lib is not taken");
}

#[test]
fn an_update_of_none_leaves_no_empty_folder() {
    let attack = Attack::new("submodule-none");
    let library = Repository::new(&attack.folder.path().join("served"), "private/lib");
    let commit = library.commit("one");
    let text = "[submodule \"lib\"]\n\tpath = lib\n\turl = ../lib.git\n\tupdate = none\n\tignore = all\n\tshallow = true\n";
    attack.repository.write(".gitmodules", text).gitlink("lib", &commit);
    assert_eq!(attack.expect_harmless().read("lib/src/main.rs"), "fn main() {}\n");
}

#[test]
fn a_submodule_whose_name_or_path_leads_out_is_refused() {
    for (n, (name, path)) in [("../../outside/x", "lib"), ("..", "lib"), ("lib", "-u"), ("lib", "a\\b\"c")].into_iter().enumerate() {
        let attack = Attack::new(&format!("submodule-name-{n}"));
        let quoted = path.replace('\\', "\\\\").replace('"', "\\\"");
        let url = attack.server.url("private/p.git");
        attack.gitmodules(path, &format!("[submodule \"{name}\"]\n\tpath = \"{quoted}\"\n\turl = {url}\n"));
        attack.expect_refused("submodule ");
    }
}

#[test]
fn a_pattern_as_a_submodule_path_updates_no_other_submodule() {
    let attack = Attack::new("submodule-pattern");
    let library = Repository::new(&attack.folder.path().join("served"), "private/lib");
    let commit = library.commit("one");
    let evil = format!("http://{}/p", attack.canary.host());
    let text = format!("[submodule \"a\"]\n\tpath = \"*\"\n\turl = ../lib.git\n[submodule \"b\"]\n\tpath = b\n\turl = {evil}\n");
    attack.repository.write(".gitmodules", text).gitlink("*", &commit).gitlink("b", &commit);
    attack.expect_refused("submodule b is on host");
}

#[test]
fn submodules_that_a_link_describes_are_refused() {
    let attack = Attack::new("gitmodules-link");
    attack.repository.write("real", format!("[submodule \"l\"]\n\tpath = lib\n\turl = http://{}/p\n", attack.canary.host()));
    let blob = attack.repository.git_with(&["hash-object", "-w", "--stdin"], "real");
    let real = attack.repository.git(&["rev-parse", ":real"]);
    let lib = "a".repeat(40);
    let entries = format!("120000 blob {blob}\t.gitmodules\n160000 commit {lib}\tlib\n100644 blob {real}\treal\n");
    let (_, Outcome { succeeded, words }) = attack.populate_tree(&entries);
    assert!(!succeeded && words.contains(".gitmodules"), "{words}");
}

#[test]
fn objects_of_another_server_that_a_repository_points_to_are_not_fetched() {
    let attack = Attack::new("alternates");
    let commit = attack.repository.commit("one");
    let bare = attack.repository.bare().to_owned();
    attack.repository.git(&["update-server-info"]);
    fs::remove_dir_all(bare.join("objects").join(&commit[..2])).unwrap();
    for name in ["http-alternates", "alternates"] {
        fs::write(bare.join("objects/info").join(name), format!("http://{}/objects\n", attack.canary.host())).unwrap();
    }
    let (_, Outcome { succeeded, words }) = attack.fetch("dumb/private/p.git", "");
    assert!(!succeeded);
    assert!(words.contains(&commit), "{words}");
    assert_eq!(attack.canary.visits(), 0);
}
