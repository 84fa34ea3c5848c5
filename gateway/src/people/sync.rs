//! `yoiprojects/sync`: takes a working tree that a person sends, in parts. Its objects are looked at by the Pod that fills the next base, and not here.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Path, Query, State};
use axum::http::StatusCode;
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;
use yoi_crds::sync::{MAX_SYNC_BYTES, PART_BYTES, is_machine_name, part_count, sync_ref};
use yoi_wire::push::is_hash;
use yoi_wire::sync::{SyncQuery, SyncResponse};
use yoi_worktree::{BundleHeader, HeaderError};

use super::ApiFailure;
use super::read::bad_query;
use super::target::check_right;
use crate::GatewayState;
use crate::access::{AccessRequest, AccessResource};
use crate::body::{self, BodyError};
use crate::front_proxy::User;
use crate::sync_store::{SyncError, Taken, Upload};

/// Namespace and name of a YoiProject, from the path.
#[derive(Debug, Deserialize)]
pub struct ProjectTarget {
    namespace: String,
    name: String,
}

/// `POST`. Sent twice, the second one finds what the first one has brought.
pub async fn sync(
    State(gateway): State<Arc<GatewayState>>,
    Path(ProjectTarget { namespace, name }): Path<ProjectTarget>,
    Extension(user): Extension<User>,
    query: Result<Query<SyncQuery>, QueryRejection>,
    body: Body,
) -> Result<Json<SyncResponse>, ApiFailure> {
    let query = match check_request(&gateway, &user, &namespace, &name, query).await {
        Ok(query) => query,
        Err(failure) => {
            body::discard(body).await;
            return Err(failure);
        }
    };
    let failed = |code, why: String| ApiFailure::new(code, format!("YoiProject {namespace}/{name}: {why}"));
    let bad = |why: String| failed(StatusCode::BAD_REQUEST, why);
    let _upload = gateway.syncs.begin().await;
    let part = body::read_at_most(body, PART_BYTES).await.map_err(|error| match error {
        BodyError::TooLong => {
            failed(StatusCode::PAYLOAD_TOO_LARGE, format!("nothing was taken: a part of a bundle is at most {PART_BYTES} bytes"))
        }
        BodyError::Broken(_) => bad(yoi_wire::error_chain(&error)),
    })?;
    check_part(&part, &query).map_err(|why| bad(format!("nothing was taken: {why}")))?;
    let upload = Upload { namespace: &namespace, project: &name, person: &user.name, query: &query, part: &part };
    let taken = gateway.syncs.take(&upload).await.map_err(|error| {
        let code = match &error {
            SyncError::NotFound => StatusCode::NOT_FOUND,
            SyncError::TakesNone | SyncError::Newer { .. } | SyncError::Forgotten(_) | SyncError::PartMissing { .. } => {
                StatusCode::CONFLICT
            }
            SyncError::Full => StatusCode::TOO_MANY_REQUESTS,
            SyncError::Contended | SyncError::Api { .. } | SyncError::TimedOut { .. } => {
                tracing::warn!(namespace, project = name, error = yoi_wire::error_chain(&error), "working tree not taken");
                StatusCode::SERVICE_UNAVAILABLE
            }
        };
        failed(code, yoi_wire::error_chain(&error))
    })?;
    let SyncQuery { machine, commit, bytes, .. } = &query;
    let (parts, received_at) = match taken {
        Taken::Parts(parts) => (parts, None),
        Taken::All(at) => {
            tracing::info!(target: "audit", person = user.name, namespace, project = name, machine, commit, bytes, "working tree synced");
            (part_count(*bytes), Some(at))
        }
    };
    Ok(Json(SyncResponse { commit: query.commit.clone(), parts, received_at }))
}

/// Checks the right and the query, before the body is read.
async fn check_request(
    gateway: &GatewayState,
    user: &User,
    namespace: &str,
    name: &str,
    query: Result<Query<SyncQuery>, QueryRejection>,
) -> Result<SyncQuery, ApiFailure> {
    // First, so that a user without the right does not learn whether the project exists.
    let resource = AccessResource::OfProject("sync");
    let request = AccessRequest { verb: "create", resource, namespace: namespace.to_owned(), name: name.to_owned() };
    check_right(gateway, user, &request).await?;
    let Query(query) = query.map_err(bad_query)?;
    let failed = |code, why: String| ApiFailure::new(code, format!("YoiProject {namespace}/{name}: {why}"));
    if query.bytes > MAX_SYNC_BYTES {
        return Err(failed(StatusCode::PAYLOAD_TOO_LARGE, format!("nothing was taken: a bundle is at most {MAX_SYNC_BYTES} bytes")));
    }
    check_query(&query).map_err(|why| failed(StatusCode::BAD_REQUEST, why))?;
    Ok(query)
}

