//! ListPods and SendToPeerPod: asked of the gateway, which knows by the token who asks.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use uuid::Uuid;
use yoi_line::{CallError, RequestClient};
use yoi_wire::entry::ToolOutcome;
use yoi_wire::hub::{PodList, Refusal, RefusalReason, SendRequest, SendResponse, VisibilityReason, VisiblePod, gateway_api};

use super::End;
use super::args::SendArgs;

/// A message has an id, so that it may be sent again when nobody knows whether it came through.
const TRIES: usize = 3;

/// Messages of this run of which nobody knows whether they arrived, with their ids: the same words to the same agent are the same message.
#[derive(Debug, Default)]
pub struct Unsettled(Mutex<HashMap<(String, String), String>>);

impl Unsettled {
    /// What a former run did not learn, it will not repeat: its words in a later run are a new message.
    pub fn forget(&self) {
        self.held().clear();
    }

    fn held(&self) -> MutexGuard<'_, HashMap<(String, String), String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub async fn list(caller: &RequestClient) -> End {
    match caller.post_json::<_, PodList>(gateway_api::LIST_PODS, &serde_json::json!({})).await {
        Ok(list) if list.pods.is_empty() => End::succeeded("You see no agents."),
        Ok(list) => End::succeeded(list.pods.iter().map(line).collect::<Vec<_>>().join("\n")),
        Err(error) => End::failed(sentence(&error)),
    }
}

fn line(pod: &VisiblePod) -> String {
    let reasons = pod.reasons.iter().map(|reason| match reason {
        VisibilityReason::Itself => "self",
        VisibilityReason::Peer => "peer",
    });
    let live = if pod.live { "live" } else { "not live" };
    format!("{} ({}): {live}, {}", pod.name, reasons.collect::<Vec<_>>().join(", "), pod.state)
}

pub async fn send(caller: &RequestClient, unsettled: &Unsettled, args: &SendArgs, limit: Duration) -> End {
    let key = (args.to.clone(), args.message.clone());
    // Kept before it leaves: whatever ends this call, the id is not lost.
    let message_id = unsettled.held().entry(key.clone()).or_insert_with(|| Uuid::new_v4().to_string()).clone();
    let message = SendRequest { to: args.to.clone(), message_id: message_id.clone(), text: args.message.clone() };
    let answer = tokio::time::timeout(limit, asked(caller, &message)).await;
    let unknown = |why: &str| End {
        outcome: ToolOutcome::Unknown,
        output: format!(
            "It is not known whether the message reached {:?}: {why}. Send the same text to it again to find out: it has the same id \
             ({message_id}) in this run, so that it is delivered once.",
            args.to
        ),
    };
    let end = match answer {
        Ok(Ok(SendResponse { .. })) => End::succeeded(format!("The message is in the inbox of {}.", args.to)),
        Ok(Err(error)) => match refusal(&error) {
            Some(said) => match refused(&said, &args.to) {
                Some(sentence) => End::failed(sentence),
                None => return unknown(&said.message),
            },
            None if unsent(&error) => End::failed(sentence(&error)),
            None => return unknown(&error.failure().message),
        },
        Err(_) => return unknown(&format!("there was no answer within {} s", limit.as_secs())),
    };
    unsettled.held().remove(&key);
    end
}

async fn asked(caller: &RequestClient, message: &SendRequest) -> Result<SendResponse, CallError> {
    let mut tried = 1;
    loop {
        match caller.post_json::<_, SendResponse>(gateway_api::SEND, message).await {
            Err(CallError::Unsent(_) | CallError::Broken(_)) if tried < TRIES => tried += 1,
            done => return done,
        }
    }
}

/// Nothing of the last try left this process. An earlier one may have, so only a first failure to connect is sure.
fn unsent(error: &CallError) -> bool {
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

fn refusal(error: &CallError) -> Option<Refusal> {
    match error {
        CallError::Status { body, .. } => serde_json::from_slice(body).ok(),
        _ => None,
    }
}

/// One sentence for each reason, so that the model can tell what it may do next; `None` when the message may have arrived all the same.
fn refused(said: &Refusal, to: &str) -> Option<String> {
    Some(match said.reason {
        RefusalReason::NotAnAgent => "The gateway does not know this agent; nothing was sent.".to_owned(),
        RefusalReason::NotVisible => format!("There is no agent {to:?} that you can see; nothing was sent."),
        RefusalReason::NotAPeer => format!("You see {to:?}, but it is not your peer; nothing was sent."),
        RefusalReason::Unreachable => format!("{to:?} is your peer, but it is not reachable now; nothing was sent or queued."),
        RefusalReason::InboxFull => format!("The inbox of {to:?} is full; nothing was sent. Try again later."),
        RefusalReason::Invalid => format!("The message was not taken as it is: {}", said.message),
        RefusalReason::ReceiverFailed | RefusalReason::Unacknowledged => return None,
    })
}

fn sentence(error: &CallError) -> String {
    match refusal(error) {
        Some(said) => said.message,
        None => format!("The gateway could not be asked: {}", error.failure()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a25_every_refusal_has_its_own_sentence_and_what_may_have_arrived_is_no_refusal() {
        use RefusalReason::{InboxFull, Invalid, NotAPeer, NotAnAgent, NotVisible, ReceiverFailed, Unacknowledged, Unreachable};
        let sentence = |reason| refused(&Refusal { reason, message: "why".to_owned() }, "b");
        let sure = [NotAnAgent, NotVisible, NotAPeer, Unreachable, InboxFull, Invalid];
        let sentences: BTreeSet<String> = sure.into_iter().filter_map(sentence).collect();
        assert_eq!(sentences.len(), sure.len());
        assert_eq!([ReceiverFailed, Unacknowledged].map(sentence), [None, None]);
    }
}
