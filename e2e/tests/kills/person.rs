//! A person who steers one agent: pauses, resumes, cancels and turns it back at random moments, and attaches for a while each time.
//!
//! Each request is sent under one id until it is answered, and once more when it was carried out. What the person was told is the ledger that the
//! logs are held against.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use axum::http::Request;
use futures::{AsyncBufReadExt, StreamExt};
use kube::Client;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use yoi_wire::control::{AttachLine, ControlAction, ControlRequest, ControlResponse};
use yoi_wire::entry::Entry;
use yoi_wire::people::{GROUP, VERSION};

use crate::rng::SeededRng;

/// A request with its answer.
#[derive(Clone, Debug)]
pub struct Answered {
    pub id: String,
    pub action: ControlAction,
    pub response: ControlResponse,
}

pub struct Person {
    pub agent: String,
    path: String,
    answered: Mutex<Vec<Answered>>,
    /// Entries as they came over attached streams, and the token of the last one.
    attached: Mutex<(Vec<Entry>, Option<String>)>,
    /// Impossible observations: a gap, or another answer to the same request.
    errors: Mutex<Vec<String>>,
    number: AtomicU64,
    busy: AtomicBool,
    /// A run may be paused, or a request is not answered yet.
    unsettled: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Person {
    pub fn new(namespace: &str, agent: &str) -> Arc<Self> {
        Arc::new(Person {
            agent: agent.to_owned(),
            path: format!("/apis/{GROUP}/{VERSION}/namespaces/{namespace}/yoipods/{agent}"),
            answered: Mutex::default(),
            attached: Mutex::default(),
            errors: Mutex::default(),
            number: AtomicU64::new(0),
            busy: AtomicBool::new(false),
            unsettled: AtomicBool::new(false),
        })
    }

    pub fn set_busy(&self, on: bool) {
        if on {
            self.unsettled.store(true, Ordering::SeqCst);
        }
        self.busy.store(on, Ordering::SeqCst);
    }

    pub fn answered(&self) -> Vec<Answered> {
        lock(&self.answered).clone()
    }

    pub fn attached_entries(&self) -> Vec<Entry> {
        lock(&self.attached).0.clone()
    }

    pub fn errors(&self) -> Vec<String> {
        lock(&self.errors).clone()
    }

    /// What is still to come, or `None`.
    pub fn pending(&self) -> Option<String> {
        self.unsettled.load(Ordering::SeqCst).then(|| format!("a person has not let {} go on yet", self.agent))
    }

    /// Starts to steer and to attach in `tasks`.
    pub fn start(self: &Arc<Self>, client: &Client, tasks: &mut JoinSet<()>, rng: &SeededRng) {
        let (this, to, mut steering) = (self.clone(), client.clone(), rng.branch("steering"));
        tasks.spawn(async move {
            loop {
                if this.busy.load(Ordering::SeqCst) {
                    this.steer(&to, &mut steering).await;
                    sleep(steering.millis(500, 4_000)).await;
                } else if this.unsettled.load(Ordering::SeqCst) {
                    // A paused run would stay so for ever.
                    this.ask(&to, ControlAction::Resume {}).await;
                    if !this.busy.load(Ordering::SeqCst) {
                        this.unsettled.store(false, Ordering::SeqCst);
                    }
                }
                sleep(Duration::from_millis(100)).await;
            }
        });
        let (this, from, mut attaching) = (self.clone(), client.clone(), rng.branch("attaching"));
        tasks.spawn(async move {
            loop {
                // It leaves, or the stream breaks, whatever comes first.
                let _ = timeout(attaching.millis(500, 8_000), this.attach(&from)).await;
                sleep(attaching.millis(100, 1_000)).await;
            }
        });
    }

    async fn steer(&self, client: &Client, rng: &mut SeededRng) {
        match rng.below(4) {
            0 | 1 => {
                self.ask(client, ControlAction::Pause {}).await;
                sleep(rng.millis(0, 1_500)).await;
                let next = if rng.below(3) == 0 { ControlAction::Cancel {} } else { ControlAction::Resume {} };
                self.ask(client, next).await;
            }
            2 => {
                self.ask(client, ControlAction::Cancel {}).await;
            }
            _ => {
                let list = self.ask(client, ControlAction::RewindTargets {}).await;
                let Some(targets) = list.done.and_then(|done| done.rewind).filter(|targets| !targets.inputs.is_empty()) else { return };
                let seq = rng.choose(&targets.inputs).seq;
                self.ask(client, ControlAction::RewindTo { segment: targets.segment, seq, head: targets.head }).await;
            }
        }
    }

    /// Asks under one id until there is an answer. What was carried out is asked once more, perhaps of another process: the answer must be the same.
    async fn ask(&self, client: &Client, action: ControlAction) -> ControlResponse {
        let number = self.number.fetch_add(1, Ordering::SeqCst);
        let agent: u64 = self.agent.bytes().map(u64::from).sum();
        let id = format!("{:08x}-{agent:04x}-7000-8000-{number:012x}", std::process::id());
        let request = ControlRequest { id: id.clone(), action: action.clone() };
        let response = self.answer(client, &request).await;
        // A refusal is in no log, a list is a question about now, and so is a model that is to be tried again.
        let is_logged = match action {
            ControlAction::Pause {} | ControlAction::Cancel {} | ControlAction::RewindTo { .. } => true,
            ControlAction::Resume {} | ControlAction::RewindTargets {} | ControlAction::SetMode { .. } => false,
            ControlAction::Run { .. } | ControlAction::Compact {} | ControlAction::RegisterPeer { .. } => false,
        };
        if response.done.is_some() && is_logged {
            let again = self.answer(client, &request).await;
            if again != response {
                lock(&self.errors)
                    .push(format!("{} answered the request {id} ({action:?}) with {response:?}, and then with {again:?}", self.agent));
            }
        }
        lock(&self.answered).push(Answered { id, action, response: response.clone() });
        response
    }

    async fn answer(&self, client: &Client, request: &ControlRequest) -> ControlResponse {
        loop {
            if let Ok(Ok(response)) = timeout(Duration::from_secs(40), self.post(client, request)).await {
                return response;
            }
            sleep(Duration::from_millis(300)).await;
        }
    }

    async fn post(&self, client: &Client, request: &ControlRequest) -> Result<ControlResponse> {
        let request = Request::post(format!("{}/control", self.path))
            .header("content-type", "application/json")
            .body(serde_json::to_vec(request)?)?;
        Ok(client.request(request).await?)
    }

    async fn attach(&self, client: &Client) -> Result<()> {
        let after = lock(&self.attached).1.clone();
        let query = after.map_or_else(|| "tail=1000000".to_owned(), |token| format!("after={token}"));
        let request = Request::get(format!("{}/attach?{query}", self.path)).body(Vec::new())?;
        let mut lines = std::pin::pin!(timeout(Duration::from_secs(20), client.request_stream(request)).await??.lines());
        while let Some(line) = lines.next().await {
            let AttachLine::Entry { token, entry } = serde_json::from_str(&line?).context("not a line of an attached stream")? else {
                continue;
            };
            let mut attached = lock(&self.attached);
            let last = attached.0.last().map_or(0, |entry| entry.seq);
            if entry.seq != last + 1 {
                lock(&self.errors).push(format!("who is attached to {} gets entry {} after {last}", self.agent, entry.seq));
            }
            attached.0.push(*entry);
            attached.1 = Some(token);
        }
        Ok(())
    }
}
