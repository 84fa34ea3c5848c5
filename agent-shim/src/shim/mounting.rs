//! The mounting door: waits for the making door, mounts, remembers. Never makes a tree and never calls the API server.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tracing::Instrument;
use yoi_workspace::{CloneAccess, Uid};

use super::publish::{Exhibit, Publication};
use super::runtimes::RuntimeError;
use super::world::{Trouble, World};
use crate::chain::whole;
use crate::decide::mounting::{self, Asked, Known, Passage, Wish};
use crate::mounter::client::Failure;
use crate::mounter::verb::Digest;
use crate::mounter::whose::Whose;
use crate::volume::PodVolume;

/// The kubelet gives up after 120 s, and its own back-off grows to 122 s: waiting here is always the faster way.
const PATIENCE: Duration = Duration::from_secs(90);
/// For a workspace that the API server does not place on this node: its YoiPod may be gone already, the operator never says a word of it, and while
/// the call lasts the kubelet cannot take the Pod's folder away. Before the API server was heard nothing is known of any.
const UNHEARD_OF: Duration = Duration::from_secs(10);

/// Why a volume was not mounted, by what the kubelet must know of it.
#[derive(Debug, thiserror::Error)]
pub enum NotMounted {
    /// Nothing is mounted; asking again may help once an object has changed.
    #[error("{0}")]
    Closed(String),
    /// Nothing is mounted yet; the sentence says what is missing.
    #[error("{0}")]
    NotYet(String),
    /// It failed and was cleaned up: nothing is mounted.
    #[error("{}", whole(.0))]
    Failed(Trouble),
    /// It failed, and something may be left: the kubelet must unpublish.
    #[error("{}", whole(.0))]
    Unclear(Trouble),
}

/// Mounts, within the kubelet's patience.
pub async fn publish(world: &Arc<World>, asked: Asked) -> Result<(), NotMounted> {
    let shows = admit(world, &asked).await.map_err(|error| match error {
        // An earlier call may have left a mount, and after a final code the kubelet would never take it down.
        NotMounted::Closed(why) if world.publications.get(&asked.volume).is_some() => NotMounted::NotYet(why),
        NotMounted::Failed(trouble) if world.publications.get(&asked.volume).is_some() => NotMounted::Unclear(trouble),
        other => other,
    })?;
    // The kubelet may hang up; a mount that has begun is finished or undone all the same.
    let (world, volume) = (world.clone(), asked.volume);
    let work = Whose::now().during(async move { mount(&world, volume, shows).await });
    tokio::spawn(work.in_current_span()).await.map_err(|e| NotMounted::Unclear(Trouble::Task(std::io::Error::other(e))))?
}

async fn admit(world: &World, asked: &Asked) -> Result<Exhibit, NotMounted> {
    let begun = Instant::now();
    let (uid, inline) = match &asked.what {
        Wish::Runtime(digest) if world.runtimes.has(digest) => return Ok(Exhibit::Runtime { digest: digest.clone() }),
        Wish::Runtime(digest) => {
            // Only the next version of this shim brings it: its start ends this call, and the kubelet asks again at once.
            tokio::select! { () = world.stop.cancelled() => {}, () = tokio::time::sleep_until(begun + PATIENCE) => {} }
            return Err(NotMounted::NotYet(format!("node {} has no runtime {} yet", world.node, digest.as_str())));
        }
        Wish::Tree(uid) => (*uid, true),
        Wish::Claim(uid) => (*uid, false),
    };
    let mut bell = world.cache.bell(uid);
    loop {
        bell.mark_unchanged();
        let why = match look(world, asked, uid, inline).await.map_err(NotMounted::Failed)? {
            Passage::Open(access) => return Ok(Exhibit::Tree { tree: uid, read_only: access == CloneAccess::ReadOnly }),
            Passage::Closed(why) => return Err(NotMounted::Closed(why)),
            Passage::Wait(why) => why,
        };
        tracing::debug!(why, "a mount waits");
        let unheard_of = world.cache.is_synced() && world.cache.get(uid).is_none();
        let deadline = begun + if unheard_of { UNHEARD_OF } else { PATIENCE };
        tokio::select! {
            rung = timeout_at(deadline, bell.changed()) => match rung {
                Ok(Ok(())) => {}
                Ok(Err(_)) => bell = world.cache.bell(uid),
                Err(_) => return Err(NotMounted::NotYet(why)),
            },
            () = world.stop.cancelled() => return Err(NotMounted::NotYet(why)),
        }
    }
}

async fn look(world: &World, asked: &Asked, uid: Uid, inline: bool) -> Result<Passage, Trouble> {
    let record = match world.record(uid).await {
        // Of one tree nothing is known; the others are mounted as ever.
        Err(Trouble::Journal(error)) if error.damage().is_some() => return Ok(Passage::Closed(error.damage().unwrap_or_default())),
        read => read?,
    };
    let workspace = world.cache.get(uid);
    let before = world.publications.get(&asked.volume).map(|p| p.shows);
    let earlier = matches!(before, Some(Exhibit::Tree { tree, .. }) if tree == uid);
    let known = Known { node: &world.node, workspace: workspace.as_deref(), record: record.as_ref(), earlier };
    Ok(mounting::passage(uid, asked.volume.pod, inline, asked.read_only, &known))
}

