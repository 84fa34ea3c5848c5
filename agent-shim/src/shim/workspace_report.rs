//! What the shim writes to the API server about workspaces: its part of the status, Events, and the removal of its finalizer.

use jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource, ResourceExt};
use serde_json::json;
use yoi_crds::AgentWorkspace;
use yoi_crds::condition::Condition;
use yoi_crds::name::{field_manager, finalizer};

use super::workspaces::Workspaces;
use crate::decide::workspace_status::{self, StatusUpdate};

/// Writes status, Events and the finalizer of workspaces.
pub struct WorkspaceReporter {
    client: Client,
    recorder: Recorder,
}

impl WorkspaceReporter {
    /// Reports as the shim of `node`.
    pub fn new(client: Client, node: &str) -> Self {
        let reporter = Reporter { controller: field_manager::SHIM.to_owned(), instance: Some(node.to_owned()) };
        WorkspaceReporter { recorder: Recorder::new(client.clone(), reporter), client }
    }

    fn api(&self, ws: &AgentWorkspace) -> Api<AgentWorkspace> {
        Api::namespaced(self.client.clone(), &ws.namespace().unwrap_or_default())
    }

    /// Writes the shim's part of the status if it changes, and an Event for each changed condition. Succeeds if the object is gone.
    pub async fn apply(&self, workspaces: &Workspaces, ws: &AgentWorkspace, update: StatusUpdate, now: Timestamp) -> kube::Result<()> {
        let Some(status) = workspace_status::changed_status(ws, update, &kubernetes_timestamp(now)) else { return Ok(()) };
        // With a UID, the patch never applies to another object of the same name.
        let applied = json!({
            "apiVersion": AgentWorkspace::api_version(&()),
            "kind": AgentWorkspace::kind(&()),
            "metadata": { "name": ws.name_any(), "uid": ws.metadata.uid },
            "status": status.to_patch(),
        });
        let params = PatchParams::apply(field_manager::SHIM).force();
        match self.api(ws).patch_status(&ws.name_any(), &params, &Patch::Apply(&applied)).await {
            Ok(after) => workspaces.learn(after),
            Err(kube::Error::Api(e)) if e.is_not_found() => return Ok(()),
            Err(e) => return Err(e),
        }
        for condition in status.changed_conditions(ws) {
            self.publish_event(ws, condition).await;
        }
        Ok(())
    }

    /// A failure is only logged: the condition holds the fact, the Event repeats it for people.
    async fn publish_event(&self, ws: &AgentWorkspace, condition: &Condition) {
        let Some(is_warning) = workspace_status::event_is_warning(condition) else { return };
        let event = Event {
            type_: if is_warning { EventType::Warning } else { EventType::Normal },
            reason: condition.reason.clone(),
            note: Some(format!("{}: {}", condition.type_, condition.message)),
            action: condition.type_.clone(),
            secondary: None,
        };
        if let Err(error) = self.recorder.publish(&event, &ws.object_ref(&())).await {
            tracing::debug!(%error, "an Event was lost");
        }
    }

    /// Removes the shim's finalizer. Succeeds if it, or the object, is gone.
    pub async fn remove_finalizer(&self, ws: &AgentWorkspace) -> kube::Result<()> {
        match self.try_remove_finalizer(ws).await {
            // Another finalizer was removed just before, so ours is at another index than in our copy.
            Err(kube::Error::Api(e)) if e.is_invalid() => match self.api(ws).get_opt(&ws.name_any()).await? {
                Some(fresh) if fresh.metadata.uid == ws.metadata.uid => self.try_remove_finalizer(&fresh).await,
                Some(_) | None => Ok(()),
            },
            done => done,
        }
    }

    async fn try_remove_finalizer(&self, ws: &AgentWorkspace) -> kube::Result<()> {
        let Some(at) = ws.finalizers().iter().position(|f| f == finalizer::NODE_DATA) else { return Ok(()) };
        let path = format!("/metadata/finalizers/{at}");
        let patch = serde_json::from_value(json!([
            { "op": "test", "path": "/metadata/uid", "value": ws.metadata.uid },
            { "op": "test", "path": path, "value": finalizer::NODE_DATA },
            { "op": "remove", "path": path },
        ]))
        .map_err(kube::Error::SerdeError)?;
        match self.api(ws).patch(&ws.name_any(), &PatchParams::default(), &Patch::<AgentWorkspace>::Json(patch)).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(e)) if e.is_not_found() => Ok(()),
            Err(e) => Err(e),
        }
    }
}

/// The time as Kubernetes writes it: RFC 3339 in whole seconds, UTC.
pub fn kubernetes_timestamp(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
