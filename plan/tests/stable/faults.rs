//! Breaks planted around the plan: each is one that a careless change could bring, and each must be found.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use yoi_crds::condition::is_true;
use yoi_crds::name::finalizer;
use yoi_crds::peer::BoundMember;
use yoi_crds::reason::condition;
use yoi_crds::{AgentWorkspace, AgentWorkspaceStatus, Condition, YoiPeerStatus, YoiPodStatus};
use yoi_plan::meta::{controlled_by, deleting, name, target, uid};
use yoi_plan::names;
use yoi_plan::step::{Kind, Step};
use yoi_plan::yoipod::{MADE_FOR, run_generation};

use crate::cluster::Cluster;
use crate::judge::About;
use crate::kubernetes::is_agent;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    DeleteByNameAlone,
    /// The operator's finalizer goes in the first round of a deletion.
    FinalizerTooEarly,
    /// The view is believed when it shows nothing left.
    BelieveTheView,
    /// The shim's finalizer is taken off while its node is there.
    FinalizerOfTheNode,
    DropOthersFinalizers,
    SameRunAgain,
    TwoPods,
    TimesMove,
    SayItAgain,
    LoseStatus,
    /// The status is written whatever resource version the decision saw.
    OverwriteBlindly,
    NoManifest,
    NoFinalizers,
    VolumeBeforeTree,
    MakeInTerminating,
    DeleteTheStranger,
    PatchTheStranger,
    SessionGoesToo,
    BindAnew,
    MoveTheTree,
    SecondWriter,
    VolumeStays,
    ManifestsStay,
    OldBasesStay,
    ForgetTheHour,
    OfferStays,
    NoPolicy,
    NobodyIsReminded,
    RemindOfTheStranger,
}

pub const ALL: &[Fault] = &[
    Fault::DeleteByNameAlone,
    Fault::FinalizerTooEarly,
    Fault::BelieveTheView,
    Fault::FinalizerOfTheNode,
    Fault::DropOthersFinalizers,
    Fault::SameRunAgain,
    Fault::TwoPods,
    Fault::TimesMove,
    Fault::SayItAgain,
    Fault::LoseStatus,
    Fault::OverwriteBlindly,
    Fault::NoManifest,
    Fault::NoFinalizers,
    Fault::VolumeBeforeTree,
    Fault::MakeInTerminating,
    Fault::DeleteTheStranger,
    Fault::PatchTheStranger,
    Fault::SessionGoesToo,
    Fault::BindAnew,
    Fault::MoveTheTree,
    Fault::SecondWriter,
    Fault::VolumeStays,
    Fault::ManifestsStay,
    Fault::OldBasesStay,
    Fault::ForgetTheHour,
    Fault::OfferStays,
    Fault::NoPolicy,
    Fault::NobodyIsReminded,
    Fault::RemindOfTheStranger,
];

