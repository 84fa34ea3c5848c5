//! Starts a stopped agent again for another one, and stops it again when it does not come up.
//!
//! # Guarantees
//! * Of requests that race, one starts the agent: the write carries the version of the object that was judged.
//! * Nothing of the object is changed but its desired state, and no namesake is touched.

use std::sync::Arc;
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use tokio::time::timeout;
use yoi_crds::YoiPod;
use yoi_crds::pod::DesiredState;
use yoi_plan::visibility::agent_ref;
use yoi_wire::entry::AgentRef;
use yoi_wire::hub::{Refusal, RefusalReason};

use crate::agent_index::AgentIndex;

/// Sets the desired state of agents.
pub struct Restorer {
    client: Client,
    agents: Arc<AgentIndex>,
    /// For one request to the API server.
    deadline: Duration,
}

impl Restorer {
    /// `deadline` is for one request to the API server.
    pub fn new(client: Client, agents: Arc<AgentIndex>, deadline: Duration) -> Self {
        Restorer { client, agents, deadline }
    }

    /// The object as it is now, if it is still this agent's.
    pub async fn object(&self, agent: &AgentRef) -> Result<YoiPod, Refusal> {
        let api = Api::<YoiPod>::namespaced(self.client.clone(), &agent.namespace);
        let found = match timeout(self.deadline, api.get_opt(&agent.name)).await {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => return Err(unacknowledged(&agent.name, &yoi_wire::error_chain(&error))),
            Err(_) => return Err(unacknowledged(&agent.name, &self.no_answer())),
        };
        found.filter(|pod| pod.uid().as_deref() == Some(&agent.uid)).ok_or_else(|| gone(&agent.name))
    }

    /// Starts the agent, if its object is still the one that was judged.
    pub async fn start(&self, judged: &YoiPod) -> Result<(), Refusal> {
        let agent = agent_ref(judged);
        let metadata = serde_json::json!({ "uid": agent.uid, "resourceVersion": judged.resource_version() });
        match self.set(&agent, metadata, DesiredState::Running).await {
            Ok(()) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 => Err(Refusal {
                reason: RefusalReason::AlreadyLive,
                message: format!(
                    "{} was changed at this very moment, perhaps by another request that restores it: see how it is",
                    agent.name
                ),
            }),
            Err(kube::Error::Api(status)) if status.code == 404 => Err(gone(&agent.name)),
            Err(error) => Err(unacknowledged(&agent.name, &yoi_wire::error_chain(&error))),
        }
    }

    /// Stops an agent that was started and did not come up. That it could not be stopped is logged.
    pub async fn stop_again(&self, agent: &AgentRef) {
        if let Err(error) = self.set(agent, serde_json::json!({ "uid": agent.uid }), DesiredState::Stopped).await {
            tracing::warn!(object = %agent, uid = agent.uid, error = yoi_wire::error_chain(&error), "agent that did not come up not stopped");
        }
    }

    async fn set(&self, agent: &AgentRef, metadata: serde_json::Value, state: DesiredState) -> kube::Result<()> {
        let api = Api::<YoiPod>::namespaced(self.client.clone(), &agent.namespace);
        let patch = serde_json::json!({ "metadata": metadata, "spec": { "desiredState": state } });
        let late = || kube::Error::Service(self.no_answer().into());
        let pod =
            timeout(self.deadline, api.patch(&agent.name, &PatchParams::default(), &Patch::Merge(&patch))).await.map_err(|_| late())??;
        tracing::info!(object = %agent, uid = agent.uid, state = state_name(state), "desired state set for an agent that restores it");
        self.agents.learn(pod);
        Ok(())
    }

    fn no_answer(&self) -> String {
        format!("the API server did not answer within {}", crate::seconds(self.deadline))
    }
}

fn state_name(state: DesiredState) -> &'static str {
    match state {
        DesiredState::Running => "Running",
        DesiredState::Suspended => "Suspended",
        DesiredState::Stopped => "Stopped",
        DesiredState::Unknown => "Unknown",
    }
}

/// It was deleted, or another YoiPod has its name.
pub fn gone(name: &str) -> Refusal {
    Refusal { reason: RefusalReason::NotRestorable, message: format!("{name} is gone, and nothing of it can be restored") }
}

fn unacknowledged(name: &str, why: &str) -> Refusal {
    Refusal { reason: RefusalReason::Unacknowledged, message: format!("{name} may have been started: {why}; see how it is, and try again") }
}
