//! API discovery, for the API server's aggregator.

use axum::Json;
use axum::http::{HeaderMap, StatusCode, header};
use serde_json::{Value, json};
use yoi_wire::people::{GROUP, VERSION};

use super::ApiFailure;

/// `/apis`, the list of groups. The aggregator first requests aggregated discovery only. After 406 it requests the plain form.
pub async fn group_list(headers: HeaderMap) -> Result<Json<Value>, ApiFailure> {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or("*/*");
    if accept.split(',').all(|kind| kind.contains("as=APIGroupDiscoveryList")) {
        return Err(ApiFailure::new(StatusCode::NOT_ACCEPTABLE, "discovery is served as APIGroupList"));
    }
    Ok(Json(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [api_group()]})))
}

/// `/apis/GROUP`.
pub async fn group() -> Json<Value> {
    let mut group = api_group();
    group["kind"] = json!("APIGroup");
    group["apiVersion"] = json!("v1");
    Json(group)
}

/// Subresources only: `yoipods` itself, as `yoiprojects`, is of the group `yoi.dev`, and a second resource of that name would make `kubectl get yoipods` ambiguous.
pub async fn resources() -> Json<Value> {
    let resources = |subresource: &str, kind: &str, verbs: &[&str]| json!({"name": format!("yoipods/{subresource}"), "singularName": "", "namespaced": true, "kind": kind, "verbs": verbs});
    let resource = |subresource: &str, kind: &str, verb: &str| resources(subresource, kind, &[verb]);
    Json(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version(),
        "resources": [
            resources("approval", "Approval", &["create", "get"]),
            resources("assets", "Assets", &["create", "get"]),
            resource("attach", "Attach", "get"),
            resources("bundle", "Bundle", &["create", "get"]),
            resource("control", "Control", "create"),
            resources("conversations", "Conversation", &["create", "delete", "get"]),
            resource("diff", "Diff", "get"),
            resource("export", "Export", "get"),
            resource("log", "Log", "get"),
            resource("message", "Message", "create"),
            resource("patch", "Patch", "get"),
            resource("push", "Push", "create"),
            resource("usage", "Usage", "get"),
            {"name": "yoiprojects/sync", "singularName": "", "namespaced": true, "kind": "Sync", "verbs": ["create"]},
        ],
    }))
}

/// An empty schema, because the aggregator logs an error once a minute when there is none.
pub async fn schema() -> Json<Value> {
    Json(json!({"swagger": "2.0", "info": {"title": GROUP, "version": VERSION}, "paths": {}}))
}

fn api_group() -> Value {
    let version = json!({"groupVersion": group_version(), "version": VERSION});
    json!({"name": GROUP, "versions": [version], "preferredVersion": version})
}

fn group_version() -> String {
    format!("{GROUP}/{VERSION}")
}
