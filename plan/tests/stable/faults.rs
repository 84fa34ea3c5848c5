//! Faults that are planted into plans and statuses. A careless change could bring each of them, and the simulation must find each.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use yoi_crds::condition::{ConditionStatus, is_true};
use yoi_crds::name::finalizer;
use yoi_crds::peer::BoundMember;
use yoi_crds::reason::{self, condition};
use yoi_crds::source::DEFAULT_PATH;
use yoi_crds::workspace::ClaimState;
use yoi_crds::{AgentWorkspace, AgentWorkspaceStatus, Condition, YoiPeerStatus, YoiPodStatus};
use yoi_plan::meta::{controlled_by, deleting, name, namespace, uid};
use yoi_plan::names;
use yoi_plan::step::{Kind, Step, Target};
use yoi_plan::yoipod::{MADE_FOR, run_generation};

use crate::cluster::Cluster;
use crate::invariants::About;
use crate::kubernetes::{is_agent, is_reader};
use crate::looks::is_look;
use crate::pushes::is_pusher;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    DeleteByNameAlone,
    /// The operator's finalizer goes in the first round of a deletion.
    FinalizerTooEarly,
    /// The finalizer of a project goes although agents name the project.
    ProjectFinalizerTooEarly,
    /// The caches are trusted when they show that nothing is left.
    SkipConfirmGone,
    /// The shim's finalizer is removed while its node exists.
    NodeFinalizerTooEarly,
    DropOthersFinalizers,
    SameRunGeneration,
    TwoPods,
    TransitionTimeChanges,
    WriteUnchangedStatus,
    LoseStatus,
    /// The status is written even when the object has changed since it was observed.
    OverwriteBlindly,
    NoManifest,
    NoFinalizers,
    VolumeBeforeTree,
    MakeInTerminating,
    DeleteForeignObject,
    PatchForeignObject,
    SessionDeletedToo,
    BindMembersAgain,
    MoveTheTree,
    SecondWriter,
    VolumeLeftOver,
    ManifestsLeftOver,
    OldBasesLeftOver,
    /// What tree the session is about is not written down.
    ForgetTree,
    ForgetRequeue,
    WorkspaceNodeLeftOver,
    NoPolicy,
    NeverNudge,
    NudgeForeignClaim,
    /// The first base goes to a node that takes no Pods.
    BaseAnywhere,
    NeverGiveBack,
    /// How often a choice of node was given back is not counted.
    GiveBackForEver,
    ReaderWrites,
    ReaderLeftOver,
    /// The agent's Pod is made although its reader may still be there.
    ReaderBesideAgent,
    /// A folder is taken on a node whatever its shim offers, and wherever it was taken before.
    TakeElsewhere,
    /// Which take of a folder is asked for is forgotten.
    TakeOnce,
    ForgetQuota,
    ForgetPath,
    /// A folder of a node shows where a tree of another source does.
    ShowElsewhere,
    /// A base is sealed once it is filled.
    SealUnprepared,
    NeverLook,
    LookLeftOver,
    /// The commit that a branch has moved to is fetched for nobody.
    KeepFormerCommit,
    /// Trees are made from a commit that no look has found.
    FetchAnotherCommit,
    TwoPushers,
    PusherLeftOver,
    /// A Pod pushes another commit than was asked for.
    PushAnotherCommit,
    /// How a push has ended is written down, and not that it has.
    PushWithoutEnd,
    /// A push that was made is reported without its commit.
    ForgetPushedCommit,
    /// A loan is back as soon as its holder is to end.
    ReleaseEarly,
    /// A loan whose holder is to end is forgotten.
    ForgetClaims,
    /// Claims are written on top of what the gateway wrote meanwhile.
    ClaimBlindly,
}

