//! A Pod with a repository's credentials as a process: its variables, the folders that it mounts, and what it leaves.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use yoi_plan::workspace::populate_pod::SCRIPT;

pub struct Populator {
    folder: PathBuf,
    variables: Vec<(&'static str, String)>,
}

/// How the script ended.
pub struct Outcome {
    pub succeeded: bool,
    /// What a person reads in the condition and the Pod's log.
    pub words: String,
}

impl Populator {
    pub fn new(folder: &Path, url: &str) -> Self {
        for name in ["tmp", "tree", "yoi", "log"] {
            fs::create_dir_all(folder.join(name)).unwrap();
        }
        Populator { folder: folder.to_owned(), variables: vec![("URL", url.to_owned())] }
    }

    pub fn with(mut self, name: &'static str, value: &str) -> Self {
        self.variables.push((name, value.to_owned()));
        self
    }

    /// Mounts a Secret with these keys. No key: the Secret is missing.
    pub fn secret(self, keys: &[(&str, &str)]) -> Self {
        mount_secret(&self.folder, keys);
        self.with("SECRET", "clone-key")
    }

    pub fn ca(self, pem: &str) -> Self {
        mount_ca(&self.folder, pem);
        self.with("CA", "key ca.crt of ConfigMap cas")
    }

    pub fn tree(&self) -> PathBuf {
        self.folder.join("tree")
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.tree().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// Output of git in the tree, as an agent would call it.
    pub fn git(&self, args: &[&str]) -> String {
        let mut git = Command::new("git");
        let filter = ["-c", "filter.lfs.clean=git-lfs clean -- %f", "-c", "filter.lfs.smudge=git-lfs smudge --skip -- %f"];
        git.current_dir(self.tree()).args(filter).args(args).env("GIT_CONFIG_NOSYSTEM", "1").env("HOME", &self.folder);
        let done = git.output().unwrap();
        assert!(done.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).trim().to_owned()
    }

    pub fn run(&self) -> Outcome {
        self.run_script(SCRIPT)
    }

    pub fn run_script(&self, script: &str) -> Outcome {
        Outcome::of(&self.command(script).output().unwrap())
    }

    /// What the Pod's end says: commit and branch, and why it was fetched anew.
    pub fn answer(&self) -> String {
        fs::read_to_string(self.folder.join("log/end")).unwrap_or_default()
    }

    /// Runs it for so long at most, and then kills every process of it, as a node that loses its power. `None`: it was killed.
    pub fn run_for(&self, limit: Duration) -> Option<Outcome> {
        run_for(self.command(SCRIPT), limit)
    }

    /// The next Pod has another `/tmp`.
    pub fn renew_tmp(&self) {
        fs::remove_dir_all(self.folder.join("tmp")).unwrap();
        fs::create_dir(self.folder.join("tmp")).unwrap();
    }

    fn command(&self, script: &str) -> Command {
        let mut shell = shell(&self.folder, script, &[("/dev/termination-log", "log/end")]);
        for name in ["REF", "REVISION", "FORMER", "BUNDLE", "BUNDLE_PARTS", "DEPTH", "SECRET", "CA", "SUBMODULE_HOSTS", "SUBMODULES", "LFS"]
        {
            shell.env(name, "");
        }
        shell.env("FIELD", "spec.source.git").env("DEST", self.tree()).envs(self.variables.iter().map(|(name, value)| (name, value)));
        shell
    }

    pub fn expect_filled(&self) -> &Self {
        let done = self.run();
        assert!(done.succeeded, "{}", done.words);
        assert_eq!(self.git(&["status", "--porcelain"]), "", "the tree is not what the commit holds");
        self
    }

    /// The words of a run that must fail, and so is not sealed.
    pub fn expect_refused(&self) -> String {
        let done = self.run();
        assert!(!done.succeeded, "it would be sealed as Ready; {}", done.words);
        done.words
    }

    /// Fails if one of these texts stands in a file of the tree, its .git included, or of the Pod's /tmp.
    pub fn expect_no_trace(&self, texts: &[&str]) {
        expect_no_trace(vec![self.tree(), self.folder.join("tmp")], texts);
    }
}

impl Outcome {
    pub fn of(done: &Output) -> Self {
        assert_eq!(String::from_utf8_lossy(&done.stdout), "");
        Outcome { succeeded: done.status.success(), words: String::from_utf8_lossy(&done.stderr).trim().to_owned() }
    }
}

/// As `Populator::run_for`.
pub fn run_for(mut command: Command, limit: Duration) -> Option<Outcome> {
    let mut child = command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    let ended = loop {
        match child.try_wait().unwrap() {
            Some(status) => break Some(status),
            // The moment is what the test is about, so it looks at the clock itself.
            None if begun.elapsed() >= limit => break None,
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    if ended.is_none() {
        let group = format!("-{}", child.id());
        assert!(Command::new("kill").args(["-KILL", "--", &group]).status().unwrap().success(), "group {group} is gone");
    }
    let done = child.wait_with_output().unwrap();
    ended.map(|_| Outcome::of(&done))
}

/// A script of a Pod that sees what is in `folder` as its `/tmp` and `/yoi`, and as what else is mounted: path in the Pod, and name in the folder.
pub fn shell(folder: &Path, script: &str, mounts: &[(&str, &str)]) -> Command {
    let mut script = script.replace("/tmp", folder.join("tmp").to_str().unwrap());
    for (path, name) in [("/yoi/credentials", "yoi/credentials"), ("/yoi/ca", "yoi/ca"), ("/yoi/bundle", "yoi/bundle")].iter().chain(mounts)
    {
        script = script.replace(path, folder.join(name).to_str().unwrap());
    }
    let mut shell = Command::new("/bin/sh");
    shell.args(["-eu", "-c", &script]).current_dir("/").env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
    shell
}

/// As the kubelet does.
pub fn mount_secret(folder: &Path, keys: &[(&str, &str)]) {
    let mounted = folder.join("yoi/credentials");
    fs::create_dir_all(&mounted).unwrap();
    for (key, value) in keys {
        fs::write(mounted.join(key), value).unwrap();
        fs::set_permissions(mounted.join(key), fs::Permissions::from_mode(0o400)).unwrap();
    }
}

pub fn mount_ca(folder: &Path, pem: &str) {
    fs::create_dir_all(folder.join("yoi/ca")).unwrap();
    fs::write(folder.join("yoi/ca/ca.crt"), pem).unwrap();
}

/// Fails if one of these texts stands in a file of these folders.
pub fn expect_no_trace(mut folders: Vec<PathBuf>, texts: &[&str]) {
    let mut count = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                count += 1;
                let content = fs::read(entry.path()).unwrap();
                for text in texts {
                    assert!(!holds(&content, text), "{} is in {}", text, entry.path().display());
                }
            }
        }
    }
    assert!(count > 0, "nothing was searched");
}

pub fn holds(content: &[u8], text: &str) -> bool {
    content.windows(text.len()).any(|window| window == text.as_bytes())
}

/// Fails by name where the machine lacks what a test takes.
pub fn require(program: &str, package: &str) {
    let found = std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(program).exists()));
    assert!(found || Path::new("/usr/sbin").join(program).exists(), "this test runs {program}, of the package {package}: install it");
}
