//! How the loans of a tree's paths go on. The gateway reserves paths and fences them; everything else is here.
//!
//! # Guarantees
//! * A claim goes from state to state as [`scope::next`] says, by a write that names the version of the workspace on which it was decided.
//! * It is Released only when no Pod of its holder is left. Before that the API server itself is asked for the last one.
//! * A loan whose holder was not made, or has not begun, is given up, though everybody who asked for it has died.

use std::time::Duration;

use jiff::Timestamp;
use yoi_crds::workspace::Claim;
use yoi_crds::{AgentWorkspaceStatus, YoiPod};

use super::Observed;
use super::workspace_input::WorkspaceInput;
use crate::duration::time_left;
use crate::names;
use crate::observed_pod::ObservedPod;
use crate::reservation::bounded;
use crate::scope::{self, ClaimState, Holder, Seen};
use crate::step::{Kind, Plan, Step};
use crate::stored::Stored;
use crate::tree;
use crate::yoipod::pod_spec::CONTAINER;
use crate::yoipod::{has_ended, is_stopped_for_good};

/// How long a loan waits for its holder to be made and to begin. A request for one ends long before.
const MADE_WITHIN: Duration = Duration::from_secs(120);
/// How long a holder that has ended once may take, from its container's start, to come up.
const UP_WITHIN: Duration = Duration::from_secs(10);
/// How long one whose container runs may take. What enforces the network policies may not know a new Pod for some time, and then it does not reach the gateway.
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);
/// Claims that are Released and kept for their lender to read of.
const MOST_RELEASED: usize = 16;

/// What is known of a claim's holder.
struct HolderSeen<'a> {
    object: Option<Stored<'a, YoiPod>>,
    holder: Holder,
    /// Why it has ended, where that was not its own work.
    why: Option<String>,
    /// Its Pods, the earliest run first.
    pods: Vec<Stored<'a, ObservedPod>>,
    /// When to look again, even if nothing changes.
    recheck: Option<Duration>,
}

/// The steps that take the claims on, and nothing else: what follows is decided on the workspace that has them. `Err` when none goes on now, with when to look
/// again.
pub(super) fn plan(input: &WorkspaceInput<'_>, seen: &Observed, now: Timestamp) -> Result<Plan<AgentWorkspaceStatus>, Option<Duration>> {
    let workspace = input.workspace;
    let Some(status) = workspace.get().status.as_ref().filter(|status| !status.claims.is_empty()) else { return Err(None) };
    let (users, pods) = (Stored::all(&seen.users), Stored::all(&seen.agents));
    let mut steps = Vec::new();
    let mut claims = Vec::new();
    let mut recheck: Option<Duration> = None;
    for claim in &status.claims {
        // Of another version: its own operator goes on with it.
        let Some(state) = scope::claim_state(claim.state) else {
            claims.push(claim.clone());
            continue;
        };
        let holder = holder_of(input, claim, state, &users, &pods, now);
        recheck = recheck.into_iter().chain(holder.recheck).min();
        let seen = Seen {
            // The gateway says so, once the lender's runtime has ended who still held something there.
            is_fenced: state != ClaimState::Reserved && is_covered(Some(status), claim),
            holder: holder.holder,
            no_pod: holder.pods.is_empty() && is_heard_of(input, claim),
        };
        let next = scope::next(state, seen);
        if next == Some(ClaimState::Released) {
            steps.extend(holder.object.map(confirm_last_pod_gone));
        }
        claims.push(updated(claim, next, holder));
    }
    forget(input, &users, &mut claims);
    if claims == status.claims {
        return Err(recheck);
    }
    steps.push(Step::SetClaims { of: workspace.target(), resource_version: workspace.resource_version(), claims });
    Ok(Plan { steps, status: None, requeue_after: recheck })
}

fn holder_of<'a>(
    input: &WorkspaceInput<'_>,
    claim: &Claim,
    state: ClaimState,
    users: &[Stored<'a, YoiPod>],
    pods: &[Stored<'a, ObservedPod>],
    now: Timestamp,
) -> HolderSeen<'a> {
    let is_it = |user: &&Stored<'a, YoiPod>| {
        let by = user.get().spec.spawned_by.as_deref();
        tree::loan(user.get()) == Some(claim.loan.as_str()) && by.is_some_and(|by| by.uid == claim.lender.uid)
    };
    let object = users.iter().find(is_it).copied();
    let uid = object.map(|object| object.uid().as_str()).or(claim.holder.uid.as_deref());
    let of_holder = |pod: &Stored<'_, ObservedPod>| pod.is_run() && uid.is_some_and(|uid| crate::meta::controlled_by(pod.meta(), uid));
    let mut pods: Vec<_> = pods.iter().copied().filter(of_holder).collect();
    pods.sort_by_key(|pod| pod.run_generation);
    let seen = |holder, why, recheck| HolderSeen { object, holder, why, pods: pods.clone(), recheck };
    if input.workspace.is_deleting() {
        return seen(Holder::Ended, Some("the tree is being deleted".to_owned()), None);
    }
    match object {
        Some(object) if object.is_deleting() || is_stopped_for_good(object.get()) || has_ended(object.get()) => {
            seen(Holder::Ended, None, None)
        }
        Some(object) => {
            // One that has not begun waits for the gateway, or for its lender's cover, and without a Pod of the lender there is none.
            let begins = match state {
                ClaimState::Fenced if is_covered(input.workspace.get().status.as_ref(), claim) => Ok(None),
                ClaimState::Reserved | ClaimState::Fenced => still_asked_for(input, claim, now).map(Some),
                ClaimState::Active | ClaimState::Reclaiming | ClaimState::Released => Ok(None),
            };
            let up = begins.and_then(|left| Ok(left.into_iter().chain(came_up(object.get(), &pods, now)?).min()));
            match up {
                Ok(recheck) => seen(Holder::Wanted, None, recheck),
                Err(why) => seen(Holder::Ended, Some(why), None),
            }
        }
        None => match state {
            ClaimState::Reserved | ClaimState::Fenced => match still_asked_for(input, claim, now) {
                Ok(left) => seen(Holder::Awaited, None, Some(left)),
                Err(why) => seen(Holder::Ended, Some(why), None),
            },
            ClaimState::Active | ClaimState::Reclaiming | ClaimState::Released => seen(Holder::Ended, None, None),
        },
    }
}

