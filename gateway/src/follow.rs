//! Watches that keep the [`AgentIndex`].

use std::sync::Arc;

use futures::StreamExt;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde::de::DeserializeOwned;
use yoi_crds::{YoiPeer, YoiPod};

use crate::agent_index::{AgentIndex, ObjectKey};

/// Follows both kinds until dropped.
pub async fn follow(client: Client, index: Arc<AgentIndex>) {
    let (agents, links) = (index.clone(), index);
    futures::join!(
        each(Api::<YoiPod>::all(client.clone()), move |change| match change {
            Change::All(pods) => agents.replace_agents(pods.into_iter().map(Into::into).collect()),
            Change::Put(pod) => drop(agents.insert(pod.into())),
            Change::Gone(pod) => {
                agents.remove_agent(&ObjectKey::new(pod.namespace().unwrap_or_default(), pod.name_any()), &pod.uid().unwrap_or_default());
            }
        }),
        each(Api::<YoiPeer>::all(client), move |change| match change {
            Change::All(peers) => links.replace_peer_links(peers.into_iter().map(Into::into).collect()),
            Change::Put(peer) => links.put_peer_link(peer.into()),
            Change::Gone(peer) => links.remove_peer_link(&ObjectKey::new(peer.namespace().unwrap_or_default(), peer.name_any())),
        })
    );
}

enum Change<K> {
    All(Vec<K>),
    Put(K),
    Gone(K),
}

async fn each<K>(api: Api<K>, take: impl Fn(Change<K>))
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    // A list arrives in pieces and counts only when it is whole: half a list would make agents vanish for a moment.
    let mut listing = Vec::new();
    let mut stream = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff());
    while let Some(event) = stream.next().await {
        match event {
            Ok(Event::Init) => listing.clear(),
            Ok(Event::InitApply(object)) => listing.push(object),
            Ok(Event::InitDone) => take(Change::All(std::mem::take(&mut listing))),
            Ok(Event::Apply(object)) => take(Change::Put(object)),
            Ok(Event::Delete(object)) => take(Change::Gone(object)),
            Err(error) => tracing::warn!(kind = %K::kind(&()), %error, "watch broke and is tried again"),
        }
    }
}
