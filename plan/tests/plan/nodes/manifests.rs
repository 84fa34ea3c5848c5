//! Which manifest an agent is started with when it comes back, and what reaches it while it runs.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use serde_json::{Value, json};
use yoi_crds::condition::ConditionStatus;
use yoi_crds::pod::ManifestRef;
use yoi_crds::{Condition, YoiPod, YoiPodStatus, YoiProject};
use yoi_plan::names::sha256;
use yoi_plan::step::{Kind, Plan, Step};
use yoi_plan::{ObservedPod, yoipod};
use yoi_wire::manifest::AgentManifest;

use crate::nodes::agents::agent;
use crate::nodes::*;

fn project(model: &str) -> Arc<YoiProject> {
    let defaults = json!({"model": {"provider": "OpenAI", "name": model}, "pod": {"env": [{"name": "A", "value": "s3cret"}]}});
    stored(json!({"metadata": meta("p"), "spec": {"source": {"git": {"url": "https://git.example/a"}}, "defaults": defaults}}))
}

/// An agent with a tree that takes its model from the project, and has no Pod.
pub fn new_agent() -> yoipod::Observed {
    let mut seen = agent(&[sealed_on(&project("old"), "a")], nodes(vec![("a", plain(3))]), None, "AllMet");
    let tree = Arc::make_mut(seen.workspace.as_mut().expect("a workspace"));
    let conditions = [is_true("Provisioned"), is_true("Ready")];
    tree.status = Some(made(json!({"nodeName": "a", "origin": {"kind": "Empty"}, "path": "/workspace", "conditions": conditions})));
    seen.project = Some(project("old"));
    change(&mut seen, |yoipod| yoipod.spec.model = None);
    seen
}

pub fn change(seen: &mut yoipod::Observed, f: impl FnOnce(&mut YoiPod)) {
    f(Arc::make_mut(&mut seen.yoipod));
    seen.users = vec![seen.yoipod.clone()];
}

fn run(seen: &yoipod::Observed) -> Plan<YoiPodStatus> {
    yoipod::plan(seen, &settings(), now())
}

pub fn made_pod(plan: &Plan<YoiPodStatus>) -> Option<&Pod> {
    plan.steps.iter().find_map(|s| if let Step::EnsurePod(p) = s { Some(&**p) } else { None })
}

pub fn made_map(plan: &Plan<YoiPodStatus>) -> Option<&ConfigMap> {
    plan.steps.iter().find_map(|s| if let Step::EnsureConfigMap(m) = s { Some(&**m) } else { None })
}

/// The agent after its first run, whose Pod is gone. The next run's generation is recorded.
fn ran_before() -> yoipod::Observed {
    let mut seen = new_agent();
    let first = run(&seen);
    after_run(&mut seen, first);
    seen
}

/// The Pod that this plan made has run and is gone.
pub fn after_run(seen: &mut yoipod::Observed, first: Plan<YoiPodStatus>) {
    let mut map = made_map(&first).expect("a manifest").clone();
    map.metadata.uid = Some("map".to_owned());
    map.metadata.resource_version = Some("1".to_owned());
    let digest = sha256(map.data.as_ref().expect("data")["manifest.json"].as_bytes());
    let manifest = Some(ManifestRef { name: map.metadata.name.clone().expect("a name"), digest });
    seen.manifests = vec![Arc::new(map)];
    let status = status(first);
    assert_eq!(status.manifest, None, "it is named together with its Pod");
    change(seen, |yoipod| yoipod.status = Some(YoiPodStatus { run_generation: Some(2), pod: None, manifest, ..status }));
}

/// The manifest of the Pod that the next plan makes; `None` when it makes none.
fn next_manifest(seen: &yoipod::Observed) -> Option<AgentManifest> {
    let plan = run(seen);
    let name = manifest_name(made_pod(&plan)?);
    let existing = seen.manifests.iter().map(|map| &**map).find(|map| map.metadata.name.as_deref() == Some(&name));
    let map = made_map(&plan).or(existing).expect("the manifest that the Pod mounts");
    assert_eq!(map.metadata.name.as_deref(), Some(name.as_str()));
    let text = &map.data.as_ref().expect("data")["manifest.json"];
    Some(serde_json::from_str(text).expect("a manifest"))
}

fn manifest_name(pod: &Pod) -> String {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).expect("volumes");
    volumes.iter().find_map(|v| Some(v.config_map.as_ref()?.name.clone())).expect("a manifest")
}

fn current(seen: &yoipod::Observed) -> Condition {
    condition(&status(run(seen)).conditions, "ManifestCurrent").clone()
}

