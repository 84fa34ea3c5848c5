//! Single decisions that the lives of `stable` come by too seldom.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use yoi_crds::source::Owner;
use yoi_crds::{AgentWorkspace, YoiPod, YoiProject};
use yoi_plan::nodes::{Node, Nodes};
use yoi_plan::settings::{Network, Settings};
use yoi_plan::step::{Kind, Plan, Step};
use yoi_plan::{network, project, workspace, yoipod};

fn made<T: serde::de::DeserializeOwned>(object: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(object).expect("an object of the kind"))
}

fn now() -> jiff::Timestamp {
    jiff::Timestamp::from_second(1_700_000_000).expect("a time")
}

fn settings() -> Settings {
    Settings {
        agent_image: "agent".into(),
        populator_image: "agent".into(),
        image_pull_policy: None,
        runtime_digest: None,
        default_session_class: None,
        gateway: yoi_wire::manifest::Gateway { lines: "l".into(), service: "s".into(), server_name: "s".into(), ca: "ca".into() },
        network: None,
    }
}

fn nodes(names: &[&str]) -> Arc<Nodes> {
    let offer = json!({
        "metadata": {"name": "n"}, "spec": {},
        "status": {"providers": [{"name": "Btrfs", "available": true, "reason": "here"}], "runtimeDigests": ["d"]},
    });
    let node = || Node { labels: BTreeMap::new(), offer: Some(made(offer.clone())) };
    Arc::new(Nodes(names.iter().map(|n| ((*n).to_owned(), node())).collect()))
}

fn meta(name: &str, owner: Option<(&str, &str)>) -> Value {
    let owners =
        owner.map(|(kind, uid)| json!([{"apiVersion": "yoi.dev/v1alpha1", "kind": kind, "name": uid, "uid": uid, "controller": true}]));
    json!({
        "name": name, "namespace": "ns", "uid": name, "resourceVersion": "1", "generation": 1, "ownerReferences": owners,
        "finalizers": ["yoi.dev/operator", "yoi.dev/node-data"],
    })
}

fn is_true(type_: &str) -> Value {
    json!({"type": type_, "status": "True", "reason": "Is", "message": "", "lastTransitionTime": "2023-01-01T00:00:00Z"})
}

fn tree(name: &str, spec: Value, status: Value) -> Arc<AgentWorkspace> {
    made(json!({"metadata": meta(name, None), "spec": spec, "status": status}))
}

fn seen(workspace: Arc<AgentWorkspace>) -> workspace::Observed {
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
        nodes: nodes(&["n1", "n2"]),
    }
}

fn status<S>(plan: Plan<S>) -> S {
    plan.status.expect("a status")
}

fn git_project(path: &str) -> Arc<YoiProject> {
    made(json!({
        "metadata": meta("p", None),
        "spec": {"source": {"git": {"url": "https://git.example/a"}}, "path": path, "owner": {"uid": 2000, "gid": 2000}},
    }))
}

/// The base of `project` on `node`, sealed.
fn base_on(project: &Arc<YoiProject>, node: &str) -> Arc<AgentWorkspace> {
    let lineage = workspace::base::Lineage::of_project(project);
    let Step::EnsureWorkspace(base) = lineage.ensure_on(node) else { unreachable!("it makes a workspace") };
    let mut base = *base;
    base.metadata.uid = Some(format!("base-{node}"));
    let sealed = json!({"nodeName": node, "origin": {"kind": "Empty"}, "conditions": [is_true("Provisioned"), is_true("Populated"), is_true("Sealed")]});
    base.status = Some(serde_json::from_value(sealed).expect("a status"));
    Arc::new(base)
}

#[test]
fn a_tree_that_stands_keeps_its_node_while_a_stranger_bears_its_claims_name() {
    let status_before = json!({
        "nodeName": "n1", "origin": {"kind": "Empty"}, "owner": {"uid": 7, "gid": 7}, "conditions": [is_true("Provisioned")],
    });
    let stood = tree("w", json!({"source": {"empty": {}}, "claim": true, "binding": "Immediate"}), status_before);
    let stranger = made(json!({"metadata": {"name": "w", "namespace": "ns", "uid": "other"}}));
    let said = status(workspace::plan(&workspace::Observed { claim: Some(stranger), ..seen(stood) }, &settings(), now()));
    assert_eq!(said.node_name.as_deref(), Some("n1"), "another node would make another tree");
    assert!(said.origin.is_some());
    assert_eq!(said.owner, Some(Owner { uid: 7, gid: 7 }));
    let ready = said.conditions.iter().find(|c| c.type_ == "Ready").expect("Ready");
    assert_eq!(ready.reason, "InvalidSpec");
}

