//! Which policy the agent is under, and what is said of the one that its spec and its project name.
//!
//! A change reaches the Pod that runs by an annotation. The status has the last valid policy, which outlives that Pod: under it the next one starts while
//! the one that is named is not valid.

use yoi_crds::condition::ConditionValue;
use yoi_crds::name::annotation;
use yoi_crds::pod::ManifestRef;
use yoi_crds::reason;
use yoi_wire::identity::MANIFEST_FILE;
use yoi_wire::manifest::AgentManifest;
use yoi_wire::policy::ToolPolicy;

use super::manifest;
use super::manifest_current::last_manifest;
use super::yoipod_input::YoiPodInput;
use crate::observed_pod::ObservedPod;
use crate::step::Step;
use crate::stored::Stored;
use crate::{meta, policy};

/// The policy that the agent is under. While the one that is named is not valid, or the project is gone, the last valid one stays in force.
///
/// # Errors
/// It is not valid, and there is no last one.
pub(super) fn in_force(input: &YoiPodInput<'_>) -> Result<ToolPolicy, ConditionValue> {
    match named(input) {
        Some(Ok(policy)) => Ok(policy),
        Some(Err(line)) => last_valid(input).ok_or_else(|| ConditionValue::no(reason::POLICY_INVALID, line)),
        None => Ok(last_valid(input).unwrap_or_default()),
    }
}

/// Value of the annotation [`annotation::POLICY`].
pub(super) fn text(policy: &ToolPolicy) -> String {
    // It serializes without fail: its keys are strings and its values plain data.
    serde_json::to_string(policy).unwrap_or_default()
}

/// The last valid policy, as the status has it after this round. Nothing while nobody has named one.
pub(super) fn record(input: &YoiPodInput<'_>) -> Option<String> {
    let before = &input.before.policy;
    match named(input) {
        Some(Ok(policy)) => (before.is_some() || !policy.is_empty()).then(|| text(&policy)),
        Some(Err(_)) | None => before.clone(),
    }
}

/// A changed policy reaches the Pod that is there. A Pod of an earlier version shows its runtime none.
pub(super) fn set_policy(input: &YoiPodInput<'_>, pod: Stored<'_, ObservedPod>) -> Option<Step> {
    let has = meta::annotation(pod.meta(), annotation::POLICY)?;
    let wanted = text(&named(input)?.ok()?);
    (has != wanted).then(|| Step::SetPolicy { pod: pod.target(), policy: wanted })
}

/// The condition PolicyValid; `None` where nobody names a policy. `manifest` is that of the run, and `pod` the one that runs it.
pub(super) fn condition(
    input: &YoiPodInput<'_>,
    manifest: Option<&ManifestRef>,
    pod: Option<Stored<'_, ObservedPod>>,
) -> Option<ConditionValue> {
    let of_project = input.project.and_then(|project| project.get().spec.policy.as_ref());
    let is_named = of_project.is_some() || input.yoipod.get().spec.policy.is_some();
    let is_of_earlier_version = pod.is_some_and(|pod| meta::annotation(pod.meta(), annotation::POLICY).is_none());
    let running = last_policy(input, manifest).filter(|_| is_of_earlier_version);
    Some(match named(input)? {
        Ok(policy) if running.as_ref().is_some_and(|running| *running != policy) => {
            let message = "every line of the policy is understood; the agent's Pod is of an earlier version of Yoi, which takes it with its next start only";
            ConditionValue::yes(reason::POLICY_AT_NEXT_START, message)
        }
        Ok(_) if !is_named => return None,
        Ok(_) => ConditionValue::yes(reason::VALID, "every line of the policy is understood"),
        Err(line) if last_valid(input).is_some() => {
            ConditionValue::no(reason::POLICY_INVALID, format!("{line}; the last valid policy stays in force"))
        }
        Err(line) => ConditionValue::no(reason::POLICY_INVALID, line),
    })
}

/// That of the status, or for an agent of an earlier version that of its last run.
fn last_valid(input: &YoiPodInput<'_>) -> Option<ToolPolicy> {
    let of_status = input.before.policy.as_deref().and_then(|text| serde_json::from_str(text).ok());
    of_status.or_else(|| last_policy(input, input.before.manifest.as_ref()))
}

/// What spec and project name, or the line that is wrong; `None` without the project.
fn named(input: &YoiPodInput<'_>) -> Option<Result<ToolPolicy, String>> {
    let project = input.project?.get();
    let own = input.yoipod.get().spec.policy.as_deref();
    Some(policy::narrow(&input.yoipod.get().spec.project_ref.name, project.spec.policy.as_deref(), own))
}

/// The policy in a manifest that is what it was made as.
fn last_policy(input: &YoiPodInput<'_>, last: Option<&ManifestRef>) -> Option<ToolPolicy> {
    let (last, map) = last_manifest(input, last)?;
    let text = map.get().data.as_ref()?.get(MANIFEST_FILE).filter(|_| manifest::is_whole(input.yoipod, map.get(), last))?;
    let policy = serde_json::from_str::<AgentManifest>(text).ok()?.policy;
    // They follow from the Pod's environment, of which no policy says anything.
    Some(ToolPolicy { secret_variables: Vec::new(), ..policy })
}
