//! Checks what no schema can: a project's defaults and a YoiPod's settings together, and against the agent's tree and session.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{ProjectedVolumeSource, VolumeProjection};
use yoi_crds::pod::PodSettings;
use yoi_crds::source::TreeOwner;

/// `path` is where the agent has its tree, as far as that is known, and `owner` the owner of the tree's files.
///
/// # Errors
/// The sentence says which field cannot be so, and why.
pub(super) fn check(pod: &PodSettings, path: Option<&str>, owner: TreeOwner, session_claim: &str) -> Result<(), String> {
    let volumes: BTreeSet<&str> = pod.volumes.iter().map(|volume| volume.name.as_str()).collect();
    for mount in &pod.volume_mounts {
        let at = mount.mount_path.as_str();
        if !volumes.contains(mount.name.as_str()) {
            return Err(format!("the mount at {at} names volume {}, which spec.pod.volumes does not have", mount.name));
        }
        if let Some(path) = path.filter(|path| at == *path || is_beneath(at, path) || is_beneath(path, at)) {
            return Err(format!("the mount at {at} of volume {} would cover the agent's tree at {path}: mount it elsewhere", mount.name));
        }
    }
    for volume in &pod.volumes {
        let claim = volume.persistent_volume_claim.as_ref().map(|claim| claim.claim_name.as_str());
        if claim == Some(session_claim) {
            return Err(format!(
                "volume {} is the claim of this agent's session, {session_claim}, which only the runtime writes",
                volume.name
            ));
        }
        if let Some(path) = volume.projected.as_ref().and_then(doubled_path) {
            return Err(format!("two sources of volume {} make the file {path}: give one of them another path", volume.name));
        }
    }
    let Some(security) = &pod.security_context else { return Ok(()) };
    for (field, wanted, is) in [
        ("runAsUser", security.run_as_user, owner.uid),
        ("runAsGroup", security.run_as_group, owner.gid),
        ("fsGroup", security.fs_group, owner.gid),
    ] {
        if let Some(wanted) = wanted.filter(|wanted| *wanted != is) {
            return Err(format!(
                "spec.pod.securityContext.{field} is {wanted}, and the tree belongs to {}:{}: agents run as the owner of their tree, so leave it out, \
                 or make a project with spec.owner {wanted}",
                owner.uid, owner.gid
            ));
        }
    }
    Ok(())
}

/// Returns a path that two items of a projected volume name, for which Kubernetes refuses the Pod.
fn doubled_path(volume: &ProjectedVolumeSource) -> Option<&str> {
    let mut paths = BTreeSet::new();
    volume.sources.iter().flatten().flat_map(item_paths).find(|path| !paths.insert(*path))
}

fn item_paths(source: &VolumeProjection) -> impl Iterator<Item = &str> {
    let secret = source.secret.iter().flat_map(|secret| secret.items.iter().flatten());
    let config_map = source.config_map.iter().flat_map(|map| map.items.iter().flatten());
    let fields = source.downward_api.iter().flat_map(|fields| fields.items.iter().flatten());
    secret.chain(config_map).map(|item| item.path.as_str()).chain(fields.map(|item| item.path.as_str()))
}

fn is_beneath(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}
