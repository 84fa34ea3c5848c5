//! The process without privileges: reconciles workspaces, answers the kubelet and the Pods of this node. It holds no capability.
//!
//! # Layers
//! Each module uses only those above it.
//! - [`publish_records`], [`runtime_store`], [`workspaces`], [`views`], `pod_sockets`, `keyed_locks`, `metrics`: one thing each.
//! - [`state`]: all of them together.
//! - [`recovery`], [`data_root`], [`change_list`], [`loans`], [`provisioning`]: work on trees. [`publishing`]: volumes of Pods.
//! - [`record_sweep`], [`orphans`], [`unclaimed`]: clean up what a crash, a deletion or a lost node left.
//! - `csi_service`, `registration`, `provision_controller`, `node_report`, [`health`]: who calls, and what is reported.

mod authority;
pub mod change_list;
mod csi_service;
pub mod data_root;
pub mod error;
pub mod first_reports;
pub mod health;
pub mod keyed_locks;
pub mod loans;
pub mod metrics;
mod node_report;
pub mod orphans;
pub mod pauses;
pub mod pod_sockets;
mod provision_controller;
pub mod provisioning;
pub mod publish_records;
pub mod publishing;
pub mod record_sweep;
pub mod recovery;
mod registration;
pub mod required_tasks;
pub mod runtime_store;
pub mod state;
pub mod unclaimed;
pub mod usage;
pub mod views;
mod workspace_report;
pub mod workspaces;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use futures::TryStreamExt;
use kube::{Client, Config};
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::unbounded_channel;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tower::limit::ConcurrencyLimitLayer;
use tracing::Instrument;
use yoi_wire::identity::CSI_DRIVER;
use yoi_workspace::{Journal, JournalError};

use crate::args::ShimArgs;
use crate::decide::node_status::DataRootFailure;
use crate::mounter::client::{Mounter, MounterClient, MounterFailure};
use crate::proto::csi::identity_server::IdentityServer;
use crate::proto::csi::node_server::NodeServer;
use crate::proto::registration::registration_server::RegistrationServer;
use authority::LocalhostAuthority;
use csi_service::CsiService;
use error::Error;
use registration::Registrar;
use required_tasks::{RequiredTaskEnded, RequiredTasks};
use state::ShimState;
use yoi_wire::error_chain;

