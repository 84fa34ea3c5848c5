//! Single decisions that the generated worlds of `stable` seldom reach.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use yoi_crds::source::TreeOwner;
use yoi_crds::{AgentWorkspace, YoiPod, YoiProject};
use yoi_plan::nodes::{Node, Nodes};
use yoi_plan::settings::Network;
use yoi_plan::step::{Kind, Plan, Step};
use yoi_plan::{ObservedPod, network, project, workspace, yoipod};

use crate::samples::{now, settings, workspace_with, yoipod_with};

fn made<T: serde::de::DeserializeOwned>(object: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(object).expect("an object of the kind"))
}

fn observed(pod: Value) -> Arc<ObservedPod> {
    Arc::new(Arc::unwrap_or_clone(made::<Pod>(pod)).into())
}

fn nodes(names: &[&str]) -> Arc<Nodes> {
    let offer = json!({
        "metadata": {"name": "n"}, "spec": {},
        "status": {"providers": [{"name": "Btrfs", "available": true, "reason": "here"}], "runtimeDigests": ["d"]},
    });
    let node = || Node { offer: Some(made(offer.clone())), ..Node::default() };
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
    workspace_with(workspace, nodes(&["n1", "n2"]))
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
    let seen = project::Observed {
        warm: yoi_plan::warm::Observed::default(),
        looks: Vec::new(),
        project: project.clone(),
        terminating: false,
        bases: Vec::new(),
        origins: Default::default(),
        agents: Vec::new(),
        trees: Vec::new(),
        nodes: nodes(&[node]),
        network_policies: Vec::new(),
    };
    let step = project::plan(&seen, &settings(), now()).steps.into_iter().next();
    let Some(Step::EnsureWorkspace(base)) = step else { panic!("the project's first base is made on its only node: {step:?}") };
    let mut base = *base;
    base.metadata.uid = Some(format!("base-{node}"));
    let sealed = json!({"nodeName": node, "origin": {"kind": "Empty"}, "conditions": [is_true("Provisioned"), is_true("Populated"), is_true("Sealed")]});
    base.status = Some(serde_json::from_value(sealed).expect("a status"));
    Arc::new(base)
}

