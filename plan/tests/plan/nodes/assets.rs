//! How an agent reads its skills and commands: what its project says reaches manifest and Pod, and what its runtime says becomes a condition.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use serde_json::{Value, json};
use yoi_crds::Condition;
use yoi_crds::condition::ConditionStatus;
use yoi_plan::settings::Settings;
use yoi_plan::step::Step;
use yoi_plan::{ObservedPod, yoipod};
use yoi_wire::assets::{AssetSet, AssetSettings};
use yoi_wire::manifest::AgentManifest;

use crate::nodes::manifests::{after_run, change, made_map, made_pod, new_agent, running_pod};
use crate::nodes::*;

fn with_assets(seen: &mut yoipod::Observed, assets: Value) {
    Arc::make_mut(seen.project.as_mut().expect("a project")).spec.assets = made(assets);
}

/// `of_chart` names a ConfigMap.
fn plan(seen: &yoipod::Observed, of_chart: Option<&str>) -> (AssetSettings, PodSpec) {
    plan_with(seen, of_chart.map_or(json!([]), |name| json!([{ "configMap": { "name": name } }])))
}

/// `of_chart` are the sets of the chart.
fn plan_with(seen: &yoipod::Observed, of_chart: Value) -> (AssetSettings, PodSpec) {
    let settings = Settings { assets_from: made(of_chart), ..settings() };
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
        fetched: false,
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
    reported_with(new_agent(), assets, |_| {})
}

/// The same with another project, and another status of its Pod.
fn reported_with(mut seen: yoipod::Observed, assets: Value, change_pod: impl FnOnce(&mut Pod)) -> Vec<Condition> {
    let plan = yoipod::plan(&seen, &settings(), now());
    let mut pod = running_pod(&plan);
    change_pod(&mut pod);
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

fn fetched_sets() -> Value {
    json!([
        { "name": "team", "git": { "url": "https://git.example/team.git", "ref": "main", "path": ".claude",
            "credentialsSecretRef": { "name": "clone-key" }, "caRef": { "name": "cas", "key": "ca.crt" } } },
        { "configMap": { "name": "map" } },
        { "name": "house", "image": { "reference": "registry.example/house:1", "path": "opt/agents" } },
    ])
}

fn variable<'a>(container: &'a Container, name: &str) -> &'a str {
    let found = container.env.iter().flatten().find(|variable| variable.name == name);
    found.and_then(|variable| variable.value.as_deref()).unwrap_or_else(|| panic!("no {name}"))
}

fn mounts(container: &Container) -> Vec<(&str, &str)> {
    container.volume_mounts.iter().flatten().map(|mount| (mount.name.as_str(), mount.mount_path.as_str())).collect()
}

