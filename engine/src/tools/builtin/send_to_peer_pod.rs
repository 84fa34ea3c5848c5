//! The tool SendToPeerPod.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use yoi_wire::entry::ToolOutcome;
use yoi_wire::hub::{Refusal, RefusalReason, SendRequest, SendResponse};
use yoi_wire::manifest::RunLimits;

use super::peers_error_sentence;
use crate::children::Children;
use crate::peers::{Peers, PeersError};
use crate::tools::arguments::{not_empty, some_not_empty};
use crate::tools::result::{CallResult, LiveOutput};
use crate::tools::tool::{ToolContext, TypedTool, default_time_limit};
use crate::tools::unconfirmed::UnconfirmedMessages;

/// Tries to send one message. Sending it again is safe, because it has an id.
const TRIES: usize = 3;

/// Sends a message to another agent.
pub struct SendToPeerPod;

// No doc comment: it would be in the schema.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Args {
    /// Name of the agent.
    #[serde(deserialize_with = "not_empty")]
    #[schemars(length(min = 1))]
    to: String,
    #[serde(deserialize_with = "not_empty")]
    #[schemars(length(min = 1))]
    message: String,
    /// Its conversation, where a message of it or a person names one. Without it, the message goes to its first one.
    #[serde(default, deserialize_with = "some_not_empty")]
    #[schemars(length(min = 1))]
    conversation: Option<String>,
}

impl TypedTool for SendToPeerPod {
    type Args = Args;
    const NAME: &'static str = "SendToPeerPod";

    fn description(&self, _limits: &RunLimits) -> String {
        "Send a message to another agent that is your peer. It is delivered once; an idle agent starts to work on it. An answer, if there \
         is one, comes as a message."
            .to_owned()
    }

    async fn run(&self, context: &ToolContext, args: Args, _live: &LiveOutput) -> CallResult {
        send(
            Way::Peer(&*context.peers),
            &context.unconfirmed,
            (&args.to, args.conversation, &args.message),
            default_time_limit(&context.limits),
        )
        .await
    }
}

/// How a message reaches another agent.
#[derive(Clone, Copy)]
pub(super) enum Way<'a> {
    /// By a YoiPeer.
    Peer(&'a dyn Peers),
    /// Because the agent has started it.
    Child(&'a dyn Children),
}

impl Way<'_> {
    async fn post(self, message: &SendRequest) -> Result<SendResponse, PeersError> {
        match self {
            Way::Peer(peers) => peers.send(message).await,
            Way::Child(children) => children.send_to_child(message).await,
        }
    }
}

pub(super) async fn send(
    way: Way<'_>,
    unconfirmed: &UnconfirmedMessages,
    (to, conversation, text): (&str, Option<String>, &str),
    limit: Duration,
) -> CallResult {
    let inbox = conversation.as_ref().map_or(to.to_owned(), |conversation| format!("{to}/{conversation}"));
    let key = (inbox, text.to_owned());
    // The id is stored before the message is sent, so that it survives however this call ends.
    let (message_id, sent_before) = unconfirmed.id_of(&key);
    let message = SendRequest { to: to.to_owned(), message_id: message_id.clone(), text: text.to_owned(), conversation };
    let end = match tokio::time::timeout(limit, post_message(way, &message)).await {
        Ok(LastTry { answer, sent_earlier }) => send_end(answer, to, sent_before || sent_earlier),
        Err(_) => SendEnd::Unknown(format!("there was no answer within {} s", limit.as_secs())),
    };
    let end = match end {
        SendEnd::Arrived => CallResult::succeeded(format!("The message is in the inbox of {to}.")),
        SendEnd::NotSent(sentence) => CallResult::failed(sentence),
        SendEnd::Unknown(why) => {
            let output = format!(
                "It is not known whether the message reached {to:?}: {why}. Send the same text to it again to find out: it has the same id \
                 ({message_id}) in this run, so that it is delivered once."
            );
            return CallResult::new(ToolOutcome::Unknown, output);
        }
    };
    unconfirmed.remove(&key);
    end
}

/// The answer to the last try to send a message.
struct LastTry {
    answer: Result<SendResponse, PeersError>,
    /// An earlier try sent the message and got no answer.
    sent_earlier: bool,
}

async fn post_message(way: Way<'_>, message: &SendRequest) -> LastTry {
    let (mut tried, mut sent_earlier) = (1, false);
    loop {
        let answer = way.post(message).await;
        match answer {
            Err(PeersError::Unanswered { retry: true, .. }) if tried < TRIES => sent_earlier = true,
            Err(PeersError::NotSent { retry: true, .. }) if tried < TRIES => {}
            answer => return LastTry { answer, sent_earlier },
        }
        tried += 1;
    }
}

