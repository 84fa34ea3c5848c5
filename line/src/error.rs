//! Why a line cannot be opened, and why it ends.

use crate::source::TextSourceError;
use crate::tls::TlsError;
use http::StatusCode;
use std::time::Duration;
use yoi_wire::error_chain;

/// Why a line could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// The token or the CA could not be read.
    #[error("failed to read what a dial needs")]
    Source(#[from] TextSourceError),
    /// The token holds bytes that a header cannot hold.
    #[error("failed to use the token in a header")]
    Token(#[source] http::header::InvalidHeaderValue),
    /// The configured path is no path of a URI.
    #[error("failed to make a request for path {path:?}")]
    Path {
        /// The path as configured.
        path: String,
        /// The cause.
        #[source]
        source: http::Error,
    },
    /// The CA or the server name is not usable.
    #[error("failed to set up TLS")]
    Config(#[from] TlsError),
    /// The name has no address, or the resolver failed.
    #[error("failed to resolve {address}")]
    Resolve {
        /// `host:port` as configured, or the resolved address.
        address: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// TCP failed, or the connection broke during the TLS handshake.
    #[error("failed to reach {address}")]
    Unreachable {
        /// `host:port` as configured, or the resolved address.
        address: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A step took longer than its timeout in [`Timings`](crate::Timings).
    #[error("failed to {operation} with {address} within {after:?}")]
    TimedOut {
        /// What took too long, as a verb: "connect", "agree on TLS".
        operation: &'static str,
        /// `host:port` as configured, or the resolved address.
        address: String,
        /// The timeout.
        after: Duration,
    },
    /// The server's certificate does not verify, or the ends share no version of TLS.
    #[error("failed to agree on TLS with {address} as {server_name}")]
    Tls {
        /// `host:port` as configured, or the resolved address.
        address: String,
        /// The name that the certificate must bear.
        server_name: String,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The connection broke before the response, or the response is not HTTP.
    #[error("failed to speak HTTP with {address}")]
    Http {
        /// `host:port` as configured, or the resolved address.
        address: String,
        /// The cause.
        #[source]
        source: hyper::Error,
    },
    /// 401 or 403: the server does not accept this token.
    #[error("failed to be accepted by {address}: {status}: {message}")]
    Refused {
        /// `host:port` as configured, or the resolved address.
        address: String,
        /// The status of the response.
        status: StatusCode,
        /// The `message` of the response's JSON body, or the beginning of the body.
        message: String,
    },
    /// Any other response that is not a line: no such path, not ready, not a gateway.
    #[error("failed to get a line from {address}: {status}: {message}")]
    NotALine {
        /// `host:port` as configured, or the resolved address.
        address: String,
        /// The status of the response.
        status: StatusCode,
        /// The `message` of the response's JSON body, or the beginning of the body.
        message: String,
    },
}

/// The part that has to change before the line can work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureClass {
    /// The server refused the token with 401 or 403.
    Refused,
    /// The network, the name, or no server at the address. It may pass by itself.
    Unreachable,
    /// The server's certificate: wrong CA, wrong name, or expired.
    Tls,
    /// The server answered, but not with a line: 404, 503, or no HTTP.
    Answered,
    /// This end: the token or the CA cannot be read or used.
    Local,
    /// A line that was up broke.
    Lost,
}

/// A failure for people and for status: its class, and the error with all its causes on one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineFailure {
    /// The part that has to change.
    pub class: FailureClass,
    /// The error and its causes, on one line.
    pub message: String,
}

/// Why a line that was up ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineEnd {
    /// This end closed it.
    ShutDown,
    /// The other end closed it in order.
    ClosedByPeer,
    /// The connection was reset, the pings had no answer, or the peer broke the rules of HTTP/2.
    Lost {
        /// The error and its causes, on one line.
        message: String,
    },
}

impl LineError {
    /// The part that has to change before a dial can succeed.
    pub fn class(&self) -> FailureClass {
        match self {
            Self::Source(_) | Self::Token(_) | Self::Path { .. } | Self::Config(_) => FailureClass::Local,
            Self::Resolve { .. } | Self::Unreachable { .. } | Self::TimedOut { .. } => FailureClass::Unreachable,
            Self::Tls { .. } => FailureClass::Tls,
            Self::Http { source, .. } if source.is_parse() => FailureClass::Answered,
            // The connection broke between the handshake and the response: the server stopped, or the port is no gateway's.
            Self::Http { .. } => FailureClass::Unreachable,
            Self::Refused { .. } => FailureClass::Refused,
            Self::NotALine { .. } => FailureClass::Answered,
        }
    }

    /// The error as a [`LineFailure`].
    pub fn failure(&self) -> LineFailure {
        LineFailure { class: self.class(), message: error_chain(self) }
    }
}

impl LineEnd {
    /// What to report while the line is down. `None` when this end closed the line.
    pub fn failure(&self) -> Option<LineFailure> {
        let message = match self {
            Self::ShutDown => return None,
            Self::ClosedByPeer => "the other end closed the line".to_owned(),
            Self::Lost { message } => format!("the line broke: {message}"),
        };
        Some(LineFailure { class: FailureClass::Lost, message })
    }

    pub(crate) fn of(result: hyper::Result<()>) -> Self {
        match result {
            Ok(()) => Self::ClosedByPeer,
            Err(error) => Self::Lost { message: error_chain(&error) },
        }
    }
}

impl std::fmt::Display for LineFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}
