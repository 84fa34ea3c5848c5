//! Writes the status if it changed, and publishes an Event for each change.

use std::fmt::Debug;

use kube::api::{Patch, PatchParams};
use kube::core::NamespaceResourceScope;
use kube::runtime::events::{Event, EventType};
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use yoi_crds::name::field_manager;
use yoi_crds::pod::{PushStatus, ReaderStatus};
use yoi_crds::reason::condition;
use yoi_crds::sync::SyncStatus;
use yoi_crds::{AgentWorkspaceStatus, YoiPeerStatus, YoiPodStatus, YoiProjectStatus};
use yoi_plan::conditions::{self, Conditions, condition_events, is_progress};
use yoi_plan::names::is_warm_claim;

use crate::apply;
use crate::event_recorder::EventRecorder;
use crate::log_subject::{LogSubject, log_for};

/// Conditions of an AgentWorkspace that the operator writes; the shim writes the others.
const WORKSPACE: &[&str] = &[condition::ACCEPTED, condition::SCHEDULED, condition::POPULATED, condition::BOUND, condition::READY];

/// A status of which the operator owns some fields, and other writers the rest.
pub trait OwnedFields: Conditions + Clone + PartialEq + Default + Serialize {
    /// The status with the fields that the operator owns, and no others.
    #[must_use]
    fn owned_fields(&self) -> Self;

    /// The status without what only people look at: conditions, and fields that repeat other objects.
    #[must_use]
    fn without_progress(&self) -> Self {
        let mut status = self.clone();
        status.conditions_mut().clear();
        status
    }
}

impl OwnedFields for YoiProjectStatus {
    fn owned_fields(&self) -> Self {
        let deleted = self.sync.as_ref().map(|sync| sync.deleted.clone()).filter(|deleted| !deleted.is_empty());
        let sync = deleted.map(|deleted| Box::new(SyncStatus { deleted, ..SyncStatus::default() }));
        YoiProjectStatus { sync, ..self.clone() }
    }
}

impl OwnedFields for YoiPeerStatus {
    fn owned_fields(&self) -> Self {
        self.clone()
    }
}

impl OwnedFields for AgentWorkspaceStatus {
    /// Until a node is named, nobody reads what the tree will be: the Pod of its agent is made from the specs, and no shim has it yet.
    fn without_progress(&self) -> Self {
        let status = AgentWorkspaceStatus { conditions: Vec::new(), ..self.clone() };
        match self.node_name {
            Some(_) => status,
            None => AgentWorkspaceStatus { observed_generation: None, owner: None, path: None, quota_bytes: None, ..status },
        }
    }

    fn owned_fields(&self) -> Self {
        let AgentWorkspaceStatus {
            observed_generation,
            node_name,
            origin,
            owner,
            path,
            quota_bytes,
            claim_name,
            pod_uid,
            reader_pod_uid,
            provider: _,
            volume: _,
            // Written by themselves, because the gateway writes them, too.
            claims: _,
            loans: _,
            conditions,
        } = self.clone();
        let conditions = conditions.into_iter().filter(|c| WORKSPACE.contains(&c.type_.as_str())).collect();
        AgentWorkspaceStatus {
            observed_generation,
            node_name,
            origin,
            owner,
            path,
            quota_bytes,
            claim_name,
            pod_uid,
            reader_pod_uid,
            provider: None,
            volume: None,
            claims: Vec::new(),
            loans: Vec::new(),
            conditions,
        }
    }
}

impl OwnedFields for YoiPodStatus {
    /// Until the first run has its number, which comes with its Pod, a claim of the agent's own is found by its name. A warm one is taken only once the
    /// status names it.
    fn without_progress(&self) -> Self {
        let status = YoiPodStatus { workspace: None, parent: None, children: None, conditions: Vec::new(), ..self.clone() };
        match self.run_generation {
            Some(_) => status,
            None => {
                let session_claim_name = self.session_claim_name.clone().filter(|name| is_warm_claim(name));
                YoiPodStatus { observed_generation: None, session_claim_name, ..status }
            }
        }
    }

