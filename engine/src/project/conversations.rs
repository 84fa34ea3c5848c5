//! The conversations of a project beside the first one: which there are, and their starts and stops.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex as SyncMutex, PoisonError};

use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use yoi_session::conversations::{self as stored, StoredConversation};
use yoi_session::{Error as SessionError, Lock};
use yoi_wire::conversation::{ConversationStatus, MAIN, MAX_STORED_CONVERSATIONS, is_other_name};

use super::ProjectError;
use super::conversation::{Conversation, Ending};
use super::parts::ConversationParts;
use super::subagents::SubagentPool;
use crate::error_text::error_text;
use crate::log_reads::blocking;

/// The conversations beside [`MAIN`].
pub struct Conversations {
    parts: ConversationParts,
    subagents: Option<Arc<SubagentPool>>,
    /// How many may run at a time.
    limit: usize,
    stop: CancellationToken,
    root: PathBuf,
    /// The right to write to the volume; `None` after [`Self::close`].
    lock: SyncMutex<Option<Arc<Lock>>>,
    /// Held over a start and a stop, so that no conversation is driven twice.
    changing: Mutex<()>,
    known: SyncMutex<BTreeMap<String, Arc<Conversation>>>,
}

impl std::fmt::Debug for Conversations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Conversations").field("known", &*self.known()).finish_non_exhaustive()
    }
}

impl Conversations {
    /// Starts those that nobody has stopped. One that cannot be started is in the list as failed.
    ///
    /// # Errors
    /// The volume cannot be read.
    pub async fn open(
        lock: Arc<Lock>,
        parts: ConversationParts,
        subagents: Option<Arc<SubagentPool>>,
        limit: usize,
        stop: CancellationToken,
    ) -> Result<Self, SessionError> {
        let volume = lock.clone();
        let found = blocking(move || stored::list(&**volume.disk(), volume.root())).await?;
        let root = lock.root().to_owned();
        if let Some(subagents) = &subagents {
            subagents.open(&lock);
        }
        let (lock, changing, known) = (SyncMutex::new(Some(lock)), Mutex::new(()), SyncMutex::default());
        let all = Self { parts, subagents, limit, stop, root, lock, changing, known };
        for (name, record) in found {
            let conversation = match record {
                Ok(StoredConversation { subagent: true, tokens, .. }) => {
                    all.parts.budget.open(&name, tokens);
                    if let Some(subagents) = &all.subagents {
                        subagents.add_ended(&name, all.ended(&name, Ending::Stopped));
                        continue;
                    }
                    all.ended(&name, Ending::Stopped)
                }
                Ok(StoredConversation { running: true, .. }) => match all.drive(&name).await {
                    Ok(conversation) => conversation,
                    Err(error) => all.ended(&name, Ending::Failed(error_text(&error))),
                },
                Ok(StoredConversation { running: false, tokens, .. }) => {
                    all.parts.budget.open(&name, tokens);
                    all.ended(&name, Ending::Stopped)
                }
                Err(error) => all.ended(&name, Ending::Failed(error_text(&error))),
            };
            all.known().insert(name, Arc::new(conversation));
        }
        Ok(all)
    }

    /// Starts a conversation, or one that was stopped or has failed again, which goes on with what it was interrupted in.
    ///
    /// # Errors
    /// The name is none, it runs already, too many run, or its record cannot be written. Nothing runs then.
    pub async fn start(&self, name: &str) -> Result<Arc<Conversation>, ProjectError> {
        if !is_other_name(name) {
            return Err(ProjectError::ConversationName { name: name.to_owned() });
        }
        let _changing = self.changing.lock().await;
        if self.is_subagent(name).await? {
            return Err(ProjectError::IsSubagent { name: name.to_owned() });
        }
        let (runs, running, all) = {
            let known = self.known();
            let running = known.values().filter(|conversation| conversation.is_running()).count();
            (known.get(name).is_some_and(|known| known.is_running()), running, known.len() + usize::from(!known.contains_key(name)))
        };
        if runs {
            return Err(ProjectError::ConversationRuns { name: name.to_owned() });
        }
        if running >= self.limit {
            return Err(ProjectError::TooManyConversations { name: name.to_owned(), limit: self.limit });
        }
        if all > MAX_STORED_CONVERSATIONS {
            return Err(ProjectError::TooManyStored { name: name.to_owned(), limit: MAX_STORED_CONVERSATIONS });
        }
        self.record(name, StoredConversation { running: true, tokens: self.parts.budget.used(name), subagent: false }).await?;
        match self.drive(name).await {
            Ok(conversation) => {
                let conversation = Arc::new(conversation);
                self.known().insert(name.to_owned(), conversation.clone());
                Ok(conversation)
            }
            Err(error) => {
                let failed = self.ended(name, Ending::Failed(error_text(&error)));
                self.known().insert(name.to_owned(), Arc::new(failed));
                Err(error)
            }
        }
    }

