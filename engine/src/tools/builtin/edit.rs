//! The tool Edit.

use std::io::Read as _;

use schemars::JsonSchema;
use serde::Deserialize;
use yoi_wire::manifest::RunLimits;

use crate::decision::Refusal;
use crate::error_text::without_os_error_number;
use crate::tools::arguments::{invalid, not_empty, not_null, some_not_empty};
use crate::tools::result::{CallResult, LiveOutput};
use crate::tools::tool::{ToolContext, TypedTool};
use crate::tools::tree::Tree;

/// The longest file that Edit reads into memory.
const MAX_BYTES: u64 = 16 << 20;

/// Replaces pieces of a file.
pub struct Edit;

// No doc comment: it would be in the schema.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Args {
    /// Path relative to the root of the tree.
    path: String,
    /// For one replacement: the text that is there now.
    #[serde(default, deserialize_with = "some_not_empty")]
    #[schemars(length(min = 1))]
    old: Option<String>,
    /// For one replacement: the text that takes its place.
    #[serde(default, deserialize_with = "not_null")]
    new: Option<String>,
    /// For one replacement: replace `old` wherever it stands.
    #[serde(default)]
    all: bool,
    /// For several replacements, made in this order: all of them, or none when one cannot be made.
    #[serde(default, deserialize_with = "not_null")]
    edits: Option<Vec<Replacement>>,
}

// No doc comment: it would be in the schema.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Replacement {
    /// The text that is there now.
    #[serde(deserialize_with = "not_empty")]
    #[schemars(length(min = 1))]
    old: String,
    /// The text that takes its place.
    new: String,
    /// Replace `old` wherever it stands.
    #[serde(default)]
    all: bool,
}

impl Args {
    fn replacements(&self) -> Result<Vec<Replacement>, Refusal> {
        match (&self.old, &self.new, &self.edits) {
            (Some(old), Some(new), None) => Ok(vec![Replacement { old: old.clone(), new: new.clone(), all: self.all }]),
            (None, None, Some(edits)) if !edits.is_empty() && !self.all => Ok(edits.clone()),
            (Some(_), None, None) => Err(invalid("missing field `new`")),
            (None, _, None) => Err(invalid("missing field `old`, or `edits`")),
            (None, None, Some(edits)) if edits.is_empty() => Err(invalid("/edits: must not be empty")),
            (_, _, Some(_)) => Err(invalid("/edits: give either `edits`, or `old`, `new` and `all`")),
        }
    }
}

impl TypedTool for Edit {
    type Args = Args;
    const NAME: &'static str = "Edit";

    fn description(&self, _limits: &RunLimits) -> String {
        "Replace pieces of a text file: one by `old` and `new`, or several at once by `edits`. Each `old` must be in the file exactly once, \
         unless `all` is true. Line endings are kept as the file has them."
            .to_owned()
    }

    fn check(&self, context: &ToolContext, args: &Args) -> Result<(), Refusal> {
        args.replacements()?.iter().try_for_each(|replacement| context.check_new_text(&replacement.new))?;
        context.check_path(&args.path)
    }

    async fn run(&self, context: &ToolContext, args: Args, _live: &LiveOutput) -> CallResult {
        match args.replacements() {
            Ok(replacements) => context.run_on_tree(move |tree| edit(tree, &args.path, &replacements)).await,
            Err(refusal) => CallResult::refused(refusal),
        }
    }
}

fn edit(tree: &Tree, path: &str, replacements: &[Replacement]) -> CallResult {
    let file = match tree.read(path) {
        Ok(file) => file,
        Err(error) => return error.into(),
    };
    let mut content = Vec::new();
    match file.take(MAX_BYTES + 1).read_to_end(&mut content) {
        Ok(read) if read as u64 > MAX_BYTES => {
            return CallResult::failed(format!("{path:?} is longer than {MAX_BYTES} bytes"));
        }
        Ok(_) => {}
        Err(error) => return CallResult::failed(without_os_error_number(&format!("{path:?}: {error}"))),
    }
    let Ok(mut text) = String::from_utf8(content) else {
        return CallResult::failed(format!("{path:?} is not UTF-8 text; change it by a program with Shell"));
    };
    let mut replaced = 0;
    for (index, replacement) in replacements.iter().enumerate() {
        match replace(&text, replacement) {
            Ok((changed, count)) => {
                text = changed;
                replaced += count;
            }
            Err(problem) if replacements.len() == 1 => return CallResult::failed(format!("{path:?} {problem}")),
            Err(problem) => return CallResult::failed(format!("/edits/{index}: {path:?} {problem}; nothing was changed")),
        }
    }
    match tree.replace(path, text.as_bytes()) {
        Ok(()) => CallResult::succeeded(format!("replaced {replaced} in {path}")),
        Err(error) => error.into(),
    }
}

/// The text with one replacement, and how many places it had. The problem is a clause that continues the name of the file.
fn replace(text: &str, Replacement { old, new, all }: &Replacement) -> Result<(String, usize), String> {
    let crlf_only = text.contains("\r\n") && text.matches('\n').count() == text.matches("\r\n").count();
    let exact = text.matches(old.as_str()).count();
    // Models write lines that end in LF, whatever the file has.
    let (old, new, count) = if exact == 0 {
        let old = with_crlf(old);
        let count = text.matches(&old).count();
        (old, with_crlf(new), count)
    } else {
        (old.clone(), if crlf_only { with_crlf(new) } else { new.clone() }, exact)
    };
    match count {
        0 => Err("does not hold the old text; read it again".to_owned()),
        2.. if !all => Err(format!("holds the old text {count} times; give more of its surroundings, or set all")),
        _ => Ok((text.replace(&old, &new), count)),
    }
}

fn with_crlf(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\n', "\r\n")
}
