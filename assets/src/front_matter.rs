//! Front matter: the YAML between two lines of `---` at the beginning of a file.

use crate::yaml::{self, MAX_YAML_BYTES, Map, Node, YamlError};

/// The first line of the YAML, where there is front matter: the line after the first `---`.
pub(crate) const FIRST_LINE: u32 = 2;

/// A file, cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parts<'text> {
    /// `None`: the file has no front matter.
    pub(crate) header: Option<&'text str>,
    pub(crate) body: &'text str,
    /// The line on which the body begins, from 1.
    pub(crate) body_line: u32,
}

/// The fields of a header.
#[derive(Clone, Debug)]
pub(crate) struct Fields {
    pub(crate) map: Map,
    /// The first line whose value needs quotes and has none. It was read as if it had them.
    pub(crate) unquoted: Option<u32>,
}

/// Cuts a file.
pub(crate) fn split(text: &str) -> Result<Parts<'_>, YamlError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.split_inclusive('\n');
    if lines.next().is_none_or(|line| line.trim_end() != "---") {
        return Ok(Parts { header: None, body: text, body_line: 1 });
    }
    let begin = text.find('\n').map_or(text.len(), |at| at + 1);
    let (mut end, mut line) = (begin, FIRST_LINE);
    for content in lines {
        if content.trim_end() == "---" {
            let body = &text[end + content.len()..];
            return Ok(Parts { header: Some(&text[begin..end]), body, body_line: line + 1 });
        }
        end += content.len();
        line += 1;
        if end - begin > MAX_YAML_BYTES {
            break;
        }
    }
    let message = if end - begin > MAX_YAML_BYTES {
        format!("has front matter that is longer than {} KiB", MAX_YAML_BYTES >> 10)
    } else {
        "has front matter without an end: a line of --- is missing".to_owned()
    };
    Err(YamlError { message, line: Some(1) })
}

/// Reads a header. The lines of errors are those of the file, where `first_line` is the one of the header's first.
pub(crate) fn parse(header: &str, first_line: u32) -> Result<Fields, YamlError> {
    let in_file = |line: u32| line + first_line - 1;
    let (node, unquoted) = match yaml::parse(header) {
        Ok(node) => (node, None),
        Err(error) => {
            let error = YamlError { message: format!("has front matter that {}", error.message), line: error.line.map(in_file) };
            let Some((quoted, line)) = quote_values(header) else { return Err(error) };
            (yaml::parse(&quoted).map_err(|_| error)?, Some(in_file(line)))
        }
    };
    match node {
        Node::Map(map) => Ok(Fields { map, unquoted }),
        Node::Null => Ok(Fields { map: vec![], unquoted }),
        other => Err(YamlError { message: format!("has front matter that is {}, not a map", other.kind()), line: Some(first_line) }),
    }
}

/// What is told of such a line.
pub(crate) const NEEDS_QUOTES: &str = "has a value that needs quotes, for a colon or for how it begins: it was read as if it had them";

/// The header with each value in quotes that needs them and has none, and the first such line; `None`: there is none.
fn quote_values(header: &str) -> Option<(String, u32)> {
    let (mut quoted, mut first) = (String::with_capacity(header.len() + 16), None);
    for (line, number) in header.split_inclusive('\n').zip(1_u32..) {
        match value_without_quotes(line) {
            Some((key, value)) => {
                let value = value.replace('\\', "\\\\").replace('"', "\\\"");
                quoted.extend([key, ": \"", &value, "\"\n"]);
                first = first.or(Some(number));
            }
            None => quoted.push_str(line),
        }
    }
    Some((quoted, first?))
}

/// The key, with what stands before it, and the value of a line whose value needs quotes. People write `description: Use when: ...`,
/// `argument-hint: [file] [mode]` and `allowed-tools: *`, which are no YAML.
fn value_without_quotes(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once(':')?;
    let value = value.strip_prefix([' ', '\t'])?.trim();
    let is_key = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.');
    let name = key.trim_start();
    let is_plain = !value.starts_with(['"', '\'', '[', '{', '|', '>', '&', '*', '!', '#', '%', '@', '`']);
    let has_colon = value.contains(": ") || value.ends_with(':');
    let is_no_list = value.starts_with('[') && value.contains("] ");
    let is_no_value = value.starts_with(['@', '`', '%', '*']);
    let needs_quotes = is_plain && has_colon || is_no_list || is_no_value;
    (!name.is_empty() && name.chars().all(is_key) && needs_quotes).then_some((key, value))
}
