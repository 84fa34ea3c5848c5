//! The shim's end of the socket.

use std::io;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};
use yoi_workspace::plan::DiskStep;
use yoi_workspace::{Change, CloneAccess, ErrorReason, Expected, Inventory, Making, Probe, ProviderKind, TreeManifest, Uid};

use super::frame;
use super::log_context::LogContext;
use super::protocol::{Envelope, Mounts, Refusal, Request, Response};
use crate::runtime_digest::RuntimeDigest;
use crate::volume::PodVolume;

/// The seam to the disk. The real one is [`MounterClient`]; tests pass one that remembers.
pub trait Mounter: Send + Sync + 'static {
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Response, MounterFailure>>;
}

#[derive(Debug, thiserror::Error)]
pub enum MounterFailure {
    /// Whether the deed was done is not known.
    #[error("failed to hear from the mounter")]
    Transport(#[source] io::Error),
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A mounter of another version.
    #[error("failed to understand the mounter's answer")]
    Protocol,
}

impl dyn Mounter {
    /// Answers with the data root's own name.
    pub async fn open(&self, expected: Expected) -> Result<Uid, MounterFailure> {
        if let Response::Opened(name) = self.call(Request::Open { expected }).await? { Ok(name) } else { Err(MounterFailure::Protocol) }
    }

    pub async fn probe(&self) -> Result<Probe, MounterFailure> {
        if let Response::Offers(offers) = self.call(Request::Probe).await? { Ok(offers) } else { Err(MounterFailure::Protocol) }
    }

    pub async fn inventory(&self) -> Result<Inventory, MounterFailure> {
        if let Response::Trees(trees) = self.call(Request::Inventory).await? { Ok(trees) } else { Err(MounterFailure::Protocol) }
    }

    pub async fn mounts(&self) -> Result<Mounts, MounterFailure> {
        if let Response::Mounts(mounts) = self.call(Request::Mounts).await? { Ok(mounts) } else { Err(MounterFailure::Protocol) }
    }

    pub async fn make(&self, uid: Uid, provider: ProviderKind, making: Making) -> Result<(), MounterFailure> {
        let request = match making {
            Making::Empty { owner } => Request::CreateEmpty { uid, provider, owner },
            Making::Clone { from, access } => Request::Clone { uid, provider, from, access },
        };
        if let Response::Made(_) = self.call(request).await? { Ok(()) } else { Err(MounterFailure::Protocol) }
    }

    pub async fn seal(&self, uid: Uid) -> Result<TreeManifest, MounterFailure> {
        if let Response::Sealed(manifest) = self.call(Request::Seal { uid }).await? { Ok(manifest) } else { Err(MounterFailure::Protocol) }
    }

    pub async fn destroy(&self, uid: Uid) -> Result<(), MounterFailure> {
        self.call_done(Request::Destroy { uid }).await
    }

    pub async fn recover(&self, step: DiskStep) -> Result<(), MounterFailure> {
        self.call_done(Request::Recover { step }).await
    }

    pub async fn publish(&self, tree: Uid, volume: PodVolume, access: CloneAccess) -> Result<(), MounterFailure> {
        self.call_done(Request::Publish { tree, volume, access }).await
    }

    pub async fn publish_runtime(&self, volume: PodVolume, digest: RuntimeDigest) -> Result<(), MounterFailure> {
        self.call_done(Request::PublishRuntime { volume, digest }).await
    }

    pub async fn unpublish(&self, volume: PodVolume) -> Result<(), MounterFailure> {
        self.call_done(Request::Unpublish { volume }).await
    }

    pub async fn changes(&self, uid: Uid, since: Option<Uid>, limit: u32) -> Result<(Vec<Change>, bool), MounterFailure> {
        let answer = self.call(Request::Changes { uid, since, limit }).await?;
        if let Response::Changes { changes, cut } = answer { Ok((changes, cut)) } else { Err(MounterFailure::Protocol) }
    }

