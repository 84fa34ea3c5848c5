//! A fake API server of five kinds, in memory. It lists, watches and gets, applies status with resource versions, reviews tokens and rights,
//! and counts its requests.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::body::{Body, Bytes};
use axum::extract::{Query, Request, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use futures::stream::unfold;
use serde_json::{Map, Value, json};
use tokio::sync::watch;

/// The fields of `status` that the gateway may write.
const GATEWAY_FIELDS: [&str; 7] = ["session", "task", "live", "report", "reader", "push", "rest"];

#[derive(Clone)]
pub struct FakeApiServer {
    inner: Arc<Mutex<Inner>>,
    version: watch::Sender<u64>,
}

#[derive(Default)]
struct Inner {
    version: u64,
    /// By `kind/namespace/name`.
    objects: BTreeMap<String, Value>,
    events: Vec<(u64, String, &'static str, Value)>,
    tokens: BTreeMap<String, Token>,
    rights: Vec<(String, String)>,
    requests: Vec<String>,
    refuse_creation: bool,
    /// The next write of claims comes after somebody else's.
    refuse_next_claims: bool,
}

#[derive(Clone)]
struct Token {
    namespace: String,
    pod_uid: String,
    audience: String,
}

impl FakeApiServer {
    pub fn new() -> Self {
        FakeApiServer { inner: Arc::default(), version: watch::channel(0).0 }
    }

    pub fn client(&self) -> kube::Client {
        kube::Client::new(Router::new().fallback(answer).with_state(self.clone()), "default")
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    /// Writes the whole object, as its owner would.
    pub fn put(&self, kind: &str, object: Value) -> Value {
        let object = self.lock().put(kind, object);
        self.version.send_modify(|version| *version += 1);
        object
    }

    /// Writes the whole object so that a request reads it and no watch shows it.
    pub fn put_unwatched(&self, kind: &str, object: Value) {
        let mut inner = self.lock();
        inner.put(kind, object);
        inner.events.pop();
    }

    pub fn delete(&self, kind: &str, namespace: &str, name: &str) {
        let mut inner = self.lock();
        let key = format!("{kind}/{namespace}/{name}");
        let object = inner.objects.remove(&key).unwrap();
        inner.version += 1;
        let version = inner.version;
        inner.events.push((version, key, "DELETED", object));
        drop(inner);
        self.version.send_modify(|version| *version += 1);
    }

    pub fn get(&self, kind: &str, namespace: &str, name: &str) -> Value {
        self.lock().objects[&format!("{kind}/{namespace}/{name}")].clone()
    }

    pub fn token(&self, token: &str, namespace: &str, pod_uid: &str, audience: &str) {
        let token_of = Token { namespace: namespace.into(), pod_uid: pod_uid.into(), audience: audience.into() };
        self.lock().tokens.insert(token.into(), token_of);
    }

    /// Allows the user `request`, as in "get log".
    pub fn allow(&self, user: &str, request: &str) {
        self.lock().rights.push((user.into(), request.into()));
    }

    /// Lets the creation of objects fail from now on.
    pub fn refuse_creation(&self) {
        self.lock().refuse_creation = true;
    }

    /// Somebody else writes before the next claim.
    pub fn refuse_next_claims(&self) {
        self.lock().refuse_next_claims = true;
    }

    pub fn exists(&self, kind: &str, namespace: &str, name: &str) -> bool {
        self.lock().objects.contains_key(&format!("{kind}/{namespace}/{name}"))
    }

    /// How many requests began with `start`, as in "GET apis/yoi.dev".
    pub fn request_count(&self, start: &str) -> usize {
        self.lock().requests.iter().filter(|request| request.starts_with(start)).count()
    }

    /// Waits until some write of the object since the `writes`-th of all has met the condition, even if a later one does not.
    pub async fn wait_for_write(&self, writes: usize, key: &str, condition: impl Fn(&Value) -> bool) {
        let mut version = self.version.subscribe();
        let met = || self.lock().events.iter().skip(writes).any(|(_, written, _, object)| written == key && condition(object));
        crate::harness::wait_for("a write", async {
            while !met() {
                version.changed().await.unwrap();
            }
        })
        .await;
    }

    /// How many writes of all objects there were.
    pub fn writes(&self) -> usize {
        self.lock().events.len()
    }

    /// Waits until the object meets the condition.
    pub async fn wait_until(&self, kind: &str, namespace: &str, name: &str, condition: impl Fn(&Value) -> bool) -> Value {
        let mut version = self.version.subscribe();
        crate::harness::wait_for("an object", async {
            loop {
                let object = self.get(kind, namespace, name);
                if condition(&object) {
                    return object;
                }
                version.changed().await.unwrap();
            }
        })
        .await
    }
}

impl Inner {
    fn put(&mut self, kind: &str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let meta = &object["metadata"];
        let key = format!("{kind}/{}/{}", meta["namespace"].as_str().unwrap(), meta["name"].as_str().unwrap());
        let event = if self.objects.insert(key.clone(), object.clone()).is_some() { "MODIFIED" } else { "ADDED" };
        self.events.push((self.version, key, event, object.clone()));
        object
    }
}

async fn answer(State(api): State<FakeApiServer>, Query(query): Query<BTreeMap<String, String>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().trim_start_matches('/').to_owned();
    api.lock().requests.push(format!("{} {path}", parts.method));
    let body: Bytes = axum::body::to_bytes(body, 4 << 20).await.unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let words: Vec<&str> = path.split('/').collect();
    match (parts.method, words.as_slice()) {
        (Method::POST, [.., "tokenreviews"]) => api.review(&body),
        (Method::POST, [.., "subjectaccessreviews"]) => api.rights(&body),
        (Method::POST, [.., "namespaces", namespace, "yoipeers"]) => {
            let answer = api.create("yoipeers", namespace, body);
            api.version.send_modify(|version| *version += 1);
            answer
        }
        (Method::POST, [.., "namespaces", namespace, "yoipods"]) => {
            let answer = api.create("yoipods", namespace, body);
            api.version.send_modify(|version| *version += 1);
            answer
        }
        (Method::PATCH, [.., "namespaces", namespace, "yoipods", name]) => {
            let answer = api.set_desired_state(namespace, name, &body);
            api.version.send_modify(|version| *version += 1);
            answer
        }
        (Method::POST, [.., "namespaces", namespace, "configmaps"]) => {
            let mut map = body;
            map["metadata"]["namespace"] = json!(namespace);
            map["metadata"]["uid"] = json!(format!("uid of {}", map["metadata"]["name"].as_str().unwrap()));
            (StatusCode::CREATED, Json(api.put("configmaps", map))).into_response()
        }
        (Method::PATCH, [.., "namespaces", namespace, "yoiprojects", name, "status"]) => {
            let mut object = api.get("yoiprojects", namespace, name);
            if body["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"] {
                return failure(StatusCode::CONFLICT, "Conflict");
            }
            assert_eq!(body["status"].as_object().unwrap().keys().collect::<Vec<_>>(), ["sync"], "all that is the gateway's");
            let patch = body["status"]["sync"].as_object().unwrap();
            assert!(!patch.contains_key("deleted"), "it is the operator's");
            // Server-side apply: the fields that it leaves out are removed.
            let mut sync = object["status"]["sync"].as_object().cloned().unwrap_or_default();
            sync.retain(|field, _| field == "deleted");
            sync.extend(patch.clone());
            object["status"]["sync"] = Value::Object(sync);
            Json(api.put("yoiprojects", object)).into_response()
        }
        (Method::PATCH, [.., "namespaces", namespace, "yoipods", name, "status"]) => {
            let answer = api.apply_status(namespace, name, &body);
            api.version.send_modify(|version| *version += 1);
            answer
        }
        (Method::PATCH, [.., "namespaces", namespace, "agentworkspaces", name, "status"]) => {
            let answer = api.merge_claims(namespace, name, &body);
            api.version.send_modify(|version| *version += 1);
            answer
        }
        (Method::GET, [.., "namespaces", namespace, kind]) => api.many(&format!("{kind}/{namespace}/"), &query),
        (Method::GET, [.., "namespaces", namespace, kind, name]) => match api.lock().objects.get(&format!("{kind}/{namespace}/{name}")) {
            Some(object) => Json(object.clone()).into_response(),
            None => failure(StatusCode::NOT_FOUND, "NotFound"),
        },
        (Method::GET, [.., kind]) => api.many(&format!("{kind}/"), &query),
        _ => failure(StatusCode::NOT_FOUND, "NotFound"),
    }
}

fn failure(code: StatusCode, reason: &str) -> Response {
    (
        code,
        Json(
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": reason, "code": code.as_u16()}),
        ),
    )
        .into_response()
}

fn selected(query: &BTreeMap<String, String>, object: &Value) -> bool {
    let Some((field, value)) = query.get("fieldSelector").and_then(|selector| selector.split_once('=')) else { return true };
    field.split('.').fold(object, |object, field| &object[field]).as_str() == Some(value)
}

impl FakeApiServer {
    fn many(&self, prefix: &str, query: &BTreeMap<String, String>) -> Response {
        let inner = self.lock();
        if !query.contains_key("watch") {
            let items: Vec<&Value> = inner
                .objects
                .iter()
                .filter(|(key, object)| key.starts_with(prefix) && selected(query, object))
                .map(|(_, object)| object)
                .collect();
            let list =
                json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": inner.version.to_string()}, "items": items});
            return Json(list).into_response();
        }
        let since: u64 = query["resourceVersion"].parse().unwrap();
        let (api, prefix, query) = (self.clone(), prefix.to_owned(), query.clone());
        let events = unfold((since, self.version.subscribe()), move |(since, mut version)| {
            let (api, prefix, query) = (api.clone(), prefix.clone(), query.clone());
            async move {
                loop {
                    let next = api
                        .lock()
                        .events
                        .iter()
                        .find(|(at, key, _, object)| *at > since && key.starts_with(&prefix) && selected(&query, object))
                        .cloned();
                    if let Some((at, _, event, object)) = next {
                        let line = format!("{}\n", json!({"type": event, "object": object}));
                        return Some((Ok::<_, Infallible>(line), (at, version)));
                    }
                    version.changed().await.ok()?;
                }
            }
        });
        Body::from_stream(events).into_response()
    }

    fn review(&self, review: &Value) -> Response {
        let token = self.lock().tokens.get(review["spec"]["token"].as_str().unwrap()).cloned();
        let wanted = &review["spec"]["audiences"][0];
        let status = match token.filter(|token| *wanted == token.audience.as_str()) {
            Some(token) => json!({"authenticated": true, "audiences": [token.audience], "user": {
                "username": format!("system:serviceaccount:{}:default", token.namespace),
                "extra": {"authentication.kubernetes.io/pod-uid": [token.pod_uid]},
            }}),
            None => json!({"authenticated": false, "user": {}}),
        };
        (
            StatusCode::CREATED,
            Json(json!({"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1", "metadata": {}, "spec": {}, "status": status})),
        )
            .into_response()
    }

    fn rights(&self, review: &Value) -> Response {
        let spec = &review["spec"];
        let what = &spec["resourceAttributes"];
        let object = match what["group"].as_str().unwrap() {
            "runtime.yoi.dev" => {
                assert_eq!(what["resource"], if what["subresource"] == "sync" { "yoiprojects" } else { "yoipods" });
                &what["subresource"]
            }
            group => {
                assert_eq!((group, &what["subresource"]), ("yoi.dev", &Value::Null));
                &what["resource"]
            }
        };
        let request = format!("{} {}", what["verb"].as_str().unwrap(), object.as_str().unwrap());
        let allowed = self.lock().rights.iter().any(|(user, right)| spec["user"] == user.as_str() && *right == request);
        let answer = json!({"kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "metadata": {}, "spec": {}, "status": {"allowed": allowed}});
        (StatusCode::CREATED, Json(answer)).into_response()
    }

    fn create(&self, kind: &str, namespace: &str, mut object: Value) -> Response {
        let mut inner = self.lock();
        let key = format!("{kind}/{namespace}/{}", object["metadata"]["name"].as_str().unwrap());
        if inner.refuse_creation {
            return failure(StatusCode::FORBIDDEN, "the namespace is being terminated");
        }
        if inner.objects.contains_key(&key) {
            return failure(StatusCode::CONFLICT, "AlreadyExists");
        }
        object["metadata"]["namespace"] = json!(namespace);
        object["metadata"]["uid"] = json!(key);
        (StatusCode::CREATED, Json(inner.put(kind, object))).into_response()
    }

    /// A merge patch of the claims alone.
    fn merge_claims(&self, namespace: &str, name: &str, patch: &Value) -> Response {
        let mut inner = self.lock();
        let Some(mut tree) = inner.objects.get(&format!("agentworkspaces/{namespace}/{name}")).cloned() else {
            return failure(StatusCode::NOT_FOUND, "NotFound");
        };
        if std::mem::take(&mut inner.refuse_next_claims) || patch["metadata"]["resourceVersion"] != tree["metadata"]["resourceVersion"] {
            return failure(StatusCode::CONFLICT, "Conflict");
        }
        assert_eq!(patch["metadata"]["uid"], tree["metadata"]["uid"]);
        assert_eq!(patch["status"].as_object().unwrap().keys().collect::<Vec<_>>(), ["claims"], "all that the gateway writes");
        tree["status"]["claims"] = patch["status"]["claims"].clone();
        Json(inner.put("agentworkspaces", tree)).into_response()
    }

    fn set_desired_state(&self, namespace: &str, name: &str, patch: &Value) -> Response {
        let mut inner = self.lock();
        let Some(mut object) = inner.objects.get(&format!("yoipods/{namespace}/{name}")).cloned() else {
            return failure(StatusCode::NOT_FOUND, "NotFound");
        };
        let (wanted, known) = (&patch["metadata"], &object["metadata"]);
        let is_other_version = !wanted["resourceVersion"].is_null() && wanted["resourceVersion"] != known["resourceVersion"];
        if wanted["uid"] != known["uid"] || is_other_version {
            return failure(StatusCode::CONFLICT, "Conflict");
        }
        assert_eq!(patch["spec"].as_object().unwrap().keys().collect::<Vec<_>>(), ["desiredState"], "all that the gateway changes");
        object["spec"]["desiredState"] = patch["spec"]["desiredState"].clone();
        Json(inner.put("yoipods", object)).into_response()
    }

    /// Server-side apply by one field manager: the fields that it leaves out are removed.
    fn apply_status(&self, namespace: &str, name: &str, patch: &Value) -> Response {
        let mut inner = self.lock();
        let Some(mut object) = inner.objects.get(&format!("yoipods/{namespace}/{name}")).cloned() else {
            return failure(StatusCode::NOT_FOUND, "NotFound");
        };
        if patch["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"] {
            return failure(StatusCode::CONFLICT, "Conflict");
        }
        let mut status: Map<String, Value> = object["status"].as_object().cloned().unwrap_or_default();
        let patch = patch["status"].as_object().unwrap();
        assert!(patch.keys().all(|field| GATEWAY_FIELDS.contains(&field.as_str())), "the gateway wrote {:?}", patch.keys());
        // The operator's parts of them.
        let reader = status.get("reader").and_then(|reader| reader.get("pod")).cloned();
        let mut push = status.get("push").and_then(Value::as_object).cloned().unwrap_or_default();
        push.remove("request");
        for field in GATEWAY_FIELDS {
            match patch.get(field) {
                Some(value) => drop(status.insert(field.to_owned(), value.clone())),
                None => drop(status.remove(field)),
            }
        }
        if let Some(pod) = reader {
            status.entry("reader").or_insert_with(|| json!({}))["pod"] = pod;
        }
        for (field, value) in push {
            status.entry("push").or_insert_with(|| json!({}))[field] = value;
        }
        object["status"] = Value::Object(status);
        Json(inner.put("yoipods", object)).into_response()
    }
}
