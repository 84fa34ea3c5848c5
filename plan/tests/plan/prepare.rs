//! What runs in a base before it is sealed: when, with what, and what follows when it fails.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use yoi_crds::Condition;
use yoi_crds::condition::{ConditionStatus, find};
use yoi_crds::prepare::Prepare;
use yoi_plan::network::{PREPARE, PREPARE_AS_AGENTS, with_network_policies};
use yoi_plan::nodes::{Node, Nodes};
use yoi_plan::settings::Network;
use yoi_plan::step::{Plan, Step};
use yoi_plan::{ObservedPod, names, workspace};

use crate::samples::{NOW, now, settings, workspace_with};

fn made<T: serde::de::DeserializeOwned>(object: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(object).expect("an object of the kind"))
}

const GIT: fn() -> Value = || json!({"git": {"url": "https://git.example/p.git", "credentialsSecretRef": {"name": "clone-key"}}});
const EMPTY: fn() -> Value = || json!({"empty": {}});
const FOLDER: fn() -> Value = || json!({"host": {"name": "clone"}});

fn prepare() -> Value {
    json!({"image": "builder:1", "command": ["make", "-j4"]})
}

/// A base that its node has made.
struct Base {
    source: Value,
    prepare: Value,
    conditions: Vec<Value>,
    pod_uid: Option<String>,
    pods: Vec<Value>,
}

impl Base {
    fn of(source: Value) -> Self {
        Base { source, prepare: prepare(), conditions: vec![], pod_uid: None, pods: vec![] }
    }

    /// A Pod of the base in this phase; its container ended with `code`, and its last words.
    fn pod(mut self, role: &str, attempt: u32, phase: &str, ended: Option<(i32, &str, i64)>) -> Self {
        let (name, container) = match role {
            "prepare" => (names::prepare("b", attempt), "prepare"),
            _ => (names::populator("b", attempt), "populate"),
        };
        let state = match ended {
            Some((code, words, at)) => {
                let at = jiff::Timestamp::from_second(at).expect("a time").to_string();
                json!({"terminated": {"exitCode": code, "message": words, "finishedAt": at}})
            }
            None => json!({"running": {}}),
        };
        self.pods.push(json!({
            "metadata": {
                "name": name, "namespace": "ns", "uid": format!("uid-{name}"), "resourceVersion": "1",
                "labels": {"yoi.dev/role": role, "yoi.dev/workspace": "b"}, "annotations": {"yoi.dev/attempt": attempt.to_string()},
                "ownerReferences": [{"apiVersion": "yoi.dev/v1alpha1", "kind": "AgentWorkspace", "name": "b", "uid": "b", "controller": true}],
            },
            "spec": {"nodeName": "n1", "containers": []},
            "status": {"phase": phase, "containerStatuses":
                [{"name": container, "image": "i", "imageID": "i", "ready": false, "restartCount": 0, "state": state}]},
        }));
        self
    }

    /// What Populated said before.
    fn with_populated(mut self, reason: &str, message: &str) -> Self {
        self.conditions.push(condition("Populated", "False", reason, message));
        self
    }

    fn plan(&self) -> Plan<yoi_crds::AgentWorkspaceStatus> {
        let mut conditions = self.conditions.clone();
        conditions.push(condition("Provisioned", "True", "TreeCreated", "made"));
        let kind = if self.source.get("host").is_some() { "Host" } else { "Empty" };
        let workspace = made(json!({
            "metadata": {
                "name": "b", "namespace": "ns", "uid": "b", "resourceVersion": "1", "generation": 1,
                "finalizers": ["yoi.dev/operator", "yoi.dev/node-data"],
            },
            "spec": {
                "source": self.source, "path": "/src/tree", "owner": {"uid": 1001, "gid": 1002},
                "base": {"generation": "g", "node": "n1", "prepare": self.prepare},
            },
            "status": {
                "nodeName": "n1", "origin": {"kind": kind}, "owner": {"uid": 1001, "gid": 1002}, "podUID": self.pod_uid, "conditions": conditions,
            },
        }));
        let nodes = Arc::new(Nodes(BTreeMap::from([("n1".to_owned(), Node::default())])));
        let populators = self.pods.iter().map(|pod| Arc::new(Arc::unwrap_or_clone(made::<Pod>(pod.clone())).into())).collect();
        let seen = workspace::Observed { populators, ..workspace_with(workspace, nodes) };
        workspace::plan(&seen, &settings(), now())
    }
}

fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": "2023-01-01T00:00:00Z"})
}

