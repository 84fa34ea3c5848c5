//! The events of a project's conversations.

use yoi_wire::entry::AgentRef;

use super::{LOCAL, Project, ProjectError};
use crate::signals::{EventStream, EventsFrom};

impl Project {
    /// The events of a conversation, also of one that does not run; `None` when it has no log yet. With `follow` they go on until it ends.
    ///
    /// # Errors
    /// There is none of this name, the cursor is none of its record, or its record cannot be read.
    pub async fn events(&self, conversation: &str, from: EventsFrom) -> Result<Option<EventStream>, ProjectError> {
        let conversation = self.conversation(conversation)?;
        // Before the reader is made, so that no entry is missed between the two.
        let session = conversation.open_session();
        let appended = session.as_ref().map(|session| session.watch_last_seq());
        let Some(reader) = conversation.reader().await? else { return Ok(None) };
        let agent = AgentRef { namespace: LOCAL.to_owned(), name: self.id.clone(), uid: self.id.clone() };
        let reads = conversation.log_reads().clone();
        let stream = EventStream::start(reader, (&agent, conversation.name()), from, appended, reads).await?;
        match session.filter(|_| from.follow && from.deltas) {
            Some(session) => Ok(Some(stream.with_deltas(&session, self.stop.child_token()).await?)),
            None => Ok(Some(stream)),
        }
    }
}
