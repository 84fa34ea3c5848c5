//! The way of the report to the gateway.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use yoi_line::{Backoff, BackoffPolicy, CallError, LineSetState, RequestClient};
use yoi_wire::hub::{ReportAccepted, ReportReason, RuntimeReport, gateway_api};

use super::RuntimeStatus;
use crate::rng::random_fraction;

/// How long the first report waits for the end of the start, and for the lines. Less than the time after which the gateway says of an open line that its agent lives.
const STARTING_DELAY: Duration = Duration::from_millis(300);

async fn send_report(caller: &RequestClient, report: &RuntimeReport) -> Result<ReportAccepted, CallError> {
    caller.post_json(gateway_api::REPORT, report).await
}

/// Sends every change of the report to the gateway, the report again after each new line, and retries with back-off.
///
/// Ends when the gateway has taken the report that is current after `final_report` is cancelled. Reports are sent one after another and
/// never aborted: the gateway handles requests concurrently, so an aborted older report could be written last.
pub async fn send_reports(
    caller: RequestClient,
    status: RuntimeStatus,
    mut lines: watch::Receiver<LineSetState>,
    final_report: CancellationToken,
) {
    let policy = BackoffPolicy { first: Duration::from_millis(250), cap: Duration::from_secs(15), settled: Duration::ZERO };
    let (mut backoff, mut reports) = (Backoff::new(policy), status.subscribe());
    // A start that is over in a moment is one report: each is a write of the object. It follows on the lines, so that whoever reads in the object that the
    // agent is ready reaches it by each gateway.
    let started = async {
        let _ = reports.wait_for(|report| report.reason != ReportReason::Starting).await;
        let _ = lines.wait_for(LineSetState::all_up).await;
    };
    tokio::select! {
        _ = timeout(STARTING_DELAY, started) => {}
        () = final_report.cancelled() => {}
    }
    loop {
        let last = final_report.is_cancelled();
        let report = reports.borrow_and_update().clone();
        let answer = send_report(&caller, &report).await;
        if answer.is_ok() {
            status.forget_refused(&report.refused_calls);
        }
        match answer {
            Ok(_) if last => return,
            Ok(_) => {
                backoff = Backoff::new(policy);
                tracing::debug!(reason = report.reason.as_str(), "report taken");
                tokio::select! {
                    changed = reports.changed() => if changed.is_err() { return },
                    () = wait_for_new_line(&mut lines) => {}
                    () = final_report.cancelled() => {}
                }
            }
            Err(error) => {
                let delay = backoff.after_failure(None, random_fraction());
                tracing::info!(error = %error.failure(), retry_in = ?delay, "report not taken");
                tokio::select! {
                    () = sleep(delay) => {}
                    () = final_report.cancelled(), if !last => {}
                }
            }
        }
    }
}

/// Returns when a line was added: a gateway that has just started may not have this runtime's report.
async fn wait_for_new_line(lines: &mut watch::Receiver<LineSetState>) {
    let mut up = lines.borrow_and_update().up();
    while lines.changed().await.is_ok() {
        let now = lines.borrow_and_update().up();
        if now > up {
            return;
        }
        up = now;
    }
    // The lines are stopped, so none is added any more.
    std::future::pending::<()>().await;
}
