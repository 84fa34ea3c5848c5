//! Reads a command of Gemini CLI.

use toml::{Table, Value};

use super::Command;
use super::markdown::{bare, describe, is_name};
use super::template::{Dialect, Template};
use crate::Source;
use crate::diagnostic::quote;
use crate::reading::Reading;

/// Reads a command; `below` is its path within the folder of commands: `a/b.toml` is `a:b`.
pub(crate) fn read(mut reading: Reading<'_>, source: Source, below: &str, content: Result<&str, (String, Option<u32>)>) -> Command {
    let name = below.strip_suffix(".toml").unwrap_or(below).replace('/', ":");
    let mut command = bare(&name, reading.path, source);
    match content {
        Ok(text) => read_text(&mut reading, &mut command, text),
        Err((reason, line)) => reading.error(line, reason),
    }
    if reading.is_valid() && !is_name(&name) {
        reading.error(None, format!("the name {} has other characters than letters, digits, -, _, : and .", quote(&name)));
    }
    command.state = reading.into_state();
    command
}

fn read_text(reading: &mut Reading<'_>, command: &mut Command, text: &str) {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut table = match text.parse::<Table>() {
        Ok(table) => table,
        Err(error) => {
            let line = error.span().and_then(|span| text.get(..span.start)).map(|before| before.matches('\n').count() + 1);
            let line = line.and_then(|line| u32::try_from(line).ok());
            return reading.error(line, format!("is no TOML: {}", error.message()));
        }
    };
    let line_of = |key: &str| {
        let is_key = |line: &str| {
            line.trim_start()
                .trim_start_matches(['"', '\''])
                .strip_prefix(key)
                .is_some_and(|rest| rest.trim_start_matches(['"', '\'']).trim_start().starts_with('='))
        };
        text.lines().zip(1_u32..).find(|(line, _)| is_key(line)).map(|(_, line)| line)
    };
    match table.remove("prompt") {
        Some(Value::String(prompt)) if !prompt.trim().is_empty() => command.body = prompt,
        Some(Value::String(_)) => reading.error(line_of("prompt"), "has an empty prompt"),
        Some(_) => reading.error(line_of("prompt"), "has a prompt that is not text"),
        None => reading.error(Some(1), "has no prompt"),
    }
    match table.remove("description") {
        None => {}
        Some(Value::String(description)) => description.trim().clone_into(&mut command.description),
        Some(_) => reading.error(line_of("description"), "has a description that is not text"),
    }
    for key in table.keys().take(20) {
        reading.note(line_of(key), format!("the key {} is not known, and does nothing", quote(key)));
    }
    command.template = Template::parse(&command.body, Dialect::Gemini);
    describe(command);
    if command.template.has_parameter_in_shell() {
        reading.note(
            None,
            "puts its arguments into a line for a shell: that line is told to the model as text, because no parameter reaches a shell",
        );
    }
}
