//! Work as git objects: the state of a working tree in, a bundle out, a bundle checked before anything is made of it, and what another side made of a commit
//! laid on a working tree or merged into one.
//!
//! git is the system's. The repository of the person is only read: an index of our own, objects in a folder of our own.
//!
//! # Guarantees
//! - A [`capture`] leaves index, refs, stash, objects and files of the person byte-equal, also when it is killed.
//! - A commit of a capture holds each path of the working tree that git does not ignore, as `git add` would store it, and those ignored ones that were
//!   asked for. It is on no branch.
//! - A file that changes while it is read is read again; a capture of what does not rest is refused.
//! - [`apply`] replaces no file that is not as the commit has it that the other side began with.
//! - [`merge`] merges all of the other side's work or nothing of it.
//! - [`check`] puts nothing of a bundle into the repository that it is for: its objects stay in a folder of their own until the caller takes them.
//!
//! # Caveats
//! The person's filters and attributes count, as for `git add`. A submodule, or another repository in a folder, is the commit that it has checked out:
//! [`Captured::repositories`] names them, and what is not committed in them is in no capture. Objects of git LFS are pointers. git knows no empty
//! folders, and so no capture holds one.

#![warn(missing_docs)]

mod apply;
mod bundle;
mod capture;
mod check;
mod git;
mod header;
mod merge;
mod names;
mod odd_names;
mod scan;

pub use apply::{Application, Applied, AppliedPath, ApplyError, Outcome, Why, apply, check_free};
pub use bundle::{BundleError, write_bundle};
pub use capture::{Asked, CaptureError, Captured, Limits, Source, capture, make_repository, remember};
pub use check::{CheckError, Checked, Rules, check};
pub use git::GitError;
pub use header::{BundleHeader, HeaderError, is_hash};
pub use merge::{Conflict, ConflictWhy, Favour, Merge, MergeError, Merged, merge};
pub use odd_names::{OddNames, odd_names};
