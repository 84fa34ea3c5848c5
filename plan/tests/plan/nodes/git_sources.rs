//! The Pod that fetches a git repository: what it mounts, what stands in its variables, and what the objects say.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use serde_json::{Value, json};
use yoi_crds::YoiProject;
use yoi_plan::settings::{GitProxy, Settings};
use yoi_plan::step::Step;
use yoi_plan::workspace;

use crate::nodes::*;

fn populator(git: &Value, settings: &Settings) -> PodSpec {
    let project: Arc<YoiProject> = stored(json!({"metadata": meta("p"), "spec": {"source": {"git": git}}}));
    let base = base_on(&project, "a", 5, json!([is_true("Provisioned")]));
    let plan = workspace::plan(&workspace_with(base, nodes(vec![("a", plain(1))])), settings, now());
    let pod = plan.steps.into_iter().find_map(|step| if let Step::EnsurePod(pod) = step { Some(*pod) } else { None });
    pod.and_then(|pod: Pod| pod.spec).expect("a populator")
}

fn variables(spec: &PodSpec) -> BTreeMap<String, String> {
    let all = spec.containers[0].env.clone().unwrap_or_default();
    assert!(all.iter().all(|variable| variable.value_from.is_none()), "a variable holds what a Secret holds: {all:?}");
    all.into_iter().map(|variable| (variable.name, variable.value.unwrap_or_default())).collect()
}

#[test]
fn a_public_repository_mounts_no_secret_and_no_certificate() {
    let spec = populator(&json!({"url": "https://git.example/a"}), &settings());
    let names: Vec<String> = spec.volumes.iter().flatten().map(|volume| volume.name.clone()).collect();
    assert_eq!(names, ["tree", "tmp"]);
    let variables = variables(&spec);
    for name in ["REF", "REVISION", "DEPTH", "SECRET", "CA", "SUBMODULE_HOSTS"] {
        assert_eq!(variables[name], "", "the script reads {name}, which must be there");
    }
    assert!(!variables.contains_key("https_proxy"));
}

#[test]
fn credentials_are_files_that_only_the_pods_group_may_read_and_a_missing_secret_keeps_no_pod_waiting() {
    let git = json!({"url": "git@git.example:team/a.git", "ref": "refs/pull/7/head", "credentialsSecretRef": {"name": "clone-key"},
        "caRef": {"name": "cas", "key": "root.pem"}, "submoduleHosts": ["lib.example", "lfs.example:8443"], "depth": 5});
    let spec = populator(&git, &settings());
    let volumes = serde_json::to_value(&spec.volumes).expect("JSON");
    assert_eq!(volumes[2], json!({"name": "credentials", "secret": {"secretName": "clone-key", "defaultMode": 0o400, "optional": true}}));
    let ca = json!({"name": "cas", "items": [{"key": "root.pem", "path": "ca.crt"}], "optional": true});
    assert_eq!(volumes[3], json!({"name": "ca", "configMap": ca}));
    let mounts = serde_json::to_value(&spec.containers[0].volume_mounts).expect("JSON");
    assert_eq!(mounts[2], json!({"name": "credentials", "mountPath": "/yoi/credentials", "readOnly": true}));
    assert_eq!(mounts[3], json!({"name": "ca", "mountPath": "/yoi/ca", "readOnly": true}));
    // The kubelet gives the files to the Pod's group.
    assert_eq!(spec.security_context.and_then(|security| security.fs_group), Some(1000));
    assert_eq!(spec.automount_service_account_token, Some(false));
    let variables = variables(&populator(&git, &settings()));
    for (name, value) in [
        ("URL", "git@git.example:team/a.git"),
        ("REF", "refs/pull/7/head"),
        ("DEPTH", "5"),
        ("SECRET", "clone-key"),
        ("CA", "key root.pem of ConfigMap cas"),
        ("SUBMODULE_HOSTS", "lib.example lfs.example:8443"),
    ] {
        assert_eq!(variables[name], value);
    }
}

#[test]
fn a_proxy_of_the_installation_is_a_variable_of_the_pod_that_fetches() {
    let proxy = GitProxy { url: "http://proxy.example:3128".to_owned(), except: ".svc".to_owned() };
    let settings = Settings { git_proxy: Some(proxy), ..settings() };
    let variables = variables(&populator(&json!({"url": "https://git.example/a"}), &settings));
    assert_eq!(variables["https_proxy"], "http://proxy.example:3128");
    assert_eq!(variables["http_proxy"], "http://proxy.example:3128");
    assert_eq!(variables["no_proxy"], ".svc");
}

#[test]
fn a_base_says_that_its_history_is_not_whole() {
    for (git, message) in [
        (json!({"url": "https://git.example/a"}), "the source's content is in the base"),
        (json!({"url": "https://git.example/a", "depth": 5}), "the source's content is in the base, with a history of depth 5"),
    ] {
        let project: Arc<YoiProject> = stored(json!({"metadata": meta("p"), "spec": {"source": {"git": git}}}));
        let base = base_on(&project, "a", 5, json!([is_true("Provisioned"), is_true("Populated"), is_true("Sealed")]));
        let plan = workspace::plan(&workspace_with(base, nodes(vec![("a", plain(1))])), &settings(), now());
        assert_eq!(condition(&status(plan).conditions, "Populated").message, message);
    }
}

#[test]
fn another_secret_or_depth_is_another_base_and_a_source_without_them_keeps_its_own() {
    let generation = |git: Value| {
        let project: Arc<YoiProject> = stored(json!({"metadata": meta("p"), "spec": {"source": {"git": git}}}));
        base_on(&project, "a", 5, json!([])).spec.base.clone().expect("a base").generation
    };
    let plain = generation(json!({"url": "https://git.example/a"}));
    assert_eq!(plain, generation(json!({"url": "https://git.example/a", "submoduleHosts": []})));
    for other in [
        json!({"url": "https://git.example/a", "depth": 5}),
        json!({"url": "https://git.example/a", "credentialsSecretRef": {"name": "k"}}),
        json!({"url": "https://git.example/a", "submoduleHosts": ["b"]}),
    ] {
        assert_ne!(plain, generation(other));
    }
}
