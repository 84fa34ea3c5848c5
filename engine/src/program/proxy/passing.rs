//! Passes an answer on as it comes, and counts its tokens on the way.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};

use super::conceal::Concealer;
use super::usage::UsageReader;
use crate::program::access::RunBudget;

/// Body of an answer to a program.
pub(super) type ResponseBody = UnsyncBoxBody<Bytes, AnswerBroken>;

/// The endpoint's answer broke off, and so does the one to the program.
#[derive(Debug, thiserror::Error)]
#[error("the model endpoint broke its answer off")]
pub(super) struct AnswerBroken;

/// An answer on its way. Only the chunk that is passed on is held.
pub(super) struct PassingAnswer {
    pub response: reqwest::Response,
    pub concealer: Concealer,
    pub counter: Option<TokenCounter>,
    /// Longest silence.
    pub idle: Duration,
    /// When the answer must have ended.
    pub deadline: Instant,
    /// Counts the request as one in flight.
    pub _permit: OwnedSemaphorePermit,
}

/// Tells the tokens of one answer when it ends, breaks off, or is given up by the program.
pub(super) struct TokenCounter {
    reader: Option<UsageReader>,
    budget: Arc<dyn RunBudget>,
}

impl TokenCounter {
    pub fn new(reader: UsageReader, budget: Arc<dyn RunBudget>) -> Self {
        Self { reader: Some(reader), budget }
    }

    fn push(&mut self, bytes: &[u8]) {
        if let Some(reader) = &mut self.reader {
            reader.push(bytes);
        }
    }
}

impl Drop for TokenCounter {
    fn drop(&mut self) {
        if let Some(usage) = self.reader.take().and_then(UsageReader::finish) {
            self.budget.used(usage);
        }
    }
}

impl PassingAnswer {
    pub fn into_body(self) -> ResponseBody {
        StreamBody::new(stream::unfold(Some(self), Self::next)).boxed_unsync()
    }

    async fn next(passing: Option<Self>) -> Option<(Result<Frame<Bytes>, AnswerBroken>, Option<Self>)> {
        let mut passing = passing?;
        loop {
            let until = passing.deadline.min(Instant::now() + passing.idle);
            match timeout_at(until, passing.response.chunk()).await {
                Ok(Ok(Some(chunk))) => {
                    if let Some(counter) = &mut passing.counter {
                        counter.push(&chunk);
                    }
                    let chunk = passing.concealer.push(chunk);
                    if !chunk.is_empty() {
                        return Some((Ok(Frame::data(chunk)), Some(passing)));
                    }
                }
                Ok(Ok(None)) => {
                    let rest = passing.concealer.finish();
                    // The tokens are counted before the program knows that the answer has ended.
                    drop(passing);
                    return (!rest.is_empty()).then(|| (Ok(Frame::data(rest)), None));
                }
                Ok(Err(_)) | Err(_) => return Some((Err(AnswerBroken), None)),
            }
        }
    }
}
