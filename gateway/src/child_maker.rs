//! Makes and stops the children of agents: YoiPods that bear in `spec.spawnedBy` who asked for them.
//!
//! # Guarantees
//! * What a child is comes from its parent's object and `yoi_plan::children` alone, never from the request. Where paths are lent, they are closed to the parent
//!   before the child is made.
//! * A request makes one child, however often it is sent.
//! * Only a child of the caller is stopped, and no namesake of it.
//!
//! # Caveats
//! Children are counted by a listing before one is made. Requests of one agent to one replica wait for each other; each further replica that it asks at the
//! same moment may make one child more than the limit.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use tokio::time::timeout;
use yoi_crds::YoiPod;
use yoi_crds::pod::DesiredState;
use yoi_plan::children::{check_limit, check_request, child_by_claim, child_of, is_made_by};
use yoi_plan::visibility::{agent_ref, is_agent_name};
use yoi_wire::children::{LoansRequest, LoansResponse, SpawnRequest, SpawnResponse, StopResponse};
use yoi_wire::entry::AgentRef;
use yoi_wire::hub::{Refusal, RefusalReason};

use crate::agent_concurrency::AgentConcurrency;
use crate::agent_index::{AgentIndex, AgentRecord};
use crate::identity::AuthenticatedAgent;
use crate::loan_maker::{Asked, LoanMaker};
use crate::ttl_cache::TtlCache;

/// Requests to the API server for one child: the parent, its children, the child, and the child that is there already.
const REQUESTS: u32 = 4;
/// For names that an agent has not started the API server is asked this often at most.
const PAUSE: Duration = Duration::from_secs(1);

/// Makes children, and stops them.
pub struct ChildMaker {
    client: Client,
    agents: Arc<AgentIndex>,
    loans: LoanMaker,
    deadline: Duration,
    /// How long a request with a loan may take.
    loan_deadline: Duration,
    /// One at a time of each parent.
    spawns: AgentConcurrency,
    /// UIDs of the agents for which a child was looked for lately.
    asked: TtlCache<String, ()>,
}

impl ChildMaker {
    /// `deadline` is for one request to the API server, `loan_deadline` for all of a request that lends.
    pub fn new(client: Client, agents: Arc<AgentIndex>, loans: LoanMaker, deadline: Duration, loan_deadline: Duration) -> Self {
        ChildMaker { client, agents, loans, deadline, loan_deadline, spawns: AgentConcurrency::new(1), asked: TtlCache::new(PAUSE) }
    }

    /// Makes the child, unless this request has made it.
    pub async fn spawn(&self, parent: &AuthenticatedAgent, request: &SpawnRequest) -> Result<SpawnResponse, Refusal> {
        check_request(&parent.agent, request)?;
        let within = if request.share.is_some() { self.loan_deadline } else { self.deadline.saturating_mul(REQUESTS) };
        let make = async {
            let _one_at_a_time = self.spawns.acquire(&parent.agent.uid).await;
            self.make(parent, request).await
        };
        timeout(within, make).await.unwrap_or_else(|_| {
            Err(unacknowledged(format!(
                "{} may have been made: the API server did not answer within {}",
                request.name,
                crate::seconds(within)
            )))
        })
    }

    async fn make(&self, caller: &AuthenticatedAgent, request: &SpawnRequest) -> Result<SpawnResponse, Refusal> {
        let parent = &caller.agent;
        let api = Api::<YoiPod>::namespaced(self.client.clone(), &parent.namespace);
        let object = api.get(&parent.name).await.map_err(|error| not_made(&request.name, &error))?;
        if object.uid().as_deref() != Some(&parent.uid) {
            let message = format!("{} was replaced by another YoiPod of its name", parent.name);
            return Err(Refusal { reason: RefusalReason::NotMade, message });
        }
        let child = child_of(&object, request)?;
        // Not from the watch, which another replica's children reach a moment later.
        let siblings = ListParams::default().fields(&format!("spec.spawnedBy.uid={}", parent.uid));
        let siblings = api.list(&siblings).await.map_err(|error| not_made(&request.name, &error))?.items;
        if let Some(existing) = siblings.iter().find(|sibling| sibling.name_any() == request.name) {
            return duplicate(existing, parent, request);
        }
        check_limit(&object, siblings.len())?;
        let Some(share) = &request.share else { return self.create(&api, parent, request, &child).await };
        // A name that is taken is told before anything is closed.
        if let Some(existing) = api.get_opt(&request.name).await.map_err(|error| not_made(&request.name, &error))? {
            return duplicate(&existing, parent, request);
        }
        let lent = self.loans.lend(&Asked { lender: &object, pod_uid: &caller.pod_uid, request, share }).await?;
        let child = child_by_claim(&object, request, &lent.tree, &lent.claim)?;
        let made = self.create(&api, parent, request, &child).await;
        if let Err(refusal) = &made
            && refusal.reason != RefusalReason::Unacknowledged
        {
            self.loans.give_back(&object, &lent.claim.loan, &refusal.message).await;
        }
        made
    }

