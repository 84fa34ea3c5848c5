//! Answers: tables for people, JSON, YAML and names for programs.

use comfy_table::{Cell, Color, ContentArrangement, Table, presets};
use serde::Serialize;
use yoi_crds::condition::{Condition, ConditionStatus, find};
use yoi_crds::reason::condition;

use crate::args::Output;
use crate::error::Error;

/// Prints objects as asked; `table` is called when no form was asked for.
pub fn objects<T: Serialize>(
    output: Option<Output>,
    objects: &[T],
    name: impl Fn(&T) -> String,
    table: impl FnOnce(),
) -> Result<(), Error> {
    match output {
        None => table(),
        Some(Output::Name) => objects.iter().for_each(|o| println!("{}", name(o))),
        Some(form) => value(form, &serde_json::json!({ "items": objects }))?,
    }
    Ok(())
}

/// Prints one object as asked, or the sentence.
pub fn object<T: Serialize>(output: Option<Output>, object: &T, name: &str, sentence: &str) -> Result<(), Error> {
    match output {
        None => println!("{sentence}"),
        Some(Output::Name) => println!("{name}"),
        Some(form) => value(form, object)?,
    }
    Ok(())
}

pub fn value<T: Serialize>(form: Output, value: &T) -> Result<(), Error> {
    let text = match form {
        Output::Yaml => serde_yaml::to_string(value).map_err(|e| Error::Local { deed: "write YAML", source: Box::new(e) })?,
        Output::Json | Output::Name => {
            serde_json::to_string_pretty(value).map_err(|e| Error::Local { deed: "write JSON", source: Box::new(e) })? + "\n"
        }
    };
    print!("{text}");
    Ok(())
}

/// A table in kubectl's manner: no lines, capitals on top.
pub fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.iter().map(|h| Cell::new(h.to_uppercase())).collect::<Vec<_>>());
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table
}

/// The Ready condition in two cells: status and reason.
pub fn ready(conditions: &[Condition]) -> [Cell; 2] {
    match find(conditions, condition::READY) {
        None => [Cell::new("Unknown").fg(Color::Yellow), Cell::new("-")],
        Some(c) => {
            let (text, color) = match c.status {
                ConditionStatus::True => ("True", Color::Green),
                ConditionStatus::False => ("False", Color::Red),
                ConditionStatus::Unknown => ("Unknown", Color::Yellow),
            };
            [Cell::new(text).fg(color), Cell::new(&c.reason)]
        }
    }
}

/// Age of an RFC 3339 time, as kubectl shows it.
pub fn age(then: Option<jiff::Timestamp>) -> String {
    let Some(then) = then else { return "-".to_owned() };
    let seconds = (jiff::Timestamp::now().as_second() - then.as_second()).max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

pub fn or_dash(text: Option<&str>) -> String {
    text.filter(|t| !t.is_empty()).unwrap_or("-").to_owned()
}
