//! Reads a new tree's inodes before its agent does.
//!
//! A tree is made in a moment, and the kernel reads each of its inodes when somebody first asks for it. The first `git status` asks for all of them, and
//! waits for each. They are the file system's, not the caller's, so it finds those that were read here.

use std::os::fd::{AsFd, BorrowedFd};

use crate::{NodeKind, dir};

/// Reads the inodes of what is in `tree`, through no link and into no other mount; at most `most`, and no more once `is_cancelled` returns true. Of a git
/// repository's own folder only the name is looked at, because git does not walk through it. Returns how many were read. Nothing in the tree changes.
/// What cannot be read is left out: whoever asks for it is told.
pub fn read_ahead(tree: BorrowedFd, most: usize, is_cancelled: &dyn Fn() -> bool) -> usize {
    let mut walk = Walk { most, is_cancelled, count: 0 };
    _ = walk.descend(tree, 0);
    walk.count
}

struct Walk<'a> {
    most: usize,
    is_cancelled: &'a dyn Fn() -> bool,
    count: usize,
}

/// Why a folder is not read any further.
enum End {
    /// Nor is any other.
    Over,
    Unreadable,
}

impl Walk<'_> {
    fn descend(&mut self, folder: BorrowedFd, depth: usize) -> Result<(), End> {
        if depth > dir::MAX_DEPTH {
            return Ok(());
        }
        let visited = dir::visit_names(
            folder,
            |_| End::Unreadable,
            |name| {
                if self.count >= self.most || (self.is_cancelled)() {
                    return Err(End::Over);
                }
                let Ok(stat) = dir::stat(folder, name) else { return Ok(()) };
                self.count += 1;
                if dir::kind(&stat) != NodeKind::Dir || name == c".git" {
                    return Ok(());
                }
                match dir::open(folder, name) {
                    Ok(child) => self.descend(child.as_fd(), depth + 1),
                    Err(_) => Ok(()),
                }
            },
        );
        match visited {
            Err(End::Unreadable) => Ok(()),
            visited => visited,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs::File;
    use std::path::Path;

    use super::*;

    fn tree(at: &Path) -> File {
        for folder in ["a/b", ".git/objects", "c"] {
            std::fs::create_dir_all(at.join(folder)).unwrap();
        }
        for file in ["a/1", "a/b/2", ".git/objects/3", "4"] {
            std::fs::write(at.join(file), "").unwrap();
        }
        std::os::unix::fs::symlink(at, at.join("c/up")).unwrap();
        File::open(at).unwrap()
    }

    #[test]
    fn everything_is_read_but_what_git_keeps_for_itself_and_what_links_lead_to() {
        let temp = tempfile::tempdir().unwrap();
        // a, a/1, a/b, a/b/2, .git, c, c/up, 4
        assert_eq!(read_ahead(tree(temp.path()).as_fd(), usize::MAX, &|| false), 8);
    }

    #[test]
    fn it_ends_at_its_bound_and_when_it_is_cancelled() {
        let temp = tempfile::tempdir().unwrap();
        let tree = tree(temp.path());
        assert_eq!(read_ahead(tree.as_fd(), 3, &|| false), 3);
        assert_eq!(read_ahead(tree.as_fd(), 0, &|| false), 0);
        let asked = Cell::new(0);
        let third = || {
            asked.set(asked.get() + 1);
            asked.get() > 2
        };
        assert_eq!(read_ahead(tree.as_fd(), usize::MAX, &third), 2);
    }
}
