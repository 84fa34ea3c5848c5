//! Which policy an agent is started under.

use std::sync::Arc;

use serde_json::{Value, json};
use yoi_crds::Condition;
use yoi_crds::condition::ConditionStatus;
use yoi_plan::yoipod;
use yoi_wire::manifest::AgentManifest;

use crate::nodes::manifests::{after_run, change, made_map, made_pod, new_agent};
use crate::nodes::*;

fn with_policies(seen: &mut yoipod::Observed, project: Value, own: Value) {
    let of_project = seen.project.as_mut().expect("a project");
    Arc::make_mut(of_project).spec.policy = made(project);
    change(seen, |yoipod| yoipod.spec.policy = made(own));
}

/// The condition, and the manifest of the Pod that the plan makes.
fn plan(seen: &yoipod::Observed) -> (Option<Condition>, Option<AgentManifest>) {
    let plan = yoipod::plan(seen, &settings(), now());
    let map = made_map(&plan).or(seen.manifests.first().map(|map| &**map)).filter(|_| made_pod(&plan).is_some());
    let manifest = map.map(|map| serde_json::from_str(&map.data.as_ref().expect("data")["manifest.json"]).expect("a manifest"));
    let valid = status(plan).conditions.iter().find(|c| c.type_ == "PolicyValid").cloned();
    (valid, manifest)
}

#[test]
fn p74_an_agent_starts_under_its_projects_policy_as_its_own_narrows_it() {
    let mut seen = new_agent();
    assert!(plan(&seen).0.is_none(), "nobody names a policy");
    with_policies(&mut seen, json!({"allow": ["Shell(git *)"]}), json!({"deny": ["Shell(git push *)"]}));
    let (valid, manifest) = plan(&seen);
    assert_eq!(valid.expect("a condition").status, ConditionStatus::True);
    let policy = manifest.expect("a Pod").policy;
    assert_eq!((policy.deny, policy.allow), (vec!["Shell(git push *)".to_owned()], vec![vec!["Shell(git *)".to_owned()]]));
}

#[test]
fn p74_an_agent_never_starts_under_a_policy_that_widens_or_is_none() {
    let mut seen = new_agent();
    with_policies(&mut seen, json!({"allow": ["Shell(git *)"]}), json!({"allow": ["Shell"]}));
    let (valid, manifest) = plan(&seen);
    let valid = valid.expect("a condition");
    assert_eq!((valid.status, valid.reason.as_str(), manifest.is_none()), (ConditionStatus::False, "PolicyInvalid", true));
    assert!(valid.message.starts_with("spec.policy.allow[0]: \"Shell\" allows more than"), "{}", valid.message);
    // The last valid one stays in force for one that has run.
    let mut seen = new_agent();
    with_policies(&mut seen, json!({"deny": ["Write"]}), Value::Null);
    let first = yoipod::plan(&seen, &settings(), now());
    after_run(&mut seen, first);
    with_policies(&mut seen, json!({"deny": ["Wriet"]}), Value::Null);
    let (valid, manifest) = plan(&seen);
    assert_eq!(valid.expect("a condition").reason, "PolicyInvalid");
    assert_eq!(manifest.expect("a Pod").policy.deny, ["Write"]);
}

#[test]
fn a_changed_policy_of_the_project_counts_from_the_next_start_without_a_refresh() {
    let mut seen = new_agent();
    with_policies(&mut seen, json!({"deny": ["Write"]}), Value::Null);
    let first = yoipod::plan(&seen, &settings(), now());
    after_run(&mut seen, first);
    with_policies(&mut seen, json!({"deny": ["Write", "Edit"]}), Value::Null);
    let (valid, manifest) = plan(&seen);
    let valid = valid.expect("a condition");
    assert_eq!((valid.status, valid.reason.as_str()), (ConditionStatus::True, "PolicyAtNextStart"));
    assert_eq!(manifest.expect("a Pod").policy.deny, ["Write", "Edit"]);
}

#[test]
fn p27_the_runtime_is_told_which_variables_hold_secrets_and_a_policy_that_names_none_is_the_same_one() {
    let env = json!([
        {"name": "PLAIN", "value": "a"},
        {"name": "DEPLOY_TOKEN", "valueFrom": {"secretKeyRef": {"name": "deploy", "key": "token"}}},
        {"name": "SETTING", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "a"}}},
    ]);
    let mut seen = new_agent();
    with_policies(&mut seen, json!({"secretsInResults": "Redact"}), Value::Null);
    change(&mut seen, |yoipod| yoipod.spec.pod.env = made(env));
    let first = yoipod::plan(&seen, &settings(), now());
    after_run(&mut seen, first);
    let (valid, manifest) = plan(&seen);
    let policy = manifest.expect("a Pod").policy;
    assert_eq!((policy.keep_secrets, policy.secret_variables), (false, vec!["DEPLOY_TOKEN".to_owned()]));
    assert_eq!(valid.expect("a condition").reason, "Valid");
}
