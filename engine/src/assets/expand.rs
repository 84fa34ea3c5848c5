//! What a person's `/name arguments` stands for. A parameter is inserted once, as it is; no shell reads the text.

use std::io::Read as _;
use std::sync::Arc;

use serde_json::json;
use yoi_assets::{AssetSnapshot, AssetState, Part, RenderError, Rendered, Source, Trigger};
use yoi_wire::entry::{CallFrom, ToolCall};
use yoi_wire::policy::ToolPolicy;

use crate::decision::{Decision, Refusal};
use crate::policy::{PathTarget, Policy};
use crate::tools::ToolGate;
use crate::tools::output_limit::truncate;

/// Bytes of the text that a command stands for.
const MAX_TEXT_BYTES: usize = 256 << 10;
/// Files and shell lines of one command.
const MAX_CALLS: usize = 32;

/// What comes of a text that looks like a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expansion {
    /// It is none: the model reads it as it is.
    NoCommand,
    /// What the model reads after the person's words.
    Text {
        /// With the command's name and file before it.
        text: String,
        /// Its file.
        path: String,
    },
    /// It has no effect, and this is why: a sentence for whoever sent it.
    Refused {
        /// What is wrong with which command, and what to do.
        message: String,
    },
}

/// Whether a text begins with the name of a command. Whether there is one of that name, only the assets know.
#[must_use]
pub fn looks_like_command(text: &str) -> bool {
    split(text).is_some()
}

/// Name and arguments. A path is no name: it has a second `/`.
fn split(text: &str) -> Option<(&str, &str)> {
    let rest = text.trim_start().strip_prefix('/')?;
    let (name, arguments) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let of_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | ':' | '.');
    (name.starts_with(char::is_alphanumeric) && name.chars().all(of_name)).then(|| (name, arguments.trim()))
}

/// Expands a person's text. A skill of that name comes before a command. Blocks, while files are read.
#[must_use]
pub fn expand(tools: &ToolGate, text: &str) -> Expansion {
    let Some((name, arguments)) = split(text) else { return Expansion::NoCommand };
    let snapshot = tools.runner().assets().current();
    if let Some(skill) = snapshot.skill(name).filter(|skill| skill.for_people && skill.state.is_valid()) {
        let of_set = tools.runner().assets().folder_in_set(&skill.path).map(|folder| folder.display().to_string());
        let files = if skill.source == Source::Team { of_set } else { Some(skill.folder.clone()) };
        let files = files.map(|folder| format!("; its files are in {folder}")).unwrap_or_default();
        let head = format!("[The skill {name} of {}{files}]\n", skill.path);
        return expanded(tools, &skill.path, head, skill.allowed_tools.as_deref(), skill.render(arguments));
    }
    let Some(command) = snapshot.command(name) else { return of_workflow(&snapshot, name) };
    match &command.state {
        AssetState::Valid => {
            let head = format!("[The command /{name} of {}]\n", command.path);
            expanded(tools, &command.path, head, command.allowed_tools.as_deref(), command.render(arguments))
        }
        AssetState::Disabled | AssetState::Shadowed { .. } => Expansion::NoCommand,
        AssetState::Invalid { reason, line } => {
            let line = line.map(|line| format!(" line {line}")).unwrap_or_default();
            Expansion::Refused { message: format!("/{name} did nothing: {}{line} is not as it should be: {reason}", command.path) }
        }
    }
}

