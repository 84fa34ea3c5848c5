//! An API server with scripted answers, which records the requests.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

#[derive(Clone, Debug)]
pub struct ApiRequest {
    pub method: String,
    pub path: String,
    pub query: String,
    pub body: Value,
    /// `Content-Type` and `Accept`: the kind of patch, and whether only metadata is wanted.
    pub headers: String,
}

pub type Requests = Arc<Mutex<Vec<ApiRequest>>>;

pub fn server(answer: impl Fn(&ApiRequest) -> (u16, Value) + Send + Sync + 'static) -> (Client, Requests) {
    let requests = Requests::default();
    let (seen, answer) = (Arc::clone(&requests), Arc::new(answer));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
        async move {
            let (parts, body) = request.into_parts();
            let bytes = body.collect_bytes().await.expect("a body");
            let header = |name: &str| parts.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
            let request = ApiRequest {
                method: parts.method.to_string(),
                path: parts.uri.path().to_owned(),
                query: parts.uri.query().unwrap_or_default().to_owned(),
                body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
                headers: format!("{} {}", header("content-type"), header("accept")),
            };
            let (code, answer) = answer(&request);
            seen.lock().expect("the lock").push(request);
            let response = Response::builder().status(code).body(Body::from(answer.to_string().into_bytes()));
            Ok::<_, Infallible>(response.expect("a response"))
        }
    });
    (Client::new(service, "default"), requests)
}

pub fn refusal(code: u16, reason: &str, message: &str) -> (u16, Value) {
    (
        code,
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": reason, "message": message, "code": code}),
    )
}

pub fn not_found() -> (u16, Value) {
    refusal(404, "NotFound", "it is not there")
}

pub fn conflict() -> (u16, Value) {
    refusal(409, "Conflict", "the UID in the precondition does not match")
}

pub fn made<T: serde::de::DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).expect("an object of the kind")
}
