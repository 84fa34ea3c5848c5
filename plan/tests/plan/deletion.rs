//! What is deleted while something uses it: a project with agents, the tree of an agent; and what is made anew under the same name.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use yoi_crds::{AgentWorkspace, Condition, YoiPod, YoiProject};
use yoi_plan::nodes::{Node, Nodes};
use yoi_plan::step::{Plan, Step};
use yoi_plan::{ObservedPod, project, workspace, yoipod};

use crate::samples::{now, settings, workspace_with, yoipod_with};

fn made<T: serde::de::DeserializeOwned>(object: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(object).expect("an object of the kind"))
}

fn nodes() -> Arc<Nodes> {
    let offer = json!({"metadata": {"name": "n1"}, "spec": {},
        "status": {"providers": [{"name": "Btrfs", "available": true, "reason": "here"}], "runtimeDigests": ["d"]}});
    Arc::new(Nodes([("n1".to_owned(), Node { offer: Some(made(offer)), ..Node::default() })].into()))
}

fn meta(name: &str, more: Value) -> Value {
    let mut meta = json!({"name": name, "namespace": "ns", "uid": format!("uid-{name}"), "resourceVersion": "1", "generation": 1,
        "finalizers": ["yoi.dev/operator"], "creationTimestamp": "2023-01-01T00:00:00Z"});
    meta.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
    meta
}

fn deleted() -> Value {
    json!({"deletionTimestamp": "2023-11-14T00:00:00Z"})
}

fn is_true(type_: &str) -> Value {
    json!({"type": type_, "status": "True", "reason": "Is", "message": "", "lastTransitionTime": "2023-01-01T00:00:00Z"})
}

fn a_project(url: &str, more: Value) -> Arc<YoiProject> {
    let defaults = json!({"model": {"provider": "OpenAI", "name": "of-the-project"}, "pod": {"image": "of-the-project"}});
    made(json!({"metadata": meta("p", more), "spec": {"source": {"git": {"url": url}}, "defaults": defaults},
        "status": {"conditions": [is_true("SourceReady"), is_true("Sealed"), is_true("Ready")]}}))
}

/// The tree of the agent `a`, as its node has made it.
fn tree(uid: &str, more: Value) -> Arc<AgentWorkspace> {
    let mut more = more;
    more["uid"] = json!(uid);
    more["ownerReferences"] =
        json!([{"apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPod", "name": "a", "uid": "uid-a", "controller": true}]);
    let origin = json!({"kind": "Base", "workspaceUID": "base", "source": {"git": {"url": "https://git.example/a"}}});
    made(
        json!({"metadata": meta("a", more), "spec": {"source": {"project": {"name": "p"}}, "path": "/workspace"}, "status": {"nodeName": "n1", "origin": origin,
        "owner": {"uid": 7, "gid": 7}, "conditions": [is_true("Provisioned"), is_true("Ready")]}}),
    )
}

fn agent(metadata: Value, status: Value) -> Arc<YoiPod> {
    made(json!({"metadata": meta("a", metadata), "spec": {"projectRef": {"name": "p"}, "agent": {"builtin": {}}}, "status": status}))
}

fn observed(yoipod: Arc<YoiPod>, project: Option<Arc<YoiProject>>, workspace: Option<Arc<AgentWorkspace>>) -> yoipod::Observed {
    let claim = json!({"metadata": {"name": "a-session", "namespace": "ns", "uid": "c", "annotations": {"yoi.dev/yoipod-uid": "uid-a"}},
        "status": {"phase": "Bound"}});
    yoipod::Observed { users: vec![yoipod.clone()], project, workspace, session_claim: Some(made(claim)), ..yoipod_with(yoipod, nodes()) }
}

