//! One line to every replica, kept.

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

/// Which addresses there are now.
#[derive(Clone)]
pub struct Resolver(Arc<dyn Fn() -> BoxFuture<'static, std::io::Result<Vec<SocketAddr>>> + Send + Sync>);

impl Resolver {
    /// All addresses of a headless Service, `host:port`. End the host in a dot: a fleet asks often, and a relative name is asked for in
    /// every search domain first.
    pub fn dns(host_port: impl Into<String>) -> Self {
        let name: Arc<str> = Arc::from(host_port.into());
        Self::from_fn(move || {
            let name = name.clone();
            async move { Ok(tokio::net::lookup_host(&*name).await?.collect()) }
        })
    }

    pub fn from_fn<F: Future<Output = std::io::Result<Vec<SocketAddr>>> + Send + 'static>(
        resolve: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(move || resolve().boxed()))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepPolicy {
    /// How often the name is resolved, give or take a fifth by rng; also the deadline of one resolution.
    pub resolve_every: Duration,
    /// An address is given up when this many answers in a row lack it: DNS may cut an answer short.
    pub gone_after: u32,
    pub backoff: BackoffPolicy,
}

impl Default for KeepPolicy {
    fn default() -> Self {
        Self { resolve_every: Duration::from_secs(5), gone_after: 2, backoff: BackoffPolicy::default() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineState {
    /// Not answered yet.
    Dialling,
    Up,
    /// Waiting for the next dial.
    Down(LineFailure),
}

/// The state of all lines. `lines` is empty until the first resolution, and after the stop.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineSetState {
    pub lines: BTreeMap<SocketAddr, LineState>,
    /// What failed last, of any line or of the resolver; `None` again once every line is up.
    pub last_error: Option<LineFailure>,
}

impl LineSetState {
    pub fn up(&self) -> usize {
        self.lines.values().filter(|state| **state == LineState::Up).count()
    }

    pub fn wanted(&self) -> usize {
        self.lines.len()
    }

    pub fn all_up(&self) -> bool {
        !self.lines.is_empty() && self.up() == self.wanted()
    }

    fn set_error(&mut self, fault: LineFailure) {
        self.last_error = Some(fault);
    }

    fn clear_error_if_all_up(&mut self) {
        if self.all_up() {
            self.last_error = None;
        }
    }
}

/// Lines to all addresses of a name, each dialled again whenever it ends. Dropping it cuts them; [`LineSet::stop`] lets answers finish.
#[derive(Debug)]
pub struct LineSet {
    state: watch::Receiver<LineSetState>,
    stop: CancellationToken,
    task: Option<JoinHandle<()>>,
}

impl LineSet {
    /// Starts keeping lines, in a task of its own.
    ///
    /// # Guarantees
    /// * An address that the resolver names has a line, or a dial, or a dial to come within `policy.backoff.cap`.
    /// * A resolver that fails or answers with nothing takes no line away.
    pub fn keep(resolver: Resolver, dial: Dial, service: impl HttpService, policy: KeepPolicy, rng: RandomFraction) -> Self {
        let (state, watcher) = watch::channel(LineSetState::default());
        let stop = CancellationToken::new();
        let task = LineSetTask {
            dial,
            service: service.into_boxed(),
            policy,
            rng,
            state: Arc::new(state),
            stop: stop.clone(),
            lines: BTreeMap::new(),
        };
        Self { state: watcher, stop, task: Some(tokio::spawn(task.run(resolver))) }
    }

    /// The state now and to come. The channel closes when the lines are stopped.
    pub fn state(&self) -> watch::Receiver<LineSetState> {
        self.state.clone()
    }

    /// Takes no more requests, lets those in flight end within the dial's `timings.drain`, and returns when all lines are gone.
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
            // The lines live in the task's own set, and end with it.
            task.abort();
        }
    }
}

struct LineSetTask {
    dial: Dial,
    service: BoxedService,
    policy: KeepPolicy,
    rng: RandomFraction,
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
                Ok(found) if !found.is_empty() => self.set_addresses(found.into_iter().collect(), &mut tasks),
                Ok(_) => self.report_unresolved("the name has no address".to_owned()),
                Err(error) => self.report_unresolved(error.to_string()),
            }
            let pause = self.policy.resolve_every.mul_f64(0.8 + 0.4 * (self.rng)().clamp(0.0, 1.0));
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
        let fault =
            LineFailure { class: FailureClass::Unreachable, message: format!("failed to resolve {}: {message}", self.dial.address) };
        self.state.send_modify(|state| state.set_error(fault));
    }

    fn set_addresses(&mut self, found: BTreeSet<SocketAddr>, tasks: &mut JoinSet<()>) {
        // Only a panic ends a line's task unasked; the address is then taken up again like a new one.
        self.lines.retain(|_, line| !line.task.is_finished());
        for (address, line) in &mut self.lines {
            line.missed = if found.contains(address) { 0 } else { line.missed + 1 };
        }
        let gone: Vec<_> =
            self.lines.iter().filter(|(_, line)| line.missed >= self.policy.gone_after).map(|(address, _)| *address).collect();
        for address in gone {
            tracing::info!(%address, "line given up: its address is gone");
            if let Some(line) = self.lines.remove(&address) {
                // Cancelled before it is removed from the state: from here on the line reports nothing.
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
            rng: self.rng.clone(),
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
    rng: RandomFraction,
    state: Arc<watch::Sender<LineSetState>>,
    stop: CancellationToken,
}

impl LineTask {
    async fn run(mut self) {
        let stop = self.stop.clone();
        loop {
            let Some((fault, up)) = self.dial_and_serve(&stop).await else { return };
            let delay = self.backoff.after_failure(up, (self.rng)());
            tracing::info!(address = %self.address, class = ?fault.class, error = fault.message, retry_in = ?delay, "line down");
            self.report(LineState::Down(fault));
            tokio::select! {
                () = sleep(delay) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    /// One dial, and the life of the line that it gave: what went wrong and how long it had been up. `None`: this end wanted it to end.
    async fn dial_and_serve(&mut self, stop: &CancellationToken) -> Option<(LineFailure, Option<Duration>)> {
        let opened = tokio::select! {
            opened = self.dial.open_to(self.address) => opened,
            () = stop.cancelled() => return None,
        };
        let line = match opened {
            Ok(line) => line,
            Err(error) => return Some((error.fault(), None)),
        };
        tracing::info!(address = %self.address, "line up");
        self.report(LineState::Up);
        let since = Instant::now();
        let end = line.serve_boxed(self.service.clone(), stop.cancelled()).await;
        Some((end.fault()?, Some(since.elapsed())))
    }

    fn report(&self, new: LineState) {
        self.state.send_modify(|state| {
            if self.stop.is_cancelled() {
                return;
            }
            if let LineState::Down(fault) = &new {
                state.set_error(fault.clone());
            }
            state.lines.insert(self.address, new);
            state.clear_error_if_all_up();
        });
    }
}
