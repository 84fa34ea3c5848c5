//! The validated input of a YoiPod's plan.

use std::cmp::Reverse;

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim};
use yoi_crds::{AgentWorkspace, YoiPod, YoiPodStatus, YoiProject};

use super::session::MADE_FOR;
use super::{Observed, session_claim_name, workspace_name};
use crate::nodes::Nodes;
use crate::observed_pod::ObservedPod;
use crate::stored::Stored;
use crate::tree::base_set::ObservedBase;
use crate::warm::Candidates;
use crate::{meta, names};

/// The claim that holds the session.
#[derive(Clone, Copy)]
pub(super) enum SessionClaim<'a> {
    /// The spec names it, and the plan never changes it; `None` while it does not exist.
    Named(Option<Stored<'a, PersistentVolumeClaim>>),
    /// The plan makes it; `None` while it does not exist.
    Own(Option<Stored<'a, PersistentVolumeClaim>>),
    /// It was made for a former YoiPod of this name.
    Former(Stored<'a, PersistentVolumeClaim>),
    /// There is none, and whether the plan takes a warm one or makes one is not decided.
    Undecided,
    /// The status names this warm one, and it is not taken yet.
    Chosen(Stored<'a, PersistentVolumeClaim>),
}

impl<'a> SessionClaim<'a> {
    fn new(yoipod: Stored<'_, YoiPod>, claim: Option<Stored<'a, PersistentVolumeClaim>>) -> Self {
        let made_for = |claim: Stored<'_, PersistentVolumeClaim>| meta::annotation(claim.meta(), MADE_FOR) == Some(yoipod.uid().as_str());
        let recorded = yoipod.get().status.as_ref().and_then(|status| status.session_claim_name.as_deref());
        let is_warm = recorded.is_some_and(names::is_warm_claim);
        match claim {
            _ if yoipod.spec.session.claim_name.is_some() => SessionClaim::Named(claim),
            Some(claim) if made_for(claim) => SessionClaim::Own(Some(claim)),
            Some(claim) if is_warm && meta::annotation(claim.meta(), MADE_FOR).is_none() => SessionClaim::Chosen(claim),
            // Another agent was faster, or the claim is gone.
            Some(_) | None if is_warm => SessionClaim::Undecided,
            Some(claim) => SessionClaim::Former(claim),
            None if recorded.is_none() => SessionClaim::Undecided,
            None => SessionClaim::Own(None),
        }
    }

    /// The claim, whoever it belongs to.
    pub(super) fn any_claim(self) -> Option<Stored<'a, PersistentVolumeClaim>> {
        match self {
            SessionClaim::Named(claim) | SessionClaim::Own(claim) => claim,
            SessionClaim::Former(claim) | SessionClaim::Chosen(claim) => Some(claim),
            SessionClaim::Undecided => None,
        }
    }
}

/// An [`Observed`] whose objects are all stored.
pub(super) struct YoiPodInput<'a> {
    pub yoipod: Stored<'a, YoiPod>,
    /// The namespace is being deleted.
    pub terminating: bool,
    pub before: YoiPodStatus,
    pub project: Option<Stored<'a, YoiProject>>,
    pub workspace_name: &'a str,
    pub workspace: Option<Stored<'a, AgentWorkspace>>,
    pub users: Vec<Stored<'a, YoiPod>>,
    pub bases: Vec<ObservedBase<'a>>,
    pub parent: Option<Stored<'a, AgentWorkspace>>,
    /// The YoiPod that has started this one.
    pub spawner: Option<Stored<'a, YoiPod>>,
    /// How many it has started.
    pub children: usize,
    /// Agents' Pods that bear this name.
    pub pods: Vec<Stored<'a, ObservedPod>>,
    /// Those that this YoiPod controls, the newest run first.
    pub own_pods: Vec<Stored<'a, ObservedPod>>,
    /// The Pods that this YoiPod controls and that read its session; one, unless somebody else made more.
    pub readers: Vec<Stored<'a, ObservedPod>>,
    /// The Pods that this YoiPod controls and that push its commits; as many.
    pub pushers: Vec<Stored<'a, ObservedPod>>,
    pub session_claim_name: String,
    pub session_claim: SessionClaim<'a>,
    pub session_volume: Option<Stored<'a, PersistentVolume>>,
    pub warm: &'a Candidates,
    pub manifests: Vec<Stored<'a, ConfigMap>>,
    pub nodes: &'a Nodes,
}

impl<'a> YoiPodInput<'a> {
    /// `None` for a YoiPod that no API server has stored. Other objects that are not stored are left out.
    pub(super) fn new(seen: &'a Observed) -> Option<Self> {
        let yoipod = Stored::new(&*seen.yoipod)?;
        let (pods, others): (Vec<_>, Vec<_>) = Stored::all(&seen.pods).into_iter().partition(|pod| pod.is_run());
        let own_others = others.into_iter().filter(|pod| pod.is_controlled_by(yoipod.uid()));
        let (readers, pushers): (Vec<_>, Vec<_>) = own_others.partition(|pod| pod.is_reader());
        let mut own_pods: Vec<_> = pods.iter().copied().filter(|pod| pod.is_controlled_by(yoipod.uid())).collect();
        own_pods.sort_by_key(|pod| Reverse(pod.run_generation));
        let claim = Stored::of(&seen.session_claim);
        let session_claim = SessionClaim::new(yoipod, claim);
        let session_claim_name = match session_claim {
            SessionClaim::Undecided => names::session_claim(yoipod.name()),
            SessionClaim::Former(claim) => claim.name().to_owned(),
            SessionClaim::Named(_) | SessionClaim::Own(_) | SessionClaim::Chosen(_) => session_claim_name(yoipod.get()),
        };
        let session_volume = Stored::of(&seen.session_volume).filter(|volume| is_bound_to(*volume, session_claim.any_claim()));
        Some(YoiPodInput {
            yoipod,
            terminating: seen.terminating,
            before: yoipod.get().status.clone().unwrap_or_default(),
            project: Stored::of(&seen.project),
            workspace_name: workspace_name(yoipod.get()),
            workspace: Stored::of(&seen.workspace),
            users: Stored::all(&seen.users),
            bases: ObservedBase::all(&seen.bases),
            parent: Stored::of(&seen.parent),
            spawner: Stored::of(&seen.spawner),
            children: seen.children,
            pods,
            own_pods,
            readers,
            pushers,
            session_claim_name,
            session_claim,
            session_volume,
            warm: &seen.warm,
            manifests: Stored::all(&seen.manifests),
            nodes: &seen.nodes,
        })
    }

    /// Whether its tree was made, or a node was told to make it.
    pub(super) fn has_tree(&self) -> bool {
        self.workspace.is_some_and(|workspace| workspace.get().status.as_ref().is_some_and(|status| status.origin.is_some()))
    }

    /// The ConfigMap that a Pod mounts as its manifest.
    pub(super) fn manifest_of(&self, pod: Stored<'_, ObservedPod>) -> Option<Stored<'a, ConfigMap>> {
        let title = pod.manifest.as_deref()?;
        self.manifests.iter().copied().find(|map| map.name() == title)
    }
}

/// Whether Kubernetes has bound the volume to this claim. A claim may name any volume of the cluster.
fn is_bound_to(volume: Stored<'_, PersistentVolume>, claim: Option<Stored<'_, PersistentVolumeClaim>>) -> bool {
    let bound = volume.get().spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()?.uid.as_deref());
    claim.is_some_and(|claim| bound == Some(claim.uid().as_str()))
}