/// What becomes of the name of a workflow, or of the command that starts one: nothing is run, and it is said.
fn of_workflow(snapshot: &AssetSnapshot, name: &str) -> Expansion {
    let starts = |trigger: &Trigger| match trigger {
        Trigger::Manual { command } => command.as_ref().is_some_and(|command| command.trim_start_matches('/') == name),
        Trigger::Signal { .. } | Trigger::Scheduled { .. } | Trigger::FileSystem { .. } | Trigger::GitHook { .. } => false,
    };
    let of_trigger = snapshot.triggers.iter().find(|trigger| trigger.trigger.as_ref().is_some_and(starts)).map(|trigger| &trigger.workflow);
    let found = snapshot.workflow(name).or_else(|| snapshot.workflow(of_trigger?));
    let of_file = || snapshot.workflows.iter().find(|workflow| workflow.triggers.iter().any(starts)).map(Arc::as_ref);
    let Some(workflow) = found.or_else(of_file) else {
        return Expansion::NoCommand;
    };
    let why = match &workflow.state {
        AssetState::Valid => "workflows are not run yet".to_owned(),
        AssetState::Disabled => "its file says that it is disabled".to_owned(),
        AssetState::Shadowed { by } => format!("{by} has the same name, and comes first"),
        AssetState::Invalid { reason, line: Some(line) } => format!("line {line} is not as it should be: {reason}"),
        AssetState::Invalid { reason, line: None } => format!("it is not as it should be: {reason}"),
    };
    Expansion::Refused { message: format!("/{name} did nothing: {} is the workflow {}, and {why}", workflow.path, workflow.name) }
}

fn expanded(
    tools: &ToolGate,
    path: &str,
    head: String,
    allowed_tools: Option<&[String]>,
    rendered: Result<Rendered, RenderError>,
) -> Expansion {
    let Rendered { parts } = match rendered {
        Ok(rendered) => rendered,
        Err(error) => return Expansion::Refused { message: format!("nothing was done with {path}: {error}") },
    };
    let own = allowed_tools.map(|rules| OwnRules::new(path, rules));
    let (mut text, mut calls) = (head, 0);
    for part in &parts {
        let call = match part {
            Part::Text(more) => {
                text.push_str(more);
                continue;
            }
            Part::Shell { command } => shell_call(command),
            Part::File { path } => read_call(path),
        };
        calls += 1;
        let decided = if calls > MAX_CALLS {
            Err(too_many_calls())
        } else {
            decide(tools, &call).and_then(|()| own.as_ref().map_or(Ok(()), |own| own.check(&call)))
        };
        text.push_str(&match (part, decided) {
            (Part::Shell { command }, Ok(())) => format!("[Run this with the tool Shell; its output belongs here: {command}]"),
            (Part::Shell { command }, Err(why)) => format!("[Not run: {command}: {why}]"),
            (Part::File { path }, Ok(())) => match file(tools, path) {
                Ok(content) => format!("[The file {path}:]\n{content}\n[End of the file {path}]"),
                Err(why) => format!("[Not read: {path}: {why}]"),
            },
            (Part::File { path }, Err(why)) => format!("[Not read: {path}: {why}]"),
            (Part::Text(_), _) => String::new(),
        });
    }
    Expansion::Text { text: truncate(text, MAX_TEXT_BYTES), path: path.to_owned() }
}

/// The text of a command for a model that asks for it. Each shell line and each file of it is a sentence: the model makes those calls, so each passes the
/// gate as any call. What does not match `allowed-tools` is left out and named.
///
/// # Errors
/// There is no such command for a model, or the arguments are not what it takes; a sentence.
pub fn text_of_command(snapshot: &AssetSnapshot, name: &str, arguments: &str) -> Result<String, String> {
    let for_model = || snapshot.commands.iter().filter(|command| command.for_model && command.state.is_valid());
    let Some(command) = for_model().find(|command| command.name == name) else {
        let names: Vec<&str> = for_model().map(|command| command.name.as_str()).collect();
        let there = if names.is_empty() { "none at all".to_owned() } else { names.join(", ") };
        let why = match snapshot.command(name).map(|command| (&command.path, &command.state)) {
            Some((path, AssetState::Invalid { reason, .. })) => format!("{path} is not as it should be, so nothing was done: {reason}; "),
            Some(_) | None => String::new(),
        };
        return Err(format!("/name: there is no command {name:?} for you: {why}there is {there}"));
    };
    let Rendered { parts } = command.render(arguments).map_err(|error| format!("/arguments: {error}"))?;
    let own = command.allowed_tools.as_deref().map(|rules| OwnRules::new(&command.path, rules));
    let (mut text, mut calls) = (format!("[The command /{name} of {}]\n", command.path), 0);
    for part in &parts {
        let (call, sentence) = match part {
            Part::Text(more) => {
                text.push_str(more);
                continue;
            }
            Part::Shell { command } => (shell_call(command), format!("Run this in a shell; its output belongs here: {command}")),
            Part::File { path } => (read_call(path), format!("Read this file; its text belongs here: {path}")),
        };
        calls += 1;
        let decided = if calls > MAX_CALLS { Err(too_many_calls()) } else { own.as_ref().map_or(Ok(()), |own| own.check(&call)) };
        text.push_str(&decided.map_or_else(|why| format!("[Left out, {why}: {}]", call.args), |()| format!("[{sentence}]")));
    }
    Ok(truncate(text, MAX_TEXT_BYTES))
}

