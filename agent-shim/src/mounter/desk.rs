//! From verb to deed.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustix::fs::{Mode, OFlags};
use yoi_workspace::loopback::LoopError;
use yoi_workspace::mount::{self, MountError, TargetRoot};
use yoi_workspace::plan::DiskStep;
use yoi_workspace::{CloneAccess, DataRoot, ErrorReason, ExpectedRoot, PublishError, SysError, Uid, mountinfo};

use super::verb::{Answer, Digest, Mounts, Refused, Shown, Verb, What};
use super::{Ground, MounterError};
use crate::args::driver_dir;
use crate::chain::whole;
use crate::volume::PodVolume;

/// All that the mounter may touch.
pub struct Desk {
    /// Of this node, for logs.
    pub node: String,
    ground: Ground,
    /// Opened when the shim has said what it expects.
    root: OnceLock<DataRoot>,
    opening: Mutex<()>,
    targets: TargetRoot,
    /// Without links, as the mount table spells it.
    kubelet_dir: PathBuf,
    driver_dir: PathBuf,
    /// One mount or unmount of a volume at a time; the next one queues.
    volumes: Mutex<HashMap<PodVolume, Arc<Mutex<()>>>>,
}

#[derive(Debug, thiserror::Error)]
enum DeskError {
    #[error("failed to find the data root: it was not opened yet")]
    NotOpen,
    #[error(transparent)]
    Open(#[from] MounterError),
    #[error(transparent)]
    Disk(#[from] yoi_workspace::Error),
    #[error(transparent)]
    Mount(#[from] MountError),
    #[error("failed to read the mount table")]
    Table(#[source] SysError),
    #[error("failed to unmount volume {volume}: what shows there is not ours")]
    Stranger { volume: PodVolume },
    #[error("failed to list the kubelet's Pods")]
    Pods(#[source] std::io::Error),
    #[error("failed to show the runtime to Pod {pod}: its folder does not hold runtime {}", .digest.as_str())]
    OtherRuntime { pod: Uid, digest: Digest },
    #[error("failed to open the folder of Pod {pod}")]
    PodFolder { pod: Uid, source: std::io::Error },
}

impl From<PublishError> for DeskError {
    fn from(error: PublishError) -> Self {
        match error {
            PublishError::Tree(e) => DeskError::Disk(e),
            PublishError::Mount(e) => DeskError::Mount(e),
        }
    }
}

impl DeskError {
    fn reason(&self) -> ErrorReason {
        match self {
            DeskError::NotOpen | DeskError::Open(MounterError::Loop(LoopError::NoImage { .. })) => ErrorReason::WrongDataRoot,
            DeskError::Disk(e) | DeskError::Open(MounterError::Disk(e)) => e.reason(),
            DeskError::Open(_) => ErrorReason::BackendError,
            DeskError::Mount(MountError::Busy { .. }) => ErrorReason::Busy,
            DeskError::Mount(MountError::Occupied { .. } | MountError::NotEmpty { .. }) | DeskError::Stranger { .. } => {
                ErrorReason::Foreign
            }
            DeskError::Mount(
                MountError::OpenRoot { .. } | MountError::Target { .. } | MountError::Mount { .. } | MountError::Unmount { .. },
            ) => ErrorReason::BackendError,
            DeskError::OtherRuntime { .. } => ErrorReason::InvalidRequest,
            DeskError::Table(_) | DeskError::Pods(_) | DeskError::PodFolder { .. } => ErrorReason::BackendError,
        }
    }
}

impl Desk {
    pub fn new(node: String, ground: Ground, kubelet_dir: &Path) -> Result<Self, MounterError> {
        let targets = TargetRoot::open(kubelet_dir)?;
        let real = kubelet_dir.canonicalize().map_err(|source| MounterError::MakeRoot { path: kubelet_dir.to_owned(), source })?;
        let (root, opening, volumes) = (OnceLock::new(), Mutex::default(), Mutex::default());
        Ok(Desk { node, ground, root, opening, targets, driver_dir: driver_dir(&real), kubelet_dir: real, volumes })
    }

    fn root(&self) -> Result<&DataRoot, DeskError> {
        self.root.get().ok_or(DeskError::NotOpen)
    }

    fn open(&self, expected: ExpectedRoot) -> Result<Answer, DeskError> {
        let _one = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(root) = self.root.get() else {
            let root = self.ground.open(expected)?;
            tracing::info!(root = %self.ground.data_root.display(), name = %root.name(), "opened the data root");
            return Ok(Answer::Opened(self.root.get_or_init(|| root).name()));
        };
        match expected {
            ExpectedRoot::Named(wanted) if wanted != root.name() => {
                let (path, found) = (self.ground.data_root.clone(), Some(root.name()));
                Err(yoi_workspace::Error::OtherRoot { path, found, wanted: Some(wanted) }.into())
            }
            ExpectedRoot::Any | ExpectedRoot::Used | ExpectedRoot::Named(_) => Ok(Answer::Opened(root.name())),
        }
    }

    pub fn act(&self, verb: &Verb) -> Result<Answer, Refused> {
        self.perform(verb).map_err(|e| Refused { reason: e.reason(), message: whole(&e) })
    }

    fn perform(&self, verb: &Verb) -> Result<Answer, DeskError> {
        Ok(match verb {
            Verb::Open { expected } => self.open(*expected)?,
            Verb::Probe => Answer::Offers(self.root()?.probe()?),
            Verb::Inventory => Answer::Trees(self.root()?.inventory()?),
            Verb::Mounts => Answer::Mounts(self.mounts()?),
            Verb::CreateEmpty { uid, provider, owner } => Answer::Made(self.root()?.provider(*provider)?.create_empty(*uid, *owner)?),
            Verb::Clone { uid, provider, from, access } => {
                Answer::Made(self.root()?.provider(*provider)?.clone_tree(*uid, *from, *access)?)
            }
            Verb::Seal { uid } => Answer::Sealed(self.root()?.provider_of(*uid)?.seal(*uid)?),
            Verb::Destroy { uid } => self.destroy(*uid)?,
            Verb::Recover { step } => done(self.root()?.perform(step)?),
            Verb::Publish { tree, volume, access } => self.publish(*tree, volume, *access)?,
            Verb::PublishRuntime { volume, digest } => self.publish_runtime(volume, digest)?,
            Verb::Unpublish { volume } => self.unpublish(volume)?,
            Verb::Changes { uid, since, limit } => {
                let provider = self.root()?.provider_of(*uid)?;
                let mut changes = match since {
                    Some(since) => provider.changes(*uid, *since)?,
                    None => provider.contents(*uid)?,
                };
                let cut = changes.len() > *limit as usize;
                changes.truncate(*limit as usize);
                Answer::Changes { changes, cut }
            }
        })
    }

    fn destroy(&self, uid: Uid) -> Result<Answer, DeskError> {
        match self.root()?.provider_of(uid) {
            Ok(provider) => provider.destroy(uid)?,
            // Half-made or half-destroyed, or nothing at all.
            Err(yoi_workspace::Error::NotFound { .. }) => {
                self.root()?.perform(&DiskStep::Discard { uid })?;
                self.root()?.perform(&DiskStep::Purge { uid })?;
            }
            Err(e) => return Err(e.into()),
        }
        Ok(Answer::Done)
    }

    fn publish(&self, tree: Uid, volume: &PodVolume, access: CloneAccess) -> Result<Answer, DeskError> {
        self.alone(volume, || {
            self.root()?.publish(tree, &self.targets, &volume.below_kubelet(), access == CloneAccess::ReadOnly)?;
            Ok(Answer::Done)
        })
    }

    fn publish_runtime(&self, volume: &PodVolume, digest: &Digest) -> Result<Answer, DeskError> {
        let pod = volume.pod;
        let folder = self.driver_dir.join("pods").join(pod.to_string());
        let identity = |path: PathBuf| path.symlink_metadata().map(|m| (m.is_file(), m.dev(), m.ino()));
        let shown = identity(folder.join(yoi_wire::identity::RUNTIME_BINARY)).map_err(|source| DeskError::PodFolder { pod, source })?;
        let wanted = identity(self.driver_dir.join("runtime").join(digest.as_str()).join("yoi-runtime"));
        if !shown.0 || wanted.ok() != Some(shown) {
            return Err(DeskError::OtherRuntime { pod, digest: digest.clone() });
        }
        self.alone(volume, || {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let opened = rustix::fs::open(&folder, flags, Mode::empty()).map_err(|e| DeskError::PodFolder { pod, source: e.into() })?;
            mount::bind(File::from(opened).as_fd(), &self.targets, &volume.below_kubelet(), true)?;
            Ok(Answer::Done)
        })
    }

    fn unpublish(&self, volume: &PodVolume) -> Result<Answer, DeskError> {
        self.alone(volume, || {
            let target = volume.target(&self.kubelet_dir);
            let table = mountinfo::read().map_err(DeskError::Table)?;
            if table.iter().any(|m| m.mount_point == target && self.what(&m.root, volume).is_none()) {
                return Err(DeskError::Stranger { volume: volume.clone() });
            }
            Ok(done(mount::unbind(&self.targets, &volume.below_kubelet())?))
        })
    }

    fn mounts(&self) -> Result<Mounts, DeskError> {
        let mut found = Mounts::default();
        for mount in mountinfo::read().map_err(DeskError::Table)? {
            if let Ok(volume) = PodVolume::from_target(&self.kubelet_dir, &mount.mount_point)
                && let Some(what) = self.what(&mount.root, &volume)
            {
                found.shown.push(Shown { volume, what, read_only: mount.read_only });
            }
        }
        match std::fs::read_dir(self.kubelet_dir.join("pods")) {
            Ok(entries) => found.pods = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect(),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(DeskError::Pods(e)),
        }
        Ok(found)
    }

    /// What a mount shows, by its root in its file system: one of our trees, or the Pod's own folder.
    fn what(&self, root: &Path, volume: &PodVolume) -> Option<What> {
        // The kernel marks a folder that was removed under its mount.
        let text = root.to_str()?;
        let root = Path::new(text.strip_suffix("//deleted").unwrap_or(text));
        let parts: Vec<_> = root.iter().rev().map(|p| p.to_str().unwrap_or_default()).take(4).collect();
        match parts[..] {
            ["tree", uid, shard, "trees"] => uid.parse::<Uid>().ok().filter(|u| u.shard() == shard).map(What::Tree),
            [pod, "pods", yoi_wire::identity::CSI_DRIVER, "plugins"] if pod == volume.pod.to_string() => Some(What::Runtime),
            _ => None,
        }
    }

    fn alone<T>(&self, volume: &PodVolume, deed: impl FnOnce() -> Result<T, DeskError>) -> Result<T, DeskError> {
        let lock = {
            let mut volumes = self.volumes.lock().unwrap_or_else(PoisonError::into_inner);
            volumes.retain(|_, lock| Arc::strong_count(lock) > 1);
            volumes.entry(volume.clone()).or_default().clone()
        };
        let _turn = lock.lock().unwrap_or_else(PoisonError::into_inner);
        deed()
    }
}

fn done((): ()) -> Answer {
    Answer::Done
}
