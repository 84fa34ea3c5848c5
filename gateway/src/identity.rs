//! Authentication of runtimes: which agent a token belongs to.
//!
//! # Flow
//! Bearer token → TokenReview with our audience → UID of the Pod it is bound to → the YoiPod whose `status.pod.uid` or
//! `status.reader.pod.uid` or `status.push.pod.uid` that is, in the service account's namespace. The body of a request plays no part.
//!
//! # Caveats
//! A Pod that runs no agent is looked for once in five seconds, however often it asks.
//! A revoked token is still accepted for [`GatewaySettings::review_ttl`](crate::GatewaySettings), ten seconds by default.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::api::ListParams;
use kube::{Api, Client};
use tokio::time::timeout;
use yoi_crds::YoiPod;
use yoi_wire::entry::AgentRef;

use crate::agent_concurrency::AgentConcurrency;
use crate::agent_index::{AgentIndex, AgentRecord};
use crate::metrics::GatewayMetrics;
use crate::token_review::{ReviewError, TokenPod, TokenReviewer};
use crate::ttl_cache::TtlCache;

/// How long a Pod that runs no agent is remembered. The index is looked at first each time, so an agent that comes meanwhile is found.
const WITHOUT_AGENT_TTL: Duration = Duration::from_secs(5);

/// The agent that sent a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthenticatedAgent {
    pub agent: AgentRef,
    pub pod_uid: String,
    pub run_generation: i64,
    pub role: PodRole,
}

/// What a Pod is to its agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodRole {
    /// It runs the agent.
    Agent,
    /// It reads the stopped agent. It may open a line, and nothing else.
    Reader,
    /// It pushes what the agent has committed. It may get that, and nothing else.
    Pusher,
}

#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("failed to find a bearer token in the request")]
    NoToken,
    #[error("failed to accept the token: {0}")]
    Refused(&'static str),
    #[error("failed to find a YoiPod in namespace {namespace} that is run by the Pod with UID {pod_uid}")]
    NoAgent { namespace: String, pod_uid: String },
    #[error("failed to ask the API server whose token it is")]
    Review(#[source] kube::Error),
    #[error("failed to ask the API server which YoiPod the Pod runs")]
    Lookup(#[source] kube::Error),
    #[error("failed to get the API server's answer within {}", crate::seconds(*.0))]
    TimedOut(Duration),
}

impl From<ReviewError> for IdentityError {
    fn from(error: ReviewError) -> Self {
        match error {
            ReviewError::Refused(why) => IdentityError::Refused(why),
            ReviewError::Review(source) => IdentityError::Review(source),
            ReviewError::TimedOut(within) => IdentityError::TimedOut(within),
        }
    }
}

/// Authenticates runtimes by their tokens.
pub struct Authenticator {
    client: Client,
    agents: Arc<AgentIndex>,
    reviewer: Arc<TokenReviewer>,
    /// UIDs of Pods that run no agent.
    without_agent: TtlCache<String, ()>,
    /// Lets the requests of a Pod take turns at looking for its agent, so that those that wait have the answer of the first.
    lookups: AgentConcurrency,
    /// How long to wait in the cache for a YoiPod whose status names the Pod, before reading from the API server.
    cache_wait: Duration,
    deadline: Duration,
}

impl Authenticator {
    pub fn new(
        client: Client,
        agents: Arc<AgentIndex>,
        metrics: Arc<GatewayMetrics>,
        ttl: Duration,
        cache_wait: Duration,
        deadline: Duration,
    ) -> Self {
        let (without_agent, lookups) = (TtlCache::new(WITHOUT_AGENT_TTL), AgentConcurrency::new(1));
        let reviewer = Arc::new(TokenReviewer::new(client.clone(), metrics, ttl, deadline));
        Authenticator { client, agents, reviewer, without_agent, lookups, cache_wait, deadline }
    }

    /// The agent that `token` belongs to.
    pub async fn authenticate(&self, token: Option<&str>) -> Result<AuthenticatedAgent, IdentityError> {
        let pod = self.reviewer.review(token.ok_or(IdentityError::NoToken)?, Instant::now()).await?;
        let (record, role) = match self.find_in_index(&pod) {
            Some(found) => found,
            None => self.look_for_agent(&pod).await?,
        };
        Ok(AuthenticatedAgent { agent: record.name.clone(), pod_uid: pod.pod_uid, run_generation: record.run_generation, role })
    }

    /// The agent of a Pod that the index does not have yet.
    async fn look_for_agent(&self, pod: &TokenPod) -> Result<(Arc<AgentRecord>, PodRole), IdentityError> {
        let _turn = self.lookups.acquire(&pod.pod_uid).await;
        if let Some(found) = self.find_in_index(pod) {
            return Ok(found);
        }
        if self.without_agent.get(&pod.pod_uid, Instant::now()).is_some() {
            return Err(no_agent(pod));
        }
        if let Some(found) = self.wait_in_index(pod).await {
            return Ok(found);
        }
        // Not looked for among readers and pushers: they ask again, and the index has them soon.
        let read = self.read_from_api(pod).await;
        if let Err(IdentityError::NoAgent { .. }) = &read {
            self.without_agent.insert(pod.pod_uid.clone(), (), Instant::now());
        }
        Ok((read?, PodRole::Agent))
    }

    fn find_in_index(&self, pod: &TokenPod) -> Option<(Arc<AgentRecord>, PodRole)> {
        let TokenPod { namespace, pod_uid } = pod;
        let with = |role: PodRole| move |record: Arc<AgentRecord>| (record, role);
        let agent = self.agents.by_pod(namespace, pod_uid).map(with(PodRole::Agent));
        agent
            .or_else(|| self.agents.by_reader(namespace, pod_uid).map(with(PodRole::Reader)))
            .or_else(|| self.agents.by_pusher(namespace, pod_uid).map(with(PodRole::Pusher)))
    }

    /// The agent from the cache, with a short wait: the operator writes the Pod's UID into the status while the Pod is already starting.
    async fn wait_in_index(&self, pod: &TokenPod) -> Option<(Arc<AgentRecord>, PodRole)> {
        let mut version = self.agents.version();
        let found = async {
            loop {
                if let Some(found) = self.find_in_index(pod) {
                    return found;
                }
                // `self.agents` holds the sender, so the channel does not close.
                let _ = version.changed().await;
            }
        };
        timeout(self.cache_wait, found).await.ok()
    }

    /// The agent from the API server, in one list.
    async fn read_from_api(&self, pod: &TokenPod) -> Result<Arc<AgentRecord>, IdentityError> {
        let api = Api::<YoiPod>::namespaced(self.client.clone(), &pod.namespace);
        let params = ListParams::default().fields(&format!("status.pod.uid={}", pod.pod_uid));
        let list = self.with_timeout(api.list(&params)).await?.map_err(IdentityError::Lookup)?;
        let runs_in_pod =
            |yoipod: &YoiPod| yoipod.status.as_ref().and_then(|status| status.pod.as_ref()).is_some_and(|own| own.uid == pod.pod_uid);
        let yoipod = list.items.into_iter().find(runs_in_pod);
        yoipod.map(|yoipod| self.agents.learn(yoipod)).ok_or_else(|| no_agent(pod))
    }

    async fn with_timeout<T>(&self, answer: impl Future<Output = T>) -> Result<T, IdentityError> {
        timeout(self.deadline, answer).await.map_err(|_| IdentityError::TimedOut(self.deadline))
    }
}

fn no_agent(pod: &TokenPod) -> IdentityError {
    IdentityError::NoAgent { namespace: pod.namespace.clone(), pod_uid: pod.pod_uid.clone() }
}