/// Each with the seed of a world in which it was seen. Whoever changes what a seed makes finds the new ones in the output of the test.
pub const ALL: &[(Fault, u64)] = &[
    (Fault::DeleteByNameAlone, 3),
    (Fault::FinalizerTooEarly, 4),
    (Fault::SkipConfirmGone, 356),
    (Fault::NodeFinalizerTooEarly, 4),
    (Fault::DropOthersFinalizers, 8),
    (Fault::SameRunGeneration, 7),
    (Fault::TwoPods, 4),
    (Fault::TransitionTimeChanges, 0),
    (Fault::WriteUnchangedStatus, 2),
    (Fault::LoseStatus, 2),
    (Fault::OverwriteBlindly, 7),
    (Fault::NoManifest, 4),
    (Fault::NoFinalizers, 0),
    (Fault::VolumeBeforeTree, 11),
    (Fault::MakeInTerminating, 17),
    (Fault::DeleteForeignObject, 256),
    (Fault::PatchForeignObject, 4),
    (Fault::SessionDeletedToo, 8),
    (Fault::BindMembersAgain, 950),
    (Fault::MoveTheTree, 1),
    (Fault::SecondWriter, 4),
    (Fault::VolumeLeftOver, 3),
    (Fault::ManifestsLeftOver, 1040),
    (Fault::OldBasesLeftOver, 26),
    (Fault::ForgetTree, 298),
    (Fault::ProjectFinalizerTooEarly, 17),
    (Fault::ForgetRequeue, 7),
    (Fault::WorkspaceNodeLeftOver, 17),
    (Fault::NoPolicy, 1),
    (Fault::NeverNudge, 47),
    (Fault::NudgeForeignClaim, 12),
    (Fault::BaseAnywhere, 1),
    (Fault::NeverGiveBack, 1009),
    (Fault::GiveBackForEver, 1009),
    (Fault::ReaderWrites, 62),
    (Fault::ReaderLeftOver, 62),
    (Fault::ReaderBesideAgent, 5278),
    (Fault::TakeElsewhere, 6),
    (Fault::TakeOnce, 6),
    (Fault::ForgetQuota, 7),
    (Fault::ForgetPath, 5),
    (Fault::ShowElsewhere, 6),
    (Fault::SealUnprepared, 6),
    (Fault::NeverLook, 28),
    (Fault::LookLeftOver, 25),
    (Fault::KeepFormerCommit, 397),
    (Fault::FetchAnotherCommit, 397),
    (Fault::TwoPushers, 5),
    (Fault::PusherLeftOver, 5),
    (Fault::PushAnotherCommit, 5),
    (Fault::PushWithoutEnd, 94),
    (Fault::ForgetPushedCommit, 5),
    (Fault::ReleaseEarly, 68),
    (Fault::ForgetClaims, 68),
    (Fault::ClaimBlindly, 56_763),
];