fn waits_at(seen: &mut yoipod::Observed, reason: &str) {
    let ready: Condition = made(is("Ready", "False", reason, ""));
    change(seen, |yoipod| {
        let conditions = &mut yoipod.status.as_mut().expect("a status").conditions;
        conditions.retain(|c| c.type_ != "Ready");
        conditions.push(ready);
    });
}

type Change = fn(&mut YoiPod);

#[test]
fn b12_a_changed_project_does_not_reach_an_agent_that_comes_back_unless_its_spec_changed_or_it_is_refreshed() {
    let model_after = |f: Change| {
        let mut seen = ran_before();
        seen.project = Some(project("new"));
        change(&mut seen, f);
        next_manifest(&seen).expect("a Pod").model.expect("a model").name
    };
    let annotate = |yoipod: &mut YoiPod| {
        yoipod.metadata.annotations.get_or_insert_default().insert("yoi.dev/refresh".to_owned(), "now".to_owned());
    };
    let table: [(&str, Change, &str); 6] = [
        ("it merely comes back", |_| {}, "old"),
        ("it was stopped and started", |y| y.metadata.generation = Some(3), "old"),
        ("it may go on after its task", |y| y.spec.completion = yoi_crds::pod::Completion::Stop, "old"),
        ("its limit of tokens was raised", |y| y.spec.limits.tokens = Some(7), "old"),
        ("its own spec changed", |y| y.spec.limits.turns_per_run = 7, "new"),
        ("it is refreshed", annotate, "new"),
    ];
    for (what, f, model) in table {
        assert_eq!(model_after(f), model, "{what}");
    }
    let mut raised = ran_before();
    change(&mut raised, |yoipod| yoipod.spec.limits.tokens = Some(7));
    assert_eq!(next_manifest(&raised).expect("a Pod").limits.tokens, Some(7));
}

#[test]
fn b12_manifest_current_names_the_fields_that_the_agent_lacks_and_no_value() {
    let mut seen = ran_before();
    assert_eq!((current(&seen).status, current(&seen).reason.as_str()), (ConditionStatus::True, "UpToDate"));
    let mut changed = (*project("new")).clone();
    changed.spec.defaults.pod.as_mut().expect("settings").env[0].value = "0ther".to_owned();
    seen.project = Some(Arc::new(changed));
    let lacks = current(&seen);
    assert_eq!((lacks.status, lacks.reason.as_str()), (ConditionStatus::False, "ProjectChanged"));
    assert!(lacks.message.contains("spec.defaults.model.name, spec.defaults.pod.env;"), "{}", lacks.message);
    assert!(!lacks.message.contains("s3cret") && !lacks.message.contains("0ther"), "{}", lacks.message);
    change(&mut seen, |yoipod| yoipod.spec.limits.turns_per_run = 7);
    // The Pod that this plan makes has the new manifest: until it exists, the former one is not shown as current.
    assert_eq!(current(&seen).reason, "SpecChanged");
    let former = seen.manifests[0].metadata.name.clone().expect("a name");
    assert!(
        run(&seen).steps.iter().all(|step| !matches!(step, Step::Delete(target) if target.name == former)),
        "the status still names it"
    );
    change(&mut seen, |yoipod| yoipod.spec.desired_state = yoi_crds::pod::DesiredState::Stopped);
    assert_eq!(current(&seen).reason, "SpecChanged");
    let fresh = new_agent();
    assert!(status(run(&fresh)).conditions.iter().all(|c| c.type_ != "ManifestCurrent"), "it never ran");
}

#[test]
fn b12_a_damaged_manifest_is_an_error_and_the_project_does_not_stand_in_for_it() {
    let damages: [fn(&mut ConfigMap); 3] = [
        |map| drop(map.data.as_mut().expect("data").insert("manifest.json".to_owned(), "{}".to_owned())),
        |map| drop(map.metadata.annotations.as_mut().expect("annotations").insert("yoi.dev/resolved".to_owned(), "{".to_owned())),
        |map| drop(map.metadata.annotations.as_mut().expect("annotations").remove("yoi.dev/resolved")),
    ];
    for damage in damages {
        let mut seen = ran_before();
        damage(Arc::make_mut(&mut seen.manifests[0]));
        let plan = run(&seen);
        assert!(made_pod(&plan).is_none());
        let accepted = condition(&plan.status.as_ref().expect("a status").conditions, "Accepted").clone();
        assert_eq!(accepted.reason, "ManifestDamaged");
        assert!(accepted.message.contains("kubectl yoi start x -n ns --refresh"), "{}", accepted.message);
        // It stays so: the next round sees its own condition.
        change(&mut seen, |yoipod| yoipod.status = plan.status.clone());
        assert!(made_pod(&run(&seen)).is_none());
        change(&mut seen, |yoipod| {
            yoipod.metadata.annotations.get_or_insert_default().insert("yoi.dev/refresh".to_owned(), "now".to_owned());
        });
        assert!(made_pod(&run(&seen)).is_some(), "a person asked for a new one");
    }
}

