//! Counts the requests that change something at the API server, by resource and verb, never by object.

use axum::http::{Method, Request};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub struct ApiWrite {
    /// Plural, with the subresource: `yoipods/status`.
    resource: String,
    verb: &'static str,
}

pub type ApiWrites = Family<ApiWrite, Counter>;

/// The resources that the operator may change: all values of the label, beside `other`.
const RESOURCES: &[&str] = &[
    "yoiprojects",
    "yoipods",
    "yoipeers",
    "agentworkspaces",
    "workspacenodes",
    "pods",
    "configmaps",
    "persistentvolumeclaims",
    "persistentvolumes",
    "networkpolicies",
    "events",
    "leases",
    "secrets",
    "apiservices",
];

/// `None` for a read.
fn api_write(method: &Method, path: &str) -> Option<ApiWrite> {
    let verb = match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => return None,
    };
    let mut parts = path.trim_matches('/').split('/');
    // `api/v1/...` or `apis/GROUP/VERSION/...`.
    let skipped = if parts.next() == Some("api") { 1 } else { 2 };
    let mut rest: Vec<&str> = parts.skip(skipped).collect();
    if rest.first() == Some(&"namespaces") && rest.len() > 2 {
        rest.drain(..2);
    }
    let resource = RESOURCES.iter().find(|r| rest.first() == Some(*r)).copied().unwrap_or("other");
    let status = rest.get(2) == Some(&"status");
    Some(ApiWrite { resource: if status { format!("{resource}/status") } else { resource.to_owned() }, verb })
}

pub fn count<B>(writes: &ApiWrites, request: &Request<B>) {
    if let Some(write) = api_write(request.method(), request.uri().path()) {
        writes.get_or_create(&write).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_counted_by_resource_and_verb_and_never_by_name() {
        let of = |method: Method, path: &str| api_write(&method, path).map(|w| format!("{} {}", w.verb, w.resource));
        assert_eq!(of(Method::PATCH, "/apis/yoi.dev/v1alpha1/namespaces/n/yoipods/a/status").as_deref(), Some("patch yoipods/status"));
        assert_eq!(of(Method::POST, "/api/v1/namespaces/n/pods").as_deref(), Some("create pods"));
        assert_eq!(of(Method::DELETE, "/api/v1/persistentvolumes/yoi-1").as_deref(), Some("delete persistentvolumes"));
        assert_eq!(of(Method::PUT, "/apis/coordination.k8s.io/v1/namespaces/s/leases/yoi-operator").as_deref(), Some("update leases"));
        assert_eq!(of(Method::POST, "/apis/x.example/v1/namespaces/n/whatever").as_deref(), Some("create other"));
        assert_eq!(of(Method::GET, "/api/v1/namespaces/n/pods/a"), None);
    }
}
