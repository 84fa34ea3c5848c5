//! The stream of an attached agent, which goes on after an interruption where it was.

use std::time::{Duration, Instant};

use futures::{AsyncBufRead, StreamExt};
use yoi_crds::YoiPod;
use yoi_crds::pod::DesiredState;
use yoi_wire::control::AttachLine;

use crate::cluster::{Cluster, lines};
use crate::error::{Error, RefusalKind};
use crate::session_log::{parse, percent_encode};

const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// For how long an agent that restarts may refuse the stream: it takes a while until its session is open.
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// Where a stream begins.
#[derive(Clone, Debug)]
pub enum Start {
    /// With the last so many entries.
    Tail(u64),
    /// After the entry of this token.
    After(String),
}

/// What came of a stream.
#[derive(Debug)]
pub enum StreamEvent {
    /// A line, as it came and parsed.
    Line(String, Box<AttachLine>),
    /// The stream broke, for this reason, and is opened again.
    Broken(String),
}

/// A stream of one agent.
pub struct AttachStream<'a> {
    cluster: &'a Cluster,
    agent: &'a str,
    start: Start,
    open: Option<Lines>,
    pause: Duration,
    refused_since: Option<Instant>,
}

type Lines = futures::stream::BoxStream<'static, std::io::Result<String>>;

impl<'a> AttachStream<'a> {
    /// Attaches. An agent that is only starting is waited for.
    ///
    /// # Errors
    /// The agent does not exist, has stopped, or may not be attached to.
    pub async fn open(cluster: &'a Cluster, agent: &'a str, start: Start) -> Result<Self, Error> {
        let mut stream = AttachStream { cluster, agent, start, open: None, pause: FIRST_PAUSE, refused_since: None };
        loop {
            match stream.request().await {
                Ok(lines) => {
                    stream.open = Some(lines);
                    return Ok(stream);
                }
                // Of an agent without a session yet it comes later, of a token that is none it does not.
                Err(error @ Error::Refused { kind: RefusalKind::Other, .. }) if matches!(stream.start, Start::After(_)) => {
                    return Err(error);
                }
                Err(error) => {
                    if !stream.may_come(&error) || !stream.is_to_run().await? {
                        return Err(error);
                    }
                    if stream.pause == FIRST_PAUSE {
                        eprintln!("waiting for it: {}", crate::show::visible(&error.to_string()));
                    }
                }
            }
            stream.wait().await;
        }
    }

    /// Returns what comes next. A broken stream is opened again after the last entry, as often as it takes.
    ///
    /// # Errors
    /// It cannot be opened again: the agent is gone, or may no longer be attached to.
    pub async fn next(&mut self) -> Result<StreamEvent, Error> {
        if self.open.is_none() {
            self.wait().await;
            match self.request().await {
                Ok(lines) => self.open = Some(lines),
                Err(error) if self.may_come(&error) => return Ok(StreamEvent::Broken(error.to_string())),
                Err(error) => return Err(error),
            }
        }
        let Some(lines) = &mut self.open else { return Ok(StreamEvent::Broken(String::new())) };
        let broken = match lines.next().await {
            Some(Ok(line)) => return self.line(line),
            Some(Err(error)) => error.to_string(),
            None => "the stream ended".to_owned(),
        };
        self.open = None;
        Ok(StreamEvent::Broken(broken))
    }

    /// Whether the agent is to run: one that is not gets no stream until somebody starts it.
    pub async fn is_to_run(&self) -> Result<bool, Error> {
        Ok(self.cluster.get::<YoiPod>(self.agent).await?.spec.desired_state == DesiredState::Running)
    }

    fn line(&mut self, line: String) -> Result<StreamEvent, Error> {
        let parsed: AttachLine = parse(&line, &self.cluster.display_name::<YoiPod>(self.agent))?;
        match &parsed {
            AttachLine::Entry { token, .. } => {
                self.start = Start::After(token.clone());
                self.is_progress();
            }
            AttachLine::Delta(_) => self.is_progress(),
            // It is opened again at once. A client that is behind all the time waits a little longer each time.
            AttachLine::Behind {} | AttachLine::Ended {} => self.open = None,
            AttachLine::Greeting { .. } | AttachLine::Activity { .. } | AttachLine::Rotated { .. } | AttachLine::Unknown => {}
        }
        Ok(StreamEvent::Line(line, Box::new(parsed)))
    }

    fn is_progress(&mut self) {
        (self.pause, self.refused_since) = (FIRST_PAUSE, None);
    }

    async fn wait(&mut self) {
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    async fn request(&self) -> Result<Lines, Error> {
        let query = match &self.start {
            Start::Tail(tail) => format!("tail={tail}"),
            Start::After(token) => format!("after={}", percent_encode(token)),
        };
        Ok(lines_of(self.cluster.stream(self.agent, "attach", &query).await?))
    }

    /// Whether a stream may come later although it is refused now.
    fn may_come(&mut self, error: &Error) -> bool {
        match error {
            Error::Unreachable { .. } | Error::TimedOut { .. } => true,
            Error::Refused { kind: RefusalKind::Unreachable, .. } => true,
            Error::Refused { kind: RefusalKind::Other, .. } => {
                // Of a token that is none, the answer is the same for ever.
                self.refused_since.get_or_insert_with(Instant::now).elapsed() < REFUSED_FOR
            }
            Error::Refused { kind: RefusalKind::Forbidden, .. } => false,
            Error::Config { .. } | Error::Missing { .. } | Error::Gone { .. } | Error::NeedsPerson { .. } | Error::Cut { .. } => false,
            Error::TaskFailed { .. } | Error::RunFailed { .. } | Error::Unhealthy { .. } | Error::Local { .. } => false,
        }
    }
}

fn lines_of(reader: impl AsyncBufRead + Send + 'static) -> Lines {
    lines(Box::pin(reader)).filter(|line| futures::future::ready(!line.as_ref().is_ok_and(String::is_empty))).boxed()
}
