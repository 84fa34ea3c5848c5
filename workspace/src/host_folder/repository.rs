//! Whether the git repository of a host's folder is whole: the tree is made of the folder alone, and what lies beside it is in no Pod.

use std::io::Read;
use std::path::{Component, Path, PathBuf};

use rustix::fs::FileType;

use super::{HostFolder, shell_word};
use crate::{Error, dir};

/// Bytes of a file that names another place.
const MAX_POINTER_BYTES: u64 = 64 << 10;

impl HostFolder {
    /// Fails if the folder is a linked work tree of a repository elsewhere, or a clone whose objects are another's. A folder without a repository is fine,
    /// and so is what git itself would not understand.
    pub(crate) fn check_repository(&self) -> Result<(), Error> {
        let path = shell_word(&self.path);
        let forbidden = |why: String| Err(Error::SourceForbidden { path: self.path.clone(), why });
        let elsewhere = |named: &str| {
            forbidden(format!(
                "its repository is in {}, outside of the folder, as that of a linked work tree is, and git would not work in a tree of it; list a clone \
                 instead: git clone {path} NEW_FOLDER",
                named.escape_debug()
            ))
        };
        let mut repository = PathBuf::from(".git");
        if let Some(text) = self.text(&repository) {
            let Some(named) = text.strip_prefix("gitdir:").map(str::trim) else { return Ok(()) };
            let Some(inside) = self.folder_inside(Path::new(""), named) else { return elsewhere(named) };
            repository = inside;
        }
        if let Some(text) = self.text(&repository.join("commondir")) {
            let Some(inside) = self.folder_inside(&repository, text.trim()) else { return elsewhere(text.trim()) };
            repository = inside;
        }
        let objects = repository.join("objects");
        let list = self.text(&objects.join("info/alternates")).unwrap_or_default();
        let mut named = list.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        match named.find(|line| self.folder_inside(&objects, line).is_none()) {
            None => Ok(()),
            Some(line) => forbidden(format!(
                "objects of its repository are in {}, outside of the folder, as those of a clone made with --shared or --reference are, and git would not \
                 work in a tree of it; on the node, run: git -C {path} repack -a -d && rm {}",
                line.escape_debug(),
                shell_word(&self.path.join(objects).join("info/alternates"))
            )),
        }
    }

    /// The text of a regular file in the folder that no link leads to; `None` if there is no such file.
    fn text(&self, path: &Path) -> Option<String> {
        let file = dir::open_file(&self.dir, path).ok()?;
        let stat = rustix::fs::fstat(&file).ok()?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return None;
        }
        let mut text = Vec::new();
        std::fs::File::from(file).take(MAX_POINTER_BYTES).read_to_end(&mut text).ok()?;
        Some(String::from_utf8_lossy(&text).into_owned())
    }

    /// The folder that a file names which lies in `at`, relative to this one; `None` if it is not in this one.
    fn folder_inside(&self, at: &Path, named: &str) -> Option<PathBuf> {
        let named = Path::new(named);
        let joined = match named.strip_prefix(&self.path) {
            Ok(rest) if named.is_absolute() => rest.to_owned(),
            _ if named.is_absolute() => return None,
            _ => at.join(named),
        };
        let mut inside = PathBuf::new();
        for component in joined.components() {
            match component {
                Component::Normal(name) => inside.push(name),
                Component::CurDir => {}
                Component::ParentDir if inside.pop() => {}
                Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
            }
        }
        let opened = if inside.as_os_str().is_empty() { Path::new(".") } else { inside.as_path() };
        dir::open(&self.dir, opened).ok().map(|_| inside)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// What is said of a folder with these files, where `/other` is no part of it.
    fn refusal(files: &[(&str, &str)]) -> Option<String> {
        let parent = tempfile::tempdir().unwrap();
        fs::create_dir_all(parent.path().join("source")).unwrap();
        for (name, text) in files {
            let path = parent.path().join("source").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let top = fs::File::open(parent.path()).unwrap();
        let folder = HostFolder::open(&top, Path::new("source"), Path::new("/srv/source")).unwrap();
        folder.check_repository().err().map(|error| error.to_string())
    }

    #[test]
    fn a_repository_that_is_whole_and_what_is_no_repository_are_taken() {
        assert_eq!(refusal(&[("README", "x")]), None);
        assert_eq!(refusal(&[(".git/HEAD", "ref: refs/heads/main\n"), (".git/objects/pack/x", "")]), None);
        assert_eq!(refusal(&[(".git", "gitdir: .repository\n"), (".repository/HEAD", "")]), None, "the repository is in the folder");
        assert_eq!(refusal(&[(".git", "something else")]), None);
        let shared = [(".git/objects/info/alternates", "# none\n\n../../lib/.git/objects\n/srv/source/lib/.git/objects\n")];
        assert_eq!(refusal(&[shared[0], ("lib/.git/objects/x", "")]), None, "the objects are in the folder");
    }

    #[test]
    fn a_linked_work_tree_is_refused_with_the_command_that_makes_a_clone() {
        for files in [
            &[(".git", "gitdir: /home/a/project/.git/worktrees/source\n")][..],
            &[(".git", "gitdir: ../project/.git/worktrees/source\n")],
            &[(".git", "gitdir: nowhere\n")],
            &[(".git/commondir", "../../project/.git\n")],
        ] {
            let words = refusal(files).unwrap();
            assert!(words.starts_with("failed to use the source /srv/source: its repository is in "), "{words}");
            assert!(words.ends_with("as that of a linked work tree is, and git would not work in a tree of it; list a clone instead: git clone /srv/source NEW_FOLDER"), "{words}");
        }
    }

    #[test]
    fn a_clone_that_has_anothers_objects_is_refused_with_the_command_that_makes_it_whole() {
        for line in ["/home/a/project/.git/objects", "../../../project/.git/objects"] {
            let words = refusal(&[(".git/objects/info/alternates", line)]).unwrap();
            assert!(words.contains(&format!("objects of its repository are in {line}, outside of the folder")), "{words}");
            let command = "on the node, run: git -C /srv/source repack -a -d && rm /srv/source/.git/objects/info/alternates";
            assert!(words.ends_with(command), "{words}");
        }
    }
}