/// What is known of a message.
#[derive(Debug, PartialEq, Eq)]
enum SendEnd {
    Arrived,
    /// It has not arrived and will not. With a sentence for the model.
    NotSent(String),
    /// With the reason, as a clause.
    Unknown(String),
}

/// What the last answer tells. `may_have_arrived`: an earlier try had no answer. A refusal of this one says nothing about that.
fn send_end(answer: Result<SendResponse, PeersError>, to: &str, may_have_arrived: bool) -> SendEnd {
    let Err(error) = answer else { return SendEnd::Arrived };
    let not_sent = match &error {
        PeersError::Refused(refusal) => refusal_sentence(refusal, to),
        PeersError::NotSent { .. } => Some(peers_error_sentence(&error)),
        PeersError::Unanswered { .. } => None,
    };
    let why = error.to_string();
    match not_sent {
        None => SendEnd::Unknown(why),
        Some(_) if may_have_arrived => SendEnd::Unknown(format!("an earlier try had no answer, and the last one failed ({why})")),
        Some(sentence) => SendEnd::NotSent(sentence),
    }
}

/// The message for the model, one for each reason, so that it knows what it can do next. `None` when the message may have arrived anyway.
fn refusal_sentence(refusal: &Refusal, to: &str) -> Option<String> {
    Some(match refusal.reason {
        RefusalReason::NotAnAgent => "The gateway does not know this agent; nothing was sent.".to_owned(),
        RefusalReason::NotVisible => format!("There is no agent {to:?} that you can see; nothing was sent."),
        RefusalReason::NotAPeer => format!("You see {to:?}, but it is not your peer; nothing was sent."),
        RefusalReason::Unreachable => format!("{to:?} is not reachable now; nothing was sent or queued."),
        RefusalReason::InboxFull => format!("The inbox of {to:?} is full; nothing was sent. Try again later."),
        RefusalReason::Resting | RefusalReason::Waking => {
            format!("{to:?} rests and is being woken, which takes a while; nothing was sent. Send it again.")
        }
        RefusalReason::NotAChild => format!("You have started no agent named {to:?}; nothing was sent."),
        RefusalReason::AlreadyRunning => {
            format!("{to:?} is at work and takes nothing more until it is idle; nothing was sent or queued. ReadPodOutput says how it is.")
        }
        RefusalReason::NoDelegation
        | RefusalReason::NameTaken
        | RefusalReason::Limit
        | RefusalReason::NotMade
        | RefusalReason::NotLent
        | RefusalReason::PathHeld
        | RefusalReason::NotGit
        | RefusalReason::AlreadyLive
        | RefusalReason::NotRestorable
        | RefusalReason::NotUp => {
            format!("{}; nothing was sent.", refusal.message)
        }
        RefusalReason::Invalid => format!("The message was not taken as it is: {}", refusal.message),
        RefusalReason::ReceiverFailed | RefusalReason::Unacknowledged => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a25_every_refusal_has_its_own_message_and_a_message_that_may_have_arrived_is_not_refused() {
        use RefusalReason::{
            AlreadyRunning, InboxFull, Invalid, NotAChild, NotAPeer, NotAnAgent, NotVisible, ReceiverFailed, Unacknowledged, Unreachable,
        };
        let sentence = |reason| refusal_sentence(&Refusal { reason, message: "why".to_owned() }, "b");
        let sure = [NotAnAgent, NotVisible, NotAPeer, Unreachable, InboxFull, Invalid, NotAChild, AlreadyRunning];
        let sentences: BTreeSet<String> = sure.into_iter().filter_map(sentence).collect();
        assert_eq!(sentences.len(), sure.len());
        assert_eq!([ReceiverFailed, Unacknowledged].map(sentence), [None, None]);
    }

    #[test]
    fn a_last_try_that_sent_nothing_is_no_proof_that_an_earlier_one_did_not_arrive() {
        let unreachable = || Err(PeersError::NotSent { message: "failed to connect".to_owned(), retry: false });
        let refused = |reason| Err(PeersError::Refused(Refusal { reason, message: "why".to_owned() }));
        let answers: [&dyn Fn() -> Result<SendResponse, PeersError>; 3] =
            [&unreachable, &|| refused(RefusalReason::Unreachable), &|| refused(RefusalReason::InboxFull)];
        for answer in answers {
            assert!(matches!(send_end(answer(), "b", false), SendEnd::NotSent(_)), "{:?}", answer());
            assert!(matches!(send_end(answer(), "b", true), SendEnd::Unknown(_)), "{:?}", answer());
        }
        for earlier in [false, true] {
            assert_eq!(send_end(refused(RefusalReason::Unacknowledged), "b", earlier), SendEnd::Unknown("why".to_owned()));
            let sent = SendResponse { message_id: "m".to_owned(), duplicate: earlier };
            assert_eq!(send_end(Ok(sent), "b", earlier), SendEnd::Arrived);
        }
    }
}
