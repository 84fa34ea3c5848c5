//! One socket for each Pod that runs our runtime: whoever speaks on it is that Pod.

use std::collections::HashMap;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde_json::json;
use tokio::net::UnixListener;
use tokio::sync::Semaphore;
use tokio_util::task::AbortOnDropHandle;
use yoi_wire::identity::SHIM_SOCKET;
use yoi_wire::node::{CHANGES, ChangeList, ChangeType, ChangedPath};
use yoi_workspace::{Journal, JournalError, Making, RecordState as Life, Since, Uid};

use super::provision_controller;
use super::state::{Error, ShimState};
use crate::chain::whole;
use crate::mounter::log_context::LogContext;

/// The most that a change list holds.
const LIMIT: u32 = 10_000;
const CONNECTIONS: usize = 4;
const PATIENCE: Duration = Duration::from_secs(5);
/// A fork of a fork of a fork; an end for a journal that a person has edited into a ring.
const ANCESTORS: usize = 64;

/// ChangedPath lists that are made at the same time, for all Pods together: the mounter's other turns are for mounts.
const LISTS: usize = 8;

pub struct PodSockets {
    served: Mutex<HashMap<Uid, AbortOnDropHandle<()>>>,
    lists: Semaphore,
}

impl Default for PodSockets {
    fn default() -> Self {
        PodSockets { served: Mutex::default(), lists: Semaphore::new(LISTS) }
    }
}

impl PodSockets {
    /// Serves the Pod's socket in its folder. An older socket of the name is replaced in one step, so that a Pod which connects again
    /// and again never finds none.
    pub fn open(&self, state: &Arc<ShimState>, pod: Uid) -> io::Result<()> {
        let mut served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        if served.contains_key(&pod) {
            return Ok(());
        }
        let listener = bind(&state.runtimes.pod_dir(pod))?;
        let router = Router::new().route(CHANGES, get(changes)).with_state((state.clone(), pod));
        let serving = tokio::spawn(serve(listener, router, pod));
        served.insert(pod, AbortOnDropHandle::new(serving));
        Ok(())
    }

    pub fn close(&self, pod: Uid) {
        self.served.lock().unwrap_or_else(PoisonError::into_inner).remove(&pod);
    }
}

/// An agent is not trusted: it gets few connections, each for one question that must come soon, and can use up nothing of its node.
async fn serve(listener: UnixListener, router: Router, pod: Uid) {
    let turns = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(turn) = turns.clone().acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Descriptors that are used up come back.
                tracing::warn!(%pod, %error, "a Pod's connection was not accepted");
                tokio::time::sleep(PATIENCE).await;
                continue;
            }
        };
        let service = TowerToHyperService::new(router.clone());
        tokio::spawn(async move {
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(PATIENCE).keep_alive(false);
            if let Err(error) = http.serve_connection(TokioIo::new(stream), service).await {
                tracing::debug!(%pod, %error, "a Pod's connection broke");
            }
            drop(turn);
        });
    }
}

fn bind(folder: &Path) -> io::Result<UnixListener> {
    // By descriptor: a socket's path has at most 107 bytes, and the kubelet's folder may be anywhere.
    let folder = File::open(folder)?;
    let short = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string());
    let fresh = short.join(".shim.sock.new");
    match fs::remove_file(&fresh) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        Ok(()) | Err(_) => {}
    }
    let listener = UnixListener::bind(&fresh)?;
    fs::set_permissions(&fresh, Permissions::from_mode(0o666))?;
    fs::rename(&fresh, short.join(SHIM_SOCKET))?;
    Ok(listener)
}

