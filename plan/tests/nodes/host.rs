//! A project whose source is a folder of a node.

use std::sync::Arc;

use serde_json::{Value, json};
use yoi_crds::{AgentWorkspace, WorkspaceNode, YoiProject};
use yoi_plan::nodes::{Node, Nodes};
use yoi_plan::step::{Kind, Step};
use yoi_plan::{project, workspace};

use crate::samples::{now, settings, workspace_with};
use crate::{condition, is, is_true, made, meta, nodes, outcome, plain, project_with, status, stored};

fn host_project(take: Option<&str>) -> Arc<YoiProject> {
    let mut host = json!({"name": "clone"});
    if let Some(take) = take {
        host["take"] = json!(take);
    }
    stored(json!({"metadata": meta("p"), "spec": {"source": {"host": host}}}))
}

/// A node that lists the folder for these namespaces.
fn listing(free: i64, namespaces: &[&str], available: bool) -> Node {
    let node = plain(free);
    let mut offer = WorkspaceNode::clone(node.offer.as_ref().expect("it has a shim"));
    let listed = json!([{"name": "clone", "namespaces": namespaces, "available": available}]);
    offer.status.as_mut().expect("a status").host_sources = made(listed);
    Node { offer: Some(Arc::new(offer)), ..node }
}

/// The base that the plan makes on the only node that lists the folder, with these conditions.
fn base(project: &Arc<YoiProject>, node: &str, conditions: Value) -> Arc<AgentWorkspace> {
    let seen = project_with(project, &[], &nodes(vec![(node, listing(1, &["ns"], true))]));
    let step = project::plan(&seen, &settings(), now()).steps.into_iter().next();
    let Some(Step::EnsureWorkspace(base)) = step else { panic!("no base: {step:?}") };
    let mut base = *base;
    base.metadata.uid = Some(format!("base-{node}"));
    base.metadata.resource_version = Some("1".to_owned());
    base.metadata.creation_timestamp = meta_time();
    base.status = Some(made(json!({"nodeName": node, "origin": {"kind": "Host"}, "conditions": conditions})));
    Arc::new(base)
}

fn meta_time() -> Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time> {
    Some(made(json!(crate::ago(900))))
}

fn source_ready(project: &Arc<YoiProject>, bases: &[Arc<AgentWorkspace>], all: &Arc<Nodes>) -> (String, String) {
    let plan = project::plan(&project_with(project, bases, all), &settings(), now());
    let status = status(plan);
    let found = condition(&status.conditions, "SourceReady");
    (found.reason.clone(), found.message.clone())
}

#[test]
fn a_folder_is_taken_where_it_is_and_no_populator_is_needed() {
    let project = host_project(None);
    let all = nodes(vec![("a", plain(90)), ("b", listing(10, &["ns"], true)), ("c", listing(50, &["other"], true))]);
    let plan = project::plan(&project_with(&project, &[], &all), &settings(), now());
    assert_eq!(outcome(&plan.steps, Kind::Workspace).0, ["b"]);

    let mut new = AgentWorkspace::clone(&base(&project, "b", json!([])));
    new.status = None;
    let scheduled = status(workspace::plan(&workspace_with(Arc::new(new), all.clone()), &settings(), now()));
    let origin = scheduled.origin.expect("it is assigned");
    assert_eq!((scheduled.node_name.as_deref(), origin.kind.to_string().as_str()), (Some("b"), "Host"));

    let taken = base(&project, "b", json!([is_true("Provisioned")]));
    let plan = workspace::plan(&workspace_with(taken, all), &settings(), now());
    assert!(!plan.steps.iter().any(|step| matches!(step, Step::EnsurePod(_))), "{:?}", plan.steps);
    assert_eq!(condition(&status(plan).conditions, "Populated").reason, "Filled");
}

#[test]
fn not_listed_and_not_for_this_namespace_are_forbidden_in_the_same_words() {
    let project = host_project(None);
    let unlisted = source_ready(&project, &[], &nodes(vec![("a", plain(1))]));
    let elsewhere = source_ready(&project, &[], &nodes(vec![("a", listing(1, &["other"], true))]));
    assert_eq!(unlisted, ("SourceForbidden".to_owned(), "no node lists a host source clone for namespace ns".to_owned()));
    assert_eq!(unlisted, elsewhere);
    let tree = stored(json!({"metadata": meta("w"), "spec": {"source": {"host": {"name": "clone"}}, "claim": true}}));
    let plan = workspace::plan(&workspace_with(tree, nodes(vec![("a", plain(1))])), &settings(), now());
    let found = status(plan);
    let accepted = condition(&found.conditions, "Accepted");
    assert_eq!((accepted.reason.as_str(), &accepted.message), ("SourceForbidden", &unlisted.1));
}

