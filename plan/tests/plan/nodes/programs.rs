//! Agents that are programs: which are accepted, what stands in their manifests, and what their Pods mount.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use serde_json::{Value, json};
use yoi_crds::condition::ConditionStatus;
use yoi_crds::{Condition, YoiPodStatus};
use yoi_plan::settings::Settings;
use yoi_plan::step::Plan;
use yoi_plan::{ObservedPod, yoipod};
use yoi_wire::manifest::{AgentManifest, Program};
use yoi_wire::mode::Mode;
use yoi_wire::preset::Preset;
use yoi_wire::subagent::SUBAGENT_TOOLS;

use crate::nodes::manifests::{after_run, change, made_map, made_pod, new_agent};
use crate::nodes::*;

fn preset(name: &str, speaks: Value, credentials: Value) -> (String, Preset) {
    let preset =
        json!({"name": name, "program": name, "firstArgs": ["-p"], "speaks": speaks, "parser": "Text", "credentials": credentials});
    (name.to_owned(), made(preset))
}

fn settings_with_presets() -> Settings {
    let presets = [
        preset(
            "claude",
            json!(["Anthropic"]),
            json!([{"key": ".login.json", "path": ".claude/.login.json"}, {"key": "more", "path": "more"}]),
        ),
        preset("codex", json!(["Responses"]), json!([])),
        preset("open", json!(["ChatCompletions", "Anthropic"]), json!([])),
    ];
    Settings { presets: presets.into(), ..settings() }
}

fn run(seen: &yoipod::Observed) -> Plan<YoiPodStatus> {
    yoipod::plan(seen, &settings_with_presets(), now())
}

/// An agent with a tree whose project has a model of OpenAI with chat completions.
fn agent(agent: Value, model: Value) -> yoipod::Observed {
    let mut seen = new_agent();
    let project = Arc::make_mut(seen.project.as_mut().expect("a project"));
    project.spec.defaults.model =
        Some(made(json!({"provider": "OpenAI", "name": "default", "baseUrl": "http://m.example/v1/", "authSecretRef": {"name": "key"}})));
    change(&mut seen, |yoipod| {
        yoipod.spec.agent = made(agent);
        yoipod.spec.model = made(model);
    });
    seen
}

fn accepted(seen: &yoipod::Observed) -> Condition {
    condition(&status(run(seen)).conditions, "Accepted").clone()
}

fn manifest(seen: &yoipod::Observed) -> AgentManifest {
    let plan = run(seen);
    let map = made_map(&plan).unwrap_or_else(|| panic!("a manifest: {:?}", plan.status));
    serde_json::from_str(&map.data.as_ref().expect("data")["manifest.json"]).expect("a manifest")
}

fn pod_of(seen: &yoipod::Observed) -> PodSpec {
    made_pod(&run(seen)).and_then(|pod| pod.spec.clone()).expect("a Pod")
}

fn volume(spec: &PodSpec, name: &str) -> Value {
    let found = spec.volumes.iter().flatten().find(|volume| volume.name == name);
    serde_json::to_value(found).expect("JSON")
}

fn variable(spec: &PodSpec, name: &str) -> Value {
    let found = spec.containers[0].env.iter().flatten().find(|variable| variable.name == name);
    serde_json::to_value(found.and_then(|variable| variable.value_from.as_ref())).expect("JSON")
}

