//! How a model call fails: messages for people, and whether to try again. Does no I/O.

use std::error::Error;
use std::io;
use std::time::Duration;

use genai::webc::StreamTimeout;
use reqwest::StatusCode;
use reqwest::header::{HeaderMap, RETRY_AFTER};

use super::ModelTimeouts;

/// Bytes of an endpoint's message that are kept.
const MAX_DETAIL_BYTES: usize = 2048;
/// Tries in all when the endpoint's answers cannot be read.
const MAX_UNREADABLE_TRIES: u32 = 12;
/// Tries in all when answers cost money and are of no use: too long, or empty.
const MAX_USELESS_ANSWERS: u32 = 3;

/// Whether another try may help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// The same request would be refused again.
    Never,
    /// Until this number of tries, the first one included.
    Times(u32),
    /// Until it works: the endpoint recovers, or a person corrects the settings.
    Always,
}

/// A failed call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelFailure {
    /// For the object's status: what happened and what to do. Holds nothing of the conversation.
    pub summary: String,
    /// For the session's log: the summary and the endpoint's message.
    pub detail: String,
    pub retry: Retry,
    /// The endpoint asked to wait this long (`Retry-After`).
    pub retry_after: Option<Duration>,
    /// The endpoint refuses the key. Only a new process reads a corrected one.
    pub key_refused: bool,
}

/// What the messages say about the call.
#[derive(Clone, Debug)]
pub(super) struct CallContext {
    /// Host and port.
    pub endpoint: String,
    pub has_key: bool,
    pub timeouts: ModelTimeouts,
}

impl ModelFailure {
    fn new(retry: Retry, summary: String) -> Self {
        Self { detail: summary.clone(), summary, retry, retry_after: None, key_refused: false }
    }

    /// Adds the endpoint's message, for the log only.
    fn with_detail(self, words: &str) -> Self {
        let words = words.trim();
        if words.is_empty() {
            return self;
        }
        Self { detail: format!("{}: {}", self.summary, truncate(words)), ..self }
    }

    /// Replaces the key, which an endpoint may repeat in its message.
    #[must_use]
    pub fn redact_key(self, key: &str) -> Self {
        if key.is_empty() {
            return self;
        }
        Self { summary: self.summary.replace(key, "[key]"), detail: self.detail.replace(key, "[key]"), ..self }
    }

    pub(super) fn from_genai(error: genai::Error, context: &CallContext) -> Self {
        let CallContext { endpoint, .. } = context;
        match error {
            genai::Error::WebStream { error, .. } => match error.downcast::<genai::Error>() {
                Ok(inner) => Self::from_genai(*inner, context),
                Err(other) => Self::from_connection_error(&*other, context),
            },
            genai::Error::HttpError { status, body, headers, .. } => Self::from_status(status, &headers, &body, context),
            // The endpoint reports an error in the stream, for example that it is overloaded.
            genai::Error::ChatResponse { body, .. } => {
                Self::new(Retry::Always, format!("the model endpoint {endpoint} reported an error in its stream"))
                    .with_detail(&body.to_string())
            }
            genai::Error::StreamParse { serde_error, .. } => Self::unreadable(endpoint).with_detail(&serde_error.to_string()),
            // A field of the stream has the wrong type.
            genai::Error::JsonValueExt(error) => Self::unreadable(endpoint).with_detail(&error.to_string()),
            other => {
                Self::new(Retry::Times(MAX_UNREADABLE_TRIES), "the model could not be called".to_owned()).with_detail(&other.to_string())
            }
        }
    }

    fn unreadable(endpoint: &str) -> Self {
        Self::new(Retry::Times(MAX_UNREADABLE_TRIES), format!("the model endpoint {endpoint} sent a stream that cannot be read"))
    }

    /// The answer stopped before its end.
    pub(super) fn answer_cut_off(context: &CallContext) -> Self {
        Self::new(Retry::Always, format!("the model endpoint {} broke its answer off", context.endpoint))
    }

