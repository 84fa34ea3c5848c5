//! Objects that another version of Yoi wrote, or somebody with bad intent.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use yoi_crds::YoiPeer;
use yoi_plan::nodes::{Node, Nodes};
use yoi_plan::step::Step;
use yoi_plan::{ObservedPod, peer, project, workspace, yoipod};

use crate::samples::{now, settings, workspace_with, yoipod_with};

fn made<T: serde::de::DeserializeOwned>(object: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(object).expect("an object of the kind"))
}

fn observed(pod: Value) -> Arc<ObservedPod> {
    Arc::new(Arc::unwrap_or_clone(made::<Pod>(pod)).into())
}

fn nodes() -> Arc<Nodes> {
    let offer = json!({"metadata": {"name": "n"}, "spec": {}, "status": {"runtimeDigests": ["d"],
        "providers": [{"name": "Btrfs", "available": true, "reason": "here"}, {"name": "Tomorrow", "available": true, "reason": "here"}]}});
    Arc::new(Nodes(BTreeMap::from([("n".to_owned(), Node { offer: Some(made(offer)), ..Node::default() })])))
}

fn meta(name: &str, more: Value) -> Value {
    let mut meta = json!({"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1", "generation": 1,
        "finalizers": ["yoi.dev/operator", "yoi.dev/node-data"]});
    meta.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
    meta
}

fn agent(meta: Value, spec: Value, status: Value, pods: Vec<Value>) -> yoipod::Observed {
    let mut whole = json!({"projectRef": {"name": "p"}, "agent": {"builtin": {}}, "model": {"provider": "OpenAI", "name": "m"}});
    whole.as_object_mut().expect("an object").extend(spec.as_object().cloned().unwrap_or_default());
    yoipod::Observed {
        project: Some(made(json!({"metadata": {"name": "p", "namespace": "ns", "uid": "p"}, "spec": {"source": {"empty": {}}}}))),
        pods: pods.into_iter().map(observed).collect(),
        ..yoipod_with(made(json!({"metadata": meta, "spec": whole, "status": status})), nodes())
    }
}

fn pod(name: &str, generation: &str) -> Value {
    let owner = json!([{"apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPod", "name": "a", "uid": "a", "controller": true}]);
    json!({"metadata": {"name": name, "namespace": "ns", "uid": name, "ownerReferences": owner,
        "annotations": {"yoi.dev/run-generation": generation}}, "spec": {"containers": []}})
}

#[test]
fn a_forged_run_generation_stays_within_bounds() {
    let gone = json!({"runGeneration": i64::MAX, "pod": {"name": "a-1", "uid": "a-1"}});
    let plan = yoipod::plan(&agent(meta("a", json!({})), json!({}), gone, Vec::new()), &settings(), now());
    assert_eq!(plan.status.expect("a status").run_generation, Some(yoi_crds::pod::MOST_RUNS));
    for forged in ["9223372036854775807", "-9223372036854775808", "nonsense"] {
        let seen = agent(meta("a", json!({})), json!({}), Value::Null, vec![pod("a-1", forged)]);
        let plan = yoipod::plan(&seen, &settings(), now());
        assert!(plan.status.expect("a status").run_generation.is_none_or(|g| (0..=yoi_crds::pod::MOST_RUNS).contains(&g)), "{forged}");
    }
}

#[test]
fn a_value_of_another_version_is_reported_and_nothing_is_made_or_deleted() {
    let assert_reported = |conditions: &[yoi_crds::Condition], type_: &str| {
        let found = conditions.iter().find(|c| c.type_ == type_).expect("the condition");
        assert_eq!(
            (found.reason.as_str(), found.message.contains("this version of Yoi does not know")),
            ("InvalidSpec", true),
            "{found:?}"
        );
    };
    for spec in
        [json!({"desiredState": "Tomorrow"}), json!({"agent": {"tomorrow": {}}}), json!({"model": {"provider": "Tomorrow", "name": "m"}})]
    {
        let plan = yoipod::plan(&agent(meta("a", json!({})), spec.clone(), Value::Null, Vec::new()), &settings(), now());
        assert!(plan.steps.is_empty(), "{spec}: {:?}", plan.steps);
        assert_reported(&plan.status.expect("a status").conditions, "Accepted");
    }
    let seen = agent(meta("a", json!({})), json!({"desiredState": "Tomorrow"}), Value::Null, vec![pod("a-1", "1")]);
    let plan = yoipod::plan(&seen, &settings(), now());
    assert_reported(&plan.status.expect("a status").conditions, "Accepted");

    for spec in [json!({"source": {"tomorrow": {}}}), json!({"source": {"empty": {}}, "provider": "Tomorrow"})] {
        let seen = project::Observed {
            warm: yoi_plan::warm::Observed::default(),
            looks: Vec::new(),
            project: made(json!({"metadata": meta("p", json!({})), "spec": spec})),
            terminating: false,
            bases: Vec::new(),
            origins: std::collections::BTreeSet::new(),
            agents: Vec::new(),
            trees: Vec::new(),
            nodes: nodes(),
            network_policies: Vec::new(),
        };
        let plan = project::plan(&seen, &settings(), now());
        assert!(plan.steps.is_empty(), "{spec}: {:?}", plan.steps);
        assert_reported(&plan.status.expect("a status").conditions, "Ready");

        let seen = workspace_with(made(json!({"metadata": meta("w", json!({})), "spec": spec})), nodes());
        let plan = workspace::plan(&seen, &settings(), now());
        assert!(plan.steps.is_empty(), "{spec}: {:?}", plan.steps);
        assert_reported(&plan.status.expect("a status").conditions, "Ready");
    }
}

