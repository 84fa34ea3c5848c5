//! Reads an agent's session log, and goes on after an interruption where it is followed.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use futures::StreamExt;
use yoi_crds::YoiPod;
use yoi_crds::pod::DesiredState;
use yoi_wire::people::LogLine;
use yoi_wire::signal::CloudEvent;

use crate::cluster::{Cluster, lines};
use crate::error::{Error, RefusalKind, SAME_VERSION};

/// For how long a broken stream of a followed log is opened again before that is an error.
const RETRY_FOR: Duration = Duration::from_secs(60);

/// A line that is read on after it, whatever interrupts.
pub trait Resumable: serde::de::DeserializeOwned {
    /// What is read, for errors.
    const WHAT: &'static str;
    const SUBRESOURCE: &'static str;

    /// Takes the next line of the stream, and returns the JSON that is whole with it. `held` is what the lines before have begun.
    fn json(line: String, held: &mut Option<String>) -> Option<String>;

    /// The token to read on after it.
    fn token(&self) -> String;
}

impl Resumable for LogLine {
    const WHAT: &'static str = "log";
    const SUBRESOURCE: &'static str = "log";

    fn json(line: String, _held: &mut Option<String>) -> Option<String> {
        Some(line).filter(|line| !line.is_empty())
    }

    fn token(&self) -> String {
        self.token.clone()
    }
}

/// The events come as server-sent ones.
impl Resumable for CloudEvent {
    const WHAT: &'static str = "events";
    const SUBRESOURCE: &'static str = "proxy/engine/events";

    fn json(line: String, held: &mut Option<String>) -> Option<String> {
        if let Some(data) = line.strip_prefix("data:") {
            *held = Some(data.trim_start().to_owned());
        }
        // An empty line ends an event: one that the end of the stream has cut does not count.
        if line.is_empty() { held.take() } else { None }
    }

    fn token(&self) -> String {
        self.cursor.clone()
    }
}

/// Which part of a log is read.
pub struct LogReader<'a> {
    pub cluster: &'a Cluster,
    pub agent: &'a str,
    pub follow: bool,
    /// Token of the entry after which reading begins, and then of the one read last.
    pub after: Option<String>,
    pub tail: Option<u64>,
}