    async fn call_done(&self, request: Request) -> Result<(), MounterFailure> {
        if let Response::Done = self.call(request).await? { Ok(()) } else { Err(MounterFailure::Protocol) }
    }
}

/// How long a mounter that is being started again is waited for. Nothing was said to it yet, and an error would cost the kubelet's back-off, which
/// doubles up to two minutes and for an unmount stands in no Event. The kubelet gives a call two minutes: a mount that has waited long for its tree
/// before may pass them here, and is finished or undone all the same.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(30);
const RECONNECT_INTERVAL: Duration = Duration::from_millis(100);

/// The real mounter, over its socket.
pub struct MounterClient {
    socket: PathBuf,
    reconnect_timeout: Duration,
    /// Connecting to a full backlog fails at once on a socket that does not block, so questions queue here.
    permits: Semaphore,
    /// The name of the data root, once it was opened.
    data_root: OnceLock<Uid>,
}

impl MounterClient {
    pub fn new(socket: PathBuf) -> Self {
        MounterClient {
            socket,
            reconnect_timeout: RECONNECT_TIMEOUT,
            permits: Semaphore::new(super::MAX_REQUESTS),
            data_root: OnceLock::new(),
        }
    }

    async fn exchange(&self, request: Request) -> io::Result<Result<Response, Refusal>> {
        let _permit = self.permits.acquire().await.map_err(io::Error::other)?;
        let mut stream = self.connect().await?;
        frame::send(&mut stream, &Envelope { context: LogContext::current(), request }).await?;
        frame::receive(&mut stream).await
    }

    async fn connect(&self) -> io::Result<UnixStream> {
        let deadline = Instant::now() + self.reconnect_timeout;
        loop {
            match UnixStream::connect(&self.socket).await {
                Err(error) if nobody_listens(&error) && Instant::now() < deadline => sleep(RECONNECT_INTERVAL).await,
                done => return done,
            }
        }
    }
}

/// Nobody listens.
fn nobody_listens(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

impl Mounter for MounterClient {
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Response, MounterFailure>> {
        Box::pin(async move {
            let mut answer = self.exchange(request.clone()).await.map_err(MounterFailure::Transport)?;
            // A mounter that started anew has opened nothing yet.
            if let (Err(Refusal { reason: ErrorReason::WrongDataRoot, .. }), Some(name)) = (&answer, self.data_root.get())
                && !matches!(request, Request::Open { .. })
            {
                self.exchange(Request::Open { expected: Expected::Named(*name) }).await.map_err(MounterFailure::Transport)??;
                answer = self.exchange(request).await.map_err(MounterFailure::Transport)?;
            }
            if let Ok(Response::Opened(name)) = &answer {
                _ = self.data_root.set(*name);
            }
            Ok(answer?)
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixListener;

    use super::*;

    fn client(folder: &tempfile::TempDir, reconnect_timeout: Duration) -> MounterClient {
        MounterClient { reconnect_timeout, ..MounterClient::new(folder.path().join("socket")) }
    }

    #[tokio::test]
    async fn a_mounter_that_is_being_started_again_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        // What a killed one leaves: a name on which nobody listens.
        drop(UnixListener::bind(&path).unwrap());
        let client = client(&folder, Duration::from_secs(20));
        let later = async {
            sleep(RECONNECT_INTERVAL * 3).await;
            std::fs::remove_file(&path).unwrap();
            let listener = UnixListener::bind(&path).unwrap();
            let (mut stream, _) = listener.accept().await.unwrap();
            let _: Envelope = frame::receive(&mut stream).await.unwrap();
            frame::send(&mut stream, &Ok::<_, Refusal>(Response::Done)).await.unwrap();
        };
        let (answer, ()) = tokio::join!(client.call(Request::Probe), later);
        assert!(matches!(answer, Ok(Response::Done)));
    }

    #[tokio::test]
    async fn a_mounter_that_stays_away_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let begun = Instant::now();
        let answer = client(&folder, RECONNECT_INTERVAL * 2).call(Request::Probe).await;
        assert!(matches!(answer, Err(MounterFailure::Transport(_))) && begun.elapsed() >= RECONNECT_INTERVAL * 2);
    }
}