/// How long the holder's object, or its beginning, may still be waited for, or why it is not.
fn still_asked_for(input: &WorkspaceInput<'_>, claim: &Claim, now: Timestamp) -> Result<Duration, String> {
    let mounted_by = input.workspace.get().status.as_ref().and_then(|status| status.pod_uid.as_deref());
    if claim.lender.pod_uid.is_some() && claim.lender.pod_uid.as_deref() != mounted_by {
        return Err(format!("{} was started anew before {} began", claim.lender.name, claim.holder.name));
    }
    // One without a time is nobody's.
    let reserved_at = claim.reserved_at.parse().unwrap_or(Timestamp::UNIX_EPOCH);
    time_left(reserved_at, MADE_WITHIN, now)
        .ok_or_else(|| format!("{} did not begin within {} s", claim.holder.name, MADE_WITHIN.as_secs()))
}

/// Whether the holder is up, or may still come up, and until when; or its last words. One that was up once is not judged: it is told what goes on by its parent.
fn came_up(holder: &YoiPod, pods: &[Stored<'_, ObservedPod>], now: Timestamp) -> Result<Option<Duration>, String> {
    let was_up =
        holder.status.as_ref().is_some_and(|status| status.session.is_some() || status.report.as_ref().is_some_and(|report| report.ready));
    let started = pods.last().and_then(|pod| Some((pod, pod.started_at(CONTAINER)?)));
    let Some((pod, started_at)) = started.filter(|_| !was_up) else { return Ok(None) };
    let words = pod.last_words(CONTAINER);
    let within = if words.is_some() { UP_WITHIN } else { ANSWERS_WITHIN };
    match time_left(started_at, within, now) {
        Some(left) => Ok(Some(left)),
        None => {
            let words = words.map(|words| format!(". Its last words: {}", words.trim())).unwrap_or_default();
            Err(format!("it was not up {} s after its container's start{words}", within.as_secs()))
        }
    }
}

fn is_covered(status: Option<&AgentWorkspaceStatus>, claim: &Claim) -> bool {
    status.into_iter().flat_map(|status| &status.loans).any(|view| view.loan == claim.loan && view.covered)
}

/// Of a node that is not heard of nobody knows what still runs there, though the Pod's object is gone. On a node that is gone, so is the tree.
fn is_heard_of(input: &WorkspaceInput<'_>, claim: &Claim) -> bool {
    let node = input.node_name.and_then(|node| input.nodes.0.get(node));
    claim.holder.pod_uid.is_none() || node.is_none_or(|node| node.not_ready_since.is_none())
}

/// The step that has the holder's last Pod gone, in case it was made and is not observed yet.
fn confirm_last_pod_gone(holder: Stored<'_, YoiPod>) -> Step {
    let run = holder.get().status.as_ref().and_then(|status| status.run_generation);
    Step::ConfirmGone {
        kind: Kind::Pod,
        namespace: holder.namespace().to_owned(),
        name: names::pod(holder.name(), run.unwrap_or(names::FIRST_RUN)),
        of: holder.uid().as_str().to_owned(),
    }
}

fn updated(claim: &Claim, next: Option<ClaimState>, seen: HolderSeen<'_>) -> Claim {
    let HolderSeen { object, holder: _, why, pods, recheck: _ } = seen;
    let mut claim = claim.clone();
    if let Some(next) = next {
        claim.state = next.into();
    }
    if scope::claim_state(claim.state).is_some_and(ClaimState::is_held) {
        claim.holder.uid = claim.holder.uid.or_else(|| object.map(|object| object.uid().as_str().to_owned()));
        claim.message = claim.message.or_else(|| why.map(|why| bounded(&why)));
    }
    if let Some(pod) = pods.first().filter(|_| scope::claim_state(claim.state) == Some(ClaimState::Active)) {
        claim.holder.pod_uid = Some(pod.uid().as_str().to_owned());
    }
    claim
}

/// What is back stays for a while, so that the lender's next turn reads of it; but not without a lender, and not without end.
fn forget(input: &WorkspaceInput<'_>, users: &[Stored<'_, YoiPod>], claims: &mut Vec<Claim>) {
    let has_lender = |claim: &Claim| users.iter().any(|user| user.uid().as_str() == claim.lender.uid && !user.is_deleting());
    let is_over = |claim: &Claim| scope::claim_state(claim.state).is_some_and(|state| !state.is_held());
    let is_gone = input.workspace.is_deleting();
    claims.retain(|claim| !is_over(claim) || (!is_gone && has_lender(claim)));
    let mut surplus = claims.iter().filter(|claim| is_over(claim)).count().saturating_sub(MOST_RELEASED);
    claims.retain(|claim| {
        let goes = surplus > 0 && is_over(claim);
        surplus -= usize::from(goes);
        !goes
    });
}
