//! Which nodes an agent's Pod may go to.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use yoi_crds::{AgentWorkspace, Condition, YoiPod, YoiPodStatus};
use yoi_plan::nodes::{Node, Nodes};
use yoi_plan::step::{Kind, Plan, Step};
use yoi_plan::{ObservedPod, yoipod};

use crate::nodes::*;

/// A YoiPod of the project whose tree is not made yet. `pod` is its Pod's spec and status, `before` the reason of WorkspaceReady.
pub fn agent(bases: &[Arc<AgentWorkspace>], nodes: Arc<Nodes>, pod: Option<(Value, Value)>, before: &str) -> yoipod::Observed {
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
        if spec["containers"].is_null() {
            spec["containers"] = json!([]);
        }
        spec["volumes"] = json!([{"name": "tree", "csi": {"driver": "d", "volumeAttributes": attributes}}]);
        let metadata = json!({"name": "x-1", "namespace": "ns", "uid": "pod", "ownerReferences": owner("YoiPod", "x"),
            "labels": {"yoi.dev/yoipod": "x", "yoi.dev/role": "agent"}, "annotations": {"yoi.dev/run-generation": "1"}});
        Arc::new(ObservedPod::from(made::<Pod>(json!({"metadata": metadata, "spec": spec, "status": status}))))
    });
    let claim = json!({"metadata": {"name": "x-session", "namespace": "ns", "uid": "c", "annotations": {"yoi.dev/yoipod-uid": "x"}}});
    yoipod::Observed {
        bases: bases.to_vec(),
        project: Some(project),
        workspace: Some(stored(json!({"metadata": tree, "spec": {"source": {"project": {"name": "p"}}, "path": "/workspace"}}))),
        users: vec![yoipod.clone()],
        pods: pod.into_iter().collect(),
        session_claim: Some(stored(claim)),
        ..yoipod_with(yoipod, nodes)
    }
}

fn requirement(operator: &str, node: &str) -> Value {
    json!({"key": "metadata.name", "operator": operator, "values": [node]})
}

/// The spec of a Pod that may go only to this node.
pub fn only_on(node: &str) -> Value {
    json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchFields": [requirement("In", node)]}]}}}})
}

/// The spec of a Pod that may go to every node but this one.
pub fn not_on(node: &str) -> Value {
    json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchFields": [requirement("NotIn", node)]}]}}}})
}

pub fn bound_to(node: &str) -> Value {
    json!({"nodeName": node})
}

pub fn run(seen: &yoipod::Observed) -> Plan<YoiPodStatus> {
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
    assert_eq!(ready.reason, "Unschedulable");
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
    assert_eq!(ready.reason, "Unschedulable");
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

/// State of the agent's container as the kubelet reports it.
fn container_waits(reason: &str, message: &str) -> Value {
    json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": ago(5)}],
        "containerStatuses": [{"name": "agent", "ready": false, "restartCount": 0, "image": "i", "imageID": "",
            "state": {"waiting": {"reason": reason, "message": message}}}]})
}

/// A Pod of one container whose variables are these.
fn on_a_with(env: Value) -> Value {
    json!({"nodeName": "a", "containers": [{"name": "agent", "env": env}]})
}

/// Reasons of the Warnings that the change of the status brings, and what Ready says then.
fn warnings(seen: &yoipod::Observed) -> (Vec<String>, Condition) {
    let before = seen.yoipod.status.as_ref().map(|s| s.conditions.clone()).unwrap_or_default();
    let after = run(seen).status.expect("a status").conditions;
    let events = yoi_plan::conditions::condition_events(&before, &after);
    (events.into_iter().filter(|e| e.warning).map(|e| e.reason).collect(), condition(&after, "Ready").clone())
}

#[test]
fn an_image_that_cannot_be_pulled_is_one_warning_however_often_the_kubelet_tries() {
    let project = git_project("https://git.example/a");
    let bases = [sealed_on(&project, "a")];
    let one = || nodes(vec![("a", plain(3))]);
    let seen = |reason: &str| agent(&bases, one(), Some((on_a_with(json!([])), container_waits(reason, "no such tag"))), "Creating");
    for first in ["ErrImagePull", "ImagePullBackOff"] {
        let (events, ready) = warnings(&seen(first));
        assert_eq!((events, ready.reason.as_str()), (vec!["ImagePullFailed".to_owned()], "ImagePullFailed"));
        assert!(ready.message.contains("no such tag"), "{}", ready.message);
        let mut again = seen("ImagePullBackOff");
        let mut yoipod = (*again.yoipod).clone();
        yoipod.status.as_mut().expect("a status").conditions = run(&seen(first)).status.expect("a status").conditions;
        again.yoipod = Arc::new(yoipod);
        assert_eq!(warnings(&again).0, Vec::<String>::new());
    }
    assert_eq!(warnings(&seen("InvalidImageName")).0, ["InvalidImageName"]);
    assert_eq!(warnings(&seen("CreateContainerConfigError")).0, ["ContainerNotCreated"]);
    assert_eq!(warnings(&seen("ContainerCreating")).0, Vec::<String>::new());
}

