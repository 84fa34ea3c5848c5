//! The front matter of a workflow.

use crate::diagnostic::quote;
use crate::reading::{Reading, is_version, take, unknown_keys};
use crate::tools;
use crate::workflow::{Backoff, Input, InputType, OnFailure, Settings, Trigger, Workflow};
use crate::yaml::{Map, Node};

use super::read::{is_name, name_fault};

pub(super) const MAX_ENTRIES: usize = 64;
const MIN_TIMEOUT_MS: u64 = 1000;
const DEBOUNCE_MS: u64 = 500;
const SIGNALS: [&str; 5] = ["step_started", "step_completed", "step_failed", "workflow_complete", "agent_state"];
const FILE_EVENTS: [&str; 7] = ["created", "modified", "deleted", "moved", "renamed", "closed", "updated"];
const GIT_EVENTS: [&str; 3] = ["commit", "push", "merge"];

/// Reads the fields, and says whether the workflow is enabled.
pub(super) fn read(reading: &mut Reading<'_>, workflow: &mut Workflow, mut map: Map) -> bool {
    let line = reading.line_of(&["name"]);
    match reading.text(&mut map, "name") {
        Some(name) if is_name(&name) => workflow.name = name,
        Some(name) => reading.error(line, name_fault("name", &name)),
        None => reading.error(line.or(Some(1)), "has no name"),
    }
    let line = reading.line_of(&["version"]);
    match reading.text(&mut map, "version") {
        Some(version) if is_version(&version) => workflow.version = Some(version),
        Some(version) => reading.error(line, format!("the version {} is not x.y.z", quote(&version))),
        None => reading.error(line.or(Some(1)), "has no version"),
    }
    workflow.description = reading.text(&mut map, "description").unwrap_or_default().trim().to_owned();
    let enabled = reading.boolean(&mut map, "enabled").unwrap_or(true);
    for (entry, line) in list(reading, &mut map, "inputs") {
        let input = read_input(reading, entry, line);
        if let Some(input) = input {
            if workflow.inputs.iter().any(|other| other.name == input.name) {
                reading.error(line, format!("has the input {} twice", quote(&input.name)));
            }
            workflow.inputs.push(input);
        }
    }
    for (entry, line) in list(reading, &mut map, "triggers") {
        workflow.triggers.extend(read_trigger(reading, entry, line));
    }
    if let Some(settings) = sub_map(reading, &mut map, "settings") {
        workflow.settings = read_settings(reading, settings);
    }
    if let Some(mut signals) = sub_map(reading, &mut map, "signals") {
        let line = reading.line_of(&["signals"]);
        workflow.topic = take(&mut signals, "topic").and_then(|topic| topic.scalar());
        workflow.publish_events = words(reading, &mut signals, "publish_events", &SIGNALS, line);
        unknown(reading, signals, "signals.", line);
    }
    for key in ["allowed-tools", "allowed_tools"] {
        if let Some(node) = take(&mut map, key) {
            workflow.allowed_tools = workflow.allowed_tools.take().or(tools::rules(reading, node, key));
        }
    }
    for key in unknown_keys(&mut map) {
        let line = reading.line_of(&[&key]);
        reading.leniency(line, format!("the key {} is not known, and does nothing", quote(&key)));
    }
    enabled
}

pub(super) fn unknown(reading: &mut Reading<'_>, mut map: Map, of: &str, line: Option<u32>) {
    for key in unknown_keys(&mut map) {
        reading.error(line, format!("the key {of}{key} is not known"));
    }
}

fn sub_map(reading: &mut Reading<'_>, map: &mut Map, key: &str) -> Option<Map> {
    match take(map, key)? {
        Node::Null => None,
        Node::Map(map) => Some(map),
        node => {
            let line = reading.line_of(&[key]);
            reading.error(line, format!("{key} is {}, not a map", node.kind()));
            None
        }
    }
}

