//! Which nodes an agent's Pod may go to.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use yoi_crds::{AgentWorkspace, YoiPod, YoiPodStatus};
use yoi_plan::nodes::{Node, Nodes};
use yoi_plan::step::{Kind, Plan, Step};
use yoi_plan::{ObservedPod, yoipod};

use crate::*;

/// A YoiPod of the project whose tree is not made yet. `pod` is its Pod's spec and status, `before` the reason of WorkspaceReady.
fn agent(bases: &[Arc<AgentWorkspace>], nodes: Arc<Nodes>, pod: Option<(Value, Value)>, before: &str) -> yoipod::Observed {
    let project = git_project("https://git.example/a");
    let reported = match &pod {
        Some(_) => {
            json!({"runGeneration": 1, "pod": {"name": "x-1", "uid": "pod"}, "conditions": [is("WorkspaceReady", "False", before, "")]})
        }
        None => json!({"runGeneration": 2, "conditions": [is("WorkspaceReady", "False", before, "")]}),
    };
    let yoipod: Arc<YoiPod> = stored(json!({
        "metadata": meta("x"), "status": reported,
        "spec": {"projectRef": {"name": "p"}, "agent": {"builtin": {}}, "model": {"provider": "OpenAI", "name": "m"}},
    }));
    let mut tree = meta("x");
    tree["uid"] = json!("tree");
    tree["ownerReferences"] = owner("YoiPod", "x");
    let attributes = json!({"yoi.dev/volume": "tree", yoi_wire::identity::VOLUME_WORKSPACE: "tree"});
    let pod = pod.map(|(mut spec, status)| {
        spec["containers"] = json!([]);
        spec["volumes"] = json!([{"name": "tree", "csi": {"driver": "d", "volumeAttributes": attributes}}]);
        let metadata = json!({"name": "x-1", "namespace": "ns", "uid": "pod", "ownerReferences": owner("YoiPod", "x"),
            "labels": {"yoi.dev/yoipod": "x", "yoi.dev/role": "agent"}, "annotations": {"yoi.dev/run-generation": "1"}});
        Arc::new(ObservedPod::from(made::<Pod>(json!({"metadata": metadata, "spec": spec, "status": status}))))
    });
    let claim = json!({"metadata": {"name": "x-session", "namespace": "ns", "uid": "c", "annotations": {"yoi.dev/yoipod-uid": "x"}}});
    yoipod::Observed {
        terminating: false,
        bases: bases.to_vec(),
        project: Some(project),
        workspace: Some(stored(json!({"metadata": tree, "spec": {"source": {"project": {"name": "p"}}}}))),
        users: vec![yoipod.clone()],
        yoipod,
        parent: None,
        pods: pod.into_iter().collect(),
        session_claim: Some(stored(claim)),
        session_volume: None,
        manifests: Vec::new(),
        nodes,
        network_policies: Vec::new(),
    }
}

fn requirement(operator: &str, node: &str) -> Value {
    json!({"key": "metadata.name", "operator": operator, "values": [node]})
}

/// The spec of a Pod that may go only to this node.
fn only_on(node: &str) -> Value {
    json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchFields": [requirement("In", node)]}]}}}})
}

/// The spec of a Pod that may go to every node but this one.
fn not_on(node: &str) -> Value {
    json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchFields": [requirement("NotIn", node)]}]}}}})
}

fn bound_to(node: &str) -> Value {
    json!({"nodeName": node})
}

fn run(seen: &yoipod::Observed) -> Plan<YoiPodStatus> {
    yoipod::plan(seen, &settings(), now())
}

fn workspace_ready(plan: &Plan<YoiPodStatus>) -> String {
    condition(&plan.status.as_ref().expect("a status").conditions, "WorkspaceReady").reason.clone()
}

