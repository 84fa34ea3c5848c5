//! Loans: how claims go on, and when an agent that works in its parent's tree has a Pod.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use yoi_crds::workspace::{Claim, ClaimState};
use yoi_crds::{AgentWorkspace, YoiPod, YoiPodStatus};
use yoi_plan::nodes::{Node, Nodes};
use yoi_plan::step::{Kind, Plan, Step};
use yoi_plan::{ObservedPod, workspace, yoipod};

use crate::reader::{ago, made, of_agent};
use crate::samples::{now, settings, workspace_with};

/// A claim of the lead's tree, for the child `a`.
fn claim(state: &str, reserved: i64) -> Value {
    json!({"loan": "l", "lender": {"name": "lead", "uid": "lead", "podUID": "pod-lead"}, "holder": {"name": "a"}, "rules": rules(), "state": state,
        "reservedAt": ago(reserved)})
}

fn held(state: &str) -> Value {
    let mut claim = claim(state, 900);
    claim["holder"] = json!({"name": "a", "uid": "a", "podUID": "pod"});
    claim
}

fn rules() -> Value {
    json!({"allow": [{"path": "docs", "access": "Write", "recursive": true}]})
}

/// The lead's tree, whose node has covered the loan or not.
fn tree(claims: Value, covered: bool) -> Value {
    let provisioned = json!({"type": "Provisioned", "status": "True", "reason": "Is", "message": "", "lastTransitionTime": ago(900)});
    json!({
        "metadata": {"name": "lead", "namespace": "ns", "uid": "tree", "resourceVersion": "7", "finalizers": ["yoi.dev/operator", "yoi.dev/node-data"],
            "ownerReferences": [{"apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPod", "name": "lead", "uid": "lead", "controller": true}]},
        "spec": {"source": {"empty": {}}, "path": "/workspace"},
        "status": {"nodeName": "n1", "origin": {"kind": "Empty"}, "owner": {"uid": 2000, "gid": 2000}, "podUID": "pod-lead", "claims": claims,
            "loans": [{"loan": "l", "covered": covered}], "conditions": [provisioned]},
    })
}

fn lead() -> Arc<YoiPod> {
    made(json!({"metadata": {"name": "lead", "namespace": "ns", "uid": "lead", "resourceVersion": "1"},
        "spec": {"projectRef": {"name": "p"}, "agent": {"builtin": {}}}}))
}

/// The child, as its spec and status say.
fn child(spec: &Value, status: Value) -> yoipod::Observed {
    let born = json!({"name": "lead", "uid": "lead", "requestId": "r", "loan": "l", "rules": rules()});
    let mut whole = json!({"workspace": {"ref": {"name": "lead"}}, "scope": rules(), "spawnedBy": born});
    whole.as_object_mut().expect("a spec").extend(spec.as_object().cloned().unwrap_or_default());
    of_agent(whole, status)
}

/// The child's Pod; `container` is what is said of its container.
fn pod_of_child(container: Value) -> Arc<ObservedPod> {
    let mut status = json!({"name": "agent", "image": "", "imageID": "", "ready": true, "restartCount": 0});
    status.as_object_mut().expect("a status").extend(container.as_object().cloned().unwrap_or_default());
    let pod = json!({
        "metadata": {"name": "a-1", "namespace": "ns", "uid": "pod", "creationTimestamp": ago(900), "labels": {"yoi.dev/yoipod": "a", "yoi.dev/workspace": "lead"},
            "annotations": {"yoi.dev/run-generation": "1", "yoi.dev/tokens": "", "yoi.dev/rest": "", "yoi.dev/policy": ""},
            "ownerReferences": [{"apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPod", "name": "a", "uid": "a", "controller": true}]},
        "spec": {"nodeName": "n1", "containers": [], "volumes": [{"name": "tree", "csi": {"driver": "csi.yoi.dev",
            "volumeAttributes": {"yoi.dev/workspace-uid": "tree"}}}]},
        "status": {"phase": "Running", "containerStatuses": [status]},
    });
    Arc::new(Arc::unwrap_or_clone(made::<Pod>(pod)).into())
}

fn runs() -> Arc<ObservedPod> {
    pod_of_child(json!({"state": {"running": {"startedAt": ago(900)}}}))
}

fn up() -> Value {
    json!({"runGeneration": 1, "session": {"id": "s", "segment": "g"}, "pod": {"name": "a-1", "uid": "pod"}})
}

