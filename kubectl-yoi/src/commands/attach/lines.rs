//! `attach` without a terminal: each entry as lines, once, and nothing is sent.

use std::time::{Duration, Instant};

use yoi_wire::control::AttachLine;

use super::seen::{Place, SeenEntries};
use super::stream::{AttachStream, StreamEvent};
use crate::args::OutputFormat;
use crate::cluster::Cluster;
use crate::commands::log::render_entry;
use crate::error::Error;
use crate::session_log::parse;
use crate::show::{self, Written};

/// For how long there may be nothing to read: an agent restarts, or stops, or the image of its reader has to be pulled.
const AWAY_FOR: Duration = Duration::from_secs(120);

pub async fn print(cluster: &Cluster, output: Option<OutputFormat>, agent: &str, mut stream: AttachStream<'_>) -> Result<(), Error> {
    let mut seen = SeenEntries::default();
    let mut away_since: Option<Instant> = None;
    loop {
        let (raw, line) = match stream.next().await? {
            StreamEvent::Line(raw, line) => (raw, line),
            StreamEvent::Stopped => return Ok(()),
            StreamEvent::Broken(why) => {
                if away_since.get_or_insert_with(Instant::now).elapsed() > AWAY_FOR {
                    let next = cluster.plugin_command("doctor");
                    return Err(cluster.refused_error::<yoi_crds::YoiPod>("stay attached to", agent, show::one_line(&why), next));
                }
                continue;
            }
        };
        if let AttachLine::Entry { .. } | AttachLine::Delta(_) = &*line {
            away_since = None;
        }
        if let Some(text) = text(cluster, output, agent, &mut seen, &raw, &line)?
            && show::write(&text)? == Written::Closed
        {
            return Ok(());
        }
    }
}

/// Returns what is printed of a line.
fn text(
    cluster: &Cluster,
    output: Option<OutputFormat>,
    agent: &str,
    seen: &mut SeenEntries,
    raw: &str,
    line: &AttachLine,
) -> Result<Option<String>, Error> {
    let entry = match line {
        AttachLine::Greeting { session, .. } => {
            seen.greet(session);
            None
        }
        AttachLine::Entry { entry, .. } => match seen.place(entry.seq) {
            Place::Again => return Ok(None),
            Place::After(lost) => {
                eprintln!("{lost} entries before entry {} did not come: {}", entry.seq, cluster.plugin_command(&format!("log {agent}")));
                Some(entry)
            }
            Place::Next => Some(entry),
        },
        AttachLine::Delta(_) | AttachLine::Activity { .. } | AttachLine::Rotated { .. } => None,
        AttachLine::Behind {} | AttachLine::Ended {} | AttachLine::Unknown => None,
    };
    Ok(match output {
        Some(OutputFormat::Json) => Some(format!("{raw}\n")),
        Some(OutputFormat::Yaml) => Some(show::yaml(&parse(raw, agent)?)?),
        Some(OutputFormat::Name) => entry.map(|entry| format!("{}\n", show::one_line(&entry.id))),
        None | Some(OutputFormat::Wide) => entry.and_then(|entry| render_entry(entry, false)),
    })
}
