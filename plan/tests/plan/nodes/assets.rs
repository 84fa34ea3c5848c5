//! How an agent reads its skills and commands: what its project says reaches manifest and Pod, and what its runtime says becomes a condition.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PodSpec;
use serde_json::{Value, json};
use yoi_crds::Condition;
use yoi_crds::condition::ConditionStatus;
use yoi_plan::settings::Settings;
use yoi_plan::{ObservedPod, yoipod};
use yoi_wire::assets::{AssetSet, AssetSettings};
use yoi_wire::manifest::AgentManifest;

use crate::nodes::manifests::{after_run, change, made_map, made_pod, new_agent, running_pod};
use crate::nodes::*;

fn with_assets(seen: &mut yoipod::Observed, assets: Value) {
    Arc::make_mut(seen.project.as_mut().expect("a project")).spec.assets = made(assets);
}

fn plan(seen: &yoipod::Observed, of_chart: Option<&str>) -> (AssetSettings, PodSpec) {
    let settings = Settings { assets_config_map: of_chart.map(str::to_owned), ..settings() };
    let plan = yoipod::plan(seen, &settings, now());
    let text = &made_map(&plan).unwrap_or_else(|| panic!("a manifest: {:?}", plan.status)).data.as_ref().expect("data")["manifest.json"];
    let manifest: AgentManifest = serde_json::from_str(text).expect("a manifest");
    (manifest.assets, made_pod(&plan).and_then(|pod| pod.spec.clone()).expect("a Pod"))
}

/// Name of the ConfigMap, whether it is optional, and the folder, of each set in the Pod.
fn mounted(spec: &PodSpec) -> Vec<(String, bool, String)> {
    let mounts = spec.containers[0].volume_mounts.iter().flatten().filter(|mount| mount.name.starts_with("yoi-assets-"));
    let of = |name: &str| {
        let volume = spec.volumes.iter().flatten().find(|volume| volume.name == name).expect("its volume");
        volume.config_map.clone().expect("a ConfigMap")
    };
    mounts
        .map(|mount| {
            assert_eq!(mount.read_only, Some(true));
            let map = of(&mount.name);
            (map.name, map.optional == Some(true), mount.mount_path.clone())
        })
        .collect()
}

#[test]
fn what_a_project_says_of_assets_reaches_manifest_and_pod_and_the_charts_set_comes_last() {
    let mut seen = new_agent();
    let (settings, spec) = plan(&seen, None);
    assert_eq!((settings, mounted(&spec)), (AssetSettings::default(), vec![]));
    let from = json!([{"configMap": {"name": "team"}}, {"configMap": {"name": "house"}}]);
    with_assets(&mut seen, json!({"dirs": [".claude"], "strict": true, "watch": true, "from": from}));
    let (settings, spec) = plan(&seen, Some("all"));
    let set = |name: &str, place: usize, optional: bool| AssetSet {
        name: format!("configmap/{name}"),
        folder: format!("/etc/yoi-assets/{place}"),
        optional,
    };
    let sets = vec![set("team", 0, false), set("house", 1, false), set("all", 2, true)];
    assert_eq!(settings, AssetSettings { dirs: Some(vec![".claude".to_owned()]), strict: true, watch: true, sets });
    // A ConfigMap that is missing keeps no Pod from starting.
    let volume = |name: &str, place: usize| (name.to_owned(), true, format!("/etc/yoi-assets/{place}"));
    assert_eq!(mounted(&spec), [volume("team", 0), volume("house", 1), volume("all", 2)]);
    let (settings, _) = plan(&seen, Some("house"));
    assert_eq!(settings.sets, [set("team", 0, false), set("house", 1, false)], "one ConfigMap is one set");
}

