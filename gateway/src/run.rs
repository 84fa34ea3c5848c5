//! The process: starts its tasks and servers, and stops them in order.

use std::collections::HashMap;
use std::future::{Future, pending};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
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
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use yoi_line::{ClientAuth, ServeLimits, serve_plain, serve_tls, tls_server_config};

use crate::certificate::{self, ServingCertificate};
use crate::front_proxy::{self, FrontProxy};
use crate::gateway_state::{GatewaySettings, GatewayState};
use crate::metrics::RequestLabels;
use crate::{health, people, runtimes};

/// The bound listeners.
pub struct Ports {
    pub runtimes: TcpListener,
    pub api: TcpListener,
    pub health: TcpListener,
    pub metrics: TcpListener,
}

type Tls = watch::Receiver<Arc<ServerConfig>>;

/// A task has ended that should run as long as the process. The process then stops, because it would not work without it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to go on: {task} ended{}", if *panicked { " by a panic" } else { "" })]
pub struct TaskEnded {
    task: &'static str,
    panicked: bool,
}

/// The tasks that run as long as the process, by name. Dropping this ends them.
#[derive(Default)]
struct ProcessTasks {
    tasks: JoinSet<()>,
    names: HashMap<Id, &'static str>,
}

impl ProcessTasks {
    fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let id = self.tasks.spawn(task).id();
        self.names.insert(id, name);
    }

    /// Waits until a task ends.
    async fn first_ended(&mut self) -> TaskEnded {
        let (id, panicked) = match self.tasks.join_next_with_id().await {
            Some(Ok((id, ()))) => (id, false),
            Some(Err(error)) => (error.id(), error.is_panic()),
            None => return TaskEnded { task: "everything", panicked: false },
        };
        TaskEnded { task: self.names.get(&id).copied().unwrap_or("a task"), panicked }
    }
}

/// Waits until the servers have ended. They stop when `stop` is cancelled; the end of a task cancels it.
///
/// # Errors
/// The task that ended before `stop` was cancelled.
async fn run_until_stopped(tasks: &mut ProcessTasks, servers: impl Future<Output = ()>, stop: &CancellationToken) -> Result<(), TaskEnded> {
    let mut servers = pin!(servers);
    let result = tokio::select! {
        biased;
        // Tasks may end after the stop.
        () = stop.cancelled() => Ok(()),
        ended = tasks.first_ended() => Err(ended),
        () = &mut servers => return Ok(()),
    };
    if let Err(ended) = &result {
        tracing::error!(error = %ended, "stopping");
        stop.cancel();
    }
    servers.await;
    result
}

/// Runs until `stop` is cancelled. It then reports itself not Ready and serves on for `settings.serve_on`, so that no Service sends a request to
/// it that it would not answer. After that it takes no new requests, waits up to `settings.drain` for those in flight, and closes all lines.
///
/// # Errors
/// The task that ended, when it should have run as long as the process.
pub async fn run(
    client: Client,
    tls_dir: PathBuf,
    ports: Ports,
    settings: GatewaySettings,
    stop: CancellationToken,
) -> Result<(), TaskEnded> {
    let (gateway, watches, changes) = GatewayState::new(client.clone(), settings, stop);
    let (certificate_sender, certificate) = watch::channel(None);
    let (proxy_sender, proxy) = watch::channel(None);

    let mut tasks = ProcessTasks::default();
    tasks.spawn("the watch of YoiPods and YoiPeers", watches.run(client.clone(), gateway.agents.clone()));
    tasks.spawn("the liveness reconciler", gateway.liveness.clone().run(changes));
    let clear_stale_live = gateway.liveness.clone().clear_stale_live();
    // It runs once, and stays pending afterwards: its end would stop the process.
    tasks.spawn("the clearing of stale status.live", async move {
        clear_stale_live.await;
        pending().await
    });
    tasks.spawn("the watch of the front proxy's ConfigMap", front_proxy::watch_config_map(client, proxy_sender));
    tasks.spawn("the reading of certificates", certificate::watch_files(tls_dir, settings.certificate_poll_interval, certificate_sender));
    let stopped = gateway.clone();
    tasks.spawn("the stop", async move {
        stopped.stop_requested.cancelled().await;
        sleep(settings.serve_on).await;
        stopped.stopping.cancel();
        pending().await
    });
    let plain_limits = ServeLimits { drain: Duration::ZERO, connections: Some(settings.connections), ..ServeLimits::default() };
    let plain_ports = [
        ("the server of probes", ports.health, health::probes(gateway.clone())),
        ("the server of metrics", ports.metrics, health::metrics(gateway.clone())),
    ];
    for (name, listener, router) in plain_ports {
        tasks.spawn(name, async move {
            serve_plain(listener, router, plain_limits, pending()).await;
        });
    }
    let (runtimes_sender, runtimes_tls) = watch::channel(None);
    tasks.spawn("the certificate of the runtimes' port", build_tls_configs("runtimes", certificate.clone(), None, runtimes_sender));
    let (api_sender, api_tls) = watch::channel(None);
    tasks.spawn("the certificate of the API port", build_tls_configs("api", certificate, Some(proxy.clone()), api_sender));

    let api_limits = ServeLimits { drain: settings.drain, connections: Some(settings.connections), ..ServeLimits::default() };
    // Only this port limits streams: the API server sends the requests of all people over a few connections.
    let runtimes_limits = ServeLimits { streams: settings.streams, ..api_limits };
    let runtimes_up = |up| {
        gateway.runtimes_up.store(up, Ordering::Relaxed);
        if up {
            gateway.readiness.start();
        }
    };
    let api_up = |up| gateway.api_up.store(up, Ordering::Relaxed);
    let router = runtimes::router(gateway.clone());
    let runtimes = serve_port("runtimes", ports.runtimes, router, &gateway, runtimes_up, runtimes_tls, runtimes_limits);
    let api = serve_port("api", ports.api, people::router(gateway.clone(), proxy), &gateway, api_up, api_tls, api_limits);
    let servers = async { _ = futures::join!(runtimes, api) };
    let result = run_until_stopped(&mut tasks, servers, &gateway.stopping).await;
    gateway.lines.close_all();
    gateway.readers.lines.close_all();
    result
}

