//! How the scope of an agent reaches its Pod, and what is said of it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use yoi_crds::Condition;
use yoi_plan::{ObservedPod, yoipod};
use yoi_wire::identity::{VOLUME_COVERS, VOLUME_KIND};

use crate::nodes::manifests::{after_run, change, made_pod, new_agent};
use crate::nodes::*;

fn scoped(scope: &Value) -> yoipod::Observed {
    let mut seen = new_agent();
    set_scope(&mut seen, scope);
    seen
}

fn set_scope(seen: &mut yoipod::Observed, scope: &Value) {
    change(seen, |yoipod| yoipod.spec.scope = made(scope.clone()));
}

fn write(path: &str) -> Value {
    json!({ "allow": [{ "path": path, "access": "Write" }] })
}

/// Whether the container of the Pod that the plan makes has its tree mounted read-only.
fn is_read_only(seen: &yoipod::Observed) -> bool {
    let plan = yoipod::plan(seen, &settings(), now());
    let spec = made_pod(&plan).and_then(|pod| pod.spec.clone()).expect("a Pod");
    let mounts = spec.containers[0].volume_mounts.clone().expect("mounts");
    mounts.into_iter().any(|mount| mount.name == "tree" && mount.read_only == Some(true))
}

/// Attributes of the volume with the tree in the Pod that the plan makes.
fn tree(seen: &yoipod::Observed) -> Option<(String, Option<String>)> {
    let plan = yoipod::plan(seen, &settings(), now());
    let volumes = made_pod(&plan)?.spec.as_ref()?.volumes.clone()?;
    let attributes = volumes.into_iter().find(|volume| volume.name == "tree")?.csi?.volume_attributes?;
    Some((attributes[VOLUME_KIND].clone(), attributes.get(VOLUME_COVERS).cloned()))
}

/// The agent while the Pod that its plan makes waits for its volumes or runs, on a node that says this of the covers.
fn with_pod(scope: &Value, runs: bool, node: Option<(&str, &str)>) -> yoipod::Observed {
    let mut seen = scoped(scope);
    let plan = yoipod::plan(&seen, &settings(), now());
    let mut pod: Pod = made_pod(&plan).expect("a Pod").clone();
    pod.metadata.uid = Some("pod".to_owned());
    pod.metadata.resource_version = Some("1".to_owned());
    pod.spec.as_mut().expect("a spec").node_name = Some("a".to_owned());
    let state = if runs { json!({"running": {}}) } else { json!({"waiting": {"reason": "ContainerCreating"}}) };
    let container = json!({"name": "agent", "image": "", "imageID": "", "ready": runs, "restartCount": 0, "state": state});
    pod.status = Some(made(json!({"phase": if runs { "Running" } else { "Pending" }, "containerStatuses": [container]})));
    let title = pod.metadata.name.clone();
    seen.pods = vec![Arc::new(ObservedPod::from(pod))];
    change(&mut seen, |yoipod| {
        let mut status = plan.status.clone().expect("a status");
        status.pod = Some(made(json!({"name": title, "uid": "pod"})));
        let ready = json!({"podUID": "pod", "runGeneration": 2, "ready": true, "reason": "Replayed", "message": "", "scope": ""});
        status.report = runs.then(|| made(ready));
        yoipod.status = Some(status);
    });
    let said = node.map(|(status, reason)| json!([is("ScopeEnforced", status, reason, "failed to cover nowhere")])).unwrap_or(json!([]));
    let workspace = Arc::make_mut(seen.workspace.as_mut().expect("a tree"));
    workspace.status = Some(made(json!({"nodeName": "a", "conditions": said})));
    seen
}

fn conditions(seen: &yoipod::Observed) -> Vec<Condition> {
    status(yoipod::plan(seen, &settings(), now())).conditions
}

fn status_and_reason(all: &[Condition], type_: &str) -> Option<(String, String)> {
    all.iter().find(|c| c.type_ == type_).map(|c| (format!("{:?}", c.status), c.reason.clone()))
}

