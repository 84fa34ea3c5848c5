//! The commands of the host's `zfs`: their arguments, and what they refuse.

use std::ffi::{CStr, OsStr};
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::name::DatasetName;
use super::parse::{self, Dataset, DatasetKind, Difference, Refusal};
use crate::error::ProgramError;
use crate::faults::{CommandFault, Faults};
use crate::host::{self, ProgramFailure, Stuck, View};
use crate::{ErrorReason, SysError, Uid, mountinfo};

/// The tree's UID; of a snapshot, the UID of the tree that it was made for.
const UID: &str = "dev.yoi:uid";
/// The name of the data root that the tree belongs to.
const ROOT: &str = "dev.yoi:root";
/// Of a snapshot: a time before it, in seconds since 1970.
const BEGUN: &str = "dev.yoi:begun";
/// Of a snapshot: `on` if what it was made of could not be written any more.
const FROZEN: &str = "dev.yoi:frozen";
const ORIGIN: &str = "origin";
pub(super) const EXCLUSIVE: &str = "usedbydataset";
/// Own blocks and shared ones.
pub(super) const REFERENCED: &str = "referenced";
/// By a dataset and all below it.
pub(super) const USED: &str = "used";
pub(super) const AVAILABLE: &str = "available";
const READ_ONLY: &str = "readonly";
pub(super) const MOUNT_POINT: &str = "mountpoint";
pub(super) const CAN_MOUNT: &str = "canmount";
pub(super) const REFQUOTA: &str = "refquota";

/// The mount point of what nobody mounts but who names it.
pub(super) const LEGACY: &str = "legacy";
/// Where `zfs diff` sees a tree, and its base.
const TREE_AT: &CStr = c"/tmp/tree";
const BASE_AT: &CStr = c"/tmp/base";

/// Where datasets for trees are made, and by which program.
#[derive(Debug, Clone)]
pub struct ZfsOptions {
    /// The parent of all trees. It exists, and belongs to nobody else's datasets.
    pub dataset: DatasetName,
    /// The host's root as this process sees it, if `zfs` is to be the host's own. It may be read-only.
    pub host_root: Option<PathBuf>,
    /// A command that takes longer is killed.
    pub deadline: Duration,
    /// Is told, for the log, when something is done in a slower way, and why.
    pub on_detour: fn(&str),
}

impl ZfsOptions {
    /// Trees below `dataset`, made by the `zfs` of this process's own root. A command may take 30 s.
    pub fn new(dataset: DatasetName) -> Self {
        Self { dataset, host_root: None, deadline: Duration::from_secs(30), on_detour: |_| {} }
    }
}

/// Why a command did not do its work.
#[derive(Debug)]
pub(super) enum CommandError {
    /// `zfs` ran, and refused.
    Refused {
        step: &'static str,
        refusal: Refusal,
        text: String,
    },
    Sys(SysError),
}

impl From<SysError> for CommandError {
    fn from(error: SysError) -> Self {
        Self::Sys(error)
    }
}

impl From<CommandError> for SysError {
    fn from(error: CommandError) -> Self {
        match error {
            CommandError::Sys(error) => error,
            CommandError::Refused { step, refusal, text } => {
                let reason = match refusal {
                    Refusal::Busy => ErrorReason::Busy,
                    Refusal::OutOfSpace => ErrorReason::OutOfSpace,
                    Refusal::HasDependents => ErrorReason::DependentForks,
                    Refusal::Missing | Refusal::Exists | Refusal::AlreadyMounted => ErrorReason::BackendError,
                    Refusal::BelowUsed | Refusal::Other => ErrorReason::BackendError,
                };
                SysError { step, source: io::Error::other(ProgramError { reason, text }) }
            }
        }
    }
}

/// What was done, or that it was refused for one of the reasons that the caller expects.
pub(super) trait Expected<T> {
    fn unless(self, expected: &[Refusal]) -> Result<Option<T>, SysError>;
}

