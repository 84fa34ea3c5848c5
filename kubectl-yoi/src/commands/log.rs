//! `log`: prints the session log as text for people, or as it is for programs.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use futures::StreamExt;
use yoi_crds::YoiPod;
use yoi_crds::pod::DesiredState;
use yoi_wire::entry::{Body, Entry, InputFrom, RunOutcome, ToolOutcome};
use yoi_wire::people::LogLine;

use crate::args::{LogOptions, OutputFormat};
use crate::cluster::{Cluster, lines};
use crate::error::{Error, RefusalKind, SAME_VERSION};
use crate::show;

/// For how long a broken stream of a followed log is opened again before that is an error.
const RETRY_FOR: Duration = Duration::from_secs(60);

pub async fn log(cluster: &Cluster, output: Option<OutputFormat>, args: &LogOptions) -> Result<(), Error> {
    let mut position = LogPosition { after: args.after.clone(), tail: args.tail, any_line: false };
    let mut failing_since: Option<Instant> = None;
    loop {
        let previous = position.after.clone();
        let end = read(cluster, output, args, &mut position).await;
        // A followed log does not end by itself. A replaced gateway or a restarted agent breaks its stream.
        let error = match end {
            Ok(ReadEnd::OutputClosed) => return Ok(()),
            Ok(ReadEnd::Ended) if !args.follow => return Ok(()),
            Ok(ReadEnd::Ended) => None,
            Err(error) if args.follow && (position.any_line || is_starting(cluster, args, &error).await?) && may_recover(&error) => {
                Some(error)
            }
            Err(error) => return Err(error),
        };
        if position.after != previous {
            failing_since = None;
        }
        if let (Some(error), None, false) = (&error, failing_since, position.any_line) {
            eprintln!("waiting for it: {error}");
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

/// Returns whether a followed log may go on after this error.
fn may_recover(error: &Error) -> bool {
    match error {
        Error::Refused { kind, .. } => *kind != RefusalKind::Forbidden,
        Error::Unreachable { .. } | Error::TimedOut { .. } => true,
        Error::Config { .. } | Error::Missing { .. } | Error::Gone { .. } => false,
        Error::TaskFailed { .. } | Error::Unhealthy { .. } | Error::Local { .. } => false,
    }
}

/// Returns whether the agent is only starting, so that its log comes later: `run` and `start` end before the agent answers.
async fn is_starting(cluster: &Cluster, args: &LogOptions, error: &Error) -> Result<bool, Error> {
    let early = match error {
        Error::Refused { kind: RefusalKind::Unreachable, .. } => true,
        // The agent has no session yet. With `--after` the token would be wrong instead.
        Error::Refused { kind: RefusalKind::Other, .. } => args.after.is_none(),
        _ => false,
    };
    Ok(early && cluster.get::<YoiPod>(&args.name).await?.spec.desired_state == DesiredState::Running)
}

/// Where to go on reading.
struct LogPosition {
    after: Option<String>,
    tail: Option<u64>,
    /// Whether any line has come.
    any_line: bool,
}

enum ReadEnd {
    Ended,
    /// Standard output was closed (`| head`), which is no error.
    OutputClosed,
}

async fn read(cluster: &Cluster, output: Option<OutputFormat>, args: &LogOptions, position: &mut LogPosition) -> Result<ReadEnd, Error> {
    let mut query = format!("follow={}", args.follow);
    if let Some(after) = &position.after {
        query.push_str(&format!("&after={}", percent_encode(after)));
    } else if let Some(tail) = position.tail {
        query.push_str(&format!("&tail={tail}"));
    }
    let mut stream = lines(cluster.stream(&args.name, "log", &query).await?);
    let agent = cluster.display_name::<YoiPod>(&args.name);
    let color = std::io::stdout().is_terminal();
    let mut out = std::io::stdout().lock();
    while let Some(line) = stream.next().await {
        let line = line.map_err(|e| Error::Unreachable {
            operation: format!("read the log of {agent} to its end"),
            message: e.to_string(),
            next: "read on after the last token (`--after`), or follow it (`-f`)",
        })?;
        if line.is_empty() {
            continue;
        }
        let parsed: LogLine = parse(&line, &agent)?;
        let written = match output {
            // A program gets the line unchanged, one for each entry.
            Some(OutputFormat::Json) => writeln!(out, "{line}"),
            Some(OutputFormat::Yaml) => write!(out, "{}", show::yaml(&parse(&line, &agent)?)?),
            Some(OutputFormat::Name) => writeln!(out, "{}", parsed.entry.id),
            None => writeln!(out, "{}", render_entry(&parsed.entry, color)),
        };
        if written.and_then(|()| out.flush()).is_err() {
            return Ok(ReadEnd::OutputClosed);
        }
        (position.after, position.any_line) = (Some(parsed.token), true);
    }
    Ok(ReadEnd::Ended)
}

fn parse<T: serde::de::DeserializeOwned>(line: &str, agent: &str) -> Result<T, Error> {
    serde_json::from_str(line).map_err(|e| Error::local(format!("understand a line of the log of {agent}"), e, SAME_VERSION))
}

fn percent_encode(text: &str) -> String {
    text.bytes()
        .map(|b| if b.is_ascii_alphanumeric() || b"-._~".contains(&b) { (b as char).to_string() } else { format!("%{b:02X}") })
        .collect()
}

/// Returns one entry as a line for people: time, who, what.
fn render_entry(entry: &Entry, color: bool) -> String {
    let time = entry.at.get(11..19).unwrap_or(&entry.at);
    let (who, what, code) = match &entry.body {
        Body::SessionStarted(s) => ("session", format!("{} of {}", s.session, s.agent.name), 90),
        Body::RuntimeStarted(s) => (
            "runtime",
            format!(
                "started, run {}{}",
                entry.run,
                if s.cut_bytes > 0 { format!(", cut {} bytes of a torn tail", s.cut_bytes) } else { String::new() }
            ),
            90,
        ),
        Body::Input(i) => match (i.from, &i.user) {
            (InputFrom::Task, _) => ("task", i.text.clone(), 36),
            (InputFrom::Person, user) => ("person", format!("{}: {}", user.as_deref().unwrap_or("?"), i.text), 36),
        },
        Body::PeerMessage(m) => ("peer", format!("{}: {}", m.from.name, m.text), 35),
        Body::RunStarted(r) => ("run", format!("started {}", r.run_id), 90),
        Body::Assistant(a) => {
            let mut text = a.text.clone();
            for call in &a.tool_calls {
                if !text.is_empty() {
                    text.push('\n');
                }
                text.push_str(&format!("→ {} {}", call.tool, call.args));
            }
            ("agent", text, 32)
        }
        Body::ToolStarted(t) => ("tool", format!("{} began", t.tool), 90),
        Body::ToolEnded(t) => {
            let outcome = match t.outcome {
                ToolOutcome::Succeeded => "succeeded",
                ToolOutcome::Failed => "failed",
                ToolOutcome::Refused => "refused",
                ToolOutcome::TimedOut => "timed out",
                ToolOutcome::Unknown => "outcome unknown: the runtime died while it ran",
            };
            let millis = t.millis.map(|m| format!(" in {m} ms")).unwrap_or_default();
            (
                "tool",
                format!("{outcome}{millis}\n{}", t.output.trim_end()).trim_end().to_owned(),
                if t.outcome == ToolOutcome::Succeeded { 90 } else { 33 },
            )
        }
        Body::RunEnded(r) => {
            let outcome = match r.outcome {
                RunOutcome::Finished => "finished",
                RunOutcome::Failed => "failed",
                RunOutcome::LimitReached => "turn limit reached",
                RunOutcome::Interrupted => "interrupted",
            };
            ("run", format!("{outcome}{}", r.message.as_ref().map(|m| format!(": {m}")).unwrap_or_default()), 90)
        }
        Body::Notice(n) => ("notice", format!("{}: {}", n.reason, n.message), 33),
        Body::Unknown { kind, fields, .. } => ("?", format!("{kind} (a newer version wrote this): {fields}"), 33),
    };
    let what = show::without_control_characters(&what).replace('\n', "\n                  ");
    if color { format!("\x1b[90m{time}\x1b[0m \x1b[{code}m{who:>8}\x1b[0m {what}") } else { format!("{time} {who:>8} {what}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_a_newer_version_is_shown() {
        let line =
            r#"{"token":"t","entry":{"id":"i","seq":3,"run":1,"at":"2026-01-01T10:20:30.000Z","kind":"Teleported","body":{"to":"mars"}}}"#;
        let text = render_entry(&parse::<LogLine>(line, "YoiPod ns/a").expect("a line").entry, false);
        assert!(text.starts_with("10:20:30") && text.contains("Teleported") && text.contains("mars"), "{text}");
    }

    #[test]
    fn control_characters_of_an_agent_do_not_reach_the_terminal() {
        let line = r#"{"token":"t","entry":{"id":"i","seq":3,"run":1,"at":"2026-01-01T10:20:30.000Z","kind":"Assistant","body":{"text":"a\u001b[2Jb\nc"}}}"#;
        let text = render_entry(&parse::<LogLine>(line, "YoiPod ns/a").expect("a line").entry, true);
        assert!(text.contains("a\u{fffd}[2Jb\n                  c"), "{text:?}");
    }

    #[test]
    fn a_line_that_is_not_understood_names_the_agent_and_what_to_do() {
        let error = parse::<LogLine>("<html>", "YoiPod ns/a").expect_err("no line").to_string();
        assert!(error.starts_with("failed to understand a line of the log of YoiPod ns/a: "), "{error}");
        assert!(error.ends_with("\n  next: take the plugin and the charts of the same version: kubectl yoi --version"), "{error}");
    }

    #[test]
    fn tokens_are_escaped_in_queries() {
        assert_eq!(percent_encode("a/b:7"), "a%2Fb%3A7");
    }
}