#[test]
fn a_program_that_cannot_work_as_written_is_refused_with_what_would() {
    let anthropic = json!({"provider": "Anthropic", "name": "a"});
    let openai = |more: Value| {
        let mut model = json!({"provider": "OpenAI", "name": "o"});
        model.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        model
    };
    let cli = |preset: &str| json!({"cli": {"preset": preset}});
    let mixed =
        json!({"provider": "Anthropic", "name": "a", "fallbacks": [{"provider": "OpenAI", "name": "second", "api": "ChatCompletions"}]});
    let with_login = |preset: &str| json!({"cli": {"preset": preset, "credentialsSecretRef": {"name": "login"}}});
    let url = json!({"baseUrl": "http://m/v1/"});
    let chat = "speaks only: Anthropic messages (provider: Anthropic)";
    let table = [
        (cli("nobody"), anthropic.clone(), "PresetUnknown", "no preset nobody; there are: claude, codex, open"),
        (cli("claude"), openai(url.clone()), "ModelFormatNotSpoken", chat),
        (cli("claude"), Value::Null, "ModelFormatNotSpoken", "model default answers in the format OpenAI chat completions"),
        (cli("claude"), json!({"provider": "Gemini", "name": "g"}), "ModelFormatNotSpoken", "format Gemini"),
        (cli("codex"), anthropic.clone(), "ModelFormatNotSpoken", "OpenAI Responses (provider: OpenAI, api: Responses)"),
        (cli("codex"), openai(json!({"api": "ChatCompletions"})), "ModelFormatNotSpoken", "chat completions, and program codex"),
        (cli("open"), openai(json!({})), "ModelFormatNotSpoken", "answers in the format OpenAI Responses"),
        (cli("claude"), mixed.clone(), "ModelFormatNotSpoken", "model second answers"),
        (cli("open"), mixed, "ModelFormatNotSpoken", "fallback second of the model answers in the format OpenAI chat completions"),
        (with_login("codex"), Value::Null, "InvalidSpec", "preset codex does not say which login"),
        (with_login("claude"), openai(url.clone()), "ModelFormatNotSpoken", chat),
    ];
    for (spec, model, reason, words) in table {
        let seen = agent(spec.clone(), model.clone());
        let found = accepted(&seen);
        assert_eq!((found.status, found.reason.as_str()), (ConditionStatus::False, reason), "{spec} {model}: {}", found.message);
        assert!(found.message.contains(words), "{spec} {model}: {}", found.message);
        assert!(made_pod(&run(&seen)).is_none(), "{spec} {model}");
    }
    let fine = [
        (cli("claude"), anthropic),
        (cli("codex"), openai(json!({}))),
        (cli("codex"), openai(url.clone())),
        (cli("open"), openai(url.clone())),
        (cli("codex"), openai(json!({"api": "Responses", "baseUrl": "http://m/v1/"}))),
        (cli("open"), openai(url)),
        (cli("open"), Value::Null),
        (with_login("claude"), Value::Null),
        (json!({"command": ["true"]}), Value::Null),
        // The runtime reads that preset.
        (json!({"cli": {"presetFrom": {"name": "mine"}}}), json!({"provider": "Gemini", "name": "g"})),
    ];
    for (spec, model) in fine {
        let found = accepted(&agent(spec.clone(), model.clone()));
        assert_eq!(found.status, ConditionStatus::True, "{spec} {model}: {}", found.message);
    }
}

#[test]
fn a_program_without_a_login_needs_a_model_and_one_that_can_do_without_takes_none_of_the_project() {
    let without_default = |spec: Value| {
        let mut seen = agent(spec, Value::Null);
        Arc::make_mut(seen.project.as_mut().expect("a project")).spec.defaults.model = None;
        seen
    };
    let login = json!({"cli": {"preset": "claude", "credentialsSecretRef": {"name": "login"}}});
    let command = json!({"command": ["make", "test"]});
    for spec in [json!({"builtin": {}}), json!({"cli": {"preset": "claude"}}), json!({"cli": {"presetFrom": {"name": "mine"}}})] {
        let found = accepted(&without_default(spec.clone()));
        assert!(found.reason == "InvalidSpec" && found.message.starts_with("no model"), "{spec}: {found:?}");
    }
    for spec in [login, command] {
        assert_eq!(accepted(&without_default(spec.clone())).status, ConditionStatus::True, "{spec}");
        let with_default = agent(spec.clone(), Value::Null);
        assert_eq!(manifest(&with_default).model, None, "{spec}");
        assert!(variable(&pod_of(&with_default), "YOI_MODEL_API_KEY").is_null(), "{spec} would wait for a key that it does not use");
        let own = agent(spec.clone(), json!({"provider": "Anthropic", "name": "own"}));
        assert_eq!(manifest(&own).model.map(|model| model.name).as_deref(), Some("own"), "{spec}");
    }
}