struct LoanScene {
    tree: Value,
    child: Option<Arc<YoiPod>>,
    pods: Vec<Arc<ObservedPod>>,
    not_ready: bool,
}

impl LoanScene {
    fn new(claim: Value, covered: bool) -> Self {
        LoanScene { tree: tree(json!([claim]), covered), child: None, pods: Vec::new(), not_ready: false }
    }

    fn with_child(self, spec: &Value, status: Value) -> Self {
        LoanScene { child: Some(child(spec, status).yoipod), ..self }
    }

    fn with_pod(self, pod: Arc<ObservedPod>) -> Self {
        LoanScene { pods: vec![pod], ..self }
    }

    fn plan(&self) -> Plan<yoi_crds::AgentWorkspaceStatus> {
        let nodes = Nodes([("n1".to_owned(), Node { not_ready_since: self.not_ready.then(now), ..Node::default() })].into());
        let users = [lead()].into_iter().chain(self.child.clone()).collect();
        let seen = workspace_with(made::<AgentWorkspace>(self.tree.clone()), Arc::new(nodes));
        workspace::plan(&workspace::Observed { users, agents: self.pods.clone(), ..seen }, &settings(), now())
    }

    /// The claims that the plan writes; `None`: it leaves them.
    fn written(&self) -> Option<Vec<Claim>> {
        self.plan().steps.into_iter().find_map(|step| if let Step::SetClaims { claims, .. } = step { Some(claims) } else { None })
    }

    fn next(&self) -> Option<ClaimState> {
        self.written().map(|claims| claims[0].state)
    }
}

#[test]
fn a_claim_is_active_once_its_child_is_there_and_its_node_has_the_paths_covered() {
    let nothing = json!({});
    assert_eq!(LoanScene::new(claim("Fenced", 5), true).next(), None, "the child is not made yet");
    let made = |covered| LoanScene::new(claim("Fenced", 5), covered).with_child(&nothing, json!({}));
    assert_eq!(made(false).next(), Some(ClaimState::Fenced), "the cover is gone, as after a reboot, and it has its child's UID");
    let written = made(true).written().expect("claims");
    assert_eq!((written[0].state, written[0].holder.uid.as_deref()), (ClaimState::Active, Some("a")));
    let plan = made(true).plan();
    let [Step::SetClaims { of, resource_version, .. }] = &plan.steps[..] else { panic!("{:?}", plan.steps) };
    assert!(of.uid == "tree" && resource_version == "7" && plan.status.is_none(), "by compare-and-swap");
    // Only the gateway says that the lender's runtime has nothing open there.
    assert_eq!(
        LoanScene::new(claim("Reserved", 5), true).with_child(&nothing, json!({})).written().map(|claims| claims[0].state),
        Some(ClaimState::Reserved)
    );
}

/// Its lender was stopped before the child began, so that nothing covers the paths.
#[test]
fn c15_a_loan_whose_child_is_there_and_has_not_begun_is_given_up_by_time_and_by_a_new_pod_of_the_lender() {
    let made = |age| LoanScene::new(claim("Fenced", age), false).with_child(&json!({}), json!({}));
    assert_eq!(made(60).next(), Some(ClaimState::Fenced), "it gets its child's UID");
    assert!(made(60).plan().requeue_after.is_some_and(|after| after.as_secs() <= 60));
    let late = made(121).written().expect("claims");
    assert_eq!((late[0].state, late[0].message.as_deref()), (ClaimState::Reclaiming, Some("a did not begin within 120 s")));
    let mut anew = made(5);
    anew.tree["status"]["podUID"] = json!("another");
    assert_eq!(anew.next(), Some(ClaimState::Reclaiming));
    let begun = LoanScene::new(held("Active"), false).with_child(&json!({}), up()).with_pod(runs());
    assert_eq!(begun.written(), None, "one that has begun is not judged by that");
}

#[test]
fn an_active_claim_names_the_pod_that_may_mount_the_tree() {
    let mut active = held("Active");
    active["holder"] = json!({"name": "a", "uid": "a"});
    let written = LoanScene::new(active, true).with_child(&json!({}), up()).with_pod(runs()).written().expect("claims");
    assert_eq!((written[0].state, written[0].holder.pod_uid.as_deref()), (ClaimState::Active, Some("pod")));
    assert_eq!(LoanScene::new(held("Active"), true).with_child(&json!({}), up()).with_pod(runs()).written(), None);
}

