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
use yoi_workspace::{ChangeBase, Journal, JournalError, RecordState as Life, TreeOrigin, Uid};

use super::door;
use super::world::{Trouble, World};
use crate::chain::whole;
use crate::mounter::whose::Whose;

/// The most that a change list holds.
const LIMIT: u32 = 10_000;
const CONNECTIONS: usize = 4;
const PATIENCE: Duration = Duration::from_secs(5);
/// A fork of a fork of a fork; an end for a journal that a person has edited into a ring.
const ANCESTORS: usize = 64;

/// Change lists that are made at the same time, for all Pods together: the mounter's other turns are for mounts.
const LISTS: usize = 8;

pub struct Sockets {
    served: Mutex<HashMap<Uid, AbortOnDropHandle<()>>>,
    lists: Semaphore,
}

impl Default for Sockets {
    fn default() -> Self {
        Sockets { served: Mutex::default(), lists: Semaphore::new(LISTS) }
    }
}

impl Sockets {
    /// Serves the Pod's socket in its folder. An older socket of the name is replaced in one step, so that a Pod which connects again
    /// and again never finds none.
    pub fn open(&self, world: &Arc<World>, pod: Uid) -> io::Result<()> {
        let mut served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        if served.contains_key(&pod) {
            return Ok(());
        }
        let listener = bind(&world.runtimes.pod_dir(pod))?;
        let router = Router::new().route(CHANGES, get(changes)).with_state((world.clone(), pod));
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
enum NoList {
    #[error("this Pod mounts no tree")]
    NoTree,
    #[error("what the tree was made from is gone: there is nothing to compare it with")]
    NoBase,
    #[error(transparent)]
    Trouble(#[from] Trouble),
}

impl IntoResponse for NoList {
    fn into_response(self) -> Response {
        let status = match self {
            NoList::NoTree => StatusCode::NOT_FOUND,
            NoList::NoBase => StatusCode::CONFLICT,
            NoList::Trouble(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, Json(json!({ "message": whole(&self) }))).into_response()
    }
}

async fn changes(State((world, pod)): State<(Arc<World>, Uid)>) -> Result<Json<ChangeList>, NoList> {
    let tree = world.publications.of_pod(pod).into_iter().find_map(|p| p.shows.tree());
    let tree = tree.ok_or(NoList::NoTree)?;
    let since = since(&world, tree).await?.ok_or(NoList::NoBase)?;
    let turn = world.sockets.lists.acquire().await.map_err(|e| Trouble::Task(io::Error::other(e)))?;
    let whose = Whose { object: world.cache.get(tree).map(|ws| door::named(&ws)), ..Whose::default() };
    let (changes, cut) = whose.during(world.mounter.changes(tree, since, LIMIT)).await.map_err(Trouble::Disk)?;
    drop(turn);
    let spelled = |c: yoi_workspace::Change| ChangedPath { path: c.path.to_string_lossy().into_owned(), kind: kind(c.kind) };
    Ok(Json(ChangeList { changes: changes.into_iter().map(spelled).collect(), cut }))
}

/// What a tree's changes are counted from: the base that its record names, or nothing (the inner None). The outer None: it is gone.
async fn since(world: &World, tree: Uid) -> Result<Option<Option<Uid>>, Trouble> {
    world
        .journal(move |journal| {
            Ok(match journal.get(tree)?.map(|r| r.since) {
                None => None,
                Some(ChangeBase::Nothing) => Some(None),
                Some(ChangeBase::Tree(base)) => journal.get(base)?.map(|_| Some(base)),
                Some(ChangeBase::Unknown) => sealed_ancestor(journal, tree)?.map(Some),
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
        match record.origin {
            TreeOrigin::Clone { from, .. } => at = from,
            TreeOrigin::Empty { .. } => return Ok(None),
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
    use crate::mounter::client::{Failure, Mounter};
    use crate::mounter::verb::{Answer, Verb};
    use crate::sample::uid;
    use crate::shim::publish::{Exhibit, Publication};
    use crate::shim::tests::Stage;
    use crate::volume::PodVolume;

    #[derive(Default)]
    struct Slow {
        now: AtomicUsize,
        most: AtomicUsize,
    }

    impl Mounter for Slow {
        fn say(&self, _: Verb) -> BoxFuture<'_, Result<Answer, Failure>> {
            Box::pin(async {
                let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
                self.most.fetch_max(now, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(10)).await;
                self.now.fetch_sub(1, Ordering::SeqCst);
                Ok(Answer::Changes { changes: vec![], cut: false })
            })
        }
    }

    #[tokio::test]
    async fn agents_that_ask_much_leave_the_mounter_turns_for_mounts() {
        let (dir, slow) = (tempfile::tempdir().unwrap(), Arc::new(Slow::default()));
        let world = Stage::with(dir.path().to_owned(), slow.clone()).world;
        let owner = Owner { uid: 1000, gid: 1000 };
        world.journal.begin_create(uid(1), ProviderKind::Btrfs, TreeOrigin::Empty { owner }).unwrap();
        world.journal.record_created(uid(1)).unwrap();
        world.journal.begin_seal(uid(1)).unwrap();
        world.journal.record_sealed(uid(1)).unwrap();
        world
            .journal
            .begin_create(uid(2), ProviderKind::Btrfs, TreeOrigin::Clone { from: uid(1), access: CloneAccess::ReadWrite })
            .unwrap();
        world.journal.record_created(uid(2)).unwrap();
        let volume = PodVolume { pod: uid(7), name: "tree".parse().unwrap() };
        let shows = Exhibit::Tree { tree: uid(2), read_only: false };
        world.publications.put(Publication { volume, shows }).await.unwrap();
        let all = join_all((0..40).map(|_| changes(State((world.clone(), uid(7)))))).await;
        assert!(all.iter().all(Result::is_ok));
        assert!((1..=LISTS).contains(&slow.most.load(Ordering::SeqCst)), "{slow:?}", slow = slow.most);
    }
}
