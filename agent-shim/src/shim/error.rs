//! What fails when the shim provisions, publishes or recovers.

use std::io;

use yoi_workspace::JournalError;

use super::publish_records::PublishRecordError;
use super::runtime_store::RuntimeError;
use crate::mounter::client::MounterFailure;

/// An operation of the shim failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The journal could not be read or written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A publish record could not be read or written.
    #[error(transparent)]
    PublishRecord(#[from] PublishRecordError),
    /// A runtime binary or the directory of a Pod that runs one.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The mounter refused a request or did not answer it.
    #[error(transparent)]
    Mounter(#[from] MounterFailure),
    /// The file that names the data root could not be read or written.
    #[error("failed to remember the name of the data root")]
    DataRootName(#[source] io::Error),
    /// Paths of the tree are lent, and what that asks of this node is not so. Nothing was done.
    #[error("{0}")]
    Lent(String),
    /// A task on a blocking thread was cancelled or panicked.
    #[error("failed to finish a blocking task")]
    Task(#[source] io::Error),
}
