//! An API server that stores objects, lists and watches them, and lets a test play the controllers.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::sync::{broadcast, mpsc};

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    pub path: String,
    pub query: BTreeMap<String, String>,
    pub headers: HeaderMap,
    /// Null for what is no JSON.
    pub body: Value,
    pub bytes: Bytes,
}

/// Changes an object before it is stored: what a controller would do a moment later. It gets the collection's path.
type Controller = Box<dyn Fn(&str, &mut Value) + Send>;

#[derive(Default)]
struct Stored {
    objects: BTreeMap<String, Value>,
    answers: BTreeMap<String, (u16, Vec<u8>)>,
    /// Bodies that are written while they are read, one for each request of a path.
    streams: BTreeMap<String, VecDeque<mpsc::UnboundedReceiver<String>>>,
    requests: Vec<Request>,
    controller: Option<Controller>,
    version: u64,
    /// Every change, with the collection that it is of.
    history: Vec<Change>,
}

/// A change of a collection: the event that a watch reports.
#[derive(Clone)]
struct Change {
    version: u64,
    collection: String,
    event: Value,
}

/// The server. It ends with the test's runtime.
#[derive(Clone)]
pub struct ApiServer {
    stored: Arc<Mutex<Stored>>,
    changes: broadcast::Sender<Change>,
    pub url: String,
}

impl ApiServer {
    pub async fn start() -> anyhow::Result<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let server = ApiServer { stored: Arc::default(), changes: broadcast::channel(1024).0, url };
        let app = Router::new().fallback(answer).with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Ok(server)
    }

    fn stored(&self) -> MutexGuard<'_, Stored> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores an object of the namespace `ns`, or of the cluster where its kind is.
    pub fn put(&self, mut object: Value) -> &Self {
        let (kind, name) = (object["kind"].as_str().unwrap_or_default().to_owned(), object["metadata"]["name"].clone());
        let collection = collection(&kind);
        let mut stored = self.stored();
        stored.version += 1;
        let version = stored.version;
        let metadata = &mut object["metadata"];
        if collection.contains("/namespaces/ns/") {
            metadata["namespace"] = json!("ns");
        }
        for (field, value) in
            [("uid", json!(format!("uid-{version}"))), ("generation", json!(1)), ("creationTimestamp", json!("2026-01-01T00:00:00Z"))]
        {
            if metadata[field].is_null() {
                metadata[field] = value;
            }
        }
        metadata["resourceVersion"] = json!(version.to_string());
        let path = format!("{collection}/{}", name.as_str().unwrap_or_default());
        let kind = if stored.objects.contains_key(&path) { "MODIFIED" } else { "ADDED" };
        stored.objects.insert(path, object.clone());
        self.report(&mut stored, Change { version, collection, event: json!({ "type": kind, "object": object }) });
        drop(stored);
        self
    }

    fn report(&self, stored: &mut Stored, change: Change) {
        stored.history.push(change.clone());
        let _ = self.changes.send(change);
    }

    pub fn object(&self, kind: &str, name: &str) -> Option<Value> {
        self.stored().objects.get(&format!("{}/{name}", collection(kind))).cloned()
    }

    pub fn remove(&self, kind: &str, name: &str) {
        remove(self, &collection(kind), name);
    }

    /// Answers each request for this path like this, whatever is stored.
    pub fn answer(&self, path: &str, code: u16, body: impl Into<Vec<u8>>) -> &Self {
        self.stored().answers.insert(path.to_owned(), (code, body.into()));
        self
    }

    /// Answers each request for a subresource of an agent in the namespace `ns`; `*` is every agent without an answer of its own.
    pub fn answer_for(&self, agent: &str, subresource: &str, code: u16, body: impl Into<Vec<u8>>) -> &Self {
        self.answer(&format!("/apis/runtime.yoi.dev/v1alpha1/namespaces/ns/yoipods/{agent}/{subresource}"), code, body)
    }

    /// Answers the next request for a subresource of an agent with what is sent here, until the sender is dropped.
    pub fn stream_for(&self, agent: &str, subresource: &str) -> mpsc::UnboundedSender<String> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let path = format!("/apis/runtime.yoi.dev/v1alpha1/namespaces/ns/yoipods/{agent}/{subresource}");
        self.stored().streams.entry(path).or_default().push_back(receiver);
        sender
    }

    /// The requests for a subresource of an agent.
    pub fn requests_for(&self, agent: &str, subresource: &str) -> Vec<Request> {
        let path = format!("/apis/runtime.yoi.dev/v1alpha1/namespaces/ns/yoipods/{agent}/{subresource}");
        self.requests().into_iter().filter(|request| request.path == path).collect()
    }

    /// Plays a controller.
    pub fn control(&self, controller: impl Fn(&str, &mut Value) + Send + 'static) {
        self.stored().controller = Some(Box::new(controller));
    }

    pub fn requests(&self) -> Vec<Request> {
        self.stored().requests.clone()
    }

    /// The requests that write, as `METHOD path`.
    pub fn writes(&self) -> Vec<String> {
        self.requests().iter().filter(|r| r.method != "GET").map(|r| format!("{} {}", r.method, r.path)).collect()
    }
}