impl Fault {
    pub fn steps(self, c: &Cluster, about: &About, object: &ObjectMeta, steps: &mut Vec<Step>) {
        match self {
            Fault::DeleteByNameAlone => steps.iter_mut().for_each(|s| {
                if let Step::Delete(t) = s {
                    t.uid.clear();
                }
            }),
            Fault::FinalizerTooEarly if deleting(object) && about.kind != Some(Kind::Project) => {
                steps.extend(without(about, object, finalizer::OPERATOR));
            }
            Fault::ProjectFinalizerTooEarly if deleting(object) && about.kind == Some(Kind::Project) => {
                steps.extend(without(about, object, finalizer::OPERATOR));
            }
            Fault::SkipConfirmGone => steps.retain(|s| !matches!(s, Step::ConfirmGone { .. })),
            Fault::NodeFinalizerTooEarly if deleting(object) => steps.extend(without(about, object, finalizer::NODE_DATA)),
            Fault::DropOthersFinalizers => steps.iter_mut().for_each(|s| match s {
                Step::AddFinalizers { all, .. } => all.retain(|f| f.starts_with("yoi.dev/")),
                Step::RemoveFinalizer { left, .. } => left.clear(),
                _ => {}
            }),
            Fault::SameRunGeneration | Fault::TwoPods => {
                if let Some(Step::EnsurePod(pod)) = steps.iter_mut().find(|s| matches!(s, Step::EnsurePod(p) if is_agent(p))) {
                    let former = if self == Fault::SameRunGeneration { "1".to_owned() } else { (run_generation(pod) + 1).to_string() };
                    let mut other = pod.clone();
                    other.metadata.annotations = Some(BTreeMap::from([(yoi_crds::name::annotation::RUN_GENERATION.to_owned(), former)]));
                    other.metadata.name = other.metadata.name.map(|n| format!("{n}-too"));
                    if self == Fault::SameRunGeneration { *pod = other } else { steps.push(Step::EnsurePod(other)) }
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
            Fault::DeleteForeignObject => {
                // An object of somebody else has the name that the plan needs.
                if let Some(Step::EnsurePod(pod)) = steps.iter().find(|s| matches!(s, Step::EnsurePod(_)))
                    && let Some(there) = c.now.pods.get(name(&pod.metadata)).filter(|p| !controlled_by(&p.metadata, &about.uid))
                {
                    steps.insert(0, Step::Delete(target(Kind::Pod, &there.metadata)));
                }
            }
            Fault::PatchForeignObject if about.kind == Some(Kind::YoiPod) => {
                if let Some(claim) = c.now.claims.get(&names::session_claim(name(object))) {
                    steps.push(Step::OwnClaim { claim: target(Kind::Claim, &claim.metadata), owners: Vec::new() });
                }
            }
            Fault::SessionDeletedToo if deleting(object) && about.kind == Some(Kind::YoiPod) => {
                if let Some(claim) = c.now.claims.get(&names::session_claim(name(object))) {
                    steps.push(Step::Delete(target(Kind::Claim, &claim.metadata)));
                }
            }
            Fault::VolumeLeftOver => steps.retain(|s| match s {
                Step::Delete(t) => t.kind != Kind::Volume,
                Step::ConfirmGone { kind, .. } => *kind != Kind::Volume,
                _ => true,
            }),
            Fault::ManifestsLeftOver => steps.retain(|s| !matches!(s, Step::Delete(t) if t.kind == Kind::ConfigMap)),
            Fault::OldBasesLeftOver => {
                steps.retain(|s| !matches!(s, Step::Delete(t) if t.kind == Kind::Workspace && about.kind == Some(Kind::Project)))
            }
            Fault::WorkspaceNodeLeftOver => steps.retain(|s| !matches!(s, Step::Delete(t) if t.kind == Kind::WorkspaceNode)),
            Fault::NeverNudge => steps.retain(|s| !matches!(s, Step::NudgeClaim { .. })),
            Fault::NudgeForeignClaim if about.kind == Some(Kind::Claim) && deleting(object) => {
                steps.push(Step::NudgeClaim { claim: target(Kind::Claim, object), times: 30 });
            }
            Fault::BaseAnywhere => {
                let closed = c.now.machines.iter().find(|(_, m)| m.cordoned || m.tainted).map(|(node, _)| node.clone());
                if let Some(closed) = closed {
                    ensured_workspaces(steps).filter_map(|w| w.spec.base.as_mut()).for_each(|base| base.node.clone_from(&closed));
                }
            }
            Fault::TakeElsewhere => {
                for base in ensured_workspaces(steps).filter(|w| w.spec.source.host.is_some()).filter_map(|w| w.spec.base.as_mut()) {
                    let other = c.now.machines.keys().rfind(|node| **node != base.node);
                    other.into_iter().for_each(|other| base.node.clone_from(other));
                }
            }
            Fault::TakeOnce => ensured_workspaces(steps).filter_map(|w| w.spec.source.host.as_mut()).for_each(|host| host.take = None),
            Fault::ShowElsewhere => {
                let folders = ensured_workspaces(steps).filter(|w| w.spec.source.host.is_some() && w.spec.base.is_some());
                folders.for_each(|w| w.spec.path = Some(DEFAULT_PATH.to_owned()));
            }
            Fault::NeverGiveBack => steps.retain(|s| !matches!(s, Step::UnselectNode { .. })),
            Fault::GiveBackForEver => steps.iter_mut().for_each(|s| {
                if let Step::UnselectNode { times, .. } = s {
                    *times = 1;
                }
            }),
            Fault::ReaderWrites => steps.iter_mut().for_each(|s| {
                if let Step::EnsurePod(pod) = s
                    && is_reader(pod)
                {
                    let volumes = pod.spec.iter_mut().flat_map(|spec| spec.volumes.iter_mut().flatten());
                    volumes.filter_map(|v| v.persistent_volume_claim.as_mut()).for_each(|claim| claim.read_only = None);
                }
            }),
            Fault::ReaderLeftOver => steps.retain(|s| !matches!(s, Step::Delete(t) if t.name.ends_with("-reader"))),
            Fault::ReaderBesideAgent => steps.retain(|s| !matches!(s, Step::ConfirmGone { name, .. } if name.ends_with("-reader"))),
            Fault::NeverLook => steps.retain(|s| !matches!(s, Step::EnsurePod(pod) if is_look(pod))),
            Fault::LookLeftOver => {
                steps.retain(|s| !matches!(s, Step::Delete(t) if t.kind == Kind::Pod && about.kind == Some(Kind::Project)))
            }
            Fault::KeepFormerCommit => {
                steps
                    .retain(|s| !matches!(s, Step::EnsureWorkspace(w) if w.spec.base.as_ref().is_some_and(|base| base.revision.is_some())));
            }
            Fault::FetchAnotherCommit => {
                let bases = ensured_workspaces(steps).filter_map(|w| w.spec.base.as_mut());
                bases.filter_map(|base| base.revision.as_mut()).for_each(|commit| *commit = "f".repeat(40));
            }
            Fault::TwoPushers => {
                if let Some(Step::EnsurePod(pod)) = steps.iter().find(|s| matches!(s, Step::EnsurePod(p) if is_pusher(p))) {
                    let mut other = pod.clone();
                    other.metadata.name = other.metadata.name.map(|n| format!("{n}-too"));
                    steps.push(Step::EnsurePod(other));
                }
            }
            Fault::PusherLeftOver => steps.retain(|s| !matches!(s, Step::Delete(t) if t.name.ends_with("-push"))),
            Fault::PushAnotherCommit => {
                let pushers = steps.iter_mut().filter_map(|s| if let Step::EnsurePod(pod) = s { Some(&mut **pod) } else { None });
                let containers =
                    pushers.filter(|pod| is_pusher(pod)).filter_map(|pod| pod.spec.as_mut()).flat_map(|spec| &mut spec.containers);
                let variables = containers.flat_map(|container| container.env.iter_mut().flatten());
                variables.filter(|variable| variable.name == "COMMIT").for_each(|commit| commit.value = Some("f".repeat(40)));
            }
            Fault::ReleaseEarly | Fault::ForgetClaims | Fault::ClaimBlindly => self.claims(c, steps),
            Fault::NoPolicy => steps.retain(|s| !matches!(s, Step::EnsureNetworkPolicy(_))),
            _ => {}
        }
    }

    fn claims(self, c: &Cluster, steps: &mut [Step]) {
        for step in steps {
            let Step::SetClaims { of, resource_version, claims } = step else { continue };
            match self {
                Fault::ReleaseEarly => {
                    claims
                        .iter_mut()
                        .filter(|claim| claim.state == ClaimState::Reclaiming)
                        .for_each(|claim| claim.state = ClaimState::Released);
                }
                Fault::ForgetClaims => claims.retain(|claim| claim.state != ClaimState::Reclaiming),
                Fault::ClaimBlindly => {
                    let now = c.now.workspaces.get(&of.name).and_then(|w| w.metadata.resource_version.clone());
                    *resource_version = now.unwrap_or_default();
                }
                _ => {}
            }
        }
    }

    pub fn conditions(self, c: &Cluster, all: &mut [Condition]) {
        if self == Fault::TransitionTimeChanges {
            let now = yoi_plan::conditions::format_time(c.now());
            all.iter_mut().for_each(|x| x.last_transition_time.clone_from(&now));
        }
    }

    pub fn workspace(self, c: &Cluster, object: &Arc<AgentWorkspace>, reported: &mut AgentWorkspaceStatus) {
        let stood = object.status.as_ref();
        match self {
            Fault::MoveTheTree if stood.is_some_and(|s| is_true(&s.conditions, condition::PROVISIONED)) => {
                reported.node_name = c.now.machines.keys().find(|n| Some(*n) != reported.node_name.as_ref()).cloned();
            }
            Fault::SecondWriter => {
                let newest = c.now.pods.values().filter(|p| is_agent(p)).max_by_key(|p| run_generation(p));
                if reported.pod_uid.is_some() {
                    reported.pod_uid = newest.map(|p| uid(&p.metadata).to_owned());
                }
            }
            Fault::SealUnprepared => {
                let preparing = |c: &&mut Condition| c.type_ == condition::POPULATED && c.reason == *reason::PREPARING;
                if let Some(populated) = reported.conditions.iter_mut().find(preparing) {
                    populated.status = ConditionStatus::True;
                }
            }
            Fault::ForgetQuota => reported.quota_bytes = None,
            Fault::ForgetPath => reported.path = None,
            _ => {}
        }
    }

    pub fn yoipod(self, before: &YoiPodStatus, reported: &mut YoiPodStatus) {
        if self == Fault::OverwriteBlindly && before.run_generation.is_some() {
            reported.run_generation = before.run_generation;
        }
        if let Some(push) = &mut reported.push {
            match self {
                Fault::PushWithoutEnd => (push.ended_request, push.task) = (None, None),
                Fault::ForgetPushedCommit => push.outcome.iter_mut().for_each(|outcome| outcome.commit = None),
                _ => {}
            }
        }
        if self == Fault::ForgetTree
            && let Some(workspace) = &mut reported.workspace
        {
            workspace.uid = None;
        }
    }

    pub fn peer(self, members: Vec<BoundMember>, reported: &mut YoiPeerStatus) {
        if self == Fault::BindMembersAgain && members.len() == 2 && reported.members.len() == 2 {
            reported.members = members;
        }
    }
}

fn ensured_workspaces(steps: &mut [Step]) -> impl Iterator<Item = &mut AgentWorkspace> {
    steps.iter_mut().filter_map(|s| if let Step::EnsureWorkspace(w) = s { Some(&mut **w) } else { None })
}

fn target(kind: Kind, meta: &ObjectMeta) -> Target {
    Target { kind, namespace: namespace(meta).to_owned(), name: name(meta).to_owned(), uid: uid(meta).to_owned() }
}

fn without(about: &About, object: &ObjectMeta, finalizer: &'static str) -> Option<Step> {
    let kind = about.kind.filter(|k| matches!(k, Kind::Project | Kind::YoiPod | Kind::Workspace))?;
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