/// Why there is no change list.
#[derive(Debug, thiserror::Error)]
enum ChangeListError {
    #[error("this Pod mounts no tree")]
    NoTree,
    #[error("what the tree was made from is gone: there is nothing to compare it with")]
    NoBase,
    #[error(transparent)]
    Error(#[from] Error),
}

impl IntoResponse for ChangeListError {
    fn into_response(self) -> Response {
        let status = match self {
            ChangeListError::NoTree => StatusCode::NOT_FOUND,
            ChangeListError::NoBase => StatusCode::CONFLICT,
            ChangeListError::Error(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, Json(json!({ "message": whole(&self) }))).into_response()
    }
}

async fn changes(State((state, pod)): State<(Arc<ShimState>, Uid)>) -> Result<Json<ChangeList>, ChangeListError> {
    let tree = state.publish_records.of_pod(pod).into_iter().find_map(|p| p.shows.tree());
    let tree = tree.ok_or(ChangeListError::NoTree)?;
    let since = since(&state, tree).await?.ok_or(ChangeListError::NoBase)?;
    let turn = state.sockets.lists.acquire().await.map_err(|e| Error::Task(io::Error::other(e)))?;
    let log_context =
        LogContext { object: state.cache.get(tree).map(|ws| provision_controller::object_name(&ws)), ..LogContext::default() };
    let (changes, cut) = log_context.scope(state.mounter.changes(tree, since, LIMIT)).await.map_err(Error::Mounter)?;
    drop(turn);
    let spelled = |c: yoi_workspace::Change| ChangedPath { path: c.path.to_string_lossy().into_owned(), kind: kind(c.kind) };
    Ok(Json(ChangeList { changes: changes.into_iter().map(spelled).collect(), cut }))
}

/// What a tree's changes are counted from: the base that its record names, or nothing (the inner None). The outer None: it is gone.
async fn since(state: &ShimState, tree: Uid) -> Result<Option<Option<Uid>>, Error> {
    state
        .journal(move |journal| {
            Ok(match journal.get(tree)?.map(|r| r.since) {
                None => None,
                Some(Since::Nothing) => Some(None),
                Some(Since::Tree(base)) => journal.get(base)?.map(|_| Some(base)),
                Some(Since::Unknown) => sealed_ancestor(journal, tree)?.map(Some),
            })
        })
        .await
}

/// For records that do not name their base: the nearest ancestor that is never written.
fn sealed_ancestor(journal: &Journal, tree: Uid) -> Result<Option<Uid>, JournalError> {
    let mut at = tree;
    for _ in 0..ANCESTORS {
        let Some(record) = journal.get(at)? else { return Ok(None) };
        if at != tree && record.state == Life::Sealed {
            return Ok(Some(at));
        }
        match record.making {
            Making::Clone { from, .. } => at = from,
            Making::Empty { .. } => return Ok(None),
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::{BoxFuture, join_all};
    use yoi_workspace::{CloneAccess, Owner, ProviderKind};

    use super::*;
    use crate::fixtures::uid;
    use crate::mounter::client::{Mounter, MounterFailure};
    use crate::mounter::protocol::{Request, Response as MounterResponse};
    use crate::shim::csi_tests::TestShim;
    use crate::volume::{PodVolume, PublishRecord, PublishedVolume};

    #[derive(Default)]
    struct Slow {
        now: AtomicUsize,
        most: AtomicUsize,
    }

    impl Mounter for Slow {
        fn call(&self, _: Request) -> BoxFuture<'_, Result<MounterResponse, MounterFailure>> {
            Box::pin(async {
                let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
                self.most.fetch_max(now, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(10)).await;
                self.now.fetch_sub(1, Ordering::SeqCst);
                Ok(MounterResponse::Changes { changes: vec![], cut: false })
            })
        }
    }

    #[tokio::test]
    async fn agents_that_ask_much_leave_the_mounter_turns_for_mounts() {
        let (dir, slow) = (tempfile::tempdir().unwrap(), Arc::new(Slow::default()));
        let state = TestShim::with(dir.path().to_owned(), slow.clone()).state;
        let owner = Owner { uid: 1000, gid: 1000 };
        state.journal.begin_create(uid(1), ProviderKind::Btrfs, Making::Empty { owner }).unwrap();
        state.journal.created(uid(1)).unwrap();
        state.journal.begin_seal(uid(1)).unwrap();
        state.journal.sealed(uid(1)).unwrap();
        state.journal.begin_create(uid(2), ProviderKind::Btrfs, Making::Clone { from: uid(1), access: CloneAccess::ReadWrite }).unwrap();
        state.journal.created(uid(2)).unwrap();
        let volume = PodVolume { pod: uid(7), name: "tree".parse().unwrap() };
        let shows = PublishedVolume::Tree { tree: uid(2), read_only: false };
        state.publish_records.put(PublishRecord { volume, shows }).await.unwrap();
        let all = join_all((0..40).map(|_| changes(State((state.clone(), uid(7)))))).await;
        assert!(all.iter().all(Result::is_ok));
        assert!((1..=LISTS).contains(&slow.most.load(Ordering::SeqCst)), "{slow:?}", slow = slow.most);
    }
}
