//! Makes the YoiPeer that a person asks a running agent for.

use std::sync::Arc;
use std::time::Duration;

use kube::api::PostParams;
use kube::{Api, Client};
use tokio::time::timeout;
use yoi_crds::{YoiPeer, YoiPeerSpec};
use yoi_plan::visibility::{PeerLink, yoipeer_name};

use crate::agent_index::{AgentIndex, AgentRecord};

/// Makes YoiPeers. Whoever calls it has checked the person's rights.
pub struct PeerCreator {
    client: Client,
    agents: Arc<AgentIndex>,
    deadline: Duration,
}

/// Why two agents were not joined.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    #[error("YoiPeer {0} is being deleted; try again when it is gone")]
    BeingDeleted(String),
    /// Who deletes it has to be able to, and the gateway is not asked for that.
    #[error("YoiPeer {yoipeer} joins a former agent of one of these names; make it anew with kubectl yoi peer {a} {b} -n {namespace}")]
    FormerMember { yoipeer: String, namespace: String, a: String, b: String },
    #[error("failed to make YoiPeer {yoipeer}: {message}")]
    Refused { yoipeer: String, message: String },
    #[error("failed to make YoiPeer {yoipeer}")]
    Create {
        yoipeer: String,
        #[source]
        source: kube::Error,
    },
    #[error("failed to make YoiPeer {yoipeer} within {}", crate::seconds(*.within))]
    TimedOut { yoipeer: String, within: Duration },
}

impl PeerCreator {
    pub fn new(client: Client, agents: Arc<AgentIndex>, deadline: Duration) -> Self {
        PeerCreator { client, agents, deadline }
    }

    /// Joins two agents of one namespace, unless they are joined. Neither is contacted. Returns a sentence with both names.
    pub async fn join(&self, a: &AgentRecord, b: &AgentRecord) -> Result<String, PeerError> {
        let (namespace, a_name, b_name) = (&a.name.namespace, &a.name.name, &b.name.name);
        let yoipeer = yoipeer_name(a_name, b_name);
        if let Some(link) = self.agents.peer_link(namespace, &yoipeer) {
            return existing(&link, a, b);
        }
        let mut members = vec![a_name.clone(), b_name.clone()];
        members.sort();
        let object = YoiPeer::new(&yoipeer, YoiPeerSpec { members });
        let api = Api::<YoiPeer>::namespaced(self.client.clone(), namespace);
        match timeout(self.deadline, api.create(&PostParams::default(), &object)).await {
            Ok(Ok(_)) => Ok(joined(&yoipeer, a_name, b_name)),
            // Another request has made it meanwhile.
            Ok(Err(kube::Error::Api(status))) if status.reason == "AlreadyExists" => Ok(joined(&yoipeer, a_name, b_name)),
            Ok(Err(kube::Error::Api(status))) => Err(PeerError::Refused { yoipeer, message: status.message.clone() }),
            Ok(Err(source)) => Err(PeerError::Create { yoipeer, source }),
            Err(_) => Err(PeerError::TimedOut { yoipeer, within: self.deadline }),
        }
    }
}

/// What the YoiPeer that is there already means for these two.
fn existing(link: &PeerLink, a: &AgentRecord, b: &AgentRecord) -> Result<String, PeerError> {
    let (a_name, b_name, yoipeer) = (&a.name.name, &b.name.name, link.name.clone());
    if link.deleting {
        return Err(PeerError::BeingDeleted(yoipeer));
    }
    let is_current = |uid: &str| uid == a.name.uid || uid == b.name.uid;
    if !link.bound.iter().all(|member| is_current(&member.uid)) {
        let (namespace, a, b) = (link.namespace.clone(), a_name.clone(), b_name.clone());
        return Err(PeerError::FormerMember { yoipeer, namespace, a, b });
    }
    if link.ready {
        Ok(format!("{a_name} and {b_name} see each other and may send messages"))
    } else {
        Ok(joined(&yoipeer, a_name, b_name))
    }
}

fn joined(yoipeer: &str, a: &str, b: &str) -> String {
    format!("{a} and {b} are joined by YoiPeer {yoipeer}: they see each other as soon as it is Ready")
}
