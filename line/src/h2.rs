//! One set of HTTP/2 settings for both ends of a line.

use hyper::client::conn::http2 as client;
use hyper::server::conn::http2 as server;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::time::Duration;

/// Requests that may be in flight on one line. More requests wait at the client end.
pub const MAX_STREAMS_PER_LINE: u32 = 2048;

const STREAM_WINDOW: u32 = 256 << 10;
/// As large as all stream windows together: a reader that reads nothing fills its own stream's window and takes nothing from the others.
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * MAX_STREAMS_PER_LINE;
const MAX_HEADERS: u32 = 64 << 10;
/// Bytes of request bodies that the server buffers for one connection of a client that it may not know yet.
const UNAUTHENTICATED_WINDOW: u32 = 1 << 20;
/// A bearer token and a few short headers.
const UNAUTHENTICATED_HEADERS: u32 = 16 << 10;
/// Requests on a new connection before the server's SETTINGS arrive. The server refuses requests above its bound; it does not queue them.
const STREAMS_BEFORE_SETTINGS: usize = 16;
/// The ends of a line are authenticated, so a burst of cancelled requests (all readers of an agent leave at once) is no attack. h2's
/// defaults of 50 and 20 would end the connection.
const MAX_RESETS: usize = 2 * MAX_STREAMS_PER_LINE as usize;

/// When to ping, and when to give the peer up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// Silence before a ping is sent.
    pub interval: Duration,
    /// How long the answer to a ping may take.
    pub timeout: Duration,
}

impl KeepAlive {
    /// The longest time until a dead peer is noticed: `interval` + `timeout`.
    pub fn notice(&self) -> Duration {
        self.interval + self.timeout
    }
}

impl Default for KeepAlive {
    fn default() -> Self {
        Self { interval: Duration::from_secs(10), timeout: Duration::from_secs(8) }
    }
}

/// The server end of a line.
pub(crate) fn line_server(keep_alive: KeepAlive) -> server::Builder<TokioExecutor> {
    let mut builder = plain_server(keep_alive);
    builder
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(MAX_HEADERS)
        .max_concurrent_streams(MAX_STREAMS_PER_LINE)
        .max_pending_accept_reset_streams(MAX_RESETS);
    builder
}

/// A server for clients that may be unauthenticated. h2's own limits against floods of resets stay in force.
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

/// The client end of a line, or of a [`RequestClient`](crate::RequestClient)'s connection.
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
