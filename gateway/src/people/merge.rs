//! `yoipods/merge`: merges the work of another agent of the namespace into this one's tree. What a parent may do with a child, a person may with any two.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Limited};
use tokio::time::timeout;
use yoi_wire::hub::{Refusal, runtime_api};
use yoi_wire::merge::{MergeOrder, MergeOutcome, PersonMerge};

use super::ApiFailure;
use super::read::ReaderWait;
use super::target::{AgentTarget, unreachable};
use crate::GatewayState;
use crate::body;
use crate::commits::Commits;
use crate::front_proxy::User;

/// The longest answer, in bytes.
const MAX_ANSWER: usize = 8 << 20;

/// `POST`. Sent twice, the second one finds everything merged.
pub async fn merge(
    State(gateway): State<Arc<GatewayState>>,
    Path(target): Path<AgentTarget>,
    Extension(user): Extension<User>,
    body: Body,
) -> Result<Json<MergeOutcome>, ApiFailure> {
    let record = target.resolve(&gateway, &user, "create", "merge").await?;
    let (namespace, name) = (&record.name.namespace, &record.name.name);
    let bad = |message: String| ApiFailure::new(StatusCode::BAD_REQUEST, format!("YoiPod {namespace}/{name}: {message}")).about(name);
    // The content type is not checked, because `kubectl create --raw` sends none.
    let body = body::read(body).await.map_err(|error| bad(yoi_wire::error_chain(&error)))?;
    let PersonMerge { from, dry_run, strategy } =
        serde_json::from_slice(&body).map_err(|error| bad(format!("the body must be {{\"from\": NAME, ...}}: {error}")))?;
    if from == *name {
        return Err(bad("it has all of its own work already".to_owned()));
    }
    let source = AgentTarget { namespace: namespace.clone(), name: from, conversation: None };
    let source = source.resolve(&gateway, &user, "get", "bundle").await?;
    let line = gateway.delivery.line_to(&record, None).await.map_err(|_| unreachable(&record))?;
    let within = gateway.settings.control_timeout;
    let lost = |why: String| {
        let message = format!("YoiPod {namespace}/{name} {why}, and may have merged all the same: merge again, which finds what is merged");
        ApiFailure::new(StatusCode::GATEWAY_TIMEOUT, message).about(name)
    };
    let asked = async {
        let work = Commits::of_work(&gateway, &source, ReaderWait::default()).await?;
        let mut request = Request::new(work.into_merge(&MergeOrder { from: source.name.clone(), dry_run, strategy }));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = Uri::from_static(runtime_api::MERGE);
        let answer = line.request(request).await.map_err(|error| lost(format!("did not answer: {}", yoi_wire::error_chain(&error))))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
        Ok((status, body.map_err(|error| lost(format!("broke off its answer: {error}")))?.to_bytes()))
    };
    let (status, answer) =
        timeout(within, asked).await.map_err(|_| lost(format!("did not answer within {}", crate::seconds(within))))??;
    let outcome = if status.is_success() { "Done" } else { "Refused" };
    tracing::info!(target: "audit", person = user.name, object = %record.name, uid = record.name.uid, from = %source.name, dry_run, outcome, "merge request");
    if status.is_success() {
        return serde_json::from_slice(&answer).map(Json).map_err(|_| lost("gave no answer that can be read".to_owned()));
    }
    Err(match serde_json::from_slice::<Refusal>(&answer) {
        Ok(refusal) => ApiFailure::from_refusal(namespace, name, &refusal),
        Err(_) if matches!(status, StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED) => ApiFailure::older_runtime(namespace, name),
        Err(_) => lost(format!("answered {status}")),
    })
}
