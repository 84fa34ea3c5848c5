//! All assets of a tree as they were read at one time.

use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::{Command, Diagnostic, GlobalTrigger, Graph, Skill, StrictError, Strictness, Workflow};

mod loader;
mod parsed;
mod precedence;

pub use loader::load_again;
pub use parsed::{ParsedFiles, SameFile};

/// A file as it was read, or why it was not: a link out of the tree, a FIFO, too large.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssetFile {
    /// Relative to the root, with `/`: below a folder of [`FOLDERS`](crate::FOLDERS). That of a set which is not of the tree begins with kind and name of
    /// the set, such as `configmap/team`, and goes on below a folder of [`TEAM_FOLDERS`](crate::TEAM_FOLDERS).
    pub path: String,
    /// The place of such a set among them; all of them come after the tree. `None`: the file is of the tree.
    pub set: Option<u16>,
    /// Its bytes, or a sentence.
    pub content: Result<Vec<u8>, String>,
}

/// All assets of a tree. Those that are not in effect are listed, too, with their state.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AssetSnapshot {
    /// Which one of this tree it is, as the caller counts.
    pub generation: u64,
    /// Of the paths and the digests of all files: equal where nothing changed.
    pub digest: String,
    /// In order of precedence.
    #[serde(serialize_with = "all")]
    pub skills: Vec<Arc<Skill>>,
    /// In order of precedence.
    #[serde(serialize_with = "all")]
    pub commands: Vec<Arc<Command>>,
    /// In order of precedence.
    #[serde(serialize_with = "all")]
    pub workflows: Vec<Arc<Workflow>>,
    /// Of `triggers.json`, in order of precedence.
    pub triggers: Vec<GlobalTrigger>,
    /// The skill graph.
    pub graph: Graph,
    /// What a person should know, in the order of the files.
    pub diagnostics: Vec<Diagnostic>,
}

/// Reads the files of a tree as assets, in order of precedence, whatever their order here.
///
/// # Errors
/// Only with [`Strictness::Strict`]: a file is not as its format has it. All such errors are in it.
pub fn load(files: &[AssetFile], generation: u64, strictness: Strictness) -> Result<AssetSnapshot, StrictError> {
    load_again(&mut ParsedFiles::default(), files, &[], generation, strictness)
}

/// Writes them as if they were not shared.
fn all<Asset: Serialize, To: Serializer>(shared: &[Arc<Asset>], to: To) -> Result<To::Ok, To::Error> {
    to.collect_seq(shared.iter().map(Arc::as_ref))
}

impl AssetSnapshot {
    /// The skill of a name: the one that is in effect, else the first that has the name and is not.
    #[must_use]
    pub fn skill(&self, name: &str) -> Option<&Skill> {
        let mut named = self.skills.iter().filter(|skill| skill.name == name);
        let first = named.clone().next();
        named.find(|skill| skill.state.is_valid()).or(first).map(Arc::as_ref)
    }

    /// The command of a name: the one that is in effect, else the first that has the name and is not.
    #[must_use]
    pub fn command(&self, name: &str) -> Option<&Command> {
        let mut named = self.commands.iter().filter(|command| command.name == name);
        let first = named.clone().next();
        named.find(|command| command.state.is_valid()).or(first).map(Arc::as_ref)
    }

    /// The workflow of a name: the one that could be run, else the first that has the name and could not.
    #[must_use]
    pub fn workflow(&self, name: &str) -> Option<&Workflow> {
        let mut named = self.workflows.iter().filter(|workflow| workflow.name == name);
        let first = named.clone().next();
        named.find(|workflow| workflow.state.is_valid()).or(first).map(Arc::as_ref)
    }
}
