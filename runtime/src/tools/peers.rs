//! ListPods and SendToPeerPod: asked of the gateway, which knows by the token who asks.

use uuid::Uuid;
use yoi_line::{CallError, Caller};
use yoi_wire::hub::{PodList, Refusal, RefusalReason, SendToPeer, Sent, SightReason, VisiblePod, asked};

use super::End;
use super::args::SendArgs;

/// A message has an id, so that it may be sent again when nobody knows whether it came through.
const TRIES: usize = 3;

pub async fn list(caller: &Caller) -> End {
    match caller.post_json::<_, PodList>(asked::LIST_PODS, &serde_json::json!({})).await {
        Ok(list) if list.pods.is_empty() => End::succeeded("You see no agents."),
        Ok(list) => End::succeeded(list.pods.iter().map(line).collect::<Vec<_>>().join("\n")),
        Err(error) => End::failed(sentence(&error)),
    }
}

fn line(pod: &VisiblePod) -> String {
    let reasons = pod.reasons.iter().map(|reason| match reason {
        SightReason::Itself => "self",
        SightReason::Peer => "peer",
    });
    let live = if pod.live { "live" } else { "not live" };
    format!("{} ({}): {live}, {}", pod.name, reasons.collect::<Vec<_>>().join(", "), pod.state)
}

pub async fn send(caller: &Caller, args: &SendArgs) -> End {
    let message = SendToPeer { to: args.to.clone(), message_id: Uuid::new_v4().to_string(), text: args.message.clone() };
    let mut tried = 1;
    loop {
        match caller.post_json::<_, Sent>(asked::SEND, &message).await {
            Ok(Sent { .. }) => return End::succeeded(format!("The message is in the inbox of {}.", args.to)),
            Err(CallError::Unsent(_) | CallError::Broken(_)) if tried < TRIES => tried += 1,
            Err(error) => return End::failed(refusal(&error).map_or_else(|| sentence(&error), |said| refused(&said, &args.to))),
        }
    }
}

fn refusal(error: &CallError) -> Option<Refusal> {
    match error {
        CallError::Status { body, .. } => serde_json::from_slice(body).ok(),
        _ => None,
    }
}

/// One sentence for each reason, so that the model can tell what it may do next.
fn refused(said: &Refusal, to: &str) -> String {
    match said.reason {
        RefusalReason::NotAnAgent => "The gateway does not know this agent; nothing was sent.".to_owned(),
        RefusalReason::NotVisible => format!("There is no agent {to:?} that you can see; nothing was sent."),
        RefusalReason::NotAPeer => format!("You see {to:?}, but it is not your peer; nothing was sent."),
        RefusalReason::Unreachable => format!("{to:?} is your peer, but it is not reachable now; nothing was sent or queued."),
        RefusalReason::InboxFull => format!("The inbox of {to:?} is full; nothing was sent. Try again later."),
        RefusalReason::Invalid => format!("The message was not taken as it is: {}", said.message),
        RefusalReason::ReceiverFailed => format!("{to:?} could not store the message: {}", said.message),
    }
}

fn sentence(error: &CallError) -> String {
    match refusal(error) {
        Some(said) => said.message,
        None => format!("The gateway could not be asked: {}", error.fault()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a25_every_refusal_has_its_own_sentence() {
        use RefusalReason::{InboxFull, Invalid, NotAPeer, NotAnAgent, NotVisible, ReceiverFailed, Unreachable};
        let reasons = [NotAnAgent, NotVisible, NotAPeer, Unreachable, InboxFull, Invalid, ReceiverFailed];
        let sentences: BTreeSet<String> =
            reasons.into_iter().map(|reason| refused(&Refusal { reason, message: "why".to_owned() }, "b")).collect();
        assert_eq!(sentences.len(), reasons.len());
    }
}
