//! The agent of a request's path, once RBAC allows the request.

use std::sync::Arc;

use axum::http::StatusCode;
use serde::Deserialize;
use yoi_crds::pod::DesiredState;
use yoi_wire::conversation::{MAIN, is_other_name};
use yoi_wire::hub::{Refusal, RefusalReason, ReportReason, runtime_api};
use yoi_wire::open::NamedValue;
use yoi_wire::people::{GROUP, WaitsFor};

use super::ApiFailure;
use crate::GatewayState;
use crate::access::{AccessRequest, AccessResource};
use crate::agent_index::AgentRecord;
use crate::front_proxy::User;
use crate::readers::stopped_advice;

/// Namespace and name of a YoiPod, and of one of its conversations, from the path.
#[derive(Debug, Deserialize)]
pub struct AgentTarget {
    pub namespace: String,
    pub name: String,
    /// Absent: `main`.
    #[serde(default)]
    pub conversation: Option<String>,
}

impl AgentTarget {
    /// The agent. Rights are checked first, so that a user without them does not learn whether the agent exists.
    pub async fn resolve(
        &self,
        gateway: &GatewayState,
        user: &User,
        verb: &'static str,
        subresource: &'static str,
    ) -> Result<Arc<AgentRecord>, ApiFailure> {
        let AgentTarget { namespace, name, .. } = self;
        let resource = AccessResource::Subresource(subresource);
        let request = AccessRequest { verb, resource, namespace: namespace.clone(), name: name.clone() };
        check_right(gateway, user, &request).await.map_err(|failure| failure.about(name))?;
        gateway.agents.get(namespace, name).ok_or_else(|| {
            let message = format!("YoiPod {namespace}/{name} not found; see kubectl get yoipods -n {namespace}");
            ApiFailure::new(StatusCode::NOT_FOUND, message).about(name)
        })
    }
}

impl AgentTarget {
    /// The path at the runtime for this conversation, where `path` is that for `main`.
    pub fn runtime_path(&self, path: &str) -> Result<String, ApiFailure> {
        match self.conversation.as_deref() {
            None | Some(MAIN) => Ok(path.to_owned()),
            Some(conversation) => self.conversation_path(conversation, path),
        }
    }

    /// The path at the runtime for the conversation of this name, of which nothing is in a path that is not checked.
    pub fn conversation_path(&self, conversation: &str, path: &str) -> Result<String, ApiFailure> {
        if conversation == MAIN || is_other_name(conversation) {
            return Ok(runtime_api::of_conversation(path, conversation));
        }
        let message =
            format!("{conversation:?} is no name of a conversation: 1 to 63 lower-case letters, digits and -, neither first nor last");
        Err(ApiFailure::new(StatusCode::BAD_REQUEST, message).about(&self.name))
    }
}

/// Refuses who has not this right.
pub async fn check_right(gateway: &GatewayState, user: &User, request: &AccessRequest) -> Result<(), ApiFailure> {
    match gateway.access.is_allowed(user, request).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(ApiFailure::new(StatusCode::FORBIDDEN, forbidden(&user.name, request))),
        Err(error) => {
            tracing::warn!(error = yoi_wire::error_chain(&error), "caller's rights unknown");
            Err(ApiFailure::new(StatusCode::SERVICE_UNAVAILABLE, format!("{error}; try again")))
        }
    }
}

/// In the words of the API server for its own kinds.
pub fn forbidden(user: &str, request: &AccessRequest) -> String {
    let AccessRequest { verb, resource, namespace, name } = request;
    let (group, kind, resource) = match resource {
        AccessResource::Subresource(subresource) => (GROUP, "yoipods", format!("yoipods/{subresource}")),
        AccessResource::OfProject(subresource) => (GROUP, "yoiprojects", format!("yoiprojects/{subresource}")),
        AccessResource::Objects(plural) => ("yoi.dev", *plural, (*plural).to_owned()),
    };
    let object = if name.is_empty() { String::new() } else { format!(" \"{name}\"") };
    format!(
        "{kind}.{group}{object} is forbidden: User \"{user}\" cannot {verb} resource \"{resource}\" in API group \"{group}\" in the namespace \
         \"{namespace}\"; ask for a role that allows it"
    )
}

