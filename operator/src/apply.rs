//! Carries out one step of a plan.

use std::fmt::Debug;

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use yoi_crds::name::{annotation, field_manager, label};
use yoi_crds::{AgentWorkspace, WorkspaceNode, YoiPod, YoiProject};
use yoi_plan::meta;
use yoi_plan::step::{Kind, Step, Target};
use yoi_plan::workspace::claim::tree_behind;
use yoi_plan::yoipod::MADE_FOR;

use crate::log_subject::{LogSubject, log_for};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The step was planned on an old version of the object; the watch brings the new one.
    #[error("failed to {operation}: the object has changed since it was seen")]
    Outdated { operation: String },
    /// The name is taken by an object that was made for another owner.
    #[error("failed to {operation}: an object of that name exists and was not made for this one; delete or rename it")]
    Foreign { operation: String },
    /// Nothing can be created in a namespace that is being deleted.
    #[error("failed to {operation}: the namespace is being deleted")]
    Terminating { operation: String },
    #[error("failed to {operation}: {}", api_message(source))]
    Refused { operation: String, source: Box<kube::Error> },
}

impl Error {
    /// Whether planning again with a newer view is enough, so that nobody needs to be told.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        match self {
            Error::Outdated { .. } | Error::Terminating { .. } => true,
            Error::Foreign { .. } | Error::Refused { .. } => false,
        }
    }

    pub(crate) fn from(operation: String, source: kube::Error) -> Self {
        match &source {
            kube::Error::Api(s) if s.is_conflict() => Error::Outdated { operation },
            kube::Error::Api(s) if s.is_forbidden() && s.message.contains("because it is being terminated") => {
                Error::Terminating { operation }
            }
            _ => Error::Refused { operation, source: Box::new(source) },
        }
    }
}

