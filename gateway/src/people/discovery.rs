//! API discovery, for the API server's aggregator.

use axum::Json;
use axum::http::{HeaderMap, StatusCode, header};
use serde_json::{Value, json};
use yoi_wire::engine_api::{EVENTS_RIGHT, PREFIX, SUBRESOURCE, TOOLS_RIGHT};
use yoi_wire::people::{GROUP, VERSION};
use yoi_wire::ssh;

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
            // This one, `ssh` and `tools` are rights only: requests of theirs come by `proxy`.
            resource(EVENTS_RIGHT, "Event", "create"),
            resource("export", "Export", "get"),
            resource("log", "Log", "get"),
            resource("merge", "Merge", "create"),
            resource("message", "Message", "create"),
            resource("patch", "Patch", "get"),
            resources("proxy", "Engine", &["create", "get"]),
            resource("push", "Push", "create"),
            resource(ssh::RIGHT, "Ssh", "create"),
            resource(TOOLS_RIGHT, "ToolRun", "create"),
            resource("usage", "Usage", "get"),
            {"name": "yoiprojects/sync", "singularName": "", "namespaced": true, "kind": "Sync", "verbs": ["create"]},
        ],
    }))
}

/// The schema of what programs call, and of nothing else: the aggregator logs an error once a minute when there is no schema at all.
pub async fn schema() -> Json<Value> {
    let in_path = |name: &str| json!({"name": name, "in": "path", "required": true, "type": "string"});
    let in_query =
        |name: &str, kind: &str, description: &str| json!({"name": name, "in": "query", "type": kind, "description": description});
    let conversation = in_query("conversation", "string", "name of the conversation; main when absent");
    let call = |id: &str, produces: &str, more: Vec<Value>| {
        let parameters: Vec<Value> = [in_path("namespace"), in_path("name")].into_iter().chain(more).collect();
        json!({"operationId": id, "produces": [produces], "parameters": parameters, "responses": {"200": {"description": "OK"}}})
    };
    let path = |words: &str| format!("/apis/{}/namespaces/{{namespace}}/yoipods/{{name}}/{SUBRESOURCE}/{PREFIX}/{words}", group_version());
    let body = |description: &str| json!({"name": "body", "in": "body", "required": true, "description": description, "schema": {"type": "object"}});
    let follow = in_query("follow", "boolean", "go on with what comes");
    let after = in_query("after", "string", "the cursor of the last event that was read");
    let tail = in_query("tail", "integer", "only events of the last so many entries of the log");
    let read_events = call("connectEngineEvents", "text/event-stream", vec![conversation.clone(), follow, after, tail]);
    let event = body("{\"id\": UUID, \"type\": TYPE, \"data\": {...}}");
    let send_event = call("createEngineEvent", "application/json", vec![conversation.clone(), event]);
    let projection = call("connectEngineProjection", "application/json", vec![in_path("key"), conversation.clone()]);
    let tools = call("connectEngineTools", "application/json", vec![conversation.clone()]);
    let run = body("{\"id\": UUID, \"args\": {...}, \"waitSeconds\"?: NUMBER}");
    let run_tool = call("createEngineToolRun", "application/json", vec![in_path("tool"), conversation, run]);
    let paths = [
        (path("events"), json!({"get": read_events, "post": send_event})),
        (path("projection/{key}"), json!({"get": projection})),
        (path("tools"), json!({"get": tools})),
        (path("tools/{tool}"), json!({"post": run_tool})),
    ];
    let paths: serde_json::Map<String, Value> = paths.into_iter().collect();
    Json(json!({"swagger": "2.0", "info": {"title": GROUP, "version": VERSION}, "paths": paths}))
}

fn api_group() -> Value {
    let version = json!({"groupVersion": group_version(), "version": VERSION});
    json!({"name": GROUP, "versions": [version], "preferredVersion": version})
}

fn group_version() -> String {
    format!("{GROUP}/{VERSION}")
}
