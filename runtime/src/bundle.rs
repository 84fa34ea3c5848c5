//! What the agent has committed, as a git bundle; and a commit of what it has not.

use std::path::Path;
use std::time::Duration;

use yoi_engine::processes::ProcessSupervisor;
use yoi_wire::bundle::{
    BRANCHES, BundleHead, BundleQuery, MAX_BUNDLE_BYTES, MAX_BUNDLE_HEAD, MAX_UNCOMMITTED_PATHS, Uncommitted, check_branch_name,
};
use yoi_wire::merge::WORK;

use crate::diff::{DiffError, known_base, list_changes};
use crate::git_repository::{GitError, GitRepository, GitStream, Untracked};

mod commit;
mod inner;

pub use commit::{CommitError, commit};
use inner::InnerRepositories;

/// A bundle takes at most so long, also when nobody reads it.
pub const STREAM_TIMEOUT: Duration = Duration::from_secs(600);
/// Bytes of the list of what is not committed.
const MAX_STATUS_BYTES: usize = 1 << 20;
/// So that packing takes little memory next to the agent, whatever its commits hold.
const PACKING: [&str; 6] = ["-c", "pack.threads=1", "-c", "pack.windowMemory=32m", "-c", "core.bigFileThreshold=16m"];

/// Why there is no bundle.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    #[error("failed to find the commit of the tree's base")]
    Base(#[source] DiffError),
    #[error("failed to read the agent's commits")]
    Git(#[from] GitError),
    #[error("the agent's tree is gone, or was never made; its log is all that is left")]
    NoTree,
    #[error("the tree is no git repository, so it has no commits")]
    NoRepository,
    #[error("{0}")]
    NotHere(String),
    #[error("{0}")]
    BranchName(String),
    #[error("the agent's repository has no branch {0}; without a branch, what is checked out there is taken")]
    NoBranch(String),
    #[error(
        "{name} of the agent's repository is at commit {commit}, which is not made on top of {base}, the commit of the project that its tree was made \
         from: let the agent rebase it onto that"
    )]
    NotOnBase { name: String, commit: String, base: String },
    #[error(
        "{name} of the agent's repository is at commit {commit}, into which a history was merged that has nothing in common with the project's"
    )]
    ForeignHistory { name: String, commit: String },
    #[error("the agent's commits are {} MiB, and a bundle has at most {}; take files out of them that are no source", .bytes >> 20, MAX_BUNDLE_BYTES >> 20)]
    TooLarge { bytes: u64 },
}

/// An answer before it is sent.
pub struct Bundle {
    pub head: BundleHead,
    /// What of the bundle stands before `stream`.
    pub begin: Vec<u8>,
    /// The bundle itself; `None` without commits.
    pub stream: Option<GitStream>,
}

/// The commits that the agent has made since its tree was made from the base, of the branch that is checked out or asked for.
///
/// # Errors
/// The branch is none of the repository or not made on top of the base, the commits are too large, the shim does not answer, or git fails.
pub async fn bundle(processes: &ProcessSupervisor, tree: &Path, shim_socket: &Path, query: &BundleQuery) -> Result<Bundle, BundleError> {
    if query.work && query.branch.is_some() {
        return Err(BundleError::BranchName("the work is that of what is checked out: leave the branch out".to_owned()));
    }
    if let Some(branch) = &query.branch {
        check_branch_name(branch).map_err(BundleError::BranchName)?;
    }
    // The shim's answer comes after a look at every path, so it is asked last of what needs no git.
    let (list, _) = list_changes(shim_socket).await.map_err(BundleError::Base)?;
    bundle_since(processes, tree, list.base_revision.as_deref(), query).await
}

