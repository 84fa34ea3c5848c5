//! The other agents, as the gateway knows them. It knows this agent by its token.

use futures::FutureExt;
use futures::future::BoxFuture;
use yoi_engine::peers::{Peers, PeersError};
use yoi_line::{CallError, RequestClient};
use yoi_wire::hub::{PodList, SendRequest, SendResponse, gateway_api};

/// Asks the gateway.
#[derive(Debug)]
pub struct GatewayPeers(pub RequestClient);

impl Peers for GatewayPeers {
    fn list(&self) -> BoxFuture<'_, Result<PodList, PeersError>> {
        async { self.0.post_json(gateway_api::LIST_PODS, &serde_json::json!({})).await.map_err(peers_error) }.boxed()
    }

    fn send<'a>(&'a self, message: &'a SendRequest) -> BoxFuture<'a, Result<SendResponse, PeersError>> {
        async { self.0.post_json(gateway_api::SEND, message).await.map_err(peers_error) }.boxed()
    }
}

fn peers_error(error: CallError) -> PeersError {
    let message = error.failure().message;
    match error {
        CallError::Connect(_) | CallError::Path { .. } | CallError::Encode(_) => PeersError::NotSent { message, retry: false },
        // The connection had closed before, so the next call opens a new one.
        CallError::Unsent(_) => PeersError::NotSent { message, retry: true },
        CallError::Broken(_) => PeersError::Unanswered { message, retry: true },
        CallError::TimedOut(_) | CallError::ReadBody(_) | CallError::Decode(_) => PeersError::Unanswered { message, retry: false },
        CallError::Status { body, .. } => match serde_json::from_slice(&body) {
            Ok(refusal) => PeersError::Refused(refusal),
            // Not the gateway's own words, but those of something on the way.
            Err(_) => PeersError::Unanswered { message, retry: false },
        },
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use yoi_line::LineError;
    use yoi_wire::hub::{Refusal, RefusalReason};

    use super::*;

    #[test]
    fn only_an_error_before_the_request_was_sent_says_that_nothing_arrived() {
        let source = std::io::ErrorKind::ConnectionRefused.into();
        let unreachable = CallError::Connect(LineError::Unreachable { address: "gateway:8443".to_owned(), source });
        assert!(matches!(peers_error(unreachable), PeersError::NotSent { retry: false, .. }));
        let timed_out = CallError::TimedOut(std::time::Duration::from_secs(1));
        assert!(matches!(peers_error(timed_out), PeersError::Unanswered { retry: false, .. }));
    }

    #[test]
    fn a_status_is_a_refusal_only_in_the_gateways_own_words() {
        let status =
            |body: Vec<u8>| CallError::Status { status: StatusCode::SERVICE_UNAVAILABLE, message: "why".to_owned(), body: body.into() };
        let refusal = Refusal { reason: RefusalReason::InboxFull, message: "why".to_owned() };
        let refused = peers_error(status(serde_json::to_vec(&refusal).unwrap()));
        assert!(matches!(refused, PeersError::Refused(Refusal { reason: RefusalReason::InboxFull, .. })), "{refused:?}");
        assert!(matches!(peers_error(status(b"<html>".to_vec())), PeersError::Unanswered { retry: false, .. }));
    }
}
