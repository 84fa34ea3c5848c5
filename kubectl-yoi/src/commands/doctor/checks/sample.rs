//! Observed clusters for the tests of the checks.

use std::time::Duration;

use k8s_openapi::ByteString;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::super::finding::Finding;
use super::super::observed::{ApiCall, ObservedCluster, Permission, ReadFailure, ReadFailureCause, ReadResult};

const NOW: &str = "2026-11-21T12:00:00Z";
const SHORTLY_BEFORE: &str = "2026-11-21T11:59:58Z";

fn list<T: DeserializeOwned>(items: Vec<Value>) -> ReadResult<Vec<T>> {
    Ok(items.into_iter().map(|item| serde_json::from_value(item).unwrap()).collect())
}

/// Returns a CA of ten years, as the operator makes it.
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

/// Returns a cluster with one node `n`, one agent `a` and all its objects in namespace `ns`, the charts, and Cilium.
pub fn healthy() -> ObservedCluster {
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
    ObservedCluster {
        now: NOW.parse().unwrap(),
        patience_percent: 100,
        scope: None,
        operator_namespace: "yoi-system".to_owned(),
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
        api_call: Ok(ApiCall { took: Duration::from_millis(4), failure: None }),
        permissions: Ok(vec![Permission {
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
        pods: list(vec![json!({ "metadata": { "name": "a-1", "namespace": "ns", "uid": "uid-a-1", "creationTimestamp": SHORTLY_BEFORE,
            "labels": { "yoi.dev/yoipod": "a", "yoi.dev/role": "agent" } }, "spec": { "nodeName": "n", "containers": [] }, "status": {
            "phase": "Running", "containerStatuses": [{ "name": "agent", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
            "state": { "running": { "startedAt": NOW } } }] } })]),
        claims: list(vec![json!({ "metadata": { "name": "a-session", "namespace": "ns", "labels": { "yoi.dev/yoipod": "a" } } })]),
        volumes: list(vec![]),
        warnings: list(vec![]),
    }
}

/// Returns a cluster where Yoi is not installed.
pub fn empty() -> ObservedCluster {
    let mut observed = healthy();
    observed.crds = list(vec![]);
    observed.deployments = list(vec![]);
    observed.daemon_sets = list(vec![]);
    observed.budgets = list(vec![]);
    observed.leases = list(vec![]);
    observed.our_pods = list(vec![]);
    observed.api_services = list(vec![]);
    observed.gateway_slices = list(vec![]);
    observed.classes = list(vec![]);
    observed.drivers = list(vec![]);
    observed.workspace_nodes = list(vec![]);
    observed.yoipods = list(vec![]);
    observed.pods = list(vec![]);
    observed
}

/// Returns what a user without any permission observes.
pub fn without_permissions() -> ObservedCluster {
    fn forbidden<T>(permission: &str) -> ReadResult<T> {
        Err(ReadFailure { permission: permission.to_owned(), cause: ReadFailureCause::Forbidden })
    }
    ObservedCluster {
        scope: Some("ns".to_owned()),
        crds: forbidden("list crds"),
        nodes: forbidden("list nodes"),
        workspace_nodes: forbidden("list workspacenodes"),
        csi_nodes: forbidden("list csinodes"),
        deployments: forbidden("list deployments"),
        daemon_sets: forbidden("list daemonsets"),
        budgets: forbidden("list budgets"),
        leases: forbidden("list leases"),
        our_pods: forbidden("list our pods"),
        api_services: forbidden("list apiservices"),
        gateway_slices: forbidden("list gateway slices"),
        api_call: forbidden("get /apis"),
        permissions: forbidden("create subjectaccessreviews"),
        classes: forbidden("list classes"),
        drivers: forbidden("list drivers"),
        namespaces: forbidden("list namespaces"),
        dns_services: forbidden("list services"),
        dns_slices: forbidden("list dns slices"),
        policies: forbidden("list policies"),
        projects: forbidden("list projects"),
        yoipods: forbidden("list yoipods"),
        peers: forbidden("list peers"),
        workspaces: forbidden("list workspaces"),
        pods: forbidden("list pods"),
        claims: forbidden("list claims"),
        volumes: forbidden("list volumes"),
        warnings: forbidden("list events"),
        ..healthy()
    }
}

/// Returns the finding of `check` whose message contains `words`.
pub fn expect_finding(observed: &ObservedCluster, check: &str, words: &str) -> Finding {
    let all = super::all(observed);
    let one = all.iter().find(|f| f.check == check && f.message.contains(words));
    one.unwrap_or_else(|| panic!("{check} says nowhere `{words}`: {all:#?}")).clone()
}

/// Replaces the conditions of the agent by this one, which is False since [`ObservedCluster::now`].
pub fn set_condition(observed: &mut ObservedCluster, type_: &str, reason: &str, message: &str) {
    let conditions = json!([{ "type": type_, "status": "False", "reason": reason, "message": message, "lastTransitionTime": NOW, "observedGeneration": 1 }]);
    observed.yoipods.as_mut().unwrap()[0].status.as_mut().unwrap().conditions = serde_json::from_value(conditions).unwrap();
}
