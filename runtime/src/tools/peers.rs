//! The tools ListPods and SendToPeerPod. The gateway answers both, and knows the agent by its token.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use uuid::Uuid;
use yoi_line::{CallError, RequestClient};
use yoi_wire::entry::ToolOutcome;
use yoi_wire::hub::{PodList, Refusal, RefusalReason, SendRequest, SendResponse, VisibilityReason, VisiblePod, gateway_api};

use super::CallResult;
use super::call_args::SendArgs;

/// Tries to send one message. Sending it again is safe, because it has an id.
const TRIES: usize = 3;

/// Ids of this run's messages that may or may not have arrived, by recipient and text. The same text to the same agent is the same message.
#[derive(Debug, Default)]
pub struct UnconfirmedMessages(Mutex<HashMap<(String, String), String>>);

impl UnconfirmedMessages {
    /// Forgets all ids: the same text in a later run is a new message.
    pub fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(String, String), String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub async fn list(caller: &RequestClient) -> CallResult {
    match caller.post_json::<_, PodList>(gateway_api::LIST_PODS, &serde_json::json!({})).await {
        Ok(list) if list.pods.is_empty() => CallResult::succeeded("You see no agents."),
        Ok(list) => CallResult::succeeded(list.pods.iter().map(pod_line).collect::<Vec<_>>().join("\n")),
        Err(error) => CallResult::failed(error_sentence(&error)),
    }
}

fn pod_line(pod: &VisiblePod) -> String {
    let reasons = pod.reasons.iter().map(|reason| match reason {
        VisibilityReason::Itself => "self",
        VisibilityReason::Peer => "peer",
    });
    let live = if pod.live { "live" } else { "not live" };
    format!("{} ({}): {live}, {}", pod.name, reasons.collect::<Vec<_>>().join(", "), pod.state)
}

pub async fn send(caller: &RequestClient, unconfirmed: &UnconfirmedMessages, args: &SendArgs, limit: Duration) -> CallResult {
    let key = (args.to.clone(), args.message.clone());
    // The id is stored before the message is sent, so that it survives however this call ends.
    let message_id = unconfirmed.lock().entry(key.clone()).or_insert_with(|| Uuid::new_v4().to_string()).clone();
    let message = SendRequest { to: args.to.clone(), message_id: message_id.clone(), text: args.message.clone() };
    let answer = tokio::time::timeout(limit, post_message(caller, &message)).await;
    let unknown = |why: &str| CallResult {
        outcome: ToolOutcome::Unknown,
        output: format!(
            "It is not known whether the message reached {:?}: {why}. Send the same text to it again to find out: it has the same id \
             ({message_id}) in this run, so that it is delivered once.",
            args.to
        ),
    };
    let end = match answer {
        Ok(Ok(SendResponse { .. })) => CallResult::succeeded(format!("The message is in the inbox of {}.", args.to)),
        Ok(Err(error)) => match parse_refusal(&error) {
            Some(refusal) => match refusal_sentence(&refusal, &args.to) {
                Some(sentence) => CallResult::failed(sentence),
                None => return unknown(&refusal.message),
            },
            None if never_sent(&error) => CallResult::failed(error_sentence(&error)),
            None => return unknown(&error.failure().message),
        },
        Err(_) => return unknown(&format!("there was no answer within {} s", limit.as_secs())),
    };
    unconfirmed.lock().remove(&key);
    end
}

async fn post_message(caller: &RequestClient, message: &SendRequest) -> Result<SendResponse, CallError> {
    let mut tried = 1;
    loop {
        match caller.post_json::<_, SendResponse>(gateway_api::SEND, message).await {
            Err(CallError::Unsent(_) | CallError::Broken(_)) if tried < TRIES => tried += 1,
            done => return done,
        }
    }
}

/// Whether the last try failed before it sent anything. An earlier try may have sent the message.
fn never_sent(error: &CallError) -> bool {
    match error {
        CallError::Connect(_) | CallError::Path { .. } | CallError::Encode(_) => true,
        CallError::Unsent(_)
        | CallError::Broken(_)
        | CallError::TimedOut(_)
        | CallError::Status { .. }
        | CallError::ReadBody(_)
        | CallError::Decode(_) => false,
    }
}

fn parse_refusal(error: &CallError) -> Option<Refusal> {
    match error {
        CallError::Status { body, .. } => serde_json::from_slice(body).ok(),
        _ => None,
    }
}

/// The message for the model, one for each reason, so that it knows what it can do next. `None` when the message may have arrived anyway.
fn refusal_sentence(refusal: &Refusal, to: &str) -> Option<String> {
    Some(match refusal.reason {
        RefusalReason::NotAnAgent => "The gateway does not know this agent; nothing was sent.".to_owned(),
        RefusalReason::NotVisible => format!("There is no agent {to:?} that you can see; nothing was sent."),
        RefusalReason::NotAPeer => format!("You see {to:?}, but it is not your peer; nothing was sent."),
        RefusalReason::Unreachable => format!("{to:?} is your peer, but it is not reachable now; nothing was sent or queued."),
        RefusalReason::InboxFull => format!("The inbox of {to:?} is full; nothing was sent. Try again later."),
        RefusalReason::Invalid => format!("The message was not taken as it is: {}", refusal.message),
        RefusalReason::ReceiverFailed | RefusalReason::Unacknowledged => return None,
    })
}

fn error_sentence(error: &CallError) -> String {
    match parse_refusal(error) {
        Some(refusal) => refusal.message,
        None => format!("The gateway could not be asked: {}", error.failure()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a25_every_refusal_has_its_own_message_and_a_message_that_may_have_arrived_is_not_refused() {
        use RefusalReason::{InboxFull, Invalid, NotAPeer, NotAnAgent, NotVisible, ReceiverFailed, Unacknowledged, Unreachable};
        let sentence = |reason| refusal_sentence(&Refusal { reason, message: "why".to_owned() }, "b");
        let sure = [NotAnAgent, NotVisible, NotAPeer, Unreachable, InboxFull, Invalid];
        let sentences: BTreeSet<String> = sure.into_iter().filter_map(sentence).collect();
        assert_eq!(sentences.len(), sure.len());
        assert_eq!([ReceiverFailed, Unacknowledged].map(sentence), [None, None]);
    }
}
