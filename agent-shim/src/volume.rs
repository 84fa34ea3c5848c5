//! The volumes of Pods as the kubelet names them. Only this module makes and parses the path of a mount target.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use yoi_crds::pod::Scope;
use yoi_workspace::{CloneAccess, Uid};

use crate::runtime_digest::RuntimeDigest;

/// The directory of all CSI volumes below a Pod's directory, as the kubelet names it.
const CSI_VOLUMES: &str = "kubernetes.io~csi";

/// The name of a volume's directory: the name in the Pod's spec for an inline volume, the PersistentVolume's name for a claim.
///
/// A DNS subdomain of at most 128 characters, so it is safe as one path component.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct VolumeName(String);

/// The text is not the name of a volume.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("failed to accept {text:?} as the name of a volume")]
pub struct ParseVolumeNameError {
    text: String,
}

impl VolumeName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for VolumeName {
    type Err = ParseVolumeNameError;

    fn from_str(text: &str) -> Result<Self, ParseVolumeNameError> {
        let label = |l: &str| {
            !l.is_empty()
                && l.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
                && !l.starts_with('-')
                && !l.ends_with('-')
        };
        if text.len() <= 128 && text.split('.').all(label) {
            return Ok(VolumeName(text.to_owned()));
        }
        Err(ParseVolumeNameError { text: text.chars().take(140).collect() })
    }
}

impl TryFrom<String> for VolumeName {
    type Error = ParseVolumeNameError;
    fn try_from(text: String) -> Result<Self, ParseVolumeNameError> {
        text.parse()
    }
}

impl From<VolumeName> for String {
    fn from(name: VolumeName) -> String {
        name.0
    }
}

/// A volume of a Pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodVolume {
    /// UID of the Pod.
    pub pod: Uid,
    /// Name of the volume in the Pod's directory.
    pub name: VolumeName,
}

/// The path is not the mount target of a CSI volume below this kubelet's directory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("failed to accept {target:?} as a mount target of a CSI volume")]
pub struct ForeignTarget {
    target: String,
}

impl PodVolume {
    /// The path of the mount target, relative to the kubelet's root directory.
    pub fn below_kubelet(&self) -> PathBuf {
        let Self { pod, name } = self;
        PathBuf::from(format!("pods/{pod}/volumes/{CSI_VOLUMES}/{}/mount", name.as_str()))
    }

    /// The path of the mount target.
    pub fn target(&self, kubelet_dir: &Path) -> PathBuf {
        kubelet_dir.join(self.below_kubelet())
    }

    /// Parses a mount target. Accepts only the exact path that [`Self::target`] returns.
    pub fn from_target(kubelet_dir: &Path, target: &Path) -> Result<Self, ForeignTarget> {
        let read = || {
            let below = target.strip_prefix(kubelet_dir.join("pods")).ok()?.to_str()?;
            let [pod, "volumes", CSI_VOLUMES, name, "mount"] = below.split('/').collect::<Vec<_>>()[..] else { return None };
            let volume = PodVolume { pod: pod.parse().ok()?, name: name.parse().ok()? };
            (volume.target(kubelet_dir).as_os_str() == target.as_os_str()).then_some(volume)
        };
        read().ok_or_else(|| ForeignTarget { target: target.display().to_string().chars().take(512).collect() })
    }
}

impl fmt::Display for PodVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.pod, self.name.as_str())
    }
}

/// Which volume shows what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishRecord {
    /// The volume.
    pub volume: PodVolume,
    /// What it shows.
    pub shows: PublishedVolume,
}

/// What a published volume shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PublishedVolume {
    /// The tree of a workspace.
    #[serde(rename_all = "camelCase")]
    Tree {
        /// UID of the workspace.
        tree: Uid,
        /// Whether the Pod cannot write it.
        read_only: bool,
        /// How many covers the scope of its agent asks for.
        #[serde(default, skip_serializing_if = "is_zero")]
        covers: usize,
        /// What the Pod has to do with loans of the tree's paths. None: nothing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lending: Option<Box<Lending>>,
    },
    /// The Pod's own directory with a runtime in it.
    Runtime {
        /// Which runtime.
        digest: RuntimeDigest,
    },
}

