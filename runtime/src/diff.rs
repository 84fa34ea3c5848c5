//! What the agent has changed: text and commits by git where the tree is a git repository, paths by the node's shim.

use std::collections::BTreeSet;
use std::path::Path;

use futures::FutureExt;
use futures::future::BoxFuture;
use yoi_engine::error_text::error_text;
use yoi_engine::processes::ProcessSupervisor;
use yoi_wire::bundle::{InnerRepository, InnerState, MAX_INNER_REPOSITORIES};
use yoi_wire::node::{ChangeList, ChangeType, ChangedPath};
use yoi_wire::people::{DiffResponse, DiffSince, PatchFormat};

use crate::git_repository::{GitError, GitRepository};
use crate::shim_client::{self, ShimClientError};

/// Bytes of the diff's text.
const MAX_TEXT_BYTES: usize = 1 << 20;
/// Submodules that are looked into, those of submodules among them. Each is asked by some six programs.
pub const MAX_SUBMODULES: usize = 64;
/// So deep may submodules lie in one another.
const MAX_DEPTH: usize = 8;
/// Bytes of the commits of a patch.
pub const MAX_PATCH_BYTES: usize = 16 << 20;

/// Why there is no diff or patch.
#[derive(Debug, thiserror::Error)]
pub enum DiffError {
    #[error("failed to list the changed paths")]
    Paths(#[from] ShimClientError),
    #[error("failed to compare the tree")]
    Git(#[from] GitError),
    #[error("the agent's tree is gone, or was never made; its log is all that is left")]
    NoTree,
    #[error("the tree is no git repository, so it has no commits")]
    NoRepository,
    #[error("{0}")]
    NotHere(String),
    #[error(
        "the agent's commits are larger than {} MiB; let the agent push them, or read them from a Pod that mounts its tree",
        MAX_PATCH_BYTES >> 20
    )]
    PatchTooLarge,
}

/// What the text of a diff is the difference from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComparedWith<'a> {
    /// This commit; HEAD where the repository does not have it.
    Commit(&'a str),
    /// The last commit; nothing in a repository without one.
    Head,
    /// The tree without files: the base had no commit.
    Nothing,
}

/// The text of a diff.
#[derive(Debug, PartialEq, Eq)]
pub struct TextDiff {
    /// As `git diff` prints it, in whole lines.
    pub text: String,
    /// There was more than 1 MiB.
    pub truncated: bool,
    /// The commit that the tree is compared with; `None` for the empty tree.
    pub compared_with: Option<String>,
    /// Repositories in the tree that it does not show.
    pub inner_repositories: Vec<InnerRepository>,
}

/// The changed paths against the tree's base, and the text of the changes since `since`.
///
/// # Errors
/// The shim does not answer, or git fails in a tree that has a repository.
pub async fn diff(processes: &ProcessSupervisor, tree: &Path, shim_socket: &Path, since: DiffSince) -> Result<DiffResponse, DiffError> {
    let (list, no_base) = list_changes(shim_socket).await?;
    let from = match (since, &list.base_revision, &no_base) {
        (DiffSince::Base, Some(base), _) => ComparedWith::Commit(base),
        (DiffSince::Base, None, None) => ComparedWith::Nothing,
        (DiffSince::Base, None, Some(_)) | (DiffSince::Commit, _, _) => ComparedWith::Head,
    };
    let (text, no_text) = match text_diff(processes, tree, from).await {
        Ok(text) => (text, None),
        // The node knows the paths without git.
        Err(DiffError::Git(error @ (GitError::NotWhole(_) | GitError::Missing))) => (None, Some(error_text(&error))),
        Err(error) => return Err(error),
    };
    let changes = match (&text, &list.base_revision) {
        (Some(_), Some(base)) => changed_content(processes, tree, base, list.changes).await?,
        (Some(_) | None, _) => list.changes,
    };
    let (text, compared_with, inner_repositories, cut) = match text {
        Some(TextDiff { text, truncated, compared_with, inner_repositories }) => (Some(text), compared_with, inner_repositories, truncated),
        None => (None, None, Vec::new(), false),
    };
    Ok(DiffResponse {
        text,
        no_text,
        inner_repositories,
        compared_with,
        base: list.base_revision,
        paths: changes,
        too_deep: list.too_deep,
        no_base,
        cut: cut || list.cut,
        text_cut: Some(cut),
        paths_cut: Some(list.cut),
    })
}

