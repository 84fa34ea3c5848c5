//! The skills, commands and workflows of the agent's tree.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use yoi_engine::assets::{ProjectAssets, listing};
use yoi_engine::log_reads::blocking;
use yoi_engine::tools::tree::Tree;
use yoi_wire::hub::{Activity, RefusalReason};

use super::{AgentState, ReadState, refuse};

/// Those that count. While nothing runs the tree is looked at, as the next run would do.
pub(super) async fn assets(State(api): State<AgentState>) -> Response {
    let Some(assets) = api.assets else {
        let message = "the agent is a program, which reads its skills and commands itself";
        return refuse(StatusCode::CONFLICT, RefusalReason::Invalid, message);
    };
    let session = api.open_session.borrow().clone();
    let is_idle = session.is_some_and(|session| session.feed.progress().activity == Activity::Idle);
    let snapshot = blocking(move || if is_idle { assets.look() } else { assets.current() }).await;
    Json(listing(&snapshot)).into_response()
}

/// Those that a start of the agent would find.
pub(super) async fn assets_of_stopped(State(api): State<ReadState>) -> Response {
    let Some(path) = api.tree else {
        return refuse(StatusCode::NOT_FOUND, RefusalReason::Invalid, "the agent's tree is gone");
    };
    let read = move || Tree::open(&path).map(|tree| listing(&ProjectAssets::new(Arc::new(tree)).current()));
    match blocking(read).await {
        Ok(listed) => Json(listed).into_response(),
        Err(error) => {
            refuse(StatusCode::INTERNAL_SERVER_ERROR, RefusalReason::ReceiverFailed, format!("failed to open the agent's tree: {error}"))
        }
    }
}