/// Why this agent has no line, and what to do next. `refusal` is what the delivery says of it.
pub fn no_line(record: &AgentRecord, refusal: &Refusal) -> ApiFailure {
    match refusal.reason {
        RefusalReason::Waking => ApiFailure::from_refusal(&record.name.namespace, &record.name.name, refusal),
        _ => unreachable(record),
    }
}

/// Why this agent does not answer, and what to do next.
pub fn unreachable(record: &AgentRecord) -> ApiFailure {
    let (namespace, name) = (&record.name.namespace, &record.name.name);
    let about = |code, why: String| ApiFailure::new(code, format!("YoiPod {namespace}/{name} {why}")).about(name);
    match (record.desired, &record.unready) {
        _ if record.is_stopped => about(StatusCode::CONFLICT, stopped_advice(record)),
        (DesiredState::Stopped, _) => about(StatusCode::CONFLICT, "is being deleted".to_owned()),
        (DesiredState::Running | DesiredState::Suspended | DesiredState::Unknown, Some((reason, message))) => {
            let why = format!("is not reachable ({reason}: {message}); see kubectl describe yoipod {name} -n {namespace}");
            let failure = about(StatusCode::SERVICE_UNAVAILABLE, why);
            // A runtime that says how it is has a line, or had one: to another replica of the gateway, which wrote this condition.
            if is_reported(reason) { failure.retry(WaitsFor::Line, "its line to this gateway is not there yet") } else { failure }
        }
        (DesiredState::Running | DesiredState::Suspended | DesiredState::Unknown, None) => {
            let why = format!("has no line to this gateway yet: try again, or see kubectl describe yoipod {name} -n {namespace}");
            // An agent learns of a new replica by DNS, whose answers may be kept for half a minute.
            about(StatusCode::SERVICE_UNAVAILABLE, why).retry(WaitsFor::Line, "it learns of a new gateway within half a minute")
        }
    }
}

/// Whether a runtime that goes on gave this reason.
fn is_reported(reason: &str) -> bool {
    let ends = [ReportReason::Stopping, ReportReason::Resting];
    ReportReason::ALL.iter().any(|known| !ends.contains(known) && known.as_str() == reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_runtime_says_of_itself_is_a_reason_to_try_again() {
        assert!(is_reported("Starting") && is_reported("ModelUnreachable"));
        assert!(!is_reported("Stopping") && !is_reported("Resting") && !is_reported("PodFailed"));
    }

    #[test]
    fn a_conversation_has_paths_of_its_own_and_none_that_leads_elsewhere() {
        let path = |conversation: Option<&str>| {
            let conversation = conversation.map(str::to_owned);
            AgentTarget { namespace: "ns".into(), name: "a".into(), conversation }.runtime_path(runtime_api::LOG).ok()
        };
        assert_eq!((path(None).as_deref(), path(Some("main")).as_deref()), (Some("/v1/log"), Some("/v1/log")));
        assert_eq!(path(Some("review")).as_deref(), Some("/v1/conversations/review/log"));
        assert!(["", "../x", "a/b", "A", "a?b"].into_iter().all(|name| path(Some(name)).is_none()));
    }

    #[test]
    fn the_message_names_the_user_as_the_cluster_does() {
        let request = AccessRequest { verb: "get", resource: AccessResource::Subresource("log"), namespace: "ns".into(), name: "a".into() };
        assert_eq!(
            forbidden("CORP\\o'neil", &request),
            "yoipods.runtime.yoi.dev \"a\" is forbidden: User \"CORP\\o'neil\" cannot get resource \"yoipods/log\" in API group \
             \"runtime.yoi.dev\" in the namespace \"ns\"; ask for a role that allows it"
        );
        let create =
            AccessRequest { verb: "create", resource: AccessResource::Objects("yoipeers"), namespace: "ns".into(), name: String::new() };
        assert_eq!(
            forbidden("jane", &create),
            "yoipeers.yoi.dev is forbidden: User \"jane\" cannot create resource \"yoipeers\" in API group \"yoi.dev\" in the namespace \"ns\"; \
             ask for a role that allows it"
        );
    }
}