/// The message of the API server, if the error has one.
fn api_message(source: &kube::Error) -> String {
    match source {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

fn ignore_not_found<T>(result: Result<T, kube::Error>) -> Result<(), kube::Error> {
    match result {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(s)) if s.is_not_found() => Ok(()),
        Err(e) => Err(e),
    }
}

/// Carries out one step. A repetition changes nothing.
///
/// # Errors
/// Says whether the step is worth repeating: see [`Error::is_quiet`].
pub async fn apply(client: &Client, subject: &LogSubject, step: &Step) -> Result<(), Error> {
    let operation = step.description();
    match step {
        Step::AddFinalizers { of, resource_version, all } => {
            patch(client, of, json!({"metadata": {"resourceVersion": resource_version, "finalizers": all}}), &operation).await?;
        }
        Step::RemoveFinalizer { of, resource_version, finalizer: _, left } => {
            patch(client, of, json!({"metadata": {"resourceVersion": resource_version, "finalizers": left}}), &operation).await?;
        }
        Step::EnsureWorkspace(object) => {
            create::<AgentWorkspace>(Api::namespaced(client.clone(), namespace_of(&**object)), object, &operation).await?
        }
        Step::EnsureClaim(object) => {
            create::<PersistentVolumeClaim>(Api::namespaced(client.clone(), namespace_of(&**object)), object, &operation).await?
        }
        Step::EnsureVolume(object) => create::<PersistentVolume>(Api::all(client.clone()), object, &operation).await?,
        Step::EnsureConfigMap(object) => {
            create::<ConfigMap>(Api::namespaced(client.clone(), namespace_of(&**object)), object, &operation).await?
        }
        Step::EnsurePod(object) => create::<Pod>(Api::namespaced(client.clone(), namespace_of(&**object)), object, &operation).await?,
        Step::EnsureNetworkPolicy(object) => {
            let api: Api<NetworkPolicy> = Api::namespaced(client.clone(), namespace_of(&**object));
            let params = PatchParams::apply(field_manager::OPERATOR).force();
            api.patch(&object.name_any(), &params, &Patch::Apply(&**object)).await.map_err(|e| Error::from(operation.clone(), e))?;
        }
        Step::OwnClaim { claim, owners } => patch(client, claim, json!({"metadata": {"ownerReferences": owners}}), &operation).await?,
        Step::MakeWarmClaim(object) => {
            create::<PersistentVolumeClaim>(Api::namespaced(client.clone(), namespace_of(&**object)), object, &operation).await?
        }
        Step::TakeWarmClaim { claim, resource_version, yoipod, made_for, owners } => {
            let (labels, annotations) = (json!({label::WARM: null, label::YOIPOD: yoipod}), json!({MADE_FOR: made_for}));
            let mut body = json!({"metadata": {"resourceVersion": resource_version, "labels": labels, "annotations": annotations}});
            body["metadata"]["ownerReferences"] = json!(owners);
            body["metadata"]["uid"] = json!(claim.uid);
            match patch_kind(client, claim, &body).await {
                Ok(()) => {}
                // The next steps need it.
                Err(kube::Error::Api(s)) if s.is_not_found() => return Err(Error::Outdated { operation }),
                Err(e) => return Err(Error::from(operation, e)),
            }
        }
        Step::UnselectNode { claim, times } => {
            let annotations = json!({annotation::SELECTED_NODE: null, annotation::GIVEN_BACK: times.to_string()});
            patch(client, claim, json!({"metadata": {"annotations": annotations}}), &operation).await?;
        }
        Step::NudgeClaim { claim, times } => {
            patch(client, claim, json!({"metadata": {"annotations": {annotation::REMINDED: times.to_string()}}}), &operation).await?;
        }
        Step::SetTokens { pod, tokens } => {
            patch(client, pod, json!({"metadata": {"annotations": {annotation::TOKENS: tokens}}}), &operation).await?;
        }
        Step::SetRest { pod, after } => {
            patch(client, pod, json!({"metadata": {"annotations": {annotation::REST: after}}}), &operation).await?;
        }
        Step::SetPolicy { pod, policy } => {
            patch(client, pod, json!({"metadata": {"annotations": {annotation::POLICY: policy}}}), &operation).await?;
        }
        Step::LeaveOutSet { pod, container, image, left_out } => {
            let metadata = json!({"uid": pod.uid, "annotations": {annotation::LEFT_OUT: left_out}});
            let body = json!({"metadata": metadata, "spec": {"initContainers": [{"name": container, "image": image}]}});
            // A merge patch would replace the list of containers.
            let params = PatchParams { field_manager: Some(field_manager::OPERATOR.to_owned()), ..PatchParams::default() };
            let api: Api<Pod> = namespaced(client, pod);
            ignore_not_found(api.patch(&pod.name, &params, &Patch::Strategic(&body)).await)
                .map_err(|e| Error::from(operation.clone(), e))?;
        }
        Step::RetainVolume { volume } => {
            patch(client, volume, json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}}), &operation).await?;
        }
        Step::ConfirmGone { kind, namespace, name, of } => {
            if exists_for(client, *kind, namespace, name, of).await.map_err(|e| Error::from(operation.clone(), e))? {
                return Err(Error::Outdated { operation });
            }
        }
        Step::SetNodeCondition { of, resource_version, condition } => {
            let (api_version, kind) = (WorkspaceNode::api_version(&()), WorkspaceNode::kind(&()));
            let metadata = json!({"name": of.name, "uid": of.uid, "resourceVersion": resource_version});
            let body = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "status": {"conditions": [condition]}});
            // The shim owns this condition, and takes it back with its next report.
            let params = PatchParams::apply(field_manager::OPERATOR).force();
            let api: Api<WorkspaceNode> = Api::all(client.clone());
            ignore_not_found(api.patch_status(&of.name, &params, &Patch::Apply(&body)).await)
                .map_err(|e| Error::from(operation.clone(), e))?;
        }
        Step::SetClaims { of, resource_version, claims } => {
            let body = json!({"metadata": {"uid": of.uid, "resourceVersion": resource_version}, "status": {"claims": claims}});
            let params = PatchParams { field_manager: Some(field_manager::OPERATOR.to_owned()), ..PatchParams::default() };
            let api: Api<AgentWorkspace> = namespaced(client, of);
            ignore_not_found(api.patch_status(&of.name, &params, &Patch::Merge(&body)).await)
                .map_err(|e| Error::from(operation.clone(), e))?;
        }
        Step::Delete(target) => delete(client, target, None, &operation).await?,
        Step::DeleteUnchanged { of, resource_version } => delete(client, of, Some(resource_version), &operation).await?,
    }
    // This step only reads.
    match step {
        Step::ConfirmGone { .. } => log_for!(debug, subject, operation, "step done"),
        _ => log_for!(info, subject, operation, "step done"),
    }
    Ok(())
}

