//! Reads a `SKILL.md`, leniently as the standard's guide for programs says.

use std::sync::Arc;

use crate::command::{Dialect, Template};
use crate::diagnostic::quote;
use crate::front_matter;
use crate::reading::{Reading, is_version, take, unknown_keys};
use crate::skill::{Route, Skill};
use crate::tools;
use crate::yaml::{Map, Node};
use crate::{AssetState, Source};

const MAX_NAME: usize = 64;
const MAX_DESCRIPTION: usize = 1024;
const MAX_COMPATIBILITY: usize = 500;
const MAX_ROUTES: usize = 200;

/// A skill of which only the path is known, and why it is invalid.
fn bare(path: &str, source: Source, state: AssetState) -> Skill {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    Skill {
        name: folder.rsplit('/').next().unwrap_or(folder).to_owned(),
        description: String::new(),
        path: path.to_owned(),
        folder: folder.to_owned(),
        source,
        body: Arc::default(),
        allowed_tools: None,
        for_model: false,
        for_people: false,
        state,
        version: None,
        license: None,
        compatibility: None,
        metadata: vec![],
        actions: vec![],
        routes: vec![],
        template: Template::default(),
    }
}

/// Reads a skill. One that is invalid keeps what could be read of it.
pub(crate) fn read<'file>(mut reading: Reading<'file>, source: Source, content: Result<&'file str, (String, Option<u32>)>) -> Skill {
    let mut skill = bare(reading.path, source, AssetState::Valid);
    match content {
        Ok(text) => read_text(&mut reading, &mut skill, text),
        Err((reason, line)) => reading.error(line, reason),
    }
    if !reading.is_valid() {
        (skill.for_model, skill.for_people) = (false, false);
    }
    skill.state = reading.into_state();
    skill
}

fn read_text<'file>(reading: &mut Reading<'file>, skill: &mut Skill, text: &'file str) {
    let parts = match front_matter::split(text) {
        Ok(parts) => parts,
        Err(error) => return reading.yaml_error(error),
    };
    skill.body = parts.body.trim_start_matches(['\r', '\n']).into();
    let Some(header) = parts.header else {
        return reading.error(Some(1), "has no front matter: a skill needs a description");
    };
    (reading.header, reading.first_line) = (header, front_matter::FIRST_LINE);
    let mut fields = match front_matter::parse(header, front_matter::FIRST_LINE) {
        Ok(fields) => fields,
        Err(error) => return reading.yaml_error(error),
    };
    if let Some(line) = fields.unquoted {
        reading.leniency(Some(line), front_matter::NEEDS_QUOTES);
    }
    let map = &mut fields.map;
    let folder_name = skill.name.clone();
    read_name(reading, skill, map, &folder_name);
    read_description(reading, skill, map);
    skill.license = reading.text(map, "license");
    skill.compatibility = reading.text(map, "compatibility");
    if skill.compatibility.as_ref().is_some_and(|text| text.chars().count() > MAX_COMPATIBILITY) {
        let line = reading.line_of(&["compatibility"]);
        reading.leniency(line, format!("compatibility is longer than {MAX_COMPATIBILITY} characters"));
    }
    skill.metadata = reading.texts_by_name(map, "metadata");
    for key in ["allowed-tools", "allowed_tools"] {
        if let Some(node) = take(map, key) {
            if key == "allowed_tools" {
                let line = reading.line_of(&[key]);
                reading.leniency(line, "allowed_tools is allowed-tools in the standard: it was read as that");
            }
            let rules = tools::rules(reading, node, key);
            // Of both spellings each narrows, and what both allow is more than either's: the first counts.
            skill.allowed_tools = skill.allowed_tools.take().or(rules);
        }
    }
    if skill.source.is_jido() {
        read_jido(reading, skill, map);
    }
    read_keys_of_claude(reading, skill, map);
    for key in unknown_keys(map) {
        let line = reading.line_of(&[&key]);
        match reading.strictness {
            crate::Strictness::Lenient => reading.note(line, format!("the key {} is not known, and does nothing", quote(&key))),
            crate::Strictness::Strict => reading.error(line, format!("the key {} is not one of the standard", quote(&key))),
        }
    }
    let dialect = if skill.source == Source::Claude { Dialect::Claude } else { Dialect::Plain };
    skill.template = Template::parse(&skill.body, dialect);
}

fn read_name(reading: &mut Reading<'_>, skill: &mut Skill, map: &mut Map, folder_name: &str) {
    let line = reading.line_of(&["name"]);
    let Some(name) = reading.text(map, "name").map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()) else {
        if !is_usable(folder_name) {
            reading.error(line.or(Some(1)), format!("has no name, and neither can it be called {}, as its folder", quote(folder_name)));
        } else if reading.is_valid() {
            reading.leniency(line.or(Some(1)), format!("has no name: it is called {}, as its folder", quote(folder_name)));
        }
        return;
    };
    if !is_usable(&name) {
        let why = format!("the name {} has spaces, slashes or control characters, or is far too long", quote(&name));
        return if is_usable(folder_name) {
            reading.leniency(line, format!("{why}: it is called {}, as its folder", quote(folder_name)));
        } else {
            reading.error(line, why);
        };
    }
    if let Some(why) = name_fault(&name) {
        reading.leniency(line, format!("the name {} {why}", quote(&name)));
    }
    if name != folder_name {
        reading.leniency(line, format!("the name {} is not that of its folder, {}", quote(&name), quote(folder_name)));
    }
    skill.name = name;
}