#[test]
fn a_shims_finalizer_that_somebody_wrote_on_a_yoipod_is_removed() {
    let deleting = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["yoi.dev/node-data", "somebody.example/else"]});
    let plan = yoipod::plan(&agent(meta("a", deleting), json!({}), Value::Null, Vec::new()), &settings(), now());
    let left = plan.steps.iter().find_map(|s| if let Step::RemoveFinalizer { left, .. } = s { Some(left.clone()) } else { None });
    assert_eq!(left, Some(vec!["somebody.example/else".to_owned()]));
}

/// A YoiPod whose session claim is bound to a volume, which is bound to the claim of this UID.
fn with_session_volume(bound_to: &str) -> yoipod::Observed {
    let claim = json!({"metadata": {"name": "a-session", "namespace": "ns", "uid": "c", "annotations": {"yoi.dev/yoipod-uid": "a"}},
        "spec": {"volumeName": "v"}, "status": {"phase": "Bound"}});
    let volume = json!({"metadata": {"name": "v", "uid": "v"}, "spec": {"persistentVolumeReclaimPolicy": "Delete",
        "claimRef": {"namespace": "ns", "name": "a-session", "uid": bound_to}}});
    yoipod::Observed {
        session_claim: Some(made(claim)),
        session_volume: Some(made(volume)),
        ..agent(meta("a", json!({})), json!({}), json!({}), vec![])
    }
}

#[test]
fn a_volume_that_a_forged_session_claim_names_is_not_changed() {
    let retains =
        |seen: &yoipod::Observed| yoipod::plan(seen, &settings(), now()).steps.iter().any(|step| matches!(step, Step::RetainVolume { .. }));
    assert!(retains(&with_session_volume("c")), "the control: the claim's own volume");
    assert!(!retains(&with_session_volume("of-another-claim")));
}

#[test]
fn a_session_volume_that_has_seen_a_later_run_gets_a_pod_of_a_higher_run_generation() {
    let report = |pod: &str, seen: i64| {
        json!({"runGeneration": 1, "pod": {"name": "a-1", "uid": "a-1"}, "report": {"podUID": pod, "runGeneration": 1, "ready": false,
            "reason": "SessionLocked", "message": "m", "volumeRunGeneration": seen}})
    };
    let deletes = |status: Value| {
        let seen = agent(meta("a", json!({})), json!({}), status, vec![pod("a-1", "1")]);
        yoipod::plan(&seen, &settings(), now()).steps.iter().any(|step| matches!(step, Step::Delete(target) if target.uid == "a-1"))
    };
    assert!(deletes(report("a-1", 7)), "the volume refuses this Pod for ever");
    assert!(!deletes(report("a-0", 7)), "another Pod's report");
    assert!(!deletes(report("a-1", i64::MAX)), "no number is above this one");
    let next = |status: Value| {
        let gone = agent(meta("a", json!({})), json!({}), status, vec![]);
        yoipod::plan(&gone, &settings(), now()).status.expect("a status").run_generation
    };
    assert_eq!(next(report("a-1", 7)), Some(8));
    assert_eq!(next(report("a-0", 7)), Some(2));
}

#[test]
fn a_member_that_is_being_deleted_is_not_bound() {
    let member = |name: &str, more: Value| {
        Some(made(json!({"metadata": meta(name, more), "spec": {"projectRef": {"name": "p"}, "agent": {"builtin": {}}}})))
    };
    let peer: Arc<YoiPeer> = made(json!({"metadata": {"name": "a.b", "namespace": "ns", "uid": "p"}, "spec": {"members": ["a", "b"]}}));
    let plan = |b: Value| {
        let seen = peer::Observed { peer: peer.clone(), terminating: false, members: [member("a", json!({})), member("b", b)] };
        peer::plan(&seen, now()).status.expect("a status")
    };
    assert_eq!(plan(json!({})).members.len(), 2, "the control");
    let status = plan(json!({"deletionTimestamp": "2023-11-14T00:00:00Z"}));
    assert!(status.members.is_empty(), "{:?}", status.members);
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready").expect("Ready");
    assert_eq!((ready.reason.as_str(), ready.message.contains("is being deleted")), ("MemberMissing", true), "{}", ready.message);
}

