//! Claims of ours that are being deleted and stay: a write makes Kubernetes look at them again.
//!
//! Kubernetes' controller removes its finalizer from a claim when no Pod uses the claim any more. It learns of that from events, and can miss the last
//! one (kubernetes/kubernetes#120041; seen here after the API server had died). It then looks at the claim only when the claim changes: a workspace and
//! its namespace once stayed for 18 minutes, with no end in visibility. Any write to the claim is enough, and does no harm to a claim that a Pod still uses.

use std::convert::Infallible;
use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use yoi_crds::name::annotation;

use crate::meta;
use crate::step::{Plan, Step};
use crate::stored::Stored;
use crate::yoipod::MADE_FOR;

/// The finalizer that Kubernetes puts on every claim.
const PROTECTION: &str = "kubernetes.io/pvc-protection";
/// The first write comes so long after the deletion, the next after twice that time, and so on: a claim may be in use for days.
const FIRST: Duration = Duration::from_secs(20);

/// The write that is due now, if one is, and the time until the next. Empty for a claim that is not ours, not being deleted, or waits for others.
#[must_use]
pub fn plan(claim: &PersistentVolumeClaim, now: jiff::Timestamp) -> Plan<Infallible> {
    let Some(claim) = Stored::new(claim) else { return Plan::nothing() };
    let meta = claim.meta();
    let is_ours = meta::annotation(meta, MADE_FOR).is_some() || meta::controller(meta).is_some_and(is_workspace);
    let is_protected = claim.has_finalizer(PROTECTION);
    let Some(deleted) = meta.deletion_timestamp.as_ref().filter(|_| is_ours && is_protected) else { return Plan::nothing() };
    let waited = now.duration_since(deleted.0);
    let times = (waited.as_secs() / FIRST.as_secs().cast_signed()).checked_ilog2().map_or(0, |doublings| doublings + 1);
    let next = deleted.0.saturating_add(FIRST * 2_u32.saturating_pow(times));
    let left = next.ok().and_then(|next| Duration::try_from(next.duration_since(now)).ok());
    let is_written = meta::annotation(meta, annotation::REMINDED) == Some(times.to_string().as_str());
    let steps = if times == 0 || is_written { Vec::new() } else { vec![Step::NudgeClaim { claim: claim.target(), times }] };
    Plan { steps, status: None, requeue_after: left }
}

fn is_workspace(owner: &OwnerReference) -> bool {
    owner.kind == "AgentWorkspace" && owner.api_version == meta::API_VERSION
}
