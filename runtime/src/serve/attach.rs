//! `GET` of the attach stream: what [`Follower`] gives, as lines of JSON.

use std::str::FromStr;

use axum::body::Body;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::stream;
use http::{StatusCode, header};
use serde::Deserialize;
use yoi_engine::follow::Follower;
use yoi_session::Token;
use yoi_wire::control::AttachLine;
use yoi_wire::hub::RefusalReason;

use super::{ReadState, refuse, session_error_response};

#[derive(Debug, Deserialize)]
pub(super) struct AttachQuery {
    after: Option<String>,
    tail: Option<usize>,
}

pub(super) async fn attach(State(api): State<ReadState>, Query(query): Query<AttachQuery>) -> Response {
    let token = match query.after.as_deref().map_or(Ok(Token::Start), Token::from_str) {
        Ok(token) => token,
        Err(error) => return session_error_response(&error),
    };
    let session = api.open_session.borrow().clone();
    // It has read for the first time before the answer's head, so that a bad token gets an HTTP status.
    let started = match &session {
        Some(session) => Follower::start(session, token, query.tail, api.log_reads, api.stop).await,
        None => Ok(None),
    };
    match started {
        Ok(Some(follower)) => {
            let lines = stream::unfold(follower, |mut follower| async {
                let lines = follower.next().await?;
                Some((lines.map(encode), follower))
            });
            ([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response()
        }
        Ok(None) => refuse(StatusCode::SERVICE_UNAVAILABLE, RefusalReason::ReceiverFailed, "the session is not open"),
        Err(error) => session_error_response(&error),
    }
}

fn encode(lines: Vec<AttachLine>) -> Bytes {
    let mut bytes = Vec::new();
    for line in lines {
        if serde_json::to_writer(&mut bytes, &line).is_ok() {
            bytes.push(b'\n');
        }
    }
    bytes.into()
}