/// The path of the collection of a kind.
pub fn collection(kind: &str) -> String {
    let plural = format!("{}s", kind.to_lowercase());
    match kind {
        "YoiPod" | "YoiProject" | "YoiPeer" | "AgentWorkspace" => format!("/apis/yoi.dev/v1alpha1/namespaces/ns/{plural}"),
        "Deployment" | "DaemonSet" => format!("/apis/apps/v1/namespaces/ns/{plural}"),
        "PersistentVolume" | "Namespace" => format!("/api/v1/{plural}"),
        "WorkspaceNode" => format!("/apis/yoi.dev/v1alpha1/{plural}"),
        _ => format!("/api/v1/namespaces/ns/{plural}"),
    }
}

/// A Kubernetes Status.
pub fn status(code: u16, reason: &str, message: &str) -> String {
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code, "reason": reason, "message": message })
        .to_string()
}

/// The path of a subresource with `*` in place of the agent's name.
fn of_any_agent(path: &str) -> String {
    match path.split_once("/yoipods/").and_then(|(before, after)| Some((before, after.split_once('/')?.1))) {
        Some((before, subresource)) => format!("{before}/yoipods/*/{subresource}"),
        None => String::new(),
    }
}

async fn answer(
    State(server): State<ApiServer>,
    method: Method,
    uri: Uri,
    Query(query): Query<BTreeMap<String, String>>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Response {
    let path = uri.path().to_owned();
    let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let request = Request { method: method.to_string(), path: path.clone(), query, headers, body, bytes };
    server.stored().requests.push(request.clone());
    let stream = server.stored().streams.get_mut(&path).and_then(VecDeque::pop_front);
    if let Some(stream) = stream {
        let lines = futures::stream::unfold(stream, |mut stream| async move { Some((Ok::<_, Infallible>(stream.recv().await?), stream)) });
        return Body::from_stream(lines).into_response();
    }
    let given = {
        let stored = server.stored();
        stored.answers.get(&path).or_else(|| stored.answers.get(&of_any_agent(&path))).cloned()
    };
    if let Some((code, body)) = given {
        return respond(code, body);
    }
    if path == "/version" {
        let version = json!({ "major": "1", "minor": "34", "gitVersion": "v1.34.4", "gitCommit": "", "gitTreeState": "", "buildDate": "",
            "goVersion": "", "compiler": "", "platform": "" });
        return respond(200, version.to_string());
    }
    let there = server.stored().objects.get(&path).cloned();
    match method.as_str() {
        "GET" => read(&server, &request),
        "POST" => write(&server, &path, &request, None),
        "PATCH" | "PUT" => match there {
            None => not_found(&path),
            Some(there) => write(&server, parent(&path).0, &request, Some(there)),
        },
        "DELETE" => delete(&server, &request),
        _ => respond(405, status(405, "MethodNotAllowed", "no")),
    }
}

fn respond(code: u16, body: impl Into<Body>) -> Response {
    let code = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (code, [("content-type", "application/json")], body.into()).into_response()
}

fn not_found(path: &str) -> Response {
    respond(404, status(404, "NotFound", &format!("{path} not found")))
}

fn parent(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or((path, ""))
}

fn matches(object: &Value, query: &BTreeMap<String, String>) -> bool {
    let name = query.get("fieldSelector").and_then(|selector| selector.strip_prefix("metadata.name="));
    let label = query.get("labelSelector").and_then(|selector| selector.split_once('='));
    name.is_none_or(|name| object["metadata"]["name"] == name)
        && label.is_none_or(|(key, value)| object["metadata"]["labels"][key] == value)
}

fn read(server: &ApiServer, request: &Request) -> Response {
    let Request { path, query, .. } = request;
    if query.get("watch").is_some_and(|watch| watch == "true") {
        return watch(server, path.clone(), query.clone());
    }
    let stored = server.stored();
    if let Some(object) = stored.objects.get(path) {
        return respond(200, object.to_string());
    }
    // A list of every namespace is the list of the only one.
    let here = if path.contains("/namespaces/")
        || path.starts_with("/api/v1/p")
        || path == "/api/v1/namespaces"
        || path.ends_with("/workspacenodes")
    {
        path.clone()
    } else {
        let (group, plural) = parent(path);
        format!("{group}/namespaces/ns/{plural}")
    };
    let of = |key: &str| parent(key).0 == here;
    let plural = parent(&here).1;
    let known = [
        "yoipods",
        "yoiprojects",
        "yoipeers",
        "agentworkspaces",
        "persistentvolumeclaims",
        "persistentvolumes",
        "namespaces",
        "pods",
        "workspacenodes",
    ];
    if !known.contains(&plural) && !["deployments", "daemonsets"].contains(&plural) {
        return not_found(path);
    }
    let items: Vec<&Value> =
        stored.objects.iter().filter(|(key, object)| of(key) && matches(object, query)).map(|(_, object)| object).collect();
    let list = json!({ "kind": "List", "apiVersion": "v1", "metadata": { "resourceVersion": stored.version.to_string() }, "items": items });
    respond(200, list.to_string())
}

fn watch(server: &ApiServer, collection: String, query: BTreeMap<String, String>) -> Response {
    let since: u64 = query.get("resourceVersion").and_then(|version| version.parse().ok()).unwrap_or_default();
    let stored = server.stored();
    let changes = server.changes.subscribe();
    let is_meant = move |change: &Change| change.collection == collection && matches(&change.event["object"], &query);
    let line = |change: &Change| Ok::<_, Infallible>(Bytes::from(format!("{}\n", change.event)));
    // What has changed since the list was made.
    let first: Vec<_> = stored.history.iter().filter(|change| change.version > since && is_meant(change)).map(line).collect();
    drop(stored);
    let later = futures::stream::unfold((changes, is_meant), move |(mut changes, is_meant)| async move {
        loop {
            match changes.recv().await {
                Ok(change) if is_meant(&change) => return Some((line(&change), (changes, is_meant))),
                Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    });
    let body = Body::from_stream(futures::StreamExt::chain(futures::stream::iter(first), later));
    ([("content-type", "application/json")], body).into_response()
}

fn write(server: &ApiServer, collection: &str, request: &Request, before: Option<Value>) -> Response {
    let mut object = match &before {
        None => request.body.clone(),
        Some(before) => {
            let mut object = before.clone();
            merge(&mut object, &request.body);
            if object["spec"] != before["spec"] {
                object["metadata"]["generation"] = json!(before["metadata"]["generation"].as_u64().unwrap_or(1) + 1);
            }
            object
        }
    };
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    if before.is_none() && server.stored().objects.contains_key(&format!("{collection}/{name}")) {
        return respond(409, status(409, "AlreadyExists", "is there"));
    }
    if request.query.contains_key("dryRun") {
        return respond(200, object.to_string());
    }
    if object["metadata"]["generation"].is_null() {
        object["metadata"]["generation"] = json!(1);
    }
    if let Some(controller) = &server.stored().controller {
        controller(collection, &mut object);
    }
    server.put(object);
    let stored = server.stored().objects.get(&format!("{collection}/{name}")).cloned().unwrap_or_default();
    respond(if before.is_some() { 200 } else { 201 }, stored.to_string())
}

fn delete(server: &ApiServer, request: &Request) -> Response {
    let (collection, name) = parent(&request.path);
    let Some(object) = server.stored().objects.get(&request.path).cloned() else { return not_found(&request.path) };
    let wanted = &request.body["preconditions"]["uid"];
    if !wanted.is_null() && *wanted != object["metadata"]["uid"] {
        return respond(409, status(409, "Conflict", "another object"));
    }
    // What has a finalizer goes when the test takes it away.
    let is_held = object["metadata"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty());
    if !is_held && !request.body["dryRun"].is_array() {
        remove(server, collection, name);
    }
    respond(200, object.to_string())
}

fn remove(server: &ApiServer, collection: &str, name: &str) {
    let mut stored = server.stored();
    stored.version += 1;
    let version = stored.version;
    if let Some(mut object) = stored.objects.remove(&format!("{collection}/{name}")) {
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        let event = json!({ "type": "DELETED", "object": object });
        server.report(&mut stored, Change { version, collection: collection.to_owned(), event });
    }
}

fn merge(value: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *value = patch.clone();
        return;
    };
    for (key, field) in fields {
        merge(&mut value[key.as_str()], field);
    }
}
