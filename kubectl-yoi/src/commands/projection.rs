//! `projection`: what an agent's log says, in forms for programs, and for people as far as this version knows the form.

use std::fmt::Write as _;

use serde_json::Value;
use yoi_wire::entry::{Entry, PromptItem};

use super::log::render_entry;
use crate::args::{OutputFormat, ProjectionOptions};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::show;

/// Letters of a text in a table.
const TEXT_CHARS: usize = 100;
const NOTHING: &str = "nothing is in it";

pub async fn projection(cluster: &Cluster, output: Option<OutputFormat>, args: &ProjectionOptions) -> Result<(), Error> {
    let projection: Value = cluster.engine(&args.name, "projection", &format!("projection/{}", args.key)).await?;
    let text = match args.key.as_str() {
        "timeline" => timeline(&projection),
        "llm_context" => context(&projection),
        "diagnostics" | "mode_runtime" => diagnostics(&projection),
        "pending_tool_calls" => pending(&projection),
        _ => show::yaml(&projection)?,
    };
    show::object(output, &projection, &args.key, text.trim_end())
}

fn items(projection: &Value) -> impl Iterator<Item = &Value> {
    projection.as_array().into_iter().flatten()
}

fn timeline(projection: &Value) -> String {
    let entries = items(projection).filter_map(|entry| serde_json::from_value::<Entry>(entry.clone()).ok());
    let text: String = entries.filter_map(|entry| render_entry(&entry, false)).collect();
    if text.is_empty() { NOTHING.to_owned() } else { text }
}

/// What the model is given, a row for each text, call and result.
fn context(projection: &Value) -> String {
    let mut table = show::table(&["kind", "text"]);
    for item in items(projection).filter_map(|item| serde_json::from_value::<PromptItem>(item.clone()).ok()) {
        let rows: Vec<(&str, String)> = match item {
            PromptItem::User(text) => vec![("input", text)],
            PromptItem::Assistant(answer) => {
                let text = Some(answer.text).filter(|text| !text.is_empty()).map(|text| ("answer", text));
                text.into_iter().chain(answer.tool_calls.iter().map(|call| ("call", format!("{} {}", call.tool, call.args)))).collect()
            }
            PromptItem::Results(results) => {
                results.into_iter().map(|result| ("result", format!("{} {}", result.tool, result.output))).collect()
            }
        };
        for (kind, text) in rows {
            table.add_row([kind, &short(&text)].map(show::cell));
        }
    }
    if table.is_empty() { NOTHING.to_owned() } else { show::lines(&table) }
}

fn pending(projection: &Value) -> String {
    let mut table = show::table(&["call", "tool", "phase", "args"]);
    for call in items(projection) {
        table.add_row(call_row(call).map(show::cell));
    }
    if table.is_empty() { NOTHING.to_owned() } else { show::lines(&table) }
}

fn call_row(call: &Value) -> [String; 4] {
    let word = |field: &str| call.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    [word("callId"), word("tool"), word("phase"), short(&call.get("args").map(ToString::to_string).unwrap_or_default())]
}

/// A line for each value, with the names that lead to it.
fn diagnostics(projection: &Value) -> String {
    let mut text = String::new();
    lines(&mut text, "", projection);
    text
}

fn lines(text: &mut String, name: &str, value: &Value) {
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                let name = if name.is_empty() { field.clone() } else { format!("{name}.{field}") };
                lines(text, &name, value);
            }
        }
        Value::Null => {}
        Value::Array(_) | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let _ = writeln!(text, "{:<28} {}", show::one_line(name), short(&value));
        }
    }
}

fn short(text: &str) -> String {
    show::shortened(&show::one_line(text), TEXT_CHARS)
}
