//! A tree with canary files around it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use rustix::io::Errno;
use tempfile::TempDir;

/// The content of every file outside.
pub const SECRET: &str = "the-canary's-secret";
/// The first content of every file in the tree.
pub const INSIDE: &str = "one inside";

/// `<outer>/tree`, and files beside it that no tool may read or change.
pub struct TreeFixture {
    outer: TempDir,
    before: BTreeMap<PathBuf, Canary>,
    /// Open on a folder and on a file outside, so that `/proc/self/fd` leads there.
    folder: File,
    file: File,
    _socket: UnixListener,
}

#[derive(Debug, PartialEq, Eq)]
struct Canary {
    inode: u64,
    mode: u32,
    changed: (i64, i64),
    content: Vec<u8>,
}

impl TreeFixture {
    pub fn new() -> Self {
        // In memory where possible, because the tests make thousands of writes durable.
        let outer = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let path = outer.path().canonicalize().unwrap();
        for dir in ["tree/dir/sub", "tree-beside", "outside/dir", "outside/empty"] {
            fs::create_dir_all(path.join(dir)).unwrap();
        }
        for file in ["secret", "tree-beside/secret", "outside/secret", "outside/dir/secret", "outside/dir/file", "outside/file"] {
            fs::write(path.join(file), SECRET).unwrap();
        }
        fs::write(path.join("outside/linked"), "a canary under two names").unwrap();
        let tree = path.join("tree");
        for file in ["file", "dir/file", "dir/sub/file", "é", "e\u{301}", " .. ", "..."] {
            fs::write(tree.join(file), INSIDE).unwrap();
        }
        fs::create_dir(tree.join(".git")).unwrap();
        for file in [".git/HEAD", ".git/config"] {
            fs::write(tree.join(file), INSIDE).unwrap();
        }
        // An endless device, and one that does not exist. Only root can make them; without root the names are missing.
        for (name, kind, device) in
            [("device", FileType::CharacterDevice, makedev(1, 5)), ("block", FileType::BlockDevice, makedev(7, 4095))]
        {
            match mknodat(CWD, tree.join(name), kind, Mode::from_raw_mode(0o666), device) {
                Ok(()) | Err(Errno::PERM | Errno::ACCESS) => {}
                Err(error) => panic!("{error}"),
            }
        }
        fs::hard_link(path.join("outside/linked"), tree.join("hard")).unwrap();
        let socket = UnixListener::bind(tree.join("socket")).unwrap();
        mknodat(CWD, tree.join("fifo"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let (folder, file) = (File::open(path.join("outside")).unwrap(), File::open(path.join("secret")).unwrap());
        let mut fixture = Self { outer, before: BTreeMap::new(), folder, file, _socket: socket };
        fixture.links();
        fixture.before = fixture.canaries();
        fixture
    }

    /// Makes links that lead out of the tree, within it, and in loops.
    fn links(&self) {
        let (outer, tree) = (self.outer(), self.tree());
        let (folder, file) = (self.folder.as_raw_fd(), self.file.as_raw_fd());
        let absolute = |path: &str| outer.join(path);
        let out: [(&str, PathBuf); 21] = [
            ("d-relative", "../outside".into()),
            ("d-absolute", absolute("outside")),
            ("d-hops", "d-hop-1".into()),
            ("d-hop-1", "dir/../d-relative".into()),
            ("d-through", "dir/sub/../../../outside".into()),
            ("d-slashes", ".//..//outside//".into()),
            ("d-up", "..".into()),
            ("d-beside", "../tree-beside".into()),
            ("d-fd", format!("/proc/self/fd/{folder}").into()),
            ("d-thread-fd", format!("/proc/thread-self/fd/{folder}").into()),
            ("d-dev-fd", format!("/dev/fd/{folder}").into()),
            ("d-root", format!("/proc/self/root{}", absolute("outside").display()).into()),
            ("f-relative", "../secret".into()),
            ("f-absolute", absolute("secret")),
            ("f-hops", "f-relative".into()),
            ("f-beside", "../tree-beside/secret".into()),
            ("f-fd", format!("/proc/self/fd/{file}").into()),
            ("f-dangling", "../new".into()),
            ("f-dangling-absolute", absolute("outside/empty/new")),
            ("f-dangling-deep", "../outside/empty/made/new".into()),
            ("f-through-a-file", "file/../../secret".into()),
        ];
        let loops = [
            ("l-self", "l-self"),
            ("l-a", "l-b"),
            ("l-b", "l-a"),
            ("l-deep", "dir/../l-deep/x"),
            ("l-0", "l-0-next/x"),
            ("l-0-next", "l-0"),
        ];
        let inside: [(&str, PathBuf); 8] = [
            ("i-relative", "dir/file".into()),
            ("i-absolute", tree.join("dir/file")),
            ("i-hops", "i-relative".into()),
            ("i-dir", "dir/sub".into()),
            ("i-root", tree.clone()),
            ("i-here", ".".into()),
            ("dir/i-parent", "..".into()),
            ("dir/sub/i-file", "../file".into()),
        ];
        for (name, target) in out.into_iter().chain(inside).chain(loops.map(|(name, target)| (name, target.into()))) {
            symlink(target, tree.join(name)).unwrap();
        }
        // More links in a row than the kernel follows.
        for n in 0..50 {
            symlink(if n == 49 { "file".to_owned() } else { format!("c-{}", n + 1) }, tree.join(format!("c-{n}"))).unwrap();
        }
    }

    pub fn outer(&self) -> PathBuf {
        self.outer.path().canonicalize().unwrap()
    }

    pub fn tree(&self) -> PathBuf {
        self.outer().join("tree")
    }

    /// Descriptors of this process: a folder and a file outside.
    pub fn descriptors(&self) -> [i32; 2] {
        [self.folder.as_raw_fd(), self.file.as_raw_fd()]
    }

    fn canaries(&self) -> BTreeMap<PathBuf, Canary> {
        let mut found = BTreeMap::new();
        let tree = self.tree();
        walk(&self.outer(), &mut |path| {
            if path == tree {
                return false;
            }
            let meta = fs::symlink_metadata(path).unwrap();
            let content = if meta.is_file() { fs::read(path).unwrap() } else { Vec::new() };
            let canary = Canary { inode: meta.ino(), mode: meta.mode(), changed: (meta.mtime(), meta.mtime_nsec()), content };
            found.insert(path.to_owned(), canary);
            true
        });
        found
    }

    /// Checks that nothing was changed outside the tree.
    ///
    /// # Errors
    /// What was changed.
    pub fn check_untouched(&self) -> Result<(), String> {
        let after = self.canaries();
        if let Some(new) = after.keys().find(|path| !self.before.contains_key(*path)) {
            return Err(format!("{} was made outside", new.display()));
        }
        match self.before.iter().find(|(path, canary)| after.get(*path) != Some(canary)) {
            Some((path, _)) => Err(format!("the canary {} was touched", path.display())),
            None => Ok(()),
        }
    }

    /// Checks that no file of the tree holds the secret.
    ///
    /// # Errors
    /// The file that does.
    pub fn check_no_secret_inside(&self) -> Result<(), String> {
        let mut found = None;
        walk(&self.tree(), &mut |path| {
            let meta = fs::symlink_metadata(path).unwrap();
            if meta.is_file() && fs::read(path).unwrap().windows(SECRET.len()).any(|part| part == SECRET.as_bytes()) {
                found = Some(path.to_owned());
            }
            true
        });
        found.map_or(Ok(()), |path| Err(format!("the secret is in {}", path.display())))
    }

    /// Takes the present state of the files outside as unchanged.
    pub fn reset_canaries(&mut self) {
        self.before = self.canaries();
    }
}

/// Visits a path, and the entries of a folder when `visit` returns true. Follows no links.
fn walk(path: &Path, visit: &mut dyn FnMut(&Path) -> bool) {
    if visit(path) && fs::symlink_metadata(path).unwrap().is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            walk(&entry.unwrap().path(), visit);
        }
    }
}