fn pod_of(tree: &str) -> Arc<ObservedPod> {
    let owner = json!([{"apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPod", "name": "a", "uid": "uid-a", "controller": true}]);
    let metadata = json!({"annotations": {"yoi.dev/run-generation": "1"}, "ownerReferences": owner, "finalizers": []});
    let volumes = json!([{"name": "tree", "csi": {"driver": "csi.yoi.dev", "volumeAttributes": {"yoi.dev/workspace-uid": tree}}}]);
    let status = json!({"phase": "Running", "containerStatuses": [{"name": "agent", "image": "", "imageID": "", "ready": true,
        "restartCount": 0, "state": {"running": {}}}]});
    let pod: Pod = (*made::<Pod>(json!({"metadata": meta("a-1", metadata),
        "spec": {"containers": [], "nodeName": "n1", "volumes": volumes}, "status": status})))
    .clone();
    Arc::new(pod.into())
}

fn condition(conditions: &[Condition], type_: &str) -> (String, String, String) {
    let found = conditions.iter().find(|c| c.type_ == type_).unwrap_or_else(|| panic!("no {type_} in {conditions:?}"));
    (format!("{:?}", found.status), found.reason.clone(), found.message.clone())
}

fn status<S>(plan: Plan<S>) -> S {
    plan.status.expect("a status")
}

fn going(agents: Vec<Arc<YoiPod>>, trees: Vec<Arc<AgentWorkspace>>) -> project::Observed {
    project::Observed {
        warm: yoi_plan::warm::Observed::default(),
        looks: Vec::new(),
        project: a_project("https://git.example/a", deleted()),
        terminating: false,
        bases: Vec::new(),
        origins: Default::default(),
        agents,
        trees,
        nodes: nodes(),
        network_policies: Vec::new(),
    }
}

#[test]
fn a_project_that_is_deleted_stays_while_something_names_it_and_says_what() {
    let new = project::Observed { project: a_project("https://git.example/a", json!({"finalizers": []})), ..going(vec![], vec![]) };
    let steps = project::plan(&new, &settings(), now()).steps;
    assert!(matches!(&steps[..], [Step::AddFinalizers { all, .. }] if all == &["yoi.dev/operator"]), "{steps:?}");

    let other = Arc::new(AgentWorkspace {
        metadata: serde_json::from_value(meta("ci", json!({}))).expect("metadata"),
        ..(*tree("t", json!({}))).clone()
    });
    let of_agent = (agent(json!({}), Value::Null), tree("t", json!({})));
    let both = going(vec![of_agent.0.clone()], vec![of_agent.1.clone(), other.clone()]);
    let plan = project::plan(&both, &settings(), now());
    assert_eq!(plan.steps, Vec::new());
    let (is, reason, message) = condition(&status(plan).conditions, "Ready");
    assert_eq!((is.as_str(), reason.as_str()), ("False", "WaitingForAgents"));
    for words in ["YoiPod a and AgentWorkspace ci", "kubectl yoi rm a -n ns", "kubectl yoi workspace rm ci -n ns"] {
        assert!(message.contains(words), "{words}: {message}");
    }
    // The tree that its agent leaves behind for a moment, and nothing.
    assert_eq!(project::plan(&going(vec![], vec![of_agent.1.clone()]), &settings(), now()).steps, Vec::new());
    let steps = project::plan(&going(vec![], vec![]), &settings(), now()).steps;
    assert!(matches!(&steps[..], [Step::RemoveFinalizer { left, .. }] if left.is_empty()), "{steps:?}");
    // With its namespace go its agents.
    let ends = project::Observed { terminating: true, ..going(vec![of_agent.0], vec![]) };
    let plan = project::plan(&ends, &settings(), now());
    assert!(plan.steps.is_empty(), "{:?}", plan.steps);
    let (_, reason, message) = condition(&status(plan).conditions, "Ready");
    assert_eq!(reason, "NamespaceTerminating");
    assert!(message.ends_with("the project goes when YoiPod a no longer exist"), "{message}");
    let ends = project::Observed { terminating: true, ..going(vec![], vec![]) };
    assert_eq!(project::plan(&ends, &settings(), now()).steps.len(), 1);
}

