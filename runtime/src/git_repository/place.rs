//! Where the parts of a repository are. Files in the tree say it, and the agent can write those files.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use yoi_engine::tools::tree::{PathError, Tree};

use super::GitError;

/// Bytes of a file that names another place.
const MAX_POINTER_BYTES: u64 = 64 << 10;

/// Whether a folder of the tree, `at` relative to its root, has a repository. What it returns was opened beneath the root of the tree.
///
/// # Errors
/// The repository is not in the tree, or not whole.
pub fn find(tree: &Path, at: &str) -> Result<Option<Tree>, GitError> {
    let tree = Tree::open(&tree.canonicalize().map_err(GitError::Files)?).map_err(GitError::Files)?;
    let dot_git = Path::new(at).join(".git").to_string_lossy().into_owned();
    match tree.kind(&dot_git) {
        Ok(FileType::RegularFile) => check_pointer(&tree, at, &dot_git)?,
        Ok(_) => {}
        Err(PathError::Io { source, .. }) if is_absent(&source) => return Ok(None),
        Err(error) => return Err(outside(error)),
    }
    Ok(Some(tree))
}

/// `.git` of a submodule or of a linked work tree is a file that names a folder.
fn check_pointer(tree: &Tree, at: &str, dot_git: &str) -> Result<(), GitError> {
    let text = read_text(tree.read(dot_git).map_err(outside)?)?;
    let Some(folder) = text.strip_prefix("gitdir:").map(str::trim) else { return Ok(()) };
    if is_folder(tree, &Path::new(at).join(folder)) {
        return Ok(());
    }
    Err(GitError::NotWhole(format!(
        "{dot_git} is a file that names {}, which is not in the tree, as in a linked work tree of another repository: git cannot be used there. Take a \
         clone as the source (`git clone`) instead of a work tree (`git worktree add`)",
        folder.escape_debug()
    )))
}

/// Checks the paths that git has named: `folders` are in the tree, and the objects need no others. Returns the index.
///
/// # Errors
/// One of them is not in the tree, or the repository is not whole.
pub fn check(tree: &Tree, folders: &[String], objects: &str, index: &str) -> Result<Option<File>, GitError> {
    for folder in folders.iter().map(String::as_str).chain([objects]) {
        tree.kind(folder).map_err(outside)?;
    }
    check_alternates(tree, objects)?;
    match tree.read(index) {
        Ok(file) => Ok(Some(file)),
        // The repository has no index before its first `git add`.
        Err(PathError::Io { source, .. }) if is_absent(&source) => Ok(None),
        Err(error) => Err(outside(error)),
    }
}

/// Objects of a clone made with `--shared` or `--reference` are those of another repository.
fn check_alternates(tree: &Tree, objects: &str) -> Result<(), GitError> {
    let list = match tree.read(&format!("{objects}/info/alternates")) {
        Ok(file) => read_text(file)?,
        Err(PathError::Io { source, .. }) if is_absent(&source) => return Ok(()),
        Err(error) => return Err(outside(error)),
    };
    let named = list.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    match named.map(|line| Path::new(objects).join(line)).find(|folder| !is_folder(tree, folder)) {
        None => Ok(()),
        Some(folder) => Err(GitError::NotWhole(format!(
            "objects of the tree's repository are in {}, which is not in the tree, as in a clone made with `--shared` or `--reference`: git cannot be used \
             there. Make the source whole (`git repack -a -d`, then remove .git/objects/info/alternates)",
            folder.to_string_lossy().escape_debug()
        ))),
    }
}

fn is_folder(tree: &Tree, path: &Path) -> bool {
    path.to_str().is_some_and(|path| matches!(tree.kind(path), Ok(FileType::Directory)))
}

fn read_text(file: File) -> Result<String, GitError> {
    let mut text = Vec::new();
    file.take(MAX_POINTER_BYTES).read_to_end(&mut text).map_err(GitError::Files)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn outside(error: PathError) -> GitError {
    match error {
        PathError::Outside { given } => GitError::Outside(PathBuf::from(given)),
        PathError::Io { source, .. } => GitError::Files(source),
        error @ (PathError::Loop { .. } | PathError::NotAPath { .. } | PathError::Changed { .. }) => GitError::Failed(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use rustix::fs::{CWD, RenameFlags, renameat_with};

    use super::*;

    /// A diff takes nearly all of its time in git, so few of those that `tests/paths` races meet the exchange.
    #[test]
    fn exchanging_the_way_to_the_index_never_has_another_file_opened() {
        let outer = tempfile::tempdir().unwrap();
        let outer = outer.path().canonicalize().unwrap();
        let (root, outside) = (outer.join("tree"), outer.join("outside"));
        for folder in [root.join(".git/objects"), root.join("swapped"), outside.clone()] {
            fs::create_dir_all(folder).unwrap();
        }
        fs::write(root.join("swapped/index"), "inside").unwrap();
        fs::write(outside.join("index"), "of another").unwrap();
        symlink("../outside", root.join("other")).unwrap();
        symlink("../swapped/index", root.join(".git/index")).unwrap();
        let path = |name: &str| root.join(name).to_str().unwrap().to_owned();
        let (dir, objects, index) = (path(".git"), path(".git/objects"), path(".git/index"));
        let tree = Tree::open(&root).unwrap();
        let stop = AtomicBool::new(false);
        let (mut inside, mut others, mut refused) = (0, 0, 0);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    renameat_with(CWD, path("swapped"), CWD, path("other"), RenameFlags::EXCHANGE).unwrap();
                }
            });
            for _ in 0..20_000 {
                match check(&tree, std::slice::from_ref(&dir), &objects, &index).map(|file| file.map(read_text)) {
                    Ok(Some(Ok(text))) if text == "inside" => inside += 1,
                    Ok(Some(_)) => others += 1,
                    Ok(None) | Err(_) => refused += 1,
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(others, 0, "another file was opened in {others} of 20000 tries");
        assert!(inside > 0 && refused > 0, "the race was none: {inside} opened, {refused} refused");
    }
}
