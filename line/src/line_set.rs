//! One line to every replica, dialled again whenever it ends.

use crate::backoff::{Backoff, BackoffPolicy, RandomFraction};
use crate::dial::Dial;
use crate::error::{FailureClass, LineFailure};
use crate::service::{BoxedService, HttpService};
use futures::FutureExt;
use futures::future::BoxFuture;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Returns the current addresses of the servers.
#[derive(Clone)]
pub struct Resolver(Arc<dyn Fn() -> BoxFuture<'static, std::io::Result<Vec<SocketAddr>>> + Send + Sync>);

impl Resolver {
    /// The addresses of a headless Service, `host:port`. The host should end in a dot: a relative name costs one query for each search
    /// domain, and every agent resolves often.
    pub fn dns(host_port: impl Into<String>) -> Self {
        let name: Arc<str> = Arc::from(host_port.into());
        Self::from_fn(move || {
            let name = name.clone();
            async move { Ok(tokio::net::lookup_host(&*name).await?.collect()) }
        })
    }

    /// The result of `resolve`, called at each resolution.
    pub fn from_fn<F: Future<Output = std::io::Result<Vec<SocketAddr>>> + Send + 'static>(
        resolve: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(move || resolve().boxed()))
    }
}

/// When a [`LineSet`] resolves and dials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepPolicy {
    /// How often the name is resolved, moved at random by up to a fifth. It is also the timeout of one resolution.
    pub resolve_every: Duration,
    /// A line is given up when this many answers in a row lack its address, because DNS may truncate an answer.
    pub gone_after: u32,
    /// The delays between dials.
    pub backoff: BackoffPolicy,
}

impl Default for KeepPolicy {
    fn default() -> Self {
        Self { resolve_every: Duration::from_secs(5), gone_after: 2, backoff: BackoffPolicy::default() }
    }
}

/// The state of one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineState {
    /// The first dial has no result yet.
    Dialling,
    /// The gateway accepted the line.
    Up,
    /// The line or its last dial failed; the next dial follows.
    Down(LineFailure),
}

/// The state of all lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineSetState {
    /// By address. It is empty before the first resolution and after the stop.
    pub lines: BTreeMap<SocketAddr, LineState>,
    /// The last failure of any line or of the resolver. `None` once every line is up.
    pub last_error: Option<LineFailure>,
}

impl LineSetState {
    /// How many lines are up.
    pub fn up(&self) -> usize {
        self.lines.values().filter(|state| **state == LineState::Up).count()
    }

    /// Returns how many addresses there are. Each should have one line.
    pub fn address_count(&self) -> usize {
        self.lines.len()
    }

    /// Whether there is an address and every line is up.
    pub fn all_up(&self) -> bool {
        !self.lines.is_empty() && self.up() == self.address_count()
    }

    fn set_error(&mut self, failure: LineFailure) {
        self.last_error = Some(failure);
    }

    fn clear_error_if_all_up(&mut self) {
        if self.all_up() {
            self.last_error = None;
        }
    }
}

/// Lines to all addresses of a name. Each is dialled again whenever it ends. Dropping the set cuts the lines; [`LineSet::stop`] lets
/// responses finish.
#[derive(Debug)]
pub struct LineSet {
    state: watch::Receiver<LineSetState>,
    stop: CancellationToken,
    task: Option<JoinHandle<()>>,
}

impl LineSet {
    /// Starts a task that dials the lines and serves on them.
    ///
    /// # Guarantees
    /// * Each address of the resolver has a line, or is being dialled, or will be dialled within `policy.backoff.cap`.
    /// * A resolver that fails, or returns no address, ends no line.
    pub fn keep(resolver: Resolver, dial: Dial, service: impl HttpService, policy: KeepPolicy, random: RandomFraction) -> Self {
        let (state, watcher) = watch::channel(LineSetState::default());
        let stop = CancellationToken::new();
        let task = LineSetTask {
            dial,
            service: service.into_boxed(),
            policy,
            random,
            state: Arc::new(state),
            stop: stop.clone(),
            lines: BTreeMap::new(),
        };
        Self { state: watcher, stop, task: Some(tokio::spawn(task.run(resolver))) }
    }

    /// A watch on the state. The channel closes when the lines are stopped.
    pub fn state(&self) -> watch::Receiver<LineSetState> {
        self.state.clone()
    }

    /// Takes no new requests, waits up to the dial's `timings.drain` for those in flight, and returns when all lines have ended.
    pub async fn stop(mut self) {
        self.stop.cancel();
        if let Some(task) = self.task.take() {
            let _ = task.await;
        }
    }
}

impl Drop for LineSet {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            // The lines run in the task's `JoinSet`, and end with it.
            task.abort();
        }
    }
}

struct LineSetTask {
    dial: Dial,
    service: BoxedService,
    policy: KeepPolicy,
    random: RandomFraction,
    state: Arc<watch::Sender<LineSetState>>,
    stop: CancellationToken,
    lines: BTreeMap<SocketAddr, RunningLine>,
}

