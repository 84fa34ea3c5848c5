//! The watch and the queue around the making door.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use kube::api::Api;
use kube::runtime::controller::{self, Action, Controller};
use kube::runtime::reflector::{self, ObjectRef};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tracing::Instrument;
use yoi_crds::AgentWorkspace;
use yoi_workspace::Uid;

use super::cache::uid_of;
use super::making::{self, Next, Outcome};
use super::report::Reports;
use super::vanished;
use super::world::{Trouble, World};
use crate::chain::whole;
use crate::mounter::whose::Whose;

/// Trees made, sealed or destroyed side by side.
const AT_ONCE: u16 = 32;
/// A making that takes longer is announced.
const SILENCE: Duration = Duration::from_secs(1);

struct Door {
    world: Arc<World>,
    reports: Reports,
    failures: Mutex<HashMap<Uid, u32>>,
}

#[derive(Debug, thiserror::Error)]
enum NotDone {
    #[error(transparent)]
    Trouble(#[from] Trouble),
    #[error("failed to report to the API server")]
    Report(#[from] kube::Error),
}

/// Runs until the world stops.
pub async fn run(world: Arc<World>, client: Client, nudges: UnboundedReceiver<ObjectRef<AgentWorkspace>>) {
    let api: Api<AgentWorkspace> = Api::all(client.clone());
    let mine = watcher::Config::default().fields(&format!("status.nodeName={}", world.node));
    let (reader, writer) = reflector::store();
    let told = world.clone();
    let (tell, news) = unbounded_channel();
    let stream = watcher(api, mine)
        .default_backoff()
        .modify(|ws| ws.managed_fields_mut().clear())
        .inspect(move |event| match event {
            Ok(event) => {
                told.cache.heard(event);
                if let Some(news) = vanished::news(event) {
                    _ = tell.send(news);
                }
            }
            Err(error) => tracing::warn!(error = whole(error), "the watch of workspaces broke"),
        })
        .reflect(writer)
        .applied_objects();
    let buried = vanished::run(world.clone(), client.clone(), news);
    let door = Arc::new(Door { reports: Reports::new(client, &world.node), failures: Mutex::default(), world: world.clone() });
    let work = Controller::for_stream(stream, reader)
        .with_config(controller::Config::default().concurrency(AT_ONCE))
        .reconcile_on(UnboundedReceiverStream::new(nudges))
        .run(reconcile, give_up, door)
        .for_each(|_| async {});
    tokio::select! {
        () = work => {}
        () = buried => {}
        () = world.stop.cancelled() => {}
    }
}

/// Every line that is logged on the way says whose it is.
async fn reconcile(queued: Arc<AgentWorkspace>, door: Arc<Door>) -> Result<Action, NotDone> {
    let (object, uid) = (named(&queued), queued.metadata.uid.clone().unwrap_or_default());
    let span = tracing::info_span!("workspace", object, uid);
    let whose = Whose { object: Some(object), uid: Some(uid), ..Whose::default() };
    whose.during(look(queued, door)).instrument(span).await
}

pub fn named(ws: &AgentWorkspace) -> String {
    format!("{}/{}", ws.namespace().unwrap_or_default(), ws.name_any())
}

async fn look(queued: Arc<AgentWorkspace>, door: Arc<Door>) -> Result<Action, NotDone> {
    let world = &door.world;
    let Some(uid) = uid_of(&queued) else {
        tracing::error!("a workspace's UID is no UUID");
        return Ok(Action::await_change());
    };
    // The cache has what we wrote last; the controller's store may not have heard of it yet.
    let Some(ws) = world.cache.get(uid) else { return Ok(door.rested(uid)) };
    let mut work = std::pin::pin!(making::work(world, &ws, uid));
    let done = tokio::select! {
        done = &mut work => done,
        () = tokio::time::sleep(SILENCE) => {
            if let Some(said) = making::creating(&ws) {
                door.reports.say(&world.cache, &ws, said, Timestamp::now()).await?;
            }
            work.await
        }
    };
    let Outcome { said, next } = done?;
    let latest = || world.cache.get(uid).unwrap_or_else(|| ws.clone());
    door.reports.say(&world.cache, &latest(), said, Timestamp::now()).await?;
    match next {
        Next::Rest => Ok(door.rested(uid)),
        Next::Retry => Ok(Action::requeue(door.failed(uid))),
        Next::LetGo => {
            door.reports.let_go(&latest()).await?;
            Ok(door.rested(uid))
        }
    }
}

fn give_up(ws: Arc<AgentWorkspace>, error: &NotDone, door: Arc<Door>) -> Action {
    let (object, uid) = (named(&ws), ws.metadata.uid.as_deref());
    tracing::warn!(object, uid, error = whole(error), "failed to reconcile a workspace");
    Action::requeue(uid_of(&ws).map_or(SILENCE, |uid| door.failed(uid)))
}

impl Door {
    fn rested(&self, uid: Uid) -> Action {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).remove(&uid);
        Action::await_change()
    }

    fn failed(&self, uid: Uid) -> Duration {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let count = failures.entry(uid).or_default();
        *count += 1;
        making::pause(*count)
    }
}