    /// The answer is complete and has no event in it.
    pub(super) fn not_a_stream(context: &CallContext) -> Self {
        let CallContext { endpoint, .. } = context;
        Self::new(
            Retry::Always,
            format!(
                "the model endpoint {endpoint} answered with something that is no stream of a chat; check spec.model.baseUrl and provider"
            ),
        )
    }

    pub(super) fn answer_too_slow(context: &CallContext) -> Self {
        let CallContext { endpoint, timeouts, .. } = context;
        Self::new(Retry::Always, format!("the model endpoint {endpoint} did not end its answer within {} s", timeouts.total.as_secs()))
    }

    pub(super) fn answer_too_long(context: &CallContext) -> Self {
        let most = super::MAX_ANSWER_BYTES >> 20;
        Self::new(
            Retry::Times(MAX_USELESS_ANSWERS),
            format!("the model's answer from {} was longer than {most} MiB, and was given up", context.endpoint),
        )
    }

    pub(super) fn empty_answer(context: &CallContext) -> Self {
        let words = format!("the model at {} answered with neither a word nor a tool call", context.endpoint);
        Self::new(Retry::Times(MAX_USELESS_ANSWERS), words)
    }

    /// The code that calls the model has panicked.
    pub(super) fn call_panicked() -> Self {
        Self::new(Retry::Times(MAX_UNREADABLE_TRIES), "the call of the model panicked; the log of the Pod says where".to_owned())
    }

    fn from_connection_error(error: &(dyn Error + 'static), context: &CallContext) -> Self {
        let CallContext { endpoint, timeouts, .. } = context;
        let causes: Vec<&(dyn Error + 'static)> = std::iter::successors(Some(error), |error| (*error).source()).collect();
        let all = causes.iter().map(ToString::to_string).collect::<Vec<_>>().join(": ");
        let is =
            |kind: io::ErrorKind| causes.iter().any(|cause| cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == kind));
        let http = error.downcast_ref::<reqwest::Error>();
        let summary = if let Some(timeout) = causes.iter().find_map(|cause| cause.downcast_ref::<StreamTimeout>()) {
            match timeout {
                StreamTimeout::Headers => {
                    format!(
                        "the model endpoint {endpoint} took the request and did not begin to answer within {} s",
                        timeouts.head.as_secs()
                    )
                }
                StreamTimeout::Read => {
                    format!(
                        "the model endpoint {endpoint} stopped in the middle of its answer: nothing came for {} s",
                        timeouts.idle.as_secs()
                    )
                }
            }
        } else if let Some(tls) = causes.iter().find_map(|cause| cause.downcast_ref::<rustls::Error>().or_else(|| tls_error_in(*cause))) {
            tls_summary(endpoint, tls)
        } else if all.contains("dns error") {
            format!("the model endpoint {endpoint} has a name that cannot be resolved; check spec.model.baseUrl, and the cluster's DNS")
        } else if http.is_some_and(reqwest::Error::is_connect) {
            if is(io::ErrorKind::ConnectionRefused) {
                format!("nobody listens at the model endpoint {endpoint} (connection refused); is it up, and is spec.model.baseUrl right?")
            } else if http.is_some_and(reqwest::Error::is_timeout) || is(io::ErrorKind::TimedOut) {
                format!(
                    "the model endpoint {endpoint} cannot be reached: no connection within {} s; a network policy (chart value agents.egress), a firewall or a proxy may stand between",
                    super::CONNECT_TIMEOUT.as_secs()
                )
            } else {
                format!(
                    "the model endpoint {endpoint} cannot be reached; check spec.model.baseUrl, and what may be between (a proxy, a network policy)"
                )
            }
        } else {
            return Self::answer_cut_off(context).with_detail(&all);
        };
        Self::new(Retry::Always, summary).with_detail(&all)
    }

    fn from_status(status: StatusCode, headers: &HeaderMap, body: &str, context: &CallContext) -> Self {
        let CallContext { endpoint, has_key, .. } = context;
        let what = format!("the model endpoint {endpoint} answered {status}");
        let (retry, hint) = match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN if *has_key => (
                Retry::Always,
                "; it does not take the key: correct the Secret that spec.model.authSecretRef names (it is read again within ten minutes, or when \
                 the agent is stopped and started)",
            ),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                (Retry::Always, "; it wants a key: name its Secret in spec.model.authSecretRef")
            }
            StatusCode::NOT_FOUND => (Retry::Always, "; check spec.model.baseUrl and spec.model.name"),
            StatusCode::TOO_MANY_REQUESTS => (Retry::Always, "; the agent waits and asks again"),
            StatusCode::REQUEST_TIMEOUT | StatusCode::CONFLICT => (Retry::Always, ""),
            status if status.is_server_error() => (Retry::Always, "; the agent waits and asks again"),
            status if status.is_client_error() => (Retry::Never, "; the log holds its words"),
            // Redirects that cannot be followed, and other statuses without an answer.
            _ => (Retry::Always, "; check spec.model.baseUrl"),
        };
        let seconds = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let key_refused = *has_key && matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        Self { retry_after: seconds.map(Duration::from_secs), key_refused, ..Self::new(retry, format!("{what}{hint}")).with_detail(body) }
    }
}

