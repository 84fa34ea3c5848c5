//! What all doors share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::Client;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use yoi_line::UnauthenticatedLimits;

use crate::access::Access;
use crate::deliver::Courier;
use crate::identity::Identities;
use crate::keeper::Keeper;
use crate::metrics::Metrics;
use crate::registry::Lines;
use crate::status::StatusWriter;
use crate::turns::Turns;
use crate::world::World;

/// Times. The defaults are the promises; tests shorten them.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long what the API server said of a token or a right is believed.
    pub review_memory: Duration,
    /// For one answer of the API server about a token or a right.
    pub review_within: Duration,
    /// How long an agent's status may take to name its Pod.
    pub pod_patience: Duration,
    /// How long a target's line may take to appear.
    pub line_wait: Duration,
    /// From a message to its acknowledgement.
    pub ack_within: Duration,
    /// For the head of a runtime's answer to a reader.
    pub answer_within: Duration,
    /// From a line's opening until its hint is written, unless a report did.
    pub hint_after: Duration,
    /// From a line's end until its hint is taken down, unless another line came.
    pub grace: Duration,
    /// From the first list until hints that no line bears out are taken down.
    pub sweep_after: Duration,
    /// How often the certificate's files are read.
    pub keys_every: Duration,
    /// After a stop was asked for.
    pub drain: Duration,
    /// From the head of a runtime's request to its answer.
    pub request_within: Duration,
    /// Requests of one agent that are answered at once; more wait.
    pub turns: usize,
    /// Requests in flight on one connection of a runtime; more wait at its end.
    pub streams: u32,
    /// Who may be connected to each port without having said who it is, and how often one agent may be.
    pub unauthenticated: UnauthenticatedLimits,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            review_memory: Duration::from_secs(10),
            review_within: Duration::from_secs(5),
            pod_patience: Duration::from_millis(1500),
            line_wait: Duration::from_secs(2),
            ack_within: Duration::from_secs(10),
            answer_within: Duration::from_secs(30),
            hint_after: Duration::from_millis(500),
            grace: Duration::from_secs(3),
            sweep_after: Duration::from_secs(60),
            keys_every: Duration::from_secs(3),
            drain: Duration::from_secs(10),
            request_within: Duration::from_secs(30),
            turns: 64,
            // With these, what nobody has vouched for holds less than a third of the chart's memory limit, and one agent less than a fifth.
            streams: 64,
            unauthenticated: UnauthenticatedLimits {
                unauthenticated: 256,
                unauthenticated_per_address: 64,
                authenticate_within: Duration::from_secs(10),
                connections_per_client: 8,
            },
        }
    }
}

pub struct Hub {
    pub settings: Settings,
    pub metrics: Arc<Metrics>,
    pub world: Arc<World>,
    pub lines: Arc<Lines>,
    pub identities: Identities,
    pub access: Access,
    pub writer: Arc<StatusWriter>,
    pub courier: Courier,
    pub turns: Turns,
    pub keeper: Keeper,
    pub stopping: CancellationToken,
    pub(crate) runtimes_up: AtomicBool,
    pub(crate) api_up: AtomicBool,
}

impl Hub {
    /// The hub, and the changes that its keeper is to follow.
    pub fn new(client: Client, settings: Settings, stopping: CancellationToken) -> (Arc<Self>, mpsc::UnboundedReceiver<String>) {
        let Settings { review_memory, review_within, pod_patience, line_wait, ack_within, .. } = settings;
        let metrics = Arc::new(Metrics::default());
        let (world, changes) = World::new();
        let lines = Arc::new(Lines::default());
        let writer = Arc::new(StatusWriter::new(client.clone(), world.clone(), metrics.clone()));
        let identities = Identities::new(client.clone(), world.clone(), metrics.clone(), review_memory, pod_patience, review_within);
        let hub = Hub {
            identities,
            access: Access::new(client, metrics.clone(), review_memory, review_within),
            courier: Courier { lines: lines.clone(), metrics: metrics.clone(), line_wait, ack_within },
            keeper: Keeper {
                world: world.clone(),
                lines: lines.clone(),
                writer: writer.clone(),
                metrics: metrics.clone(),
                settings,
                stopping: stopping.clone(),
            },
            turns: Turns::new(settings.turns),
            settings,
            metrics,
            world,
            lines,
            writer,
            stopping,
            runtimes_up: AtomicBool::new(false),
            api_up: AtomicBool::new(false),
        };
        (Arc::new(hub), changes)
    }

    /// What is missing to be ready.
    pub fn lacks(&self) -> Vec<&'static str> {
        let checks = [
            (!self.stopping.is_cancelled(), "stopping"),
            (self.world.is_listed(), "YoiPods and YoiPeers are not listed yet"),
            (self.runtimes_up.load(Ordering::Relaxed), "the runtimes' port waits for its certificate"),
            (self.api_up.load(Ordering::Relaxed), "the API port waits for its certificate or for the front proxy's ConfigMap"),
        ];
        checks.into_iter().filter(|(there, _)| !there).map(|(_, lack)| lack).collect()
    }
}