    /// The loans of the caller's tree.
    pub async fn loans(&self, caller: &AuthenticatedAgent, request: &LoansRequest) -> Result<LoansResponse, Refusal> {
        let name = &caller.agent.name;
        let api = Api::<YoiPod>::namespaced(self.client.clone(), &caller.agent.namespace);
        let unread = |why: String| Refusal {
            reason: RefusalReason::Unreachable,
            message: format!("the loans of {name} cannot be read: {why}; try again"),
        };
        let lender = match timeout(self.deadline, api.get(name)).await {
            Ok(Ok(lender)) => lender,
            Ok(Err(error)) => return Err(unread(yoi_wire::error_chain(&error))),
            Err(_) => return Err(unread(format!("the API server did not answer within {}", crate::seconds(self.deadline)))),
        };
        self.loans.loans(&lender, &caller.agent.uid, request).await
    }

    async fn create(&self, api: &Api<YoiPod>, parent: &AgentRef, request: &SpawnRequest, child: &YoiPod) -> Result<SpawnResponse, Refusal> {
        match api.create(&PostParams::default(), child).await {
            Ok(made) => {
                let agent = agent_ref(&made);
                tracing::info!(object = %agent, uid = agent.uid, parent = parent.name, parent_uid = parent.uid, "child made");
                let loan = loan_of(&made);
                self.agents.learn(made);
                Ok(SpawnResponse { agent, duplicate: false, loan })
            }
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {
                let existing = api.get(&request.name).await.map_err(|error| not_made(&request.name, &error))?;
                duplicate(&existing, parent, request)
            }
            Err(kube::Error::Api(status)) => {
                let message = format!("the API server refused {}: {}", request.name, status.message);
                Err(Refusal { reason: RefusalReason::NotMade, message })
            }
            Err(error) => Err(unacknowledged(format!("{} may have been made: {}", request.name, yoi_wire::error_chain(&error)))),
        }
    }

    /// Reads an agent into the index that another replica may have made a moment ago. Returns whether the index may know more now.
    pub async fn look_again(&self, parent: &AgentRef, name: &str) -> bool {
        let now = Instant::now();
        if !is_agent_name(name) || self.asked.get(&parent.uid, now).is_some() {
            return false;
        }
        self.asked.insert(parent.uid.clone(), (), now);
        let api = Api::<YoiPod>::namespaced(self.client.clone(), &parent.namespace);
        match timeout(self.deadline, api.get_opt(name)).await {
            Ok(Ok(Some(pod))) => {
                self.agents.learn(pod);
                true
            }
            Ok(Ok(None)) | Err(_) => false,
            Ok(Err(error)) => {
                tracing::warn!(yoipod = format!("{}/{name}", parent.namespace), %error, "failed to read a YoiPod that the watch does not show");
                false
            }
        }
    }

    /// Sets the child's desired state. Whether it has ended, its status says.
    pub async fn stop(&self, child: &AgentRecord) -> Result<StopResponse, Refusal> {
        let agent = child.name.clone();
        if child.desired == DesiredState::Stopped {
            return Ok(StopResponse { agent, duplicate: true });
        }
        let api = Api::<YoiPod>::namespaced(self.client.clone(), &agent.namespace);
        // With the UID, so that a namesake is not stopped.
        let patch = serde_json::json!({ "metadata": { "uid": agent.uid }, "spec": { "desiredState": DesiredState::Stopped } });
        let why = match timeout(self.deadline, api.patch(&agent.name, &PatchParams::default(), &Patch::Merge(&patch))).await {
            Ok(Ok(stopped)) => {
                tracing::info!(object = %agent, uid = agent.uid, "child stopped by its parent");
                self.agents.learn(stopped);
                return Ok(StopResponse { agent, duplicate: false });
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => {
                let message = format!("{} was deleted meanwhile", agent.name);
                return Err(Refusal { reason: RefusalReason::NotAChild, message });
            }
            Ok(Err(error)) => yoi_wire::error_chain(&error),
            Err(_) => format!("the API server did not answer within {}", crate::seconds(self.deadline)),
        };
        tracing::warn!(object = %agent, uid = agent.uid, error = why, "child not stopped");
        Err(unacknowledged(format!("{} may not be stopped: {why}; stop it again", agent.name)))
    }
}

fn duplicate(existing: &YoiPod, parent: &AgentRef, request: &SpawnRequest) -> Result<SpawnResponse, Refusal> {
    is_made_by(existing, parent, request)?;
    Ok(SpawnResponse { agent: agent_ref(existing), duplicate: true, loan: loan_of(existing) })
}

fn loan_of(child: &YoiPod) -> Option<String> {
    child.spec.spawned_by.as_ref()?.loan.clone()
}

/// Of a request before the child's own: nothing was made.
fn not_made(name: &str, error: &kube::Error) -> Refusal {
    Refusal { reason: RefusalReason::NotMade, message: format!("{name} was not made: {}; try again", yoi_wire::error_chain(error)) }
}

fn unacknowledged(message: String) -> Refusal {
    Refusal { reason: RefusalReason::Unacknowledged, message }
}
