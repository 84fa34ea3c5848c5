//! `POST /v1/report`: writes the runtime's report into the status of its YoiPod.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use yoi_crds::pod::LastReport;
use yoi_wire::hub::{Refusal, RefusalReason, ReportAccepted, RuntimeReport};

use super::RefusalResponse;
use super::refusal::read_json;
use crate::GatewayState;
use crate::identity::AuthenticatedAgent;
use crate::notices::{ReadyReport, after_report};
use crate::status::WriteError;

pub async fn receive(
    State(gateway): State<Arc<GatewayState>>,
    Extension(caller): Extension<AuthenticatedAgent>,
    body: Body,
) -> Result<Json<ReportAccepted>, RefusalResponse> {
    let report: RuntimeReport = read_json("a report", body).await?;
    validate(&report)?;
    let refused_calls = report.refused_calls.clone();
    let ready = report.ready.then(|| {
        let was_ready = |known: &LastReport| known.pod_uid == caller.pod_uid && known.ready;
        let before = gateway.agents.by_uid(&caller.agent.uid);
        let is_first = before.is_some_and(|before| !before.gateway_status.report.as_ref().is_some_and(was_ready));
        let (pod_uid, run_generation) = (caller.pod_uid.clone(), caller.run_generation);
        ReadyReport { activity: report.activity.known(), pod_uid, run_generation, is_first }
    });
    match gateway.reports.write(&caller.agent, caller.pod_uid, report).await {
        Ok(()) => {
            gateway.metrics.count_refused(&refused_calls);
            if let Some(ready) = ready {
                after_report(&gateway, &caller.agent, ready);
            }
            Ok(Json(ReportAccepted { agent: caller.agent }))
        }
        Err(error) => Err(refusal_response(&error, caller.run_generation)),
    }
}

/// Checks the bounds of the CRD schema, so that one string that is too long does not make the API server refuse the whole status.
fn validate(report: &RuntimeReport) -> Result<(), Refusal> {
    let camel = |word: &str| (1..=64).contains(&word.len()) && word.bytes().all(|c| c.is_ascii_alphanumeric());
    let id = |word: &str| (1..=128).contains(&word.len()) && word.bytes().all(|c| c.is_ascii_graphic());
    let wrong = if !camel(report.reason.as_str()) || !camel(report.activity.as_str()) {
        "reason and activity must each be one CamelCase word of at most 64 characters"
    } else if report.task.as_ref().is_some_and(|task| !camel(task.state.as_str())) {
        "task.state must be one CamelCase word of at most 64 characters"
    } else if report.session.as_ref().is_some_and(|session| !id(&session.id) || !id(&session.segment)) {
        "session ids must be 1 to 128 visible ASCII characters"
    } else if report.task.as_ref().is_some_and(|task| !id(&task.id)) {
        "task.id must be 1 to 128 visible ASCII characters"
    } else {
        return Ok(());
    };
    Err(Refusal { reason: RefusalReason::Invalid, message: wrong.to_owned() })
}

fn refusal_response(error: &WriteError, run: i64) -> RefusalResponse {
    match error {
        WriteError::Gone(_) => RefusalResponse {
            status: StatusCode::FORBIDDEN,
            refusal: Refusal { reason: RefusalReason::NotAnAgent, message: error.to_string() },
        },
        WriteError::Read(agent, _) | WriteError::Write(agent, _) | WriteError::Contended(agent) => {
            let error_chain = yoi_wire::error_chain(error);
            tracing::warn!(object = %agent, uid = agent.uid, run, error = error_chain, "report not written");
            Refusal { reason: RefusalReason::Unreachable, message: format!("{error}; report again") }.into()
        }
    }
}
