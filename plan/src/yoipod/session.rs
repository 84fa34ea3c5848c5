//! The claim of the session volume. It is made once, and it is deleted with its YoiPod only when the spec says so.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use yoi_crds::YoiPod;
use yoi_crds::name::label;
use yoi_crds::pod::SessionRetain;

use super::acceptance::Accepted;
use super::warm_session::{self, Choice};
use super::yoipod_input::{SessionClaim, YoiPodInput};
use crate::names;
use crate::observed_pod::ObservedPod;
use crate::settings::Settings;
use crate::step::{Kind, Step};
use crate::stored::Stored;

/// Annotation of a session claim: UID of the YoiPod that it was made for. A later YoiPod of the same name does not get that session.
pub const MADE_FOR: &str = "yoi.dev/yoipod-uid";

/// What is made, changed and recorded for the claim in this round.
#[derive(Clone, Debug, Default)]
pub(super) struct SessionPlan {
    pub steps: Vec<Step>,
    /// The claim that the status names. `None` while it is not decided which.
    pub claim_name: Option<String>,
    /// A Pod can be made after these steps.
    pub is_there: bool,
    /// Why no warm claim is taken, in the round that decides it.
    pub cold: Option<String>,
}

/// Makes the claim if it is missing or takes a warm one, and sets its owners and its volume's reclaim policy to what the spec says now. `accepted` is
/// absent when the spec is not accepted; then nothing is made.
pub(super) fn plan(input: &YoiPodInput<'_>, accepted: Option<&Accepted<'_>>, settings: &Settings, now: jiff::Timestamp) -> SessionPlan {
    let named = || Some(input.session_claim_name.clone());
    match input.session_claim {
        SessionClaim::Own(None) => SessionPlan { steps: vec![make(input, settings)], claim_name: named(), ..SessionPlan::default() },
        SessionClaim::Own(Some(claim)) if !claim.is_deleting() => {
            let owners = owners(input.yoipod);
            let is_owned = claim.metadata.owner_references.as_deref().unwrap_or_default() == owners;
            let own = (!is_owned).then(|| Step::OwnClaim { claim: claim.target(), owners });
            // A warm claim that holds nothing yet may be given back, and its volume goes with it.
            let retain = retain_volume(input).filter(|_| !warm_session::may_be_given_back(input, claim));
            SessionPlan { steps: own.into_iter().chain(retain).collect(), claim_name: named(), is_there: true, cold: None }
        }
        SessionClaim::Own(Some(_)) | SessionClaim::Named(_) | SessionClaim::Former(_) => keep(input),
        // The watch has not shown yet that it is taken.
        SessionClaim::Chosen(_) if !input.own_pods.is_empty() => SessionPlan { claim_name: named(), ..SessionPlan::default() },
        SessionClaim::Chosen(_) | SessionClaim::Undecided => {
            let choice = match accepted {
                Some(accepted) => warm_session::choose(input, accepted, settings, now),
                None if warm_session::is_asked_for(input) => Choice::Later,
                None => Choice::Cold(None),
            };
            decide(input, choice, settings)
        }
    }
}

/// Nothing is made or changed: no Pod is wanted, or the claim is not this agent's.
pub(super) fn keep(input: &YoiPodInput<'_>) -> SessionPlan {
    let is_open = match input.session_claim {
        SessionClaim::Chosen(_) => true,
        SessionClaim::Undecided => warm_session::is_asked_for(input),
        // What a former agent has left stays in the way only for as long as nothing else is named.
        SessionClaim::Former(claim) => names::is_warm_claim(claim.name()),
        SessionClaim::Own(_) | SessionClaim::Named(_) => false,
    };
    let claim_name = (!is_open).then(|| input.session_claim_name.clone());
    SessionPlan { claim_name, is_there: is_there(input), ..SessionPlan::default() }
}

/// One that is only chosen is not there: it may be another agent's in a moment.
fn is_there(input: &YoiPodInput<'_>) -> bool {
    match input.session_claim {
        SessionClaim::Named(claim) | SessionClaim::Own(claim) => claim.is_some(),
        SessionClaim::Former(_) => true,
        SessionClaim::Undecided | SessionClaim::Chosen(_) => false,
    }
}

fn decide(input: &YoiPodInput<'_>, choice: Choice<'_>, settings: &Settings) -> SessionPlan {
    match (choice, input.session_claim) {
        (Choice::Later, _) => keep(input),
        (Choice::Warm(claim), SessionClaim::Chosen(chosen)) if claim.uid() == chosen.uid() => {
            let take = Step::TakeWarmClaim {
                claim: claim.target(),
                resource_version: claim.meta().resource_version.clone().unwrap_or_default(),
                yoipod: input.yoipod.name().to_owned(),
                made_for: input.yoipod.uid().as_str().to_owned(),
                owners: owners(input.yoipod),
            };
            SessionPlan { steps: vec![take], claim_name: Some(claim.name().to_owned()), is_there: true, cold: None }
        }
        // The status names it before it is taken, so that no crash leaves one that nobody knows of.
        (Choice::Warm(claim), _) => SessionPlan { claim_name: Some(claim.name().to_owned()), ..SessionPlan::default() },
        // The claim is made once the status does not name the warm one any more.
        (Choice::Cold(cold), SessionClaim::Chosen(_)) => {
            SessionPlan { claim_name: Some(names::session_claim(input.yoipod.name())), cold, ..SessionPlan::default() }
        }
        (Choice::Cold(cold), _) => {
            SessionPlan { steps: vec![make(input, settings)], claim_name: Some(input.session_claim_name.clone()), is_there: false, cold }
        }
    }
}

/// Gives back a warm claim that was taken and whose node has no room for the Pod, with that Pod. A claim of its own follows. One that somebody has written
/// into stays as it is, because that may be somebody's data; no other agent takes it.
pub(super) fn give_back(input: &YoiPodInput<'_>, pod: Stored<'_, ObservedPod>) -> Option<SessionPlan> {
    let SessionClaim::Own(Some(claim)) = input.session_claim else { return None };
    if let Some(why) = warm_session::why_not_empty(input, claim, pod) {
        return Some(SessionPlan {
            steps: pod.delete().into_iter().collect(),
            claim_name: Some(names::session_claim(input.yoipod.name())),
            is_there: false,
            cold: Some(format!("warm session claim {} is not used: {why}; a claim of its own is bound with its Pod", claim.name())),
        });
    }
    let node = warm_session::node_without_room(input, claim, pod)?;
    Some(SessionPlan {
        steps: pod.delete().into_iter().chain(claim.delete()).collect(),
        claim_name: Some(names::session_claim(input.yoipod.name())),
        is_there: false,
        cold: Some(format!("the node of warm session claim {} does not take the Pod now: {node}", claim.name())),
    })
}

fn make(input: &YoiPodInput<'_>, settings: &Settings) -> Step {
    Step::EnsureClaim(Box::new(claim_of(input, settings.default_session_class.as_deref())))
}

/// Like [`plan`], before the finalizer goes. The spec and the claim may be younger than what was observed, and after this round nobody tells the
/// garbage collector, so the owners are set even where they look right.
pub(super) fn last_steps(input: &YoiPodInput<'_>) -> Vec<Step> {
    match input.session_claim {
        // It may have been made or taken a moment ago.
        SessionClaim::Own(None) | SessionClaim::Undecided | SessionClaim::Chosen(_) => vec![Step::ConfirmGone {
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
