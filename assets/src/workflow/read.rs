//! Reads a workflow.

use crate::Source;
use crate::reading::{Reading, stem};
use crate::workflow::{Settings, Workflow};
use crate::{AssetState, diagnostic::quote, front_matter};

use super::{body, check, header};

/// A workflow of which only the path is known.
fn bare(path: &str, source: Source) -> Workflow {
    Workflow {
        name: stem(path).to_owned(),
        description: String::new(),
        version: None,
        path: path.to_owned(),
        source,
        inputs: vec![],
        triggers: vec![],
        settings: Settings::default(),
        topic: None,
        publish_events: vec![],
        steps: vec![],
        compensations: vec![],
        return_value: None,
        return_transform: None,
        allowed_tools: None,
        state: AssetState::Valid,
    }
}

/// Reads a workflow. One that is invalid keeps what could be read of it.
pub(crate) fn read<'file>(mut reading: Reading<'file>, source: Source, content: Result<&'file str, (String, Option<u32>)>) -> Workflow {
    let mut workflow = bare(reading.path, source);
    let mut enabled = true;
    match content {
        Ok(text) => enabled = read_text(&mut reading, &mut workflow, text),
        Err((reason, line)) => reading.error(line, reason),
    }
    workflow.state = if reading.is_valid() && !enabled { AssetState::Disabled } else { reading.into_state() };
    workflow
}

/// Reads the text, and says whether the workflow is enabled.
fn read_text<'file>(reading: &mut Reading<'file>, workflow: &mut Workflow, text: &'file str) -> bool {
    let parts = match front_matter::split(text) {
        Ok(parts) => parts,
        Err(error) => {
            reading.yaml_error(error);
            return true;
        }
    };
    let Some(text) = parts.header else {
        reading.error(Some(1), "has no front matter: a workflow needs a name and a version");
        return true;
    };
    (reading.header, reading.first_line) = (text, front_matter::FIRST_LINE);
    let fields = match front_matter::parse(text, front_matter::FIRST_LINE) {
        Ok(fields) => fields,
        Err(error) => {
            reading.yaml_error(error);
            return true;
        }
    };
    if let Some(line) = fields.unquoted {
        reading.leniency(Some(line), front_matter::NEEDS_QUOTES);
    }
    let enabled = header::read(reading, workflow, fields.map);
    body::read(reading, workflow, parts.body, parts.body_line);
    check::check(reading, workflow);
    enabled
}

/// Whether a name is of small letters, digits and `_`, and begins with a letter.
pub(super) fn is_name(name: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
    name.len() <= 128 && name.starts_with(|letter: char| letter.is_ascii_lowercase()) && name.chars().all(is_letter)
}

pub(super) fn name_fault(what: &str, name: &str) -> String {
    format!("the {what} {} does not begin with a small letter, or has others than small letters, digits and _", quote(name))
}
