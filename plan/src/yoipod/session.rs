//! The claim of the session volume: made once, kept or taken along as the spec says.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use yoi_crds::YoiPod;
use yoi_crds::name::label;
use yoi_crds::pod::SessionRetain;

use super::{Observed, Round, session_claim_name};
use crate::meta::{self, deleting, name, owner_reference, target, uid};
use crate::step::{Kind, Step};

/// UID of the YoiPod that a session claim was made for: a later YoiPod of the same name is a stranger to it.
pub const MADE_FOR: &str = "yoi.dev/yoipod-uid";

/// A claim of the derived name that was made for somebody else.
pub(crate) fn foreign(yoipod: &YoiPod, claim: &PersistentVolumeClaim) -> bool {
    yoipod.spec.session.claim_name.is_none() && meta::annotation(&claim.metadata, MADE_FOR) != Some(uid(&yoipod.metadata))
}

impl Round<'_> {
    pub(super) fn keep_session(&mut self) {
        let yoipod = &self.seen.yoipod;
        if yoipod.spec.session.claim_name.is_none() && self.seen.session_claim.is_none() {
            self.steps.push(Step::EnsureClaim(Box::new(claim_of(yoipod, self.settings.default_session_class.as_deref()))));
        }
        self.steps.extend(settle(self.seen));
    }
}

/// Makes a claim of ours stay or go with the YoiPod as the spec says now.
pub(super) fn settle(seen: &Observed) -> Vec<Step> {
    let yoipod = &seen.yoipod;
    let ours = |c: &&Arc<PersistentVolumeClaim>| yoipod.spec.session.claim_name.is_none() && !deleting(&c.metadata) && !foreign(yoipod, c);
    let Some(claim) = seen.session_claim.as_ref().filter(ours) else { return Vec::new() };
    let mut steps = Vec::new();
    let owners = owners(yoipod);
    if claim.metadata.owner_references.clone().unwrap_or_default() != owners {
        steps.push(Step::OwnClaim { claim: target(Kind::Claim, &claim.metadata), owners });
    }
    let retained = |policy: Option<&str>| policy == Some("Retain");
    if yoipod.spec.session.retain != SessionRetain::Delete {
        let volume = seen.session_volume.as_ref();
        let loose = volume.filter(|v| !retained(v.spec.as_ref().and_then(|s| s.persistent_volume_reclaim_policy.as_deref())));
        if let Some(volume) = loose.filter(|v| !deleting(&v.metadata)) {
            steps.push(Step::RetainVolume { volume: target(Kind::Volume, &volume.metadata) });
        }
    }
    steps
}

/// Like [`settle`], whatever the view says: the spec and the claim may be younger than it, and once we let go, nobody tells the garbage collector.
pub(super) fn settle_last(seen: &Observed) -> Vec<Step> {
    let yoipod = &seen.yoipod;
    if yoipod.spec.session.claim_name.is_some() {
        return Vec::new();
    }
    let mut steps = settle(seen);
    match &seen.session_claim {
        Some(claim) if foreign(yoipod, claim) || deleting(&claim.metadata) => {}
        Some(claim) => {
            steps.retain(|s| !matches!(s, Step::OwnClaim { .. }));
            steps.insert(0, Step::OwnClaim { claim: target(Kind::Claim, &claim.metadata), owners: owners(yoipod) });
        }
        None => steps.push(Step::ConfirmGone {
            kind: Kind::Claim,
            namespace: meta::namespace(&yoipod.metadata).to_owned(),
            name: session_claim_name(yoipod),
            of: uid(&yoipod.metadata).to_owned(),
        }),
    }
    steps
}

fn owners(yoipod: &YoiPod) -> Vec<OwnerReference> {
    match yoipod.spec.session.retain {
        SessionRetain::Retain | SessionRetain::Unknown => Vec::new(),
        SessionRetain::Delete => vec![owner_reference("YoiPod", &yoipod.metadata)],
    }
}

fn claim_of(yoipod: &YoiPod, default_class: Option<&str>) -> PersistentVolumeClaim {
    let template = yoipod.spec.session.claim_template.clone().unwrap_or_default();
    let owners = owners(yoipod);
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(session_claim_name(yoipod)),
            namespace: yoipod.metadata.namespace.clone(),
            labels: Some(BTreeMap::from([(label::YOIPOD.to_owned(), name(&yoipod.metadata).to_owned())])),
            annotations: Some(BTreeMap::from([(MADE_FOR.to_owned(), uid(&yoipod.metadata).to_owned())])),
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