/// The entries of a list of maps, and the line that its errors are told with.
fn list(reading: &mut Reading<'_>, map: &mut Map, key: &str) -> Vec<(Map, Option<u32>)> {
    let line = reading.line_of(&[key]);
    let entries = match take(map, key) {
        None | Some(Node::Null) => return vec![],
        Some(Node::List(entries)) if entries.len() <= MAX_ENTRIES => entries,
        Some(Node::List(_)) => {
            reading.error(line, format!("{key} has more than {MAX_ENTRIES} entries"));
            return vec![];
        }
        Some(node) => {
            reading.error(line, format!("{key} is {}, not a list", node.kind()));
            return vec![];
        }
    };
    let mut maps = vec![];
    for entry in entries {
        match entry {
            Node::Map(map) => maps.push((map, line)),
            node => reading.error(line, format!("{key} has {}, not a map", node.kind())),
        }
    }
    maps
}

fn read_input(reading: &mut Reading<'_>, mut map: Map, line: Option<u32>) -> Option<Input> {
    let name = take(&mut map, "name").and_then(|name| name.scalar());
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        reading.error(line, "has an input without a name");
        return None;
    };
    let kind = take(&mut map, "type").and_then(|kind| kind.scalar()).unwrap_or_default();
    let Some(kind) = input_type(&kind) else {
        reading.error(
            line,
            format!("the input {} has the type {}: there are string, integer, boolean, map and list", quote(&name), quote(&kind)),
        );
        return None;
    };
    let required = matches!(take(&mut map, "required"), Some(Node::Bool(true)));
    let default = take(&mut map, "default").filter(|default| *default != Node::Null);
    let is_of = |default: &Node| match kind {
        InputType::String => matches!(default, Node::Text(_)),
        InputType::Integer => matches!(default, Node::Integer(_)),
        InputType::Boolean => matches!(default, Node::Bool(_)),
        InputType::Map => matches!(default, Node::Map(_)),
        InputType::List => matches!(default, Node::List(_)),
    };
    if default.as_ref().is_some_and(|default| !is_of(default)) {
        reading.error(line, format!("the default of the input {} is not of its type", quote(&name)));
    }
    if required && default.is_some() {
        reading.error(line, format!("the input {} is required and has a default: keep one of them", quote(&name)));
    }
    let description = take(&mut map, "description").and_then(|text| text.scalar());
    unknown(reading, map, "inputs.", line);
    Some(Input { name, kind, required, default: default.map(|default| default.to_json()), description })
}

fn input_type(text: &str) -> Option<InputType> {
    Some(match text {
        "string" => InputType::String,
        "integer" => InputType::Integer,
        "boolean" => InputType::Boolean,
        "map" => InputType::Map,
        "list" => InputType::List,
        _ => return None,
    })
}

pub(super) fn read_trigger(reading: &mut Reading<'_>, mut map: Map, line: Option<u32>) -> Option<Trigger> {
    let kind = take(&mut map, "type").and_then(|kind| kind.scalar()).unwrap_or_default();
    // As a global list of triggers has them.
    let mut config = match take(&mut map, "config") {
        Some(Node::Map(config)) => config,
        _ => vec![],
    };
    config.append(&mut map);
    let trigger = match kind.as_str() {
        "manual" => Trigger::Manual { command: take(&mut config, "command").and_then(|command| command.scalar()) },
        "signal" => Trigger::Signal { patterns: words(reading, &mut config, "patterns", &[], line) },
        "scheduled" => {
            take(&mut config, "params");
            Trigger::Scheduled { schedule: take(&mut config, "schedule").and_then(|schedule| schedule.scalar()).unwrap_or_default() }
        }
        "file_system" => Trigger::FileSystem {
            patterns: words(reading, &mut config, "patterns", &[], line),
            events: words(reading, &mut config, "events", &FILE_EVENTS, line),
            debounce_ms: number(reading, &mut config, "debounce_ms", 0, line).unwrap_or(DEBOUNCE_MS),
        },
        "git_hook" => Trigger::GitHook { events: words(reading, &mut config, "events", &GIT_EVENTS, line) },
        _ => {
            let kinds = "there are manual, signal, scheduled, file_system and git_hook";
            reading.error(line, format!("has a trigger of the type {}: {kinds}", quote(&kind)));
            return None;
        }
    };
    let lacks = match &trigger {
        Trigger::Signal { patterns } | Trigger::FileSystem { patterns, .. } if patterns.is_empty() => Some("patterns"),
        Trigger::Scheduled { schedule } if !is_schedule(schedule) => Some("a schedule of five or six fields, as cron writes it"),
        Trigger::GitHook { events } if events.is_empty() => Some("events"),
        Trigger::Manual { .. }
        | Trigger::Signal { .. }
        | Trigger::FileSystem { .. }
        | Trigger::Scheduled { .. }
        | Trigger::GitHook { .. } => None,
    };
    if let Some(lacks) = lacks {
        reading.error(line, format!("has a trigger of the type {kind} without {lacks}"));
    }
    for key in ["id", "enabled", "root_dir", "repo_path"] {
        take(&mut config, key);
    }
    unknown(reading, config, "triggers.", line);
    Some(trigger)
}