#[test]
fn a_tree_whose_base_went_before_it_was_made_waits_for_the_next_base_on_its_node() {
    let origin = json!({"nodeName": "n2", "origin": {"kind": "Base", "workspaceUID": "gone"}});
    let waiting = tree("w", json!({"source": {"project": {"name": "p"}}, "claim": true, "binding": "Immediate"}), origin);
    let first = status(workspace::plan(
        &workspace::Observed { project: Some(git_project("/workspace")), ..seen(waiting.clone()) },
        &settings(),
        now(),
    ));
    assert_eq!((first.node_name.as_deref(), &first.origin), (Some("n2"), &None));
    let again = Arc::new(AgentWorkspace { status: Some(first), ..(*waiting).clone() });
    let project = git_project("/workspace");
    let bases = vec![base_on(&project, "n1"), base_on(&project, "n2")];
    let then = status(workspace::plan(&workspace::Observed { project: Some(project), bases, ..seen(again) }, &settings(), now()));
    assert_eq!(then.node_name.as_deref(), Some("n2"));
    assert_eq!(then.origin.and_then(|o| o.workspace_uid).as_deref(), Some("base-n2"));
}

#[test]
fn a_clone_has_the_owner_of_what_it_is_made_from() {
    let parent = tree(
        "parent",
        json!({"source": {"empty": {}}}),
        json!({"nodeName": "n1", "origin": {"kind": "Empty"}, "owner": {"uid": 2000, "gid": 2000}, "conditions": [is_true("Provisioned")]}),
    );
    let fork = tree("fork", json!({"source": {"workspace": {"name": "parent"}}}), Value::Null);
    let said = status(workspace::plan(&workspace::Observed { parent: Some(parent), ..seen(fork) }, &settings(), now()));
    assert_eq!(said.owner, Some(Owner { uid: 2000, gid: 2000 }));
    let clone = tree("clone", json!({"source": {"project": {"name": "p"}}, "owner": {"uid": 3000, "gid": 3000}}), Value::Null);
    let said =
        status(workspace::plan(&workspace::Observed { project: Some(git_project("/workspace")), ..seen(clone) }, &settings(), now()));
    assert_eq!(said.owner, Some(Owner { uid: 2000, gid: 2000 }));
}

#[test]
fn a_base_on_a_node_that_is_gone_makes_room_for_another() {
    let project = git_project("/workspace");
    let lost = base_on(&project, "gone");
    let seen = project::Observed {
        project,
        terminating: false,
        bases: vec![lost],
        origins: ["base-gone".to_owned()].into(),
        nodes: nodes(&["n1"]),
    };
    let plan = project::plan(&seen, now());
    let deleted = |s: &Step| matches!(s, Step::Delete(t) if t.kind == Kind::Workspace && t.uid == "base-gone");
    let made = |s: &Step| matches!(s, Step::EnsureWorkspace(w) if w.spec.base.as_ref().is_some_and(|b| b.node == "n1"));
    assert!(plan.steps.iter().any(deleted) && plan.steps.iter().any(made), "{:?}", plan.steps);
    assert!(status(plan).generation.is_none(), "nothing can be cloned from a node that is gone");
}

fn going(retain: &str, owners: Value) -> yoipod::Observed {
    let mut meta = meta("a", None);
    meta["deletionTimestamp"] = json!("2023-11-14T00:00:00Z");
    let yoipod: Arc<YoiPod> = made(json!({
        "metadata": meta, "spec": {"projectRef": {"name": "p"}, "agent": {"builtin": {}}, "session": {"retain": retain}},
    }));
    let claim = json!({"metadata": {
        "name": "a-session", "namespace": "ns", "uid": "c", "annotations": {"yoi.dev/yoipod-uid": "a"}, "ownerReferences": owners,
    }});
    yoipod::Observed {
        yoipod,
        terminating: false,
        project: None,
        workspace: None,
        users: Vec::new(),
        bases: Vec::new(),
        parent: None,
        pods: Vec::new(),
        session_claim: Some(made(claim)),
        session_volume: None,
        manifests: Vec::new(),
        nodes: nodes(&["n1"]),
    }
}