#[test]
fn sets_of_git_and_images_are_fetched_before_the_agent_starts_which_sees_neither_credentials_nor_the_image() {
    let mut seen = new_agent();
    with_assets(&mut seen, json!({ "from": fetched_sets() }));
    let (settings, spec) = plan(&seen, None);
    let sets: Vec<(&str, bool, &str)> = settings.sets.iter().map(|set| (set.name.as_str(), set.fetched, set.folder.as_str())).collect();
    assert_eq!(
        sets,
        [
            ("git/team", true, "/etc/yoi-assets/0"),
            ("configmap/map", false, "/etc/yoi-assets/1"),
            ("image/house", true, "/etc/yoi-assets/2")
        ]
    );
    let agent = &spec.containers[0];
    let [git, image] = spec.init_containers.as_deref().unwrap_or_default() else { panic!("two containers: {:?}", spec.init_containers) };
    assert_eq!((git.name.as_str(), image.name.as_str()), ("assets-git-team", "assets-image-house"));
    let values = ["URL", "REF", "PLACE", "SECRET", "CA", "LENIENT", "DEPTH"].map(|name| variable(git, name));
    assert_eq!(values, ["https://git.example/team.git", "main", ".claude", "clone-key", "key ca.crt of ConfigMap cas", "yes", "1"]);
    assert_eq!(
        mounts(git),
        [
            ("yoi-assets-0-credentials", "/yoi/credentials"),
            ("yoi-assets-0-ca", "/yoi/ca"),
            ("yoi-assets-tmp", "/tmp"),
            ("yoi-assets-0", "/set")
        ]
    );
    // Our own binary, in the user's image.
    assert_eq!(image.image.as_deref(), Some("registry.example/house:1"));
    let command = "/yoi/bin/yoi-runtime copy-assets --from /opt/agents --to /set --lenient";
    assert_eq!((image.command.as_ref().map(|words| words.join(" ")).as_deref(), &image.args, &image.env), (Some(command), &None, &None));
    assert_eq!(mounts(image), [("runtime", "/yoi"), ("yoi-assets-2", "/set")]);
    for container in [git, image] {
        let security = container.security_context.as_ref().expect("restricted");
        assert_eq!((security.read_only_root_filesystem, security.allow_privilege_escalation), (Some(true), Some(false)));
        assert_eq!(container.resources, agent.resources, "the Pod asks for no more than the agent does");
    }
    let of_agent: Vec<(&str, &str)> = mounts(agent).into_iter().filter(|(name, _)| name.starts_with("yoi-assets-")).collect();
    assert_eq!(
        of_agent,
        [("yoi-assets-0", "/etc/yoi-assets/0"), ("yoi-assets-1", "/etc/yoi-assets/1"), ("yoi-assets-2", "/etc/yoi-assets/2")]
    );
    let volumes: Vec<&str> =
        spec.volumes.iter().flatten().map(|volume| volume.name.as_str()).filter(|name| name.starts_with("yoi-assets")).collect();
    assert_eq!(volumes, ["yoi-assets-0", "yoi-assets-1", "yoi-assets-2", "yoi-assets-0-credentials", "yoi-assets-0-ca", "yoi-assets-tmp"]);
    for mount in spec.init_containers.iter().flatten().chain([agent]).flat_map(|container| container.volume_mounts.iter().flatten()) {
        assert!(spec.volumes.iter().flatten().any(|volume| volume.name == mount.name), "{mount:?} has no volume");
    }
    // Nothing of a set is bound to the node's room without limit.
    let rooms =
        spec.volumes.iter().flatten().filter(|volume| volume.name.starts_with("yoi-assets")).filter_map(|volume| volume.empty_dir.as_ref());
    assert!(rooms.clone().count() == 3 && rooms.clone().all(|room| room.size_limit.is_some()));
}

#[test]
fn a_strict_project_starts_no_agent_without_its_sets_and_the_charts_own_stop_nobody() {
    let mut seen = new_agent();
    with_assets(&mut seen, json!({ "strict": true, "from": fetched_sets() }));
    let of_chart = json!([
        { "name": "all", "git": { "url": "https://git.example/all.git" } },
        { "name": "house", "image": { "reference": "registry.example/other:1" } },
    ]);
    let (settings, spec) = plan_with(&seen, of_chart);
    let names: Vec<(&str, bool)> = settings.sets.iter().map(|set| (set.name.as_str(), set.optional)).collect();
    assert_eq!(names, [("git/team", false), ("configmap/map", false), ("image/house", false), ("git/all", true)], "a name is one set");
    let [team, house, all] = spec.init_containers.as_deref().unwrap_or_default() else { panic!("three containers") };
    assert_eq!((variable(team, "LENIENT"), variable(all, "LENIENT")), ("", "yes"));
    assert!(!house.command.iter().flatten().any(|word| word == "--lenient"));
    assert_eq!(house.image.as_deref(), Some("registry.example/house:1"));
}

/// How a container that fetches a set stands.
fn with_container(name: &str, image_id: &str, state: Value, last: Value) -> impl FnOnce(&mut Pod) {
    let status =
        json!({ "name": name, "image": "", "imageID": image_id, "ready": false, "restartCount": 0, "state": state, "lastState": last });
    move |pod| pod.status.get_or_insert_default().init_container_statuses.get_or_insert_default().push(made(status))
}

