//! Readers: the Pods by which people read an agent that has stopped.
//!
//! # Flow
//! A request for log, diff, patch, bundle or usage of a stopped agent writes `status.reader.requestedAt`, at most once a minute. The operator makes the Pod, and
//! records its UID. The Pod dials a line here, and the request goes on over it. The Pod goes two minutes after `requestedAt`; a response that is
//! still being read writes it again.
//!
//! # Guarantees
//! A reader's line is in a table of its own. It gets reads only, and nobody takes its agent for live.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use futures::StreamExt;
use http_body_util::BodyDataStream;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::task::AbortOnDropHandle;
use yoi_crds::pod::DesiredState;
use yoi_crds::reason;
use yoi_line::LineHandle;
use yoi_wire::entry::AgentRef;

use crate::agent_index::{AgentIndex, AgentRecord};
use crate::open_lines::OpenLines;
use crate::status::{REQUEST_READER_EVERY, StatusChange, StatusWriter, WriteError};

/// The readers of stopped agents.
pub struct Readers {
    pub agents: Arc<AgentIndex>,
    /// Of readers only.
    pub lines: Arc<OpenLines>,
    pub writer: Arc<StatusWriter>,
}

/// Why no reader serves the request.
#[derive(Debug, thiserror::Error)]
pub enum NoReader {
    /// There is nothing to read, as the operator says in this sentence.
    #[error("{0}")]
    NothingToRead(String),
    /// It is not there yet. The sentence says what it waits for.
    #[error("the Pod that reads its session is not there yet: {0}")]
    NotYet(String),
    /// It was started or deleted meanwhile.
    #[error("it has not stopped any more")]
    NotStopped,
    #[error("failed to ask for a Pod that reads its session")]
    Request(#[from] WriteError),
}

impl Readers {
    /// The line of the agent's reader. Asks for one, and waits up to `within` for it.
    ///
    /// # Errors
    /// There is nothing to read, or no line within this time.
    pub async fn line_to(&self, record: &AgentRecord, within: Duration) -> Result<LineHandle, NoReader> {
        let end = Instant::now() + within;
        self.writer.write(&record.name, &StatusChange::RequestReader).await?;
        let (mut agents, mut lines) = (self.agents.version(), self.lines.version());
        loop {
            agents.mark_unchanged();
            lines.mark_unchanged();
            let record = self.agents.by_uid(&record.name.uid).filter(|record| record.is_stopped).ok_or(NoReader::NotStopped)?;
            if let Some(line) = self.line_of(&record) {
                return Ok(line);
            }
            let unready = record.reader_unready.as_ref();
            if let Some((_, message)) = unready.filter(|(reason, _)| *reason == reason::NO_SESSION) {
                return Err(NoReader::NothingToRead(message.clone()));
            }
            let changed = async {
                tokio::select! { _ = agents.changed() => {}, _ = lines.changed() => {} }
            };
            if timeout_at(end, changed).await.is_err() {
                // A quota or an admission policy may refuse the Pod.
                let refused = record.unready.as_ref().filter(|(reason, _)| *reason == reason::APPLY_FAILED);
                let why = refused.or(unready).map(|(reason, message)| format!("{reason}: {message}"));
                let why = why.unwrap_or_else(|| "it is being started".to_owned());
                return Err(NoReader::NotYet(why));
            }
        }
    }

    fn line_of(&self, record: &AgentRecord) -> Option<LineHandle> {
        let line = self.lines.get(&record.name.uid)?;
        (Some(&line.pod_uid) == record.reader_pod_uid.as_ref()).then_some(line.handle)
    }

    /// The body of a reader's response. While it is read, the reader stays.
    pub fn keep_during(&self, agent: AgentRef, body: Body) -> Body {
        let writer = self.writer.clone();
        let asking = AbortOnDropHandle::new(tokio::spawn(async move {
            loop {
                sleep(REQUEST_READER_EVERY).await;
                if let Err(error) = writer.write(&agent, &StatusChange::RequestReader).await {
                    // The next one may be written. Without any, the Pod goes, and the response ends with an error.
                    tracing::warn!(object = %agent, uid = agent.uid, error = yoi_wire::error_chain(&error), "reader not asked for again");
                }
            }
        }));
        Body::from_stream(BodyDataStream::new(body).map(move |chunk| {
            let _until_the_end = &asking;
            chunk
        }))
    }
}

/// What to do about an agent that has stopped, as the end of a sentence about it.
pub fn stopped_advice(record: &AgentRecord) -> String {
    let AgentRef { namespace, name, .. } = &record.name;
    match record.desired {
        _ if record.may_be_woken => {
            format!("rests: a message, a run or somebody who attaches wakes it, as kubectl yoi send {name} TEXT -n {namespace}")
        }
        DesiredState::Stopped => format!("is Stopped: start it with kubectl yoi start {name} -n {namespace}"),
        _ if record.lifetime_is_over => format!(
            r#"has reached the end of its lifetime: to let it go on, kubectl patch yoipod {name} -n {namespace} --type merge -p '{{"spec":{{"limits":{{"lifetime":null}}}}}}'"#
        ),
        DesiredState::Running | DesiredState::Suspended | DesiredState::Unknown => {
            let keep = yoi_plan::yoipod::keep_command(namespace, name);
            format!("has done its task and has completion Stop: to give it more work, {keep}")
        }
    }
}
