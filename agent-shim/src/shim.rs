//! The half that thinks and speaks: reconciles workspaces, answers the kubelet and the Pods of this node. Holds no capability.

mod authority;
mod csi_service;
mod health;
mod keyed_locks;
mod node_report;
mod orphans;
mod pod_sockets;
mod provision_controller;
mod provisioning;
pub mod publish_records;
mod publishing;
mod recovery;
mod registration;
mod runtime_store;
mod state;
mod workspace_cache;
mod workspace_report;

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use futures::TryStreamExt;
use kube::client::ClientBuilder;
use kube::{Client, Config};
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::unbounded_channel;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use tower::limit::ConcurrencyLimitLayer;
use tower::timeout::TimeoutLayer;
use tracing::Instrument;
use yoi_wire::identity::CSI_DRIVER;
use yoi_workspace::{Journal, JournalError};

use crate::args::ShimArgs;
use crate::chain;
use crate::mounter::client::{Mounter, MounterClient, MounterFailure};
use crate::proto::csi::identity_server::IdentityServer;
use crate::proto::csi::node_server::NodeServer;
use crate::proto::registration::registration_server::RegistrationServer;
use crate::runtime_digest::RuntimeDigest;
use crate::volume::PublishedVolume;
use authority::Localhost;
use csi_service::CsiService;
use health::{RequiredTasks, TaskEnded};
use publish_records::{PublishRecordError, PublishRecords};
use registration::Registrar;
use runtime_store::{RuntimeError, RuntimeStore};
use state::{Error, ShimState};

