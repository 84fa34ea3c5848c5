//! The process: lead, watch, reconcile, stop.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::http::Request;
use futures::{Stream, StreamExt};
use kube::client::ClientBuilder;
use kube::core::NamespaceResourceScope;
use kube::runtime::events::{Recorder, Reporter};
use kube::runtime::watcher;
use kube::{Api, Client, Config, Resource};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::limit::ConcurrencyLimitLayer;
use tower::timeout::TimeoutLayer;
use tower::util::MapRequestLayer;
use tracing::{info, warn};
use yoi_crds::name::{field_manager, label};
use yoi_plan::meta;

use crate::api_writes::{self, ApiWrites};
use crate::args::Args;
use crate::cache::Key;
use crate::controller::{self, Context};
use crate::health::{Health, Metrics};
use crate::lease::{self, Elector};
use crate::tls;
use crate::watch_caches::{CacheWriters, Triggers, WatchCaches};

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
    /// The process ends rather than live on with a part that does not work.
    #[error("failed to go on: {part} ended{}", if *panicked { " by a panic" } else { "" })]
    Ended { part: &'static str, panicked: bool },
}

/// Time for the answer's head: kube has no such limit of its own, and watches may take for ever after it.
const HEADERS: Duration = Duration::from_secs(30);
/// Requests at the same time; kube does not limit them.
const REQUESTS: usize = 32;
/// How often the certificate and the APIService are looked at.
const CERTIFICATE: Duration = Duration::from_secs(60);

async fn client(writes: &ApiWrites) -> Result<Client, Error> {
    let config = Config::infer().await.map_err(|e| Error::Config(Box::new(e)))?;
    let builder = ClientBuilder::try_from(config).map_err(|e| Error::Client(Box::new(e)))?;
    let writes = writes.clone();
    let counted = MapRequestLayer::new(move |request: Request<kube::client::Body>| {
        api_writes::count(&writes, &request);
        request
    });
    Ok(builder.with_layer(&counted).with_layer(&TimeoutLayer::new(HEADERS)).with_layer(&ConcurrencyLimitLayer::new(REQUESTS)).build())
}

/// Runs until SIGTERM or SIGINT, which end it well, or until leadership or a part of it is lost.
pub async fn run(args: Args) -> Result<(), Error> {
    let mut terminate = signal(SignalKind::terminate()).map_err(Error::Signal)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Signal)?;
    let shutdown = async move {
        tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
    };
    tokio::pin!(shutdown);
    let metrics = Metrics::default();
    let client = client(&metrics.writes).await?;
    let (caches, writers, triggers) = WatchCaches::new();
    let (mut elector, leader_status) = Elector::new(client.clone(), &args.namespace, &args.identity);

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
    let rounds = TaskTracker::new();
    let outcome = tokio::select! {
        // First, so that a lost Lease wins over everything that it stops.
        biased;
        lost = elector.keep() => Err(lost.into()),
        outcome = async {
            start_controllers(&args, client, caches, writers, triggers, metrics, (&stop, &rounds), &mut parts).await?;
            tokio::select! {
                () = &mut shutdown => Ok(()),
                part = first_to_end(&mut parts) => Err(part),
            }
        } => outcome,
    };
    if outcome.is_ok() {
        info!("stopping");
        stop.cancel();
        rounds.close();
        tokio::select! {
            lost = elector.keep() => return Err(lost.into()),
            done = timeout(Duration::from_secs(args.stop_seconds), rounds.wait()) => if done.is_err() {
                warn!("reconciles under way were cut off");
            },
        }
    }
    // Nobody acts any more when the Lease is given up.
    parts.shutdown().await;
    elector.release().await;
    outcome
}

/// The first part that ends, although none should.
async fn first_to_end(parts: &mut JoinSet<&'static str>) -> Error {
    match parts.join_next().await {
        Some(Ok(part)) => Error::Ended { part, panicked: false },
        Some(Err(error)) => Error::Ended { part: "a task", panicked: error.is_panic() },
        None => Error::Ended { part: "everything", panicked: false },
    }
}