/// Names of what a plan makes, and of what it deletes.
fn steps(plan: &Plan<yoi_crds::AgentWorkspaceStatus>) -> Vec<String> {
    let text = |step: &Step| match step {
        Step::EnsurePod(pod) => format!("+{}", pod.metadata.name.as_deref().unwrap_or_default()),
        Step::Delete(target) => format!("-{}", target.name),
        other => panic!("{other:?}"),
    };
    plan.steps.iter().map(text).collect()
}

fn populated(plan: &Plan<yoi_crds::AgentWorkspaceStatus>) -> &Condition {
    find(&plan.status.as_ref().expect("a status").conditions, "Populated").expect("Populated is said")
}

fn mounts(plan: &Plan<yoi_crds::AgentWorkspaceStatus>) -> Option<&str> {
    plan.status.as_ref().expect("a status").pod_uid.as_deref()
}

const DONE: Option<(i32, &str, i64)> = Some((0, "", NOW));

#[test]
fn a_base_is_populated_only_once_it_is_prepared() {
    for source in [GIT(), EMPTY()] {
        let base = Base::of(source.clone());
        assert_eq!(steps(&base.plan()), ["+b-1"], "{source}: it is filled first");
        let plan = Base::of(source.clone()).pod("populator", 1, "Succeeded", DONE).plan();
        assert_eq!((&*steps(&plan), &*populated(&plan).reason), (&["+b-prepare-1".to_owned()][..], "Preparing"));
        assert_eq!(populated(&plan).status, ConditionStatus::False, "the node would seal it");
        let plan = Base::of(source.clone()).pod("populator", 1, "Succeeded", DONE).pod("prepare", 1, "Running", None).plan();
        assert_eq!((&*steps(&plan), mounts(&plan)), (&["-b-1".to_owned()][..], Some("uid-b-prepare-1")));
        assert_eq!((&*populated(&plan).reason, populated(&plan).status), ("Preparing", ConditionStatus::False));
        assert!(populated(&plan).message.ends_with("Pod b-prepare-1"), "nobody can read its output: {}", populated(&plan).message);
        let plan = Base::of(source).pod("prepare", 1, "Succeeded", DONE).plan();
        assert_eq!((steps(&plan).len(), populated(&plan).status, &*populated(&plan).reason), (0, ConditionStatus::True, "Filled"));
    }
    let base = Base { prepare: Value::Null, ..Base::of(GIT()) };
    assert_eq!(populated(&base.pod("populator", 1, "Succeeded", DONE).plan()).status, ConditionStatus::True, "nothing is to be prepared");
    let base = Base { prepare: Value::Null, ..Base::of(EMPTY()) };
    assert_eq!(populated(&base.plan()).status, ConditionStatus::True, "nothing is to be filled");
}

/// Without what the message says of the next attempt.
fn failure_of(message: &str) -> &str {
    ["; the next attempt is at ", "; it is being tried again"]
        .iter()
        .fold(message, |message, end| message.split(end).next().unwrap_or(message))
}

#[test]
fn a_failure_says_the_last_words_and_the_next_run_begins_in_a_base_that_was_filled_anew() {
    let failed = |at: i64| Base::of(GIT()).pod("prepare", 1, "Failed", Some((2, "cc -c a.c\nno such\theader\n", at)));
    let plan = failed(NOW).plan();
    assert_eq!((steps(&plan).len(), plan.requeue_after.map(|d| d.as_secs())), (0, Some(10)), "the first pause is ten seconds");
    let said = populated(&plan).clone();
    assert_eq!(
        (&*said.reason, failure_of(&said.message)),
        (
            "PrepareFailed",
            "the base could not be prepared by Pod b-prepare-1: the command ended with exit code 2: cc -c a.c no such header"
        )
    );
    assert_eq!(steps(&failed(NOW - 11).plan()), ["+b-2"], "it is filled again, and the Pod that failed can be read");
    // While it is filled again, people read why it was not prepared, and where.
    let again = failed(NOW - 11).pod("populator", 2, "Running", None).with_populated(&said.reason, &said.message).plan();
    assert_eq!((steps(&again).len(), mounts(&again)), (0, Some("uid-b-2")));
    assert_eq!(failure_of(&populated(&again).message), failure_of(&said.message));
    assert!(populated(&again).message.ends_with("; it is being tried again"), "{}", populated(&again).message);
    let again = failed(NOW - 11).pod("populator", 2, "Succeeded", DONE).with_populated(&said.reason, &said.message).plan();
    assert_eq!((&*steps(&again), failure_of(&populated(&again).message)), (&["+b-prepare-2".to_owned()][..], failure_of(&said.message)));
    let mut again = failed(NOW - 11).pod("populator", 2, "Succeeded", DONE).pod("prepare", 2, "Running", None).plan();
    again.steps.sort_by_key(|step| format!("{step:?}"));
    assert_eq!((&*steps(&again), mounts(&again)), (&["-b-2".to_owned(), "-b-prepare-1".to_owned()][..], Some("uid-b-prepare-2")));
}

