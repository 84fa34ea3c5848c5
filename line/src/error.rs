//! How a line fails, and how it ends.

use crate::source::TextSourceError;
use crate::tls::TlsError;
use http::StatusCode;
use std::time::Duration;

/// Why a line could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    #[error("failed to read what a dial needs")]
    Source(#[from] TextSourceError),
    #[error("failed to use the token in a header")]
    Token(#[source] http::header::InvalidHeaderValue),
    #[error("failed to make a request for path {path:?}")]
    Path {
        path: String,
        #[source]
        source: http::Error,
    },
    #[error("failed to set up TLS")]
    Config(#[from] TlsError),
    #[error("failed to resolve {address}")]
    Resolve {
        address: String,
        #[source]
        source: std::io::Error,
    },
    #[error("failed to reach {address}")]
    Unreachable {
        address: String,
        #[source]
        source: std::io::Error,
    },
    #[error("failed to {operation} with {address} within {after:?}")]
    TimedOut { operation: &'static str, address: String, after: Duration },
    #[error("failed to agree on TLS with {address} as {server_name}")]
    Tls {
        address: String,
        server_name: String,
        #[source]
        source: std::io::Error,
    },
    #[error("failed to speak HTTP with {address}")]
    Http {
        address: String,
        #[source]
        source: hyper::Error,
    },
    /// 401 or 403: the other end does not take this identity.
    #[error("failed to be accepted by {address}: {status}: {message}")]
    Refused { address: String, status: StatusCode, message: String },
    /// Any other answer that is not a line: no such path, not ready, not a gateway.
    #[error("failed to get a line from {address}: {status}: {message}")]
    NotALine { address: String, status: StatusCode, message: String },
}

/// Whom a failure concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureClass {
    /// 401 or 403: the token, or the object that it stands for.
    Refused,
    /// The network, the name, or nobody there. Passes by itself.
    Unreachable,
    /// The certificates: wrong CA, wrong name, expired.
    Tls,
    /// Somebody answered, but not with a line (404, 503, nonsense).
    Answered,
    /// This side: the token or the CA cannot be read or used.
    Local,
    /// A line that was up and broke.
    Lost,
}

/// The last failure, ready to be shown: its class and the whole chain of causes in one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineFailure {
    pub class: FailureClass,
    pub message: String,
}

/// How a line that was up came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineEnd {
    /// This end wanted it.
    ShutDown,
    /// The other end closed in order.
    ClosedByPeer,
    /// Broken: reset, pings unanswered, or a breach of HTTP/2.
    Lost { message: String },
}

impl LineError {
    pub fn class(&self) -> FailureClass {
        match self {
            Self::Source(_) | Self::Token(_) | Self::Path { .. } | Self::Config(_) => FailureClass::Local,
            Self::Resolve { .. } | Self::Unreachable { .. } | Self::TimedOut { .. } => FailureClass::Unreachable,
            Self::Tls { .. } => FailureClass::Tls,
            // Bytes that break off between handshake and answer: a server that goes away, or a port that is no gateway.
            Self::Http { source, .. } if source.is_parse() => FailureClass::Answered,
            Self::Http { .. } => FailureClass::Unreachable,
            Self::Refused { .. } => FailureClass::Refused,
            Self::NotALine { .. } => FailureClass::Answered,
        }
    }

    pub fn fault(&self) -> LineFailure {
        LineFailure { class: self.class(), message: chain(self) }
    }
}

impl LineEnd {
    /// What to report while the line is down; the end that this side wanted is no fault.
    pub fn fault(&self) -> Option<LineFailure> {
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
            Err(error) => Self::Lost { message: chain(&error) },
        }
    }
}

impl std::fmt::Display for LineFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

/// An error with all its causes, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