#[derive(Debug, thiserror::Error)]
pub enum ShimError {
    #[error("failed to make the driver's folder {path}")]
    Folder { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    PublishRecords(#[from] PublishRecordError),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error("failed to meet the mounter")]
    Mounter(#[source] MounterFailure),
    #[error("failed to recover")]
    Recover(#[source] Error),
    #[error("failed to find the API server")]
    Api(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("failed to serve {path}")]
    Serve { path: PathBuf, source: io::Error },
    #[error("failed to serve gRPC")]
    Grpc(#[from] tonic::transport::Error),
    #[error("failed to serve health and metrics")]
    Health(#[source] io::Error),
    #[error("failed to register: the kubelet says: {0}")]
    Registration(String),
    #[error("failed to listen for signals")]
    Signal(#[source] io::Error),
    #[error(transparent)]
    TaskEnded(#[from] TaskEnded),
}

/// How long those who still speak may take once the process is told to end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves until it is told to end. Mounts stay. Every line that is logged names the node.
pub async fn serve(args: ShimArgs) -> Result<(), ShimError> {
    let span = tracing::info_span!("shim", node = args.node_name);
    run(args).instrument(span).await
}

async fn run(args: ShimArgs) -> Result<(), ShimError> {
    let client = client().await?;
    let mounter: Arc<dyn Mounter> = Arc::new(MounterClient::new(args.mounter_socket.clone()));
    let folder = args.driver_dir();
    for dir in [&folder, &args.kubelet_dir.join("plugins_registry")] {
        std::fs::create_dir_all(dir).map_err(|source| ShimError::Folder { path: dir.clone(), source })?;
    }
    let journal = Arc::new(Journal::open(&folder.join("journal"))?);
    if !wait_for_data_root(&args, &client, &*mounter, &folder, &journal).await? {
        return Ok(());
    }
    let offered = mounter.probe().await.map_err(ShimError::Mounter)?;
    let damage = recovery::recover(&journal, &*mounter).await.map_err(ShimError::Recover)?;
    let publish_records = Arc::new(PublishRecords::open(folder.join("publish"))?);
    let runtimes = RuntimeStore::install(&folder, &args.runtime_binary, &published_digests(&publish_records))?;
    let (requeue, requeued) = unbounded_channel();
    let state = Arc::new(ShimState {
        node: args.node_name.clone(),
        kubelet_dir: args.kubelet_dir.clone(),
        mounter,
        journal,
        publish_records,
        runtimes,
        cache: Default::default(),
        offers: RwLock::new(offered.offers),
        damage,
        tree_locks: Default::default(),
        volume_locks: Default::default(),
        requeue,
        metrics: Default::default(),
        stop: CancellationToken::new(),
        sockets: Default::default(),
        serving: Default::default(),
    });
    recovery::log_failure("remember mounts without a record", state.adopt().await);
    recovery::log_failure("forget records of Pods that are gone", state.sweep().await);
    recovery::log_failure("open the sockets of Pods", publishing::restore_pod_sockets(&state).await);

    let health = tokio::spawn(health::serve(state.clone(), args.health_address));
    let mut tasks = RequiredTasks::default();
    tasks.spawn("the making door", provision_controller::run(state.clone(), client.clone(), requeued).in_current_span());
    tasks.spawn("the report of the node", node_report::run(state.clone(), client).in_current_span());
    let ended = serve_sockets(&state, &folder, &args.kubelet_dir, health, &mut tasks).await;
    state.stop.cancel();
    _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, tasks.rest()).await;
    ended
}

/// Until the mounter has opened the data root that this node's trees are in. False if the process was told to end before.
async fn wait_for_data_root(
    args: &ShimArgs,
    client: &Client,
    mounter: &dyn Mounter,
    folder: &Path,
    journal: &Journal,
) -> Result<bool, ShimError> {
    let expected = recovery::expected_data_root(folder, journal).map_err(ShimError::Recover)?;
    let tell = async |why: &str| {
        if let Err(error) = node_report::report_missing_data_root(client, &args.node_name, why).await {
            tracing::warn!(error = chain::whole(&error), "the node was not reported");
        }
    };
    // Alive and not ready: to be killed for waiting would help nobody.
    let health = health::serve_waiting(TcpListener::bind(args.health_address).await.map_err(ShimError::Health)?);
    tokio::select! {
        met = recovery::open_data_root(mounter, expected, folder, tell) => met.map(|()| true).map_err(ShimError::Recover),
        ended = health => Err(ShimError::Health(ended.err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into()))),
        signal = termination_signal() => signal.map(|()| false),
    }
}

fn published_digests(publish_records: &PublishRecords) -> Vec<RuntimeDigest> {
    let digests = publish_records.all().into_iter().filter_map(|p| match p.shows {
        PublishedVolume::Runtime { digest } => Some(digest),
        PublishedVolume::Tree { .. } => None,
    });
    digests.collect::<HashSet<_>>().into_iter().collect()
}

/// Opens both sockets and waits for the end, which comes too when one of the tasks ends.
async fn serve_sockets(
    state: &Arc<ShimState>,
    folder: &Path,
    kubelet_dir: &Path,
    health: tokio::task::JoinHandle<io::Result<()>>,
    tasks: &mut RequiredTasks,
) -> Result<(), ShimError> {
    let endpoint = folder.join("csi.sock");
    let csi = serve_csi(state.clone(), listen(&endpoint)?);
    let registry = kubelet_dir.join("plugins_registry").join(format!("{CSI_DRIVER}-reg.sock"));
    let (refused, mut refusals) = unbounded_channel();
    let registrar = Registrar { endpoint, refused };
    let registration = Server::builder().add_service(RegistrationServer::new(registrar)).serve_with_incoming_shutdown(
        UnixListenerStream::new(listen(&registry)?).map_ok(Localhost::new),
        state.stop.clone().cancelled_owned(),
    );
    state.serving.store(true, Ordering::Relaxed);
    tracing::info!("the doors are open");

    let both = async { tokio::try_join!(csi, registration).map(drop) };
    let mut both = std::pin::pin!(both);
    let ended = tokio::select! {
        done = &mut both => return done.map_err(ShimError::Grpc),
        done = health => done.map_err(io::Error::other).and_then(|d| d).map_err(ShimError::Health),
        Some(said) = refusals.recv() => Err(ShimError::Registration(said)),
        ended = tasks.ended() => Err(ended.into()),
        signal = termination_signal() => signal,
    };
    // The kubelet sees the name go and forgets the driver; what is mounted stays mounted.
    _ = std::fs::remove_file(&registry);
    state.stop.cancel();
    _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, both).await;
    ended
}

pub async fn serve_csi(state: Arc<ShimState>, listener: UnixListener) -> Result<(), tonic::transport::Error> {
    let stop = state.stop.clone().cancelled_owned();
    let csi = CsiService(state);
    Server::builder()
        .add_service(IdentityServer::new(csi.clone()))
        .add_service(NodeServer::new(csi))
        .serve_with_incoming_shutdown(UnixListenerStream::new(listener), stop)
        .await
}

/// Bound under its own name, never renamed into place: the kubelet would take the temporary name of a registry's socket for a plugin.
fn listen(path: &Path) -> Result<UnixListener, ShimError> {
    let wrap = |source| ShimError::Serve { path: path.to_owned(), source };
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(wrap(e)),
        Ok(()) | Err(_) => {}
    }
    UnixListener::bind(path).map_err(wrap)
}

async fn client() -> Result<Client, ShimError> {
    let config = Config::infer().await.map_err(|e| ShimError::Api(e.into()))?;
    let builder = ClientBuilder::try_from(config).map_err(|e| ShimError::Api(e.into()))?;
    // Of the response's headers only, so that watches live on.
    Ok(builder.with_layer(&TimeoutLayer::new(Duration::from_secs(30))).with_layer(&ConcurrencyLimitLayer::new(32)).build())
}

async fn termination_signal() -> Result<(), ShimError> {
    let mut term = signal(SignalKind::terminate()).map_err(ShimError::Signal)?;
    let mut int = signal(SignalKind::interrupt()).map_err(ShimError::Signal)?;
    let name = tokio::select! {
        _ = term.recv() => "SIGTERM",
        _ = int.recv() => "SIGINT",
    };
    tracing::info!(signal = name, "told to end");
    Ok(())
}

#[cfg(test)]
mod crash_points;
#[cfg(test)]
mod csi_tests;
#[cfg(test)]
mod hostile_input;
#[cfg(test)]
mod node_restart;
#[cfg(test)]
mod real_disk;