#[test]
fn c15_a_loan_whose_child_was_never_made_is_given_up_by_time_and_by_a_new_pod_of_the_lender() {
    for state in ["Reserved", "Fenced"] {
        let waits = LoanScene::new(claim(state, 60), true);
        assert_eq!(waits.next(), None, "{state}");
        assert!(waits.plan().requeue_after.is_some_and(|after| after.as_secs() <= 60), "{state}");
        let late = LoanScene::new(claim(state, 121), true).written().expect("claims");
        assert_eq!(late[0].state, ClaimState::Reclaiming, "{state}");
        assert!(late[0].message.as_deref().is_some_and(|why| why.contains("did not begin")), "{:?}", late[0].message);
        let mut restarted = LoanScene::new(claim(state, 5), true);
        restarted.tree["status"]["podUID"] = json!("pod-lead-2");
        assert_eq!(restarted.next(), Some(ClaimState::Reclaiming), "{state}");
    }
}

#[test]
fn c18_a_loan_with_a_child_outlives_a_restart_of_its_lender() {
    let mut world = LoanScene::new(held("Active"), true).with_child(&json!({}), up()).with_pod(runs());
    world.tree["status"]["podUID"] = json!("pod-lead-2");
    assert_eq!(world.next(), None);
}

#[test]
fn c20_c25_a_child_that_is_stopped_or_deleted_keeps_its_paths_until_its_pod_is_gone() {
    let stopped = json!({"desiredState": "Stopped"});
    let going = LoanScene::new(held("Active"), true).with_child(&stopped, up()).with_pod(runs());
    assert_eq!(going.next(), Some(ClaimState::Reclaiming));
    assert_eq!(LoanScene::new(held("Reclaiming"), true).with_child(&stopped, up()).with_pod(runs()).next(), None, "its Pod is there");
    let gone = LoanScene::new(held("Reclaiming"), true).with_child(&stopped, up());
    let plan = gone.plan();
    let [Step::ConfirmGone { kind: Kind::Pod, name, of, .. }, Step::SetClaims { claims, .. }] = &plan.steps[..] else {
        panic!("{:?}", plan.steps)
    };
    assert_eq!((name.as_str(), of.as_str(), claims[0].state), ("a-1", "a", ClaimState::Released), "the API server itself is asked first");
    // Of a node that does not answer nobody knows.
    assert_eq!(LoanScene { not_ready: true, ..LoanScene::new(held("Reclaiming"), true).with_child(&stopped, up()) }.next(), None);
    // An object that is gone, however that came.
    assert_eq!(LoanScene::new(held("Active"), true).next(), Some(ClaimState::Reclaiming));
}

#[test]
fn c14_what_is_back_stays_so_and_is_forgotten_without_its_lender() {
    let back = LoanScene::new(held("Released"), true).with_child(&json!({"desiredState": "Stopped"}), up());
    assert_eq!(back.written(), None, "the lender reads of it first");
    assert_eq!(
        LoanScene::new(held("Released"), true).with_child(&json!({}), up()).written(),
        None,
        "a child that is started again gets nothing"
    );
    let mut abandoned = LoanScene::new(held("Released"), true);
    abandoned.tree["status"]["claims"][0]["lender"] = json!({"name": "lead", "uid": "a former one"});
    assert_eq!(abandoned.written(), Some(Vec::new()));
    let mut deleted = LoanScene::new(held("Active"), true).with_child(&json!({}), up()).with_pod(runs());
    deleted.tree["metadata"]["deletionTimestamp"] = json!(ago(1));
    assert_eq!(deleted.next(), Some(ClaimState::Reclaiming), "a tree that is being deleted");
}

