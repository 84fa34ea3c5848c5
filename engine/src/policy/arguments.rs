//! Paths and hosts in the arguments of a call, whatever its tool: programs and MCP servers name theirs as they like.

use reqwest::Url;
use serde_json::Value;

use super::plain_host;

/// Members with such a name, or with `path` in it, are paths.
const PATH_NAMES: [&str; 14] = [
    "file",
    "files",
    "filename",
    "file_name",
    "cwd",
    "dir",
    "directory",
    "folder",
    "target",
    "root",
    "destination",
    "source_file",
    "notebook",
    "workdir",
];
/// A member with one of these in its name is a URL or a host.
const HOST_NAMES: [&str; 5] = ["url", "uri", "host", "domain", "endpoint"];
/// Members that hold what is written or looked for, or words for people. What looks like a path in them is none.
const TEXT_NAMES: [&str; 24] = [
    "content",
    "contents",
    "text",
    "old",
    "new",
    "old_string",
    "new_string",
    "old_str",
    "new_str",
    "file_text",
    "insert_line",
    "new_source",
    "patch",
    "diff",
    "command",
    "cmd",
    "script",
    "prompt",
    "description",
    "message",
    "pattern",
    "query",
    "body",
    "edits",
];
/// Bytes of a text that is looked through for JSON.
const MAX_JSON_BYTES: usize = 64 << 10;
/// How deep JSON in JSON is looked through.
const MAX_DEPTH: usize = 64;

/// All paths: values of members that are paths by their name, at any depth, in JSON that stands as text, and in `path=`.
pub fn paths_in(args: &Value) -> Vec<String> {
    let mut found = Vec::new();
    visit(args, "", 0, &mut |name, text| {
        let name = name.to_ascii_lowercase();
        if name.contains("path") || PATH_NAMES.contains(&name.as_str()) {
            found.push(text.to_owned());
        }
        for (at, _) in text.match_indices("path=") {
            let value = text.get(at + 5..).unwrap_or_default().trim_start_matches(['"', '\'']);
            let end =
                value.find(|letter: char| letter.is_whitespace() || matches!(letter, '"' | '\'' | '&' | ',' | ';')).unwrap_or(value.len());
            found.extend(value.get(..end).filter(|value| !value.is_empty()).map(str::to_owned));
        }
    });
    found
}

/// Names of variables that a call sets: members of an object `env` or `environment` at any depth, or what stands before `=` in the texts of such a list.
pub fn variables_in(args: &Value) -> Vec<String> {
    let mut found = Vec::new();
    add_variables(args, 0, &mut found);
    found
}

fn add_variables(value: &Value, depth: usize, found: &mut Vec<String>) {
    if depth > MAX_DEPTH {
        return;
    }
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                if matches!(name.to_ascii_lowercase().as_str(), "env" | "environment") {
                    found.extend(variables_of(member));
                }
                add_variables(member, depth + 1, found);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| add_variables(value, depth + 1, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn variables_of(env: &Value) -> Vec<String> {
    match env {
        Value::Object(members) => members.keys().cloned().collect(),
        Value::Array(values) => values.iter().filter_map(|text| Some(text.as_str()?.split('=').next()?.to_owned())).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

/// All hosts, with the schemes of their URLs. `everywhere`: also those of URLs in texts.
pub fn hosts_in(args: &Value, everywhere: bool) -> Vec<(Option<String>, String)> {
    let mut found = Vec::new();
    let mut add_url = |text: &str| match Url::parse(text) {
        Ok(url) if text.contains("://") => {
            let host = url.host_str().unwrap_or_default().trim_end_matches('.').to_ascii_lowercase();
            found.push((Some(url.scheme().to_owned()), host));
            true
        }
        Ok(_) | Err(_) => false,
    };
    let mut hosts = Vec::new();
    let mut look = |name: &str, text: &str| {
        let name = name.to_ascii_lowercase();
        if HOST_NAMES.iter().any(|part| name.contains(part)) && !add_url(text.trim()) {
            hosts.extend(plain_host(text.trim()).map(|host| (None, host)));
        } else if everywhere {
            let words = text.split(|letter: char| letter.is_whitespace() || matches!(letter, '"' | '\'' | '<' | '>' | '(' | ')' | ','));
            for word in words.filter(|word| word.contains("://")) {
                add_url(word);
            }
        }
    };
    if everywhere {
        visit_all(args, "", 0, &mut look);
    } else {
        visit(args, "", 0, &mut look);
    }
    found.extend(hosts);
    found
}

/// How members and elements are visited: [`visit`] or [`visit_all`].
type Visit = fn(&Value, &str, usize, &mut dyn FnMut(&str, &str));

/// Calls `look` with each text and the name of its member, but for texts that are no arguments.
fn visit(value: &Value, name: &str, depth: usize, look: &mut dyn FnMut(&str, &str)) {
    if TEXT_NAMES.contains(&name.to_ascii_lowercase().as_str()) && !value.is_object() && !value.is_array() {
        return;
    }
    walk(value, name, depth, look, visit);
}

fn visit_all(value: &Value, name: &str, depth: usize, look: &mut dyn FnMut(&str, &str)) {
    walk(value, name, depth, look, visit_all);
}

fn walk(value: &Value, name: &str, depth: usize, look: &mut dyn FnMut(&str, &str), next: Visit) {
    if depth > MAX_DEPTH {
        return;
    }
    match value {
        Value::String(text) => {
            look(name, text);
            let looks_like_json = text.trim_start().starts_with(['{', '[']) && text.len() <= MAX_JSON_BYTES;
            if let Some(inner) = looks_like_json.then(|| serde_json::from_str::<Value>(text).ok()).flatten() {
                next(&inner, name, depth + 1, look);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| next(value, name, depth + 1, look)),
        Value::Object(members) => members.iter().for_each(|(name, value)| next(value, name, depth + 1, look)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