fn namespace_of<K: Resource>(object: &K) -> &str {
    object.meta().namespace.as_deref().unwrap_or_default()
}

async fn create<K>(api: Api<K>, wanted: &K, operation: &str) -> Result<(), Error>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
{
    let params = PostParams { field_manager: Some(field_manager::OPERATOR.to_owned()), ..PostParams::default() };
    match api.create(&params, wanted).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(s)) if s.is_already_exists() => {
            let existing = api.get_opt(&wanted.name_any()).await.map_err(|e| Error::from(operation.to_owned(), e))?;
            match existing {
                Some(existing) if !has_same_owner(wanted.meta(), existing.meta()) => {
                    Err(Error::Foreign { operation: operation.to_owned() })
                }
                // It is being deleted: the next round creates another.
                Some(existing) if existing.meta().deletion_timestamp.is_some() => Err(Error::Outdated { operation: operation.to_owned() }),
                // The cache does not show it yet.
                Some(_) => Ok(()),
                None => Err(Error::Outdated { operation: operation.to_owned() }),
            }
        }
        Err(e) => Err(Error::from(operation.to_owned(), e)),
    }
}

type Meta = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Whether both were made for the same owner. An object without an owner reference names its owner in an annotation.
fn has_same_owner(wanted: &Meta, existing: &Meta) -> bool {
    match meta::controller(wanted) {
        Some(owner) => meta::controlled_by(existing, &owner.uid),
        None => {
            let wanted = wanted.annotations.iter().flatten();
            let mut wanted = wanted.peekable();
            wanted.peek().is_some() && wanted.all(|(k, v)| meta::annotation(existing, k) == Some(v.as_str()))
        }
    }
}

/// Whether an object of that name exists that was made for `of`.
async fn exists_for(client: &Client, kind: Kind, namespace: &str, name: &str, of: &str) -> Result<bool, kube::Error> {
    async fn meta<K>(client: &Client, namespace: &str, name: &str) -> Result<Option<Meta>, kube::Error>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        Ok(Api::<K>::namespaced(client.clone(), namespace).get_metadata_opt(name).await?.map(|o| o.metadata))
    }
    let owned = |m: Option<Meta>| m.is_some_and(|m| meta::controlled_by(&m, of) || meta::annotation(&m, MADE_FOR) == Some(of));
    Ok(match kind {
        Kind::Project => owned(meta::<YoiProject>(client, namespace, name).await?),
        Kind::YoiPod => owned(meta::<YoiPod>(client, namespace, name).await?),
        Kind::Workspace => owned(meta::<AgentWorkspace>(client, namespace, name).await?),
        Kind::Claim => owned(meta::<PersistentVolumeClaim>(client, namespace, name).await?),
        Kind::ConfigMap => owned(meta::<ConfigMap>(client, namespace, name).await?),
        Kind::Pod => owned(meta::<Pod>(client, namespace, name).await?),
        // A volume has no owner reference: it names the workspace whose tree it shows.
        Kind::Volume => Api::<PersistentVolume>::all(client.clone()).get_opt(name).await?.is_some_and(|v| tree_behind(&v) == Some(of)),
        Kind::WorkspaceNode => {
            Api::<WorkspaceNode>::all(client.clone()).get_metadata_opt(name).await?.is_some_and(|o| meta::uid(&o.metadata) == of)
        }
    })
}