#[test]
fn a_pod_asks_for_its_tree_with_the_covers_of_its_scope_and_a_kind_that_no_other_shim_mounts() {
    assert_eq!(tree(&new_agent()), Some(("tree".to_owned(), None)));
    assert_eq!(tree(&scoped(&write("."))), Some(("tree".to_owned(), None)), "it may write all");
    let covers = r#"[{"path":".","shown":"ReadOnly"},{"path":"src","shown":"Writable"}]"#;
    assert_eq!(tree(&scoped(&write("src"))), Some(("scoped-tree".to_owned(), Some(covers.to_owned()))));
    // A container runtime makes a mount writable that is asked for so, whatever the node has mounted.
    assert!(is_read_only(&scoped(&write("src"))) && !is_read_only(&new_agent()));
    let most = json!({ "allow": [{ "path": ".", "access": "Write" }], "deny": [{ "path": "src", "access": "Write" }] });
    assert!(!is_read_only(&scoped(&most)));
}

#[test]
fn a_scope_that_is_none_is_not_accepted_and_starts_nothing() {
    let seen = scoped(&write("a/../b"));
    assert_eq!(tree(&seen), None);
    let accepted = condition(&conditions(&seen), "Accepted").clone();
    assert!(accepted.reason == "InvalidSpec" && accepted.message.starts_with("spec.scope.allow[0]: "), "{accepted:?}");
}

#[test]
fn what_the_node_says_of_the_covers_is_what_the_agent_is_enforced_by() {
    let src = write("src");
    let find = |seen: &yoipod::Observed, type_: &str| status_and_reason(&conditions(seen), type_);
    let of = |status: &str, reason: &str| Some((status.to_owned(), reason.to_owned()));
    assert_eq!(find(&with_pod(&src, true, Some(("True", "CoversLaid"))), "ScopeEnforced"), of("True", "CoversLaid"));
    assert_eq!(find(&with_pod(&src, true, None), "ScopeEnforced"), of("Unknown", "Starting"), "never True by the runtime's word alone");
    // A former Pod of the tree had a scope.
    assert_eq!(find(&with_pod(&Value::Null, true, Some(("False", "CoverRefused"))), "ScopeEnforced"), of("True", "FrameEnforced"));

    let refused = with_pod(&src, false, Some(("False", "CoverRefused")));
    assert_eq!(find(&refused, "ScopeEnforced"), of("False", "CoverRefused"));
    let ready = condition(&conditions(&refused), "Ready").clone();
    assert!(ready.reason == "CoverRefused" && ready.message.contains("failed to cover nowhere"), "{ready:?}");
    assert_eq!(find(&with_pod(&src, false, None), "ScopeEnforced"), None);
}

#[test]
fn another_scope_is_a_changed_spec_and_replaces_a_pod_that_does_not_start() {
    let mut seen = scoped(&write("src"));
    let first = yoipod::plan(&seen, &settings(), now());
    after_run(&mut seen, first);
    let current = |seen: &yoipod::Observed| status_and_reason(&conditions(seen), "ManifestCurrent").expect("a condition").1;
    assert_eq!(current(&seen), "UpToDate");
    change(&mut seen, |yoipod| yoipod.spec.desired_state = yoi_crds::pod::DesiredState::Stopped);
    set_scope(&mut seen, &write("docs"));
    assert_eq!(current(&seen), "SpecChanged");

    let deletes = |seen: &yoipod::Observed| outcome(&yoipod::plan(seen, &settings(), now()).steps, Kind::Pod).1.len();
    let mut waits = with_pod(&write("nowhere"), false, Some(("False", "CoverRefused")));
    assert_eq!(deletes(&waits), 0);
    set_scope(&mut waits, &write("src"));
    assert_eq!(deletes(&waits), 1);
    let mut runs = with_pod(&write("src"), true, Some(("True", "CoversLaid")));
    set_scope(&mut runs, &write("docs"));
    assert_eq!(deletes(&runs), 0, "a change counts from the next start");
}
