use k8s_openapi::api::core::v1::{CSIPersistentVolumeSource, ObjectReference, PersistentVolume, PersistentVolumeSpec, VolumeNodeAffinity};

use super::CachedMetadata;
use super::text::Text;
use super::uid::Uid;

/// A volume with its claim, the tree that it shows, its nodes and its reclaim policy.
#[derive(Clone, Debug)]
pub struct CachedVolume {
    pub(crate) metadata: CachedMetadata,
    claim: Option<Claim>,
    csi: Option<Csi>,
    reclaim_policy: Option<Text>,
    nodes: Option<Box<VolumeNodeAffinity>>,
}

#[derive(Clone, Debug)]
struct Claim {
    namespace: Option<Text>,
    name: Option<Text>,
    uid: Option<Uid>,
}

#[derive(Clone, Debug)]
struct Csi {
    driver: Text,
    /// Of a tree it is a UID.
    handle: Uid,
}

impl From<PersistentVolume> for CachedVolume {
    fn from(volume: PersistentVolume) -> Self {
        let spec = volume.spec.unwrap_or_default();
        let claim = |claim: ObjectReference| Claim {
            namespace: claim.namespace.as_deref().map(Text::from),
            name: claim.name.as_deref().map(Text::from),
            uid: claim.uid.as_deref().map(Uid::from),
        };
        let csi = |csi: CSIPersistentVolumeSource| Csi { driver: csi.driver.as_str().into(), handle: csi.volume_handle.as_str().into() };
        CachedVolume {
            metadata: volume.metadata.into(),
            claim: spec.claim_ref.map(claim),
            csi: spec.csi.map(csi),
            reclaim_policy: spec.persistent_volume_reclaim_policy.as_deref().map(Text::from),
            nodes: spec.node_affinity.map(Box::new),
        }
    }
}

impl CachedVolume {
    /// The volume as plans read it.
    pub(crate) fn observed(&self) -> PersistentVolume {
        let text = |text: &Option<Text>| text.as_deref().map(str::to_owned);
        let claim = |claim: &Claim| ObjectReference {
            namespace: text(&claim.namespace),
            name: text(&claim.name),
            uid: claim.uid.as_ref().map(Uid::to_string),
            ..ObjectReference::default()
        };
        let csi = |csi: &Csi| CSIPersistentVolumeSource {
            driver: csi.driver.to_string(),
            volume_handle: csi.handle.to_string(),
            ..CSIPersistentVolumeSource::default()
        };
        let spec = PersistentVolumeSpec {
            claim_ref: self.claim.as_ref().map(claim),
            csi: self.csi.as_ref().map(csi),
            node_affinity: self.nodes.as_deref().cloned(),
            persistent_volume_reclaim_policy: text(&self.reclaim_policy),
            ..PersistentVolumeSpec::default()
        };
        PersistentVolume { metadata: self.metadata.observed(), spec: Some(spec), status: None }
    }

    /// Namespace and name of its claim.
    pub(crate) fn claim(&self) -> Option<(&str, &str)> {
        let claim = self.claim.as_ref()?;
        Some((claim.namespace.as_deref()?, claim.name.as_deref()?))
    }
}
