//! Takes out of claims and volumes what no plan reads: the caches hold every one of them for as long as it exists.
//!
//! `yoi-plan` must not read what is taken out here. Nothing is ever written back from a cache.

use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec, PersistentVolumeClaimStatus,
    PersistentVolumeSpec,
};

/// A claim with its metadata, its volume and its phase.
#[must_use]
pub fn claim(mut claim: PersistentVolumeClaim) -> PersistentVolumeClaim {
    claim.spec = claim.spec.map(|spec| PersistentVolumeClaimSpec { volume_name: spec.volume_name, ..PersistentVolumeClaimSpec::default() });
    claim.status = claim.status.map(|status| PersistentVolumeClaimStatus { phase: status.phase, ..PersistentVolumeClaimStatus::default() });
    claim
}

/// A volume with its metadata, its claim, the tree that it shows, its nodes and its reclaim policy.
#[must_use]
pub fn volume(mut volume: PersistentVolume) -> PersistentVolume {
    volume.spec = volume.spec.map(|spec| PersistentVolumeSpec {
        claim_ref: spec.claim_ref,
        csi: spec.csi.map(|csi| CSIPersistentVolumeSource {
            driver: csi.driver,
            volume_handle: csi.volume_handle,
            ..CSIPersistentVolumeSource::default()
        }),
        node_affinity: spec.node_affinity,
        persistent_volume_reclaim_policy: spec.persistent_volume_reclaim_policy,
        ..PersistentVolumeSpec::default()
    });
    volume.status = None;
    volume
}
