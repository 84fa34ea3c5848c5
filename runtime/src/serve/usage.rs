//! What an agent has used of its model: as its conversation counts it, or, of an agent that has stopped, as its log has it.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use yoi_engine::open_session::closed_session_reader;
use yoi_session::{Error, LogState, Reader, fold};
use yoi_wire::entry::TokenUsage;
use yoi_wire::hub::RefusalReason;
use yoi_wire::open::Open;
use yoi_wire::people::UsageResponse;

use super::{AgentState, BYTES_PER_READ, ENTRIES_PER_READ, ReadState, refuse, session_error_response};

pub(super) async fn usage(State(api): State<AgentState>) -> Response {
    let Some(session) = api.open_session.borrow().clone() else {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, RefusalReason::ReceiverFailed, "the session is not open");
    };
    let progress = session.feed.progress();
    Json(UsageResponse {
        activity: progress.activity.into(),
        total: progress.total,
        run: progress.run,
        turns: progress.turns,
        limit: *api.token_limit.borrow(),
        background: u32::try_from(*api.background.borrow()).unwrap_or(u32::MAX),
    })
    .into_response()
}

pub(super) async fn usage_of_stopped(State(api): State<ReadState>) -> Response {
    let read = move || closed_session_reader(&api.session_root)?.map(read_usage).transpose();
    match api.log_reads.run(read).await {
        Ok(Some(usage)) => Json(usage).into_response(),
        Ok(None) => refuse(StatusCode::NOT_FOUND, RefusalReason::Invalid, "there is no session yet"),
        Err(error) => session_error_response(&error),
    }
}

/// The sums at the end of the log. The limit is not in it.
fn read_usage(mut reader: Reader) -> Result<UsageResponse, Error> {
    let mut token = reader.replay_token()?;
    let mut state = LogState::default();
    let (mut run, mut turns) = (TokenUsage::default(), 0);
    loop {
        let (entries, next) = reader.read_bytes(token, ENTRIES_PER_READ, BYTES_PER_READ)?;
        if entries.is_empty() {
            break;
        }
        token = next;
        for stored in &entries {
            state = fold::apply(state, &stored.entry);
            // The last run's figures stay when it has ended.
            if let Some(open) = &state.open_run {
                (run, turns) = (open.tokens, open.turns);
            }
        }
    }
    Ok(UsageResponse { activity: Open::Other("Stopped".to_owned()), total: state.tokens, run, turns, limit: None, background: 0 })
}
