//! How a model call fails, in words that help. Pure.

use std::error::Error;
use std::io;
use std::time::Duration;

use genai::webc::StreamTimeout;
use reqwest::StatusCode;
use reqwest::header::{HeaderMap, RETRY_AFTER};

use super::Patience;

/// What of an endpoint's words is kept.
const MAX_DETAIL: usize = 2048;
/// Answers of a kind that costs and helps nobody are not asked for without end.
const NONSENSE: u32 = 12;
const WASTE: u32 = 3;

/// Whether another try may help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// The same request would be refused again.
    Never,
    /// So many tries in all.
    Times(u32),
    /// Until it works: the world changes, or a person changes it.
    Always,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// For the object's status: says what kind of thing happened and what to do, and never a word of the conversation.
    pub summary: String,
    /// For the log: with what the endpoint said.
    pub detail: String,
    pub again: Again,
    /// The endpoint asked to wait this long.
    pub after: Option<Duration>,
    /// The endpoint does not take the key: one that is corrected is seen only by a new process.
    pub key_refused: bool,
}

/// Who was asked, for sentences.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// Host and port.
    pub endpoint: String,
    pub has_key: bool,
    pub patience: Patience,
}

impl Failure {
    fn new(again: Again, summary: String) -> Self {
        Self { detail: summary.clone(), summary, again, after: None, key_refused: false }
    }

    /// With the endpoint's own words, for the log alone.
    fn said(self, words: &str) -> Self {
        let words = words.trim();
        if words.is_empty() {
            return self;
        }
        Self { detail: format!("{}: {}", self.summary, clipped(words)), ..self }
    }

    /// Without the key, which endpoints may repeat.
    #[must_use]
    pub fn without(self, key: &str) -> Self {
        if key.is_empty() {
            return self;
        }
        Self { summary: self.summary.replace(key, "[key]"), detail: self.detail.replace(key, "[key]"), ..self }
    }

    pub(super) fn of(error: genai::Error, asked: &Asked) -> Self {
        let Asked { endpoint, .. } = asked;
        match error {
            genai::Error::WebStream { error, .. } => match error.downcast::<genai::Error>() {
                Ok(inner) => Self::of(*inner, asked),
                Err(other) => Self::of_connection(&*other, asked),
            },
            genai::Error::HttpError { status, body, headers, .. } => Self::of_status(status, &headers, &body, asked),
            // An error in the stream: overloaded, and the like. The answer was not whole.
            genai::Error::ChatResponse { body, .. } => {
                Self::new(Again::Always, format!("the model endpoint {endpoint} reported an error in its stream")).said(&body.to_string())
            }
            genai::Error::StreamParse { serde_error, .. } => Self::unreadable(endpoint).said(&serde_error.to_string()),
            // The same of other fields of a stream: a number where a text belongs.
            genai::Error::JsonValueExt(error) => Self::unreadable(endpoint).said(&error.to_string()),
            other => Self::new(Again::Times(NONSENSE), "the model could not be called".to_owned()).said(&other.to_string()),
        }
    }

    fn unreadable(endpoint: &str) -> Self {
        Self::new(Again::Times(NONSENSE), format!("the model endpoint {endpoint} sent a stream that cannot be read"))
    }

    /// The answer stopped before its end.
    pub(super) fn broken_off(asked: &Asked) -> Self {
        Self::new(Again::Always, format!("the model endpoint {} broke its answer off", asked.endpoint))
    }

    /// All of it came, and nothing in it was an event.
    pub(super) fn no_stream(asked: &Asked) -> Self {
        let Asked { endpoint, .. } = asked;
        Self::new(
            Again::Always,
            format!(
                "the model endpoint {endpoint} answered with something that is no stream of a chat; check spec.model.baseUrl and provider"
            ),
        )
    }

    pub(super) fn too_slow(asked: &Asked) -> Self {
        let Asked { endpoint, patience, .. } = asked;
        Self::new(Again::Always, format!("the model endpoint {endpoint} did not end its answer within {} s", patience.whole.as_secs()))
    }

    pub(super) fn too_long(asked: &Asked) -> Self {
        let most = super::MAX_ANSWER >> 20;
        Self::new(Again::Times(WASTE), format!("the model's answer from {} was longer than {most} MiB, and was given up", asked.endpoint))
    }

    pub(super) fn empty(asked: &Asked) -> Self {
        let words = format!("the model at {} answered with neither a word nor a tool call", asked.endpoint);
        Self::new(Again::Times(WASTE), words)
    }

    /// This side broke.
    pub(super) fn lost() -> Self {
        Self::new(Again::Times(NONSENSE), "the model could not be called: its thread has ended; the log of the Pod says why".to_owned())
    }

