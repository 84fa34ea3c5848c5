//! The claim of a workspace for foreign Pods, and the volume behind it.
//!
//! Order: claim without a volume name, volume with the claim's UID. Any other order waits for the binder's next resync. The volume comes after
//! the tree; a claim that waits for its consumer comes before the node is known, and one that binds at once comes after the tree too: while it
//! waits the binder writes an annotation and Events about it, and it may write 20 times a second for all claims of a cluster.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, ObjectReference, PersistentVolume,
    PersistentVolumeClaim, PersistentVolumeClaimSpec, PersistentVolumeSpec, VolumeNodeAffinity, VolumeResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use yoi_crds::AgentWorkspace;
use yoi_crds::condition::ConditionValue;
use yoi_crds::name::{CLASS_IMMEDIATE, CLASS_LATE, TOPOLOGY_NODE, annotation, label};
use yoi_crds::reason;
use yoi_crds::workspace::Binding;
use yoi_wire::identity::CSI_DRIVER;

use crate::meta::{controlled_by, deleting, name, owner_reference, target, uid};
use crate::names;
use crate::step::{Kind, Step};

/// Size in the claim: nominal, since a tree's bound is its quota.
const NOMINAL: &str = "1Gi";

pub(crate) struct ClaimPlan {
    pub steps: Vec<Step>,
    pub bound: ConditionValue,
}

/// A claim of the workspace's name that is somebody else's.
#[must_use]
pub(crate) fn foreign(workspace: &AgentWorkspace, claim: Option<&PersistentVolumeClaim>) -> bool {
    claim.is_some_and(|c| !controlled_by(&c.metadata, uid(&workspace.metadata)))
}

/// The node that the scheduler chose with the first Pod.
#[must_use]
pub(crate) fn selected_node(claim: Option<&PersistentVolumeClaim>) -> Option<&str> {
    crate::meta::annotation(&claim?.metadata, annotation::SELECTED_NODE)
}

#[must_use]
pub(crate) fn plan(
    workspace: &AgentWorkspace,
    claim: Option<&PersistentVolumeClaim>,
    volume: Option<&PersistentVolume>,
    provisioned_on: Option<&str>,
) -> ClaimPlan {
    let title = name(&workspace.metadata);
    let mut steps = Vec::new();
    let volume = volume.filter(|v| tree_behind(v) == Some(uid(&workspace.metadata)));
    // A volume that was made for an earlier claim of this name can never be bound again; the data stays with the workspace.
    let stale = volume.filter(|v| claim.is_none_or(|c| claim_uid(v) != Some(uid(&c.metadata))));
    if let Some(stale) = stale.filter(|v| !deleting(&v.metadata)) {
        steps.push(Step::Delete(target(Kind::Volume, &stale.metadata)));
    }
    let Some(claim) = claim else {
        if workspace.spec.binding == Binding::Immediate && provisioned_on.is_none() && volume.is_none() {
            let bound = ConditionValue::no(reason::WAITING_FOR_CONTROLLER, format!("claim {title} is made as soon as there is a tree"));
            return ClaimPlan { steps, bound };
        }
        steps.push(Step::EnsureClaim(Box::new(claim_of(workspace))));
        let bound = match volume {
            Some(_) => ConditionValue::no(reason::CLAIM_LOST, format!("claim {title} was deleted; a new one is made, the tree is kept")),
            None => ConditionValue::no(reason::WAITING_FOR_CONTROLLER, format!("claim {title} is being made")),
        };
        return ClaimPlan { steps, bound };
    };
    if deleting(&claim.metadata) {
        let bound = ConditionValue::no(reason::CLAIM_LOST, format!("claim {title} is being deleted; a new one is made when it is gone"));
        return ClaimPlan { steps, bound };
    }
    if let Some(node) = provisioned_on.filter(|_| volume.is_none()) {
        steps.push(Step::EnsureVolume(Box::new(volume_of(workspace, claim, node))));
    }
    let phase = claim.status.as_ref().and_then(|s| s.phase.as_deref());
    let joined = claim.spec.as_ref().and_then(|s| s.volume_name.as_deref()) == Some(&names::volume(uid(&workspace.metadata)));
    let bound = match phase {
        Some("Bound") if joined && volume.is_some() => {
            ConditionValue::yes(reason::CLAIM_BOUND, format!("claim {title} is bound to the tree"))
        }
        Some("Lost") => ConditionValue::no(reason::CLAIM_LOST, format!("claim {title} lost its volume; delete the claim to get a new one")),
        _ if volume.is_none() && provisioned_on.is_none() => {
            ConditionValue::no(reason::WAITING_FOR_CONTROLLER, format!("claim {title} waits for the tree"))
        }
        _ => ConditionValue::no(reason::WAITING_FOR_CONTROLLER, format!("claim {title} waits for the cluster to bind it to its volume")),
    };
    ClaimPlan { steps, bound }
}