/// Leaves out the files of which git knows that they are as in the base: only their times have changed.
async fn changed_content(
    processes: &ProcessSupervisor,
    tree: &Path,
    base: &str,
    changes: Vec<ChangedPath>,
) -> Result<Vec<ChangedPath>, DiffError> {
    let modified = || changes.iter().filter(|change| change.kind == ChangeType::Modified && change.path_hex.is_none());
    if modified().next().is_none() {
        return Ok(changes);
    }
    let Some(repository) = GitRepository::open(processes, tree).await? else { return Ok(changes) };
    let Some(base) = known_base(&repository, Some(base)).await? else { return Ok(changes) };
    let mut same: BTreeSet<Vec<u8>> = BTreeSet::new();
    let wanted: BTreeSet<&[u8]> = modified().map(|change| change.path.as_bytes()).collect();
    let keep = |path: &[u8]| {
        if wanted.contains(path) {
            same.insert(path.to_owned());
        }
    };
    repository.for_each_record(&["ls-files", "-z"], keep).await?;
    let differs = ["diff", "--name-only", "-z", "--no-ext-diff", "--no-textconv", "--no-renames", "--ignore-submodules=dirty", &base, "--"];
    let remove = |path: &[u8]| {
        same.remove(path);
    };
    repository.for_each_record(&differs, remove).await?;
    let is_same = |change: &ChangedPath| change.kind == ChangeType::Modified && same.contains(change.path.as_bytes());
    Ok(changes.into_iter().filter(|change| !is_same(change)).collect())
}

/// The shim's list; an empty one, and why, when the node does not have the tree's base.
pub(crate) async fn list_changes(shim_socket: &Path) -> Result<(ChangeList, Option<String>), DiffError> {
    match shim_client::list_changes(shim_socket).await {
        Ok(list) => Ok((list, None)),
        // git's text is shown without the list of paths.
        Err(ShimClientError::NoBase(why)) => Ok((ChangeList::default(), Some(why))),
        Err(error) => Err(DiffError::Paths(error)),
    }
}

/// The text of `git diff` with untracked files, and with what has changed in submodules. `None` where the tree is no git work tree. The repository's
/// index and object store are read and never written.
///
/// # Errors
/// git fails, or the repository leads out of the tree.
pub async fn text_diff(processes: &ProcessSupervisor, tree: &Path, from: ComparedWith<'_>) -> Result<Option<TextDiff>, DiffError> {
    let Some(repository) = GitRepository::open(processes, tree).await? else { return Ok(None) };
    let mut text = TextOfTree { processes, tree, text: Vec::new(), truncated: false, inner_repositories: Vec::new(), submodules: 0 };
    let compared_with = text.add(repository, from, 0).await?;
    let TextOfTree { text, truncated, inner_repositories, .. } = text;
    Ok(Some(TextDiff { text: whole_lines(text, truncated), truncated, compared_with, inner_repositories }))
}

/// The text so far.
struct TextOfTree<'a> {
    processes: &'a ProcessSupervisor,
    tree: &'a Path,
    text: Vec<u8>,
    truncated: bool,
    inner_repositories: Vec<InnerRepository>,
    /// That were looked into.
    submodules: usize,
}

