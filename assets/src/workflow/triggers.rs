//! Reads `triggers.json`: triggers that stand in no workflow.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::header::{MAX_ENTRIES, number, read_trigger, unknown};
use super::{GlobalTrigger, Workflow};
use crate::diagnostic::{Diagnostics, quote};
use crate::reading::{Reading, take};
use crate::yaml::{Map, Node, parse_json};
use crate::{AssetState, Level, Source, Strictness};

/// Reads the triggers. One that is invalid keeps what could be read of it, if it has an id.
pub(crate) fn read<'file>(
    mut reading: Reading<'file>,
    source: Source,
    content: Result<&'file str, (String, Option<u32>)>,
) -> Vec<GlobalTrigger> {
    let text = match content {
        Ok(text) => text,
        Err((reason, line)) => {
            reading.error(line, reason);
            return vec![];
        }
    };
    let mut map = match parse_json(text) {
        Ok(Node::Map(map)) => map,
        Ok(node) => {
            reading.error(Some(1), format!("is {}, not a map with triggers", node.kind()));
            return vec![];
        }
        Err(error) => {
            reading.yaml_error(error);
            return vec![];
        }
    };
    (reading.header, reading.first_line) = (text, 1);
    match take(&mut map, "global_settings") {
        None | Some(Node::Null) => {}
        Some(Node::Map(mut settings)) => {
            let line = line_of(text, "global_settings");
            number(&mut reading, &mut settings, "default_debounce_ms", 0, line);
            number(&mut reading, &mut settings, "max_concurrent_triggers", 1, line);
            unknown(&mut reading, settings, "global_settings.", line);
        }
        Some(node) => reading.error(line_of(text, "global_settings"), format!("global_settings is {}, not a map", node.kind())),
    }
    let entries = match take(&mut map, "triggers") {
        Some(Node::List(entries)) if entries.len() <= MAX_ENTRIES => entries,
        Some(Node::List(_)) => {
            reading.error(line_of(text, "triggers"), format!("triggers has more than {MAX_ENTRIES} entries"));
            vec![]
        }
        Some(node) => {
            reading.error(line_of(text, "triggers"), format!("triggers is {}, not a list", node.kind()));
            vec![]
        }
        None => {
            reading.error(Some(1), "has no list of triggers");
            vec![]
        }
    };
    unknown(&mut reading, map, "", Some(1));
    let Reading { path, strictness, diagnostics, .. } = reading;
    let mut triggers = vec![];
    for entry in entries {
        let mut reading = Reading::new(path, strictness, &mut *diagnostics);
        match entry {
            Node::Map(entry) => triggers.extend(read_entry(reading, source, text, entry)),
            node => reading.error(line_of(text, "triggers"), format!("triggers has {}, not a map", node.kind())),
        }
    }
    triggers
}

fn read_entry(mut reading: Reading<'_>, source: Source, text: &str, mut map: Map) -> Option<GlobalTrigger> {
    let id = take(&mut map, "id").and_then(|id| id.scalar()).filter(|id| !id.is_empty());
    let line = line_of(text, id.as_deref().unwrap_or("triggers"));
    let Some(id) = id else {
        reading.error(line, "has a trigger without an id");
        return None;
    };
    let workflow = take(&mut map, "workflow_id").and_then(|workflow| workflow.scalar()).unwrap_or_default();
    if workflow.is_empty() {
        reading.error(line, format!("the trigger {} has no workflow_id", quote(&id)));
    }
    let enabled = reading.boolean(&mut map, "enabled").unwrap_or(true);
    let trigger = read_trigger(&mut reading, map, line);
    let path = reading.path.to_owned();
    let state = if reading.is_valid() && !enabled { AssetState::Disabled } else { reading.into_state() };
    Some(GlobalTrigger { id, workflow, path, source, trigger, state, line })
}

/// The first line on which the text stands in quotes.
fn line_of(text: &str, quoted: &str) -> Option<u32> {
    let quoted = format!("\"{quoted}\"");
    text.lines().zip(1..).find(|(line, _)| line.contains(&quoted)).map(|(_, line)| line)
}

/// Settles what only all files together show: whose id comes first, and whether the workflow is there.
pub(crate) fn settle(triggers: &mut [GlobalTrigger], workflows: &[Arc<Workflow>], strictness: Strictness, diagnostics: &mut Diagnostics) {
    let mut taken: BTreeMap<String, (String, Source)> = BTreeMap::new();
    for trigger in triggers {
        if matches!(trigger.state, AssetState::Invalid { .. }) {
            continue;
        }
        let named = || workflows.iter().filter(|workflow| workflow.name == trigger.workflow);
        let reason = if named().any(|workflow| workflow.state.is_valid()) {
            None
        } else if named().any(|workflow| workflow.state == AssetState::Disabled) {
            trigger.state = AssetState::Disabled;
            None
        } else if named().next().is_some() {
            Some(format!("the trigger {} starts the workflow {}, which is not in effect", quote(&trigger.id), quote(&trigger.workflow)))
        } else {
            Some(format!("the trigger {} starts the workflow {}, which is not there", quote(&trigger.id), quote(&trigger.workflow)))
        };
        if let Some(reason) = reason {
            diagnostics.begin_file();
            diagnostics.push(&trigger.path, trigger.line, Level::Error, reason.clone());
            trigger.state = AssetState::invalid(reason, trigger.line);
            continue;
        }
        let Some((by, source)) = taken.get(&trigger.id) else {
            taken.insert(trigger.id.clone(), (trigger.path.clone(), trigger.source));
            continue;
        };
        let level = if *source == trigger.source && strictness == Strictness::Strict { Level::Error } else { Level::Warning };
        let message = format!("is not in effect: the trigger {} of {by} comes first", quote(&trigger.id));
        diagnostics.begin_file();
        diagnostics.push(&trigger.path, trigger.line, level, message);
        trigger.state = AssetState::Shadowed { by: by.clone() };
    }
}
