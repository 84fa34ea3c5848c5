//! The state that all ports share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::Client;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use yoi_line::ConnectionLimits;

use crate::access::AccessReviewer;
use crate::agent_concurrency::AgentConcurrency;
use crate::agent_index::{AgentIndex, Watches};
use crate::child_maker::ChildMaker;
use crate::delivery::MessageDelivery;
use crate::identity::Authenticator;
use crate::liveness::LivenessReconciler;
use crate::loan_maker::{LoanLimits, LoanMaker};
use crate::metrics::GatewayMetrics;
use crate::open_lines::OpenLines;
use crate::peer_creator::PeerCreator;
use crate::peer_lookup::PeerLookup;
use crate::readers::Readers;
use crate::readiness::LineReadiness;
use crate::report_queue::{ReportQueue, ReportRate};
use crate::restorer::Restorer;
use crate::status::StatusWriter;
use crate::sync_store::SyncStore;
use crate::waker::Waker;

/// Timeouts and limits. The defaults are what the documentation promises; tests shorten them.
#[derive(Clone, Copy, Debug)]
pub struct GatewaySettings {
    /// How long the result of a TokenReview or of a granted SubjectAccessReview is cached.
    pub review_ttl: Duration,
    /// How long one review by the API server may take.
    pub review_timeout: Duration,
    /// How long to wait in the cache for a YoiPod whose status names the token's Pod, before reading from the API server.
    pub pod_wait: Duration,
    /// How long to wait for a target's line.
    pub line_wait: Duration,
    /// How long a request waits for an agent that it has woken.
    pub wake_wait: Duration,
    /// How long an agent that was restored may take until it has a line. Then it is stopped again.
    pub restore_wait: Duration,
    /// How long the acknowledgement of a message may take.
    pub ack_timeout: Duration,
    /// How long the head of a runtime's response to a log or diff may take.
    pub answer_timeout: Duration,
    /// How long a runtime may take to carry out what a person asks of it. The API server ends such a request after a minute.
    pub control_timeout: Duration,
    /// How long an attached client may take nothing before its stream is cut.
    pub attach_write_timeout: Duration,
    /// From the opening of a line until `status.live` is set, unless a report has set it.
    pub set_live_delay: Duration,
    /// From the end of a line until `status.live` is cleared, unless another line has opened.
    pub clear_live_delay: Duration,
    /// From the first listing until `status.live` without a line is cleared.
    pub stale_live_delay: Duration,
    /// How often the certificate's files are read.
    pub certificate_poll_interval: Duration,
    /// How long a replica that is starting waits for the lines of live agents before it is Ready without them. It covers an answer of DNS that
    /// is cached for 30 s, and the next resolution and dial.
    pub lines_within: Duration,
    /// How long everything is served after a stop was requested. Meanwhile the replica is not Ready, and Services stop to send requests to it.
    pub serve_on: Duration,
    /// How long requests in flight may take after `serve_on`.
    pub drain: Duration,
    /// How long a request of a runtime may take, from its head to the response.
    pub request_timeout: Duration,
    /// How long a request for a child that is lent paths may take.
    pub loan_timeout: Duration,
    /// How long a node may take to close paths that are lent.
    pub cover_wait: Duration,
    /// How long a runtime may take to end who has something open in paths that are lent.
    pub fence_timeout: Duration,
    /// Requests of one agent that are answered at once. More requests wait.
    pub requests_per_agent: usize,
    /// How often the reports of one Pod are written.
    pub reports: ReportRate,
    /// Requests in flight on one connection of a runtime. More requests wait at the runtime.
    pub streams: u32,
    /// Unauthenticated connections of each port, for each port by itself, and connections of one agent.
    pub connections: ConnectionLimits,
    /// Whether people with the right to it may connect to agents by SSH.
    pub ssh: bool,
}

impl Default for GatewaySettings {
    fn default() -> Self {
        GatewaySettings {
            review_ttl: Duration::from_secs(10),
            review_timeout: Duration::from_secs(5),
            pod_wait: Duration::from_millis(1500),
            // A replica whose watch lags refuses a runtime's first dial, and the next one comes after its backoff, some two seconds later.
            line_wait: Duration::from_secs(5),
            // With `ack_timeout`, shorter than `request_timeout`.
            wake_wait: Duration::from_secs(15),
            // With two requests to the API server, as a rule shorter than `request_timeout`.
            restore_wait: Duration::from_secs(20),
            ack_timeout: Duration::from_secs(10),
            answer_timeout: Duration::from_secs(30),
            control_timeout: Duration::from_secs(45),
            attach_write_timeout: Duration::from_secs(30),
            set_live_delay: Duration::from_millis(500),
            clear_live_delay: Duration::from_secs(3),
            stale_live_delay: Duration::from_secs(60),
            certificate_poll_interval: Duration::from_secs(3),
            lines_within: Duration::from_secs(60),
            // With `drain`, shorter than the chart's terminationGracePeriodSeconds.
            serve_on: Duration::from_secs(10),
            drain: Duration::from_secs(10),
            request_timeout: Duration::from_secs(30),
            // Shorter than `request_timeout`; the next two fit into it, beside some requests to the API server.
            loan_timeout: Duration::from_secs(28),
            cover_wait: Duration::from_secs(8),
            fence_timeout: Duration::from_secs(10),
            requests_per_agent: 64,
            reports: ReportRate { burst: 10, interval: Duration::from_secs(1) },
            // With these limits, unauthenticated clients hold less than a third of the chart's memory limit, and one agent less than a fifth.
            streams: 64,
            connections: ConnectionLimits {
                unauthenticated: 256,
                unauthenticated_per_address: 64,
                authenticate_within: Duration::from_secs(10),
                per_client: 8,
            },
            ssh: false,
        }
    }
}

