//! A client outside the cluster's processes: it sends messages to one agent and follows its log, and records what it got.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use axum::http::Request;
use futures::{AsyncBufReadExt, StreamExt};
use kube::Client;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use yoi_wire::entry::Body;
use yoi_wire::hub::SendResponse;
use yoi_wire::people::{GROUP, LogLine, PersonMessage, VERSION};

use crate::rng::SeededRng;

/// Everything that was acknowledged by, and read from, one agent.
pub struct AgentClient {
    pub agent: String,
    path: String,
    /// Message ids in the order of their acknowledgements. There is one sender.
    acknowledged: Mutex<Vec<String>>,
    /// Lines of the log, byte for byte as they were read.
    read: Mutex<Vec<String>>,
    /// Impossible observations of the reader, such as a gap.
    reader_errors: Mutex<Vec<String>>,
    number: AtomicU64,
    repeated: AtomicU64,
    /// The sender sends messages one after another.
    busy: AtomicBool,
    /// A message is sent and not yet acknowledged.
    in_flight: AtomicBool,
    /// One more message is to be sent.
    wanted: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AgentClient {
    pub fn new(namespace: &str, agent: &str) -> Arc<Self> {
        Arc::new(AgentClient {
            agent: agent.to_owned(),
            path: format!("/apis/{GROUP}/{VERSION}/namespaces/{namespace}/yoipods/{agent}"),
            acknowledged: Mutex::default(),
            read: Mutex::default(),
            reader_errors: Mutex::default(),
            number: AtomicU64::new(0),
            repeated: AtomicU64::new(0),
            busy: AtomicBool::new(false),
            in_flight: AtomicBool::new(false),
            wanted: AtomicBool::new(false),
        })
    }

    pub fn set_busy(&self, on: bool) {
        self.busy.store(on, Ordering::SeqCst);
    }

    /// Asks the sender for one more message. Its acknowledgement shows that everything between here and the agent works.
    pub fn request_message(&self) {
        self.wanted.store(true, Ordering::SeqCst);
    }

    pub fn repeat_count(&self) -> u64 {
        self.repeated.load(Ordering::SeqCst)
    }

    pub fn acknowledged_ids(&self) -> Vec<String> {
        lock(&self.acknowledged).clone()
    }

    pub fn lines_read(&self) -> Vec<String> {
        lock(&self.read).clone()
    }

    pub fn reader_errors(&self) -> Vec<String> {
        lock(&self.reader_errors).clone()
    }

    /// Starts the sender and the reader in `tasks`.
    pub fn start(self: &Arc<Self>, client: &Client, tasks: &mut JoinSet<()>, rng: SeededRng) {
        self.start_sender(client, tasks, rng, (200, 1200), |this| this.unread() < 4);
        let (this, from) = (self.clone(), client.clone());
        tasks.spawn(async move {
            loop {
                // The stream breaks whenever a process between the agent and this test is killed.
                let _ = this.follow(&from).await;
                sleep(Duration::from_millis(300)).await;
            }
        });
    }

    /// Starts only a sender in `tasks`, with pauses in which the agent comes to rest. Who follows the log of one that rests has a reader made for it.
    pub fn start_with_pauses(self: &Arc<Self>, client: &Client, tasks: &mut JoinSet<()>, rng: SeededRng) {
        self.start_sender(client, tasks, rng, (0, 4000), |_| true);
    }

    /// Sends what is wanted, and while the client is busy one message after the other as long as `takes_more`, with a pause of `from` to `to` ms after each.
    fn start_sender(
        self: &Arc<Self>,
        client: &Client,
        tasks: &mut JoinSet<()>,
        mut rng: SeededRng,
        (from, to): (u64, u64),
        takes_more: fn(&Self) -> bool,
    ) {
        let (this, client) = (self.clone(), client.clone());
        tasks.spawn(async move {
            loop {
                if this.wanted.load(Ordering::SeqCst) {
                    this.send(&client).await;
                    this.wanted.store(false, Ordering::SeqCst);
                } else if this.busy.load(Ordering::SeqCst) && takes_more(&this) {
                    this.send(&client).await;
                    sleep(rng.millis(from, to)).await;
                }
                sleep(Duration::from_millis(100)).await;
            }
        });
    }

    /// Sends one message under one id, again and again until it is acknowledged.
    async fn send(&self, client: &Client) {
        self.in_flight.store(true, Ordering::SeqCst);
        let number = self.number.fetch_add(1, Ordering::SeqCst);
        // The agent passes every fifth message on to its peer.
        let word = if number % 5 == 4 { "pass" } else { "number" };
        let message = PersonMessage {
            message_id: format!("kill-{}-{number}-{:x}", self.agent, std::process::id()),
            text: format!("{word} {number}"),
        };
        loop {
            match timeout(Duration::from_secs(20), self.post(client, &message)).await {
                Ok(Ok(_)) => break,
                Ok(Err(_)) | Err(_) => {
                    self.repeated.fetch_add(1, Ordering::SeqCst);
                    sleep(Duration::from_millis(300)).await;
                }
            }
        }
        lock(&self.acknowledged).push(message.message_id);
        self.in_flight.store(false, Ordering::SeqCst);
    }

    async fn post(&self, client: &Client, message: &PersonMessage) -> Result<SendResponse> {
        let request = Request::post(format!("{}/message", self.path)).body(serde_json::to_vec(message)?)?;
        Ok(client.request(request).await?)
    }

    /// Number of messages that are acknowledged and not yet read from the log.
    fn unread(&self) -> usize {
        let inputs = lock(&self.read).iter().filter(|line| line.contains("\"kind\":\"Input\"")).count();
        lock(&self.acknowledged).len().saturating_sub(inputs)
    }

    async fn follow(&self, client: &Client) -> Result<()> {
        let after = lock(&self.read).last().and_then(|line| serde_json::from_str::<LogLine>(line).ok());
        let (token, mut seq) = after.map_or((None, 0), |line| (Some(line.token), line.entry.seq));
        let token = token.map(|token| format!("&after={token}")).unwrap_or_default();
        let request = Request::get(format!("{}/log?follow=true{token}", self.path)).body(Vec::new())?;
        let stream = timeout(Duration::from_secs(20), client.request_stream(request)).await??;
        let mut lines = std::pin::pin!(stream.lines());
        while let Some(line) = lines.next().await {
            let line = line?;
            let parsed: LogLine = serde_json::from_str(&line).context("not a line of a log")?;
            if parsed.entry.seq != seq + 1 {
                lock(&self.reader_errors).push(format!("a gap in the log of {}: {} comes after {seq}", self.agent, parsed.entry.seq));
            }
            seq = parsed.entry.seq;
            lock(&self.read).push(line);
        }
        Ok(())
    }

    /// Returns all lines of the log.
    pub async fn log(&self, client: &Client) -> Result<Vec<String>> {
        let request = Request::get(format!("{}/log?follow=false", self.path)).body(Vec::new())?;
        let text = timeout(Duration::from_secs(30), client.request_text(request)).await??;
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// Returns that a message is under way, or `None`.
    pub fn unacknowledged(&self) -> Option<String> {
        let is_under_way = self.in_flight.load(Ordering::SeqCst) || self.wanted.load(Ordering::SeqCst);
        is_under_way.then(|| format!("a message to {} is not acknowledged", self.agent))
    }

    /// Returns what this agent still has to do, as far as the reader knows, or `None`.
    pub fn pending(&self) -> Option<String> {
        let agent = &self.agent;
        if let Some(unacknowledged) = self.unacknowledged() {
            return Some(unacknowledged);
        }
        let lines: Vec<LogLine> = lock(&self.read).iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let known: std::collections::BTreeSet<&str> = lines.iter().filter_map(|line| input_id(&line.entry.body)).collect();
        let missing = lock(&self.acknowledged).iter().filter(|id| !known.contains(id.as_str())).count();
        if missing > 0 {
            return Some(format!("{missing} acknowledged messages are not in the log of {agent}"));
        }
        let last = |wanted: fn(&Body) -> bool| lines.iter().rposition(|line| wanted(&line.entry.body)).map_or(0, |at| at + 1);
        let ended = last(|body| matches!(body, Body::RunEnded(_)));
        let started = last(|body| matches!(body, Body::RunStarted(_) | Body::Input(_) | Body::PeerMessage(_) | Body::ToolStarted(_)));
        (ended < started).then(|| format!("{agent} is at work"))
    }
}

/// Returns the message id of an `Input` entry.
pub fn input_id(body: &Body) -> Option<&str> {
    match body {
        Body::Input(input) => Some(&input.message_id),
        _ => None,
    }
}
