//! Output: tables for people; JSON, YAML and names for programs.

use std::io::Write;

use comfy_table::{Cell, Color, ContentArrangement, Table, presets};
use serde::Serialize;
use yoi_crds::condition::{Condition, ConditionStatus, find};
use yoi_crds::pod::DesiredState;
use yoi_crds::reason::condition;
use yoi_crds::source::ProviderName;

use crate::args::OutputFormat;
use crate::error::Error;

/// Prints objects in the requested format, or as the table when there is none.
pub fn objects<T: Serialize>(
    output: Option<OutputFormat>,
    objects: &[T],
    name: impl Fn(&T) -> String,
    table: impl FnOnce() -> String,
) -> Result<(), Error> {
    match output {
        None => print(&table()),
        Some(OutputFormat::Name) => print(&objects.iter().map(|o| name(o) + "\n").collect::<String>()),
        Some(format) => print_as(format, &serde_json::json!({ "items": objects })),
    }
}

/// Prints one object in the requested format, or the sentence when there is none.
pub fn object<T: Serialize>(output: Option<OutputFormat>, object: &T, name: &str, sentence: &str) -> Result<(), Error> {
    match output {
        None => print(&format!("{sentence}\n")),
        Some(OutputFormat::Name) => print(&format!("{name}\n")),
        Some(format) => print_as(format, object),
    }
}

/// Prints one document as JSON or YAML. YAML begins with `---`, so that documents can follow each other.
pub fn print_as<T: Serialize>(format: OutputFormat, value: &T) -> Result<(), Error> {
    print(&document(format, value)?)
}

fn document<T: Serialize>(format: OutputFormat, value: &T) -> Result<String, Error> {
    let mut value = serde_json::to_value(value).map_err(|e| format_error("JSON", e))?;
    without_managed_fields(&mut value);
    Ok(match format {
        OutputFormat::Yaml => yaml(&value)?,
        OutputFormat::Json | OutputFormat::Name => serde_json::to_string_pretty(&value).map_err(|e| format_error("JSON", e))? + "\n",
    })
}

/// Returns one YAML document, which begins with `---`.
pub fn yaml(value: &serde_json::Value) -> Result<String, Error> {
    Ok("---\n".to_owned() + &serde_yaml::to_string(value).map_err(|e| format_error("YAML", e))?)
}

fn format_error(format: &str, error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::local(format!("write the answer as {format}"), error, "take another form of it: -o json, -o yaml, or none")
}

/// Removes `managedFields`, as kubectl does: they are longer than the object.
fn without_managed_fields(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Array(items) => items.iter_mut().for_each(without_managed_fields),
        serde_json::Value::Object(fields) => {
            if let Some(serde_json::Value::Object(metadata)) = fields.get_mut("metadata") {
                metadata.remove("managedFields");
            }
            fields.values_mut().filter(|field| field.is_array()).for_each(without_managed_fields);
        }
        _ => {}
    }
}

/// Writes to standard output. A closed pipe (`| head`) is no error.
pub fn print(text: &str) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::local("write the answer", error, "look at where it goes: a disk without room, or a file that may not be written"))
        }
        _ => Ok(()),
    }
}

/// Replaces the control characters of a text that others wrote, because a terminal would obey them. Newlines and tabs stay.
pub fn without_control_characters(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' && c != '\t' { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// Returns the sentence for an empty list.
pub fn empty_list(what: &str, namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) => format!("no {what} in namespace {namespace}\n"),
        None => format!("no {what}\n"),
    }
}

/// Returns a table as text, without spaces at the ends of lines.
pub fn lines(table: &Table) -> String {
    table.to_string().lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// Returns an empty table in kubectl's style: a header in capitals, no borders.
pub fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.iter().map(|h| Cell::new(h.to_uppercase())).collect::<Vec<_>>());
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table
}

/// Returns the Ready condition as two cells: status and reason.
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

/// Returns the time since `then` as kubectl shows an age.
pub fn age(then: Option<jiff::Timestamp>) -> String {
    let Some(then) = then else { return "-".to_owned() };
    duration(jiff::Timestamp::now().as_second() - then.as_second())
}

/// Returns so many seconds as kubectl shows an age.
pub fn duration(seconds: i64) -> String {
    let seconds = seconds.max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Returns a desired state as the objects spell it.
pub fn desired_state_name(state: DesiredState) -> &'static str {
    match state {
        DesiredState::Running => "Running",
        DesiredState::Stopped => "Stopped",
        DesiredState::Unknown => "?",
    }
}

/// Returns a provider as the objects spell it.
pub fn provider(provider: ProviderName) -> &'static str {
    match provider {
        ProviderName::Auto => "Auto",
        ProviderName::Btrfs => "Btrfs",
        ProviderName::Copy => "Copy",
        ProviderName::Unknown => "?",
    }
}

pub fn or_dash(text: Option<&str>) -> String {
    text.filter(|t| !t.is_empty()).unwrap_or("-").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn documents_can_follow_each_other_and_hold_no_managed_fields() {
        let object = json!({ "kind": "YoiPod", "metadata": { "name": "a", "managedFields": [{ "manager": "x" }] } });
        let twice = document(OutputFormat::Yaml, &object).unwrap() + &document(OutputFormat::Yaml, &object).unwrap();
        assert_eq!(twice, "---\nkind: YoiPod\nmetadata:\n  name: a\n".repeat(2));
        for list in [json!({ "items": [object] }), json!({ "agents": [object], "peers": [] })] {
            let text = document(OutputFormat::Json, &list).unwrap();
            assert!(text.contains("YoiPod") && !text.contains("managedFields") && text.ends_with("}\n"), "{text}");
        }
    }

    #[test]
    fn a_table_has_capitals_on_top_and_nothing_behind_the_last_column() {
        let mut table = table(&["agent", "age"]);
        table.add_row(["a", "2d"]);
        assert_eq!(lines(&table), "AGENT  AGE\na      2d\n");
    }

    #[test]
    fn ready_is_unknown_without_a_condition() {
        let texts = |conditions: &[Condition]| ready(conditions).map(|cell| cell.content());
        assert_eq!(texts(&[]), ["Unknown", "-"]);
    }

    #[test]
    fn an_age_is_short() {
        let ago = |seconds| age(jiff::Timestamp::from_second(jiff::Timestamp::now().as_second() - seconds).ok());
        assert_eq!([ago(119), ago(121), ago(7_300), ago(200_000), age(None)], ["119s", "2m", "2h", "2d", "-"]);
        assert_eq!(ago(-60), "0s");
    }

    #[test]
    fn control_characters_are_shown_as_a_mark() {
        assert_eq!(without_control_characters("a\x1b[2J\tb\nc\r\u{9b}1m"), "a\u{fffd}[2J\tb\nc\u{fffd}\u{fffd}1m");
    }
}
