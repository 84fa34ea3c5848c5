//! `RegisterPeer`: an attached person makes a peer for the agent, with the person's own rights.
//!
//! # Order
//! The name is checked before anything is looked up. Then the runtime answers, because it alone knows whether a run is under way. Then the person's
//! rights are checked, and only who has them learns whether the other agent exists. The YoiPeer is made last. Each step can be repeated, so the same
//! request may be sent again.

use yoi_plan::visibility::check_name;
use yoi_wire::control::{ControlReason, ControlRefusal};

use super::target::forbidden;
use crate::GatewayState;
use crate::access::{AccessRequest, AccessResource};
use crate::agent_index::AgentRecord;
use crate::front_proxy::User;

/// Refuses a name that no other agent can have.
pub fn check_peer_name(record: &AgentRecord, peer: &str) -> Result<(), ControlRefusal> {
    check_name(&record.name, peer).map_err(|refusal| {
        let message = if peer == record.name.name { format!("{peer} cannot be its own peer") } else { refusal.message };
        ControlRefusal { reason: ControlReason::Invalid, message }
    })
}

/// Makes the YoiPeer. Returns a sentence with both names.
pub async fn register_peer(gateway: &GatewayState, user: &User, record: &AgentRecord, peer: &str) -> Result<String, ControlRefusal> {
    let failed = |message: String| ControlRefusal { reason: ControlReason::Failed, message };
    let namespace = &record.name.namespace;
    let request = |verb, plural, name: &str| AccessRequest {
        verb,
        resource: AccessResource::Objects(plural),
        namespace: namespace.clone(),
        name: name.to_owned(),
    };
    for request in [request("create", "yoipeers", ""), request("get", "yoipods", peer)] {
        match gateway.access.is_allowed(user, &request).await {
            Ok(true) => {}
            Ok(false) => return Err(failed(forbidden(&user.name, &request))),
            Err(error) => {
                tracing::warn!(error = yoi_wire::error_chain(&error), "caller's rights unknown");
                return Err(failed(format!("{error}; try again")));
            }
        }
    }
    let Some(other) = gateway.agents.get(namespace, peer) else {
        return Err(failed(format!("YoiPod {namespace}/{peer} does not exist; see kubectl get yoipods -n {namespace}")));
    };
    gateway.peers.join(record, &other).await.map_err(|error| {
        tracing::warn!(object = %record.name, peer, error = yoi_wire::error_chain(&error), "peer not made");
        failed(error.to_string())
    })
}