#[test]
fn an_agent_that_no_node_can_take_is_a_warning_once_it_has_waited_for_a_while() {
    let project = git_project("https://git.example/a");
    let bases = [sealed_on(&project, "a")];
    let two = || nodes(vec![("a", plain(3)), ("b", plain(2))]);
    let free = json!({});
    // Another Pod follows that may go to more nodes.
    assert_eq!(warnings(&agent(&bases, two(), Some((only_on("a"), unschedulable(100))), "NoRoom")).1.reason, "PodPending");
    // A volume that is just being made has the scheduler say so for a moment.
    assert_eq!(warnings(&agent(&bases, two(), Some((free.clone(), unschedulable(9))), "NoRoom")).1.reason, "PodPending");
    let (events, ready) = warnings(&agent(&bases, two(), Some((free, unschedulable(10))), "NoRoom"));
    assert_eq!((events, ready.reason.as_str()), (vec!["Unschedulable".to_owned()], "Unschedulable"));

    // An agent whose tree is made already can go nowhere else.
    let mut settled = agent(&bases, two(), Some((only_on("a"), unschedulable(9))), "AllMet");
    let mut tree = (**settled.workspace.as_ref().expect("a tree")).clone();
    tree.status = Some(made(json!({"nodeName": "a", "conditions": [is_true("Provisioned"), is_true("Ready")]})));
    settled.workspace = Some(Arc::new(tree));
    let early = run(&settled);
    assert_eq!(early.requeue_after, Some(Duration::from_secs(1)));
    settled.pods = agent(&bases, two(), Some((only_on("a"), unschedulable(10))), "AllMet").pods;
    assert_eq!(warnings(&settled).0, ["Unschedulable"]);
}

#[test]
fn a_secret_or_configmap_that_a_variable_needs_is_named_while_it_is_missing() {
    let project = git_project("https://git.example/a");
    let bases = [sealed_on(&project, "a")];
    let env = json!([
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "later", "key": "token"}}},
        {"name": "COLOUR", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "colour"}}},
        {"name": "YOI_MODEL_API_KEY", "valueFrom": {"secretKeyRef": {"name": "model", "key": "apiKey"}}},
    ]);
    let seen = |message: &str| {
        let pod = (on_a_with(env.clone()), container_waits("CreateContainerConfigError", message));
        agent(&bases, nodes(vec![("a", plain(3))]), Some(pod), "AllMet")
    };
    let cases = [
        (r#"secret "later" not found"#, "SecretMissing", ["Secret later ", "variable TOKEN ", "no key token"]),
        ("couldn't find key apiKey in Secret ns/model", "SecretMissing", ["Secret model ", "the model's key ", "no key apiKey"]),
        (r#"configmap "settings" not found"#, "SourceNotFound", ["ConfigMap settings ", "variable COLOUR ", "no key colour"]),
        ("something else", "ContainerNotCreated", ["CreateContainerConfigError", "something else", "x-1"]),
    ];
    for (message, reason, words) in cases {
        let (events, ready) = warnings(&seen(message));
        assert_eq!((events, ready.reason.as_str()), (vec![reason.to_owned()], reason), "{message}");
        assert!(words.iter().all(|word| ready.message.contains(word)), "{}", ready.message);
    }
}

/// The Pod that is made for an agent with these settings, its tree being possible on nodes a and b.
fn pod_of(settings: &Value, before: &str) -> (Value, yoipod::Observed) {
    let project = git_project("https://git.example/a");
    let bases = [sealed_on(&project, "a"), sealed_on(&project, "b")];
    let northern = |free| {
        let mut node = plain(free);
        node.labels.insert("zone".to_owned(), "north".to_owned());
        node
    };
    let mut seen = agent(&bases, nodes(vec![("a", northern(3)), ("b", northern(2)), ("bare", without_shim())]), None, before);
    let mut yoipod = (*seen.yoipod).clone();
    yoipod.spec.pod = made(settings.clone());
    seen.yoipod = Arc::new(yoipod);
    let plan = run(&seen);
    let pod = plan.steps.iter().find_map(|s| if let Step::EnsurePod(p) = s { Some(p) } else { None });
    (pod.map_or(Value::Null, |pod| serde_json::to_value(pod).expect("JSON")), seen)
}

#[test]
fn an_agents_affinity_counts_beside_the_nodes_that_hold_its_tree() {
    let zone = |name: &str| json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": [name]}]});
    let hosts = json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["h"]}]});
    let anti = json!({"requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "zone"}]});
    let settings = json!({"affinity": {"podAntiAffinity": anti, "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [zone("north"), hosts]},
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 7, "preference": zone("west")}]}}});
    let with = |term: &Value, fields: Value| {
        let mut term = term.clone();
        term["matchFields"] = fields;
        term
    };
    // Kubernetes takes a node that one term allows, so each term must name the nodes.
    let (pod, _) = pod_of(&settings, "Creating");
    let terms = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    let on = |node: &str| json!([requirement("In", node)]);
    assert_eq!(terms, &json!([with(&zone("north"), on("a")), with(&zone("north"), on("b")), with(&hosts, on("a")), with(&hosts, on("b"))]));
    assert_eq!(pod["spec"]["affinity"]["podAntiAffinity"], anti);

    let (pod, seen) = pod_of(&settings, "NoRoom");
    let affinity = &pod["spec"]["affinity"]["nodeAffinity"];
    let avoids = json!([requirement("NotIn", "bare")]);
    assert_eq!(
        affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"],
        json!([with(&zone("north"), avoids.clone()), with(&hosts, avoids)])
    );
    let preferred = &affinity["preferredDuringSchedulingIgnoredDuringExecution"];
    assert_eq!((preferred[0]["weight"].clone(), &preferred[0]["preference"]), (json!(7), &zone("west")));
    assert_eq!(preferred.as_array().map(Vec::len), Some(3));

    // The user's hostname is not taken for the nodes that the operator chose: the Pod that may go everywhere stays.
    let spec = json!({"affinity": pod["spec"]["affinity"]});
    let waits = yoipod::Observed {
        pods: agent(&[], seen.nodes.clone(), Some((spec, unschedulable(1000))), "NoRoom").pods,
        yoipod: agent(&[], seen.nodes.clone(), Some((json!({}), unschedulable(1000))), "NoRoom").yoipod,
        ..seen
    };
    assert_eq!(outcome(&run(&waits).steps, Kind::Pod).1, Vec::<&str>::new());
}

