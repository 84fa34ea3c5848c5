//! The agent's commits as a bundle, and the request to commit the rest.

use std::io;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{StatusCode, header};
use tokio::time::{Instant, timeout_at};
use yoi_engine::error_text::error_text;
use yoi_wire::bundle::{BundleQuery, CommitRequest, CommitResponse, MAX_BUNDLE_BYTES};
use yoi_wire::hub::{Activity, RefusalReason};

use super::{AgentState, ReadState, refuse};
use crate::bundle::{Bundle, BundleError, CommitError, STREAM_TIMEOUT, bundle, commit};
use crate::git_repository::{GitError, GitStream};

pub(super) async fn get_bundle(State(api): State<ReadState>, query: Result<Query<BundleQuery>, QueryRejection>) -> Response {
    let query = match query {
        Ok(Query(query)) => query,
        Err(rejection) => return refuse(StatusCode::BAD_REQUEST, RefusalReason::Invalid, rejection.body_text()),
    };
    let Some(tree) = &api.tree else { return bundle_error_response(&BundleError::NoTree) };
    if let Some(why) = &api.no_git {
        return bundle_error_response(&BundleError::NotHere(why.clone()));
    }
    let Bundle { head, begin, stream } = match bundle(&api.processes, tree, &api.shim_socket, &query).await {
        Ok(bundle) => bundle,
        Err(error) => return bundle_error_response(&error),
    };
    // These types have no map with keys that are not strings, and no other way to fail.
    let mut line = serde_json::to_vec(&head).unwrap_or_default();
    line.push(b'\n');
    line.extend(begin);
    let body = stream::iter([Ok(Bytes::from(line))]).chain(chunks(stream));
    ([(header::CONTENT_TYPE, "application/octet-stream")], Body::from_stream(body)).into_response()
}

/// The bundle's bytes. What is longer than allowed ends with an error behind the first byte too many, and so does what takes too long.
fn chunks(git: Option<GitStream>) -> impl futures::Stream<Item = io::Result<Bytes>> {
    let end = Instant::now() + STREAM_TIMEOUT;
    stream::unfold((git, 0_u64), move |(git, sent)| async move {
        let mut git = git?;
        if sent > MAX_BUNDLE_BYTES {
            return Some((Err(io::Error::other("the bundle is longer than is allowed")), (None, sent)));
        }
        match timeout_at(end, git.next()).await {
            Ok(Ok(chunk)) if chunk.is_empty() => None,
            Ok(Ok(chunk)) => {
                let sent = sent + chunk.len() as u64;
                Some((Ok(chunk.into()), (Some(git), sent)))
            }
            Ok(Err(error)) => Some((Err(error), (None, sent))),
            Err(_) => Some((Err(io::ErrorKind::TimedOut.into()), (None, sent))),
        }
    })
}

fn bundle_error_response(error: &BundleError) -> Response {
    let (status, reason) = match error {
        BundleError::NoRepository => (StatusCode::NOT_FOUND, RefusalReason::NotGit),
        BundleError::NoTree | BundleError::NoBranch(_) => (StatusCode::NOT_FOUND, RefusalReason::Invalid),
        BundleError::BranchName(_) => (StatusCode::BAD_REQUEST, RefusalReason::Invalid),
        BundleError::NotOnBase { .. }
        | BundleError::ForeignHistory { .. }
        | BundleError::NotHere(_)
        | BundleError::Git(GitError::NotWhole(_) | GitError::Missing) => (StatusCode::CONFLICT, RefusalReason::Invalid),
        BundleError::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, RefusalReason::Invalid),
        BundleError::Base(_) | BundleError::Git(_) => (StatusCode::BAD_GATEWAY, RefusalReason::ReceiverFailed),
    };
    refuse(status, reason, error_text(error))
}

/// Whether no run is under way; if one is, nothing was `done`.
pub(super) fn check_idle(agent: &AgentState, done: &str) -> Result<(), Box<Response>> {
    let refused = |message: String| Err(Box::new(refuse(StatusCode::CONFLICT, RefusalReason::Invalid, message)));
    let activity = agent.open_session.borrow().as_ref().map(|session| session.feed.progress().activity);
    match activity {
        Some(Activity::Idle) => {}
        Some(Activity::Running | Activity::Paused | Activity::NeedsInput) => {
            return refused(format!("a run is under way, so nothing was {done}: wait until it ends, or end it with kubectl yoi cancel"));
        }
        None => {
            let closed = refuse(StatusCode::SERVICE_UNAVAILABLE, RefusalReason::ReceiverFailed, "the session is not open");
            return Err(Box::new(closed));
        }
    }
    match agent.conversations.busy() {
        Some(name) => refused(format!(
            "a run of conversation {name} is under way, so nothing was {done}: wait until it ends, or end it with kubectl yoi cancel --conversation {name}"
        )),
        None => Ok(()),
    }
}

/// Commits only between runs: what a run is about to write is its own to commit.
pub(super) async fn post_commit(
    State((read, agent)): State<(ReadState, AgentState)>,
    request: Result<Json<CommitRequest>, JsonRejection>,
) -> Response {
    let request = match request {
        Ok(Json(request)) => request,
        Err(rejection) => return refuse(rejection.status(), RefusalReason::Invalid, rejection.body_text()),
    };
    if let Err(response) = check_idle(&agent, "committed") {
        return *response;
    }
    let Some(tree) = &read.tree else { return bundle_error_response(&BundleError::NoTree) };
    match commit(&read.processes, tree, &request).await {
        Ok(commit) => Json(CommitResponse { commit }).into_response(),
        Err(error) => {
            let (status, reason) = match error {
                CommitError::NoRepository => (StatusCode::NOT_FOUND, RefusalReason::Invalid),
                CommitError::Message(_) => (StatusCode::BAD_REQUEST, RefusalReason::Invalid),
                CommitError::Conflicts | CommitError::TooMuch | CommitError::Git(GitError::NotWhole(_) | GitError::Missing) => {
                    (StatusCode::CONFLICT, RefusalReason::Invalid)
                }
                CommitError::Git(_) => (StatusCode::BAD_GATEWAY, RefusalReason::ReceiverFailed),
            };
            refuse(status, reason, error_text(&error))
        }
    }
}
