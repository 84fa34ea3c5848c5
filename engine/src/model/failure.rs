//! How a model call fails: messages for people, and who or what can mend it. Does no I/O.

use std::error::Error;
use std::io;
use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use serde_json::Value;
use yoi_wire::entry::TokenUsage;

use super::ModelTimeouts;
use super::answer::StreamError;
use super::secrets::Redaction;

mod error_body;
mod limits;
mod retry_after;
mod rules;
mod tls;

use error_body::ErrorBody;
pub(super) use limits::{OutputLimit, lower_output_limit};

/// Bytes of an endpoint's message that are kept.
const MAX_DETAIL_BYTES: usize = 2048;
/// Tries in all when the endpoint's answers cannot be read.
const MAX_UNREADABLE_TRIES: u32 = 12;
/// Tries in all when answers cost money and are of no use: too long, or empty.
const MAX_USELESS_ANSWERS: u32 = 3;

/// Who or what can mend a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelFailureClass {
    /// The same request may succeed later.
    TryAgain {
        /// Tries in all, the first one included; `None`: until it works.
        tries: Option<u32>,
    },
    /// What the endpoint sends is no answer. It is asked a few times more, and then a person has to look.
    Unusable,
    /// A person has to do something first.
    WaitForPerson(WaitReason),
    /// The conversation as it is would be refused again.
    History(HistoryFault),
}

impl ModelFailureClass {
    /// Another key, or another value of a header, may mend it.
    pub(super) fn wants_another_secret(self) -> bool {
        match self {
            Self::WaitForPerson(WaitReason::Key | WaitReason::Credit | WaitReason::Quota) => true,
            Self::WaitForPerson(WaitReason::Settings | WaitReason::Request | WaitReason::Answers)
            | Self::TryAgain { .. }
            | Self::Unusable
            | Self::History(_) => false,
        }
    }
}

/// What a person has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// Correct the key.
    Key,
    /// Pay.
    Credit,
    /// Raise a quota, or wait until it begins anew.
    Quota,
    /// Correct `spec.model`.
    Settings,
    /// Find out what the endpoint refuses: it does not say which part of the request.
    Request,
    /// Find out why no answer of the endpoint can be used.
    Answers,
}

/// What is wrong with the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryFault {
    /// It does not fit into the model's window, or into a request.
    TooLong,
    /// The endpoint refuses something in it.
    Refused,
}

/// A failed call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelFailure {
    /// For the object's status: what happened and what to do. Holds nothing of the conversation.
    pub summary: String,
    /// For the session's log: the summary and the endpoint's message.
    pub detail: String,
    /// Who or what can mend it.
    pub class: ModelFailureClass,
    /// The endpoint asked to wait this long. The caller bounds it.
    pub retry_after: Option<Duration>,
    /// Tokens that the endpoint had counted.
    pub usage: Option<TokenUsage>,
    /// The HTTP status of the error, or the one that it would have had outside of a stream; 0: the endpoint reported none.
    pub status: u16,
    /// The model's window in tokens, where the endpoint named it.
    pub window_tokens: Option<u64>,
}

/// What an endpoint says of a request that it refuses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Refusal {
    pub status: u16,
    /// Its message, after code and parameter, in lower case.
    pub words: String,
}

/// A failure, and the refusal that it comes from, where it does.
#[derive(Debug)]
pub(super) struct Failed {
    pub failure: ModelFailure,
    pub refusal: Option<Refusal>,
}

impl From<ModelFailure> for Failed {
    fn from(failure: ModelFailure) -> Self {
        Self { failure, refusal: None }
    }
}

/// What the messages say about the call.
#[derive(Clone, Debug)]
pub(crate) struct CallContext {
    /// Host and port.
    pub endpoint: String,
    /// Host and port of the proxy.
    pub proxy: Option<String>,
    /// A Secret holds its key, or the value of one of its headers.
    pub has_secret: bool,
    pub timeouts: ModelTimeouts,
}

const TRY_AGAIN: ModelFailureClass = ModelFailureClass::TryAgain { tries: None };

impl ModelFailure {
    fn new(class: ModelFailureClass, summary: String) -> Self {
        Self { detail: summary.clone(), summary, class, retry_after: None, usage: None, status: 0, window_tokens: None }
    }

    /// Adds the endpoint's message, for the log only.
    fn with_detail(self, words: &str) -> Self {
        let words = words.trim();
        if words.is_empty() {
            return self;
        }
        Self { detail: format!("{}: {}", self.summary, truncate(words)), ..self }
    }

