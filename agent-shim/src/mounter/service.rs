//! Carries out requests.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use yoi_workspace::loopback::LoopError;
use yoi_workspace::mount::{self, BindOutcome, Cover, CoverError, MountError, TargetRoot};
use yoi_workspace::mountinfo::Mount;
use yoi_workspace::plan::DiskStep;
use yoi_workspace::{ChangeLimits, CloneAccess, DataRoot, ErrorReason, ExpectedRoot, KernelFacts, PublishError, SysError, Uid, mountinfo};

use super::protocol::{MountedContent, MounterRefusal, Mounts, PublishedMount, Request, Response};
use super::read_aheads::ReadAheads;
use super::root_slot::{MountedAnew, RootSlot};
use super::{DataRootConfig, MAX_CHANGE_LISTS, MounterError};
use crate::args::driver_dir;
use crate::host_sources::HostSources;
use crate::runtime_digest::RuntimeDigest;
use crate::volume::PodVolume;
use yoi_wire::error_chain;

/// The most bytes of all paths of one change list. In JSON a byte takes at most six.
const MAX_CHANGE_BYTES: usize = 1 << 20;
/// How long trees are compared. Whoever asks gets what was found until then: an agent decides how much there is to compare, and other agents of the
/// node wait. The runtime waits 28 s, and the shim may let it wait for as long as its last comparison took.
const CHANGE_LIST_TIMEOUT: Duration = Duration::from_secs(12);

/// Carries out requests, on what the mounter may touch.
pub struct MounterService {
    /// Name of this node, for logs.
    pub node: String,
    /// Opened by [`Request::Open`].
    root: RootSlot,
    /// How many change lists are being made.
    change_lists: AtomicUsize,
    targets: TargetRoot,
    /// Without symbolic links, as in the mount table.
    kubelet_dir: PathBuf,
    driver_dir: PathBuf,
    host_sources: HostSources,
    /// Holds, under the name of each source, the folder that contains it.
    host_sources_dir: PathBuf,
    /// One lock for each volume that is being mounted or unmounted.
    volumes: Mutex<HashMap<PodVolume, Arc<Mutex<()>>>>,
    read_aheads: ReadAheads,
}