/// Patches the object with the UID of the target, so that a new object of the same name is not changed. An object that is gone needs no patch.
async fn patch(client: &Client, of: &Target, mut body: serde_json::Value, operation: &str) -> Result<(), Error> {
    body["metadata"]["uid"] = json!(of.uid);
    ignore_not_found(patch_kind(client, of, &body).await).map_err(|e| Error::from(operation.to_owned(), e))
}

async fn patch_kind(client: &Client, of: &Target, patch: &serde_json::Value) -> Result<(), kube::Error> {
    match of.kind {
        Kind::Project => merge_patch::<YoiProject>(namespaced(client, of), of, patch).await,
        Kind::YoiPod => merge_patch::<YoiPod>(namespaced(client, of), of, patch).await,
        Kind::Workspace => merge_patch::<AgentWorkspace>(namespaced(client, of), of, patch).await,
        Kind::Claim => merge_patch::<PersistentVolumeClaim>(namespaced(client, of), of, patch).await,
        Kind::Volume => merge_patch::<PersistentVolume>(Api::all(client.clone()), of, patch).await,
        Kind::ConfigMap => merge_patch::<ConfigMap>(namespaced(client, of), of, patch).await,
        Kind::Pod => merge_patch::<Pod>(namespaced(client, of), of, patch).await,
        Kind::WorkspaceNode => merge_patch::<WorkspaceNode>(Api::all(client.clone()), of, patch).await,
    }
}

async fn merge_patch<K: Clone + Debug + DeserializeOwned>(api: Api<K>, of: &Target, patch: &serde_json::Value) -> Result<(), kube::Error> {
    let params = PatchParams { field_manager: Some(field_manager::OPERATOR.to_owned()), ..PatchParams::default() };
    api.patch(&of.name, &params, &Patch::Merge(patch)).await.map(|_| ())
}

fn namespaced<K>(client: &Client, of: &Target) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    Api::namespaced(client.clone(), &of.namespace)
}

/// With `version`, only an object that has not changed since.
async fn delete(client: &Client, target: &Target, version: Option<&String>, operation: &str) -> Result<(), Error> {
    match target.kind {
        Kind::Project => delete_one(namespaced::<YoiProject>(client, target), target, version, operation).await,
        Kind::YoiPod => delete_one(namespaced::<YoiPod>(client, target), target, version, operation).await,
        Kind::Workspace => delete_one(namespaced::<AgentWorkspace>(client, target), target, version, operation).await,
        Kind::Claim => delete_one(namespaced::<PersistentVolumeClaim>(client, target), target, version, operation).await,
        Kind::Volume => delete_one(Api::<PersistentVolume>::all(client.clone()), target, version, operation).await,
        Kind::ConfigMap => delete_one(namespaced::<ConfigMap>(client, target), target, version, operation).await,
        Kind::Pod => delete_one(namespaced::<Pod>(client, target), target, version, operation).await,
        Kind::WorkspaceNode => delete_one(Api::<WorkspaceNode>::all(client.clone()), target, version, operation).await,
    }
}

async fn delete_one<K: Clone + Debug + DeserializeOwned>(
    api: Api<K>,
    target: &Target,
    version: Option<&String>,
    operation: &str,
) -> Result<(), Error> {
    let preconditions = Preconditions { uid: Some(target.uid.clone()), resource_version: version.cloned() };
    match api.delete(&target.name, &DeleteParams::background().preconditions(preconditions)).await {
        Ok(_) => Ok(()),
        // Not found: it is deleted. Conflict: it is deleted and another object has its name, or it has changed and the next round sees how.
        Err(kube::Error::Api(s)) if s.is_not_found() || s.is_conflict() => Ok(()),
        Err(e) => Err(Error::from(operation.to_owned(), e)),
    }
}
