//! Asks the API server for a YoiPeer before a message is refused for it: a watch shows a YoiPeer a moment after its condition says Ready, and
//! whoever saw that may send at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::{Api, Client};
use tokio::time::timeout;
use yoi_crds::YoiPeer;
use yoi_plan::visibility::yoipeer_name;
use yoi_wire::entry::AgentRef;

use crate::agent_index::AgentIndex;
use crate::ttl_cache::TtlCache;

/// An agent's refused messages ask the API server this often at most, so that one that sends in a loop is no load on it.
const PAUSE: Duration = Duration::from_secs(1);

/// Reads YoiPeers that the watch may not have shown yet.
pub struct PeerLookup {
    client: Client,
    agents: Arc<AgentIndex>,
    /// UIDs of the agents for which one was read lately.
    asked: TtlCache<String, ()>,
    deadline: Duration,
}

impl PeerLookup {
    pub fn new(client: Client, agents: Arc<AgentIndex>, deadline: Duration) -> Self {
        PeerLookup { client, agents, asked: TtlCache::new(PAUSE), deadline }
    }

    /// Reads the YoiPeer of the two into the index. Returns whether the index may know more now; without an answer it is as it was.
    pub async fn look_again(&self, caller: &AgentRef, to: &str) -> bool {
        let now = Instant::now();
        if self.asked.get(&caller.uid, now).is_some() {
            return false;
        }
        self.asked.insert(caller.uid.clone(), (), now);
        let name = yoipeer_name(&caller.name, to);
        let api = Api::<YoiPeer>::namespaced(self.client.clone(), &caller.namespace);
        match timeout(self.deadline, api.get_opt(&name)).await {
            Ok(Ok(Some(peer))) => {
                self.agents.learn_peer(peer);
                true
            }
            Ok(Ok(None)) => false,
            Ok(Err(error)) => {
                tracing::warn!(yoipeer = format!("{}/{name}", caller.namespace), %error, "failed to read a YoiPeer that the watch does not show");
                false
            }
            Err(_) => {
                tracing::warn!(yoipeer = format!("{}/{name}", caller.namespace), within = ?self.deadline, "timed out reading a YoiPeer");
                false
            }
        }
    }
}
