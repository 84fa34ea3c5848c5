//! Warm session claims: which projects ask for them, what the operator sees of them, and the provisioner that binds them.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::json;
use yoi_crds::name::{annotation::SELECTED_NODE, label};
use yoi_crds::warm::Warm;
use yoi_crds::{YoiPod, YoiProject};
use yoi_plan::meta::{annotation, controlled_by, deleting, label as label_of, name, uid};
use yoi_plan::names::is_warm_claim;
use yoi_plan::warm::class::Classes;
use yoi_plan::warm::{Candidates, Made, Observed};
use yoi_plan::yoipod::{MADE_FOR, session_claim_name};

use crate::cluster::{Cluster, Objects};
use crate::kubernetes::{LOCAL, provision};
use crate::users::{Random, made};

/// What a project asks for. It draws nothing of its own, so that the worlds stay as they are.
pub fn any(random: &Random) -> Option<Box<Warm>> {
    let local = (random.0 / 6).is_multiple_of(2).then(|| json!({"storageClassName": LOCAL, "size": "2Gi"}));
    let warm = json!({"sessions": random.0 / 2 % 3, "claimTemplate": local});
    random.0.is_multiple_of(2).then(|| Box::new(made(warm)))
}

fn classes() -> Classes {
    let class = |name: &str, is_default: bool| {
        let annotations = json!({"storageclass.kubernetes.io/is-default-class": is_default.to_string()});
        let metadata = json!({"name": name, "annotations": annotations});
        Arc::new(made(json!({"metadata": metadata, "provisioner": "example.com/disks", "volumeBindingMode": "WaitForFirstConsumer"})))
    };
    Classes(vec![class(LOCAL, false), class("network", true)])
}

fn is_warm(claim: &PersistentVolumeClaim) -> bool {
    label_of(&claim.metadata, label::WARM).is_some()
}

/// The process knows the UIDs of all that it has made, however old its view is.
pub fn observed(c: &Cluster, view: &Objects, project: &YoiProject) -> Observed {
    let of_project = |claim: &&Arc<PersistentVolumeClaim>| is_warm(claim) && controlled_by(&claim.metadata, uid(&project.metadata));
    let known = c.now.claims.values().filter(of_project).filter(|claim| c.ours.contains_key(uid(&claim.metadata)));
    let entry = |claim: &Arc<PersistentVolumeClaim>| {
        let is_unseen = !view.claims.contains_key(name(&claim.metadata));
        let node = annotation(&claim.metadata, SELECTED_NODE).unwrap_or_default().to_owned();
        (uid(&claim.metadata).to_owned(), Made { node, is_unseen })
    };
    Observed {
        claims: view.claims.values().filter(of_project).cloned().collect(),
        made: known.map(entry).collect::<BTreeMap<_, _>>(),
        refusal: None,
        in_cluster: c.now.claims.values().filter(|claim| is_warm(claim)).count(),
        classes: classes(),
    }
}

pub fn candidates(view: &Objects, yoipod: &YoiPod, project: Option<&YoiProject>) -> Candidates {
    let of_project = |claim: &Arc<PersistentVolumeClaim>| {
        is_warm(claim) && project.is_some_and(|project| controlled_by(&claim.metadata, uid(&project.metadata)))
    };
    let is_chosen = |claim: &Arc<PersistentVolumeClaim>| {
        let others = view.yoipods.values().filter(|other| uid(&other.metadata) != uid(&yoipod.metadata));
        others.map(|other| session_claim_name(other)).any(|chosen| chosen == name(&claim.metadata))
    };
    let claims: Vec<_> = view.claims.values().filter(|claim| of_project(claim) && !is_chosen(claim)).cloned().collect();
    let volumes = claims.iter().filter_map(|claim| view.volumes.get(claim.spec.as_ref()?.volume_name.as_ref()?)).cloned().collect();
    Candidates { claims, volumes, classes: classes() }
}

/// What the operator sees as the agent's claim while its status names none and there is none of its name: one that was warm, and that a former agent of the
/// name has left.
pub fn former(view: &Objects, yoipod: &YoiPod) -> Option<Arc<PersistentVolumeClaim>> {
    let is_undecided = yoipod.spec.session.claim_name.is_none() && yoipod.status.as_ref().is_none_or(|s| s.session_claim_name.is_none());
    let of_name = |claim: &&Arc<PersistentVolumeClaim>| label_of(&claim.metadata, label::YOIPOD) == Some(name(&yoipod.metadata));
    let was_warm =
        |claim: &&Arc<PersistentVolumeClaim>| is_warm_claim(name(&claim.metadata)) && annotation(&claim.metadata, MADE_FOR).is_some();
    view.claims.values().filter(|_| is_undecided).filter(of_name).find(was_warm).cloned()
}

/// The provisioner makes the volume of a claim whose node is chosen, while that node answers.
pub fn bind(c: &mut Cluster) {
    let waits = |claim: &&Arc<PersistentVolumeClaim>| is_warm(claim) && !deleting(&claim.metadata);
    let waiting: Vec<_> =
        c.now.claims.values().filter(waits).filter(|x| x.spec.as_ref().is_some_and(|s| s.volume_name.is_none())).cloned().collect();
    for claim in waiting {
        let has_volume = c.now.volumes.contains_key(&format!("pvc-{}", uid(&claim.metadata)));
        let node = annotation(&claim.metadata, SELECTED_NODE).filter(|node| c.alive(node)).map(str::to_owned);
        if let Some(node) = node.filter(|_| !has_volume) {
            provision(c, &claim, &node);
        }
    }
}