    /// Replaces secrets, which an endpoint may repeat in its message.
    pub(crate) fn redact(self, redaction: &Redaction) -> Self {
        Self { summary: redaction.apply(&self.summary), detail: redaction.apply(&self.detail), ..self }
    }

    pub(super) fn from_stream(error: StreamError, context: &CallContext) -> Failed {
        let endpoint = &context.endpoint;
        match error {
            StreamError::TooLong => {
                let most = super::answer::MAX_ANSWER_BYTES >> 20;
                let words = format!("the model's answer from {endpoint} was longer than {most} MiB, and was given up");
                Self::new(ModelFailureClass::TryAgain { tries: Some(MAX_USELESS_ANSWERS) }, words)
            }
            StreamError::Unreadable(why) => {
                let words = format!("the model endpoint {endpoint} sent a stream that cannot be read");
                Self::new(ModelFailureClass::Unusable, words).with_detail(&why)
            }
            StreamError::Useless(why) => {
                let words = format!("the model at {endpoint} gave an answer that it cannot use itself");
                Self::new(ModelFailureClass::TryAgain { tries: Some(MAX_USELESS_ANSWERS) }, words).with_detail(&why)
            }
            StreamError::Reported(body) => return Self::reported(&body, context),
        }
        .into()
    }

    /// The endpoint reports an error in the stream, for example that it is overloaded.
    fn reported(body: &Value, context: &CallContext) -> Failed {
        let words = ErrorBody::of_value(body);
        let happened = format!("the model endpoint {} reported an error in its answer", context.endpoint);
        let wait = retry_after::in_body(body, words.message);
        Self::refused(words.status(), &words, happened, wait, context).with_words(&body.to_string())
    }

    pub(super) fn from_status(status: StatusCode, headers: &HeaderMap, body: &str, context: &CallContext) -> Failed {
        let parsed: Value = serde_json::from_str(body).unwrap_or(Value::Null);
        let words = ErrorBody::of_text(&parsed, body);
        let happened = format!("the model endpoint {} answered {status}", context.endpoint);
        let wait = retry_after::in_headers(headers).or_else(|| retry_after::in_body(&parsed, words.message));
        Self::refused(status.as_u16(), &words, happened, wait, context).with_words(body)
    }

    fn refused(status: u16, error: &ErrorBody<'_>, happened: String, wait: Option<Duration>, context: &CallContext) -> Failed {
        let class = rules::classify(status, error, context.has_secret);
        let words = format!("{} {} {}", error.param, error.code, error.message).to_lowercase();
        let window_tokens = if class == ModelFailureClass::History(HistoryFault::TooLong) { limits::window(&words) } else { None };
        let summary = happened + hint(class, status, context.has_secret);
        let failure = Self { retry_after: wait, status, window_tokens, ..Self::new(class, summary) };
        Failed { failure, refusal: Some(Refusal { status, words }) }
    }

    pub(crate) fn no_answer_begun(context: &CallContext) -> Self {
        let CallContext { endpoint, timeouts, .. } = context;
        let seconds = timeouts.head.as_secs();
        Self::new(TRY_AGAIN, format!("the model endpoint {endpoint} took the request and did not begin to answer within {seconds} s"))
    }

    pub(super) fn silent(context: &CallContext) -> Self {
        let CallContext { endpoint, timeouts, .. } = context;
        let seconds = timeouts.idle.as_secs();
        Self::new(TRY_AGAIN, format!("the model endpoint {endpoint} stopped in the middle of its answer: nothing came for {seconds} s"))
    }

    /// The connection ended in the middle of the answer.
    fn answer_cut_off(context: &CallContext) -> Self {
        Self::new(ModelFailureClass::Unusable, format!("the model endpoint {} broke its answer off", context.endpoint))
    }

    /// The answer stopped without what ends it.
    pub(super) fn answer_without_end(context: &CallContext, missing: &str) -> Self {
        let words = format!("the model endpoint {} broke its answer off: {missing} did not come", context.endpoint);
        Self::new(ModelFailureClass::Unusable, words)
    }

    /// The endpoint says that its answer is complete, and there is nothing in it.
    pub(super) fn answer_without_content(context: &CallContext) -> Self {
        let words = format!("the model endpoint {} ended its answer without anything in it", context.endpoint);
        Self::new(ModelFailureClass::Unusable, words)
    }

    /// The answer is complete and has no event in it. `head` is what it begins with.
    pub(super) fn not_a_stream(context: &CallContext, head: &[u8]) -> Self {
        let endpoint = &context.endpoint;
        let what = "answered with something that is no stream of a chat; check the model's baseUrl and provider";
        Self::new(ModelFailureClass::Unusable, format!("the model endpoint {endpoint} {what}")).with_detail(&String::from_utf8_lossy(head))
    }

