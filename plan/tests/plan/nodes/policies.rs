//! Which policy an agent is started under, and how a change of it reaches the one that runs.

use std::sync::Arc;

use serde_json::{Value, json};
use yoi_crds::Condition;
use yoi_crds::condition::ConditionStatus;
use yoi_plan::step::{Kind, Step};
use yoi_plan::yoipod;
use yoi_wire::manifest::AgentManifest;

use crate::nodes::manifests::{after_run, change, made_map, made_pod, new_agent, runs_and_waits_at};
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

/// The policy that the plan writes to the Pod that is there.
fn set_policy(seen: &yoipod::Observed) -> Option<String> {
    let steps = yoipod::plan(seen, &settings(), now()).steps;
    assert!(outcome(&steps, Kind::Pod).1.is_empty(), "another Pod is made for it: {steps:?}");
    steps.into_iter().find_map(|step| if let Step::SetPolicy { policy, .. } = step { Some(policy) } else { None })
}

/// The API server after this plan: its status, and the policy on the Pod.
fn carry_out(seen: &mut yoipod::Observed) {
    if let Some(policy) = set_policy(seen) {
        let pod = Arc::get_mut(&mut seen.pods[0]).expect("the one reference");
        pod.metadata.annotations.get_or_insert_default().insert("yoi.dev/policy".to_owned(), policy);
    }
    let policy = status(yoipod::plan(seen, &settings(), now())).policy;
    change(seen, |yoipod| yoipod.status.as_mut().expect("a status").policy = policy);
}

#[test]
fn p74_a_changed_policy_reaches_the_pod_that_runs_and_a_line_that_is_none_leaves_the_last_valid_one_in_force_over_its_end() {
    for reason in ["Replayed", "ModelRefused"] {
        let mut seen = runs_and_waits_at(reason, "old");
        assert_eq!(set_policy(&seen), None, "nobody names a policy");
        assert_eq!(status(yoipod::plan(&seen, &settings(), now())).policy, None);
        with_policies(&mut seen, json!({"deny": ["Write"]}), json!({"ask": ["Shell"]}));
        assert_eq!(set_policy(&seen).as_deref(), Some(r#"{"deny":["Write"],"ask":["Shell"]}"#));
        carry_out(&mut seen);
        assert_eq!(set_policy(&seen), None, "it is written once");
        let conditions = status(yoipod::plan(&seen, &settings(), now())).conditions;
        assert_eq!(condition(&conditions, "PolicyValid").reason, "Valid");
        assert_eq!(condition(&conditions, "ManifestCurrent").reason, "UpToDate");

        with_policies(&mut seen, json!({"deny": ["Wriet"]}), Value::Null);
        assert_eq!(set_policy(&seen), None);
        let valid = plan(&seen).0.expect("a condition");
        assert_eq!((valid.status, valid.reason.as_str()), (ConditionStatus::False, "PolicyInvalid"));
        assert!(valid.message.ends_with("the last valid policy stays in force"), "{}", valid.message);
        carry_out(&mut seen);
        // The next Pod, too: that of the manifest is not the last one.
        seen.pods = Vec::new();
        change(&mut seen, |yoipod| yoipod.status.as_mut().expect("a status").pod = None);
        let next = yoipod::plan(&seen, &settings(), now());
        let annotations = made_pod(&next).expect("a Pod").metadata.annotations.clone().expect("annotations");
        assert_eq!(annotations["yoi.dev/policy"], r#"{"deny":["Write"],"ask":["Shell"]}"#);
        assert_eq!(plan(&seen).1.expect("a manifest").policy.deny, ["Write"]);
    }
}

#[test]
fn a_policy_that_is_taken_away_leaves_none_in_force() {
    let mut seen = runs_and_waits_at("Replayed", "old");
    with_policies(&mut seen, json!({"deny": ["Write"]}), Value::Null);
    carry_out(&mut seen);
    with_policies(&mut seen, Value::Null, Value::Null);
    assert_eq!(set_policy(&seen).as_deref(), Some("{}"));
    carry_out(&mut seen);
    let (valid, after) = (plan(&seen).0, status(yoipod::plan(&seen, &settings(), now())));
    assert_eq!((valid.is_none(), after.policy.as_deref()), (true, Some("{}")));
}

#[test]
fn a_pod_of_an_earlier_version_keeps_its_policy_and_the_condition_says_so() {
    let mut seen = runs_and_waits_at("Replayed", "old");
    let pod = Arc::get_mut(&mut seen.pods[0]).expect("the one reference");
    pod.metadata.annotations.as_mut().expect("annotations").remove("yoi.dev/policy");
    with_policies(&mut seen, json!({"deny": ["Write"]}), Value::Null);
    assert_eq!(set_policy(&seen), None, "its runtime has no file of it");
    let valid = plan(&seen).0.expect("a condition");
    assert_eq!((valid.status, valid.reason.as_str()), (ConditionStatus::True, "PolicyAtNextStart"));
    // The Pod that follows simply takes it.
    seen.pods = Vec::new();
    change(&mut seen, |yoipod| yoipod.status.as_mut().expect("a status").pod = None);
    let (valid, manifest) = plan(&seen);
    assert_eq!((valid.expect("a condition").reason.as_str(), manifest.expect("a Pod").policy.deny), ("Valid", vec!["Write".to_owned()]));
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
