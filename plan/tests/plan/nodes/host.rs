//! A project whose source is a folder of a node.

use std::sync::Arc;

use serde_json::{Value, json};
use yoi_crds::{AgentWorkspace, WorkspaceNode, YoiPod, YoiProject};
use yoi_plan::nodes::{Node, Nodes};
use yoi_plan::step::{Kind, Step};
use yoi_plan::{project, workspace, yoipod};

use crate::nodes::{condition, is, is_true, made, meta, nodes, outcome, plain, project_with, status, stored};
use crate::samples::{now, settings, workspace_with, yoipod_with};

fn host_project(take: Option<&str>) -> Arc<YoiProject> {
    let mut host = json!({"name": "clone"});
    if let Some(take) = take {
        host["take"] = json!(take);
    }
    stored(json!({"metadata": meta("p"), "spec": {"source": {"host": host}}}))
}

/// Where the folder lies on its nodes.
const FOLDER: &str = "/home/me/clone";

/// A node that lists the folder for these namespaces.
fn listing(free: i64, namespaces: &[&str], available: bool) -> Node {
    listing_at(FOLDER, free, namespaces, available)
}

fn listing_at(path: &str, free: i64, namespaces: &[&str], available: bool) -> Node {
    let node = plain(free);
    let mut offer = WorkspaceNode::clone(node.offer.as_ref().expect("it has a shim"));
    let listed = json!([{"name": "clone", "path": path, "namespaces": namespaces, "available": available}]);
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
    Some(made(json!(crate::nodes::ago(900))))
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

/// The project, with this path in its spec.
fn shown_at(path: &str) -> Arc<YoiProject> {
    let mut project = YoiProject::clone(&host_project(None));
    project.spec.path = Some(path.to_owned());
    Arc::new(project)
}

fn path_of_base(project: &Arc<YoiProject>, all: &Arc<Nodes>) -> Option<String> {
    let steps = project::plan(&project_with(project, &[], all), &settings(), now()).steps;
    steps.into_iter().find_map(|step| if let Step::EnsureWorkspace(base) = step { Some(base.spec.path) } else { None })?
}

#[test]
fn a_folder_shows_where_it_lies_on_its_node_unless_the_project_names_another_path() {
    let all = nodes(vec![("a", listing(90, &["ns"], true))]);
    assert_eq!(path_of_base(&host_project(None), &all).as_deref(), Some(FOLDER));
    assert_eq!(path_of_base(&shown_at("/src"), &all).as_deref(), Some("/src"));

    let path = |project: &Arc<YoiProject>, bases: &[Arc<AgentWorkspace>]| {
        status(project::plan(&project_with(project, bases, &all), &settings(), now())).path
    };
    let sealed = json!([is_true("Provisioned"), is_true("Populated"), is_true("Sealed")]);
    let project = host_project(None);
    assert_eq!(path(&project, &[]), None, "no node is chosen yet");
    assert_eq!(path(&project, &[base(&project, "a", sealed.clone())]).as_deref(), Some(FOLDER));
    assert_eq!(path(&shown_at("/src"), &[]).as_deref(), Some("/src"));

    // The administrator lists it elsewhere by now: what was taken shows where it was taken, and what was not taken is made anew.
    let moved = nodes(vec![("a", listing_at("/srv/clone", 90, &["ns"], true))]);
    let gone = |conditions: Value, project: &Arc<YoiProject>| {
        let plan = project::plan(&project_with(project, &[base(project, "a", conditions)], &moved), &settings(), now());
        (outcome(&plan.steps, Kind::Workspace).1.len(), status(plan).path)
    };
    assert_eq!(gone(sealed, &project), (0, Some(FOLDER.to_owned())));
    let vanished = || json!([is("Provisioned", "False", "SourceNotFound", "as the node says")]);
    assert_eq!(gone(vanished(), &project).0, 1);
    assert_eq!(gone(vanished(), &shown_at("/src")).0, 0);
}

#[test]
fn a_folder_that_lies_where_no_tree_can_show_asks_for_a_path() {
    let at = |path: &str| nodes(vec![("a", listing_at(path, 90, &["ns"], true))]);
    for path in ["/tmp", "/etc/clone", "/home/me/my clone"] {
        let message = format!("the host source clone lies at {path} on node a, where no tree can show: set spec.path");
        assert_eq!(path_of_base(&host_project(None), &at(path)), None);
        assert_eq!(source_ready(&host_project(None), &[], &at(path)), ("InvalidSpec".to_owned(), message));
        assert_eq!(path_of_base(&shown_at("/src"), &at(path)).as_deref(), Some("/src"));
    }
    // A shim of an earlier version publishes no path.
    let (reason, message) = source_ready(&host_project(None), &[], &at(""));
    assert_eq!(reason, "NoEligibleNode");
    assert!(message.contains("node a does not say where the host source clone lies"), "{message}");
    // Another node will do.
    let both = nodes(vec![("a", listing_at("/tmp", 90, &["ns"], true)), ("b", listing(10, &["ns"], true))]);
    assert_eq!(path_of_base(&host_project(None), &both).as_deref(), Some(FOLDER));
}

#[test]
fn an_agent_sees_the_tree_where_the_folder_lies_and_starts_once_that_is_known() {
    let project = host_project(None);
    let all = nodes(vec![("a", listing(90, &["ns"], true))]);
    let sealed = || base(&project, "a", json!([is_true("Provisioned"), is_true("Populated"), is_true("Sealed")]));
    let agent: Arc<YoiPod> = stored(json!({
        "metadata": meta("x"), "status": {"runGeneration": 1},
        "spec": {"projectRef": {"name": "p"}, "agent": {"builtin": {}}, "model": {"provider": "OpenAI", "name": "m"}},
    }));
    let claim = json!({"metadata": {"name": "x-session", "namespace": "ns", "uid": "c", "annotations": {"yoi.dev/yoipod-uid": "x"}}});
    let seen = |bases: Vec<Arc<AgentWorkspace>>, workspace: Option<Arc<AgentWorkspace>>| yoipod::Observed {
        project: Some(project.clone()),
        bases,
        workspace,
        session_claim: Some(stored(claim.clone())),
        ..yoipod_with(agent.clone(), all.clone())
    };
    let made_workspace = |bases: Vec<Arc<AgentWorkspace>>| {
        let steps = yoipod::plan(&seen(bases, None), &settings(), now()).steps;
        steps.into_iter().find_map(|step| if let Step::EnsureWorkspace(made) = step { Some(*made) } else { None }).expect("a workspace")
    };
    // The folder is taken: the workspace says at once where it shows.
    assert_eq!(made_workspace(vec![sealed()]).spec.path.as_deref(), Some(FOLDER));

    // It is not taken yet: the workspace's status says it, once it is.
    let mut tree = made_workspace(Vec::new());
    assert_eq!(tree.spec.path, None);
    (tree.metadata.uid, tree.metadata.resource_version) = (Some("tree".to_owned()), Some("1".to_owned()));
    let of_tree = |bases: Vec<Arc<AgentWorkspace>>| {
        let seen = workspace::Observed { project: Some(project.clone()), bases, ..workspace_with(Arc::new(tree.clone()), all.clone()) };
        status(workspace::plan(&seen, &settings(), now()))
    };
    assert_eq!(of_tree(Vec::new()).path, None);
    let reported = of_tree(vec![sealed()]);
    assert_eq!(reported.path.as_deref(), Some(FOLDER));

    let waits = yoipod::plan(&seen(vec![sealed()], Some(Arc::new(tree.clone()))), &settings(), now());
    assert!(!waits.steps.iter().any(|step| matches!(step, Step::EnsurePod(_))), "its path is not known: {:?}", waits.steps);
    assert!(condition(&status(waits).conditions, "WorkspaceReady").message.contains("where AgentWorkspace x shows"));
    tree.status = Some(reported);
    let steps = yoipod::plan(&seen(vec![sealed()], Some(Arc::new(tree))), &settings(), now()).steps;
    let pod = steps.iter().find_map(|step| if let Step::EnsurePod(pod) = step { pod.spec.as_ref() } else { None }).expect("a Pod");
    let mounts = pod.containers[0].volume_mounts.iter().flatten();
    assert_eq!(mounts.filter(|m| m.name == "tree").map(|m| m.mount_path.as_str()).collect::<Vec<_>>(), [FOLDER]);
    let manifest = steps.iter().find_map(|step| if let Step::EnsureConfigMap(map) = step { map.data.as_ref() } else { None });
    assert!(manifest.expect("a manifest").values().any(|text| text.contains(FOLDER)), "{manifest:?}");
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