async fn mount(world: &Arc<World>, volume: PodVolume, shows: Exhibit) -> Result<(), NotMounted> {
    let _volume = world.volumes.take(volume.clone()).await;
    let before = world.publications.get(&volume).map(|p| p.shows);
    let done = match &shows {
        Exhibit::Tree { tree, read_only } => {
            // Pods keep what they were given: the kubelet asks again for every volume when it restarts.
            let read_only = match &before {
                Some(Exhibit::Tree { tree: shown, read_only }) if shown == tree => *read_only,
                Some(Exhibit::Tree { .. } | Exhibit::Runtime { .. }) | None => *read_only,
            };
            show_tree(world, &volume, *tree, read_only).await
        }
        Exhibit::Runtime { digest } => show_runtime(world, &volume, digest).await,
    };
    let Err(trouble) = done else { return Ok(()) };
    // Lost on the way, the mount may be there; and one that was there before may be in use. The kubelet is told to unpublish.
    if before.is_some() || matches!(trouble, Trouble::Disk(Failure::Unheard(_) | Failure::Misheard)) {
        return Err(NotMounted::Unclear(trouble));
    }
    match take_down(world, &volume).await {
        Ok(()) => Err(NotMounted::Failed(trouble)),
        Err(error) => {
            tracing::warn!(error = whole(&error), "a failed mount was not cleaned up");
            Err(NotMounted::Unclear(trouble))
        }
    }
}

async fn show_tree(world: &World, volume: &PodVolume, tree: Uid, read_only: bool) -> Result<(), Trouble> {
    let _tree = world.trees.take(tree).await;
    let access = if read_only { CloneAccess::ReadOnly } else { CloneAccess::ReadWrite };
    world.journal(move |j| j.forget_object(tree)).await?;
    world.publications.put(Publication { volume: volume.clone(), shows: Exhibit::Tree { tree, read_only } }).await?;
    world.mounter.publish(tree, volume.clone(), access).await?;
    world.stir(tree);
    Ok(())
}

async fn show_runtime(world: &Arc<World>, volume: &PodVolume, digest: &Digest) -> Result<(), Trouble> {
    world.runtimes.prepare(volume.pod, digest)?;
    world.publications.put(Publication { volume: volume.clone(), shows: Exhibit::Runtime { digest: digest.clone() } }).await?;
    world.sockets.open(world, volume.pod).map_err(|source| RuntimeError::Prepare { pod: volume.pod, source })?;
    Ok(world.mounter.publish_runtime(volume.clone(), digest.clone()).await?)
}

/// Unmounts and forgets. Unknown is done.
pub async fn unpublish(world: &World, volume: &PodVolume) -> Result<(), Trouble> {
    let _volume = world.volumes.take(volume.clone()).await;
    take_down(world, volume).await
}

async fn take_down(world: &World, volume: &PodVolume) -> Result<(), Trouble> {
    world.mounter.unpublish(volume.clone()).await?;
    let shown = world.publications.get(volume).map(|p| p.shows);
    world.publications.remove(volume).await?;
    match shown {
        Some(Exhibit::Tree { tree, .. }) => world.stir(tree),
        Some(Exhibit::Runtime { .. }) | None => leave(world, volume.pod)?,
    }
    Ok(())
}

/// The Pod's folder goes with its last runtime volume.
fn leave(world: &World, pod: Uid) -> Result<(), RuntimeError> {
    let used = world.publications.of_pod(pod).iter().any(|p| matches!(p.shows, Exhibit::Runtime { .. }));
    if !used {
        world.sockets.close(pod);
        world.runtimes.remove(pod)?;
    }
    Ok(())
}

/// After a restart: the sockets of the Pods that are shown the runtime, and no folder for the others.
pub async fn reopen(world: &Arc<World>) -> Result<(), Trouble> {
    let mut kept = Vec::new();
    for record in world.publications.all() {
        if let Exhibit::Runtime { digest } = &record.shows {
            let pod = record.volume.pod;
            kept.push(pod);
            if !world.runtimes.pod_dir(pod).join(yoi_wire::identity::RUNTIME_BINARY).exists() {
                world.runtimes.prepare(pod, digest)?;
            }
            world.sockets.open(world, pod).map_err(|source| RuntimeError::Prepare { pod, source })?;
        }
    }
    let shown = world.mounter.mounts().await?.shown;
    for pod in world.runtimes.pods().map_err(Trouble::Task)? {
        if !kept.contains(&pod) && !shown.iter().any(|s| s.volume.pod == pod) {
            world.runtimes.remove(pod)?;
        }
    }
    Ok(())
}