/// Checks that it is the part that was said; of the first one, and so of the bundle, what stands before the pack.
fn check_part(part: &[u8], query: &SyncQuery) -> Result<(), String> {
    let SyncQuery { machine, commit, sha256, bytes, part: number, part_sha256, .. } = query;
    let wanted = bytes.saturating_sub(number.saturating_mul(PART_BYTES)).min(PART_BYTES);
    let is_another_whole = part_count(*bytes) == 1 && part_sha256 != sha256;
    if part.len() != wanted || yoi_plan::names::sha256(part) != *part_sha256 || is_another_whole {
        let come = part.len();
        return Err(format!(
            "of part {number} of the bundle {come} bytes of {wanted} have come, and their digest is not the one that was said"
        ));
    }
    if *number == 0 { check_bundle(part, &sync_ref(machine), commit) } else { Ok(()) }
}

/// Checks what stands before the pack: one name, of this commit, and nothing left out. Whether its objects are sound is for git to say.
fn check_bundle(mut bundle: &[u8], name: &str, commit: &str) -> Result<(), String> {
    const NONE: &str = "the body is no git bundle";
    let header = BundleHeader::read(&mut bundle).map_err(|error| match error {
        HeaderError::Read(_) | HeaderError::NoBundle(_) => NONE.to_owned(),
        HeaderError::Capability(needed) => format!("the bundle needs `{}`, which is not known here", needed.escape_debug()),
    })?;
    // The reader has left the pack.
    if !bundle.starts_with(b"PACK") {
        return Err(NONE.to_owned());
    }
    if let Some((hash, found)) = header.refs.iter().find(|(hash, found)| (hash.as_str(), found.as_str()) != (commit, name)) {
        return Err(format!("the bundle holds `{}` at {hash}, and only `{name}` at {commit} is taken", found.escape_debug()));
    }
    match header.refs.len() {
        1 => Ok(()),
        names => Err(format!("the bundle holds {names} names, and only `{name}` is taken")),
    }
}

fn check_query(query: &SyncQuery) -> Result<(), String> {
    let SyncQuery { machine, commit, previous, captured_at, sha256, bytes, part, part_sha256 } = query;
    if !is_machine_name(machine) {
        return Err(format!("{machine:?} is no name of a machine: 1 to 63 lower-case letters, digits and -, neither first nor last"));
    }
    if let Some(wrong) = std::iter::once(commit).chain(previous).find(|hash| !is_hash(hash)) {
        return Err(format!("`{}` is no full commit", wrong.escape_debug()));
    }
    if captured_at.parse::<Timestamp>().is_err() {
        return Err(format!("`{}` is no time as in 2026-01-31T12:00:00Z", captured_at.escape_debug()));
    }
    if let Some(wrong) = [sha256, part_sha256].into_iter().find(|digest| digest.len() != 64 || !is_hash(digest)) {
        return Err(format!("`{}` is no SHA-256 in hex", wrong.escape_debug()));
    }
    let parts = part_count(*bytes);
    if *part >= parts { Err(format!("a bundle of {bytes} bytes has {parts} parts, and none of number {part}")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "refs/yoi/sync/laptop";

    fn check(header: &str) -> Result<(), String> {
        check_bundle(format!("{header}\n\nPACK and more").as_bytes(), NAME, &"c0".repeat(20))
    }

    #[test]
    fn a_bundle_holds_one_name_at_the_commit_that_was_said() {
        let (commit, base) = ("c0".repeat(20), "ba".repeat(20));
        let with = |lines: &str| check(&format!("# v2 git bundle\n{lines}"));
        assert_eq!(with(&format!("{commit} {NAME}")), Ok(()));
        assert_eq!(with(&format!("-{base} a subject with = and {NAME}\n{commit} {NAME}")), Ok(()));
        for (lines, words) in [
            (String::new(), "no git bundle"),
            (format!("-{base}"), "holds 0 names"),
            (format!("{commit} refs/heads/main"), "holds `refs/heads/main`"),
            (format!("{base} {NAME}"), "only `refs/yoi/sync/laptop` at c0c0"),
            (format!("{commit} {NAME}\n{commit} {NAME}"), "holds 2 names"),
            (format!("@filter=blob:none\n{commit} {NAME}"), "the bundle needs `filter=blob:none`"),
            (format!("main {NAME}"), "no git bundle"),
        ] {
            let refused = with(&lines).unwrap_err();
            assert!(refused.contains(words), "{lines}: {refused}");
        }
        assert!(check("# v4 git bundle").is_err());
        assert!(check_bundle(b"# v2 git bundle\n\nPAC", NAME, &commit).is_err(), "it was cut");
    }
}