#[test]
fn an_agent_of_which_nobody_says_more_has_requests_and_limits_and_what_is_said_of_a_resource_replaces_both() {
    let resources = |wanted: Value| pod_of(&json!({ "resources": wanted }), "Creating").0["spec"]["containers"][0]["resources"].clone();
    let (small, limits) =
        (json!({"cpu": "10m", "memory": "64Mi", "ephemeral-storage": "64Mi"}), json!({"memory": "4Gi", "ephemeral-storage": "20Gi"}));
    assert_eq!(resources(json!({})), json!({"requests": small, "limits": limits}));
    // A default request is never above the user's limit, nor a default limit below their request.
    let of_memory = resources(json!({"limits": {"memory": "32Mi"}}));
    assert_eq!(
        of_memory,
        json!({"requests": {"cpu": "10m", "ephemeral-storage": "64Mi"}, "limits": {"memory": "32Mi", "ephemeral-storage": "20Gi"}})
    );
    let of_cpu = resources(json!({"requests": {"cpu": "2", "memory": "16Gi"}, "limits": {"nvidia.com/gpu": "1"}}));
    assert_eq!(
        of_cpu,
        json!({"requests": {"cpu": "2", "memory": "16Gi", "ephemeral-storage": "64Mi"}, "limits": {"nvidia.com/gpu": "1", "ephemeral-storage": "20Gi"}})
    );
    let pod = pod_of(&json!({}), "Creating").0;
    let scratch: Vec<&Value> = pod["spec"]["volumes"].as_array().expect("volumes").iter().filter(|v| !v["emptyDir"].is_null()).collect();
    assert_eq!(
        scratch.iter().map(|v| (v["name"].as_str(), v["emptyDir"]["sizeLimit"].as_str())).collect::<Vec<_>>(),
        [(Some("tmp"), Some("10Gi")), (Some("home"), Some("10Gi"))]
    );
}