#[test]
fn a_project_and_a_workspace_in_a_namespace_that_is_being_deleted_say_so_and_make_nothing() {
    let ready_now = |type_: &str| json!({"conditions": [is_true(type_)]});
    let before = |ready: bool| if ready { ready_now("Ready") } else { ready_now("Accepted") };
    for ready in [true, false] {
        let mut project = (*a_project("https://git.example/a", json!({}))).clone();
        project.status = Some(serde_json::from_value(before(ready)).expect("a status"));
        let seen = project::Observed { project: Arc::new(project), terminating: true, ..going(vec![], vec![]) };
        let plan = project::plan(&seen, &settings(), now());
        assert!(plan.steps.is_empty(), "{:?}", plan.steps);
        let (is, reason, message) = condition(&status(plan).conditions, "Ready");
        assert_eq!((is.as_str(), reason.as_str()), ("False", "NamespaceTerminating"));
        assert!(message.starts_with("namespace ns is being deleted: "), "{message}");

        let mut tree = (*tree("t", json!({}))).clone();
        tree.status = Some(serde_json::from_value(before(ready)).expect("a status"));
        let seen = workspace::Observed { terminating: true, ..workspace_with(Arc::new(tree), nodes()) };
        let plan = workspace::plan(&seen, &settings(), now());
        assert!(plan.steps.is_empty(), "{:?}", plan.steps);
        let (is, reason, _) = condition(&status(plan).conditions, "Ready");
        // Pods that have the tree go on with it.
        assert_eq!((is.as_str(), reason.as_str()), if ready { ("True", "Other") } else { ("False", "NamespaceTerminating") });
    }
}

/// The status of a stopped agent that has run once in the tree `t`.
fn has_run() -> Value {
    json!({"runGeneration": 2, "workspace": {"name": "a", "uid": "t", "nodeName": "n1"}, "manifest": {"name": "m", "digest": "d"}})
}

fn pod_made(plan: &Plan<yoi_crds::YoiPodStatus>) -> Option<&Pod> {
    plan.steps.iter().find_map(|step| if let Step::EnsurePod(pod) = step { Some(&**pod) } else { None })
}

#[test]
fn an_agent_with_its_own_tree_starts_while_its_project_goes_and_nothing_new_begins() {
    let url = "https://git.example/a";
    let starts = yoipod::plan(
        &observed(agent(json!({}), has_run()), Some(a_project(url, deleted())), Some(tree("t", json!({})))),
        &settings(),
        now(),
    );
    assert!(pod_made(&starts).is_some(), "{:?}", starts.steps);
    let new =
        yoipod::plan(&observed(agent(json!({}), json!({"runGeneration": 1})), Some(a_project(url, deleted())), None), &settings(), now());
    assert!(!new.steps.iter().any(|s| matches!(s, Step::EnsureWorkspace(_) | Step::EnsurePod(_))), "{:?}", new.steps);
    let (_, reason, message) = condition(&status(new).conditions, "Ready");
    assert!(reason == "ProjectDeleting" && message.contains("YoiProject p is being deleted"), "{reason}: {message}");
    let mut fresh = (*tree("t", json!({}))).clone();
    fresh.status = None;
    let seen = workspace::Observed { project: Some(a_project(url, deleted())), ..workspace_with(Arc::new(fresh), nodes()) };
    let first = workspace::plan(&seen, &settings(), now());
    let seen = match &first.steps[..] {
        // Its finalizers come first.
        [Step::AddFinalizers { all, .. }] => {
            let mut with = (*seen.workspace).clone();
            with.metadata.finalizers = Some(all.clone());
            workspace::Observed { workspace: Arc::new(with), ..seen }
        }
        other => panic!("{other:?}"),
    };
    let (is, reason, _) = condition(&status(workspace::plan(&seen, &settings(), now())).conditions, "Accepted");
    assert_eq!((is.as_str(), reason.as_str()), ("False", "ProjectDeleting"));
}

