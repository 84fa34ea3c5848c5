//! Clusters of several nodes: which of them get bases and Pods, and what happens when one of them will not do.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{self, Pod};
use serde_json::{Value, json};
use yoi_crds::workspace::Binding;
use yoi_crds::{AgentWorkspace, AgentWorkspaceStatus, Condition, YoiPod, YoiPodStatus, YoiProject};
use yoi_plan::nodes::{Node, Nodes};
use yoi_plan::settings::Settings;
use yoi_plan::step::{Kind, Plan, Step};
use yoi_plan::tree::base_set::FOLLOWS_CONSUMER;
use yoi_plan::{ObservedPod, project, workspace, yoipod};

fn made<T: serde::de::DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).expect("an object of the kind")
}

fn stored<T: serde::de::DeserializeOwned>(object: Value) -> Arc<T> {
    Arc::new(made(object))
}

const NOW: i64 = 1_700_000_000;

fn now() -> jiff::Timestamp {
    jiff::Timestamp::from_second(NOW).expect("a time")
}

/// A time as Kubernetes writes it.
fn ago(seconds: i64) -> String {
    jiff::Timestamp::from_second(NOW - seconds).expect("a time").to_string()
}

fn settings() -> Settings {
    let gateway = yoi_wire::manifest::Gateway { lines: "l".into(), service: "s".into(), server_name: "s".into(), ca: "ca".into() };
    Settings::new("agent", gateway)
}

/// A Node as the API server has it; `spec` is the Node's. The shim offers Btrfs and this much room there.
fn node(free: i64, spec: Value, not_ready_for: Option<i64>) -> Node {
    let offer = json!({"metadata": {"name": "n"}, "spec": {}, "status": {
        "providers": [{"name": "Btrfs", "available": true, "reason": "here"}], "runtimeDigests": ["d"],
        "capacity": {"totalBytes": 1000, "freeBytes": free}}});
    let ready = match not_ready_for {
        None => json!({"type": "Ready", "status": "True", "lastTransitionTime": ago(5000)}),
        Some(seconds) => json!({"type": "Ready", "status": "Unknown", "lastTransitionTime": ago(seconds)}),
    };
    Node::new(&made::<v1::Node>(json!({"metadata": {}, "spec": spec, "status": {"conditions": [ready]}})), Some(Arc::new(made(offer))))
}

fn plain(free: i64) -> Node {
    node(free, json!({}), None)
}

fn without_shim() -> Node {
    Node { offer: None, ..plain(0) }
}

fn nodes(all: Vec<(&str, Node)>) -> Arc<Nodes> {
    Arc::new(Nodes(all.into_iter().map(|(name, node)| (name.to_owned(), node)).collect()))
}

fn owner(kind: &str, uid: &str) -> Value {
    json!([{"apiVersion": "yoi.dev/v1alpha1", "kind": kind, "name": uid, "uid": uid, "controller": true}])
}

fn meta(name: &str) -> Value {
    json!({"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1", "generation": 1,
        "creationTimestamp": ago(1000), "finalizers": ["yoi.dev/operator", "yoi.dev/node-data"]})
}

fn is(type_: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": ago(500)})
}

fn is_true(type_: &str) -> Value {
    is(type_, "True", "Is", "")
}

fn git_project(url: &str) -> Arc<YoiProject> {
    stored(json!({"metadata": meta("p"), "spec": {"source": {"git": {"url": url}}}}))
}

fn project_with(project: &Arc<YoiProject>, bases: &[Arc<AgentWorkspace>], nodes: &Arc<Nodes>) -> project::Observed {
    project::Observed {
        project: project.clone(),
        terminating: false,
        bases: bases.to_vec(),
        origins: BTreeSet::new(),
        nodes: nodes.clone(),
        network_policies: Vec::new(),
    }
}

fn status<S>(plan: Plan<S>) -> S {
    plan.status.expect("a status")
}