impl<T> Expected<T> for Result<T, CommandError> {
    /// None if it was refused for one of these reasons.
    fn unless(self, expected: &[Refusal]) -> Result<Option<T>, SysError> {
        match self {
            Ok(done) => Ok(Some(done)),
            Err(CommandError::Refused { refusal, .. }) if expected.contains(&refusal) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// The most bytes that `zfs diff` may write: some thousand paths. Whoever changes a tree decides how many there are, and one process lists the changes of
/// all trees of a node; to visit every file instead takes no memory.
const MAX_DIFF: usize = 256 << 10;

/// `zfs`, for the trees of one data root.
pub(super) struct Commands {
    pub options: ZfsOptions,
    /// The name of the data root.
    pub root: Uid,
    pub faults: Arc<dyn Faults>,
    pub stuck: Stuck,
}

impl Commands {
    /// The name of a tree's dataset.
    pub fn tree(&self, uid: Uid) -> String {
        format!("{}/{uid}", self.options.dataset)
    }

    /// The snapshot of `of` that was made for `uid`.
    pub fn snapshot_name(&self, of: Uid, uid: Uid) -> String {
        format!("{}@{uid}", self.tree(of))
    }

    fn run(&self, step: &'static str, args: &[&str]) -> Result<Vec<u8>, CommandError> {
        self.run_with(step, args, View::default())
    }

    fn run_with(&self, step: &'static str, args: &[&str], view: View) -> Result<Vec<u8>, CommandError> {
        let lost = |text: &str| SysError { step, source: io::Error::other(text.to_owned()) };
        let fault = self.faults.on_command(args);
        if fault == CommandFault::NotRun {
            return Err(lost("the command was not run, by a test").into());
        }
        let words: Vec<&OsStr> = args.iter().map(|arg| OsStr::new(*arg)).collect();
        let view = View { root: self.options.host_root.as_deref(), ..view };
        let answer = host::run_in(view, &self.stuck, "zfs", &words, self.options.deadline);
        if fault == CommandFault::AnswerLost {
            return Err(lost("the answer of the command was lost, by a test").into());
        }
        answer.map_err(|error| {
            let Some(failure) = error.source.get_ref().and_then(|e| e.downcast_ref::<ProgramFailure>()) else {
                let text = format!("zfs: {}", error.source);
                return CommandError::Sys(SysError { step, source: io::Error::new(error.source.kind(), text) });
            };
            CommandError::Refused { step, refusal: parse::refusal(&failure.stderr), text: failure.stderr.clone() }
        })
    }

    fn owned(&self, uid: Uid) -> [String; 2] {
        [format!("{UID}={uid}"), format!("{ROOT}={}", self.root)]
    }

    /// The properties of a new tree.
    fn properties(&self, uid: Uid, mountpoint: &str) -> Vec<String> {
        // The default of ZFS on Linux is none. zfs-fuse has no such property, and each tree a mount point of its own.
        let acls = (mountpoint == LEGACY).then(|| "acltype=posixacl".to_owned());
        let of_tree = [
            "canmount=noauto".to_owned(),
            format!("mountpoint={mountpoint}"),
            // To read a clone is no reason to give it blocks of its own.
            "atime=off".to_owned(),
            // A snapshot that a tool for backups makes by itself would keep the tree from being destroyed.
            "com.sun:auto-snapshot=false".to_owned(),
        ];
        of_tree.into_iter().chain(acls).chain(self.owned(uid)).collect()
    }

    /// Makes the dataset of an empty tree. It is not mounted.
    pub fn create(&self, uid: Uid, mountpoint: &str) -> Result<(), CommandError> {
        let (name, properties) = (self.tree(uid), self.properties(uid, mountpoint));
        let options = properties.iter().flat_map(|property| ["-o", property]);
        self.run("make the dataset", &["create"].into_iter().chain(options).chain([&*name]).collect::<Vec<_>>()).map(drop)
    }

    /// Makes a snapshot with our properties. `begun` is a time before that, in seconds since 1970: the snapshot's own property `creation` is
    /// later than what is in it.
    pub fn snapshot(&self, snapshot: &str, uid: Uid, begun: i64, is_frozen: bool) -> Result<(), CommandError> {
        let ([uid_set, root_set], begun_set) = (self.owned(uid), format!("{BEGUN}={begun}"));
        let frozen_set = format!("{FROZEN}={}", if is_frozen { "on" } else { "off" });
        let args = ["snapshot", "-o", &uid_set, "-o", &root_set, "-o", &begun_set, "-o", &frozen_set, snapshot];
        self.run("make the snapshot", &args).map(drop)
    }

    /// What differs between a snapshot and a dataset that was cloned from it, unless that is more than [`MAX_DIFF`]. Both are mounted for this command
    /// alone, the dataset at [`TREE_AT`].
    pub fn diff(&self, snapshot: &str, dataset: (&str, BorrowedFd), base: BorrowedFd) -> Result<Vec<Difference>, SysError> {
        // `zfs` writes paths from the first mount of the dataset that it finds, and Pods and this process may have others.
        let of_it = |m: mountinfo::Mount| (m.source == Path::new(dataset.0)).then_some(m.mount_point);
        let without: Vec<PathBuf> = mountinfo::read()?.into_iter().filter_map(of_it).collect();
        let mounts = [(dataset.1, TREE_AT), (base, BASE_AT)];
        let view = View { mounts: &mounts, without: &without, max_output: Some(MAX_DIFF), ..View::default() };
        let answer = self.run_with("list the changes", &["diff", "-FH", snapshot, dataset.0], view)?;
        parse::differences(&answer, TREE_AT.to_bytes())
    }

    /// Makes the dataset of a tree from a snapshot.
    pub fn clone_snapshot(&self, snapshot: &str, uid: Uid, mountpoint: &str, is_read_only: bool) -> Result<(), CommandError> {
        let (name, mut properties) = (self.tree(uid), self.properties(uid, mountpoint));
        properties.extend(is_read_only.then(|| "readonly=on".to_owned()));
        let options = properties.iter().flat_map(|property| ["-o", property]);
        self.run("clone the snapshot", &["clone"].into_iter().chain(options).chain([snapshot, &*name]).collect::<Vec<_>>()).map(drop)
    }

    /// Sets one property: an old `zfs` takes no more at once.
    pub fn set(&self, step: &'static str, property: &str, name: &str) -> Result<(), CommandError> {
        self.run(step, &["set", property, name]).map(drop)
    }

    pub fn mount(&self, uid: Uid) -> Result<(), CommandError> {
        self.run("mount the dataset", &["mount", &self.tree(uid)]).map(drop)
    }

    /// Destroys a dataset or snapshot that nothing depends on.
    pub fn destroy(&self, name: &str) -> Result<(), CommandError> {
        self.run("destroy the dataset", &["destroy", name]).map(drop)
    }

    /// What a test must find: takes everything along that depends on it.
    pub fn destroy_with_dependents(&self, name: &str) -> Result<(), CommandError> {
        self.run("destroy the dataset", &["destroy", "-R", name]).map(drop)
    }

    /// Destroys a snapshot now, or with its last clone.
    pub fn destroy_when_unused(&self, snapshot: &str) -> Result<(), CommandError> {
        self.run("destroy the snapshot", &["destroy", "-d", snapshot]).map(drop)
    }

    pub fn promote(&self, name: &str) -> Result<(), CommandError> {
        self.run("promote a fork", &["promote", name]).map(drop)
    }

    /// A dataset or snapshot; None if it is missing.
    pub fn get(&self, name: &str) -> Result<Option<Dataset>, SysError> {
        Ok(self.list(name, &[])?.unwrap_or_default().into_iter().find(|d| d.name == name))
    }

    /// Whether a tree was made or sealed as one that nobody writes.
    pub fn is_read_only(&self, uid: Uid) -> Result<bool, SysError> {
        Ok(self.get(&self.tree(uid))?.is_some_and(|dataset| dataset.get(READ_ONLY) == Some("on")))
    }

    /// A dataset with all that is in it, its snapshots in the order in which they were made; None if it is missing.
    pub fn get_all_below(&self, name: &str) -> Result<Option<Vec<Dataset>>, SysError> {
        self.list(name, &["-r"])
    }

    /// The datasets below one, at any depth.
    pub fn children(&self, name: &str, is_by_daemon: bool) -> Result<Vec<Dataset>, SysError> {
        // The programs of zfs-fuse are older than this option.
        let depth: &[&str] = if is_by_daemon { &["-r"] } else { &["-r", "-t", "filesystem"] };
        let found = self.list(name, depth)?.unwrap_or_default();
        Ok(found.into_iter().filter(|d| d.kind == DatasetKind::Filesystem && d.name != name).collect())
    }

    /// The datasets directly below the configured one.
    pub fn trees(&self) -> Result<Vec<Dataset>, SysError> {
        let parent = self.options.dataset.as_str();
        Ok(self.list(parent, &["-r", "-d", "1"])?.unwrap_or_default().into_iter().filter(|d| d.name != parent).collect())
    }

    fn list(&self, name: &str, depth: &[&str]) -> Result<Option<Vec<Dataset>>, SysError> {
        let wanted =
            ["type", ORIGIN, EXCLUSIVE, REFERENCED, USED, AVAILABLE, READ_ONLY, REFQUOTA, MOUNT_POINT, CAN_MOUNT, UID, ROOT, BEGUN, FROZEN]
                .join(",");
        let args = [&["get", "-Hp"], depth, &["-o", "name,property,value,source", &wanted, name]].concat();
        match self.run("ask about the dataset", &args).unless(&[Refusal::Missing])? {
            Some(answer) => parse::datasets(&answer).map(Some),
            None => Ok(None),
        }
    }

    /// The tree that a dataset or snapshot was made for, if this data root made it.
    pub fn owner(&self, dataset: &Dataset) -> Option<Uid> {
        let is_ours = dataset.local(ROOT) == Some(&*self.root.to_string());
        dataset.local(UID).filter(|_| is_ours).and_then(|uid| uid.parse().ok())
    }

    /// A time before a snapshot of ours was made, in seconds since 1970.
    pub fn begun(&self, snapshot: &Dataset) -> Option<i64> {
        self.owner(snapshot).and_then(|_| snapshot.local(BEGUN)?.parse().ok())
    }

    /// Whether a snapshot of ours was made of what could not be written any more.
    pub fn is_of_frozen(&self, snapshot: &Dataset) -> bool {
        self.owner(snapshot).is_some() && snapshot.local(FROZEN) == Some("on")
    }
}

impl Dataset {
    /// The snapshot that it is a clone of.
    pub fn origin(&self) -> Option<&str> {
        self.get(ORIGIN)
    }
}
