//! The other agents, as the gateway knows them. It knows this agent by its token.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http_body_util::{BodyExt, Full, Limited};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use yoi_engine::children::Children;
use yoi_engine::peers::{Peers, PeersError};
use yoi_line::{CallError, FailureClass, RequestClient, RequestLimits};
use yoi_wire::children::{
    ChildWords, DiffRequest, LoansRequest, LoansResponse, ReadRequest, SpawnRequest, SpawnResponse, StopRequest, StopResponse, WaitRequest,
    WaitResponse,
};
use yoi_wire::evidence::{ChildFacts, ChildLog, ChildLogRequest, ChildStateRequest};
use yoi_wire::hub::{PodList, RestoreRequest, RestoreResponse, SendRequest, SendResponse, gateway_api};
use yoi_wire::merge::{MergeOutcome, MergeRequest};
use yoi_wire::people::DiffResponse;

use crate::merge::Merger;

/// For so long a new Pod may be unknown to what enforces the gateway's NetworkPolicy, which then refuses its connections: it learns the Pod's address from
/// the kubelet's report, some time after the containers have started.
const NEW_POD: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(250);
/// How long the begin of a child's work may take: a reader of a stopped child has to start.
const WORK_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest refusal, in bytes.
const MAX_REFUSAL: usize = 64 << 10;

/// Asks the gateway.
#[derive(Debug)]
pub struct GatewayPeers {
    client: RequestClient,
    /// Until then, a connection that is not made is tried again.
    new_until: Instant,
    delegation: Delegation,
}

/// What an agent may do with others.
#[derive(Clone, Debug, Default)]
pub struct Delegation {
    /// What merges the work of its children; absent: it may start none.
    pub merger: Option<Arc<Merger>>,
    /// It may lend them paths of its tree.
    pub lends: bool,
}

impl GatewayPeers {
    /// Asks by this client, of a process that has just started.
    #[must_use]
    pub fn new(client: RequestClient, delegation: Delegation) -> Self {
        Self { client, new_until: Instant::now() + NEW_POD, delegation }
    }

    async fn post<T: DeserializeOwned>(&self, path: &str, body: &(impl Serialize + Sync)) -> Result<T, PeersError> {
        loop {
            match self.client.post_json(path, body).await {
                // Nothing was sent, so nothing arrives twice.
                Err(CallError::Connect(error)) if error.class() == FailureClass::Unreachable && Instant::now() < self.new_until => {
                    tracing::debug!(error = %error.failure(), "the gateway is not reached yet");
                    tokio::time::sleep(PAUSE).await;
                }
                answer => return answer.map_err(peers_error),
            }
        }
    }
}

impl GatewayPeers {
    /// A child's work, with the order to merge it before it.
    async fn work(&self, request: &MergeRequest) -> Result<hyper::body::Incoming, PeersError> {
        let unsent = |message: String| PeersError::NotSent { message, retry: false };
        let body = serde_json::to_vec(request).map_err(|error| unsent(error.to_string()))?;
        let request = http::Request::post(gateway_api::CHILD_WORK).header(http::header::CONTENT_TYPE, "application/json");
        let request = request.body(Full::new(Bytes::from(body))).map_err(|error| unsent(error.to_string()))?;
        let limits = RequestLimits { response_timeout: WORK_TIMEOUT, ..RequestLimits::default() };
        let answer = self.client.with_limits(limits).call(request).await.map_err(peers_error)?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer.into_body());
        }
        let body = Limited::new(answer.into_body(), MAX_REFUSAL).collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        Err(match serde_json::from_slice(&body) {
            Ok(refusal) => PeersError::Refused(refusal),
            Err(_) => PeersError::Unanswered { message: format!("the gateway answered {status}"), retry: false },
        })
    }
}

impl Peers for GatewayPeers {
    fn list(&self) -> BoxFuture<'_, Result<PodList, PeersError>> {
        async { self.post(gateway_api::LIST_PODS, &serde_json::json!({})).await }.boxed()
    }

    fn send<'a>(&'a self, message: &'a SendRequest) -> BoxFuture<'a, Result<SendResponse, PeersError>> {
        self.post(gateway_api::SEND, message).boxed()
    }

    fn restore<'a>(&'a self, request: &'a RestoreRequest) -> BoxFuture<'a, Result<RestoreResponse, PeersError>> {
        self.post(gateway_api::RESTORE, request).boxed()
    }

    fn children(&self) -> Option<&dyn Children> {
        self.delegation.merger.is_some().then_some(self as &dyn Children)
    }
}

