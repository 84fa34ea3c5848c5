//! Files that git does not track, and repositories among them.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::process::Stdio;

use rustix::fs::{MemfdFlags, memfd_create};

use super::{GitError, GitRepository, MAX_ANSWER_BYTES, run, succeeded};

/// Bytes of the list.
pub const MAX_LIST_BYTES: usize = 16 << 20;
/// Prints it.
pub const LIST: [&str; 4] = ["ls-files", "--others", "--exclude-standard", "-z"];

/// What git does not track and does not ignore.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Untracked {
    /// Paths in bytewise order.
    pub files: Vec<Vec<u8>>,
    /// Folders, without `/` at the end, that are git repositories themselves. git tracks no file of theirs.
    pub repositories: Vec<String>,
    /// There is more.
    pub cut: bool,
}

impl Untracked {
    /// Reads what [`LIST`] prints.
    pub fn parse(list: &[u8], cut: bool) -> Self {
        let whole = list.iter().rposition(|byte| *byte == 0).map_or(0, |last| last + 1);
        let mut untracked = Self { cut, ..Self::default() };
        for path in list[..whole].split(|byte| *byte == 0).filter(|path| !path.is_empty()) {
            match path.strip_suffix(b"/") {
                Some(folder) => untracked.repositories.push(String::from_utf8_lossy(folder).into_owned()),
                // git takes no such path into an index.
                None if path.split(|byte| *byte == b'/').any(|name| name.eq_ignore_ascii_case(b".git")) => {}
                None => untracked.files.push(path.to_owned()),
            }
        }
        untracked.files.sort_unstable();
        untracked
    }

    /// Whether a file is in `folder`, whose path ends with `/`.
    pub fn has_file_in(&self, folder: &[u8]) -> bool {
        let from = self.files.partition_point(|file| file.as_slice() < folder);
        self.cut || self.files.get(from).is_some_and(|file| file.starts_with(folder))
    }
}

impl GitRepository<'_> {
    /// Lists them.
    ///
    /// # Errors
    /// git fails.
    pub async fn untracked(&self) -> Result<Untracked, GitError> {
        let list = self.git(&LIST, MAX_LIST_BYTES).await?;
        let mut untracked = Untracked::parse(&list.stdout, list.truncated);
        untracked.files.retain(|file| !self.is_hidden(file));
        Ok(untracked)
    }

    /// Adds files to the copy of the index, as empty ones: a diff to the tree's files then shows them as new. `git add --intent-to-add` would also look
    /// into submodules, and fail at a repository without a commit.
    ///
    /// # Errors
    /// git fails.
    pub async fn add_as_empty(&self, files: &[Vec<u8>]) -> Result<(), GitError> {
        if files.is_empty() {
            return Ok(());
        }
        let empty = self.answer(&["hash-object", "-t", "blob", "/dev/null"]).await?;
        let mode = format!("100644 {empty} 0\t");
        let entries = stdin_of(files.iter().flat_map(|file| [mode.as_bytes(), file.as_slice(), &b"\0"[..]])).map_err(GitError::Run)?;
        let args = ["update-index", "-z", "--replace", "--index-info"];
        succeeded(args[0], run(self.processes, &self.at, &args, &self.env, entries, MAX_ANSWER_BYTES).await?).map(drop)
    }
}

/// A file without a name, for a program to read.
pub fn stdin_of<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> io::Result<Stdio> {
    let mut file = io::BufWriter::new(File::from(memfd_create("yoi-git", MemfdFlags::CLOEXEC)?));
    pieces.into_iter().try_for_each(|piece| file.write_all(piece))?;
    let mut file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.rewind()?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repositories_are_told_from_files_and_what_no_index_takes_is_left_out() {
        let list = b"sub/\0a\xff\0.GIT/config\0d/f\0d/inner/\0lone/inner/\0bro";
        let untracked = Untracked::parse(list, true);
        assert_eq!(untracked.files, [b"a\xff".to_vec(), b"d/f".to_vec()]);
        assert_eq!(untracked.repositories, ["sub", "d/inner", "lone/inner"]);
        let whole = Untracked { cut: false, ..untracked };
        assert_eq!([&b"d/"[..], b"lone/", b"sub/", b"."].map(|folder| whole.has_file_in(folder)), [true, false, false, false]);
    }
}