#[expect(clippy::too_many_arguments, reason = "the one place where everything meets")]
async fn start_controllers(
    args: &Args,
    client: Client,
    caches: Arc<WatchCaches>,
    writers: CacheWriters,
    triggers: Triggers,
    metrics: Metrics,
    (stop, rounds): (&CancellationToken, &TaskTracker),
    parts: &mut JoinSet<&'static str>,
) -> Result<(), Error> {
    let names = args.gateway_names();
    let ca = tls::ensure(&client, &args.namespace, &args.gateway_secret, &names, jiff::Timestamp::now()).await?;
    parts.spawn(renew_certificate(client.clone(), args.clone(), names));
    let reporter = Reporter { controller: field_manager::OPERATOR.to_owned(), instance: Some(args.identity.clone()) };
    let recorder = Recorder::new(client.clone(), reporter);
    let context =
        Arc::new(Context::new(client.clone(), Arc::clone(&caches), args.settings(ca), recorder, metrics, stop.clone(), rounds.clone()));

    let all = watcher::Config::default;
    let notify = |f: fn(&WatchCaches, &[Key])| {
        let caches = Arc::clone(&caches);
        move |keys: &[Key]| f(&caches, keys)
    };
    let ours = || all().labels(label::ROLE);
    let only = args.watch_namespace.as_deref();
    watch(parts, writers.pods.stream(scoped(&client, only), ours(), notify(WatchCaches::part_changed)));
    watch(parts, writers.policies.stream(scoped(&client, only), ours(), notify(WatchCaches::part_changed)));
    watch(parts, writers.manifests.stream(scoped(&client, only), all().labels(label::YOIPOD), notify(WatchCaches::part_changed)));
    watch(parts, writers.volumes.stream(Api::all(client.clone()), all(), notify(WatchCaches::part_changed)));
    watch(parts, writers.namespaces.stream(Api::all(client.clone()), all(), |_: &[Key]| {}));
    let machines_changed = |caches: &WatchCaches, _: &[Key]| caches.machines_changed();
    watch(parts, writers.machines.stream(Api::all(client.clone()), all(), notify(machines_changed)));
    let offers = writers.offers.stream(Api::all(client.clone()), all(), notify(machines_changed));
    let stored = caches.offers.store();
    control(parts, controller::maintain(offers, stored, triggers.offers, Arc::clone(&context)));
    let claims = writers.claims.stream(scoped(&client, only), all(), notify(WatchCaches::part_changed));
    // A cluster may have many, and all but these need nothing.
    let going = claims.filter(|c| std::future::ready(c.as_ref().map_or(true, |c| meta::deleting(&c.metadata))));
    control(parts, controller::maintain(going, caches.claims.store(), futures::stream::empty(), Arc::clone(&context)));

    let projects = writers.projects.stream(scoped(&client, only), all(), notify(WatchCaches::project_changed));
    let workspaces = writers.workspaces.stream(scoped(&client, only), all(), notify(WatchCaches::workspace_changed));
    let yoipods = writers.yoipods.stream(scoped(&client, only), all(), notify(WatchCaches::yoipod_changed));
    let peers = writers.peers.stream(scoped(&client, only), all(), |_: &[Key]| {});
    let n = args.concurrency;
    let stores = (caches.projects.store(), caches.workspaces.store(), caches.yoipods.store(), caches.peers.store());
    control(parts, controller::run(projects, stores.0, triggers.projects, Arc::clone(&context), n));
    control(parts, controller::run(workspaces, stores.1, triggers.workspaces, Arc::clone(&context), n));
    control(parts, controller::run(yoipods, stores.2, triggers.yoipods, Arc::clone(&context), n));
    control(parts, controller::run(peers, stores.3, triggers.peers, context, n));
    Ok(())
}

fn scoped<K>(client: &Client, only: Option<&str>) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    only.map_or_else(|| Api::all(client.clone()), |namespace| Api::namespaced(client.clone(), namespace))
}

fn watch<K: Send + 'static>(parts: &mut JoinSet<&'static str>, stream: impl Stream<Item = Result<K, watcher::Error>> + Send + 'static) {
    parts.spawn(async move {
        stream
            .for_each(|event| async move {
                if let Err(error) = event {
                    warn!(%error, kind = std::any::type_name::<K>(), "watch failed; it is tried again");
                }
            })
            .await;
        "a watch"
    });
}

fn control(parts: &mut JoinSet<&'static str>, controller: impl Future<Output = ()> + Send + 'static) {
    parts.spawn(async move {
        controller.await;
        "a controller"
    });
}

/// Renews the certificate in time, and puts the CA back where somebody took it away. A new CA is for new manifests: the process starts anew with it.
async fn renew_certificate(client: Client, args: Args, names: Vec<String>) -> &'static str {
    let mut ticks = interval(CERTIFICATE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut known: Option<String> = None;
    loop {
        ticks.tick().await;
        let now = jiff::Timestamp::now();
        let ca = match tls::ensure(&client, &args.namespace, &args.gateway_secret, &names, now).await {
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
