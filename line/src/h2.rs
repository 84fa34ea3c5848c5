//! One set of HTTP/2 settings for both ends of a line.

use hyper::client::conn::http2 as client;
use hyper::server::conn::http2 as server;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::time::Duration;

/// Requests that may be in flight on one line; more wait at the asking end.
pub const MAX_STREAMS_PER_LINE: u32 = 2048;

const STREAM_WINDOW: u32 = 256 << 10;
/// As large as all stream windows together: a reader that stands still fills its own stream's window and can take nothing from the others.
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * MAX_STREAMS_PER_LINE;
const MAX_HEADERS: u32 = 64 << 10;
/// What a client that nobody knows yet may make a server hold for it, beside the heads of its requests.
const UNAUTHENTICATED_WINDOW: u32 = 1 << 20;
/// A token and a few words.
const UNAUTHENTICATED_HEADERS: u32 = 16 << 10;
/// Requests on a new connection until the server has said how many it takes: what is above its bound is refused, not made to wait.
const STREAMS_BEFORE_SETTINGS: usize = 16;
/// The ends of a line know each other, so a burst of cancelled requests (an agent's readers all leave at once) is not an attack. With h2's
/// defaults of 50 and 20 such a burst ends the connection.
const MAX_RESETS: usize = 2 * MAX_STREAMS_PER_LINE as usize;

/// How a dead peer is noticed: a ping after `interval` of silence, given up `timeout` later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    pub interval: Duration,
    pub timeout: Duration,
}

impl KeepAlive {
    /// The longest that a dead peer stays unnoticed.
    pub fn notice(&self) -> Duration {
        self.interval + self.timeout
    }
}

impl Default for KeepAlive {
    fn default() -> Self {
        Self { interval: Duration::from_secs(10), timeout: Duration::from_secs(8) }
    }
}

/// The serving end of a line.
pub(crate) fn line_server(keep_alive: KeepAlive) -> server::Builder<TokioExecutor> {
    let mut builder = plain_server(keep_alive);
    builder
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(MAX_HEADERS)
        .max_concurrent_streams(MAX_STREAMS_PER_LINE)
        .max_pending_accept_reset_streams(MAX_RESETS);
    builder
}

/// A server that strangers may reach: h2's own guards against floods of resets stay as they are.
pub(crate) fn plain_server(keep_alive: KeepAlive) -> server::Builder<TokioExecutor> {
    let mut builder = server::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(keep_alive.interval)
        .keep_alive_timeout(keep_alive.timeout)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(UNAUTHENTICATED_WINDOW)
        .max_header_list_size(UNAUTHENTICATED_HEADERS);
    builder
}

/// The asking end of a line, or of a caller's connection.
pub(crate) fn line_client(keep_alive: KeepAlive) -> client::Builder<TokioExecutor> {
    let mut builder = client::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(keep_alive.interval)
        .keep_alive_timeout(keep_alive.timeout)
        .keep_alive_while_idle(true)
        .initial_max_send_streams(STREAMS_BEFORE_SETTINGS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(MAX_HEADERS)
        .max_concurrent_reset_streams(MAX_RESETS);
    builder
}