fn condition<'a>(all: &'a [Condition], type_: &str) -> &'a Condition {
    all.iter().find(|c| c.type_ == type_).unwrap_or_else(|| panic!("{type_} among {all:?}"))
}

/// Nodes of the bases that are made, and names of the objects of this kind that are deleted.
fn outcome(steps: &[Step], deleted: Kind) -> (Vec<&str>, Vec<&str>) {
    let base = |s: &'_ Step| matches!(s, Step::EnsureWorkspace(w) if w.spec.base.is_some());
    let made = steps.iter().filter(|s| base(s)).filter_map(|s| if let Step::EnsureWorkspace(w) = s { w.spec.base.as_ref() } else { None });
    let gone = steps.iter().filter_map(|s| if let Step::Delete(t) = s { Some(t) } else { None }).filter(|t| t.kind == deleted);
    (made.map(|b| b.node.as_str()).collect(), gone.map(|t| t.name.as_str()).collect())
}

/// The base of the project on this node, created so long ago, with these conditions.
fn base_on(project: &Arc<YoiProject>, node: &str, seconds: i64, conditions: Value) -> Arc<AgentWorkspace> {
    let seen = project_with(project, &[], &nodes(vec![(node, plain(1))]));
    let step = project::plan(&seen, &settings(), now()).steps.into_iter().next();
    let Some(Step::EnsureWorkspace(base)) = step else { panic!("the first base is made on the only node: {step:?}") };
    let mut base = *base;
    base.metadata.uid = Some(format!("base-{node}"));
    base.metadata.resource_version = Some("1".to_owned());
    base.metadata.creation_timestamp = Some(made(json!(ago(seconds))));
    base.status = Some(made(json!({"nodeName": node, "origin": {"kind": "Empty"}, "conditions": conditions})));
    Arc::new(base)
}

fn sealed_on(project: &Arc<YoiProject>, node: &str) -> Arc<AgentWorkspace> {
    base_on(project, node, 900, json!([is_true("Provisioned"), is_true("Populated"), is_true("Sealed")]))
}

fn stuck_on(project: &Arc<YoiProject>, node: &str) -> Arc<AgentWorkspace> {
    base_on(project, node, 900, json!([is_true("Provisioned"), is("Populated", "False", "PopulatorNotRunning", "no such image")]))
}

fn cordoned() -> Value {
    json!({"unschedulable": true})
}

