//! The line: one end dials, the other end asks.
//!
//! A process that may listen nowhere (an agent's runtime, a node's shim) dials the gateway by TLS, asks for `Upgrade: yoi-line/1`, and
//! then **serves** HTTP/2 on the connection that it opened. The gateway, which accepted, holds the HTTP/2 client.
//!
//! ```text
//! runtime --- TLS, GET path, Connection: Upgrade, Authorization: Bearer ---> gateway
//! runtime <-- 101 Switching Protocols --------------------------------------- gateway   (identity accepted)
//! runtime <== HTTP/2 requests =============================================== gateway
//! ```
//!
//! | Who | Uses |
//! |---|---|
//! | a dialler that serves | [`LineSet::keep`] (one line to every replica), [`serve_on_line`] (one line, once) |
//! | a dialler that asks | [`RequestClient`], an ordinary second connection |
//! | the acceptor | [`serve_tls`], [`Connection`], [`accept_upgrade`], [`LineHandle`] |
//!
//! # Guarantees
//! * The crypto provider is always ring, given explicitly: the process default is neither read nor set.
//! * The token and the CA are read anew at each dial, so rotated files are noticed without a restart. Neither is ever logged.
//! * Both ends ping. A peer that vanished without a word is noticed within [`KeepAlive::notice`], 18 s by default.
//! * A request that fails says whether the other end can have seen it ([`RequestError::Unsent`]).
//!
//! # Assumptions
//! * Both ends run inside one tokio runtime each, with time and I/O enabled.
//! * Who dialled is the acceptor's business: this crate carries the bearer token, it does not judge it.

mod abort;
mod accept;
mod backoff;
mod connect;
mod connections;
mod dial;
mod error;
mod h2;
mod line_set;
mod peer;
mod request_client;
mod serve;
mod service;
mod source;
mod tls;

pub use accept::{AcceptError, LineHandle, RequestError, SwitchingLine, accept_upgrade, bearer};
pub use backoff::{Backoff, BackoffPolicy, RandomFraction};
pub use connections::{Connection, ConnectionLimits};
pub use dial::{Dial, DialledLine, Timings, serve_on_line};
pub use error::{FailureClass, LineEnd, LineError, LineFailure};
pub use h2::{KeepAlive, MAX_STREAMS_PER_LINE};
pub use line_set::{KeepPolicy, LineSet, LineSetState, LineState, Resolver};
pub use peer::{PeerAddress, PeerCertificate};
pub use request_client::{CallError, RequestClient, RequestLimits};
pub use serve::{ServeLimits, ServeSummary, serve_plain, serve_tls};
pub use service::{BoxError, HttpService};
pub use source::{TextSource, TextSourceError};
pub use tls::{ClientAuth, TlsError, tls_server_config};

/// The protocol token of the `Upgrade` header, both ways.
pub const UPGRADE: &str = "yoi-line/1";