#[test]
fn an_agent_that_fits_nowhere_waits_with_the_schedulers_words_and_spreads_nothing() {
    let project = git_project("https://git.example/a");
    let bases = [sealed_on(&project, "a")];
    let three = || nodes(vec![("a", plain(3)), ("b", plain(2)), ("bare", without_shim())]);
    let gone: (Vec<&str>, Vec<&str>) = (vec![], vec!["x-1"]);
    let nothing: (Vec<&str>, Vec<&str>) = (vec![], vec![]);

    let early = run(&agent(&bases, three(), Some((only_on("a"), unschedulable(9))), "Creating"));
    assert_eq!((outcome(&early.steps, Kind::Pod), early.requeue_after), (nothing.clone(), Some(Duration::from_secs(1))));
    // The status says it first, then the Pod goes.
    let found = run(&agent(&bases, three(), Some((only_on("a"), unschedulable(10))), "Creating"));
    assert_eq!((outcome(&found.steps, Kind::Pod), workspace_ready(&found).as_str()), (nothing.clone(), "NoRoom"));
    let recorded = run(&agent(&bases, three(), Some((only_on("a"), unschedulable(10))), "NoRoom"));
    assert_eq!((outcome(&recorded.steps, Kind::Pod), workspace_ready(&recorded).as_str()), (gone, "NoRoom"));

    // Its successor may go to every node that can make the tree, also to one that joins later, and prefers those with the base.
    let next = run(&agent(&bases, three(), None, "NoRoom"));
    assert_eq!(workspace_ready(&next), "NoRoom");
    let pod = next.steps.iter().find_map(|s| if let Step::EnsurePod(p) = s { Some(p) } else { None }).expect("a Pod");
    let affinity = serde_json::to_value(&pod.spec.as_ref().expect("a spec").affinity).expect("JSON");
    let wanted = json!({"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [requirement("NotIn", "bare")]}]},
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": {"matchFields": [requirement("In", "a")]}}],
    }});
    assert_eq!(affinity, wanted);

    // It stays: no base on another node, no other run, and the scheduler's words.
    let waits = run(&agent(&bases, three(), Some((not_on("bare"), unschedulable(100_000))), "NoRoom"));
    assert_eq!((outcome(&waits.steps, Kind::Pod), waits.requeue_after), (nothing, None));
    let ready = condition(&waits.status.as_ref().expect("a status").conditions, "Ready");
    assert_eq!(ready.reason, "PodPending");
    assert!(ready.message.contains("3 Insufficient memory"), "{}", ready.message);
}

#[test]
fn an_agent_does_not_wait_for_the_only_node_with_the_base_when_that_makes_no_trees() {
    let project = git_project("https://git.example/a");
    let seen = agent(&[sealed_on(&project, "a")], nodes(vec![("a", without_shim()), ("b", plain(1))]), None, "Creating");
    let steps = run(&seen).steps;
    let pod = steps.iter().find_map(|s| if let Step::EnsurePod(p) = s { Some(p) } else { None }).expect("a Pod");
    let affinity = serde_json::to_value(&pod.spec.as_ref().expect("a spec").affinity).expect("JSON");
    assert_eq!(affinity, only_on("b")["affinity"]);
}

#[test]
fn an_agent_that_avoids_a_node_which_can_make_the_tree_by_now_gets_another_pod() {
    let project = git_project("https://git.example/a");
    let bases = [sealed_on(&project, "a")];
    let waits =
        |seconds| agent(&bases, nodes(vec![("a", plain(1)), ("b", plain(1))]), Some((not_on("b"), unschedulable(seconds))), "NoRoom");
    assert_eq!(outcome(&run(&waits(10)).steps, Kind::Pod).1, ["x-1"]);
    assert_eq!(outcome(&run(&waits(9)).steps, Kind::Pod).1, Vec::<&str>::new());
}