#[test]
fn a_pod_that_somebody_has_deleted_leaves_a_base_that_is_made_anew() {
    // The Pod that filled it went when this one began.
    assert_eq!(steps(&Base::of(GIT()).with_populated("Preparing", "it runs").plan()), ["+b-1"]);
    assert_eq!(steps(&Base::of(EMPTY()).with_populated("Preparing", "it runs").plan()), ["+b-1"]);
    let folder = Base { pod_uid: Some("gone".to_owned()), ..Base::of(FOLDER()) }.plan();
    assert_eq!((&*steps(&folder), mounts(&folder)), (&["-b".to_owned()][..], Some("gone")));
}

#[test]
fn a_folder_is_prepared_as_it_was_taken_and_taken_anew_after_a_failure() {
    let plan = Base::of(FOLDER()).plan();
    assert_eq!((&*steps(&plan), populated(&plan).status), (&["+b-prepare-1".to_owned()][..], ConditionStatus::False));
    let failed = |at: i64| Base {
        pod_uid: Some("uid-b-prepare-1".to_owned()),
        ..Base::of(FOLDER()).pod("prepare", 1, "Failed", Some((1, "no", at)))
    };
    let plan = failed(NOW - 60).plan();
    assert_eq!((steps(&plan).len(), &*populated(&plan).reason, plan.requeue_after.map(|d| d.as_secs())), (0, "PrepareFailed", Some(540)));
    assert_eq!(steps(&failed(NOW - 601).plan()), ["-b"]);
    assert_eq!(populated(&Base::of(FOLDER()).pod("prepare", 1, "Succeeded", DONE).plan()).status, ConditionStatus::True);
    let base = Base { prepare: Value::Null, ..Base::of(FOLDER()) };
    assert_eq!(populated(&base.plan()).status, ConditionStatus::True);
}

#[test]
fn a_run_that_takes_too_long_is_told_by_the_field_that_says_how_long_it_may() {
    let mut base = Base::of(EMPTY()).pod("prepare", 1, "Failed", Some((137, "step 7 of 9", NOW)));
    base.pods[0]["status"]["reason"] = json!("DeadlineExceeded");
    let said = populated(&base.plan()).message.clone();
    assert!(failure_of(&said).ends_with("it took longer than spec.prepare.timeout allows: step 7 of 9"), "{said}");
}

const COMMIT: &str = "1111111111111111111111111111111111111111";

fn pod_of(prepare: Value) -> Pod {
    pod_after(Base { prepare, ..Base::of(GIT()) }, &format!("{COMMIT} refs/heads/ma$(HOME)in\n"))
}

/// The Pod that prepares a base, after one that has filled it and written `answer`.
fn pod_after(base: Base, answer: &str) -> Pod {
    let base = base.pod("populator", 1, "Succeeded", Some((0, answer, NOW)));
    let Some(Step::EnsurePod(pod)) = base.plan().steps.into_iter().next() else { panic!("no Pod") };
    *pod
}

#[test]
fn the_pod_has_the_tree_and_nothing_of_the_sources() {
    let pod = pod_of(prepare());
    let spec = pod.spec.clone().expect("a spec");
    let volumes: Vec<_> = spec.volumes.iter().flatten().map(|v| (v.name.as_str(), v.csi.is_some(), v.empty_dir.is_some())).collect();
    assert_eq!(volumes, [("tree", true, false), ("tmp", false, true), ("home", false, true)]);
    let [container] = spec.init_containers.as_deref().unwrap_or_default() else { panic!("one command") };
    let mounts: Vec<_> = container.volume_mounts.iter().flatten().map(|m| (m.name.as_str(), m.mount_path.as_str())).collect();
    assert_eq!(mounts, [("tree", "/src/tree"), ("tmp", "/tmp"), ("home", "/home/agent")]);
    assert_eq!(
        (container.working_dir.as_deref(), container.command.as_deref()),
        (Some("/src/tree"), Some(&["make".to_owned(), "-j4".to_owned()][..]))
    );
    let variables: Vec<_> = container.env.iter().flatten().map(|v| (v.name.as_str(), v.value.as_deref())).collect();
    assert_eq!(variables, [("HOME", Some("/home/agent"))]);
    assert_eq!((spec.automount_service_account_token, spec.restart_policy.as_deref()), (Some(false), Some("Never")));
    let security = spec.security_context.expect("a security context");
    assert_eq!((security.run_as_user, security.run_as_group, security.run_as_non_root), (Some(1001), Some(1002), Some(true)));
    let own = container.security_context.as_ref().expect("a security context");
    assert_eq!((own.allow_privilege_escalation, own.read_only_root_filesystem), (Some(false), Some(true)));
    assert_eq!(container.termination_message_policy.as_deref(), Some("FallbackToLogsOnError"));
    assert_eq!(spec.active_deadline_seconds, Some(3600));
    assert!(!serde_json::to_string(&pod).expect("JSON").contains("clone-key"));
}

