//! Worlds for the tables of the checks.

use std::time::Duration;

use k8s_openapi::ByteString;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::super::finding::Finding;
use super::super::world::{Because, Called, Looked, NotLooked, Right, World};

const NOW: &str = "2026-11-21T12:00:00Z";
const JUST: &str = "2026-11-21T11:59:58Z";

fn list<T: DeserializeOwned>(items: Vec<Value>) -> Looked<Vec<T>> {
    Ok(items.into_iter().map(|item| serde_json::from_value(item).unwrap()).collect())
}

/// A CA of ten years, as the operator makes it.
fn ca() -> ByteString {
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.not_before = rcgen::date_time_ymd(2026, 11, 20);
    params.not_after = rcgen::date_time_ymd(2036, 11, 20);
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Constrained(0));
    let key = rcgen::KeyPair::generate().unwrap();
    ByteString(params.self_signed(&key).unwrap().pem().into_bytes())
}

fn labels(app: &str, version: &str) -> Value {
    json!({ "app.kubernetes.io/name": app, "app.kubernetes.io/part-of": "yoi", "app.kubernetes.io/version": version })
}

fn deployment(name: &str, replicas: i32) -> Value {
    json!({ "metadata": { "name": name, "namespace": "yoi-system", "labels": labels(name, env!("CARGO_PKG_VERSION")) },
        "spec": { "replicas": replicas, "selector": {}, "template": {} }, "status": { "availableReplicas": replicas } })
}

fn slice() -> Value {
    json!({ "addressType": "IPv4", "metadata": { "name": "s" }, "endpoints": [{ "addresses": ["10.0.0.1"], "conditions": { "ready": true } }] })
}

fn met(type_: &str) -> Value {
    json!([{ "type": type_, "status": "True", "reason": "AllMet", "message": "m", "lastTransitionTime": NOW, "observedGeneration": 1 }])
}

/// One node `n`, one agent `a` with all that belongs to it in namespace `ns`, everything as the charts make it, Cilium as the network.
pub fn healthy() -> World {
    let meta = |name: &str| json!({ "name": name, "namespace": "ns", "uid": format!("uid-{name}"), "creationTimestamp": NOW });
    let set = |name: &str, namespace: &str| {
        json!({ "metadata": { "name": name, "namespace": namespace, "labels": labels(name, env!("CARGO_PKG_VERSION")) },
            "spec": { "selector": {}, "template": { "spec": { "containers": [], "nodeSelector": { "kubernetes.io/os": "linux" } } } },
            "status": { "desiredNumberScheduled": 1, "numberReady": 1, "currentNumberScheduled": 1, "numberMisscheduled": 0 } })
    };
    let class = |name: &str, provisioner: &str, binding: &str, default: bool| {
        json!({ "metadata": { "name": name, "annotations": { "storageclass.kubernetes.io/is-default-class": default.to_string() } },
            "provisioner": provisioner, "volumeBindingMode": binding })
    };
    World {
        now: NOW.parse().unwrap(),
        scope: None,
        home: "yoi-system".to_owned(),
        version: env!("CARGO_PKG_VERSION"),
        server: (1, 34),
        crds: Ok(yoi_crds::all()),
        nodes: list(vec![json!({ "metadata": { "name": "n", "labels": { "kubernetes.io/os": "linux" } } })]),
        workspace_nodes: list(vec![json!({ "metadata": { "name": "n", "creationTimestamp": NOW }, "spec": {}, "status": {
            "providers": [{ "name": "Btrfs", "available": true, "reason": "no btrfs here" }, { "name": "Copy", "available": true, "reason": "r" }],
            "capacity": { "totalBytes": 1 << 30, "freeBytes": 1 << 29 }, "kernel": "6.18", "runtimeDigests": ["0123456789abcdef"],
            "conditions": met("Ready") } })]),
        csi_nodes: list(vec![json!({ "metadata": { "name": "n" }, "spec": { "drivers": [{ "name": "csi.yoi.dev", "nodeID": "n" }] } })]),
        deployments: list(vec![deployment("yoi-operator", 1), deployment("yoi-gateway", 2)]),
        daemon_sets: list(vec![set("yoi-agent-shim", "yoi-node"), set("cilium", "kube-system")]),
        budgets: list(vec![json!({ "metadata": { "name": "yoi-gateway", "namespace": "yoi-system" } })]),
        leases: list(vec![json!({ "metadata": { "name": "yoi-operator", "namespace": "yoi-system" },
            "spec": { "holderIdentity": "yoi-operator-1", "renewTime": "2026-11-21T11:59:58.000000Z" } })]),
        our_pods: list(vec![
            json!({ "metadata": { "name": "yoi-operator-1", "labels": labels("yoi-operator", "0") }, "status": { "phase": "Running" } }),
            json!({ "metadata": { "name": "shim-1", "labels": labels("yoi-agent-shim", "0") }, "spec": { "nodeName": "n", "containers": [] } }),
        ]),
        api_services: {
            let mut services = list(vec![json!({ "metadata": { "name": "v1alpha1.runtime.yoi.dev" },
                "spec": { "groupPriorityMinimum": 1, "versionPriority": 1, "service": { "namespace": "yoi-system", "name": "yoi-gateway" } },
                "status": { "conditions": [{ "type": "Available", "status": "True", "reason": "Passed", "message": "all checks passed" }] } })]);
            let all: &mut Vec<k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService> = services.as_mut().unwrap();
            all[0].spec.as_mut().unwrap().ca_bundle = Some(ca());
            services
        },
        gateway_slices: list(vec![slice()]),
        called: Ok(Called { took: Duration::from_millis(4), failure: None }),
        rights: Ok(vec![Right {
            account: "system:serviceaccount:yoi-system:yoi-gateway".to_owned(),
            verb: "create",
            resource: "tokenreviews",
            allowed: true,
        }]),
        classes: list(vec![
            class("standard", "local", "WaitForFirstConsumer", true),
            class("yoi", "csi.yoi.dev", "WaitForFirstConsumer", false),
            class("yoi-immediate", "csi.yoi.dev", "Immediate", false),
        ]),
        drivers: list(vec![json!({ "metadata": { "name": "csi.yoi.dev" }, "spec": { "attachRequired": false, "podInfoOnMount": true,
            "fsGroupPolicy": "None", "volumeLifecycleModes": ["Persistent", "Ephemeral"] } })]),
        namespaces: list(vec![json!({ "metadata": { "name": "ns" }, "status": { "phase": "Active" } })]),
        dns_services: list(vec![json!({ "metadata": { "name": "kube-dns", "namespace": "kube-system" } })]),
        dns_slices: list(vec![slice()]),
        policies: list(vec![json!({ "metadata": { "name": "yoi-agents", "namespace": "ns" } })]),
        projects: list(vec![
            json!({ "metadata": meta("p"), "spec": { "source": { "empty": {} } }, "status": { "conditions": met("Ready") } }),
        ]),
        yoipods: list(vec![
            json!({ "metadata": meta("a"), "spec": { "projectRef": { "name": "p" }, "agent": { "builtin": {} } }, "status": {
            "conditions": met("Ready"), "pod": { "name": "a-1", "uid": "uid-a-1" },
            "report": { "podUID": "uid-a-1", "runGeneration": 1, "ready": true, "reason": "Replayed", "message": "m" } } }),
        ]),
        peers: list(vec![]),
        workspaces: list(vec![json!({ "metadata": meta("a"), "spec": { "source": { "project": { "name": "p" } } },
            "status": { "nodeName": "n", "conditions": met("Ready") } })]),
        pods: list(vec![json!({ "metadata": { "name": "a-1", "namespace": "ns", "uid": "uid-a-1", "creationTimestamp": JUST,
            "labels": { "yoi.dev/yoipod": "a", "yoi.dev/role": "agent" } }, "spec": { "nodeName": "n", "containers": [] }, "status": {
            "phase": "Running", "containerStatuses": [{ "name": "agent", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
            "state": { "running": { "startedAt": NOW } } }] } })]),
        claims: list(vec![json!({ "metadata": { "name": "a-session", "namespace": "ns", "labels": { "yoi.dev/yoipod": "a" } } })]),
        volumes: list(vec![]),
        warnings: list(vec![]),
    }
}

