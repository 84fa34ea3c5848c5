//! What all doors share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::Client;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use yoi_line::ConnectionLimits;

use crate::access::AccessReviewer;
use crate::agent_concurrency::AgentConcurrency;
use crate::agent_index::AgentIndex;
use crate::delivery::MessageDelivery;
use crate::identity::Authenticator;
use crate::liveness::LivenessReconciler;
use crate::metrics::GatewayMetrics;
use crate::open_lines::OpenLines;
use crate::status::StatusWriter;

/// Times. The defaults are the promises; tests shorten them.
#[derive(Clone, Copy, Debug)]
pub struct GatewaySettings {
    /// How long what the API server said of a token or a right is believed.
    pub review_ttl: Duration,
    /// For one answer of the API server about a token or a right.
    pub review_timeout: Duration,
    /// How long an agent's status may take to name its Pod.
    pub pod_wait: Duration,
    /// How long a target's line may take to appear.
    pub line_wait: Duration,
    /// From a message to its acknowledgement.
    pub ack_timeout: Duration,
    /// For the head of a runtime's answer to a reader.
    pub answer_timeout: Duration,
    /// From a line's opening until its hint is written, unless a report did.
    pub set_live_delay: Duration,
    /// From a line's end until its hint is taken down, unless another line came.
    pub clear_live_delay: Duration,
    /// From the first list until hints that no line bears out are taken down.
    pub stale_live_delay: Duration,
    /// How often the certificate's files are read.
    pub certificate_poll_interval: Duration,
    /// After a stop was asked for.
    pub drain: Duration,
    /// From the head of a runtime's request to its answer.
    pub request_timeout: Duration,
    /// Requests of one agent that are answered at once; more wait.
    pub requests_per_agent: usize,
    /// Requests in flight on one connection of a runtime; more wait at its end.
    pub streams: u32,
    /// Who may be connected to each port without having said who it is, and how often one agent may be.
    pub connections: ConnectionLimits,
}

impl Default for GatewaySettings {
    fn default() -> Self {
        GatewaySettings {
            review_ttl: Duration::from_secs(10),
            review_timeout: Duration::from_secs(5),
            pod_wait: Duration::from_millis(1500),
            line_wait: Duration::from_secs(2),
            ack_timeout: Duration::from_secs(10),
            answer_timeout: Duration::from_secs(30),
            set_live_delay: Duration::from_millis(500),
            clear_live_delay: Duration::from_secs(3),
            stale_live_delay: Duration::from_secs(60),
            certificate_poll_interval: Duration::from_secs(3),
            drain: Duration::from_secs(10),
            request_timeout: Duration::from_secs(30),
            requests_per_agent: 64,
            // With these, what nobody has vouched for holds less than a third of the chart's memory limit, and one agent less than a fifth.
            streams: 64,
            connections: ConnectionLimits {
                unauthenticated: 256,
                unauthenticated_per_address: 64,
                authenticate_within: Duration::from_secs(10),
                per_client: 8,
            },
        }
    }
}

pub struct Gateway {
    pub settings: GatewaySettings,
    pub metrics: Arc<GatewayMetrics>,
    pub agents: Arc<AgentIndex>,
    pub lines: Arc<OpenLines>,
    pub authenticator: Authenticator,
    pub access: AccessReviewer,
    pub writer: Arc<StatusWriter>,
    pub delivery: MessageDelivery,
    pub concurrency: AgentConcurrency,
    pub liveness: LivenessReconciler,
    pub stopping: CancellationToken,
    pub(crate) runtimes_up: AtomicBool,
    pub(crate) api_up: AtomicBool,
}

impl Gateway {
    /// The gateway, and the changes that its keeper is to follow.
    pub fn new(client: Client, settings: GatewaySettings, stopping: CancellationToken) -> (Arc<Self>, mpsc::UnboundedReceiver<String>) {
        let GatewaySettings { review_ttl, review_timeout, pod_wait, line_wait, ack_timeout, .. } = settings;
        let metrics = Arc::new(GatewayMetrics::default());
        let (agents, changes) = AgentIndex::new();
        let lines = Arc::new(OpenLines::default());
        let writer = Arc::new(StatusWriter::new(client.clone(), agents.clone(), metrics.clone()));
        let authenticator = Authenticator::new(client.clone(), agents.clone(), metrics.clone(), review_ttl, pod_wait, review_timeout);
        let gateway = Gateway {
            authenticator,
            access: AccessReviewer::new(client, metrics.clone(), review_ttl, review_timeout),
            delivery: MessageDelivery { lines: lines.clone(), metrics: metrics.clone(), line_wait, ack_timeout },
            liveness: LivenessReconciler {
                agents: agents.clone(),
                lines: lines.clone(),
                writer: writer.clone(),
                metrics: metrics.clone(),
                settings,
                stopping: stopping.clone(),
            },
            concurrency: AgentConcurrency::new(settings.requests_per_agent),
            settings,
            metrics,
            agents,
            lines,
            writer,
            stopping,
            runtimes_up: AtomicBool::new(false),
            api_up: AtomicBool::new(false),
        };
        (Arc::new(gateway), changes)
    }

    /// What is missing to be ready.
    pub fn unready_reasons(&self) -> Vec<&'static str> {
        let checks = [
            (!self.stopping.is_cancelled(), "stopping"),
            (self.agents.is_listed(), "YoiPods and YoiPeers are not listed yet"),
            (self.runtimes_up.load(Ordering::Relaxed), "the runtimes' port waits for its certificate"),
            (self.api_up.load(Ordering::Relaxed), "the API port waits for its certificate or for the front proxy's ConfigMap"),
        ];
        checks.into_iter().filter(|(there, _)| !there).map(|(_, lack)| lack).collect()
    }
}