    /// Stops a conversation: its run ends as interrupted, and no process of it is left. It stays readable, and does not start with its project any more.
    ///
    /// # Errors
    /// There is none of this name, or its record cannot be written: then it goes on.
    pub async fn stop(&self, name: &str) -> Result<(), ProjectError> {
        if name == MAIN {
            return Err(ProjectError::MainIsNotStopped);
        }
        let _changing = self.changing.lock().await;
        let conversation = self.get(name)?;
        if self.is_subagent(name).await? {
            // Its record says already that it does not come back.
            conversation.stop().await;
            return Ok(());
        }
        // First: one that is stopped does not come back after a crash.
        self.record(name, StoredConversation { running: false, tokens: self.parts.budget.used(name), subagent: false }).await?;
        conversation.stop().await;
        let tokens = self.parts.budget.used(name);
        self.known().insert(name.to_owned(), Arc::new(self.ended(name, Ending::Stopped)));
        self.record(name, StoredConversation { running: false, tokens, subagent: false }).await
    }

    /// The conversation of this name, also one that does not run.
    ///
    /// # Errors
    /// [`ProjectError::UnknownConversation`].
    pub fn get(&self, name: &str) -> Result<Arc<Conversation>, ProjectError> {
        if let Some(subagent) = self.subagents.as_ref().and_then(|subagents| subagents.get(name)) {
            return Ok(subagent);
        }
        let known = self.known();
        known.get(name).cloned().ok_or_else(|| {
            let known = std::iter::once(MAIN).chain(known.keys().map(String::as_str)).collect::<Vec<_>>().join(", ");
            ProjectError::UnknownConversation { name: name.to_owned(), known }
        })
    }

    /// All of them, by name.
    #[must_use]
    pub fn list(&self) -> Vec<ConversationStatus> {
        let of_subagents = self.subagents.as_ref().map(|subagents| subagents.list()).unwrap_or_default();
        self.known().values().map(|conversation| conversation.status()).chain(of_subagents).collect()
    }

    /// Whether a conversation of this name is or was a sub-agent.
    async fn is_subagent(&self, name: &str) -> Result<bool, ProjectError> {
        let (lock, name) = (self.volume()?, name.to_owned());
        let record = blocking(move || stored::read(&**lock.disk(), lock.root(), &name)).await;
        // One that cannot be read is written anew.
        Ok(matches!(record, Ok(Some(StoredConversation { subagent: true, .. }))))
    }

    /// Ends all, and lets go of the volume. Each goes on when the project starts again, unless it was stopped.
    pub async fn close(&self) {
        let _changing = self.changing.lock().await;
        let all: Vec<_> = self.known().values().cloned().collect();
        self.stop.cancel();
        for conversation in all {
            conversation.stop().await;
        }
        if let Some(subagents) = &self.subagents {
            subagents.close().await;
        }
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    async fn drive(&self, name: &str) -> Result<Conversation, ProjectError> {
        let lock = stored::lock(&self.volume()?, name);
        Conversation::start(name, lock, &self.parts, self.stop.child_token()).await
    }

    fn ended(&self, name: &str, ending: Ending) -> Conversation {
        Conversation::ended_before(name, stored::folder(&self.root, name), ending, self.parts.reads.clone())
    }

    async fn record(&self, name: &str, record: StoredConversation) -> Result<(), ProjectError> {
        let (lock, name) = (self.volume()?, name.to_owned());
        Ok(blocking(move || stored::write(&lock, &name, record)).await?)
    }

    fn volume(&self) -> Result<Arc<Lock>, ProjectError> {
        let lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner).clone();
        lock.filter(|_| !self.stop.is_cancelled())
            .ok_or_else(|| ProjectError::Ended { conversation: MAIN.to_owned(), why: "its project is being stopped".to_owned() })
    }

    fn known(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Arc<Conversation>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