/// A cluster where nothing of ours is installed.
pub fn empty() -> World {
    let mut world = healthy();
    world.crds = list(vec![]);
    world.deployments = list(vec![]);
    world.daemon_sets = list(vec![]);
    world.budgets = list(vec![]);
    world.leases = list(vec![]);
    world.our_pods = list(vec![]);
    world.api_services = list(vec![]);
    world.gateway_slices = list(vec![]);
    world.classes = list(vec![]);
    world.drivers = list(vec![]);
    world.workspace_nodes = list(vec![]);
    world.yoipods = list(vec![]);
    world.pods = list(vec![]);
    world
}

/// Somebody who may do nothing at all.
pub fn blind() -> World {
    fn no<T>(right: &str) -> Looked<T> {
        Err(NotLooked { right: right.to_owned(), because: Because::Forbidden })
    }
    World {
        scope: Some("ns".to_owned()),
        crds: no("list crds"),
        nodes: no("list nodes"),
        workspace_nodes: no("list workspacenodes"),
        csi_nodes: no("list csinodes"),
        deployments: no("list deployments"),
        daemon_sets: no("list daemonsets"),
        budgets: no("list budgets"),
        leases: no("list leases"),
        our_pods: no("list our pods"),
        api_services: no("list apiservices"),
        gateway_slices: no("list gateway slices"),
        called: no("get /apis"),
        rights: no("create subjectaccessreviews"),
        classes: no("list classes"),
        drivers: no("list drivers"),
        namespaces: no("list namespaces"),
        dns_services: no("list services"),
        dns_slices: no("list dns slices"),
        policies: no("list policies"),
        projects: no("list projects"),
        yoipods: no("list yoipods"),
        peers: no("list peers"),
        workspaces: no("list workspaces"),
        pods: no("list pods"),
        claims: no("list claims"),
        volumes: no("list volumes"),
        warnings: no("list events"),
        ..healthy()
    }
}

/// The finding of `check` that says `words`.
pub fn found(world: &World, check: &str, words: &str) -> Finding {
    let all = super::all(world);
    let one = all.iter().find(|f| f.check == check && f.message.contains(words));
    one.unwrap_or_else(|| panic!("{check} says nowhere `{words}`: {all:#?}")).clone()
}

/// The agent says this instead of being Ready, since [`World::now`].
pub fn condition(world: &mut World, type_: &str, reason: &str, message: &str) {
    let said = json!([{ "type": type_, "status": "False", "reason": reason, "message": message, "lastTransitionTime": NOW, "observedGeneration": 1 }]);
    world.yoipods.as_mut().unwrap()[0].status.as_mut().unwrap().conditions = serde_json::from_value(said).unwrap();
}
