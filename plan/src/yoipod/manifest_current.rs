//! Whether the manifest of the agent's last run is what its spec and its project say now, and whether it holds all the same.
//!
//! It holds while the agent's own spec is unchanged and nobody asks for a refresh: a changed project does not reach an agent that merely comes back.
//! An agent that waits for somebody to change something takes the project as it is.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::Value;
use yoi_crds::condition::{ConditionValue, find};
use yoi_crds::pod::ManifestRef;
use yoi_crds::project::PodDefaults;
use yoi_crds::reason::{self, Reason, Recovery, condition};

use super::manifest::{self, OfProject, Resolved};
use super::yoipod_input::YoiPodInput;
use crate::stored::Stored;

/// What the last run was resolved to, if it holds for the next one. `None` when the next one takes the project as it is.
///
/// # Errors
/// The manifest is damaged: the condition says so, and the project does not stand in for it.
pub(super) fn held(input: &YoiPodInput<'_>) -> Result<Option<Resolved>, ConditionValue> {
    let Some((last, map)) = last_manifest(input, input.before.manifest.as_ref()) else { return Ok(None) };
    if waits_for_a_change(input) || manifest::made_from_before(map.get()) != Some(&manifest::made_from(input.yoipod.get())) {
        return Ok(None);
    }
    let whole = manifest::is_whole(input.yoipod, map.get(), last).then(|| manifest::resolved_before(map.get())).flatten();
    let needs_model = input.yoipod.spec.agent.needs_model();
    let Some(OfProject { defaults: PodDefaults { model, pod, quota: _, rest: _ }, assets }) =
        whole.filter(|whole| whole.defaults.model.is_some() || !needs_model)
    else {
        let message = format!(
            "ConfigMap {} is not what it was made as, and the agent does not start with another manifest by itself; for one of its spec and \
             project as they are now: `kubectl yoi start {} -n {} --refresh`",
            last.name,
            input.yoipod.name(),
            input.yoipod.namespace()
        );
        return Err(ConditionValue::no(reason::MANIFEST_DAMAGED, message));
    };
    Ok(Some(Resolved { model, pod: pod.unwrap_or_default(), assets }))
}

/// Whether the agent is not ready for a reason that somebody's change may end: of its spec, of its project or of what these name.
pub(super) fn waits_for_a_change(input: &YoiPodInput<'_>) -> bool {
    let why = find(&input.before.conditions, condition::READY).and_then(|ready| Reason::from_name(&ready.reason));
    // A damaged manifest would stand for no longer than one round.
    why.is_some_and(|why| why.recovery() != Recovery::Itself && why != reason::MANIFEST_DAMAGED)
}

/// The condition ManifestCurrent; `None` for an agent that never ran, or whose manifest an earlier version made.
pub(super) fn condition(input: &YoiPodInput<'_>, manifest: Option<&ManifestRef>) -> Option<ConditionValue> {
    let (_, map) = last_manifest(input, manifest)?;
    let yoipod = input.yoipod.get();
    let (made_from, before) = (manifest::made_from_before(map.get())?, manifest::resolved_before(map.get())?);
    if *made_from != manifest::made_from(yoipod) {
        let message = "the agent's spec has changed, or a refresh was asked for, since its manifest was made; the next start takes spec and project as they are then";
        return Some(ConditionValue::no(reason::SPEC_CHANGED, message));
    }
    let title = &yoipod.spec.project_ref.name;
    let Some(project) = input.project else {
        let message = format!("YoiProject {title} does not exist; the manifest of the last run is enough");
        return Some(ConditionValue::unknown(reason::PROJECT_UNREADABLE, message));
    };
    let changed = match manifest::resolve(yoipod, OfProject::new(project.get())) {
        Some(resolved) => changed_fields(&before, &OfProject::of_resolved(&resolved)),
        None => BTreeSet::from(["spec.defaults.model".to_owned()]),
    };
    if changed.is_empty() {
        return Some(ConditionValue::yes(reason::UP_TO_DATE, "the manifest is what spec and project say now"));
    }
    let message = format!(
        "YoiProject {title} has changed since the agent's manifest was made: {}; the agent goes on without that until `kubectl yoi start {} -n {} --refresh`, \
         or until its own spec changes",
        changed.into_iter().collect::<Vec<_>>().join(", "),
        input.yoipod.name(),
        input.yoipod.namespace()
    );
    Some(ConditionValue::no(reason::PROJECT_CHANGED, message))
}

/// The ConfigMap of a manifest, if it is there.
pub(super) fn last_manifest<'a, 'b>(
    input: &YoiPodInput<'a>,
    last: Option<&'b ManifestRef>,
) -> Option<(&'b ManifestRef, Stored<'a, ConfigMap>)> {
    let last = last?;
    let map = input.manifests.iter().copied().find(|map| map.name() == last.name && map.is_controlled_by(input.yoipod.uid()))?;
    Some((last, map))
}

/// The fields of the project that are not the same, and never their values.
fn changed_fields(before: &OfProject, now: &OfProject) -> BTreeSet<String> {
    let fields = |of: &OfProject| serde_json::to_value(of).unwrap_or_default();
    let (before, now) = (fields(before), fields(now));
    let parts = [("model", "spec.defaults.model"), ("pod", "spec.defaults.pod"), ("assets", "spec.assets")];
    parts.into_iter().flat_map(|(part, path)| differing(path, &before[part], &now[part])).collect()
}

fn differing(path: &str, before: &Value, now: &Value) -> Vec<String> {
    let keys = [before, now].into_iter().filter_map(Value::as_object).flat_map(|fields| fields.keys());
    let keys: BTreeSet<&String> = keys.collect();
    keys.into_iter().filter(|key| before.get(key) != now.get(key)).map(|key| format!("{path}.{key}")).collect()
}
