//! The stream of an attached agent, which goes on after an interruption where it was.
//!
//! A stream that breaks while the agent stops may lack its last entries, and a stopped agent has no stream. They come from its log then, which a
//! reader of its session gives.

use std::time::{Duration, Instant};

use futures::{AsyncBufRead, StreamExt};
use yoi_crds::YoiPod;
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
    /// The agent has stopped, and its last entry has come. What comes after this is of an agent that was started again.
    Stopped,
}

/// A stream of one agent.
pub struct AttachStream<'a> {
    cluster: &'a Cluster,
    agent: &'a str,
    start: Start,
    open: Option<Source>,
    /// The run of the agent that has stopped and whose last entry has come.
    whole_run: Option<i64>,
    pause: Duration,
    refused_since: Option<Instant>,
}

/// Where lines come from.
enum Source {
    Agent(Lines),
    /// The log of this run, which has stopped.
    Log(Lines, i64),
}

/// What an agent that is to be attached to does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AgentState {
    ToRun,
    /// It is not to run any more, and its Pod is still there.
    Stopping,
    /// Its log gets no further entry of this run.
    Stopped(i64),
}

type Lines = futures::stream::BoxStream<'static, std::io::Result<String>>;

impl<'a> AttachStream<'a> {
    /// Attaches. An agent that is only starting is waited for; of one that stops meanwhile there is the log.
    ///
    /// # Errors
    /// The agent does not exist, has stopped, or may not be attached to.
    pub async fn open(cluster: &'a Cluster, agent: &'a str, start: Start) -> Result<Self, Error> {
        let mut stream = AttachStream { cluster, agent, start, open: None, whole_run: None, pause: FIRST_PAUSE, refused_since: None };
        loop {
            match stream.request().await {
                Ok(lines) => {
                    stream.open = Some(Source::Agent(lines));
                    return Ok(stream);
                }
                // Of an agent without a session yet it comes later, of a token that is none it does not.
                Err(error @ Error::Refused { kind: RefusalKind::Other, .. }) if matches!(stream.start, Start::After(_)) => {
                    return Err(error);
                }
                Err(error) => {
                    if !stream.may_come(&error) {
                        return Err(error);
                    }
                    match stream.agent_state().await? {
                        AgentState::ToRun if stream.has_waited() => {}
                        AgentState::ToRun => eprintln!("waiting for it: {}", crate::show::visible(&error.to_string())),
                        // It has stopped while it was waited for: what it did meanwhile is in its log.
                        AgentState::Stopping | AgentState::Stopped(_) if stream.has_waited() => return Ok(stream),
                        AgentState::Stopping | AgentState::Stopped(_) => return Err(error),
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
        }
        loop {
            let Some(source) = &mut self.open else {
                match self.reopen().await {
                    Ok(Some(event)) => return Ok(event),
                    Ok(None) => continue,
                    Err(error) if self.may_come(&error) => return Ok(StreamEvent::Broken(error.to_string())),
                    Err(error) => return Err(error),
                }
            };
            let (lines, stopped_run) = match source {
                Source::Agent(lines) => (lines, None),
                Source::Log(lines, run) => (lines, Some(*run)),
            };
            match (lines.next().await, stopped_run) {
                (Some(Ok(line)), None) => return self.line(line),
                (Some(Ok(line)), Some(_)) => return self.line(as_attach_line(&line)),
                // It may have been started meanwhile.
                (None, Some(run)) => (self.open, self.whole_run) = (None, Some(run)),
                (broken, _) => {
                    self.open = None;
                    let why = broken.map_or_else(|| Ok("the stream ended".to_owned()), |line| line.map_err(|error| error.to_string()));
                    return Ok(StreamEvent::Broken(why.unwrap_or_else(|error| error)));
                }
            }
        }
    }

    /// Opens the stream, or of a stopped agent its log. Returns what there is to say instead.
    async fn reopen(&mut self) -> Result<Option<StreamEvent>, Error> {
        let source = match self.agent_state().await? {
            AgentState::Stopping => return Ok(Some(StreamEvent::Broken("it is stopping".to_owned()))),
            AgentState::Stopped(run) if self.whole_run == Some(run) => return Ok(Some(StreamEvent::Stopped)),
            AgentState::Stopped(run) => {
                let query = format!("follow=false&{}", self.query());
                Source::Log(lines_of(self.cluster.stream_now(self.agent, "log", &query).await?), run)
            }
            AgentState::ToRun => {
                self.whole_run = None;
                Source::Agent(self.request().await?)
            }
        };
        self.open = Some(source);
        Ok(None)
    }

    /// One that is stopped gets no stream until somebody starts it.
    async fn agent_state(&self) -> Result<AgentState, Error> {
        let agent: YoiPod = self.cluster.get(self.agent).await?;
        if !yoi_plan::yoipod::is_stopped(&agent) {
            return Ok(AgentState::ToRun);
        }
        let status = agent.status.unwrap_or_default();
        Ok(if status.pod.is_some() { AgentState::Stopping } else { AgentState::Stopped(status.run_generation.unwrap_or_default()) })
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

    /// Whether it waits for its first or next line, and not for the first time.
    fn has_waited(&self) -> bool {
        self.pause > FIRST_PAUSE
    }

    async fn wait(&mut self) {
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    async fn request(&self) -> Result<Lines, Error> {
        Ok(lines_of(self.cluster.stream(self.agent, "attach", &self.query()).await?))
    }

    fn query(&self) -> String {
        match &self.start {
            Start::Tail(tail) => format!("tail={tail}"),
            Start::After(token) => format!("after={}", percent_encode(token)),
        }
    }

    /// Whether a stream may come later although it is refused now.
    fn may_come(&mut self, error: &Error) -> bool {
        match error {
            Error::Refused { kind: RefusalKind::Other, .. } => {
                // Of a token that is none, the answer is the same for ever.
                self.refused_since.get_or_insert_with(Instant::now).elapsed() < REFUSED_FOR
            }
            other => other.may_pass(),
        }
    }
}

fn lines_of(reader: impl AsyncBufRead + Send + 'static) -> Lines {
    lines(Box::pin(reader)).filter(|line| futures::future::ready(!line.as_ref().is_ok_and(String::is_empty))).boxed()
}

/// A line of a log as the line of a stream. One that is none stays as it is, and is an error where it is parsed.
fn as_attach_line(line: &str) -> String {
    match serde_json::from_str::<serde_json::Value>(line) {
        Ok(serde_json::Value::Object(mut fields)) => {
            fields.insert("type".to_owned(), "entry".into());
            serde_json::Value::Object(fields).to_string()
        }
        Ok(_) | Err(_) => line.to_owned(),
    }
}
