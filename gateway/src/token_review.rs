//! Asks the API server whose token it is.
//!
//! A token that is used all the time is reviewed again before its last review expires, while requests go on under that one: otherwise each of them would wait
//! for the API server together, once in every [`GatewaySettings::review_ttl`](crate::GatewaySettings).

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::api::PostParams;
use kube::{Api, Client};
use sha2::{Digest, Sha256};
use tokio::time::timeout;
use yoi_wire::identity::{EXTRA_POD_UID, GATEWAY_AUDIENCE};

use crate::metrics::{GatewayMetrics, count};
use crate::ttl_cache::TtlCache;

/// The Pod that a token is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenPod {
    pub namespace: String,
    pub pod_uid: String,
}

#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    #[error("failed to accept the token: {0}")]
    Refused(&'static str),
    #[error("failed to ask the API server whose token it is")]
    Review(#[source] kube::Error),
    #[error("failed to get the API server's answer within {}", crate::seconds(*.0))]
    TimedOut(Duration),
}

/// The digest of a token: the memory of this process holds no tokens beyond the requests in flight.
type TokenDigest = [u8; 32];

pub struct TokenReviewer {
    client: Client,
    metrics: Arc<GatewayMetrics>,
    ttl: Duration,
    deadline: Duration,
    reviewed: TtlCache<TokenDigest, TokenPod>,
    /// Tokens that are reviewed again at the moment.
    under_renewal: Mutex<HashSet<TokenDigest>>,
}

impl TokenReviewer {
    /// `ttl`: how long a review counts. `deadline`: how long the API server may take.
    pub fn new(client: Client, metrics: Arc<GatewayMetrics>, ttl: Duration, deadline: Duration) -> Self {
        TokenReviewer { client, metrics, ttl, deadline, reviewed: TtlCache::new(ttl), under_renewal: Mutex::default() }
    }

    /// Returns the Pod, by a review that is younger than `ttl` at `now`.
    ///
    /// # Errors
    /// The token is not accepted, or the API server does not say.
    pub async fn review(self: &Arc<Self>, token: &str, now: Instant) -> Result<TokenPod, ReviewError> {
        let digest: TokenDigest = Sha256::digest(token.as_bytes()).into();
        let Some((pod, age)) = self.reviewed.get_with_age(&digest, now) else { return self.ask(digest, token, now).await };
        count(&self.metrics.token_reviews, "cached");
        if age * 2 >= self.ttl && self.under_renewal().insert(digest) {
            let (reviewer, token) = (Arc::clone(self), token.to_owned());
            tokio::spawn(async move {
                if let Err(ReviewError::Refused(_)) = reviewer.ask(digest, &token, now).await {
                    reviewer.reviewed.remove(&digest);
                }
                reviewer.under_renewal().remove(&digest);
            });
        }
        Ok(pod)
    }

    async fn ask(&self, digest: TokenDigest, token: &str, now: Instant) -> Result<TokenPod, ReviewError> {
        let spec = TokenReviewSpec { audiences: Some(vec![GATEWAY_AUDIENCE.to_owned()]), token: Some(token.to_owned()) };
        let (api, params) = (Api::<TokenReview>::all(self.client.clone()), PostParams::default());
        let review = TokenReview { spec, ..TokenReview::default() };
        let answer = timeout(self.deadline, api.create(&params, &review)).await;
        let answer = answer.map_err(|_| ReviewError::TimedOut(self.deadline)).and_then(|answer| answer.map_err(ReviewError::Review));
        let reviewed = answer.and_then(|review| token_pod(review.status.unwrap_or_default()));
        let outcome = match &reviewed {
            Ok(_) => "accepted",
            Err(ReviewError::Refused(_)) => "refused",
            Err(_) => "failed",
        };
        count(&self.metrics.token_reviews, outcome);
        let pod = reviewed?;
        // From the time before the API server was asked, so that no revoked token is accepted for longer than `ttl`.
        self.reviewed.insert(digest, pod.clone(), now);
        Ok(pod)
    }

    fn under_renewal(&self) -> MutexGuard<'_, HashSet<TokenDigest>> {
        self.under_renewal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The Pod that an accepted token is bound to.
fn token_pod(status: TokenReviewStatus) -> Result<TokenPod, ReviewError> {
    if status.authenticated != Some(true) {
        return Err(ReviewError::Refused("the API server does not know it for this audience"));
    }
    // An API server that ignores audiences returns none. Such a token may have been issued for another service.
    if !status.audiences.is_some_and(|audiences| audiences.iter().any(|audience| audience == GATEWAY_AUDIENCE)) {
        return Err(ReviewError::Refused("it was made for another audience"));
    }
    let user = status.user.unwrap_or_default();
    let account = user.username.as_deref().and_then(|name| name.strip_prefix("system:serviceaccount:"));
    let Some((namespace, _)) = account.and_then(|account| account.split_once(':')) else {
        return Err(ReviewError::Refused("it is no service account's"));
    };
    let extra = user.extra.unwrap_or_default();
    let [pod_uid] = extra.get(EXTRA_POD_UID).map_or(&[] as &[String], Vec::as_slice) else {
        return Err(ReviewError::Refused("it is not bound to a Pod"));
    };
    Ok(TokenPod { namespace: namespace.to_owned(), pod_uid: pod_uid.clone() })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;
    use serde_json::json;
    use tokio::sync::Semaphore;
    use yoi_test_support::eventually;

    fn review(status: serde_json::Value) -> Result<TokenPod, ReviewError> {
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
            assert!(matches!(review(status), Err(ReviewError::Refused(_))), "{what}");
        }
    }

    /// Accepts every token while `accepts`, once it is let; returns how often it was asked.
    fn reviewer(accepts: &Arc<AtomicBool>, let_answer: &Arc<Semaphore>) -> (Arc<TokenReviewer>, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let (counted, accepts, let_answer) = (Arc::clone(&asked), Arc::clone(accepts), Arc::clone(let_answer));
        let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
            counted.fetch_add(1, Ordering::SeqCst);
            let (accepts, let_answer) = (Arc::clone(&accepts), Arc::clone(&let_answer));
            async move {
                let_answer.acquire().await.unwrap().forget();
                let user = json!({"username": "system:serviceaccount:ns:default", "extra": {EXTRA_POD_UID: ["p1"]}});
                let status = json!({"authenticated": accepts.load(Ordering::SeqCst), "audiences": [GATEWAY_AUDIENCE], "user": user});
                let review =
                    json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "metadata": {}, "spec": {}, "status": status});
                Ok::<_, std::convert::Infallible>(http::Response::new(kube::client::Body::from(review.to_string().into_bytes())))
            }
        });
        let client = Client::new(service, "default");
        let ttl = Duration::from_secs(10);
        (Arc::new(TokenReviewer::new(client, Arc::new(GatewayMetrics::default()), ttl, Duration::from_secs(5))), asked)
    }

    #[tokio::test]
    async fn who_goes_on_asking_waits_for_one_review_alone_and_a_revoked_token_is_noticed() {
        let (accepts, let_answer) = (Arc::new(AtomicBool::new(true)), Arc::new(Semaphore::new(1)));
        let (reviewer, asked) = reviewer(&accepts, &let_answer);
        let begin = Instant::now();
        let at = |seconds| reviewer.review("t", begin + Duration::from_secs(seconds));
        at(0).await.unwrap();
        // The second review is not answered, and nobody waits for it.
        for seconds in [4, 5, 6, 9] {
            at(seconds).await.unwrap();
            tokio::task::yield_now().await;
            assert_eq!(asked.load(Ordering::SeqCst), if seconds < 5 { 1 } else { 2 });
        }
        let_answer.add_permits(1);
        eventually("the second review counts", async || reviewer.under_renewal().is_empty().then_some(())).await;
        at(14).await.unwrap();
        accepts.store(false, Ordering::SeqCst);
        let_answer.add_permits(1);
        eventually("the third review counts", async || reviewer.under_renewal().is_empty().then_some(())).await;
        let_answer.add_permits(1);
        assert!(matches!(at(14).await, Err(ReviewError::Refused(_))));
        assert_eq!(asked.load(Ordering::SeqCst), 4);
    }
}
