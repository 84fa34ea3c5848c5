//! The process: it waits for the Lease, starts the controllers and stops.

use std::sync::Arc;
use std::time::Duration;

use axum::http::Request;
use kube::runtime::events::Reporter;
use kube::{Client, Config};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::limit::ConcurrencyLimitLayer;
use tower::util::MapRequestLayer;
use tracing::{info, warn};
use yoi_crds::name::field_manager;
use yoi_watch_cache::client_builder;

use crate::api_writes::{self, ApiWrites};
use crate::args::OperatorArgs;
use crate::controller::Context;
use crate::conversation_events::LiveConversations;
use crate::event_recorder::EventRecorder;
use crate::failures::Failures;
use crate::health::{Health, Metrics};
use crate::lease::{self, Elector};
use crate::presets;
use crate::progress_delay::ProgressDelay;
use crate::start::{Namespaces, start_all};
use crate::tls;
use crate::watch_caches::WatchCaches;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to find out how to reach the API server")]
    Config(#[source] Box<kube::config::InferConfigError>),
    #[error("failed to build a client")]
    Client(#[source] Box<kube::Error>),
    #[error("failed to listen on {addr}")]
    Listen { addr: std::net::SocketAddr, source: std::io::Error },
    #[error("failed to wait for signals")]
    Signal(#[source] std::io::Error),
    #[error(transparent)]
    Lease(#[from] lease::Error),
    #[error(transparent)]
    Tls(#[from] tls::Error),
    #[error(transparent)]
    Presets(#[from] presets::Error),
    /// The process ends when a part of it does.
    #[error("failed to go on: {part} ended{}", if *panicked { " by a panic" } else { "" })]
    Ended { part: &'static str, panicked: bool },
}

/// Requests at the same time; kube does not limit them. As many as reconciles of the four kinds at the default concurrency, so that none waits for another.
const REQUESTS: usize = 64;
/// How often the certificate and the APIService are checked.
const CERTIFICATE: Duration = Duration::from_secs(60);

async fn client(writes: &ApiWrites) -> Result<Client, Error> {
    let config = Config::infer().await.map_err(|e| Error::Config(Box::new(e)))?;
    let builder = client_builder(config).map_err(|e| Error::Client(Box::new(e)))?;
    let writes = writes.clone();
    let counted = MapRequestLayer::new(move |request: Request<kube::client::Body>| {
        api_writes::count(&writes, &request);
        request
    });
    Ok(builder.with_layer(&counted).with_layer(&ConcurrencyLimitLayer::new(REQUESTS)).build())
}

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// The process could not start, lost the Lease, or a part of it ended.
pub async fn run(args: OperatorArgs) -> Result<(), Error> {
    let mut terminate = signal(SignalKind::terminate()).map_err(Error::Signal)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Signal)?;
    let shutdown = async move {
        tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
    };
    tokio::pin!(shutdown);
    // Before the Lease: a replica that cannot read them takes nothing over.
    let presets = args.presets.as_deref().map(presets::read).transpose()?.unwrap_or_default();
    let metrics = Metrics::default();
    let client = client(&metrics.writes).await?;
    let (caches, writers, triggers) = WatchCaches::new();
    let (mut elector, leader_status) =
        Elector::new(client.clone(), &args.namespace, &args.identity, Duration::from_secs(args.lease_seconds));

    let mut parts: JoinSet<&'static str> = JoinSet::new();
    let addr = args.health_addr;
    let listener = TcpListener::bind(addr).await.map_err(|source| Error::Listen { addr, source })?;
    let health = Health { metrics: metrics.clone(), caches: Arc::clone(&caches), leader_status };
    parts.spawn(async move {
        // An error of the listener ends this part, and with it the process.
        let _ = axum::serve(listener, health.routes()).await;
        "the health server"
    });

    tokio::select! {
        () = elector.acquire() => {}
        () = &mut shutdown => return Ok(()),
        part = first_to_end(&mut parts) => return Err(part),
    }
    let stop = CancellationToken::new();
    let under_way = TaskTracker::new();
    let outcome = tokio::select! {
        // A lost Lease is checked first: nothing else may go on without it.
        biased;
        lost = elector.keep() => Err(lost.into()),
        outcome = async {
            let ca = certificate_authority(&client, &args).await?;
            parts.spawn(renew_certificate(client.clone(), args.clone()));
            let reporter = Reporter { controller: field_manager::OPERATOR.to_owned(), instance: Some(args.identity.clone()) };
            let context = Context {
                recorder: EventRecorder::new(&client, reporter, under_way.clone()),
                client,
                caches,
                settings: args.settings(ca, presets),
                metrics,
                concurrency: args.concurrency,
                stop: stop.clone(),
                under_way: under_way.clone(),
                failures: Failures::default(),
                progress: ProgressDelay::default(),
                conversations: LiveConversations::default(),
            };
            let namespaces = Namespaces { watched: args.watch_namespace.as_deref(), shims: &args.shim_namespace };
            start_all(&mut parts, writers, triggers, &Arc::new(context), namespaces);
            tokio::select! {
                () = &mut shutdown => Ok(()),
                part = first_to_end(&mut parts) => Err(part),
            }
        } => outcome,
    };
    if outcome.is_ok() {
        info!("stopping");
        stop.cancel();
        under_way.close();
        tokio::select! {
            lost = elector.keep() => return Err(lost.into()),
            done = timeout(Duration::from_secs(args.stop_seconds), under_way.wait()) => if done.is_err() {
                warn!("reconciles under way were cut off");
            },
        }
    }
    // The Lease is released after everything that acts has ended.
    parts.shutdown().await;
    elector.release().await;
    outcome
}

/// Waits for the first part to end, which is an error: all of them run for ever.
async fn first_to_end(parts: &mut JoinSet<&'static str>) -> Error {
    match parts.join_next().await {
        Some(Ok(part)) => Error::Ended { part, panicked: false },
        Some(Err(error)) => Error::Ended { part: "a task", panicked: error.is_panic() },
        None => Error::Ended { part: "everything", panicked: false },
    }
}

/// The certificate authority of the gateway in PEM, after its certificate is made or renewed.
async fn certificate_authority(client: &Client, args: &OperatorArgs) -> Result<String, tls::Error> {
    tls::ensure(client, &args.namespace, &args.gateway_secret, &args.gateway_names(), jiff::Timestamp::now()).await
}

/// Renews the certificate in time, and sets the CA again where somebody removed it. Returns when the CA is another one: agents get the CA in
/// their manifests, so the process must start again.
async fn renew_certificate(client: Client, args: OperatorArgs) -> &'static str {
    let mut ticks = interval(CERTIFICATE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut known: Option<String> = None;
    loop {
        ticks.tick().await;
        let ca = match certificate_authority(&client, &args).await {
            Ok(ca) => ca,
            Err(error) => {
                warn!(error = &error as &dyn std::error::Error, "certificate not looked after; tried again");
                continue;
            }
        };
        if known.get_or_insert_with(|| ca.clone()) != &ca {
            return "the certificate authority of this process";
        }
        if let Err(error) = tls::set_ca_bundle(&client, &args.apiservice, &ca).await {
            warn!(error = &error as &dyn std::error::Error, "CA not set; tried again");
        }
    }
}
