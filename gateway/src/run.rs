//! The process: everything started in order, and ended in order.

use std::collections::HashMap;
use std::future::{Future, pending};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use kube::Client;
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{Id, JoinSet};
use tokio_util::sync::CancellationToken;
use yoi_line::{ClientAuth, ServeLimits, serve_plain, serve_tls, tls_server_config};

use crate::certs::{self, Keys};
use crate::frontproxy::{self, FrontProxy};
use crate::hub::{Hub, Settings};
use crate::metrics::RequestLabels;
use crate::{follow, health, people, runtimes};

/// The three doors, bound.
pub struct Ports {
    pub runtimes: TcpListener,
    pub api: TcpListener,
    pub health: TcpListener,
}

type Tls = watch::Receiver<Arc<ServerConfig>>;

/// The process ends rather than live on with a part that does not work.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to go on: {part} ended{}", if *panicked { " by a panic" } else { "" })]
pub struct Ended {
    part: &'static str,
    panicked: bool,
}

/// Tasks that live as long as the process, by name. Dropped, they end.
#[derive(Default)]
struct Parts {
    tasks: JoinSet<()>,
    names: HashMap<Id, &'static str>,
}

impl Parts {
    fn spawn(&mut self, part: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let id = self.tasks.spawn(task).id();
        self.names.insert(id, part);
    }

    /// The first part that ends, although none should.
    async fn ended(&mut self) -> Ended {
        let (id, panicked) = match self.tasks.join_next_with_id().await {
            Some(Ok((id, ()))) => (id, false),
            Some(Err(error)) => (error.id(), error.is_panic()),
            None => return Ended { part: "everything", panicked: false },
        };
        Ended { part: self.names.get(&id).copied().unwrap_or("a task"), panicked }
    }
}

/// Until the doors are closed: by `stop`, or because a part has ended. Then they close as they do at every stop.
async fn hold(parts: &mut Parts, doors: impl Future<Output = ()>, stop: &CancellationToken) -> Result<(), Ended> {
    let mut doors = pin!(doors);
    let held = tokio::select! {
        biased;
        // From here on parts may end.
        () = stop.cancelled() => Ok(()),
        ended = parts.ended() => Err(ended),
        () = &mut doors => return Ok(()),
    };
    if let Err(ended) = &held {
        tracing::error!(error = %ended, "stopping");
        stop.cancel();
    }
    doors.await;
    held
}

/// Runs until `stop`, then takes nothing new, lets what is under way end within `settings.drain`, and ends all lines.
///
/// # Errors
/// When a part of it has ended, with that part's name.
pub async fn run(client: Client, tls_dir: PathBuf, ports: Ports, settings: Settings, stop: CancellationToken) -> Result<(), Ended> {
    let (hub, changes) = Hub::new(client.clone(), settings, stop.clone());
    let (keys_said, keys) = watch::channel(None);
    let (proxy_said, proxy) = watch::channel(None);

    let mut parts = Parts::default();
    parts.spawn("the watch of YoiPods and YoiPeers", follow::follow(client.clone(), hub.world.clone()));
    parts.spawn("the keeper of live hints", hub.keeper.clone().run(changes));
    let sweep = hub.keeper.clone().sweep();
    // Done once, and no less alive for it.
    parts.spawn("the sweep of live hints", async move {
        sweep.await;
        pending().await
    });
    parts.spawn("the watch of the front proxy's ConfigMap", frontproxy::follow(client, proxy_said));
    parts.spawn("the reading of certificates", certs::follow(tls_dir, settings.keys_every, keys_said));
    let health = health::router(hub.clone());
    let plain = ServeLimits { drain: Duration::ZERO, unauthenticated: Some(settings.unauthenticated), ..ServeLimits::default() };
    parts.spawn("the health server", async move {
        serve_plain(ports.health, health, plain, pending()).await;
    });
    let (runtimes_said, runtimes_tls) = watch::channel(None);
    parts.spawn("the certificate of the runtimes' port", configure("runtimes", keys.clone(), None, runtimes_said));
    let (api_said, api_tls) = watch::channel(None);
    parts.spawn("the certificate of the API port", configure("api", keys, Some(proxy.clone()), api_said));

    let many = ServeLimits { drain: settings.drain, unauthenticated: Some(settings.unauthenticated), ..ServeLimits::default() };
    // The API server asks for all people over a few connections.
    let few = ServeLimits { streams: settings.streams, ..many };
    let runtimes = door("runtimes", ports.runtimes, runtimes::router(hub.clone()), &hub, &hub.runtimes_up, runtimes_tls, few);
    let api = door("api", ports.api, people::router(hub.clone(), proxy), &hub, &hub.api_up, api_tls, many);
    let doors = async { _ = futures::join!(runtimes, api) };
    let held = hold(&mut parts, doors, &hub.stopping).await;
    hub.lines.close_all();
    held
}

