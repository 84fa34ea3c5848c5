//! Commits as a pack that stands on its own, although it begins at a base.

use super::untracked::stdin_of;
use super::{GitError, GitRepository, GitStream, MAX_ANSWER_BYTES, run, succeeded};

/// Bytes of a list of commits, and of one of what they change.
const MAX_COMMIT_LIST_BYTES: usize = 8 << 20;

impl GitRepository<'_> {
    /// Every object of the commits from `base` to `commit`, and of the base its commit and each folder on the way to what they change: a line for each, as
    /// `git pack-objects` reads them. Whoever has these can check the commits without the rest of the base, and knows which objects the base has.
    ///
    /// `None` where a parent is neither the base nor one of these commits, and where there are too many.
    ///
    /// # Errors
    /// git fails.
    pub async fn whole_objects(&self, commit: &str, base: &str) -> Result<Option<Vec<u8>>, GitError> {
        let since = format!("^{base}");
        let commits = self.git(&["rev-list", "--format=%T %P", commit, &since, "--"], MAX_COMMIT_LIST_BYTES).await?;
        let Some(commits) = (!commits.truncated).then(|| Commits::parse(&commits.stdout)).flatten() else { return Ok(None) };
        if !commits.parents.iter().all(|parent| parent == base || commits.hashes.contains(parent)) {
            return Ok(None);
        }
        let names = stdin_of(commits.hashes.iter().flat_map(|hash| [hash.as_bytes(), b"\n"])).map_err(GitError::Run)?;
        let args = ["diff-tree", "--stdin", "-r", "-t", "-m", "--root", "--raw", "--no-abbrev", "--no-renames"];
        let changes = succeeded(args[0], run(self.processes, &self.at, &args, &self.env, names, MAX_COMMIT_LIST_BYTES).await?)?;
        if changes.truncated {
            return Ok(None);
        }
        let root = self.git(&["rev-parse", "--verify", &format!("{base}^{{tree}}")], MAX_ANSWER_BYTES).await?.stdout;
        let mut list = format!("{base}\n").into_bytes();
        list.extend(root);
        for hash in commits.hashes.iter().chain(&commits.trees) {
            list.extend(hash.bytes().chain([b'\n']));
        }
        changes.stdout.split(|byte| *byte == b'\n').filter_map(Change::parse).for_each(|change| change.add_to(&mut list));
        Ok(Some(list))
    }

    /// Starts a pack of these objects. `packing` stands before the command.
    ///
    /// # Errors
    /// git does not start.
    pub fn pack_objects(self, packing: &[&str], objects: &[u8]) -> Result<GitStream, GitError> {
        let list = stdin_of(std::iter::once(objects)).map_err(GitError::Run)?;
        let args = [packing, &["pack-objects", "--stdout", "--delta-base-offset", "--quiet"]].concat();
        self.stream_with_stdin(&args, list)
    }
}

/// What `git rev-list --format="%T %P"` prints.
#[derive(Debug, Default, PartialEq, Eq)]
struct Commits {
    hashes: std::collections::BTreeSet<String>,
    trees: Vec<String>,
    parents: Vec<String>,
}

impl Commits {
    fn parse(text: &[u8]) -> Option<Self> {
        let mut commits = Commits::default();
        for line in std::str::from_utf8(text).ok()?.lines() {
            if let Some(hash) = line.strip_prefix("commit ") {
                commits.hashes.insert(hash.to_owned());
                continue;
            }
            let mut words = line.split_whitespace().map(str::to_owned);
            commits.trees.push(words.next()?);
            commits.parents.extend(words);
        }
        Some(commits)
    }
}

/// A line of `git diff-tree --raw`: `:MODE MODE HASH HASH LETTER<tab>PATH`.
struct Change<'a> {
    old: Option<&'a [u8]>,
    new: Option<&'a [u8]>,
    path: &'a [u8],
}

impl<'a> Change<'a> {
    /// `None` for a line that names a commit.
    fn parse(line: &'a [u8]) -> Option<Self> {
        let line = line.strip_prefix(b":")?;
        let tab = line.iter().position(|byte| *byte == b'\t')?;
        let [old_mode, new_mode, old, new, _] = line[..tab].split(|byte| *byte == b' ').collect::<Vec<_>>()[..] else { return None };
        // A file of the base is not needed, and the commit of a submodule is in another repository.
        let is_sent = |mode: &[u8]| ![&b"000000"[..], b"160000"].contains(&mode);
        Some(Change { old: (old_mode == b"040000").then_some(old), new: is_sent(new_mode).then_some(new), path: &line[tab + 1..] })
    }

    /// The path is what git finds similar objects by.
    fn add_to(&self, list: &mut Vec<u8>) {
        for hash in [self.old, self.new].into_iter().flatten() {
            list.extend([hash, b" ", self.path, b"\n"].concat());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_base_its_folders_are_sent_and_of_the_commits_everything_but_submodules() {
        let commits = Commits::parse(b"commit c2\nt2 c1\ncommit c1\nt1 b0 x9\n").unwrap();
        assert_eq!(commits.hashes, ["c1".to_owned(), "c2".to_owned()].into());
        assert_eq!((commits.trees.join(" "), commits.parents.join(" ")), ("t2 t1".to_owned(), "c1 b0 x9".to_owned()));
        let lines: [&[u8]; 5] = [
            b"c2c2",
            b":040000 040000 o1 n1 M\tsrc",
            b":100644 100644 o2 n2 M\tsrc/a b",
            b":100644 000000 o3 00 D\tgone",
            b":160000 160000 o4 n4 M\tsub",
        ];
        let mut list = Vec::new();
        lines.into_iter().filter_map(Change::parse).for_each(|change| change.add_to(&mut list));
        assert_eq!(String::from_utf8(list).unwrap(), "o1 src\nn1 src\nn2 src/a b\n");
    }
}
