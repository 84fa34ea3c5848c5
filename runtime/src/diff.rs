//! What the agent has changed: text and commits by git where the tree is a git repository, paths by the node's shim.

use std::path::Path;

use yoi_engine::processes::ProcessSupervisor;
use yoi_wire::node::ChangeList;
use yoi_wire::people::{DiffResponse, DiffSince, PatchFormat};

use crate::git_repository::{GitError, GitRepository};
use crate::shim_client::{self, ShimClientError};

/// Bytes of the diff's text.
const MAX_TEXT_BYTES: usize = 1 << 20;
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
    let text = text_diff(processes, tree, from).await?;
    let (text, compared_with, cut) = match text {
        Some(TextDiff { text, truncated, compared_with }) => (Some(text), compared_with, truncated),
        None => (None, None, false),
    };
    let (text_cut, paths_cut) = (Some(cut), Some(list.cut));
    Ok(DiffResponse {
        text,
        compared_with,
        base: list.base_revision,
        paths: list.changes,
        too_deep: list.too_deep,
        no_base,
        cut: cut || list.cut,
        text_cut,
        paths_cut,
    })
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

/// The text of `git diff` with untracked files. `None` where the tree is no git work tree. The repository's index and object store are read and
/// never written.
///
/// # Errors
/// git fails, or the repository leads out of the tree.
pub async fn text_diff(processes: &ProcessSupervisor, tree: &Path, from: ComparedWith<'_>) -> Result<Option<TextDiff>, DiffError> {
    let Some(repository) = GitRepository::open(processes, tree).await? else { return Ok(None) };
    // Adds untracked files to the copy of the index without content, so that the diff shows them as added.
    repository.git(&["add", "--intent-to-add", "--", "."], MAX_TEXT_BYTES).await?;
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
    let args = ["diff", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", &against, "--"];
    let output = repository.git(&args, MAX_TEXT_BYTES).await?;
    Ok(Some(TextDiff { text: whole_lines(output.stdout, output.truncated), truncated: output.truncated, compared_with }))
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
            let plain = ["--no-cover-letter", "--no-attach", "--no-thread", "--no-renames", "--no-notes", "--no-base"];
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