fn tainted() -> Value {
    json!({"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]})
}

#[test]
fn the_first_base_goes_where_its_populator_can_start_though_another_node_has_more_room() {
    let project = git_project("https://git.example/a");
    let cases = [
        ("is cordoned", node(900, cordoned(), None)),
        ("has the taint gpu=yes:NoSchedule", node(900, tainted(), None)),
        ("is not ready", node(900, json!({}), Some(1))),
    ];
    for (why, roomier) in cases {
        let both = nodes(vec![("a", roomier.clone()), ("b", plain(10))]);
        let plan = project::plan(&project_with(&project, &[], &both), &settings(), now());
        assert_eq!(outcome(&plan.steps, Kind::Workspace).0, ["b"], "a {why}");
        // Nothing is left but to say why.
        let alone = nodes(vec![("a", roomier)]);
        let plan = project::plan(&project_with(&project, &[], &alone), &settings(), now());
        assert_eq!(plan.steps, Vec::new(), "a {why}");
        let ready = condition(&plan.status.expect("a status").conditions, "Ready").clone();
        assert_eq!(ready.reason, "NoEligibleNode");
        assert!(ready.message.ends_with(&format!("node a {why}")), "{}", ready.message);
    }
    let mild = json!({"taints": [{"key": "gpu", "effect": "PreferNoSchedule"}]});
    let both = nodes(vec![("a", node(900, mild, None)), ("b", plain(10))]);
    let plan = project::plan(&project_with(&project, &[], &both), &settings(), now());
    assert_eq!(outcome(&plan.steps, Kind::Workspace).0, ["a"], "a preference forbids nothing");
}

#[test]
fn the_first_base_prefers_the_nodes_that_the_projects_agents_select() {
    let mut project = (*git_project("https://git.example/a")).clone();
    project.spec.defaults = made(json!({"pod": {"nodeSelector": {"disk": "fast"}}}));
    let mut fast = plain(10);
    fast.labels.insert("disk".to_owned(), "fast".to_owned());
    let both = nodes(vec![("a", plain(900)), ("b", fast)]);
    let plan = project::plan(&project_with(&Arc::new(project), &[], &both), &settings(), now());
    assert_eq!(outcome(&plan.steps, Kind::Workspace).0, ["b"]);
}

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

fn workspace_with(workspace: Arc<AgentWorkspace>, nodes: Arc<Nodes>) -> workspace::Observed {
    workspace::Observed {
        workspace,
        terminating: false,
        project: None,
        parent: None,
        bases: Vec::new(),
        users: Vec::new(),
        agents: Vec::new(),
        populators: Vec::new(),
        claim: None,
        volume: None,
        nodes,
        network_policies: Vec::new(),
    }
}

fn unschedulable(seconds: i64) -> Value {
    json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/3 nodes are available: 3 Insufficient memory.", "lastTransitionTime": ago(seconds)}]})
}

/// A Pod that has its node for so long, and whose container waits for this reason.
fn on_node(seconds: i64, container: &str, waits: &str) -> Value {
    json!({
        "phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": ago(seconds)}],
        "containerStatuses": [{"name": container, "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": waits, "message": "no such image"}}}],
    })
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
fn a_stuck_base_gives_way_to_one_on_the_next_node_and_goes_when_that_is_sealed() {
    let project = git_project("https://git.example/a");
    let dead = |seconds| nodes(vec![("a", node(900, json!({}), Some(seconds))), ("b", plain(10)), ("c", plain(5))]);
    let alive = nodes(vec![("a", plain(900)), ("b", plain(10)), ("c", plain(5))]);
    let cloning = || base_on(&project, "a", 900, json!([is_true("Provisioned"), is("Populated", "False", "Populating", "")]));
    let plan = |bases: &[Arc<AgentWorkspace>], nodes: &Arc<Nodes>| project::plan(&project_with(&project, bases, nodes), &settings(), now());

    let early = plan(&[cloning()], &dead(59));
    assert_eq!((early.steps, early.requeue_after), (Vec::new(), Some(Duration::from_secs(1))), "a node may come back");
    for (stuck, nodes, why) in
        [(stuck_on(&project, "a"), alive.clone(), "its populator cannot run"), (cloning(), dead(60), "its node died while it cloned")]
    {
        let name = stuck.metadata.name.clone().expect("a name");
        assert_eq!(outcome(&plan(std::slice::from_ref(&stuck), &nodes).steps, Kind::Workspace), (vec!["b"], vec![]), "{why}");
        // One at a time: while the next one gets on, there is no third.
        let next = base_on(&project, "b", 5, json!([]));
        assert_eq!(plan(&[stuck.clone(), next], &nodes).steps, Vec::new(), "{why}");
        let done = plan(&[stuck.clone(), sealed_on(&project, "b")], &nodes);
        assert_eq!(outcome(&done.steps, Kind::Workspace), (vec![], vec![name.as_str()]), "{why}");
        assert_eq!(condition(&status(done).conditions, "Ready").status, yoi_crds::ConditionStatus::True);
        // A base that a tree was made from, or that a consumer waits for, stays.
        let mut used = project_with(&project, &[stuck.clone(), sealed_on(&project, "b")], &nodes);
        used.origins.insert("base-a".to_owned());
        assert_eq!(project::plan(&used, &settings(), now()).steps, Vec::new(), "{why}");
        let mut awaited = (*stuck).clone();
        awaited.metadata.annotations = Some([(FOLLOWS_CONSUMER.to_owned(), "true".to_owned())].into());
        assert_eq!(plan(&[Arc::new(awaited), sealed_on(&project, "b")], &nodes).steps, Vec::new(), "{why}");
    }
}