fn ended(code: i32, message: &str) -> Value {
    json!({ "terminated": { "exitCode": code, "message": message } })
}

#[test]
fn what_a_set_is_of_and_why_one_is_missing_is_told_by_the_condition() {
    let commit = "0123456789012345678901234567890123456789";
    let loaded = |change_pod: &dyn Fn(&mut Pod)| {
        let report = json!({ "generation": 1, "skills": 1, "commands": 0, "workflows": 0, "nodes": 0, "errors": 0 });
        condition(&reported_with(new_agent(), report, change_pod), "AssetsLoaded").clone()
    };
    let found = loaded(&|pod| {
        with_container("assets-git-team", "", ended(0, &format!("{commit}\n")), json!({}))(pod);
        with_container("assets-image-house", "registry.example/house@sha256:abc", ended(0, ""), json!({}))(pod);
    });
    assert_eq!((found.status, found.reason.as_str()), (ConditionStatus::True, "AssetsRead"));
    assert!(found.message.ends_with(&format!("; git/team is of commit {commit}; image/house is of sha256:abc")), "{}", found.message);
    // Lenient: the agent has started without it.
    let found = loaded(&|pod| with_container("assets-git-team", "", ended(0, "the source has no branch gone\n"), json!({}))(pod));
    assert_eq!((found.status, found.reason.as_str()), (ConditionStatus::False, "AssetsNotFetched"));
    let says = "the agent works without them: git/team is not fetched: the source has no branch gone; 1 skills";
    assert!(found.message.starts_with(says), "{}", found.message);
}