/// rustls wraps its errors in I/O errors, whose `source` skips them.
fn tls_error_in<'a>(cause: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let inner = cause.downcast_ref::<io::Error>()?.get_ref()?;
    inner.downcast_ref().or_else(|| tls_error_in(inner))
}

fn tls_summary(endpoint: &str, error: &rustls::Error) -> String {
    use rustls::CertificateError as Certificate;
    let why = match error {
        rustls::Error::InvalidCertificate(Certificate::UnknownIssuer) => {
            "its certificate is not signed by a public CA, and no other is known here"
        }
        rustls::Error::InvalidCertificate(Certificate::Expired | Certificate::ExpiredContext { .. }) => "its certificate has expired",
        rustls::Error::InvalidCertificate(Certificate::NotValidForName | Certificate::NotValidForNameContext { .. }) => {
            "its certificate is for another name"
        }
        rustls::Error::InvalidCertificate(_) => "its certificate is not valid",
        _ => "it does not agree on TLS",
    };
    format!("the model endpoint {endpoint} is not trusted: {why}; check spec.model.baseUrl")
}

fn truncate(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_DETAIL_BYTES)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context() -> CallContext {
        CallContext { endpoint: "m:1".to_owned(), has_key: true, timeouts: ModelTimeouts::default() }
    }

    fn status(code: u16) -> ModelFailure {
        ModelFailure::from_status(StatusCode::from_u16(code).unwrap(), &HeaderMap::new(), "words of the conversation, sk-1", &context())
    }

    #[test]
    fn the_summary_has_nothing_of_the_endpoints_message_and_the_key_is_never_shown() {
        for code in [400, 401, 403, 404, 413, 422, 429, 500, 503, 302] {
            let failure = status(code).redact_key("sk-1");
            assert!(failure.summary.starts_with(&format!("the model endpoint m:1 answered {code}")), "{failure:?}");
            assert!(!failure.summary.contains("words of"), "{failure:?}");
            assert!(failure.detail.ends_with("words of the conversation, [key]"), "{failure:?}");
        }
    }

    #[test]
    fn failures_that_may_end_are_tried_again_and_refused_requests_are_not() {
        for (code, retry, key) in [
            (400, Retry::Never, false),
            (413, Retry::Never, false),
            (422, Retry::Never, false),
            (401, Retry::Always, true),
            (403, Retry::Always, true),
            (404, Retry::Always, false),
            (408, Retry::Always, false),
            (429, Retry::Always, false),
            (500, Retry::Always, false),
            (503, Retry::Always, false),
        ] {
            assert_eq!((status(code).retry, status(code).key_refused), (retry, key), "{code}");
        }
    }
}
