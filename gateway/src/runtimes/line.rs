//! `GET /v1/line`: the runtime dials, and from then on serves.

use std::sync::Arc;

use axum::extract::{Extension, Request, State};
use axum::response::Response;
use yoi_line::{KeepAlive, accept_upgrade};
use yoi_wire::hub::{Refusal, RefusalReason};

use super::Refused;
use crate::Hub;
use crate::identity::Caller;

pub async fn open(State(hub): State<Arc<Hub>>, Extension(caller): Extension<Caller>, request: Request) -> Result<Response, Refused> {
    if hub.stopping.is_cancelled() {
        // Another replica has room; the dialler comes back to this address only while it is named.
        let message = "this gateway is stopping".to_owned();
        return Err(Refusal { reason: RefusalReason::Unreachable, message }.into());
    }
    let (response, accepted) = accept_upgrade(request, KeepAlive::default()).map_err(|error| Refused {
        status: error.status(),
        refusal: Refusal { reason: RefusalReason::Invalid, message: error.to_string() },
    })?;
    tokio::spawn(async move {
        let Caller { agent, pod_uid, run_generation: run } = caller;
        let handle = match accepted.await {
            Ok(handle) => handle,
            Err(error) => {
                let error = crate::chain(&error);
                return tracing::debug!(object = %agent, uid = agent.uid, run, pod_uid, error, "line not opened");
            }
        };
        match hub.lines.open(agent.clone(), pod_uid.clone(), run, handle.clone()) {
            Ok(line) => {
                tracing::info!(object = %agent, uid = agent.uid, run, pod_uid, "line open");
                hub.metrics.lines.set(hub.lines.count() as i64);
                if hub.stopping.is_cancelled() {
                    // It came between the last look and the closing of all lines.
                    line.handle.close();
                }
                // Whatever changed between the look at the token and now was told to nobody.
                hub.keeper.look(&line.agent.uid);
                hub.keeper.clone().mourn(line).await;
            }
            Err(error) => {
                tracing::info!(object = %agent, uid = agent.uid, run, pod_uid, %error, "line of a former Pod refused");
                handle.close();
            }
        }
    });
    Ok(response)
}