/// UID of the workspace whose tree one of our volumes shows; `None` for everybody else's.
#[must_use]
pub fn tree_behind(volume: &PersistentVolume) -> Option<&str> {
    let csi = volume.spec.as_ref()?.csi.as_ref()?;
    (csi.driver == CSI_DRIVER).then_some(csi.volume_handle.as_str())
}

fn claim_uid(volume: &PersistentVolume) -> Option<&str> {
    volume.spec.as_ref()?.claim_ref.as_ref()?.uid.as_deref()
}

fn class(workspace: &AgentWorkspace) -> &'static str {
    match workspace.spec.binding {
        Binding::WaitForConsumer | Binding::Unknown => CLASS_LATE,
        Binding::Immediate => CLASS_IMMEDIATE,
    }
}

fn size() -> BTreeMap<String, Quantity> {
    BTreeMap::from([("storage".to_owned(), Quantity(NOMINAL.to_owned()))])
}

fn labels(workspace: &AgentWorkspace) -> BTreeMap<String, String> {
    BTreeMap::from([(label::WORKSPACE.to_owned(), name(&workspace.metadata).to_owned())])
}

fn claim_of(workspace: &AgentWorkspace) -> PersistentVolumeClaim {
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: workspace.metadata.name.clone(),
            namespace: workspace.metadata.namespace.clone(),
            labels: Some(labels(workspace)),
            owner_references: Some(vec![owner_reference("AgentWorkspace", &workspace.metadata)]),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            storage_class_name: Some(class(workspace).to_owned()),
            resources: Some(VolumeResourceRequirements { requests: Some(size()), limits: None }),
            ..PersistentVolumeClaimSpec::default()
        }),
        status: None,
    }
}

fn volume_of(workspace: &AgentWorkspace, claim: &PersistentVolumeClaim, node: &str) -> PersistentVolume {
    let on_node = NodeSelectorRequirement { key: TOPOLOGY_NODE.to_owned(), operator: "In".to_owned(), values: Some(vec![node.to_owned()]) };
    PersistentVolume {
        metadata: ObjectMeta {
            name: Some(names::volume(uid(&workspace.metadata))),
            labels: Some(labels(workspace)),
            annotations: Some(BTreeMap::from([(annotation::PROVISIONED_BY.to_owned(), CSI_DRIVER.to_owned())])),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            capacity: Some(size()),
            claim_ref: Some(ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("PersistentVolumeClaim".to_owned()),
                namespace: claim.metadata.namespace.clone(),
                name: claim.metadata.name.clone(),
                uid: claim.metadata.uid.clone(),
                ..ObjectReference::default()
            }),
            csi: Some(CSIPersistentVolumeSource {
                driver: CSI_DRIVER.to_owned(),
                volume_handle: uid(&workspace.metadata).to_owned(),
                ..CSIPersistentVolumeSource::default()
            }),
            node_affinity: Some(VolumeNodeAffinity {
                required: Some(NodeSelector {
                    node_selector_terms: vec![NodeSelectorTerm { match_expressions: Some(vec![on_node]), match_fields: None }],
                }),
            }),
            // Ours to delete: with Delete the binder looks for a plugin that it does not have, and fails the volume.
            persistent_volume_reclaim_policy: Some("Retain".to_owned()),
            storage_class_name: Some(class(workspace).to_owned()),
            volume_mode: Some("Filesystem".to_owned()),
            ..PersistentVolumeSpec::default()
        }),
        status: None,
    }
}