#[test]
fn b13_an_agent_that_comes_back_reads_the_very_manifest_of_its_last_run() {
    let mut seen = ran_before();
    let before = seen.yoipod.status.as_ref().and_then(|s| s.manifest.clone()).expect("a manifest");
    seen.project = Some(project("new"));
    let plan = run(&seen);
    assert!(made_map(&plan).is_none(), "it is there");
    assert_eq!(status(plan).manifest, Some(before), "name and digest, by which the runtime knows that nothing has changed");
}

#[test]
fn b22_an_agent_whose_project_cannot_be_read_comes_back_with_its_last_manifest() {
    let mut seen = ran_before();
    seen.project = None;
    assert_eq!(next_manifest(&seen).expect("a Pod").model.expect("a model").name, "old");
    let current = current(&seen);
    assert_eq!((current.status, current.reason.as_str()), (ConditionStatus::Unknown, "ProjectUnreadable"));
}

/// The Pod that the plan makes, as it is once it runs.
pub fn running_pod(plan: &Plan<YoiPodStatus>) -> Pod {
    let mut pod = made_pod(plan).expect("a Pod").clone();
    pod.metadata.uid = Some("pod".to_owned());
    pod.metadata.resource_version = Some("1".to_owned());
    pod.status = Some(made(json!({"phase": "Running", "containerStatuses": [{"name": "agent", "image": "", "imageID": "", "ready": true,
        "restartCount": 0, "state": {"running": {}}}]})));
    pod
}

/// The agent with a Pod that runs and is not ready for this reason.
pub fn runs_and_waits_at(reason: &str, project_now: &str) -> yoipod::Observed {
    let mut seen = ran_before();
    let plan = run(&seen);
    let pod = running_pod(&plan);
    let title = pod.metadata.name.clone();
    seen.pods = vec![Arc::new(ObservedPod::from(pod))];
    let report = json!({"podUID": "pod", "runGeneration": 2, "ready": reason == "Replayed", "reason": reason, "message": "m"});
    change(&mut seen, |yoipod| {
        let status = yoipod.status.as_mut().expect("a status");
        status.pod = Some(made(json!({"name": title, "uid": "pod"})));
        status.report = Some(made(report));
    });
    waits_at(&mut seen, if reason == "Replayed" { "AllMet" } else { reason });
    seen.project = Some(project(project_now));
    seen
}

#[test]
fn an_agent_that_waits_for_a_person_takes_a_changed_project_at_once() {
    let table = [
        ("ModelRefused", "new", true),
        ("ModelUnreachable", "new", true),
        ("SecretMissing", "new", true),
        ("ModelRefused", "old", false),
        ("Starting", "new", false),
        ("Replayed", "new", false),
    ];
    for (reason, project_now, makes_way) in table {
        let mut seen = runs_and_waits_at(reason, project_now);
        let plan = run(&seen);
        assert_eq!(outcome(&plan.steps, Kind::Pod).1.len(), usize::from(makes_way), "{reason}, {project_now}: {:?}", plan.steps);
        if !makes_way {
            continue;
        }
        // Whoever plans next knows no more why that Pod went, and takes the project as it is all the same.
        seen.pods = Vec::new();
        let after = plan.status.expect("a status");
        assert_eq!(after.manifest, None);
        change(&mut seen, |yoipod| yoipod.status = Some(YoiPodStatus { run_generation: Some(3), pod: None, ..after }));
        waits_at(&mut seen, "Starting");
        assert_eq!(next_manifest(&seen).expect("a Pod").model.expect("a model").name, "new");
    }
}