impl Children for GatewayPeers {
    fn lends(&self) -> bool {
        self.delegation.lends
    }

    fn loans<'a>(&'a self, request: &'a LoansRequest) -> BoxFuture<'a, Result<LoansResponse, PeersError>> {
        self.post(gateway_api::LOANS, request).boxed()
    }

    fn spawn<'a>(&'a self, request: &'a SpawnRequest) -> BoxFuture<'a, Result<SpawnResponse, PeersError>> {
        self.post(gateway_api::SPAWN, request).boxed()
    }

    fn send_to_child<'a>(&'a self, message: &'a SendRequest) -> BoxFuture<'a, Result<SendResponse, PeersError>> {
        self.post(gateway_api::SEND_CHILD, message).boxed()
    }

    fn read<'a>(&'a self, request: &'a ReadRequest) -> BoxFuture<'a, Result<ChildWords, PeersError>> {
        self.post(gateway_api::READ_CHILD, request).boxed()
    }

    fn diff<'a>(&'a self, request: &'a DiffRequest) -> BoxFuture<'a, Result<DiffResponse, PeersError>> {
        self.post(gateway_api::DIFF_CHILD, request).boxed()
    }

    fn log<'a>(&'a self, request: &'a ChildLogRequest) -> BoxFuture<'a, Result<ChildLog, PeersError>> {
        self.post(gateway_api::CHILD_LOG, request).boxed()
    }

    fn state<'a>(&'a self, request: &'a ChildStateRequest) -> BoxFuture<'a, Result<ChildFacts, PeersError>> {
        self.post(gateway_api::CHILD_STATE, request).boxed()
    }

    fn merge<'a>(&'a self, request: &'a MergeRequest) -> BoxFuture<'a, Result<MergeOutcome, PeersError>> {
        async {
            let no_children = || PeersError::NotSent { message: "this agent starts no others".to_owned(), retry: false };
            let merger = self.delegation.merger.as_ref().ok_or_else(no_children)?;
            let work = self.work(request).await?;
            merger.merge(work.into_data_stream()).await.map_err(PeersError::Refused)
        }
        .boxed()
    }

    fn wait<'a>(&'a self, request: &'a WaitRequest) -> BoxFuture<'a, Result<WaitResponse, PeersError>> {
        self.post(gateway_api::WAIT_CHILDREN, request).boxed()
    }

    fn stop<'a>(&'a self, request: &'a StopRequest) -> BoxFuture<'a, Result<StopResponse, PeersError>> {
        self.post(gateway_api::STOP_CHILD, request).boxed()
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
    use tokio::net::TcpListener;
    use yoi_line::{Dial, LineError, TextSource, Timings};
    use yoi_test_support::in_time;
    use yoi_wire::hub::{Refusal, RefusalReason};

    use super::*;

    /// Asks a gateway whose connections all break before anything is said, and how many there were until the answer.
    async fn ask(peers: impl FnOnce(RequestClient) -> GatewayPeers, most: usize) -> (usize, Option<Result<PodList, PeersError>>) {
        let made = rcgen::generate_simple_self_signed(vec!["gateway.test".to_owned()]).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let dial = Dial {
            address: listener.local_addr().unwrap().to_string(),
            server_name: "gateway.test".to_owned(),
            ca_pem: TextSource::fixed(made.cert.pem()),
            path: "/".to_owned(),
            token: TextSource::fixed("token"),
            timings: Timings::default(),
        };
        let peers = peers(RequestClient::new(dial));
        let mut asked = std::pin::pin!(peers.list());
        let mut connections = 0;
        while connections < most {
            tokio::select! {
                answer = &mut asked => return (connections, Some(answer)),
                accepted = listener.accept() => drop(accepted.unwrap()),
            }
            connections += 1;
        }
        (connections, None)
    }

    #[tokio::test]
    async fn the_gateway_is_tried_again_while_the_pod_is_new_and_once_later() {
        let (connections, answer) = in_time("a third connection", ask(|client| GatewayPeers::new(client, Delegation::default()), 3)).await;
        assert!(connections == 3 && answer.is_none(), "{connections} connections, {answer:?}");
        let old = |client| GatewayPeers { client, new_until: Instant::now(), delegation: Delegation::default() };
        let (connections, answer) = in_time("an answer", ask(old, 3)).await;
        assert!(connections == 1 && matches!(answer, Some(Err(PeersError::NotSent { .. }))), "{connections} connections, {answer:?}");
    }

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