    pub(super) fn answer_too_slow(context: &CallContext) -> Self {
        let CallContext { endpoint, timeouts, .. } = context;
        Self::new(TRY_AGAIN, format!("the model endpoint {endpoint} did not end its answer within {} s", timeouts.total.as_secs()))
    }

    /// The code that calls the model has panicked.
    pub(super) fn call_panicked() -> Self {
        let words = "the call of the model panicked; the log of the Pod says where".to_owned();
        Self::new(ModelFailureClass::TryAgain { tries: Some(MAX_UNREADABLE_TRIES) }, words)
    }

    /// The connection cannot be made or ends.
    pub(crate) fn from_connection(error: &reqwest::Error, context: &CallContext) -> Self {
        let causes: Vec<&(dyn Error + 'static)> =
            std::iter::successors(Some(error as &(dyn Error + 'static)), |error| (*error).source()).collect();
        let all = causes.iter().map(ToString::to_string).collect::<Vec<_>>().join(": ");
        let is =
            |kind: io::ErrorKind| causes.iter().any(|cause| cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == kind));
        let (place, setting) = match &context.proxy {
            Some(proxy) => (format!("the proxy {proxy} of the model"), "the model's proxyUrl"),
            None => (format!("the model endpoint {}", context.endpoint), "the model's baseUrl"),
        };
        let summary = if let Some(tls) = causes.iter().find_map(|cause| tls::error_in(*cause)) {
            tls::summary(&context.endpoint, tls)
        } else if all.contains("dns error") {
            format!("{place} has a name that cannot be resolved; check {setting}, and the cluster's DNS")
        } else if !error.is_connect() {
            return Self::answer_cut_off(context).with_detail(&all);
        } else if is(io::ErrorKind::ConnectionRefused) {
            format!("nobody listens at {place} (connection refused); is it up, and is {setting} right?")
        } else if error.is_timeout() || is(io::ErrorKind::TimedOut) {
            format!(
                "{place} cannot be reached: no connection within {} s; a network policy (chart value agents.egress), a firewall or a proxy may stand between",
                super::CONNECT_TIMEOUT.as_secs()
            )
        } else {
            format!("{place} cannot be reached; check {setting}, and what may be between (a proxy, a network policy)")
        };
        Self::new(TRY_AGAIN, summary).with_detail(&all)
    }
}

/// What to do about a failure, after the words that say what happened.
fn hint(class: ModelFailureClass, status: u16, has_secret: bool) -> &'static str {
    match class {
        ModelFailureClass::WaitForPerson(WaitReason::Key) => {
            "; it does not take the key: correct the Secret that spec.model names for it, and `kubectl yoi resume` lets the agent read it at \
             once; by itself the agent reads it after a minute, and then every ten"
        }
        ModelFailureClass::WaitForPerson(WaitReason::Credit) => {
            "; its account has no credit left: add some, or write the key of another account into its Secret"
        }
        ModelFailureClass::WaitForPerson(WaitReason::Quota) => "; the account's quota is used up: raise it, or wait until it begins anew",
        ModelFailureClass::WaitForPerson(WaitReason::Settings) => match status {
            401 | 403 if !has_secret => "; it wants a key: name its Secret in the model's authSecretRef",
            404 | 405 => "; check the model's baseUrl and name",
            _ => "; it does not take a setting in spec.model: the log holds its words",
        },
        ModelFailureClass::History(HistoryFault::TooLong) => "; the conversation is longer than the model takes",
        ModelFailureClass::History(HistoryFault::Refused) => "; the log holds its words",
        ModelFailureClass::WaitForPerson(WaitReason::Request) => {
            "; it does not say which part of the request it refuses: the log holds its words. If they are about the conversation, cancel the run and \
             turn the conversation back with `kubectl yoi rewind`"
        }
        ModelFailureClass::WaitForPerson(WaitReason::Answers) | ModelFailureClass::Unusable => "",
        ModelFailureClass::TryAgain { .. } => match status {
            408 | 409 | 425 => "",
            429 | 500.. => "; the agent waits and asks again",
            // Redirects that are not followed, and other statuses without an answer.
            _ => "; check the model's baseUrl",
        },
    }
}

impl Failed {
    /// Adds the endpoint's message, for the log only.
    fn with_words(self, words: &str) -> Self {
        Self { failure: self.failure.with_detail(words), ..self }
    }
}

fn truncate(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_DETAIL_BYTES)].to_owned()
}

#[cfg(test)]
mod tests;