#[test]
fn a_changed_limit_of_tokens_reaches_the_pod_that_runs_and_no_other_pod_is_made() {
    let mut seen = runs_and_waits_at("Replayed", "old");
    assert!(run(&seen).steps.iter().all(|s| !matches!(s, Step::SetTokens { .. })));
    for (tokens, value) in [(Some(9), "9"), (None, "")] {
        change(&mut seen, |yoipod| yoipod.spec.limits.tokens = tokens);
        let steps = run(&seen).steps;
        let set = steps.iter().find_map(|s| if let Step::SetTokens { pod, tokens } = s { Some((pod, tokens.as_str())) } else { None });
        let annotations = seen.pods[0].metadata.annotations.clone().expect("annotations");
        match annotations["yoi.dev/tokens"] == value {
            true => assert_eq!(set, None),
            false => assert_eq!(set.map(|(pod, tokens)| (pod.uid.as_str(), tokens)), Some(("pod", value))),
        }
        assert!(outcome(&steps, Kind::Pod).1.is_empty(), "{steps:?}");
    }
    let pod = serde_json::to_value(made_pod(&run(&ran_before()))).expect("JSON");
    let token = pod["spec"]["volumes"].as_array().expect("volumes").iter().find(|v| v["name"] == "token").cloned().expect("a token");
    let wanted = [("limit-tokens", "tokens"), ("rest", "rest"), ("policy", "policy")].map(
        |(file, annotation)| json!({"path": file, "fieldRef": {"fieldPath": format!("metadata.annotations['yoi.dev/{annotation}']")}}),
    );
    assert_eq!(token["projected"]["sources"][1]["downwardAPI"]["items"], json!(wanted));
}

#[test]
fn keys_headers_and_certificates_of_all_endpoints_reach_the_runtime_by_variables_that_the_manifest_names() {
    let secret = |name: &str| json!({"name": name, "key": "k"});
    let fallback = json!({"provider": "Gemini", "name": "f", "authSecretRef": secret("second"), "caRef": {"name": "cas"},
        "headers": [{"name": "X-Team", "value": "blue"}, {"name": "X-Org", "valueFrom": {"secretKeyRef": secret("org")}}]});
    let model = json!({"provider": "OpenAI", "name": "m", "api": "Responses", "authSecretRef": secret("first"), "maxOutputTokens": 5, "effort": "high",
        "timeout": "2m", "patience": "1h", "proxyUrl": "http://proxy.example:3128", "window": 4000,
        "headers": [{"name": "X-Org", "valueFrom": {"secretKeyRef": secret("org")}}], "fallbacks": [fallback]});
    let mut seen = ran_before();
    change(&mut seen, |yoipod| {
        yoipod.spec.model = Some(made(model));
        yoipod.spec.compaction = made(json!({"at": 90_000, "keep": 5}));
        yoipod.spec.session.segment_size = Some("2Mi".to_owned());
    });
    let manifest = next_manifest(&seen).expect("a Pod");
    let said = serde_json::to_value(&manifest.model).expect("JSON");
    let wanted = json!({"provider": "OpenAI", "name": "m", "api": "Responses", "keySecret": {"secret": "first", "key": "k"}, "maxOutputTokens": 5,
        "effort": "high", "timeoutSeconds": 120, "patienceSeconds": 3600, "proxyUrl": "http://proxy.example:3128", "windowTokens": 4000,
        "headers": [{"name": "X-Org", "valueEnv": "YOI_MODEL_HEADER_0_0"}],
        "fallbacks": [{"provider": "Gemini", "name": "f", "keySecret": {"secret": "second", "key": "k"}, "keyEnv": "YOI_MODEL_API_KEY_1",
            "caEnv": "YOI_MODEL_CA_1", "headers": [{"name": "X-Team", "value": "blue"}, {"name": "X-Org", "valueEnv": "YOI_MODEL_HEADER_1_1"}]}]});
    assert_eq!(said, wanted);
    assert_eq!((manifest.compaction.at, manifest.compaction.keep, manifest.segment_bytes), (Some(90_000), Some(5), Some(2 << 20)));
    let plan = run(&seen);
    let pod = serde_json::to_value(made_pod(&plan)).expect("JSON");
    let env = pod["spec"]["containers"][0]["env"].as_array().expect("variables");
    let from_secret = |name: &str, secret_name: &str| json!({"name": name, "valueFrom": {"secretKeyRef": secret(secret_name)}});
    let map = json!({"name": "YOI_MODEL_CA_1", "valueFrom": {"configMapKeyRef": {"name": "cas", "key": "ca.crt"}}});
    for variable in [
        from_secret("YOI_MODEL_API_KEY", "first"),
        from_secret("YOI_MODEL_API_KEY_1", "second"),
        from_secret("YOI_MODEL_HEADER_0_0", "org"),
        from_secret("YOI_MODEL_HEADER_1_1", "org"),
        map,
    ] {
        assert!(env.contains(&variable), "{variable} among {env:?}");
    }
    let values: Vec<&Value> = env.iter().filter(|v| v["name"].as_str().is_some_and(|n| n.starts_with("YOI_MODEL"))).collect();
    assert_eq!(values.len(), 5, "{values:?}");
}
