//! The process: everything started in order, and ended in order.

use std::path::PathBuf;
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
use tokio::task::JoinSet;
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

/// Runs until `stop`, then takes nothing new, lets what is under way end within `settings.drain`, and ends all lines.
pub async fn run(client: Client, tls_dir: PathBuf, ports: Ports, settings: Settings, stop: CancellationToken) {
    let (hub, changes) = Hub::new(client.clone(), settings, stop.clone());
    let (keys_said, keys) = watch::channel(None);
    let (proxy_said, proxy) = watch::channel(None);

    // Dropped at the end of this function, and with it all of them.
    let mut background = JoinSet::new();
    background.spawn(follow::follow(client.clone(), hub.world.clone()));
    background.spawn(hub.keeper.clone().run(changes));
    background.spawn(hub.keeper.clone().sweep());
    background.spawn(frontproxy::follow(client, proxy_said));
    background.spawn(certs::follow(tls_dir, settings.keys_every, keys_said));
    let health = health::router(hub.clone());
    let plain = ServeLimits { drain: Duration::ZERO, guests: Some(settings.guests), ..ServeLimits::default() };
    background.spawn(async move {
        serve_plain(ports.health, health, plain, std::future::pending()).await;
    });

    let runtimes = door("runtimes", ports.runtimes, runtimes::router(hub.clone()), &hub, &hub.runtimes_up, keys.clone(), None);
    let api = door("api", ports.api, people::router(hub.clone(), proxy.clone()), &hub, &hub.api_up, keys, Some(proxy));
    futures::join!(runtimes, api);
    hub.lines.close_all();
}

async fn door(
    port: &'static str,
    listener: TcpListener,
    router: Router,
    hub: &Arc<Hub>,
    up: &AtomicBool,
    keys: watch::Receiver<Option<Keys>>,
    proxy: Option<watch::Receiver<Option<FrontProxy>>>,
) {
    // The API server asks for all people over a few connections, and shows its certificate before it asks.
    let streams = if proxy.is_some() { ServeLimits::default().streams } else { hub.settings.streams };
    let (config_said, first) = watch::channel(None);
    let mut configs = JoinSet::new();
    configs.spawn(configure(port, keys, proxy, config_said));
    let Some(tls) = hub.stopping.run_until_cancelled(ready(first, &mut configs)).await else { return };
    // Lists first: a runtime that is told "no agent" because nobody has looked yet would take it for a verdict.
    if hub.stopping.run_until_cancelled(hub.world.listed()).await.is_none() {
        return;
    }
    up.store(true, Ordering::Relaxed);
    tracing::info!(port, address = ?listener.local_addr().ok(), "open");
    let router = router.layer(middleware::from_fn_with_state((hub.clone(), port), counted));
    let limits = ServeLimits { drain: hub.settings.drain, streams, guests: Some(hub.settings.guests), ..ServeLimits::default() };
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
            // Its writer lives in `keep`, and ends only with it.
            std::future::pending::<()>().await;
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
