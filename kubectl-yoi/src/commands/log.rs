//! `log`: prints the session log as text for people, or as it is for programs.

use std::io::IsTerminal;
use std::ops::ControlFlow;

use jiff::Timestamp;
use yoi_crds::YoiPod;
use yoi_wire::entry::Entry;
use yoi_wire::entry_text::{EntryText, Tone, entry_text};

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
                None | Some(OutputFormat::Wide) => render_entry(&parsed.entry, color).unwrap_or_default(),
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
pub fn time(at: &str) -> String {
    at.parse::<Timestamp>().map_or_else(|_| show::one_line(at), |at| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// Returns one entry as a line for people: time, who, what. There is none for an entry that only repeats earlier ones.
pub fn render_entry(entry: &Entry, color: bool) -> Option<String> {
    let EntryText { who, text, tone } = entry_text(entry)?;
    let (time, code) = (time(&entry.at), color_code(tone));
    let text = show::visible(&text).replace('\n', &format!("\n{:1$}", "", time.chars().count() + 10));
    Some(if color { format!("\x1b[90m{time}\x1b[0m \x1b[{code}m{who:>8}\x1b[0m {text}\n") } else { format!("{time} {who:>8} {text}\n") })
}

/// The code of SGR, ECMA-48 8.3.117.
fn color_code(tone: Tone) -> u8 {
    match tone {
        Tone::Quiet => 90,
        Tone::Warning => 33,
        Tone::Person => 36,
        Tone::Peer => 35,
        Tone::Agent => 32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use yoi_wire::people::LogLine;

    #[test]
    fn an_entry_of_a_newer_version_is_shown() {
        let line =
            r#"{"token":"t","entry":{"id":"i","seq":3,"run":1,"at":"2026-01-01T10:20:30.000Z","kind":"Teleported","body":{"to":"mars"}}}"#;
        let text = render_entry(&parse::<LogLine>(line, "YoiPod ns/a").expect("a line").entry, false).unwrap();
        assert!(text.starts_with("2026-01-01T10:20:30Z ") && text.contains("Teleported") && text.contains("mars"), "{text}");
    }

    #[test]
    fn control_characters_of_an_agent_do_not_reach_the_terminal() {
        let line = r#"{"token":"t","entry":{"id":"i","seq":3,"run":1,"at":"2026-01-01T10:20:30.000Z","kind":"Assistant","body":{"text":"a\u001b[2Jb\nc"}}}"#;
        let text = render_entry(&parse::<LogLine>(line, "YoiPod ns/a").expect("a line").entry, true).unwrap();
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
