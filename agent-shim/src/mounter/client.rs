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
use yoi_workspace::{Change, CloneAccess, ErrorReason, ExpectedRoot, Inventory, Probe, ProviderKind, TreeManifest, TreeOrigin, Uid};

use super::frame;
use super::verb::{Answer, Digest, Mounts, Question, Refused, Verb};
use super::whose::Whose;
use crate::volume::PodVolume;

/// The seam to the disk. The real one is [`Line`]; tests pass one that remembers.
pub trait Mounter: Send + Sync + 'static {
    fn say(&self, verb: Verb) -> BoxFuture<'_, Result<Answer, Failure>>;
}

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Whether the deed was done is not known.
    #[error("failed to hear from the mounter")]
    Unheard(#[source] io::Error),
    #[error(transparent)]
    Refused(#[from] Refused),
    /// A mounter of another version.
    #[error("failed to understand the mounter's answer")]
    Misheard,
}

impl dyn Mounter {
    /// Answers with the data root's own name.
    pub async fn open(&self, expected: ExpectedRoot) -> Result<Uid, Failure> {
        if let Answer::Opened(name) = self.say(Verb::Open { expected }).await? { Ok(name) } else { Err(Failure::Misheard) }
    }

    pub async fn probe(&self) -> Result<Probe, Failure> {
        if let Answer::Offers(offers) = self.say(Verb::Probe).await? { Ok(offers) } else { Err(Failure::Misheard) }
    }

    pub async fn inventory(&self) -> Result<Inventory, Failure> {
        if let Answer::Trees(trees) = self.say(Verb::Inventory).await? { Ok(trees) } else { Err(Failure::Misheard) }
    }

    pub async fn mounts(&self) -> Result<Mounts, Failure> {
        if let Answer::Mounts(mounts) = self.say(Verb::Mounts).await? { Ok(mounts) } else { Err(Failure::Misheard) }
    }

    pub async fn make(&self, uid: Uid, provider: ProviderKind, making: TreeOrigin) -> Result<(), Failure> {
        let verb = match making {
            TreeOrigin::Empty { owner } => Verb::CreateEmpty { uid, provider, owner },
            TreeOrigin::Clone { from, access } => Verb::Clone { uid, provider, from, access },
        };
        if let Answer::Made(_) = self.say(verb).await? { Ok(()) } else { Err(Failure::Misheard) }
    }

    pub async fn seal(&self, uid: Uid) -> Result<TreeManifest, Failure> {
        if let Answer::Sealed(manifest) = self.say(Verb::Seal { uid }).await? { Ok(manifest) } else { Err(Failure::Misheard) }
    }

    pub async fn destroy(&self, uid: Uid) -> Result<(), Failure> {
        self.done(Verb::Destroy { uid }).await
    }

    pub async fn recover(&self, step: DiskStep) -> Result<(), Failure> {
        self.done(Verb::Recover { step }).await
    }

    pub async fn publish(&self, tree: Uid, volume: PodVolume, access: CloneAccess) -> Result<(), Failure> {
        self.done(Verb::Publish { tree, volume, access }).await
    }

    pub async fn publish_runtime(&self, volume: PodVolume, digest: Digest) -> Result<(), Failure> {
        self.done(Verb::PublishRuntime { volume, digest }).await
    }

    pub async fn unpublish(&self, volume: PodVolume) -> Result<(), Failure> {
        self.done(Verb::Unpublish { volume }).await
    }

    pub async fn changes(&self, uid: Uid, since: Option<Uid>, limit: u32) -> Result<(Vec<Change>, bool), Failure> {
        let answer = self.say(Verb::Changes { uid, since, limit }).await?;
        if let Answer::Changes { changes, cut } = answer { Ok((changes, cut)) } else { Err(Failure::Misheard) }
    }

    async fn done(&self, verb: Verb) -> Result<(), Failure> {
        if let Answer::Done = self.say(verb).await? { Ok(()) } else { Err(Failure::Misheard) }
    }
}

/// How long a mounter that is being started again is waited for. Nothing was said to it yet, and an error would cost the kubelet's back-off, which
/// doubles up to two minutes and for an unmount stands in no Event. The kubelet gives a call two minutes: a mount that has waited long for its tree
/// before may pass them here, and is finished or undone all the same.
const AWAY: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(100);

/// The real mounter, over its socket.
pub struct Line {
    socket: PathBuf,
    away: Duration,
    /// Connecting to a full backlog fails at once on a socket that does not block, so questions queue here.
    turns: Semaphore,
    /// The name of the data root, once it was opened.
    name: OnceLock<Uid>,
}

impl Line {
    pub fn new(socket: PathBuf) -> Self {
        Line { socket, away: AWAY, turns: Semaphore::new(super::AT_ONCE), name: OnceLock::new() }
    }

    async fn ask(&self, verb: Verb) -> io::Result<Result<Answer, Refused>> {
        let _turn = self.turns.acquire().await.map_err(io::Error::other)?;
        let mut stream = self.connect().await?;
        frame::send(&mut stream, &Question { whose: Whose::now(), verb }).await?;
        frame::receive(&mut stream).await
    }

    async fn connect(&self) -> io::Result<UnixStream> {
        let deadline = Instant::now() + self.away;
        loop {
            match UnixStream::connect(&self.socket).await {
                Err(error) if away(&error) && Instant::now() < deadline => sleep(LOOK).await,
                done => return done,
            }
        }
    }
}

/// Nobody listens.
fn away(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

impl Mounter for Line {
    fn say(&self, verb: Verb) -> BoxFuture<'_, Result<Answer, Failure>> {
        Box::pin(async move {
            let mut answer = self.ask(verb.clone()).await.map_err(Failure::Unheard)?;
            // A mounter that started anew has opened nothing yet.
            if let (Err(Refused { reason: ErrorReason::WrongDataRoot, .. }), Some(name)) = (&answer, self.name.get())
                && !matches!(verb, Verb::Open { .. })
            {
                self.ask(Verb::Open { expected: ExpectedRoot::Named(*name) }).await.map_err(Failure::Unheard)??;
                answer = self.ask(verb).await.map_err(Failure::Unheard)?;
            }
            if let Ok(Answer::Opened(name)) = &answer {
                _ = self.name.set(*name);
            }
            Ok(answer?)
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixListener;

    use super::*;

    fn line(folder: &tempfile::TempDir, away: Duration) -> Line {
        Line { away, ..Line::new(folder.path().join("socket")) }
    }

    #[tokio::test]
    async fn a_mounter_that_is_being_started_again_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        // What a killed one leaves: a name on which nobody listens.
        drop(UnixListener::bind(&path).unwrap());
        let line = line(&folder, Duration::from_secs(20));
        let later = async {
            sleep(LOOK * 3).await;
            std::fs::remove_file(&path).unwrap();
            let listener = UnixListener::bind(&path).unwrap();
            let (mut stream, _) = listener.accept().await.unwrap();
            let _: Question = frame::receive(&mut stream).await.unwrap();
            frame::send(&mut stream, &Ok::<_, Refused>(Answer::Done)).await.unwrap();
        };
        let (answer, ()) = tokio::join!(line.say(Verb::Probe), later);
        assert!(matches!(answer, Ok(Answer::Done)));
    }

    #[tokio::test]
    async fn a_mounter_that_stays_away_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let begun = Instant::now();
        let answer = line(&folder, LOOK * 2).say(Verb::Probe).await;
        assert!(matches!(answer, Err(Failure::Unheard(_))) && begun.elapsed() >= LOOK * 2);
    }
}
