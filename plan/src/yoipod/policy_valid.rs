//! Which policy the agent's next run is under, and what is said of the one that its spec and its project name.

use yoi_crds::condition::ConditionValue;
use yoi_crds::pod::ManifestRef;
use yoi_crds::reason;
use yoi_wire::identity::MANIFEST_FILE;
use yoi_wire::manifest::AgentManifest;
use yoi_wire::policy::ToolPolicy;

use super::manifest;
use super::manifest_current::last_manifest;
use super::yoipod_input::YoiPodInput;
use crate::policy;

/// The policy of the agent's next run. While the one that is named is not valid, or the project is gone, the last one stays in force.
///
/// # Errors
/// It is not valid, and there is no last one.
pub(super) fn in_force(input: &YoiPodInput<'_>) -> Result<ToolPolicy, ConditionValue> {
    let last = || last_policy(input, input.before.manifest.as_ref());
    match named(input) {
        Some(Ok(policy)) => Ok(policy),
        Some(Err(line)) => last().ok_or_else(|| ConditionValue::no(reason::POLICY_INVALID, line)),
        None => Ok(last().unwrap_or_default()),
    }
}

/// The condition PolicyValid; `None` where nobody names a policy. `manifest` is that of the run.
pub(super) fn condition(input: &YoiPodInput<'_>, manifest: Option<&ManifestRef>) -> Option<ConditionValue> {
    let of_project = input.project.and_then(|project| project.get().spec.policy.as_ref());
    let is_named = of_project.is_some() || input.yoipod.get().spec.policy.is_some();
    let running = last_policy(input, manifest);
    Some(match named(input)? {
        Ok(policy) if running.as_ref().is_some_and(|running| *running != policy) => {
            let message =
                "every line of the policy is understood; the agent was started under another one, and takes this one with its next start";
            ConditionValue::yes(reason::POLICY_AT_NEXT_START, message)
        }
        Ok(_) if !is_named => return None,
        Ok(_) => ConditionValue::yes(reason::VALID, "every line of the policy is understood"),
        Err(line) => ConditionValue::no(reason::POLICY_INVALID, line),
    })
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
