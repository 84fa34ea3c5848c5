//! `events`: what happens to an agent, as CloudEvents, and events for it from outside.

use std::ops::ControlFlow;

use serde_json::Value;
use yoi_crds::YoiPod;
use yoi_wire::engine_api::{EventTaken, OutsideEvent};
use yoi_wire::signal::CloudEvent;

use super::log::time;
use crate::args::{EventsCommand, EventsOptions, OutputFormat};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::session_log::{LogReader, parse};
use crate::show::{self, Written};

/// Letters of what an event is about.
const ABOUT_CHARS: usize = 100;
/// Fields of an event's data that say what it is about, in the order in which they are shown.
const ABOUT: [&str; 9] = ["tool", "class", "rule", "outcome", "reason", "text", "message", "output", "summary"];

pub async fn events(cluster: &Cluster, output: Option<OutputFormat>, args: &EventsOptions) -> Result<(), Error> {
    if let Some(EventsCommand::Send { kind, data, id, of: _ }) = &args.command {
        return send(cluster, output, &args.name, kind, data, id.clone()).await;
    }
    let agent = cluster.display_name::<YoiPod>(&args.name);
    let mut reader = LogReader { cluster, agent: &args.name, follow: args.follow, after: args.after.clone(), tail: args.tail };
    let mut header = Some(format!("{:<20} {:<34} {}\n", "TIME", "TYPE", "ABOUT"));
    let print = |line: &str, event: CloudEvent| {
        let text = match output {
            // A program gets each event as it came, one a line.
            Some(OutputFormat::Json) => format!("{line}\n"),
            Some(OutputFormat::Yaml) => show::yaml(&parse(line, &agent)?)?,
            Some(OutputFormat::Name) => format!("{}\n", show::one_line(&event.id)),
            None | Some(OutputFormat::Wide) => header.take().unwrap_or_default() + &row(&event),
        };
        Ok(match show::write(&text)? {
            Written::Done => ControlFlow::Continue(()),
            Written::Closed => ControlFlow::Break(()),
        })
    };
    reader.for_each_of::<CloudEvent, ()>(print).await.map(drop)
}

/// Gives the conversation an event. It is sent again when its answer was lost, and has its effect once.
async fn send(
    cluster: &Cluster,
    output: Option<OutputFormat>,
    agent: &str,
    kind: &str,
    data: &Value,
    id: Option<String>,
) -> Result<(), Error> {
    let id = id.unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
    let event = OutsideEvent { id, kind: kind.to_owned(), data: data.clone() };
    let taken: EventTaken = cluster.act(agent, "send an event to", "events", &event).await?;
    let before = if taken.duplicate { "taken before: " } else { "" };
    let sentence = format!("{}: {before}{}", cluster.display_name::<YoiPod>(agent), show::one_line(&taken.message));
    show::object(output, &taken, &show::one_line(&taken.id), &sentence)
}

fn row(event: &CloudEvent) -> String {
    let row = format!("{:<20} {:<34} {}", time(&event.time), show::one_line(&event.kind), about(&event.data));
    format!("{}\n", row.trim_end())
}

/// What an event is about, in one line.
fn about(data: &Value) -> String {
    let words = ABOUT.into_iter().filter_map(|field| data.get(field).and_then(Value::as_str)).filter(|word| !word.is_empty());
    let args = data.get("args").map(ToString::to_string);
    let text = words.map(str::to_owned).chain(args).collect::<Vec<_>>().join(" ");
    show::shortened(&show::one_line(&text), ABOUT_CHARS)
}