#[test]
fn what_was_taken_on_one_node_is_taken_on_no_other_and_another_take_is_another_generation() {
    let project = host_project(None);
    let both = nodes(vec![("a", listing(90, &["*"], true)), ("b", listing(10, &["*"], true))]);
    for conditions in [json!([is_true("Provisioned"), is_true("Populated"), is_true("Sealed")]), json!([])] {
        let bases = [base(&project, "b", conditions)];
        let plan = project::plan(&project_with(&project, &bases, &both), &settings(), now());
        assert_eq!(outcome(&plan.steps, Kind::Workspace), (vec![], vec![]));
    }
    let sealed = [base(&project, "b", json!([is_true("Provisioned"), is_true("Populated"), is_true("Sealed")]))];
    let plan = project::plan(&project_with(&host_project(Some("20231114T221320Z")), &sealed, &both), &settings(), now());
    assert_eq!(outcome(&plan.steps, Kind::Workspace).0, ["a"]);
}

#[test]
fn a_folder_that_is_gone_or_belongs_to_another_is_told_by_its_node() {
    let project = host_project(None);
    let all = nodes(vec![("a", listing(1, &["ns"], false))]);
    let plan = project::plan(&project_with(&project, &[], &all), &settings(), now());
    assert_eq!(outcome(&plan.steps, Kind::Workspace).0, ["a"], "the node says why");
    for reason in ["SourceNotFound", "SourceForbidden", "SourceChanging", "NestedVolume"] {
        let bases = [base(&project, "a", json!([is("Provisioned", "False", reason, "as the node says")]))];
        assert_eq!(source_ready(&project, &bases, &all), (reason.to_owned(), "node a: as the node says".to_owned()));
    }
}

#[test]
fn a_base_that_its_node_has_not_taken_gives_way_to_a_node_that_has_the_folder() {
    let project = host_project(None);
    let vanished = is("Provisioned", "False", "SourceNotFound", "as the node says");
    let steps = |conditions: Value, there: bool, here: bool| {
        let all = nodes(vec![("a", listing(90, &["*"], there)), ("b", listing(10, &["*"], here))]);
        let plan = project::plan(&project_with(&project, &[base(&project, "b", conditions)], &all), &settings(), now());
        let (made, gone) = outcome(&plan.steps, Kind::Workspace);
        (made.len(), gone.len())
    };
    // The other base is made once this one is being deleted, so no generation has two contents.
    assert_eq!(steps(json!([vanished.clone()]), true, false), (0, 1));
    assert_eq!(steps(json!([vanished.clone()]), true, true), (0, 0), "the node tries again");
    assert_eq!(steps(json!([vanished]), false, false), (0, 0), "no other would do better");
    assert_eq!(steps(json!([is_true("Provisioned")]), true, false), (0, 0), "it is taken");
}

#[test]
fn a_workspace_whose_project_names_a_folder_that_is_not_listed_says_so_whatever_node_was_chosen() {
    let tree = json!({"metadata": meta("w"), "spec": {"source": {"project": {"name": "p"}}, "claim": true}});
    let claim = json!({
        "metadata": {
            "name": "w", "namespace": "ns", "uid": "c",
            "annotations": {"volume.kubernetes.io/selected-node": "a"},
            "ownerReferences": [{"apiVersion": "yoi.dev/v1alpha1", "kind": "AgentWorkspace", "name": "w", "uid": "w", "controller": true}],
        },
    });
    let seen = workspace::Observed {
        project: Some(host_project(None)),
        claim: Some(stored(claim)),
        ..workspace_with(stored(tree), nodes(vec![("a", plain(1))]))
    };
    let found = status(workspace::plan(&seen, &settings(), now()));
    let scheduled = condition(&found.conditions, "Scheduled");
    assert_eq!(
        (scheduled.reason.as_str(), scheduled.message.as_str()),
        ("SourceForbidden", "no node lists a host source clone for namespace ns")
    );
}
