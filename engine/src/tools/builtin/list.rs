//! The tool List.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, FileType, readlinkat, statat};
use schemars::JsonSchema;
use serde::Deserialize;
use yoi_wire::manifest::RunLimits;

use crate::decision::Refusal;
use crate::error_text::without_os_error_number;
use crate::tools::arguments::not_null;
use crate::tools::result::{CallResult, LiveOutput};
use crate::tools::tool::{ToolContext, TypedTool};
use crate::tools::tree::Tree;

/// The most entries of one answer.
const MAX_ENTRIES: usize = 2000;

/// Lists a folder.
pub struct List;

// No doc comment: it would be in the schema.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Args {
    /// Path of the folder, relative to the root of the tree, which is the default.
    #[serde(default, deserialize_with = "not_null")]
    path: Option<String>,
}

impl Args {
    fn path(&self) -> &str {
        self.path.as_deref().unwrap_or(".")
    }
}

impl TypedTool for List {
    type Args = Args;
    const NAME: &'static str = "List";
    const READS_ONLY: bool = true;

    fn description(&self, _limits: &RunLimits) -> String {
        "List a folder, one level deep, ignored files too: folders end in /, files come with their size in bytes, links with their target."
            .to_owned()
    }

    fn check(&self, context: &ToolContext, args: &Args) -> Result<(), Refusal> {
        context.check_readable(args.path())
    }

    async fn run(&self, context: &ToolContext, args: Args, _live: &LiveOutput) -> CallResult {
        let path = args.path().to_owned();
        context.read_tree(&path, move |tree| list(tree, args.path())).await
    }
}

fn list(tree: &Tree, path: &str) -> CallResult {
    let folder = match tree.open_folder(path) {
        Ok(folder) => folder,
        Err(error) => return error.into(),
    };
    let failed =
        |error: rustix::io::Errno| CallResult::failed(without_os_error_number(&format!("{path:?}: {}", std::io::Error::from(error))));
    let entries = match Dir::read_from(&folder) {
        Ok(entries) => entries,
        Err(error) => return failed(error),
    };
    let mut names = Vec::new();
    for entry in entries {
        match entry {
            Ok(entry) if entry.file_name() == c"." || entry.file_name() == c".." => {}
            Ok(entry) => names.push(entry.file_name().to_owned()),
            Err(error) => return failed(error),
        }
    }
    names.sort();
    let total = names.len();
    let mut lines: Vec<String> = names.iter().take(MAX_ENTRIES).map(|name| line(&folder, name)).collect();
    if total > MAX_ENTRIES {
        lines.push(format!("[{MAX_ENTRIES} of {total} entries]"));
    } else if total == 0 {
        lines.push("[the folder is empty]".to_owned());
    }
    CallResult::succeeded(lines.join("\n"))
}

fn line(folder: &OwnedFd, name: &std::ffi::CStr) -> String {
    let shown = name.to_string_lossy();
    let Ok(stat) = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) else { return format!("{shown}  [gone]") };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => format!("{shown}/"),
        FileType::RegularFile => format!("{shown}  {}", stat.st_size),
        FileType::Symlink => {
            let target =
                readlinkat(folder, name, Vec::new()).map_or_else(|_| "?".to_owned(), |target| target.to_string_lossy().into_owned());
            format!("{shown} -> {target}")
        }
        FileType::Fifo => format!("{shown}  [FIFO]"),
        FileType::Socket => format!("{shown}  [socket]"),
        FileType::CharacterDevice | FileType::BlockDevice => format!("{shown}  [device]"),
        _ => format!("{shown}  [unknown]"),
    }
}
