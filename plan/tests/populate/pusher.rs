//! A pusher Pod as a process, the agent whose commits it pushes, and the gateway that it gets them from.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use yoi_plan::yoipod::push::SCRIPT;

use crate::git_server::{GATEWAY_TOKEN, GitServer, USER};
use crate::populator::{Outcome, expect_no_trace, mount_ca, mount_secret, run_for, shell};
use crate::repository::Repository;

/// An agent's tree: a clone of the project's repository.
pub struct AgentTree {
    folder: PathBuf,
    pub base: String,
}

impl AgentTree {
    pub fn new(folder: &Path, project: &Repository) -> Self {
        fs::create_dir_all(folder).unwrap();
        let tree = AgentTree { folder: folder.to_owned(), base: project.git(&["rev-parse", "HEAD"]) };
        tree.git(&["clone", "--quiet", "--no-local", project.bare().to_str().unwrap(), "."]);
        tree
    }

    /// A tree of a repository that holds no commit yet.
    pub fn empty(folder: &Path) -> Self {
        fs::create_dir_all(folder).unwrap();
        let tree = AgentTree { folder: folder.to_owned(), base: "-".to_owned() };
        tree.git(&["init", "--quiet", "--initial-branch=main", "."]);
        tree
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What the gateway gives out for a tree without a base: the whole history.
    pub fn whole_answer(&self) -> Vec<u8> {
        let path = self.folder.join(".git/bundle");
        self.git(&["bundle", "create", "--quiet", path.to_str().unwrap(), "HEAD"]);
        let line = format!("{} - {} 0\n", self.head(), self.git(&["rev-list", "--count", "HEAD"]));
        [line.into_bytes(), fs::read(path).unwrap()].concat()
    }

    pub fn git(&self, args: &[&str]) -> String {
        let mut git = Command::new("git");
        git.current_dir(&self.folder).args(["-c", "user.name=a", "-c", "user.email=a@a"]).args(args).env("GIT_CONFIG_NOSYSTEM", "1");
        let done = git.env("HOME", self.folder.join(".git")).output().unwrap();
        assert!(done.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).trim().to_owned()
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> &Self {
        let path = self.folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self.git(&["add", "--force", "--", name]);
        self
    }

    pub fn commit(&self, message: &str) -> String {
        self.git(&["commit", "--quiet", "--allow-empty", "-m", message]);
        self.head()
    }

    pub fn head(&self) -> String {
        self.git(&["rev-parse", "HEAD"])
    }

    /// What the gateway gives out: the line, and the bundle of these names.
    pub fn answer(&self, names: &[&str]) -> Vec<u8> {
        let count = self.git(&["rev-list", "--count", "HEAD", &format!("^{}", self.base)]);
        let path = self.folder.join(".git/bundle");
        self.git(&[&["bundle", "create", "--quiet", path.to_str().unwrap()], names].concat());
        let line = format!("{} {} {count} 0\n", self.head(), self.base);
        [line.into_bytes(), fs::read(path).unwrap()].concat()
    }

    /// As the runtime makes it: with the base and the folders that lead to the changes, where each commit's parents are the base or such commits.
    pub fn sound_answer(&self) -> Vec<u8> {
        self.answer_without(|_| false).unwrap_or_else(|| self.thin_answer())
    }

    /// As runtimes of former versions make it.
    pub fn thin_answer(&self) -> Vec<u8> {
        self.answer(&["HEAD", &format!("^{}", self.base)])
    }

    /// The sound answer without these lines of the list of its objects; `None` where a parent is neither the base nor among the commits.
    pub fn answer_without(&self, left_out: impl Fn(&str) -> bool) -> Option<Vec<u8>> {
        let commits = self.git(&["rev-list", "--parents", "HEAD", &format!("^{}", self.base)]);
        let own: Vec<&str> = commits.lines().filter_map(|line| line.split(' ').next()).collect();
        if !commits.split_whitespace().all(|hash| hash == self.base || own.contains(&hash)) {
            return None;
        }
        let roots = |hash: &str| [hash.to_owned(), self.git(&["rev-parse", &format!("{hash}^{{tree}}")])];
        let mut objects: Vec<String> = own.iter().chain([&&*self.base]).flat_map(|hash| roots(hash)).collect();
        let compare = ["diff-tree", "--stdin", "-r", "-t", "-m", "--root", "--raw", "--no-abbrev", "--no-renames"];
        let changes = String::from_utf8(self.git_with(&compare, &(own.join("\n") + "\n"))).unwrap();
        for (entry, path) in changes.lines().filter_map(|line| line.strip_prefix(':')?.split_once('\t')) {
            let [old_mode, new_mode, old, new, _] = entry.split(' ').collect::<Vec<_>>()[..] else { panic!("{entry}") };
            objects.extend((old_mode == "040000").then(|| format!("{old} {path}")));
            objects.extend((!["000000", "160000"].contains(&new_mode)).then(|| format!("{new} {path}")));
        }
        objects.retain(|line| !left_out(line));
        let pack = self.git_with(&["pack-objects", "--stdout", "--delta-base-offset", "--quiet"], &(objects.join("\n") + "\n"));
        let header = format!("{} {} {} 0\n# v2 git bundle\n-{}\n{0} HEAD\n\n", self.head(), self.base, own.len(), self.base);
        Some([header.into_bytes(), pack].concat())
    }

    fn git_with(&self, args: &[&str], input: &str) -> Vec<u8> {
        let mut git = Command::new("git");
        git.current_dir(&self.folder).args(args).env("GIT_CONFIG_NOSYSTEM", "1").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = git.spawn().unwrap();
        let (mut stdin, input) = (child.stdin.take().unwrap(), input.to_owned());
        let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()).unwrap());
        let done = child.wait_with_output().unwrap();
        writer.join().unwrap();
        assert!(done.status.success(), "git {args:?}");
        done.stdout
    }
}

