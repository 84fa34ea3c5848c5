//! Populators and claims on nodes that will not do.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use yoi_crds::workspace::Binding;
use yoi_crds::{AgentWorkspace, AgentWorkspaceStatus, Condition, YoiProject};
use yoi_plan::nodes::Nodes;
use yoi_plan::step::{Plan, Step};
use yoi_plan::tree::base_set::FOLLOWS_CONSUMER;
use yoi_plan::workspace;

use crate::nodes::*;

/// What the plan of a base says while its populator Pod has this status.
fn populating(pod: Value) -> Plan<AgentWorkspaceStatus> {
    let project = git_project("https://git.example/a");
    let base = base_on(&project, "a", 900, json!([is_true("Provisioned")]));
    let mut meta = meta("populator");
    meta["ownerReferences"] = owner("AgentWorkspace", "base-a");
    meta["annotations"] = json!({"yoi.dev/attempt": "1"});
    let seen = workspace::Observed {
        populators: vec![Arc::new(made::<Pod>(json!({"metadata": meta, "spec": {"containers": []}, "status": pod})).into())],
        ..workspace_with(base, nodes(vec![("a", plain(1)), ("b", plain(1))]))
    };
    workspace::plan(&seen, &settings(), now())
}

#[test]
fn a_populator_that_cannot_run_is_told_from_one_that_only_begins() {
    let cases = [
        (unschedulable(9), None),
        (unschedulable(10), Some("Insufficient memory")),
        (on_node(59, "populate", "ErrImagePull"), None),
        (on_node(60, "populate", "ErrImagePull"), Some("ErrImagePull: no such image")),
        (on_node(3000, "populate", "ImagePullBackOff"), Some("ImagePullBackOff")),
        (on_node(60, "populate", "CreateContainerError"), Some("CreateContainerError")),
        (on_node(60, "populate", "ContainerCreating"), Some("ContainerCreating")),
        (
            json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": ago(60)}]}),
            Some("kubelet"),
        ),
    ];
    for (pod, why) in cases {
        let plan = populating(pod.clone());
        assert_eq!(plan.requeue_after, why.is_none().then_some(Duration::from_secs(1)), "{pod}");
        let populated = condition(&status(plan).conditions, "Populated").clone();
        assert_eq!(populated.reason, if why.is_some() { "PopulatorNotRunning" } else { "Populating" }, "{pod}");
        assert!(populated.message.contains(why.unwrap_or("is being filled")), "{}", populated.message);
    }
    let running = json!({"phase": "Running", "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": ago(3000)}],
        "containerStatuses": [{"name": "populate", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": {"running": {}}}]});
    assert_eq!(condition(&status(populating(running)).conditions, "Populated").reason, "Populating", "a long clone is no failure");
}

#[test]
fn a_populator_has_requests_and_limits_and_tolerates_taints_only_where_its_consumer_is() {
    let project = git_project("https://git.example/a");
    let pod = |follows: bool| -> Pod {
        let mut base = (*base_on(&project, "a", 900, json!([is_true("Provisioned")]))).clone();
        base.metadata.annotations = follows.then(|| [(FOLLOWS_CONSUMER.to_owned(), "true".to_owned())].into());
        let seen = workspace_with(Arc::new(base), nodes(vec![("a", plain(1))]));
        let steps = workspace::plan(&seen, &settings(), now()).steps;
        steps.into_iter().find_map(|s| if let Step::EnsurePod(p) = s { Some(*p) } else { None }).expect("a populator")
    };
    let spec = pod(false).spec.expect("a spec");
    let resources = spec.containers[0].resources.clone().expect("resources");
    for given in [resources.requests, resources.limits] {
        let given = given.expect("given");
        assert!(given.contains_key("cpu") && given.contains_key("memory"), "a quota refuses the Pod: {given:?}");
    }
    assert_eq!(spec.tolerations, None);
    let tolerations = pod(true).spec.and_then(|spec| spec.tolerations).expect("tolerations");
    assert!(
        matches!(&tolerations[..], [t] if t.operator.as_deref() == Some("Exists") && t.key.is_none() && t.effect.is_none()),
        "{tolerations:?}"
    );
}

#[test]
fn a_fork_keeps_the_commit_of_its_parents_base_from_its_birth_on() {
    let revision = "ba".repeat(20);
    let origin_of = |parent_origin: Value, own: Value| {
        let parent = json!({"metadata": meta("parent"), "spec": {"source": {"project": {"name": "p"}}},
            "status": {"nodeName": "a", "origin": parent_origin, "conditions": [is_true("Provisioned")]}});
        let mut fork = meta("f");
        fork["labels"] = json!({});
        let fork: AgentWorkspace = made(json!({"metadata": fork, "spec": {"source": {"workspace": {"name": "parent"}}, "claim": true,
            "binding": "Immediate"}, "status": own}));
        let seen = workspace::Observed { parent: Some(stored(parent)), ..workspace_with(Arc::new(fork), nodes(vec![("a", plain(1))])) };
        let origin = status(workspace::plan(&seen, &settings(), now())).origin.expect("an origin");
        (origin.kind.to_string(), origin.revision)
    };
    let of_base = json!({"kind": "Base", "workspaceUID": "b", "revision": revision});
    let of_fork = json!({"kind": "Fork", "workspaceUID": "other", "revision": revision});
    let known = ("Fork".to_owned(), Some(revision));
    for parent in [of_base.clone(), of_fork] {
        assert_eq!(origin_of(parent, json!({})), known);
    }
    // An earlier version has told the node, and wrote no commit.
    let told =
        |uid: &str| json!({"nodeName": "a", "origin": {"kind": "Fork", "workspaceUID": uid}, "conditions": [is_true("Provisioned")]});
    assert_eq!(origin_of(of_base.clone(), told("parent")), known);
    assert_eq!(origin_of(of_base, told("a former one of this name")), ("Fork".to_owned(), None));
    assert_eq!(origin_of(json!({"kind": "Base", "workspaceUID": "b"}), json!({})), ("Fork".to_owned(), None));
}

#[test]
fn a_failed_populator_says_when_the_next_one_follows_and_one_that_somebody_asks_for_follows_at_once() {
    let mut project = (*git_project("https://git.example/a")).clone();
    let plan = |project: &YoiProject, asked_before: Option<&str>| {
        let base = base_on(&Arc::new(project.clone()), "a", 900, json!([is_true("Provisioned")]));
        let mut meta = meta("populator");
        meta["ownerReferences"] = owner("AgentWorkspace", "base-a");
        meta["annotations"] = json!({"yoi.dev/attempt": "5"});
        if let Some(asked) = asked_before {
            meta["annotations"]["yoi.dev/look"] = json!(asked);
        }
        let ended = json!({"terminated": {"exitCode": 1, "message": "no such host", "finishedAt": ago(10)}});
        let pod = json!({"phase": "Failed", "containerStatuses": [{"name": "populate", "image": "", "imageID": "", "ready": false,
            "restartCount": 0, "state": ended}]});
        let seen = workspace::Observed {
            project: Some(Arc::new(project.clone())),
            populators: vec![Arc::new(made::<Pod>(json!({"metadata": meta, "spec": {"containers": []}, "status": pod})).into())],
            ..workspace_with(base, nodes(vec![("a", plain(1))]))
        };
        let plan = workspace::plan(&seen, &settings(), now());
        let made = plan.steps.iter().find_map(|s| if let Step::EnsurePod(p) = s { Some((**p).clone()) } else { None });
        let requeue = plan.requeue_after;
        let populated = condition(&status(plan).conditions, "Populated").clone();
        (made, requeue, populated)
    };
    let (made_pod, requeue, populated) = plan(&project, None);
    assert!(made_pod.is_none() && requeue == Some(Duration::from_secs(150)), "{requeue:?}");
    let due = jiff::Timestamp::from_second(crate::samples::NOW + 150).expect("a time");
    assert_eq!(populated.reason, "PopulateFailed");
    let says = format!("no such host; the next attempt is at {due}, or at once with `kubectl yoi refresh p -n ns`");
    assert!(populated.message.ends_with(&says), "{}", populated.message);
    // Somebody has mended the Secret, and asks.
    project.metadata.annotations = Some([("yoi.dev/look".to_owned(), "now".to_owned())].into());
    let (made_pod, _, populated) = plan(&project, None);
    let annotations = made_pod.expect("the next Pod").metadata.annotations.expect("annotations");
    assert_eq!((annotations["yoi.dev/attempt"].as_str(), annotations["yoi.dev/look"].as_str()), ("6", "now"));
    assert_eq!(populated.reason, "Populating", "{}", populated.message);
    let (made_pod, requeue, _) = plan(&project, Some("now"));
    assert!(made_pod.is_none() && requeue == Some(Duration::from_secs(150)), "one request ends one pause");
}

#[test]
fn a_base_says_what_of_its_source_is_skipped() {
    let project: Arc<YoiProject> = stored(
        json!({"metadata": meta("p"), "spec": {"source": {"git": {"url": "https://git.example/a", "submodules": "Skip", "lfs": "Skip"}}}}),
    );
    let mut base = (*base_on(&project, "a", 900, json!([is_true("Provisioned"), is_true("Populated")]))).clone();
    base.spec.source.git = project.spec.source.git.clone();
    let plan = workspace::plan(&workspace_with(Arc::new(base), nodes(vec![("a", plain(1))])), &settings(), now());
    let populated = condition(&status(plan).conditions, "Populated").clone();
    assert_eq!(populated.message, "the source's content is in the base, without its submodules and objects of git LFS");
}

#[test]
fn a_workspace_whose_claim_would_be_named_as_that_of_a_session_is_refused_unless_it_has_it_already() {
    let accepted = |claim: Option<Value>| {
        let workspace: AgentWorkspace = made(json!({"metadata": meta("a-session"), "spec": {"source": {"empty": {}}, "claim": true}}));
        let seen = workspace::Observed { claim: claim.map(stored), ..workspace_with(Arc::new(workspace), nodes(vec![("a", plain(1))])) };
        condition(&status(workspace::plan(&seen, &settings(), now())).conditions, "Accepted").clone()
    };
    let refused = accepted(None);
    assert!(refused.reason == "InvalidSpec" && refused.message.contains("kept for the sessions of agents"), "{refused:?}");
    let own =
        json!({"metadata": {"name": "a-session", "namespace": "ns", "uid": "c", "ownerReferences": owner("AgentWorkspace", "a-session")}});
    assert_eq!(accepted(Some(own)).reason, "Valid");
}

/// A workspace with a late claim, whose scheduler chose this node and was asked so often to choose again.
fn late_claim(source: Value, selected: &str, given_back: u32, nodes: Arc<Nodes>) -> workspace::Observed {
    let workspace: AgentWorkspace = made(json!({"metadata": meta("w"), "spec": {"source": source, "claim": true}}));
    assert_eq!(workspace.spec.binding, Binding::WaitForConsumer);
    let annotations = json!({"volume.kubernetes.io/selected-node": selected, "yoi.dev/given-back": given_back.to_string()});
    let claim = json!({"name": "w", "namespace": "ns", "uid": "claim", "annotations": annotations, "ownerReferences": owner("AgentWorkspace", "w")});
    workspace::Observed { claim: Some(stored(json!({"metadata": claim}))), ..workspace_with(Arc::new(workspace), nodes) }
}

fn given_back(seen: &workspace::Observed) -> (Option<u32>, Condition) {
    let plan = workspace::plan(seen, &settings(), now());
    let times = plan
        .steps
        .iter()
        .find_map(|s| if let Step::UnselectNode { claim, times } = s { Some((claim.uid == "claim", *times)) } else { None });
    assert!(times.is_none_or(|(is_own, _)| is_own));
    (times.map(|(_, times)| times), condition(&status(plan).conditions, "Scheduled").clone())
}

#[test]
fn a_late_claim_on_a_node_that_cannot_make_the_tree_gives_the_node_back() {
    let empty = json!({"empty": {}});
    let two = || nodes(vec![("a", plain(1)), ("bare", without_shim())]);
    let (times, scheduled) = given_back(&late_claim(empty.clone(), "bare", 0, two()));
    assert_eq!((times, scheduled.reason.as_str()), (Some(1), "NoEligibleNode"));
    assert_eq!(given_back(&late_claim(empty.clone(), "bare", 3, two())).0, Some(4), "the scheduler picks among equals by chance");
    assert_eq!(given_back(&late_claim(empty.clone(), "a", 0, two())).0, None, "it can");

    // All refuse, or the Pod can go nowhere else: there is an end, and a reason.
    let cases = [
        (0, nodes(vec![("bare", without_shim()), ("a", node(1, cordoned(), None))])),
        (0, nodes(vec![("bare", without_shim()), ("a", node(1, json!({}), Some(9)))])),
        (9, two()),
    ];
    for (already, nodes) in cases {
        let (times, scheduled) = given_back(&late_claim(empty.clone(), "bare", already, nodes));
        assert_eq!((times, scheduled.reason.as_str()), (None, "NoEligibleNode"));
        assert!(scheduled.message.contains("node bare") && scheduled.message.contains("can make the tree: a"), "{}", scheduled.message);
    }
}

#[test]
fn a_late_claim_of_a_fork_gives_back_a_node_that_is_not_its_parents() {
    let parent: AgentWorkspace = made(json!({"metadata": meta("parent"), "spec": {"source": {"empty": {}}},
        "status": {"nodeName": "a", "origin": {"kind": "Empty"}, "conditions": [is_true("Provisioned")]}}));
    let two = nodes(vec![("a", plain(1)), ("b", plain(1))]);
    let seen = workspace::Observed { parent: Some(Arc::new(parent)), ..late_claim(json!({"workspace": {"name": "parent"}}), "b", 0, two) };
    let (times, scheduled) = given_back(&seen);
    assert_eq!((times, scheduled.reason.as_str()), (Some(1), "ParentOnOtherNode"));
}

#[test]
fn a_late_claim_on_a_node_whose_base_is_stuck_goes_to_one_with_a_sealed_base() {
    let project = git_project("https://git.example/a");
    let two = nodes(vec![("a", plain(1)), ("b", plain(1))]);
    let seen = |bases| workspace::Observed {
        project: Some(project.clone()),
        bases,
        ..late_claim(json!({"project": {"name": "p"}}), "a", 0, two.clone())
    };
    assert_eq!(given_back(&seen(vec![stuck_on(&project, "a"), sealed_on(&project, "b")])).0, Some(1));
    assert_eq!(given_back(&seen(vec![stuck_on(&project, "a")])).0, None, "no other node is better");
}

#[test]
fn w39_a_tree_on_a_node_that_is_not_ready_stays_and_names_the_node_and_goes_with_the_node_object() {
    let reported = |ready: Value| json!({"nodeName": "a", "origin": {"kind": "Empty"}, "conditions": [is_true("Provisioned"), ready]});
    let deleted = |ready: Value, nodes: Arc<Nodes>| {
        let mut meta = meta("w");
        meta["deletionTimestamp"] = json!(ago(90_000));
        let tree: AgentWorkspace = made(json!({"metadata": meta, "spec": {"source": {"empty": {}}}, "status": reported(ready)}));
        workspace::plan(&workspace_with(Arc::new(tree), nodes), &settings(), now())
    };
    let waits = deleted(is_true("Ready"), nodes(vec![("a", node(1, json!({}), Some(80_000)))]));
    assert_eq!(waits.steps, Vec::new());
    let ready = condition(&status(waits).conditions, "Ready").clone();
    assert_eq!(ready.reason, "NodeNotReady");
    assert!(ready.message.contains("node a"), "{}", ready.message);
    // The status says it, and with it an Event, before the finalizer goes.
    let lost = deleted(is("Ready", "False", "NodeNotReady", ""), nodes(vec![]));
    assert_eq!(lost.steps, Vec::new());
    let before: Vec<Condition> = vec![made(is("Ready", "False", "NodeNotReady", ""))];
    let after = status(lost).conditions;
    let events = yoi_plan::conditions::condition_events(&before, &after);
    assert!(events.iter().any(|e| e.warning && e.reason == "NodeLost" && e.note.contains("node a")), "{events:?}");
    let steps = deleted(is("Ready", "False", "NodeLost", ""), nodes(vec![])).steps;
    assert!(matches!(&steps[..], [Step::RemoveFinalizer { finalizer: "yoi.dev/node-data", .. }]), "{steps:?}");
}