/// Whether a text has the form of a schedule. What it means is for whoever runs workflows.
fn is_schedule(text: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '*' | '/' | ',' | '-' | '?' | '#' | ' ' | '\t');
    (5..=6).contains(&text.split_whitespace().count()) && text.chars().all(is_letter)
        || matches!(text.trim(), "@hourly" | "@daily" | "@weekly" | "@monthly" | "@yearly")
}

fn read_settings(reading: &mut Reading<'_>, mut map: Map) -> Settings {
    let line = reading.line_of(&["settings"]);
    let mut settings = Settings {
        max_concurrency: number(reading, &mut map, "max_concurrency", 1, line),
        timeout_ms: number(reading, &mut map, "timeout_ms", MIN_TIMEOUT_MS, line),
        ..Settings::default()
    };
    match take(&mut map, "on_failure").and_then(|word| word.scalar()).as_deref() {
        None => {}
        Some("compensate") => settings.on_failure = OnFailure::Compensate,
        Some("halt") => settings.on_failure = OnFailure::Halt,
        Some("continue") => settings.on_failure = OnFailure::Continue,
        Some(word) => reading.error(line, format!("on_failure is {}: there are compensate, halt and continue", quote(word))),
    }
    match take(&mut map, "retry_policy") {
        None | Some(Node::Null) => {}
        Some(Node::Map(mut retries)) => {
            settings.max_retries = number(reading, &mut retries, "max_retries", 0, line);
            settings.base_delay_ms = number(reading, &mut retries, "base_delay_ms", 0, line);
            match take(&mut retries, "backoff").and_then(|word| word.scalar()).as_deref() {
                None => {}
                Some("linear") => settings.backoff = Backoff::Linear,
                Some("exponential") => settings.backoff = Backoff::Exponential,
                Some("constant") => settings.backoff = Backoff::Constant,
                Some(word) => reading.error(line, format!("backoff is {}: there are linear, exponential and constant", quote(word))),
            }
            unknown(reading, retries, "settings.retry_policy.", line);
        }
        Some(node) => reading.error(line, format!("retry_policy is {}, not a map", node.kind())),
    }
    unknown(reading, map, "settings.", line);
    settings
}

/// A number that is not below the least.
pub(super) fn number(reading: &mut Reading<'_>, map: &mut Map, key: &str, least: u64, line: Option<u32>) -> Option<u64> {
    let node = take(map, key).filter(|node| *node != Node::Null)?;
    let number = if let Node::Integer(number) = node { u64::try_from(number).ok() } else { None };
    let number = number.filter(|number| *number >= least);
    if number.is_none() {
        reading.error(line, format!("{key} is not a whole number from {least} on"));
    }
    number
}

/// A list of words, each one of those that there are. None given: any.
fn words(reading: &mut Reading<'_>, map: &mut Map, key: &str, known: &[&str], line: Option<u32>) -> Vec<String> {
    let Some(node) = take(map, key) else { return vec![] };
    let words = reading.texts(node, key, line);
    if words.len() > MAX_ENTRIES {
        reading.error(line, format!("{key} has more than {MAX_ENTRIES} entries"));
    }
    for word in words.iter().filter(|word| !known.is_empty() && !known.contains(&word.as_str())) {
        reading.error(line, format!("{key} has {}: there are {}", quote(word), known.join(", ")));
    }
    words
}