#[test]
fn the_manifest_says_how_the_program_is_driven_and_holds_nothing_of_its_login() {
    let seen =
        agent(json!({"cli": {"preset": "claude", "args": ["--effort", "high"], "credentialsSecretRef": {"name": "login"}}}), Value::Null);
    let presets = settings_with_presets().presets;
    let program = Program {
        preset: Some(presets["claude"].clone()),
        args: vec!["--effort".into(), "high".into()],
        credentials: Some("/etc/yoi-credentials".into()),
        ..Program::default()
    };
    assert_eq!(manifest(&seen).program, Some(program));
    let plan = run(&seen);
    let map = serde_json::to_value(made_map(&plan).and_then(|map| map.data.as_ref())).expect("JSON").to_string();
    assert!(!map.contains("\"login\""), "{map}");

    let own = manifest(&agent(json!({"cli": {"presetFrom": {"name": "mine", "key": "p.yaml"}}}), Value::Null)).program.expect("a program");
    assert_eq!((own.preset, own.preset_file.as_deref()), (None, Some("/etc/yoi-preset/preset.yaml")));
    let command = manifest(&agent(json!({"command": ["make", "test"]}), Value::Null)).program;
    assert_eq!(command, Some(Program { command: vec!["make".into(), "test".into()], ..Program::default() }));
    assert_eq!(manifest(&agent(json!({"builtin": {}}), Value::Null)).program, None);
}

#[test]
fn p38_the_manifest_has_the_templates_of_sub_agents_and_each_passes_the_check_of_the_runtime() {
    let look = json!({"name": "look", "description": "Looks.", "tools": SUBAGENT_TOOLS, "mode": "Planning", "seconds": 60, "turns": 8, "tokens": 9});
    let found = manifest(&agent(json!({"builtin": {"subagents": [look]}}), Value::Null)).subagents;
    assert_eq!(yoi_wire::subagent::check_templates(&found), Ok(()));
    let [template] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((template.name.as_str(), template.mode), ("look", Some(Mode::Planning)));
    assert_eq!((template.seconds, template.turns, template.tokens), (Some(60), Some(8), Some(9)));
    assert_eq!(yoi_crds::pod::SUBAGENT_TOOLS, format!("^({})$", SUBAGENT_TOOLS.join("|")), "what the schema takes");
}

#[test]
fn a_login_and_a_preset_of_the_users_are_files_that_only_the_runtime_reads_and_a_variable_names_what_is_missing() {
    let login = pod_of(&agent(json!({"cli": {"preset": "claude", "credentialsSecretRef": {"name": "login"}}}), Value::Null));
    // Optional, so that the container is made, and the kubelet says which Secret its variable lacks.
    assert_eq!(volume(&login, "yoi-credentials")["secret"], json!({"secretName": "login", "defaultMode": 0o400, "optional": true}));
    assert_eq!(variable(&login, "YOI_CREDENTIAL")["secretKeyRef"], json!({"name": "login", "key": ".login.json"}));
    let mount = login.containers[0].volume_mounts.iter().flatten().find(|mount| mount.name == "yoi-credentials").expect("a mount");
    assert_eq!((mount.mount_path.as_str(), mount.read_only), ("/etc/yoi-credentials", Some(true)));

    let own = json!({"presetFrom": {"name": "mine", "key": "p.yaml"}, "credentialsSecretRef": {"name": "login"}});
    let own = pod_of(&agent(json!({"cli": own}), Value::Null));
    let items = json!([{"key": "p.yaml", "path": "preset.yaml"}]);
    assert_eq!(volume(&own, "yoi-preset")["configMap"], json!({"name": "mine", "items": items, "optional": true}));
    assert_eq!(variable(&own, "YOI_PRESET")["configMapKeyRef"], json!({"name": "mine", "key": "p.yaml"}));
    // Nobody knows a key of that login yet.
    assert_eq!(volume(&own, "yoi-credentials")["secret"], json!({"secretName": "login", "defaultMode": 0o400}));
    assert!(variable(&own, "YOI_CREDENTIAL").is_null());

    for plain in [json!({"builtin": {}}), json!({"command": ["true"]}), json!({"cli": {"preset": "open"}})] {
        let spec = pod_of(&agent(plain.clone(), Value::Null));
        assert!(spec.volumes.iter().flatten().all(|volume| !volume.name.starts_with("yoi-")), "{plain}");
    }
}