/// What a Pod has to do with loans of the paths of the tree that it mounts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Lending {
    /// Its agent may lend them. Covers reach the Pod while it runs.
    Lends {
        /// What the agent may do itself.
        scope: Scope,
    },
    /// Its agent works there by a loan.
    Holds {
        /// Id of the loan.
        loan: String,
        /// What the agent may do.
        rules: Scope,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl PublishedVolume {
    /// The UID of the workspace whose tree it shows.
    pub fn tree(&self) -> Option<Uid> {
        match self {
            PublishedVolume::Tree { tree, .. } => Some(*tree),
            PublishedVolume::Runtime { .. } => None,
        }
    }

    /// What its Pod has to do with loans of the tree's paths.
    pub fn lending(&self) -> Option<&Lending> {
        match self {
            PublishedVolume::Tree { lending, .. } => lending.as_deref(),
            PublishedVolume::Runtime { .. } => None,
        }
    }

    /// Whether its Pod can write anything of the tree at all.
    pub fn access(&self) -> CloneAccess {
        match self {
            PublishedVolume::Tree { read_only: false, .. } => CloneAccess::ReadWrite,
            PublishedVolume::Tree { read_only: true, .. } | PublishedVolume::Runtime { .. } => CloneAccess::ReadOnly,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = "0198f0aa-5b1c-7d2e-8f00-0123456789ab";

    fn read(target: &str) -> Result<PodVolume, ForeignTarget> {
        PodVolume::from_target(Path::new("/var/lib/kubelet"), Path::new(target))
    }

    #[test]
    fn a_target_is_derived_and_read_back() {
        for name in ["tree", "yoi-0198f0aa-5b1c-7d2e-8f00-0123456789ab", "pv.with.dots"] {
            let volume = PodVolume { pod: POD.parse().unwrap(), name: name.parse().unwrap() };
            let target = volume.target(Path::new("/var/lib/kubelet"));
            assert_eq!(target.to_str().unwrap(), format!("/var/lib/kubelet/pods/{POD}/volumes/kubernetes.io~csi/{name}/mount"));
            assert_eq!(read(target.to_str().unwrap()).unwrap(), volume);
        }
    }

    #[test]
    fn any_other_path_is_refused() {
        for target in [
            format!("/var/lib/kubelet/pods/{POD}/volumes/kubernetes.io~csi/../mount"),
            format!("/var/lib/kubelet/pods/{POD}/volumes/kubernetes.io~csi/tree/mount/x"),
            format!("/var/lib/kubelet/pods/{POD}/volumes/kubernetes.io~csi/tree"),
            format!("/var/lib/kubelet/pods/{POD}/volumes/kubernetes.io~csi/Tree/mount"),
            format!("/var/lib/kubelet/pods/{POD}/volumes/kubernetes.io~csi//mount"),
            format!("/var/lib/kubelet/pods/{POD}/volumes/kubernetes.io~csi/tree/mount/"),
            format!("/var/lib/kubelet/pods/{POD}/volumes/kubernetes.io~csi/./tree/mount"),
            format!("/var/lib/kubelet/pods/{POD}/volumes/kubernetes.io~projected/tree/mount"),
            format!("/var/lib/kubelet2/pods/{POD}/volumes/kubernetes.io~csi/tree/mount"),
            format!("pods/{POD}/volumes/kubernetes.io~csi/tree/mount"),
            "/etc".to_owned(),
            String::new(),
        ] {
            assert!(read(&target).is_err(), "{target}");
        }
    }

    #[test]
    fn a_volume_name_is_one_harmless_component() {
        for bad in ["", ".", "..", "a/b", "a..b", "-a", "a-", "A", "a b", &"a".repeat(129)] {
            assert!(bad.parse::<VolumeName>().is_err(), "{bad:?}");
        }
    }
}