#[test]
fn an_agent_with_its_own_tree_starts_without_its_project_as_at_its_last_start() {
    let resolved = json!({"model": {"provider": "OpenAI", "name": "of-the-project"}, "pod": {"image": "of-the-project"}});
    let owner = json!([{"apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPod", "name": "a", "uid": "uid-a", "controller": true}]);
    let map = |annotations: Value| {
        made(json!({"metadata": meta("m", json!({"ownerReferences": owner, "annotations": annotations})), "data": {}}))
    };
    let starts = |annotations: Value, tree: Option<Arc<AgentWorkspace>>| {
        let seen = yoipod::Observed { manifests: vec![map(annotations)], ..observed(agent(json!({}), has_run()), None, tree) };
        yoipod::plan(&seen, &settings(), now())
    };
    let plan = starts(json!({"yoi.dev/resolved": resolved.to_string()}), Some(tree("t", json!({}))));
    let image = pod_made(&plan).and_then(|pod| pod.spec.as_ref()?.containers.first()?.image.clone());
    assert_eq!(image.as_deref(), Some("of-the-project"), "{:?}", plan.steps);
    let manifest = plan.steps.iter().find_map(|s| if let Step::EnsureConfigMap(map) = s { Some(map) } else { None });
    let text = manifest.and_then(|map| map.data.as_ref()?.get("manifest.json").cloned()).unwrap_or_default();
    assert!(text.contains(r#""name":"of-the-project""#), "{text}");
    assert_eq!(condition(&status(plan).conditions, "Accepted").0, "True");
    // Without what the project said, or without a tree, it needs the project.
    for plan in [starts(json!({}), Some(tree("t", json!({})))), starts(json!({"yoi.dev/resolved": resolved.to_string()}), None)] {
        assert!(pod_made(&plan).is_none());
        assert_eq!(condition(&status(plan).conditions, "Accepted").1, "SourceNotFound");
    }
}

#[test]
fn an_agent_whose_tree_was_deleted_says_so_and_begins_in_no_other_before_a_person_allows_it() {
    let here = || Some(a_project("https://git.example/a", json!({})));
    let plan = |metadata: Value, workspace: Option<Arc<AgentWorkspace>>| {
        yoipod::plan(&observed(agent(metadata, has_run()), here(), workspace), &settings(), now())
    };
    for (workspace, words) in
        [(None, "was deleted, and with it the tree"), (Some(tree("another", json!({}))), "the one of this name is another")]
    {
        let plan = plan(json!({}), workspace);
        assert!(!plan.steps.iter().any(|s| matches!(s, Step::EnsureWorkspace(_) | Step::EnsurePod(_))), "{words}: {:?}", plan.steps);
        let status = status(plan);
        let (is, reason, message) = condition(&status.conditions, "WorkspaceReady");
        assert_eq!((is.as_str(), reason.as_str()), ("False", "TreeDeleted"));
        assert!(
            message.contains(words) && message.contains("kubectl annotate yoipod a -n ns --overwrite yoi.dev/new-tree=t`"),
            "{message}"
        );
        assert_eq!(condition(&status.conditions, "Ready").1, "TreeDeleted");
        assert_eq!(status.workspace.and_then(|w| w.uid).as_deref(), Some("t"), "it is not forgotten");
    }
    let allowed = plan(json!({"annotations": {"yoi.dev/new-tree": "t"}}), None);
    assert!(allowed.steps.iter().any(|s| matches!(s, Step::EnsureWorkspace(_))), "{:?}", allowed.steps);
    let stale = plan(json!({"annotations": {"yoi.dev/new-tree": "of-an-earlier-loss"}}), None);
    assert!(!stale.steps.iter().any(|s| matches!(s, Step::EnsureWorkspace(_))), "{:?}", stale.steps);
    assert!(pod_made(&plan(json!({}), Some(tree("t", json!({}))))).is_some(), "its own tree");
    // An agent that has never run has lost nothing.
    let first = yoipod::plan(&observed(agent(json!({}), Value::Null), here(), None), &settings(), now());
    assert!(first.steps.iter().any(|s| matches!(s, Step::EnsureWorkspace(_))), "{:?}", first.steps);
}

#[test]
fn the_next_agent_of_a_name_waits_until_the_workspace_of_the_former_one_is_gone() {
    for (name, reason, words) in [("a", "Creating", "waited for"), ("b", "InvalidSpec", "belongs to YoiPod b")] {
        let mut former = tree("t", json!({}));
        let owner = json!({"apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPod", "name": name, "uid": "uid-former", "controller": true});
        Arc::make_mut(&mut former).metadata.owner_references = Some(vec![serde_json::from_value(owner).unwrap()]);
        let project = a_project("https://git.example/a", json!({}));
        let plan = yoipod::plan(&observed(agent(json!({}), Value::Null), Some(project), Some(former)), &settings(), now());
        assert!(plan.steps.iter().all(|step| !matches!(step, Step::EnsurePod(_) | Step::EnsureWorkspace(_))), "{:?}", plan.steps);
        let reported = status(plan);
        let (is, why, message) = condition(&reported.conditions, "Accepted");
        assert_eq!((is.as_str(), why.as_str()), ("False", reason));
        assert!(message.contains(words), "{message}");
    }
}

/// An agent that listens, in the tree `t`.
fn running(workspace: Arc<AgentWorkspace>, project: Option<Arc<YoiProject>>) -> yoi_crds::YoiPodStatus {
    let report = json!({"podUID": "uid-a-1", "runGeneration": 1, "ready": true, "reason": "Ready", "message": ""});
    let before = json!({"runGeneration": 1, "pod": {"name": "a-1", "uid": "uid-a-1"}, "report": report});
    let seen = yoipod::Observed { pods: vec![pod_of("t")], ..observed(agent(json!({}), before), project, Some(workspace)) };
    status(yoipod::plan(&seen, &settings(), now()))
}

#[test]
fn a_running_agent_says_what_its_deleted_workspace_waits_for_and_is_ready_only_when_all_is() {
    let url = "https://git.example/a";
    let fine = running(tree("t", json!({})), Some(a_project(url, json!({}))));
    assert_eq!(condition(&fine.conditions, "Ready").0, "True", "{:?}", fine.conditions);
    assert_eq!(fine.workspace.and_then(|w| w.uid).as_deref(), Some("t"));
    let going = running(tree("t", deleted()), Some(a_project(url, json!({}))));
    let (is, reason, message) = condition(&going.conditions, "WorkspaceReady");
    assert_eq!((is.as_str(), reason.as_str()), ("False", "WaitingForPods"));
    assert!(message.contains("destroyed when Pod a-1 ends") && message.contains("kubectl yoi patch a -n ns"), "{message}");
    let ready = condition(&going.conditions, "Ready");
    assert_eq!((ready.0.as_str(), ready.1.as_str()), ("False", "WaitingForPods"));
    // Its spec is not accepted any more: the project has no model now.
    let mut poor = (*a_project(url, json!({}))).clone();
    poor.spec.defaults = Default::default();
    let refused = running(tree("t", json!({})), Some(Arc::new(poor)));
    assert_eq!(condition(&refused.conditions, "Accepted").1, "InvalidSpec");
    let ready = condition(&refused.conditions, "Ready");
    assert_eq!((ready.0.as_str(), ready.1.as_str()), ("False", "InvalidSpec"));
    let broken = Arc::new({
        let mut broken = (*tree("t", json!({}))).clone();
        let ready = json!({"type": "Ready", "status": "False", "reason": "ReadOnlyFilesystem", "message": "m", "lastTransitionTime": "t"});
        broken.status.as_mut().expect("a status").conditions =
            serde_json::from_value(json!([is_true("Provisioned"), ready])).expect("conditions");
        broken
    });
    assert_eq!(condition(&running(broken, Some(a_project(url, json!({})))).conditions, "Ready").1, "ReadOnlyFilesystem");
}

#[test]
fn a_tree_of_another_source_than_its_project_has_now_says_so() {
    let ready_with = |project: Option<Arc<YoiProject>>| {
        let seen = workspace::Observed {
            project,
            ..workspace_with(tree("t", json!({"finalizers": ["yoi.dev/operator", "yoi.dev/node-data"]})), nodes())
        };
        condition(&status(workspace::plan(&seen, &settings(), now())).conditions, "Ready")
    };
    let again = json!({"uid": "another"});
    let (is, reason, message) = ready_with(Some(a_project("https://git.example/b", again.clone())));
    assert_eq!((is.as_str(), reason.as_str()), ("True", "FormerSource"));
    assert!(message.contains("it is of https://git.example/a, and YoiProject p is https://git.example/b now"), "{message}");
    for same in [Some(a_project("https://git.example/a", again)), None] {
        assert_eq!(ready_with(same).1, "AllMet");
    }
}
