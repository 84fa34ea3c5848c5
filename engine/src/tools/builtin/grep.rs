//! The tool Grep.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use globset::GlobMatcher;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkFinish, SinkMatch};
use schemars::JsonSchema;
use serde::Deserialize;
use yoi_wire::entry::ToolOutcome;
use yoi_wire::manifest::RunLimits;

use crate::decision::Refusal;
use crate::policy::Policy;
use crate::tools::arguments::{invalid, not_empty, not_null};
use crate::tools::result::{CallResult, LiveOutput};
use crate::tools::search::{Search, StopSearch, glob};
use crate::tools::tool::{ToolContext, TypedTool, default_time_limit};
use crate::tools::tree::Tree;

const DEFAULT_LINES: u32 = 250;
/// The most lines of one answer.
const MAX_LINES: u32 = 2000;
const MAX_CONTEXT: u32 = 20;
/// Bytes of one line that are shown.
const MAX_LINE_BYTES: usize = 400;
/// Bytes that a search holds of one line; files with longer lines are skipped.
const MAX_HELD_BYTES: usize = 32 << 20;
/// Bytes of an output's limit that are kept free for the totals.
const RESERVED_FOR_NOTES: usize = 300;

/// Finds lines of files.
pub struct Grep;

// No doc comment: it would be in the schema.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Args {
    /// Regular expression (Rust's syntax) for a line.
    #[serde(deserialize_with = "not_empty")]
    #[schemars(length(min = 1))]
    pattern: String,
    /// File or folder to look in, relative to the root of the tree, which is the default.
    #[serde(default, deserialize_with = "not_null")]
    path: Option<String>,
    /// Look only in files whose path matches this pattern, such as `*.rs` or `src/**/*.c`.
    #[serde(default, deserialize_with = "not_null")]
    glob: Option<String>,
    #[serde(default)]
    ignore_case: bool,
    /// Return paths with their number of lines instead of the lines.
    #[serde(default)]
    files_only: bool,
    /// Number of lines to show before and after each.
    #[serde(default, deserialize_with = "not_null")]
    #[schemars(range(max = 20))]
    context: Option<u32>,
    /// The most lines (or paths) to return, 250 by default.
    #[serde(default, deserialize_with = "not_null")]
    #[schemars(range(min = 1, max = 2000))]
    limit: Option<u32>,
    /// Look in files too that .gitignore leaves out.
    #[serde(default)]
    ignored_too: bool,
}

/// Arguments that are known to be right.
struct Query {
    matcher: RegexMatcher,
    glob: Option<GlobMatcher>,
    files_only: bool,
    context: usize,
    limit: usize,
    bytes: usize,
}

impl Args {
    fn path(&self) -> &str {
        self.path.as_deref().unwrap_or(".")
    }

    fn query(&self, bytes: usize) -> Result<Query, Refusal> {
        let invalid = |name: &str, problem: String| invalid(format_args!("/{name}: {problem}"));
        let mut regex = RegexMatcherBuilder::new();
        // `^` and `$` stand for a line's begin and end, also where it ends in CRLF.
        regex.case_insensitive(self.ignore_case).multi_line(true).crlf(true).line_terminator(Some(b'\n'));
        let matcher = regex.build(&self.pattern).map_err(|error| invalid("pattern", error.to_string()))?;
        let glob = self.glob.as_deref().map(|pattern| glob(pattern).map_err(|problem| invalid("glob", format!("{pattern:?} {problem}"))));
        let (context, limit) = (self.context.unwrap_or(0), self.limit.unwrap_or(DEFAULT_LINES));
        if context > MAX_CONTEXT {
            return Err(invalid("context", format!("must be at most {MAX_CONTEXT}")));
        }
        if !(1..=MAX_LINES).contains(&limit) {
            return Err(invalid("limit", format!("must be from 1 to {MAX_LINES}")));
        }
        // A list of files shows no lines.
        let (context, limit) = (if self.files_only { 0 } else { context as usize }, limit as usize);
        Ok(Query { matcher, glob: glob.transpose()?, files_only: self.files_only, context, limit, bytes })
    }
}

impl TypedTool for Grep {
    type Args = Args;
    const NAME: &'static str = "Grep";
    const READS_ONLY: bool = true;

    fn description(&self, _limits: &RunLimits) -> String {
        "Find the lines of text files that match a regular expression. Returns them with their numbers, under the path of their file, sorted \
         by path, and how many there are in all. Obeys .gitignore."
            .to_owned()
    }

    fn check(&self, context: &ToolContext, args: &Args) -> Result<(), Refusal> {
        args.query(0)?;
        context.check_path(args.path())
    }

    async fn run(&self, context: &ToolContext, args: Args, _live: &LiveOutput) -> CallResult {
        let query = match args.query(context.output_bytes().saturating_sub(RESERVED_FOR_NOTES)) {
            Ok(query) => query,
            Err(refusal) => return CallResult::refused(refusal),
        };
        // Some time is left to say what was found until then.
        let (stop, _cancel) = StopSearch::after(default_time_limit(&context.limits).mul_f64(0.9));
        let search = Search { path: args.path().to_owned(), ignored_too: args.ignored_too, stop };
        let policy = context.policy.get();
        context.search_tree(move |tree| grep(tree, &search, &query, &policy)).await
    }
}

/// What was found in one file.
#[derive(Default)]
struct FileLines {
    lines: Vec<String>,
    matches: usize,
    binary: bool,
}