struct RunningLine {
    stop: CancellationToken,
    task: AbortHandle,
    missed: u32,
}

impl LineSetTask {
    async fn run(mut self, resolver: Resolver) {
        let mut tasks = JoinSet::new();
        let stop = self.stop.clone();
        loop {
            let answer = tokio::select! {
                answer = timeout(self.policy.resolve_every, (resolver.0)()) => answer,
                () = stop.cancelled() => break,
            };
            match answer.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())) {
                Ok(addresses) if !addresses.is_empty() => self.set_addresses(addresses.into_iter().collect(), &mut tasks),
                Ok(_) => self.report_unresolved("the name has no address".to_owned()),
                Err(error) => self.report_unresolved(error.to_string()),
            }
            let pause = self.policy.resolve_every.mul_f64(0.8 + 0.4 * (self.random)().clamp(0.0, 1.0));
            tokio::select! {
                () = sleep(pause) => {}
                () = stop.cancelled() => break,
            }
            while tasks.try_join_next().is_some() {}
        }
        self.state.send_modify(|state| state.lines.clear());
        while tasks.join_next().await.is_some() {}
    }

    fn report_unresolved(&self, message: String) {
        tracing::warn!(address = self.dial.address, error = message, "gateway not resolved");
        let failure =
            LineFailure { class: FailureClass::Unreachable, message: format!("failed to resolve {}: {message}", self.dial.address) };
        self.state.send_modify(|state| state.set_error(failure));
    }

    fn set_addresses(&mut self, found: BTreeSet<SocketAddr>, tasks: &mut JoinSet<()>) {
        // A task that ended by itself has panicked. Its address is dialled again like a new one.
        self.lines.retain(|_, line| !line.task.is_finished());
        for (address, line) in &mut self.lines {
            line.missed = if found.contains(address) { 0 } else { line.missed + 1 };
        }
        let gone: Vec<_> =
            self.lines.iter().filter(|(_, line)| line.missed >= self.policy.gone_after).map(|(address, _)| *address).collect();
        for address in gone {
            tracing::info!(%address, "line given up: its address is gone");
            if let Some(line) = self.lines.remove(&address) {
                // Cancel before the removal from the state, so that the line's task reports nothing after it.
                line.stop.cancel();
            }
            self.state.send_modify(|state| {
                state.lines.remove(&address);
                state.clear_error_if_all_up();
            });
        }
        for address in found {
            if !self.lines.contains_key(&address) {
                self.add(address, tasks);
            }
        }
    }

    fn add(&mut self, address: SocketAddr, tasks: &mut JoinSet<()>) {
        let stop = self.stop.child_token();
        self.state.send_modify(|state| {
            state.lines.insert(address, LineState::Dialling);
        });
        let line = LineTask {
            address,
            dial: self.dial.clone(),
            service: self.service.clone(),
            backoff: Backoff::new(self.policy.backoff),
            random: self.random.clone(),
            state: self.state.clone(),
            stop: stop.clone(),
        };
        self.lines.insert(address, RunningLine { stop, task: tasks.spawn(line.run()), missed: 0 });
    }
}

struct LineTask {
    address: SocketAddr,
    dial: Dial,
    service: BoxedService,
    backoff: Backoff,
    random: RandomFraction,
    state: Arc<watch::Sender<LineSetState>>,
    stop: CancellationToken,
}

impl LineTask {
    async fn run(mut self) {
        let stop = self.stop.clone();
        loop {
            let Some((failure, up)) = self.dial_and_serve(&stop).await else { return };
            let delay = self.backoff.after_failure(up, (self.random)());
            tracing::info!(address = %self.address, class = ?failure.class, error = failure.message, retry_in = ?delay, "line down");
            self.report(LineState::Down(failure));
            tokio::select! {
                () = sleep(delay) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    /// Dials once and serves until the line ends. Returns why it failed, and how long it was up; `None` when this end closed it.
    async fn dial_and_serve(&mut self, stop: &CancellationToken) -> Option<(LineFailure, Option<Duration>)> {
        let opened = tokio::select! {
            opened = self.dial.open_to(self.address) => opened,
            () = stop.cancelled() => return None,
        };
        let line = match opened {
            Ok(line) => line,
            Err(error) => return Some((error.failure(), None)),
        };
        tracing::info!(address = %self.address, "line up");
        self.report(LineState::Up);
        let since = Instant::now();
        let end = line.serve_boxed(self.service.clone(), stop.cancelled()).await;
        Some((end.failure()?, Some(since.elapsed())))
    }

    fn report(&self, new: LineState) {
        self.state.send_modify(|state| {
            if self.stop.is_cancelled() {
                return;
            }
            if let LineState::Down(failure) = &new {
                state.set_error(failure.clone());
            }
            state.lines.insert(self.address, new);
            state.clear_error_if_all_up();
        });
    }
}
