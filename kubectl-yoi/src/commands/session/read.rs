//! `session log` and `session export`: the session on a claim is read by a stopped YoiPod that names it, as every stopped agent is read.
//!
//! That YoiPod never starts: it has no Pod but its reader, which mounts the claim read-only. It is deleted afterwards, and by the operator where this process was
//! ended before it could.

use std::time::{Duration, Instant};

use kube::ResourceExt;
use serde_json::json;
use yoi_crds::YoiPod;
use yoi_crds::name::label;

use super::{ListedSession, sessions};
use crate::cluster::{Cluster, Wait};
use crate::error::Error;

/// When the operator deletes a YoiPod that was left over. No copy of a session takes so long.
const LIFETIME: &str = "12h";
/// How long the operator may take to see the YoiPod.
const SEEN_WITHIN: Duration = Duration::from_secs(60);
/// How long a replica of the gateway may take to see what the API server has.
const KNOWN_WITHIN: Duration = Duration::from_secs(15);
const AGAIN_AFTER: Duration = Duration::from_millis(300);

/// Calls `read` with the name of an agent whose session is the one on the claim. It may be called again while it returns [`Error::Missing`].
pub(super) async fn with_reader<F>(cluster: &Cluster, claim: &str, read: impl Fn(String) -> F) -> Result<(), Error>
where
    F: Future<Output = Result<(), Error>>,
{
    let listed = sessions(cluster, false).await?;
    let Some(session) = listed.into_iter().find(|session| session.claim == claim) else {
        let what = format!("a claim {claim} with a session in namespace {}", cluster.namespace);
        return Err(Error::Missing { what, next: cluster.plugin_command("session ls") });
    };
    if let Some(agent) = session.named_by {
        return read(agent).await;
    }
    let made = cluster.create(&reader_of(&session)?).await?;
    let name = made.name_any();
    eprintln!("no agent names {claim}: the stopped YoiPod {name} reads it, and is deleted afterwards");
    let done = tokio::select! {
        done = read_once_known(cluster, &name, read) => done,
        _ = tokio::signal::ctrl_c() => Err(Error::local(format!("read {claim}"), std::io::Error::other("interrupted"), "read it again")),
    };
    let deleted = cluster.delete(&made).await;
    done.and(deleted)
}

/// A YoiPod that names the claim and never starts.
fn reader_of(session: &ListedSession) -> Result<YoiPod, Error> {
    // What the reader needs of a project, it does without where that is gone.
    let project = session.object.labels().get(label::PROJECT).filter(|project| !project.is_empty()).map_or("none", String::as_str);
    let object = json!({
        "apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPod",
        "metadata": { "name": format!("read-{}", &uuid::Uuid::new_v4().simple().to_string()[..12]) },
        "spec": {
            "projectRef": { "name": project },
            "agent": { "builtin": {} },
            "desiredState": "Stopped",
            "session": { "claimName": session.claim },
            "limits": { "lifetime": LIFETIME },
            "ttlAfterFinished": "1m",
        },
    });
    serde_json::from_value(object).map_err(|error| Error::local(format!("name claim {}", session.claim), error, crate::error::SAME_VERSION))
}

async fn read_once_known<F>(cluster: &Cluster, name: &str, read: impl Fn(String) -> F) -> Result<(), Error>
where
    F: Future<Output = Result<(), Error>>,
{
    let is_seen = |agent: Option<&YoiPod>| match agent.and_then(|agent| agent.status.as_ref()) {
        Some(status) if !status.conditions.is_empty() => Ok(Wait::Done(())),
        Some(_) | None => Ok(Wait::Pending("the operator has not looked at it yet".to_owned())),
    };
    cluster.wait(name, SEEN_WITHIN, "seen by the operator", is_seen).await?;
    let begun = Instant::now();
    loop {
        match read(name.to_owned()).await {
            Err(Error::Missing { .. }) if begun.elapsed() < KNOWN_WITHIN => tokio::time::sleep(AGAIN_AFTER).await,
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PersistentVolumeClaim;
    use yoi_crds::pod::DesiredState;

    use super::*;

    #[test]
    fn f16_what_reads_the_session_of_an_agent_that_is_gone_names_its_claim_and_never_starts() {
        let claim: PersistentVolumeClaim = serde_json::from_value(json!({ "metadata": { "name": "old-session", "namespace": "ns",
            "labels": { "yoi.dev/yoipod": "old", "yoi.dev/project": "p" }, "annotations": { "yoi.dev/yoipod-uid": "u" } } }))
        .unwrap();
        let session = ListedSession::new(claim, &[]).unwrap();
        let reader = reader_of(&session).unwrap();
        assert!(yoi_plan::yoipod::is_stopped(&reader) && reader.spec.desired_state == DesiredState::Stopped);
        assert_eq!((reader.spec.session.claim_name.as_deref(), reader.spec.project_ref.name.as_str()), (Some("old-session"), "p"));
        assert!(reader.spec.task.is_none() && reader.spec.limits.lifetime.is_some() && reader.spec.ttl_after_finished.is_some());
    }
}