#[test]
fn changed_assets_of_a_project_reach_an_agent_that_comes_back_only_when_it_is_refreshed_and_it_says_so() {
    let mut seen = new_agent();
    with_assets(&mut seen, json!({"strict": true}));
    let first = yoipod::plan(&seen, &settings(), now());
    after_run(&mut seen, first);
    with_assets(&mut seen, json!({"from": [{"configMap": {"name": "team"}}]}));
    let again = yoipod::plan(&seen, &settings(), now());
    assert!(made_map(&again).is_none(), "the manifest of before holds");
    assert_eq!(mounted(made_pod(&again).and_then(|pod| pod.spec.as_ref()).expect("a Pod")), []);
    let again = status(again).conditions;
    let current = condition(&again, "ManifestCurrent");
    assert_eq!((current.status, current.reason.as_str()), (ConditionStatus::False, "ProjectChanged"));
    assert!(current.message.contains("spec.assets.from, spec.assets.strict"), "{}", current.message);
    change(&mut seen, |yoipod| {
        yoipod.metadata.annotations.get_or_insert_default().insert("yoi.dev/refresh".to_owned(), "now".to_owned());
    });
    let (settings, spec) = plan(&seen, None);
    assert!(!settings.strict);
    assert_eq!(mounted(&spec), [("team".to_owned(), true, "/etc/yoi-assets/0".to_owned())]);
}

#[test]
fn a_volume_of_the_users_does_not_take_the_place_of_a_sets() {
    let mut seen = new_agent();
    with_assets(&mut seen, json!({"from": [{"configMap": {"name": "team"}}]}));
    change(&mut seen, |yoipod| yoipod.spec.pod = made(json!({"volumes": [{"name": "yoi-assets-0", "emptyDir": {}}]})));
    let conditions = status(yoipod::plan(&seen, &settings(), now())).conditions;
    let found = condition(&conditions, "Accepted");
    assert!(found.reason == "InvalidSpec" && found.message.contains("volume yoi-assets-0"), "{found:?}");
}

/// The conditions of an agent that runs and has reported this of its assets.
fn reported(assets: Value) -> Vec<Condition> {
    let mut seen = new_agent();
    let plan = yoipod::plan(&seen, &settings(), now());
    let pod = running_pod(&plan);
    let title = pod.metadata.name.clone();
    seen.pods = vec![Arc::new(ObservedPod::from(pod))];
    Arc::make_mut(seen.session_claim.as_mut().expect("a claim")).status = Some(made(json!({"phase": "Bound"})));
    change(&mut seen, |yoipod| {
        let mut status = plan.status.clone().expect("a status");
        status.pod = Some(made(json!({"name": title, "uid": "pod"})));
        let report = json!({"podUID": "pod", "runGeneration": 2, "ready": true, "reason": "Replayed", "message": "m", "assets": assets});
        status.report = Some(made(report));
        yoipod.status = Some(status);
    });
    status(yoipod::plan(&seen, &settings(), now())).conditions
}

#[test]
fn what_is_loaded_and_what_is_not_is_a_condition_and_an_agent_without_assets_has_none() {
    let status = |errors: usize, refused: bool, first: &[&str]| json!({"generation": 3, "skills": 2, "commands": 1, "workflows": 0, "nodes": 4, "errors": errors, "refused": refused, "firstErrors": first});
    let loaded = |assets: Value| {
        let conditions = reported(assets);
        let found = conditions.iter().find(|condition| condition.type_ == "AssetsLoaded").cloned();
        found.map(|found| (found.status, found.reason, found.message))
    };
    assert_eq!(loaded(Value::Null), None);
    let counts = "2 skills, 1 commands, 0 workflows and 4 nodes of the graph count";
    assert_eq!(loaded(status(0, false, &[])), Some((ConditionStatus::True, "AssetsRead".into(), counts.into())));
    let one = ".claude/skills/x/SKILL.md:2: is no YAML";
    let partly = format!("{counts}; what does not: {one}; and 2 more");
    assert_eq!(loaded(status(3, false, &[one])), Some((ConditionStatus::True, "AssetsPartlyRead".into(), partly)));
    let (status_of, reason, message) = loaded(status(1, true, &[one])).expect("the condition");
    assert_eq!((status_of, reason.as_str()), (ConditionStatus::False, "InvalidAssets"));
    assert!(message.starts_with("refused, as YoiProject p reads them strictly") && message.ends_with(one), "{message}");
    let ready = reported(status(1, true, &[one]));
    assert_eq!(condition(&ready, "Ready").status, ConditionStatus::True, "it works all the same");
}
