//! The sub-agents of a project's conversations: where their records are, and what they are started with.
//!
//! The record of each is that of a conversation, by a name such as `sub-1`. People read it and answer its questions as those of others, and nobody starts it
//! again. The next sub-agent of that name takes its place, so that a long life leaves no more records than sub-agents ran at once.

mod narrowing;
mod team;

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use yoi_session::Lock;
use yoi_session::conversations::{self as stored, StoredConversation};
use yoi_wire::conversation::ConversationStatus;
use yoi_wire::policy::ToolPolicy;
use yoi_wire::subagent::{SubagentTemplate, SubagentTemplateError, check_templates};

use super::ProjectError;
use super::conversation::Conversation;
use crate::policy::Policy;
use crate::subagents::SpawnError;
use crate::tools::ToolSet;

/// The most that run in a project at a time: three of each of 17 conversations.
const MAX_RUNNING: usize = 51;

/// The templates of a project, and the conversations of all sub-agents in it.
#[derive(Debug)]
pub struct SubagentPool {
    templates: Vec<SubagentTemplate>,
    names: Mutex<Names>,
    /// Changes with each name that is free again.
    freed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Names {
    /// The right to write to the volume; `None`: nothing starts.
    volume: Option<Arc<Lock>>,
    by_name: BTreeMap<String, NameUse>,
}

/// What a name is used for. The next sub-agent takes one that is free.
#[derive(Debug, Default)]
struct NameUse {
    is_taken: bool,
    /// The last one that had it.
    conversation: Option<Arc<Conversation>>,
}

/// A name that a new sub-agent has taken.
struct TakenName {
    name: String,
    volume: Arc<Lock>,
    /// Tokens of those that had it before.
    tokens: u64,
}

impl SubagentPool {
    /// Checks the templates. `policy` is that of the agent.
    ///
    /// # Errors
    /// One of them is none.
    pub fn new(templates: Vec<SubagentTemplate>, policy: &ToolPolicy) -> Result<Self, ProjectError> {
        check_templates(&templates)?;
        let known = ToolSet::builtin().for_subagents();
        for template in &templates {
            if let Some(tool) = template.tools.iter().find(|tool| !known.contains(*tool)) {
                let known = known.iter().cloned().collect::<Vec<_>>().join(", ");
                let why = format!("a sub-agent cannot have the tool {tool:?}; it can have {known}");
                return Err(SubagentTemplateError::Field { name: template.name.clone(), why }.into());
            }
            Policy::new(&template.narrowed(policy))?;
        }
        Ok(Self { templates, names: Mutex::default(), freed: watch::channel(0).0 })
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sub-agents may be started from now on.
    pub(super) fn open(&self, volume: &Arc<Lock>) {
        self.names().volume = Some(volume.clone());
    }

    /// One of an earlier process, which has ended with that.
    pub(super) fn add_ended(&self, name: &str, conversation: Conversation) {
        self.names().by_name.insert(name.to_owned(), NameUse { is_taken: false, conversation: Some(Arc::new(conversation)) });
    }

    /// The conversation of the last sub-agent of this name.
    pub(super) fn get(&self, name: &str) -> Option<Arc<Conversation>> {
        self.names().by_name.get(name)?.conversation.clone()
    }

    pub(super) fn list(&self) -> Vec<ConversationStatus> {
        self.names().by_name.values().filter_map(|name| Some(name.conversation.as_ref()?.status())).collect()
    }

    /// Ends all, and lets go of the volume.
    pub(super) async fn close(&self) {
        let mut freed = self.freed.subscribe();
        let running: Vec<_> = {
            let mut names = self.names();
            names.volume = None;
            names.by_name.values().filter(|name| name.is_taken).filter_map(|name| name.conversation.clone()).collect()
        };
        for conversation in running {
            conversation.stop().await;
        }
        // Each lets go of the volume before it gives its name back.
        while self.names().by_name.values().any(|name| name.is_taken) {
            if freed.changed().await.is_err() {
                return;
            }
        }
    }

    /// Takes the first free name. Reads the volume.
    fn take(&self) -> Result<TakenName, SpawnError> {
        let mut names = self.names();
        let Some(volume) = names.volume.clone() else { return Err(SpawnError::Failed("its agent is being stopped".to_owned())) };
        for number in 1..=MAX_RUNNING {
            let name = format!("sub-{number}");
            if names.by_name.get(&name).is_some_and(|name| name.is_taken) {
                continue;
            }
            let tokens = match stored::read(&**volume.disk(), volume.root(), &name) {
                Ok(None) => 0,
                Ok(Some(StoredConversation { subagent: true, tokens, .. })) => tokens,
                // A conversation of a person's, or a record that cannot be read.
                Ok(Some(StoredConversation { subagent: false, .. })) | Err(_) => continue,
            };
            names.by_name.entry(name.clone()).or_default().is_taken = true;
            return Ok(TakenName { name, volume, tokens });
        }
        Err(SpawnError::Failed(format!("{MAX_RUNNING} sub-agents work in this project, which is the most")))
    }

    fn set_conversation(&self, name: &str, conversation: Arc<Conversation>) {
        self.names().by_name.entry(name.to_owned()).or_default().conversation = Some(conversation);
    }

    /// Gives the name back.
    fn free(&self, name: &str) {
        if let Some(name) = self.names().by_name.get_mut(name) {
            name.is_taken = false;
        }
        self.freed.send_modify(|times| *times += 1);
    }
}

/// Empties the folder of a name but for its record, which has the tokens, and writes that.
fn prepare_folder(volume: &Lock, name: &str, tokens: u64) -> Result<(), ProjectError> {
    let folder = stored::folder(volume.root(), name);
    clear(&folder).map_err(|source| ProjectError::Folder { path: folder, source })?;
    Ok(stored::write(volume, name, record(tokens))?)
}

fn record(tokens: u64) -> StoredConversation {
    StoredConversation { running: false, tokens, subagent: true }
}

fn clear(folder: &Path) -> std::io::Result<()> {
    let names = match fs::read_dir(folder) {
        Ok(names) => names,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for name in names {
        let (path, kind) = name.and_then(|name| Ok((name.path(), name.file_type()?)))?;
        if kind.is_dir() {
            fs::remove_dir_all(path)?;
        } else if path.file_name().is_some_and(|name| name != stored::RECORD) {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