impl Fault {
    pub fn steps(self, c: &Cluster, about: &About, object: &ObjectMeta, steps: &mut Vec<Step>) {
        match self {
            Fault::DeleteByNameAlone => steps.iter_mut().for_each(|s| {
                if let Step::Delete(t) = s {
                    t.uid.clear();
                }
            }),
            Fault::FinalizerTooEarly if deleting(object) => steps.extend(without(about, object, finalizer::OPERATOR)),
            Fault::BelieveTheView => steps.retain(|s| !matches!(s, Step::ConfirmGone { .. })),
            Fault::FinalizerOfTheNode if deleting(object) => steps.extend(without(about, object, finalizer::NODE_DATA)),
            Fault::DropOthersFinalizers => steps.iter_mut().for_each(|s| match s {
                Step::AddFinalizers { all, .. } => all.retain(|f| f.starts_with("yoi.dev/")),
                Step::RemoveFinalizer { left, .. } => left.clear(),
                _ => {}
            }),
            Fault::SameRunAgain | Fault::TwoPods => {
                if let Some(Step::EnsurePod(pod)) = steps.iter_mut().find(|s| matches!(s, Step::EnsurePod(p) if is_agent(p))) {
                    let former = if self == Fault::SameRunAgain { "1".to_owned() } else { (run_generation(pod) + 1).to_string() };
                    let mut other = pod.clone();
                    other.metadata.annotations = Some(BTreeMap::from([(yoi_crds::name::annotation::RUN_GENERATION.to_owned(), former)]));
                    other.metadata.name = other.metadata.name.map(|n| format!("{n}-too"));
                    if self == Fault::SameRunAgain { *pod = other } else { steps.push(Step::EnsurePod(other)) }
                }
            }
            Fault::NoManifest => steps.retain(|s| !matches!(s, Step::EnsureConfigMap(_))),
            Fault::NoFinalizers => steps.retain(|s| !matches!(s, Step::AddFinalizers { .. })),
            Fault::VolumeBeforeTree if about.kind == Some(Kind::Workspace) => steps.extend(early_volume(c, about)),
            Fault::MakeInTerminating if c.now.terminating && about.kind == Some(Kind::YoiPod) => {
                let mut claim = PersistentVolumeClaim::default();
                claim.metadata.name = Some("more".to_owned());
                claim.metadata.namespace = object.namespace.clone();
                claim.metadata.annotations = Some(BTreeMap::from([(MADE_FOR.to_owned(), about.uid.clone())]));
                steps.push(Step::EnsureClaim(Box::new(claim)));
            }
            Fault::DeleteTheStranger => {
                // Who stands in our way is put out of it.
                if let Some(Step::EnsurePod(pod)) = steps.iter().find(|s| matches!(s, Step::EnsurePod(_)))
                    && let Some(there) = c.now.pods.get(name(&pod.metadata)).filter(|p| !controlled_by(&p.metadata, &about.uid))
                {
                    steps.insert(0, Step::Delete(target(Kind::Pod, &there.metadata)));
                }
            }
            Fault::PatchTheStranger if about.kind == Some(Kind::YoiPod) => {
                if let Some(claim) = c.now.claims.get(&names::session_claim(name(object))) {
                    steps.push(Step::OwnClaim { claim: target(Kind::Claim, &claim.metadata), owners: Vec::new() });
                }
            }
            Fault::SessionGoesToo if deleting(object) && about.kind == Some(Kind::YoiPod) => {
                if let Some(claim) = c.now.claims.get(&names::session_claim(name(object))) {
                    steps.push(Step::Delete(target(Kind::Claim, &claim.metadata)));
                }
            }
            Fault::VolumeStays => steps.retain(|s| match s {
                Step::Delete(t) => t.kind != Kind::Volume,
                Step::ConfirmGone { kind, .. } => *kind != Kind::Volume,
                _ => true,
            }),
            Fault::ManifestsStay => steps.retain(|s| !matches!(s, Step::Delete(t) if t.kind == Kind::ConfigMap)),
            Fault::OldBasesStay => steps.retain(|s| !matches!(s, Step::Delete(t) if t.kind == Kind::Workspace && about.kind.is_none())),
            Fault::OfferStays => steps.retain(|s| !matches!(s, Step::Delete(t) if t.kind == Kind::WorkspaceNode)),
            Fault::NobodyIsReminded => steps.retain(|s| !matches!(s, Step::NudgeClaim { .. })),
            Fault::RemindOfTheStranger if about.kind == Some(Kind::Claim) && deleting(object) => {
                steps.push(Step::NudgeClaim { claim: target(Kind::Claim, object), times: 30 });
            }
            Fault::NoPolicy => steps.retain(|s| !matches!(s, Step::EnsureNetworkPolicy(_))),
            _ => {}
        }
    }

    pub fn conditions(self, c: &Cluster, all: &mut [Condition]) {
        if self == Fault::TimesMove {
            let now = yoi_plan::conditions::format_time(c.now());
            all.iter_mut().for_each(|x| x.last_transition_time.clone_from(&now));
        }
    }

    pub fn workspace(self, c: &Cluster, object: &Arc<AgentWorkspace>, said: &mut AgentWorkspaceStatus) {
        let stood = object.status.as_ref();
        match self {
            Fault::MoveTheTree if stood.is_some_and(|s| is_true(&s.conditions, condition::PROVISIONED)) => {
                said.node_name = c.now.machines.keys().find(|n| Some(*n) != said.node_name.as_ref()).cloned();
            }
            Fault::SecondWriter => {
                let newest = c.now.pods.values().filter(|p| is_agent(p)).max_by_key(|p| run_generation(p));
                if said.pod_uid.is_some() {
                    said.pod_uid = newest.map(|p| uid(&p.metadata).to_owned());
                }
            }
            _ => {}
        }
    }

    pub fn yoipod(self, before: &YoiPodStatus, said: &mut YoiPodStatus) {
        if self == Fault::OverwriteBlindly && before.run_generation.is_some() {
            said.run_generation = before.run_generation;
        }
    }

    pub fn peer(self, members: Vec<BoundMember>, said: &mut YoiPeerStatus) {
        if self == Fault::BindAnew && members.len() == 2 && said.members.len() == 2 {
            said.members = members;
        }
    }
}

fn without(about: &About, object: &ObjectMeta, finalizer: &'static str) -> Option<Step> {
    let kind = about.kind.filter(|k| matches!(k, Kind::YoiPod | Kind::Workspace))?;
    let all = object.finalizers.clone().unwrap_or_default();
    let left: Vec<String> = all.iter().filter(|f| *f != finalizer).cloned().collect();
    let resource_version = object.resource_version.clone().unwrap_or_default();
    (left.len() < all.len()).then(|| Step::RemoveFinalizer { of: target(kind, object), resource_version, finalizer, left })
}

fn early_volume(c: &Cluster, about: &About) -> Option<Step> {
    let workspace = c.now.workspaces.values().find(|w| uid(&w.metadata) == about.uid && w.spec.claim)?;
    let claim = c.now.claims.get(name(&workspace.metadata))?;
    let volume = serde_json::json!({
        "metadata": {"name": names::volume(&about.uid)},
        "spec": {
            "claimRef": {"uid": uid(&claim.metadata)},
            "csi": {"driver": yoi_wire::identity::CSI_DRIVER, "volumeHandle": about.uid},
        },
    });
    Some(Step::EnsureVolume(Box::new(serde_json::from_value(volume).expect("a volume"))))
}
