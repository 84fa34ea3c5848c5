//! Paths on a session volume.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use uuid::Uuid;

pub(crate) fn lock(root: &Path) -> PathBuf {
    root.join("lock")
}

pub(crate) fn sessions(root: &Path) -> PathBuf {
    root.join("sessions")
}

pub(crate) fn session(root: &Path, session: Uuid) -> PathBuf {
    sessions(root).join(session.to_string())
}

pub(crate) fn inbox(root: &Path, id: Uuid) -> PathBuf {
    session(root, id).join("inbox")
}

pub(crate) fn segment(root: &Path, id: Uuid, segment: Uuid) -> PathBuf {
    session(root, id).join(format!("{segment}.jsonl"))
}

pub(crate) fn conversations(root: &Path) -> PathBuf {
    root.join("conversations")
}

/// Returns the segments among the names in a session's folder, in the order of their names. In a session of format 1 that is their order;
/// in a later one it means nothing.
pub(crate) fn segments(names: &[OsString]) -> Vec<Uuid> {
    let mut found: Vec<Uuid> = names
        .iter()
        .filter_map(|name| name.to_str()?.strip_suffix(".jsonl"))
        // Only the spelling that `segment` writes counts: another spelling of an id would be a second file for it.
        .filter_map(|stem| Uuid::try_parse(stem).ok().filter(|id| id.to_string() == stem))
        .collect();
    found.sort_unstable();
    found
}
