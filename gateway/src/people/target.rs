//! From a path and a user to an agent that this user may reach.

use std::sync::Arc;

use axum::http::StatusCode;
use serde::Deserialize;
use yoi_crds::pod::DesiredState;
use yoi_wire::people::GROUP;

use super::Failure;
use crate::Hub;
use crate::access::Deed;
use crate::frontproxy::User;
use crate::world::{AgentRecord, Key};

#[derive(Debug, Deserialize)]
pub struct Target {
    pub namespace: String,
    pub name: String,
}

impl Target {
    /// Rights first: who may not ask does not learn what there is.
    pub async fn resolve(
        &self,
        hub: &Hub,
        user: &User,
        verb: &'static str,
        subresource: &'static str,
    ) -> Result<Arc<AgentRecord>, Failure> {
        let Target { namespace, name } = self;
        let deed = Deed { verb, subresource, namespace: namespace.clone(), name: name.clone() };
        let allowed = hub.access.may(user, &deed).await.map_err(|error| {
            tracing::warn!(error = crate::chain(&error), "caller's rights unknown");
            Failure::new(StatusCode::SERVICE_UNAVAILABLE, format!("{error}; try again")).of(name)
        })?;
        if !allowed {
            return Err(Failure::new(StatusCode::FORBIDDEN, forbidden(&user.name, &deed)).of(name));
        }
        hub.world.agent(&Key::new(namespace, name)).ok_or_else(|| {
            let message = format!("YoiPod {namespace}/{name} not found; see kubectl get yoipods -n {namespace}");
            Failure::new(StatusCode::NOT_FOUND, message).of(name)
        })
    }
}

/// As the API server says it of its own kinds.
fn forbidden(user: &str, deed: &Deed) -> String {
    let Deed { verb, subresource, namespace, name } = deed;
    format!(
        "yoipods.{GROUP} \"{name}\" is forbidden: User \"{user}\" cannot {verb} resource \"yoipods/{subresource}\" in API group \"{GROUP}\" in the \
         namespace \"{namespace}\"; ask for a role that allows it"
    )
}

/// Why nobody answers for this agent, and what to do next.
pub fn unreachable(record: &AgentRecord) -> Failure {
    let (namespace, name) = (&record.name.namespace, &record.name.name);
    let (code, why) = match (record.desired, &record.unready) {
        (DesiredState::Stopped, _) => (StatusCode::CONFLICT, format!("is Stopped: start it with kubectl yoi start {name} -n {namespace}")),
        (DesiredState::Running | DesiredState::Unknown, Some((reason, message))) => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("is not reachable ({reason}: {message}); see kubectl describe yoipod {name} -n {namespace}"),
        ),
        (DesiredState::Running | DesiredState::Unknown, None) => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("has no line to this gateway yet: try again, or see kubectl describe yoipod {name} -n {namespace}"),
        ),
    };
    Failure::new(code, format!("YoiPod {namespace}/{name} {why}")).of(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_not_is_named_as_the_cluster_knows_them() {
        let deed = Deed { verb: "get", subresource: "log", namespace: "ns".into(), name: "a".into() };
        assert_eq!(
            forbidden("CORP\\o'neil", &deed),
            "yoipods.runtime.yoi.dev \"a\" is forbidden: User \"CORP\\o'neil\" cannot get resource \"yoipods/log\" in API group \
             \"runtime.yoi.dev\" in the namespace \"ns\"; ask for a role that allows it"
        );
    }
}
