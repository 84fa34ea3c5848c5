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

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use sha2::{Digest, Sha256};
use tokio::time::timeout;
use yoi_crds::YoiPod;
use yoi_wire::entry::AgentRef;
use yoi_wire::identity::{EXTRA_POD_UID, GATEWAY_AUDIENCE};

use crate::agent_concurrency::AgentConcurrency;
use crate::agent_index::{AgentIndex, AgentRecord};
use crate::metrics::{GatewayMetrics, count};
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

/// The Pod that a token is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TokenPod {
    namespace: String,
    pod_uid: String,
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

/// Authenticates runtimes by their tokens.
pub struct Authenticator {
    client: Client,
    agents: Arc<AgentIndex>,
    metrics: Arc<GatewayMetrics>,
    /// By digest of the token, so that the memory of this process holds no tokens beyond the requests in flight.
    reviewed: TtlCache<[u8; 32], TokenPod>,
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
        Authenticator { client, agents, metrics, reviewed: TtlCache::new(ttl), without_agent, lookups, cache_wait, deadline }
    }

    /// The agent that `token` belongs to.
    pub async fn authenticate(&self, token: Option<&str>) -> Result<AuthenticatedAgent, IdentityError> {
        let pod = self.review_token(token.ok_or(IdentityError::NoToken)?).await?;
        let (record, role) = match self.find_in_index(&pod) {
            Some(found) => found,
            None => self.look_for_agent(&pod).await?,
        };
        Ok(AuthenticatedAgent { agent: record.name.clone(), pod_uid: pod.pod_uid, run_generation: record.run_generation, role })
    }

    async fn review_token(&self, token: &str) -> Result<TokenPod, IdentityError> {
        let digest: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        if let Some(pod) = self.reviewed.get(&digest, Instant::now()) {
            count(&self.metrics.token_reviews, "cached");
            return Ok(pod);
        }
        let spec = TokenReviewSpec { audiences: Some(vec![GATEWAY_AUDIENCE.to_owned()]), token: Some(token.to_owned()) };
        let api = Api::<TokenReview>::all(self.client.clone());
        let params = PostParams::default();
        let review = TokenReview { spec, ..TokenReview::default() };
        let answer = self.with_timeout(api.create(&params, &review)).await.and_then(|answer| answer.map_err(IdentityError::Review));
        let reviewed = answer.and_then(|review| token_pod(review.status.unwrap_or_default()));
        let outcome = match &reviewed {
            Ok(_) => "accepted",
            Err(IdentityError::Refused(_)) => "refused",
            Err(_) => "failed",
        };
        count(&self.metrics.token_reviews, outcome);
        let pod = reviewed?;
        self.reviewed.insert(digest, pod.clone(), Instant::now());
        Ok(pod)
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

/// The Pod that an accepted token is bound to.
fn token_pod(status: TokenReviewStatus) -> Result<TokenPod, IdentityError> {
    if status.authenticated != Some(true) {
        return Err(IdentityError::Refused("the API server does not know it for this audience"));
    }
    // An API server that ignores audiences returns none. Such a token may have been issued for another service.
    if !status.audiences.is_some_and(|audiences| audiences.iter().any(|audience| audience == GATEWAY_AUDIENCE)) {
        return Err(IdentityError::Refused("it was made for another audience"));
    }
    let user = status.user.unwrap_or_default();
    let account = user.username.as_deref().and_then(|name| name.strip_prefix("system:serviceaccount:"));
    let Some((namespace, _)) = account.and_then(|account| account.split_once(':')) else {
        return Err(IdentityError::Refused("it is no service account's"));
    };
    let extra = user.extra.unwrap_or_default();
    let [pod_uid] = extra.get(EXTRA_POD_UID).map_or(&[] as &[String], Vec::as_slice) else {
        return Err(IdentityError::Refused("it is not bound to a Pod"));
    };
    Ok(TokenPod { namespace: namespace.to_owned(), pod_uid: pod_uid.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn review(status: serde_json::Value) -> Result<TokenPod, IdentityError> {
        token_pod(serde_json::from_value(status).unwrap())
    }

    #[test]
    fn a_review_gives_a_pod_only_when_every_part_of_it_matches() {
        let user = json!({"username": "system:serviceaccount:ns:default", "extra": {EXTRA_POD_UID: ["p1"]}});
        let good = review(json!({"authenticated": true, "audiences": [GATEWAY_AUDIENCE], "user": user})).unwrap();
        assert_eq!(good, TokenPod { namespace: "ns".into(), pod_uid: "p1".into() });
        let unbound = json!({"username": "system:serviceaccount:ns:default"});
        let person = json!({"username": "alice", "extra": {EXTRA_POD_UID: ["p1"]}});
        for (what, status) in [
            ("not authenticated", json!({"authenticated": false, "audiences": [GATEWAY_AUDIENCE], "user": user})),
            ("wrong audience", json!({"authenticated": true, "audiences": ["other"], "user": user})),
            ("no audience", json!({"authenticated": true, "user": user})),
            ("not bound", json!({"authenticated": true, "audiences": [GATEWAY_AUDIENCE], "user": unbound})),
            ("a person", json!({"authenticated": true, "audiences": [GATEWAY_AUDIENCE], "user": person})),
        ] {
            assert!(matches!(review(status), Err(IdentityError::Refused(_))), "{what}");
        }
    }
}
