//! `yoipods/assets`: the skills and commands of an agent's tree. `GET` lists or searches them, also of a stopped agent; `POST` has a running one read them again.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Path, Query, State};
use axum::http::{Method, StatusCode};
use axum::response::Response;
use yoi_wire::assets::{AssetsQuery, MAX_SEARCH_BYTES, ReloadAssets};
use yoi_wire::hub::runtime_api;

use super::ApiFailure;
use super::approval::{Ask, ask_runtime, json};
use super::log::pass_on;
use super::read::ReaderWait;
use super::target::AgentTarget;
use crate::GatewayState;
use crate::agent_index::AgentRecord;
use crate::body;
use crate::front_proxy::User;
use crate::metrics::ControlLabels;

pub async fn assets(
    State(gateway): State<Arc<GatewayState>>,
    Path(target): Path<AgentTarget>,
    Extension(user): Extension<User>,
    query: Result<Query<AssetsQuery>, QueryRejection>,
    wait: Result<Query<ReaderWait>, QueryRejection>,
) -> Result<Response, ApiFailure> {
    if let Ok(Query(AssetsQuery { search: Some(text) })) = &query
        && text.len() > MAX_SEARCH_BYTES
    {
        let why = format!("search has {} bytes, and {MAX_SEARCH_BYTES} are allowed: look for a part of it", text.len());
        return Err(ApiFailure::new(StatusCode::BAD_REQUEST, why));
    }
    let path = query.map(|Query(query)| format!("{}?{}", runtime_api::ASSETS, query.to_url()));
    pass_on(&gateway, target, &user, "assets", (path, wait), "application/json").await
}

pub async fn reload(
    State(gateway): State<Arc<GatewayState>>,
    Path(target): Path<AgentTarget>,
    Extension(user): Extension<User>,
    body: Body,
) -> Result<Response, ApiFailure> {
    let record = target.resolve(&gateway, &user, "create", "assets").await?;
    let bad = |why: String| ApiFailure::new(StatusCode::BAD_REQUEST, why).about(&record.name.name);
    // The content type is not checked, because `kubectl create --raw` sends none.
    let body = body::read(body).await.map_err(|error| bad(yoi_wire::error_chain(&error)))?;
    let ReloadAssets { strict } =
        serde_json::from_slice(&body).map_err(|error| bad(format!("the body must be {{\"strict\"?: BOOLEAN}}: {error}")))?;
    let ask = Ask {
        method: Method::POST,
        path: runtime_api::ASSETS.to_owned(),
        body,
        when_lost: "may have read them all the same: ask again, which reads them once more",
        // An agent that rests reads them when it is woken.
        wakes_for: None,
    };
    let answer = ask_runtime(&gateway, &user, &record, &ask).await;
    let (action, outcome) = ("reload_assets", if answer.is_ok() { "Done" } else { "NoAnswer" });
    gateway.metrics.control_requests.get_or_create(&ControlLabels { action, answer: outcome }).inc();
    let AgentRecord { name, run_generation: run, .. } = &*record;
    tracing::info!(target: "audit", person = user.name, object = %name, uid = name.uid, run, action, strict, outcome, "reload of assets");
    answer.map(|bytes| json(Body::from(bytes)))
}
