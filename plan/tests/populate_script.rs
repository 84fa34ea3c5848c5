//! The script of populator Pods, run with the git of this machine.
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "runs the shipped script")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A directory of the test's own. It is removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("yoi-populate-{name}-{}", std::process::id()));
        for folder in ["source", "tmp", "tree"] {
            fs::create_dir_all(path.join(folder)).unwrap();
        }
        let folder = Folder(path);
        folder.git(&["init", "--quiet"]);
        folder.write("src/main.rs", "fn main() {}\n");
        folder
    }

    fn source(&self) -> PathBuf {
        self.0.join("source")
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.source().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self.git(&["add", "--", name]);
    }

    fn git(&self, args: &[&str]) {
        let identity = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main"];
        let mut git = Command::new("git");
        git.current_dir(self.source()).args(identity).args(args).env("GIT_CONFIG_NOSYSTEM", "1").env("HOME", &self.0);
        let done = git.output().unwrap();
        assert!(done.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&done.stderr));
    }

    /// Commits, and fills the tree as a populator Pod does. The Pod's /tmp is a folder of its own.
    fn populate(&self) -> Output {
        self.git(&["commit", "--quiet", "-m", "one"]);
        let script = include_str!("../src/workspace/populate.sh").replace("/tmp", self.0.join("tmp").to_str().unwrap());
        let mut shell = Command::new("/bin/sh");
        shell.args(["-eu", "-c", &script]).env("DEST", self.0.join("tree")).env("REF", "").env("REVISION", "");
        shell.env("URL", format!("file://{}", self.source().display())).output().unwrap()
    }

    fn refusal(&self) -> String {
        let done = self.populate();
        let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
        assert!(!done.status.success(), "it would be sealed as Ready; {said}");
        said
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

const POINTER: &str =
    "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n";

#[test]
fn a_source_with_a_submodule_is_refused_by_the_name_of_the_first() {
    let folder = Folder::new("submodule");
    for name in ["vendor/second lib", "vendor/first"] {
        folder.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{},{name}", "a".repeat(40))]);
    }
    assert_eq!(folder.refusal(), "submodule vendor/first is not fetched: submodules are not supported yet");
}

#[test]
fn a_source_with_a_pointer_of_git_lfs_is_refused_by_the_name_of_the_first() {
    let folder = Folder::new("lfs");
    folder.write(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n");
    folder.write("assets/in the tree.bin", "not every file of the pattern is a pointer");
    folder.write("assets/weights.bin", POINTER);
    assert_eq!(
        folder.refusal(),
        "file assets/weights.bin is a pointer of git LFS and its content is not fetched: git LFS is not supported yet"
    );
}

#[test]
fn a_source_that_only_speaks_of_git_lfs_is_fetched_whole() {
    let folder = Folder::new("plain");
    folder.write(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n");
    folder.write("docs/pointer.txt", POINTER);
    folder.write("small.bin", "0");
    std::os::unix::fs::symlink("nowhere", folder.source().join("link.bin")).unwrap();
    folder.git(&["add", "link.bin"]);
    let done = folder.populate();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let tree = folder.0.join("tree");
    assert_eq!(fs::read_to_string(tree.join("docs/pointer.txt")).unwrap(), POINTER);
    assert!(Path::new(&tree).join("src/main.rs").exists());
}
