//! What of an object is worth remembering: the caches hold every claim and Pod of ours for as long as they live, and decisions read little of them.
//!
//! Nothing that is taken out here may be read by `yoi-plan`; nothing is ever written back from a cache.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use yoi_plan::yoipod::forget_volumes;

/// kubectl keeps a second copy of the whole object here.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Of every kind.
pub fn metadata(meta: &mut ObjectMeta) {
    meta.managed_fields = None;
    meta.self_link = None;
    if let Some(annotations) = &mut meta.annotations {
        annotations.remove(LAST_APPLIED);
    }
}

/// Where it runs or may run, what it mounts, and how it is.
pub fn pod(pod: &mut Pod) {
    if pod.spec.as_ref().is_some_and(|s| s.volumes.is_none()) {
        pod.spec.get_or_insert_default().volumes = Some(Vec::new());
    }
    forget_volumes(pod);
    if let Some(spec) = pod.spec.take() {
        pod.spec =
            Some(PodSpec { affinity: spec.affinity, node_name: spec.node_name, node_selector: spec.node_selector, ..PodSpec::default() });
    }
    if let Some(status) = &mut pod.status {
        let conditions = status.conditions.take();
        let containers = status.container_statuses.take();
        *status = k8s_openapi::api::core::v1::PodStatus {
            phase: status.phase.take(),
            reason: status.reason.take(),
            message: status.message.take(),
            conditions: conditions.map(|all| all.into_iter().filter(|c| c.type_ == "PodScheduled").collect()),
            container_statuses: containers.map(|all| {
                let trim = |c: k8s_openapi::api::core::v1::ContainerStatus| k8s_openapi::api::core::v1::ContainerStatus {
                    name: c.name,
                    state: c.state,
                    ..Default::default()
                };
                all.into_iter().map(trim).collect()
            }),
            ..Default::default()
        };
    }
}

/// Whose it is, what it is bound to, and whether.
pub fn claim(claim: &mut PersistentVolumeClaim) {
    if let Some(spec) = &mut claim.spec {
        *spec = k8s_openapi::api::core::v1::PersistentVolumeClaimSpec { volume_name: spec.volume_name.take(), ..Default::default() };
    }
    if let Some(status) = &mut claim.status {
        *status = k8s_openapi::api::core::v1::PersistentVolumeClaimStatus { phase: status.phase.take(), ..Default::default() };
    }
}

/// Whose claim and whose tree it is of, and from where it is reached.
pub fn volume(volume: &mut PersistentVolume) {
    if let Some(spec) = volume.spec.take() {
        let csi = spec.csi.map(|c| k8s_openapi::api::core::v1::CSIPersistentVolumeSource {
            driver: c.driver,
            volume_handle: c.volume_handle,
            ..Default::default()
        });
        volume.spec = Some(k8s_openapi::api::core::v1::PersistentVolumeSpec {
            claim_ref: spec.claim_ref,
            csi,
            node_affinity: spec.node_affinity,
            persistent_volume_reclaim_policy: spec.persistent_volume_reclaim_policy,
            ..Default::default()
        });
    }
    volume.status = None;
}

/// Nothing more than [`meta`] can be spared.
pub fn whole<K>(_: &mut K) {}