#[test]
fn a_tree_keeps_its_node_while_somebody_elses_claim_has_its_name() {
    let status_before = json!({
        "nodeName": "n1", "origin": {"kind": "Empty"}, "owner": {"uid": 7, "gid": 7}, "conditions": [is_true("Provisioned")],
    });
    let existing = tree("w", json!({"source": {"empty": {}}, "claim": true, "binding": "Immediate"}), status_before);
    let foreign = made(json!({"metadata": {"name": "w", "namespace": "ns", "uid": "other"}}));
    let reported = status(workspace::plan(&workspace::Observed { claim: Some(foreign), ..seen(existing) }, &settings(), now()));
    assert_eq!(reported.node_name.as_deref(), Some("n1"), "another node would make another tree");
    assert!(reported.origin.is_some());
    assert_eq!(reported.owner, Some(TreeOwner { uid: 7, gid: 7 }));
    let ready = reported.conditions.iter().find(|c| c.type_ == "Ready").expect("Ready");
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
fn a_tree_whose_data_root_is_read_only_is_not_ready_and_is_again_once_it_is_mounted_anew() {
    let of = |health: &str, reason: &str| {
        let healthy =
            json!({"type": "Healthy", "status": health, "reason": reason, "message": "delete these Pods", "lastTransitionTime": "t"});
        let conditions = json!([is_true("Provisioned"), healthy]);
        let workspace = tree(
            "w",
            json!({"source": {"empty": {}}}),
            json!({"nodeName": "n1", "origin": {"kind": "Empty"}, "owner": {"uid": 1, "gid": 1}, "conditions": conditions}),
        );
        let reported = status(workspace::plan(&seen(workspace), &settings(), now()));
        let ready = reported.conditions.into_iter().find(|c| c.type_ == "Ready").expect("Ready");
        (ready.reason, ready.message)
    };
    assert_eq!(of("False", "ReadOnlyFilesystem"), ("ReadOnlyFilesystem".to_owned(), "delete these Pods".to_owned()));
    assert_eq!(of("True", "AllMet").0, "AllMet");
    assert_eq!(of("False", "QuotaExceeded").0, "AllMet", "a full tree can be mounted, to remove files from it");
}

#[test]
fn a_workspace_has_its_own_quota_or_that_of_its_project_or_parent_and_a_base_has_none() {
    let resolved = |workspace: Arc<AgentWorkspace>, project: Option<Arc<YoiProject>>, parent: Option<Arc<AgentWorkspace>>| {
        status(workspace::plan(&workspace::Observed { project, parent, ..seen(workspace) }, &settings(), now())).quota_bytes
    };
    let placed = |quota: Value| json!({"nodeName": "n1", "origin": {"kind": "Empty"}, "quotaBytes": quota});
    let project: Arc<YoiProject> = made(json!({
        "metadata": meta("p", None),
        "spec": {"source": {"git": {"url": "https://git.example/a"}}, "defaults": {"quota": "10Gi"}},
    }));
    let of_project = |quota: Value| tree("w", json!({"source": {"project": {"name": "p"}}, "quota": quota}), placed(json!(5)));
    assert_eq!(resolved(of_project(Value::Null), Some(project.clone()), None), Some(10 << 30));
    assert_eq!(resolved(of_project(json!("2Mi")), Some(project.clone()), None), Some(2 << 20));
    assert_eq!(resolved(of_project(Value::Null), Some(git_project("/workspace")), None), None, "the default was taken away");
    assert_eq!(resolved(of_project(Value::Null), None, None), Some(5), "a project that is gone takes nothing with it");
    let parent = tree("parent", json!({"source": {"empty": {}}}), placed(json!(7)));
    let fork = |quota: Value| tree("w", json!({"source": {"workspace": {"name": "parent"}}, "quota": quota}), placed(json!(5)));
    assert_eq!(resolved(fork(Value::Null), None, Some(parent.clone())), Some(7));
    assert_eq!(resolved(fork(json!("1Gi")), None, Some(parent)), Some(1 << 30));
    assert_eq!(resolved(fork(Value::Null), None, None), Some(5));
    let empty = |quota: Value| tree("w", json!({"source": {"empty": {}}, "quota": quota}), placed(json!(5)));
    assert_eq!(resolved(empty(Value::Null), None, None), None);
    assert_eq!(resolved(base_on(&project, "n1"), Some(project), None), None);
}

#[test]
fn a_tree_shows_where_its_spec_says_else_where_that_shows_which_it_is_made_from() {
    let resolved = |workspace: Arc<AgentWorkspace>, project: Option<Arc<YoiProject>>, parent: Option<Arc<AgentWorkspace>>| {
        status(workspace::plan(&workspace::Observed { project, parent, ..seen(workspace) }, &settings(), now())).path
    };
    let shown = |path: &str| Some(path.to_owned());
    let placed = |path: Value| json!({"nodeName": "n1", "origin": {"kind": "Empty"}, "path": path, "conditions": [is_true("Provisioned")]});
    let waits = || json!({"path": "/before"});
    let of_project = |path: Value, status: Value| tree("w", json!({"source": {"project": {"name": "p"}}, "path": path}), status);
    let project = git_project("/src");
    assert_eq!(resolved(of_project(json!("/own"), waits()), Some(project.clone()), None), shown("/own"));
    assert_eq!(resolved(of_project(Value::Null, waits()), Some(project.clone()), None), shown("/src"));
    assert_eq!(resolved(of_project(Value::Null, placed(json!("/before"))), Some(project), None), shown("/before"), "the tree is made");
    assert_eq!(resolved(of_project(Value::Null, placed(json!("/before"))), None, None), shown("/before"), "its project is gone");
    let silent = made(json!({"metadata": meta("p", None), "spec": {"source": {"empty": {}}}}));
    assert_eq!(resolved(of_project(Value::Null, Value::Null), Some(silent), None), shown("/workspace"));

    let parent = || Some(tree("parent", json!({"source": {"empty": {}}}), placed(json!("/parent"))));
    let fork = |path: Value| tree("w", json!({"source": {"workspace": {"name": "parent"}}, "path": path}), Value::Null);
    assert_eq!(resolved(fork(Value::Null), None, parent()), shown("/parent"));
    assert_eq!(resolved(fork(json!("/own")), None, parent()), shown("/own"));
    for source in [json!({"empty": {}}), json!({"git": {"url": "https://git.example/a"}})] {
        let of_default = tree("w", json!({"source": source, "claim": true}), Value::Null);
        assert_eq!(resolved(of_default, None, None), shown("/workspace"));
    }
}

#[test]
fn a_clone_has_the_owner_of_what_it_is_made_from() {
    let parent = tree(
        "parent",
        json!({"source": {"empty": {}}}),
        json!({"nodeName": "n1", "origin": {"kind": "Empty"}, "owner": {"uid": 2000, "gid": 2000}, "conditions": [is_true("Provisioned")]}),
    );
    let fork = tree("fork", json!({"source": {"workspace": {"name": "parent"}}}), Value::Null);
    let reported = status(workspace::plan(&workspace::Observed { parent: Some(parent), ..seen(fork) }, &settings(), now()));
    assert_eq!(reported.owner, Some(TreeOwner { uid: 2000, gid: 2000 }));
    let clone = tree("clone", json!({"source": {"project": {"name": "p"}}, "owner": {"uid": 3000, "gid": 3000}}), Value::Null);
    let reported =
        status(workspace::plan(&workspace::Observed { project: Some(git_project("/workspace")), ..seen(clone) }, &settings(), now()));
    assert_eq!(reported.owner, Some(TreeOwner { uid: 2000, gid: 2000 }));
}

#[test]
fn a_base_on_a_node_that_is_gone_makes_room_for_another() {
    let project = git_project("/workspace");
    let lost = base_on(&project, "gone");
    let seen = project::Observed {
        warm: yoi_plan::warm::Observed::default(),
        looks: Vec::new(),
        project,
        terminating: false,
        bases: vec![lost],
        origins: ["base-gone".to_owned()].into(),
        agents: Vec::new(),
        trees: Vec::new(),
        nodes: nodes(&["n1"]),
        network_policies: Vec::new(),
    };
    let plan = project::plan(&seen, &settings(), now());
    let deleted = |s: &Step| matches!(s, Step::Delete(t) if t.kind == Kind::Workspace && t.uid == "base-gone");
    let made = |s: &Step| matches!(s, Step::EnsureWorkspace(w) if w.spec.base.as_ref().is_some_and(|b| b.node == "n1"));
    assert!(plan.steps.iter().any(deleted) && plan.steps.iter().any(made), "{:?}", plan.steps);
    assert!(status(plan).generation.is_none(), "nothing can be cloned from a node that is gone");
}

fn deleted(retain: &str, owners: Value) -> yoipod::Observed {
    let mut meta = meta("a", None);
    meta["deletionTimestamp"] = json!("2023-11-14T00:00:00Z");
    let yoipod: Arc<YoiPod> = made(json!({
        "metadata": meta, "spec": {"projectRef": {"name": "p"}, "agent": {"builtin": {}}, "session": {"retain": retain}},
    }));
    let claim = json!({"metadata": {
        "name": "a-session", "namespace": "ns", "uid": "c", "annotations": {"yoi.dev/yoipod-uid": "a"}, "ownerReferences": owners,
    }});
    yoipod::Observed { session_claim: Some(made(claim)), ..yoipod_with(yoipod, nodes(&["n1"])) }
}

#[test]
fn h3_a_session_to_keep_has_no_owner_before_its_yoipod_goes() {
    let owned = json!([{"apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPod", "name": "a", "uid": "a", "controller": true, "blockOwnerDeletion": true}]);
    let steps = yoipod::plan(&deleted("Retain", owned.clone()), &settings(), now()).steps;
    assert!(
        matches!(&steps[..], [Step::OwnClaim { owners, .. }, Step::ConfirmGone { .. }, Step::RemoveFinalizer { .. }] if owners.is_empty()),
        "{steps:?}"
    );
    let steps = yoipod::plan(&deleted("Delete", Value::Null), &settings(), now()).steps;
    assert!(
        matches!(&steps[..], [Step::OwnClaim { owners, .. }, Step::ConfirmGone { .. }, Step::RemoveFinalizer { .. }] if owners.len() == 1),
        "{steps:?}"
    );
    let steps = yoipod::plan(&deleted("Delete", owned), &settings(), now()).steps;
    assert!(
        matches!(&steps[..], [Step::OwnClaim { owners, .. }, Step::ConfirmGone { .. }, Step::RemoveFinalizer { .. }] if owners.len() == 1),
        "set again: what was observed may be old: {steps:?}"
    );
}

/// A running agent with this CA of the gateway in its Pod's manifest.
fn running(ca: &str) -> yoipod::Observed {
    let mut yoipod = meta("a", None);
    yoipod["finalizers"] = json!(["yoi.dev/operator"]);
    let mut pod = meta("a-1", Some(("YoiPod", "a")));
    pod["annotations"] = json!({"yoi.dev/run-generation": "1"});
    pod["creationTimestamp"] = json!("2023-01-01T00:00:00Z");
    let volumes = json!([
        {"name": "tree", "csi": {"driver": "csi.yoi.dev", "volumeAttributes": {"yoi.dev/workspace-uid": "a"}}},
        {"name": "manifest", "configMap": {"name": "m"}},
    ]);
    let manifest = json!({
        "agent": {"namespace": "ns", "name": "a", "uid": "a"}, "path": "/workspace", "builtin": {}, "model": {"provider": "OpenAI", "name": "m"},
        "gateway": {"lines": "l", "service": "s", "serverName": "s", "ca": ca},
        "limits": {"turnsPerRun": 1, "toolSeconds": 1, "toolOutputBytes": 1},
    });
    yoipod::Observed {
        yoipod: made(json!({
            "metadata": yoipod, "spec": {"projectRef": {"name": "p"}, "agent": {"builtin": {}}},
            "status": {"runGeneration": 1, "pod": {"name": "a-1", "uid": "a-1"}},
        })),
        workspace: Some(tree(
            "a",
            json!({"source": {"empty": {}}, "path": "/workspace"}),
            json!({"nodeName": "n1", "conditions": [is_true("Provisioned")]}),
        )),
        pods: vec![observed(json!({"metadata": pod, "spec": {"containers": [], "volumes": volumes}, "status": {"phase": "Running"}}))],
        manifests: vec![made(json!({"metadata": meta("m", Some(("YoiPod", "a"))), "data": {"manifest.json": manifest.to_string()}}))],
        ..deleted("Retain", Value::Null)
    }
}

#[test]
fn h5_a_deleted_agent_goes_after_its_pod() {
    let mut seen = running("ca");
    Arc::make_mut(&mut seen.yoipod).metadata.deletion_timestamp = deleted("Retain", Value::Null).yoipod.metadata.deletion_timestamp.clone();
    let steps = |seen: &yoipod::Observed| yoipod::plan(seen, &settings(), now()).steps;
    let goes = |step: &Step| matches!(step, Step::RemoveFinalizer { .. });
    let with_pod = steps(&seen);
    assert!(matches!(&with_pod[..], [Step::Delete(target)] if target.kind == Kind::Pod && target.uid == "a-1"), "{with_pod:?}");
    // A Pod that was told to stop and does not end.
    let mut stops = meta("a-1", Some(("YoiPod", "a")));
    stops["deletionTimestamp"] = json!("2023-11-14T00:00:00Z");
    let stuck = observed(json!({"metadata": stops, "spec": {"containers": []}, "status": {"phase": "Running"}}));
    let with_stuck = steps(&yoipod::Observed { pods: vec![stuck], ..seen.clone() });
    assert!(!with_stuck.iter().any(goes), "{with_stuck:?}");
    let last = steps(&yoipod::Observed { pods: Vec::new(), ..seen });
    let confirmed = last.iter().position(|step| matches!(step, Step::ConfirmGone { kind: Kind::Pod, name, .. } if name == "a-1"));
    assert!(confirmed.is_some() && confirmed < last.iter().position(goes), "one that is not observed is looked for first: {last:?}");
}

#[test]
fn an_agent_that_knows_only_a_former_ca_gets_another_pod() {
    let replaced = |seen: &yoipod::Observed| {
        let steps = yoipod::plan(seen, &settings(), now()).steps;
        steps.iter().any(|s| matches!(s, Step::Delete(t) if t.kind == Kind::Pod))
    };
    assert!(!replaced(&running("ca")), "nothing is wrong with it");
    assert!(replaced(&running("of a Secret that was lost")), "nobody will ever reach it");
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
            warm: yoi_plan::warm::Observed::default(),
            looks: Vec::new(),
            project: project.clone(),
            terminating: false,
            bases,
            origins: Default::default(),
            agents: Vec::new(),
            trees: Vec::new(),
            nodes: nodes(&["n1", "n2"]),
            network_policies: Vec::new(),
        };
        project::plan(&seen, &settings(), now())
    };
    let early = at(20);
    assert!(early.steps.is_empty() && early.requeue_after == Some(std::time::Duration::from_secs(40)), "{early:?}");
    let late = at(61).steps;
    assert!(matches!(&late[..], [Step::EnsureWorkspace(w)] if w.spec.base.as_ref().is_some_and(|b| b.node == "n2")), "{late:?}");
}