#[test]
fn what_the_user_says_of_the_pod_stands_in_it_and_a_change_of_it_counts() {
    let settings = json!({
        "env": [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "volumes": [{"name": "data", "emptyDir": {}}],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        "securityContext": {"supplementalGroups": [7], "seccompProfile": {"type": "Localhost", "localhostProfile": "p.json"}, "runAsUser": 1000},
    });
    let (pod, _) = pod_of(&settings, "Creating");
    let spec = &pod["spec"];
    let container = &spec["containers"][0];
    let has = |list: &Value, wanted: &Value| list.as_array().is_some_and(|list| list.contains(wanted));
    for variable in settings["env"].as_array().expect("a list") {
        assert!(has(&container["env"], variable), "{variable} is not among {}", container["env"]);
    }
    assert_eq!(spec["tolerations"], settings["tolerations"]);
    assert!(has(&spec["volumes"], &settings["volumes"][0]) && has(&container["volumeMounts"], &settings["volumeMounts"][0]), "{spec}");
    let security = &spec["securityContext"];
    assert_eq!((&security["supplementalGroups"], &security["seccompProfile"]["type"]), (&json!([7]), &json!("Localhost")));
    // What restricted and the tree ask for stays.
    assert_eq!((&security["runAsUser"], &security["runAsNonRoot"], &security["fsGroup"]), (&json!(1000), &json!(true), &json!(1000)));
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], json!(true));

    let digest = |pod: &Value| pod["metadata"]["annotations"]["yoi.dev/settings-digest"].clone();
    let mut digests = vec![digest(&pod_of(&json!({}), "Creating").0)];
    for field in ["env", "tolerations", "volumes", "securityContext"] {
        digests.push(digest(&pod_of(&json!({ field: settings[field] }), "Creating").0));
    }
    let mut distinct: Vec<String> = digests.iter().map(Value::to_string).collect();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), digests.len(), "{digests:?}");
}

#[test]
fn settings_that_cannot_be_are_refused_with_a_sentence() {
    let cases = [
        (json!({"volumeMounts": [{"name": "none", "mountPath": "/data"}]}), "names volume none, which spec.pod.volumes does not have"),
        (
            json!({"volumes": [{"name": "d", "emptyDir": {}}], "volumeMounts": [{"name": "d", "mountPath": "/workspace/x"}]}),
            "would cover the agent's tree at /workspace",
        ),
        (json!({"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "x-session"}}]}), "is the claim of this agent's session"),
        (
            json!({"volumes": [{"name": "all", "projected": {"sources": [
                {"secret": {"name": "s", "items": [{"key": "k", "path": "a/k"}]}},
                {"configMap": {"name": "m"}},
                {"downwardAPI": {"items": [{"path": "a/k", "fieldRef": {"fieldPath": "metadata.name"}}]}},
            ]}}]}),
            "two sources of volume all make the file a/k",
        ),
        (json!({"securityContext": {"runAsUser": 7}}), "agents run as the owner of their tree"),
    ];
    for (settings, words) in cases {
        let (pod, seen) = pod_of(&settings, "Creating");
        assert_eq!(pod, Value::Null, "{settings}");
        let accepted = condition(&run(&seen).status.expect("a status").conditions, "Accepted").clone();
        assert_eq!(accepted.reason, "InvalidSpec");
        assert!(accepted.message.contains(words), "{}", accepted.message);
    }
}

/// The kubelet tells of a container some tenths of a second after it has started it, and nothing but that container has the Pod's token.
#[test]
fn an_agent_is_ready_with_its_report_before_the_kubelet_says_that_it_runs_and_not_once_its_container_has_ended() {
    let ready = |phase: &str, state: Value, former: Value, report: bool| {
        let container =
            json!({"name": "agent", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state, "lastState": former});
        let pod = json!({"phase": phase, "containerStatuses": [container]});
        let mut seen = agent(&[], nodes(vec![("a", plain(1))]), Some((bound_to("a"), pod)), "Creating");
        let claim = Arc::make_mut(seen.session_claim.as_mut().expect("a claim"));
        claim.status = Some(made(json!({"phase": "Bound"})));
        let tree = Arc::make_mut(seen.workspace.as_mut().expect("a tree"));
        tree.status = Some(made(json!({"nodeName": "a", "conditions": [is("Ready", "True", "AllMet", "")]})));
        let reported = json!({"podUID": "pod", "runGeneration": 1, "ready": report, "reason": "Replayed", "message": "m"});
        Arc::make_mut(&mut seen.yoipod).status.get_or_insert_default().report = Some(made(reported));
        condition(&status(run(&seen)).conditions, "Ready").reason.clone()
    };
    let creating = || json!({"waiting": {"reason": "ContainerCreating"}});
    assert_eq!(ready("Pending", creating(), json!({}), true), "AllMet");
    assert_eq!(ready("Running", json!({"running": {}}), json!({}), true), "AllMet");
    assert_ne!(ready("Pending", creating(), json!({}), false), "AllMet", "it is not ready");
    let crashed = json!({"terminated": {"exitCode": 1, "startedAt": ago(9), "finishedAt": ago(5)}});
    assert_eq!(ready("Running", json!({"waiting": {"reason": "CrashLoopBackOff"}}), crashed.clone(), true), "PodNotRunning");
    assert_ne!(ready("Pending", creating(), crashed, true), "AllMet", "it was of a container that has ended");
    let lost = json!({"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown", "message": "could not be located"}});
    assert_ne!(ready("Pending", creating(), lost, true), "AllMet", "it was of a container that is lost");
    assert_eq!(ready("Failed", creating(), json!({}), true), "PodNotRunning");
}