/// The parts of the gateway, as the ports use them.
pub struct GatewayState {
    pub settings: GatewaySettings,
    pub metrics: Arc<GatewayMetrics>,
    pub agents: Arc<AgentIndex>,
    pub lines: Arc<OpenLines>,
    pub authenticator: Authenticator,
    pub access: AccessReviewer,
    pub reports: ReportQueue,
    pub delivery: MessageDelivery,
    pub concurrency: AgentConcurrency,
    pub liveness: LivenessReconciler,
    pub readiness: LineReadiness,
    pub readers: Readers,
    pub peers: PeerCreator,
    pub children: ChildMaker,
    pub restorer: Restorer,
    pub peer_lookup: PeerLookup,
    pub syncs: SyncStore,
    /// A stop was requested. Everything is served for [`GatewaySettings::serve_on`].
    pub stop_requested: CancellationToken,
    /// No new requests are taken.
    pub stopping: CancellationToken,
    pub(crate) runtimes_up: AtomicBool,
    pub(crate) api_up: AtomicBool,
}

impl GatewayState {
    /// The gateway, the watches that fill its index, and the UIDs of changed agents for [`LivenessReconciler::run`].
    pub fn new(
        client: Client,
        settings: GatewaySettings,
        stop_requested: CancellationToken,
    ) -> (Arc<Self>, Watches, mpsc::UnboundedReceiver<String>) {
        let stopping = CancellationToken::new();
        let GatewaySettings { review_ttl, review_timeout, pod_wait, line_wait, ack_timeout, .. } = settings;
        let metrics = Arc::new(GatewayMetrics::default());
        let (agents, watches, changes) = AgentIndex::new();
        let (lines, reader_lines) = (Arc::new(OpenLines::default()), Arc::new(OpenLines::default()));
        let writer = Arc::new(StatusWriter::new(client.clone(), agents.clone(), metrics.clone()));
        let authenticator = Authenticator::new(client.clone(), agents.clone(), metrics.clone(), review_ttl, pod_wait, review_timeout);
        let limits = LoanLimits {
            deadline: review_timeout,
            cover_wait: settings.cover_wait,
            fence_timeout: settings.fence_timeout,
            line_wait: settings.line_wait,
        };
        let loans = LoanMaker::new(client.clone(), lines.clone(), limits);
        let gateway = GatewayState {
            authenticator,
            peers: PeerCreator::new(client.clone(), agents.clone(), review_timeout),
            children: ChildMaker::new(client.clone(), agents.clone(), loans, review_timeout, settings.loan_timeout),
            restorer: Restorer::new(client.clone(), agents.clone(), review_timeout),
            peer_lookup: PeerLookup::new(client.clone(), agents.clone(), review_timeout),
            syncs: SyncStore::new(client.clone(), review_timeout),
            access: AccessReviewer::new(client, metrics.clone(), review_ttl, review_timeout),
            delivery: MessageDelivery {
                lines: lines.clone(),
                metrics: metrics.clone(),
                waker: Waker { agents: agents.clone(), lines: lines.clone(), writer: writer.clone(), within: settings.wake_wait },
                line_wait,
                ack_timeout,
            },
            liveness: LivenessReconciler {
                agents: agents.clone(),
                lines: lines.clone(),
                writer: writer.clone(),
                metrics: metrics.clone(),
                settings,
                stopping: stopping.clone(),
            },
            concurrency: AgentConcurrency::new(settings.requests_per_agent),
            readers: Readers { agents: agents.clone(), lines: reader_lines.clone(), writer: writer.clone() },
            reports: ReportQueue::new(writer, settings.reports),
            readiness: LineReadiness::new(agents.clone(), lines.clone(), reader_lines, settings.lines_within),
            settings,
            metrics,
            agents,
            lines,
            stop_requested,
            stopping,
            runtimes_up: AtomicBool::new(false),
            api_up: AtomicBool::new(false),
        };
        (Arc::new(gateway), watches, changes)
    }

    /// Why the gateway is not ready. Empty when it is.
    pub fn unready_reasons(&self) -> Vec<String> {
        let checks = [
            (!self.stop_requested.is_cancelled() && !self.stopping.is_cancelled(), "stopping"),
            (self.agents.is_listed(), "YoiPods and YoiPeers are not listed yet"),
            (self.runtimes_up.load(Ordering::Relaxed), "the runtimes' port waits for its certificate"),
            (self.api_up.load(Ordering::Relaxed), "the API port waits for its certificate or for the front proxy's ConfigMap"),
        ];
        let lacks = checks.into_iter().filter(|(there, _)| !there).map(|(_, lack)| lack.to_owned());
        lacks.chain(self.readiness.missing()).collect()
    }
}
