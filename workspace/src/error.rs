use std::io;
use std::path::PathBuf;

use crate::{ParseUidError, ProviderKind, Uid};

/// A system call (or a short run of them) that failed.
#[derive(Debug, thiserror::Error)]
#[error("failed to {step}")]
pub struct SysError {
    /// What was tried: the end of the sentence "failed to ...".
    pub step: &'static str,
    /// The error of the system call.
    pub source: io::Error,
}

/// An error of a program, or one that this crate finds out, with its class. It is the source of a [`SysError`].
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub(crate) struct ProgramError {
    pub reason: ErrorReason,
    /// What the program said, or what was found out.
    pub text: String,
}

/// Adds to an error what was tried.
pub(crate) trait StepContext<T> {
    fn step(self, step: &'static str) -> Result<T, SysError>;
}

impl<T, E: Into<io::Error>> StepContext<T> for Result<T, E> {
    fn step(self, step: &'static str) -> Result<T, SysError> {
        self.map_err(|source| SysError { step, source: source.into() })
    }
}

/// Why an operation on the data root failed. The chain of sources ends in the error of a system call, if there was one.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the message of a variant says what it is")]
pub enum Error {
    #[error("failed to open the data root {path}")]
    OpenRoot { path: PathBuf, source: SysError },
    /// The directory is an empty folder where a file system should be mounted, or another file system. Nothing was made in it.
    #[error("failed to recognize the data root {path}: {}", other_root(.found, .wanted))]
    OtherRoot { path: PathBuf, found: Option<Uid>, wanted: Option<Uid> },
    #[error("failed to name a tree")]
    Name(#[from] ParseUidError),
    #[error("failed to list the data root")]
    List(#[source] SysError),
    #[error("failed to find tree {uid}")]
    NotFound { uid: Uid },
    #[error("failed to use {name}: it has no marker of this UID")]
    Foreign { name: String },
    #[error("failed to make tree {uid}: another tree has this UID")]
    Conflict { uid: Uid },
    #[error("failed to use tree {uid} with provider {wanted}: it was made by {found}")]
    WrongProvider { uid: Uid, found: ProviderKind, wanted: ProviderKind },
    #[error("failed to clone {from}: it is not sealed, and provider {provider} cannot fork a live tree")]
    SourceNotSealed { from: Uid, provider: ProviderKind },
    #[error("failed to compare with {since}: it is not sealed")]
    BaseNotSealed { since: Uid },
    #[error("failed to clone {from}: it holds a nested volume, which a clone would show empty")]
    NestedVolume { from: Uid },
    #[error("failed to use tree {uid}: its base {lower} is gone from the disk, or is another one")]
    LowerLost { uid: Uid, lower: Uid },
    #[error("failed to destroy tree {uid}: {} overlays have it as their lower layer, {} is one", .forks.len(), .forks.first().map(Uid::to_string).unwrap_or_default())]
    DependentForks { uid: Uid, forks: Vec<Uid> },
    #[error("failed to seal tree {uid}: an overlay would not show {path} as it is: {what}")]
    NotALower { uid: Uid, path: PathBuf, what: &'static str },
    #[error("failed to find the source {path}")]
    SourceVanished { path: PathBuf, source: SysError },
    #[error("failed to use the source {path}: {why}")]
    SourceForbidden { path: PathBuf, why: String },
    #[error("failed to capture the source: {path} in it is another volume, which the tree would show empty")]
    SourceNested { path: PathBuf },
    #[error("failed to capture the source: it changed in each of {passes} passes over it, last at {path}")]
    SourceChanging { path: PathBuf, passes: u32 },
    #[error("failed to make tree {uid}")]
    Make { uid: Uid, source: SysError },
    #[error("failed to seal tree {uid}")]
    Seal { uid: Uid, source: SysError },
    #[error("failed to destroy tree {uid}: it is still mounted {}", mounted_where(.targets))]
    Busy { uid: Uid, targets: Vec<PathBuf> },
    #[error("failed to destroy tree {uid}")]
    Destroy { uid: Uid, source: SysError },
    #[error("failed to open tree {uid}")]
    Open { uid: Uid, source: SysError },
    #[error("failed to measure tree {uid}")]
    Measure { uid: Uid, source: SysError },
    #[error("failed to set the quota of tree {uid}")]
    SetQuota { uid: Uid, source: SysError },
    #[error("failed to set the quota of tree {uid}: {} MiB are more than the {} MiB of the data root", .quota >> 20, .total >> 20)]
    QuotaTooLarge { uid: Uid, quota: u64, total: u64 },
    #[error("failed to find the changes of tree {uid}")]
    Compare { uid: Uid, source: SysError },
    #[error("failed to destroy tree {uid}: it is a dataset below {parent}, and trees are made below another one now")]
    OtherDataset { uid: Uid, parent: String },
    #[error("failed to offer provider {provider} on this data root")]
    NotOffered { provider: ProviderKind },
    #[error("failed to probe the data root")]
    Probe(#[source] SysError),
}

fn mounted_where(targets: &[PathBuf]) -> String {
    match targets.first() {
        Some(target) => format!("at {}", target.display()),
        None => "where this process cannot see it".to_owned(),
    }
}

fn other_root(found: &Option<Uid>, wanted: &Option<Uid>) -> String {
    match (found, wanted) {
        (None, None) => "trees are expected in it, and it holds none".to_owned(),
        (None, Some(wanted)) => format!("it should have the name {wanted}, and has none"),
        (Some(found), Some(wanted)) => format!("it should have the name {wanted}, and has {found}"),
        (Some(found), None) => format!("it has the name {found}"),
    }
}

/// What an error means to whoever reports it: most are reasons of AgentWorkspace conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum ErrorReason {
    /// The source of a clone holds a subvolume or another file system.
    NestedVolume,
    /// The source is still written.
    SourceNotSealed,
    /// There is no tree with this UID, or no such folder of the host.
    SourceNotFound,
    /// The folder of the host may not be used: it is a link, lies elsewhere, or belongs to somebody else.
    SourceForbidden,
    /// The folder of the host was written each time it was read. It may be quiet later.
    SourceChanging,
    /// The provider cannot work on this data root.
    ProviderUnavailable,
    /// The disk or a quota is full.
    OutOfSpace,
    /// The file system of the data root is read-only.
    ReadOnlyFilesystem,
    /// The tree is in use.
    Busy,
    /// Other trees cannot live without this one.
    DependentForks,
    /// The tree is on the disk, and what it needs is not.
    TreeLost,
    /// The data root is not the one that the trees are in.
    WrongDataRoot,
    /// A directory that is not ours has the name of ours. A person must look at it.
    Foreign,
    /// Folders of the tree lie deeper than is read.
    TreeTooDeep,
    /// The request can never succeed.
    InvalidRequest,
    /// A path of a tree cannot be covered as asked: other rules are needed, or another tree.
    CoverRefused,
    /// The caller no longer wants the answer.
    Cancelled,
    /// The kernel of the node lacks what trees and mounts need.
    KernelTooOld,
    /// Any other error of the system.
    BackendError,
}

impl ErrorReason {
    /// The reason as it is written in a condition.
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorReason::NestedVolume => "NestedVolume",
            ErrorReason::SourceNotSealed => "SourceNotSealed",
            ErrorReason::SourceNotFound => "SourceNotFound",
            ErrorReason::SourceForbidden => "SourceForbidden",
            ErrorReason::SourceChanging => "SourceChanging",
            ErrorReason::ProviderUnavailable => "ProviderUnavailable",
            ErrorReason::OutOfSpace => "OutOfSpace",
            ErrorReason::ReadOnlyFilesystem => "ReadOnlyFilesystem",
            ErrorReason::Busy => "Busy",
            ErrorReason::DependentForks => "DependentForks",
            ErrorReason::TreeLost => "TreeLost",
            ErrorReason::WrongDataRoot => "WrongDataRoot",
            ErrorReason::Foreign => "Foreign",
            ErrorReason::TreeTooDeep => "TreeTooDeep",
            ErrorReason::InvalidRequest => "InvalidRequest",
            ErrorReason::CoverRefused => "CoverRefused",
            ErrorReason::Cancelled => "Cancelled",
            ErrorReason::KernelTooOld => "KernelTooOld",
            ErrorReason::BackendError => "BackendError",
        }
    }
}

impl SysError {
    pub(crate) fn reason(&self) -> ErrorReason {
        if let Some(error) = self.source.get_ref().and_then(|e| e.downcast_ref::<ProgramError>()) {
            return error.reason;
        }
        match self.source.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => ErrorReason::OutOfSpace,
            Some(libc::EROFS) => ErrorReason::ReadOnlyFilesystem,
            Some(libc::EBUSY) => ErrorReason::Busy,
            Some(libc::ECANCELED) => ErrorReason::Cancelled,
            _ => ErrorReason::BackendError,
        }
    }
}

impl Error {
    /// The class of this error.
    pub fn reason(&self) -> ErrorReason {
        match self {
            Error::LowerLost { .. } => ErrorReason::TreeLost,
            Error::DependentForks { .. } => ErrorReason::DependentForks,
            Error::NotALower { .. } => ErrorReason::InvalidRequest,
            Error::Name(_) | Error::Conflict { .. } | Error::WrongProvider { .. } => ErrorReason::InvalidRequest,
            Error::NotFound { .. } | Error::SourceVanished { .. } => ErrorReason::SourceNotFound,
            Error::SourceForbidden { .. } => ErrorReason::SourceForbidden,
            Error::SourceChanging { .. } => ErrorReason::SourceChanging,
            Error::OtherRoot { .. } => ErrorReason::WrongDataRoot,
            Error::Foreign { .. } => ErrorReason::Foreign,
            Error::SourceNotSealed { .. } | Error::BaseNotSealed { .. } => ErrorReason::SourceNotSealed,
            Error::NestedVolume { .. } | Error::SourceNested { .. } => ErrorReason::NestedVolume,
            Error::Busy { .. } => ErrorReason::Busy,
            Error::NotOffered { .. } | Error::OtherDataset { .. } => ErrorReason::ProviderUnavailable,
            Error::QuotaTooLarge { .. } => ErrorReason::OutOfSpace,
            Error::OpenRoot { source, .. }
            | Error::Make { source, .. }
            | Error::Seal { source, .. }
            | Error::Destroy { source, .. }
            | Error::Open { source, .. }
            | Error::Measure { source, .. }
            | Error::SetQuota { source, .. }
            | Error::Compare { source, .. } => source.reason(),
            Error::List(source) | Error::Probe(source) => source.reason(),
        }
    }
}
