//! The line: one end dials, the other end sends the requests.
//!
//! A process that may not listen on any port (an agent's runtime) dials the gateway over TLS and requests `Upgrade: yoi-line/1`. It then
//! **serves** HTTP/2 on the connection that it opened. The gateway accepted the connection and holds the HTTP/2 client.
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
//! | a dialler that sends requests of its own | [`RequestClient`], an ordinary second connection |
//! | the acceptor | [`serve_tls`], [`Connection`], [`accept_upgrade`], [`LineHandle`] |
//!
//! # Guarantees
//! * The crypto provider is always ring, passed explicitly. The crate neither reads nor sets the default provider of the process.
//! * Each dial reads the token and the CA again, so rotated files need no restart. Neither is ever logged.
//! * Both ends send pings. An end notices within [`KeepAlive::notice`], 18 s by default, that its peer is gone without closing.
//! * The error of a failed request tells whether the other end can have seen the request ([`RequestError::Unsent`]).
//!
//! # Assumptions
//! * Each end runs inside one tokio runtime, with time and I/O enabled.
//! * The acceptor authenticates the dialler. This crate carries the bearer token and does not check it.

#![deny(missing_docs, clippy::unwrap_used, clippy::expect_used)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))]

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

pub use accept::{AcceptError, LineHandle, RequestError, SwitchingLine, accept_upgrade, bearer, header_has};
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

/// The protocol name in the `Upgrade` header of the request and of the response.
pub const UPGRADE: &str = "yoi-line/1";