/// As [`bundle`], of the commits since `base`; of all commits when there is no `base`.
///
/// # Errors
/// As [`bundle`].
pub async fn bundle_since(
    processes: &ProcessSupervisor,
    tree: &Path,
    base: Option<&str>,
    query: &BundleQuery,
) -> Result<Bundle, BundleError> {
    let repository = GitRepository::open(processes, tree).await?.ok_or(BundleError::NoRepository)?;
    let name = match &query.branch {
        Some(branch) => {
            check_branch_name(branch).map_err(BundleError::BranchName)?;
            format!("{BRANCHES}{branch}")
        }
        None => "HEAD".to_owned(),
    };
    let commit = repository.commit(&name).await?;
    let untracked = repository.untracked().await?;
    let uncommitted = uncommitted(&repository, &untracked).await?;
    let (name, commit) = match query.work {
        true => (WORK.to_owned(), repository.commit_of_work(commit.as_deref(), &untracked).await?),
        false => (name, commit),
    };
    let mut inner = InnerRepositories::new(processes, tree);
    inner.add_untracked(&repository, &untracked);
    inner.add_uncommitted(&repository).await?;
    let Some(commit) = commit else {
        return match &query.branch {
            Some(branch) => Err(BundleError::NoBranch(branch.clone())),
            None => {
                let inner_repositories = inner.found();
                let head = BundleHead { name, commit: None, base: base.map(str::to_owned), commits: 0, uncommitted, inner_repositories };
                Ok(Bundle { head: fitting(head), begin: Vec::new(), stream: None })
            }
        };
    };
    if let Some(base) = base {
        check_history(&repository, &name, &commit, base).await?;
    }
    let excluded = base.map(|base| format!("^{base}"));
    let range: Vec<&str> = [commit.as_str()].into_iter().chain(excluded.as_deref()).collect();
    let commits = repository.count_commits(&range).await?;
    if commits > 0 {
        inner.add_unpublished(&repository, base, &commit).await?;
    }
    let inner_repositories = inner.found();
    let commit_too = Some(commit.clone());
    let head = fitting(BundleHead {
        name: name.clone(),
        commit: commit_too,
        base: base.map(str::to_owned),
        commits,
        uncommitted,
        inner_repositories,
    });
    if commits == 0 {
        return Ok(Bundle { head, begin: Vec::new(), stream: None });
    }
    let usage = repository.answer(&[&["rev-list", "--objects", "--disk-usage"], &range[..], &["--"]].concat()).await?;
    let bytes: u64 = usage.parse().map_err(|_| GitError::Failed(format!("git measured {usage:?} bytes")))?;
    if bytes > MAX_BUNDLE_BYTES {
        return Err(BundleError::TooLarge { bytes });
    }
    if query.work {
        // git makes bundles of names alone, and no name leads to this commit.
        let begin = bundle_header(&commit, &name, base);
        let stream = repository.pack(&PACKING, &commit, base)?;
        return Ok(Bundle { head, begin, stream: Some(stream) });
    }
    if query.whole
        && let Some(base) = base
        && let Some(objects) = repository.whole_objects(&commit, base).await?
    {
        let begin = bundle_header(&commit, &name, Some(base));
        let stream = repository.pack_objects(&PACKING, &objects)?;
        return Ok(Bundle { head, begin, stream: Some(stream) });
    }
    let named: Vec<&str> = [name.as_str()].into_iter().chain(excluded.as_deref()).collect();
    let stream = repository.stream(&[&PACKING[..], &["bundle", "create", "--quiet", "-"], &named[..]].concat())?;
    Ok(Bundle { head, begin: Vec::new(), stream: Some(stream) })
}

/// What stands before the pack of a bundle with one name, gitformat-bundle(5).
fn bundle_header(commit: &str, name: &str, base: Option<&str>) -> Vec<u8> {
    let signature = match commit.len() {
        // The only other length is that of SHA-256.
        40 => "# v2 git bundle\n",
        _ => "# v3 git bundle\n@object-format=sha256\n",
    };
    let needed = base.map(|base| format!("-{base}\n")).unwrap_or_default();
    format!("{signature}{needed}{commit} {name}\n\n").into_bytes()
}

/// Every commit must lead to the base.
async fn check_history(repository: &GitRepository<'_>, name: &str, commit: &str, base: &str) -> Result<(), BundleError> {
    let descends = match known_base(repository, Some(base)).await? {
        Some(base) => repository.succeeds(&["merge-base", "--is-ancestor", &base, commit]).await?,
        None => false,
    };
    if !descends {
        return Err(BundleError::NotOnBase { name: name.to_owned(), commit: commit.to_owned(), base: base.to_owned() });
    }
    let excluded = format!("^{base}");
    if repository.count_commits(&["--max-parents=0", commit, &excluded]).await? > 0 {
        return Err(BundleError::ForeignHistory { name: name.to_owned(), commit: commit.to_owned() });
    }
    Ok(())
}

async fn uncommitted(repository: &GitRepository<'_>, untracked: &Untracked) -> Result<Uncommitted, GitError> {
    let args = ["status", "--porcelain=v1", "-z", "--untracked-files=normal", "--no-renames", "--ignore-submodules=dirty"];
    let output = repository.git(&args, MAX_STATUS_BYTES).await?;
    let whole = output.stdout.iter().rposition(|byte| *byte == 0).map_or(0, |last| last + 1);
    // A folder that holds other repositories only cannot be committed.
    let can_be_committed = |entry: &[u8]| match entry.strip_prefix(b"?? ") {
        Some(path) if path.ends_with(b"/") => untracked.has_file_in(path),
        Some(path) => !repository.is_hidden(path),
        None => true,
    };
    // `XY path`, and a zero byte behind each.
    let entries = output.stdout[..whole].split(|byte| *byte == 0).filter(|entry| entry.len() > 3 && can_be_committed(entry));
    let mut paths = entries.filter_map(|entry| entry.get(3..));
    let first: Vec<String> = paths.by_ref().take(MAX_UNCOMMITTED_PATHS).map(|path| String::from_utf8_lossy(path).into_owned()).collect();
    Ok(Uncommitted { count: (first.len() + paths.count()) as u64, cut: output.truncated, paths: first })
}

/// Names fewer paths, until the line is as short as it must be.
fn fitting(mut head: BundleHead) -> BundleHead {
    // These types have no map with keys that are not strings, and no other way to fail.
    while serde_json::to_vec(&head).is_ok_and(|line| line.len() >= MAX_BUNDLE_HEAD) {
        if head.uncommitted.paths.pop().is_none() && head.inner_repositories.pop().is_none() {
            break;
        }
    }
    head
}
