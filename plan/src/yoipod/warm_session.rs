//! Which warm session claim an agent takes. Its volume binds the Pod to a node, so all that speaks against that node is looked at before.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use yoi_wire::hub::ReportReason;

use super::acceptance::Accepted;
use super::placement::Placement;
use super::run;
use super::yoipod_input::YoiPodInput;
use crate::names;
use crate::observed_pod::ObservedPod;
use crate::settings::Settings;
use crate::stored::{ClaimPhase, Stored};
use crate::warm::class::{Need, Wanted};
use crate::warm::{MOST_MESSAGE, fits, is_free};

/// What an agent without a session claim gets.
pub(super) enum Choice<'a> {
    /// It is not known yet which nodes the agent may go to.
    Later,
    Warm(Stored<'a, PersistentVolumeClaim>),
    /// A claim of its own; with the reason, where warm ones were asked for.
    Cold(Option<String>),
}

/// Whether the agent's project asks for warm claims.
pub(super) fn is_asked_for(input: &YoiPodInput<'_>) -> bool {
    input.project.and_then(|project| project.get().spec.warm.as_deref()).is_some_and(|warm| warm.sessions > 0)
}

pub(super) fn choose<'a>(input: &YoiPodInput<'a>, accepted: &Accepted<'_>, settings: &Settings, now: jiff::Timestamp) -> Choice<'a> {
    let Some(project) = input.project.filter(|_| is_asked_for(input) && settings.most_warm_sessions > 0) else { return Choice::Cold(None) };
    // An agent that has run has lost its claim: nothing about it is to be fast, and all of it clear.
    if input.yoipod.spec.session.claim_name.is_some() || input.before.pod.is_some() || !input.own_pods.is_empty() {
        return Choice::Cold(None);
    }
    let wanted = Wanted::new(input.yoipod.spec.session.claim_template.as_ref(), settings, &input.warm.classes);
    if wanted.need() != Need::Claims {
        return Choice::Cold(None);
    }
    let cold = |why: String| Choice::Cold(Some(format!("{why}; a claim of its own is bound with its Pod")));
    let known =
        project.get().status.as_ref().and_then(|status| status.warm.as_deref()).map(|warm| warm.claims.as_slice()).unwrap_or_default();
    let is_ours = |claim: Stored<'_, PersistentVolumeClaim>| known.iter().any(|known| known.uid == claim.uid().as_str());
    let is_ready = |claim: Stored<'_, PersistentVolumeClaim>| claim.phase() == ClaimPhase::Bound && !claim.is_deleting();
    let free: Vec<_> = Stored::all(&input.warm.claims)
        .into_iter()
        .filter(|claim| is_free(*claim, project) && is_ours(*claim) && is_ready(*claim) && fits(*claim, &wanted))
        .collect();
    if free.is_empty() {
        let (title, class, size) = (project.name(), wanted.class_name(), &wanted.size);
        return cold(format!("no warm session claim of YoiProject {title} with StorageClass {class} and {size} is ready and free"));
    }
    let Some(workspace) = input.workspace.filter(|workspace| !workspace.is_deleting()) else { return Choice::Later };
    let placement = Placement::new(input, workspace, Some(&accepted.resolved.pod), now);
    let Ok(nodes) = placement.nodes() else { return Choice::Later };
    let Ok((_, able)) = run::runtime(input, settings, &nodes) else { return Choice::Later };
    let able: Vec<&str> = able.into_iter().filter(|node| placement.lets_in(node)).collect();
    let reaches = |claim: Stored<'_, PersistentVolumeClaim>| {
        volume_of(input, claim).is_some_and(|volume| able.iter().any(|node| input.nodes.reaches(node, volume)))
    };
    // Agents that start at the same time see the same claims, so each prefers another one.
    let preference = |claim: &Stored<'_, PersistentVolumeClaim>| {
        names::sha256(format!("{} {}", input.yoipod.uid().as_str(), claim.uid().as_str()).as_bytes())
    };
    match free.into_iter().filter(|claim| reaches(*claim)).max_by_key(preference) {
        Some(claim) => Choice::Warm(claim),
        None => cold("no warm session claim is on a node that holds the source and lets this agent in".to_owned()),
    }
}

/// The volume that Kubernetes has bound to the claim.
fn volume_of<'a>(input: &YoiPodInput<'a>, claim: Stored<'_, PersistentVolumeClaim>) -> Option<&'a PersistentVolume> {
    let is_bound = |volume: &PersistentVolume| {
        volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()?.uid.as_deref()) == Some(claim.uid().as_str())
    };
    Stored::all(&input.warm.volumes).into_iter().filter(|volume| !volume.is_deleting()).map(Stored::get).find(|volume| is_bound(volume))
}

/// A warm claim that the agent has taken and that no runtime has written into: nothing was reported, and no Pod of the agent had a node.
pub(super) fn may_be_given_back(input: &YoiPodInput<'_>, claim: Stored<'_, PersistentVolumeClaim>) -> bool {
    let has_run = input.before.report.is_some() || input.before.session.is_some() || input.own_pods.iter().any(|pod| pod.node.is_some());
    names::is_warm_claim(claim.name()) && !has_run
}

/// What the runtime says of a warm claim into which somebody has written before the agent took it; `None` when nobody has, as far as is known.
pub(super) fn why_not_empty(
    input: &YoiPodInput<'_>,
    claim: Stored<'_, PersistentVolumeClaim>,
    pod: Stored<'_, ObservedPod>,
) -> Option<String> {
    let report = input.before.report.as_ref().filter(|report| report.pod_uid == pod.uid().as_str())?;
    let is_not_empty = report.reason == ReportReason::SessionNotEmpty && names::is_warm_claim(claim.name());
    // A condition has room for 1,024 characters.
    is_not_empty.then(|| report.message.chars().take(MOST_MESSAGE).collect())
}

/// In the scheduler's words, why the Pod does not get a node with this claim; `None` for a Pod that has one or waits for its first look, and for a claim
/// that is not given back any more.
pub(super) fn node_without_room<'a>(
    input: &YoiPodInput<'_>,
    claim: Stored<'_, PersistentVolumeClaim>,
    pod: Stored<'a, ObservedPod>,
) -> Option<&'a str> {
    let unscheduled = pod.get().unscheduled.as_ref().filter(|unscheduled| unscheduled.no_node_since.is_some())?;
    let is_free = may_be_given_back(input, claim) && !claim.is_deleting() && !pod.is_deleting();
    is_free.then(|| unscheduled.message.as_deref().unwrap_or("no node takes it"))
}
