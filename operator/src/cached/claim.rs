use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, PersistentVolumeClaimStatus, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use yoi_crds::name::label;

use super::CachedMetadata;
use super::text::Text;

const STORAGE: &str = "storage";

/// A claim with its volume and its phase; of a warm session claim also its class and its size.
#[derive(Clone, Debug)]
pub struct CachedClaim {
    pub(crate) metadata: CachedMetadata,
    volume: Option<Box<str>>,
    phase: Option<Text>,
    warm: Option<Box<Warm>>,
}

#[derive(Clone, Debug)]
struct Warm {
    class: Option<Text>,
    size: Option<Text>,
}

impl From<PersistentVolumeClaim> for CachedClaim {
    fn from(claim: PersistentVolumeClaim) -> Self {
        let metadata = CachedMetadata::from(claim.metadata);
        let spec = claim.spec.unwrap_or_default();
        let size = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref()?.get(STORAGE));
        let warm = metadata.label(label::WARM).map(|_| {
            Box::new(Warm { class: spec.storage_class_name.as_deref().map(Text::from), size: size.map(|size| size.0.as_str().into()) })
        });
        CachedClaim {
            metadata,
            volume: spec.volume_name.map(String::into_boxed_str),
            phase: claim.status.and_then(|status| status.phase).as_deref().map(Text::from),
            warm,
        }
    }
}

impl CachedClaim {
    /// The claim as plans read it.
    pub(crate) fn observed(&self) -> PersistentVolumeClaim {
        let resources = |size: &Text| VolumeResourceRequirements {
            requests: Some(BTreeMap::from([(STORAGE.to_owned(), Quantity(size.to_string()))])),
            limits: None,
        };
        let spec = PersistentVolumeClaimSpec {
            volume_name: self.volume().map(str::to_owned),
            storage_class_name: self.warm.as_ref().and_then(|warm| Some(warm.class.as_ref()?.to_string())),
            resources: self.warm.as_ref().and_then(|warm| warm.size.as_ref()).map(resources),
            ..PersistentVolumeClaimSpec::default()
        };
        let status =
            PersistentVolumeClaimStatus { phase: self.phase.as_deref().map(str::to_owned), ..PersistentVolumeClaimStatus::default() };
        PersistentVolumeClaim { metadata: self.metadata.observed(), spec: Some(spec), status: Some(status) }
    }

    /// Name of its volume.
    pub(crate) fn volume(&self) -> Option<&str> {
        self.volume.as_deref()
    }

    pub(crate) fn is_bound(&self) -> bool {
        self.phase.as_deref() == Some("Bound")
    }
}
