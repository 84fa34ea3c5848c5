//! `yoipods/bundle`: what an agent has committed, and the request to commit what it has not.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Path, Query, State};
use axum::http::{Method, Request, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use tokio::time::timeout;
use yoi_wire::bundle::{BundleQuery, CommitRequest, CommitResponse, check_branch_name, query_value};
use yoi_wire::hub::{Refusal, runtime_api};

use super::ApiFailure;
use super::read::{ReaderWait, WhenStopped, bad_query, read_from_runtime};
use super::target::{AgentTarget, unreachable};
use crate::GatewayState;
use crate::body;
use crate::front_proxy::User;

/// The longest answer to a request to commit, in bytes.
const MAX_ANSWER: usize = 64 * 1024;

/// `GET`: of a running agent from its runtime, of a stopped one from its reader.
pub async fn bundle(
    State(gateway): State<Arc<GatewayState>>,
    Path(target): Path<AgentTarget>,
    Extension(user): Extension<User>,
    query: Result<Query<BundleQuery>, QueryRejection>,
    wait: Result<Query<ReaderWait>, QueryRejection>,
) -> Result<Response, ApiFailure> {
    let record = target.resolve(&gateway, &user, "get", "bundle").await?;
    let Query(BundleQuery { branch, work, whole: _ }) = query.map_err(bad_query)?;
    let Query(wait) = wait.map_err(bad_query)?;
    let mut path = runtime_api::BUNDLE.to_owned();
    if let Some(branch) = branch {
        check_branch_name(&branch).map_err(|error| ApiFailure::new(StatusCode::BAD_REQUEST, error).about(&record.name.name))?;
        path.push_str(&format!("?branch={}", query_value(&branch)));
    }
    if work {
        path.push_str(if path.contains('?') { "&work=true" } else { "?work=true" });
    }
    let body = read_from_runtime(&gateway, &record, path, WhenStopped::Reader(wait)).await?;
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], body).into_response())
}

/// `POST`: of a running agent only. Sent twice, the second one finds nothing to commit.
pub async fn commit(
    State(gateway): State<Arc<GatewayState>>,
    Path(target): Path<AgentTarget>,
    Extension(user): Extension<User>,
    body: Body,
) -> Result<Json<CommitResponse>, ApiFailure> {
    let record = target.resolve(&gateway, &user, "create", "bundle").await?;
    let (namespace, name) = (&record.name.namespace, &record.name.name);
    let bad = |message: String| ApiFailure::new(StatusCode::BAD_REQUEST, format!("YoiPod {namespace}/{name}: {message}")).about(name);
    // The content type is not checked, because `kubectl create --raw` sends none.
    let body = body::read(body).await.map_err(|error| bad(yoi_wire::error_chain(&error)))?;
    let request: CommitRequest =
        serde_json::from_slice(&body).map_err(|error| bad(format!("the body must be {{\"message\": ...}}: {error}")))?;
    request.validate().map_err(bad)?;
    let line = gateway.delivery.line_to(&record, None).await.map_err(|_| unreachable(&record))?;
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::from_static(runtime_api::BUNDLE);
    request.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    let lost = |why: String| {
        let message = format!("YoiPod {namespace}/{name} {why}, and may have committed all the same: ask again");
        ApiFailure::new(StatusCode::GATEWAY_TIMEOUT, message).about(name)
    };
    let within = gateway.settings.control_timeout;
    let asked = async {
        let answer = line.request(request).await.map_err(|error| lost(format!("did not answer: {}", yoi_wire::error_chain(&error))))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await.map(|body| body.to_bytes());
        Ok((status, body.unwrap_or_else(|_| Bytes::new())))
    };
    let answer = timeout(within, asked).await;
    let (status, body) = answer.map_err(|_| lost(format!("did not answer within {}", crate::seconds(within))))??;
    let outcome = if status.is_success() { "Done" } else { "Refused" };
    tracing::info!(target: "audit", person = user.name, object = %record.name, uid = record.name.uid, outcome, "commit request");
    if status.is_success() {
        return serde_json::from_slice(&body).map(Json).map_err(|_| lost("gave no answer that can be read".to_owned()));
    }
    Err(match serde_json::from_slice::<Refusal>(&body) {
        Ok(refusal) => ApiFailure::from_refusal(namespace, name, &refusal),
        // A runtime older than this gateway may not serve the path.
        Err(_) if matches!(status, StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED) => {
            let message = format!(
                "the runtime of YoiPod {namespace}/{name} is older and cannot be asked this: restart it with kubectl yoi restart {name} -n {namespace}"
            );
            ApiFailure::new(StatusCode::CONFLICT, message).about(name)
        }
        Err(_) => lost(format!("answered {status}")),
    })
}