#[derive(Default)]
struct Found {
    /// The first files by their order, as many as have the lines that are wanted.
    files: BTreeMap<PathBuf, FileLines>,
    /// Lines in `files`.
    kept: usize,
    total_files: usize,
    total_lines: usize,
    /// Files that could not be searched to their end.
    skipped: usize,
}

impl Found {
    fn add(&mut self, path: &Path, found: FileLines, limit: usize) {
        self.total_files += 1;
        self.total_lines += found.matches;
        self.kept += found.lines.len();
        self.files.insert(path.to_owned(), found);
        while let Some(last) = self.files.last_entry() {
            let lines = last.get().lines.len();
            if self.kept - lines < limit {
                break;
            }
            self.kept -= lines;
            last.remove();
        }
    }
}

fn grep(tree: &Tree, search: &Search, query: &Query, policy: &Policy) -> CallResult {
    let found = Mutex::new(Found::default());
    let visited = search.visit(tree, false, || {
        let mut searcher = SearcherBuilder::new()
            .line_number(true)
            .before_context(query.context)
            .after_context(query.context)
            .binary_detection(BinaryDetection::quit(0))
            .heap_limit(Some(MAX_HELD_BYTES))
            .build();
        let found = &found;
        move |path: &Path| {
            if query.glob.as_ref().is_some_and(|glob| !glob.is_match(path)) || policy.hides(path) {
                return;
            }
            let mut sink = Collect { query, found: FileLines::default() };
            let searched = tree.open_located(path).and_then(|file| {
                let reader = StoppableReader { file, search };
                searcher.search_reader(&query.matcher, reader, &mut sink)
            });
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            found.skipped += usize::from(searched.is_err());
            if sink.found.matches > 0 {
                found.add(path, sink.found, query.limit);
            }
        }
    });
    let complete = match visited {
        Ok(complete) => complete && !search.stop.is_over(),
        Err(error) => return error.into(),
    };
    let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    let text = render(&found, query);
    if complete {
        CallResult::succeeded(text)
    } else {
        CallResult::new(ToolOutcome::TimedOut, text + "\n[the time limit was reached; there may be more]")
    }
}

fn render(found: &Found, query: &Query) -> String {
    let (mut text, mut left) = (String::new(), query.limit);
    let mut cut = false;
    'files: for (path, FileLines { lines, matches, binary }) in &found.files {
        let heading = if query.files_only {
            format!("{}: {matches}\n", path.display())
        } else {
            format!(
                "{}{}{}\n",
                if text.is_empty() { "" } else { "\n" },
                path.display(),
                if *binary { " [up to its first NUL]" } else { "" }
            )
        };
        if left == 0 || text.len() + heading.len() > query.bytes {
            cut = true;
            break;
        }
        text.push_str(&heading);
        if query.files_only {
            left -= 1;
            continue;
        }
        for line in lines {
            if left == 0 || text.len() + line.len() + 1 > query.bytes {
                cut = true;
                break 'files;
            }
            text.push_str(line);
            text.push('\n');
            left -= 1;
        }
        cut |= lines.len() >= query.limit && *matches > lines.len();
    }
    cut |= found.files.len() < found.total_files;
    let totals = format!("{} matching lines in {} files", found.total_lines, found.total_files);
    text.push_str(&match (found.total_files, cut) {
        (0, _) => "[no matching lines]".to_owned(),
        (_, false) => format!("[{totals}]"),
        (_, true) => format!("[cut here; {totals} in all]"),
    });
    if found.skipped > 0 {
        text.push_str(&format!("\n[{} files could not be searched]", found.skipped));
    }
    text
}

/// Ends a search in the middle of a long file.
struct StoppableReader<'a> {
    file: std::fs::File,
    search: &'a Search,
}

impl io::Read for StoppableReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.search.stop.is_over() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.file.read(buffer)
    }
}

struct Collect<'a> {
    query: &'a Query,
    found: FileLines,
}

impl Collect<'_> {
    fn add(&mut self, number: Option<u64>, mark: char, line: &[u8]) {
        // Only one line stands for a file in a list of files.
        let limit = if self.query.files_only { 1 } else { self.query.limit };
        if self.found.lines.len() < limit {
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let text = String::from_utf8_lossy(&line[..line.len().min(MAX_LINE_BYTES)]);
            let rest = if line.len() > MAX_LINE_BYTES { format!(" [... {} bytes]", line.len()) } else { String::new() };
            self.found.lines.push(format!("{}{mark}{text}{rest}", number.unwrap_or(0)));
        }
    }
}

impl Sink for Collect<'_> {
    type Error = io::Error;

    fn matched(&mut self, _searcher: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        self.found.matches += 1;
        self.add(found.line_number(), ':', found.bytes());
        Ok(true)
    }

    fn context(&mut self, _searcher: &Searcher, context: &SinkContext<'_>) -> Result<bool, io::Error> {
        self.add(context.line_number(), '-', context.bytes());
        Ok(true)
    }

    fn context_break(&mut self, _searcher: &Searcher) -> Result<bool, io::Error> {
        if self.found.lines.len() < self.query.limit {
            self.found.lines.push("--".to_owned());
        }
        Ok(true)
    }

    fn finish(&mut self, _searcher: &Searcher, end: &SinkFinish) -> Result<(), io::Error> {
        self.found.binary = end.binary_byte_offset().is_some();
        Ok(())
    }
}