/// Whether a name can be written as `/name`.
fn is_usable(name: &str) -> bool {
    name.len() <= 4 * MAX_NAME && !name.chars().any(|letter| letter.is_whitespace() || letter.is_control() || matches!(letter, '/' | '\\'))
}

/// How a name breaks the standard's form.
fn name_fault(name: &str) -> Option<&'static str> {
    if name.chars().count() > MAX_NAME {
        Some("is longer than 64 characters")
    } else if name.to_lowercase() != name {
        Some("is not in lower case")
    } else if name.starts_with('-') || name.ends_with('-') {
        Some("begins or ends with a hyphen")
    } else if name.contains("--") {
        Some("has two hyphens beside each other")
    } else if !name.chars().all(|letter| letter.is_alphanumeric() || letter == '-') {
        Some("has other characters than letters, digits and hyphens")
    } else {
        None
    }
}

fn read_description(reading: &mut Reading<'_>, skill: &mut Skill, map: &mut Map) {
    let line = reading.line_of(&["description"]);
    let description = reading.text(map, "description").unwrap_or_default();
    description.trim().clone_into(&mut skill.description);
    if skill.description.is_empty() {
        reading.error(line.or(Some(1)), "has no description, without which nobody knows when it is of use");
    } else if skill.description.chars().count() > MAX_DESCRIPTION {
        reading.leniency(line, format!("the description is longer than {MAX_DESCRIPTION} characters"));
    }
}

/// Keys of Claude Code that have a meaning here, and those that have none.
fn read_keys_of_claude(reading: &mut Reading<'_>, skill: &mut Skill, map: &mut Map) {
    if reading.strictness == crate::Strictness::Strict && !skill.source.is_jido() {
        (skill.for_model, skill.for_people) = (true, true);
        return;
    }
    skill.for_model = !reading.boolean(map, "disable-model-invocation").unwrap_or(false);
    skill.for_people = reading.boolean(map, "user-invocable").unwrap_or(true);
    for key in ["argument-hint", "when_to_use"] {
        take(map, key);
    }
    for (key, what) in [
        ("model", "the model of an agent does not follow it"),
        ("context", "it runs in the conversation that loads it"),
        ("agent", "it runs in the conversation that loads it"),
        ("hooks", "hooks of a repository are not run"),
        ("paths", "it is offered for all paths"),
    ] {
        if take(map, key).is_some() {
            let line = reading.line_of(&[key]);
            reading.note(line, format!("{key} does nothing: {what}"));
        }
    }
}

fn read_jido(reading: &mut Reading<'_>, skill: &mut Skill, map: &mut Map) {
    skill.version = reading.text(map, "version");
    if let Some(version) = skill.version.as_ref().filter(|version| !is_version(version)) {
        let (message, line) = (format!("the version {} is not x.y.z", quote(version)), reading.line_of(&["version"]));
        reading.leniency(line, message);
    }
    let line = reading.line_of(&["jido"]);
    let mut jido = match take(map, "jido") {
        None | Some(Node::Null) => return,
        Some(Node::Map(jido)) => jido,
        Some(node) => return reading.error(line, format!("jido is {}, not a map", node.kind())),
    };
    if let Some(actions) = take(&mut jido, "actions") {
        let line = reading.line_of(&["jido", "actions"]);
        skill.actions = reading.texts(actions, "jido.actions", line);
        for action in &skill.actions {
            if !tools::is_tool(action) {
                reading.error(line, format!("jido.actions names {}, which is no tool of Yoi's", quote(action)));
            }
        }
    }
    read_router(reading, skill, &mut jido);
    if let Some(module) = take(&mut jido, "skill_module") {
        let line = reading.line_of(&["jido", "skill_module"]);
        reading.note(
            line,
            format!("jido.skill_module {} does nothing: no code of a host is run", quote(&module.scalar().unwrap_or_default())),
        );
    }
    if take(&mut jido, "hooks").is_some() {
        let line = reading.line_of(&["jido", "hooks"]);
        reading.note(line, "jido.hooks does nothing: hooks of a repository are not run");
    }
    for key in unknown_keys(&mut jido) {
        let line = reading.line_of(&["jido", &key]);
        reading.error(line, format!("jido.{key} is not known"));
    }
}

fn read_router(reading: &mut Reading<'_>, skill: &mut Skill, jido: &mut Map) {
    let line = reading.line_of(&["jido", "router"]);
    let routes = match take(jido, "router") {
        None | Some(Node::Null) => return,
        Some(Node::List(routes)) if routes.len() <= MAX_ROUTES => routes,
        Some(Node::List(_)) => return reading.error(line, format!("jido.router has more than {MAX_ROUTES} routes")),
        Some(node) => return reading.error(line, format!("jido.router is {}, not a list", node.kind())),
    };
    for route in routes {
        let pair = match route {
            Node::Map(mut pairs) if pairs.len() == 1 => pairs.pop(),
            _ => None,
        };
        let Some((path, Some(action))) = pair.map(|(path, action)| (path, action.scalar())) else {
            reading.error(line, "jido.router has an entry that is not one path with its action");
            continue;
        };
        let is_letter = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || matches!(letter, '_' | '-');
        if !path.split('/').all(|segment| !segment.is_empty() && segment.chars().all(is_letter)) {
            reading.error(line, format!("jido.router has the path {}: its parts are of a-z, 0-9, _ and -", quote(&path)));
        } else if !skill.actions.contains(&action) {
            reading.error(line, format!("jido.router leads {} to {}, which jido.actions does not have", quote(&path), quote(&action)));
        } else {
            skill.routes.push(Route { signal: path.replace('/', "."), action });
        }
    }
}
