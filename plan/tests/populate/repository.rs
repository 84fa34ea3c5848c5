//! Repositories that the servers give out.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A repository in a folder of the server's, and its work tree beside it.
pub struct Repository {
    tree: PathBuf,
    bare: PathBuf,
}

impl Repository {
    /// `served` is the server's folder. The URL of the repository ends in `NAME.git`.
    pub fn new(served: &Path, name: &str) -> Self {
        let repository = Repository { tree: served.join("work").join(name), bare: served.join(format!("{name}.git")) };
        fs::create_dir_all(&repository.tree).unwrap();
        fs::create_dir_all(repository.bare.parent().unwrap()).unwrap();
        let separate = format!("--separate-git-dir={}", repository.bare.display());
        repository.git(&["init", "--quiet", "--initial-branch=main", &separate]);
        repository.git(&["config", "uploadpack.allowAnySHA1InWant", "true"]);
        repository.write("src/main.rs", "fn main() {}\n");
        repository
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> &Self {
        let path = self.tree.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self.git(&["add", "--force", "--", name]);
        self
    }

    pub fn link(&self, name: &str, target: &str) -> &Self {
        std::os::unix::fs::symlink(target, self.tree.join(name)).unwrap();
        self.git(&["add", "--force", "--", name]);
        self
    }

    /// The entry of a submodule in the index. What `.gitmodules` says of it is for the caller.
    pub fn gitlink(&self, path: &str, commit: &str) -> &Self {
        self.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{commit},{path}")]);
        self
    }

    /// A submodule, commited in `.gitmodules` by its path.
    pub fn submodule(&self, path: &str, url: &str, commit: &str) -> &Self {
        let former = fs::read_to_string(self.tree.join(".gitmodules")).unwrap_or_default();
        self.write(".gitmodules", format!("{former}[submodule \"{path}\"]\n\tpath = {path}\n\turl = \"{url}\"\n"));
        self.gitlink(path, commit)
    }

    /// Commits the index, and returns the id.
    pub fn commit(&self, message: &str) -> String {
        self.git(&["commit", "--quiet", "--allow-empty", "-m", message]);
        self.git(&["rev-parse", "HEAD"])
    }

    pub fn git(&self, args: &[&str]) -> String {
        self.git_with(args, "")
    }

    pub fn git_with(&self, args: &[&str], input: &str) -> String {
        let mut git = Command::new("git");
        git.current_dir(&self.tree).args(["-c", "user.name=t", "-c", "user.email=t@t", "-c", "protocol.file.allow=never"]).args(args);
        git.env("GIT_CONFIG_NOSYSTEM", "1").env("HOME", self.bare.parent().unwrap());
        let mut child = git.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).unwrap();
        let done = child.wait_with_output().unwrap();
        assert!(done.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).trim().to_owned()
    }

    /// Folder of the repository itself, without a work tree.
    pub fn bare(&self) -> &Path {
        &self.bare
    }
}