#[test]
fn a_container_without_credentials_looks_at_head_after_the_command_where_the_source_is_git() {
    let pod = pod_of(prepare());
    let spec = pod.spec.expect("a spec");
    let [head] = &spec.containers[..] else { panic!("one container") };
    assert_eq!((head.image.as_deref(), &*head.name), (Some(&*settings().populator_image), "head"));
    let mounts: Vec<_> = head.volume_mounts.iter().flatten().map(|m| (m.name.as_str(), m.mount_path.as_str(), m.read_only)).collect();
    assert_eq!(mounts, [("tree", "/src/tree", Some(true))]);
    let variables: Vec<_> = head.env.iter().flatten().filter_map(|v| Some((v.name.as_str(), v.value.as_deref()?))).collect();
    // Kubernetes would put the value of another variable in.
    assert_eq!(variables, [("DEST", "/src/tree"), ("COMMIT", COMMIT), ("BRANCH", "refs/heads/ma$$(HOME)in")]);
    let own = head.security_context.as_ref().expect("a security context");
    assert_eq!((own.allow_privilege_escalation, own.read_only_root_filesystem), (Some(false), Some(true)));
    let annotations = pod.metadata.annotations.expect("annotations");
    assert_eq!(annotations["kubectl.kubernetes.io/default-container"], "prepare", "kubectl logs prints what the command says");

    for answer in ["", "no such file", "1111 refs/heads/main", &format!("{COMMIT}\n")] {
        let spec = pod_after(Base::of(GIT()), answer).spec.expect("a spec");
        let env = spec.containers[0].env.clone().unwrap_or_default();
        assert_eq!(env[1].value.as_deref(), Some(""), "{answer:?} is taken for a commit");
    }
    for source in [EMPTY(), FOLDER()] {
        let base = Base::of(source).pod("populator", 1, "Succeeded", DONE);
        let Some(Step::EnsurePod(pod)) = base.plan().steps.into_iter().find(|step| matches!(step, Step::EnsurePod(_))) else { continue };
        let spec = pod.spec.expect("a spec");
        assert_eq!((spec.init_containers, &*spec.containers[0].name), (None, "prepare"));
    }
}