impl LogReader<'_> {
    /// Calls `on_line` with each line, as it came and parsed, until that breaks off. Returns what it broke off with, or `None` at the end of the log.
    ///
    /// # Errors
    /// The log cannot be read, or a line cannot be understood; that of `on_line`.
    pub async fn for_each<B>(&mut self, on_line: impl FnMut(&str, LogLine) -> Result<ControlFlow<B>, Error>) -> Result<Option<B>, Error> {
        self.for_each_of::<LogLine, B>(on_line).await
    }

    /// As [`Self::for_each`], of other lines.
    ///
    /// # Errors
    /// As [`Self::for_each`].
    pub async fn for_each_of<T: Resumable, B>(
        &mut self,
        mut on_line: impl FnMut(&str, T) -> Result<ControlFlow<B>, Error>,
    ) -> Result<Option<B>, Error> {
        let mut failing_since: Option<Instant> = None;
        // With `--after` the log has had entries before.
        let (mut any_line, had_token) = (false, self.after.is_some());
        loop {
            let previous = self.after.clone();
            let end = self.read(&mut any_line, &mut on_line).await;
            // A followed log does not end by itself. A replaced gateway or a restarted agent breaks its stream.
            let error = match end {
                Ok(Some(end)) => return Ok(Some(end)),
                Ok(None) if !self.follow || self.has_stopped().await? => return Ok(None),
                Ok(None) => None,
                Err(error) if self.follow && (any_line || self.is_starting(had_token, &error).await?) && error.may_pass() => Some(error),
                Err(error) => return Err(error),
            };
            if self.after != previous {
                failing_since = None;
            }
            if let (Some(error), None, false) = (&error, failing_since, any_line) {
                eprintln!("waiting for it: {}", crate::show::visible(&error.to_string()));
            }
            let since = *failing_since.get_or_insert_with(Instant::now);
            if let Some(error) = error
                && since.elapsed() > RETRY_FOR
            {
                return Err(error);
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    async fn read<T: Resumable, B>(
        &mut self,
        any_line: &mut bool,
        on_line: &mut impl FnMut(&str, T) -> Result<ControlFlow<B>, Error>,
    ) -> Result<Option<B>, Error> {
        let mut query = format!("follow={}", self.follow);
        if let Some(after) = &self.after {
            query.push_str(&format!("&after={}", percent_encode(after)));
        } else if let Some(tail) = self.tail {
            query.push_str(&format!("&tail={tail}"));
        }
        let mut stream = lines(self.cluster.stream_of(self.agent, T::WHAT, T::SUBRESOURCE, &query).await?);
        let agent = self.cluster.display_name::<YoiPod>(self.agent);
        let mut held = None;
        while let Some(line) = stream.next().await {
            let line = line.map_err(|e| Error::Unreachable {
                operation: format!("read the {} of {agent} to its end", T::WHAT),
                message: e.to_string(),
                next: "read on after the last token (`--after`), or follow it (`-f`)",
            })?;
            let Some(line) = T::json(line, &mut held) else { continue };
            let parsed: T = parse(&line, &agent)?;
            let token = parsed.token();
            if let ControlFlow::Break(end) = on_line(&line, parsed)? {
                return Ok(Some(end));
            }
            (self.after, *any_line) = (Some(token), true);
        }
        Ok(None)
    }

    /// Returns whether the agent has stopped. Its log then gets no further entry, and what was read is the whole of it.
    async fn has_stopped(&self) -> Result<bool, Error> {
        let agent: YoiPod = self.cluster.get(self.agent).await?;
        let is_at_rest = agent.status.as_ref().is_none_or(|status| status.pod.is_none());
        Ok(is_at_rest && yoi_plan::yoipod::is_stopped(&agent))
    }

    /// Returns whether the agent is only starting, so that its log comes later: `run` and `start` end before the agent answers.
    async fn is_starting(&self, had_token: bool, error: &Error) -> Result<bool, Error> {
        let early = match error {
            Error::Refused { kind: RefusalKind::Unreachable, .. } => true,
            // The agent has no session yet. With `--after` the token would be wrong instead.
            Error::Refused { kind: RefusalKind::Other, .. } => !had_token,
            _ => false,
        };
        let desired = if early { Some(self.cluster.get::<YoiPod>(self.agent).await?.spec.desired_state) } else { None };
        Ok(matches!(desired, Some(DesiredState::Running | DesiredState::Suspended)))
    }
}

/// Parses a line of the log of `agent`.
pub fn parse<T: serde::de::DeserializeOwned>(line: &str, agent: &str) -> Result<T, Error> {
    serde_json::from_str(line).map_err(|e| Error::local(format!("understand a line of the log of {agent}"), e, SAME_VERSION))
}

/// Escapes a token for a query.
pub fn percent_encode(text: &str) -> String {
    text.bytes()
        .map(|b| if b.is_ascii_alphanumeric() || b"-._~".contains(&b) { (b as char).to_string() } else { format!("%{b:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_not_understood_names_the_agent_and_what_to_do() {
        let error = parse::<LogLine>("<html>", "YoiPod ns/a").expect_err("no line").to_string();
        assert!(error.starts_with("failed to understand a line of the log of YoiPod ns/a: "), "{error}");
        assert!(error.ends_with("\n  next: take the plugin and the charts of the same version: kubectl yoi version"), "{error}");
    }

    #[test]
    fn tokens_are_escaped_in_queries() {
        assert_eq!(percent_encode("a/b:7"), "a%2Fb%3A7");
    }
}
