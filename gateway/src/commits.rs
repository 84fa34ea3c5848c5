//! What an agent has committed, as its runtime or its reader gives it out: a line of JSON about it, and the bundle.

use axum::body::{Body, BodyDataStream};
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use http_body_util::Limited;
use tokio::time::timeout;
use yoi_wire::bundle::{BundleHead, MAX_BUNDLE_BYTES, MAX_BUNDLE_HEAD};
use yoi_wire::hub::runtime_api;
use yoi_wire::merge::{MergeOrder, WORK};

use crate::GatewayState;
use crate::agent_index::AgentRecord;
use crate::people::{ApiFailure, ReaderWait, WhenStopped, bad_answer, read_from_runtime};

/// The commits of what is checked out in an agent's tree.
pub struct Commits {
    pub head: BundleHead,
    /// Bytes of the bundle that have come with the line.
    begin: Bytes,
    rest: BodyDataStream,
}

impl Commits {
    /// Asks the agent's runtime, or its reader when it has stopped.
    ///
    /// # Errors
    /// A sentence for people, with the status that it is answered with.
    pub async fn of(gateway: &GatewayState, record: &AgentRecord, wait: ReaderWait) -> Result<Self, ApiFailure> {
        Self::read(gateway, record, wait, runtime_api::BUNDLE.to_owned()).await
    }

    /// The same with the base that they begin at, where the runtime can do that.
    ///
    /// # Errors
    /// As [`Commits::of`].
    pub async fn of_push(gateway: &GatewayState, record: &AgentRecord, wait: ReaderWait) -> Result<Self, ApiFailure> {
        Self::read(gateway, record, wait, format!("{}?whole=true", runtime_api::BUNDLE)).await
    }

    /// The same with what is not committed, as one commit more.
    ///
    /// # Errors
    /// As [`Commits::of`]; and of a runtime that does not know what work is.
    pub async fn of_work(gateway: &GatewayState, record: &AgentRecord, wait: ReaderWait) -> Result<Self, ApiFailure> {
        let commits = Self::read(gateway, record, wait, format!("{}?work=true", runtime_api::BUNDLE)).await?;
        if commits.head.name == WORK { Ok(commits) } else { Err(ApiFailure::older_runtime(&record.name.namespace, &record.name.name)) }
    }

    async fn read(gateway: &GatewayState, record: &AgentRecord, wait: ReaderWait, path: String) -> Result<Self, ApiFailure> {
        let body = read_from_runtime(gateway, record, path, WhenStopped::Reader(wait)).await?;
        let mut rest = Body::new(Limited::new(body, usize::try_from(MAX_BUNDLE_BYTES).unwrap_or(usize::MAX))).into_data_stream();
        let mut read = BytesMut::new();
        let end = loop {
            if let Some(at) = read.iter().position(|byte| *byte == b'\n') {
                break at;
            }
            let next = timeout(gateway.settings.answer_timeout, rest.next()).await;
            match next {
                Ok(Some(Ok(data))) if read.len() < MAX_BUNDLE_HEAD => read.extend_from_slice(&data),
                Ok(Some(Ok(_)) | None) => return Err(bad_answer(record, "it is not one that this version knows")),
                Ok(Some(Err(error))) => return Err(bad_answer(record, &format!("it broke off: {error}"))),
                Err(_) => return Err(bad_answer(record, "it does not come")),
            }
        };
        let line = read.split_to(end + 1);
        let head = serde_json::from_slice(&line).map_err(|error| bad_answer(record, &format!("it begins with no line of it: {error}")))?;
        Ok(Commits { head, begin: read.freeze(), rest })
    }

    /// The order to merge this work, the line about it, and the bundle.
    pub fn into_merge(self, order: &MergeOrder) -> Body {
        // These types have no map with keys that are not strings, and no other way to fail.
        let mut lines = serde_json::to_string(order).unwrap_or_default();
        lines.push('\n');
        lines.push_str(&serde_json::to_string(&self.head).unwrap_or_default());
        lines.push('\n');
        self.into_body(lines)
    }

    /// `line`, and the bundle. It breaks off behind as many bytes as a bundle may have.
    pub fn into_body(self, line: String) -> Body {
        let begin = [Bytes::from(line), self.begin];
        let begin = futures::stream::iter(begin.map(Ok::<_, axum::Error>));
        Body::from_stream(begin.chain(self.rest))
    }
}
