//! What a project is started with.

use std::ffi::OsString;
use std::path::PathBuf;

use yoi_wire::conversation::MAX_CONVERSATIONS;
use yoi_wire::manifest::{CompactionLimits, ModelEndpoint, RunLimits};
use yoi_wire::policy::ToolPolicy;
use yoi_wire::subagent::SubagentTemplate;

use super::ProjectError;
use crate::model::{ModelSecrets, ModelTimeouts, RetryPolicy};

/// The most bytes of a project's id: it is the agent's name, too.
const MAX_ID_BYTES: usize = 63;

/// What a project is started with. All of it is checked before anything is made or started.
#[derive(Clone, Debug)]
pub struct ProjectOptions {
    /// Its name in this engine, which is also the agent's: lower-case letters, digits and `-`, as names in Kubernetes.
    pub id: String,
    /// The folder that the agent works in. It is there. A link is followed once, at the start.
    pub root: PathBuf,
    /// The folder of the record: log, inbox, HOME and temporary files of programs. It is made, with the folders above it, and neither holds the root nor
    /// lies in it.
    pub state: PathBuf,
    /// The model.
    pub model: ModelEndpoint,
    /// Secrets of the model's endpoint, then of its fallbacks in their order.
    pub secrets: Vec<ModelSecrets>,
    /// Added to the system prompt.
    pub instruction: String,
    /// What calls of tools may do.
    pub policy: ToolPolicy,
    /// Limits of a run and of its tools.
    pub limits: RunLimits,
    /// What sub-agents its conversations may start.
    pub subagents: Vec<SubagentTemplate>,
    /// The most conversations that run beside `main`.
    pub conversations: usize,
    /// When and how far the conversation is compacted.
    pub compaction: CompactionLimits,
    /// Files of skills, commands and the skill graph count soon after they change, and not only when a run begins.
    pub watch_assets: bool,
    /// Variables of programs. Nothing is inherited from this process.
    pub env: Vec<(OsString, OsString)>,
    /// Folders and files that programs can neither read nor write, beside the record.
    pub closed: Vec<PathBuf>,
    /// Waits between calls of the model.
    pub retries: RetryPolicy,
    /// How long an answer may take.
    pub timeouts: ModelTimeouts,
}

impl ProjectOptions {
    /// The defaults for all but these.
    #[must_use]
    pub fn new(id: &str, root: PathBuf, state: PathBuf, model: ModelEndpoint) -> Self {
        Self {
            id: id.to_owned(),
            root,
            state,
            model,
            secrets: Vec::new(),
            instruction: String::new(),
            policy: ToolPolicy::default(),
            limits: RunLimits::default(),
            subagents: Vec::new(),
            conversations: MAX_CONVERSATIONS,
            compaction: CompactionLimits::default(),
            watch_assets: false,
            env: Vec::new(),
            closed: Vec::new(),
            retries: RetryPolicy::default(),
            timeouts: ModelTimeouts::default(),
        }
    }

    /// Checks what can be checked without making anything, and resolves the root.
    pub(super) fn checked(mut self) -> Result<Self, ProjectError> {
        let of_name = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
        let (first, last) = (self.id.bytes().next(), self.id.bytes().next_back());
        if self.id.is_empty()
            || self.id.len() > MAX_ID_BYTES
            || !self.id.as_bytes().iter().all(of_name)
            || [first, last].contains(&Some(b'-'))
        {
            return Err(ProjectError::Id { id: self.id });
        }
        let root =
            self.root.canonicalize().and_then(|root| if root.is_dir() { Ok(root) } else { Err(std::io::ErrorKind::NotADirectory.into()) });
        let root = root.map_err(|source| ProjectError::Root { path: self.root.clone(), source })?;
        if !self.state.is_absolute() || self.state.components().any(|part| part == std::path::Component::ParentDir) {
            return Err(ProjectError::State { path: self.state, why: "it is not an absolute path without `..`".to_owned() });
        }
        // What of it is there already may be a link.
        let there = self.state.ancestors().find_map(|path| Some((path, path.canonicalize().ok()?)));
        let state = there
            .map_or_else(|| self.state.clone(), |(path, real)| self.state.strip_prefix(path).map_or(real.clone(), |rest| real.join(rest)));
        if state.starts_with(&root) || root.starts_with(&state) {
            let why =
                format!("it and the root {} must not lie in each other: programs write the one and never see the other", root.display());
            return Err(ProjectError::State { path: self.state, why });
        }
        (self.root, self.state) = (root, state);
        Ok(self)
    }
}
