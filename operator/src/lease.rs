//! Leadership by Lease. At most one process acts, judged by its own clock only.
//!
//! A candidate takes the Lease when it has seen the same resource version for the whole term: it does not trust the holder's clock. Every
//! write is a compare-and-swap by resource version. A holder that has not renewed for two thirds of the term ends before another may take over.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout, timeout_at};
use tracing::{info, warn};
use yoi_crds::name::field_manager;

pub const NAME: &str = "yoi-operator";
/// Times of a Lease, all from its term: how long a candidate waits for a Lease that is not renewed.
#[derive(Clone, Copy, Debug)]
struct LeaseTimes {
    term: Duration,
}

impl LeaseTimes {
    /// How long a holder acts after its last renewal.
    fn renew(self) -> Duration {
        self.term * 2 / 3
    }

    fn retry(self) -> Duration {
        // The liveness probe counts on a sign of this loop every half minute.
        (self.term * 2 / 15).min(Duration::from_secs(10))
    }

    /// How long one request may take.
    fn request(self) -> Duration {
        self.term / 3
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to keep the Lease: another process holds it now")]
    Taken,
    #[error("failed to renew the Lease within {} s; on a machine that is too busy for that, set a longer term (operator.leaseSeconds of the chart)", .0.as_secs())]
    NotRenewed(Duration),
}

/// Whether this process leads, and when the loop last ran.
#[derive(Clone, Copy, Debug)]
pub struct LeaderStatus {
    pub leader: bool,
    pub at: Instant,
}

pub struct Elector {
    api: Api<Lease>,
    identity: String,
    times: LeaseTimes,
    /// The latest resource version, and when this process first saw it.
    seen: Option<(String, Instant)>,
    held: bool,
    /// When the last successful write began.
    renewed: Instant,
    leader_status: watch::Sender<LeaderStatus>,
}

impl Elector {
    /// `term` is how long a candidate waits for a Lease that is not renewed.
    #[must_use]
    pub fn new(client: Client, namespace: &str, identity: &str, term: Duration) -> (Self, watch::Receiver<LeaderStatus>) {
        let (leader_status, watched) = watch::channel(LeaderStatus { leader: false, at: Instant::now() });
        let api = Api::namespaced(client, namespace);
        (
            Elector {
                api,
                identity: identity.to_owned(),
                times: LeaseTimes { term },
                seen: None,
                held: false,
                renewed: Instant::now(),
                leader_status,
            },
            watched,
        )
    }

    fn publish_status(&self, leader: bool) {
        self.leader_status.send_replace(LeaderStatus { leader, at: Instant::now() });
    }

    /// Returns when this process leads.
    pub async fn acquire(&mut self) {
        let mut ticks = interval(self.times.retry());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let began = Instant::now();
            let won = self.attempt().await;
            self.publish_status(won);
            if won {
                (self.held, self.renewed) = (true, began);
                info!(lease = NAME, identity = self.identity, "leading");
                return;
            }
        }
    }

