//! Claims of ours that are being deleted and stay: Kubernetes is made to look at them again.
//!
//! Its controller lets a claim go when no Pod uses it any more. It learns of that from events, can miss the last one
//! (kubernetes/kubernetes#120041; seen here after the API server had died), and then hears nothing until the claim changes: for 18 minutes, and no
//! end in visibility, a workspace and its namespace could not go. A write to the claim is all it takes. A claim that a Pod does use loses nothing by it.

use std::convert::Infallible;
use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use yoi_crds::name::annotation;

use crate::meta;
use crate::step::{Plan, Step};
use crate::stored::Stored;
use crate::yoipod::MADE_FOR;

/// Kubernetes' own, on every claim.
const PROTECTION: &str = "kubernetes.io/pvc-protection";
/// After so long the first time, then after twice that, and so on: a claim may be in use for days, and each time costs a write.
const FIRST: Duration = Duration::from_secs(20);

/// The reminder that is due now, and when the next one is.
#[must_use]
pub fn plan(claim: &PersistentVolumeClaim, now: jiff::Timestamp) -> Plan<Infallible> {
    let Some(claim) = Stored::new(claim) else { return Plan::nothing() };
    let meta = claim.meta();
    let ours = meta::annotation(meta, MADE_FOR).is_some() || meta::controller(meta).is_some_and(of_workspace);
    let held = meta.finalizers.iter().flatten().any(|f| f == PROTECTION);
    let Some(deleted) = meta.deletion_timestamp.as_ref().filter(|_| ours && held) else { return Plan::nothing() };
    let waited = now.duration_since(deleted.0);
    let times = (waited.as_secs() / FIRST.as_secs().cast_signed()).checked_ilog2().map_or(0, |doublings| doublings + 1);
    let next = deleted.0.saturating_add(FIRST * 2_u32.saturating_pow(times));
    let left = next.ok().and_then(|next| Duration::try_from(next.duration_since(now)).ok());
    let said = meta::annotation(meta, annotation::REMINDED) == Some(times.to_string().as_str());
    let steps = if times == 0 || said { Vec::new() } else { vec![Step::Remind { claim: claim.target(), times }] };
    Plan { steps, status: None, requeue_after: left }
}

fn of_workspace(owner: &k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference) -> bool {
    owner.kind == "AgentWorkspace" && owner.api_version == meta::API_VERSION
}