/// The condition Ready of an agent whose container waits with the kubelet's words.
fn waits(spec: Value, message: &str) -> Condition {
    let mut seen = agent(spec, Value::Null);
    let plan = run(&seen);
    let mut pod: Pod = made_pod(&plan).expect("a Pod").clone();
    pod.metadata.uid = Some("pod".to_owned());
    pod.metadata.resource_version = Some("1".to_owned());
    pod.spec.as_mut().expect("a spec").node_name = Some("a".to_owned());
    pod.status = Some(made(json!({"phase": "Pending", "containerStatuses": [{"name": "agent", "image": "", "imageID": "", "ready": false,
        "restartCount": 0, "state": {"waiting": {"reason": "CreateContainerConfigError", "message": message}}}]})));
    seen.pods = vec![Arc::new(ObservedPod::from(pod))];
    change(&mut seen, |yoipod| yoipod.status = plan.status.clone());
    condition(&status(run(&seen)).conditions, "Ready").clone()
}

#[test]
fn a_login_or_preset_that_is_missing_is_named_with_the_command_that_makes_it() {
    let login = json!({"cli": {"preset": "claude", "credentialsSecretRef": {"name": "login"}}});
    let own = json!({"cli": {"presetFrom": {"name": "mine"}}});
    let secret = "kubectl create secret generic login -n ns --from-file=.login.json=FILE";
    let map = "kubectl create configmap mine -n ns --from-file=preset.yaml=FILE";
    let table = [
        (login.clone(), r#"secret "login" not found"#, "SecretMissing", ["Secret login with the program's login ", secret]),
        (login, "couldn't find key .login.json in Secret ns/login", "SecretMissing", ["no key .login.json;", secret]),
        (own.clone(), r#"configmap "mine" not found"#, "SourceNotFound", ["ConfigMap mine with the preset (presetFrom) ", map]),
        (own, "couldn't find key preset.yaml in ConfigMap ns/mine", "SourceNotFound", ["no key preset.yaml;", map]),
    ];
    for (spec, message, reason, words) in table {
        let ready = waits(spec, message);
        assert_eq!(ready.reason, reason, "{message}: {}", ready.message);
        assert!(words.iter().all(|words| ready.message.contains(words)), "{message}: {}", ready.message);
    }
}

#[test]
fn a_changed_program_is_a_changed_spec_and_another_preset_of_the_chart_reaches_the_next_start() {
    let mut seen = agent(json!({"cli": {"preset": "open"}}), Value::Null);
    let first = run(&seen);
    after_run(&mut seen, first);
    let current = |seen: &yoipod::Observed| condition(&status(run(seen)).conditions, "ManifestCurrent").reason.clone();
    assert_eq!(current(&seen), "UpToDate");

    let mut newer = settings_with_presets();
    newer.presets.get_mut("open").expect("a preset").first_args = vec!["--json".to_owned()];
    let plan = yoipod::plan(&seen, &newer, now());
    let text = &made_map(&plan).expect("another manifest").data.as_ref().expect("data")["manifest.json"];
    assert!(text.contains("--json"), "{text}");

    change(&mut seen, |yoipod| yoipod.spec.desired_state = yoi_crds::pod::DesiredState::Stopped);
    for spec in [json!({"cli": {"preset": "open", "args": ["-v"]}}), json!({"command": ["true"]}), json!({"builtin": {}})] {
        change(&mut seen, |yoipod| yoipod.spec.agent = made(spec.clone()));
        assert_eq!(current(&seen), "SpecChanged", "{spec}");
    }
}

#[test]
fn a_volume_of_the_users_does_not_take_the_place_of_a_programs_own() {
    let mut seen = agent(json!({"cli": {"preset": "open"}}), Value::Null);
    change(&mut seen, |yoipod| yoipod.spec.pod = made(json!({"volumes": [{"name": "yoi-credentials", "emptyDir": {}}]})));
    let found = accepted(&seen);
    assert!(found.reason == "InvalidSpec" && found.message.contains("volume yoi-credentials"), "{found:?}");
}

#[test]
fn what_the_runtime_says_of_its_frame_and_its_program_becomes_conditions_while_it_runs() {
    let with = |report: Value| {
        let mut seen = agent(json!({"cli": {"preset": "open"}}), Value::Null);
        let plan = run(&seen);
        let mut pod = made_pod(&plan).expect("a Pod").clone();
        pod.metadata.uid = Some("pod".to_owned());
        pod.metadata.resource_version = Some("1".to_owned());
        pod.status =
            Some(made(json!({"phase": "Running", "containerStatuses": [{"name": "agent", "image": "", "imageID": "", "ready": true,
            "restartCount": 0, "state": {"running": {}}}]})));
        let title = pod.metadata.name.clone();
        let mut reported = json!({"podUID": "pod", "runGeneration": 2, "ready": true, "reason": "Replayed", "message": "m"});
        reported.as_object_mut().expect("an object").extend(report.as_object().cloned().unwrap_or_default());
        seen.pods = vec![Arc::new(ObservedPod::from(pod))];
        Arc::make_mut(seen.session_claim.as_mut().expect("a claim")).status = Some(made(json!({"phase": "Bound"})));
        change(&mut seen, |yoipod| {
            let mut status = plan.status.clone().expect("a status");
            status.pod = Some(made(json!({"name": title, "uid": "pod"})));
            status.report = Some(made(reported));
            yoipod.status = Some(status);
        });
        status(run(&seen)).conditions
    };
    let find = |conditions: &[Condition], type_: &str| {
        conditions.iter().find(|c| c.type_ == type_).map(|c| (c.status, c.reason.clone(), c.message.clone()))
    };
    let silent = with(json!({}));
    assert_eq!(
        find(&silent, "ScopeEnforced").map(|(status, reason, _)| (status, reason)),
        Some((ConditionStatus::Unknown, "FrameNotReported".to_owned()))
    );
    let fine = with(json!({"scope": ""}));
    assert_eq!(
        find(&fine, "ScopeEnforced").map(|(status, reason, _)| (status, reason)),
        Some((ConditionStatus::True, "FrameEnforced".to_owned()))
    );
    assert_eq!(find(&fine, "ProgramKnown"), None);
    let lacking = with(json!({"scope": "no Landlock", "program": "p is 3, and 2. is known"}));
    assert_eq!(find(&lacking, "ScopeEnforced"), Some((ConditionStatus::False, "FrameIncomplete".into(), "no Landlock".into())));
    assert_eq!(
        find(&lacking, "ProgramKnown"),
        Some((ConditionStatus::False, "ProgramVersionUnknown".into(), "p is 3, and 2. is known".into()))
    );
    assert_eq!(find(&lacking, "Ready").map(|(status, ..)| status), Some(ConditionStatus::True), "it runs all the same");
    assert_eq!(find(&lacking, "ProgramSessionKept"), None);
    let forgetful = with(json!({"scope": "", "programSession": "p began a new one"}));
    assert_eq!(
        find(&forgetful, "ProgramSessionKept"),
        Some((ConditionStatus::False, "ProgramSessionLost".into(), "p began a new one".into()))
    );
    assert_eq!(find(&forgetful, "Ready").map(|(status, ..)| status), Some(ConditionStatus::True), "it goes on");
    assert_eq!(find(&fine, "GitFound"), None);
    let bare = with(json!({"scope": "", "hasGit": false}));
    assert_eq!(find(&bare, "GitFound").map(|(status, reason, _)| (status, reason)), Some((ConditionStatus::False, "GitMissing".into())));
    let former = with(json!({"podUID": "former", "scope": "no Landlock"}));
    assert_eq!(find(&former, "ScopeEnforced"), None, "another Pod said so");
}
