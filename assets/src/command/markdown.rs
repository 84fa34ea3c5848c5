//! Reads a command of `.jido/commands` or `.claude/commands`.

use super::Command;
use super::parameters::{Parameter, ParameterType};
use super::template::{Dialect, Template};
use crate::diagnostic::quote;
use crate::front_matter;
use crate::reading::{Reading, stem, take, unknown_keys};
use crate::tools;
use crate::yaml::{Map, Node};
use crate::{AssetState, Source, Strictness};

const MAX_PARAMETERS: usize = 64;

/// A command of which only the path is known.
pub(super) fn bare(name: &str, path: &str, source: Source) -> Command {
    Command {
        name: name.to_owned(),
        description: String::new(),
        argument_hint: None,
        path: path.to_owned(),
        source,
        parameters: vec![],
        body: String::new(),
        allowed_tools: None,
        for_model: false,
        state: AssetState::Valid,
        model: None,
        template: Template::default(),
    }
}

/// Reads a command. One that is invalid keeps what could be read of it.
pub(crate) fn read<'file>(mut reading: Reading<'file>, source: Source, content: Result<&'file str, (String, Option<u32>)>) -> Command {
    let mut command = bare(stem(reading.path), reading.path, source);
    match content {
        Ok(text) => read_text(&mut reading, &mut command, text),
        Err((reason, line)) => reading.error(line, reason),
    }
    command.for_model &= reading.is_valid();
    command.state = reading.into_state();
    command
}

fn read_text<'file>(reading: &mut Reading<'file>, command: &mut Command, text: &'file str) {
    let parts = match front_matter::split(text) {
        Ok(parts) => parts,
        Err(error) => return reading.yaml_error(error),
    };
    parts.body.trim_start_matches(['\r', '\n']).clone_into(&mut command.body);
    let mut map = vec![];
    if let Some(header) = parts.header {
        (reading.header, reading.first_line) = (header, front_matter::FIRST_LINE);
        match front_matter::parse(header, front_matter::FIRST_LINE) {
            Ok(fields) => {
                if let Some(line) = fields.unquoted {
                    reading.leniency(Some(line), front_matter::NEEDS_QUOTES);
                }
                map = fields.map;
            }
            Err(error) => return reading.yaml_error(error),
        }
    }
    command.description = reading.text(&mut map, "description").unwrap_or_default().trim().to_owned();
    command.argument_hint = hint(take(&mut map, "argument-hint"));
    command.model = reading.text(&mut map, "model");
    // A command of Claude Code is for the model only where its front matter says what it is for.
    command.for_model = !command.description.is_empty() && !reading.boolean(&mut map, "disable-model-invocation").unwrap_or(false);
    read_allowed_tools(reading, command, &mut map);
    if command.source.is_jido() {
        read_jido(reading, command, &mut map);
    } else {
        command.template = Template::parse(&command.body, Dialect::Claude);
        describe(command);
        read_rest_of_claude(reading, command, map);
    }
    if command.template.has_parameter_in_shell() {
        reading.note(
            None,
            "puts a parameter into a line for a shell: that line is told to the model as text, because no parameter reaches a shell",
        );
    }
}

/// A command that does not say what it does is known by its first line.
pub(super) fn describe(command: &mut Command) {
    const MAX_LINE: usize = 120;
    if command.description.is_empty() {
        let line = command.body.lines().map(|line| line.trim_start_matches('#').trim()).find(|line| !line.is_empty());
        command.description = line.unwrap_or_default().chars().take(MAX_LINE).collect();
    }
}

/// Hints are written as `[file] [mode]`, which is YAML for something else.
fn hint(node: Option<Node>) -> Option<String> {
    match node? {
        Node::Null | Node::Map(_) => None,
        Node::List(items) => Some(format!("[{}]", items.iter().filter_map(Node::scalar).collect::<Vec<_>>().join(", "))),
        node => node.scalar(),
    }
}

fn read_allowed_tools(reading: &mut Reading<'_>, command: &mut Command, map: &mut Map) {
    let mut found = None;
    for key in ["allowed-tools", "allowed_tools"] {
        let Some(node) = take(map, key) else { continue };
        let line = reading.line_of(&[key]);
        let is_empty = match &node {
            Node::Null => true,
            Node::List(items) => items.is_empty(),
            Node::Map(_) => false,
            text => text.scalar().is_some_and(|text| text.trim().is_empty()),
        };
        if found.is_some() {
            return reading.error(line, "has both allowed-tools and allowed_tools: keep one of them");
        }
        if is_empty && command.source.is_jido() {
            return reading.error(line, format!("{key} is empty: name a tool, or leave it out"));
        }
        found = Some(tools::rules(reading, node, key));
    }
    command.allowed_tools = found.flatten();
}

fn read_rest_of_claude(reading: &mut Reading<'_>, command: &Command, mut map: Map) {
    if let Some(name) = reading.text(&mut map, "name").filter(|name| *name != command.name) {
        let line = reading.line_of(&["name"]);
        reading.note(line, format!("the name {} does nothing: a command is called as its file, {}", quote(&name), quote(&command.name)));
    }
    for key in unknown_keys(&mut map) {
        let line = reading.line_of(&[&key]);
        reading.note(line, format!("the key {} is not known, and does nothing", quote(&key)));
    }
}

