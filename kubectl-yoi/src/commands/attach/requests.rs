//! Carries out what the state asks for.

use tokio::sync::Mutex;
use yoi_wire::control::ControlAction;
use yoi_wire::hub::SendResponse;
use yoi_wire::people::PersonMessage;

use super::state::{Effect, Event};
use crate::cluster::Cluster;
use crate::error::Error;

/// Carries out one effect, and returns what came of it. Texts take turns by `turn`. Leaving is the terminal's own business.
pub async fn carry_out(cluster: &Cluster, agent: &str, turn: &Mutex<()>, effect: Effect) -> Option<Event> {
    match effect {
        Effect::Control(action @ ControlAction::Run { .. }) => {
            let _turn = turn.lock().await;
            Some(ask(cluster, agent, action).await)
        }
        Effect::Control(action) => Some(ask(cluster, agent, action).await),
        Effect::Send(text) => {
            let _turn = turn.lock().await;
            let message = PersonMessage { message_id: uuid::Uuid::now_v7().to_string(), text: text.clone() };
            let answer = cluster.post::<SendResponse>(agent, "message", &message).await;
            Some(Event::Sent { text, answer: answer.map(drop).map_err(|error| sentence(&error)) })
        }
        Effect::Answer(request) => {
            let operation = if request.approve { "approve a call of" } else { "deny a call of" };
            let answer = cluster.answer_call(agent, operation, &request).await.map_err(|error| sentence(&error));
            Some(Event::CallAnswered { answer })
        }
        Effect::Leave => None,
    }
}

async fn ask(cluster: &Cluster, agent: &str, action: ControlAction) -> Event {
    let answer = cluster.ask(agent, action.clone()).await.map_err(|error| sentence(&error));
    Event::Answered { action, answer }
}

/// An error in one line: its next step is of the command line.
fn sentence(error: &Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}
