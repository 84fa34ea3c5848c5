//! The claim of a workspace, for Pods that are not Yoi's, and the volume behind it.
//!
//! Order: claim without a volume name, then volume with the claim's UID. With any other order the claim waits for the binder's next resync. The volume
//! comes after the tree. A claim that waits for its consumer comes before the node is known. A claim that binds at once comes after the tree too: while
//! such a claim waits, the binder writes an annotation and Events about it, and it may write only 20 times a second for all claims of a cluster.

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

use crate::nodes::Nodes;
use crate::step::Step;
use crate::stored::{ClaimPhase, Stored};
use crate::{meta, names};

/// Size that the claim asks for. It is nominal: the quota bounds a tree.
const NOMINAL: &str = "1Gi";

/// The claim of a workspace's name and the volume of its tree, as they are observed.
#[derive(Clone, Copy)]
pub(super) struct ObservedClaim<'a> {
    /// The claim, if it belongs to the workspace.
    pub own: Option<Stored<'a, PersistentVolumeClaim>>,
    /// The claim, if it belongs to somebody else.
    pub foreign: Option<Stored<'a, PersistentVolumeClaim>>,
    /// The node that the scheduler chose with the first Pod.
    pub selected_node: Option<&'a str>,
    /// The volume, if it shows the workspace's tree.
    pub volume: Option<Stored<'a, PersistentVolume>>,
}

impl<'a> ObservedClaim<'a> {
    pub(super) fn new(
        workspace: Stored<'a, AgentWorkspace>,
        claim: Option<Stored<'a, PersistentVolumeClaim>>,
        volume: Option<Stored<'a, PersistentVolume>>,
    ) -> Self {
        let is_own = |claim: &Stored<'a, PersistentVolumeClaim>| claim.is_controlled_by(workspace.uid());
        ObservedClaim {
            own: claim.filter(is_own),
            foreign: claim.filter(|claim| !is_own(claim)),
            selected_node: claim.and_then(|claim| meta::annotation(claim.meta(), annotation::SELECTED_NODE)),
            volume: volume.filter(|volume| tree_behind(volume) == Some(workspace.uid().as_str())),
        }
    }

    /// The step that has the scheduler choose again, when the node of its choice no longer exists.
    pub(super) fn unselect_missing_node(&self, nodes: &Nodes) -> Option<Step> {
        let selected = self.selected_node?;
        if nodes.exists(selected) { None } else { self.unselect_node() }
    }

    /// The step that has the scheduler choose again, when it has chosen.
    pub(super) fn unselect_node(&self) -> Option<Step> {
        let claim = self.own.filter(|claim| !claim.is_deleting())?;
        self.selected_node?;
        Some(Step::UnselectNode { claim: claim.target(), times: self.times_given_back().saturating_add(1) })
    }

    /// How often the scheduler was made to choose again.
    pub(super) fn times_given_back(&self) -> u32 {
        let written = self.own.and_then(|claim| meta::annotation(claim.meta(), annotation::GIVEN_BACK));
        written.and_then(|text| text.parse().ok()).unwrap_or(0)
    }
}

/// What to make and delete, and the value of the condition Bound.
pub(super) struct ClaimPlan {
    pub steps: Vec<Step>,
    pub bound: ConditionValue,
}

