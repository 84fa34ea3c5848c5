//! `graph.yml`.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use crate::diagnostic::quote;
use crate::reading::{Reading, take};
use crate::yaml::{self, Node};

const MAX_INCLUDES: usize = 100;
const MAX_PATTERN: usize = 256;

/// What happens to a link that leads to no node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Unresolved {
    /// It is told, and there is no edge.
    #[default]
    Warn,
    /// A node without a file is made.
    Placeholder,
    /// The graph is invalid.
    Error,
}

/// What a `graph.yml` says.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    pub(super) path: String,
    pub(super) id: Option<String>,
    /// Of the folder that holds the nodes, below that of the file; empty: that one.
    pub(super) root: String,
    /// Which files below the root are nodes; `None`: all.
    pub(super) includes: Option<GlobSet>,
    pub(super) metadata: Vec<(String, String)>,
    pub(super) unresolved: Unresolved,
}

impl Settings {
    /// Whether a file, by its path below the graph's folder, is a node.
    pub(super) fn has(&self, below: &str) -> bool {
        let below =
            if self.root.is_empty() { Some(below) } else { below.strip_prefix(&self.root).and_then(|below| below.strip_prefix('/')) };
        below.is_some_and(|below| self.includes.as_ref().is_none_or(|includes| includes.is_match(below)))
    }
}

/// Reads it; `None`: it is invalid, as was told.
pub(super) fn read<'file>(reading: &mut Reading<'file>, text: &'file str) -> Option<Settings> {
    reading.header = text;
    let mut map = match yaml::parse(text) {
        Ok(Node::Map(map)) => map,
        Ok(Node::Null) => vec![],
        Ok(node) => {
            reading.error(Some(1), format!("is {}, not a map", node.kind()));
            return None;
        }
        Err(error) => {
            reading.yaml_error(error);
            return None;
        }
    };
    let mut settings = Settings { path: reading.path.to_owned(), id: reading.text(&mut map, "graph_id"), ..Settings::default() };
    let line = reading.line_of(&["root"]);
    let root = reading.text(&mut map, "root").unwrap_or_default();
    let root = root.trim_start_matches("./").trim_end_matches('/');
    if root.starts_with('/') || root.split('/').any(|name| name == "..") {
        reading.error(line, format!("the root {} leads out of the folder of the graph", quote(root)));
    } else if root != "." {
        root.clone_into(&mut settings.root);
    }
    let line = reading.line_of(&["includes"]);
    let includes = take(&mut map, "includes").map(|node| reading.texts(node, "includes", line)).unwrap_or_default();
    if !includes.is_empty() {
        settings.includes = patterns(reading, &includes, line);
    }
    settings.metadata = reading.texts_by_name(&mut map, "metadata");
    let line = reading.line_of(&["unresolved"]);
    settings.unresolved = match reading.text(&mut map, "unresolved").as_deref() {
        None | Some("warn_and_skip" | "warn") => Unresolved::Warn,
        Some("placeholder") => Unresolved::Placeholder,
        Some("error") => Unresolved::Error,
        Some(other) => {
            reading.error(line, format!("unresolved is {}: there are warn_and_skip, placeholder and error", quote(other)));
            Unresolved::Warn
        }
    };
    reading.is_valid().then_some(settings)
}

fn patterns(reading: &mut Reading<'_>, includes: &[String], line: Option<u32>) -> Option<GlobSet> {
    let mut set = GlobSetBuilder::new();
    if includes.len() > MAX_INCLUDES {
        reading.error(line, format!("includes has more than {MAX_INCLUDES} patterns"));
    }
    for pattern in includes.iter().take(MAX_INCLUDES) {
        match GlobBuilder::new(pattern.trim_start_matches("./")).literal_separator(true).build() {
            Ok(glob) if pattern.len() <= MAX_PATTERN => {
                set.add(glob);
            }
            Ok(_) => reading.error(line, format!("includes has a pattern longer than {MAX_PATTERN} bytes")),
            Err(error) => reading.error(line, format!("includes has {}, which is no pattern: {}", quote(pattern), error.kind())),
        }
    }
    set.build().map_err(|error| reading.error(line, format!("includes is too much: {}", error.kind()))).ok()
}
