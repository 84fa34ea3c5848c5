//! The skills, commands and workflows of the agent's tree and of its team's sets. A program reads those of its own format itself: of such an agent they are
//! listed as Yoi reads them.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use yoi_engine::assets::{LoadedAssets, ProjectAssets, Strictness, counts, found, listing};
use yoi_engine::error_text::error_text;
use yoi_engine::log_reads::blocking;
use yoi_engine::tools::tree::Tree;
use yoi_wire::assets::{AssetsQuery, AssetsResponse, ReloadAssets};
use yoi_wire::hub::{Activity, RefusalReason};

use super::{AgentState, ReadState, refuse};

type AskedQuery = Result<Query<AssetsQuery>, QueryRejection>;

/// Those that count. While nothing runs the tree is looked at, as the next run would do.
pub(super) async fn assets(State(api): State<AgentState>, query: AskedQuery) -> Response {
    let assets = api.assets;
    let query = match query {
        Ok(Query(query)) => query,
        Err(rejection) => return bad_query(&rejection),
    };
    let session = api.open_session.borrow().clone();
    let is_idle = session.is_some_and(|session| session.feed.progress().activity == Activity::Idle);
    let read = move || {
        if is_idle {
            assets.look();
        }
        answer(&assets.loaded(), &query)
    };
    Json(blocking(read).await).into_response()
}

/// Reads them again, whatever runs. Each question of the agent is answered from one generation.
pub(super) async fn reload(State(api): State<AgentState>, request: Result<Json<ReloadAssets>, JsonRejection>) -> Response {
    let request = match request {
        Ok(Json(request)) => request,
        Err(rejection) => return refuse(rejection.status(), RefusalReason::Invalid, rejection.body_text()),
    };
    let assets = api.assets;
    let strictness = if request.strict { Strictness::Strict } else { Strictness::Lenient };
    match blocking(move || assets.reload(strictness).map(|snapshot| counts(&snapshot))).await {
        Ok(reloaded) => Json(reloaded).into_response(),
        Err(error) => {
            let message = format!("nothing was loaded, and what was loaded before counts on: {}", error_text(&error));
            refuse(StatusCode::CONFLICT, RefusalReason::Invalid, message)
        }
    }
}

/// Those that a start of the agent would find.
pub(super) async fn assets_of_stopped(State(api): State<ReadState>, query: AskedQuery) -> Response {
    let query = match query {
        Ok(Query(query)) => query,
        Err(rejection) => return bad_query(&rejection),
    };
    let Some(path) = api.tree else {
        return refuse(StatusCode::NOT_FOUND, RefusalReason::Invalid, "the agent's tree is gone");
    };
    let settings = api.assets;
    let read = move || {
        Tree::open(&path).map(|tree| {
            let assets = ProjectAssets::new(Arc::new(tree));
            assets.set_settings(settings);
            answer(&assets.loaded(), &query)
        })
    };
    match blocking(read).await {
        Ok(answer) => Json(answer).into_response(),
        Err(error) => {
            refuse(StatusCode::INTERNAL_SERVER_ERROR, RefusalReason::ReceiverFailed, format!("failed to open the agent's tree: {error}"))
        }
    }
}

fn answer(loaded: &LoadedAssets, AssetsQuery { search }: &AssetsQuery) -> AssetsResponse {
    search.as_ref().map_or_else(|| listing(loaded), |text| found(&loaded.snapshot, text))
}

fn bad_query(rejection: &QueryRejection) -> Response {
    refuse(rejection.status(), RefusalReason::Invalid, rejection.body_text())
}