    fn owned_fields(&self) -> Self {
        let YoiPodStatus {
            observed_generation,
            run_generation,
            manifest,
            policy,
            pod,
            workspace,
            loan,
            session_claim_name,
            session: _,
            task: _,
            live: _,
            report: _,
            rest: _,
            ended,
            parent,
            children,
            reader,
            push,
            conditions,
        } = self.clone();
        // The request is the gateway's.
        let push = push.map(|push| PushStatus { request: None, ..*push }).filter(|push| *push != PushStatus::default()).map(Box::new);
        let reader = reader.filter(|reader| reader.pod.is_some()).map(|reader| ReaderStatus { requested_at: None, ..reader });
        YoiPodStatus {
            observed_generation,
            run_generation,
            manifest,
            policy,
            pod,
            workspace,
            loan,
            session_claim_name,
            session: None,
            task: None,
            live: None,
            report: None,
            rest: None,
            ended,
            parent,
            children,
            reader,
            push,
            conditions,
        }
    }
}

fn sort_conditions<S: OwnedFields>(mut status: S) -> S {
    status.conditions_mut().sort_by(|a, b| a.type_.cmp(&b.type_));
    status
}

/// Returns whether `after` differs from `before` in what only people look at.
#[must_use]
pub fn may_wait<S: OwnedFields>(before: Option<&S>, after: &S) -> bool {
    let before = sort_conditions(before.map(OwnedFields::owned_fields).unwrap_or_default());
    let after = sort_conditions(after.clone());
    before != after && is_progress(before.conditions(), after.conditions()) && before.without_progress() == after.without_progress()
}

/// Writes `after` if it differs from `before`, and returns whether it did.
///
/// The write has the resource version of `object`: a status that was planned on an old version is refused as [`apply::Error::Outdated`].
pub async fn write_status<K, S>(
    client: &Client,
    recorder: &EventRecorder,
    subject: &LogSubject,
    object: &K,
    before: Option<&S>,
    after: S,
) -> Result<bool, apply::Error>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned,
    S: OwnedFields,
{
    let before = sort_conditions(before.map(OwnedFields::owned_fields).unwrap_or_default());
    let after = sort_conditions(after);
    if before == after {
        return Ok(false);
    }
    let (name, namespace) = (object.name_any(), object.namespace().unwrap_or_default());
    let body = json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": {"name": name, "namespace": namespace, "uid": object.uid(), "resourceVersion": object.resource_version()},
        "status": after,
    });
    let api: Api<K> = Api::namespaced(client.clone(), &namespace);
    let params = PatchParams::apply(field_manager::OPERATOR).force();
    match api.patch_status(&name, &params, &Patch::Apply(&body)).await {
        Ok(_) => {}
        Err(kube::Error::Api(s)) if s.is_not_found() => return Ok(false),
        Err(e) => return Err(apply::Error::from(format!("write the status of {} {name}", K::kind(&())), e)),
    }
    log_for!(debug, subject, "status written");
    publish_events(recorder, subject, object, condition_events(before.conditions(), after.conditions()));
    Ok(true)
}

/// Publishes Events of an object. One that is lost is only logged: what it says stands elsewhere, too.
pub fn publish_events<K: Resource<DynamicType = ()>>(
    recorder: &EventRecorder,
    subject: &LogSubject,
    object: &K,
    changes: Vec<conditions::Event>,
) {
    let about = object.object_ref(&());
    for change in changes {
        let event = Event {
            type_: if change.warning { EventType::Warning } else { EventType::Normal },
            reason: change.reason,
            note: Some(truncate(change.note)),
            action: "Reconcile".to_owned(),
            secondary: None,
        };
        recorder.publish(subject, event, about.clone());
    }
}

/// The API server takes at most 1,024 bytes.
fn truncate(mut note: String) -> String {
    while note.len() > 1000 {
        note.pop();
    }
    note
}