/// The plan of the claim of a workspace that is accepted. `provisioned_on` is the node of its tree, once that is made.
#[must_use]
pub(super) fn plan(workspace: Stored<'_, AgentWorkspace>, observed: &ObservedClaim<'_>, provisioned_on: Option<&str>) -> ClaimPlan {
    let title = workspace.name();
    let mut steps = Vec::new();
    let volume = observed.volume;
    let waits = |message: String| ConditionValue::no(reason::WAITING_FOR_CONTROLLER, message);
    // A volume that was made for an earlier claim of this name can never be bound again. The data stays with the workspace.
    let is_stale = |volume: &Stored<'_, PersistentVolume>| observed.own.is_none_or(|claim| claim_uid(volume) != Some(claim.uid().as_str()));
    steps.extend(volume.filter(is_stale).and_then(Stored::delete));
    let Some(claim) = observed.own else {
        if workspace.spec.binding == Binding::Immediate && provisioned_on.is_none() && volume.is_none() {
            return ClaimPlan { steps, bound: waits(format!("claim {title} is made as soon as there is a tree")) };
        }
        steps.push(Step::EnsureClaim(Box::new(claim_of(workspace))));
        let bound = match volume {
            Some(_) => ConditionValue::no(reason::CLAIM_LOST, format!("claim {title} was deleted; a new one is made, the tree is kept")),
            None => waits(format!("claim {title} is being made")),
        };
        return ClaimPlan { steps, bound };
    };
    if claim.is_deleting() {
        let bound = ConditionValue::no(reason::CLAIM_LOST, format!("claim {title} is being deleted; a new one is made when it is gone"));
        return ClaimPlan { steps, bound };
    }
    if let (Some(node), None) = (provisioned_on, volume) {
        steps.push(Step::EnsureVolume(Box::new(volume_of(workspace, claim, node))));
    }
    let volume_name = names::volume(workspace.uid().as_str());
    let names_volume = claim.spec.as_ref().and_then(|s| s.volume_name.as_deref()) == Some(&volume_name);
    let bound = match claim.phase() {
        ClaimPhase::Bound if names_volume && volume.is_some() => {
            ConditionValue::yes(reason::CLAIM_BOUND, format!("claim {title} is bound to the tree"))
        }
        ClaimPhase::Lost => {
            ConditionValue::no(reason::CLAIM_LOST, format!("claim {title} lost its volume; delete the claim to get a new one"))
        }
        ClaimPhase::Bound | ClaimPhase::Other if volume.is_none() && provisioned_on.is_none() => {
            waits(format!("claim {title} waits for the tree"))
        }
        ClaimPhase::Bound | ClaimPhase::Other => waits(format!("claim {title} waits for the cluster to bind it to its volume")),
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

fn class(workspace: Stored<'_, AgentWorkspace>) -> &'static str {
    match workspace.spec.binding {
        Binding::WaitForConsumer | Binding::Unknown => CLASS_LATE,
        Binding::Immediate => CLASS_IMMEDIATE,
    }
}

fn size() -> BTreeMap<String, Quantity> {
    BTreeMap::from([("storage".to_owned(), Quantity(NOMINAL.to_owned()))])
}

fn labels(workspace: Stored<'_, AgentWorkspace>) -> BTreeMap<String, String> {
    BTreeMap::from([(label::WORKSPACE.to_owned(), workspace.name().to_owned())])
}

fn claim_of(workspace: Stored<'_, AgentWorkspace>) -> PersistentVolumeClaim {
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(workspace.name().to_owned()),
            namespace: Some(workspace.namespace().to_owned()),
            labels: Some(labels(workspace)),
            owner_references: Some(vec![workspace.owner_reference()]),
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

fn volume_of(workspace: Stored<'_, AgentWorkspace>, claim: Stored<'_, PersistentVolumeClaim>, node: &str) -> PersistentVolume {
    let on_node = NodeSelectorRequirement { key: TOPOLOGY_NODE.to_owned(), operator: "In".to_owned(), values: Some(vec![node.to_owned()]) };
    PersistentVolume {
        metadata: ObjectMeta {
            name: Some(names::volume(workspace.uid().as_str())),
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
                namespace: Some(claim.namespace().to_owned()),
                name: Some(claim.name().to_owned()),
                uid: Some(claim.uid().as_str().to_owned()),
                ..ObjectReference::default()
            }),
            csi: Some(CSIPersistentVolumeSource {
                driver: CSI_DRIVER.to_owned(),
                volume_handle: workspace.uid().as_str().to_owned(),
                ..CSIPersistentVolumeSource::default()
            }),
            node_affinity: Some(VolumeNodeAffinity {
                required: Some(NodeSelector {
                    node_selector_terms: vec![NodeSelectorTerm { match_expressions: Some(vec![on_node]), match_fields: None }],
                }),
            }),
            // The operator deletes the volume. With Delete, the binder looks for a plugin that it does not have, and fails the volume.
            persistent_volume_reclaim_policy: Some("Retain".to_owned()),
            storage_class_name: Some(class(workspace).to_owned()),
            volume_mode: Some("Filesystem".to_owned()),
            ..PersistentVolumeSpec::default()
        }),
        status: None,
    }
}
