//! The volumes of Pods as the kubelet names them: the one place where a mount target is spelled or read.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use yoi_workspace::Uid;

use crate::runtime_digest::RuntimeDigest;

/// Folder of our plugin and of every CSI volume, as the kubelet spells it in a Pod's directory.
const CSI_VOLUMES: &str = "kubernetes.io~csi";

/// A volume's name in its Pod's directory: the Pod's own name for an inline volume, the PersistentVolume's for a claim.
/// A DNS subdomain of at most 128 characters, so it is always safe as one path component.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct VolumeName(String);

/// The text is no volume name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("failed to accept {text:?} as the name of a volume")]
pub struct NotAVolumeName {
    text: String,
}

impl VolumeName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for VolumeName {
    type Err = NotAVolumeName;

    fn from_str(text: &str) -> Result<Self, NotAVolumeName> {
        let label = |l: &str| {
            !l.is_empty()
                && l.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
                && !l.starts_with('-')
                && !l.ends_with('-')
        };
        if text.len() <= 128 && text.split('.').all(label) {
            return Ok(VolumeName(text.to_owned()));
        }
        Err(NotAVolumeName { text: text.chars().take(140).collect() })
    }
}

impl TryFrom<String> for VolumeName {
    type Error = NotAVolumeName;
    fn try_from(text: String) -> Result<Self, NotAVolumeName> {
        text.parse()
    }
}

impl From<VolumeName> for String {
    fn from(name: VolumeName) -> String {
        name.0
    }
}

/// One volume of one Pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodVolume {
    pub pod: Uid,
    pub name: VolumeName,
}

/// The path is no mount target of a CSI volume below this kubelet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("failed to accept {target:?} as a mount target of a CSI volume")]
pub struct ForeignTarget {
    target: String,
}

impl PodVolume {
    /// The mount target below the kubelet's root folder, as path components.
    pub fn below_kubelet(&self) -> PathBuf {
        let Self { pod, name } = self;
        PathBuf::from(format!("pods/{pod}/volumes/{CSI_VOLUMES}/{}/mount", name.as_str()))
    }

    pub fn target(&self, kubelet_dir: &Path) -> PathBuf {
        kubelet_dir.join(self.below_kubelet())
    }

    /// Reads a target. Only the one canonical spelling is taken.
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

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishRecord {
    pub volume: PodVolume,
    pub shows: PublishedVolume,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PublishedVolume {
    #[serde(rename_all = "camelCase")]
    Tree {
        tree: Uid,
        read_only: bool,
    },
    Runtime {
        digest: RuntimeDigest,
    },
}

impl PublishedVolume {
    /// The workspace whose tree it is.
    pub fn tree(&self) -> Option<Uid> {
        match self {
            PublishedVolume::Tree { tree, .. } => Some(*tree),
            PublishedVolume::Runtime { .. } => None,
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