#[test]
fn an_agent_on_a_node_that_cannot_make_its_tree_gets_another_pod_after_a_while() {
    let project = git_project("https://git.example/a");
    let sealed = || vec![sealed_on(&project, "a")];
    let deleted = |bases: Vec<Arc<AgentWorkspace>>, node: Node, seconds| {
        let seen = agent(
            &bases,
            nodes(vec![("a", plain(1)), ("b", node)]),
            Some((bound_to("b"), on_node(seconds, "agent", "ContainerCreating"))),
            "NoRoom",
        );
        let plan = run(&seen);
        assert_eq!(outcome(&plan.steps, Kind::Pod).0, Vec::<&str>::new());
        (outcome(&plan.steps, Kind::Pod).1.len(), plan.requeue_after.map(|d| d.as_secs()))
    };
    assert_eq!(deleted(sealed(), without_shim(), 119), (0, Some(1)), "the shim of a node that just joined comes later");
    assert_eq!(deleted(sealed(), without_shim(), 120), (1, None));
    assert_eq!(deleted(sealed(), plain(1), 5000), (0, None), "its base is being made");
    let stuck = || vec![sealed_on(&project, "a"), stuck_on(&project, "b")];
    assert_eq!(deleted(stuck(), plain(1), 5), (1, None), "the base there is stuck, and another node holds one");
    let failing = |seconds| {
        let mut base =
            (*base_on(&project, "b", seconds, json!([is_true("Provisioned"), is("Populated", "False", "PopulateFailed", "gone")]))).clone();
        base.metadata.annotations = Some([(yoi_plan::tree::base_set::FOLLOWS_CONSUMER.to_owned(), "true".to_owned())].into());
        vec![sealed_on(&project, "a"), Arc::new(base)]
    };
    assert_eq!(deleted(failing(179), plain(1), 5), (0, Some(1)), "git is tried again");
    assert_eq!(deleted(failing(180), plain(1), 5), (1, None), "the commit can be fetched there no more, and another node holds it");
    // The next Pod that may go anywhere avoids that node.
    let next = run(&agent(&stuck(), nodes(vec![("a", plain(1)), ("b", plain(1))]), None, "NoRoom"));
    let text = format!("{:?}", next.steps);
    assert!(text.contains(r#"operator: "NotIn", values: Some(["b"])"#), "{text}");
}

#[test]
fn an_agent_on_a_node_that_is_not_ready_is_not_ready_and_says_which() {
    let project = git_project("https://git.example/a");
    let bases = [sealed_on(&project, "a")];
    let ready = |not_ready_for, is_deleting: bool| {
        let mut pod = (bound_to("a"), json!({"phase": "Running", "containerStatuses": [{"name": "agent", "state": {"running": {}}}]}));
        pod.0["restartPolicy"] = json!("Always");
        let mut seen = agent(&bases, nodes(vec![("a", node(1, json!({}), not_ready_for))]), Some(pod), "AllMet");
        if is_deleting {
            let pod = Arc::make_mut(&mut seen.pods[0]);
            pod.metadata.deletion_timestamp = Some(made(json!(ago(1))));
        }
        let ready = condition(&status(run(&seen)).conditions, "Ready").clone();
        (ready.reason, ready.message)
    };
    assert_eq!(ready(None, false).0, "Starting");
    let (reason, message) = ready(Some(1), false);
    assert_eq!(reason, "NodeNotReady");
    assert!(message.contains("node a is not ready, and Pod x-1 is on it"), "{message}");
    assert_eq!(ready(None, true).0, "Stopping");
    let (reason, message) = ready(Some(400), true);
    assert_eq!(reason, "NodeNotReady");
    assert!(message.contains("when its Node is deleted"), "{message}");
}

#[test]
fn an_agent_whose_tree_is_on_a_cordoned_node_says_so() {
    let project = git_project("https://git.example/a");
    let cordoned = || node(1, json!({"unschedulable": true}), None);
    let mut seen = agent(
        &[sealed_on(&project, "a")],
        nodes(vec![("a", cordoned()), ("b", plain(9))]),
        Some((only_on("a"), unschedulable(100))),
        "AllMet",
    );
    let tree = Arc::make_mut(seen.workspace.as_mut().expect("a workspace"));
    tree.status = Some(made(json!({"nodeName": "a", "conditions": [is_true("Provisioned"), is_true("Ready")]})));
    let plan = run(&seen);
    assert_eq!(outcome(&plan.steps, Kind::Pod).1, Vec::<&str>::new(), "another tree is not its tree");
    let ready = condition(&plan.status.as_ref().expect("a status").conditions, "Ready");
    assert_eq!(ready.reason, "PodPending");
    assert!(ready.message.starts_with("the tree is on node a, and node a is cordoned. Pod x-1: "), "{}", ready.message);
    assert!(ready.message.contains("3 Insufficient memory"), "the scheduler's words: {}", ready.message);
}

/// An agent without a Pod whose session is on a volume that only these nodes reach.
fn agent_with_session_on(reaching: &[&str], bases: &[Arc<AgentWorkspace>], all: Vec<(&str, Node)>) -> yoipod::Observed {
    let all = all.into_iter().map(|(name, mut node)| {
        node.labels.insert("kubernetes.io/hostname".to_owned(), name.to_owned());
        (name, node)
    });
    let mut seen = agent(bases, nodes(all.collect()), None, "Creating");
    let claim = json!({"metadata": {"name": "x-session", "namespace": "ns", "uid": "c", "annotations": {"yoi.dev/yoipod-uid": "x"}},
        "spec": {"volumeName": "pv-1"}, "status": {"phase": "Bound"}});
    let term = json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": reaching}]});
    let volume = json!({"metadata": {"name": "pv-1", "uid": "pv"}, "spec": {
        "claimRef": {"name": "x-session", "namespace": "ns", "uid": "c"}, "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}});
    seen.session_claim = Some(stored(claim));
    seen.session_volume = Some(stored(volume));
    seen
}

#[test]
fn a_base_goes_where_the_session_volume_is_and_a_conflict_names_what_each_node_lacks() {
    let project = git_project("https://git.example/a");
    let bases = [sealed_on(&project, "a")];
    let outcome_of = |reaching: &[&str], bases: &[Arc<AgentWorkspace>], b: Node| {
        let plan = run(&agent_with_session_on(reaching, bases, vec![("a", plain(1)), ("b", b)]));
        let made: Vec<String> = outcome(&plan.steps, Kind::Pod).0.into_iter().map(str::to_owned).collect();
        let ready = condition(&plan.status.as_ref().expect("a status").conditions, "Ready").clone();
        (made, ready.reason, ready.message)
    };
    let (made, reason, message) = outcome_of(&["b"], &bases, plain(1));
    assert_eq!((made, reason.as_str()), (vec!["b".to_owned()], "Populating"), "{message}");
    assert!(message.contains("volume pv-1 of the session is used on node b, which gets the source first"), "{message}");
    // While it is made there, it is no conflict either.
    let under_way = [sealed_on(&project, "a"), base_on(&project, "b", 5, json!([]))];
    let (made, reason, _) = outcome_of(&["b"], &under_way, plain(1));
    assert_eq!((made, reason.as_str()), (vec![], "Populating"));

    let cordoned = node(1, json!({"unschedulable": true}), None);
    for (reaching, bases, b, lacks) in [
        (&["b"][..], &bases[..], cordoned, "node b is cordoned"),
        (&["b"], &bases, without_shim(), "node b offers no fitting provider"),
        (&["b"], &[sealed_on(&project, "a"), stuck_on(&project, "b")], plain(1), "node b does not get on with the source"),
        (&["gone"], &bases, plain(1), "on no node of the cluster"),
    ] {
        let (made, reason, message) = outcome_of(reaching, bases, b);
        assert_eq!((made, reason.as_str()), (vec![], "SessionTopologyConflict"), "{message}");
        assert!(message.contains(lacks), "{message}");
    }
    assert_eq!(outcome_of(&["a"], &bases, plain(1)).1, "Starting");
}