#[test]
fn an_agent_that_does_not_start_for_a_set_says_which_and_why_and_is_tried_again() {
    let not_started = |name: &str, state: Value, last: Value| {
        let mut seen = new_agent();
        with_assets(&mut seen, json!({ "strict": true, "from": fetched_sets() }));
        let with_set = with_container(name, "", state, last);
        reported_with(seen, Value::Null, |pod| {
            let status = pod.status.get_or_insert_default();
            status.phase = Some("Pending".to_owned());
            let waiting = json!({ "name": "agent", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": { "waiting": { "reason": "PodInitializing" } } });
            status.container_statuses = Some(vec![made(waiting)]);
            with_set(pod);
        })
    };
    let why = "git.example refuses username and password of Secret clone-key";
    let table = [
        ("assets-git-team", ended(1, why), json!({}), format!("git/team is not fetched: {why}")),
        (
            "assets-git-team",
            json!({ "waiting": { "reason": "CrashLoopBackOff", "message": "back-off" } }),
            ended(1, why),
            format!("git/team is not fetched: {why}"),
        ),
        (
            "assets-image-house",
            json!({ "waiting": { "reason": "ImagePullBackOff", "message": "not found" } }),
            json!({}),
            "image/house is not fetched: ImagePullBackOff: not found".to_owned(),
        ),
    ];
    for (name, state, last, begins) in table {
        let conditions = not_started(name, state, last);
        for of in ["AssetsLoaded", "Ready"] {
            let found = condition(&conditions, of);
            assert_eq!((found.status, found.reason.as_str()), (ConditionStatus::False, "AssetsNotFetched"), "{of}: {found:?}");
            assert!(found.message.starts_with(&begins) && found.message.contains("tries it again"), "{}", found.message);
        }
    }
    let conditions = not_started("assets-git-team", json!({ "running": {} }), json!({}));
    assert!(conditions.iter().all(|one| one.type_ != "AssetsLoaded"), "it is still being fetched");
}

#[test]
fn a_url_that_is_mended_reaches_an_agent_that_waits_for_its_set() {
    let mut seen = new_agent();
    with_assets(&mut seen, json!({ "strict": true, "from": fetched_sets() }));
    let digest = |seen: &yoipod::Observed| {
        let plan = yoipod::plan(seen, &settings(), now());
        let pod = made_pod(&plan).expect("a Pod");
        pod.metadata.annotations.clone().unwrap_or_default()["yoi.dev/settings-digest"].clone()
    };
    let before = digest(&seen);
    let mut mended = fetched_sets();
    mended[0]["git"]["url"] = json!("https://git.example/other.git");
    with_assets(&mut seen, json!({ "strict": true, "from": mended }));
    assert_ne!(digest(&seen), before, "a Pod that waits for the former URL is made anew");
}

#[test]
fn an_image_that_is_not_pulled_is_left_out_of_the_pod_where_the_project_is_not_strict_and_it_is_told() {
    let waits = json!({ "waiting": { "reason": "ErrImagePull", "message": "not found" } });
    let seen_with = |strict: bool, annotation: Option<&str>, state: &Value| {
        let mut seen = new_agent();
        with_assets(&mut seen, json!({ "strict": strict, "from": fetched_sets() }));
        let plan = yoipod::plan(&seen, &settings(), now());
        let mut pod = running_pod(&plan);
        with_container("assets-image-house", "", state.clone(), json!({}))(&mut pod);
        let waiting = json!({ "name": "agent", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": { "waiting": { "reason": "PodInitializing" } } });
        pod.status.as_mut().expect("a status").container_statuses = Some(vec![made(waiting)]);
        if let Some(text) = annotation {
            pod.metadata.annotations.get_or_insert_default().insert("yoi.dev/left-out".to_owned(), text.to_owned());
        }
        let title = pod.metadata.name.clone();
        seen.pods = vec![Arc::new(ObservedPod::from(pod))];
        Arc::make_mut(seen.session_claim.as_mut().expect("a claim")).status = Some(made(json!({ "phase": "Bound" })));
        change(&mut seen, |yoipod| {
            let mut status = plan.status.clone().expect("a status");
            status.pod = Some(made(json!({ "name": title, "uid": "pod" })));
            yoipod.status = Some(status);
        });
        seen
    };
    let step = |seen: &yoipod::Observed| {
        yoipod::plan(seen, &settings(), now()).steps.into_iter().find_map(|step| match step {
            Step::LeaveOutSet { container, image, left_out, .. } => Some((container, image, left_out)),
            _ => None,
        })
    };
    let (container, image, left_out) = step(&seen_with(false, None, &waits)).expect("the agent is to start");
    assert_eq!((container.as_str(), &image), ("assets-image-house", &settings().populator_image));
    assert_eq!(left_out, r#"{"assets-image-house":"ErrImagePull: not found"}"#);
    assert_eq!(step(&seen_with(true, None, &waits)), None, "a strict project's agent waits for it");
    let pulling = json!({ "waiting": { "reason": "PodInitializing" } });
    assert_eq!(step(&seen_with(false, None, &pulling)), None);
    // Once: the image that fetches sources may not be there either.
    let seen = seen_with(false, Some(&left_out), &waits);
    assert_eq!(step(&seen), None);
    assert_eq!(condition(&status(yoipod::plan(&seen, &settings(), now())).conditions, "Ready").reason, "AssetsNotFetched");
    // While that container starts, the agent is no more than starting.
    let seen = seen_with(false, Some(&left_out), &pulling);
    assert_eq!(condition(&status(yoipod::plan(&seen, &settings(), now())).conditions, "Ready").reason, "PodPending");
    let report = json!({ "generation": 1, "skills": 1, "commands": 0, "workflows": 0, "nodes": 0, "errors": 0 });
    let conditions = reported_with(new_agent(), report, |pod| {
        with_container("assets-image-house", "", ended(0, "the folder /opt/agents of the image has no files"), json!({}))(pod);
        pod.metadata.annotations.get_or_insert_default().insert("yoi.dev/left-out".to_owned(), left_out.clone());
    });
    let found = condition(&conditions, "AssetsLoaded");
    assert_eq!(found.reason, "AssetsNotFetched");
    assert!(
        found.message.starts_with("the agent works without them: image/house is not fetched: ErrImagePull: not found; "),
        "{}",
        found.message
    );
}
