//! How a model call fails, and when to try again. Pure.

use std::error::Error;
use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::{HeaderMap, RETRY_AFTER};

/// The longest wait that an endpoint may ask for.
const LONGEST: Duration = Duration::from_secs(120);
/// What of an endpoint's words is kept.
const MAX_DETAIL: usize = 2048;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// For the object's status: says what kind of thing happened, and never a word of the conversation.
    pub summary: String,
    /// For the log: with what the endpoint said.
    pub detail: String,
    /// Another try may help.
    pub passes: bool,
    /// The endpoint asked to wait this long.
    pub after: Option<Duration>,
}

impl Failure {
    pub(super) fn of(error: genai::Error) -> Self {
        match error {
            genai::Error::WebStream { error, cause, .. } => match error.downcast::<genai::Error>() {
                Ok(inner) => Self::of(*inner),
                Err(other) => Self::of_connection(&*other, &cause),
            },
            genai::Error::HttpError { status, body, headers, .. } => Self::of_status(status, &headers, &body),
            // An error in the stream: overloaded, and the like. The answer was not whole.
            genai::Error::ChatResponse { body, .. } => Self {
                summary: "the model endpoint reported an error in its stream".to_owned(),
                detail: clipped(&format!("the model endpoint reported an error in its stream: {body}")),
                passes: true,
                after: None,
            },
            genai::Error::StreamParse { serde_error, .. } => Self::passing(
                "the model endpoint sent a stream that cannot be read",
                &format!("the model endpoint sent a stream that cannot be read: {serde_error}"),
            ),
            other => Self {
                summary: "the model could not be called".to_owned(),
                detail: clipped(&format!("the model could not be called: {other}")),
                passes: false,
                after: None,
            },
        }
    }

    pub(super) fn broken_off() -> Self {
        let words = "the model endpoint broke its answer off";
        Self::passing(words, words)
    }

    fn passing(summary: &str, detail: &str) -> Self {
        Self { summary: summary.to_owned(), detail: clipped(detail), passes: true, after: None }
    }

    fn of_connection(error: &(dyn Error + 'static), cause: &str) -> Self {
        let mut words = cause.to_owned();
        let mut source = error.source();
        while let Some(error) = source {
            words.push_str(": ");
            words.push_str(&error.to_string());
            source = error.source();
        }
        // Neither addresses nor causes are the conversation's words.
        Self::passing(
            &clipped(&format!("the model endpoint could not be reached: {words}")),
            &format!("the model endpoint could not be reached: {words}"),
        )
    }

    fn of_status(status: StatusCode, headers: &HeaderMap, body: &str) -> Self {
        let passes = status.is_server_error()
            || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT | StatusCode::CONFLICT);
        let seconds = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
        Self {
            summary: format!("the model endpoint answered {status}"),
            detail: clipped(&format!("the model endpoint answered {status}: {}", body.trim())),
            passes,
            after: seconds.map(Duration::from_secs),
        }
    }
}

fn clipped(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_DETAIL)].to_owned()
}

/// When to try again, and when to give up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries {
    /// Tries in all.
    pub tries: u32,
    /// The first wait; it doubles.
    pub first: Duration,
    /// No wait is longer, unless the endpoint asks for it.
    pub cap: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Self { tries: 12, first: Duration::from_secs(1), cap: Duration::from_secs(60) }
    }
}

impl Retries {
    /// The wait after the `failed`-th failure in a row, from 1; `None`: give up. `chance` in `0.0..1.0` spreads a fleet.
    #[must_use]
    pub fn after(&self, failed: u32, failure: &Failure, chance: f64) -> Option<Duration> {
        if !failure.passes || failed >= self.tries {
            return None;
        }
        let bound = self.first.saturating_mul(2u32.saturating_pow(failed - 1)).min(self.cap);
        let ours = bound.mul_f64(0.5 + 0.5 * chance.clamp(0.0, 1.0));
        Some(failure.after.map_or(ours, |asked| asked.min(LONGEST).max(ours)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u16, after: Option<&'static str>) -> Failure {
        let mut headers = HeaderMap::new();
        headers.extend(after.map(|after| (RETRY_AFTER, after.parse().unwrap())));
        Failure::of_status(StatusCode::from_u16(code).unwrap(), &headers, "words of the conversation")
    }

    #[test]
    fn what_passes_is_tried_again_and_what_does_not_is_not() {
        let retries = Retries { tries: 4, first: Duration::from_secs(1), cap: Duration::from_secs(3) };
        let waits = |failure: &Failure| (1..6).map(|n| retries.after(n, failure, 1.0).map(|wait| wait.as_secs())).collect::<Vec<_>>();
        assert_eq!(waits(&status(503, None)), [Some(1), Some(2), Some(3), None, None]);
        assert_eq!(waits(&status(429, Some("7"))), [Some(7), Some(7), Some(7), None, None]);
        assert_eq!(waits(&status(429, Some("100000"))), [Some(120), Some(120), Some(120), None, None]);
        for code in [400, 401, 403, 404, 413, 422] {
            assert_eq!(waits(&status(code, None)), [None; 5], "{code}");
        }
        assert_eq!(waits(&Failure::broken_off()), [Some(1), Some(2), Some(3), None, None]);
    }

    #[test]
    fn the_summary_holds_nothing_that_the_endpoint_said() {
        let failure = status(400, None);
        assert_eq!(failure.summary, "the model endpoint answered 400 Bad Request");
        assert!(failure.detail.ends_with("words of the conversation"));
    }
}