#[test]
fn conditions_never_hold_the_credentials_of_a_source() {
    let url = "https://bot:s3cret@git.example/a";
    let spec = json!({"source": {"git": {"url": url}}, "base": {"generation": "g", "node": "n1"}});
    let base = tree("base", spec, json!({"nodeName": "n1", "origin": {"kind": "Empty"}, "conditions": [is_true("Provisioned")]}));
    let failed = |reported: &str| {
        let mut meta = meta("base-1", Some(("AgentWorkspace", "base")));
        meta["annotations"] = json!({"yoi.dev/attempt": "1"});
        let ended = json!({"exitCode": 1, "message": reported, "finishedAt": "2023-11-14T22:13:20Z"});
        observed(json!({
            "metadata": meta,
            "status": {"phase": "Failed", "containerStatuses": [{
                "name": "populate", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": {"terminated": ended},
            }]},
        }))
    };
    let long = format!("{} https://bot:s3cret@git.example/a {}", "x".repeat(400), "y".repeat(475));
    for reported in
        ["", long.as_str(), "fatal: unable to access 'https://bot:s3cret@git.example/a/': 403", "bad user bot:s3cret@git.example"]
    {
        let seen = workspace::Observed { populators: vec![failed(reported)], ..seen(base.clone()) };
        let text = serde_json::to_string(&status(workspace::plan(&seen, &settings(), now())).conditions).expect("JSON");
        assert!(text.contains("git.example") && !text.contains("s3cret"), "{text}");
    }
}