pub struct Pusher {
    folder: PathBuf,
    variables: Vec<(&'static str, String)>,
    script: String,
}

impl Pusher {
    /// Of the push of what the gateway gives out to a branch of the repository with this URL.
    pub fn new(folder: &Path, server: &GitServer, url: &str, branch: &str) -> Self {
        for name in ["tmp", "yoi", "run", "log"] {
            fs::create_dir_all(folder.join(name)).unwrap();
        }
        fs::write(folder.join("run/token"), GATEWAY_TOKEN).unwrap();
        let gateway = [("GATEWAY", server.host()), ("GATEWAY_NAME", "localhost".to_owned()), ("GATEWAY_CA", server.ca.clone())];
        let script = SCRIPT.replace("sleep 3", "sleep 0.1");
        let pusher = Pusher { folder: folder.to_owned(), variables: gateway.to_vec(), script };
        pusher.with("URL", url).with("BRANCH", branch).with("TRIES", "2")
    }

    /// With the credentials of the server.
    pub fn private(folder: &Path, server: &GitServer, token: &str, branch: &str) -> Self {
        let pusher = Self::new(folder, server, &server.url("private/p.git"), branch);
        pusher.ca(&server.ca).secret(&[("username", USER), ("password", token)])
    }

    pub fn with(mut self, name: &'static str, value: &str) -> Self {
        self.variables.push((name, value.to_owned()));
        self
    }

    pub fn secret(self, keys: &[(&str, &str)]) -> Self {
        mount_secret(&self.folder, keys);
        self.with("SECRET", "push-key")
    }

    pub fn ca(self, pem: &str) -> Self {
        mount_ca(&self.folder, pem);
        self.with("CA", "key ca.crt of ConfigMap cas")
    }

    /// Takes a command of git that lasts 10 s for one to which nothing is sent. The machine's network and processors are busy with other tests.
    pub fn impatient(mut self) -> Self {
        for (text, other) in [("now=$(progress)", "now=$last"), ("\"$quiet\" -lt 60", "\"$quiet\" -lt 10")] {
            assert!(self.script.contains(text), "{text}");
            self.script = self.script.replace(text, other);
        }
        self
    }

    /// Exit code, and the words that the cluster's objects get.
    pub fn run(&self) -> (i32, String) {
        let (code, words, _) = self.run_with_log();
        (code, words)
    }

    /// As `run`, and the words that stand in the Pod's log.
    pub fn run_with_log(&self) -> (i32, String, String) {
        let done = self.command().output().unwrap();
        let words = fs::read_to_string(self.folder.join("log/end")).unwrap_or_default();
        (done.status.code().unwrap_or(-1), words.trim().to_owned(), Outcome::of(&done).words)
    }

    /// Runs it for so long at most, and then kills every process of it. `None`: it was killed.
    pub fn run_for(&self, limit: Duration) -> Option<Outcome> {
        run_for(self.command(), limit)
    }

    fn command(&self) -> Command {
        // Each run is a Pod of its own.
        _ = fs::remove_file(self.folder.join("log/end"));
        let mut shell = shell(&self.folder, &self.script, &[("/var/run/yoi", "run"), ("/dev/termination-log", "log/end")]);
        for name in ["SECRET", "CA", "SUBMODULE_HOSTS", "COMMIT", "EXPECTED", "BASE"] {
            shell.env(name, "");
        }
        shell.envs(self.variables.iter().map(|(name, value)| (name, value)));
        shell
    }

    /// What the Pod's end says: commit, where the branch was, and the paths that are not committed.
    pub fn expect_pushed(&self) -> String {
        let (code, words, log) = self.run_with_log();
        assert_eq!(code, 0, "{words}\n{log}");
        words
    }

    /// The words of a push that would end the same the next time.
    pub fn expect_refused(&self) -> String {
        let (code, words) = self.run();
        assert_eq!(code, 1, "{words}");
        words
    }

    pub fn expect_no_trace(&self, texts: &[&str]) {
        expect_no_trace(vec![self.folder.join("tmp"), self.folder.join("log")], texts);
    }
}