#[test]
fn there_are_at_most_as_many_bases_as_nodes_and_the_project_says_why_none_gets_on() {
    let project = git_project("https://git.example/a");
    let both = nodes(vec![("a", plain(900)), ("b", plain(10))]);
    let plan = project::plan(&project_with(&project, &[stuck_on(&project, "a"), stuck_on(&project, "b")], &both), &settings(), now());
    assert_eq!(plan.steps, Vec::new());
    let ready = condition(&status(plan).conditions, "Ready").clone();
    assert_eq!(ready.reason, "PopulatorNotRunning");
    assert!(ready.message.contains("node a: no such image; node b: no such image"), "{}", ready.message);
    // A node that joins is tried.
    let three = nodes(vec![("a", plain(900)), ("b", plain(10)), ("c", plain(1))]);
    let plan = project::plan(&project_with(&project, &[stuck_on(&project, "a"), stuck_on(&project, "b")], &three), &settings(), now());
    assert_eq!(outcome(&plan.steps, Kind::Workspace).0, ["c"]);
}

#[test]
fn bases_of_former_generations_go_although_the_new_one_is_not_sealed_yet() {
    let sources = ["https://git.example/1", "https://git.example/2", "https://git.example/3"].map(git_project);
    let of = |source: &Arc<YoiProject>, name: &str, seconds: i64, conditions: Value| {
        let mut base = (*base_on(source, "a", seconds, conditions)).clone();
        base.metadata.uid = Some(name.to_owned());
        Arc::new(base)
    };
    let sealed = || json!([is_true("Provisioned"), is_true("Populated"), is_true("Sealed")]);
    let bases = [
        of(&sources[0], "oldest", 900, sealed()),
        of(&sources[1], "old", 800, sealed()),
        of(&sources[2], "current", 10, json!([is_true("Provisioned")])),
        of(&git_project("https://git.example/4"), "never-sealed", 700, json!([is_true("Provisioned")])),
    ];
    let seen = |bases: &[Arc<AgentWorkspace>]| project_with(&sources[2], bases, &nodes(vec![("a", plain(1))]));
    let deleted = |seen: &project::Observed| -> Vec<String> {
        let steps = project::plan(seen, &settings(), now()).steps;
        steps.into_iter().filter_map(|s| if let Step::Delete(t) = s { Some(t.uid) } else { None }).collect()
    };
    assert_eq!(deleted(&seen(&bases)), ["oldest", "never-sealed"], "the last sealed one stays until the new one is sealed");
    let mut used = seen(&bases);
    used.origins.insert("oldest".to_owned());
    assert_eq!(deleted(&used), ["never-sealed"]);
    let mut done = bases.clone();
    done[2] = of(&sources[2], "current", 10, sealed());
    assert_eq!(deleted(&seen(&done)), ["oldest", "old", "never-sealed"]);
}

#[test]
fn the_projects_condition_says_why_its_base_was_refused() {
    let project = git_project("https://git.example/a");
    let refused = "failed to create Pod base-1: pods is forbidden: failed quota: must specify limits.memory";
    let base = base_on(&project, "a", 900, json!([is_true("Provisioned"), is("Ready", "False", "ApplyFailed", refused)]));
    let plan = project::plan(&project_with(&project, &[base], &nodes(vec![("a", plain(1))])), &settings(), now());
    let ready = condition(&status(plan).conditions, "Ready").clone();
    assert_eq!(ready.reason, "ApplyFailed");
    assert!(ready.message.contains(refused), "{}", ready.message);
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
    // The next Pod that may go anywhere avoids that node.
    let next = run(&agent(&stuck(), nodes(vec![("a", plain(1)), ("b", plain(1))]), None, "NoRoom"));
    let text = format!("{:?}", next.steps);
    assert!(text.contains(r#"operator: "NotIn", values: Some(["b"])"#), "{text}");
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
