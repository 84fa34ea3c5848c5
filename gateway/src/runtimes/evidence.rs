//! `POST /v1/children/{log,state,work}`: what the log and the tree of a child say, living or stopped, and its work to be merged. No notice is asked.

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use yoi_wire::bundle::BundleHead;
use yoi_wire::evidence::{ChildFacts, ChildLog, ChildLogRequest, ChildStateRequest, LogFacts, MAX_ENTRIES, TreeFacts};
use yoi_wire::hub::{Refusal, RefusalReason, SessionPointer, TaskReport, runtime_api};
use yoi_wire::merge::{MergeOrder, MergeRequest};

use super::RefusalResponse;
use super::children::{Answer, ChildState, Gateway, child};
use super::refusal::read_json;
use crate::GatewayState;
use crate::agent_index::AgentRecord;
use crate::child_log::{LogPart, facts};
use crate::child_words::is_token;
use crate::commits::Commits;
use crate::identity::AuthenticatedAgent;
use crate::people::{ApiFailure, ReaderWait, WhenStopped, read_from_runtime};

/// Entries at the end of a log among which its last run is looked for.
const LOOKED_THROUGH: u32 = 400;

pub async fn log(State(gateway): Gateway, Extension(caller): Extension<AuthenticatedAgent>, body: Body) -> Answer<ChildLog> {
    let ChildLogRequest { name, after, entries } = read_json("a request for a child's log", body).await?;
    let child = child(&gateway, &caller, &name).await?;
    let invalid = |message: &str| Refusal { reason: RefusalReason::Invalid, message: message.to_owned() };
    if entries == 0 || entries > MAX_ENTRIES {
        return Err(invalid(&format!("ask for 1 to {MAX_ENTRIES} entries")).into());
    }
    let part = match &after {
        Some(after) if is_token(after) => format!("after={after}"),
        Some(_) => {
            return Err(invalid("the position is none: take it from an earlier answer, or leave it out for the end of the log").into());
        }
        None => format!("tail={entries}"),
    };
    // Before the log is read: who is idle by now has done nothing after what is read.
    let ChildState { state, why: unready } = ChildState::of(&gateway, &child);
    let LogPart { entries, token, more, broken } = match read_log(&gateway, &child, &part).await {
        Ok(log) => LogPart::read(log, entries).await,
        Err(failure) => match failure.into_plain() {
            // Of another session, or of none.
            (StatusCode::BAD_REQUEST | StatusCode::GONE, message) if after.is_some() => return Err(invalid(&message).into()),
            (_, message) => LogPart { broken: Some(message), ..LogPart::default() },
        },
    };
    Ok(Json(ChildLog { entries, after: token.or(after), more, state, why: unready.or(broken) }))
}

pub async fn state(State(gateway): Gateway, Extension(caller): Extension<AuthenticatedAgent>, body: Body) -> Answer<ChildFacts> {
    let ChildStateRequest { name } = read_json("a request for a child's state", body).await?;
    let child = child(&gateway, &caller, &name).await?;
    let ChildState { state, why } = ChildState::of(&gateway, &child);
    let ((log, log_unread), tree) = futures::join!(log_facts(&gateway, &child), tree_facts(&gateway, &child));
    let (tree, tree_unread) = match tree {
        Ok(tree) => (Some(tree), None),
        Err(failure) => (None, Some(failure.into_plain().1)),
    };
    let status = &child.gateway_status;
    let task = status.task.clone().map(|task| TaskReport { id: task.id, state: task.state, reason: task.reason });
    let session = status.session.clone().map(|session| SessionPointer { id: session.id, segment: session.segment });
    let starts = child.run_generation.unsigned_abs();
    Ok(Json(ChildFacts { state, why, task, starts, session, log, log_unread, tree, tree_unread }))
}

/// The order to merge a child's work, and the work. The caller's runtime merges it into the caller's tree.
pub async fn work(State(gateway): Gateway, Extension(caller): Extension<AuthenticatedAgent>, body: Body) -> Result<Body, RefusalResponse> {
    let MergeRequest { name, dry_run, strategy } = read_json("a request for a child's work", body).await?;
    let child = child(&gateway, &caller, &name).await?;
    let work = Commits::of_work(&gateway, &child, ReaderWait::default()).await.map_err(ApiFailure::into_refusal)?;
    tracing::info!(target: "audit", object = %caller.agent, uid = caller.agent.uid, child = name, dry_run, "work asked for");
    Ok(work.into_merge(&MergeOrder { from: child.name.clone(), dry_run, strategy }))
}

async fn read_log(gateway: &GatewayState, child: &AgentRecord, part: &str) -> Result<Body, ApiFailure> {
    let path = format!("{}?follow=false&{part}", runtime_api::LOG);
    read_from_runtime(gateway, child, path, WhenStopped::Reader(ReaderWait::default())).await
}

async fn log_facts(gateway: &GatewayState, child: &AgentRecord) -> (Option<LogFacts>, Option<String>) {
    match read_log(gateway, child, &format!("tail={LOOKED_THROUGH}")).await {
        Ok(log) => facts(log).await,
        Err(failure) => (None, Some(failure.into_plain().1)),
    }
}

/// The line about the commits says it. The bundle behind it is not read, which ends it.
async fn tree_facts(gateway: &GatewayState, child: &AgentRecord) -> Result<TreeFacts, ApiFailure> {
    let BundleHead { name: _, commit, base, commits, uncommitted, inner_repositories: _ } =
        Commits::of(gateway, child, ReaderWait::default()).await?.head;
    Ok(TreeFacts { commit, base, commits, uncommitted })
}