#[test]
fn a20_a_relation_whose_member_was_deleted_stays_and_says_that_it_is_missing() {
    let member = |name: &str| {
        Some(made(json!({"metadata": meta(name, json!({})), "spec": {"projectRef": {"name": "p"}, "agent": {"builtin": {}}}})))
    };
    let mut peer: Arc<YoiPeer> = made(json!({"metadata": {"name": "a.b", "namespace": "ns", "uid": "p"}, "spec": {"members": ["a", "b"]}}));
    let plan =
        |peer: &Arc<YoiPeer>, b| peer::plan(&peer::Observed { peer: peer.clone(), terminating: false, members: [member("a"), b] }, now());
    Arc::make_mut(&mut peer).status = plan(&peer, member("b")).status;
    for _ in 0..2 {
        let gone = plan(&peer, None);
        assert!(gone.steps.is_empty(), "the operator never deletes it: {:?}", gone.steps);
        let status = gone.status.expect("a status");
        assert_eq!(status.members.iter().map(|member| member.uid.as_str()).collect::<Vec<_>>(), ["a", "b"], "it keeps whom it joined");
        let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready").expect("Ready");
        assert_eq!(
            (ready.status, ready.reason.as_str(), ready.message.as_str()),
            (yoi_crds::condition::ConditionStatus::False, "MemberMissing", "YoiPod b does not exist in namespace ns")
        );
        Arc::make_mut(&mut peer).status = Some(status);
    }
}

#[test]
fn a21_a_relation_never_binds_the_next_agent_of_a_members_name() {
    let member = |name: &str, uid: &str| {
        let meta = meta(name, json!({"uid": uid}));
        Some(made(json!({"metadata": meta, "spec": {"projectRef": {"name": "p"}, "agent": {"builtin": {}}}})))
    };
    let mut peer: Arc<YoiPeer> = made(json!({"metadata": {"name": "a.b", "namespace": "ns", "uid": "p"}, "spec": {"members": ["a", "b"]}}));
    let plan = |peer: &Arc<YoiPeer>, b| {
        let seen = peer::Observed { peer: peer.clone(), terminating: false, members: [member("a", "a"), member("b", b)] };
        peer::plan(&seen, now()).status.expect("a status")
    };
    Arc::make_mut(&mut peer).status = Some(plan(&peer, "b"));
    for _ in 0..2 {
        let replaced = plan(&peer, "the-next-b");
        assert_eq!(replaced.members.iter().map(|member| member.uid.as_str()).collect::<Vec<_>>(), ["a", "b"], "it keeps whom it joined");
        let ready = replaced.conditions.iter().find(|condition| condition.type_ == "Ready").expect("Ready");
        let said = (ready.status, ready.reason.as_str());
        assert_eq!(said, (yoi_crds::condition::ConditionStatus::False, "MemberReplaced"), "{}", ready.message);
        Arc::make_mut(&mut peer).status = Some(replaced);
    }
}

#[test]
fn a_base_of_another_namespace_version_or_name_is_not_a_projects_base() {
    let project: Arc<yoi_crds::YoiProject> =
        made(json!({"metadata": meta("p", json!({})), "spec": {"source": {"git": {"url": "https://git.example/a"}}}}));
    let plan = |bases: Vec<Arc<yoi_crds::AgentWorkspace>>| {
        let seen = project::Observed {
            warm: yoi_plan::warm::Observed::default(),
            looks: Vec::new(),
            project: project.clone(),
            terminating: false,
            bases,
            origins: Default::default(),
            agents: Vec::new(),
            trees: Vec::new(),
            nodes: nodes(),
            network_policies: Vec::new(),
        };
        project::plan(&seen, &settings(), now())
    };
    let step = plan(Vec::new()).steps.into_iter().next();
    let Some(Step::EnsureWorkspace(base)) = step else { panic!("the project's first base: {step:?}") };
    let is =
        |type_: &str| json!({"type": type_, "status": "True", "reason": "Is", "message": "", "lastTransitionTime": "2023-01-01T00:00:00Z"});
    let mut own = serde_json::to_value(&*base).expect("a workspace");
    own["metadata"]["uid"] = json!("base");
    own["status"] = json!({"nodeName": "n", "origin": {"kind": "Empty"}, "conditions": [is("Provisioned"), is("Populated"), is("Sealed")]});
    let is_used = |base: &Value| plan(vec![made(base.clone())]).status.expect("a status").generation.is_some();
    assert!(is_used(&own), "the control: the project's own base");
    for (field, value) in [
        ("/metadata/namespace", json!("theirs")),
        ("/metadata/name", json!("another")),
        ("/metadata/ownerReferences/0/apiVersion", json!("yoi.dev/v9")),
        ("/metadata/ownerReferences/0/kind", json!("YoiPod")),
        ("/metadata/ownerReferences/0/controller", json!(false)),
    ] {
        let mut forged = own.clone();
        *forged.pointer_mut(field).expect("a field") = value;
        assert!(!is_used(&forged), "{field}");
    }
}
