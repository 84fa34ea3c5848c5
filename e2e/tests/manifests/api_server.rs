//! Sends manifests to the API server and returns its answers unchanged.

use std::time::Duration;

use anyhow::{Context, Result};
use axum::http::Request;
use kube::Client;
use serde_json::Value;
use yoi_e2e::poll_seen;

use crate::case::{Case, Kind, Method};

/// Sends the bytes of a case as they are. A typed client would change them.
#[derive(Clone)]
pub struct ApiServer {
    pub client: Client,
    pub namespace: String,
    pub group: String,
}

#[derive(Clone, Debug)]
pub enum Response {
    /// The object as the API server stored it or, in a dry run, would store it.
    Accepted(String),
    Refused(Refusal),
}

#[derive(Clone, Debug, Default)]
pub struct Refusal {
    pub code: u16,
    pub message: String,
    /// Field and message of each cause.
    pub causes: Vec<(String, String)>,
}

pub const GROUP: &str = "yoi.dev";
/// How long a server that is busy, or whose connections break, is asked again.
const PATIENCE: Duration = Duration::from_secs(60);

impl ApiServer {
    pub fn new(client: &Client, namespace: &str) -> ApiServer {
        ApiServer { client: client.clone(), namespace: namespace.to_owned(), group: GROUP.to_owned() }
    }

    fn collection(&self, kind: Kind) -> String {
        let (group, plural) = (&self.group, kind.plural());
        if kind.namespaced() {
            format!("/apis/{group}/v1alpha1/namespaces/{}/{plural}", self.namespace)
        } else {
            format!("/apis/{group}/v1alpha1/{plural}")
        }
    }

    /// Sends a case. With `dry` nothing is stored.
    pub async fn send(&self, case: &Case, dry: bool) -> Result<Response> {
        let all = self.collection(case.kind);
        let one = format!("{all}/{}", escape(&case.name));
        let (method, path, type_) = match case.method {
            Method::Create => ("POST", all, "application/json"),
            Method::Apply => ("PATCH", one, "application/apply-patch+yaml"),
            Method::Update => ("PUT", one, "application/json"),
            Method::Merge => ("PATCH", one, "application/merge-patch+json"),
            Method::MergeStatus => ("PATCH", format!("{one}/status"), "application/merge-patch+json"),
        };
        let mut query = format!("fieldManager=somebody&fieldValidation={}", if case.strict { "Strict" } else { "Ignore" });
        if dry {
            query.push_str("&dryRun=All");
        }
        if case.method == Method::Apply {
            query.push_str("&force=true");
        }
        let mut text = case.text.clone();
        if self.group != GROUP {
            text = text.replace(&format!("\"{GROUP}/v1alpha1\""), &format!("\"{}/v1alpha1\"", self.group));
        }
        let answered = poll_seen(PATIENCE, format!("{} has its answer", case.description()), async || {
            let mut body = text.clone();
            if case.method == Method::Update {
                // An update needs the current resourceVersion.
                let version = self.version(case).await?;
                body = body.replacen("\"metadata\":{", &format!("\"metadata\":{{\"resourceVersion\":\"{version}\","), 1);
            }
            let response = self.raw(method, &format!("{path}?{query}"), type_, body).await?;
            // On a conflict with a write of the status it tries again, as clients do. So it does when a busy API server ran out of time, which says
            // nothing of the object.
            let is_final = match &response {
                Response::Refused(refusal) if refusal.code == 409 => !refusal.message.contains("the object has been modified"),
                Response::Refused(refusal) => refusal.code != 504,
                Response::Accepted(_) => true,
            };
            Ok(if is_final { Ok(response) } else { Err(format!("{response:?}")) })
        });
        Ok(answered.await?.0)
    }

    async fn version(&self, case: &Case) -> Result<String> {
        let path = format!("{}/{}", self.collection(case.kind), escape(&case.name));
        let object: Value = self.client.request(Request::get(path).body(Vec::new())?).await.context("the existing specimen")?;
        Ok(object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned())
    }

    /// Asks in a dry run whether the API server would create this object.
    pub async fn would_make(&self, object: &Value) -> Result<Response> {
        let (version, kind) = (object["apiVersion"].as_str().unwrap_or_default(), object["kind"].as_str().unwrap_or_default());
        let root = if version == "v1" { "/api/v1".to_owned() } else { format!("/apis/{version}") };
        let plural = format!("{}s", kind.to_lowercase());
        let path = match kind {
            "PersistentVolume" => format!("{root}/{plural}"),
            _ => format!("{root}/namespaces/{}/{plural}", self.namespace),
        };
        self.raw("POST", &format!("{path}?dryRun=All&fieldValidation=Strict"), "application/json", object.to_string()).await
    }

    async fn raw(&self, method: &str, uri: &str, type_: &str, body: String) -> Result<Response> {
        // A dry run has changed nothing when its connection breaks, so it is sent again, as clients do.
        let dry = uri.contains("dryRun=All");
        let answered = poll_seen(PATIENCE, format!("{method} {uri} has its answer"), async || {
            let request = Request::builder().method(method).uri(uri).header("content-type", type_).header("accept", "application/json");
            match self.client.request_text(request.body(body.clone().into_bytes())?).await {
                Ok(text) => Ok(Ok(Response::Accepted(text))),
                Err(kube::Error::Api(status)) => {
                    let causes = status.details.iter().flat_map(|d| &d.causes).map(|c| (c.field.clone(), c.message.clone())).collect();
                    Ok(Ok(Response::Refused(Refusal { code: status.code, message: status.message.clone(), causes })))
                }
                Err(broken) if dry => Ok(Err(format!("{broken:?}"))),
                Err(other) => Err(other).with_context(|| format!("{method} {uri}")),
            }
        });
        Ok(answered.await?.0)
    }
}

/// Escapes a name for use as a segment of a path.
fn escape(name: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    name.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}