async fn serve_port(
    port: &'static str,
    listener: TcpListener,
    router: Router,
    gateway: &Arc<GatewayState>,
    set_up: impl Fn(bool),
    first: watch::Receiver<Option<Arc<ServerConfig>>>,
    limits: ServeLimits,
) {
    let mut configs = JoinSet::new();
    let Some(tls) = gateway.stopping.run_until_cancelled(wait_for_config(first, &mut configs)).await else { return };
    // Wait for the first listing: before it, a runtime would be refused with "no agent", which it takes as final.
    if gateway.stopping.run_until_cancelled(gateway.agents.wait_until_listed()).await.is_none() {
        return;
    }
    set_up(true);
    tracing::info!(port, address = ?listener.local_addr().ok(), "open");
    let router = router.layer(middleware::from_fn_with_state((gateway.clone(), port), count_requests));
    let served = serve_tls(listener, tls, router, limits, gateway.stopping.cancelled()).await;
    set_up(false);
    tracing::info!(port, cut = served.cut, "closed");
}

/// Waits for the first configuration. Returns a channel that holds it and receives the later ones.
async fn wait_for_config(mut first: watch::Receiver<Option<Arc<ServerConfig>>>, keep: &mut JoinSet<()>) -> Tls {
    loop {
        let config = first.borrow_and_update().clone();
        if let Some(config) = config {
            let (sender, tls) = watch::channel(config);
            keep.spawn(async move {
                while first.changed().await.is_ok() {
                    let next = first.borrow_and_update().clone();
                    if let Some(next) = next {
                        sender.send_replace(next);
                    }
                }
            });
            return tls;
        }
        if first.changed().await.is_err() {
            // The sending task has ended, which stops the process.
            pending::<()>().await;
        }
    }
}

/// Builds a TLS configuration from each new certificate, and for the API port from each new CA of the front proxy.
async fn build_tls_configs(
    port: &'static str,
    mut certificate: watch::Receiver<Option<ServingCertificate>>,
    mut proxy: Option<watch::Receiver<Option<FrontProxy>>>,
    sender: watch::Sender<Option<Arc<ServerConfig>>>,
) {
    loop {
        let pair = certificate.borrow_and_update().clone();
        // Without a front proxy every request is refused, and the port is open all the same: readiness depends on it.
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
                    sender.send_replace(Some(config));
                }
                // Certificate and key are two files. Read during a swap they do not match; the next read has both.
                Err(error) => tracing::warn!(port, error = yoi_wire::error_chain(&error), "certificate not usable, the former stays"),
            }
        }
        let more = match &mut proxy {
            None => certificate.changed().await,
            Some(proxy) => tokio::select! {
                more = certificate.changed() => more,
                more = proxy.changed() => more,
            },
        };
        if more.is_err() {
            return;
        }
    }
}

async fn count_requests(State((gateway, port)): State<(Arc<GatewayState>, &'static str)>, request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map_or("other", MatchedPath::as_str).to_owned();
    let response = next.run(request).await;
    gateway.metrics.requests.get_or_create(&RequestLabels { listener: port, route, code: response.status().as_u16() }).inc();
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_or_ends_is_named_and_the_servers_stop() {
        for panicked in [true, false] {
            let (stop, mut tasks) = (CancellationToken::new(), ProcessTasks::default());
            tasks.spawn("the watch", pending());
            tasks.spawn("the reconciler", async move { assert!(!panicked, "planted") });
            let ended = run_until_stopped(&mut tasks, stop.cancelled(), &stop).await.unwrap_err();
            assert_eq!(ended, TaskEnded { task: "the reconciler", panicked });
            assert!(stop.is_cancelled() && ended.to_string().contains("the reconciler ended"), "{ended}");
        }
    }

    #[tokio::test]
    async fn a_stop_is_no_error_even_when_tasks_end_with_it() {
        let (stop, mut tasks) = (CancellationToken::new(), ProcessTasks::default());
        tasks.spawn("the reconciler", stop.clone().cancelled_owned());
        stop.cancel();
        assert_eq!(run_until_stopped(&mut tasks, stop.cancelled(), &stop).await, Ok(()));
    }
}
