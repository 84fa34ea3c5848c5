//! The client of the mounter's socket.

use std::io;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};
use yoi_workspace::mount::Cover;
use yoi_workspace::plan::DiskStep;
use yoi_workspace::{
    Captured, ChangeList, CloneAccess, DiskUsage, ErrorReason, ExpectedRoot, Inventory, Owner, Probe, ProviderKind, Quota, QuotaState,
    TreeManifest, TreeOrigin, Uid,
};

use super::frame;
use super::log_context::LogContext;
use super::protocol::{Envelope, MounterRefusal, Mounts, Request, Response};
use crate::host_sources::HostSourceName;
use crate::runtime_digest::RuntimeDigest;
use crate::volume::PodVolume;

/// All that the shim can do to the disk and to mounts. [`MounterClient`] does it; tests pass one in memory.
pub trait Mounter: Send + Sync + 'static {
    /// Sends one request. Each request can be repeated.
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Response, MounterFailure>>;
}

/// A request to the mounter failed.
#[derive(Debug, thiserror::Error)]
pub enum MounterFailure {
    /// No response came. Whether the mounter acted is not known.
    #[error("failed to hear from the mounter")]
    Transport(#[source] io::Error),
    /// The mounter understood the request and did nothing.
    #[error(transparent)]
    Refused(#[from] MounterRefusal),
    /// The response does not fit the request, as from a mounter of another version.
    #[error("failed to understand the mounter's answer")]
    Protocol,
}

impl dyn Mounter {
    /// Opens the data root and returns its name.
    pub async fn open(&self, expected: ExpectedRoot) -> Result<Uid, MounterFailure> {
        if let Response::Opened(name) = self.call(Request::Open { expected }).await? { Ok(name) } else { Err(MounterFailure::Protocol) }
    }

    /// What this node offers.
    pub async fn probe(&self) -> Result<Probe, MounterFailure> {
        if let Response::Offers(offers) = self.call(Request::Probe).await? { Ok(offers) } else { Err(MounterFailure::Protocol) }
    }

    /// Everything in the data root.
    pub async fn inventory(&self) -> Result<Inventory, MounterFailure> {
        if let Response::Trees(trees) = self.call(Request::Inventory).await? { Ok(trees) } else { Err(MounterFailure::Protocol) }
    }

    /// The mounts of our volumes.
    pub async fn mounts(&self) -> Result<Mounts, MounterFailure> {
        if let Response::Mounts(mounts) = self.call(Request::Mounts).await? { Ok(mounts) } else { Err(MounterFailure::Protocol) }
    }

    /// Makes a tree. One of a folder of the host is made by [`Self::capture`]: an origin does not name the folder.
    pub async fn make(&self, uid: Uid, provider: ProviderKind, making: TreeOrigin) -> Result<(), MounterFailure> {
        let request = match making {
            TreeOrigin::Empty { owner } => Request::CreateEmpty { uid, provider, owner },
            TreeOrigin::Clone { from, access } => Request::Clone { uid, provider, from, access },
            TreeOrigin::Host { .. } => return Err(MounterFailure::Protocol),
        };
        if let Response::Made(_) = self.call(request).await? { Ok(()) } else { Err(MounterFailure::Protocol) }
    }

    /// Makes a tree of a folder of the host, sealed unless it is to be written to first. Returns how it was made, and why so.
    pub async fn capture(
        &self,
        uid: Uid,
        provider: ProviderKind,
        source: HostSourceName,
        owner: Owner,
        access: CloneAccess,
    ) -> Result<Option<Captured>, MounterFailure> {
        let made = self.call(Request::Capture { uid, provider, source, owner, access }).await?;
        if let Response::Made(marker) = made { Ok(marker.captured) } else { Err(MounterFailure::Protocol) }
    }

    /// The listed folders of the host that are there.
    pub async fn host_sources(&self) -> Result<Vec<HostSourceName>, MounterFailure> {
        if let Response::HostSources(names) = self.call(Request::HostSources).await? { Ok(names) } else { Err(MounterFailure::Protocol) }
    }

    /// Seals a tree, or returns the manifest of a sealed one.
    pub async fn seal(&self, uid: Uid) -> Result<TreeManifest, MounterFailure> {
        if let Response::Sealed(manifest) = self.call(Request::Seal { uid }).await? { Ok(manifest) } else { Err(MounterFailure::Protocol) }
    }

    /// Sets, changes or ends the quota of a tree.
    pub async fn set_quota(&self, uid: Uid, quota: Option<Quota>) -> Result<QuotaState, MounterFailure> {
        let response = self.call(Request::SetQuota { uid, quota }).await?;
        if let Response::Quota(state) = response { Ok(state) } else { Err(MounterFailure::Protocol) }
    }

    /// What a tree takes.
    pub async fn usage(&self, uid: Uid) -> Result<DiskUsage, MounterFailure> {
        if let Response::Usage(usage) = self.call(Request::Usage { uid }).await? { Ok(usage) } else { Err(MounterFailure::Protocol) }
    }

    /// Destroys a tree. Succeeds if there is none.
    pub async fn destroy(&self, uid: Uid) -> Result<(), MounterFailure> {
        self.call_done(Request::Destroy { uid }).await
    }

    /// Performs one step of recovery.
    pub async fn recover(&self, step: DiskStep) -> Result<(), MounterFailure> {
        self.call_done(Request::Recover { step }).await
    }

    /// Mounts a tree for a Pod, with these covers over it.
    pub async fn publish(&self, tree: Uid, volume: PodVolume, access: CloneAccess, covers: Vec<Cover>) -> Result<(), MounterFailure> {
        self.call_done(Request::Publish { tree, volume, access, covers }).await
    }

    /// Mounts the directory of a Pod, which must hold this runtime.
    pub async fn publish_runtime(&self, volume: PodVolume, digest: RuntimeDigest) -> Result<(), MounterFailure> {
        self.call_done(Request::PublishRuntime { volume, digest }).await
    }

    /// Unmounts a volume. Succeeds if nothing is mounted.
    pub async fn unpublish(&self, volume: PodVolume) -> Result<(), MounterFailure> {
        self.call_done(Request::Unpublish { volume }).await
    }

    /// Closes what `view` closes of a tree that a Pod has mounted, while it runs. With `check_names` a file with names on both sides of a cover is refused.
    pub async fn cover(&self, volume: PodVolume, access: CloneAccess, view: Vec<Cover>, check_names: bool) -> Result<(), MounterFailure> {
        self.call_done(Request::Cover { volume, access, view, check_names }).await
    }

    /// Opens what `view` does not close of a tree that a Pod has mounted, while it runs.
    pub async fn uncover(&self, volume: PodVolume, access: CloneAccess, view: Vec<Cover>) -> Result<(), MounterFailure> {
        self.call_done(Request::Uncover { volume, access, view }).await
    }

    /// At most `limit` paths that differ from the tree `since`, or from nothing. The comparison ends when the future is dropped.
    pub async fn changes(&self, uid: Uid, since: Option<Uid>, limit: u32) -> Result<ChangeList, MounterFailure> {
        let response = self.call(Request::Changes { uid, since, limit }).await?;
        if let Response::Changes(list) = response { Ok(list) } else { Err(MounterFailure::Protocol) }
    }

    /// Mounts the data root anew if its file system has become read-only.
    pub async fn mount_anew(&self) -> Result<(), MounterFailure> {
        self.call_done(Request::MountAnew).await
    }

    async fn call_done(&self, request: Request) -> Result<(), MounterFailure> {
        if let Response::Done = self.call(request).await? { Ok(()) } else { Err(MounterFailure::Protocol) }
    }
}

/// How long to wait for a mounter that is being restarted. No request was sent yet, and an error would cost the kubelet's back-off, which doubles
/// up to two minutes and shows in no Event for an unmount. A mount that has already waited long for its tree may exceed the kubelet's two minutes
/// here; it is finished or undone all the same.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// The pause between two attempts to connect.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(100);

/// The mounter behind a socket.
pub struct MounterClient {
    socket: PathBuf,
    reconnect_timeout: Duration,
    /// A nonblocking connect fails at once if the backlog is full, so requests queue here.
    permits: Semaphore,
    /// The name of the data root that was opened.
    data_root: OnceLock<Uid>,
}

impl MounterClient {
    /// Connects to `socket` for each request.
    pub fn new(socket: PathBuf) -> Self {
        MounterClient {
            socket,
            reconnect_timeout: RECONNECT_TIMEOUT,
            permits: Semaphore::new(super::MAX_REQUESTS),
            data_root: OnceLock::new(),
        }
    }

    async fn exchange(&self, request: Request) -> io::Result<Result<Response, MounterRefusal>> {
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

/// Whether no process listens on the socket.
fn nobody_listens(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

impl Mounter for MounterClient {
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Response, MounterFailure>> {
        Box::pin(async move {
            let mut response = self.exchange(request.clone()).await.map_err(MounterFailure::Transport)?;
            // A mounter that was restarted has not opened the data root yet.
            if let (Err(MounterRefusal { reason: ErrorReason::WrongDataRoot, .. }), Some(name)) = (&response, self.data_root.get())
                && !matches!(request, Request::Open { .. })
            {
                self.exchange(Request::Open { expected: ExpectedRoot::Named(*name) }).await.map_err(MounterFailure::Transport)??;
                response = self.exchange(request).await.map_err(MounterFailure::Transport)?;
            }
            if let Ok(Response::Opened(name)) = &response {
                _ = self.data_root.set(*name);
            }
            Ok(response?)
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

    #[tokio::test(start_paused = true)]
    async fn a_mounter_that_is_being_started_again_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        // What a killed one leaves: a name on which nobody listens.
        drop(UnixListener::bind(&path).unwrap());
        let client = client(&folder, Duration::from_secs(20));
        let later = async {
            // By the test's clock: three attempts find nobody.
            sleep(RECONNECT_INTERVAL * 3).await;
            std::fs::remove_file(&path).unwrap();
            let listener = UnixListener::bind(&path).unwrap();
            let (mut stream, _) = listener.accept().await.unwrap();
            let _: Envelope = frame::receive(&mut stream).await.unwrap();
            frame::send(&mut stream, &Ok::<_, MounterRefusal>(Response::Done)).await.unwrap();
        };
        let (answer, ()) = tokio::join!(client.call(Request::Probe), later);
        assert!(matches!(answer, Ok(Response::Done)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_mounter_that_stays_away_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let begun = Instant::now();
        let answer = client(&folder, RECONNECT_INTERVAL * 2).call(Request::Probe).await;
        assert!(matches!(answer, Err(MounterFailure::Transport(_))) && begun.elapsed() >= RECONNECT_INTERVAL * 2);
    }
}
