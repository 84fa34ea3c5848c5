//! The half that thinks and speaks: reconciles workspaces, answers the kubelet and the Pods of this node. Holds no capability.

mod authority;
mod cache;
mod csi;
mod door;
mod health;
mod locks;
mod making;
mod mounting;
mod node;
pub mod publish;
mod recover;
mod registration;
mod report;
mod runtimes;
mod sockets;
mod vanished;
mod world;

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
use crate::mounter::client::{Failure, Line, Mounter};
use crate::proto::csi::identity_server::IdentityServer;
use crate::proto::csi::node_server::NodeServer;
use crate::proto::registration::registration_server::RegistrationServer;
use authority::Localhost;
use csi::Csi;
use health::{Ended, Parts};
use publish::{Exhibit, PublicationError, Publications};
use registration::Registrar;
use runtimes::{RuntimeError, Runtimes};
use world::{Trouble, World};

#[derive(Debug, thiserror::Error)]
pub enum ShimError {
    #[error("failed to make the driver's folder {path}")]
    Folder { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Publications(#[from] PublicationError),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error("failed to meet the mounter")]
    Mounter(#[source] Failure),
    #[error("failed to recover")]
    Recover(#[source] Trouble),
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
    Ended(#[from] Ended),
}

/// How long those who still speak may take once the process is told to end.
const GRACE: Duration = Duration::from_secs(5);

/// Serves until it is told to end. Mounts stay. Every line that is logged names the node.
pub async fn serve(args: ShimArgs) -> Result<(), ShimError> {
    let span = tracing::info_span!("shim", node = args.node_name);
    run(args).instrument(span).await
}

async fn run(args: ShimArgs) -> Result<(), ShimError> {
    let client = client().await?;
    let mounter: Arc<dyn Mounter> = Arc::new(Line::new(args.mounter_socket.clone()));
    let folder = args.driver_dir();
    for dir in [&folder, &args.kubelet_dir.join("plugins_registry")] {
        std::fs::create_dir_all(dir).map_err(|source| ShimError::Folder { path: dir.clone(), source })?;
    }
    let journal = Arc::new(Journal::open(&folder.join("journal"))?);
    if !await_the_root(&args, &client, &*mounter, &folder, &journal).await? {
        return Ok(());
    }
    let offered = mounter.probe().await.map_err(ShimError::Mounter)?;
    let troubled = recover::recover(&journal, &*mounter).await.map_err(ShimError::Recover)?;
    let publications = Arc::new(Publications::open(folder.join("publish"))?);
    let runtimes = Runtimes::install(&folder, &args.runtime_binary, &wanted(&publications))?;
    let (nudge, nudges) = unbounded_channel();
    let world = Arc::new(World {
        node: args.node_name.clone(),
        kubelet_dir: args.kubelet_dir.clone(),
        mounter,
        journal,
        publications,
        runtimes,
        cache: Default::default(),
        offers: RwLock::new(offered.offers),
        troubled,
        trees: Default::default(),
        volumes: Default::default(),
        nudge,
        counts: Default::default(),
        stop: CancellationToken::new(),
        sockets: Default::default(),
        open: Default::default(),
    });
    recover::tolerate("remember mounts without a record", world.adopt().await);
    recover::tolerate("forget records of Pods that are gone", world.sweep().await);
    recover::tolerate("open the sockets of Pods", mounting::reopen(&world).await);

    let health = tokio::spawn(health::serve(world.clone(), args.health_address));
    let mut parts = Parts::default();
    parts.spawn("the making door", door::run(world.clone(), client.clone(), nudges).in_current_span());
    parts.spawn("the report of the node", node::run(world.clone(), client).in_current_span());
    let ended = doors(&world, &folder, &args.kubelet_dir, health, &mut parts).await;
    world.stop.cancel();
    _ = tokio::time::timeout(GRACE, parts.rest()).await;
    ended
}

/// Until the mounter has opened the data root that this node's trees are in. False if the process was told to end before.
async fn await_the_root(
    args: &ShimArgs,
    client: &Client,
    mounter: &dyn Mounter,
    folder: &Path,
    journal: &Journal,
) -> Result<bool, ShimError> {
    let expected = recover::expected(folder, journal).map_err(ShimError::Recover)?;
    let tell = async |why: &str| {
        if let Err(error) = node::rootless(client, &args.node_name, why).await {
            tracing::warn!(error = chain::whole(&error), "the node was not reported");
        }
    };
    // Alive and not ready: to be killed for waiting would help nobody.
    let health = health::serve_waiting(TcpListener::bind(args.health_address).await.map_err(ShimError::Health)?);
    tokio::select! {
        met = recover::meet(mounter, expected, folder, tell) => met.map(|()| true).map_err(ShimError::Recover),
        ended = health => Err(ShimError::Health(ended.err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into()))),
        told = told_to_end() => told.map(|()| false),
    }
}

fn wanted(publications: &Publications) -> Vec<crate::mounter::verb::Digest> {
    let digests = publications.all().into_iter().filter_map(|p| match p.shows {
        Exhibit::Runtime { digest } => Some(digest),
        Exhibit::Tree { .. } => None,
    });
    digests.collect::<HashSet<_>>().into_iter().collect()
}

/// Opens both sockets and waits for the end, which comes too when one of the parts ends.
async fn doors(
    world: &Arc<World>,
    folder: &Path,
    kubelet_dir: &Path,
    health: tokio::task::JoinHandle<io::Result<()>>,
    parts: &mut Parts,
) -> Result<(), ShimError> {
    let endpoint = folder.join("csi.sock");
    let csi = serve_csi(world.clone(), listen(&endpoint)?);
    let registry = kubelet_dir.join("plugins_registry").join(format!("{CSI_DRIVER}-reg.sock"));
    let (refused, mut refusals) = unbounded_channel();
    let registrar = Registrar { endpoint, refused };
    let registration = Server::builder().add_service(RegistrationServer::new(registrar)).serve_with_incoming_shutdown(
        UnixListenerStream::new(listen(&registry)?).map_ok(Localhost::new),
        world.stop.clone().cancelled_owned(),
    );
    world.open.store(true, Ordering::Relaxed);
    tracing::info!("the doors are open");

    let both = async { tokio::try_join!(csi, registration).map(drop) };
    let mut both = std::pin::pin!(both);
    let ended = tokio::select! {
        done = &mut both => return done.map_err(ShimError::Grpc),
        done = health => done.map_err(io::Error::other).and_then(|d| d).map_err(ShimError::Health),
        Some(said) = refusals.recv() => Err(ShimError::Registration(said)),
        ended = parts.ended() => Err(ended.into()),
        told = told_to_end() => told,
    };
    // The kubelet sees the name go and forgets the driver; what is mounted stays mounted.
    _ = std::fs::remove_file(&registry);
    world.stop.cancel();
    _ = tokio::time::timeout(GRACE, both).await;
    ended
}

pub async fn serve_csi(world: Arc<World>, listener: UnixListener) -> Result<(), tonic::transport::Error> {
    let stop = world.stop.clone().cancelled_owned();
    let csi = Csi(world);
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

async fn told_to_end() -> Result<(), ShimError> {
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
mod faults;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod real;
#[cfg(test)]
mod reboot;
#[cfg(test)]
mod tests;
