//! What people ask of a conversation, and the time that they have to answer its questions.

use std::time::{Duration, SystemTime};

use yoi_session::parse_rfc3339;
use yoi_wire::entry::CallQuestion;

use super::{Running, continue_event};
use crate::conversation::{ConversationEvent, ConversationState};
use crate::open_session::PersonRequest;

/// After how long the wall clock is looked at again while a call waits for a person.
const CLOCK_CHECK: Duration = Duration::from_secs(60);

impl Running<'_> {
    /// What a person's request is to the conversation. A list is answered at once.
    pub(super) fn asked(&mut self, state: &ConversationState, request: PersonRequest) -> ConversationEvent {
        self.next_ask += 1;
        let ask = self.next_ask;
        match request {
            PersonRequest::Control { user, request, answer } => {
                self.asks.insert(ask, answer);
                ConversationEvent::Asked { ask, user, request }
            }
            PersonRequest::Approve { user, request, answer } => {
                self.approvals.insert(ask, answer);
                ConversationEvent::ApprovalGiven { ask, user, request }
            }
            PersonRequest::RunTool { user, request, answer } => {
                self.calls.insert(ask, answer);
                ConversationEvent::CallRequested { ask, user, request }
            }
            PersonRequest::Notice { reason, message } => ConversationEvent::Noticed { reason, message },
            PersonRequest::Record { body, recorded } => {
                self.recorded.push(recorded);
                ConversationEvent::ProjectNews(body)
            }
            PersonRequest::ListWaiting { answer } => {
                // Whoever asked may be gone.
                let _ = answer.send(state.waiting_calls());
                continue_event()
            }
        }
    }
}

/// The question that is refused first when nobody answers it, and when.
pub(super) fn next_expiry(state: &ConversationState) -> Option<(u64, SystemTime)> {
    let expiry = |question: &CallQuestion| {
        // A time that cannot be read is long ago, so that no call waits for ever.
        let asked = parse_rfc3339(&question.at).unwrap_or(SystemTime::UNIX_EPOCH);
        (question.seq, asked.checked_add(Duration::from_secs(question.asked.seconds)).unwrap_or(asked))
    };
    state.log.waiting().map(|(_, question)| expiry(question)).min_by_key(|(_, at)| *at)
}

/// Waits until the question has to be refused, or for a while: the wall clock may be set meanwhile.
pub(super) async fn expiry(next: Option<(u64, SystemTime)>) -> ConversationEvent {
    let Some((question, at)) = next else { return std::future::pending().await };
    tokio::time::sleep(at.duration_since(SystemTime::now()).unwrap_or_default().min(CLOCK_CHECK)).await;
    if at <= SystemTime::now() { ConversationEvent::ApprovalExpired { question } } else { continue_event() }
}
