//! The tree as it is, committed or not, as one commit that no branch leads to.

use std::ffi::OsString;
use std::process::Stdio;

use super::untracked::{MAX_LIST_BYTES, stdin_of};
use super::{GitError, GitRepository, GitStream, MAX_ANSWER_BYTES, Untracked, run, succeeded};

/// Not the agent: it has not made this commit.
const WHO: [(&str, &str); 6] = [
    ("GIT_AUTHOR_NAME", "yoi"),
    ("GIT_AUTHOR_EMAIL", "yoi@yoi.invalid"),
    ("GIT_AUTHOR_DATE", "@0 +0000"),
    ("GIT_COMMITTER_NAME", "yoi"),
    ("GIT_COMMITTER_EMAIL", "yoi@yoi.invalid"),
    ("GIT_COMMITTER_DATE", "@0 +0000"),
];

impl GitRepository<'_> {
    /// A commit of what is in the tree, on top of `head`; `head` itself where all is committed, and `None` where there is neither. It is in this
    /// repository's own folder of objects. Files whose content a filter would change are stored as they stand.
    ///
    /// # Errors
    /// A merge with conflicts is under way in the tree, too much has changed, or git fails.
    pub async fn commit_of_work(&self, head: Option<&str>, untracked: &Untracked) -> Result<Option<String>, GitError> {
        if !self.git(&["ls-files", "--unmerged"], MAX_ANSWER_BYTES).await?.stdout.is_empty() {
            return Err(GitError::NotWhole("a merge with conflicts is not finished in it".to_owned()));
        }
        let changed = self.git(&["diff-files", "--name-only", "-z", "--ignore-submodules=dirty"], MAX_LIST_BYTES).await?;
        if changed.truncated || untracked.cut {
            let message = format!("the names of what is not committed take more than {} MiB", MAX_LIST_BYTES >> 20);
            return Err(GitError::NotWhole(message));
        }
        let new = untracked.files.iter().flat_map(|file| [file.as_slice(), &b"\0"[..]]);
        let names = stdin_of([changed.stdout.as_slice()].into_iter().chain(new)).map_err(GitError::Run)?;
        let args = ["update-index", "-z", "--add", "--remove", "--replace", "--stdin"];
        succeeded(args[0], run(self.processes, &self.at, &args, &self.env, names, MAX_ANSWER_BYTES).await?)?;
        let tree = self.answer(&["write-tree"]).await?;
        let committed = match head {
            Some(head) => self.answer(&["rev-parse", "--verify", &format!("{head}^{{tree}}")]).await?,
            None => self.empty_tree().await?,
        };
        if tree == committed {
            return Ok(head.map(str::to_owned));
        }
        let parent: Vec<&str> = head.into_iter().flat_map(|head| ["-p", head]).collect();
        let args = [&["-c", "commit.gpgSign=false", "commit-tree", "-m", "The tree as it is", &tree], &parent[..]].concat();
        let mut env = self.env.clone();
        env.extend(WHO.map(|(name, value)| (name.to_owned(), OsString::from(value))));
        let commit = succeeded("commit-tree", run(self.processes, &self.at, &args, &env, Stdio::null(), MAX_ANSWER_BYTES).await?)?;
        Ok(Some(String::from_utf8_lossy(&commit.stdout).trim().to_owned()))
    }

    /// Starts a pack of what `commit` leads to and `base` does not. `packing` stands before the command.
    ///
    /// # Errors
    /// git does not start.
    pub fn pack(self, packing: &[&str], commit: &str, base: Option<&str>) -> Result<GitStream, GitError> {
        let not = base.map(|base| format!("--not\n{base}\n")).unwrap_or_default();
        let wanted = stdin_of([commit.as_bytes(), b"\n", not.as_bytes()].into_iter()).map_err(GitError::Run)?;
        let args = [packing, &["pack-objects", "--revs", "--thin", "--stdout", "--delta-base-offset", "--quiet"]].concat();
        self.stream_with_stdin(&args, wanted)
    }
}