/// The shim could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum ShimError {
    /// A directory on the node could not be made.
    #[error("failed to make the driver's folder {path}")]
    Folder {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The journal could not be opened.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The publish records or the runtime could not be opened.
    #[error(transparent)]
    State(Error),
    /// The mounter could not say what this node offers.
    #[error("failed to meet the mounter")]
    Mounter(#[source] MounterFailure),
    /// The data root could not be opened, or journal and disk could not be brought into agreement.
    #[error("failed to recover")]
    Recover(#[source] Error),
    /// There is no configuration of an API server.
    #[error("failed to find the API server")]
    Api(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A socket could not be bound.
    #[error("failed to serve {path}")]
    Serve {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A gRPC server failed.
    #[error("failed to serve gRPC")]
    Grpc(#[from] tonic::transport::Error),
    /// The HTTP server of health and metrics failed.
    #[error("failed to serve health and metrics")]
    Health(#[source] io::Error),
    /// The kubelet did not accept the driver.
    #[error("failed to register: the kubelet says: {0}")]
    Registration(String),
    /// Signals could not be received.
    #[error("failed to listen for signals")]
    Signal(#[source] io::Error),
    /// A task that the process needs ended.
    #[error(transparent)]
    TaskEnded(#[from] RequiredTaskEnded),
}

/// How long open calls may take once the process is to end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves until the process gets SIGTERM or SIGINT, or fails. Mounts stay. Each line that is logged names the node.
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
    let probe = mounter.probe().await.map_err(ShimError::Mounter)?;
    let damage = recovery::recover(&journal, &*mounter).await.map_err(ShimError::Recover)?;
    let (node, kubelet_dir) = (args.node_name.clone(), args.kubelet_dir.clone());
    let (state, inputs) = ShimState::open(node, kubelet_dir, &args.runtime_binary, mounter, journal).map_err(ShimError::State)?;
    let state = Arc::new(ShimState { offers: RwLock::new(probe.offers), damage, host_sources: args.host_sources.clone(), ..state });
    log_failure("record mounts without a record", record_sweep::add_missing_records(&state).await);
    log_failure("remove records of Pods that are gone", record_sweep::remove_stale_records(&state).await);
    log_failure("open the sockets of Pods", publishing::restore_pod_sockets(&state).await);

    let listener = TcpListener::bind(args.health_address).await.map_err(ShimError::Health)?;
    let health = tokio::spawn(health::serve(state.clone(), listener));
    let mut tasks = RequiredTasks::default();
    tasks.spawn("the provision controller", provision_controller::run(state.clone(), client.clone(), inputs).in_current_span());
    tasks.spawn("the usage of trees", usage::run(state.clone(), client.clone()).in_current_span());
    tasks.spawn("the trees that no object claims", unclaimed::run(state.clone(), client.clone()).in_current_span());
    tasks.spawn("the report of the node", node_report::run(state.clone(), client).in_current_span());
    let result = serve_sockets(&state, health, &mut tasks).await;
    state.stop.cancel();
    _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, tasks.join_all()).await;
    result
}

/// One step of the recovery that fails must not keep all other Pods from being served.
fn log_failure(step: &'static str, result: Result<(), Error>) {
    if let Err(error) = result {
        tracing::error!(step, error = error_chain(&error), "recovery is incomplete");
    }
}

/// Waits until the mounter has opened the data root that holds this node's trees. Returns false if the process is to end before that.
async fn wait_for_data_root(
    args: &ShimArgs,
    client: &Client,
    mounter: &dyn Mounter,
    folder: &Path,
    journal: &Journal,
) -> Result<bool, ShimError> {
    let expected = recovery::expected_data_root(folder, journal).map_err(ShimError::Recover)?;
    let report = async |failure: DataRootFailure| {
        if let Err(error) = node_report::report_without_data_root(client, &args.node_name, &failure).await {
            tracing::warn!(error = error_chain(&error), "the node was not reported");
        }
    };
    // The process is alive and not ready: a restart would not bring the data root.
    let health = health::serve_waiting(TcpListener::bind(args.health_address).await.map_err(ShimError::Health)?);
    tokio::select! {
        opened = recovery::open_data_root(mounter, expected, folder, report) => opened.map(|()| true).map_err(ShimError::Recover),
        ended = health => Err(ShimError::Health(ended.err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into()))),
        signal = termination_signal() => signal.map(|()| false),
    }
}

/// Serves the CSI socket and the registration socket until the process is to end, or until `health` or one of `tasks` ends.
///
/// Removes the registration socket at the end, so that the kubelet forgets the driver. Mounts stay.
pub async fn serve_sockets(
    state: &Arc<ShimState>,
    health: tokio::task::JoinHandle<io::Result<()>>,
    tasks: &mut RequiredTasks,
) -> Result<(), ShimError> {
    let endpoint = crate::args::driver_dir(&state.kubelet_dir).join("csi.sock");
    let csi = serve_csi(state.clone(), listen(&endpoint)?);
    let registry = state.kubelet_dir.join("plugins_registry").join(format!("{CSI_DRIVER}-reg.sock"));
    let (refused, mut refusals) = unbounded_channel();
    let registrar = Registrar { endpoint, refused };
    let registration = Server::builder().add_service(RegistrationServer::new(registrar)).serve_with_incoming_shutdown(
        UnixListenerStream::new(listen(&registry)?).map_ok(LocalhostAuthority::new),
        state.stop.clone().cancelled_owned(),
    );
    state.serving.store(true, Ordering::Relaxed);
    tracing::info!("the CSI sockets are open");

    let both = async { tokio::try_join!(csi, registration).map(drop) };
    let mut both = std::pin::pin!(both);
    let result = tokio::select! {
        done = &mut both => return done.map_err(ShimError::Grpc),
        done = health => done.map_err(io::Error::other).and_then(|d| d).map_err(ShimError::Health),
        Some(error) = refusals.recv() => Err(ShimError::Registration(error)),
        ended = tasks.first_end() => Err(ended.into()),
        signal = termination_signal() => signal,
    };
    _ = std::fs::remove_file(&registry);
    state.stop.cancel();
    _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, both).await;
    result
}

/// Serves CSI Identity and Node until [`ShimState::stop`] is cancelled.
pub async fn serve_csi(state: Arc<ShimState>, listener: UnixListener) -> Result<(), tonic::transport::Error> {
    let stop = state.stop.clone().cancelled_owned();
    let csi = CsiService(state);
    Server::builder()
        .add_service(IdentityServer::new(csi.clone()))
        .add_service(NodeServer::new(csi))
        .serve_with_incoming_shutdown(UnixListenerStream::new(listener), stop)
        .await
}

/// Binds the socket under its own name and not by a rename: the kubelet would take a temporary name in its registry for a plugin.
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
    let builder = yoi_watch_cache::client_builder(config).map_err(|e| ShimError::Api(e.into()))?;
    Ok(builder.with_layer(&ConcurrencyLimitLayer::new(32)).build())
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
