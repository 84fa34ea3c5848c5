//! Events for the conversations that start and stop beside an agent's first one. Start and stop of the agent itself are changes of its condition Ready.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use kube::ResourceExt;
use yoi_crds::YoiPod;
use yoi_plan::conditions::Event;

const STARTED: &str = "ConversationStarted";
const STOPPED: &str = "ConversationStopped";

/// The conversations that were last seen to run, of each agent. What changes while no operator looks is told by no Event: the agent's own list has it.
#[derive(Default)]
pub struct LiveConversations(Mutex<HashMap<(String, String), Seen>>);

/// In which Pod they ran.
struct Seen {
    pod_uid: String,
    names: Vec<String>,
}

impl LiveConversations {
    /// What has started and stopped since the agent was last looked at. Those of another Pod have not: they went and came with their agent.
    pub fn changes(&self, agent: &YoiPod) -> Vec<Event> {
        let id = (agent.namespace().unwrap_or_default(), agent.name_any());
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(live) = agent.status.as_ref().and_then(|status| status.live.as_ref()) else {
            all.remove(&id);
            return Vec::new();
        };
        let now = Seen { pod_uid: live.pod_uid.clone(), names: live.conversations.clone() };
        let name = id.1.clone();
        let before = all.insert(id, now).filter(|before| before.pod_uid == live.pod_uid);
        before.map_or_else(Vec::new, |before| events(&name, &before.names, &live.conversations))
    }

    /// The agent is gone.
    pub fn forget(&self, namespace: &str, name: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&(namespace.to_owned(), name.to_owned()));
    }
}

fn events(agent: &str, before: &[String], after: &[String]) -> Vec<Event> {
    let event = |reason: &str, note: String| Event { warning: false, reason: reason.to_owned(), note };
    let stopped = before.iter().filter(|name| !after.contains(name));
    let started = after.iter().filter(|name| !before.contains(name));
    let stopped = stopped.map(|name| {
        event(STOPPED, format!("the conversation {name} does not run any more: kubectl yoi conversation ls {agent} says how it ended"))
    });
    stopped.chain(started.map(|name| event(STARTED, format!("the conversation {name} has started")))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn agent(pod: Option<&str>, conversations: &[&str]) -> YoiPod {
        let live = pod.map(|uid| json!({"podUID": uid, "activity": "Idle", "conversations": conversations, "observedAt": "t"}));
        let value = json!({
            "apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPod", "metadata": {"name": "a", "namespace": "n"},
            "spec": {"projectRef": {"name": "p"}, "agent": {"builtin": {}}}, "status": {"live": live},
        });
        serde_json::from_value(value).expect("an agent")
    }

    #[test]
    fn a_conversation_that_starts_or_stops_in_a_pod_is_an_event_once_and_those_of_another_pod_are_none() {
        let seen = LiveConversations::default();
        let reasons = |agent: &YoiPod| -> Vec<String> {
            seen.changes(agent).into_iter().map(|event| format!("{} {}", event.reason, event.note)).collect()
        };
        assert!(reasons(&agent(Some("1"), &["old"])).is_empty(), "an operator that has just started does not know since when it runs");
        assert_eq!(reasons(&agent(Some("1"), &["old", "review"])), ["ConversationStarted the conversation review has started"]);
        assert!(reasons(&agent(Some("1"), &["old", "review"])).is_empty());
        let stopped = reasons(&agent(Some("1"), &["review"]));
        assert!(
            stopped.len() == 1 && stopped[0].starts_with("ConversationStopped the conversation old does not run any more"),
            "{stopped:?}"
        );
        assert!(reasons(&agent(Some("2"), &[])).is_empty(), "the agent has started again, and they start with it");
        assert!(reasons(&agent(None, &[])).is_empty() && reasons(&agent(Some("2"), &["review"])).is_empty());
        seen.forget("n", "a");
        assert!(reasons(&agent(Some("2"), &[])).is_empty());
    }
}