    /// Renews for as long as it can; returns when leadership is lost, and the process must end then.
    pub async fn keep(&mut self) -> Error {
        let mut ticks = interval(self.times.retry());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let end = self.renewed + self.times.renew();
            if timeout_at(end, ticks.tick()).await.is_err() {
                self.publish_status(false);
                return Error::NotRenewed(self.times.renew());
            }
            let began = Instant::now();
            // An attempt that lasts past the end would let this process act beside its successor.
            match timeout_at(end.min(began + self.times.request()), self.renew()).await {
                Ok(Ok(true)) => {
                    self.renewed = began;
                    self.publish_status(true);
                }
                Ok(Ok(false)) => {
                    self.held = false;
                    self.publish_status(false);
                    return Error::Taken;
                }
                Ok(Err(error)) => warn!(%error, "lease not renewed; tried again"),
                Err(_) => warn!("lease not renewed in time; tried again"),
            }
        }
    }

    /// Gives the Lease up, so that a successor need not wait for the term to end.
    pub async fn release(&mut self) {
        if !self.held {
            return;
        }
        let freed = async {
            let Some(mut lease) = self.api.get_opt(NAME).await? else { return Ok(()) };
            if lease.spec.as_ref().and_then(|s| s.holder_identity.as_deref()) != Some(self.identity.as_str()) {
                return Ok(());
            }
            let spec = lease.spec.get_or_insert_default();
            spec.holder_identity = None;
            spec.lease_duration_seconds = Some(1);
            self.api.replace(NAME, &params(), &lease).await.map(|_| ())
        };
        match timeout(self.times.request(), freed).await {
            Ok(Ok(())) => info!(lease = NAME, "released"),
            Ok(Err::<(), kube::Error>(error)) => warn!(%error, "lease not released; it runs out"),
            Err(_) => warn!("lease not released in time; it runs out"),
        }
        self.held = false;
    }

    async fn attempt(&mut self) -> bool {
        match timeout(self.times.request(), self.take()).await {
            Ok(Ok(won)) => won,
            Ok(Err(error)) => {
                warn!(%error, "lease not taken; tried again");
                false
            }
            Err(_) => false,
        }
    }

    async fn take(&mut self) -> Result<bool, kube::Error> {
        let Some(current) = self.api.get_opt(NAME).await? else { return self.create().await };
        let version = current.metadata.resource_version.clone().unwrap_or_default();
        let since = match &self.seen {
            Some((seen, at)) if *seen == version => *at,
            _ => {
                let now = Instant::now();
                self.seen = Some((version, now));
                now
            }
        };
        let holder = current.spec.as_ref().and_then(|s| s.holder_identity.clone()).unwrap_or_default();
        let mine = holder == self.identity;
        if !mine && !holder.is_empty() && since.elapsed() < self.times.term {
            return Ok(false);
        }
        self.replace(current, !mine).await
    }

    /// False if another process holds it.
    async fn renew(&mut self) -> Result<bool, kube::Error> {
        let Some(current) = self.api.get_opt(NAME).await? else { return self.create().await };
        if current.spec.as_ref().and_then(|s| s.holder_identity.as_deref()) != Some(self.identity.as_str()) {
            return Ok(false);
        }
        self.replace(current, false).await
    }

    async fn create(&self) -> Result<bool, kube::Error> {
        let lease =
            Lease { metadata: ObjectMeta { name: Some(NAME.to_owned()), ..ObjectMeta::default() }, spec: Some(self.spec(None, true)) };
        match self.api.create(&params(), &lease).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(s)) if s.is_already_exists() => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Writes with the resource version that was read: a compare-and-swap.
    async fn replace(&self, mut current: Lease, taken_over: bool) -> Result<bool, kube::Error> {
        current.spec = Some(self.spec(current.spec.as_ref(), taken_over));
        match self.api.replace(NAME, &params(), &current).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(s)) if s.is_conflict() => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn spec(&self, before: Option<&LeaseSpec>, taken_over: bool) -> LeaseSpec {
        let now = MicroTime(jiff::Timestamp::now());
        let transitions = before.and_then(|s| s.lease_transitions).unwrap_or(0);
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(self.times.term.as_secs()).ok(),
            acquire_time: if taken_over { Some(now.clone()) } else { before.and_then(|s| s.acquire_time.clone()) },
            renew_time: Some(now),
            lease_transitions: Some(if taken_over && before.is_some() { transitions + 1 } else { transitions }),
            ..LeaseSpec::default()
        }
    }
}

fn params() -> PostParams {
    PostParams { field_manager: Some(field_manager::OPERATOR.to_owned()), ..PostParams::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Never answers.
    fn silent_server() -> Client {
        let service = tower::service_fn(|_: axum::http::Request<kube::client::Body>| {
            std::future::pending::<Result<axum::http::Response<kube::client::Body>, std::convert::Infallible>>()
        });
        Client::new(service, "default")
    }

    #[tokio::test(start_paused = true)]
    async fn a_holder_that_hears_nothing_ends_before_its_term_does() {
        for seconds in [15, 60] {
            let (mut elector, leader_status) = Elector::new(silent_server(), "ns", "me", Duration::from_secs(seconds));
            let (renewed, renew) = (Instant::now(), Duration::from_secs(seconds * 2 / 3));
            assert!(matches!(elector.keep().await, Error::NotRenewed(_)));
            assert!(renewed.elapsed() <= renew && renewed.elapsed() > renew / 2, "acted on for {:?}", renewed.elapsed());
            assert!(!leader_status.borrow().leader);
            // A second call, as when the process stops, does not extend the last renewal.
            assert!(matches!(elector.keep().await, Error::NotRenewed(_)));
            assert!(renewed.elapsed() <= renew);
        }
    }
}