#[test]
fn a_command_that_has_moved_head_is_a_failure_that_names_both_commits_and_the_base_is_filled_anew() {
    let words = "it moved HEAD from commit 1111 on main to commit 2222 on main. prepare may not commit";
    let failed = |at: i64| {
        let mut base = Base::of(GIT()).pod("prepare", 1, "Failed", Some((0, "", at)));
        let prepared = base.pods[0]["status"]["containerStatuses"].clone();
        base.pods[0]["status"]["initContainerStatuses"] = prepared;
        base.pods[0]["status"]["containerStatuses"][0]["name"] = json!("head");
        base.pods[0]["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] = json!(1);
        base.pods[0]["status"]["containerStatuses"][0]["state"]["terminated"]["message"] = json!(words);
        base
    };
    let plan = failed(NOW).plan();
    let said = populated(&plan);
    assert_eq!((&*said.reason, said.status), ("PrepareFailed", ConditionStatus::False), "the node would seal it");
    assert_eq!(failure_of(&said.message), format!("the base could not be prepared by Pod b-prepare-1: {words}"));
    assert_eq!((steps(&plan).len(), steps(&failed(NOW - 11).plan())), (0, vec!["+b-2".to_owned()]));
    // The command's own failure is told by its own words, whatever Kubernetes says of a container that never ran.
    let mut base = failed(NOW);
    base.pods[0]["status"]["initContainerStatuses"][0]["state"]["terminated"] = json!({"exitCode": 2, "message": "no such header"});
    base.pods[0]["status"]["containerStatuses"][0]["state"] = json!({"waiting": {"reason": "PodInitializing"}});
    let message = populated(&base.plan()).message.clone();
    assert!(failure_of(&message).ends_with("the command ended with exit code 2: no such header"), "{message}");
}

#[test]
fn what_the_project_says_of_the_run_is_what_the_pod_has() {
    let pod =
        pod_of(json!({"image": "i", "command": ["true"], "egress": "None", "timeout": "90m", "resources": {"limits": {"memory": "8Gi"}}}));
    assert_eq!(pod.metadata.labels.as_ref().and_then(|labels| labels.get("yoi.dev/egress")).map(String::as_str), Some("None"));
    let spec = pod.spec.expect("a spec");
    assert_eq!(spec.active_deadline_seconds, Some(5400));
    let command = spec.init_containers.expect("the command");
    let limits = command[0].resources.as_ref().and_then(|r| r.limits.as_ref()).expect("limits");
    assert_eq!(limits.iter().map(|(k, v)| (k.as_str(), v.0.as_str())).collect::<Vec<_>>(), [("memory", "8Gi")]);
}

#[test]
fn its_policies_stand_before_the_pod_and_let_nothing_out_that_agents_may_not_reach() {
    let rules = Network { agents: vec![made_rule()], gateway_port: 8443, ..Network::default() };
    let none: [Arc<k8s_openapi::api::networking::v1::NetworkPolicy>; 0] = [];
    let steps = with_network_policies(vec![Step::EnsurePod(Box::new(pod_of(prepare())))], "ns", Some(&rules), &none);
    let policies: Vec<_> = steps.iter().filter_map(|s| if let Step::EnsureNetworkPolicy(p) = s { Some(p) } else { None }).collect();
    assert!(matches!(steps.last(), Some(Step::EnsurePod(_))) && policies.len() == steps.len() - 1);
    let find = |name: &str| policies.iter().find(|p| p.metadata.name.as_deref() == Some(name)).and_then(|p| p.spec.clone()).expect(name);
    let (all, as_agents) = (find(PREPARE), find(PREPARE_AS_AGENTS));
    assert_eq!((all.egress, all.policy_types.map(|t| t.len())), (None, Some(2)), "whatever has no more is closed both ways");
    let selector = |spec: &k8s_openapi::api::networking::v1::NetworkPolicySpec| serde_json::to_value(&spec.pod_selector).expect("JSON");
    assert_eq!(selector(&as_agents), json!({"matchLabels": {"yoi.dev/egress": "Agents", "yoi.dev/role": "prepare"}}));
    let egress = serde_json::to_value(&as_agents.egress).expect("JSON");
    assert_eq!(egress.as_array().map(Vec::len), Some(2), "DNS and what agents may reach: {egress}");
    assert!(!egress.to_string().contains("8443"), "it is no agent, and needs no gateway: {egress}");
}

fn made_rule() -> k8s_openapi::api::networking::v1::NetworkPolicyEgressRule {
    serde_json::from_value(json!({"ports": [{"port": 443, "protocol": "TCP"}]})).expect("a rule")
}

#[test]
fn each_field_of_prepare_is_part_of_the_generation() {
    let prepare = |value: Value| -> Prepare { serde_json::from_value(value).expect("a prepare") };
    let base = json!({"image": "i", "command": ["make"], "timeout": "1h"});
    let name = names::prepared_generation("g", &prepare(base.clone()));
    assert_eq!((name.len(), &name), (10, &names::prepared_generation("g", &prepare(base.clone()))));
    let changes = [("image", json!("j")), ("command", json!(["make", "all"])), ("egress", json!("None")), ("timeout", json!("2h"))];
    for (field, value) in changes.into_iter().chain([("resources", json!({"limits": {"cpu": "1"}}))]) {
        let mut other = base.clone();
        other[field] = value;
        assert_ne!(names::prepared_generation("g", &prepare(other)), name, "{field}");
    }
    assert_ne!(names::prepared_generation("h", &prepare(base)), name, "the source's part");
}

#[test]
fn a_pod_of_prepare_is_observed_by_its_own_container() {
    let base = Base::of(GIT()).pod("prepare", 1, "Pending", None);
    let mut waiting = base.pods[0].clone();
    waiting["status"]["containerStatuses"][0]["state"] = json!({"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}});
    waiting["status"]["conditions"] = json!([{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2023-01-01T00:00:00Z"}]);
    let _: ObservedPod = Arc::unwrap_or_clone(made::<Pod>(waiting.clone())).into();
    let plan = Base { pods: vec![waiting], ..Base::of(GIT()) }.plan();
    let said = populated(&plan);
    assert_eq!(
        (&*said.reason, &*said.message),
        ("PopulatorNotRunning", "Pod b-prepare-1 cannot prepare the base: ImagePullBackOff: no such image")
    );
}