#[test]
fn a_network_policy_that_the_api_server_normalised_is_not_applied_again() {
    // Each rule, and what the API server returns for it: types of k8s.io/api with `omitempty`, and the default of a port's protocol.
    let anywhere = json!({"ports": [{"protocol": "TCP", "port": 443}]});
    for (rule, stored) in [
        (json!({"ports": [{"port": 443}], "to": []}), anywhere.clone()),
        (json!({"to": [{"namespaceSelector": {"matchLabels": {}}}], "ports": []}), json!({"to": [{"namespaceSelector": {}}]})),
        (
            json!({"to": [{"podSelector": {"matchLabels": {}, "matchExpressions": [{"key": "a", "operator": "Exists", "values": []}]}}]}),
            json!({"to": [{"podSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}]}),
        ),
        (
            json!({"to": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": []}, "podSelector": {"matchExpressions": []}}]}),
            json!({"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}}]}),
        ),
    ] {
        let wanted = Network { agents: serde_json::from_value(json!([rule])).expect("rules"), ..Network::default() };
        let none: [Arc<k8s_openapi::api::networking::v1::NetworkPolicy>; 0] = [];
        let steps = network::ensure("ns", &wanted, &none);
        let mut kept: Vec<_> = steps.into_iter().map(|s| if let Step::EnsureNetworkPolicy(p) = s { *p } else { panic!("{s:?}") }).collect();
        assert_eq!(kept.len(), 4);
        let rules = kept[0].spec.as_mut().and_then(|spec| spec.egress.as_mut()).expect("rules");
        *rules.last_mut().expect("the rule of the settings") = serde_json::from_value(stored).expect("a rule");
        assert!(network::ensure("ns", &wanted, &kept.into_iter().map(Arc::new).collect::<Vec<_>>()).is_empty(), "{rule} is applied again");
    }
}

#[test]
fn agents_may_reach_the_port_of_a_gateway_in_the_network_of_its_node() {
    let rule = |gateway_on_host| {
        let wanted = Network { gateway_namespace: "yoi".into(), gateway_port: 9443, gateway_on_host, ..Network::default() };
        let none: [Arc<k8s_openapi::api::networking::v1::NetworkPolicy>; 0] = [];
        let Some(Step::EnsureNetworkPolicy(policy)) = network::ensure("ns", &wanted, &none).into_iter().next() else { panic!("a policy") };
        serde_json::to_value(policy).expect("JSON")["spec"]["egress"][1].clone()
    };
    // A rule without `to` allows any address.
    assert_eq!(rule(true), json!({"ports": [{"protocol": "TCP", "port": 9443}]}));
    assert_eq!(rule(false)["to"][0]["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"], "yoi");
}

/// A YoiPod whose Pod finds no room on n1, the only node with the base, and may only go to a node with this zone.
fn roomless(zone: &str) -> yoipod::Observed {
    roomless_pod(zone, "tree")
}

/// The same with a Pod that mounts the tree of this UID.
fn roomless_pod(zone: &str, mounted: &str) -> yoipod::Observed {
    let project = git_project("/workspace");
    let mut two = (*nodes(&["n1", "n2", "n3"])).clone();
    for (name, node) in &mut two.0 {
        node.labels.insert("zone".to_owned(), format!("z-{name}"));
    }
    let meta = meta("a", None);
    let yoipod: Arc<YoiPod> = made(json!({
        "metadata": meta,
        "spec": {"projectRef": {"name": "p"}, "agent": {"builtin": {}}, "model": {"provider": "OpenAI", "name": "m"}, "pod": {"nodeSelector": {"zone": zone}}},
        "status": {"runGeneration": 1},
    }));
    let owner = json!([{"apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPod", "name": "a", "uid": "a", "controller": true}]);
    let mut tree = json!({"name": "a", "namespace": "ns", "uid": "tree", "ownerReferences": owner});
    tree["finalizers"] = json!(["yoi.dev/operator"]);
    let workspace: Arc<AgentWorkspace> =
        made(json!({"metadata": tree, "spec": {"source": {"project": {"name": "p"}}, "path": "/workspace"}}));
    let listed = json!([{"key": "metadata.name", "operator": "In", "values": ["n1"]}]);
    let affinity =
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": listed}]}}});
    let waits =
        json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": "2023-11-14T22:00:00Z"}]);
    let attributes = json!({"yoi.dev/volume": "tree", yoi_wire::identity::VOLUME_WORKSPACE: mounted});
    let pod = observed(json!({
        "metadata": {
            "name": "a-1", "namespace": "ns", "uid": "pod", "ownerReferences": owner,
            "labels": {"yoi.dev/yoipod": "a", "yoi.dev/role": "agent"}, "annotations": {"yoi.dev/run-generation": "1"},
        },
        "spec": {
            "containers": [], "nodeSelector": {"zone": zone}, "affinity": affinity,
            "volumes": [{"name": "tree", "csi": {"driver": "d", "volumeAttributes": attributes}}],
        },
        "status": {"phase": "Pending", "conditions": waits},
    }));
    let claim = json!({"metadata": {"name": "a-session", "namespace": "ns", "uid": "c", "annotations": {"yoi.dev/yoipod-uid": "a"}}});
    yoipod::Observed {
        bases: vec![base_on(&project, "n1")],
        project: Some(project),
        workspace: Some(workspace),
        users: vec![yoipod.clone()],
        pods: vec![pod],
        session_claim: Some(made(claim)),
        ..yoipod_with(yoipod, Arc::new(two))
    }
}

#[test]
fn a_workspace_that_was_made_and_released_within_one_second_goes_after_its_time() {
    let at = |type_: &str, status: &str, reason: &str| json!({"type": type_, "status": status, "reason": reason, "message": "", "lastTransitionTime": "2023-11-14T22:13:00Z"});
    let with = |reason: &str| {
        let reported = json!({"nodeName": "n1", "origin": {"kind": "Empty"}, "conditions": [at("Provisioned", "True", "TreeCreated"), at("InUse", "False", reason)]});
        let spec = json!({"source": {"empty": {}}, "claim": true, "binding": "Immediate", "ttlAfterRelease": "10s"});
        workspace::plan(&seen(tree("w", spec, reported)), &settings(), now()).steps
    };
    let deleted = |steps: &[Step]| steps.iter().any(|s| matches!(s, Step::Delete(t) if t.kind == Kind::Workspace && t.uid == "w"));
    assert!(deleted(&with("Released")));
    assert!(!deleted(&with("NotPublished")), "nobody used it yet");
}

#[test]
fn a_kept_session_of_a_former_agent_is_refused_with_both_ways_out() {
    let mut seen = roomless("z-n1");
    seen.pods.clear();
    seen.session_claim = Some(made(
        json!({"metadata": {"name": "a-session", "namespace": "ns", "uid": "c", "annotations": {"yoi.dev/yoipod-uid": "former"}}, "spec": {"volumeName": "pv-1"}}),
    ));
    let reported = status(yoipod::plan(&seen, &settings(), now()));
    let accepted = reported.conditions.iter().find(|c| c.type_ == "Accepted").expect("Accepted");
    assert_eq!(accepted.reason, "InvalidSpec");
    // The claim alone would leave the volume, and the data on it.
    let anew = r#"`kubectl patch pv pv-1 -p '{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}' && kubectl delete pvc a-session -n ns`"#;
    for command in ["`kubectl delete yoipod a -n ns`", "`spec.session.claimName: a-session`", anew] {
        assert!(accepted.message.contains(command), "{}", accepted.message);
    }
}

#[test]
fn a_workspacenode_of_a_node_that_is_gone_is_deleted_by_its_uid() {
    let offer = |name: &str| made::<yoi_crds::WorkspaceNode>(json!({"metadata": {"name": name, "uid": "offer"}, "spec": {}}));
    let steps = yoi_plan::nodes::heartbeat::plan(&offer("gone"), &nodes(&["n1"]), None, now()).steps;
    assert!(
        matches!(&steps[..], [Step::Delete(t)] if t.kind == Kind::WorkspaceNode && t.uid == "offer" && t.namespace.is_empty()),
        "{steps:?}"
    );
    assert_eq!(yoi_plan::nodes::heartbeat::plan(&offer("n1"), &nodes(&["n1"]), None, now()).steps, Vec::new());
}

#[test]
fn a_node_that_is_deleted_and_registered_again_has_its_trees_again() {
    let reported = json!({"nodeName": "n1", "origin": {"kind": "Empty"}, "conditions": [is_true("Provisioned")]});
    let existing = tree("w", json!({"source": {"empty": {}}}), reported);
    let without = workspace::Observed { nodes: nodes(&["n2"]), ..seen(existing.clone()) };
    let lost = status(workspace::plan(&without, &settings(), now()));
    let ready = |s: &yoi_crds::AgentWorkspaceStatus| s.conditions.iter().find(|c| c.type_ == "Ready").expect("Ready").reason.clone();
    assert_eq!((ready(&lost).as_str(), lost.node_name.as_deref()), ("NodeLost", Some("n1")));
    let mut conditions = lost.conditions.clone();
    conditions.push(serde_json::from_value(is_true("Provisioned")).expect("a condition"));
    let again = Arc::new(AgentWorkspace { status: Some(yoi_crds::AgentWorkspaceStatus { conditions, ..lost }), ..(*existing).clone() });
    let back = status(workspace::plan(&seen(again), &settings(), now()));
    assert_eq!((ready(&back).as_str(), back.node_name.as_deref()), ("AllMet", Some("n1")));
}

#[test]
fn a_base_whose_node_lost_the_tree_goes_and_is_made_again() {
    let project = git_project("/workspace");
    let mut lost = (*base_on(&project, "n1")).clone();
    let gone = json!({"type": "Provisioned", "status": "False", "reason": "TreeLost", "message": "gone", "lastTransitionTime": "2023-01-01T00:00:00Z"});
    let reported = json!({"nodeName": "n1", "origin": {"kind": "Empty"}, "conditions": [gone, is_true("Populated"), is_true("Sealed")]});
    lost.status = Some(serde_json::from_value(reported).expect("a status"));
    let seen = |bases| project::Observed {
        warm: yoi_plan::warm::Observed::default(),
        looks: Vec::new(),
        project: project.clone(),
        terminating: false,
        bases,
        origins: Default::default(),
        agents: Vec::new(),
        trees: Vec::new(),
        nodes: nodes(&["n1"]),
        network_policies: Vec::new(),
    };
    let plan = project::plan(&seen(vec![Arc::new(lost.clone())]), &settings(), now());
    assert!(
        matches!(&plan.steps[..], [Step::Delete(t)] if t.kind == Kind::Workspace && t.uid == "base-n1"),
        "its name is taken until it is gone: {:?}",
        plan.steps
    );
    assert!(status(plan).generation.is_none(), "nothing can be cloned from it");
    let again = project::plan(&seen(Vec::new()), &settings(), now()).steps;
    assert!(matches!(&again[..], [Step::EnsureWorkspace(_)]), "{again:?}");
}

#[test]
fn a_pod_stays_only_if_it_mounts_the_tree_of_its_workspace() {
    let steps = |tree: &str| yoipod::plan(&roomless_pod("z-n3", tree), &settings(), now()).steps;
    let is_deleted = |steps: &[Step]| steps.iter().any(|s| matches!(s, Step::Delete(t) if t.kind == Kind::Pod));
    assert!(!is_deleted(&steps("tree")), "it has its own tree: {:?}", steps("tree"));
    assert!(is_deleted(&steps("former")), "that tree is gone: {:?}", steps("former"));
}

#[test]
fn an_agent_that_is_not_ready_follows_a_changed_spec_and_a_ready_one_keeps_its_pod() {
    let project = git_project("/workspace");
    let with = |model: &str, digest: Option<&str>, ready: bool| {
        let mut seen = running("ca");
        let mut yoipod = (*seen.yoipod).clone();
        yoipod.spec.model = Some(serde_json::from_value(json!({"provider": "OpenAI", "name": model})).expect("a model"));
        let report = json!({"podUID": "a-1", "runGeneration": 1, "ready": ready, "reason": if ready { "Replayed" } else { "ModelUnreachable" }, "message": ""});
        yoipod.status.as_mut().expect("a status").report = Some(serde_json::from_value(report).expect("a report"));
        seen.yoipod = Arc::new(yoipod);
        seen.project = Some(project.clone());
        if let Some(digest) = digest {
            let mut pod = (*seen.pods[0]).clone();
            pod.metadata.annotations.get_or_insert_default().insert("yoi.dev/settings-digest".to_owned(), digest.to_owned());
            seen.pods = vec![Arc::new(pod)];
        }
        seen
    };
    // The digest that a Pod of this spec gets.
    let mut without = with("right", None, false);
    without.pods.clear();
    without.yoipod = {
        let mut yoipod = (*without.yoipod).clone();
        yoipod.status = Some(serde_json::from_value(json!({"runGeneration": 1})).expect("a status"));
        Arc::new(yoipod)
    };
    let claim = json!({"metadata": {"name": "a-session", "namespace": "ns", "uid": "c", "annotations": {"yoi.dev/yoipod-uid": "a"}}});
    without.session_claim = Some(made(claim));
    let owner = json!([{"apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPod", "name": "a", "uid": "a", "controller": true}]);
    let mut own = (**without.workspace.as_ref().expect("a workspace")).clone();
    own.metadata.owner_references = Some(serde_json::from_value(owner).expect("owners"));
    without.workspace = Some(Arc::new(own));
    let steps = yoipod::plan(&without, &settings(), now()).steps;
    let digest = steps.iter().find_map(|step| match step {
        Step::EnsurePod(pod) => pod.metadata.annotations.as_ref()?.get("yoi.dev/settings-digest").cloned(),
        _ => None,
    });
    let digest = digest.unwrap_or_else(|| panic!("a Pod with a digest: {steps:?}"));

    let replaced = |mut seen: yoipod::Observed| {
        seen.workspace.clone_from(&without.workspace);
        yoipod::plan(&seen, &settings(), now()).steps.iter().any(|s| matches!(s, Step::Delete(t) if t.kind == Kind::Pod && t.uid == "a-1"))
    };
    assert!(!replaced(with("right", Some(&digest), false)), "nothing has changed");
    assert!(replaced(with("fixed", Some(&digest), false)), "its model was unreachable, and another one is named now");
    assert!(!replaced(with("fixed", Some(&digest), true)), "a ready agent works on");
    assert!(!replaced(with("fixed", None, false)), "a Pod of an earlier version");
}

#[test]
fn a_claim_bound_at_once_says_that_its_source_cannot_be_fetched() {
    let spec = json!({"source": {"git": {"url": "https://git.example/a", "ref": "absent"}}, "claim": true, "binding": "Immediate"});
    let workspace = tree("w", spec, json!({}));
    let steps = workspace::plan(&seen(workspace.clone()), &settings(), now()).steps;
    let base = steps.iter().find_map(|step| if let Step::EnsureWorkspace(base) = step { Some(base) } else { None });
    let mut base = (**base.unwrap_or_else(|| panic!("its first base is made: {steps:?}"))).clone();
    base.metadata.uid = Some("base".to_owned());
    let failed = json!({"type": "Populated", "status": "False", "reason": "PopulateFailed", "message": "no such ref", "lastTransitionTime": "2023-01-01T00:00:00Z"});
    let status_of_base = json!({"nodeName": "n1", "origin": {"kind": "Empty"}, "conditions": [is_true("Provisioned"), failed]});
    base.status = Some(serde_json::from_value(status_of_base).expect("a status"));
    let reported = status(workspace::plan(&workspace::Observed { bases: vec![Arc::new(base)], ..seen(workspace) }, &settings(), now()));
    let scheduled = reported.conditions.iter().find(|c| c.type_ == "Scheduled").expect("Scheduled");
    assert_eq!((scheduled.reason.as_str(), scheduled.message.as_str()), ("PopulateFailed", "no such ref"));
}