fn read_jido(reading: &mut Reading<'_>, command: &mut Command, map: &mut Map) {
    let line = reading.line_of(&["name"]);
    match reading.text(map, "name").map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()) {
        Some(name) if is_name(&name) => command.name = name,
        Some(name) => reading.error(line, format!("the name {} has other characters than letters, digits, -, _, : and .", quote(&name))),
        None => reading.error(line.or(Some(1)), "has no name"),
    }
    if command.description.is_empty() {
        let line = reading.line_of(&["description"]);
        reading.error(line.or(Some(1)), "has no description");
    }
    command.template = Template::parse(&command.body, Dialect::Jido);
    let has_schema = read_jido_map(reading, command, map);
    for key in unknown_keys(map) {
        let line = reading.line_of(&[&key]);
        match reading.strictness {
            Strictness::Lenient => reading.note(line, format!("the key {} is not known, and does nothing", quote(&key))),
            Strictness::Strict => reading.error(line, format!("the key {} is not known", quote(&key))),
        }
    }
    let names = command.template.names(MAX_PARAMETERS + 1);
    if names.len() > MAX_PARAMETERS {
        reading.error(None, format!("the text has more than {MAX_PARAMETERS} parameters"));
    }
    if !has_schema {
        // What the text has a place for is what the command needs.
        let parameter = |name: String| Parameter { name, kind: ParameterType::String, required: true, doc: None, default: None };
        command.parameters = names.into_iter().take(MAX_PARAMETERS).map(parameter).collect();
    } else {
        let unknown: Vec<&String> =
            names.iter().filter(|name| command.parameters.iter().all(|parameter| parameter.name != **name)).collect();
        for name in unknown {
            reading.warning(None, format!("the text has {{{{{name}}}}}, which jido.schema does not have: it stays as it is"));
        }
    }
    let parameters = std::mem::take(&mut command.parameters);
    command.template.keep_names(|name| parameters.iter().any(|parameter| parameter.name == name));
    command.parameters = parameters;
}

/// Whether a command can be called by a name.
pub(super) fn is_name(name: &str) -> bool {
    let is_letter = |letter: char| letter.is_alphanumeric() || matches!(letter, '-' | '_' | ':' | '.');
    name.len() <= 256 && name.chars().all(is_letter)
}

/// Reads `jido`, and says whether it has a schema.
fn read_jido_map(reading: &mut Reading<'_>, command: &mut Command, map: &mut Map) -> bool {
    let line = reading.line_of(&["jido"]);
    let mut jido = match take(map, "jido") {
        None | Some(Node::Null) => return false,
        Some(Node::Map(jido)) => jido,
        Some(node) => {
            reading.error(line, format!("jido is {}, not a map", node.kind()));
            return false;
        }
    };
    for (key, what) in [("command_module", "no code of a host is run"), ("hooks", "hooks of a repository are not run")] {
        if take(&mut jido, key).is_some() {
            let line = reading.line_of(&["jido", key]);
            reading.note(line, format!("jido.{key} does nothing: {what}"));
        }
    }
    let schema = take(&mut jido, "schema");
    for key in unknown_keys(&mut jido) {
        let line = reading.line_of(&["jido", &key]);
        reading.error(line, format!("jido.{key} is not known"));
    }
    let line = reading.line_of(&["jido", "schema"]);
    match schema {
        None | Some(Node::Null) => return false,
        Some(Node::Map(fields)) if fields.len() > MAX_PARAMETERS => {
            reading.error(line, format!("jido.schema has more than {MAX_PARAMETERS} parameters"));
        }
        Some(Node::Map(fields)) => {
            for (name, field) in fields {
                command.parameters.extend(read_parameter(reading, name, field));
            }
        }
        Some(node) => reading.error(line, format!("jido.schema is {}, not a map", node.kind())),
    }
    true
}

fn read_parameter(reading: &mut Reading<'_>, name: String, field: Node) -> Option<Parameter> {
    let line = reading.line_of(&["jido", "schema", &name]);
    let mut is_right = true;
    let mut fault = |reading: &mut Reading<'_>, what: String| {
        is_right = false;
        reading.error(line, format!("the parameter {} {what}", quote(&name)));
    };
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    if !name.starts_with(|letter: char| letter.is_ascii_lowercase()) || !name.chars().all(is_name) {
        fault(reading, "does not begin with a small letter, or has others than letters, digits and _".to_owned());
    }
    let Node::Map(mut field) = field else {
        fault(reading, format!("is {}, not a map", field.kind()));
        return None;
    };
    let kind = match take(&mut field, "type").and_then(|kind| kind.scalar()) {
        None => {
            fault(reading, "has no type".to_owned());
            ParameterType::String
        }
        Some(kind) => ParameterType::parse(&kind).unwrap_or_else(|| {
            fault(reading, format!("has the type {}: there are string, integer, float, boolean, map, atom and list", quote(&kind)));
            ParameterType::String
        }),
    };
    let required = match take(&mut field, "required") {
        None | Some(Node::Null) => false,
        Some(Node::Bool(required)) => required,
        Some(other) => {
            fault(reading, format!("has a required that is {}, not true or false", other.kind()));
            false
        }
    };
    let doc = take(&mut field, "doc").and_then(|doc| doc.scalar());
    let default = take(&mut field, "default").filter(|default| *default != Node::Null).map(|default| default.to_json());
    if required && default.is_some() {
        fault(reading, "is required and has a default: keep one of them".to_owned());
    }
    if default.as_ref().is_some_and(|default| !kind.is_of(default)) {
        fault(reading, format!("has a default that is not {}", kind.noun()));
    }
    for key in unknown_keys(&mut field) {
        fault(reading, format!("has the key {}, which is not known", quote(&key)));
    }
    is_right.then_some(Parameter { name, kind, required, doc, default })
}