impl<'a> TextOfTree<'a> {
    /// Adds what a repository differs in, and then its submodules. Returns what it was compared with.
    fn add<'b>(
        &'b mut self,
        repository: GitRepository<'a>,
        from: ComparedWith<'b>,
        depth: usize,
    ) -> BoxFuture<'b, Result<Option<String>, DiffError>>
    where
        'a: 'b,
    {
        async move {
            let untracked = repository.untracked().await?;
            repository.add_as_empty(&untracked.files).await?;
            self.truncated |= untracked.cut;
            for path in &untracked.repositories {
                self.leave_out(repository.path_in_tree(path), InnerState::NoSubmodule);
            }
            let base = match from {
                ComparedWith::Commit(base) => known_base(&repository, Some(base)).await?,
                ComparedWith::Head | ComparedWith::Nothing => None,
            };
            let compared_with = match base {
                None if from != ComparedWith::Nothing => repository.commit("HEAD").await?,
                base => base,
            };
            let against = match &compared_with {
                Some(commit) => commit.clone(),
                None => repository.empty_tree().await?,
            };
            let at = repository.path_in_tree("");
            let (source, target) = (format!("--src-prefix=a/{at}"), format!("--dst-prefix=b/{at}"));
            let fixed = ["diff", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames"];
            let args = [&fixed[..], &["--ignore-submodules=dirty", "--submodule=short", &source, &target, &against, "--"]].concat();
            let output = repository.git(&args, MAX_TEXT_BYTES.saturating_sub(self.text.len())).await?;
            self.text.extend(output.stdout);
            self.truncated |= output.truncated;
            for path in repository.submodules(MAX_SUBMODULES).await? {
                // What follows a text that is cut would not be whole.
                if self.text.len() >= MAX_TEXT_BYTES {
                    break;
                }
                let at = repository.path_in_tree(&path);
                if self.submodules >= MAX_SUBMODULES || depth >= MAX_DEPTH {
                    let why =
                        format!("there are more than {MAX_SUBMODULES} submodules, or they lie more than {MAX_DEPTH} deep in one another");
                    self.leave_out(at, InnerState::Unread { why });
                } else if let Err(error) = self.add_submodule(&repository, &against, &path, depth + 1).await {
                    self.leave_out(at, InnerState::Unread { why: error_text(&error) });
                }
            }
            Ok(compared_with)
        }
        .boxed()
    }

    async fn add_submodule(&mut self, above: &GitRepository<'a>, against: &str, path: &str, depth: usize) -> Result<(), DiffError> {
        let Some(submodule) = GitRepository::open_at(self.processes, self.tree, &above.path_in_tree(path)).await? else { return Ok(()) };
        self.submodules += 1;
        let before = above.commit_of_submodule(against, path).await?;
        let from = before.as_deref().map_or(ComparedWith::Head, ComparedWith::Commit);
        self.add(submodule, from, depth).await.map(drop)
    }

    fn leave_out(&mut self, path: String, state: InnerState) {
        if self.inner_repositories.len() < MAX_INNER_REPOSITORIES {
            self.inner_repositories.push(InnerRepository { path, state });
        }
    }
}

/// The base's commit, if it is the name of one and the repository has it.
pub(crate) async fn known_base(repository: &GitRepository<'_>, base: Option<&str>) -> Result<Option<String>, GitError> {
    match base.filter(|base| !base.is_empty() && base.bytes().all(|byte| byte.is_ascii_hexdigit())) {
        Some(base) => repository.commit(base).await,
        None => Ok(None),
    }
}

/// The commits that the agent has made since its tree was made from the base, as mail (`git am` applies them) or as a bundle (`git fetch` reads it).
/// Empty when there are none.
///
/// # Errors
/// The tree is no repository, the commits are larger than 16 MiB, the shim does not answer, or git fails.
pub async fn patch(processes: &ProcessSupervisor, tree: &Path, shim_socket: &Path, format: PatchFormat) -> Result<Vec<u8>, DiffError> {
    let (list, _) = list_changes(shim_socket).await?;
    commits_since(processes, tree, list.base_revision.as_deref(), format).await
}

/// As [`patch`], of the commits since `base`; of all commits when there is no `base`, or the repository does not have it.
///
/// # Errors
/// The tree is no repository, the commits are larger than 16 MiB, or git fails.
pub async fn commits_since(
    processes: &ProcessSupervisor,
    tree: &Path,
    base: Option<&str>,
    format: PatchFormat,
) -> Result<Vec<u8>, DiffError> {
    let repository = GitRepository::open(processes, tree).await?.ok_or(DiffError::NoRepository)?;
    if repository.commit("HEAD").await?.is_none() {
        return Ok(Vec::new());
    }
    let excluded = known_base(&repository, base).await?.map(|base| format!("^{base}"));
    let range: Vec<&str> = excluded.as_deref().into_iter().chain(["HEAD"]).collect();
    if repository.count_commits(&range).await? == 0 {
        return Ok(Vec::new());
    }
    let args: Vec<&str> = match format {
        PatchFormat::Mail => {
            let fixed =
                ["format-patch", "--stdout", "--root", "--binary", "--full-index", "--no-signature", "--no-ext-diff", "--no-textconv"];
            // The configuration may name files to add, and those need not be in the tree.
            let plain = ["--no-cover-letter", "--no-attach", "--no-thread", "--no-renames", "--no-notes", "--no-base", "--submodule=short"];
            [&fixed[..], &plain[..], &range[..]].concat()
        }
        PatchFormat::Bundle => [&["bundle", "create", "--quiet", "-"], &range[..]].concat(),
    };
    let output = repository.git(&args, MAX_PATCH_BYTES).await?;
    if output.truncated { Err(DiffError::PatchTooLarge) } else { Ok(output.stdout) }
}

/// Removes the broken last line of a truncated text.
fn whole_lines(mut text: Vec<u8>, cut: bool) -> String {
    if cut {
        text.truncate(text.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1));
    }
    String::from_utf8_lossy(&text).into_owned()
}
