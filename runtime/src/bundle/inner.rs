//! What of repositories in folders of the tree does not come with the agent's commits.

use std::path::Path;

use yoi_engine::error_text::error_text;
use yoi_engine::processes::ProcessSupervisor;
use yoi_wire::bundle::{InnerRepository, InnerState, MAX_INNER_REPOSITORIES, MAX_SENTENCE_PATH, shortened_path};

use crate::diff::MAX_SUBMODULES;
use crate::git_repository::{GitError, GitRepository, Untracked};

/// Bytes of the list of what is not committed in a submodule, of which only the begin counts.
const MAX_STATUS_BYTES: usize = 4 << 10;

/// Those that were found, what weighs most first.
pub(super) struct InnerRepositories<'a> {
    processes: &'a ProcessSupervisor,
    tree: &'a Path,
    unpublished: Vec<InnerRepository>,
    others: Vec<InnerRepository>,
}

impl<'a> InnerRepositories<'a> {
    pub fn new(processes: &'a ProcessSupervisor, tree: &'a Path) -> Self {
        Self { processes, tree, unpublished: Vec::new(), others: Vec::new() }
    }

    pub fn found(self) -> Vec<InnerRepository> {
        let cut = |path: String| shortened_path(&path, MAX_SENTENCE_PATH);
        let all = self.unpublished.into_iter().chain(self.others).take(MAX_INNER_REPOSITORIES);
        all.map(|inner| InnerRepository { path: cut(inner.path), ..inner }).collect()
    }

    pub fn add_untracked(&mut self, repository: &GitRepository<'_>, untracked: &Untracked) {
        let repositories = untracked.repositories.iter().take(MAX_INNER_REPOSITORIES);
        self.others
            .extend(repositories.map(|path| InnerRepository { path: repository.path_in_tree(path), state: InnerState::NoSubmodule }));
    }

    /// Adds submodules in which something is not committed.
    ///
    /// # Errors
    /// git fails in the repository itself.
    pub async fn add_uncommitted(&mut self, repository: &GitRepository<'_>) -> Result<(), GitError> {
        for path in repository.submodules(MAX_SUBMODULES).await? {
            let path = repository.path_in_tree(&path);
            let state = match self.is_clean(&path).await {
                Ok(true) => continue,
                Ok(false) => InnerState::Uncommitted,
                Err(error) => InnerState::Unread { why: error_text(&error) },
            };
            self.others.push(InnerRepository { path, state });
        }
        Ok(())
    }

    async fn is_clean(&self, path: &str) -> Result<bool, GitError> {
        // A submodule that was never fetched has no repository.
        let Some(submodule) = GitRepository::open_at(self.processes, self.tree, path).await? else { return Ok(true) };
        // Another commit in a submodule of its own counts as a change here.
        let args = ["status", "--porcelain=v1", "-z", "--no-renames", "--ignore-submodules=dirty"];
        Ok(submodule.git(&args, MAX_STATUS_BYTES).await?.stdout.is_empty())
    }

    /// Adds submodules of which the commits since `base` name another commit, if nobody but the agent has that.
    ///
    /// # Errors
    /// git fails in the repository itself.
    pub async fn add_unpublished(&mut self, repository: &GitRepository<'_>, base: Option<&str>, commit: &str) -> Result<(), GitError> {
        let base = match base {
            Some(base) => base.to_owned(),
            None => repository.empty_tree().await?,
        };
        let args = ["diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", "--ignore-submodules=none", &base, commit];
        let (mut named, mut next) = (Vec::new(), None);
        let take = |record: &[u8]| match next.take() {
            Some((old, new)) if named.len() < MAX_SUBMODULES => named.push((String::from_utf8_lossy(record).into_owned(), old, new)),
            Some(_) => {}
            // `:MODE MODE HASH HASH LETTER`, and the path in the next record.
            None => {
                let text = String::from_utf8_lossy(record).into_owned();
                if let [_, "160000", old, new, _] = text.split(' ').collect::<Vec<_>>()[..] {
                    next = Some((old.to_owned(), new.to_owned()));
                }
            }
        };
        repository.for_each_record(&args, take).await?;
        for (path, old, new) in named {
            let path = repository.path_in_tree(&path);
            if !self.is_published(&path, &old, &new).await.unwrap_or(false) {
                self.unpublished.push(InnerRepository { path, state: InnerState::Unpublished { commit: new } });
            }
        }
        Ok(())
    }

    /// Whether a remote has the commit by what the submodule was fetched with, or the commit that it was at before has it.
    async fn is_published(&self, path: &str, old: &str, new: &str) -> Result<bool, GitError> {
        let Some(submodule) = GitRepository::open_at(self.processes, self.tree, path).await? else { return Ok(false) };
        if submodule.commit(new).await?.is_none() {
            return Ok(false);
        }
        let before = submodule.commit(old).await?;
        let known: Vec<&str> = ["--not", "--remotes"].into_iter().chain(before.as_deref()).collect();
        Ok(submodule.answer(&[&["rev-list", "--max-count=1", new], &known[..], &["--"]].concat()).await?.is_empty())
    }
}
