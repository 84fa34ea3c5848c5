//! Working trees of tests, and what git says of them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

pub fn git(folder: &Path, words: &[&str]) -> String {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=t", "-c", "user.email=t@t", "-c", "protocol.file.allow=always"]).args(words).current_dir(folder);
    let done = command.output().unwrap();
    assert!(done.status.success(), "git {words:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).trim_end().to_owned()
}

/// Numbers that are the same in each run.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }

    pub fn bytes(&mut self) -> Vec<u8> {
        let length = self.below(300);
        (0..length).map(|_| b"abc \n\t\0\xff"[usize::try_from(self.below(8)).unwrap()]).collect()
    }
}

/// What a file of a tree is: its mode and its bytes, or where it leads.
pub type Tree = BTreeMap<PathBuf, (u32, Vec<u8>)>;

/// Every path below `folder`, without what git keeps for itself.
pub fn tree_of(folder: &Path) -> Tree {
    let (mut tree, mut folders) = (Tree::new(), vec![folder.to_owned()]);
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let name = path.strip_prefix(folder).unwrap().to_owned();
            if metadata.is_symlink() {
                let target = fs::read_link(&path).unwrap();
                tree.insert(name, (0o120_000, std::os::unix::ffi::OsStrExt::as_bytes(target.as_os_str()).to_vec()));
            } else if metadata.is_dir() {
                if path.file_name().is_some_and(|name| name != ".git") {
                    folders.push(path);
                }
            } else {
                tree.insert(name, (metadata.permissions().mode() & 0o100, fs::read(&path).unwrap()));
            }
        }
    }
    tree
}

/// Every byte below a folder, `.git` included.
pub fn all_of(folder: &Path) -> Tree {
    let mut all = tree_of(folder);
    for (path, file) in tree_of(&folder.join(".git")) {
        all.insert(Path::new(".git").join(path), file);
    }
    all
}

/// Names that a tree may hold; none is the folder of another.
pub const NAMES: [&str; 10] =
    ["a", "b/c", "b/d e", "f/\u{e4}\u{1f600}", "f/-x", "q\"uote", "new\nline", "deep/er/and/er", "back\\slash", "b/ends "];

/// Takes away what is at a path or in its way.
pub fn clear(root: &Path, name: &str) {
    let mut path = root.to_owned();
    for part in Path::new(name).parent().unwrap().iter() {
        path.push(part);
        if fs::symlink_metadata(&path).is_ok_and(|found| !found.is_dir()) {
            fs::remove_file(&path).unwrap();
        }
    }
    let path = root.join(name);
    match fs::symlink_metadata(&path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(&path).unwrap(),
        Ok(_) => fs::remove_file(&path).unwrap(),
        Err(_) => {}
    }
}

/// Writes a file: `*text` is a program, `>text` a link.
pub fn put(root: &Path, name: &str, text: &str) {
    clear(root, name);
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    match text.strip_prefix('>') {
        Some(target) => symlink(target, &path).unwrap(),
        None => {
            fs::write(&path, text.strip_prefix('*').unwrap_or(text)).unwrap();
            let mode = if text.starts_with('*') { 0o755 } else { 0o644 };
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
    }
}

pub fn change(random: &mut Random, root: &Path, name: &str) {
    let path = root.join(name);
    clear(root, name);
    match random.below(6) {
        0 => {}
        1 => put(root, name, [">a", ">../nowhere", ">/etc/passwd"][usize::try_from(random.below(3)).unwrap()]),
        kind => {
            put(root, name, if kind == 2 { "*" } else { "" });
            fs::write(&path, random.bytes()).unwrap();
        }
    }
}

/// The tree that `git add` itself makes of a copy.
pub fn tree_by_git(copy: &Path, root: &Path, forced: &[&str]) -> String {
    copy_all(root, copy);
    // Only a question of what a person is warned of.
    git(copy, &["-c", "core.safecrlf=false", "add", "-A"]);
    if !forced.is_empty() {
        git(copy, &[&["add", "-f", "--"], forced].concat());
    }
    git(copy, &["write-tree"])
}

/// Copies a folder as it is to where nothing of it stays.
pub fn copy_all(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}
