//! What the operator's caches cost for each agent, counted by the allocator: ten thousand agents must fit into 150 MiB with everything else.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::http::{Request, Response};
use kube::client::Body;
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use yoi_operator::cache_key::CacheKey;
use yoi_operator::watch_caches::WatchCaches;
use yoi_test_support::in_time;
use yoi_watch_cache::{CacheWriter, WatchCache};

struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator as it came; the count changes no pointer.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the promises of `alloc`.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the promises of `dealloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// An eighth of ten thousand, so that tables, which grow by doubling, are as full as with those.
const COUNT: usize = 1250;

/// As the API server gives it back: the field managers are half of it.
fn metadata(name: &str, owner: Option<&str>, labels: Value, annotations: Value) -> Value {
    let fields = json!({"f:metadata": {"f:labels": {"f:yoi.dev/yoipod": {}}}, "f:spec": {"f:agent": {}, "f:model": {}}, "f:status": {"f:conditions": {}}});
    let managed = |manager: &str| json!({"manager": manager, "operation": "Apply", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": fields});
    let mut metadata = json!({
        "name": name, "namespace": "team-of-many-agents", "uid": uid(name), "resourceVersion": "123456", "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["yoi.dev/operator"], "labels": labels, "annotations": annotations,
        "managedFields": [managed("yoi-operator"), managed("yoi-gateway"), managed("kubectl-client-side-apply")],
    });
    if let Some(owner) = owner {
        metadata["ownerReferences"] = json!([{"apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPod", "name": owner, "uid": uid(owner), "controller": true, "blockOwnerDeletion": true}]);
    }
    metadata
}

/// Ten thousand objects have ten thousand UIDs.
fn uid(name: &str) -> String {
    let mut hash = std::hash::DefaultHasher::new();
    std::hash::Hash::hash(name, &mut hash);
    let hash = std::hash::Hasher::finish(&hash);
    format!("{:08x}-{:04x}-4b55-9a52-6c2f8f5b0001", hash >> 32, hash & 0xffff)
}

fn last_applied() -> Value {
    json!({"kubectl.kubernetes.io/last-applied-configuration": "x".repeat(1500)})
}

fn conditions(types: &[&str]) -> Value {
    let one = |t: &&str| json!({"type": t, "status": "True", "reason": "AllMet", "message": "replayed and locked; the agent listens", "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1});
    types.iter().map(one).collect()
}

fn yoipod(name: &str) -> Value {
    json!({
        "metadata": metadata(name, None, json!({"app": "web"}), last_applied()),
        "spec": {"projectRef": {"name": "web"}, "agent": {"builtin": {"instruction": "You mend one bug at a time."}}, "task": "Mend the bug of issue 4711.", "model": {"provider": "OpenAI", "name": "some-model", "baseUrl": "https://models.example/v1/"}},
        "status": {
            "observedGeneration": 1, "runGeneration": 1, "manifest": {"name": name, "digest": "a".repeat(64)}, "pod": {"name": name, "uid": "0d5c6d1e-7f0c-4b55-9a52-6c2f8f5b0003"},
            "workspace": {"name": name, "nodeName": "node-0001"}, "sessionClaimName": name, "session": {"id": "0d5c6d1e-7f0c-4b55-9a52-6c2f8f5b0004", "segment": "1"},
            "task": {"id": "b".repeat(32), "state": "Running"}, "report": {"podUID": "0d5c6d1e-7f0c-4b55-9a52-6c2f8f5b0003", "runGeneration": 1, "ready": true, "reason": "Replayed", "message": "replayed"},
            "conditions": conditions(&["Accepted", "WorkspaceReady", "SessionReady", "TaskComplete", "Ready"]),
        },
    })
}

fn workspace(name: &str) -> Value {
    json!({
        "metadata": metadata(name, Some(name), json!({"yoi.dev/yoipod": name}), json!({})), "spec": {"source": {"project": {"name": "web"}}},
        "status": {
            "observedGeneration": 1, "nodeName": "node-0001", "origin": {"kind": "Base", "workspaceUID": "0d5c6d1e-7f0c-4b55-9a52-6c2f8f5b0005"}, "owner": {"uid": 1000, "gid": 1000},
            "podUID": "0d5c6d1e-7f0c-4b55-9a52-6c2f8f5b0003", "provider": {"selected": "Btrfs", "reason": "Btrfs: as its base"},
            "conditions": conditions(&["Accepted", "Scheduled", "ProviderSelected", "Provisioned", "InUse", "Ready"]),
        },
    })
}

fn pod(name: &str) -> Value {
    let mount = |n: usize| json!({"name": format!("volume-{n}"), "mountPath": format!("/some/path/{n}")});
    let env = |n: usize| json!({"name": format!("VARIABLE_{n}"), "value": "some value of some length"});
    let container = json!({
        "name": "agent", "image": "registry.example/agents/agent:1.2.3", "command": ["/yoi/yoi-runtime", "agent"], "env": (0..8).map(env).collect::<Value>(), "volumeMounts": (0..7).map(mount).collect::<Value>(),
        "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": true}, "terminationMessagePath": "/dev/termination-log",
    });
    let attributes = json!({"yoi.dev/kind": "tree", "yoi.dev/workspace": "0d5c6d1e-7f0c-4b55-9a52-6c2f8f5b0001"});
    let labels = json!({"yoi.dev/role": "agent", "yoi.dev/yoipod": name, "yoi.dev/project": "web", "yoi.dev/workspace": name});
    let annotations = json!({"yoi.dev/run-generation": "1", "yoi.dev/settings-digest": "e".repeat(64), "yoi.dev/tokens": "none", "yoi.dev/rest": "", "yoi.dev/policy": "{}"});
    json!({
        "metadata": metadata(&format!("{name}-1"), Some(name), labels, annotations),
        "spec": {
            "nodeName": "node-0001", "serviceAccountName": "default", "containers": [container], "restartPolicy": "Always", "schedulerName": "default-scheduler",
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}, {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
            "volumes": [{"name": "tree", "csi": {"driver": "yoi.dev", "volumeAttributes": attributes}}, {"name": "manifest", "configMap": {"name": name}}, {"name": "session", "persistentVolumeClaim": {"claimName": name}}, {"name": "tmp", "emptyDir": {}}, {"name": "home", "emptyDir": {}}],
        },
        "status": {
            "phase": "Running", "hostIP": "10.0.0.1", "podIP": "10.1.0.1", "conditions": [{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "True"}, {"type": "Initialized", "status": "True"}],
            "containerStatuses": [{"name": "agent", "image": "registry.example/agents/agent:1.2.3", "imageID": "sha256:".to_owned() + &"c".repeat(64), "containerID": "containerd://".to_owned() + &"d".repeat(64), "ready": true, "restartCount": 0, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}],
        },
    })
}

fn claim(name: &str) -> Value {
    let annotations = json!({"yoi.dev/yoipod-uid": uid(name), "pv.kubernetes.io/bind-completed": "yes", "volume.kubernetes.io/selected-node": "node-0001",
        "volume.kubernetes.io/storage-provisioner": "some.driver"});
    let volume = format!("pvc-{}", uid(&format!("{name}-session")));
    json!({
        "metadata": metadata(&format!("{name}-session"), Some(name), json!({"yoi.dev/yoipod": name}), annotations),
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "standard", "volumeMode": "Filesystem", "volumeName": volume},
        "status": {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}},
    })
}

fn volume(name: &str) -> Value {
    let claim = format!("{name}-session");
    let nodes = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-0001"]}]}]}});
    json!({
        "metadata": metadata(&format!("pvc-{}", uid(&claim)), None, json!({}), json!({"pv.kubernetes.io/provisioned-by": "some.driver"})),
        "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "team-of-many-agents", "name": claim, "uid": uid(&claim)},
            "persistentVolumeReclaimPolicy": "Retain", "nodeAffinity": nodes, "csi": {"driver": "some.driver", "volumeHandle": name, "volumeAttributes": {"a": "b", "c": "d"}}},
        "status": {"phase": "Bound"},
    })
}

fn manifest(name: &str) -> Value {
    let text = json!({"yoipod": {"name": name, "namespace": "team-of-many-agents", "uid": uid(name)}, "gateway": {"lines": "yoi-gateway-lines.yoi-system.svc:8443", "ca": "m".repeat(700)},
        "task": {"id": "b".repeat(32), "text": "Mend the bug of issue 4711."}, "agent": {"builtin": {"instruction": "You mend one bug at a time."}}, "assets": {"strict": false}, "policy": {"allow": [["Shell(git *)"]]}});
    let resolved = json!({"model": {"provider": "OpenAI", "name": "some-model", "baseUrl": "https://models.example/v1/"}, "pod": {"image": "registry.example/agents/agent:1.2.3"}});
    let annotations = json!({"yoi.dev/resolved": resolved.to_string(), "yoi.dev/made-from": "f".repeat(64)});
    json!({"metadata": metadata(&format!("{name}-0123456789"), Some(name), json!({"yoi.dev/yoipod": name}), annotations), "immutable": true, "data": {"manifest.json": text.to_string()}})
}

/// A server that lists these objects and then is silent.
fn server(object: fn(&str) -> Value) -> Client {
    Client::new(
        tower::service_fn(move |request: Request<Body>| async move {
            if request.uri().query().unwrap_or_default().contains("watch=true") {
                std::future::pending::<()>().await;
            }
            let items: Vec<Value> = (0..COUNT).map(|n| object(&format!("agent-{n:05}"))).collect();
            let list = json!({"metadata": {"resourceVersion": "1"}, "items": items});
            Ok::<_, std::convert::Infallible>(Response::new(Body::from(list.to_string().into_bytes())))
        }),
        "default",
    )
}

/// Bytes held, once nothing is taken or given back any more.
async fn settled() -> usize {
    let mut last = 0;
    loop {
        let now = HELD.load(Ordering::Relaxed);
        if now == last {
            return now;
        }
        last = now;
        // Too short a pause measures what a listing takes for a moment, which is more, never less.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Bytes per object that stay when the listing is in the cache, with its keys. What it shares with objects that are there is not counted again.
async fn bytes<K, T>((cache, writer): (&WatchCache<T, CacheKey>, CacheWriter<K, T, CacheKey>), object: fn(&str) -> Value) -> usize
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + Sync + 'static,
    T: Send + Sync + 'static,
{
    let before = settled().await;
    tokio::spawn(writer.run(Api::all(server(object)), watcher::Config::default(), |_| {}));
    in_time("the cache is listed", cache.wait_until_ready()).await;
    // What the listing itself took is given back when its task has gone on to the silent watch.
    let held = settled().await.saturating_sub(before) / COUNT;
    assert_eq!(cache.len(), COUNT);
    held
}

#[tokio::test]
async fn ten_thousand_agents_with_all_that_belongs_to_them_leave_room_below_the_bar() {
    let (caches, writers, _triggers) = WatchCaches::new();
    let each = [
        ("YoiPod", bytes((&caches.yoipods, writers.yoipods), yoipod).await),
        ("AgentWorkspace", bytes((&caches.workspaces, writers.workspaces), workspace).await),
        ("Pod", bytes((&caches.pods, writers.pods), pod).await),
        ("PersistentVolumeClaim", bytes((&caches.claims, writers.claims), claim).await),
        ("PersistentVolume", bytes((&caches.volumes, writers.volumes), volume).await),
        ("ConfigMap", bytes((&caches.manifests, writers.manifests), manifest).await),
    ];
    println!("bytes per cached object: {each:?}");
    let cost = |kind: &str| each.iter().find(|(k, _)| *k == kind).map_or(0, |(_, bytes)| *bytes);
    let mib = |bytes: usize| bytes * 10_000 / (1024 * 1024);
    let bare = mib(cost("YoiPod") + cost("AgentWorkspace"));
    let running = mib(each.iter().map(|(_, bytes)| bytes).sum());
    println!("10,000 YoiPods and workspaces: {bare} MiB; each with a Pod, a session volume and a manifest, too: {running} MiB");
    assert!(running <= 118, "{running} MiB leave too little of 150 for the rest of the process");
}
