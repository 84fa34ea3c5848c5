//! The claim of the session volume. It is made once, and it is deleted with its YoiPod only when the spec says so.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use yoi_crds::YoiPod;
use yoi_crds::name::label;
use yoi_crds::pod::SessionRetain;

use super::yoipod_input::{SessionClaim, YoiPodInput};
use crate::settings::Settings;
use crate::step::{Kind, Step};
use crate::stored::Stored;

/// Annotation of a session claim: UID of the YoiPod that it was made for. A later YoiPod of the same name does not get that session.
pub const MADE_FOR: &str = "yoi.dev/yoipod-uid";

/// Makes the claim if it is missing, and sets its owners and its volume's reclaim policy to what the spec says now.
pub(super) fn steps(input: &YoiPodInput<'_>, settings: &Settings) -> Vec<Step> {
    match input.session_claim {
        SessionClaim::Own(None) => vec![Step::EnsureClaim(Box::new(claim_of(input, settings.default_session_class.as_deref())))],
        SessionClaim::Own(Some(claim)) if !claim.is_deleting() => {
            let owners = owners(input.yoipod);
            let is_owned = claim.metadata.owner_references.as_deref().unwrap_or_default() == owners;
            let own = (!is_owned).then(|| Step::OwnClaim { claim: claim.target(), owners });
            own.into_iter().chain(retain_volume(input)).collect()
        }
        SessionClaim::Own(Some(_)) | SessionClaim::Named(_) | SessionClaim::Former(_) => Vec::new(),
    }
}

/// Like [`steps`], before the finalizer goes. The spec and the claim may be younger than what was observed, and after this round nobody tells the
/// garbage collector, so the owners are set even where they look right.
pub(super) fn last_steps(input: &YoiPodInput<'_>) -> Vec<Step> {
    match input.session_claim {
        SessionClaim::Own(None) => vec![Step::ConfirmGone {
            kind: Kind::Claim,
            namespace: input.yoipod.namespace().to_owned(),
            name: input.session_claim_name.clone(),
            of: input.yoipod.uid().as_str().to_owned(),
        }],
        SessionClaim::Own(Some(claim)) if !claim.is_deleting() => {
            let own = Step::OwnClaim { claim: claim.target(), owners: owners(input.yoipod) };
            std::iter::once(own).chain(retain_volume(input)).collect()
        }
        SessionClaim::Own(Some(_)) | SessionClaim::Named(_) | SessionClaim::Former(_) => Vec::new(),
    }
}

/// The step that lets the volume outlive its claim; `None` when it does already, or when the session goes with its YoiPod.
fn retain_volume(input: &YoiPodInput<'_>) -> Option<Step> {
    if input.yoipod.spec.session.retain == SessionRetain::Delete {
        return None;
    }
    let volume = input.session_volume.filter(|volume| !volume.is_deleting())?;
    let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    (policy != Some("Retain")).then(|| Step::RetainVolume { volume: volume.target() })
}

fn owners(yoipod: Stored<'_, YoiPod>) -> Vec<OwnerReference> {
    match yoipod.spec.session.retain {
        SessionRetain::Retain | SessionRetain::Unknown => Vec::new(),
        SessionRetain::Delete => vec![yoipod.owner_reference()],
    }
}

fn claim_of(input: &YoiPodInput<'_>, default_class: Option<&str>) -> PersistentVolumeClaim {
    let yoipod = input.yoipod;
    let template = yoipod.spec.session.claim_template.clone().unwrap_or_default();
    let owners = owners(yoipod);
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(input.session_claim_name.clone()),
            namespace: Some(yoipod.namespace().to_owned()),
            labels: Some(BTreeMap::from([(label::YOIPOD.to_owned(), yoipod.name().to_owned())])),
            annotations: Some(BTreeMap::from([(MADE_FOR.to_owned(), yoipod.uid().as_str().to_owned())])),
            owner_references: (!owners.is_empty()).then_some(owners),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            storage_class_name: template.storage_class_name.or_else(|| default_class.map(str::to_owned)),
            resources: Some(VolumeResourceRequirements {
                requests: Some(BTreeMap::from([("storage".to_owned(), Quantity(template.size))])),
                limits: None,
            }),
            ..PersistentVolumeClaimSpec::default()
        }),
        status: None,
    }
}
