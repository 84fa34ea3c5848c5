//! The shim's end of the socket.

use std::io;
use std::path::PathBuf;
use std::sync::OnceLock;

use futures::future::BoxFuture;
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use yoi_workspace::plan::DiskStep;
use yoi_workspace::{Access, Change, Expected, Inventory, Making, Manifest, Probe, ProviderKind, Reason, Uid};

use super::frame;
use super::verb::{Answer, Digest, Mounts, Refused, Verb};
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
    pub async fn open(&self, expected: Expected) -> Result<Uid, Failure> {
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

    pub async fn make(&self, uid: Uid, provider: ProviderKind, making: Making) -> Result<(), Failure> {
        let verb = match making {
            Making::Empty { owner } => Verb::CreateEmpty { uid, provider, owner },
            Making::Clone { from, access } => Verb::Clone { uid, provider, from, access },
        };
        if let Answer::Made(_) = self.say(verb).await? { Ok(()) } else { Err(Failure::Misheard) }
    }

    pub async fn seal(&self, uid: Uid) -> Result<Manifest, Failure> {
        if let Answer::Sealed(manifest) = self.say(Verb::Seal { uid }).await? { Ok(manifest) } else { Err(Failure::Misheard) }
    }

    pub async fn destroy(&self, uid: Uid) -> Result<(), Failure> {
        self.done(Verb::Destroy { uid }).await
    }

    pub async fn recover(&self, step: DiskStep) -> Result<(), Failure> {
        self.done(Verb::Recover { step }).await
    }

    pub async fn publish(&self, tree: Uid, volume: PodVolume, access: Access) -> Result<(), Failure> {
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

/// The real mounter, over its socket.
pub struct Line {
    socket: PathBuf,
    /// Connecting to a full backlog fails at once on a socket that does not block, so questions queue here.
    turns: Semaphore,
    /// The name of the data root, once it was opened.
    name: OnceLock<Uid>,
}

impl Line {
    pub fn new(socket: PathBuf) -> Self {
        Line { socket, turns: Semaphore::new(super::AT_ONCE), name: OnceLock::new() }
    }

    async fn ask(&self, verb: &Verb) -> io::Result<Result<Answer, Refused>> {
        let _turn = self.turns.acquire().await.map_err(io::Error::other)?;
        let mut stream = UnixStream::connect(&self.socket).await?;
        frame::send(&mut stream, verb).await?;
        frame::receive(&mut stream).await
    }
}

impl Mounter for Line {
    fn say(&self, verb: Verb) -> BoxFuture<'_, Result<Answer, Failure>> {
        Box::pin(async move {
            let mut answer = self.ask(&verb).await.map_err(Failure::Unheard)?;
            // A mounter that started anew has opened nothing yet.
            if let (Err(Refused { reason: Reason::WrongDataRoot, .. }), Some(name)) = (&answer, self.name.get())
                && !matches!(verb, Verb::Open { .. })
            {
                self.ask(&Verb::Open { expected: Expected::Named(*name) }).await.map_err(Failure::Unheard)??;
                answer = self.ask(&verb).await.map_err(Failure::Unheard)?;
            }
            if let Ok(Answer::Opened(name)) = &answer {
                _ = self.name.set(*name);
            }
            Ok(answer?)
        })
    }
}
