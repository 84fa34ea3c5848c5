//! A team's skills, commands, workflows and skill graph: files in, one snapshot of all of them out.
//!
//! # Guarantees
//! - [`load`] gives the same snapshot for the same files, in whatever order they come.
//! - A file that cannot be read as what it should be is listed with its line and the reason, and all others load. [`Strictness::Strict`] refuses the whole instead.
//! - Time and memory are bounded by the size of the files: a file over [`MAX_FILE_BYTES`] is not parsed, front matter is bounded in bytes, depth and values,
//!   aliases of YAML included.
//! - A parameter of a [`Command`] is inserted once, as it is: the text of a command is cut into its parts when it is read, and never read again.
//! - What an asset allows only narrows: [`Skill::allowed_tools`] are rules that a call has to match beside the policy's own.
//! - Nothing of an asset is run here.

#![warn(missing_docs)]

mod catalogue;
mod command;
mod diagnostic;
mod folder;
mod front_matter;
mod graph;
mod reading;
mod search;
mod skill;
mod snapshot;
mod state;
mod tools;
mod workflow;
mod yaml;

pub use catalogue::Catalogue;
pub use command::{Command, Parameter, ParameterType, Part, RenderError, Rendered};
pub use diagnostic::{Diagnostic, Level, StrictError, Strictness};
pub use folder::{
    FOLDERS, Folder, INSTRUCTIONS, Kind, MAX_DEPTH, MAX_FILE_BYTES, MAX_FOLDERS, Source, TEAM_FOLDERS, TEAM_INSTRUCTIONS, is_asset,
};
pub use graph::{Direction, Edge, Graph, Near, Node, OpenLink, Topology};
pub use search::{Found, FoundKind};
pub use skill::{Route, Skill};
pub use snapshot::{AssetFile, AssetSnapshot, ParsedFiles, SameFile, load, load_again};
pub use state::AssetState;
pub use workflow::{Backoff, GlobalTrigger, Input, InputType, OnFailure, Settings, Step, StepKind, Trigger, Workflow};