async fn door(
    port: &'static str,
    listener: TcpListener,
    router: Router,
    hub: &Arc<Hub>,
    up: &AtomicBool,
    first: watch::Receiver<Option<Arc<ServerConfig>>>,
    limits: ServeLimits,
) {
    let mut configs = JoinSet::new();
    let Some(tls) = hub.stopping.run_until_cancelled(ready(first, &mut configs)).await else { return };
    // Lists first: a runtime that is told "no agent" because nobody has looked yet would take it for a verdict.
    if hub.stopping.run_until_cancelled(hub.world.listed()).await.is_none() {
        return;
    }
    up.store(true, Ordering::Relaxed);
    tracing::info!(port, address = ?listener.local_addr().ok(), "open");
    let router = router.layer(middleware::from_fn_with_state((hub.clone(), port), counted));
    let served = serve_tls(listener, tls, router, limits, hub.stopping.cancelled()).await;
    up.store(false, Ordering::Relaxed);
    tracing::info!(port, cut = served.cut, "closed");
}

/// The first configuration, and the channel of those to come.
async fn ready(mut first: watch::Receiver<Option<Arc<ServerConfig>>>, keep: &mut JoinSet<()>) -> Tls {
    loop {
        let config = first.borrow_and_update().clone();
        if let Some(config) = config {
            let (said, tls) = watch::channel(config);
            keep.spawn(async move {
                while first.changed().await.is_ok() {
                    let next = first.borrow_and_update().clone();
                    if let Some(next) = next {
                        said.send_replace(next);
                    }
                }
            });
            return tls;
        }
        if first.changed().await.is_err() {
            // Its writer is a part: with it the process ends.
            pending::<()>().await;
        }
    }
}

/// Makes a TLS configuration of each new certificate, and for the API port of each new CA of the front proxy.
async fn configure(
    port: &'static str,
    mut keys: watch::Receiver<Option<Keys>>,
    mut proxy: Option<watch::Receiver<Option<FrontProxy>>>,
    said: watch::Sender<Option<Arc<ServerConfig>>>,
) {
    loop {
        let pair = keys.borrow_and_update().clone();
        // Without a front proxy nobody gets in, and the port is up all the same: probes and runtimes must not suffer for it.
        let auth = match &mut proxy {
            None => Some(ClientAuth::None),
            Some(proxy) => proxy.borrow_and_update().as_ref().map(|proxy| match &proxy.ca_pem {
                Some(ca_pem) => ClientAuth::OptionalVerifiedBy { ca_pem: ca_pem.clone() },
                None => ClientAuth::None,
            }),
        };
        if let (Some(pair), Some(auth)) = (pair, auth) {
            match tls_server_config(&pair.cert_pem, &pair.key_pem, &auth) {
                Ok(config) => {
                    tracing::info!(port, "certificate loaded");
                    said.send_replace(Some(config));
                }
                // Certificate and key are two files: read in the middle of a swap they do not fit, and the next reading has both.
                Err(error) => tracing::warn!(port, error = crate::chain(&error), "certificate not usable, the former stays"),
            }
        }
        let more = match &mut proxy {
            None => keys.changed().await,
            Some(proxy) => tokio::select! {
                more = keys.changed() => more,
                more = proxy.changed() => more,
            },
        };
        if more.is_err() {
            return;
        }
    }
}

async fn counted(State((hub, port)): State<(Arc<Hub>, &'static str)>, request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map_or("other", MatchedPath::as_str).to_owned();
    let response = next.run(request).await;
    hub.metrics.requests.get_or_create(&RequestLabels { port, route, code: response.status().as_u16() }).inc();
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_part_that_panics_or_ends_is_named_and_the_doors_close_as_at_every_stop() {
        for panicked in [true, false] {
            let (stop, mut parts) = (CancellationToken::new(), Parts::default());
            parts.spawn("the watch", pending());
            parts.spawn("the keeper", async move { assert!(!panicked, "planted") });
            let ended = hold(&mut parts, stop.cancelled(), &stop).await.unwrap_err();
            assert_eq!(ended, Ended { part: "the keeper", panicked });
            assert!(stop.is_cancelled() && ended.to_string().contains("the keeper ended"), "{ended}");
        }
    }

    #[tokio::test]
    async fn a_stop_is_no_error_even_when_parts_end_with_it() {
        let (stop, mut parts) = (CancellationToken::new(), Parts::default());
        parts.spawn("the keeper", stop.clone().cancelled_owned());
        stop.cancel();
        assert_eq!(hold(&mut parts, stop.cancelled(), &stop).await, Ok(()));
    }
}
