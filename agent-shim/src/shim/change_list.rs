//! The change list of a Pod's tree, which the Pod's runtime asks for on its own socket.

use std::io;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::json;
use yoi_wire::node::{CHANGES, ChangeList, ChangeType, ChangedPath};
use yoi_workspace::{ChangeBase, ErrorReason, Journal, JournalError, TreeOrigin, Uid};

use super::error::Error;
use super::runtime_store::RuntimeError;
use super::state::ShimState;
use super::workspaces::object_name;
use crate::mounter::client::MounterFailure;
use crate::mounter::log_context::LogContext;
use crate::mounter::protocol::MounterRefusal;
use yoi_wire::error_chain;

/// The most paths that a change list holds.
const MAX_PATHS: u32 = 10_000;
/// The most forks between a tree and its base. A journal that a person has edited into a cycle ends here, too.
const MAX_ANCESTORS: usize = 64;

/// There is no change list.
#[derive(Debug, thiserror::Error)]
pub enum ChangeListError {
    /// The Pod has no tree among its published volumes.
    #[error("this Pod mounts no tree")]
    NoTree,
    /// The base of the tree is not on this node any longer.
    #[error("what the tree was made from is gone: there is nothing to compare it with")]
    NoBase,
    /// The journal or the mounter failed.
    #[error(transparent)]
    Failed(#[from] Error),
}

impl IntoResponse for ChangeListError {
    fn into_response(self) -> Response {
        let status = match self {
            ChangeListError::NoTree => StatusCode::NOT_FOUND,
            ChangeListError::NoBase => StatusCode::CONFLICT,
            ChangeListError::Failed(Error::Mounter(MounterFailure::Refused(MounterRefusal { reason: ErrorReason::Busy, .. }))) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            ChangeListError::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, Json(json!({ "message": error_chain(&self) }))).into_response()
    }
}

/// Serves the Pod's socket. Does nothing if it is served already.
pub fn open_socket(state: &Arc<ShimState>, pod: Uid) -> Result<(), RuntimeError> {
    let router = Router::new().route(CHANGES, get(handle)).with_state((state.clone(), pod));
    state.sockets.open(&state.runtimes.pod_dir(pod), pod, router).map_err(|source| RuntimeError::Prepare { pod, source })
}

async fn handle(State((state, pod)): State<(Arc<ShimState>, Uid)>) -> Result<Json<ChangeList>, ChangeListError> {
    change_list(&state, pod).await.map(Json)
}

/// What has changed in the tree that the Pod mounts, against the base of that tree: at most 10,000 paths and 1 MiB of them, and what was found in
/// 12 s. When the future is dropped, the comparison ends. Of a namespace, one list is made at a time; and a Pod waits after each for as long as that took.
pub async fn change_list(state: &ShimState, pod: Uid) -> Result<ChangeList, ChangeListError> {
    let tree = state.publish_records.of_pod(pod).into_iter().find_map(|p| p.shows.tree());
    let tree = tree.ok_or(ChangeListError::NoTree)?;
    let since = match state.journal(move |journal| comparison_base(journal, tree)).await? {
        ComparisonBase::Tree(base) => Some(base),
        ComparisonBase::Nothing => None,
        ComparisonBase::Gone => return Err(ChangeListError::NoBase),
    };
    let workspace = state.workspaces.get(tree);
    // One list at a time for each Pod, and one for each namespace, so that no tenant can take all permits. Who asks again and again gets half of the
    // time of one.
    let _of_pod = state.change_list_locks.lock(pod).await;
    state.change_list_pauses.wait(pod).await;
    let namespace = workspace.as_ref().and_then(|ws| ws.metadata.namespace.clone());
    let _of_namespace = state.namespace_locks.lock(namespace.unwrap_or_else(|| pod.to_string())).await;
    let _permit = state.change_lists.acquire().await.map_err(|e| Error::Task(io::Error::other(e)))?;
    let _turn = state.change_list_pauses.begin(pod);
    let context = LogContext { object: workspace.map(|ws| object_name(&ws)), ..LogContext::default() };
    let list = context.scope(state.mounter.changes(tree, since, MAX_PATHS)).await.map_err(Error::Mounter)?;
    let text = |path: std::path::PathBuf| path.to_string_lossy().into_owned();
    let path_hex = |path: &std::path::Path| path.to_str().is_none().then(|| hex::encode(path.as_os_str().as_encoded_bytes()));
    let changed = |c: yoi_workspace::Change| ChangedPath { path_hex: path_hex(&c.path), path: text(c.path), kind: kind(c.kind) };
    let cut = list.cut || !list.too_deep.is_empty();
    let too_deep = list.too_deep.into_iter().map(text).collect();
    let base_revision = since.and_then(|base| state.workspaces.get(base)?.status.as_ref()?.volume.as_ref()?.revision.clone());
    Ok(ChangeList { changes: list.changes.into_iter().map(changed).collect(), base_revision, cut, too_deep })
}

/// What the changes of a tree are counted from.
enum ComparisonBase {
    Tree(Uid),
    /// The tree began empty.
    Nothing,
    /// The tree or its base has no record.
    Gone,
}

fn comparison_base(journal: &Journal, tree: Uid) -> Result<ComparisonBase, JournalError> {
    let base = match journal.get(tree)?.map(|r| r.since) {
        None => None,
        Some(ChangeBase::Nothing) => return Ok(ComparisonBase::Nothing),
        Some(ChangeBase::Tree(base)) => journal.get(base)?.map(|_| base),
        Some(ChangeBase::Unknown) => sealed_ancestor(journal, tree)?,
    };
    Ok(base.map_or(ComparisonBase::Gone, ComparisonBase::Tree))
}

/// The nearest ancestor that is never written, for records that do not name their base.
fn sealed_ancestor(journal: &Journal, tree: Uid) -> Result<Option<Uid>, JournalError> {
    let mut at = tree;
    for _ in 0..MAX_ANCESTORS {
        let Some(record) = journal.get(at)? else { return Ok(None) };
        if at != tree && record.state == yoi_workspace::RecordState::Sealed {
            return Ok(Some(at));
        }
        match record.origin {
            TreeOrigin::Clone { from, .. } => at = from,
            TreeOrigin::Empty { .. } | TreeOrigin::Host { .. } => return Ok(None),
        }
    }
    Ok(None)
}

fn kind(kind: yoi_workspace::ChangeKind) -> ChangeType {
    match kind {
        yoi_workspace::ChangeKind::Added => ChangeType::Added,
        yoi_workspace::ChangeKind::Modified => ChangeType::Modified,
        yoi_workspace::ChangeKind::Deleted => ChangeType::Deleted,
    }
}
