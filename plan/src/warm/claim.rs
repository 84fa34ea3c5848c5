//! One warm claim: how it is made, what it must still be, and how it is given back.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use yoi_crds::YoiProject;
use yoi_crds::name::{annotation, label};

use super::class::Wanted;
use crate::step::Step;
use crate::stored::Stored;
use crate::yoipod::MADE_FOR;
use crate::{meta, names};

/// Whether the claim bears all that a warm claim of the project bears. That proves not that the operator has made it.
pub(crate) fn is_free(claim: Stored<'_, PersistentVolumeClaim>, project: Stored<'_, YoiProject>) -> bool {
    meta::label(claim.meta(), label::WARM) == Some(project.name())
        && claim.is_controlled_by(project.uid())
        && names::is_warm_claim(claim.name())
        && meta::annotation(claim.meta(), MADE_FOR).is_none()
}

/// Whether the claim has the class and the size that are wanted.
pub(crate) fn fits(claim: Stored<'_, PersistentVolumeClaim>, wanted: &Wanted<'_>) -> bool {
    let spec = claim.get().spec.as_ref();
    let class = spec.and_then(|spec| spec.storage_class_name.as_deref());
    let size = spec.and_then(|spec| spec.resources.as_ref()?.requests.as_ref()?.get("storage")).map(|size| size.0.as_str());
    wanted.is_met_by(class, size)
}

/// A claim whose volume is made for `node`. `number` tells claims of one plan apart.
pub(super) fn warm_claim(
    project: Stored<'_, YoiProject>,
    node: &str,
    wanted: &Wanted<'_>,
    now: jiff::Timestamp,
    number: usize,
) -> PersistentVolumeClaim {
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(names::warm_claim(project.uid().as_str(), now.as_nanosecond(), number)),
            namespace: Some(project.namespace().to_owned()),
            labels: Some(BTreeMap::from([(label::WARM.to_owned(), project.name().to_owned())])),
            annotations: Some(BTreeMap::from([(annotation::SELECTED_NODE.to_owned(), node.to_owned())])),
            owner_references: Some(vec![project.owner_reference()]),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            storage_class_name: Some(wanted.class_name().to_owned()),
            resources: Some(VolumeResourceRequirements {
                requests: Some(BTreeMap::from([("storage".to_owned(), Quantity(wanted.size.clone()))])),
                limits: None,
            }),
            ..PersistentVolumeClaimSpec::default()
        }),
        status: None,
    }
}

/// The step that deletes the claim unless an agent has taken it meanwhile.
pub(super) fn give_back(claim: Stored<'_, PersistentVolumeClaim>) -> Option<Step> {
    claim.delete_unchanged()
}
