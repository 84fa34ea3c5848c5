//! The tool Glob.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use globset::GlobMatcher;
use schemars::JsonSchema;
use serde::Deserialize;
use yoi_wire::entry::ToolOutcome;
use yoi_wire::manifest::RunLimits;

use crate::decision::Refusal;
use crate::tools::arguments::{invalid, not_empty, not_null};
use crate::tools::result::{CallResult, LiveOutput};
use crate::tools::search::{Search, StopSearch, glob};
use crate::tools::tool::{ToolContext, TypedTool, default_time_limit};
use crate::tools::tree::Tree;

/// The most paths of one answer.
const MAX_PATHS: usize = 1000;

/// Finds files by their names.
pub struct Glob;

// No doc comment: it would be in the schema.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Args {
    /// Pattern for paths relative to the root of the tree, such as `src/**/*.rs`. Without `/` it matches names at any depth.
    #[serde(deserialize_with = "not_empty")]
    #[schemars(length(min = 1))]
    pattern: String,
    /// Folder to look in, relative to the root of the tree, which is the default.
    #[serde(default, deserialize_with = "not_null")]
    path: Option<String>,
    /// Find files too that .gitignore leaves out.
    #[serde(default)]
    ignored_too: bool,
}

impl Args {
    fn glob(&self) -> Result<GlobMatcher, Refusal> {
        glob(&self.pattern).map_err(|problem| invalid(format_args!("/pattern: {:?} {problem}", self.pattern)))
    }

    fn path(&self) -> &str {
        self.path.as_deref().unwrap_or(".")
    }
}

impl TypedTool for Glob {
    type Args = Args;
    const NAME: &'static str = "Glob";
    const READS_ONLY: bool = true;

    fn description(&self, _limits: &RunLimits) -> String {
        format!("Find files by a pattern of their paths. Returns paths relative to the root of the tree, sorted, at most {MAX_PATHS}.")
    }

    fn check(&self, context: &ToolContext, args: &Args) -> Result<(), Refusal> {
        args.glob()?;
        context.check_path(args.path())
    }

    async fn run(&self, context: &ToolContext, args: Args, _live: &LiveOutput) -> CallResult {
        let matcher = match args.glob() {
            Ok(matcher) => matcher,
            Err(refusal) => return CallResult::refused(refusal),
        };
        // Some time is left to say what was found until then.
        let (stop, _cancel) = StopSearch::after(default_time_limit(&context.limits).mul_f64(0.9));
        let search = Search { path: args.path().to_owned(), ignored_too: args.ignored_too, stop };
        let bytes = context.output_bytes();
        context.search_tree(move |tree| find(tree, &search, &matcher, bytes)).await
    }
}

#[derive(Default)]
struct Found {
    /// The first ones by their order.
    paths: BTreeSet<PathBuf>,
    total: usize,
}

fn find(tree: &Tree, search: &Search, matcher: &GlobMatcher, bytes: usize) -> CallResult {
    let found = Mutex::new(Found::default());
    let visited = search.visit(tree, true, || {
        |path: &Path| {
            // A link counts as the file that it leads to, if that is in the tree.
            if !matcher.is_match(path) || !path.to_str().is_none_or(|text| tree.kind(text).is_ok_and(|kind| kind.is_file())) {
                return;
            }
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            found.total += 1;
            found.paths.insert(path.to_owned());
            if found.paths.len() > MAX_PATHS {
                found.paths.pop_last();
            }
        }
    });
    let complete = match visited {
        Ok(complete) => complete,
        Err(error) => return error.into(),
    };
    let Found { paths, total } = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    let (mut text, mut shown) = (String::new(), 0);
    for path in &paths {
        let line = format!("{}\n", path.display());
        if text.len() + line.len() + 200 > bytes {
            break;
        }
        text.push_str(&line);
        shown += 1;
    }
    match total {
        _ if shown < total => text.push_str(&format!("[{shown} of {total} files]")),
        0 => text.push_str("[no files]"),
        _ => text.push_str(&format!("[{total} files]")),
    }
    if complete {
        CallResult::succeeded(text)
    } else {
        CallResult::new(ToolOutcome::TimedOut, text + "\n[the time limit was reached; there may be more]")
    }
}
