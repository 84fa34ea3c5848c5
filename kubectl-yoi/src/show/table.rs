//! Tables in kubectl's style.

use comfy_table::{Cell, Color, ContentArrangement, Table, presets};
use yoi_crds::condition::{Condition, ConditionStatus, find};
use yoi_crds::pod::DesiredState;
use yoi_crds::reason::{self, condition};
use yoi_crds::source::ProviderName;

use super::text::{one_line, shortened};

/// Letters of a message in a table that is not wide.
const SHORT_MESSAGE: usize = 60;

/// Returns a table as text, without spaces at the ends of lines.
pub fn lines(table: &Table) -> String {
    table.to_string().lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// Returns an empty table: a header in capitals, no borders.
pub fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.iter().map(|h| Cell::new(h.to_uppercase())).collect::<Vec<_>>());
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table
}

/// Returns a cell with a text that others may have written, and a hyphen for none.
pub fn cell(text: impl AsRef<str>) -> Cell {
    let text = one_line(text.as_ref());
    Cell::new(if text.is_empty() { "-" } else { &text })
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
            [Cell::new(text).fg(color), cell(&c.reason)]
        }
    }
}

/// Returns why an object is not ready, or what is odd about it: the beginning of the message, or the whole of it where the table is wide.
pub fn message(conditions: &[Condition], wide: bool) -> Cell {
    let ready = find(conditions, condition::READY);
    let says_more = |c: &&Condition| wide || c.status != ConditionStatus::True || c.reason == reason::FORMER_SOURCE;
    let text = one_line(ready.filter(says_more).map(|c| c.message.as_str()).unwrap_or_default());
    cell(if wide { text } else { shortened(&text, SHORT_MESSAGE) })
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

/// Returns what an agent does, with the number of its commands that run in the background beside that.
pub fn activity(name: &str, background: u32) -> String {
    if background == 0 { name.to_owned() } else { format!("{name} +{background} in background") }
}

/// Returns a desired state as the objects spell it.
pub fn desired_state_name(state: DesiredState) -> &'static str {
    match state {
        DesiredState::Running => "Running",
        DesiredState::Suspended => "Suspended",
        DesiredState::Stopped => "Stopped",
        DesiredState::Unknown => "?",
    }
}

/// Returns a provider as the objects spell it.
pub fn provider(provider: ProviderName) -> &'static str {
    match provider {
        ProviderName::Auto => "Auto",
        ProviderName::Zfs => "Zfs",
        ProviderName::Btrfs => "Btrfs",
        ProviderName::Overlay => "Overlay",
        ProviderName::Reflink => "Reflink",
        ProviderName::Copy => "Copy",
        ProviderName::Unknown => "?",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