#[test]
fn c8_a_child_that_does_not_come_up_gives_back_what_it_was_lent_with_its_last_words() {
    let ended = |since: i64| {
        json!({"state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 1, "startedAt": ago(since), "finishedAt": ago(since), "message": "no such file: agent\n"}}})
    };
    let world = |container: Value, status: Value| {
        LoanScene::new(held("Active"), true).with_child(&json!({}), status).with_pod(pod_of_child(container))
    };
    let young = json!({"runGeneration": 1});
    assert_eq!(world(ended(9), young.clone()).next(), None);
    assert_eq!(world(ended(9), young.clone()).plan().requeue_after.map(|after| after.as_secs()), Some(1));
    let written = world(ended(10), young.clone()).written().expect("claims");
    assert_eq!(written[0].state, ClaimState::Reclaiming);
    assert!(
        written[0].message.as_deref().is_some_and(|why| why.ends_with("Its last words: no such file: agent")),
        "{:?}",
        written[0].message
    );
    // One that runs may not reach the gateway yet; one that was up is its parent's to judge.
    let running = |since: i64| json!({"state": {"running": {"startedAt": ago(since)}}});
    assert_eq!(world(running(30), young.clone()).next(), None);
    assert_eq!(world(running(61), young).next(), Some(ClaimState::Reclaiming));
    assert_eq!(world(ended(900), up()).next(), None);
}

#[test]
fn from_every_state_a_claim_comes_to_active_or_back_and_stays_there() {
    let running = json!({});
    for state in ["Reserved", "Fenced", "Active", "Reclaiming", "Released"] {
        for spec in [None, Some(running.clone()), Some(json!({"desiredState": "Stopped"}))] {
            // A child is made only once its claim is Fenced.
            if state == "Reserved" && spec.is_some() {
                continue;
            }
            for has_pod in [true, false] {
                let case = format!("{state}, {spec:?}, with a Pod: {has_pod}");
                let mut world = LoanScene::new(held(state), true);
                if let Some(spec) = &spec {
                    world = world.with_child(spec, up());
                }
                world.pods = has_pod.then(runs).into_iter().collect();
                let mut rounds = 0;
                while let Some(claims) = world.written() {
                    rounds += 1;
                    assert!(rounds <= 4, "{case}: {claims:?}");
                    world.tree["status"]["claims"] = serde_json::to_value(&claims).expect("JSON");
                }
                // The child's own plan deletes its Pod.
                let ends = world.tree["status"]["claims"][0]["state"].as_str().map(str::to_owned);
                let expected = match (state, &spec) {
                    ("Fenced" | "Active", Some(spec)) if *spec == running => "Active",
                    ("Released", _) => "Released",
                    _ if has_pod => "Reclaiming",
                    _ => "Released",
                };
                assert_eq!(ends.as_deref(), Some(expected), "{case}");
                world.pods.clear();
                if let Some(claims) = world.written() {
                    assert_eq!((expected, claims[0].state), ("Reclaiming", ClaimState::Released), "{case}");
                }
            }
        }
    }
}

fn plan(claim: Option<Value>, spec: &Value, status: Value, pods: Vec<Arc<ObservedPod>>) -> Plan<YoiPodStatus> {
    let seen = child(spec, status);
    let claims = json!(claim.into_iter().collect::<Vec<_>>());
    let users = vec![lead(), Arc::clone(&seen.yoipod)];
    yoipod::plan(&yoipod::Observed { workspace: Some(made(tree(claims, true))), users, pods, ..seen }, &settings(), now())
}

fn ready(plan: &Plan<YoiPodStatus>) -> (String, String) {
    let status = plan.status.as_ref().expect("a status");
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready").expect("Ready");
    (ready.reason.clone(), ready.message.clone())
}

fn makes_pod(plan: &Plan<YoiPodStatus>) -> Option<Value> {
    plan.steps.iter().find_map(|step| if let Step::EnsurePod(pod) = step { Some(serde_json::to_value(pod).expect("JSON")) } else { None })
}

fn deletes_pod(plan: &Plan<YoiPodStatus>) -> bool {
    plan.steps.iter().any(|step| matches!(step, Step::Delete(of) if of.kind == Kind::Pod))
}

#[test]
fn a_child_has_a_pod_while_its_loan_is_active_in_its_parents_tree_on_its_node() {
    let recorded = json!({"runGeneration": 1});
    for state in ["Reserved", "Fenced"] {
        let waits = plan(Some(claim(state, 5)), &json!({}), recorded.clone(), vec![]);
        assert_eq!(ready(&waits).0, "LoanPending", "{state}");
        assert!(makes_pod(&waits).is_none(), "{state}");
        assert_eq!(serde_json::to_value(waits.status.expect("a status").loan).expect("JSON"), json!({"id": "l", "state": state}));
    }
    let pod = makes_pod(&plan(Some(claim("Active", 5)), &json!({}), recorded.clone(), vec![])).expect("a Pod");
    let volume =
        pod["spec"]["volumes"].as_array().expect("volumes").iter().find(|volume| volume["name"] == "tree").expect("the tree").clone();
    let attributes = &volume["csi"]["volumeAttributes"];
    assert_eq!(attributes["yoi.dev/workspace-uid"], "tree");
    let covers: Value = serde_json::from_str(attributes["yoi.dev/covers"].as_str().expect("covers")).expect("JSON");
    assert_eq!(covers, json!([{"path": ".", "shown": "ReadOnly"}, {"path": "docs", "shown": "Writable"}]));
    assert!(attributes.get("yoi.dev/lends").is_none(), "it lends nothing on");
    let fields =
        &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"][0]["matchFields"];
    assert_eq!(fields[0]["values"], json!(["n1"]));
    // A claim that is not seen yet is waited for.
    assert_eq!(ready(&plan(None, &json!({}), recorded, vec![])).0, "LoanPending");
}

#[test]
fn a_child_whose_loan_is_over_loses_its_pod_and_never_gets_another_one() {
    let going = plan(Some(held("Reclaiming")), &json!({}), up(), vec![runs()]);
    assert!(deletes_pod(&going));
    let reclaiming = plan(Some(held("Reclaiming")), &json!({}), up(), vec![]);
    assert_eq!(ready(&reclaiming).0, "LoanReclaiming");
    let mut after = up();
    after["loan"] = json!({"id": "l", "state": "Active"});
    let forgotten = plan(None, &json!({}), after, vec![]);
    assert_eq!(ready(&forgotten).0, "LoanReturned");
    let mut over = up();
    over["loan"] = json!({"id": "l", "state": "Released", "message": "why"});
    let seen = child(&json!({}), over.clone());
    assert!(yoipod::is_stopped(&seen.yoipod) && !yoipod::may_be_woken(&seen.yoipod));
    // An older view of the tree shows it Active.
    let old = plan(Some(held("Active")), &json!({}), over, vec![]);
    let (reason, message) = ready(&old);
    assert!(reason == "LoanReturned" && message.ends_with(": why") && makes_pod(&old).is_none(), "{reason}: {message}");
}

#[test]
fn c25_the_object_of_a_child_stays_until_its_loan_is_back() {
    let deleted = |state: &str| {
        let seen = child(&json!({}), up());
        let mut object = serde_json::to_value(&*seen.yoipod).expect("JSON");
        object["metadata"]["deletionTimestamp"] = json!(ago(1));
        let seen = yoipod::Observed { yoipod: made(object), workspace: Some(made(tree(json!([held(state)]), true))), ..seen };
        yoipod::plan(&seen, &settings(), now()).steps
    };
    for state in ["Reserved", "Fenced", "Active", "Reclaiming"] {
        assert!(deleted(state).is_empty(), "{state}: {:?}", deleted(state));
    }
    assert!(deleted("Released").iter().any(|step| matches!(step, Step::RemoveFinalizer { .. })));
}

#[test]
fn only_a_built_in_agent_that_may_lend_has_its_tree_mounted_so_that_what_it_lends_can_be_closed() {
    let tree_of = |spec: &Value| {
        let seen = of_agent(spec.clone(), json!({"runGeneration": 1}));
        let pod = makes_pod(&yoipod::plan(&seen, &settings(), now())).expect("a Pod");
        let named = |list: &Value| list.as_array().expect("a list").iter().find(|of| of["name"] == "tree").expect("the tree").clone();
        (named(&pod["spec"]["volumes"])["csi"]["volumeAttributes"].clone(), named(&pod["spec"]["containers"][0]["volumeMounts"]))
    };
    let (attributes, mount) = tree_of(&json!({"delegation": {"allow": [{"path": "docs", "access": "Write"}]}}));
    let lends: Value = serde_json::from_str(attributes["yoi.dev/lends"].as_str().expect("what it may do")).expect("JSON");
    assert_eq!(
        (&lends, &mount["mountPropagation"]),
        (&json!({"allow": [{"path": ".", "access": "Write", "recursive": true}]}), &json!("HostToContainer"))
    );
    for nothing in [json!({}), json!({"delegation": {}})] {
        let (attributes, mount) = tree_of(&nothing);
        assert!(attributes.get("yoi.dev/lends").is_none() && mount.get("mountPropagation").is_none(), "{nothing}");
    }
}
