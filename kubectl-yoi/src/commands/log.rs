//! `log`: prints the session log as text for people, or as it is for programs.

use std::io::IsTerminal;
use std::ops::ControlFlow;

use jiff::Timestamp;
use yoi_crds::YoiPod;
use yoi_wire::entry::{Body, Entry, InputFrom, RunOutcome, ToolOutcome};

use crate::args::{LogOptions, OutputFormat};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::session_log::{LogReader, parse};
use crate::show::{self, Written};

pub async fn log(cluster: &Cluster, output: Option<OutputFormat>, args: &LogOptions) -> Result<(), Error> {
    let agent = cluster.display_name::<YoiPod>(&args.name);
    let color = std::io::stdout().is_terminal();
    let since = args.since.map(|ago| Timestamp::now().saturating_sub(ago).unwrap_or(Timestamp::MIN));
    let mut reader = LogReader { cluster, agent: &args.name, follow: args.follow, after: args.after.clone(), tail: args.tail };
    reader
        .for_each(|line, parsed| {
            if since.is_some_and(|since| is_older(&parsed.entry, since)) {
                return Ok(ControlFlow::Continue(()));
            }
            let text = match output {
                // A program gets the line unchanged, one for each entry.
                Some(OutputFormat::Json) => format!("{line}\n"),
                Some(OutputFormat::Yaml) => show::yaml(&parse(line, &agent)?)?,
                Some(OutputFormat::Name) => format!("{}\n", show::one_line(&parsed.entry.id)),
                None | Some(OutputFormat::Wide) => format!("{}\n", render_entry(&parsed.entry, color)),
            };
            Ok(match show::write(&text)? {
                Written::Done => ControlFlow::Continue(()),
                Written::Closed => ControlFlow::Break(()),
            })
        })
        .await
        .map(drop)
}

/// Whether an entry was written before a moment. One whose time cannot be read is shown.
fn is_older(entry: &Entry, since: Timestamp) -> bool {
    entry.at.parse::<Timestamp>().is_ok_and(|at| at < since)
}

/// Returns a time with date and zone, without parts of a second.
fn time(at: &str) -> String {
    at.parse::<Timestamp>().map_or_else(|_| show::one_line(at), |at| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// Returns one entry as a line for people: time, who, what.
fn render_entry(entry: &Entry, color: bool) -> String {
    let time = time(&entry.at);
    let (who, what, code) = match &entry.body {
        Body::SessionStarted(s) => ("session", format!("{} of {}", s.session, s.agent.name), 90),
        Body::RuntimeStarted(s) => (
            "runtime",
            format!(
                "started, run {}{}",
                entry.run,
                if s.cut_bytes > 0 { format!(", cut {} of a torn tail", show::bytes(s.cut_bytes)) } else { String::new() }
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
    let what = show::visible(&what).replace('\n', &format!("\n{:1$}", "", time.chars().count() + 10));
    if color { format!("\x1b[90m{time}\x1b[0m \x1b[{code}m{who:>8}\x1b[0m {what}") } else { format!("{time} {who:>8} {what}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use yoi_wire::people::LogLine;

    #[test]
    fn an_entry_of_a_newer_version_is_shown() {
        let line =
            r#"{"token":"t","entry":{"id":"i","seq":3,"run":1,"at":"2026-01-01T10:20:30.000Z","kind":"Teleported","body":{"to":"mars"}}}"#;
        let text = render_entry(&parse::<LogLine>(line, "YoiPod ns/a").expect("a line").entry, false);
        assert!(text.starts_with("2026-01-01T10:20:30Z ") && text.contains("Teleported") && text.contains("mars"), "{text}");
    }

    #[test]
    fn control_characters_of_an_agent_do_not_reach_the_terminal() {
        let line = r#"{"token":"t","entry":{"id":"i","seq":3,"run":1,"at":"2026-01-01T10:20:30.000Z","kind":"Assistant","body":{"text":"a\u001b[2Jb\nc"}}}"#;
        let text = render_entry(&parse::<LogLine>(line, "YoiPod ns/a").expect("a line").entry, true);
        assert!(text.contains("a^[[2Jb\n                              c"), "{text:?}");
    }

    #[test]
    fn an_entry_of_before_is_left_out_and_one_without_a_time_is_not() {
        let entry = |at: &str| -> Entry {
            serde_json::from_value(
                serde_json::json!({ "id": "i", "seq": 1, "run": 1, "at": at, "kind": "Assistant", "body": { "text": "" } }),
            )
            .unwrap()
        };
        let since: Timestamp = "2026-01-01T10:20:30Z".parse().unwrap();
        let older = ["2026-01-01T10:20:29.999Z", "2026-01-01T10:20:30.000Z", "yesterday"].map(|at| is_older(&entry(at), since));
        assert_eq!(older, [true, false, false]);
    }
}