fn shell_call(command: &str) -> ToolCall {
    ToolCall { call_id: String::new(), tool: "Shell".to_owned(), args: json!({ "command": command }) }
}

fn read_call(path: &str) -> ToolCall {
    ToolCall { call_id: String::new(), tool: "Read".to_owned(), args: json!({ "path": path }) }
}

fn too_many_calls() -> String {
    format!("a command has at most {MAX_CALLS} files and shell lines")
}

/// What the gate says to a call of the command's own, at the moment of its expansion. Nobody can be asked then.
fn decide(tools: &ToolGate, call: &ToolCall) -> Result<(), String> {
    match (tools.begin(call, CallFrom::Model), call.tool.as_str()) {
        (Decision::Allow, _) => Ok(()),
        // The model makes the call, so a person is asked about it then.
        (Decision::Ask(_), "Shell") => Ok(()),
        (Decision::Ask(_), _) => Err("the policy has a person asked about it; read it with the tool Read".to_owned()),
        (Decision::Refuse(refusal), _) => Err(refusal.message),
    }
}

fn file(tools: &ToolGate, path: &str) -> Result<String, String> {
    let (tree, limit) = (tools.runner().tree(), tools.runner().output_bytes());
    let mut content = Vec::new();
    let file = tree.read(path).map_err(|error| error.to_string())?;
    file.take(limit as u64 + 1).read_to_end(&mut content).map_err(|error| error.to_string())?;
    let is_cut = content.len() > limit;
    content.truncate(limit);
    let text = match String::from_utf8(content) {
        Ok(text) => text,
        Err(error) if is_cut && error.utf8_error().error_len().is_none() => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        Err(_) => return Err("it is no text".to_owned()),
    };
    let text = tools.runner().redact(text);
    Ok(if is_cut { format!("{text}\n[cut here; Read has the rest]") } else { text })
}

/// The `allowed-tools` of a command, for the calls that stand in the command itself. It takes away from what the policy allows, and adds nothing.
enum OwnRules {
    Policy(Box<Policy>),
    Unreadable(String),
}

impl OwnRules {
    fn new(path: &str, rules: &[String]) -> Self {
        let policy = ToolPolicy { allow: vec![rules.to_vec()], keep_secrets: true, ..ToolPolicy::default() };
        match Policy::new(&policy) {
            Ok(policy) => Self::Policy(Box::new(policy)),
            Err(error) => Self::Unreadable(format!("allowed-tools of {path} cannot be read: {error}")),
        }
    }

    fn check(&self, call: &ToolCall) -> Result<(), String> {
        match self {
            Self::Policy(policy) => {
                let inside = |given: &str| PathTarget::Inside(given.into());
                match policy.check(&call.tool, &call.args, &inside) {
                    Ok(_) => Ok(()),
                    Err(Refusal { .. }) => Err("the allowed-tools of the command do not name it".to_owned()),
                }
            }
            Self::Unreadable(why) => Err(why.clone()),
        }
    }
}
