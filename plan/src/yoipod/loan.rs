//! An agent that works in its parent's tree: it has a Pod only while its loan is Active, and none ever again once that is over.

use std::time::Duration;

use jiff::Timestamp;
use yoi_crds::YoiPod;
use yoi_crds::condition::ConditionValue;
use yoi_crds::pod::LoanStatus;
use yoi_crds::reason;
use yoi_crds::workspace::{Claim, ClaimState};

use super::yoipod_input::YoiPodInput;
use crate::duration::time_left;
use crate::tree;

/// How long a claim may take to be seen: it was written before the agent was made, and two kinds are watched apart.
const SEEN_WITHIN: Duration = Duration::from_secs(60);

/// Whether the agent has worked by a loan that is over, as the operator has recorded it.
#[must_use]
pub fn loan_is_over(yoipod: &YoiPod) -> bool {
    yoipod.status.as_ref().and_then(|status| status.loan.as_deref()).is_some_and(|loan| is_over(loan.state))
}

fn is_over(state: ClaimState) -> bool {
    match state {
        ClaimState::Reclaiming | ClaimState::Released => true,
        ClaimState::Reserved | ClaimState::Fenced | ClaimState::Active | ClaimState::Unknown => false,
    }
}

/// The claim by which the agent works in the tree, while that has it.
fn claim<'a>(input: &YoiPodInput<'a>) -> Option<&'a Claim> {
    let loan = tree::loan(input.yoipod.get())?;
    input.workspace?.get().status.as_ref()?.claims.iter().find(|claim| claim.loan == loan)
}

/// How the loan stands; `None` for an agent with a tree of its own, and while no claim was ever seen. What is over stays so, whatever an older view shows.
pub(super) fn record(input: &YoiPodInput<'_>, now: Timestamp) -> Option<LoanStatus> {
    let id = tree::loan(input.yoipod.get())?.to_owned();
    let before = input.before.loan.as_deref().filter(|before| before.id == id);
    match (claim(input), before) {
        (Some(claim), Some(before)) if is_over(before.state) && !is_over(claim.state) => Some(before.clone()),
        (Some(claim), _) => Some(LoanStatus { id, state: claim.state, message: claim.message.clone() }),
        (None, Some(before)) => Some(LoanStatus { state: ClaimState::Released, ..before.clone() }),
        (None, None) => {
            let made = input.yoipod.meta().creation_timestamp.as_ref().map_or(now, |made| made.0);
            let message = Some("the tree does not know the loan".to_owned());
            time_left(made, SEEN_WITHIN, now).is_none().then_some(LoanStatus { id, state: ClaimState::Released, message })
        }
    }
}

/// Whether no Pod is wanted because the loan is over.
pub(super) fn wants_no_pod(input: &YoiPodInput<'_>, now: Timestamp) -> bool {
    record(input, now).is_some_and(|loan| is_over(loan.state))
}

/// Why no Pod is made yet, of an agent that has a loan which is not Active.
pub(super) fn waits(input: &YoiPodInput<'_>, now: Timestamp) -> Option<ConditionValue> {
    let id = tree::loan(input.yoipod.get())?;
    let tree = input.workspace_name;
    let state = record(input, now).map(|loan| loan.state);
    let message = match state {
        Some(ClaimState::Active) => return None,
        None => format!("loan {id} is not seen yet among the claims of AgentWorkspace {tree}"),
        Some(ClaimState::Reserved) => format!("the paths of loan {id} are being closed to the agent that lends them"),
        Some(ClaimState::Fenced) => {
            format!("the paths of loan {id} are closed to the agent that lends them; the loan begins once its node has them closed")
        }
        Some(state @ (ClaimState::Reclaiming | ClaimState::Released | ClaimState::Unknown)) => format!("loan {id} is {state}"),
    };
    Some(ConditionValue::no(reason::LOAN_PENDING, message))
}

/// Ready of an agent whose loan is over, and that has no Pod any more.
pub(super) fn over(input: &YoiPodInput<'_>, now: Timestamp) -> Option<ConditionValue> {
    let loan = record(input, now).filter(|loan| is_over(loan.state))?;
    let parent = input.yoipod.get().spec.spawned_by.as_ref().map(|by| by.name.as_str()).unwrap_or_default();
    let why = loan.message.map(|message| format!(": {message}")).unwrap_or_default();
    let node = input.workspace.and_then(|workspace| workspace.node_name());
    let silent = node.filter(|node| input.nodes.0.get(*node).is_some_and(|node| node.not_ready_since.is_some()));
    Some(match loan.state {
        ClaimState::Reclaiming if let Some(node) = silent => {
            let message = format!(
                "what it was lent stays lent: node {node} does not answer, and until it does, or its Node is deleted, something may still write there{why}"
            );
            ConditionValue::no(reason::LOAN_RECLAIMING, message)
        }
        ClaimState::Reclaiming => ConditionValue::no(
            reason::LOAN_RECLAIMING,
            format!("it has ended, and what it was lent goes back to {parent} once nothing of it is left on its node{why}"),
        ),
        ClaimState::Reserved | ClaimState::Fenced | ClaimState::Active | ClaimState::Released | ClaimState::Unknown => {
            ConditionValue::no(reason::LOAN_RETURNED, format!("what it was lent is back with {parent}, and it does not run again{why}"))
        }
    })
}

/// Whether the tree still has its paths as lent to this agent, which is being deleted.
pub(super) fn is_held(input: &YoiPodInput<'_>) -> bool {
    claim(input).is_some_and(|claim| claim.state != ClaimState::Released)
}
