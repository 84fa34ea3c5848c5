//! Takes out of Pods, claims and volumes what no plan reads: the caches hold every one of them for as long as it exists.
//!
//! `yoi-plan` must not read what is taken out here. Nothing is ever written back from a cache.

use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, ContainerStatus, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec,
    PersistentVolumeClaimStatus, PersistentVolumeSpec, Pod, PodSpec, PodStatus,
};
use yoi_plan::yoipod::forget_volumes;

/// A Pod with its metadata, what it mounts, where it runs or may run, and its state.
#[must_use]
pub fn pod(mut pod: Pod) -> Pod {
    if pod.spec.as_ref().is_some_and(|s| s.volumes.is_none()) {
        pod.spec.get_or_insert_default().volumes = Some(Vec::new());
    }
    forget_volumes(&mut pod);
    pod.spec = pod.spec.map(|spec| PodSpec {
        affinity: spec.affinity,
        node_name: spec.node_name,
        node_selector: spec.node_selector,
        ..PodSpec::default()
    });
    pod.status = pod.status.map(|status| PodStatus {
        phase: status.phase,
        reason: status.reason,
        message: status.message,
        conditions: status.conditions.map(|all| all.into_iter().filter(|c| c.type_ == "PodScheduled").collect()),
        container_statuses: status.container_statuses.map(|all| all.into_iter().map(container_status).collect()),
        ..PodStatus::default()
    });
    pod
}

fn container_status(status: ContainerStatus) -> ContainerStatus {
    ContainerStatus { name: status.name, state: status.state, ..ContainerStatus::default() }
}

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