    fn of_connection(error: &(dyn Error + 'static), asked: &Asked) -> Self {
        let Asked { endpoint, patience, .. } = asked;
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
                        patience.first.as_secs()
                    )
                }
                StreamTimeout::Read => {
                    format!(
                        "the model endpoint {endpoint} stopped in the middle of its answer: nothing came for {} s",
                        patience.next.as_secs()
                    )
                }
            }
        } else if let Some(tls) = causes.iter().find_map(|cause| cause.downcast_ref::<rustls::Error>().or_else(|| inner_tls(*cause))) {
            of_tls(endpoint, tls)
        } else if all.contains("dns error") {
            format!("the model endpoint {endpoint} has a name that cannot be resolved; check spec.model.baseUrl, and the cluster's DNS")
        } else if http.is_some_and(reqwest::Error::is_connect) {
            if is(io::ErrorKind::ConnectionRefused) {
                format!("nobody listens at the model endpoint {endpoint} (connection refused); is it up, and is spec.model.baseUrl right?")
            } else if http.is_some_and(reqwest::Error::is_timeout) || is(io::ErrorKind::TimedOut) {
                format!(
                    "the model endpoint {endpoint} cannot be reached: no connection within {} s; a network policy (chart value agents.egress), a firewall or a proxy may stand between",
                    super::CONNECT.as_secs()
                )
            } else {
                format!(
                    "the model endpoint {endpoint} cannot be reached; check spec.model.baseUrl, and what may be between (a proxy, a network policy)"
                )
            }
        } else {
            return Self::broken_off(asked).said(&all);
        };
        Self::new(Again::Always, summary).said(&all)
    }

    fn of_status(status: StatusCode, headers: &HeaderMap, body: &str, asked: &Asked) -> Self {
        let Asked { endpoint, has_key, .. } = asked;
        let what = format!("the model endpoint {endpoint} answered {status}");
        let (again, hint) = match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN if *has_key => (
                Again::Always,
                "; it does not take the key: correct the Secret that spec.model.authSecretRef names (it is read again within ten minutes, or when \
                 the agent is stopped and started)",
            ),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                (Again::Always, "; it wants a key: name its Secret in spec.model.authSecretRef")
            }
            StatusCode::NOT_FOUND => (Again::Always, "; check spec.model.baseUrl and spec.model.name"),
            StatusCode::TOO_MANY_REQUESTS => (Again::Always, "; the agent waits and asks again"),
            StatusCode::REQUEST_TIMEOUT | StatusCode::CONFLICT => (Again::Always, ""),
            status if status.is_server_error() => (Again::Always, "; the agent waits and asks again"),
            status if status.is_client_error() => (Again::Never, "; the log holds its words"),
            // A redirect that leads nowhere, and whatever else is no answer.
            _ => (Again::Always, "; check spec.model.baseUrl"),
        };
        let seconds = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let key_refused = *has_key && matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        Self { after: seconds.map(Duration::from_secs), key_refused, ..Self::new(again, format!("{what}{hint}")).said(body) }
    }
}

/// rustls hands its errors on inside of I/O errors, which hide them from `source`.
fn inner_tls<'a>(cause: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let inner = cause.downcast_ref::<io::Error>()?.get_ref()?;
    inner.downcast_ref().or_else(|| inner_tls(inner))
}

fn of_tls(endpoint: &str, error: &rustls::Error) -> String {
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

fn clipped(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_DETAIL)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> Asked {
        Asked { endpoint: "m:1".to_owned(), has_key: true, patience: Patience::default() }
    }

    fn status(code: u16) -> Failure {
        Failure::of_status(StatusCode::from_u16(code).unwrap(), &HeaderMap::new(), "words of the conversation, sk-1", &asked())
    }

    #[test]
    fn the_summary_holds_nothing_that_the_endpoint_said_and_the_key_stands_nowhere() {
        for code in [400, 401, 403, 404, 413, 422, 429, 500, 503, 302] {
            let failure = status(code).without("sk-1");
            assert!(failure.summary.starts_with(&format!("the model endpoint m:1 answered {code}")), "{failure:?}");
            assert!(!failure.summary.contains("words of"), "{failure:?}");
            assert!(failure.detail.ends_with("words of the conversation, [key]"), "{failure:?}");
        }
    }

    #[test]
    fn what_a_person_or_the_world_may_mend_is_tried_again_and_a_refused_request_is_not() {
        for (code, again, key) in [
            (400, Again::Never, false),
            (413, Again::Never, false),
            (422, Again::Never, false),
            (401, Again::Always, true),
            (403, Again::Always, true),
            (404, Again::Always, false),
            (408, Again::Always, false),
            (429, Again::Always, false),
            (500, Again::Always, false),
            (503, Again::Always, false),
        ] {
            assert_eq!((status(code).again, status(code).key_refused), (again, key), "{code}");
        }
    }
}