#[test]
fn a_session_that_is_to_stay_is_nobodys_before_its_yoipod_goes() {
    let owned = json!([{"apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPod", "name": "a", "uid": "a", "controller": true, "blockOwnerDeletion": true}]);
    let steps = yoipod::plan(&going("Retain", owned.clone()), &settings(), now()).steps;
    assert!(matches!(&steps[..], [Step::OwnClaim { owners, .. }, Step::RemoveFinalizer { .. }] if owners.is_empty()), "{steps:?}");
    let steps = yoipod::plan(&going("Delete", Value::Null), &settings(), now()).steps;
    assert!(matches!(&steps[..], [Step::OwnClaim { owners, .. }, Step::RemoveFinalizer { .. }] if owners.len() == 1), "{steps:?}");
    let steps = yoipod::plan(&going("Delete", owned), &settings(), now()).steps;
    assert!(matches!(&steps[..], [Step::RemoveFinalizer { .. }]), "{steps:?}");
}

#[test]
fn a_base_that_its_node_never_begins_is_tried_on_another() {
    let project = git_project("/workspace");
    let mut silent = (*base_on(&project, "n1")).clone();
    silent.status = None;
    let at = |seconds: i64| {
        let mut base = silent.clone();
        let made = now() - jiff::SignedDuration::from_secs(seconds);
        base.metadata.creation_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(made));
        let bases = vec![Arc::new(base)];
        let seen = project::Observed {
            project: project.clone(),
            terminating: false,
            bases,
            origins: Default::default(),
            nodes: nodes(&["n1", "n2"]),
        };
        project::plan(&seen, now())
    };
    let early = at(20);
    assert!(early.steps.is_empty() && early.requeue_after == Some(std::time::Duration::from_secs(40)), "{early:?}");
    let late = at(61).steps;
    assert!(matches!(&late[..], [Step::EnsureWorkspace(w)] if w.spec.base.as_ref().is_some_and(|b| b.node == "n2")), "{late:?}");
}

#[test]
fn what_is_said_of_a_source_never_holds_its_credentials() {
    let url = "https://bot:s3cret@git.example/a";
    let spec = json!({"source": {"git": {"url": url}}, "base": {"generation": "g", "node": "n1"}});
    let base = tree("base", spec, json!({"nodeName": "n1", "origin": {"kind": "Empty"}, "conditions": [is_true("Provisioned")]}));
    let failed = |said: &str| {
        let mut meta = meta("base-1", Some(("AgentWorkspace", "base")));
        meta["annotations"] = json!({"yoi.dev/attempt": "1"});
        let ended = json!({"exitCode": 1, "message": said, "finishedAt": "2023-11-14T22:13:20Z"});
        made(json!({
            "metadata": meta,
            "status": {"phase": "Failed", "containerStatuses": [{
                "name": "populate", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": {"terminated": ended},
            }]},
        }))
    };
    let long = format!("{} https://bot:s3cret@git.example/a {}", "x".repeat(400), "y".repeat(475));
    for said in ["", long.as_str(), "fatal: unable to access 'https://bot:s3cret@git.example/a/': 403", "bad user bot:s3cret@git.example"] {
        let seen = workspace::Observed { populators: vec![failed(said)], ..seen(base.clone()) };
        let told = serde_json::to_string(&status(workspace::plan(&seen, &settings(), now())).conditions).expect("JSON");
        assert!(told.contains("git.example") && !told.contains("s3cret"), "{told}");
    }
}

#[test]
fn a_network_policy_that_the_api_server_filled_in_is_not_applied_again() {
    let rules = json!([{"ports": [{"port": 443}], "to": []}]);
    let wanted = Network { agents: serde_json::from_value(rules).expect("rules"), ..Network::default() };
    let none: [Arc<k8s_openapi::api::networking::v1::NetworkPolicy>; 0] = [];
    let steps = network::ensure("ns", &wanted, &none);
    let made: Vec<_> = steps.into_iter().filter_map(|s| if let Step::EnsureNetworkPolicy(p) = s { Some(*p) } else { None }).collect();
    let kept: Vec<_> = made
        .iter()
        .map(|policy| {
            let mut kept = serde_json::to_value(policy).expect("JSON");
            for rule in kept["spec"]["egress"].as_array_mut().expect("egress") {
                for port in rule["ports"].as_array_mut().expect("ports") {
                    let port = port.as_object_mut().expect("a port");
                    port.entry("protocol").or_insert(json!("TCP"));
                }
                let rule = rule.as_object_mut().expect("a rule");
                rule.retain(|_, v| v != &json!([]));
            }
            made_policy(kept)
        })
        .collect();
    assert_eq!(kept.len(), 2);
    assert!(network::ensure("ns", &wanted, &kept).is_empty());
}

fn made_policy(object: Value) -> Arc<k8s_openapi::api::networking::v1::NetworkPolicy> {
    made(object)
}
