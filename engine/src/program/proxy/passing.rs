//! Passes an answer on as it comes, and counts its tokens on the way.
//!
//! A task of its own asks the endpoint, so that a program that goes away ends nothing: the answer is then read to its end, because most
//! formats tell their tokens in the last event only.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{Instant, timeout_at};
use yoi_wire::entry::TokenUsage;

use super::conceal::Concealer;
use super::usage::UsageReader;
use crate::estimate::tokens_of_bytes;
use crate::program::access::RunBudget;

/// Bytes of an answer that are read after its program has gone.
const MAX_DRAINED_BYTES: usize = 64 << 20;
/// The longest silence of an answer whose program has gone.
const DRAINED_SILENCE: Duration = Duration::from_secs(60);

/// Body of an answer to a program.
pub(super) type ResponseBody = UnsyncBoxBody<Bytes, AnswerBroken>;

/// The endpoint's answer broke off, and so does the one to the program.
#[derive(Debug, thiserror::Error)]
#[error("the model endpoint broke its answer off")]
pub(super) struct AnswerBroken;

/// Where the pieces of an answer go. It is closed when the program has gone.
pub(super) type Pieces = mpsc::Sender<Result<Bytes, AnswerBroken>>;

/// An answer on its way. Only the chunk that is passed on is held.
pub(super) struct PassingAnswer {
    pub response: reqwest::Response,
    pub concealer: Concealer,
    /// `None`: the answer costs nothing.
    pub counter: Option<TokenCounter>,
    /// Longest silence.
    pub idle: Duration,
    /// When the answer must have ended.
    pub deadline: Instant,
    /// Counts the request as one in flight.
    pub permit: OwnedSemaphorePermit,
}

/// Tells the tokens of one answer when it ends or breaks off. An answer whose endpoint tells none is counted by its size.
pub(super) struct TokenCounter {
    reader: Option<UsageReader>,
    request_bytes: usize,
    budget: Arc<dyn RunBudget>,
}

impl TokenCounter {
    pub fn new(reader: UsageReader, request_bytes: usize, budget: Arc<dyn RunBudget>) -> Self {
        Self { reader: Some(reader), request_bytes, budget }
    }

    fn push(&mut self, bytes: &[u8]) {
        if let Some(reader) = &mut self.reader {
            reader.push(bytes);
        }
    }
}

impl Drop for TokenCounter {
    fn drop(&mut self) {
        let Some(reader) = self.reader.take() else { return };
        let output_tokens = reader.estimated_tokens();
        let usage = reader.finish().unwrap_or_else(|| TokenUsage {
            input_tokens: tokens_of_bytes(self.request_bytes),
            output_tokens,
            ..TokenUsage::default()
        });
        self.budget.used(usage);
    }
}

/// The body that a program reads, and where its pieces come from.
pub(super) fn body() -> (Pieces, ResponseBody) {
    // One piece is ahead of the program. The endpoint is held back by a program that reads slowly.
    let (pieces, received) = mpsc::channel(1);
    let stream = stream::unfold(received, async |mut received: mpsc::Receiver<Result<Bytes, AnswerBroken>>| {
        let piece = received.recv().await?;
        Some((piece.map(Frame::data), received))
    });
    (pieces, StreamBody::new(stream).boxed_unsync())
}

impl PassingAnswer {
    /// Passes the answer on to its end. When the program has gone, the rest is read for its tokens, within bounds.
    pub async fn pass(self, pieces: Pieces) {
        let Self { mut response, mut concealer, mut counter, idle, deadline, permit } = self;
        let (mut gone, mut drained) = (false, 0);
        let end = loop {
            let until = deadline.min(Instant::now() + if gone { idle.min(DRAINED_SILENCE) } else { idle });
            let chunk = tokio::select! {
                chunk = timeout_at(until, response.chunk()) => chunk,
                () = pieces.closed(), if !gone => {
                    gone = true;
                    if counter.is_none() {
                        break None;
                    }
                    continue;
                }
            };
            let chunk = match chunk {
                Ok(Ok(Some(chunk))) => chunk,
                Ok(Ok(None)) => break Some(concealer.finish()).filter(|rest| !rest.is_empty()).map(Ok),
                Ok(Err(_)) | Err(_) => break Some(Err(AnswerBroken)),
            };
            if let Some(counter) = &mut counter {
                counter.push(&chunk);
            }
            if gone {
                drained += chunk.len();
                if drained > MAX_DRAINED_BYTES {
                    break None;
                }
                continue;
            }
            let piece = concealer.push(chunk);
            if !piece.is_empty() {
                // The next turn learns of a program that has gone.
                let _ = pieces.send(Ok(piece)).await;
            }
        };
        // The tokens are counted before the program knows that the answer has ended.
        drop(counter);
        drop(permit);
        if let Some(end) = end {
            let _ = pieces.send(end).await;
        }
    }
}