#[derive(Debug, thiserror::Error)]
enum ServiceError {
    #[error("failed to find the data root: it was not opened yet")]
    NotOpen,
    #[error("failed to open the data root: {0}")]
    Kernel(String),
    #[error("failed to ask for the kernel")]
    KernelFacts(#[source] SysError),
    #[error("failed to mount the data root anew: other requests are using it")]
    InUse,
    #[error("failed to mount tree {tree}: nothing can be written to the file system of the data root")]
    ReadOnly { tree: Uid },
    #[error("failed to begin a change list: {MAX_CHANGE_LISTS} are being made already")]
    ManyChangeLists,
    #[error(transparent)]
    Open(#[from] MounterError),
    #[error(transparent)]
    Disk(#[from] yoi_workspace::Error),
    #[error(transparent)]
    Mount(#[from] MountError),
    #[error(transparent)]
    Cover(#[from] CoverError),
    #[error("failed to read the mount table")]
    MountTable(#[source] SysError),
    #[error("failed to unmount volume {volume}: what shows there is not ours")]
    ForeignMount { volume: PodVolume },
    #[error("failed to cover paths of volume {volume}: it shows no tree")]
    NoTree { volume: PodVolume },
    #[error("failed to list the kubelet's Pods")]
    Pods(#[source] std::io::Error),
    #[error("failed to show the runtime to Pod {pod}: its folder does not hold runtime {}", .digest.as_str())]
    OtherRuntime { pod: Uid, digest: RuntimeDigest },
    #[error("failed to open the folder of Pod {pod}")]
    PodFolder { pod: Uid, source: std::io::Error },
}

impl From<PublishError> for ServiceError {
    fn from(error: PublishError) -> Self {
        match error {
            PublishError::Tree(e) => ServiceError::Disk(e),
            PublishError::Mount(e) => ServiceError::Mount(e),
        }
    }
}

impl ServiceError {
    fn reason(&self) -> ErrorReason {
        match self {
            ServiceError::NotOpen | ServiceError::Open(MounterError::Loop(LoopError::NoImage { .. })) => ErrorReason::WrongDataRoot,
            ServiceError::Open(MounterError::Loop(LoopError::NoRoom { .. })) => ErrorReason::OutOfSpace,
            ServiceError::Disk(e) | ServiceError::Open(MounterError::Disk(e)) => e.reason(),
            ServiceError::Open(MounterError::Held { .. } | MounterError::Loop(LoopError::Busy { .. })) => ErrorReason::Busy,
            ServiceError::Open(_) | ServiceError::KernelFacts(_) => ErrorReason::BackendError,
            ServiceError::Kernel(_) => ErrorReason::KernelTooOld,
            ServiceError::InUse | ServiceError::ManyChangeLists => ErrorReason::Busy,
            ServiceError::ReadOnly { .. } => ErrorReason::ReadOnlyFilesystem,
            ServiceError::Mount(MountError::Busy { .. }) => ErrorReason::Busy,
            ServiceError::Mount(MountError::Occupied { .. } | MountError::NotEmpty { .. }) | ServiceError::ForeignMount { .. } => {
                ErrorReason::Foreign
            }
            ServiceError::Mount(
                MountError::OpenRoot { .. } | MountError::Target { .. } | MountError::Mount { .. } | MountError::Unmount { .. },
            ) => ErrorReason::BackendError,
            ServiceError::Cover(e) if e.is_of_the_rules() => ErrorReason::CoverRefused,
            ServiceError::Cover(CoverError::Foreign { .. }) => ErrorReason::Foreign,
            ServiceError::Cover(CoverError::Moved { .. }) => ErrorReason::Busy,
            ServiceError::Cover(_) => ErrorReason::BackendError,
            ServiceError::OtherRuntime { .. } | ServiceError::NoTree { .. } => ErrorReason::InvalidRequest,
            ServiceError::MountTable(_) | ServiceError::Pods(_) | ServiceError::PodFolder { .. } => ErrorReason::BackendError,
        }
    }
}

impl MounterService {
    /// Nothing is opened but `kubelet_dir`, the kubelet's root directory.
    pub fn new(node: String, config: DataRootConfig, kubelet_dir: &Path) -> Result<Self, MounterError> {
        let targets = TargetRoot::open(kubelet_dir)?;
        let real = kubelet_dir.canonicalize().map_err(|source| MounterError::MakeRoot { path: kubelet_dir.to_owned(), source })?;
        let (root, change_lists, volumes) = (RootSlot::new(config), AtomicUsize::new(0), Mutex::default());
        let (host_sources, host_sources_dir) = (HostSources::default(), PathBuf::new());
        let driver_dir = driver_dir(&real);
        let read_aheads = ReadAheads::new(0);
        Ok(MounterService {
            node,
            root,
            change_lists,
            targets,
            driver_dir,
            kubelet_dir: real,
            host_sources,
            host_sources_dir,
            volumes,
            read_aheads,
        })
    }

    /// Reads at most this many files of each tree that is published ahead of its agent, see [`yoi_workspace::read_ahead`]. 0: none.
    #[must_use]
    pub fn with_read_ahead(self, files: usize) -> Self {
        MounterService { read_aheads: ReadAheads::new(files), ..self }
    }

    /// Lets trees be made from these folders of the host. Under the name of each, `dir` holds the folder that contains it.
    #[must_use]
    pub fn with_host_sources(self, host_sources: HostSources, dir: PathBuf) -> Self {
        MounterService { host_sources, host_sources_dir: dir, ..self }
    }

    fn root(&self) -> Result<Arc<DataRoot>, ServiceError> {
        self.root.get().ok_or(ServiceError::NotOpen)
    }

    /// With a kernel that is too old nothing is opened: its first mount would fail, and not say why.
    fn open(&self, expected: ExpectedRoot) -> Result<Response, ServiceError> {
        let kernel = KernelFacts::read().map_err(ServiceError::KernelFacts)?;
        match kernel.shortfall() {
            Some(why) => Err(ServiceError::Kernel(why)),
            None => Ok(Response::Opened(self.root.open(expected)?)),
        }
    }

    /// Carries out one request and blocks meanwhile. A change list ends once `is_cancelled` returns true; all else is carried out.
    pub fn handle(&self, request: &Request, is_cancelled: &dyn Fn() -> bool) -> Result<Response, MounterRefusal> {
        self.try_handle(request, is_cancelled).map_err(|e| MounterRefusal { reason: e.reason(), message: error_chain(&e) })
    }

    fn try_handle(&self, request: &Request, is_cancelled: &dyn Fn() -> bool) -> Result<Response, ServiceError> {
        Ok(match request {
            Request::Open { expected } => self.open(*expected)?,
            Request::Probe => self.probe()?,
            Request::Inventory => Response::Trees(self.root()?.inventory()?),
            Request::Mounts => Response::Mounts(self.mounts()?),
            Request::CreateEmpty { uid, provider, owner } => Response::Made(self.root()?.provider(*provider)?.create_empty(*uid, *owner)?),
            Request::Clone { uid, provider, from, access } => {
                Response::Made(self.root()?.provider(*provider)?.clone_tree(*uid, *from, *access)?)
            }
            Request::Capture { uid, provider, source, owner, access } => {
                let folder = self.host_sources.open(source, &self.host_sources_dir)?;
                Response::Made(self.root()?.provider(*provider)?.capture(*uid, &folder, *owner, *access)?)
            }
            Request::HostSources => Response::HostSources(self.host_sources.available(&self.host_sources_dir)),
            Request::Seal { uid } => Response::Sealed(self.root()?.provider_of(*uid)?.seal(*uid)?),
            Request::SetQuota { uid, quota } => Response::Quota(self.root()?.provider_of(*uid)?.set_quota(*uid, *quota)?),
            Request::Usage { uid } => Response::Usage(self.root()?.provider_of(*uid)?.usage(*uid)?),
            Request::Destroy { uid } => self.destroy(*uid)?,
            Request::Recover { step } => done_response(self.root()?.perform(step)?),
            Request::Publish { tree, volume, access, covers } => self.publish(*tree, volume, *access, covers)?,
            Request::PublishRuntime { volume, digest } => self.publish_runtime(volume, digest)?,
            Request::Unpublish { volume } => self.unpublish(volume)?,
            Request::Cover { volume, access, view, check_names } => self.with_tree(volume, |target| {
                mount::cover_in_use(&self.targets, target, *access == CloneAccess::ReadOnly, view, *check_names)
            })?,
            Request::Uncover { volume, access, view } => {
                self.with_tree(volume, |target| mount::uncover_in_use(&self.targets, target, *access == CloneAccess::ReadOnly, view))?
            }
            Request::Changes { uid, since, limit } => self.changes(*uid, *since, *limit, is_cancelled)?,
            Request::Check => self.check()?,
            Request::MountAnew => match self.root.mount_anew()? {
                MountedAnew::Yes => Response::Done,
                MountedAnew::InUse => return Err(ServiceError::InUse),
            },
        })
    }

    fn probe(&self) -> Result<Response, ServiceError> {
        Ok(Response::Offers(self.root.probe().ok_or(ServiceError::NotOpen)??))
    }

    /// Does a little of what other requests do: takes their locks and reads the mount table.
    fn check(&self) -> Result<Response, ServiceError> {
        drop(self.volumes.lock().unwrap_or_else(PoisonError::into_inner));
        mountinfo::read().map_err(ServiceError::MountTable)?;
        drop(self.root.get());
        Ok(Response::Done)
    }

    fn changes(&self, uid: Uid, since: Option<Uid>, limit: u32, is_cancelled: &dyn Fn() -> bool) -> Result<Response, ServiceError> {
        let before = self.change_lists.fetch_add(1, Ordering::Relaxed);
        let result = match before < MAX_CHANGE_LISTS {
            true => {
                let ends = Instant::now() + CHANGE_LIST_TIMEOUT;
                let is_late = || Instant::now() >= ends;
                let limits = ChangeLimits { paths: limit as usize, bytes: MAX_CHANGE_BYTES, is_cancelled, is_late: &is_late };
                self.list_changes(uid, since, &limits)
            }
            false => Err(ServiceError::ManyChangeLists),
        };
        self.change_lists.fetch_sub(1, Ordering::Relaxed);
        result
    }

    fn list_changes(&self, uid: Uid, since: Option<Uid>, limits: &ChangeLimits) -> Result<Response, ServiceError> {
        let root = self.root()?;
        let provider = root.provider_of(uid)?;
        let list = match since {
            Some(since) => provider.changes(uid, since, limits)?,
            None => provider.contents(uid, limits)?,
        };
        Ok(Response::Changes(list))
    }

    fn destroy(&self, uid: Uid) -> Result<Response, ServiceError> {
        let root = self.root()?;
        match root.provider_of(uid) {
            Ok(provider) => provider.destroy(uid)?,
            // A tree that is partly made or partly destroyed, or none.
            Err(yoi_workspace::Error::NotFound { .. }) => {
                root.perform(&DiskStep::Discard { uid })?;
                root.perform(&DiskStep::Purge { uid })?;
            }
            Err(e) => return Err(e.into()),
        }
        Ok(Response::Done)
    }

    fn publish(&self, tree: Uid, volume: &PodVolume, access: CloneAccess, covers: &[Cover]) -> Result<Response, ServiceError> {
        self.with_volume_lock(volume, || {
            let (target, read_only) = (volume.below_kubelet(), access == CloneAccess::ReadOnly);
            let is_new = if self.root.has_failed() {
                // Each further mount would keep the data root from being mounted anew. A mount that is there already stays.
                let at = volume.target(&self.kubelet_dir);
                let table = mountinfo::read().map_err(ServiceError::MountTable)?;
                if !table.iter().any(|m| m.mount_point == at) {
                    return Err(ServiceError::ReadOnly { tree });
                }
                false
            } else {
                let outcome = self.root()?.publish(tree, &self.targets, &target, read_only || mount::root_is_read_only(covers))?;
                outcome == BindOutcome::Mounted
            };
            // The kubelet starts no container before the answer, so nobody has seen the tree without them.
            mount::lay_covers(&self.targets, &target, read_only, covers)?;
            if is_new
                && self.read_aheads.is_on()
                && let Ok(Some(root)) = self.targets.open_mounted(&target)
            {
                self.read_aheads.begin(tree, volume, root);
            }
            Ok(Response::Done)
        })
    }

    fn publish_runtime(&self, volume: &PodVolume, digest: &RuntimeDigest) -> Result<Response, ServiceError> {
        let pod = volume.pod;
        let folder = self.driver_dir.join("pods").join(pod.to_string());
        let identity = |path: PathBuf| path.symlink_metadata().map(|m| (m.is_file(), m.dev(), m.ino()));
        let shown = identity(folder.join(yoi_wire::identity::RUNTIME_BINARY)).map_err(|source| ServiceError::PodFolder { pod, source })?;
        let wanted = identity(self.driver_dir.join("runtime").join(digest.as_str()).join("yoi-runtime"));
        if !shown.0 || wanted.ok() != Some(shown) {
            return Err(ServiceError::OtherRuntime { pod, digest: digest.clone() });
        }
        self.with_volume_lock(volume, || {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let opened = rustix::fs::open(&folder, flags, Mode::empty()).map_err(|e| ServiceError::PodFolder { pod, source: e.into() })?;
            mount::bind(File::from(opened).as_fd(), &self.targets, &volume.below_kubelet(), true)?;
            Ok(Response::Done)
        })
    }

    fn unpublish(&self, volume: &PodVolume) -> Result<Response, ServiceError> {
        self.with_volume_lock(volume, || {
            self.read_aheads.end(volume);
            let target = volume.target(&self.kubelet_dir);
            let table = mountinfo::read().map_err(ServiceError::MountTable)?;
            // A Pod may outlive the data root that its tree is of. What such a mount shows may be unmounted all the same.
            let is_ours = |m: &Mount| self.mounted_content(m, volume).is_some() || mountinfo::named_tree(m).is_some();
            if table.iter().any(|m| m.mount_point == target && !is_ours(m)) {
                return Err(ServiceError::ForeignMount { volume: volume.clone() });
            }
            mount::take_off_covers(&self.targets, &volume.below_kubelet())?;
            Ok(done_response(mount::unbind(&self.targets, &volume.below_kubelet())?))
        })
    }

    /// Changes the covers of a volume that shows a tree. `act` gets the target.
    fn with_tree(&self, volume: &PodVolume, act: impl FnOnce(&Path) -> Result<(), CoverError>) -> Result<Response, ServiceError> {
        self.with_volume_lock(volume, || {
            let at = volume.target(&self.kubelet_dir);
            let table = mountinfo::read().map_err(ServiceError::MountTable)?;
            let is_tree = |mount: &Mount| matches!(self.mounted_content(mount, volume), Some(MountedContent::Tree(_)));
            if !table.iter().rfind(|mount| mount.mount_point == at).is_some_and(is_tree) {
                return Err(ServiceError::NoTree { volume: volume.clone() });
            }
            Ok(done_response(act(&volume.below_kubelet())?))
        })
    }

    fn mounts(&self) -> Result<Mounts, ServiceError> {
        let mut found = Mounts::default();
        let table = mountinfo::read().map_err(ServiceError::MountTable)?;
        for mount in &table {
            if let Ok(volume) = PodVolume::from_target(&self.kubelet_dir, &mount.mount_point)
                && let Some(what) = self.mounted_content(mount, &volume)
            {
                let covers = mount::laid_covers(&table, &mount.mount_point);
                found.shown.push(PublishedMount { volume, what, read_only: mount.read_only, covers });
            }
        }
        match std::fs::read_dir(self.kubelet_dir.join("pods")) {
            Ok(entries) => found.pods = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect(),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(ServiceError::Pods(e)),
        }
        Ok(found)
    }

    /// What a mount shows. None if it is not ours. Which trees are its own, the data root knows; before one is open, a mount is what it says it is.
    fn mounted_content(&self, mount: &Mount, volume: &PodVolume) -> Option<MountedContent> {
        let tree = match self.root.get() {
            Some(root) => root.shown_tree(mount),
            None => mountinfo::named_tree(mount),
        };
        tree.map(MountedContent::Tree).or_else(|| is_runtime_of(volume, &mount.root).then_some(MountedContent::Runtime))
    }

    fn with_volume_lock<T>(&self, volume: &PodVolume, act: impl FnOnce() -> Result<T, ServiceError>) -> Result<T, ServiceError> {
        let lock = {
            let mut volumes = self.volumes.lock().unwrap_or_else(PoisonError::into_inner);
            volumes.retain(|_, lock| Arc::strong_count(lock) > 1);
            volumes.entry(volume.clone()).or_default().clone()
        };
        let _guard = lock.lock().unwrap_or_else(PoisonError::into_inner);
        act()
    }
}

/// Whether the root of a mount is the folder of this volume's Pod. The kernel marks a directory that was removed while it was mounted.
fn is_runtime_of(volume: &PodVolume, root: &Path) -> bool {
    let root = root.to_str().map(|text| Path::new(text.strip_suffix("//deleted").unwrap_or(text)));
    let below = Path::new("plugins").join(yoi_wire::identity::CSI_DRIVER).join("pods").join(volume.pod.to_string());
    root.is_some_and(|root| root.ends_with(below))
}

fn done_response((): ()) -> Response {
    Response::Done
}
