//! What all readers of files share: where they tell what is wrong, and how they take fields.

use crate::diagnostic::{Diagnostics, cut, quote};
use crate::yaml::{Map, Node, YamlError};
use crate::{AssetState, Level, Strictness};

/// One file while it is read.
pub(crate) struct Reading<'file> {
    pub(crate) path: &'file str,
    pub(crate) strictness: Strictness,
    pub(crate) diagnostics: &'file mut Diagnostics,
    /// The YAML of the file, in which keys are looked for.
    pub(crate) header: &'file str,
    /// The line of the YAML's first, from 1.
    pub(crate) first_line: u32,
    state: AssetState,
}

impl<'file> Reading<'file> {
    pub(crate) fn new(path: &'file str, strictness: Strictness, diagnostics: &'file mut Diagnostics) -> Self {
        diagnostics.begin_file();
        Self { path, strictness, diagnostics, header: "", first_line: 1, state: AssetState::Valid }
    }

    /// The asset is invalid. The first reason is the one that its state tells.
    pub(crate) fn error(&mut self, line: Option<u32>, message: impl Into<String>) {
        let message = cut(message.into());
        if self.state.is_valid() {
            self.state = AssetState::invalid(message.clone(), line);
        }
        self.diagnostics.push(self.path, line, Level::Error, message);
    }

    pub(crate) fn yaml_error(&mut self, error: YamlError) {
        self.error(error.line, error.message);
    }

    /// It is read although it is not as its format has it. An error where leniency is not wanted.
    pub(crate) fn leniency(&mut self, line: Option<u32>, message: impl Into<String>) {
        match self.strictness {
            Strictness::Lenient => self.diagnostics.push(self.path, line, Level::Warning, message),
            Strictness::Strict => self.error(line, message),
        }
    }

    pub(crate) fn warning(&mut self, line: Option<u32>, message: impl Into<String>) {
        self.diagnostics.push(self.path, line, Level::Warning, message);
    }

    pub(crate) fn note(&mut self, line: Option<u32>, message: impl Into<String>) {
        self.diagnostics.push(self.path, line, Level::Note, message);
    }

    pub(crate) fn is_valid(&self) -> bool {
        self.state.is_valid()
    }

    pub(crate) fn into_state(self) -> AssetState {
        self.state
    }

    /// The line of a key in the YAML: the last of the path, each within the one before.
    pub(crate) fn line_of(&self, keys: &[&str]) -> Option<u32> {
        let mut lines = self.header.lines().zip(self.first_line..);
        let mut found = None;
        for (depth, key) in keys.iter().enumerate() {
            let (_, line) = lines.find(|(line, _)| {
                let name = line.trim_start().trim_start_matches("- ").trim_start_matches(['"', '\'']);
                let rest = name.strip_prefix(key).map(|rest| rest.trim_start_matches(['"', '\'']).trim_start());
                (depth > 0 || !line.starts_with([' ', '\t'])) && rest.is_some_and(|rest| rest.starts_with(':'))
            })?;
            found = Some(line);
        }
        found
    }

    /// Takes a field as text. A field with nothing is none. One that is a list or a map is an error.
    pub(crate) fn text(&mut self, map: &mut Map, key: &str) -> Option<String> {
        match take(map, key)? {
            Node::Null => None,
            node @ (Node::List(_) | Node::Map(_)) => {
                let line = self.line_of(&[key]);
                self.error(line, format!("{key} is {}, not text", node.kind()));
                None
            }
            node => node.scalar(),
        }
    }

    /// Takes a field as a boolean. Other than that is an error.
    pub(crate) fn boolean(&mut self, map: &mut Map, key: &str) -> Option<bool> {
        match take(map, key)? {
            Node::Null => None,
            Node::Bool(value) => Some(value),
            Node::Text(text) if matches!(text.as_str(), "true" | "yes" | "on") => Some(true),
            Node::Text(text) if matches!(text.as_str(), "false" | "no" | "off") => Some(false),
            node => {
                let line = self.line_of(&[key]);
                self.error(line, format!("{key} is {}, not true or false", node.kind()));
                None
            }
        }
    }

    /// Takes a field as a map of texts.
    pub(crate) fn texts_by_name(&mut self, map: &mut Map, key: &str) -> Vec<(String, String)> {
        let line = self.line_of(&[key]);
        let fields = match take(map, key) {
            None | Some(Node::Null) => return vec![],
            Some(Node::Map(fields)) => fields,
            Some(node) => {
                self.leniency(line, format!("{key} is {}, not a map, and is left out", node.kind()));
                return vec![];
            }
        };
        let mut texts = vec![];
        for (name, value) in fields {
            match value.scalar() {
                Some(text) => texts.push((name, text)),
                None => self.leniency(line, format!("{key} has {} that is {}, not text, and is left out", quote(&name), value.kind())),
            }
        }
        texts
    }

    /// A list of texts; a single text is a list of one.
    pub(crate) fn texts(&mut self, node: Node, what: &str, line: Option<u32>) -> Vec<String> {
        let items = match node {
            Node::Null => vec![],
            Node::List(items) => items,
            node => vec![node],
        };
        let mut texts = vec![];
        for item in items {
            match item.scalar() {
                Some(text) => texts.push(text),
                None => self.error(line, format!("{what} has {}, not text", item.kind())),
            }
        }
        texts
    }
}

/// How many keys that are not known are told of one map.
const MAX_UNKNOWN: usize = 20;

/// The keys that nobody took, as far as they are told.
pub(crate) fn unknown_keys(map: &mut Map) -> impl Iterator<Item = String> + use<> {
    std::mem::take(map).into_iter().map(|(key, _)| key).take(MAX_UNKNOWN)
}

/// Takes a field out of a map.
pub(crate) fn take(map: &mut Map, key: &str) -> Option<Node> {
    let at = map.iter().position(|(name, _)| name == key)?;
    Some(map.remove(at).1)
}

/// The name of a file without folder and ending.
pub(crate) fn stem(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.rsplit_once('.').map_or(name, |(stem, _)| stem)
}

/// `x.y.z`, each a number.
pub(crate) fn is_version(text: &str) -> bool {
    let mut parts = text.split('.');
    let is_number = |part: &str| !part.is_empty() && part.len() <= 9 && part.bytes().all(|letter| letter.is_ascii_digit());
    parts.by_ref().take(3).filter(|part| is_number(part)).count() == 3 && parts.next().is_none()
}
